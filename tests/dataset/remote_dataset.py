"""A sharded dataset that is read through a remote store, which records its requests."""

from __future__ import annotations

import os

import numpy as np
import pytest

import bags
import bags.bag.options
import bags.bag.reader
import bags.dataset.format.options
import bags.storage
from bags.storage.cache.store import CachedStore
from bags.storage.local import LocalStore
from tests.storage.far import Far

SPEC = {'id': 'int(8)', 'text': 'utf8', 'words': 'utf8[]', 'meta': 'json'}


class Counting(Far):
    """Counts requests, as an object store would."""

    def __init__(self):
        super().__init__()
        self.requests = []

    def open(self, path, hints):
        self.requests.append(('open', os.path.basename(path)))
        return super().open(path, hints)

    def read(self, path, *max_size):
        self.requests.append(('read', os.path.basename(path)))
        return super().read(path, *max_size)

    def exists(self, path):
        self.requests.append(('exists', path))
        return super().exists(path)

    def stat(self, path):
        self.requests.append(('stat', path))
        return super().stat(path)

    def names(self, folder):
        self.requests.append(('names', folder))
        return super().names(folder)

    def walk(self, folder):
        self.requests.append(('walk', folder))
        return LocalStore().walk(folder)


def row(index):
    return {
        'id': index,
        'text': f'text {index}' * (index % 5),
        'words': [f'{index}', 'x'] * (index % 3),
        'meta': {'n': index},
    }


@pytest.fixture
def dataset(tmp_path):
    path = tmp_path / 'data'
    with bags.ShardedDatasetWriter(path, SPEC, shard_length=7, compression=['meta']) as writer:
        for index in range(40):
            writer.append(row(index))
    return path


@pytest.fixture
def far(monkeypatch):
    """Opens paths that begin with `far:` through a remote store."""
    store, original = Counting(), bags.storage.store_for

    def store_for(path, filesystem=None, storage_options=None, cache=None, cache_size=None, check='open'):
        text = os.fspath(path)
        if not text.startswith('far:') and not store.everything:
            return original(path, filesystem, storage_options, cache, cache_size, check)
        found = store if cache is None else CachedStore(store, os.fspath(cache), cache_size, check)
        return found, text.removeprefix('far:')

    store.everything = False
    for module in (bags.bag.options, bags.bag.reader, bags.dataset.format.options):
        monkeypatch.setattr(module, 'store_for', store_for)
    return store


def check(reader, count=40):
    assert len(reader) == count
    assert [reader[index] for index in range(count)] == [row(index) for index in range(count)]
    chosen = np.random.default_rng(0).integers(0, count, 30)
    assert reader.batch(chosen, 'id')['id'].tolist() == chosen.tolist()


def cached(far, dataset, tmp_path, **options):
    far.everything = False
    return bags.open(f'far:{dataset}', cache=tmp_path / 'cache', **options)
