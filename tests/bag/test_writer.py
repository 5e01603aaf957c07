"""Writers: the bag at any moment, compared with lists of the written and flushed records."""

from __future__ import annotations

import io
import os
import random
import shutil
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from bags import bag
from bags.bag.open import open_bag
from bags.errors import CorruptError
from bags.storage import positioned
from bags.storage.local import LocalStore
from tests.bag.samples import ACCESS, COMPRESSIONS, PLACEMENTS, few, many, raw_bag, run_child, write
from tests.interrupts import InterruptedAt

FORMS = [(placement, name) for placement in PLACEMENTS for name in COMPRESSIONS]


def options_of(form):
    placement, compression = form
    return {'limits_placement': placement, 'compression': COMPRESSIONS[compression]}


def read(path, form=('tail', 'plain'), **options):
    with bag.Reader(path, **options_of(form), **options) as reader:
        records = reader.read()
        assert [reader[index] for index in range(len(reader))] == records
        return records


def number(value):
    return value.to_bytes(8, 'little')


# These records look like limits, so that a bag without limits looks as if it had some.
lookalikes = st.one_of(
    st.integers(0, 30).map(lambda count: number(8 * count)),
    st.lists(st.integers(0, 20).map(lambda count: number(8 * count)), max_size=6).map(b''.join),
    st.just(bytes(8)),
    st.binary(max_size=20),
    st.integers(0, 40).map(bytes),
)


class Writing(RuleBasedStateMachine):
    """One bag: written, flushed, closed, resumed, replaced, and read and copied at any moment."""

    forms = st.sampled_from(FORMS)

    @initialize(form=forms, buffer=st.sampled_from([1, 40, 1 << 20]))
    def begin(self, form, buffer):
        self.folder = Path(tempfile.mkdtemp())
        self.form, self.buffer = form, buffer
        self.path = self.folder / 'x.bag'
        self.flushed = []
        self.pending = []
        self.before = None  # The records that an overwriting writer will replace.
        self.writer = self.open('create')

    def open(self, mode):
        return bag.Writer(self.path, mode=mode, buffer_size=self.buffer, **options_of(self.form))

    @precondition(lambda self: self.writer)
    @rule(records=st.lists(lookalikes, max_size=8))
    def write(self, records):
        for record in records:
            self.writer.write(record)
            self.pending.append(record)
            if not self.writer.buffered:
                self.flushed, self.pending = self.flushed + self.pending, []
        assert len(self.writer) == len(self.flushed) + len(self.pending)

    @precondition(lambda self: self.writer)
    @rule(record=lookalikes)
    def write_file(self, record):
        self.writer.write_file(io.BytesIO(record))
        self.flushed, self.pending = [*self.flushed, *self.pending, record], []

    @precondition(lambda self: self.writer)
    @rule()
    def flush(self):
        self.writer.flush()
        self.flushed, self.pending = self.flushed + self.pending, []

    @precondition(lambda self: self.writer)
    @rule()
    def close(self):
        self.writer.close()
        self.flushed, self.pending = self.flushed + self.pending, []
        self.writer = self.before = None
        names = {'x.bag', 'limits.x.bag'} if self.form[0] == 'separate' else {'x.bag'}
        assert {path.name for path in self.folder.iterdir()} == names
        if self.form == ('tail', 'plain'):
            assert self.path.read_bytes() == raw_bag(self.flushed)

    @precondition(lambda self: self.writer and self.before is None)
    @rule()
    def crash(self):
        self.writer = None  # Closes its descriptors and releases its lock, as the end of a process does.
        self.pending = []

    @precondition(lambda self: self.writer and self.before is not None)
    @rule()
    def crash_while_overwriting(self):
        self.writer = None
        self.flushed, self.pending, self.before = self.before, [], None
        for path in self.folder.glob('*.new'):
            path.unlink()

    @precondition(lambda self: not self.writer)
    @rule()
    def append(self):
        self.writer = self.open('append')
        assert len(self.writer) == len(self.flushed)

    @precondition(lambda self: not self.writer)
    @rule()
    def overwrite(self):
        self.writer = self.open('overwrite')
        self.flushed, self.pending, self.before = [], [], self.flushed

    @precondition(lambda self: not self.writer)
    @rule()
    def create_where_something_is(self):
        with pytest.raises(FileExistsError):
            self.open('create')

    @invariant()
    def an_independent_reader_sees_what_was_flushed(self):
        if hasattr(self, 'path'):
            expected = self.flushed if self.before is None else self.before
            assert read(self.path, self.form) == expected

    @rule()
    def an_image_of_the_folder_can_be_continued(self):
        if self.before is not None:
            return
        image = Path(tempfile.mkdtemp())
        try:
            shutil.copytree(self.folder, image, dirs_exist_ok=True)
            path = image / 'x.bag'
            assert read(path, self.form) == self.flushed
            with bag.Writer(path, mode='append', **options_of(self.form)) as writer:
                assert read(path, self.form) == self.flushed
                writer.write(b'more')
            assert read(path, self.form) == [*self.flushed, b'more']
        finally:
            shutil.rmtree(image)

    def teardown(self):
        if hasattr(self, 'folder'):
            self.writer = None
            shutil.rmtree(self.folder)


