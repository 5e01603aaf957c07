"""Damaged datasets: an error that names the file, or the right value.

The expected values come from `meaning`, a plain reader of the format as the README describes it, which
does not use the library. Some damage is valid by the format, so it cannot be detected either:

- bytes of a record that is not compressed: they are valid as another value of that record;
- a limit of such a record that is moved within its neighbours, where the type has no fixed size;
- a number in the refs that is changed to another one in range;
- a bag cut off, or overwritten, so that what remains is a whole bag again (a file of 8 n zeros, say, is n
  empty records), where the type has no fixed size;
- a spec.json that is changed to another type that reads the same records.
"""

# ruff: noqa: B023 - functions made in a loop are called in it

import json
import os
import random
import shutil
import struct

import msgpack
import numpy as np
import pytest
import zstandard

import bags
from bags.dataset.format import registry
from bags.dataset.format.spec import parse_spec
from tests.dataset.writing.killed import leave_open

ERRORS = (bags.CorruptError, bags.SpecError, bags.DecodeError)
SPEC = {
    'id': 'int(8)',
    'meta': 'msgpack',
    'note': 'utf8?',
    'nums': 'int(4)[]',
    'text': 'utf8',
    'vec': 'array(float32,3)',
    'words': 'utf8[]',
}
FORMS = {'plain': (), 'zstd': tuple(SPEC)}


def row(index):
    return {
        'id': 8 * index,
        'meta': {'at': index},
        'note': None if index % 2 else f'note {index}',
        'nums': np.array([0, 8, 16][: index % 4], 'int32'),
        'text': 'some text ' * (index % 3),
        'vec': np.array([index, 0, 1], 'float32'),
        'words': [f'word {index}'] * (index % 3),
    }


COUNT = 5
ROWS = [row(index) for index in range(COUNT)]


@pytest.fixture(params=FORMS, scope='module')
def whole(request, kit, tmp_path_factory):
    path = tmp_path_factory.mktemp('damage') / 'whole'
    kit.fill(path, ROWS, SPEC, compression=FORMS[request.param])
    return path


@pytest.fixture
def hurt(whole, tmp_path):
    """Copies the dataset, to damage the copy."""
    return shutil.copytree(whole, tmp_path / 'hurt')


# The expected values.


class Bad(Exception):
    pass


def table_of(data, starts):
    """Returns the ranges of a bag's records."""
    if not data:
        return []
    if len(data) < 8:
        raise Bad
    last = int.from_bytes(data[-8:], 'little')
    if last > len(data) - 8 or (len(data) - last) % 8:
        raise Bad
    ends = list(struct.unpack(f'<{(len(data) - last) // 8}Q', data[last:]))
    if starts and ends.pop(0) != 0:
        raise Bad
    return [(start, end, last) for start, end in zip([0, *ends[:-1]], ends, strict=True)] if ends else []


def record_of(data, table, index, compressed):
    if index >= len(table):
        raise Bad
    start, end, last = table[index]
    if not start <= end <= last:
        raise Bad
    if not compressed or start == end:
        return data[start:end]
    try:
        stream = zstandard.ZstdDecompressor().decompressobj()
        record = stream.decompress(data[start:end])
    except zstandard.ZstdError:
        raise Bad from None
    if not stream.eof or stream.unused_data:
        raise Bad
    return record


def as_row(kind, items):
    """Returns the items of a sequence in the form that a row has them."""
    fixed = registry.fixed_dtype(kind.format, kind.args)
    return items if fixed is None else np.array(items, fixed[0]).reshape(-1, *fixed[1])


