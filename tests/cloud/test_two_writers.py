"""Two writers at one URL: at most one ends without an error, and all its datapoints are there.

Requests are ordered by a proxy whose listings are empty, as they were before the other writer began.
"""

import contextlib
import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import fsspec
import numpy as np
import pytest
from fsspec.implementations.memory import MemoryFileSystem

import bags
from bags import bag
from bags.authoring.temporary_shards import begin, commit
from bags.interop.targets.target import Target
from bags.storage import Hints, store_for
from tests.cloud.conftest import GCS, S3, make_storage
from tests.servers import Proxy

ROOT = Path(__file__).parents[2]
SPEC = {'id': 'int(8)', 'text': 'utf8'}
EMPTY = (
    b'<?xml version="1.0" encoding="UTF-8"?><ListBucketResult><Name>bucket</Name><KeyCount>0</KeyCount>'
    b'<MaxKeys>1000</MaxKeys><IsTruncated>false</IsTruncated></ListBucketResult>'
)


class Listings(Proxy):
    """A proxy whose next listings are empty."""

    empty = 0

    def pass_on(self, handler, fault):
        handler.headers.replace_header('Host', self.upstream)  # The GCS server looks at it.
        is_json = '/o?' in handler.path
        if handler.command == 'GET' and (is_json or 'list-type=2' in handler.path) and self.empty:
            self.empty -= 1
            body = b'{"kind": "storage#objects"}' if is_json else EMPTY
            handler.send_response(200)
            handler.send_header('Content-Type', 'application/json' if is_json else 'application/xml')
            handler.send_header('Content-Length', str(len(body)))
            handler.end_headers()
            handler.wfile.write(body)
            return
        super().pass_on(handler, fault)


class ForgetfulMemory(MemoryFileSystem):
    """`memory://` whose next listings are empty."""

    cachable = False
    empty = 0

    def ls(self, path, detail=True, **options):
        if self.empty:
            self.empty -= 1
            return []
        return super().ls(path, detail=detail, **options)


class Place:
    """A store, and the options of a second client whose listings can be empty."""

    def __init__(self, root, options, late_root, late_options, listings):
        self.root, self.options = root, options
        self.late_root, self.late_options, self.listings = late_root, late_options, listings

    def path(self, name):
        return f'{self.root}/{name}'

    def late(self, name, empty):
        """Returns path and options of a client that sees nothing in its next listings."""
        self.listings.empty = empty
        return f'{self.late_root}/{name}', self.late_options

    def rows(self, name):
        with bags.open(self.path(name), **self.options) as dataset:
            assert not dataset.unfinished
            return [(row['id'], row['text']) for row in dataset]

    def files(self, name):
        store, path = store_for(self.path(name), None, self.options.get('storage_options'))
        return store.walk(path)


@pytest.fixture(scope='module', params=['memory', *S3, *GCS])
def place(request):
    if request.param == 'memory':
        memory = ForgetfulMemory()
        yield Place('memory://two', {}, '/two', {'filesystem': memory}, memory)
        with contextlib.suppress(FileNotFoundError):
            fsspec.filesystem('memory').rm('/two', recursive=True)
        return
    storage = make_storage(request, request.param)
    with Listings(storage.server) as proxy:
        root = f'{storage.root}/two'
        late = {'storage_options': storage.through(proxy)}
        yield Place(root, {'storage_options': storage.options}, root, late, proxy)


def make_rows(writer, start, count=3):
    rows = [(start + index, f'text {start + index}') for index in range(count)]
    for id, text in rows:
        writer.append({'id': id, 'text': text})
    return rows


WRITERS = [bags.DatasetWriter, pytest.param(bags.ShardedDatasetWriter, id='sharded')]


@pytest.mark.parametrize('resume', [False, True])
@pytest.mark.parametrize('make', WRITERS)
def test_both_list_an_empty_folder(place, make, resume):
    name = f'empty-{make.__name__}-{resume}'
    with make(place.path(name), SPEC, **place.options) as first:
        late, options = place.late(name, 1)
        with pytest.raises(BlockingIOError, match='another writer has just begun here'):
            make(late, SPEC, resume=resume, **options)
        rows = make_rows(first, 0)
    assert place.rows(name) == rows