class TestWriting(Writing.TestCase):
    settings = settings(few, stateful_step_count=30)


@pytest.mark.campaign
class TestWritingThoroughly(Writing.TestCase):
    settings = many


# The sentinel prevents that records without limits are taken for limits.


class Killed(BaseException):
    """Simulates a killed process."""


@pytest.mark.slow(all_but='16-*')
@pytest.mark.parametrize('placement', ['tail', 'starts'])
@pytest.mark.parametrize('mode', ['create', 'append', 'append to an unclosed one'])
@pytest.mark.parametrize('value', [0, 8, 16, 24, 32])
def test_a_writer_may_end_between_any_two_system_calls(tmp_path, monkeypatch, placement, mode, value):
    """In every state of the files between two calls, the flushed records can be read and appended to."""
    path, image = tmp_path / 'x.bag', tmp_path / 'image'
    flushed = []
    if mode != 'create':
        flushed = [number(value)] * 4
        writer = bag.Writer(path, limits_placement=placement)
        for record in flushed:
            writer.write(record)
        writer.flush() if 'unclosed' in mode else writer.close()
        del writer
    seen = 0

    def check():
        nonlocal seen
        if not path.exists():
            return
        seen += 1
        shutil.rmtree(image, ignore_errors=True)
        shutil.copytree(tmp_path, image)
        for _ in range(2):
            found = read(image / 'x.bag', (placement, 'plain'))
            assert found in (flushed, flushed + new), f'after call {seen}'
            bag.Writer(image / 'x.bag', mode='append', limits_placement=placement)  # Killed at once.
        with bag.Writer(image / 'x.bag', mode='append', limits_placement=placement) as writer:
            assert len(writer) == len(found)
            writer.write(b'more')
        assert read(image / 'x.bag', (placement, 'plain')) == [*found, b'more']

    busy = False

    def watched(call):
        def after(*arguments, **keywords):
            nonlocal busy
            result = call(*arguments, **keywords)
            if not busy:
                busy = True
                try:
                    check()
                finally:
                    busy = False
            return result

        return after

    for name in ('pwritev', 'pwrite', 'ftruncate', 'replace', 'unlink', 'copy_file_range'):
        monkeypatch.setattr(os, name, watched(getattr(os, name)))
    new = []
    writer = bag.Writer(path, mode=mode.split()[0], limits_placement=placement)
    for records in ([number(value)] * 3, [number(8)], [number(24), number(value)], [bytes(24)]):
        new = records
        for record in records:
            writer.write(record)
        writer.flush()
        flushed = flushed + records
    new = [number(value) * 2]
    writer.write_file(io.BytesIO(new[0]))
    flushed, new = flushed + new, []
    writer.close()
    assert seen > 10
    monkeypatch.undo()
    assert read(path, (placement, 'plain')) == flushed


@pytest.mark.parametrize('placement', ['tail', 'starts'])
def test_a_bag_becomes_longer_but_never_shorter(tmp_path, monkeypatch, placement):
    """A reader that has just mapped a shorter file would fault."""
    path, sizes = tmp_path / 'x.bag', []

    def watched(call):
        def after(*arguments):
            result = call(*arguments)
            sizes.append(os.path.getsize(path) if path.exists() else 0)
            return result

        return after

    for name in ('pwritev', 'pwrite', 'ftruncate'):
        monkeypatch.setattr(os, name, watched(getattr(os, name)))
    with bag.Writer(path, limits_placement=placement) as writer:
        for record in [b'', b'abc', bytes(8), bytes(5000)] * 3:
            writer.write(record)
            writer.flush()
        writer.write_file(io.BytesIO(bytes(100)))
    assert sizes == sorted(sizes)


