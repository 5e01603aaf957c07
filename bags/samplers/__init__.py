"""Orders of datapoints: which one is at a position of an epoch. No I/O.

Sequential     in order
Sliding        in windows that overlap or leave gaps, wrapping around at the end
Shuffled       each once, in random order
ShardShuffled  each once, in random order, a few shards at a time
Random         drawn with replacement
Mixture        of several datasets, in given proportions
Bucketed       each once, in batches of similar length

Your own sampler needs `__len__`, the positions of an epoch; `take(epoch, positions)`, which returns the
indices at positions; and a `repr` that differs from that of samplers of other orders. With an attribute
`datapoints`, a loader checks at once that its dataset is large enough.
"""

from bags.samplers.buckets import Bucketed
from bags.samplers.mixtures import Mixture
from bags.samplers.orders import Random, Sampler, Sequential, ShardShuffled, Shuffled, Sliding, shard_lengths

__all__ = [
    'Bucketed',
    'Mixture',
    'Random',
    'Sampler',
    'Sequential',
    'ShardShuffled',
    'Shuffled',
    'Sliding',
    'shard_lengths',
]