def meaning(path):
    """Returns the number of datapoints in a folder, and a function that returns a value or raises Bad."""
    try:
        spec = json.loads((path / 'spec.json').read_bytes())
        schema = parse_spec(spec)
    except Exception:
        raise Bad from None
    refs = (path / 'refs.bag').read_bytes()
    starts = bool(table_of(refs, False)) and table_of(refs, False)[0][1] == 0
    table = table_of(refs, starts)
    if not table and any((path / name).stat().st_size for name in os.listdir(path) if '.bag' in name):
        raise Bad
    bags_ = {}
    for name in schema:
        found = [path / (name + suffix) for suffix in ('.bag', '.bagz') if (path / (name + suffix)).exists()]
        if len(found) == 1:
            data = found[0].read_bytes()
            try:
                bags_[name] = data, table_of(data, starts), found[0].suffix == '.bagz'
            except Bad:
                pass

    def value(index, name):
        try:
            entries = msgpack.unpackb(record_of(refs, table, index, False))
        except Bad:
            raise
        except Exception:
            raise Bad from None
        if not isinstance(entries, list) or len(entries) != len(schema) or name not in bags_:
            raise Bad
        data, limits, compressed = bags_[name]
        entry, kind = entries[list(schema).index(name)], schema[name]
        pair = entry if isinstance(entry, list) else [entry]
        if len(pair) != 1 + kind.sequence or not all(type(n) is int and n >= 0 for n in pair):
            raise Bad
        if kind.optional and pair[0] == 0xFFFFFFFF:
            return None
        first, count = pair if kind.sequence else (pair[0], 1)
        try:
            decode = registry.bind_decoder(kind.format, kind.args)
            if first + count > len(limits):
                raise Bad
            values = [decode(record_of(data, limits, first + k, compressed)) for k in range(count)]
        except (ValueError, KeyError):
            raise Bad from None
        return as_row(kind, values) if kind.sequence else values[0]

    return len(table), value


# What the library reads.


def check_message(error, path):
    assert str(path) in str(error) or isinstance(error, bags.SpecError), str(error)
    if isinstance(error, bags.DecodeError):
        assert error.field in str(error)


def attempt(path, work):
    """Returns a value in a list, or None if reading raises an error that names the path."""
    try:
        return [work()]
    except ERRORS as exc:
        check_message(exc, path)
        return None


def listed(column, index):
    value = column[index]
    return value.item() if isinstance(value, np.generic) else value


def observe(path, kit, thorough=True, only=None):
    """Reads every value in every way; yields the place and the value, None for an error."""
    for options in ({}, {'mapped': False}, {'raw': True}) if thorough else ({},):
        opened = attempt(path, lambda options=options: bags.open(path, **options))
        if opened is None:
            continue
        (reader,) = opened
        with reader:
            yield ('len', options), len(reader), opened
            everything = range(len(reader))
            raw = options.get('raw')
            together = attempt(path, lambda: reader.__getitems__(everything))
            for name in reader.spec if only is None else [only]:
                batch = attempt(path, lambda name=name: reader.batch(everything, name)[name])
                for index in everything:
                    ways = {
                        'part': lambda: reader[index, name][name],
                        'row': lambda: reader[index][name],
                        'batch': lambda: listed(reader.batch([index], name)[name], 0),
                        'rows': lambda: reader.__getitems__([index])[0][name],
                    }
                    if thorough:
                        for way, work in ways.items():
                            yield (way, index, name, raw), attempt(path, work), None
                    else:
                        yield ('part', index, name, raw), attempt(path, ways['part']), None
                    if together is not None:
                        yield ('together', index, name, raw), [together[0][index][name]], None
                    if batch is not None:
                        yield ('batches', index, name, raw), [listed(batch[0], index)], None
                    if thorough and not raw:
                        yield from observe_records(path, reader, index, name)


def observe_records(path, reader, index, name):
    kind = parse_spec({name: reader.spec[name]})[name]
    decode = registry.bind_decoder(kind.format, kind.args)

    def decoded(record):
        try:
            return None if record is None else decode(record)
        except ValueError as exc:
            raise bags.DecodeError(name, index, kind.text, str(exc), path) from exc

    if not kind.sequence:
        yield ('field', index, name, False), attempt(path, lambda: decoded(reader.records(name)[index])), None

        def read_file():
            try:
                with reader.file(index, name) as file:
                    return decoded(file.read())
            except ValueError as exc:
                if 'no value' in str(exc) and kind.optional:
                    return None
                raise

        yield ('file', index, name, False), attempt(path, read_file), None
        return

    def items():
        lengths = reader.lengths(name).tolist()
        start = sum(lengths[:index])
        return as_row(kind, [decoded(r) for r in reader.records(name)[start : start + lengths[index]]])

    # Invalid lengths raise where items are counted.
    yield ('items', index, name, False), attempt(path, items) if sane(reader, name) else None, None
    yield (
        ('files', index, name, False),
        attempt(
            path,
            lambda: as_row(
                kind,
                [decoded(read(reader, index, name, k)) for k in range(int(reader.lengths(name)[index]))],
            ),
        )
        if sane(reader, name)
        else None,
        None,
    )


