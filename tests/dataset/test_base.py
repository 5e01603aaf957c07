"""A view or a reader of one's own: what `Dataset` and `View` leave to define is enough for all methods."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

import bags
from bags.dataset.address import Address
from bags.dataset.base import View
from bags.dataset.spec import parse_spec

SPEC = {'id': 'int(8)', 'note': 'utf8?', 'text': 'utf8', 'words': 'int(2)[]?'}
NOTES = [None if index % 3 else f'note {index}' for index in range(20)]
WORDS = [None if index % 4 == 3 else list(range(index % 5)) for index in range(20)]


class Reversed(View):
    """The datapoints of a dataset, the last one first."""

    def __init__(self, dataset):
        super().__init__([dataset], dataset.types)

    def __len__(self):
        return len(self.datasets[0])

    def resolve(self, indices, selection):
        return self.datasets[0].resolve(len(self) - 1 - indices, selection)

    def __repr__(self):
        return f'Reversed({self.datasets[0]!r})'


class Squares(View):
    """A field of computed numbers."""

    def __init__(self, dataset):
        super().__init__([dataset], parse_spec({'square': 'int(8)'}))

    def __len__(self):
        return len(self.datasets[0])

    def resolve(self, indices, selection):
        return [Address(self, indices, selection, None)]

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
    assert list(view.field('note')) == [note and note.encode() for note in NOTES][::-1]
    items = [item.to_bytes(2, 'little') for words in WORDS[::-1] for item in words or ()]
    assert list(view.items('words')) == items
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