@pytest.mark.parametrize('resume', [False, True])
@pytest.mark.parametrize('make', WRITERS)
@pytest.mark.parametrize('empty', [1, 2, 3])
def test_a_listing_that_is_empty_by_mistake(place, make, resume, empty):
    """Also the one of a writer that listed the folder before another writer began and finished."""
    name = f'mistake-{make.__name__}-{resume}-{empty}'
    with make(place.path(name), SPEC, **place.options) as first:
        rows = make_rows(first, 0)
    files = place.files(name)
    late, options = place.late(name, empty)
    try:
        with make(late, SPEC, resume=resume, **options) as second:
            more = make_rows(second, 10)
    except OSError as exc:
        assert name in str(exc)  # noqa: PT017
        assert place.files(name) == files
        assert place.rows(name) == rows
    else:
        assert resume
        assert place.rows(name) == rows + more
    place.listings.empty = 0


@pytest.mark.parametrize('make', WRITERS)
def test_resuming_takes_the_dataset_from_a_writer_that_still_runs(place, make):
    name = f'taken-{make.__name__}'
    first = make(place.path(name), SPEC, **place.options)
    make_rows(first, 0)
    with make(place.path(name), SPEC, resume=True, **place.options) as second:
        rows = make_rows(second, 10)
        with pytest.raises(OSError, match=f'another writer or bags.recover has taken this dataset.*{name}'):
            first.close()
    with contextlib.suppress(OSError):
        first.abandon()
    assert place.rows(name) == rows


@pytest.mark.parametrize('make', WRITERS)
def test_a_writer_that_gives_up_leaves_what_another_has_written(place, make):
    name = f'given-up-{make.__name__}'
    first = make(place.path(name), SPEC, **place.options)
    with make(place.path(name), SPEC, resume=True, **place.options) as second:
        rows = make_rows(second, 10)
    with contextlib.suppress(OSError):
        first.abandon()
    assert place.rows(name) == rows


@pytest.mark.parametrize('make', WRITERS)
def test_a_writer_that_gives_up_before_its_first_datapoint_leaves_nothing(place, make):
    name = f'nothing-{make.__name__}'
    with contextlib.suppress(InterruptedError), make(place.path(name), SPEC, **place.options):
        raise InterruptedError
    with pytest.raises(FileNotFoundError):
        place.files(name)


def end_first_shard(writer):
    """Ends the first shard of a writer, and waits until it is stored."""
    writer.end_shard()
    for _ in range(1000):
        if writer.store.exists(f'{writer.path}/000000/source.json') and not writer.store.exists(
            f'{writer.path}/000000/unfinished'
        ):
            return
        time.sleep(0.01)
    raise AssertionError('the shard was not closed')


@pytest.mark.parametrize('make', WRITERS)
def test_resuming_that_fails_leaves_the_other_writer_alone(place, make):
    name = f'refused-{make.__name__}'
    with make(place.path(name), SPEC, **place.options) as first:
        rows = make_rows(first, 0)
        if make is bags.ShardedDatasetWriter:
            end_first_shard(first)
            rows += make_rows(first, 5)
        with pytest.raises(bags.SpecError):
            make(place.path(name), {'id': 'utf8'}, resume=True, **place.options)
        rows += make_rows(first, 10)
    assert place.rows(name) == rows


def test_shards_of_a_writer_whose_dataset_was_taken(place):
    name = 'between'
    first = bags.ShardedDatasetWriter(place.path(name), SPEC, **place.options)
    rows = make_rows(first, 0)
    end_first_shard(first)
    options = {**place.options, 'shard_length': 2, 'resume': True}
    with bags.ShardedDatasetWriter(place.path(name), SPEC, **options) as second:
        rows += make_rows(second, 10)
        with pytest.raises(OSError, match='has taken this dataset'):
            make_rows(first, 20, 3)
    with contextlib.suppress(OSError):
        first.abandon()
    assert place.rows(name) == rows