def sane(reader, name):
    """Returns whether lengths are small enough for a loop in a test."""
    try:
        return int(reader.lengths(name).sum()) < 1000
    except ERRORS:
        return False


def read(reader, index, name, item):
    with reader.file(index, name, item) as file:
        return file.read()


def check_meant(kit, means, index, name, got, where):
    """Asserts that a value is the one that the files hold."""
    try:
        meant = means(index, name)
    except Bad:
        raise AssertionError(f'{where}: {got!r:.100} from bytes that mean nothing') from None
    assert kit.equal(got, meant), f'{where}: {got!r:.100}, meant is {meant!r:.100}'


def compare(path, kit, thorough=True, only=None):
    """Asserts that every value is an error, or right; returns how many are errors, right, and changed."""
    try:
        count, value = meaning(path)
    except Bad:
        count, value = None, None
    tally = {'errors': 0, 'right': 0, 'changed': 0}
    cells = {}

    def means(index, name):
        if value is None:
            raise Bad
        if (index, name) not in cells:
            try:
                cells[index, name] = [value(index, name)]
            except Bad:
                cells[index, name] = None
        if cells[index, name] is None:
            raise Bad
        return cells[index, name][0]

    for where, found, _ in observe(path, kit, thorough, only):
        if where[0] == 'len':
            assert found in (COUNT, count), f'{where}: {found} datapoints, meant are {count}'
            continue
        _, index, name, raw = where
        if found is None:
            tally['errors'] += 1
            continue
        (got,) = found
        if raw:
            kind = parse_spec({name: SPEC[name]})[name] if name in SPEC else None
            try:
                decode = registry.bind_decoder(kind.format, kind.args)
                if got is not None:
                    got = as_row(kind, [decode(g) for g in got]) if kind.sequence else decode(got)
            except (ValueError, AttributeError):
                continue  # Raw records are not decoded by the library; decoding here may raise.
        if index < COUNT and name in SPEC and kit.equal(got, ROWS[index][name]):
            tally['right'] += 1
            continue
        check_meant(kit, means, index, name, got, where)
        tally['changed'] += 1
    return tally


def files_of(path):
    return sorted(p.name for p in path.iterdir())


def test_without_damage(whole, kit):
    tally = compare(whole, kit)
    assert tally['errors'] == tally['changed'] == 0
    assert tally['right'] > 500


# Cut off.


@pytest.mark.slow('zstd-*', 'plain-meta', 'plain-nums', 'plain-refs', 'plain-text', 'plain-vec')
@pytest.mark.parametrize('name', sorted([*SPEC, 'refs', 'spec']))
def test_cut_off_at_every_length(hurt, kit, name):
    (file,) = [p for p in hurt.iterdir() if p.name.split('.')[0] == name]
    data = file.read_bytes()
    for length in range(len(data)):
        file.write_bytes(data[:length])
        tally = compare(hurt, kit, length % 16 == 0, name if name in SPEC else None)
        fixed = file.suffix == '.bagz' or name in ('refs', 'spec', 'id', 'vec', 'nums')
        if fixed:
            assert not tally['changed'], f'{file.name} cut off at {length}: {tally}'
    file.write_bytes(data)


@pytest.mark.slow('zstd-*', 'plain-meta', 'plain-nums', 'plain-refs', 'plain-text', 'plain-vec')
@pytest.mark.parametrize('name', sorted([*SPEC, 'refs']))
def test_longer_than_it_was(hurt, kit, name):
    (file,) = [p for p in hurt.iterdir() if p.name.split('.')[0] == name]
    data = file.read_bytes()
    for extra in (b'\0', b'\0' * 8, b'\xff' * 8, data[-8:], data, random.Random(0).randbytes(64)):
        file.write_bytes(data + extra)
        compare(hurt, kit, only=name if name in SPEC else None)
        file.write_bytes(extra + data)
        compare(hurt, kit, only=name if name in SPEC else None)


# Overwritten.


@pytest.mark.slow('zstd-*', 'plain-meta', 'plain-nums', 'plain-refs', 'plain-text', 'plain-vec')
@pytest.mark.parametrize('name', sorted([*SPEC, 'refs', 'spec']))
def test_every_byte_overwritten(hurt, kit, name):
    overwrite(hurt, kit, name, [0xFF], False)


