"""`Episode`: what `writer.begin` returns. `bags.episodes` has the class, and keeps one after a kill."""

from __future__ import annotations

import abc
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, Self

Call = list[tuple[str, Any]]
"""The records of one call, with their fields; None of a value that is missing."""


class EpisodeOptions(NamedTuple):
    """The options of `writer.begin`."""

    flush_seconds: float = 1.0
    clip_seconds: float = 2.0
    when_full: Literal['wait', 'raise'] = 'wait'
    copy: bool = True


class Partial(NamedTuple):
    """What became of an open episode of a killed writer."""

    datapoint: int | None
    """The index of the datapoint that it became; None if it was left out."""
    unset: list[str]
    """The plain fields for which it has no value, and because of which it was left out."""


class Episode(abc.ABC):
    """A datapoint that is being written by items, as `writer.begin` returns it.

    Leaving its `with` block commits it. Only `discard` drops it: after an exception, what was written stays
    for `bags.recover` and `resume=True`, as after a kill. Several threads may use it at a time.
    """

    state: Literal['open', 'committed', 'discarded', 'left'] = 'open'
    """'left' if an error has ended it."""
    index: int | None = None
    """The index of the datapoint, once it is committed."""
    waits = 0
    """Number of calls that found the queue full, and waited or raised."""

    @abc.abstractmethod
    def append(self, items: Mapping[str, Any]) -> None:
        """Appends one item to each of some sequences, or to none of them if this raises.

        Args:
            items: An item by field. Fields may be appended to in any order, and as often as one likes. A
                field of videos also takes single frames, uint8 (height, width, 3), and one of audio blocks of
                samples (time, channels) at its `rate` in the metadata. They are copied, unless `begin` got
                `copy=False`, and encoded as clips in the background. If a field of videos has `times`, a
                frame needs its time in the same call.

        Raises:
            EncodeError: No such field, a field that is no sequence, or an item that cannot be encoded, such
                as a frame of another size. The episode goes on. Or earlier frames could not be encoded: then
                it ends.
            ValueError: The episode has ended.
            queue.Full: With `when_full='raise'`, too much waits to be encoded or written. Nothing was
                appended.
            OSError: Earlier items could not be written, e.g. as the disk is full. The episode ends: what was
                written before stays, as after a kill.
        """

    @abc.abstractmethod
    def set(self, values: Mapping[str, Any]) -> None:
        """Sets plain fields, at any time until `commit`. The last value of a field counts.

        Raises:
            EncodeError: No such field, a sequence, or a value that cannot be encoded. The episode goes on.
            ValueError, OSError: As for `append`.
        """

    @abc.abstractmethod
    def flush(self) -> None:
        """Makes all items so far safe if this process is killed; with `durability='flush'`, also on disk.

        All but frames and samples of clips that are not encoded yet.
        """

    @abc.abstractmethod
    def commit(self) -> int:
        """Ends the episode: it becomes a datapoint. Returns its index, as `append` of the writer does.

        Raises:
            EncodeError: A plain field that is not optional is not set; the episode goes on. Or frames could
                not be encoded.
            OSError: Writing failed. What was written stays, as after a kill.
        """

    @abc.abstractmethod
    def discard(self) -> None:
        """Ends the episode without a datapoint.

        Nothing refers to the records that were written; their bytes stay in the bags.
        """

    @abc.abstractmethod
    def leave(self) -> None:
        """Ends the episode as a kill does, after what was appended is written."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, error_type: type[BaseException] | None, *_: object) -> None:
        if self.state == 'open' and error_type is None:
            try:
                self.commit()
            except BaseException:
                self.leave()
                raise
        elif self.state != 'committed':
            self.leave()