def test_workers_of_one_dataset(place):
    name = 'workers'
    path = place.path(name)
    options = {'shard_length': 2, 'shard_step': 2, **place.options}
    workers = [bags.ShardedDatasetWriter(path, SPEC, shard_start=start, **options) for start in range(2)]
    for resume in (False, True):
        late, late_options = place.late(name, 1)
        again = {'shard_start': 1, 'shard_step': 2, 'resume': resume, **late_options}
        with pytest.raises(BlockingIOError, match='another writer'):
            bags.ShardedDatasetWriter(late, SPEC, **again)
    rows = [make_rows(worker, 100 * number, 5) for number, worker in enumerate(workers)]
    for worker in workers:
        worker.close()
    assert sorted(place.rows(name)) == sorted(rows[0] + rows[1])


def test_a_worker_without_a_shard_of_its_own(place):
    """Two writers whose numbers overlap: each shard is of one of them."""
    name, path = 'overlap', place.path('overlap')
    first = bags.ShardedDatasetWriter(path, SPEC, shard_start=0, shard_step=2, **place.options)
    late, options = place.late(name, 1)
    with pytest.raises(OSError, match='overlap'):
        bags.ShardedDatasetWriter(late, SPEC, **options)
    place.listings.empty = 0
    with first:
        rows = make_rows(first, 0)
    bags.ShardedDatasetWriter(path, SPEC, shard_start=1, shard_step=2, **place.options).close()
    assert place.rows(name) == rows


@pytest.mark.parametrize('steps', [(1, 2), (2, 1)])
def test_a_shard_of_a_writer_with_other_numbers(place, steps):
    name = f'numbers-{steps[0]}'
    first, second = ({'shard_start': 0, 'shard_step': step, **place.options} for step in steps)
    earlier = bags.ShardedDatasetWriter(place.path(name), SPEC, **first)
    make_rows(earlier, 0)
    with bags.ShardedDatasetWriter(place.path(name), SPEC, resume=True, **second) as writer:
        rows = make_rows(writer, 10)
    with pytest.raises(OSError, match='has taken this dataset'):
        earlier.close()
    with contextlib.suppress(OSError):
        earlier.abandon()
    with bags.open(place.path(name), **place.options) as dataset:
        assert [(row['id'], row['text']) for row in dataset] == rows


@pytest.mark.parametrize('fields', [None, 'id'])
def test_copies(place, fields):
    name, sources = f'copies-{fields}', []
    for number in range(2):
        sources.append(place.path(f'source-{fields}-{number}'))
        with bags.DatasetWriter(sources[-1], SPEC, **place.options) as writer:
            make_rows(writer, 10 * number)
    source_options = place.options.get('storage_options')
    copy = {'fields': fields, 'source_options': source_options}
    bags.copy(sources[0], place.path(name), **copy, **place.options)
    files = place.files(name)
    late, options = place.late(name, 1)
    opened = bags.open(sources[1], **place.options)
    with pytest.raises(OSError, match=name):
        bags.copy(opened, late, fields=fields, **options)
    place.listings.empty = 0
    assert place.files(name) == files
    with bags.open(place.path(name), **place.options) as dataset:
        assert dataset.column('id').tolist() == [0, 1, 2]


def test_a_dictionary_of_another_writer_stays(place):
    name = 'dictionary'
    options = {'compression': {'text': 'dictionary'}, **place.options}
    texts = [f'number {index % 7} of the many texts that are like each other' for index in range(3000)]
    first = bags.DatasetWriter(place.path(name), SPEC, **options)
    for index, text in enumerate(texts):
        first.append({'id': index, 'text': text})
    with bags.DatasetWriter(place.path(name), SPEC, resume=True, **options) as second:
        for index, text in enumerate(texts[:2000]):
            second.append({'id': index, 'text': text[::-1]})
    with pytest.raises(OSError, match='has taken this dataset'):
        first.close()
    assert [text for _, text in place.rows(name)] == [text[::-1] for text in texts[:2000]]


