"""Orders of datapoints: which one is at a position of an epoch. Pure: no state, no I/O.

Sequential     one after the other
Sliding        windows that overlap or leave gaps, around the end to the beginning
Shuffled       all of them, each once, anywhere
ShardShuffled  each once, a few shards at a time
Random         any, with replacement
Mixture        of several datasets, in given proportions
Bucketed       each once, in batches of similar length

A sampler of your own has `__len__`, the positions of an epoch; `take(epoch, positions)`, which returns the
indices at positions; and a `repr` that tells it from others. If it has `datapoints`, a loader sees at once
whether its dataset has so many.
"""

from bags.samplers.buckets import Bucketed
from bags.samplers.mixtures import Mixture
from bags.samplers.orders import Random, Sequential, Shuffled, Sliding
from bags.samplers.sampler import Sampler
from bags.samplers.shards import ShardShuffled, shard_lengths

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
