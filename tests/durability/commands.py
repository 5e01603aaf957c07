"""The commands whose power is cut, and what must be found afterwards.

`python -m tests.durability.commands FOLDER DURABILITY NAME…` runs commands, each in `FOLDER/NAME`. It reports
what is promised on standard output, and as marks in a record. With 'recover' instead of a durability, it
recovers what power cuts have left in the folders; their names are those of commands, `~` and a number.
"""

import contextlib
import dataclasses
import gc
import io
import os
import shutil
import sys
import tarfile
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import bags
from bags.bag import Reader, Writer
from tests.dataset.writing.killed import leave_open
from tests.durability.recorder import MARK

SPEC = {'blob': 'bytes', 'id': 'int(4)', 'nums': 'int(2)[]', 'text': 'utf8?'}
CLIPS = {**SPEC, 'nums': 'flac[]'}
"""The spec of datapoints whose numbers are samples."""
RATE = 100
EXPECTED = (bags.CorruptError, FileNotFoundError)
"""Errors that a dataset without promised datapoints may raise."""
RAW_BYTES = 5000
"""Bytes of each blob in the file that links lead to."""
SYNC_SECONDS = 0.01
PLACEMENTS = ('tail', 'separate', 'starts')


class WrongError(AssertionError):
    """Something that was promised is not there, or something that is there is wrong."""


def make_row(index, run=0):
    """Returns a datapoint that no other index and run has; every second one fills some sectors."""
    chance = np.random.default_rng([index, run])
    return {
        'blob': chance.bytes((0, 30, 700, 5000)[index % 4]),
        'id': index + 1000 * run + 1,
        'nums': [index + 1, run + 1, 7][: index % 4],
        'text': None if index % 5 == 3 else f'run {run}, datapoint {index}: ' * (1 + index % 7),
    }


def make_rows(start, stop, run=0):
    return [make_row(index, run) for index in range(start, stop)]


def make_records(start, stop, run=0):
    """Returns the records of a bag."""
    return [make_row(index, run)['blob'] + b'%d of %d;' % (index, run) for index in range(start, stop)]