def test_parallel_tasks_that_write_one_dataset(place):
    """Shards with temporary names, as Beam and Ray write them, are renamed by one of two runs."""
    name = 'tasks'
    store, folder = store_for(place.path(name), None, place.options.get('storage_options'))
    runs, rows = [begin(store, folder) for _ in range(2)], []
    for number, run in enumerate(runs):
        with bags.DatasetWriter(store.join(run, 'shard'), SPEC, **place.options) as writer:
            rows.append(make_rows(writer, 10 * number))
    moves = [[(store.join(run, 'shard'), store.join(folder, '000000'))] for run in runs]
    commit(store, runs[0], moves[0])
    for _ in range(2):
        with pytest.raises(FileExistsError, match='another writer has written or begun a dataset here'):
            commit(store, runs[1], moves[1])
        assert place.rows(name) == rows[0]
    commit(store, runs[0], moves[0])  # Repeated after it has succeeded.
    store.replace(store.join(folder, 'unfinished'), b'of a writer that is at work')
    with pytest.raises(FileExistsError, match='another writer has written or begun a dataset here'):
        commit(store, runs[1], moves[1])


# Exports.

FACTS = {'format': 'files', 'extension': 'files', 'datapoints': 2}


def begin_export(place, name, number=0, resume=False, late=0):
    """Begins an export; `late`: the number of its listings that are empty."""
    path, options = place.late(name, late) if late else (place.path(name), place.options)
    if 'filesystem' in options:  # Exports take URLs only.
        pytest.skip('needs a proxy')
    facts = {**FACTS, 'number': number}
    return Target(path, options.get('storage_options'), facts, lambda: 'a dataset', resume=resume)


def read_files(place, name):
    store, path = store_for(place.path(name), None, place.options.get('storage_options'))
    return {file: store.read(store.join(path, file)) for file in store.walk(path)}


@pytest.mark.parametrize('resume', [False, True])
def test_two_exports_that_list_an_empty_folder(place, resume):
    name = f'export-empty-{resume}'
    with begin_export(place, name) as first:
        first.write('a.txt', b'first')
        with pytest.raises(BlockingIOError, match=f'another writer has just begun here.*{name}'):
            begin_export(place, name, 1, resume, late=1)
        first.write('b.txt', b'first')
    assert read_files(place, name) == {'a.txt': b'first', 'b.txt': b'first'}


@pytest.mark.parametrize('resume', [False, True])
@pytest.mark.parametrize('empty', [1, 2, 3])
def test_a_listing_that_is_empty_by_mistake_before_an_export(place, resume, empty):
    """The folder has a complete export."""
    name = f'export-mistake-{resume}-{empty}'
    with begin_export(place, name) as first:
        first.write('a.txt', b'first')
    try:
        with pytest.raises(OSError, match=name):
            begin_export(place, name, 1, resume, late=empty)
    finally:
        place.listings.empty = 0
    assert read_files(place, name) == {'a.txt': b'first'}


def test_an_export_that_was_resumed_by_another_process(place):
    name = 'export-resumed'
    for way in ('ends', 'fails', 'writes a shard'):
        first = begin_export(place, f'{name}-{way}')
        first.write('a.txt', b'same')
        with begin_export(place, f'{name}-{way}', resume=True) as second:
            second.write('a.txt', b'same')
            if way == 'writes a shard':
                with pytest.raises(OSError, match='another export has continued this one'):
                    first.end_shard(1)
            second.write('b.txt', b'second')
        if way == 'fails':
            first.__exit__(KeyError, KeyError(), None)
        else:
            with pytest.raises(OSError, match='another export has continued this one'), first:
                pass
        assert read_files(place, f'{name}-{way}') == {'a.txt': b'same', 'b.txt': b'second'}


def test_an_export_removes_only_its_own_files(place):
    name = 'export-own'
    store, path = store_for(place.path(name), None, place.options.get('storage_options'))
    export = begin_export(place, name)
    export.write('a.txt', b'mine')
    store.replace(store.join(path, 'b.txt'), b'of somebody')
    with pytest.raises(OSError, match=r'b\.txt'), export:
        export.write('b.txt', b'mine')
    assert read_files(place, name) == {'b.txt': b'of somebody'}
    export = begin_export(place, f'{name}-tar')
    store.replace(store.join(f'{path}-tar', '000000.tar'), b'of somebody')
    with pytest.raises(OSError, match=r'000000\.tar'), export, export.create('000000.tar') as file:
        file.write(bytes(9 << 20))
    assert read_files(place, f'{name}-tar') == {'000000.tar': b'of somebody'}


