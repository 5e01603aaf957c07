"""The clips of a datapoint as one video."""

from __future__ import annotations

import functools
from typing import Any, SupportsIndex, Unpack

import numpy as np

from bags.concurrency import FifoCache
from bags.dataset.base import check_dataset
from bags.dataset.registry import VIDEO_WORDS
from bags.dataset.selection import select_fields
from bags.indexing import check_index
from bags.media.encoders import reading_options
from bags.media.video import JoinedVideos, Video, VideoOptions

MAX_OPEN_CLIPS = 16
"""Number of clips that stay open."""


class ClipSequence(JoinedVideos):
    """The clips of a datapoint as one video.

    Frames are numbered through all clips. A read loads the headers of the clips up to the last frame, once,
    and decodes the necessary part of the clips that contain the frames. Each clip begins where the previous
    one ends. Thread-safe, and picklable if the dataset is.

    Args:
        dataset: A reader or a view.
        index: The datapoint.
        field: A field of type `mp4[]`, `webm[]`, `mkv[]` or `video[]`, or a plain one: a single clip.
        **options: `size`, `color`, `dtype`, `rotate` and `threads`, as of a `Video`.
    """

    def __init__(
        self, dataset: Any, index: SupportsIndex, field: str, **options: Unpack[VideoOptions]
    ) -> None:
        check_dataset('ClipSequence', dataset)
        select_fields(field, dataset.types)
        kind = dataset.types[field]
        if kind.word not in VIDEO_WORDS:
            raise TypeError(f'ClipSequence: field {field!r} of type {kind.text} is no video')
        row = check_index(index, len(dataset))
        count = int(dataset.item_counts(np.array([row]), field)[0]) if kind.sequence else 1
        self._arguments = (dataset, row, field, options)
        merged: dict[str, Any] = {**reading_options(*kind.args), **options}
        videos: FifoCache[int, Video] = FifoCache(
            lambda clip: Video(dataset._record(row, field, clip if kind.sequence else None), **merged),
            MAX_OPEN_CLIPS,
        )
        where = f'{dataset!r}, datapoint {row}, field {field!r}'
        super().__init__(
            count, videos.__getitem__, lambda clip: videos[clip]._length(), dataset.is_remote, where
        )

    def __reduce__(self) -> Any:
        dataset, row, field, options = self._arguments
        return functools.partial(ClipSequence, **options), (dataset, row, field)

    def __repr__(self) -> str:
        dataset, row, field, _ = self._arguments
        return f'bags.ClipSequence({dataset!r}, {row}, {field!r})'
