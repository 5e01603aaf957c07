"""A pseudorandom permutation of any length, computed position by position, without memory.

A Feistel network over pairs: position p becomes (p // b, p % b); in each round, a hash of one half is added
to the other, modulo its size; then the pair is joined again. Each round is invertible, so the network is a
bijection of range(a * b). With a and b near the square root of the length, a * b exceeds the length by less
than the root. Results beyond the length are permuted again until they are below it (cycle walking).

    position        11 of 12 = 3 * 4
    pair            (2, 3)
    rounds          2 + hash(3) mod 3, then 3 + hash(that) mod 4, and so on: (0, 2)
    index           0 * 4 + 2 = 2
"""

from __future__ import annotations

import functools
import hashlib
import math

import numpy as np
import numpy.typing as npt

from bags.indexing import Int64s

UInt64s = npt.NDArray[np.uint64]

MAX_LENGTH = 2**63 - 1
ROUNDS = 6
SHORT_LENGTH, SHORT_ROUNDS = 1 << 12, 16  # Small halves need more rounds to make all orders equally likely.
BLOCK_POSITIONS = 1 << 12  # Positions permuted together: their arrays fit the CPU cache.
HALF_BITS = np.uint64(32)
FACTOR_1, FACTOR_2 = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xD6E8FEB86659FD93)


def keys_from(count: int, *words: int) -> UInt64s:
    """Returns pseudorandom numbers that depend on integers of any size, shape (count,)."""
    text = ','.join(map(str, map(int, words))).encode()
    return np.frombuffer(hashlib.shake_128(text).digest(8 * count), '<u8').astype(np.uint64)


def permuted(positions: Int64s, length: int, *words: int) -> Int64s:
    """Returns the indices at positions of a permutation of range(length), int64 of the same shape.

    Args:
        positions: From 0 to `length`.
        length: Up to 2⁶³ - 1.
        *words: Integers that choose the permutation, e.g. a seed and an epoch.
    """
    if not 0 <= length <= MAX_LENGTH:
        raise ValueError(f'length: expected 0 to {MAX_LENGTH}, got {length}')
    if length <= SHORT_LENGTH:
        return _short_order(length, *words)[positions].astype(np.int64)
    sizes, keys = _sizes(length), keys_from(ROUNDS, *words)
    indices = np.array(positions, np.int64).reshape(-1)
    for start in range(0, len(indices), BLOCK_POSITIONS):
        block = indices[start : start + BLOCK_POSITIONS].view(np.uint64)
        chosen: slice | npt.NDArray[np.bool_] = slice(None)
        while len(values := block[chosen]):
            block[chosen] = _network(values, sizes, keys)
            # Of n positions, at most about sqrt(n) lie beyond the length.
            chosen = block >= length
    return indices.reshape(np.shape(positions))


@functools.lru_cache(maxsize=1024)
def _short_order(length: int, *words: int) -> npt.NDArray[np.uint16]:
    """Returns a whole permutation of at most `SHORT_LENGTH` indices, in 8 KB.

    Cached, because samplers request the same order repeatedly, e.g. a mixture for each of its datasets: a
    step of a loader over four small datasets of vectors takes 35 us, and 45 us without the cache.
    """
    sizes = _sizes(length)
    image = _network(np.arange(sizes.prod(), dtype=np.uint64), sizes, keys_from(SHORT_ROUNDS, *words))
    order = image[:length]
    while (beyond := order >= length).any():
        order[beyond] = image[order[beyond]]
    return order.astype(np.uint16)


def _sizes(length: int) -> UInt64s:
    """Returns the sizes of the two halves."""
    root = math.isqrt(max(0, length - 1)) + 1
    return np.array([root, max(1, -(-length // root))], np.uint64)


def _network(values: UInt64s, sizes: UInt64s, keys: UInt64s) -> UInt64s:
    """Permutes values below the product of the sizes, with one round for each key."""
    left, right = np.divmod(values, sizes[1])
    for number, key in enumerate(keys):  # 20 to 80 ns a position.
        size = sizes[number & 1]
        mixed = (right ^ key) * FACTOR_1
        mixed = (mixed ^ mixed >> HALF_BITS) * FACTOR_2
        # The top 32 bits of the hash, scaled to the size of the other half.
        moved = left + ((mixed >> HALF_BITS) * size >> HALF_BITS)
        # Modulo the size, as `moved < 2 * size`: if `moved < size`, the difference wraps to a huge value.
        left, right = right, np.minimum(moved, moved - size)
    permuted_values: UInt64s = left * sizes[1] + right
    return permuted_values


def hashed(positions: Int64s, length: int, *words: int) -> Int64s:
    """Returns an index in range(length) for each position, drawn with replacement."""
    mixed = positions.astype(np.uint64)
    for key in keys_from(2, *words):
        mixed ^= key
        mixed *= FACTOR_1
        mixed ^= mixed >> HALF_BITS
        mixed *= FACTOR_2
        mixed ^= mixed >> HALF_BITS
    mixed %= np.uint64(length)
    return mixed.view(np.int64)