def test_an_export_that_cannot_be_resumed_stays_as_it_is(place):
    name = 'export-stays'
    with begin_export(place, name) as first:
        first.write('a.txt', b'first')
        files = read_files(place, name)
        with pytest.raises(InterruptedError), begin_export(place, name, resume=True):
            raise InterruptedError
        assert read_files(place, name) == files
        with pytest.raises(ValueError, match='expected an export of the same arguments'):
            begin_export(place, name, 1, resume=True)
        with pytest.raises(FileExistsError, match='holds an unfinished export'):
            begin_export(place, name)
    assert read_files(place, name) == {'a.txt': b'first'}


# Single bags and files.


def test_two_writers_of_a_bag(place):
    path = place.path('bag/x.bag')
    for checksum in (False, True):
        with bag.Writer(path, mode='overwrite', checksum=checksum, **place.options) as writer:
            writer.write(b'old')
        first, second = (
            bag.Writer(path, mode='append', checksum=checksum, **place.options) for _ in range(2)
        )
        first.write(b'first')
        second.write(b'second')
        first.close()
        with pytest.raises(OSError, match=r'since|after it was read.*x\.bag'):
            second.close()
        second.discard()
        assert bag.Reader(path, checksum=checksum, **place.options).read() == [b'old', b'first']


def test_two_writers_that_create_a_bag_with_checksums(place):
    path = place.path('bag/new.bag')
    writers = [bag.Writer(path, checksum=True, **place.options) for _ in range(2)]
    for number, writer in enumerate(writers):
        writer.write(b'of %d' % number)
    writers[0].close()
    with pytest.raises(OSError, match=r'new\.bag'):
        writers[1].close()
    writers[1].discard()
    assert bag.Reader(path, checksum=True, **place.options).read() == [b'of 0']


def test_conditional_writes(place):
    path = place.path('files/a.json')
    store, path = store_for(path, None, place.options.get('storage_options'))
    assert store.current_version(path) is None
    store.replace(path, b'1', None)
    with pytest.raises(FileExistsError, match=r'a\.json'):
        store.replace(path, b'2', None)
    version = store.current_version(path)
    store.replace(path, b'22', version)
    for data in (b'3', b'33'):
        with pytest.raises(OSError, match=r'after it was read: not overwritten.*a\.json'):
            store.replace(path, data, version)
    assert store.read(path) == b'22'
    version = store.current_version(path)
    store.remove(path)
    with pytest.raises(OSError, match=r'after it was read: not overwritten.*a\.json'):
        store.replace(path, b'3', version)
    store.replace(path, b'4')
    assert store.read(path) == b'4'


def test_a_large_bag_that_another_writer_has_replaced(place):
    path = place.path('bag/large.bag')
    with bag.Writer(path, **place.options) as writer:
        writer.write(np.random.default_rng(0).bytes(9 << 20))
    first, second = (bag.Writer(path, mode='append', **place.options) for _ in range(2))
    first.write(b'first')
    first.close()
    second.write(b'second')
    with pytest.raises(OSError, match=r'large\.bag'):
        second.close()
    second.discard()
    assert bag.Reader(path, **place.options)[1] == b'first'


# Requests that have to be repeated.


@pytest.mark.parametrize('fault', ['lose', 'conflict'])
def test_each_first_write_of_a_file_fails(s3_storage, proxy, fault):
    """Its response is lost, so that the second attempt finds the file; or the store asks to try again."""
    seen = set()

    def fail_first(_):
        method, path, _ = proxy.requests[-1]
        is_first = method == 'PUT' and path not in seen
        seen.update([path] * is_first)
        proxy.faults = {fault: 1.0} if is_first else {}

    proxy.before = fail_first
    root, options = f'{s3_storage.root}/{fault}', {'storage_options': s3_storage.through(proxy)}
    for has_journal in (False, True):
        if has_journal:
            store, path = store_for(root, None, s3_storage.options)
            store.replace(store.join(path, 'unfinished'), b'of a writer that was killed')
        seen.clear()
        with bags.ShardedDatasetWriter(root, SPEC, shard_length=2, resume=True, **options) as writer:
            rows = make_rows(writer, 0)
    assert len(seen) > 5
    with bags.open(root, storage_options=s3_storage.options) as dataset:
        assert [(row['id'], row['text']) for row in dataset] == rows + rows
        assert not dataset.unfinished


