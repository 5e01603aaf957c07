# ruff: noqa: PT017 - the message is checked where an error is raised
"""Damaged bags: every way to read raises an error that names file and record."""

from __future__ import annotations

import itertools
import os
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from bags import bag
from bags.errors import BagsError, CorruptError
from tests.bag.samples import ACCESS, PLACEMENTS, few, many, raw_bag, run_child, write

COUNT = 40
BAD = 17
RECORDS = [b'record %d ' % index * (index % 7 + 1) for index in range(COUNT)]
OUR = zstandard.ZstdCompressor(write_checksum=True)
FRAMES = [OUR.compress(record) for record in RECORDS]


def good_around(read):
    """Reads undamaged records."""
    assert read(BAD - 2) == RECORDS[BAD - 2]
    assert read(BAD + 2) == RECORDS[BAD + 2]


# Every way to read record BAD.
WAYS = {
    'one': lambda reader: reader[BAD],
    'from the end': lambda reader: reader[BAD - COUNT],
    'numpy': lambda reader: reader[np.int64(BAD)],
    'one of a slice': lambda reader: reader[BAD - 3 :][3],
    'one of every second': lambda reader: reader[BAD - 4 :: 2][2],
    'read': lambda reader: reader.read(),
    'read a slice': lambda reader: reader[BAD : BAD + 1].read(),
    'read backwards': lambda reader: reader[::-1].read(),
    'read_range': lambda reader: reader.read_range(BAD - 1, 3),
    'read_indices': lambda reader: reader.read_indices([3, BAD, 5]),
    'read_indices twice': lambda reader: reader.read_indices([BAD, 5, BAD]),
    'read_indices numpy': lambda reader: reader.read_indices(np.array([3, BAD])),
    'read_indices in order': lambda reader: reader.read_indices(range(COUNT)),
    'read_indices slice': lambda reader: reader.read_indices(slice(BAD, None, -1)),
    'view': lambda reader: reader.view(BAD),
    'views': lambda reader: reader.views([BAD]),
    'views of many': lambda reader: reader.views(range(COUNT)),
    'iter': list,
    'reversed': lambda reader: list(reversed(reader)),
    'iter slice': lambda reader: list(reader[BAD::3]),
    'read_indices_iter': lambda reader: list(reader.read_indices_iter(itertools.count())),
    'read_range_iter': lambda reader: list(reader.read_range_iter(BAD, 2, read_ahead=1)),
    'index': lambda reader: reader.index(b'missing'),
    'count': lambda reader: reader.count(b'record'),
    'in': lambda reader: b'missing' in reader,
    'Index': bag.Index,
    'MultiIndex': bag.MultiIndex,
}


def refused_in_every_way(path, access, records=(BAD,), **options):
    """Opens the bag again for each way, so that they are independent."""
    for name, way in WAYS.items():
        with bag.Reader(path, **ACCESS[access], **options) as reader:
            assert len(reader) == COUNT
            with pytest.raises(CorruptError) as caught:
                way(reader)
            assert caught.value.path == os.fspath(path), name
            assert caught.value.record in records, name
            assert 'x.bag' in str(caught.value), name
            good_around(reader.__getitem__)
            good_around(lambda index: reader.read_indices([index])[0])
            good_around(lambda index: bytes(reader.view(index)))


# Damaged limits.


def with_limit(value, index=BAD):
    """Returns a bag with one limit replaced; the records before it are intact."""
    data = bytearray(raw_bag(RECORDS))
    place = len(data) - 8 * (COUNT - index)
    data[place : place + 8] = value.to_bytes(8, 'little')
    return bytes(data)


END = len(b''.join(RECORDS))


@pytest.mark.parametrize('access', ACCESS)
@pytest.mark.parametrize('value', [0, END + 1, END + 8, 1 << 40, (1 << 63) - 1, 1 << 63, (1 << 64) - 1])
def test_a_decreasing_limit_or_one_out_of_bounds(tmp_path, access, value):
    path = tmp_path / 'x.bag'
    path.write_bytes(with_limit(value))
    refused_in_every_way(path, access, (BAD, BAD + 1))


