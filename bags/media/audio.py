"""`Audio`: a recording, of which only the samples asked for are read and decoded."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from bags.media.audio_decoder import Sound, open_tape
from bags.media.handle import Handle, as_number, as_seconds, check_reach
from bags.media.source import as_source

__all__ = ['Audio', 'decode_audio']

FAR = 1e9
"""Seconds that no recording has."""


class Audio:
    """The samples of a recording, decoded when they are asked for: `audio[k]` is what comes k-th when all
    of it is decoded.

    Creating it reads nothing. The file is opened when something is first asked of it, and stays open until
    the last `Audio` over it is gone. Safe to use from any thread; one decodes at a time. Picklable, and
    usable after a fork: it opens the file again.

    Args:
        source: A path, bytes, or a record of a dataset.
        exact: AAC may leave it to the decoder to make up noise, which then depends on all that was decoded
            before; where it does, a slice decodes everything before it. False does without, and gives other
            noise.
    """

    def __init__(self, source: Any, *, exact: bool = True) -> None:
        self._handle = Handle(as_source(source), open_tape)
        self._exact = exact

    def options(self, *, exact: bool) -> Audio:
        """Returns the same recording with another option. The index is shared."""
        other = object.__new__(Audio)
        other._handle, other._exact = self._handle, exact
        return other

    def __len__(self) -> int:
        with self._handle.use() as tape:
            return tape.length

    @property
    def rate(self) -> int:
        """Samples a second, of each channel."""
        with self._handle.use() as tape:
            return tape.rate

    @property
    def channels(self) -> int:
        """How many channels there are."""
        with self._handle.use() as tape:
            return tape.channels

    @property
    def shape(self) -> tuple[int, int]:
        """(time, channels)."""
        with self._handle.use() as tape:
            return tape.length, tape.channels

    @property
    def duration(self) -> float:
        """Seconds from the first sample to the end of the last."""
        with self._handle.use() as tape:
            return tape.length / tape.rate

    @property
    def start(self) -> float:
        """When the first sample is heard, in seconds: not at 0 where a file delays it, as beside video."""
        with self._handle.use() as tape:
            return tape.begin

    def __repr__(self) -> str:
        return f'bags.Audio({self._handle.source.name!r})'

    def __getitem__(self, key: Any) -> Sound:
        """Returns samples as float32, of full scale from -1 to 1.

        - `audio[a:b]`: shape (time, channels); slices clamp.
        - `audio[k]`: one sample, shape (channels,).

        Raises:
            IndexError: No such sample.
            DecodeError: It is damaged (`ValueError` if the recording is not of a dataset).
        """
        with self._handle.use() as tape:
            if isinstance(key, slice):
                check_reach(key, tape.length, tape.cut, 'samples')
                numbers = range(tape.length)[key]
                if not numbers:
                    return np.empty((0, tape.channels), np.float32)
                low, high = min(numbers[0], numbers[-1]), max(numbers[0], numbers[-1]) + 1
                found = tape.read(low, high, self._exact)
                return found if numbers.step == 1 else np.ascontiguousarray(found[:: numbers.step])
            number = as_number(key, 'a number of a sample, or a slice')
            if not -tape.length <= number < tape.length:
                name = self._handle.source.name
                raise IndexError(f'{name}: sample {number} is out of range, there are {tape.length}')
            number %= tape.length
            sample: Sound = tape.read(number, number + 1, self._exact)[0]
            return sample

    def between(self, start: float, stop: float) -> Sound:
        """Returns the samples whose times are in [start, stop), in seconds."""
        with self._handle.use() as tape:
            times = (min(max(as_seconds(time), -FAR), FAR) - tape.begin for time in (start, stop))
            low, high = (math.ceil(round(time * tape.rate, 6)) for time in times)
            low = min(max(low, 0), tape.length)
            check_reach(slice(low, max(low, high)), tape.length, tape.cut, 'samples')
            return tape.read(low, min(max(high, low), tape.length), self._exact)

    def blocks(self, length: int) -> Iterator[Sound]:
        """Yields all samples, `length` at a time; the last time what is left."""
        if operator.index(length) < 1:
            raise ValueError(f'expected a length of at least 1, got {length}')
        for start in range(0, len(self), length):
            yield self[start : min(start + length, len(self))]
        with self._handle.use() as tape:
            check_reach(slice(None), tape.length, tape.cut, 'samples')

    __iter__ = None
    """Samples one by one are not what anyone wants; see `blocks`."""

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        if copy is False:
            raise ValueError('the samples of an Audio are decoded: expected copy=None or True, got False')
        samples = self[:]
        return samples if dtype is None else samples.astype(dtype, copy=False)


def decode_audio(record: Any, *_args: str) -> Audio:
    """Returns an `Audio` over a record, which is read when samples are asked for."""
    return Audio(record)


decode_audio.lazy = True  # type: ignore[attr-defined]