def replaced_meanwhile(proxy, name, replace):
    """Calls a function once, before the first PUT of a file."""

    def before(_):
        method, path, _ = proxy.requests[-1]
        if method == 'PUT' and path.rpartition('/')[2].startswith(name):
            proxy.before = int
            replace()

    proxy.before = before


def test_metadata_that_another_process_has_replaced(s3_storage, proxy):
    path = f'{s3_storage.root}/metadata'
    direct, through = {'storage_options': s3_storage.options}, {'storage_options': s3_storage.through(proxy)}
    with bags.DatasetWriter(path, SPEC, metadata={'by': 'nobody'}, **direct) as writer:
        make_rows(writer, 0)
    replaced_meanwhile(proxy, 'metadata.json', lambda: bags.set_metadata(path, {'by': 'first'}, **direct))
    with pytest.raises(OSError, match=r'after it was read: not overwritten; run this again.*metadata\.json'):
        bags.set_metadata(path, {'by': 'second'}, **through)
    assert bags.open(path, **direct).metadata['by'] == 'first'


@pytest.mark.parametrize('metadata', [{'by': 'second'}, {}])
@pytest.mark.parametrize('checksum', [False, True])
def test_metadata_of_a_later_shard_that_another_process_has_replaced(s3_storage, proxy, metadata, checksum):
    path = f'{s3_storage.root}/metadata-of-shards-{checksum}-{len(metadata)}'
    direct, through = {'storage_options': s3_storage.options}, {'storage_options': s3_storage.through(proxy)}
    options = {'shard_length': 1, 'metadata': {'by': 'nobody'}, 'checksum': checksum}
    with bags.ShardedDatasetWriter(path, SPEC, **options, **direct) as writer:
        make_rows(writer, 0)
    store, shard = store_for(f'{path}/000002', None, s3_storage.options)
    file, other = store.join(shard, 'metadata.json'), b'{"by": "first"}'

    def before(_):
        method, target, _ = proxy.requests[-1]
        is_delete = method == 'DELETE' or target.endswith('?delete')  # obstore lists the objects in a POST.
        if is_delete or (method == 'PUT' and '/000000/metadata.json' in target):
            proxy.before = int
            store.replace(file, other)

    proxy.before = before
    with pytest.raises(
        OSError, match=r'after it was read: not overwritten; run this again.*000002/metadata\.json'
    ):
        bags.set_metadata(path, metadata, **through)
    assert store.read(file) == other
    bags.set_metadata(path, metadata, **direct)
    assert bags.open(path, **direct).metadata == metadata
    if metadata:
        assert json.loads(store.read(file)) == metadata
    else:
        assert not store.exists(file)
    assert bags.verify(path, **direct) == []


def test_shards_json_that_another_process_has_removed(s3_storage, proxy):
    path = f'{s3_storage.root}/consolidated'
    direct, through = {'storage_options': s3_storage.options}, {'storage_options': s3_storage.through(proxy)}
    with bags.ShardedDatasetWriter(path, SPEC, shard_length=2, **direct) as writer:
        rows = make_rows(writer, 0)
    bags.consolidate(path, **direct)

    def append():
        with bags.ShardedDatasetWriter(path, SPEC, shard_length=2, resume=True, **direct) as writer:
            rows.extend(make_rows(writer, 10))

    replaced_meanwhile(proxy, 'shards.json', append)
    with pytest.raises(OSError, match=r'after it was read: not overwritten.*shards\.json'):
        bags.consolidate(path, **through)
    assert [row['id'] for row in bags.open(path, **direct)] == [id for id, _ in rows]


