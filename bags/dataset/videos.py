"""The videos of a field, and frames of those of a row as if they were one."""

from __future__ import annotations

from typing import Any

from bags.bag.bag_file import BagFile
from bags.concurrency import FifoCache
from bags.dataset.record import Record
from bags.dataset.selection import FrameSelection
from bags.media.joined_videos import JoinedVideos, length_of
from bags.media.video import Video

__all__ = ['Films']

OPEN = 16  # Videos of a field that stay open, to be asked again.


class Films:
    """Videos by the index of their record: the last ones that were asked for stay open.

    Args:
        bag: That of the field.
        name, text: The field's, and its type, for errors.
    """

    def __init__(self, bag: BagFile, name: str, text: str) -> None:
        self._videos: FifoCache[int, Video] = FifoCache(
            lambda index: Video(Record(bag, index, name, text)), OPEN
        )
        self._lengths: dict[int, int] = {}
        self._is_remote = bag.is_remote
        self._label = f'{bag.path}, field {name!r} of type {text}'

    def frames(self, records: range, selection: FrameSelection) -> Any:
        """Returns frames of videos that follow one another, by the indices of their records."""
        joined = JoinedVideos(
            len(records),
            lambda clip: self._videos[records[clip]],
            lambda clip: self._length(records[clip]),
            self._is_remote,
            self._label,
        )
        return len(joined) if selection.key is None else joined[selection.key]

    def _length(self, index: int) -> tuple[int, Exception | None]:
        """Returns the frames of a video, and an error if more should be there; kept if they are all."""
        if index in self._lengths:
            return self._lengths[index], None
        length, error = length_of(self._videos[index])
        if error is None:
            self._lengths[index] = length
        return length, error