def test_a_write_that_is_cut_short_anywhere_leaves_what_was_flushed(tmp_path, monkeypatch):
    """A killed process can stop writing after any byte."""
    records = [number(8 * count) for count in (2, 2, 0, 0, 3, 3, 3)]
    pwritev = positioned.calls.pwritev

    for calls in range(1, 6):
        for size in range(0, 60, 3):
            path = tmp_path / f'{calls}-{size}.bag'
            writer = bag.Writer(path)
            for record in records:
                writer.write(record)
            writer.flush()
            left = [calls]

            def cut_short(fd, buffers, offset, left=left, size=size):
                left[0] -= 1
                if left[0]:
                    return pwritev(fd, buffers, offset)
                pwritev(fd, [b''.join(map(bytes, buffers))[:size]], offset)
                raise Killed

            monkeypatch.setattr(positioned.calls, 'pwritev', cut_short)
            try:
                for record in records:
                    writer.write(record)
                writer.close()
            except Killed:
                pass
            monkeypatch.undo()
            del writer
            found = read(path)
            assert found[:7] == records
            assert found[7:] == records[: len(found) - 7]
            with bag.Writer(path, mode='append') as writer:
                writer.write(b'more')
            assert read(path) == [*found, b'more']


@pytest.mark.parametrize('starts', [False, True])
def test_a_partly_appended_tail_is_tolerated(tmp_path, starts):
    """Also without a sentinel, as other writers leave it."""
    for records in ([bytes(8)] * 10, [b'abc', b'', b'defgh' * 5], [number(16)] * 3):
        ends = np.cumsum(list(map(len, records)), dtype='<u8').tobytes()
        tail = bytes(8 * starts) + ends
        for length in range(len(tail) + 1):
            (tmp_path / 'x.bag').write_bytes(b''.join(records) + tail[:length])
            (tmp_path / 'limits.x.bag').write_bytes(ends)
            assert read(tmp_path / 'x.bag', ('starts' if starts else 'tail', 'plain')) == records


# Modes.


def test_nothing_is_overwritten_unless_asked_for(tmp_path):
    path = write(tmp_path / 'x.bag', [b'old'])
    for mode in ({}, {'mode': 'create'}):
        with pytest.raises(FileExistsError, match='x'):
            bag.Writer(path, **mode)
    assert read(path) == [b'old']
    (tmp_path / 'limits.y.bag').write_bytes(b'')
    with pytest.raises(FileExistsError, match='y'):
        bag.Writer(tmp_path / 'y.bag')
    assert not (tmp_path / 'y.bag').exists()


@pytest.mark.parametrize('mode', ['w', '', 'CREATE', None])
def test_an_invalid_mode(tmp_path, mode):
    with pytest.raises(ValueError, match="'create', 'append' or 'overwrite'"):
        bag.Writer(tmp_path / 'x.bag', mode=mode)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize('form', FORMS, ids='-'.join)
def test_append_to_a_bag_that_does_not_exist(tmp_path, form):
    write(tmp_path / 'x.bag', [b'one'], mode='append', **options_of(form))
    write(tmp_path / 'x.bag', [b'two'], mode='append', **options_of(form))
    assert read(tmp_path / 'x.bag', form) == [b'one', b'two']


@pytest.mark.parametrize('form', FORMS, ids='-'.join)
def test_overwrite_leaves_the_old_bag_until_close(tmp_path, form):
    path = tmp_path / 'x.bag'
    for new in ([b'one', b''], [b'two'] * 3, []):
        old = read(path, form) if path.exists() else None
        with bag.Writer(path, mode='overwrite', **options_of(form)) as writer:
            assert writer.path == os.fspath(path)
            for record in new:
                writer.write(record)
            writer.flush()
            if old is not None:
                assert read(path, form) == old
        assert read(path, form) == new
    assert not list(tmp_path.glob('.*'))


def fail_after_one(path, **options):
    writer = bag.Writer(path, **options)
    try:
        with writer:
            writer.write(b'one')
            raise KeyError
    except KeyError:
        assert writer.closed
    else:
        pytest.fail('the error was swallowed')


def test_an_error_while_overwriting_leaves_the_old_bag(tmp_path):
    path = write(tmp_path / 'x.bag', [b'old'])
    fail_after_one(path, mode='overwrite')
    assert read(path) == [b'old']
    assert [entry.name for entry in tmp_path.iterdir()] == ['x.bag']


