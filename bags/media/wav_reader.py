"""`WavReader`: reads samples of a WAV by their numbers, without FFmpeg."""

from __future__ import annotations

from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from bags.formats.audio import find_samples, samples_of

Samples = npt.NDArray[np.float32]

LAYOUTS = ('', 'mono', 'stereo', '2.1', '4.0', '5.0', '5.1', '6.1', '7.1')
"""FFmpeg's names of the default channel layouts, by number of channels."""


class WavReader:
    """Reads an uncompressed WAV; only the accessed samples are read."""

    begin: float = 0.0
    """The time of the first sample, in seconds."""
    truncation: str | None = None
    """Description of the missing end of the file; None if the file is complete."""

    def __init__(self, file: BinaryIO) -> None:
        self.file = file
        self._format, self._start, stop = find_samples(file)
        self._stride = self._format[4]
        empty, self.rate = samples_of(memoryview(b''), *self._format)
        self.channels = empty.shape[1]
        has_name = self.channels < len(LAYOUTS)
        self.layout = LAYOUTS[self.channels] if has_name else f'{self.channels} channels'
        """FFmpeg's name of the channel layout."""
        self.length = (stop - self._start) // self._stride

    def close(self) -> None:
        """Closes the file."""
        self.file.close()

    def ranges(self, start: int, stop: int) -> list[tuple[int, int]]:
        """Returns the byte ranges to read for samples."""
        return [(self._start + start * self._stride, self._start + stop * self._stride)]

    def read(self, start: int, stop: int, exact: bool = False) -> Samples:
        """Returns samples, shape (stop - start, channels)."""
        self.file.seek(self._start + start * self._stride)
        data = self.file.read((stop - start) * self._stride)
        return as_float(samples_of(memoryview(data), *self._format)[0])


def as_float(samples: npt.NDArray[Any]) -> Samples:
    """Returns samples as float32 from -1 to 1."""
    floats = samples.astype(np.float32)
    if samples.dtype == np.uint8:
        floats -= 128
    if samples.dtype.kind in 'iu':
        floats *= np.float32(2.0 ** (1 - 8 * samples.dtype.itemsize))  # Exact: a power of two.
    return floats