@pytest.mark.campaign
@pytest.mark.parametrize('name', sorted([*SPEC, 'refs', 'spec']))
def test_every_byte_overwritten_in_many_ways(hurt, kit, name):
    overwrite(hurt, kit, name, [1, 4, 16, 128, 0xFF], False)


def overwrite(hurt, kit, name, masks, thorough):
    (file,) = [p for p in hurt.iterdir() if p.name.split('.')[0] == name]
    data = bytearray(file.read_bytes())
    records = int.from_bytes(data[-8:], 'little') if file.suffix != '.json' else 0
    for place in range(len(data)):
        for mask in masks:
            data[place] ^= mask
            file.write_bytes(data)
            tally = compare(hurt, kit, thorough, name if name in SPEC else None)
            data[place] ^= mask
            # For the last limit, see test_a_last_limit_that_is_too_large.
            checksummed = file.suffix == '.bagz' and place < len(data) - 8
            sized = name in ('id', 'vec', 'nums') and place >= records
            if checksummed or sized:
                assert not tally['changed'], f'{file.name}, byte {place}, {mask:02x}: {tally}'
    file.write_bytes(data)


def test_a_last_limit_that_is_too_large(tmp_path, kit):
    """The limits then begin later: there are fewer records, and record 1 is what was record 3."""
    kit.fill(tmp_path / 'a', [{'id': index} for index in range(5)], {'id': 'int(8)'}, compression=['id'])
    data = bytearray((tmp_path / 'a' / 'id.bagz').read_bytes())
    data[-8:] = struct.pack('<Q', struct.unpack('<Q', data[-8:])[0] + 16)
    (tmp_path / 'a' / 'id.bagz').write_bytes(data)
    with bags.open(tmp_path / 'a') as reader, pytest.raises(bags.CorruptError):
        reader[1]


@pytest.mark.slow(all_but='*-0')
@pytest.mark.parametrize('seed', range(3))
def test_runs_of_bytes_overwritten(hurt, kit, seed):
    chance = random.Random(seed)
    for file in sorted(hurt.iterdir()):
        data = file.read_bytes()
        for _ in range(6):
            start = chance.randrange(len(data))
            length = chance.choice([1, 8, 16, 100])
            patch = chance.choice([bytes(length), b'\xff' * length, chance.randbytes(length), data[:length]])
            file.write_bytes((data[:start] + patch + data[start + length :])[: len(data)])
            compare(hurt, kit, thorough=False)
        file.write_bytes(data)


@pytest.mark.slow(all_but='plain-1')
@pytest.mark.parametrize('seed', range(2))
def test_files_of_noise(hurt, kit, seed):
    chance = random.Random(seed)
    everything = {file: file.read_bytes() for file in hurt.iterdir()}
    for file, data in everything.items():
        size = len(data)
        whole_limits = struct.pack('<4Q', 0, 2**62, 2**63, 2**64 - 1)
        noise = [chance.randbytes(n) for n in (1, 7, 8, 9, size, 1000)]
        noise += [bytes(n) for n in (1, 8, 64, size, 8 * size)] + [
            b'\xff' * 64,
            whole_limits,
            *everything.values(),
        ]
        noise += [bytes(100) + struct.pack('<Q', n) for n in (0, 92, 100, 101, 2**40, 2**64 - 8)]
        for other in noise:
            file.write_bytes(other)
            name = file.name.split('.')[0]
            compare(hurt, kit, False, name if name in SPEC else None)
        file.write_bytes(data)


def test_files_that_are_missing(hurt, kit):
    for file in sorted(hurt.iterdir()):
        data = file.read_bytes()
        file.unlink()
        if file.name == 'source.json':  # Only fingerprints need it.
            with bags.open(hurt) as reader:
                assert kit.equal(reader[1], ROWS[1])
        elif file.name == 'spec.json':
            with pytest.raises(FileNotFoundError):
                bags.DatasetReader(hurt)
        elif file.name == 'refs.bag':
            with pytest.raises(bags.CorruptError, match=r'refs\.bag'):
                bags.open(hurt)
        else:
            name = file.name.split('.')[0]
            with bags.open(hurt) as reader:
                rest = [other for other in SPEC if other != name]
                assert kit.equal(reader[1, rest], {other: ROWS[1][other] for other in rest})
                for use in uses(reader, name):
                    with pytest.raises(bags.CorruptError, match=f"'{name}'"):
                        use()
        file.write_bytes(data)