@pytest.mark.parametrize('access', ACCESS)
@pytest.mark.parametrize('placement', ['separate', 'idx', 'starts'])
def test_damaged_limits_wherever_they_are(tmp_path, access, placement):
    path = tmp_path / 'x.bag'
    for value in (1, 1 << 63, END + 1):
        records, limits = b''.join(RECORDS), bytearray(with_limit(value)[END:])
        if placement == 'starts':
            path.write_bytes(records + bytes(8) + limits)
        else:
            path.write_bytes(records)
            (tmp_path / ('x.idx' if placement == 'idx' else 'limits.x.bag')).write_bytes(limits)
        refused_in_every_way(path, access, (BAD, BAD + 1), limits_placement=placement)


@pytest.mark.parametrize('access', ACCESS)
def test_decreasing_limits_among_records_of_one_length(tmp_path, access):
    """The first and the last limit suggest that all records have the same length."""
    for odd in (0, 5, 600, 980):
        ends = np.arange(1, 1001, dtype='<u8') * 100
        ends[odd] += 1000
        (tmp_path / 'x.bag').write_bytes(bytes(100_000) + ends.tobytes())
        with bag.Reader(tmp_path / 'x.bag', **ACCESS[access]) as reader:
            for _ in range(20):
                assert len(reader[999]) == 100
                with pytest.raises(CorruptError) as caught:
                    reader[odd + 1]
                assert caught.value.record == odd + 1
            for read in (reader.read, lambda: list(reader), lambda: reader.read_indices(range(1000))):
                with pytest.raises(CorruptError) as caught:
                    read()
                assert caught.value.record == odd + 1


def test_a_wrong_limit_between_its_neighbours_is_detected_in_a_compressed_bag_only(tmp_path):
    path = tmp_path / 'x.bagz'
    data = bytearray(raw_bag(FRAMES))
    place = len(data) - 8 * (COUNT - BAD)
    data[place] ^= 1
    path.write_bytes(data)
    with bag.Reader(path) as reader:
        for way in WAYS.values():
            with pytest.raises(CorruptError) as caught:
                way(reader)
            assert caught.value.record in (BAD, BAD + 1)


@pytest.mark.parametrize('placement', PLACEMENTS)
@pytest.mark.parametrize('name', ['x.bag', 'x.bagz'])
def test_a_file_cut_short_anywhere_never_gives_another_record(tmp_path, placement, name):
    source, path = tmp_path / name, tmp_path / 'cut' / name
    path.parent.mkdir()
    # These bytes occur in no limit, so that a file cut within the records never seems to end with limits.
    records = [bytes([200 + index]) * 11 for index in range(9)]
    records[5:5] = [b'']
    write(source, records, limits_placement=placement)
    if placement == 'separate':
        shutil.copy(tmp_path / f'limits.{name}', path.parent)
    data = source.read_bytes()
    refused = 0
    for length in range(len(data)):
        path.write_bytes(data[:length])
        for access in ('mapped', 'pread'):
            try:
                reader = bag.Reader(path, limits_placement=placement, **ACCESS[access])
            except CorruptError as exc:
                assert exc.path == os.fspath(path)
                refused += 1
                continue
            if not length and placement != 'separate':
                assert len(reader) == 0  # An empty file is an empty bag.
                continue
            assert len(reader) == len(records)
            for index, record in enumerate(records):
                try:
                    assert reader[index] == record
                    assert reader.read_indices([index]) == [record]
                except CorruptError as exc:
                    assert exc.record == index
                    refused += 1
    assert refused


