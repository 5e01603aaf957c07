"""`Audio`: a recording whose samples are read and decoded on access."""

from __future__ import annotations

import copy
import math
import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypedDict, Unpack, overload

import numpy as np
import numpy.typing as npt

from bags.concurrency import Shareable
from bags.dataset.reading.frames import Seconds, frame_numbers
from bags.formats.ffmpeg import Track
from bags.indexing import Int64s, needed_stop
from bags.media.demux import tracks_of
from bags.media.encoders import MAX_MIXED, MAX_RATE, audio_options
from bags.media.frames import Elements, as_seconds, seconds_of
from bags.media.open_audio import AnyAudioDecoder
from bags.media.resampled import Resampled
from bags.media.segments import audio_of, segment_length
from bags.media.source import LazyDecoder
from bags.media.wav_reader import Samples
from bags.other_names import find_attribute
from bags.storage.range_file import RangeFile
from bags.validation import reject_unknown_options, with_advice

Times = Sequence[float] | npt.NDArray[Any]

MAX_SECONDS = 1e9
"""Infinite times are clamped to this limit, which is longer than any recording."""
MAX_SKIPPED_SAMPLES = 4096
"""Samples between two samples of a list up to this number are decoded with them."""
MAX_SAMPLES_AT_ONCE = 1 << 20
"""Maximum number of samples that are decoded at once for a list."""


class AudioOptions(TypedDict, total=False):
    """Options of the constructor of `Audio`, without `track`."""

    exact: bool
    rate: int | None
    channels: int | None


