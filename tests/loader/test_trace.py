"""The datapoints of a step, found from the state of a run."""

import json

import numpy as np
import pytest

import bags
from bags import samplers
from bags.loader.trace import trace
from tests.loader.samples import COUNT

SAMPLERS = [
    None,
    samplers.Sequential(COUNT),
    samplers.Random(COUNT, seed=5, samples=40),
    samplers.Sliding(COUNT, 8, 4),
    samplers.Shuffled(COUNT, seed=9),
]


@pytest.mark.parametrize('sampler', SAMPLERS, ids=repr)
@pytest.mark.parametrize('hosts', [1, 3])
def test_a_step_of_any_rank(dataset, sampler, hosts):
    loaders = [
        bags.Loader(dataset, 7, sampler=sampler, seed=2, epochs=3, rank=rank, world_size=hosts, fields='id')
        for rank in range(hosts)
    ]
    ranks = [[batch['id'].tolist() for batch in loader] for loader in loaders]
    state = json.loads(json.dumps(loaders[0].state_dict()))
    steps = len(ranks[0]) // 3
    for epoch in range(3):
        for step in range(steps):
            found = [indices.tolist() for indices in trace(state, step, epoch)]
            assert found == [rank[epoch * steps + step] for rank in ranks]
    with pytest.raises(IndexError, match=f'an epoch has {steps} on this rank'):
        trace(state, steps)


def test_bad_input(dataset):
    state = bags.Loader(dataset, 7).state_dict()
    weighted = bags.Loader(dataset, 7, sampler=samplers.Weighted(np.arange(COUNT) + 1)).state_dict()
    with pytest.raises(ValueError, match=r'call Loader.indices'):
        trace(weighted, 0)
    for wrong in (
        'Shuffled(__import__("os").getpid())', 'open("x")', 'Shuffled(3, seed=0', '(' * 5000, None,
        'Shuffled(100)', 'Sampler()', f'Shuffled({COUNT}, seed=0, x=1)',
    ):  # fmt: skip
        with pytest.raises(ValueError, match='cannot be made from the state alone'):
            trace({**state, 'sampler': wrong}, 0)
    for changed in ({'length': 7}, {'last_batch': 'x'}, {'batch_size': 0}):
        with pytest.raises(ValueError, match='expected'):
            trace({**state, **changed}, 0)
    for wrong in ({'epoch': 0}, []):
        with pytest.raises(ValueError, match='expected the state of a loader'):
            trace(wrong, 0)
