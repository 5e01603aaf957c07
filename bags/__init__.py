"""Datasets of images, video, audio, text, arrays and values, in files of records.

    bag        a file of records: `bags.bag.Reader`, `bags.bag.Writer`, `bags.bag.Index`
    formats    `bags.encoders`, `bags.decoders`: values to records and back
    datasets   `bags.open` and the readers and writers of one folder or of many
    views      `dataset.select`, `filter`, `windows`; `concat` and `join`: datasets over other datasets
    edits      `dataset.drop`, `rename`, `update`, `split`, `unique`: views too; `dataset.diff`
    frameworks `bags.torch`, `bags.grain`, `bags.jax`: batches for PyTorch, Grain and JAX; `bags.lerobot`
    pipelines  `bags.beam`, `bags.ray`: sources and sinks for Apache Beam and Ray Data
    types      `bags.types`: the classes of results and arguments, for annotations

All but the errors are imported on first use, so that importing bags takes almost no time.
"""

from typing import TYPE_CHECKING, Any

from bags.dataset.late_binding import FUNCTIONS
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
FUNCTIONS.update(
    arrow_dataset='arrow.batches',
    read_batches='arrow.batches',
    bind_condition='conditions.needs',
    dataset_as_html='display.datasets',
    ragged_as_html='display.batches',
    dataset_as_text='display.datasets',
    find_keys='keys.index',
    open_key_index='keys.index',
    diff_datasets='edits.diff',
    rename_fields='edits.edited',
    split_datapoints='edits.groups',
    unique_datapoints='edits.groups',
    update_values='edits.edited',
    EpisodeBags='episodes.episode_bags',
    QueuedEpisode='episodes.queued',
    Join='views.join',
    open_linked_field='linked_fields.writer',
    open_links='linked_fields.reader',
    Windows='sequences.windows',
    copy_segment='media.segments',
    find_frames='media.segments',
    Audio='media.audio',
    Video='media.video',
    AUDIO='media.types',
    VIDEO='media.types',
)

if TYPE_CHECKING:
    from bags import bag, samplers
    from bags import beam as beam
    from bags import grain as grain
    from bags import jax as jax
    from bags import lerobot as lerobot
    from bags import ray as ray
    from bags import torch as torch
    from bags import types as types
    from bags.authoring.copy import copy
    from bags.authoring.from_numpy import from_numpy
    from bags.authoring.write import write
    from bags.collate.columns import pack, pad, stack
    from bags.dataset.base import Dataset
    from bags.dataset.batch import Ragged
    from bags.dataset.open import open
    from bags.dataset.reader import DatasetReader
    from bags.dataset.registry import decoders, encoders
    from bags.dataset.selection import frames
    from bags.dataset.sharded_reader import ShardedDatasetReader
    from bags.dataset.sharded_writer import ShardedDatasetWriter
    from bags.dataset.writer import DatasetWriter
    from bags.display.batches import describe
    from bags.formats.images import draft_decoders
    from bags.interop.card import card
    from bags.interop.convert import convert
    from bags.interop.export import export
    from bags.interop.push import push
    from bags.keys.index import create_index
    from bags.keys.join import join
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
    from bags.media.audio_sequence import AudioSequence
    from bags.media.clips import cut_clips
    from bags.media.remux import remux
    from bags.media.video import ClipSequence, Video
    from bags.sequences.spans import steps, times
    from bags.viewer.notebook import view
    from bags.views.concat import concat

__version__ = '1.0.0'

__all__ = [
    'Audio',
    'AudioSequence',
    'BagsError',
    'ClipSequence',
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
    'bag',
    'card',
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
    'authoring.copy': ('copy',),
    'authoring.from_numpy': ('from_numpy',),
    'authoring.write': ('write',),
    'collate.columns': ('pack', 'pad', 'stack'),
    'dataset.base': ('Dataset',),
    'dataset.batch': ('Ragged',),
    'dataset.open': ('open',),
    'dataset.reader': ('DatasetReader',),
    'dataset.registry': ('decoders', 'encoders'),
    'dataset.selection': ('frames',),
    'dataset.sharded_reader': ('ShardedDatasetReader',),
    'dataset.sharded_writer': ('ShardedDatasetWriter',),
    'dataset.writer': ('DatasetWriter',),
    'display.batches': ('describe',),
    'formats.images': ('draft_decoders',),
    'interop.card': ('card',),
    'interop.convert': ('convert',),
    'interop.export': ('export',),
    'interop.push': ('push',),
    'keys.index': ('create_index',),
    'keys.join': ('join',),
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
    'media.audio_sequence': ('AudioSequence',),
    'media.clips': ('cut_clips',),
    'media.remux': ('remux',),
    'media.video': ('ClipSequence', 'Video'),
    'sequences.spans': ('steps', 'times'),
    'viewer.notebook': ('view',),
    'views.concat': ('concat',),
}

