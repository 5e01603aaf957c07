"""Resamples recordings to another rate and mixes their channels, with FFmpeg's resampler.

The coefficients of the resampler repeat after a period: from 44,100 to 16,000 Hz after 441 samples, which
become 160 samples. A slice is resampled from the start of an earlier period, and therefore equals the same
slice of the resampled recording.
"""

from __future__ import annotations

import functools
import math

import numpy as np

from bags.formats.ffmpeg import frame_samples, import_av
from bags.media.open_audio import AnyAudioDecoder
from bags.media.wav_reader import Samples

MAX_RATIO = 1000
"""Maximum ratio of the rates: the filter has about 16 times as many coefficients for each of 1,024 phases."""
MIXED = {1: 'mono', 2: 'stereo'}
"""Layouts that channels are mixed to."""


class Resampled:
    """The samples of a decoder, resampled and mixed. Attributes as in `AnyAudioDecoder`.

    Args:
        decoder: The decoder.
        rate: Sample rate in Hz; None for the rate of the recording.
        channels: 1 or 2; None for the channels of the recording. FFmpeg mixes floats so that mono is 0.707
            times the sum of left and right, and both channels of stereo are 0.707 times mono.

    Raises:
        ValueError: The rates differ by more than a factor of 1,000.
    """

    def __init__(self, decoder: AnyAudioDecoder, rate: int | None, channels: int | None) -> None:
        self._decoder = decoder
        self.rate = decoder.rate if rate is None else rate
        self.channels = decoder.channels if channels is None else channels
        self.begin = decoder.begin
        self.truncation = decoder.truncation
        if not self.rate <= decoder.rate * MAX_RATIO <= self.rate * MAX_RATIO**2:
            raise ValueError(
                f'cannot resample {decoder.rate} Hz to {self.rate} Hz: more than {MAX_RATIO} times'
            )
        self._margin = 0 if self.rate == decoder.rate else filter_length(decoder.rate, self.rate)
        length = decoder.length
        if decoder.truncation:
            length = max(0, length - self._margin)  # Later samples depend on missing samples.
        self.length = resampled_length(length, decoder.rate, self.rate)

    def ranges(self, start: int, stop: int) -> list[tuple[int, int]]:
        """Returns the byte ranges to read for samples; empty if they are unknown."""
        return self._decoder.ranges(*self._needed(start, stop))

    def _needed(self, start: int, stop: int) -> tuple[int, int]:
        """Returns the range of source samples for a range of samples; it begins with a period."""
        rate = self._decoder.rate
        period = rate // math.gcd(rate, self.rate)
        first = max(0, (start * rate // self.rate - 2 * self._margin) // period) * period
        last = min(self._decoder.length, -(-stop * rate // self.rate) + 2 * self._margin)
        return first, max(first, last)

    def read(self, start: int, stop: int, exact: bool = False) -> Samples:
        """Returns samples, float32 (stop - start, channels). Arguments as for the decoder."""
        if stop <= start:
            return np.empty((0, self.channels), np.float32)
        decoder = self._decoder
        first, last = self._needed(start, stop)
        samples = decoder.read(first, last, exact)
        is_mixed = self.channels != decoder.channels
        layout = decoder.layout if is_mixed else f'{self.channels} channels'
        mixed = MIXED[self.channels] if is_mixed else layout
        is_end = last == decoder.length
        resampled = resample(samples, layout, mixed, decoder.rate, self.rate, is_end)
        offset = start - first * self.rate // decoder.rate  # `first` begins a period: the division is exact.
        return resampled[offset : offset + stop - start]


def resample(
    samples: Samples, layout: str, mixed: str, rate: int, new_rate: int, is_end: bool = True
) -> Samples:
    """Resamples and mixes samples with PyAV's `AudioResampler`.

    Args:
        samples: float32 (n, channels).
        layout, mixed: FFmpeg's names of the channel layouts before and after mixing.
        rate, new_rate: Sample rates before and after resampling, in Hz.
        is_end: Whether the recording ends with these samples. Otherwise the result omits the last samples,
            which depend on later samples.
    """
    av = import_av()
    resampler = av.AudioResampler(format='flt', layout=mixed, rate=new_rate)
    frame = av.AudioFrame.from_ndarray(np.ascontiguousarray(samples).reshape(1, -1), 'flt', layout)
    frame.sample_rate = rate
    frames = resampler.resample(frame)
    if is_end:
        frames += resampler.resample(None)
    count = av.AudioLayout(mixed).nb_channels
    return np.concatenate([np.empty((0, count), np.float32), *map(frame_samples, frames)])


def filter_length(rate: int, new_rate: int) -> int:
    """Returns an upper bound for the number of samples at `rate` that a sample at `new_rate` depends on."""
    return 20 * max(1, -(-rate // new_rate)) + 16


@functools.lru_cache(4096)
def resampled_length(length: int, rate: int, new_rate: int) -> int:
    """Returns the number of samples after resampling."""
    if rate == new_rate:
        return length
    factor = math.gcd(rate, new_rate)
    period = rate // factor
    periods = max(0, length - 4 * filter_length(rate, new_rate)) // period
    silence = np.zeros((length - periods * period, 1), np.float32)
    rest = len(resample(silence, 'mono', 'mono', rate, new_rate)) if len(silence) else 0
    return periods * (new_rate // factor) + rest
