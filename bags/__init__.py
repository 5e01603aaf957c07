"""Datasets of images, video, audio, text, arrays and values, in files of records.

    bag        a file of records: `bags.bag.Reader`, `bags.bag.Writer`, `bags.bag.Index`
    formats    `bags.encoders`, `bags.decoders`: values to records and back
    datasets   `bags.open` and the readers and writers of one folder or of many
    views      `select`, `concat`, `join`, `windows`: datasets over others
    frameworks `bags.torch`, `bags.grain`, `bags.jax`: batches for PyTorch, Grain and JAX

Each but the errors is imported when it is first used, so that importing bags takes next to no time.
"""

from typing import TYPE_CHECKING, Any

from bags.errors import (
    BagsError,
    CorruptError,
    DecodeError,
    EncodeError,
    MissingDependencyError,
    SpecError,
    StackError,
)

if TYPE_CHECKING:
    from bags import bag, samplers
    from bags.authoring.from_arrays import from_numpy
    from bags.authoring.rewrite import copy
    from bags.authoring.writing import write
    from bags.bag import Index, MultiIndex
    from bags.batch import Ragged
    from bags.dataset import Dataset
    from bags.formats import Audio, Video, decoders, encoders, remux
    from bags.formats.clips import Clip, clips
    from bags.indexing import index
    from bags.intake import convert, export
    from bags.joined_clips import Clips
    from bags.loading.collate import Packed, Padded, pack, pad, stack
    from bags.loading.iterator import LoaderIterator
    from bags.loading.loader import Loader
    from bags.opening import open
    from bags.prefetching import prefetch
    from bags.reader import DatasetReader
    from bags.recovering import Recovery, recover
    from bags.selection import frames
    from bags.sharded_reader import ShardedDatasetReader
    from bags.sharded_writer import ShardedDatasetWriter
    from bags.verifying import Damage, Note, verify
    from bags.views import concat, join, select
    from bags.windowing import windows
    from bags.writer import DatasetWriter

__version__ = '0.1.0'

__all__ = [
    'Audio',
    'BagsError',
    'Clip',
    'Clips',
    'CorruptError',
    'Damage',
    'Dataset',
    'DatasetReader',
    'DatasetWriter',
    'DecodeError',
    'EncodeError',
    'Index',
    'Loader',
    'LoaderIterator',
    'MissingDependencyError',
    'MultiIndex',
    'Note',
    'Packed',
    'Padded',
    'Ragged',
    'Recovery',
    'ShardedDatasetReader',
    'ShardedDatasetWriter',
    'SpecError',
    'StackError',
    'Video',
    'bag',
    'clips',
    'concat',
    'convert',
    'copy',
    'decoders',
    'encoders',
    'export',
    'frames',
    'from_numpy',
    'index',
    'join',
    'open',
    'pack',
    'pad',
    'prefetch',
    'recover',
    'remux',
    'samplers',
    'select',
    'stack',
    'verify',
    'windows',
    'write',
]

_HOMES = {
    'authoring.writing': ('write',),
    'bag': ('Index', 'MultiIndex'),
    'batch': ('Ragged',),
    'loading.collate': ('Packed', 'Padded', 'pack', 'pad', 'stack'),
    'dataset': ('Dataset',),
    'authoring.from_arrays': ('from_numpy',),
    'formats': ('Audio', 'Video', 'decoders', 'encoders', 'remux'),
    'formats.clips': ('Clip', 'clips'),
    'indexing': ('index',),
    'joined_clips': ('Clips',),
    'loading.iterator': ('LoaderIterator',),
    'loading.loader': ('Loader',),
    'intake': ('convert', 'export'),
    'opening': ('open',),
    'prefetching': ('prefetch',),
    'reader': ('DatasetReader',),
    'authoring.rewrite': ('copy',),
    'selection': ('frames',),
    'recovering': ('Recovery', 'recover'),
    'sharded_reader': ('ShardedDatasetReader',),
    'sharded_writer': ('ShardedDatasetWriter',),
    'verifying': ('Damage', 'Note', 'verify'),
    'views': ('concat', 'join', 'select'),
    'windowing': ('windows',),
    'writer': ('DatasetWriter',),
}

# Of these the last three are not in `__all__`: `from bags import *` would hide the packages of these names.
_MODULES = ('bag', 'beam', 'samplers', 'grain', 'jax', 'torch')


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name in _MODULES:
        return import_module(f'bags.{name}')
    for home, names in _HOMES.items():
        if name in names:
            value = globals()[name] = getattr(import_module(f'bags.{home}'), name)
            return value
    raise AttributeError(f'module {__name__!r} has no attribute {name!r}')


def __dir__() -> list[str]:
    return [*__all__, '__version__']
