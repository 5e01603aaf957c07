"""Bags: files of byte records with fast access by index. A drop-in replacement for bagz and Säckli.

    with bags.bag.Writer('data.bagz') as writer:
        writer.write(b'record')
    bags.bag.Reader('data.bagz')[0]

A bag is one file, or several files that form one sequence. `bags.open` opens datasets.
"""

from bags.bag.index import Index, MultiIndex
from bags.bag.options import (
    CompressionAutoDetect,
    CompressionNone,
    CompressionZstd,
    LimitsPlacement,
    LimitsStorage,
    ShardingLayout,
)
from bags.bag.reader import Reader
from bags.bag.writer import Writer
from bags.storage.base import AccessPattern, CachePolicy

__all__ = [
    'AccessPattern',
    'CachePolicy',
    'CompressionAutoDetect',
    'CompressionNone',
    'CompressionZstd',
    'Index',
    'LimitsPlacement',
    'LimitsStorage',
    'MultiIndex',
    'Reader',
    'ShardingLayout',
    'Writer',
]
