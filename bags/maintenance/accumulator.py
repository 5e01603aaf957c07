"""Moments and quantiles of many values in one pass, mergeable. No I/O."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

QUANTILES = (0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99)
VALUES_AT_ONCE = 1 << 16
"""Number of values in a block, which fits the processor's cache for several passes."""
BITS = {16: 16, 12: 512}
"""Bits of a bucket index, by the maximum number of elements of a value."""

Array = npt.NDArray[Any]


class Accumulator:
    """The moments and quantiles of values of one shape, element by element.

    Moments are sums in float64 around the mean of each block, merged as by Chan, Golub and LeVeque. For
    quantiles, values are counted in buckets by the upper bits of the float32 of their distance from a pivot.
    As in an HDR histogram, the width of a bucket is a fixed fraction of its distance.

    Args:
        pivot: A value near the median, shape (elements,). Merging needs accumulators with the same pivot.
    """

    def __init__(self, pivot: Array) -> None:
        self.pivot = np.nan_to_num(pivot.astype(np.float64), posinf=0.0, neginf=0.0)
        elements = len(self.pivot)
        self.count = np.zeros(elements, np.int64)
        self.nans = np.zeros(elements, np.int64)
        self.infinities = np.zeros(elements, np.int64)
        self.low = np.full(elements, np.inf)
        self.high = np.full(elements, -np.inf)
        self.mean = np.zeros(elements)
        """Means relative to the pivot, so that a large offset costs no precision."""
        self.squares = np.zeros(elements)
        """Sums of the squares of distances from the mean."""
        self.bits = next((bits for bits, max_elements in BITS.items() if elements <= max_elements), 0)
        """Number of upper bits of a float32, sign included, that determine its bucket; 0 without buckets."""
        self._buckets = np.zeros((elements, 1 << self.bits) if self.bits else (0, 0), np.int64)
        self._pending: list[Array] = []
        self._pending_count = 0

    @property
    def quantile_error(self) -> float:
        """Maximum error of a quantile, relative to its distance from the pivot; NaN without quantiles."""
        return 2.0 ** -(self.bits - 8) if self.bits else float('nan')

    def add(self, values: Array) -> None:
        """Adds values, shape (n, elements)."""
        rows = max(1, VALUES_AT_ONCE // max(1, values.shape[1]))
        with np.errstate(invalid='ignore'):  # The deviation of infinite values is NaN.
            for start in range(0, len(values), rows):
                self._add_block(values[start : start + rows])

    def _add_block(self, values: Array) -> None:
        columns = np.ascontiguousarray(values.T)  # Numpy reduces long rows faster than short ones.
        wide = columns - self.pivot[:, None]
        counts = np.full(len(self.count), columns.shape[1], np.int64)
        low, high = columns.min(1), columns.max(1)
        self._count_buckets(wide)
        missing: Any = np.isnan(columns) if np.isnan(low).any() else None
        if missing is not None:
            low, high = np.nanmin(columns, 1, initial=np.inf), np.nanmax(columns, 1, initial=-np.inf)
            self.nans += missing.sum(1)
            counts -= missing.sum(1)
            wide[missing] = 0.0
        if not (np.isfinite(low) & np.isfinite(high)).all():
            self.infinities += np.isinf(columns).sum(1)
        means = wide.sum(1) / np.maximum(counts, 1)
        wide -= means[:, None]
        if missing is not None:
            wide[missing] = 0.0
        self._merge(counts, low, high, means, np.einsum('ij,ij->i', wide, wide))

    def _merge(self, counts: Array, low: Array, high: Array, means: Array, squares: Array) -> None:
        np.minimum(self.low, low, out=self.low)
        np.maximum(self.high, high, out=self.high)
        total = self.count + counts
        shift = means - self.mean
        share = np.divide(counts, total, out=np.zeros(len(total)), where=total > 0)
        self.mean = self.mean + np.where(counts > 0, shift * share, 0.0)
        self.squares += squares + np.where(counts > 0, shift * shift * self.count * share, 0.0)
        self.count = total

    def _count_buckets(self, wide: Array) -> None:
        if self.bits:
            upper = wide.astype('<f4').view('<u2')[:, 1::2]
            self._pending.append(upper >> np.uint16(16 - self.bits))
            self._pending_count += wide.shape[1]
            if self._pending_count >= 2 << self.bits:
                self.buckets()

    def buckets(self) -> Array:
        """Returns the number of values in each bucket, shape (elements, buckets)."""
        if self._pending:
            for element, column in enumerate(np.concatenate(self._pending, 1)):
                self._buckets[element] += np.bincount(column, minlength=1 << self.bits)
            self._pending, self._pending_count = [], 0
        return self._buckets

    def merge(self, other: Accumulator) -> None:
        """Adds the values of another accumulator with the same pivot."""
        self.nans += other.nans
        self.infinities += other.infinities
        with np.errstate(invalid='ignore'):
            self._merge(other.count, other.low, other.high, other.mean, other.squares)
        self._buckets += other.buckets()
        self.buckets()

    def std(self) -> Array:
        """Returns standard deviations, as `numpy.std`."""
        variances: Array = self.squares / np.maximum(self.count, 1)
        return np.sqrt(variances)

    def quantiles(self) -> Array:
        """Returns the `QUANTILES`, shape (quantiles, elements); NaN for elements without values."""
        result: Array = np.full((len(QUANTILES), len(self.count)), np.nan)
        for element, values, counts in self._distributions():
            ranks = np.array(QUANTILES) * (self.count[element] - 1)
            result[:, element] = values[np.cumsum(counts).searchsorted(ranks, 'right')]
        return result

    def histogram(self, bins: int) -> Array:
        """Returns the number of values in ranges of equal width from the minimum to the maximum.

        Shape (elements, bins). Accurate to the width of a bucket.
        """
        result = np.zeros((len(self.count), bins), np.int64)
        for element, values, counts in self._distributions():
            low, high = self.low[element], self.high[element]
            if np.isfinite([low, high]).all():
                positions = (values - low) * bins / max(high - low, np.finfo(float).tiny)
                result[element] = np.bincount(np.minimum(positions, bins - 1).astype(np.int64), counts, bins)
        return result

    def _distributions(self) -> Iterator[tuple[int, Array, Array]]:
        """Yields each element that has values, with approximate values in increasing order and their counts.

        The value of a bucket is its middle, limited to the minimum and maximum of the element.
        """
        if not self.bits:
            return
        shift = 32 - self.bits
        starts = np.arange(1 << self.bits, dtype=np.uint32) << np.uint32(shift)
        with np.errstate(invalid='ignore'):  # Some are NaN.
            middles = (starts + np.uint32(1 << shift - 1)).view(np.float32).astype(np.float64)
        middles[0] = middles[len(middles) // 2] = 0.0
        # Infinite values and NaNs have all bits of the exponent set; NaNs also have bits of the fraction.
        infinite = np.isinf(starts.view(np.float32))
        middles[infinite] = starts[infinite].view(np.float32)
        order = np.argsort(middles)[: np.count_nonzero(~np.isnan(middles))]
        for element in np.flatnonzero(self.count).tolist():
            values = middles[order] + self.pivot[element]
            yield element, values.clip(self.low[element], self.high[element]), self.buckets()[element, order]