# Of these the first two are in `__all__`; after `from bags import *`, the others would hide packages.
_MODULES = ('bag', 'samplers', 'beam', 'grain', 'jax', 'lerobot', 'ray', 'torch', 'types')


if not TYPE_CHECKING:  # A misspelled name is an error for type checkers.

    def __getattr__(name: str) -> Any:
        from importlib import import_module

        if name in _MODULES:
            return import_module(f'bags.{name}')
        for home, names in _HOMES.items():
            if name in names:
                value = globals()[name] = getattr(import_module(f'bags.{home}'), name)
                return value
        raise AttributeError(f'module {__name__!r} has no attribute {name!r}{_advice(name)}')


def load_ipython_extension(shell: Any) -> None:
    """Makes a notebook show batches as tables, after `%load_ext bags`."""
    from bags.display.batches import load_ipython_extension as load

    load(shell)


_OTHER_NAMES = {
    **dict.fromkeys(('load', 'load_dataset', 'read', 'DatasetFolder'), 'bags.open'),
    **{name: f'bags.DatasetReader, or bags.bag.{name} for records' for name in ('Reader', 'Index')},
    'Writer': 'bags.DatasetWriter, or bags.bag.Writer for records',
    **{
        name: f'dataset.{name}'
        for name in ('select', 'filter', 'windows', 'drop', 'rename', 'update', 'split')
    },
    **dict.fromkeys(('DataLoader', 'Dataloader'), 'bags.Loader'),
    **dict.fromkeys(('load_from_disk', 'WebDataset', 'StreamingDataset', 'LeRobotDataset'), 'bags.open'),
    **dict.fromkeys(('concatenate', 'concatenate_datasets'), 'bags.concat'),
    **dict.fromkeys(('interleave', 'interleave_datasets'), 'bags.samplers.Mixture'),
    **dict.fromkeys(('from_dict', 'from_pandas'), 'bags.from_numpy, which takes arrays by name, or a table'),
    **dict.fromkeys(('from_generator', 'from_list', 'save', 'dump'), 'bags.write(datapoints, path, spec)'),
    **dict.fromkeys(('read_csv', 'read_parquet', 'read_json', 'from_parquet', 'from_csv'), 'bags.convert'),
    **dict.fromkeys(('to_parquet', 'to_webdataset'), 'bags.export'),
    'merge': 'bags.join, or bags.concat',
    'index': 'bags.consolidate, or bags.create_index',
    **dict.fromkeys(('Features', 'Image', 'ClassLabel'), "a spec, such as {'image': 'jpeg', 'label': 'int'}"),
}
"""What other libraries call it: what it is called here."""


def _advice(name: str) -> str:
    """Returns what to use for a name that does not exist, if it is known."""
    from difflib import get_close_matches

    similar = [f'bags.{other}' for other in get_close_matches(name, __all__, 1)]
    found = [_OTHER_NAMES[name]] if name in _OTHER_NAMES else similar
    return f'; did you mean {found[0]}?' if found else ''


_PACKAGES = {'beam': ('apache_beam',), 'ray': ('ray', 'pyarrow')}
"""Modules that can only be imported if these packages are installed."""


def __dir__() -> list[str]:
    # Without what cannot be imported, so that tab completion and inspect.getmembers get every name.
    missing = {name for name, needed in _PACKAGES.items() if not all(map(_is_installed, needed))}
    return [*{*__all__, *_MODULES} - missing, '__version__']


def _is_installed(package: str) -> bool:
    from importlib.util import find_spec

    try:
        return find_spec(package) is not None
    except (ImportError, ValueError):
        return False