@dataclasses.dataclass
class Command:
    """A command: what was there and synced, what it does, and what it may leave."""

    run: Callable[..., Any]
    """Called with the folder, a function that reports a promised number of datapoints, and the durability."""
    versions: list
    """The contents that may be found: the old one, if there was one, and the new one."""
    prepare: Callable[[str], object] = lambda folder: None
    promised: int = 0
    """Number of datapoints, or records, that were promised before."""
    synced: bool = True
    """Whether what was there before is on disk; a writer that was killed may have synced nothing."""
    redo: Callable[..., Any] | None = None
    """Called with the folder after a power cut: does the rest. Unless given, the dataset is resumed."""
    whole: bool = False
    """Whether one of the versions must be there as a whole, at every moment."""
    aspect: Callable[[str], object] | None = None
    """Reads what the command edits, beside datapoints."""
    aspects: tuple = ()
    """Values of it before and after."""
    path: str = 'data'
    options: dict = dataclasses.field(default_factory=dict)
    is_bag: bool = False
    trust_links: bool = False
    spec: dict = dataclasses.field(default_factory=lambda: SPEC)

    # Reading.

    def read(self, folder):
        path = os.path.join(folder, self.path)
        if self.is_bag:
            with Reader(path, **self.options) as reader:
                found = list(map(bytes, reader))
                if found != [bytes(reader[index]) for index in range(len(reader))]:
                    raise WrongError('records differ by the way they are read')
                return found
        with bags.open(path) as reader:
            ids = reader.batch(range(len(reader)))['id'].tolist() if len(reader) else []
            rows = map(reader.__getitem__, range(len(reader)))
            found = [{**row, 'nums': numbers_of(row['nums'])} for row in rows]
            if [row['id'] for row in found] != ids:
                raise WrongError('datapoints differ by the way they are read')
            return found

    def is_unfinished(self, folder):
        if self.is_bag:
            return False
        with bags.open(os.path.join(folder, self.path)) as reader:
            return reader.unfinished

    # Checking.

    def check(self, folder, promised, done):
        """Checks what is in a folder after a power cut.

        Args:
            folder: Where the command ran; it is changed.
            promised: Number of datapoints that were promised.
            done: Whether the command had returned.

        Raises:
            WrongError: Something is missing or wrong.
        """
        self._check_as_it_is(folder, promised, done)
        recovered, resumed = f'{folder}-recovered', f'{folder}-resumed'
        try:
            shutil.copytree(folder, recovered)
            shutil.copytree(folder, resumed)
            self._check_recovered(recovered, promised, done)
            self._check_resumed(resumed, promised, done)
        finally:
            shutil.rmtree(recovered, ignore_errors=True)
            shutil.rmtree(resumed, ignore_errors=True)

    def check_readable(self, folder, promised, done):
        """Checks that what was promised can be read after a kill, which loses no written bytes."""
        self._check_as_it_is(folder, promised, done, promised > 0)

    def _check_as_it_is(self, folder, promised, done, must_open=False):
        try:
            rows = self.read(folder)
        except EXPECTED as exc:
            if done or must_open:
                raise WrongError(f'cannot be opened: {exc!r}') from exc
        else:
            self._check_rows(rows, promised, done, 'as it is')
            self._check_aspect(folder, done)
        try:
            found = bags.verify(os.path.join(folder, self.path), decode=True, trust_links=self.trust_links)
        except FileNotFoundError:
            found = ['nothing there'] if done else []
        if done and found:
            raise WrongError(f'verify found {found}')

    def _check_recovered(self, folder, promised, done):
        path = os.path.join(folder, self.path)
        try:
            bags.recover(path)
            rows = self.read(folder)
        except EXPECTED as exc:
            if promised or done:
                raise WrongError(f'cannot be recovered: {exc!r}') from exc
            return
        self._check_rows(rows, promised, done, 'recovered')
        self._check_aspect(folder, done)
        if found := bags.verify(path, decode=True, trust_links=self.trust_links):
            raise WrongError(f'recovered, verify found {found}')
        if self.is_unfinished(folder):
            raise WrongError('recovered, and unfinished')

    def _check_resumed(self, folder, promised, done):
        try:
            expected = (self.redo or self._resume)(folder, promised)
        except EXPECTED as exc:
            if promised or done:
                raise WrongError(f'cannot be resumed: {exc!r}') from exc
            return
        if (rows := self.read(folder)) != expected:
            raise WrongError(f'resumed: {describe(rows, [expected])}')
        if found := bags.verify(os.path.join(folder, self.path), decode=True, trust_links=self.trust_links):
            raise WrongError(f'resumed, verify found {found}')
        if self.is_unfinished(folder):
            raise WrongError('resumed, and unfinished')

    def _resume(self, folder, promised):
        with self._open_again(os.path.join(folder, self.path)) as writer:
            count = len(writer)
            kept = [rows[:count] for rows in self.versions if len(rows) >= count]
            more = make_records(count, count + 3, 9) if self.is_bag else make_rows(count, count + 3, 9)
            for row in more:
                writer.write(row) if self.is_bag else writer.append(as_written(row, self.spec))
        self._check_rows(rows := self.read(folder), promised, False, 'resumed', count)
        return next((old for old in kept if old == rows[:count]), kept[-1] if kept else []) + more

    def _open_again(self, path):
        if self.is_bag:
            return Writer(path, mode='append', **self.options)
        is_sharded = os.path.isdir(path) and any(name.isdigit() for name in os.listdir(path))
        options = {'shard_length': 4} if is_sharded else {}
        kind = bags.ShardedDatasetWriter if is_sharded else bags.DatasetWriter
        return kind(path, self.spec, resume=True, **options)

    def _check_rows(self, rows, promised, done, how, count=None):
        """Checks that the first `count` of some rows are as in one of the versions."""
        rows = rows[:count]
        versions = self.versions[-1:] if done else self.versions
        if self.whole or done:
            is_right = rows in versions
        else:
            is_right = any(rows == version[: len(rows)] for version in versions)
        if not is_right or len(rows) < promised:
            raise WrongError(f'{how}: {promised} promised{" and done" * done}; {describe(rows, versions)}')

    def _check_aspect(self, folder, done):
        if self.aspect is not None:
            found = self.aspect(os.path.join(folder, self.path))
            if found not in (self.aspects[-1:] if done else self.aspects):
                raise WrongError(f'{found!r:.500}, expected one of {self.aspects!r:.500}')


def numbers_of(values):
    """Returns the numbers of a datapoint, which may be samples."""
    if isinstance(values, np.ndarray):
        return values.tolist()
    return [number for samples, _ in values for number in samples[:, 0].tolist()]


