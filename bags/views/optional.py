"""Fields that are optional in a view only, as some of its datapoints come from datasets without them."""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection
from typing import Any

from bags.dataset.address import divide_fields
from bags.dataset.batch import Column
from bags.dataset.field import Field
from bags.dataset.selection import Selection
from bags.dataset.spec import as_optional
from bags.indexing import Int64s


class OptionalReader:
    """A folder reader some of whose fields are optional, as other datapoints of a view have no values."""

    def __init__(self, reader: Any, names: Collection[str]) -> None:
        self._reader = reader
        self._names = names

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reader, name)

    def read_selection(
        self, rows: Int64s, selection: Selection, read: Callable[..., Column]
    ) -> dict[str, Column]:
        optional, rest = divide_fields(selection, self._names)
        columns: dict[str, Column] = self._reader.read_selection(
            rows, optional, lambda field, *asked: read(optional_field(field), *asked)
        )
        if rest:
            columns |= self._reader.read_selection(rows, rest, read)
        return columns


def optional_field(field: Field) -> Field:
    """Returns a field that may have missing values."""
    field = copy.copy(field)
    field.type = as_optional(field.type)
    return field
