"""Batches of bins: a loader with a sampler whose positions hold several datapoints."""

import numpy as np
import pytest

import bags
from bags import samplers


def stream(dataset, sampler, batch_size=2, state=None, **options):
    options = {'fields': ('id', 'nums'), 'epochs': 2, 'last_batch': 'partial', 'workers': 0, **options}
    loader = bags.Loader(dataset, batch_size, sampler=sampler, **options)
    if state is not None:
        loader.load_state_dict(state)
    return loader


def packed(dataset, budget=9):
    return samplers.Packed(budget, dataset.lengths('nums'), seed=3)


def bins_of(batches):
    """Returns the datapoints of each bin."""
    return [
        batch['_datapoint'][batch['_bin'] == number].tolist()
        for batch in batches
        for number in range(int(batch['_bin'].max()) + 1)
    ]


def test_batches_hold_bins_and_say_where_each_datapoint_is_from(dataset, rows):
    sampler = packed(dataset)
    batches = list(stream(dataset, sampler, collate={'nums': 'pack'}))
    orders = [sampler.take(epoch, np.arange(len(sampler))) for epoch in range(2)]
    assert bins_of(batches) == [found.tolist() for order in orders for found in order]
    for batch in batches:
        assert batch['id'].tolist() == batch['_datapoint'].tolist()
        assert (batch['_datapoint'].dtype, batch['_bin'].dtype) == (np.int64, np.int32)
        values, offsets, positions = batch['nums']
        lengths = [len(rows[index]['nums']) for index in batch['id']]
        assert np.diff(offsets).tolist() == lengths
        assert values.tolist() == positions.tolist() == [at for length in lengths for at in range(length)]
        assert np.bincount(batch['_bin'], lengths).max() <= 9


@pytest.mark.slow('options1')
@pytest.mark.parametrize('options', [{'workers': 3}, {'workers': 2, 'processes': True}])
def test_any_workers_make_the_same(dataset, options):
    expected = [*stream(dataset, packed(dataset))]
    for one, other in zip(expected, stream(dataset, packed(dataset), **options), strict=True):
        assert list(one) == list(other)
        assert all((one[name] == other[name]).all() for name in ('id', '_datapoint', '_bin'))
        assert (one['nums'].values == other['nums'].values).all()


@pytest.mark.slow('<lambda>-[123]')
@pytest.mark.parametrize('hosts', [1, 2, 3])
@pytest.mark.parametrize('make', [packed, lambda dataset: samplers.Weighted(np.arange(103) % 5, 1)])
def test_any_hosts_share_the_same_positions_and_resume_at_any_step(dataset, hosts, make):
    def run(hosts, state=None):
        """Returns what the hosts read at each step, one after the other."""
        options = [{'rank': rank, 'world_size': hosts, 'last_batch': 'drop'} for rank in range(hosts)]
        loaders = [stream(dataset, make(dataset), 6 // hosts, state, **each) for each in options]
        return [
            [index for batch in batches for index in batch['id'].tolist()]
            for batches in zip(*loaders, strict=True)
        ]

    expected = run(1)
    assert run(hosts) == expected
    iterator = iter(stream(dataset, make(dataset), 6, last_batch='drop'))
    for step in range(len(expected)):
        assert run(hosts, iterator.state_dict()) == expected[step:]
        next(iterator)


def test_repeats_are_marked_for_each_datapoint(dataset):
    sampler = packed(dataset)
    size = len(sampler) - 1
    *_, last = stream(dataset, sampler, size, epochs=1, last_batch='pad', mask_column='counts')
    assert last['counts'].shape == last['id'].shape
    assert last['counts'].tolist() == (last['_bin'] < 1).tolist()


def test_transforms_see_the_columns(dataset):
    def transform(batch):
        batch['bins'] = int(batch.pop('_bin').max()) + 1
        return batch

    for batch in stream(dataset, packed(dataset), 3, transform=transform, epochs=1, last_batch='drop'):
        assert batch['bins'] == 3
        assert '_datapoint' in batch


def test_sources_in_another_order_than_the_datasets(dataset):
    both = bags.concat([dataset[:40], dataset[40:]])
    for sources in ([63, 40], [samplers.Packed(9, dataset.lengths('nums')[:63]), 40]):
        mixture = samplers.Mixture(sources, [1, 1])
        with pytest.raises(ValueError, match=r'in the order of .*, got a source 0 of 63 .* dataset of 40'):
            stream(both, mixture)
    assert len(next(iter(stream(both, samplers.Mixture([40, 63], [1, 1]))))['id']) == 2


def test_what_does_not_fit_the_dataset(dataset, kit, tmp_path):
    for sampler, match in [
        (samplers.Packed(9, [1, 2]), 'sampler: expected lengths of each of 103 datapoints, got 2 lengths'),
        (
            samplers.Weighted([1] * 104),
            'sampler: expected weights of each of 103 datapoints, got 104 weights',
        ),
        (samplers.Bucketed([1] * 102, 4), 'sampler: expected lengths of each of 103 datapoints, got 102'),
    ]:
        with pytest.raises(ValueError, match=match):
            stream(dataset, sampler)
    other = bags.open(kit.fill(tmp_path / 'x', [{'_bin': 1}, {'_bin': 2}], {'_bin': 'int(8)'}))
    loader = bags.Loader(other, 1, sampler=samplers.Packed(5, [2, 3]), workers=0)
    with pytest.raises(ValueError, match="needs a column '_bin', which is a field of the dataset"):
        next(iter(loader))
