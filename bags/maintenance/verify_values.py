"""Decoding what a bag holds, to see that it can be: together where that is quicker, and past what cannot."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from bags.bag.bag_file import BagFile
from bags.dataset.field import Field
from bags.errors import MissingDependencyError
from bags.indexing import Int64s
from bags.maintenance.verify_bag import Decode, one_by_one

__all__ = ['field_decode', 'record_decode']

SAMPLES = 1 << 16
"""Of a recording, in memory at a time."""


def record_decode(bag: BagFile) -> Decode:
    """Returns what reads the records of a bag, decompressed if they are compressed."""

    def decode(indices: Int64s) -> list[tuple[int, str]]:
        if bag.codec is None:
            return []  # There is nothing in them that could be wrong.
        try:
            bag.read(indices)
        except Exception:
            return one_by_one(bag.get, indices)
        return []

    return decode


def _parts(value: Any) -> Iterable[Any]:
    """Returns what a value decodes piece by piece: the frames of a film, the samples of a recording."""
    if hasattr(value, 'blocks'):
        return value.blocks(SAMPLES)  # type: ignore[no-any-return]
    return value if isinstance(value, Iterable) else ()


def field_decode(field: Field, large: bool) -> Decode:
    """Returns what decodes the records of a field.

    Args:
        field: The field.
        large: Values may be so much larger than their records that one in memory is enough.
    """
    if field.decoder.decode is None or field.decoder.decode is bytes:
        return record_decode(field.bag)

    def value(index: int) -> None:
        found = field.value(index)
        if field.decoder.lazy:
            for _ in _parts(found):  # All that a handle decodes only when it is asked for.
                pass

    def decode(indices: Int64s) -> list[tuple[int, str]]:
        try:
            if field.array(indices) is not None:
                return []
            if not large:
                field.decoded(indices)
                return []
        except MissingDependencyError:
            raise
        except Exception:
            return one_by_one(value, indices)
        return one_by_one(value, indices)

    return decode
