"""Records that are in several files, of different compressions: all reads follow from where they are."""

import numpy as np
import pytest

from bags.bag import Writer
from bags.bag.open import open_bag
from bags.bag.options import ReaderOptions
from bags.bag.records import FileRanges, StoredRecords
from bags.dataset.format.folder_layout import Decoders
from bags.dataset.format.spec import parse_spec
from bags.dataset.reading.columns import read_column, read_records, read_value, read_values
from bags.dataset.reading.field_reader import FieldReader
from bags.errors import CorruptError
from bags.storage import store_for

VALUES = [f'record {index}'.encode() * (index % 5) for index in range(60)]
FIXED = [np.full(3, index, '<i4').tobytes() for index in range(60)]
CHOSEN = [[], [7], [3, 4, 4, 59, 0], range(10, 40), range(60)]


class Alternating(StoredRecords):
    """Record i is record i // n of the bag i % n."""

    def __init__(self, bags):
        self.path, self.bags, self.is_remote = 'alternating', bags, False
        self.count = sum(bag.count for bag in bags)

    def locate(self, indices):
        indices = np.asarray(indices, np.int64)
        bags, within = indices % len(self.bags), indices // len(self.bags)
        found = []
        for number in np.unique(bags).tolist():
            positions = np.flatnonzero(bags == number)
            (ranges,) = self.bags[number].locate(within[positions])
            found.append(ranges._replace(positions=positions if len(positions) < len(indices) else None))
        return found or self.bags[0].locate(indices)

    is_compressed = True
    size = property(lambda self: sum(bag.size for bag in self.bags))

    def bytes_before(self, index):
        return self.size * index // self.count

    def invalid(self, start, stop):
        return []

    def check_count(self, length, last):
        pass


def alternating(tmp_path, records, mapped=True):
    """Writes records to three bags, one of them compressed, and opens them as one."""
    bags = []
    for number, name in enumerate(['a.bag', 'b.bagz', 'c.bag']):
        with Writer(tmp_path / name) as writer:
            for record in records[number::3]:
                writer.write(record)
        store, path = store_for(tmp_path / name)
        bags.append(open_bag(store, path, ReaderOptions(mapped=mapped)))
    return Alternating(bags)


@pytest.mark.parametrize('mapped', [True, False])
@pytest.mark.parametrize('chosen', CHOSEN)
def test_many_records(tmp_path, chosen, mapped):
    found = alternating(tmp_path, VALUES, mapped)
    indices = chosen if isinstance(chosen, range) else np.array(chosen, np.int64)
    expected = [VALUES[index] for index in chosen]
    assert found.read(indices) == expected
    assert list(map(bytes, found.read(indices, views=True))) == expected
    stored = found.read(indices, stored=True)
    assert found.sizes(indices).tolist() == list(map(len, stored))
    for index, record in zip(chosen, stored, strict=True):
        codec = found.bags[index % 3].codec
        assert (record if codec is None else codec.decode(record)) == VALUES[index]


@pytest.mark.parametrize('mapped', [True, False])
def test_single_records(tmp_path, mapped):
    found = alternating(tmp_path, VALUES, mapped)
    for index, value in enumerate(VALUES):
        assert found.get(index) == bytes(found.get_view(index)) == value
        file = found.open(index, 'a name')
        assert file.read() == value
        assert file.seek(2) == 2
        assert file.read(3) == value[2:5]
    assert found.get(-1) == VALUES[-1]
    for read in (found.get, found.get_view):
        with pytest.raises(IndexError):
            read(60)


def test_records_of_one_length(tmp_path):
    found = alternating(tmp_path, FIXED)
    rows = found.fixed(np.array([5, 3, 3]), 12)
    assert rows.view('<i4').tolist() == [[5] * 3, [3] * 3, [3] * 3]
    assert found.fixed(np.array([5, 3]), 8) is None


def field_over(records, text):
    """Returns a field of a type over records."""
    field_type = parse_spec({'x': text})['x']
    return FieldReader('x', field_type, 0, records, Decoders(None).get('x', field_type, False, ''))


def test_values_of_a_field(tmp_path):
    field = field_over(alternating(tmp_path, VALUES), 'utf8')
    chosen = np.array([8, 1, 1, 30])
    expected = [VALUES[index].decode() for index in chosen]
    assert read_column(field, chosen, True) == read_values(field, chosen, True) == expected
    assert [read_value(field, int(index), 1) for index in chosen] == expected
    assert read_records(field, chosen, True) == [VALUES[index] for index in chosen]


def test_arrays_and_sequences_of_a_field(tmp_path):
    field = field_over(alternating(tmp_path, FIXED), 'array(int32,3)')
    assert read_column(field, np.array([9, 2]), True).tolist() == [[9] * 3, [2] * 3]
    field = field_over(field.bag, 'array(int32,3)[]')
    column = read_column(field, (np.array([4, 20]), np.array([3, 1])), True)
    assert [part[:, 0].tolist() for part in column] == [[4, 5, 6], [20]]
    assert read_value(field, 4, 3, range(1, 3))[:, 0].tolist() == [5, 6]


def test_damage_names_the_record(tmp_path):
    found = alternating(tmp_path, VALUES)
    data = bytearray((tmp_path / 'b.bagz').read_bytes())
    data[4:20] = bytes(16)
    (tmp_path / 'b.bagz').write_bytes(data)
    found.bags[1] = found.bags[1].reopen()
    for read in (lambda: found.get(1), lambda: found.read(np.array([0, 1, 2]))):
        with pytest.raises(CorruptError, match='record 1'):
            read()


def test_ranges_are_of_one_file_each(tmp_path):
    found = alternating(tmp_path, VALUES).locate(np.array([3, 4, 7]))
    assert all(isinstance(ranges, FileRanges) for ranges in found)
    assert [ranges.file.path.rpartition('/')[2] for ranges in found] == ['a.bag', 'b.bagz']
    assert [ranges.positions.tolist() for ranges in found] == [[0], [1, 2]]
