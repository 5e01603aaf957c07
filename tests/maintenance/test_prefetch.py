"""Prefetching fills the cache of a remote dataset with the requested data, and with nothing else."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import bags
from tests.dataset.remote_dataset import cached, check


def test_prefetched_datasets_are_read_without_requests(dataset, far, tmp_path):
    size = bags.prefetch(cached(far, dataset, tmp_path))
    names = ('spec.json', 'source.json', 'metadata.json')
    small = [path for name in names for path in dataset.glob(f'0*/{name}')]
    assert size == bags.open(dataset).size + sum(map(os.path.getsize, small))
    reader = cached(far, dataset, tmp_path)
    del far.asked[:], far.opened[:]
    check(reader)
    assert reader.fingerprint == bags.open(dataset).fingerprint
    assert not far.asked
    assert not far.opened


def test_only_shards_and_fields_of_a_view_are_fetched(dataset, far, tmp_path):
    reader = cached(far, dataset, tmp_path)
    view = bags.concat([reader.select([8, 36])[1:], reader[21:23]])
    bags.prefetch(view, 'text')
    fetched = {str(Path(path).relative_to(dataset)) for path in far.opened}
    names = ('refs.bag', 'spec.json', 'text.bag')
    assert {f'{shard}/{name}' for shard in ('000003', '000005') for name in names} <= fetched
    assert not {name for name in fetched if name.endswith(('id.bag', 'meta.bagz', 'words.bag'))}
    assert not {name for name in fetched if name.startswith(('000001', '000002', '000004'))}


def test_fields_of_windows(dataset, far, tmp_path):
    view = cached(far, dataset, tmp_path).windows(every='words', words=bags.steps(0, 2))
    bags.prefetch(view, ('id', 'words'))
    names = {os.path.basename(path) for path in far.opened}
    assert {'id.bag', 'words.bag'} <= names
    assert not names & {'text.bag', 'meta.bagz'}


def test_joined_datasets(dataset, far, tmp_path):
    with bags.DatasetWriter(tmp_path / 'labels', {'label': 'int(1)'}) as writer:
        for index in range(40):
            writer.append({'label': index % 3})
    joined = bags.join(
        [cached(far, dataset, tmp_path), bags.open(f'far:{tmp_path}/labels', cache=tmp_path / 'cache')]
    )
    bags.prefetch(joined, ('id', 'label'))
    names = {'spec.json', 'metadata.json', 'source.json', 'refs.bag', 'id.bag', 'label.bag'}
    assert {os.path.basename(path) for path in far.opened} == names


def test_prefetching_without_a_cache_or_into_one_too_small(dataset, far, tmp_path):
    with pytest.raises(ValueError, match='has no cache'):
        bags.prefetch(bags.open(dataset))
    with pytest.raises(ValueError, match='cache_size of at least'):
        bags.prefetch(cached(far, dataset, tmp_path, cache_size=100))
    with pytest.raises(KeyError, match='nothing'):
        bags.prefetch(cached(far, dataset, tmp_path), 'nothing')
    with pytest.raises(TypeError, match='dataset'):
        bags.prefetch('path')
