"""A view or a reader of one's own: what `Dataset` and `View` leave to define is enough for all methods."""

from __future__ import annotations

import pickle
import re
from pathlib import Path

import numpy as np
import pytest

import bags
from bags.dataset.base import View
from bags.dataset.format.spec import parse_spec
from bags.dataset.reading.row_groups import RowGroup

SPEC = {'id': 'int(8)', 'note': 'utf8?', 'text': 'utf8', 'words': 'int(2)[]?'}
NOTES = [None if index % 3 else f'note {index}' for index in range(20)]
WORDS = [None if index % 4 == 3 else list(range(index % 5)) for index in range(20)]


class Reversed(View):
    """The datapoints of a dataset, the last one first."""

    def __init__(self, dataset):
        super().__init__([dataset], dataset.schema)

    def __len__(self):
        return len(self.datasets[0])

    def plan_rows(self, indices, selection):
        return self.datasets[0].plan_rows(len(self) - 1 - indices, selection)

    def __repr__(self):
        return f'Reversed({self.datasets[0]!r})'


class Squares(View):
    """A field of computed numbers."""

    def __init__(self, dataset):
        super().__init__([dataset], parse_spec({'square': 'int(8)'}))

    def __len__(self):
        return len(self.datasets[0])

    def plan_rows(self, indices, selection):
        return [RowGroup(self, indices, selection, None)]

    def read_selection(self, indices, selection, read):
        ids = self.datasets[0].batch(indices, 'id')['id']
        return dict.fromkeys(selection, ids * ids)

    def __repr__(self):
        return f'Squares({self.datasets[0]!r})'


@pytest.fixture(params=[None, 7], ids=['folder', 'shards'])
def dataset(kit, tmp_path, request):
    rows = [
        {'id': index, 'note': NOTES[index], 'text': f'text {index}', 'words': WORDS[index]}
        for index in range(20)
    ]
    options = {} if request.param is None else {'shard_length': request.param}
    return bags.open(kit.fill(tmp_path / 'dataset', rows, SPEC, **options))


def test_a_view_defines_its_length_and_addresses(dataset):
    view = Reversed(dataset)
    assert [row['id'] for row in view] == [*range(20)][::-1]
    assert view[3, ('note', 'id')] == {'note': NOTES[16], 'id': 16}
    batch = view.batch([0, 5, 0])
    assert batch['id'].tolist() == [19, 14, 19]
    assert batch['note'] == [NOTES[19], NOTES[14], NOTES[19]]
    assert [None if found is None else found.tolist() for found in batch['words']] == [None, WORDS[14], None]
    assert view.column('id').tolist() == [*range(20)][::-1]
    assert view.lengths('words').tolist() == [len(words or ()) for words in WORDS][::-1]
    assert list(view.records('note')) == [note and note.encode() for note in NOTES][::-1]
    items = [item.to_bytes(2, 'little') for words in WORDS[::-1] for item in words or ()]
    assert list(view.records('words')) == items
    assert view.file(1, 'text').read() == b'text 18'
    assert (view.spec, view.size, view.shards) == (dataset.spec, dataset.size, dataset.shards)
    assert not view.unfinished
    assert view.fingerprint != dataset.fingerprint
    assert view[5:7][1]['id'] == 13
    again = pickle.loads(pickle.dumps(view))
    assert repr(again) == repr(view)
    assert again[0]['id'] == 19


def test_other_views_read_through_it(dataset, tmp_path):
    view = Reversed(dataset)
    both = bags.concat([dataset, view])
    assert both.batch([0, 20, 39], 'id')['id'].tolist() == [0, 19, 0]
    loader = bags.Loader(view, 8, fields='id', shuffle=False, workers=0)
    assert np.concatenate([batch['id'] for batch in loader]).tolist() == [*range(20)][::-1]
    bags.copy(view, tmp_path / 'copy')
    copied = bags.open(tmp_path / 'copy')
    assert copied.column('id').tolist() == [*range(20)][::-1]
    assert copied.column('note') == NOTES[::-1]


def test_a_view_may_compute_its_values(dataset):
    view = Squares(dataset)
    assert view[4] == {'square': 16}
    assert view.batch([3, 1])['square'].tolist() == [9, 1]
    joined = bags.join([dataset, view])
    assert joined.batch([5, 2], ('id', 'square'))['square'].tolist() == [25, 4]
    assert joined[7, 'square'] == {'square': 49}
    assert bags.concat([view, view])[25] == {'square': 25}


