import msgpack
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bags.dataset.format.refs import MISSING, RefsFormat
from bags.dataset.format.spec import parse_spec

SPEC = parse_spec({'id': 'int(8)', 'note': 'utf8?', 'words': 'utf8[]'})
SPECS = st.dictionaries(
    st.from_regex(r'[a-z]{1,6}', fullmatch=True).filter(lambda name: name != 'refs'),
    st.sampled_from(['utf8', 'utf8[]', 'utf8?', 'utf8[]?']),
    min_size=1,
    max_size=20,
).map(parse_spec)
NUMBERS = st.integers(0, MISSING)


def entries_of(spec, row):
    """Returns the row as the msgpack array of a refs record."""
    numbers = iter(row)
    return [[next(numbers), next(numbers)] if kind.sequence else next(numbers) for kind in spec.values()]


def pack(form, *rows):
    return form.pack(np.array(rows, np.int64))


@st.composite
def specs_and_rows(draw):
    spec = draw(SPECS)
    width = sum(1 + kind.sequence for kind in spec.values())
    rows = st.lists(NUMBERS, min_size=width, max_size=width).map(tuple)
    return spec, draw(st.lists(rows, min_size=1, max_size=5))


def test_the_bytes():
    record = pack(RefsFormat(SPEC), (7, MISSING, 20, 3))
    assert record.hex(' ') == '93 ce 00 00 00 07 ce ff ff ff ff 92 ce 00 00 00 14 ce 00 00 00 03'


@given(specs_and_rows())
def test_rows_are_msgpack_of_one_length(given_):
    spec, rows = given_
    form = RefsFormat(spec)
    for row in rows:
        record = pack(form, row)
        assert len(record) == form.stride
        assert msgpack.unpackb(record) == entries_of(spec, row)
        assert form.unpack(record) == row


@given(specs_and_rows())
def test_rows_of_other_writers(given_):
    spec, rows = given_
    form = RefsFormat(spec)
    for row in rows:
        assert form.unpack(msgpack.packb(entries_of(spec, row))) == row
        # Bags 0.x writes a sequence without items as an empty array.
        entries = [
            [] if isinstance(entry, list) and not entry[1] else entry for entry in entries_of(spec, row)
        ]
        numbers = [
            n for entry in entries for n in ((entry or [0, 0]) if isinstance(entry, list) else [entry])
        ]
        assert form.unpack(msgpack.packb(entries)) == tuple(numbers)


@given(specs_and_rows())
def test_columns_are_the_rows_turned(given_):
    spec, rows = given_
    form = RefsFormat(spec)
    buffer = pack(form, *rows)
    table = np.frombuffer(buffer, np.uint8).reshape(len(rows), form.stride)
    assert form.has_tags(table)
    read, unpacked = np.frombuffer(buffer, form.dtype), np.array(rows, form.dtype)
    for found in (form.columns(read, list(spec)), form.columns(unpacked, list(spec))):
        assert list(found) == list(spec)
        for name, kind in spec.items():
            place = form.positions[name]
            parts = found[name] if kind.sequence else (found[name],)
            for offset, part in enumerate(parts):
                assert part.dtype == np.int64
                assert part.tolist() == [row[place + offset] for row in rows]


def test_many_fields():
    for count in (15, 16, 17, 300, 70_000):
        spec = parse_spec({f'f{number:05}': 'utf8' for number in range(count)})
        form = RefsFormat(spec)
        row = tuple(range(count))
        assert msgpack.unpackb(pack(form, row)) == list(row)
        assert form.unpack(pack(form, row)) == row


@pytest.mark.parametrize('place', [0, 1, 6, 11, 12, 17])
def test_a_tag_that_differs_is_seen(place):
    form = RefsFormat(SPEC)
    record = bytearray(pack(form, (7, 8, 20, 3)))
    record[place] ^= 0x40
    table = np.frombuffer(pack(form, (1, 2, 3, 4)) + record, np.uint8).reshape(2, form.stride)
    assert not form.has_tags(table)
    assert form.has_tags(table[:1])
    with pytest.raises(ValueError):
        form.unpack(bytes(record))


BAD = [
    b'',
    b'\xc1',
    b'\xff',
    msgpack.packb(3),
    msgpack.packb({}),
    msgpack.packb([]),
    msgpack.packb([1, 2]),
    msgpack.packb([1, 2, [3, 4], 5]),
    msgpack.packb([1, 2, 3]),
    msgpack.packb([[1, 1], 2, [3, 4]]),
    msgpack.packb([1, 2, [3]]),
    msgpack.packb([1, 2, [3, 4, 5]]),
    msgpack.packb([-1, 2, [3, 4]]),
    msgpack.packb([1, 2, [3, -4]]),
    msgpack.packb([1, 2, [3, 2**32]]),
    msgpack.packb([2**63, 2, [3, 4]]),
    msgpack.packb([1.0, 2, [3, 4]]),
    msgpack.packb([True, 2, [3, 4]]),
    msgpack.packb([1, None, [3, 4]]),
    msgpack.packb([1, 2, ['3', 4]]),
    msgpack.packb([1, 2, None]),
    msgpack.packb([1, 2, [3, 4]]) + b'\0',
    msgpack.packb([1, 2, [3, 4]])[:-1],
    b'\xdd\xff\xff\xff\xff',
    b'\xdf\xff\xff\xff\xff',
    b'\xc6\xff\xff\xff\xff',
    b'\x91' * 100_000,
]


@pytest.mark.parametrize('record', BAD, ids=lambda record: repr(record[:12]))
def test_records_that_are_no_refs(record):
    with pytest.raises(ValueError):
        RefsFormat(SPEC).unpack(record)


@given(st.binary(max_size=40))
def test_any_bytes_are_refs_or_refused(record):
    form = RefsFormat(SPEC)
    try:
        row = form.unpack(record)
    except ValueError:
        return
    assert len(row) == 4
    assert all(0 <= number <= MISSING for number in row)


@given(specs_and_rows())
def test_rows_packed_together_are_those_packed_one_by_one(given_):
    spec, rows = given_
    form = RefsFormat(spec)
    assert pack(form, *rows) == b''.join(pack(form, row) for row in rows)
