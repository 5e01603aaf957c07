"""Remote files behave as local ones; objects that change, fail or do not exist raise errors."""

import contextlib
import io
import multiprocessing
import os

import fsspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bags
from bags import bag
from bags.errors import CorruptError
from bags.storage import Hints, store_for
from bags.storage.range_file import RangeFile
from bags.storage.upload import part_size
from tests.bag.samples import few, forked
from tests.storage.test_files import DATA, FileTests, arrays


class TestRemote(FileTests):
    READS = 8
    ROUNDS = 1

    @pytest.fixture(scope='class', autouse=True)
    @classmethod
    def options(cls, storage):
        cls.storage = storage

    @pytest.fixture(scope='class')
    @classmethod
    def place(cls, options):
        numbers = iter(range(10_000))

        def place(data):
            store, path = store_for(f'{cls.storage.root}/file-{next(numbers)}', None, cls.storage.options)
            store.replace(path, data)
            return path

        return place

    @classmethod
    def open(cls, path):
        return store_for(path, None, cls.storage.options)[0].open(path, Hints())

    @pytest.mark.parametrize('size', [0, 1, (64 << 10) - 1, 64 << 10, (64 << 10) + 1, len(DATA)])
    def test_whole_files_and_their_edges(self, place, size):
        super().test_whole_files_and_their_edges(place, size)

    @settings(few, max_examples=4)
    @given(data=st.data())
    def test_any_ranges(self, file, data):
        self.check_ranges(file, data)

    def test_it_is_told_when_it_has_changed(self, place):
        path = place(DATA)
        store, _ = store_for(path, None, self.storage.options)
        file = store.open(path, Hints())
        store.replace(path, DATA[::-1])
        with pytest.raises(CorruptError, match='was replaced since it was opened'):
            file.read(0, 100)
        store.remove(path)
        with pytest.raises((FileNotFoundError, CorruptError)) as caught:
            file.read(0, 100)
        assert path in str(caught.value)

    def test_what_a_store_does(self):
        store, root = store_for(f'{self.storage.root}/store', None, self.storage.options)
        path = store.join(root, 'a.bin')
        with pytest.raises(FileNotFoundError, match=r'a\.bin'):
            store.open(path, Hints())
        with pytest.raises(FileNotFoundError, match='store'):
            store.names(root)
        output = store.create(path)
        output.write([b'ab', bytearray(b'cd'), memoryview(b'ef')])
        output.size = 4
        assert not store.exists(path)
        output.close()
        output.close()
        assert store.read(path) == b'abcd'
        again = store.create(path)
        again.write([b'x'])
        with pytest.raises(FileExistsError, match=r'a\.bin'):
            again.close()
        store.rename(path, store.join(root, 'b.bin'))
        store.replace(store.join(root, 'c/d.bin'), b'12345')
        assert sorted(store.names(root)) == ['b.bin', 'c']
        found = store.walk(root)
        assert {name: stat.size for name, stat in found.items()} == {'b.bin': 4, 'c/d.bin': 5}
        for name, stat in found.items():
            assert store.stat(store.join(root, name)) == stat
            file = store.open(store.join(root, name), Hints())
            assert (file.size, file.version) == (stat.size, stat.version)
        store.remove(store.join(root, 'b.bin'))
        store.remove(store.join(root, 'b.bin'))
        assert store.names(root) == ['c']

    def test_an_upload_in_parts_appears_when_it_is_complete(self):
        store, path = store_for(f'{self.storage.root}/large', None, self.storage.options)
        store.remove(path)
        data = np.random.default_rng(0).bytes((20 << 20) + 17)
        output = store.create(path)
        output.copy(io.BytesIO(data), len(data))
        assert not store.exists(path)
        output.close()
        assert store.read(path) == data
        output = store.create(f'{path}.given-up')
        output.write([data])
        output.discard()
        assert not store.exists(f'{path}.given-up')