def as_written(row, spec):
    """Returns a row with its numbers as one recording, if they are samples."""
    if spec is not CLIPS:
        return row
    return {**row, 'nums': [(np.array(row['nums'], np.int16), RATE)] if row['nums'] else []}


def describe(rows, versions):
    """Returns in what some rows differ from all versions."""
    texts = [f'{len(rows)} rows']
    for version in versions:
        wrong = [index for index, row in enumerate(rows) if index >= len(version) or row != version[index]]
        texts.append(f'of {len(version)} expected ones, wrong: {wrong}')
    if wrong:
        texts.append(f'first wrong: {rows[wrong[0]]!r:.200}')
    return '; '.join(texts)


# Commands on datasets.


def fill(path, rows, kind=bags.DatasetWriter, spec=SPEC, **options):
    with kind(path, spec, **options) as writer:
        for row in link_blobs(path, rows, options):
            writer.append(row)
    return len(rows)


def flushed(path, rows, promise, kind=bags.DatasetWriter, every=3, **options):
    """Writes rows, with a flush after every few.

    With durability='flush', a flush is a promise. A shard is promised when the second one after it is begun,
    as it is written to the disk while the next one is written.
    """
    with kind(path, SPEC, **options) as writer:
        shards, begun = writer.shards, None
        for index, row in enumerate(link_blobs(path, rows, options)):
            is_flushed = index % every == every - 1
            writer.append(row, flush=is_flushed)
            if is_flushed and options.get('durability') == 'flush':
                promise(len(writer))
            elif writer.shards > shards:
                if begun is not None:
                    promise(begun)
                begun = len(writer) - 1
            shards = writer.shards


def kill(path, rows, kind=bags.DatasetWriter, **options):
    """Leaves a dataset as a killed writer does, with rows that were flushed."""
    writer = kind(path, SPEC, **options)
    for row in link_blobs(path, rows, options):
        writer.append(row, flush=True)
    leave_open(writer)
    del writer
    gc.collect()  # Its locks end with it.


def link_blobs(path, rows, options):
    """Returns rows whose larger blobs are links to a file beside the dataset, if the field is linked."""
    if 'blob' not in options.get('linked_fields', ()):
        return rows
    file = os.path.join(os.path.dirname(path), 'raw')
    written = []
    for row in rows:
        offset = (row['id'] - 1) * RAW_BYTES
        link = bags.Link(file, offset, len(row['blob']))
        written.append({**row, 'blob': link} if len(row['blob']) > 100 else row)
    return written


def prepare_links(folder):
    """Writes the file that links lead to: the blob of each datapoint, by its id."""
    with open(f'{folder}/raw', 'wb') as file:
        for run in range(2):
            for index in range(20):
                file.seek((index + 1000 * run) * RAW_BYTES)
                file.write(make_row(index, run)['blob'])
        file.flush()
        os.fsync(file.fileno())


def new(path='data', count=10, kind=bags.DatasetWriter, **options):
    return Command(
        lambda folder, promise, more: flushed(
            os.path.join(folder, path), make_rows(0, count), promise, kind, **options, **more
        ),
        [make_rows(0, count)],
        prepare_links if 'linked_fields' in options else lambda folder: None,
        path=path,
    )


class Episodes(Command):
    """Datapoints that are written by items. The last one may be there in part, if it was open.

    It may also be a part of a take that would have been discarded.
    """

    def _check_rows(self, rows, promised, done, how, count=None):
        rows, (whole,) = rows[:count], self.versions
        if rows and not done and len(rows) <= len(whole):
            expected = whole[len(rows) - 1]
            if any(_is_part(rows[-1], row) for row in (expected, DISCARDED)):
                rows = [*rows[:-1], expected]
        super()._check_rows(rows, promised, done, how)

    def _resume(self, folder, promised):
        expected = super()._resume(folder, promised)
        rows = self.read(folder)
        return rows[:-3] + expected[-3:]


DISCARDED = {'id': -1, 'blob': b'discarded', 'text': 'discarded', 'nums': [-1, -2]}


def _is_part(row, whole):
    """Returns whether a row is the beginning of another one."""
    is_equal = row['id'] == whole['id'] and row['blob'] == whole['blob']
    return (
        is_equal and row['text'] in (None, whole['text']) and row['nums'] == whole['nums'][: len(row['nums'])]
    )


