"""Bags damaged at random, read in every way: all return the same records, or raise CorruptError."""

from __future__ import annotations

import random
import struct

import numpy as np
import pytest

from bags import bag
from bags.errors import CorruptError
from tests.bag.samples import ACCESS
from tests.dataset.reading.test_damage import Bad, record_of, table_of

COUNT = 12
RECORDS = [b'record %d ' % index * (index % 4) for index in range(COUNT)]
RECORDS[5] = random.Random(0).randbytes(150)
EVEN = [b'%08d' % index for index in range(COUNT)]
"""Records of one length, which may be read in another way."""


def whole(tmp_path, records, name, placement):
    """Returns the bytes of a bag, and of its separate limits."""
    path = tmp_path / 'whole' / name
    path.parent.mkdir(exist_ok=True)
    with bag.Writer(path, mode='overwrite', limits_placement=placement) as writer:
        for record in records:
            writer.write(record)
    beside = path.parent / f'limits.{name}'
    return path.read_bytes(), beside.read_bytes() if placement == 'separate' else None


def put(path, data):
    """Writes a new file: an iterator that reads ahead may still map the old one."""
    path.unlink(missing_ok=True)
    path.write_bytes(data)


def damaged(rng, data, ends):
    """Returns bytes with damage of one or several kinds, in one of the two files."""
    files = [bytearray(data), None if ends is None else bytearray(ends)]
    for _ in range(rng.choice([1, 1, 1, 2, 5])):
        target = files[0] if files[1] is None or rng.random() < 0.5 else files[1]
        if not target:
            continue
        kind, place = rng.randrange(6), rng.randrange(len(target))
        if kind == 0:
            target[place] ^= 1 << rng.randrange(8)
        elif kind == 1:
            target[place : place + rng.randrange(1, 30)] = rng.randbytes(rng.randrange(1, 30))
        elif kind == 2:
            del target[place:]
        elif kind == 3:  # Changes a limit, if limits are at the end.
            place = max(0, len(target) - 8 * rng.randrange(1, COUNT + 1))
            old = int.from_bytes(target[place : place + 8], 'little')
            new = rng.choice([0, 8, old + 8, old + 1, max(old - 8, 0), max(old - 1, 0), len(data), 1 << 63])
            target[place : place + 8] = struct.pack('<Q', new)[: len(target) - place]
        elif kind == 4:
            target += rng.randbytes(rng.choice([1, 8, 16]))
        elif target is files[0] or rng.random() < 0.5:
            place = 8 * (place // 8)
            target[place : place + 8] = b''
    return bytes(files[0]), None if files[1] is None else bytes(files[1])


def meaning(data, ends, placement, compressed):
    """Returns the number of records, and a function that returns one or raises Bad, by the README."""
    if ends is None:
        table = table_of(data, placement == 'starts')
    else:
        stops = struct.unpack(f'<{len(ends) // 8}Q', ends[: len(ends) // 8 * 8])
        table = [(start, stop, len(data)) for start, stop in zip([0, *stops], stops, strict=False)]
    return len(table), lambda index: record_of(data, table, index, compressed)


ONE = {
    'one': lambda reader, i: reader[i],
    'from the end': lambda reader, i: reader[i - len(reader)],
    'numpy': lambda reader, i: reader[np.int64(i)],
    'slice': lambda reader, i: reader[i : i + 1][0],
    'slice read': lambda reader, i: reader[i : i + 1].read()[0],
    'backwards': lambda reader, i: reader[::-1][len(reader) - 1 - i],
    'view': lambda reader, i: bytes(reader.view(i)),
    'views': lambda reader, i: bytes(reader.views([i])[0]),
    'read_range': lambda reader, i: reader.read_range(i, 1)[0],
    'read_indices': lambda reader, i: reader.read_indices([i])[0],
    'array': lambda reader, i: reader.read_indices(np.array([i, i]))[1],
    'range_iter': lambda reader, i: next(reader.read_range_iter(i, 1)),
    'indices_iter': lambda reader, i: next(reader.read_indices_iter(iter([i]))),
}
MANY = {
    'read': lambda reader, chosen: [reader.read()[i] for i in chosen],
    'list': lambda reader, chosen: reader.read_indices(chosen),
    'array': lambda reader, chosen: reader.read_indices(np.array(chosen, np.int32)),
    'twice': lambda reader, chosen: reader.read_indices([*chosen, *chosen])[len(chosen) :],
    'views': lambda reader, chosen: list(map(bytes, reader.views(chosen))),
    'range': lambda reader, chosen: [reader.read_range(0, len(reader))[i] for i in chosen],
    'every second': lambda reader, chosen: [reader[i % 2 :: 2].read()[i // 2] for i in chosen],
}
ITERATORS = {
    'iter': lambda reader: (range(len(reader)), iter(reader)),
    'reversed': lambda reader: (range(len(reader))[::-1], iter(reversed(reader))),
    'every third': lambda reader: (range(0, len(reader), 3), iter(reader[::3])),
    'range_iter': lambda reader: (
        range(len(reader)),
        reader.read_range_iter(0, len(reader), read_ahead=3),
    ),
    'indices_iter': lambda reader: (
        [*range(len(reader)), *range(len(reader))[::-2]],
        reader.read_indices_iter([*range(len(reader)), *range(len(reader))[::-2]], read_ahead=4),
    ),
}


def check(reader, means, rng, tally):
    """Reads in every way; `means` returns the record of an index, or raises Bad."""

    def expect(way, index, read):
        try:
            found = read()
        except CorruptError:
            tally['errors'] += 1
            return
        try:
            meant = means(index)
        except Bad:
            raise AssertionError(f'{way} of {index}: {found!r:.80} from bytes that mean nothing') from None
        assert found == meant, f'{way} of {index}: {found!r:.80}, meant is {meant!r:.80}'
        tally['right'] += 1

    indices = range(min(len(reader), 40))
    for index in indices:
        for way, read in ONE.items():
            expect(way, index, lambda read=read, index=index: read(reader, index))
    for way, read in MANY.items():
        chosen = rng.sample(indices, len(indices))
        try:
            records = read(reader, chosen)
        except CorruptError:
            tally['errors'] += 1
            continue
        for index, record in zip(chosen, records, strict=True):
            expect(way, index, lambda record=record: record)
    for way, start in ITERATORS.items():
        order, records = start(reader)
        for index in order:
            try:
                record = next(records)
            except CorruptError:
                # Iteration raises at the damaged record, which raises too if read alone.
                with pytest.raises(CorruptError):
                    reader[index]
                tally['errors'] += 1
                break
            expect(way, index, lambda record=record: record)
    check_look_ups(reader, means, tally)


def check_look_ups(reader, means, tally):
    def meant(index):
        try:
            return means(index)
        except Bad:
            return None

    try:
        first = bag.Index(reader)
    except CorruptError:
        tally['errors'] += 1
    else:
        records = [means(index) for index in range(len(reader))]
        for index, record in enumerate(records):
            assert first[record] == records.index(record), index
    for record in {*RECORDS, *EVEN}:
        for way in (reader.index, lambda record: record in reader, reader.count):
            try:
                found = way(record)
            except CorruptError:
                tally['errors'] += 1
            except ValueError:
                assert record not in map(meant, range(len(reader)))
            else:
                everything = list(map(meant, range(len(reader))))
                ways = {reader.index: everything.index, reader.count: everything.count}
                assert found == ways.get(way, everything.__contains__)(record)


def campaign(tmp_path, records, name, placement, seeds):
    data, ends = whole(tmp_path, records, name, placement)
    path, tally = tmp_path / name, {'errors': 0, 'right': 0}
    for seed in seeds:
        rng = random.Random(seed)
        cut = range(len(data))[::-1]
        if seed < len(cut):  # The first seeds cut the file at every length.
            bad, beside = data[: cut[seed]], ends
        else:
            bad, beside = damaged(rng, data, ends)
        put(path, bad)
        if beside is not None:
            put(tmp_path / f'limits.{name}', beside)
        access = rng.choice(list(ACCESS.values()))
        storage = rng.choice(['on_disk', 'in_memory'])
        try:
            reader = bag.Reader(path, limits_placement=placement, limits_storage=storage, **access)
        except CorruptError:
            tally['errors'] += 1
            continue
        try:
            count, means = meaning(bad, beside, placement, name.endswith('z'))
        except Bad:
            raise AssertionError(f'{seed}: opened what is no bag') from None
        with reader:
            assert len(reader) == count, seed
            try:
                check(reader, means, rng, tally)
            except AssertionError as exc:
                raise AssertionError(f'seed {seed}, {access}, {storage}: {exc}') from exc
    assert min(tally.values()) > len(seeds)


FORMS = {
    'plain': (RECORDS, 'x.bag', 'tail'),
    'even': (EVEN, 'x.bag', 'tail'),
    'zstd': (RECORDS, 'x.bagz', 'tail'),
    'zstd, separate': (RECORDS, 'x.bagz', 'separate'),
    'plain, separate': (EVEN, 'x.bag', 'separate'),
    'zstd, starts': (RECORDS, 'x.bagz', 'starts'),
    'plain, starts': (RECORDS, 'x.bag', 'starts'),
}


@pytest.mark.slow('plain, *', 'zstd, *', 'even')
@pytest.mark.parametrize('form', FORMS)
def test_every_way_to_read_what_is_damaged(tmp_path, form):
    campaign(tmp_path, *FORMS[form], range(1000, 1040))


@pytest.mark.campaign
@pytest.mark.parametrize('form', FORMS)
def test_every_way_to_read_what_is_damaged_thoroughly(tmp_path, form):
    campaign(tmp_path, *FORMS[form], range(2000))


def shards(tmp_path, layout, seeds):
    """Makes three shards, one of them damaged."""
    data, _ = whole(tmp_path, RECORDS, 'x.bagz', 'tail')
    tally = {'errors': 0, 'right': 0}
    for seed in seeds:
        rng = random.Random(seed)
        hurt = rng.randrange(3)
        contents = [data] * 3
        contents[hurt], _ = damaged(rng, data, None)
        for number, content in enumerate(contents):
            put(tmp_path / f'x-0000{number}-of-00003.bagz', content)
        try:
            reader = bag.Reader(tmp_path / 'x@3.bagz', sharding_layout=layout, mapped=rng.random() < 0.5)
        except CorruptError:
            tally['errors'] += 1
            continue
        except ValueError:  # Interleaved shards have unequal lengths.
            if layout == 'concatenated':
                raise
            continue
        parts = [meaning(content, None, 'tail', True) for content in contents]

        def means(index, parts=parts):
            if layout == 'interleaved':
                return parts[index % 3][1](index // 3)
            for count, part in parts:
                if index < count:
                    return part(index)
                index -= count
            raise IndexError

        with reader:
            assert len(reader) == sum(count for count, _ in parts)
            check(reader, means, rng, tally)
    assert tally['right'] > tally['errors'] > 0


@pytest.mark.slow(all_but='interleaved')
@pytest.mark.parametrize('layout', ['concatenated', 'interleaved'])
def test_every_way_to_read_shards_of_which_one_is_damaged(tmp_path, layout):
    shards(tmp_path, layout, range(25))


@pytest.mark.campaign
@pytest.mark.parametrize('layout', ['concatenated', 'interleaved'])
def test_every_way_to_read_shards_of_which_one_is_damaged_thoroughly(tmp_path, layout):
    shards(tmp_path, layout, range(1000))


def test_each_way_detects_one_bad_record(tmp_path):
    """Otherwise the tests above could pass by never reading the damage."""
    data, _ = whole(tmp_path, RECORDS, 'x.bagz', 'tail')
    table = table_of(data, False)
    bad = bytearray(data)
    bad[table[5][1] - 3] ^= 0x41
    path = tmp_path / 'x.bagz'
    path.write_bytes(bad)
    with bag.Reader(path) as reader:
        for way, read in ONE.items():
            with pytest.raises(CorruptError) as caught:
                read(reader, 5)
            assert caught.value.record == 5, way
        for way, read in MANY.items():
            with pytest.raises(CorruptError) as caught:
                read(reader, [4, 5, 6])
            assert caught.value.record == 5, way