def test_parts_grow_so_that_ten_thousand_hold_five_terabytes():
    assert sum(map(part_size, range(10_000))) >= 5 << 40
    assert max(map(part_size, range(10_000))) <= 5 << 30
    assert {part_size(number) for number in range(1000)} == {8 << 20}


# Bags and datasets.


def test_bags(storage, records):
    path = f'{storage.root}/bags/a.bagz'
    options = {'storage_options': storage.options}
    with bag.Writer(path, mode='overwrite', **options) as writer:
        for record in records:
            writer.write(record)
    with pytest.raises(FileExistsError):
        bag.Writer(path, **options)
    with bag.Writer(path, mode='append', truncate_to=50, **options) as writer:
        writer.write(b'more')
    records = [*records[:50], b'more']
    for storage_of_limits in ('on_disk', 'in_memory'):
        reader = bag.Reader(path, limits_storage=storage_of_limits, **options)
        assert reader.read() == records
        assert list(reader) == records
        assert reader[-1] == b'more'
        assert reader.read_indices([7, 3, 7]) == [records[7], records[3], records[7]]
    with contextlib.suppress(InterruptedError), bag.Writer(path, mode='overwrite', **options) as writer:
        writer.write(b'other')
        raise InterruptedError
    assert bag.Reader(path, **options).read() == records


@pytest.mark.parametrize('placement', ['separate', 'starts'])
def test_where_limits_are(storage, records, placement):
    path = f'{storage.root}/bags/{placement}@2.bag'
    options = {'storage_options': storage.options, 'limits_placement': placement}
    for shard in range(2):
        name = path.replace('@2', f'-{shard:05}-of-00002')
        with bag.Writer(name, mode='overwrite', **options) as writer:
            for record in records[shard::2]:
                writer.write(record)
    spec = path.replace('@2', '@*')
    assert bag.Reader(spec, sharding_layout='interleaved', **options).read() == records


def test_a_copy_that_fails_leaves_what_was_there(storage):
    path = f'{storage.root}/bags/failed.bag'
    options = {'storage_options': storage.options}

    class Broken(io.BytesIO):
        def read(self, size=-1):
            data = super().read(size)
            if not data or self.tell() > 12 << 20:
                raise OSError('the disk is broken')
            return data

    with bag.Writer(path, mode='overwrite', **options) as writer:
        writer.write(b'first')
        with pytest.raises(OSError, match='broken'):
            writer.write_file(Broken(bytes(14 << 20)))
        writer.write(b'last')
    found = bag.Reader(path, **options).read()
    assert (found[0], found[-1]) == (b'first', b'last')
    assert len(found) in (2, 3)  # The sent part of the failed record may remain.


def test_records_as_files(s3_storage, proxy):
    path = f'{s3_storage.root}/bags/record.bag'
    with bag.Writer(path, mode='overwrite', storage_options=s3_storage.options) as writer:
        for data in (b'before' * 20_000, DATA, b'behind' * 20_000):
            writer.write(data)
    store, path = store_for(path, None, s3_storage.through(proxy))
    file = store.open(path, Hints())
    record = RangeFile(file, 120_000, 120_000 + len(DATA), 'x')
    with proxy.counted() as requests:
        parts = []
        while part := record.read(10_000):
            parts.append(part)
    assert b''.join(parts) == DATA
    assert len(requests) <= 6
    record = RangeFile(file, 120_000, 120_000 + len(DATA), 'x')
    with proxy.counted() as requests:
        record.will_need([(500_000, 700_000)])
        for start in range(500_000, 700_000, 20_000):
            record.seek(start)
            assert record.read(20_000) == DATA[start : start + 20_000]
    assert [wanted for _, _, wanted in requests] == ['bytes=620000-819999']
    record.seek(-100, io.SEEK_END)
    assert record.read() == DATA[-100:]


# Processes.


