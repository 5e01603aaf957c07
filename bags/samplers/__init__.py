"""Orders of datapoints: the datapoint at each position of an epoch. No I/O.

Sliding        in windows that overlap or leave gaps, wrapping around at the end
Shuffled       each once, in random order
ShardShuffled  each once, in random order, a few shards at a time
Random         drawn with replacement
Weighted       drawn with replacement, in proportion to weights
Mixture        from several datasets or samplers, in given proportions, which may change over a run
Bucketed       each once, in batches of similar length
Packed         each once, in bins that fill a budget of items, e.g. of tokens

A custom sampler needs `__len__`, the number of positions in an epoch; `take(epoch, positions)`, which returns
the indices at positions; and a `repr` that identifies the order. With an attribute `datapoints`, a loader
checks at once that its dataset is large enough. A position may hold several datapoints: `take` then returns
a `bags.Ragged` of the indices at each position, or `Pieces` to read only a part of each datapoint.
"""

from typing import TYPE_CHECKING, Any

from bags.samplers.draws import Random, Weighted
from bags.samplers.mixtures import Mixture
from bags.samplers.orders import Bucketed, Sampler, ShardShuffled, Shuffled, Sliding, shard_lengths
from bags.samplers.packing import Packed
from bags.samplers.pieces import Pieces

__all__ = [
    'Bucketed',
    'Mixture',
    'Packed',
    'Pieces',
    'Random',
    'Sampler',
    'ShardShuffled',
    'Shuffled',
    'Sliding',
    'Weighted',
    'shard_lengths',
]


if not TYPE_CHECKING:  # Type checkers then report unknown names.

    def __getattr__(name: str) -> Any:
        from bags.other_names import module_advice

        advice = module_advice(name, __all__, __name__)
        raise AttributeError(f'module {__name__!r} has no attribute {name!r}{advice}')
