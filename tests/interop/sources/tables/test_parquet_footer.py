"""The facts of row groups equal those of pyarrow; a damaged footer raises ValueError."""

import io
import struct

import pytest

from bags.interop.sources.tables.parquet_footer import ParquetRowGroup, read_row_groups

pa = pytest.importorskip('pyarrow')
from pyarrow import parquet as pq  # noqa: E402


def written(table, **options):
    file = io.BytesIO()
    pq.write_table(table, file, **options)
    return file


def changed(whole, change):
    """Returns a file whose footer is the result of a function."""
    (length,) = struct.unpack('<I', whole[-8:-4])
    footer = change(whole[-8 - length : -8])
    return io.BytesIO(whole[: -8 - length] + footer + struct.pack('<I', len(footer)) + whole[-4:])


@pytest.mark.parametrize(
    'options',
    [
        {'row_group_size': 2},
        {'compression': 'zstd', 'data_page_version': '2.0', 'write_page_index': True},
        {'use_dictionary': False, 'compression': 'none', 'write_page_checksum': True},
        {'row_group_size': 1, 'write_statistics': ['number']},
    ],
    ids=str,
)
def test_row_groups_are_those_of_pyarrow(options):
    table = pa.table(
        {
            'number': pa.array([1, None, 3] * 20),
            'text': ['x', 'yy' * 100, None] * 20,
            'lists': pa.array([[1.0], [], None] * 20),
            'struct': pa.array([{'x': True, 'y': {'z': b''}}] * 60),
            'map': pa.array([[('key', 1)]] * 60, pa.map_(pa.string(), pa.int64())),
            'none': pa.nulls(60),
        }
    )
    file = written(table, **options)
    metadata = pq.ParquetFile(file).metadata
    found = read_row_groups(file)
    assert len(found) == metadata.num_row_groups
    for number, group in enumerate(found):
        expected = metadata.row_group(number)
        nulls = {}
        for chunk in map(expected.column, range(expected.num_columns)):
            is_known = chunk.statistics is not None and chunk.statistics.has_null_count
            nulls.setdefault(chunk.path_in_schema.partition('.')[0], []).append(
                chunk.statistics.null_count if is_known else 1
            )
        assert group == ParquetRowGroup(
            expected.num_rows, expected.total_byte_size, {name: min(each) for name, each in nulls.items()}
        )


def test_footers_of_any_length():
    table = pa.table({f'column {number}': range(20) for number in range(100)})
    file = written(table, row_group_size=1)
    assert pq.ParquetFile(file).metadata.serialized_size > 1 << 17
    assert [(group.length, len(group.nulls)) for group in read_row_groups(file)] == [(1, 100)] * 20


def test_damaged_footers_raise():
    whole = written(pa.table({'id': [1, 2, None], 'lists': [[1.0], [], [2.0]]})).getvalue()
    expected = read_row_groups(io.BytesIO(whole))
    for size in range(len(whole)):
        with pytest.raises(ValueError, match='footer'):
            read_row_groups(io.BytesIO(whole[:size]))
    equal = 0
    for offset in range(len(whole)):
        data = bytearray(whole)
        data[offset] ^= 1 << offset % 8
        try:
            equal += read_row_groups(io.BytesIO(data)) == expected
        except ValueError as exc:
            assert 'footer' in str(exc)  # noqa: PT017
    assert len(whole) / 2 < equal < len(whole)


@pytest.mark.parametrize(
    ('change', 'detail'),
    [
        (lambda footer: footer.replace(b'\x16\x06', b'\x16\x04', 1), 'expected 2 rows, got groups of .3'),
        (lambda footer: footer[: len(footer) // 2], 'is damaged: IndexError'),
        (lambda footer: b'\x2b' + footer, 'expected a type of Parquet, got 11'),
        (lambda footer: b'\x38\x01x' + footer, 'expected another type than 8'),
        (lambda footer: b'\x26' + b'\xff' * 20 + footer, 'is damaged'),
        (lambda footer: b'\x1c' * 100_000 + footer, 'is damaged: RecursionError'),
        (lambda footer: b'\x99\xf1' + b'\x80' * 8 + b'\x10' + footer, f'a list of {1 << 60} items'),
    ],
    ids=['rows', 'cut', 'map', 'type', 'number', 'nested', 'list'],
)
def test_what_is_wrong_is_named(change, detail):
    file = changed(written(pa.table({'id': [1, 2, 3]})).getvalue(), change)
    with pytest.raises(ValueError, match=detail):
        read_row_groups(file)
