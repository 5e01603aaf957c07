"""What a look over a dataset finds: damage, and what is worth knowing but none."""

from __future__ import annotations

import dataclasses

__all__ = ['Damage', 'Finding', 'Note']


@dataclasses.dataclass(frozen=True)
class Damage:
    """Something that cannot be right."""

    path: str
    """The file or folder."""
    field: str | None
    """The field it concerns, if any."""
    record: int | None
    """Index of the record in the file; None where it concerns the whole file."""
    detail: str
    """What was found, and what was expected."""

    def __str__(self) -> str:
        return f'{_where(self.path, self.field, self.record)}: {self.detail}'


@dataclasses.dataclass(frozen=True)
class Note:
    """Something that is no damage: what waits to be closed, records that nothing refers to."""

    path: str
    field: str | None
    detail: str

    def __str__(self) -> str:
        return f'{_where(self.path, self.field, None)}: {self.detail}'


Finding = Damage | Note


def _where(path: str, field: str | None, record: int | None) -> str:
    where = path if field is None else f'{path}, field {field!r}'
    return where if record is None else f'{where}, record {record}'