def episodes(kind=bags.DatasetWriter, spec=SPEC, **options):
    """Records episodes. With samples, two of them make a clip, which the thread of the field encodes."""
    if is_clips := spec is CLIPS:
        options['metadata'] = {'fields': {'nums': {'rate': RATE}}}
    rows = [{**row, 'nums': [*row['nums'], *range(8)]} for row in make_rows(0, 6)]

    def run(folder, promise, more):
        def item(number):
            return {'nums': np.array([number], np.int16) if is_clips else number}

        with kind(os.path.join(folder, 'data'), spec, **options, **more) as writer:
            for index, row in enumerate(rows):
                if index % 2:
                    discarded = {name: DISCARDED[name] for name in ('id', 'blob', 'text')}
                    with writer.begin(discarded, clip_seconds=2 / RATE) as take:
                        take.append(item(-1))
                        take.flush()
                        take.append(item(-2))
                        take.discard()
                values = {'id': row['id'], 'blob': row['blob']}
                with writer.begin(values, clip_seconds=2 / RATE) as episode:
                    if row['text'] is not None:
                        episode.set({'text': row['text']})
                    for number, value in enumerate(row['nums']):
                        episode.append(item(value))
                        if number % 4 == 3:
                            episode.flush()
                if more.get('durability') == 'flush':
                    promise(len(writer))

    return Episodes(run, [rows], spec=spec)


def resumed(
    first=10,
    count=16,
    kind=bags.DatasetWriter,
    truncate_to=None,
    killed=False,
    synced=True,
    adds_checksum=False,
    **options,
):
    """Resumes a dataset that is closed, or that a killed writer left."""
    kept = first if truncate_to is None else truncate_to
    changes = {'checksum': True} if adds_checksum else {}
    changes |= {} if truncate_to is None else {'truncate_to': truncate_to}
    old, new = make_rows(0, first), make_rows(0, kept) + make_rows(kept, count, 1)
    return Command(
        lambda folder, promise, more: flushed(
            f'{folder}/data', new[kept:], promise, kind, resume=True, **changes, **options, **more
        ),
        [old, new],
        lambda folder: (
            prepare_links(folder) if 'linked_fields' in options else None,
            (kill if killed else fill)(f'{folder}/data', old, kind=kind, **options),
        ),
        promised=kept if synced else 0,
        synced=synced,
    )


def overwritten(kind=bags.DatasetWriter, **options):
    old, new = make_rows(0, 7), make_rows(0, 9, 1)

    def redo(folder, promised):
        fill(f'{folder}/data', new, kind, mode='overwrite', **options)
        return new

    return Command(
        lambda folder, promise, more: fill(f'{folder}/data', new, kind, mode='overwrite', **options, **more),
        [old, new],
        lambda folder: (
            prepare_links(folder) if 'linked_fields' in options else None,
            fill(f'{folder}/data', old, kind, **options),
        ),
        promised=7,
        redo=redo,
        whole=True,
    )


def recovered(kind=bags.DatasetWriter, synced=True, **options):
    rows = make_rows(0, 9)
    return Command(
        lambda folder, promise, more: bags.recover(f'{folder}/data'),
        [rows],
        lambda folder: (
            prepare_links(folder) if 'linked_fields' in options else None,
            kill(f'{folder}/data', rows, kind, **options),
        ),
        promised=9 if synced else 0,
        synced=synced,
    )


def edited(edit, aspect, aspects, before=lambda path: None, kind=bags.DatasetWriter, redo=None, **options):
    """A change of something beside datapoints."""
    rows = make_rows(0, 9)

    def prepare(folder):
        fill(f'{folder}/data', rows, kind, **options)
        before(f'{folder}/data')

    return Command(
        lambda folder, promise, more: edit(f'{folder}/data'),
        [rows],
        prepare,
        promised=9,
        aspect=aspect,
        aspects=aspects,
        whole=redo is None,
    )


def read_metadata(path):
    with bags.open(path) as reader:
        return dict(reader.metadata)


def read_found(path):
    """Returns whether there is an index, checking what it finds."""
    with bags.open(path) as reader:
        try:
            found = reader.find('id', 5)
        except (KeyError, ValueError, FileNotFoundError) as exc:
            return type(exc).__name__
        return found


def read_statistics(path):
    found = bags.statistics(path, 'id')['id']
    return int(found.min), int(found.max), int(found.count)


