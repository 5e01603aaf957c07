"""`bags.Link`: a value for writers that refers to a byte range of another file instead of a copy."""

from __future__ import annotations

import dataclasses
import operator
import os
from collections.abc import Callable
from typing import Any

from bags.links.rows import MAX_OFFSET
from bags.storage import plain_path
from bags.validation import at_least, at_least_or_none

MIN_LINKED_BYTES = 256
"""Mean bytes of records above which `link=True` links a field."""


@dataclasses.dataclass(frozen=True, slots=True)
class Link:
    """A byte range of another file, as the value of a record, for writers with `linked_fields=(FIELD, …)`.

    The bytes are not copied: the file must exist for as long as the dataset is read.

    Args:
        path: The file: a path, relative to the working directory, or a URL.
        offset: The first byte of the record.
        length: Number of bytes of the record; None for all bytes up to the end of the file.
        times: Start and end, in seconds, of a part of a video or recording: the frames or samples whose times
            are in [start, end), as returned by `between` of a video. They are looked up when the link is
            written. For fields of type `video` and `audio`.
        frames: First frame or sample and end (exclusive) of such a part, in place of `times`. Compared with
            the video only when it is read.

    Raises:
        TypeError, ValueError: `path` is not a path, `offset` or `length` is below 0, or `times` or `frames`
            is not a start before an end.

    Examples:
        >>> with bags.DatasetWriter('linked', {'photo': 'jpeg'}, linked_fields=['photo']) as writer:
        ...     writer.append({'photo': bags.Link('photos/cats/000.jpg')})
        0
        >>> bags.open('linked', trust_links='photos')[0]['photo'].shape
        (48, 64, 3)
    """

    path: str | os.PathLike[str]
    offset: int = 0
    length: int | None = None
    times: tuple[float, float] | None = None
    frames: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        path = plain_path(self.path)
        if not isinstance(path, str | os.PathLike) or not os.fspath(path):
            raise TypeError(
                f'Link: expected the path of a file, got {self.path!r:.200}; records of a dataset are linked '
                'by dataset.save(path, link=True)'
            )
        object.__setattr__(self, 'path', os.fspath(path))
        object.__setattr__(self, 'offset', at_least('offset', self.offset, 0))
        object.__setattr__(self, 'length', at_least_or_none('length', self.length, 0))
        if self.offset + (self.length or 0) > MAX_OFFSET:
            raise ValueError(f'Link: expected a range below 2**63, got {self!r:.200}')
        if self.times is not None and self.frames is not None:
            raise TypeError('Link: expected either times or frames, got both')
        for name, value, convert in (('times', self.times, float), ('frames', self.frames, operator.index)):
            if value is not None:
                object.__setattr__(self, name, _pair(name, value, convert))


def _pair(name: str, value: Any, convert: Callable[[Any], Any]) -> tuple[Any, Any]:
    try:
        start, stop = map(convert, value)
    except (TypeError, ValueError):
        raise TypeError(f'Link: {name}: expected a start and an end, got {value!r:.80}') from None
    if not start < stop or (name == 'frames' and not 0 <= start < stop <= MAX_OFFSET):
        raise ValueError(f'Link: {name}: expected a start before its end, got {value!r:.80}')
    return start, stop