# Without memory maps, which fault if a file becomes shorter; `mapped=False` avoids that.
@pytest.mark.parametrize('access', sorted(ACCESS.keys() - {'mapped'}))
def test_a_file_that_became_shorter_since_it_was_opened(tmp_path, access):
    path = write(tmp_path / 'x.bag', [bytes([index]) * 5000 for index in range(1, 30)])
    reader = bag.Reader(path, limits_storage='in_memory', **ACCESS[access])
    os.truncate(path, 50_000)
    assert reader[3] == b'\x04' * 5000
    for read in (
        lambda: reader[20],
        reader.read,
        lambda: list(reader),
        lambda: reader.read_indices([20, 25]),
    ):
        with pytest.raises(CorruptError, match='expected') as caught:
            read()
        assert caught.value.path == path


# Separate limits.


def test_limits_of_another_bag_beside_a_closed_one(tmp_path):
    path = write(tmp_path / 'x.bag', RECORDS)
    for others in ([b'other'], RECORDS[1:], [*RECORDS, b'more'], [b'x'] * 100):
        (tmp_path / 'limits.x.bag').write_bytes(raw_bag(others)[len(b''.join(others)) :])
        with pytest.raises(
            CorruptError,
            match=r'has 40 limits at its end that differ from the \d+ in .*limits\.x',
        ):
            bag.Reader(path)
        with pytest.raises(CorruptError):
            bag.Writer(path, mode='append')
    for kept in (0, 1, 39, 40):  # Partly written, as by a writer that was killed while it closed.
        (tmp_path / 'limits.x.bag').write_bytes(raw_bag(RECORDS)[END:][: 8 * kept])
        assert bag.Reader(path).read() == RECORDS