def derived(make, **more):
    """Makes a dataset from a source: `make(folder, **options)`."""
    rows = make_rows(0, 10)

    def redo(folder, promised):
        make(folder, resume=True)
        return rows

    return Command(lambda folder, promise, options: make(folder, **options), [rows], redo=redo, **more)


def copy(folder, **options):
    bags.copy(f'{folder}/source', f'{folder}/data', shard_length=4, **options)


def prepare_copy(folder):
    fill(f'{folder}/source', make_rows(0, 10), checksum=True, compression=['text'])


def write(folder, **options):
    bags.write(range(10), f'{folder}/data', SPEC, transform=make_row, workers=1, processes=False, **options)


def convert(folder, **options):
    bags.convert(f'{folder}/source.tar', f'{folder}/data', shard_length=4, **options)


def prepare_tar(folder):
    with tarfile.open(f'{folder}/source.tar', 'w') as file:
        for index in range(10):
            row = make_row(index)
            for name, data in (('bin', row['blob']), ('txt', f'{index}, {row["text"]}'.encode())):
                member = tarfile.TarInfo(f'{index:03}.{name}')
                member.size = len(data)
                file.addfile(member, io.BytesIO(data))


def prepare_npz(folder):
    os.makedirs(f'{folder}/source')
    for index in range(3):
        np.savez(f'{folder}/source/{index}.npz', x=np.arange(40) + index, y=np.full((5, 3), index + 1.5))


class Converted(Command):
    """An import: the expected datapoints are those of an import that ends."""

    def read(self, folder):
        with bags.open(f'{folder}/data', trust_links=self.trust_links) as reader:
            return [comparable(reader[index]) for index in range(len(reader))]


def comparable(row):
    return {
        name: value.tolist() if hasattr(value, 'tolist') else value for name, value in sorted(row.items())
    }


def tar_rows():
    rows = map(make_row, range(10))
    return [
        {'__key__': f'{index:03}', 'bin': row['blob'], 'txt': f'{index}, {row["text"]}'}
        for index, row in enumerate(rows)
    ]


def npz_rows():
    return [
        {
            '__key__': str(index),
            'x': (np.arange(40) + index).tolist(),
            'y': np.full((5, 3), index + 1.5).tolist(),
        }
        for index in range(3)
    ]


def convert_npz(folder, **options):
    bags.convert(f'{folder}/source', f'{folder}/data', **options)


def from_numpy(folder, **options):
    columns = {'x': np.arange(60).reshape(20, 3), 'y': np.arange(20) / 3}
    bags.from_numpy(columns, f'{folder}/data', shard_length=8, progress=False, **options)


def imported(make, prepare, rows):
    def redo(folder, promised):
        make(folder, resume=True)
        return rows

    return Converted(lambda folder, promise, options: make(folder, **options), [rows], prepare, redo=redo)


LINKED_FILES = 10


def prepare_files(folder):
    os.makedirs(f'{folder}/source')
    for index in range(LINKED_FILES):
        for name, data in file_contents(index).items():
            with open(f'{folder}/source/{index}.{name}', 'wb') as file:
                file.write(data)


def file_contents(index):
    return {'bin': bytes([index]) * 1000, 'txt': b'text %d' % index}


def link(folder, **options):
    bags.convert(
        f'{folder}/source', f'{folder}/data', shard_length=4, **{'link': True, 'update': True, **options}
    )


def linked(grows):
    """Links files; the same call continues it at any moment, also after `bags.recover`."""
    rows = [
        {'__key__': str(index), 'bin': data['bin'], 'txt': data['txt'].decode()}
        for index, data in enumerate(map(file_contents, range(LINKED_FILES)))
    ]

    def prepare(folder):
        prepare_files(folder)
        if grows:
            later = [
                f'{folder}/source/{index}.{name}'
                for index in range(6, LINKED_FILES)
                for name in ('bin', 'txt')
            ]
            for path in later:
                os.rename(path, path.replace('/source/', '/'))
            link(folder)
            for path in later:
                os.rename(path.replace('/source/', '/'), path)

    def redo(folder, promised):
        again = shutil.copytree(folder, f'{folder}-again')
        try:
            with contextlib.suppress(*EXPECTED):
                bags.recover(f'{again}/data')
            for path in (folder, again):
                link(path)
                with bags.open(f'{path}/data', trust_links=True) as reader:
                    if (count := len(reader)) != LINKED_FILES:
                        raise WrongError(f'{count} datapoints')
        except EXPECTED as exc:
            raise WrongError(f'cannot be continued: {exc!r}') from exc
        finally:
            shutil.rmtree(again)
        return rows

    return Converted(
        lambda folder, promise, options: link(folder, **options),
        [rows],
        prepare,
        promised=6 if grows else 0,
        redo=redo,
        trust_links=True,
    )