class Audio(Shareable):
    """The samples of a recording, decoded on access: `audio[k]` is sample k of the whole decoded file.

    The constructor reads nothing. The file is opened on first access and stays open until the last `Audio`
    that shares it is freed. Thread-safe: one thread decodes at a time. Picklable and usable after a fork: the
    file is opened again.

    Args:
        source: A path, bytes, or a record of a dataset.
        exact: Make slices equal to the whole decoded file, bit for bit. For AAC and Opus, this decodes
            everything before a slice (3 s for an hour), or continues from the end of an earlier slice. By
            default, a few packets before the slice are decoded, as in other decoders. The samples are then
            the same, except for the noise that AAC decoders generate and for speech in Opus (within 3e-5),
            and repeated reads return the same samples.
        track: An index in `tracks`. By default, the track that players choose.
        rate: Sample rate in Hz to resample to with PyAV's `AudioResampler`. By default, the rate of the
            recording. Slices equal slices of the resampled recording.
        channels: Number of channels to mix to, 1 or 2. By default, as in the recording. Mono is 0.707 times
            the sum of left and right, as FFmpeg mixes floats, so it may exceed 1.

    Examples:
        >>> audio = bags.Audio('speech.flac', rate=8000)
        >>> audio.rate, audio[:8000].shape
        (8000, (8000, 1))
    """

    open_decoder: Callable[[Any, int | None], AnyAudioDecoder] = staticmethod(audio_of)
    """Opens the decoder of a source; for internal use."""

    is_joined: ClassVar[bool] = False
    """Whether the samples come from several files."""
    _start: float | None = None
    """The time of the first sample that `with_start` gave."""

    @with_advice
    def __init__(
        self,
        source: Any,
        *,
        exact: bool = False,
        track: int | None = None,
        rate: int | None = None,
        channels: int | None = None,
    ) -> None:
        self.decoder = LazyDecoder(source, self.open_decoder, track)
        """The decoder, for internal use."""
        self._set(exact, rate, channels)

    def _set(self, exact: bool, rate: int | None, channels: int | None) -> None:
        for name, value, maximum in (('rate', rate, MAX_RATE), ('channels', channels, MAX_MIXED)):
            if value is not None and (type(value) is not int or not 1 <= value <= maximum):
                raise ValueError(f'expected {name} from 1 to {maximum}, got {value!r}')
        self._exact = exact
        self.resampling = rate, channels
        """The options `rate` and `channels`."""

    if not TYPE_CHECKING:  # A name that does not exist is an error for type checkers.

        def __getattr__(self, name: str) -> Any:
            return find_attribute(self, 'Audio', name)

    def options(self, **options: Unpack[AudioOptions]) -> Self:
        """Returns the same recording with other options (not `track`). Both share the open file."""
        reject_unknown_options(options, AudioOptions.__annotations__, self.options)
        other = copy.copy(self)
        rate, channels = self.resampling
        merged = AudioOptions(exact=self._exact, rate=rate, channels=channels)
        merged.update(options)
        other._set(**merged)
        return other

    def with_start(self, start: float) -> Self:
        """Returns the same recording, whose first sample is at `start` seconds; for internal use."""
        other = copy.copy(self)
        other._start = start
        return other

    @contextmanager
    def _use(self) -> Iterator[AnyAudioDecoder | Resampled]:
        """Opens the decoder if needed and holds its lock; yields a reader that applies the options."""
        with self.decoder.use() as decoder:
            yield self._as_read(decoder)

    def _as_read(self, decoder: AnyAudioDecoder) -> AnyAudioDecoder | Resampled:
        rate, channels = self.resampling
        if rate is None and channels is None:
            return decoder
        is_same = rate in (None, decoder.rate) and channels in (None, decoder.channels)
        is_same |= decoder.rate == 0  # A sequence without recordings.
        return decoder if is_same else Resampled(decoder, rate, channels)

    def _get(self) -> AnyAudioDecoder | Resampled:
        """Returns the reader that applies the options, for attributes that do not change."""
        with self._use() as decoder:
            return decoder

    def __len__(self) -> int:
        length = segment_length(self.decoder.source, 'audio') if self.resampling == (None, None) else None
        return self._get().length if length is None else length

    @property
    def tracks(self) -> tuple[Track, ...]:
        """The tracks of the file: audio, video and others. Opens the file again."""
        return tracks_of(self.decoder)

    @property
    def rate(self) -> int:
        """Sample rate in Hz."""
        with self._use() as decoder:
            return decoder.rate

    @property
    def channels(self) -> int:
        """Number of channels."""
        with self._use() as decoder:
            return decoder.channels

    @property
    def shape(self) -> tuple[int, int]:
        """(time, channels)."""
        return len(self), self.channels

    @property
    def duration(self) -> float:
        """Seconds from the first sample to the end of the last."""
        return len(self) / self.rate if len(self) else 0.0

    @property
    def start(self) -> float:
        """The time of the first sample in seconds. Not 0 if the file delays audio, e.g. relative to video."""
        return self._start_of(self.decoder.get())

    def _start_of(self, decoder: AnyAudioDecoder | Resampled) -> float:
        return decoder.begin if self._start is None else self._start

    @property
    def times(self) -> Seconds:
        """The time of each sample, `start + k / rate`, float64 seconds, shape (time,)."""
        times: Seconds = self.start + np.arange(len(self)) / self.rate
        return times

    def __repr__(self) -> str:
        name = f'bags.Audio({self.decoder.source.name!r}'
        try:
            if self.decoder.peek() is None:
                return f'{name})'
            rate, (length, channels) = self.rate, self.shape
        except Exception as exc:
            return f'{name}, cannot be read: {type(exc).__name__})'
        size = f'{length} samples, {channels} channel{"s" * (channels != 1)}'
        return f'{name}, {size}, {rate} Hz, {length / rate:.6g} s)'

    def __getitem__(self, key: Any) -> Samples:
        """Decodes samples as float32 from -1 to 1.

        - `audio[a:b]`: shape (time, channels); slices clamp.
        - `audio[k]`: one sample, shape (channels,).
        - `audio[[3, 50, 7]]`: shape (time, channels), in any order, with repeats.

        Raises:
            IndexError: The sample number is out of range.
            DecodeError: A sample is damaged (`ValueError` if the recording is not from a dataset).
        """
        with self._use() as decoder:
            if isinstance(key, slice):
                _check_complete(decoder, needed_stop(key))
                numbers = range(decoder.length)[key]
                ends = sorted((numbers[0], numbers[-1])) if numbers else (0, -1)
                samples = decoder.read(ends[0], ends[1] + 1, self._exact)
                return samples if numbers.step == 1 else np.ascontiguousarray(samples[:: numbers.step])
            if isinstance(key, list | tuple | range | np.ndarray) and np.ndim(key):
                return self._read(decoder, self._numbers(key, decoder.length))
            try:
                number = operator.index(key)
            except TypeError:
                raise TypeError(
                    f'expected a sample number, a slice or a list of sample numbers, got {type(key).__name__}'
                ) from None
            number = int(self._numbers([number], decoder.length)[0])
            sample: Samples = decoder.read(number, number + 1, self._exact)[0]
            return sample

    def _numbers(self, key: Any, length: int) -> Int64s:
        return frame_numbers(key, lambda _: length, self.decoder.source.name, 'sample')

    def _read(self, decoder: AnyAudioDecoder | Resampled, numbers: Int64s) -> Samples:
        """Returns samples by number, shape (n, channels). Decodes numbers that are close together at once."""
        unique, positions = np.unique(numbers, return_inverse=True)
        is_apart = (np.diff(unique) > MAX_SKIPPED_SAMPLES) | (np.diff(unique // MAX_SAMPLES_AT_ONCE) > 0)
        samples = [np.empty((0, decoder.channels), np.float32)]
        for group in np.split(unique, np.flatnonzero(is_apart) + 1) if len(unique) else ():
            start, stop = int(group[0]), int(group[-1]) + 1
            samples.append(decoder.read(start, stop, self._exact)[group - start])
        return np.concatenate(samples)[positions]

    def read(self, key: Any) -> Elements:
        """Returns samples and their times; `key` as for `audio[key]`."""
        samples = self[key]
        if isinstance(key, slice):
            numbers: Any = np.arange(*key.indices(len(self)))
        elif np.ndim(key):
            numbers = self._numbers(key, len(self))
        else:
            numbers = operator.index(key) % len(self)
        return Elements(samples, self.start + numbers / self.rate)

    def at(self, seconds: float | Times) -> Samples:
        """Returns the last sample at or before a time, shape (channels,).

        For a list or an array of times, in any order: shape (time, channels).

        Raises:
            IndexError: A time is before the first sample, or not before the end of the last sample.
        """
        times = seconds_of(seconds)
        with self._use() as decoder:
            # A sequence without recordings has no rate.
            start, rate = self._start_of(decoder), decoder.rate or 1
            positions = np.floor(np.round((times - start) * rate, 6))
            wrong = times[~((positions >= 0) & (positions < decoder.length))]
            if len(wrong):
                _check_complete(decoder, None if wrong.max() > start else 0)
                raise IndexError(
                    f'{self.decoder.source.name}: no sample at {wrong[0]} s; the recording lasts from '
                    f'{start} s to {start + decoder.length / rate} s'
                )
            samples = self._read(decoder, positions.astype(np.int64))
            return samples if np.ndim(seconds) else samples[0]

    @overload
    def between(self, start: float, stop: float) -> Samples: ...
    @overload
    def between(self, start: Times, stop: Times) -> list[Samples]: ...
    def between(self, start: Any, stop: Any) -> Samples | list[Samples]:
        """Returns the samples whose times are in [start, stop), in seconds.

        For two lists or arrays of times, returns a list. Its items may differ in length because of rounding.
        """
        if np.ndim(start) == np.ndim(stop) == 1:
            if len(start) != len(stop):
                raise ValueError(f'expected a stop for each of {len(start)} starts, got {len(stop)}')
            return [self.between(low, high) for low, high in zip(start, stop, strict=True)]
        times = [min(max(as_seconds(time), -MAX_SECONDS), MAX_SECONDS) for time in (start, stop)]
        if math.isnan(sum(times)):
            raise ValueError(f'expected times in seconds, got {start!r} and {stop!r}')
        with self._use() as decoder:
            start = self._start_of(decoder)
            low, high = (math.ceil(round((time - start) * decoder.rate, 6)) for time in times)
            low = min(max(low, 0), decoder.length)
            high = max(high, low)
            _check_complete(decoder, high)
            return decoder.read(low, min(high, decoder.length), self._exact)

    def will_need(self, slices: Iterable[tuple[int, int]]) -> None:
        """Announces slices (start, stop) to read next. Slices of a remote file are fetched together."""
        with self.decoder.use() as decoder:
            if isinstance(decoder.file, RangeFile) and not self._exact:
                reader = self._as_read(decoder)
                decoder.file.will_need(
                    [byte_range for bounds in slices for byte_range in reader.ranges(*bounds)]
                )

    def blocks(self, length: int) -> Iterator[Samples]:
        """Yields all samples in blocks of `length`; the last may be shorter. Samples are always exact."""
        if operator.index(length) < 1:
            raise ValueError(f'expected a length of at least 1, got {length}')
        exact = self.options(exact=True)  # The decoder continues after the previous block.
        for start in range(0, len(self), length):
            yield exact[start : min(start + length, len(self))]
        with self._use() as decoder:
            _check_complete(decoder, None)

    __iter__ = None
    """Iteration over single samples is not supported; see `blocks`."""

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        if copy is False:
            name = self.decoder.source.name
            raise ValueError(f'{name}: samples are decoded: expected copy=None or True, got False')
        samples = self[:]
        return samples if dtype is None else samples.astype(dtype, copy=False)


def _check_complete(decoder: AnyAudioDecoder | Resampled, stop: int | None) -> None:
    """Raises ValueError if a truncated file lacks samples before `stop` (None: before the end)."""
    if decoder.truncation and (stop is None or stop > decoder.length):
        raise ValueError(f'{decoder.truncation}; the first {decoder.length} samples are available')


def decode_audio(record: Any, *args: str) -> Audio:
    """Returns an `Audio` of a record, read when samples are accessed. `args`: the arguments of its type."""
    return Audio(record, **audio_options(*args))


decode_audio.lazy = True  # type: ignore[attr-defined]
