"""Readers of rows: what the reader of each folder and of each view promises."""

import numpy as np
import pytest

import bags
from bags.dataset.reading.columns import read_column

SPEC = {'id': 'int(8)', 'words': 'utf8[]', 'note': 'utf8?'}


def write(path, start=0, spec=SPEC):
    with bags.DatasetWriter(path, spec) as writer:
        for index in range(start, start + 4):
            row = {'id': index, 'words': ['a'] * (index % 3), 'note': None}
            writer.append({name: row[name] for name in spec})
    return bags.open(path)


@pytest.fixture
def one(tmp_path):
    return write(tmp_path / 'one')


@pytest.fixture
def other(tmp_path):
    return write(tmp_path / 'other', 4, {'id': 'int(8)', 'words': 'utf8[]'})


def datasets(one, other):
    """Views in which rows are read by each kind of reader, with the fields that have records in a folder."""
    every = ('id', 'words', 'note')
    return {
        'folder': (one, {'one': every}),
        'select': (one.select([3, 1]), {'one': every}),
        'rename': (one.rename({'id': 'number'}), {'one': every}),
        'update': (one.update({2: {'words': ['new']}}), {'one': every}),
        'join': (one.drop(fields='note'), {'one': ('id', 'words')}),
        'union': (bags.concat([one, other], fields='union'), {'one': every, 'other': ('id', 'words')}),
        'sources': (
            bags.concat({'a': one, 'b': other}, fields='union', source='source'),
            {'one': every, 'other': ('id', 'words')},
        ),
        'windows': (one.windows(every='words', words=bags.steps(0, 1)), {'one': every}),
    }


KINDS = ('folder', 'select', 'rename', 'update', 'join', 'union', 'sources', 'windows')


@pytest.mark.parametrize('kind', KINDS)
def test_folders_name_the_fields_that_have_records_there(one, other, kind):
    dataset, expected = datasets(one, other)[kind]
    found = dataset.folders(list(dataset.schema))
    assert {folder.path.rpartition('/')[2]: sorted(names) for folder, names in found} == {
        name: sorted(fields) for name, fields in expected.items()
    }


@pytest.mark.parametrize('kind', KINDS)
def test_every_reader_of_a_plan_has_all_methods(one, other, kind):
    dataset, _ = datasets(one, other)[kind]
    for field, field_type in dataset.schema.items():
        for group in dataset.plan_rows(np.arange(len(dataset)), {field: True}):
            columns = group.reader.read_selection(group.rows, group.selection, read_column)
            assert len(columns[field]) == len(group.rows)
            assert isinstance(group.reader.folders([field]), list)
            group.reader.record_ranges(group.rows, field, True)
            if field_type.sequence:
                assert len(group.reader.item_counts(group.rows, field, True)) == len(group.rows)


def test_the_field_of_sources_has_no_items(one, other):
    dataset = bags.concat({'a': one, 'b': other}, fields='union', source='source')
    with pytest.raises(TypeError, match="field 'source' of type utf8: expected a sequence"):
        dataset.item_counts(np.arange(2), 'source')