def uses(reader, name):
    """Every way to read a field."""
    yield lambda: reader[0]
    yield lambda: reader[0, name]
    yield lambda: reader.batch([0])
    yield lambda: reader.batch([0], name)
    yield lambda: reader.__getitems__([0])
    yield lambda: list(reader)
    yield lambda: reader[:][0]
    if SPEC[name].endswith('[]'):
        yield lambda: reader[1, {name: range(1)}]
        yield lambda: reader.records(name)[0]
        yield lambda: reader.file(1, name, 0)
    else:
        yield lambda: reader.records(name)[0]
        yield lambda: reader.file(0, name)


def test_a_field_in_two_bags(hurt, kit):
    for name in SPEC:
        (file,) = [p for p in hurt.iterdir() if p.name.split('.')[0] == name]
        other = file.with_suffix('.bag' if file.suffix == '.bagz' else '.bagz')
        shutil.copy(file, other)
        with bags.open(hurt) as reader:
            for use in uses(reader, name):
                with pytest.raises(bags.CorruptError, match=rf'{name}\.bag and {name}\.bagz'):
                    use()
        with pytest.raises(bags.CorruptError, match=name):
            bags.DatasetWriter(hurt, SPEC, resume=True)
        other.unlink()


def test_empty_refs_beside_records(hurt):
    (hurt / 'refs.bag').write_bytes(b'')
    with pytest.raises(bags.CorruptError, match=r'refs\.bag.*is empty'):
        bags.open(hurt)


def test_an_empty_bag_beside_refs(hurt, kit):
    for name, kind in SPEC.items():
        (file,) = [p for p in hurt.iterdir() if p.name.split('.')[0] == name]
        data = file.read_bytes()
        file.write_bytes(b'')
        with bags.open(hurt) as reader:
            for index in range(COUNT):
                value = ROWS[index][name]
                if value is None or (kind.endswith('[]') and not len(value)):
                    continue
                for use in (
                    lambda: reader[index],
                    lambda: reader.batch([index], name),
                    lambda: reader.__getitems__([index]),
                ):
                    with pytest.raises(
                        bags.CorruptError, match=rf'refs\.bag, record {index}.*{name}.* 0 records'
                    ):
                        use()
        file.write_bytes(data)


# Invalid refs.


def with_refs(path, records):
    (path / 'refs.bag').unlink()
    with bags.bag.Writer(path / 'refs.bag') as writer:
        for record in records:
            writer.write(record)


def good_refs(path):
    return [msgpack.unpackb(record) for record in bags.bag.Reader(path / 'refs.bag').read()]


@pytest.mark.parametrize('packed', ['short', 'wide'])
def test_refs_that_lead_beyond_a_field(hurt, kit, packed):
    refs = good_refs(hurt)
    fields = sorted(SPEC)
    pack = msgpack.packb if packed == 'short' else pack_wide
    for place, name in enumerate(fields):
        for far in (1000, 2**31, 2**32 - 2, 2**32 - 1):
            if far == 2**32 - 1 and name == 'note':
                continue  # This number marks a missing value.
            sequence = SPEC[name].endswith('[]')
            for entry in [[far, 1], [0, far], [far, far]] if sequence else [far]:
                wrong = [list(r) for r in refs]
                wrong[2][place] = entry
                with_refs(hurt, map(pack, wrong))
                with bags.open(hurt) as reader:
                    assert kit.equal(reader[1], ROWS[1])
                    everything = range(len(reader))
                    for use in (
                        lambda: reader[2],
                        lambda: reader[2, name],
                        lambda: reader.batch([1, 2]),
                        lambda: reader.batch(everything, name),
                        lambda: reader.__getitems__(everything),
                        lambda: list(reader),
                        lambda: reader.records(name)[2] if not sequence else reader.file(2, name, 0),
                        lambda: reader.file(2, name) if not sequence else reader[2, {name: slice(0, 9)}],
                        lambda: reader.records(name)[1:4] if not sequence else reader[2, {name: [0]}],
                    ):
                        with pytest.raises(bags.CorruptError, match=rf'refs\.bag, record 2: .*{name}'):
                            use()
                    rest = [other for other in fields if other != name]
                    assert kit.equal(reader[2, rest], {other: ROWS[2][other] for other in rest})