@pytest.mark.skipif(not hasattr(os, 'fork'), reason='needs fork')
def test_a_reader_goes_on_in_a_forked_child(storage, records):
    path = f'{storage.root}/bags/forked.bag'
    options = {'storage_options': storage.options}
    if storage.root.startswith('memory'):
        pytest.skip('what is in memory is another in a child')
    with bag.Writer(path, mode='overwrite', **options) as writer:
        for record in records:
            writer.write(record)
    reader = bag.Reader(path, **options)
    assert reader.read() == records
    with forked(lambda: reader.read() == records and bag.Reader(path, **options)[5] == records[5]):
        assert reader[3] == records[3]


@pytest.mark.slow('s3-obstore')
@pytest.mark.skipif(not hasattr(os, 'fork'), reason='needs fork')
def test_forked_workers_read_a_dataset_that_the_parent_has_read(storage):
    if storage.root.startswith('memory'):
        pytest.skip('what is in memory is another in a child')
    root, options = f'{storage.root}/forked', {'storage_options': storage.options}
    rows = [{'blob': bytes([index]) * 5000, 'id': index} for index in range(60)]
    with bags.ShardedDatasetWriter(
        root, {'blob': 'bytes', 'id': 'int(8)'}, shard_length=20, **options
    ) as writer:
        for row in rows:
            writer.append(row)
    dataset = bags.open(root, **options)
    assert [dataset[index] for index in range(60)] == rows

    def work(start):
        # As in a worker of PyTorch: rows, lists of rows, and a dataset that is opened here; then it writes.
        assert dataset[start] == rows[start]
        assert dataset.__getitems__(range(start, 60, 7)) == rows[start::7]
        assert bags.open(root, **options).batch(range(start, 60))['blob'] == [
            row['blob'] for row in rows[start:]
        ]
        path = f'{root}-written/{start}.bag'
        with bag.Writer(path, mode='overwrite', **options) as writer:
            writer.write(rows[start]['blob'] * 2000)
        return bag.Reader(path, **options)[0] == rows[start]['blob'] * 2000

    with forked(lambda: work(3)), forked(lambda: work(30)):
        assert dataset.__getitems__(range(59, -1, -1)) == rows[::-1]


@pytest.mark.skipif(not hasattr(os, 'fork'), reason='needs fork')
def test_a_forked_child_notices_an_object_that_has_changed(storage):
    if storage.root.startswith('memory'):
        pytest.skip('what is in memory is another in a child')
    store, path = store_for(f'{storage.root}/changes', None, storage.options)
    store.replace(path, DATA)
    file = store.open(path, Hints())
    assert file.read(0, 100) == DATA[:100]

    def work():
        assert file.read(100, 200) == DATA[100:200]
        store.replace(path, DATA[::-1])
        with pytest.raises(CorruptError, match='was replaced since it was opened'):
            file.read(200, 300)
        return True

    with forked(work):
        pass
    with pytest.raises(CorruptError, match='was replaced since it was opened'):
        file.read(200, 300)


def read_in_child(reader, records):
    assert reader.read() == records


@pytest.mark.slow
def test_a_reader_goes_on_in_a_spawned_process(s3_storage, records):
    path = f'{s3_storage.root}/bags/spawned.bag'
    options = {'storage_options': s3_storage.options}
    with bag.Writer(path, mode='overwrite', **options) as writer:
        for record in records:
            writer.write(record)
    reader = bag.Reader(path, **options)
    process = multiprocessing.get_context('spawn').Process(target=read_in_child, args=(reader, records))
    process.start()
    process.join()
    assert process.exitcode == 0


# Paths and URLs.


@pytest.mark.parametrize(
    ('form', 'url'),
    [
        ('s3://bucket/a/b.bag', 's3://bucket/a/b.bag'),
        ('/s3:/bucket/a/b.bag', 's3://bucket/a/b.bag'),
        ('s3:/bucket/a/b.bag', 's3://bucket/a/b.bag'),
        ('S3A://bucket/a/b.bag', 's3://bucket/a/b.bag'),
        ('gs://bucket/folder/', 'gs://bucket/folder'),
        ('/gs:/bucket/x.bag', 'gs://bucket/x.bag'),
        ('memory://x/y.bag', 'memory:///x/y.bag'),
        ('https://host/x.bag', 'https://host/x.bag'),
    ],
)
def test_forms_of_a_url(form, url):
    store, path = store_for(form)
    assert store.is_remote
    assert path == url