# Commands on bags.


def write_bag(path, records, promise, **options):
    with Writer(path, **options) as writer:
        for index, record in enumerate(records):
            writer.write(record)
            if index % 3 == 2:
                writer.flush()
                if options.get('durability') == 'flush' and options.get('mode') != 'overwrite':
                    promise(len(writer))


def bag(mode, placement, name='data.bag', killed=False, **options):
    """Creates, appends to or overwrites a bag, which is closed unless its writer was killed."""
    options['limits_placement'] = placement
    old = make_records(0, 7)
    new = (old if mode == 'append' else []) + make_records(7 if mode == 'append' else 0, 12, 1)
    added = new[7:] if mode == 'append' else new
    own = {name: value for name, value in options.items() if name != 'checksum'}

    def prepare(folder):
        if killed:
            writer = Writer(f'{folder}/{name}', **options)
            for record in old:
                writer.write(record)
            writer.flush()
        elif mode != 'create':
            write_bag(f'{folder}/{name}', old, None, **options)

    def redo(folder, promised):
        write_bag(f'{folder}/{name}', new, None, mode='overwrite', **options)
        return new

    return Command(
        lambda folder, promise, more: write_bag(
            f'{folder}/{name}', added, promise, mode=mode, **options, **more
        ),
        [new] if mode == 'create' else [old, new],
        prepare,
        promised=0 if mode == 'create' else 7,
        redo=redo if mode == 'overwrite' else None,
        whole=mode == 'overwrite',
        path=name,
        options=own,
        is_bag=True,
    )


SHARDS = {'kind': bags.ShardedDatasetWriter, 'shard_length': 4}
FILES = {'encoders': {**bags.encoders, 'bytes': lambda value, *words: io.BytesIO(value)}, 'every': 100}
"""Blobs are open files: their bytes are written at once, also while the shard before is being closed."""
LINKED = {'linked_fields': ('blob',)}
SMALL = {'compression': {'text': 'dictionary', 'blob': 1}, 'checksum': True}
FULL = {'compression': {'text': ('dictionary', 5)}, 'checksum': True}


