"""Which samples of a recording a manifest means, by seconds. No I/O."""

from __future__ import annotations

import math
from typing import NamedTuple

TOLERANCE = 0.025
"""Seconds by which a part may end after its recording, as times in manifests are rounded; as in Lhotse."""
MAX_SECONDS = 1e9
"""The latest time, which is longer than any recording."""
DIGITS = 8
"""Digits to which Lhotse rounds seconds, and products of seconds and rates."""


class SoundLength(NamedTuple):
    """The length of a recording."""

    samples: int
    """Samples of each channel."""
    rate: int
    """Samples per second."""

    def clip(self, first: int, count: int) -> tuple[int, int]:
        """Returns the range (start, stop) of samples of a part; a part may end `TOLERANCE` too late.

        Raises:
            ValueError: The part is empty, or not in the recording.
        """
        stop = min(first + count, self.samples)
        if count < 1 or first >= self.samples or first + count > self.samples + TOLERANCE * self.rate:
            first_second, last_second = first / self.rate, (first + count) / self.rate
            raise ValueError(
                f'expected a part of the {self.samples / self.rate:.6g} s of the recording, got '
                f'{first_second:.6g} to {last_second:.6g} s'
            )
        return first, stop


def nemo_part(offset: float, duration: float, length: SoundLength) -> tuple[int, int]:
    """Returns the range (start, stop) of samples that NeMo reads: times are rounded down to samples.

    Args:
        offset: Start of the part, in seconds.
        duration: Length of the part, in seconds; 0 for the rest of the recording.
        length: The length of the recording.

    Raises:
        ValueError: The part is empty, or not in the recording.
    """
    first = int(offset * length.rate)
    count = int(duration * length.rate) if duration > 0 else length.samples - first
    return length.clip(first, count)


def lhotse_samples(seconds: float, rate: int) -> int:
    """Returns the number of samples of a time, rounded as `compute_num_samples`: half a sample rounds up."""
    return math.floor(round(seconds * rate, DIGITS) + 0.5)
