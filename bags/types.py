"""The classes of results and arguments, for annotations and `isinstance`."""

from typing import TYPE_CHECKING

from bags.checks.column import Column, Field
from bags.checks.definition import Check, FieldScores, Scores
from bags.checks.findings import Finding, Findings, SkippedCheck
from bags.collate.bins import Bins
from bags.collate.columns import PackedSequences, Padded
from bags.collate.padding import Masked
from bags.dataset.base import WindowsView
from bags.dataset.format.options import ReadOptions, WriteOptions
from bags.dataset.reading.difference import Diff
from bags.dataset.reading.frames import LazyFrames
from bags.dataset.reading.origins import Origin, Origins
from bags.dataset.reading.selection import Between, Steps, Times
from bags.interop.formats import Importer
from bags.interop.source import Source
from bags.loader.iterator import LoaderIterator
from bags.loader.timing import LoaderTiming
from bags.maintenance.field_statistics import FieldStatistics, GroupedStatistics
from bags.maintenance.info import BagInfo, DatasetInfo, Distribution, FieldInfo
from bags.maintenance.normalize import Normalize, NormalizeGroups
from bags.maintenance.recover import Recovery
from bags.maintenance.verify_bag import Damage, Note
from bags.media.clips import EncodedClip
from bags.media.excerpts import Excerpt, Excerpts
from bags.media.frames import Elements
from bags.progress.write_result import Skipped, WriteResult
from bags.streams.stream import Stream
from bags.views.computed import ComputedView

__all__ = [
    'BagInfo',
    'Between',
    'Bins',
    'Check',
    'Column',
    'ComputedView',
    'Damage',
    'DatasetInfo',
    'Diff',
    'Distribution',
    'Elements',
    'EncodedClip',
    'Excerpt',
    'Excerpts',
    'Field',
    'FieldInfo',
    'FieldScores',
    'FieldStatistics',
    'Finding',
    'Findings',
    'GroupedStatistics',
    'Importer',
    'LazyFrames',
    'LoaderIterator',
    'LoaderTiming',
    'Masked',
    'Normalize',
    'NormalizeGroups',
    'Note',
    'Origin',
    'Origins',
    'PackedSequences',
    'Padded',
    'ReadOptions',
    'Recovery',
    'Scores',
    'Skipped',
    'SkippedCheck',
    'Source',
    'Steps',
    'Stream',
    'Times',
    'WindowsView',
    'WriteOptions',
    'WriteResult',
]

if not TYPE_CHECKING:  # Type checkers then report misspelled names.

    def __getattr__(name: str) -> object:
        from bags.other_names import module_advice

        advice = module_advice(name, __all__, __name__)
        raise AttributeError(f'module {__name__!r} has no attribute {name!r}{advice}')