def test_a_journal_without_its_writer(s3_storage):
    """As a writer of an earlier version leaves it: without an id."""
    options = {'storage_options': s3_storage.options}
    path = f'{s3_storage.root}/earlier'
    with bags.DatasetWriter(path, SPEC, **options) as writer:
        rows = make_rows(writer, 0)
    store, root = store_for(path, None, s3_storage.options)
    store.replace(store.join(root, 'unfinished'), b'This dataset is being written.\n')
    with bags.DatasetWriter(path, SPEC, resume=True, **options) as writer:
        rows += make_rows(writer, 10)
    with bags.open(path, **options) as dataset:
        assert [(row['id'], row['text']) for row in dataset] == rows
        assert not dataset.unfinished
    assert store.open(store.join(root, 'refs.bag'), Hints()).size


# Processes that write at the same time.


class Delays(Proxy):
    """A proxy that delays each request by up to `delay`, before or after it reaches the server."""

    longest = 0.03

    def pass_on(self, handler, fault):
        delay, chance = random.uniform(0, self.longest), random.random() < 0.5
        time.sleep(delay * chance)
        super().pass_on(handler, fault)
        time.sleep(delay * (not chance))


class Writers:
    """Processes that each write a dataset when they are asked to."""

    def __init__(self, count):
        environment = {**os.environ, 'PYTHONPATH': str(ROOT)}
        self.processes = [
            subprocess.Popen(
                [sys.executable, '-m', 'tests.cloud.writes_at_once'],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env=environment,
                cwd=ROOT,
            )
            for _ in range(count)
        ]

    def run(self, tasks):
        for process, task in zip(self.processes, tasks, strict=True):
            process.stdin.write(json.dumps(task) + '\n')
            process.stdin.flush()
        return [json.loads(process.stdout.readline()) for process in self.processes]

    def close(self):
        for process in self.processes:
            process.stdin.close()
            process.wait()
            process.stdout.close()


def leave_export(path, options, is_closed):
    """Exports three datapoints; returns their ids if the export is complete, else stops after two of them."""
    start = 1000 if is_closed else 0
    with bags.DatasetWriter(f'memory://exported-{path}', SPEC, id=f'source {start}') as writer:
        ids = [id for id, _ in make_rows(writer, start)]
    end_shard = Target.end_shard

    def end_and_stop(target, datapoints):
        end_shard(target, datapoints)
        raise InterruptedError

    with pytest.MonkeyPatch.context() as patch:
        if not is_closed:
            patch.setattr(Target, 'end_shard', end_and_stop)
            patch.setattr(Target, '_remove_files', lambda _: None)
        with contextlib.suppress(InterruptedError):
            bags.export(f'memory://exported-{path}', path, shard_length=2, storage_options=options)
    return ids * is_closed


def read_rows(path, options, is_export):
    """Returns the ids and texts of a dataset or an export."""
    if is_export:
        imported = path.replace('s3://bucket', 'memory://imported')
        bags.convert(path, imported, source_options=options)
        path, options = imported, None
    with bags.open(path, storage_options=options) as dataset:
        return [(int(row['id']), row['text']) for row in dataset]


def leave_as(state, path, options):
    """Writes what the processes find; returns the ids that must stay."""
    storage = {'storage_options': options}
    if state.startswith('export'):
        return leave_export(path, options, state.endswith('closed'))
    writer = bags.ShardedDatasetWriter if state.startswith('shards') else bags.DatasetWriter
    limits = {'shard_length': 2} if state.startswith('shards') else {}
    if state.endswith('closed'):
        with writer(path, SPEC, **limits, **storage) as closed:
            return [id for id, _ in make_rows(closed, 1000)]
    if state.endswith('killed'):
        killed = writer(path, SPEC, **limits, **storage)
        make_rows(killed, 1000, 1)
        store, root = store_for(path, None, options)
        if state == 'shards killed':
            root = store.join(root, '000000')
            killed._writer.leave()
        store.replace(store.join(root, 'id.bag'), b'of the killed writer')
        killed.leave()
    return []