def test_a_file_system_that_was_passed_in(storage, records):
    import fsspec

    if storage.options.get('client') == 'obstore':
        pytest.skip('it would not be used')
    options = {name: value for name, value in storage.options.items() if name != 'client'}
    scheme = storage.root.partition(':')[0]
    made = fsspec.filesystem(scheme, skip_instance_cache=True, **options)
    for filesystem in (made, made if scheme == 'memory' else type(made)(**options, asynchronous=True)):
        path = f'{storage.root}/passed.bag'
        with bag.Writer(path, mode='overwrite', filesystem=filesystem) as writer:
            for record in records:
                writer.write(record)
        assert bag.Reader(path, filesystem=filesystem).read() == records
        inner = made._strip_protocol(path)
        assert bag.Reader(inner, filesystem=filesystem)[7] == records[7]


def test_obstores_own_face_for_fsspec(s3, records):
    from obstore.fsspec import FsspecStore

    filesystem = FsspecStore(
        's3',
        config={'access_key_id': 'a', 'secret_access_key': 'b', 'endpoint': s3, 'region': 'us-east-1'},
        client_options={'allow_http': True},
    )
    path = 's3://bucket/obstores/x.bag'
    with bag.Writer(path, mode='overwrite', filesystem=filesystem) as writer:
        for record in records:
            writer.write(record)
    assert bag.Reader(path, filesystem=filesystem).read() == records


@pytest.mark.parametrize('client', ['obstore', 'fsspec'])
def test_a_web_server(client, s3, records):
    import boto3

    options = {'key': 'a', 'secret': 'b', 'endpoint_url': s3}
    with bag.Writer('s3://bucket/public/x.bag', mode='overwrite', storage_options=options) as writer:
        for record in records:
            writer.write(record)
    s3_client = boto3.client(
        's3', endpoint_url=s3, region_name='us-east-1', aws_access_key_id='a', aws_secret_access_key='b'
    )
    s3_client.put_object_acl(Bucket='bucket', Key='public/x.bag', ACL='public-read')
    s3_client.close()
    reader = bag.Reader(f'{s3}/bucket/public/x.bag', storage_options={'client': client})
    assert reader.read() == records
    assert reader[5] == records[5]
    with pytest.raises(FileNotFoundError):
        bag.Reader(f'{s3}/bucket/public/none.bag', storage_options={'client': client})


def test_empty_ranges(storage):
    store, path = store_for(f'{storage.root}/empties', None, storage.options)
    store.replace(path, DATA[:100])
    file = store.open(path, Hints())
    assert file.read_many(*arrays([(0, 0), (5, 9), (100, 100)])) == [b'', DATA[5:9], b'']
    with pytest.raises(EOFError, match='expected 200 bytes'):
        file.read(50, 200)


@pytest.mark.parametrize('links', [(), ['text']])
def test_refs_are_uploaded_last(links):
    """Records without refs are those of an upload that ended early, refs without records would be damage."""
    path, files = 'memory://order/data', fsspec.filesystem('memory')
    with bags.DatasetWriter(path, {'id': 'int(8)', 'text': 'utf8'}, linked_fields=links) as writer:
        writer.append({'id': 1, 'text': 'one'})
    created = {name.rpartition('/')[2]: files.created(name) for name in files.find('/order/data')}
    records = {name for name in created if name.startswith(('id.', 'text.'))}
    assert {'id.bag', 'text.links' if links else 'text.bag'} <= records
    assert created['refs.bag'] > max(created[name] for name in records)
    files.rm('/order', recursive=True)
