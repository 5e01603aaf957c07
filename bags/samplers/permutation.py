"""A shuffled order of any length that takes no memory: where each position leads is computed, not looked up.

A Feistel network over pairs: position p becomes (p // b, p % b), one half and then the other is turned
around its circle by an amount that is a hash of its sibling, and the pair is put together again. Each turn
can be undone, so the whole is a bijection of range(a * b). With a and b near the root of the length, a * b
exceeds the length by less than its root; what lands beyond goes through again until it does not (cycle
walking), which keeps it a bijection.

    position        11 of 12 = 3 * 4
    pair            (2, 3)
    turns           2 + hash(3) mod 3, then 3 + hash(that) mod 4, and so on: (0, 2)
    index           0 * 4 + 2 = 2
"""

from __future__ import annotations

import hashlib
import math

import numpy as np
import numpy.typing as npt

from bags.indexing import Int64s

__all__ = ['MOST', 'Permutation', 'hashed', 'keys_of']

UInt64s = npt.NDArray[np.uint64]

MOST = 2**63 - 1
"""The longest order."""
TURNS = 6
SHORT, MORE_TURNS = 1 << 12, 16  # Halves this small need more turns until all orders are equally likely.
BLOCK = 1 << 12  # Positions that are worked on together: the three arrays of a block stay in the cache.
HALF = np.uint64(32)
FIRST, SECOND = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xD6E8FEB86659FD93)


def keys_of(count: int, *words: int) -> UInt64s:
    """Returns numbers that integers of any size determine, shape (count,)."""
    text = ','.join(str(int(word)) for word in words).encode()
    return np.frombuffer(hashlib.shake_128(text).digest(8 * count), '<u8').astype(np.uint64)


class Permutation:
    """A bijection of range(length), one for each choice of words.

    Args:
        length: Up to 2⁶³ - 1.
        *words: Integers: a seed, an epoch.
    """

    def __init__(self, length: int, *words: int) -> None:
        if not 0 <= length <= MOST:
            raise ValueError(f'length: expected 0 to {MOST}, got {length}')
        self.length = length
        left = math.isqrt(max(0, length - 1)) + 1
        self._sizes = np.array([left, max(1, -(-length // left))], np.uint64)
        self._keys = keys_of(TURNS if length > SHORT else MORE_TURNS, *words)

    def __len__(self) -> int:
        return self.length

    def __call__(self, positions: Int64s) -> Int64s:
        """Returns the indices at positions, each in range(length): int64, of the same shape."""
        flat = np.ascontiguousarray(positions, np.int64).reshape(-1)
        found = np.empty(len(flat), np.int64)
        for start in range(0, len(flat), BLOCK):
            block = self._turn(flat[start : start + BLOCK].astype(np.uint64))
            # Beyond the length at most one in its root is.
            while np.count_nonzero(beyond := block >= self.length):
                block[beyond] = self._turn(block[beyond])
            found[start : start + BLOCK] = block.view(np.int64)
        return found.reshape(np.shape(positions))

    def _turn(self, values: UInt64s) -> UInt64s:
        """Does all turns of a block, in 11 passes each: 20 to 45 ns a position."""
        width = self._sizes[1]
        left: UInt64s = values // width
        right = values
        right -= left * width
        mixed = np.empty_like(left)
        spare = np.empty_like(left)
        for turn, key in enumerate(self._keys):
            size = self._sizes[turn & 1]
            # The top 32 bits of a hash of the one half, scaled to the size of the other.
            np.bitwise_xor(right, key, out=mixed)
            np.multiply(mixed, FIRST, out=mixed)
            np.right_shift(mixed, HALF, out=spare)
            np.bitwise_xor(mixed, spare, out=mixed)
            np.multiply(mixed, SECOND, out=mixed)
            np.right_shift(mixed, HALF, out=mixed)
            np.multiply(mixed, size, out=mixed)
            np.right_shift(mixed, HALF, out=mixed)
            np.add(left, mixed, out=left)
            # It is less than twice the size now; less the size it may wrap around, and then be the larger.
            np.subtract(left, size, out=spare)
            np.minimum(left, spare, out=left)
            left, right = right, left
        left *= width
        np.add(left, right, out=left)
        return left


def hashed(positions: Int64s, length: int, *words: int) -> Int64s:
    """Returns an index in range(length) for each position, drawn with replacement."""
    first, second = keys_of(2, *words)
    mixed = positions.astype(np.uint64)
    for key in (first, second):
        mixed ^= key
        mixed *= FIRST
        mixed ^= mixed >> HALF
        mixed *= SECOND
        mixed ^= mixed >> HALF
    mixed %= np.uint64(length)
    return mixed.view(np.int64)