def run_trials(url, client, trials, cases):
    """Runs two processes at once for each case; returns how they ended, by case."""
    ended = {}
    with Delays(url) as proxy:
        writers = Writers(2)
        options = {'key': 'a', 'secret': 'b', 'client': client, 'endpoint_url': proxy.url}
        direct = {**options, 'endpoint_url': url}
        for trial in range(trials):
            for case, (state, tasks) in cases.items():
                path = f's3://bucket/at-once/{client}-{case}-{trial}'
                kept = leave_as(state, path, direct)
                late = random.choice([0, 0.02, 0.2])
                waits = [random.choice([0, 0, 0.1]) for _ in tasks]
                common = {'path': path, 'options': options, 'count': 3}
                results = writers.run(
                    [
                        {**common, 'start': 10 * number, 'late': number * late, 'wait': waits[number], **task}
                        for number, task in enumerate(tasks)
                    ]
                )
                expected = [*kept]
                for number, (task, result) in enumerate(zip(tasks, results, strict=True)):
                    start = task.get('start', 10 * number)
                    expected += range(start, start + 3) if result == 'ok' else ()
                is_export = case.startswith('export')
                found = read_rows(path, direct, is_export) if expected else []
                if is_export and expected:
                    assert len(found) == 3, f'{case} {results} found {found}'
                ids = [id for id, _ in found]
                about = f'{case} {results} found {ids}'
                assert set(expected) <= set(ids), about
                assert len(set(ids)) == len(ids), about
                assert all(text == f'text {id}' for id, text in found), about
                counts = ended.setdefault(case, Counter())
                counts[' and '.join(sorted(result.partition(':')[0] for result in results))] += 1
        writers.close()
    return ended


CREATE, RESUME = {'writer': 'folder', 'resume': False}, {'writer': 'folder', 'resume': True}
SHARDED, SHARDED_RESUME = {'writer': 'shards', 'resume': False}, {'writer': 'shards', 'resume': True}
COPY, COPY_RESUME = {'writer': 'copy', 'resume': False}, {'writer': 'copy', 'resume': True}
EXPORT = {'writer': 'export', 'resume': False, 'format': 'webdataset'}
EXPORT_RESUME = {**EXPORT, 'resume': True, 'start': 0}
CASES = {
    'create': ('', (CREATE, CREATE)),
    'create-resume': ('', (CREATE, RESUME)),
    'resume': ('', (RESUME, RESUME)),
    'resume-closed': ('closed', (RESUME, RESUME)),
    'resume-killed': ('killed', (RESUME, RESUME)),
    'shards': ('', (SHARDED, SHARDED)),
    'shards-resume': ('', (SHARDED_RESUME, SHARDED_RESUME)),
    'shards-resume-closed': ('shards closed', (SHARDED_RESUME, SHARDED_RESUME)),
    'shards-resume-killed': ('shards killed', (SHARDED_RESUME, SHARDED_RESUME)),
    'shards-overlap': ('', (SHARDED_RESUME, {**SHARDED, 'first': 0, 'step': 2})),
    'workers': ('', tuple({**SHARDED, 'first': first, 'step': 2} for first in range(2))),
    'worker-twice': ('', ({**SHARDED_RESUME, 'first': 1, 'step': 2},) * 2),
    'copy': ('', (COPY, COPY)),
    'copy-resume': ('', (COPY_RESUME, COPY)),
    'export': ('', (EXPORT, EXPORT)),
    'export-files': ('', ({**EXPORT, 'format': 'files'},) * 2),
    'export-parquet': ('', ({**EXPORT, 'format': 'parquet'},) * 2),
    'export-resume': ('', (EXPORT_RESUME, EXPORT_RESUME)),
    'export-closed': ('export closed', (EXPORT, {**EXPORT, 'resume': True})),
    'export-killed': ('export killed', (EXPORT_RESUME, EXPORT_RESUME)),
}
"""What is there before, and the tasks of both processes."""


@pytest.mark.slow
@pytest.mark.parametrize('client', ['obstore', 'fsspec'])
def test_processes_that_write_at_once(s3, client):
    ended = run_trials(s3, client, 1, CASES)
    assert ended['workers'] == {'ok and ok': 1}


@pytest.mark.campaign
@pytest.mark.parametrize('client', ['obstore', 'fsspec'])
def test_many_processes_that_write_at_once(s3, client):
    ended = run_trials(s3, client, 40, CASES)
    sys.stdout.writelines(f'{case}: {dict(counts)}\n' for case, counts in ended.items())
    assert ended['workers'] == {'ok and ok': 40}
