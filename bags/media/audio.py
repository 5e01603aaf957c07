"""`Audio`: a recording whose samples are read and decoded on access."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypedDict, Unpack, overload

import numpy as np
import numpy.typing as npt

from bags.formats.ffmpeg import Stream
from bags.indexing import needed_stop
from bags.media.demux import streams_of
from bags.media.encoders import MAX_MIXED, MAX_RATE, audio_options
from bags.media.frames import as_seconds
from bags.media.open_audio import AnyAudioDecoder
from bags.media.resampled import Resampled
from bags.media.segments import audio_of, segment_length
from bags.media.source import LazyDecoder
from bags.media.wav_reader import Samples
from bags.storage.range_file import RangeFile
from bags.validation import reject_unknown_options

Times = Sequence[float] | npt.NDArray[Any]

MAX_SECONDS = 1e9
"""Infinite times are clamped to this limit, which is longer than any recording."""


class AudioOptions(TypedDict, total=False):
    """Options of the constructor of `Audio`, without `stream`."""

    exact: bool
    rate: int | None
    channels: int | None


class Audio:
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
        stream: An index in `streams`. By default, the stream that players choose.
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

    def __init__(
        self,
        source: Any,
        *,
        exact: bool = False,
        stream: int | None = None,
        rate: int | None = None,
        channels: int | None = None,
    ) -> None:
        self.decoder = LazyDecoder(source, self.open_decoder, stream)
        """The decoder, for internal use."""
        self._set(exact, rate, channels)

    def _set(self, exact: bool, rate: int | None, channels: int | None) -> None:
        for name, value, maximum in (('rate', rate, MAX_RATE), ('channels', channels, MAX_MIXED)):
            if value is not None and (type(value) is not int or not 1 <= value <= maximum):
                raise ValueError(f'expected {name} from 1 to {maximum}, got {value!r}')
        self._exact = exact
        self.resampling = rate, channels
        """The options `rate` and `channels`."""

    def options(self, **options: Unpack[AudioOptions]) -> Audio:
        """Returns the same recording with other options (not `stream`). Both share the open file."""
        reject_unknown_options(options, AudioOptions.__annotations__, self.options)
        other = object.__new__(type(self))
        other.decoder = self.decoder
        rate, channels = self.resampling
        merged = AudioOptions(exact=self._exact, rate=rate, channels=channels)
        merged.update(options)
        other._set(**merged)
        return other

    @contextmanager
    def _use(self) -> Iterator[AnyAudioDecoder | Resampled]:
        """Opens the decoder if needed and holds its lock; yields a reader that applies the options."""
        with self.decoder.use() as decoder:
            yield self._as_read(decoder)

    def _as_read(self, decoder: AnyAudioDecoder) -> AnyAudioDecoder | Resampled:
        rate, channels = self.resampling
        is_same = rate in (None, decoder.rate) and channels in (None, decoder.channels)
        return decoder if is_same else Resampled(decoder, rate, channels)

    def _get(self) -> AnyAudioDecoder | Resampled:
        """Returns the reader that applies the options, for attributes that do not change."""
        with self._use() as decoder:
            return decoder

    def __len__(self) -> int:
        length = segment_length(self.decoder.source, 'audio') if self.resampling == (None, None) else None
        return self._get().length if length is None else length

    @property
    def streams(self) -> tuple[Stream, ...]:
        """The streams of the file: audio, video and others. Opens the file again."""
        return streams_of(self.decoder)

    @property
    def rate(self) -> int:
        """Sample rate in Hz."""
        return self._get().rate

    @property
    def channels(self) -> int:
        """Number of channels."""
        return self._get().channels

    @property
    def shape(self) -> tuple[int, int]:
        """(time, channels)."""
        return len(self), self.channels

    @property
    def duration(self) -> float:
        """Seconds from the first sample to the end of the last."""
        return len(self) / self.rate

    @property
    def start(self) -> float:
        """The time of the first sample in seconds. Not 0 if the file delays audio, e.g. relative to video."""
        return self.decoder.get().begin

    def __repr__(self) -> str:
        name = f'bags.Audio({self.decoder.source.name!r}'
        try:
            decoder = self.decoder.peek()
        except Exception as exc:
            return f'{name}, cannot be read: {type(exc).__name__})'
        if decoder is None:
            return f'{name})'
        reader = self._as_read(decoder)
        size = f'{reader.length} samples, {reader.channels} channel{"s" * (reader.channels != 1)}'
        return f'{name}, {size}, {reader.rate} Hz, {reader.length / reader.rate:.6g} s)'

    def __getitem__(self, key: Any) -> Samples:
        """Decodes samples as float32 from -1 to 1.

        - `audio[a:b]`: shape (time, channels); slices clamp.
        - `audio[k]`: one sample, shape (channels,).

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
            try:
                number = operator.index(key)
            except TypeError:
                raise TypeError(f'expected a sample number or a slice, got {type(key).__name__}') from None
            if not -decoder.length <= number < decoder.length:
                bounds = f'[{-decoder.length}, {decoder.length})'
                raise IndexError(f'{self.decoder.source.name}: sample {number} out of range {bounds}')
            number %= decoder.length
            sample: Samples = decoder.read(number, number + 1, self._exact)[0]
            return sample

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
            low, high = (math.ceil(round((time - decoder.begin) * decoder.rate, 6)) for time in times)
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