def test_files_of_a_killed_overwriting_writer_do_not_interfere(tmp_path):
    path = write(tmp_path / 'x.bag', [b'old'])
    for _ in range(3):
        writer = bag.Writer(path, mode='overwrite')
        writer.write(b'new')
        writer.flush()
        del writer  # In a container the next process has the same id.
    assert read(path) == [b'old']
    assert bag.Reader(tmp_path / '*').read() == [b'old']
    write(path, [b'newer'], mode='overwrite')
    write(path, [b'more'], mode='append')
    assert read(path) == [b'newer', b'more']


def test_an_error_in_the_block_keeps_what_was_written(tmp_path):
    fail_after_one(tmp_path / 'x.bag')
    assert read(tmp_path / 'x.bag') == [b'one']


def test_append_to_a_bag_whose_limits_are_elsewhere_loses_nothing(tmp_path):
    path = write(tmp_path / 'x.bag', [b'one'])
    with pytest.raises(FileNotFoundError, match='limits'):
        bag.Writer(path, mode='append', limits_placement='separate')
    assert read(path) == [b'one']
    # As left by an appending writer that is killed at once:
    (tmp_path / 'limits.x.bag').write_bytes(b'')
    with pytest.raises(CorruptError, match='expected separate'):
        bag.Writer(path, mode='append', limits_placement='separate')
    assert read(path) == [b'one']
    path = write(tmp_path / 'y.bag', [b'one'], limits_placement='separate')
    write(path, [b'two'], mode='append')
    assert read(path) == [b'one', b'two']
    assert not (tmp_path / 'limits.y.bag').exists()


def test_a_closed_bag_is_not_changed_in_place(tmp_path):
    path = write(tmp_path / 'x.bag', [b'one'] * 100)
    os.link(path, tmp_path / 'same')
    before = (tmp_path / 'same').read_bytes()
    reader = bag.Reader(path)
    view = reader.view(99)
    for mode in ('append', 'overwrite'):
        write(path, [b'two'] * 50, mode=mode)
        assert (tmp_path / 'same').read_bytes() == before
    assert reader.read() == [b'one'] * 100
    assert bytes(view) == b'one'


def test_appending_keeps_the_mode_bits(tmp_path):
    path = write(tmp_path / 'x.bag', [b'one'])
    os.chmod(path, 0o600)
    write(path, [b'two'], mode='append')
    assert os.stat(path).st_mode & 0o777 == 0o600


@pytest.mark.parametrize('kept', [0, 1, 3, 9])
@pytest.mark.parametrize('closed', [False, True])
def test_append_may_keep_only_the_first_records(tmp_path, kept, closed):
    writer = bag.Writer(tmp_path / 'x.bag')
    for index in range(5):
        writer.write(b'%d' % index * 9)
    writer.close() if closed else writer.flush()
    del writer
    with bag.Writer(tmp_path / 'x.bag', mode='append', truncate_to=kept) as writer:
        assert len(writer) == min(kept, 5)
        writer.write(b'new')
    assert read(tmp_path / 'x.bag') == [*[b'%d' % index * 9 for index in range(min(kept, 5))], b'new']


def test_two_writers(tmp_path):
    path = tmp_path / 'x.bag'
    writer = bag.Writer(path)
    writer.write(b'one')
    writer.flush()
    with pytest.raises(FileExistsError):
        bag.Writer(path)
    with pytest.raises(BlockingIOError):
        bag.Writer(path, mode='append')
    writer.close()
    writer = bag.Writer(path, mode='append')
    with pytest.raises(BlockingIOError):
        bag.Writer(path, mode='append')
    assert read(path) == [b'one']
    writer.write(b'two')
    del writer
    write(path, [b'three'], mode='append')
    assert read(path) == [b'one', b'three']


def test_a_damaged_bag_cannot_be_appended_to(tmp_path):
    path = tmp_path / 'x.bag'
    for data in (b'1234567', b'x' * 40, b'abc' + number(9) + number(3)):
        path.write_bytes(data)
        with pytest.raises(CorruptError):
            bag.Writer(path, mode='append')
        assert path.read_bytes() == data


def test_limits_cannot_be_written_as_granular_does(tmp_path):
    with pytest.raises(ValueError, match='tail, separate or starts'):
        bag.Writer(tmp_path / 'x.bag', limits_placement='idx')
    assert not list(tmp_path.iterdir())


