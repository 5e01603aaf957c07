"""`Episode`, the result of `writer.begin`. `bags.episodes` implements it and recovers it after a kill."""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple, NoReturn, Self

ONE_PROCESS = (
    'only the process that opened it can write to it. To write datapoints from several processes, open a '
    'ShardedDatasetWriter with shard_start= and shard_step= in each of them. For the streams of one episode, '
    'write a dataset in each process, and join the datasets by a key with bags.join(…, on=…)'
)

Call = list[tuple[str, Any]]
"""The fields and records of one call; None for a missing value."""


class EpisodeOptions(NamedTuple):
    """The options of `writer.begin`."""

    flush_seconds: float = 1.0
    clip_seconds: float = 2.0
    when_full: Literal['wait', 'raise'] = 'wait'
    copy: bool = True


class PartialEpisode(NamedTuple):
    """The result of recovering the open episode of a killed writer."""

    datapoint: int | None
    """The index of the datapoint made from the episode; None if the episode was left out."""
    unset: list[str]
    """The plain fields without a value, the reason why the episode was left out."""


State = Literal['open', 'committed', 'discarded', 'left']


class OpenEpisode(abc.ABC):
    """The part of an episode that its writer and its threads refer to, with the methods of `Episode`.

    It does not refer to the writer, so that a writer that nobody uses is garbage-collected.
    """

    state: State = 'open'
    index: int | None = None
    waits = 0
    is_inherited = False

    @abc.abstractmethod
    def append(self, items: Mapping[str, Any]) -> None: ...

    @abc.abstractmethod
    def set(self, values: Mapping[str, Any]) -> None: ...

    @abc.abstractmethod
    def flush(self) -> None: ...

    @abc.abstractmethod
    def commit(self) -> int: ...

    @abc.abstractmethod
    def discard(self) -> None: ...

    @abc.abstractmethod
    def leave(self) -> None: ...

    @abc.abstractmethod
    def has_thread(self) -> bool:
        """Returns whether this is a thread of the episode, in which `leave` would wait for itself."""

    @abc.abstractmethod
    def leave_later(self, then: Callable[[], None]) -> None:
        """Leaves the episode as soon as its thread has written all items, which calls `then`."""


class Episode:
    """A datapoint that is written item by item, as `writer.begin` returns it.

    Leaving its `with` block commits it. Only `discard` drops it: after an exception, the written items stay
    for `bags.recover` and `resume=True`, as after a kill. Several threads may use it at once.
    """

    def __init__(self, episode: OpenEpisode, writer: object) -> None:
        self._episode = episode
        self._writer = writer  # The episode ends with its writer.

    @property
    def state(self) -> State:
        """'left' if an error has ended it."""
        return self._episode.state

    @property
    def index(self) -> int | None:
        """The index of the datapoint, once it is committed."""
        return self._episode.index

    @property
    def waits(self) -> int:
        """Number of calls that waited or raised because the queue was full."""
        return self._episode.waits

    @property
    def is_inherited(self) -> bool:
        """Whether this process was forked from the process of the episode, which alone has its threads."""
        return self._episode.is_inherited

    def append(self, items: Mapping[str, Any]) -> None:
        """Appends one item to each given sequence, or to none of them if this raises.

        Args:
            items: One item for each field. Fields may be appended to in any order, any number of times. A
                video field also takes single frames, uint8 (height, width, 3) or uint16 (height, width), and
                an audio field blocks of samples (time, channels) at its `rate` in the metadata. They are
                copied, unless `begin` got `copy=False`, and encoded as clips in the background. If a video
                field has `times`, a frame needs its time in the same call.

        Raises:
            EncodeError: The field does not exist or is not a sequence, or an item cannot be encoded, such as
                a frame of another size; the episode stays open. Or earlier frames could not be encoded; the
                episode ends.
            ValueError: The episode has ended.
            queue.Full: With `when_full='raise'`, too much is queued for encoding or writing. Nothing was
                appended.
            OSError: Earlier items could not be written, e.g. the disk is full. The episode ends; the items
                written before stay, as after a kill.
        """
        self._episode.append(items)

    def set(self, values: Mapping[str, Any]) -> None:
        """Sets plain fields, at any time until `commit`. The last value of a field counts.

        Raises:
            EncodeError: The field does not exist or is a sequence, or a value cannot be encoded. The episode
                stays open.
            ValueError, OSError: As for `append`.
        """
        self._episode.set(values)

    def flush(self) -> None:
        """Makes all items so far safe if this process is killed; with `durability='flush'`, also on disk.

        Except frames and samples of clips that are not encoded yet.
        """
        self._episode.flush()

    def commit(self) -> int:
        """Ends the episode: it becomes a datapoint. Returns its index, as `append` of the writer does.

        Raises:
            EncodeError: A required plain field is not set; the episode stays open. Or frames could not be
                encoded.
            OSError: Writing failed. The items written before stay, as after a kill.
        """
        return self._episode.commit()

    def discard(self) -> None:
        """Ends the episode without a datapoint.

        The written records stay in the bags, but no datapoint refers to them.
        """
        self._episode.discard()

    def leave(self) -> None:
        """Ends the episode as a kill does, after the appended items are written."""
        self._episode.leave()

    def __repr__(self) -> str:
        return repr(self._episode)

    def __enter__(self) -> Self:
        return self

    def __reduce__(self) -> NoReturn:
        raise TypeError(f'{self!r} cannot be pickled: {ONE_PROCESS}')

    def __exit__(self, error_type: type[BaseException] | None, *_: object) -> None:
        if self.is_inherited:
            return
        if self.state == 'open' and error_type is None:
            try:
                self.commit()
            except BaseException:
                self.leave()
                raise
        elif self.state != 'committed':
            self.leave()
