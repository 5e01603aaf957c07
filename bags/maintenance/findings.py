"""What `bags.verify` reports: damage, and notes about what is no damage."""

from __future__ import annotations

import dataclasses

__all__ = ['Damage', 'Finding', 'Note']


@dataclasses.dataclass(frozen=True, slots=True)
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
        record = '' if self.record is None else f', record {self.record}'
        return f'{_where(self.path, self.field)}{record}: {self.detail}'


@dataclasses.dataclass(frozen=True, slots=True)
class Note:
    """Something worth knowing that is no damage, such as a bag without its final limits or unused records."""

    path: str
    field: str | None
    detail: str

    def __str__(self) -> str:
        return f'{_where(self.path, self.field)}: {self.detail}'


Finding = Damage | Note


def _where(path: str, field: str | None) -> str:
    return path if field is None else f'{path}, field {field!r}'