# Records.


def test_valid_records(tmp_path):
    array = np.arange(6, dtype='<i2').reshape(2, 3)
    given = [b'bytes', 'süß', bytearray(b'array'), memoryview(b'view')[1:], array, array.T, array[:, ::2]]
    write(tmp_path / 'x.bag', given)
    expected = [b'bytes', 'süß'.encode(), b'array', b'iew', *(part.tobytes() for part in given[4:])]
    assert read(tmp_path / 'x.bag') == expected


@pytest.mark.parametrize('value', [5, None, ['a'], 1.5, object()])
def test_invalid_records(tmp_path, value):
    with bag.Writer(tmp_path / 'x.bag') as writer:
        writer.write(b'one')
        with pytest.raises(TypeError, match='bytes, str or a buffer'):
            writer.write(value)
        assert len(writer) == 1
    assert read(tmp_path / 'x.bag') == [b'one']


def test_a_buffer_that_changes_after_it_was_written(tmp_path):
    buffer = bytearray(b'before')
    with bag.Writer(tmp_path / 'x.bag') as writer:
        writer.write(buffer)
        buffer[:] = b'after.'
    assert read(tmp_path / 'x.bag') == [b'before']


@pytest.mark.parametrize('form', FORMS, ids='-'.join)
def test_huge_records_among_empty_ones(tmp_path, form):
    huge = random.Random(0).randbytes(5 << 20)
    records = [b'', huge, b'', b'', huge[:-1], b'x', b'']
    assert read(write(tmp_path / 'x.bag', records, **options_of(form)), form) == records


@pytest.mark.parametrize('name', ['x.bag', 'x.bagz'])
def test_more_records_than_one_system_call_takes(tmp_path, name):
    records = [random.Random(index).randbytes(5000) for index in range(2500)]
    write(tmp_path / name, records, buffer_size=1 << 30)
    with bag.Reader(tmp_path / name) as reader:
        assert reader.read() == records


def test_a_record_too_large_to_be_compressed(tmp_path):
    with bag.Writer(tmp_path / 'x.bagz', max_record_size=1000) as writer:
        writer.write(bytes(1000))
        with pytest.raises(ValueError, match='record of 1001 bytes exceeds max_record_size=1000'):
            writer.write(bytes(1001))
        with pytest.raises(ValueError, match='record of 1001 bytes exceeds max_record_size=1000'):
            writer.write_file(io.BytesIO(bytes(1001)))
        writer.write(b'last')
    assert bag.Reader(tmp_path / 'x.bagz', max_record_size=1000).read() == [bytes(1000), b'last']
    write(tmp_path / 'x.bag', [bytes(1001)], max_record_size=1000)


def test_properties(tmp_path):
    writer = bag.Writer(tmp_path / 'x.bag', buffer_size=100)
    assert len(writer) == writer.size == writer.buffered == 0
    writer.write(b'abc')
    assert (len(writer), writer.size, writer.buffered) == (1, 11, 11)
    writer.write(bytes(100))
    assert (len(writer), writer.size, writer.buffered) == (2, 119, 0)
    assert repr(writer) == f'bags.bag.Writer({os.fspath(tmp_path / "x.bag")!r}, 2 records, open)'
    assert writer.options.buffer_size == 100
    assert not writer.closed
    writer.close()
    assert writer.closed
    assert 'closed' in repr(writer)
    assert os.path.getsize(tmp_path / 'x.bag') == writer.size


def test_a_closed_writer_raises(tmp_path):
    writer = bag.Writer(tmp_path / 'x.bag')
    writer.write(b'one')
    writer.close()
    writer.close()
    for use in (lambda: writer.write(b'two'), writer.flush, lambda: writer.write_file(io.BytesIO(b'two'))):
        with pytest.raises(ValueError, match='is closed'):
            use()
    assert read(tmp_path / 'x.bag') == [b'one']


def test_records_on_a_full_disk_stay_buffered(tmp_path, monkeypatch):
    def full(fd, buffers, offset):
        raise OSError(28, 'no room')

    with bag.Writer(tmp_path / 'x.bag') as writer:
        writer.write(b'one')
        writer.write(b'two')
        monkeypatch.setattr(positioned.calls, 'pwritev', full)
        with pytest.raises(OSError, match='no room'):
            writer.flush()
        monkeypatch.undo()
        assert (len(writer), writer.buffered) == (2, 22)
        writer.flush()
        assert (len(writer), writer.buffered) == (2, 0)
    assert read(tmp_path / 'x.bag') == [b'one', b'two']


