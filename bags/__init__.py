"""Datasets of images, video, audio, text, arrays and values, in files of records.

    bag        a file of records: `bags.bag.Reader`, `bags.bag.Writer`, `bags.bag.Index`
    formats    `bags.encoders`, `bags.decoders`: values to records and back
    datasets   `bags.open` and the readers and writers of one folder or of many
    views      `dataset.select`, `filter`, `windows`; `concat`, `join`, `computed`: datasets over datasets
    edits      `dataset.drop`, `rename`, `update`, `split`, `unique`: views too; `dataset.diff`
    frameworks `bags.torch`, `bags.grain`, `bags.jax`: batches for PyTorch, Grain and JAX; `bags.lerobot`
    pipelines  `bags.beam`, `bags.ray`: sources and sinks for Apache Beam and Ray Data
    types      `bags.types`: the classes of results and arguments, for annotations

All but the errors are imported on first use, so that importing bags takes almost no time.
"""

from typing import TYPE_CHECKING, Any

from bags.errors import (
    BagsError,
    CorruptError,
    DecodeError,
    EncodeError,
    LinkError,
    MissingDependencyError,
    SourceError,
    SpecError,
    StackError,
)
from bags.forks import make_forks_wait

make_forks_wait()

if TYPE_CHECKING:
    from bags import bag, samplers
    from bags import beam as beam
    from bags import grain as grain
    from bags import jax as jax
    from bags import lerobot as lerobot
    from bags import ray as ray
    from bags import torch as torch
    from bags import types as types
    from bags.authoring.append import append
    from bags.authoring.copy import copy
    from bags.authoring.from_numpy import from_numpy
    from bags.authoring.write import write
    from bags.checks.check import check
    from bags.collate.bins import bins
    from bags.collate.columns import pack, pad, stack
    from bags.dataset.base import Dataset
    from bags.dataset.format.registry import decoders, encoders
    from bags.dataset.open import open
    from bags.dataset.reader import DatasetReader
    from bags.dataset.reading.batch import Ragged
    from bags.dataset.reading.selection import frames
    from bags.dataset.sharded_reader import ShardedDatasetReader
    from bags.dataset.writing.sharded_writer import ShardedDatasetWriter
    from bags.dataset.writing.writer import DatasetWriter
    from bags.display.batches import describe
    from bags.formats.images import draft_decoders
    from bags.interop.convert import convert
    from bags.interop.hub.card import card
    from bags.interop.hub.push import push
    from bags.interop.targets.export import export
    from bags.keys.index import create_index
    from bags.links.link import Link
    from bags.loader.loader import Loader
    from bags.maintenance.consolidate import consolidate
    from bags.maintenance.info import info
    from bags.maintenance.metadata import set_metadata
    from bags.maintenance.normalize import normalize
    from bags.maintenance.prefetch import prefetch
    from bags.maintenance.recover import recover
    from bags.maintenance.statistics import statistics
    from bags.maintenance.verify import verify
    from bags.media.audio import Audio
    from bags.media.clips import cut_clips
    from bags.media.remux import remux
    from bags.media.video import Video
    from bags.viewer.notebook import view
    from bags.views.computed import computed
    from bags.views.concat import concat
    from bags.views.join_by_key import join
    from bags.views.windows.spans import between, steps, times

__version__ = '1.0.0'

__all__ = [
    'Audio',
    'BagsError',
    'CorruptError',
    'Dataset',
    'DatasetReader',
    'DatasetWriter',
    'DecodeError',
    'EncodeError',
    'Link',
    'LinkError',
    'Loader',
    'MissingDependencyError',
    'Ragged',
    'ShardedDatasetReader',
    'ShardedDatasetWriter',
    'SourceError',
    'SpecError',
    'StackError',
    'Video',
    'append',
    'bag',
    'between',
    'bins',
    'card',
    'check',
    'computed',
    'concat',
    'consolidate',
    'convert',
    'copy',
    'create_index',
    'cut_clips',
    'decoders',
    'describe',
    'draft_decoders',
    'encoders',
    'export',
    'frames',
    'from_numpy',
    'info',
    'join',
    'normalize',
    'open',
    'pack',
    'pad',
    'prefetch',
    'push',
    'recover',
    'remux',
    'samplers',
    'set_metadata',
    'stack',
    'statistics',
    'steps',
    'times',
    'verify',
    'view',
    'write',
]

_HOMES = {
    'authoring.append': ('append',),
    'authoring.copy': ('copy',),
    'authoring.from_numpy': ('from_numpy',),
    'authoring.write': ('write',),
    'checks.check': ('check',),
    'collate.bins': ('bins',),
    'collate.columns': ('pack', 'pad', 'stack'),
    'dataset.base': ('Dataset',),
    'dataset.reading.batch': ('Ragged',),
    'dataset.open': ('open',),
    'dataset.reader': ('DatasetReader',),
    'dataset.format.registry': ('decoders', 'encoders'),
    'dataset.reading.selection': ('frames',),
    'dataset.sharded_reader': ('ShardedDatasetReader',),
    'dataset.writing.sharded_writer': ('ShardedDatasetWriter',),
    'dataset.writing.writer': ('DatasetWriter',),
    'display.batches': ('describe',),
    'formats.images': ('draft_decoders',),
    'interop.hub.card': ('card',),
    'interop.convert': ('convert',),
    'interop.targets.export': ('export',),
    'interop.hub.push': ('push',),
    'keys.index': ('create_index',),
    'views.computed': ('computed',),
    'views.join_by_key': ('join',),
    'links.link': ('Link',),
    'loader.loader': ('Loader',),
    'maintenance.consolidate': ('consolidate',),
    'maintenance.info': ('info',),
    'maintenance.metadata': ('set_metadata',),
    'maintenance.normalize': ('normalize',),
    'maintenance.prefetch': ('prefetch',),
    'maintenance.recover': ('recover',),
    'maintenance.statistics': ('statistics',),
    'maintenance.verify': ('verify',),
    'media.audio': ('Audio',),
    'media.clips': ('cut_clips',),
    'media.remux': ('remux',),
    'media.video': ('Video',),
    'views.windows.spans': ('between', 'steps', 'times'),
    'viewer.notebook': ('view',),
    'views.concat': ('concat',),
}

# Of these the first two are in `__all__`; after `from bags import *`, the others would hide packages.
_SUBMODULES = ('bag', 'samplers', 'beam', 'grain', 'jax', 'lerobot', 'ray', 'torch', 'types')


if not TYPE_CHECKING:  # A misspelled name is an error for type checkers.

    def __getattr__(name: str) -> Any:
        from importlib import import_module

        if name in _SUBMODULES:
            return import_module(f'bags.{name}')
        for home, names in _HOMES.items():
            if name in names:
                value = globals()[name] = getattr(import_module(f'bags.{home}'), name)
                return value
        from bags.other_names import module_advice

        raise AttributeError(f'module {__name__!r} has no attribute {name!r}{module_advice(name, __all__)}')


_PACKAGES = {'beam': ('apache_beam',), 'ray': ('ray', 'pyarrow')}
"""Modules that can only be imported if these packages are installed."""


def __dir__() -> list[str]:
    # Without what cannot be imported, so that tab completion and inspect.getmembers get every name.
    missing = {name for name, needed in _PACKAGES.items() if not all(map(_is_installed, needed))}
    return [*{*__all__, *_SUBMODULES} - missing, '__version__']


def _is_installed(package: str) -> bool:
    from importlib.util import find_spec

    try:
        return find_spec(package) is not None
    except (ImportError, ValueError):
        return False
