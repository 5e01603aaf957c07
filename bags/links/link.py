"""`bags.Link`: the value of a record that stays where it is, for writers."""

from __future__ import annotations

import dataclasses
import os

from bags.links.rows import MAX_OFFSET
from bags.storage import plain_path
from bags.validation import at_least, at_least_or_none


@dataclasses.dataclass(frozen=True, slots=True)
class Link:
    """A record that is a range of bytes of another file, as a value for writers with `links=(FIELD, …)`.

    The record is not copied: the dataset needs the file for as long as it is read.

    Args:
        path: The file: a path, relative to the working directory, or a URL.
        offset: The first byte of the record.
        length: Bytes of the record; None for all up to the end of the file.

    Raises:
        TypeError, ValueError: Not a path, or an offset or length below 0.
    """

    path: str | os.PathLike[str]
    offset: int = 0
    length: int | None = None

    def __post_init__(self) -> None:
        path = plain_path(self.path)
        if not isinstance(path, str | os.PathLike) or not os.fspath(path):
            raise TypeError(f'Link: expected the path of a file, got {self.path!r:.200}')
        object.__setattr__(self, 'path', os.fspath(path))
        object.__setattr__(self, 'offset', at_least('offset', self.offset, 0))
        object.__setattr__(self, 'length', at_least_or_none('length', self.length, 0))
        if self.offset + (self.length or 0) > MAX_OFFSET:
            raise ValueError(f'Link: expected a range below 2**63, got {self!r:.200}')