def commands():
    """Returns all commands by name. The first part of a name is that of a group."""
    before, after = {'a': 1}, {'a': 2, 'b': [3]}
    metadata = {
        'edit': lambda path: bags.set_metadata(path, after),
        'aspect': read_metadata,
        'aspects': (before, after),
        'metadata': before,
    }
    found = {
        name: new(path, **options)
        for name, path, options in (
            ('new', 'data', {}),
            ('new-deep', 'some/deep/data', {}),
            ('new-small', 'data', SMALL),
            ('new-trained', 'data', {**FULL, 'count': 140, 'every': 60}),
            ('new-sharded', 'data', SHARDS),
            ('new-sharded-files', 'data', {**SHARDS, **FILES, 'count': 14}),
            ('new-sharded-deep', 'deep/data', {**SHARDS, **SMALL}),
            ('links-new', 'data', LINKED),
            ('links-new-sharded', 'data', {**SHARDS, **LINKED, 'checksum': True}),
        )
    }
    found |= {
        'episodes': episodes(),
        'episodes-checksum': episodes(checksum=True),
        'episodes-sharded': episodes(**SHARDS),
        'episodes-clips': episodes(spec=CLIPS),
        'episodes-clips-sharded': episodes(spec=CLIPS, checksum=True, **SHARDS),
        'resume': resumed(),
        'resume-small': resumed(**SMALL),
        'resume-truncated': resumed(truncate_to=6),
        'resume-killed': resumed(killed=True),
        'resume-killed-truncated': resumed(killed=True, truncate_to=6),
        'resume-empty': resumed(first=1, count=6),
        'resume-sharded': resumed(**SHARDS),
        'resume-sharded-killed': resumed(killed=True, **SHARDS, **SMALL),
        'links-resume': resumed(**LINKED),
        'links-resume-truncated': resumed(truncate_to=6, **LINKED, checksum=True),
        'links-resume-killed': resumed(killed=True, **LINKED),
        'links-resume-unsynced': resumed(killed=True, synced=False, **LINKED, checksum=True),
        'links-resume-sharded-killed': resumed(killed=True, **SHARDS, **LINKED),
        'links-overwrite': overwritten(**LINKED),
        'links-recover': recovered(**LINKED),
        'links-recover-unsynced': recovered(synced=False, **SHARDS, **LINKED),
        'resume-checksum': resumed(adds_checksum=True),
        'resume-checksum-killed': resumed(adds_checksum=True, killed=True),
        'resume-unsynced': resumed(killed=True, synced=False, **SMALL),
        'resume-unsynced-sharded': resumed(killed=True, synced=False, **SHARDS),
        'overwrite': overwritten(),
        'overwrite-sharded': overwritten(**SHARDS, checksum=True),
        'recover': recovered(),
        'recover-small': recovered(**SMALL),
        'recover-sharded': recovered(**SHARDS),
        'recover-unsynced': recovered(synced=False),
        'recover-unsynced-small': recovered(synced=False, **SMALL),
        'recover-unsynced-sharded': recovered(synced=False, **SHARDS),
        'edit-metadata': edited(**metadata),
        'edit-metadata-sharded': edited(**metadata, **SHARDS),
        'edit-metadata-checksum': edited(**metadata, checksum=True),
        'edit-metadata-removed': edited(
            lambda path: bags.set_metadata(path, {}),
            read_metadata,
            (before, {}),
            metadata=before,
            checksum=True,
        ),
        'edit-consolidate-checksum': edited(
            bags.consolidate, os.path.isdir, (True,), **SHARDS, checksum=True
        ),
        'edit-consolidate': edited(bags.consolidate, os.path.isdir, (True,), **SHARDS),
        'edit-index': edited(
            lambda path: bags.create_index(path, 'id'),
            read_found,
            ('FileNotFoundError', 4),
        ),
        'edit-index-sharded': edited(
            lambda path: bags.create_index(path, 'id'),
            read_found,
            ('FileNotFoundError', 4),
            **SHARDS,
            checksum=True,
        ),
        'edit-statistics': edited(
            lambda path: bags.statistics(path, 'id', keep=True), read_statistics, ((1, 9, 9),)
        ),
        'make-copy': derived(copy, prepare=prepare_copy),
        'make-write': derived(write),
        'make-convert-tar': imported(convert, prepare_tar, tar_rows()),
        'make-numpy': imported(
            from_numpy,
            lambda folder: None,
            [{'x': [3 * row, 3 * row + 1, 3 * row + 2], 'y': row / 3} for row in range(20)],
        ),
        'make-convert-npz': imported(convert_npz, prepare_npz, npz_rows()),
        'make-links': linked(grows=False),
        'make-links-update': linked(grows=True),
    }
    for placement in PLACEMENTS:
        for mode in ('create', 'append', 'overwrite'):
            found[f'bag-{mode}-{placement}'] = bag(mode, placement)
        for mode in ('append', 'overwrite'):
            found[f'bag-{mode}-{placement}-killed'] = bag(mode, placement, killed=True)
    found['bag-append-checksum'] = bag('append', 'tail', checksum=True)
    found['bag-overwrite-checksum'] = bag('overwrite', 'separate', 'data.bagz', checksum=True)
    return found


def sync_slowly(fd, fsync=os.fsync):
    """Syncs a file as a disk does: while a thread waits for it, the writer goes on."""
    if threading.current_thread() is not threading.main_thread():
        time.sleep(SYNC_SECONDS)
    fsync(fd)


def main():
    os.fsync = sync_slowly
    root, durability, *names = sys.argv[1:]
    known = commands()
    for name in names:
        folder = os.path.join(root, name)
        os.makedirs(folder, exist_ok=True)
        command = known[name.partition('~')[0]]

        def report(what, name=name):
            sys.stdout.write(f'{name} {what}\n')
            sys.stdout.flush()
            with contextlib.suppress(FileNotFoundError):
                os.rmdir(f'{MARK}{name} {what}')

        def promise(count, report=report):
            report(f'promises {count}')

        if durability == 'recover':
            report('begins')
            with contextlib.suppress(*EXPECTED):
                bags.recover(os.path.join(folder, command.path))
                promise(len(command.read(folder)))
        else:
            command.prepare(folder)
            report('begins')
            sys.stdin.readline()  # Whoever cuts the power syncs what is there first.
            command.run(folder, promise, {} if durability == 'default' else {'durability': durability})
        report('returned')


if __name__ == '__main__':
    main()