@pytest.mark.slow(all_but='separate-*')
@pytest.mark.parametrize('form', FORMS, ids='-'.join)
def test_files_as_records(tmp_path, form):
    data = random.Random(0).randbytes(9 << 20)
    (tmp_path / 'video').write_bytes(data)
    with bag.Writer(tmp_path / 'x.bag', **options_of(form)) as writer:
        writer.write(b'before')
        with (tmp_path / 'video').open('rb') as file:
            file.seek(1000)
            writer.write_file(file)
            assert file.tell() == len(data)
            writer.write_file(file)  # At the end of the file.
        with (tmp_path / 'video').open('rb', buffering=0) as file:
            writer.write_file(file)
        writer.write_file(io.BytesIO(data[:100]))
        writer.write(b'after')
        writer.flush()
    assert read(tmp_path / 'x.bag', form) == [b'before', data[1000:], b'', data, data[:100], b'after']


def test_many_stored_records(tmp_path):
    with bag.Writer(tmp_path / 'x.bag') as writer:
        writer.write(b'before')
        writer.write_stored([b'one', b'three'], [3, 0, 5])
        writer.write_stored([], [])
        writer.write_stored([b''], [0, 0])
        writer.write(b'between')
        writer.write_stored([np.arange(1000, dtype='<u2').reshape(2, 500)], np.full(250, 8))
        writer.write_stored([np.empty((0, 4))], [])
        writer.write_stored(io.BytesIO(b'of a file, not all'), [2, 2, 5])
        with pytest.raises(ValueError, match='expected a sum of 3 bytes, got 2 of 4 bytes'):
            writer.write_stored([b'abc'], [2, 2])
        with pytest.raises(ValueError, match='sizes'):
            writer.write_stored([b'abc'], [4, -1])
    numbers = np.arange(1000, dtype='<u2').tobytes()
    rest = [numbers[start : start + 8] for start in range(0, 2000, 8)]
    expected = [b'before', b'one', b'', b'three', b'', b'', b'between', *rest, b'of', b' a', b' file']
    assert read(tmp_path / 'x.bag') == expected
    with pytest.raises(ValueError, match='closed'):
        writer.write_stored([b'abc'], [3])


def test_frames_are_written_unchanged(tmp_path):
    with bag.Writer(tmp_path / 'a.bagz') as writer:
        for number_ in range(100):
            writer.write(f'text {number_}')
    ends = np.frombuffer((tmp_path / 'a.bagz').read_bytes()[-800:], '<i8')
    frames = (tmp_path / 'a.bagz').read_bytes()[: int(ends[-1])]
    with bag.Writer(tmp_path / 'b.bagz') as writer:
        writer.write_stored([frames], np.diff(ends, prepend=0))
    assert (tmp_path / 'b.bagz').read_bytes() == (tmp_path / 'a.bagz').read_bytes()


def test_a_run_that_does_not_fit_on_the_disk_leaves_the_bag_as_before(tmp_path, monkeypatch):
    def full(fd, buffers, offset):
        raise OSError(28, 'disk full')

    with bag.Writer(tmp_path / 'x.bag') as writer:
        writer.write_stored([b'before'], [6])
        monkeypatch.setattr(positioned.calls, 'pwritev', full)
        with pytest.raises(OSError, match='disk full'):
            writer.write_stored([b'lost'], [4])
        monkeypatch.undo()
        writer.write_stored([b'after'], [5])
    assert read(tmp_path / 'x.bag') == [b'before', b'after']


class Failing(io.BytesIO):
    """A file that fails after its first bytes, in one of several ways."""

    def __init__(self, data, how):
        super().__init__(data)
        self.how = how

    def read(self, size=-1):
        if self.tell():
            if self.how is None:
                return b''
            raise self.how
        return super().read(min(size, 100))


@pytest.mark.parametrize('form', FORMS, ids='-'.join)
@pytest.mark.parametrize('how', [None, OSError(5, 'the disk'), KeyboardInterrupt()], ids=str)
def test_a_file_that_fails_leaves_the_bag_as_before(tmp_path, form, how):
    with bag.Writer(tmp_path / 'x.bag', **options_of(form)) as writer:
        writer.write(b'before')
        with pytest.raises(EOFError if how is None else type(how)):
            writer.write_file(Failing(number(8) * 1000, how))
        assert len(writer) == 1
        assert read(tmp_path / 'x.bag', form) == [b'before']
        writer.write(b'after')
    assert read(tmp_path / 'x.bag', form) == [b'before', b'after']


