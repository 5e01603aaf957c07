"""Audio samples: checks of values to encode, and resampling."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from bags.formats.arrays import as_array
from bags.formats.ffmpeg import frame_samples, import_av

Samples = np.ndarray[Any, np.dtype[Any]]

_CHANNEL_LAYOUTS = ('mono', 'stereo', '3.0', 'quad', '5.0', '5.1', '6.1', '7.1')
_SAMPLE_FORMATS = {'int16': 's16', 'int32': 's32', 'float32': 'flt'}
_FRAME_SAMPLES = 1 << 16
_MAX_PLAUSIBLE_CHANNELS = 64
"""With more channels than this, and than samples, an array probably has shape (channels, time)."""

_TO_INT16 = "({} * 32768).round().clip(-32768, 32767).astype('int16')"
"""Advice: converts floats from -1 to 1, exactly if they were int16 before."""


class _Encodable(NamedTuple):
    """The samples that a format can store."""

    dtypes: tuple[str, ...]
    max_channels: int
    max_rate: int = 2**31 - 1


_ENCODABLE = {
    'wav': _Encodable(('int16', 'int32', 'float32', 'float64'), 65_535),
    'flac': _Encodable(('int16', 'int32'), 8, 655_350),
    'opus': _Encodable(('int16', 'float32'), 2),
}


def checked_samples(value: Any, format: str) -> tuple[Samples, int]:
    """Checks a value for `wav`, `flac` or `opus`. Returns its samples, shape (time, channels), and its rate.

    Raises:
        TypeError: The value is not a pair, or the format cannot store the dtype of the samples.
        ValueError: The samples have another shape, or the format cannot store the rate.
    """
    dtypes, max_channels, max_rate = _ENCODABLE[format]
    if not isinstance(value, tuple | list) or len(value) != 2:
        samples_of_audio = 'audio[:]' if 'float32' in dtypes else _TO_INT16.format('audio[:]')
        advice = f': pass ({samples_of_audio}, audio.rate)' if hasattr(type(value), 'rate') else ''
        raise TypeError(f'expected a pair of samples and rate, got {type(value).__name__}{advice}')
    samples = as_array(value[0])
    if samples.dtype.name not in dtypes:
        converted = "samples.astype('float32')" if 'float32' in dtypes else _TO_INT16.format('samples')
        advice = f': pass {converted}' if samples.dtype.kind == 'f' else ''
        raise TypeError(f'expected samples of {" or ".join(dtypes)}, got {samples.dtype}{advice}')
    samples = samples[:, None] if samples.ndim == 1 else samples
    if samples.ndim == 2 and samples.shape[1] > max(_MAX_PLAUSIBLE_CHANNELS, samples.shape[0]):
        raise ValueError(
            f'expected samples of shape (time, channels), got {samples.shape}, which looks like (channels, '
            'time): pass samples.T'
        )
    if samples.ndim != 2 or not 1 <= samples.shape[1] <= max_channels:
        raise ValueError(
            f'expected samples of shape (time, 1 to {max_channels} channels), got {samples.shape}'
        )
    try:
        rate = operator.index(value[1])
    except TypeError:
        raise TypeError(f'expected the rate as an integer, got {type(value[1]).__name__}') from None
    if not 1 <= rate < 2**31 or isinstance(value[1], bool):
        raise ValueError(f'expected a rate of 1 or more samples a second, got {value[1]}')
    if rate > max_rate:
        raise ValueError(f'expected a rate of at most {max_rate} Hz, got {rate}')
    if format == 'flac' and samples.dtype == np.int32 and (samples & 0xFF).any():
        raise ValueError('expected int32 samples whose lower 8 bits are 0: FLAC stores 24 bits')
    return samples, rate


def sample_format(samples: Samples) -> dict[str, str]:
    """Returns FFmpeg's names for the sample format and the channel layout."""
    return {'format': _SAMPLE_FORMATS[samples.dtype.name], 'layout': _CHANNEL_LAYOUTS[samples.shape[1] - 1]}


def audio_frames(samples: Samples, rate: int, begin: int = 0) -> Iterator[Any]:
    """Yields samples as audio frames of libavutil. `begin` is the number of the first sample."""
    av = import_av()
    for start in range(0, len(samples), _FRAME_SAMPLES):
        block = np.ascontiguousarray(samples[start : start + _FRAME_SAMPLES])
        frame = av.AudioFrame.from_ndarray(block.reshape(1, -1), **sample_format(samples))
        frame.sample_rate, frame.pts = rate, begin + start
        yield frame


def resampled(blocks: Iterable[Samples], rate: int, new_rate: int) -> Iterator[Samples]:
    """Resamples blocks as one recording. The number of new samples covers the same time, rounded up."""
    resampler: Any = None
    input_count = count = 0
    for block in blocks:
        resampler = resampler or import_av().AudioResampler(**sample_format(block), rate=new_rate)
        for frame in audio_frames(block, rate, input_count):
            for out in resampler.resample(frame):
                count += out.samples
                yield frame_samples(out)
        input_count += len(block)
    if resampler is not None:
        total = -(-input_count * new_rate // rate)
        for out in resampler.resample(None):
            samples = frame_samples(out)[: total - count]
            count += len(samples)
            yield samples
        # For a single sample, the resampler returns no samples.
        yield np.zeros((total - count, *block.shape[1:]), block.dtype)
