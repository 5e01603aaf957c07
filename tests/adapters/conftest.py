"""Datasets of every kind, beside the lists of rows that they should equal.

The tests of this folder need torch, grain and jax, and fail without them; `make test-adapters` has them.
They are collected only when the folder is named: `norecursedirs` in pyproject.toml leaves it out of all else.
"""

import operator
import os
from types import SimpleNamespace

import pytest
from absl import flags

import bags
import bags.dataset.base

flags.FLAGS.mark_as_parsed()  # As `absl.app.run` does: workers of Grain require it if JAX is installed.
os.environ['JAX_PLATFORMS'] = 'cpu'
os.environ['XLA_FLAGS'] = '--xla_force_host_platform_device_count=2'

COUNT = 24
CHOSEN = [20, 3, 3, 0, 23, 11, 7, 8, 9, -1, 5]
SMALL = 'flag', 'grid', 'id', 'odd', 'score', 'small', 'text'
"""Of the fields, those that PyTorch and Grain stack without being told how."""


def write_datasets(root, rows, spec, fill):
    """Writes the folders that the datasets are made of."""
    left = {name: spec[name] for name in list(spec)[::2]}
    right = {name: spec[name] for name in list(spec)[1::2]}
    fill(root / 'folder', rows, spec)
    # Compressed too: threads and forks must not share the state of a decompressor.
    fill(root / 'sharded', rows, spec, shard_length=5, compression=['id', 'text'])
    fill(root / 'left', [{name: row[name] for name in left} for row in rows], left)
    fill(root / 'right', [{name: row[name] for name in right} for row in rows], right, shard_length=7)


def open_folder(root):
    return bags.open(f'{root}/folder')


def open_sharded(root):
    return bags.open(f'{root}/sharded')


def open_slice(root):
    return open_sharded(root)[2:-3:2]


def open_select(root):
    return open_sharded(root).select(CHOSEN)


def open_concat(root):
    return bags.concat([open_sharded(root), open_slice(root)])


def open_join(root):
    return bags.join([f'{root}/left', f'{root}/right'])


def open_views(root):
    """Views of views."""
    return bags.concat([open_folder(root)[::-4], open_join(root).select(CHOSEN)[1:], open_slice(root)])


KINDS = {
    'folder': open_folder,
    'sharded': open_sharded,
    'slice': open_slice,
    'select': open_select,
    'concat': open_concat,
    'join': open_join,
    'views': open_views,
}


def expected(kind, rows):
    """Returns the expected rows of a kind of dataset."""
    chosen = [rows[index] for index in CHOSEN]
    return {
        'folder': rows,
        'sharded': rows,
        'slice': rows[2:-3:2],
        'select': chosen,
        'concat': rows + rows[2:-3:2],
        'join': rows,
        'views': rows[::-4] + chosen[1:] + rows[2:-3:2],
    }[kind]


@pytest.fixture(scope='session')
def folders(kit, tmp_path_factory):
    """Datasets with fields of every kind (`full`) or fields that stack (`small`): root and rows by name."""
    found = {}
    for name, spec in {'full': kit.SPEC, 'small': {field: kit.SPEC[field] for field in SMALL}}.items():
        rows = [kit.make_row(index) for index in range(COUNT)]
        rows = [{field: row[field] for field in spec} for row in rows]
        root = tmp_path_factory.mktemp(name)
        write_datasets(root, rows, spec, kit.fill)
        found[name] = SimpleNamespace(root=str(root), rows=rows)
    return found


@pytest.fixture(params=KINDS)
def kind(request):
    """Each of the kinds, unless a test sets it."""
    return request.param


@pytest.fixture
def kinds():
    return KINDS


@pytest.fixture
def make(folders):
    """Opens a dataset anew, as another process would, and returns it with its expected rows."""

    def opened(kind, fields='full'):
        folder = folders[fields]
        dataset = KINDS[kind](folder.root)
        assert len(dataset) == len(expected(kind, folder.rows))
        return dataset, expected(kind, folder.rows)

    return opened


@pytest.fixture
def same(kit):
    """Compares rows, in order."""

    def compare(found, rows):
        found = list(found)
        assert [row['id'] for row in found] == [row['id'] for row in rows]
        assert all(map(kit.equal, found, rows))

    return compare


@pytest.fixture
def calls(monkeypatch):
    """Records the arguments of every call of a method of datasets, and calls the method."""
    found = {}

    def record(name):
        inner = getattr(bags.dataset.base.Dataset, name)
        found[name] = []

        def recording(self, indices, *args):
            found[name].append(list(map(operator.index, indices)))
            return inner(self, indices, *args)

        monkeypatch.setattr(bags.dataset.base.Dataset, name, recording)
        return found[name]

    return record