def test_a_repr_is_short_and_identifies_the_dataset(tmp_path):
    spec = {f'f{number:02}': 'int(8)' for number in range(20)}
    with bags.ShardedDatasetWriter(tmp_path / 'x', spec, shard_length=15) as writer:
        assert repr(writer).endswith('0 datapoints, open; ' + ', '.join(list(spec)[:12]) + ', … (20 fields))')
        for index in range(20):
            writer.append(dict.fromkeys(spec, index))
    x = bags.open(tmp_path / 'x')
    origin = f'bags.ShardedDatasetReader({str(tmp_path / "x")!r})'
    fields = ', '.join(list(spec)[:12]) + ', … (20 fields)'
    two = x[:, ('f01', 'f02')]
    shown = {
        repr(x): f'<{origin}: 20 datapoints in 2 shards; {fields}>',
        repr(x[:]): f'<{origin}[:]: 20 datapoints; {fields}>',
        repr(x[2:9]): f'<{origin}[2:9]: 7 datapoints; {fields}>',
        repr(x[::-3]): f'<{origin}[19:0:-3]: 7 datapoints; {fields}>',
        repr(two): f"<{origin}.select(fields=['f01', 'f02']): 20 datapoints; f01, f02>",
    }
    for text, expected in shown.items():
        assert text == expected
    parts = ', '.join([two.expression] * 3)
    assert repr(bags.concat([two] * 5)) == f'<bags.concat([{parts}, … 2 more]): 100 datapoints; f01, f02>'
    chosen = [
        x.select([1, 2]),
        x.select([2, 1]),
        x.drop(fields='f00'),
        x.drop(fields='f01'),
        x.rename({'f00': 'a'}),
    ]
    assert len(set(map(repr, chosen))) == len(chosen)
    assert max(map(len, map(repr, chosen))) < 2 * len(fields) + len(origin)
    loader = bags.Loader(x, 4)
    assert repr(loader).startswith(f'bags.Loader({origin}, 4, sampler=')
    batches = iter(loader)
    next(batches)
    assert repr(batches) == f'<batch 1 of 5 of {loader!r}>'


def test_keys_that_ipython_completes(tmp_path):
    with bags.DatasetWriter(tmp_path / 'x', SPEC) as writer:
        for index in range(3):
            writer.append({'id': index, 'text': ''})
    keys = bags.open(tmp_path / 'x')._ipython_key_completions_()
    assert keys[:4] == [(0, name) for name in ('id', 'note', 'text', 'words')]
    assert len(keys) == 12


REFERENCE = Path(__file__).parents[2] / 'docs' / 'reference' / 'datasets.md'


def documented(name):
    """Returns the members of a class that the reference lists."""
    text = REFERENCE.read_text(encoding='utf-8')
    members = rf'^::: {name}\n +options:\n +members: \[(.*)\]$'
    return set(re.search(members, text, re.MULTILINE)[1].split(', '))


def test_dir_lists_what_the_reference_documents(dataset):
    every, reader = documented('bags.Dataset'), documented('bags.DatasetReader')
    windows = dataset.windows(every='words', words=bags.steps(0, 1))
    assert reader == documented('bags.ShardedDatasetReader')
    for each, names in (
        (dataset, every | reader),
        (dataset[1:], every),
        (bags.concat([dataset, dataset]), every),
        (bags.join([dataset, dataset], replace=True), every),
        (dataset.update({0: {'id': 3}}).rename({'id': 'key'}), every),
        (windows, every | documented('bags.types.WindowsView')),
    ):
        listed = dir(each)
        shown = {name for name in listed if not name.startswith('_')}
        assert shown == {name for name in names if not name.startswith('_')}
        assert {name for name in names if name.startswith('__')} <= {*listed}
        assert all(name.startswith('__') for name in listed if name.startswith('_'))
        assert all(hasattr(each, name) for name in shown)


def test_dir_lists_the_names_of_a_class_of_ones_own(dataset):
    class Halves(Reversed):
        def halve(self):
            return self[: len(self) // 2]

    assert {'halve', 'plan_rows', 'records'} <= {*dir(Halves(dataset))}
    assert 'roots' not in dir(Halves(dataset))
    with pytest.raises(AttributeError, match=r'did you mean halve\?$'):
        _ = Halves(dataset).halves


def test_advice_on_a_misspelled_name_is_of_documented_names(dataset):
    with pytest.raises(AttributeError, match=r'did you mean records\?$'):
        _ = dataset.record_
    with pytest.raises(AttributeError, match=r"no attribute 'plan_row'$"):
        _ = dataset.plan_row
