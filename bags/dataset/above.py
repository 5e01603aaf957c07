"""The functions and types of higher packages that `dataset` uses.

For type checkers these are plain imports. At run time, each module is imported on first use of one of its
names, because these packages import `dataset` themselves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bags.arrow.batches import arrow_dataset as arrow_dataset
    from bags.arrow.batches import read_batches as read_batches
    from bags.authoring.save import save as save
    from bags.conditions.needs import matching as matching
    from bags.display.batches import ragged_as_html as ragged_as_html
    from bags.display.datasets import dataset_as_html as dataset_as_html
    from bags.display.datasets import dataset_as_text as dataset_as_text
    from bags.episodes.episode_bags import EpisodeBags as EpisodeBags
    from bags.episodes.queued_episode import QueuedEpisode as QueuedEpisode
    from bags.keys.index import KeyIndex as KeyIndex
    from bags.keys.index import find_keys as find_keys
    from bags.keys.index import open_key_index as open_key_index
    from bags.media.audio import Audio as Audio
    from bags.media.excerpts import Excerpts as Excerpts
    from bags.media.segments import copy_segment as copy_segment
    from bags.media.segments import find_frames as find_frames
    from bags.media.types import AUDIO as AUDIO
    from bags.media.types import VIDEO as VIDEO
    from bags.media.video import Video as Video
    from bags.progress.write_result import WriteResult as WriteResult
    from bags.streams.excerpts import read_excerpts as read_excerpts
    from bags.streams.field import KnownElements as KnownElements
    from bags.streams.field import StreamField as StreamField
    from bags.streams.stream import Stream as Stream
    from bags.streams.stream import open_stream as open_stream
    from bags.views.diff import diff_datasets as diff_datasets
    from bags.views.edited import rename_fields as rename_fields
    from bags.views.edited import update_values as update_values
    from bags.views.groups import split_datapoints as split_datapoints
    from bags.views.groups import unique_datapoints as unique_datapoints
    from bags.views.windows.windows import Windows as Windows

MODULES = {
    'bags.arrow.batches': (
        'arrow_dataset',
        'read_batches',
    ),
    'bags.authoring.save': ('save',),
    'bags.conditions.needs': ('matching',),
    'bags.display.batches': ('ragged_as_html',),
    'bags.display.datasets': (
        'dataset_as_html',
        'dataset_as_text',
    ),
    'bags.episodes.episode_bags': ('EpisodeBags',),
    'bags.episodes.queued_episode': ('QueuedEpisode',),
    'bags.keys.index': (
        'KeyIndex',
        'find_keys',
        'open_key_index',
    ),
    'bags.media.audio': ('Audio',),
    'bags.media.excerpts': ('Excerpts',),
    'bags.media.segments': (
        'copy_segment',
        'find_frames',
    ),
    'bags.media.types': (
        'AUDIO',
        'VIDEO',
    ),
    'bags.media.video': ('Video',),
    'bags.progress.write_result': ('WriteResult',),
    'bags.streams.excerpts': ('read_excerpts',),
    'bags.streams.field': (
        'KnownElements',
        'StreamField',
    ),
    'bags.streams.stream': (
        'Stream',
        'open_stream',
    ),
    'bags.views.diff': ('diff_datasets',),
    'bags.views.edited': (
        'rename_fields',
        'update_values',
    ),
    'bags.views.groups': (
        'split_datapoints',
        'unique_datapoints',
    ),
    'bags.views.windows.windows': ('Windows',),
}
"""The names of each module, as imported above for type checkers."""

if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        from importlib import import_module

        for module, names in MODULES.items():
            if name in names:
                value = globals()[name] = getattr(import_module(module), name)
                return value
        raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