def pack_wide(entries):
    """Packs a refs record as the library writes it."""
    parts = [bytes([0x90 | len(entries)])]
    for entry in entries:
        numbers = entry if isinstance(entry, list) else [entry]
        parts.append(b'\x92' if isinstance(entry, list) else b'')
        parts += [b'\xce' + number.to_bytes(4, 'big') for number in numbers]
    return b''.join(parts)


BAD_REFS = [
    b'', b'\xc1', b'nonsense', msgpack.packb(3), msgpack.packb([]), msgpack.packb({'a': 1}),
    b'\x97' + b'\xce' * 44, msgpack.packb([0] * 7), msgpack.packb([[0, 1]] * 7), msgpack.packb([0] * 70),
    b'\xdd\xff\xff\xff\xff',
]  # fmt: skip


@pytest.mark.parametrize('bad', BAD_REFS, ids=lambda bad: repr(bad[:8]))
def test_refs_that_are_none(hurt, kit, bad):
    with_refs(hurt, [pack_wide(r) if index != 2 else bad for index, r in enumerate(good_refs(hurt))])
    with bags.open(hurt) as reader:
        assert len(reader) == COUNT
        assert kit.equal(reader[1], ROWS[1])
        assert kit.equal(reader[4], ROWS[4])
        for use in (
            lambda: reader[2],
            lambda: reader[2, 'id'],
            lambda: reader.batch([2, 0], 'id'),
            lambda: reader.batch(range(5)),
            lambda: reader.__getitems__([2]),
            lambda: list(reader),
            lambda: reader.records('id')[2],
            lambda: reader.lengths('words'),
            lambda: reader.records('words'),
            lambda: reader.file(2, 'id'),
        ):
            with pytest.raises(bags.CorruptError, match=r'refs\.bag, record 2'):
                use()


def test_refs_read_many_times_are_still_checked(kit, tmp_path):
    """Refs that were checked are not checked again; invalid refs must never count as checked."""
    rows = [{'id': index} for index in range(3000)]
    path = tmp_path / 'a'
    kit.fill(path, rows, {'id': 'int(8)'})
    refs = bytearray((path / 'refs.bag').read_bytes())
    refs[6 * 1700 + 1] = 0xCD  # Another msgpack tag.
    refs[6 * 2600 + 2 : 6 * 2600 + 6] = (5000).to_bytes(4, 'big')
    (path / 'refs.bag').write_bytes(refs)
    with bags.open(path) as reader:
        for _ in range(40):
            for bad in (1700, 2600):
                with pytest.raises(bags.CorruptError, match=f'record {bad}'):
                    reader[bad]
                with pytest.raises(bags.CorruptError, match=f'record {bad}'):
                    reader.batch(range(bad - 300, bad + 300))
                with pytest.raises(bags.CorruptError, match=f'record {bad}'):
                    reader.batch([bad])
                for near in (bad - 1, bad + 1, bad - 500):
                    assert reader[near] == rows[near]
                    assert reader.batch([near])['id'].tolist() == [near]


def test_limits_read_many_times_are_still_checked(kit, tmp_path):
    rows = [{'id': index, 'text': 'abcdefgh'} for index in range(3000)]
    path = tmp_path / 'a'
    kit.fill(path, rows, {'id': 'int(8)', 'text': 'utf8'})
    for name in ('id', 'text'):
        data = bytearray((path / f'{name}.bag').read_bytes())
        data[24000 + 8 * 1700 : 24000 + 8 * 1700 + 8] = struct.pack('<Q', 8 * 1700)
        (path / f'{name}.bag').write_bytes(data)
    with bags.open(path) as reader:
        for _ in range(40):
            for bad in (1700, 1701):
                for use in (
                    lambda: reader[bad, 'id'],
                    lambda: reader.batch([bad], 'id'),
                    lambda: reader[bad],
                ):
                    with pytest.raises(ERRORS, match=r'id\.bag'):
                        use()
            for good in (1699, 1702, 1500, 2999):
                assert reader[good] == rows[good]
                assert reader.batch([good])['id'].tolist() == [good]
            # The format cannot detect a moved end of a text; each read returns what the limits say.
            assert reader[1700, 'text'] == {'text': ''}
            assert reader[1701, 'text'] == {'text': 'abcdefghabcdefgh'}
            assert reader.batch([1700, 1701], 'text')['text'] == ['', 'abcdefghabcdefgh']