# Full disks.


def full_disk_code(form, fill, free):
    """Starts a child that fills the disk, checks the bag, frees space, and resumes."""
    return f"""
        import os, random, sys
        from bags import bag
        from tests.bag.samples import COMPRESSIONS
        path = os.path.join(sys.argv[1], 'x.bag')
        options = dict(limits_placement={form[0]!r}, compression=COMPRESSIONS[{form[1]!r}])
        rng = random.Random(0)
        {fill}
        writer = bag.Writer(path, buffer_size=20_000, **options)
        written = []
        try:
            while True:
                written.append(rng.randbytes(rng.choice([0, 10, 100, 3000])))
                writer.write(written[-1])
        except OSError as exc:
            print(exc.errno)
        def check():
            found = bag.Reader(path, **options).read()
            assert found == written[:len(found)], (len(found), len(written))
            return len(found)
        before = check()
        for _ in range(3):
            try:
                writer.flush()
                raise SystemExit('the disk was not full')
            except OSError:
                assert check() == before
        try:
            writer.close()
            raise SystemExit('the disk was not full')
        except OSError:
            assert check() == before
        assert len(writer) == len(written)
        {free}
        writer.flush()
        assert check() == len(written)
        writer.write(b'after')
        written.append(b'after')
        writer.close()
        assert check() == len(written)
        assert sorted(os.listdir(sys.argv[1]))[-1] == 'x.bag'
        print('done')
    """


@pytest.mark.slow(all_but='separate-plain')
@pytest.mark.parametrize('form', FORMS, ids='-'.join)
def test_a_limit_of_the_file_size(tmp_path, form):
    fill = (
        'import resource; hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]; '
        'resource.setrlimit(resource.RLIMIT_FSIZE, (200_003, hard))'
    )
    free = 'resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))'
    child = run_child(full_disk_code(form, fill, free), tmp_path)
    assert child.stdout.split() == ['27', 'done'], child.stderr