def test_limits_beside_records_that_end_before_them(tmp_path):
    writer = bag.Writer(tmp_path / 'x.bag', durability='none')
    for record in RECORDS:
        writer.write(record)
    writer.flush()
    del writer
    os.truncate(tmp_path / 'x.bag', END // 2)
    with bag.Reader(tmp_path / 'x.bag') as reader:
        assert reader[0] == RECORDS[0]
        with pytest.raises(CorruptError, match='beyond the records') as caught:
            reader.read()
        assert caught.value.record == next(
            i for i in range(COUNT) if len(b''.join(RECORDS[: i + 1])) > END // 2
        )
    with pytest.raises(CorruptError):
        bag.Writer(tmp_path / 'x.bag', mode='append')


# Files that are not bags.


@pytest.mark.parametrize('data', [b'x', b'1234567', b'a text, not a bag', b'\xff' * 800, b'\1' * 801])
@pytest.mark.parametrize('access', ACCESS)
def test_files_that_are_not_bags(tmp_path, data, access):
    (tmp_path / 'x.bag').write_bytes(data)
    with pytest.raises(CorruptError, match=r'x\.bag'):
        bag.Reader(tmp_path / 'x.bag', **ACCESS[access])


def check_random_bytes(folder, data, placement, name, access):
    path = folder / name
    path.write_bytes(data)
    try:
        reader = bag.Reader(path, limits_placement=placement, **ACCESS[access])
    except CorruptError as exc:
        assert exc.path == os.fspath(path)
        return
    with reader:
        assert len(reader) <= len(data) // 8
        alone = []
        for index in range(len(reader)):
            try:
                alone.append(reader[index])
            except CorruptError as exc:
                assert exc.record == index
                alone.append(exc)
        for index, expected in enumerate(alone):
            # Checks that all ways agree on each record.
            for read in (
                lambda index: reader.read_indices([index])[0],
                lambda index: bytes(reader.view(index)),
                lambda index: reader[index : index + 1].read()[0],
                lambda index: next(reader.read_range_iter(index, 1)),
            ):
                try:
                    assert read(index) == expected
                except CorruptError as exc:
                    assert isinstance(expected, CorruptError)
                    assert exc.record == index


small = st.integers(0, 12).map(lambda value: (8 * value).to_bytes(8, 'little'))
frames = st.binary(max_size=20).map(OUR.compress)
files = st.one_of(
    st.binary(max_size=100), st.lists(st.one_of(small, st.binary(max_size=9), frames)).map(b''.join)
)
combination = {
    'data': files,
    'placement': st.sampled_from(['tail', 'starts']),
    'name': st.sampled_from(['x.bag', 'x.bagz']),
    'access': st.sampled_from(list(ACCESS)),
}


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp('damage')


@few
@given(**combination)
def test_random_files(folder, data, placement, name, access):
    check_random_bytes(folder, data, placement, name, access)


@pytest.mark.campaign
@many
@given(**combination)
def test_random_files_thoroughly(folder, data, placement, name, access):
    check_random_bytes(folder, data, placement, name, access)


# Damaged frames.


def changed(frame, place=-6):
    data = bytearray(frame)
    data[place] ^= 0x55
    return bytes(data)


SKIPPABLE = b'\x50\x2a\x4d\x18' + (4).to_bytes(4, 'little') + b'skip'
UNSIZED = zstandard.ZstdCompressor(write_content_size=False)
BAD_FRAMES = {
    'content': changed(FRAMES[BAD], 12),
    'checksum': changed(FRAMES[BAD], -1),
    'magic': changed(FRAMES[BAD], 0),
    'cut short': FRAMES[BAD][:-1],
    'only a header': FRAMES[BAD][:6],
    'one byte': b'\x28',
    'trailing byte': FRAMES[BAD] + b'\0',
    'two frames': FRAMES[BAD] + FRAMES[3],
    'skippable': SKIPPABLE,
    'skippable behind': FRAMES[BAD] + SKIPPABLE,
    'skippable before': SKIPPABLE + FRAMES[BAD],
    'announces 100 GB': b'\x28\xb5\x2f\xfd\xe0' + (100 << 30).to_bytes(8, 'little') + b'\1\0\0',
    'announces all there is': b'\x28\xb5\x2f\xfd\xe0' + b'\xff' * 8 + b'\1\0\0',
    'announces nothing': b'\x28\xb5\x2f\xfd\x20\x00' + FRAMES[BAD][6:],
    'announces too little': FRAMES[BAD][:5] + bytes([FRAMES[BAD][5] - 1]) + FRAMES[BAD][6:],
    'announces too much': FRAMES[BAD][:5] + bytes([FRAMES[BAD][5] + 1]) + FRAMES[BAD][6:],
    'bomb': UNSIZED.compress(bytes(4 << 20)),
    'unsized and cut short': UNSIZED.compress(RECORDS[BAD])[:-2],
    'unsized and trailing': UNSIZED.compress(RECORDS[BAD]) + b'x',
    'empty content and trailing': zstandard.ZstdCompressor().compress(b'') + b'x',
    'of a dictionary': zstandard.ZstdCompressor(
        dict_data=zstandard.ZstdCompressionDict(b''.join(RECORDS)), write_checksum=True
    ).compress(RECORDS[BAD]),
    'no frame at all': RECORDS[BAD],
}


@pytest.mark.slow(all_but='*-mapped')
@pytest.mark.parametrize('access', ACCESS)
@pytest.mark.parametrize('name', BAD_FRAMES)
def test_a_bad_frame(tmp_path, access, name):
    path = tmp_path / 'x.bagz'
    path.write_bytes(raw_bag([*FRAMES[:BAD], BAD_FRAMES[name], *FRAMES[BAD + 1 :]]))
    refused_in_every_way(path, access, max_record_size=1 << 20)


@pytest.mark.parametrize('access', ACCESS)
@pytest.mark.parametrize('size', [200, 255, 256, 65_791, 65_792])
def test_an_announced_size_of_any_width_is_bounded(tmp_path, access, size):
    """A frame header has one byte for sizes up to 255, two for sizes up to 65,791."""
    path = tmp_path / 'x.bagz'
    large = zstandard.ZstdCompressor(write_checksum=True).compress(bytes(size))
    path.write_bytes(raw_bag([*FRAMES[:BAD], large, *FRAMES[BAD + 1 :]]))
    refused_in_every_way(path, access, max_record_size=size - 1)
    with bag.Reader(path, **ACCESS[access], max_record_size=size) as reader:
        assert reader[BAD] == reader[BAD] == reader.read()[BAD] == bytes(size)


@pytest.mark.parametrize('access', ACCESS)
@pytest.mark.parametrize('layout', ['concatenated', 'interleaved'])
def test_the_damaged_shard_and_its_record_are_named(tmp_path, access, layout):
    paths = []
    for shard in range(3):
        paths.append(tmp_path / f'x-0000{shard}-of-00003.bagz')
        frames = list(FRAMES)
        if shard == 1:
            frames[BAD] = BAD_FRAMES['content']
        paths[-1].write_bytes(raw_bag(frames))
    with bag.Reader(tmp_path / 'x@3.bagz', sharding_layout=layout, **ACCESS[access]) as reader:
        place = COUNT + BAD if layout == 'concatenated' else BAD * 3 + 1
        for read in (
            lambda: reader[place],
            reader.read,
            lambda: list(reader),
            lambda: reader.read_indices([place, 0]),
            lambda: bag.Index(reader),
        ):
            with pytest.raises(CorruptError) as caught:
                read()
            assert caught.value.path == os.fspath(paths[1])
            assert caught.value.record == BAD


@pytest.mark.parametrize('dictionary', [b'', b'quite another dictionary ' * 10])
def test_the_wrong_dictionary(tmp_path, dictionary):
    path = write(tmp_path / 'x.bagz', RECORDS, compression=bag.CompressionZstd(3, b''.join(RECORDS)))
    with bag.Reader(path, compression=bag.CompressionZstd(3, dictionary)) as reader:
        for way in WAYS.values():
            with pytest.raises(CorruptError, match='zstd frame'):
                way(reader)


def test_an_index_over_damaged_records_raises(tmp_path):
    path = write(tmp_path / 'x.bagz', RECORDS)
    with bag.Reader(path, mapped=False) as reader:
        index, multi = bag.Index(reader), bag.MultiIndex(reader)
        data = bytearray(Path(path).read_bytes())
        start = len(b''.join(FRAMES[:BAD]))
        starts = [0, *np.frombuffer(bytes(data[-8 * COUNT :]), '<u8').tolist()]
        assert start
        data[starts[BAD] + 8] ^= 0xFF
        with open(path, 'r+b') as file:
            file.write(data)
        for table in (index, multi):
            with pytest.raises(CorruptError) as caught:
                table[RECORDS[BAD]]
            assert caught.value.record == BAD


def test_errors_pickle():
    import pickle

    error = pickle.loads(pickle.dumps(CorruptError('x.bag', 5, 'detail')))
    assert (error.path, error.record, error.detail, str(error)) == (
        'x.bag',
        5,
        'detail',
        'x.bag, record 5: detail',
    )
    assert isinstance(error, BagsError)


# Crashes and memory use, in a child process.


@pytest.mark.skipif(
    not getattr(sys, '_is_gil_enabled', lambda: True)(),
    reason='without the GIL the addresses of threads alone are more than what is allowed here',
)
def test_damage_does_not_exhaust_memory(tmp_path):
    paths = {}
    for number, name in enumerate(['announces 100 GB', 'announces all there is', 'bomb']):
        paths[name] = tmp_path / f'{number}.bagz'
        paths[name].write_bytes(raw_bag([*FRAMES[:BAD], BAD_FRAMES[name], *FRAMES[BAD + 1 :]]))
    for number, value in enumerate([1 << 40, 1 << 63, (1 << 64) - 1]):
        path = tmp_path / f'{number}.bag'
        path.write_bytes(with_limit(value))
        (tmp_path / f'separate-{number}.bag').write_bytes(b'short')
        (tmp_path / f'limits.separate-{number}.bag').write_bytes(with_limit(value)[END:])
    code = """
        import glob, os, resource, sys
        from tests.bag.test_damage import WAYS
        from tests.bag.samples import ACCESS
        from bags import bag
        from bags.errors import CorruptError
        space = int(open('/proc/self/statm').read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (space + (512 << 20),) * 2)
        count = 0
        for path in sorted(glob.glob(sys.argv[1] + '/[0-9s]*')):
            for access in (ACCESS['mapped'], ACCESS['direct_io']):
                placement = 'separate' if 'separate' in path else 'tail'
                for way in WAYS.values():
                    options = {'limits_placement': placement, 'max_record_size': 1 << 20, **access}
                    with bag.Reader(path, **options) as reader:
                        try:
                            way(reader)
                        except CorruptError:
                            count += 1
        print(count)
    """
    child = run_child(code, tmp_path)
    assert child.stdout == f'{9 * 2 * len(WAYS)}\n', child.stderr


FUZZ = """
    import os, random, struct, sys
    from bags import bag
    from bags.errors import CorruptError
    from tests.bag.samples import ACCESS
    from tests.bag.test_damage import FRAMES, RECORDS, raw_bag
    path, rounds = os.path.join(sys.argv[1], sys.argv[2]), int(sys.argv[3])
    compressed = path.endswith('z')
    whole = raw_bag(FRAMES if compressed else RECORDS)
    refused = 0
    for seed in range(rounds):
        rng = random.Random(seed)
        data = bytearray(whole)
        for _ in range(rng.choice([1, 1, 2, 5, 50])):
            kind = rng.randrange(5)
            place = rng.randrange(max(1, len(data)))
            if kind == 0:
                data[place : place + 1] = bytes([rng.randrange(256)])
            elif kind == 1:
                data[place : place + rng.randrange(40)] = rng.randbytes(rng.randrange(40))
            elif kind == 2:
                del data[place:]
            elif kind == 3 and len(data) > 320:
                place = len(data) - 8 * rng.randrange(1, 41)
                value = rng.choice([0, 8, len(data), 1 << 63, place, seed])
                data[place : place + 8] = struct.pack('<Q', value)
            elif kind == 4:
                data[place:place] = data[: rng.randrange(30)]
        with open(path, 'wb') as file:
            file.write(data)
        access = rng.choice(list(ACCESS.values()))
        try:
            with bag.Reader(path, max_record_size=1 << 20, **access) as reader:
                ways = [
                    reader.read,
                    lambda: list(reader),
                    lambda: bag.Index(reader),
                    lambda: reader[::-1].read(),
                    lambda: reader.views(range(len(reader))),
                    lambda: reader.count(b''),
                ]
                for way in rng.sample(ways, 3):
                    try:
                        way()
                    except CorruptError:
                        refused += 1
                for index in rng.sample(range(len(reader)), min(10, len(reader))):
                    try:
                        found = reader[index]
                        assert not compressed or found in RECORDS or found == b'', (seed, index, found)
                    except CorruptError as exc:
                        assert exc.record == index, (seed, index, exc)
                        refused += 1
        except CorruptError:
            refused += 1
    print('refused', refused)
"""


@pytest.mark.slow(all_but='x.bag')
@pytest.mark.parametrize('name', ['x.bag', 'x.bagz'])
def test_a_campaign_of_random_damage(tmp_path, name):
    child = run_child(FUZZ, tmp_path, name, 300)
    assert child.returncode == 0, child.stderr
    assert int(child.stdout.split()[1]) > 100


@pytest.mark.campaign
@pytest.mark.parametrize('name', ['x.bag', 'x.bagz'])
def test_a_long_campaign_of_random_damage(tmp_path, name):
    child = run_child(FUZZ, tmp_path, name, 30_000, timeout=1200)
    assert child.returncode == 0, child.stderr


def test_a_pointer_of_git_lfs_is_named(tmp_path):
    pointer = f'version https://git-lfs.github.com/spec/v1\noid sha256:{"a" * 64}\nsize 12345\n'
    (tmp_path / 'id.bag').write_text(pointer)
    with pytest.raises(CorruptError, match=r'id\.bag: expected a bag, got a Git LFS pointer, which `git'):
        bag.Reader(tmp_path / 'id.bag')