# Invalid spec.json.


BAD_SPECS = [
    b'', b'{', b'[]', b'null', b'3', b'"id"', b'{"id": 3}', b'{"id": "int(8)", "id": "int(8)"}', b'\xff',
    b'[' * 99_999, b'{"../x": "utf8"}', b'{"/etc/passwd": "utf8"}', b'{"a\\u0000": "utf8"}',
    b'{"refs": "utf8"}', b'{"": "utf8"}', b'{"a/b": "utf8"}', b'{"..": "utf8"}', b'{"a\\\\b": "utf8"}',
    b'{"id": "int(8"}', b'{"id": "[]"}', b'{"id": null}',
]  # fmt: skip


@pytest.mark.parametrize('spec', BAD_SPECS, ids=lambda spec: repr(spec[:24]))
def test_specs_that_are_none(hurt, spec, tmp_path):
    (tmp_path / 'x.bag').write_bytes(b'secret')
    (hurt / 'spec.json').write_bytes(spec)
    for make in (bags.open, bags.DatasetReader, lambda path: bags.DatasetWriter(path, SPEC, resume=True)):
        with pytest.raises(bags.SpecError, match=r'spec\.json'):
            make(hurt)
    shards = tmp_path / 'shards'
    shutil.copytree(hurt, shards / '000000')
    with pytest.raises(bags.SpecError, match=r'000000.spec\.json'):
        bags.open(shards)


def test_a_spec_with_a_field_too_many_or_too_few(hurt):
    for spec in (
        {**SPEC, 'more': 'utf8'},
        {k: v for k, v in SPEC.items() if k != 'id'},
        {'id': 'int(8)'},
        {},
    ):
        (hurt / 'spec.json').write_text(json.dumps(spec))
        with bags.open(hurt) as reader, pytest.raises(ERRORS):
            reader[0]


def test_a_word_without_a_decoder(hurt):
    (hurt / 'spec.json').write_text(json.dumps({**SPEC, 'text': 'nope(3)'}))
    with bags.open(hurt) as reader:
        assert reader[0, 'id'] == {'id': 0}
        for use in (
            lambda: reader[0],
            lambda: reader[0, 'text'],
            lambda: reader.batch([0]),
            lambda: list(reader),
        ):
            with pytest.raises(bags.SpecError, match=r"'text'.*nope"):
                use()


def test_values_that_do_not_decode(tmp_path, kit):
    path = kit.fill(
        tmp_path / 'a', [{'x': b'\xff', 'y': [b'1', b'\xfe', b'3'] * 3}], {'x': 'bytes', 'y': 'bytes[]'}
    )
    (tmp_path / 'a' / 'spec.json').write_text('{"x": "utf8", "y": "utf8[]"}')
    with bags.open(path) as reader:
        for use in (lambda: reader[0], lambda: reader.batch([0], 'x'), lambda: reader.__getitems__([0])):
            with pytest.raises(
                bags.DecodeError, match=r"x\.bag, field 'x' of type utf8, record 0: UnicodeDecodeError"
            ):
                use()
        for use in (
            lambda: reader[0, 'y'],
            lambda: reader[0, {'y': [1]}],
            lambda: reader.batch([0], 'y'),
            lambda: reader[0, {'y': range(1, 9)}],
        ):
            with pytest.raises(
                bags.DecodeError, match=r"y\.bag, field 'y' of type utf8\[\], record 1"
            ) as caught:
                use()
            assert (caught.value.field, caught.value.index) == ('y', 1)
            assert isinstance(caught.value.__cause__, UnicodeDecodeError)
        assert reader[0, {'y': [0, 2]}] == {'y': ['1', '3']}


# Frames.


