"""Orders whose weights a run changes: from a position on, so that earlier positions stay the same. No I/O."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol, Self, runtime_checkable

import numpy as np
import numpy.typing as npt

from bags.indexing import Int64s
from bags.samplers.orders import Sampler
from bags.validation import item_count

Weights = npt.NDArray[np.float64]


class Change(NamedTuple):
    """Weights that hold from a position on."""

    weights: Weights
    digest: str
    """32 hexadecimal digits: the state of a run has them instead of the weights."""


@runtime_checkable
class ChangesWeights(Sampler, Protocol):
    """A sampler whose weights a run may change. Positions are counted over all epochs."""

    changes: Mapping[int, Change]
    """The changes by the position from which they hold, sorted."""

    @property
    def initial(self) -> Self:
        """The order without changes."""
        ...

    def with_weights(self, position: int, weights: Any) -> Self:
        """Returns this order with other weights from a position on, up to the next change.

        Raises:
            ValueError, TypeError: As the class, for such weights.
        """
        ...


def positions_of_run(epoch: int, positions: Int64s, samples: int) -> Int64s:
    """Returns positions of an epoch as positions over all epochs.

    Raises:
        ValueError: A position over all epochs is 2^62 or more.
    """
    return positions + item_count(f'epoch {epoch}: position', int(epoch) * samples, 0)


def as_weights(weights: Any) -> Weights:
    """Returns weights as an array of their own: what a file stores, and the digest is of."""
    array = np.asarray(weights)
    if array.ndim != 1 or (array.dtype.kind not in 'biuf' and len(array)):
        raise TypeError(
            f'weights: expected one dimension of numbers, got {array.ndim} dimensions of {array.dtype}'
        )
    return array.astype(np.float64)


def with_change(changes: Mapping[int, Change], position: int, weights: Weights) -> dict[int, Change]:
    """Returns changes with one more, or with another one at its position."""
    return dict(sorted({**changes, position: Change(weights, digest_of_weights(weights))}.items()))


def digest_of_weights(weights: Weights) -> str:
    """Returns a digest of weights: 32 hexadecimal digits."""
    return hashlib.blake2b(weights.astype('<f8').tobytes(), digest_size=16).hexdigest()