@pytest.fixture
def small_disk(tmp_path):
    folder = tmp_path / 'disk'
    folder.mkdir()
    mount = ['mount', '-t', 'tmpfs', '-o', 'size=1m', 'tmpfs', folder]
    try:
        subprocess.run(mount, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as exc:
        pytest.skip(f'a small disk cannot be mounted here: {exc}')
    yield folder
    subprocess.run(['umount', folder], check=True)


@pytest.mark.slow(all_but='tail-zstd')
@pytest.mark.parametrize('form', FORMS, ids='-'.join)
def test_a_full_disk(small_disk, form):
    fill = "f = open(sys.argv[1] + '/ballast', 'wb'); f.write(bytes(500_000)); f.close()"
    free = "os.unlink(sys.argv[1] + '/ballast')"
    child = run_child(full_disk_code(form, fill, free), small_disk)
    assert child.stdout.split() == ['28', 'done'], child.stderr


def test_records_whose_limits_were_written_stay(tmp_path, monkeypatch):
    """Readers may have read them, so other records must not replace them."""
    path = tmp_path / 'x.bag'
    writer = bag.Writer(path)
    writer.write(b'first')
    writer.flush()
    pwritev = positioned.calls.pwritev

    limits = writer.appender.limits.fd

    def full(fd, buffers, offset):
        if fd == limits:
            pwritev(fd, [b''.join(buffers)[:20]], offset)
            raise OSError(28, 'full')
        return pwritev(fd, buffers, offset)

    monkeypatch.setattr(positioned.calls, 'pwritev', full)
    with pytest.raises(OSError, match='full'):
        writer.write_stored([b'dropped'] * 4, [7] * 4)
    monkeypatch.undo()
    assert len(writer) == 3
    writer.write(b'second')
    assert read(path) == [b'first', b'dropped', b'dropped']
    writer.flush()
    assert read(path) == [b'first', b'dropped', b'dropped', b'second']
    del writer
    assert read(path) == [b'first', b'dropped', b'dropped', b'second']


@pytest.mark.parametrize('call', ['write', 'flush', 'close'])
def test_ctrl_c_at_any_line_leaves_a_writer_that_continues(tmp_path, call):
    for line in range(1, 400):
        path = tmp_path / f'{line}.bag'
        writer = bag.Writer(path, buffer_size=30)
        for index in range(2):
            writer.write(b'%d' % index)
        with InterruptedAt(line, '/bags/bag/') as interrupted:
            writer.write(bytes(40)) if call == 'write' else getattr(writer, call)()
        if not interrupted.happened:
            break
        found = read(path)
        assert found in ([], [b'0', b'1'], [b'0', b'1', bytes(40)])
        if not writer.closed:
            try:
                writer.close()
            except (OSError, ValueError):
                del writer
        found = read(path)
        assert found in ([], [b'0', b'1'], [b'0', b'1', bytes(40)])
        with bag.Writer(path, mode='append') as writer:
            writer.write(b'more')
        assert read(path) == [*found, b'more']
    else:
        pytest.fail('the call did not come to its end')


# Readers beside a writer.


def test_a_writer_resumes_while_a_reader_opens(tmp_path, monkeypatch):
    """The reader opens the limits file while it is empty, and the bag after its tail limits are removed."""
    path = write(tmp_path / 'x.bag', [b'one', b'two'])
    (tmp_path / 'limits.x.bag').touch()
    opened, writers = LocalStore.open, []

    def open_and_resume(store, name, *args):
        file = opened(store, name, *args)
        if name.endswith('limits.x.bag') and not writers:
            writers.append(None)
            writers[0] = bag.Writer(path, mode='append')
        return file

    monkeypatch.setattr(LocalStore, 'open', open_and_resume)
    assert read(path) == [b'one', b'two']
    writers[0].close()


@pytest.mark.slow(all_but='tail-plain')
@pytest.mark.parametrize('form', FORMS, ids='-'.join)
def test_readers_poll_while_a_writer_works(tmp_path, form):
    path = tmp_path / 'x.bag'
    code = f"""
        import sys
        from bags import bag
        from tests.bag.samples import COMPRESSIONS
        options = dict(limits_placement={form[0]!r}, compression=COMPRESSIONS[{form[1]!r}])
        count = 0
        for turn in range(15):
            writer = bag.Writer(sys.argv[1], mode='append', buffer_size=1 << 20, **options)
            for _ in range(4):
                for _ in range(8):
                    writer.write((16 * (count % 5)).to_bytes(8, 'little') * (count % 3))
                    count += 1
                writer.flush()
                if count % 160 == 128:
                    sys.stdin.readline()
            writer.close()
        print(count)
    """
    process = subprocess.Popen(
        [sys.executable, '-c', textwrap.dedent(code), path],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, 'PYTHONPATH': os.fspath(Path(__file__).parents[2])},
    )
    last, waits_at = 0, 128
    try:
        while process.poll() is None:
            try:
                found = read(path, form)
            except FileNotFoundError:
                assert not last
                continue
            assert found == [number(16 * (index % 5)) * (index % 3) for index in range(len(found))]
            assert last <= len(found)
            assert len(found) % 8 == 0
            last = len(found)
            if last == waits_at:  # The writer waits here until this has been read.
                waits_at += 160
                process.stdin.write('\n')
                process.stdin.flush()
        output = process.communicate()[0]
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
    assert output == '480\n'
    assert waits_at > 480
    assert len(read(path, form)) == 480


@pytest.mark.parametrize('access', ACCESS)
@pytest.mark.parametrize('later', [0, 1, 2])
@pytest.mark.parametrize('moment', range(1, 9))
def test_a_writer_that_resumes_and_closes_while_a_bag_is_opened(tmp_path, monkeypatch, moment, later, access):
    """Between any two steps of opening it."""
    path = write(tmp_path / 'x.bag', [b'one'])
    writer, steps = [], [0]

    def watched(call):
        def step(*arguments):
            steps[0] += 1
            if steps[0] == moment:
                writer.append(bag.Writer(path, mode='append'))
                writer[0].write(b'two' * 5)
                writer[0].flush()
            if writer and steps[0] == moment + later:
                writer[0].close()
            return call(*arguments)

        return step

    reader = bag.Reader(path, **ACCESS[access])
    store = reader._shards.store
    for name in ('open', 'exists', 'stat'):
        monkeypatch.setattr(store, name, watched(getattr(store, name)))
    opened = open_bag(store, path, reader.options)
    monkeypatch.undo()
    assert opened.read(range(opened.count)) in ([b'one'], [b'one', b'two' * 5])
    if writer:
        writer[0].close()
    assert read(path) in ([b'one'], [b'one', b'two' * 5])