def test_frames_that_lie(tmp_path, kit):
    kit.fill(tmp_path / 'a', [{'x': 'text'} for _ in range(3)], {'x': 'utf8'}, compression=['x'])
    good = zstandard.ZstdCompressor(write_checksum=True).compress(b'some text that is long enough ' * 9)
    huge = b'\x28\xb5\x2f\xfd\xe0' + (100 << 30).to_bytes(8, 'little') + b'\x01\x00\x00'
    broken = bytearray(good)
    broken[-1] ^= 1
    frames = [
        good + b'x',
        good + good,
        good[:-1],
        bytes(broken),
        huge,
        b'text',
        b'\x28\xb5\x2f\xfd',
        good[4:],
    ]
    for frame in frames:
        (tmp_path / 'a' / 'x.bagz').unlink()
        with bags.bag.Writer(tmp_path / 'a' / 'x.bagz', compression=bags.bag.CompressionNone()) as writer:
            for record in (good, frame, good):
                writer.write(record)
        with bags.open(tmp_path / 'a') as reader:
            assert reader[2]['x'] == reader[0]['x'] == 'some text that is long enough ' * 9
            for use in (
                lambda: reader[1],
                lambda: reader.batch([0, 1]),
                lambda: reader.__getitems__([2, 1]),
                lambda: list(reader),
                lambda: list(reader.records('x')),
                lambda: reader.file(1, 'x').read(),
                lambda: bags.bag.Index(reader.records('x')),
            ):
                with pytest.raises(bags.CorruptError, match=r'x\.bagz, record 1'):
                    use()


# A dataset that was not closed.


def test_unclosed_and_cut_off(tmp_path, kit):
    path = tmp_path / 'a'
    writer = bags.DatasetWriter(path, SPEC, compression=['text'])
    for index in range(COUNT):
        writer.append(row(index), flush=True)
    leave_open(writer)
    del writer
    for file in sorted(path.iterdir()):
        data = file.read_bytes()
        for length in range(len(data) % 3, len(data), 3):
            file.write_bytes(data[:length])
            opened = attempt(path, lambda: bags.open(path))
            if opened is None:
                continue
            with opened[0] as reader:
                if file.name not in ('limits.refs.bag', 'refs.bag'):
                    assert len(reader) == COUNT
                for index in range(len(reader)):
                    found = attempt(path, lambda index=index: reader[index])
                    assert found is None or kit.equal(found[0], ROWS[index]), (file.name, length, index)
        file.write_bytes(data)
    with bags.DatasetWriter(path, SPEC, resume=True) as writer:
        assert len(writer) == COUNT


def test_limits_beside_a_closed_bag_that_are_not_its_own(hurt):
    for name in ('id', 'text', 'refs'):
        (file,) = [p for p in hurt.iterdir() if p.name.split('.')[0] == name]
        (hurt / f'limits.{file.name}').write_bytes(struct.pack('<2Q', 3, 5))
        with pytest.raises(bags.CorruptError, match=name), bags.open(hurt) as reader:
            reader[0]
        with pytest.raises(bags.CorruptError, match=name):
            bags.DatasetWriter(hurt, SPEC, resume=True)
        (hurt / f'limits.{file.name}').unlink()


def test_links_and_folders_in_place_of_bags(hurt):
    (file,) = [p for p in hurt.iterdir() if p.name.split('.')[0] == 'text']
    file.unlink()
    file.mkdir()
    with bags.open(hurt) as reader, pytest.raises((OSError, bags.CorruptError)):
        reader[0]


def test_starts_that_do_not_begin_with_zero(kit, tmp_path):
    """A folder of Bags 0.x in which one bag has its limits in another place."""
    path = shutil.copytree(kit.GOLDEN / 'bags05-dataset', tmp_path / 'a')
    records = bags.bag.Reader(path / 'foo.bag', limits_placement='starts').read()
    (path / 'foo.bag').unlink()
    with bags.bag.Writer(path / 'foo.bag') as writer:
        for record in records:
            writer.write(record)
    with bags.open(path) as reader, pytest.raises(bags.CorruptError, match=r'foo\.bag.*begin with 0'):
        reader[0]


@pytest.mark.parametrize('name', ['bags05-dataset', 'granular-dataset'])
def test_datasets_of_others_cut_off(kit, tmp_path, name):
    path = shutil.copytree(kit.GOLDEN / name, tmp_path / 'a')
    with bags.open(path) as reader:
        right = list(reader)
    for file in sorted(path.iterdir()):
        data = file.read_bytes()
        for length in {0, 1, 7, 8, len(data) // 2, len(data) - 16, len(data) - 8, len(data) - 1}:
            file.write_bytes(data[: max(0, length)])
            opened = attempt(path, lambda: bags.open(path))
            if opened is not None:
                with opened[0] as reader:
                    for index in range(len(reader)):
                        found = attempt(path, lambda index=index: reader[index])
                        # In Granular, the shortest field counts.
                        assert found is None or kit.equal(found[0], right[index]), (file.name, length, index)
            file.write_bytes(data)
