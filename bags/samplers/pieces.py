"""`Pieces`: datapoints, or parts of them, at the positions of a sampler."""

from __future__ import annotations

import dataclasses

import numpy as np
import numpy.typing as npt

from bags.dataset.reading.batch import Ragged, concat_ranges
from bags.indexing import Int64s, offsets_of

TO_END = UNKNOWN = -1


@dataclasses.dataclass(eq=False, kw_only=True)
class Pieces(Ragged):
    """Datapoints at each position of which a loader reads a part, as `take` of a sampler may return them.

    `values` are the datapoints of all positions, concatenated, and `offsets` the first one of each position.

    Examples:
        >>> bags.samplers.Pieces(
        ...     np.array([3, 3]),
        ...     np.array([0, 1, 2]),
        ...     starts=np.array([0, 4]),
        ...     stops=np.array([4, -1]),
        ... )
        Pieces(2 positions, 2 datapoints)
    """

    starts: Int64s
    """The first element of each datapoint to read, shape (n,)."""
    stops: Int64s
    """The end of the elements to read, shape (n,); -1 for the end of the datapoint."""
    element_counts: Int64s | None = None
    """The number of elements of each datapoint, shape (n,); -1 if it is not known. A field of a piece with
    another number of elements is an error."""

    @property
    def are_cut(self) -> npt.NDArray[np.bool_]:
        """Which pieces are not the whole datapoint, bool (n,)."""
        is_whole = self.stops == TO_END
        if self.element_counts is not None:
            is_whole |= self.stops == self.element_counts
        cut: npt.NDArray[np.bool_] = (self.starts != 0) | ~is_whole
        return cut

    def between(self, start: int, stop: int) -> Pieces:
        """Returns the pieces at the positions from `start` to `stop`."""
        offsets = self.offsets[start : stop + 1]
        rows = slice(int(offsets[0]), int(offsets[-1]))
        return self._of(rows, offsets - offsets[0])

    def at(self, rows: slice | npt.NDArray[np.bool_]) -> Pieces:
        """Returns some of the pieces, each at a position of its own."""
        return self._of(rows, np.arange(len(self.values[rows]) + 1))

    def _of(self, rows: slice | npt.NDArray[np.bool_], offsets: Int64s) -> Pieces:
        counts = None if self.element_counts is None else self.element_counts[rows]
        return Pieces(
            self.values[rows],
            offsets,
            starts=self.starts[rows],
            stops=self.stops[rows],
            element_counts=counts,
        )

    def __repr__(self) -> str:
        return f'Pieces({len(self)} positions, {len(self.values)} datapoints)'


def joined(parts: list[Pieces]) -> Pieces | None:
    """Returns the pieces at the positions of all parts, one part after the other; None without parts."""
    if not parts:
        return None
    counts = [part.element_counts for part in parts]
    known = [
        np.full(len(part.values), UNKNOWN) if count is None else count
        for part, count in zip(parts, counts, strict=True)
    ]
    return Pieces(
        np.concatenate([part.values for part in parts]),
        offsets_of(np.concatenate([part.lengths for part in parts])),
        starts=np.concatenate([part.starts for part in parts]),
        stops=np.concatenate([part.stops for part in parts]),
        element_counts=np.concatenate(known),
    )


def join_positions(parts: list[Int64s | Ragged], rows: list[Int64s], count: int) -> Int64s | Ragged:
    """Merges what samplers returned for some positions each.

    Args:
        parts: Datapoints, one a position or a `Ragged` of them, shape (n,).
        rows: The positions of each part in the result, together `range(count)`.
        count: Number of positions of the result.

    Returns:
        Datapoints, shape (count,). If a part is `Ragged`, a `Ragged`; if a part has pieces, `Pieces`.
    """
    if not any(isinstance(part, Ragged) for part in parts):
        indices = np.empty(count, np.int64)
        for part, where in zip(parts, rows, strict=True):
            indices[where] = np.asarray(part)
        return indices
    ragged = [part if isinstance(part, Ragged) else Ragged(part, np.arange(len(part) + 1)) for part in parts]
    counts = np.zeros(count, np.int64)
    for each, where in zip(ragged, rows, strict=True):
        counts[where] = each.lengths
    offsets = offsets_of(counts)
    where_to = [concat_ranges(offsets[where], each.lengths) for each, where in zip(ragged, rows, strict=True)]
    has_pieces = any(isinstance(part, Pieces) for part in ragged)
    values, starts, stops, element_counts = np.empty((4, int(offsets[-1])), np.int64)
    for each, where in zip(ragged, where_to, strict=True):
        values[where] = each.values
        if isinstance(each, Pieces):
            starts[where], stops[where] = each.starts, each.stops
            element_counts[where] = UNKNOWN if each.element_counts is None else each.element_counts
        else:
            starts[where], stops[where], element_counts[where] = 0, TO_END, UNKNOWN
    if not has_pieces:
        return Ragged(values, offsets)
    return Pieces(values, offsets, starts=starts, stops=stops, element_counts=element_counts)
