"""`TokenFile`: the documents in a file of tokens, as byte ranges; and the options that say what they are."""

from __future__ import annotations

import os
from typing import Literal, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from bags.indexing import Int64s
from bags.storage import File
from bags.validation import at_least_or_none, one_of

FIELD = 'tokens'
"""The field of the tokens of a document."""


class TokenOptions(NamedTuple):
    """What the user says about files of tokens; see `bags.convert`."""

    by: Literal['document', 'sequence'] = 'document'
    dtype: str | None = None
    end: int | None = None
    offsets: str | None = None
    length: int | None = None

    @property
    def given(self) -> dict[str, str | int]:
        """The options that are given, by name."""
        defaults = TokenOptions()._asdict()
        return {name: value for name, value in self._asdict().items() if value != defaults[name]}


NO_OPTIONS = TokenOptions()


def token_options(
    by: Literal['document', 'sequence'],
    dtype: str | None,
    end: int | None,
    offsets: str | os.PathLike[str] | None,
    length: int | None,
) -> TokenOptions:
    """Checks the options of `bags.convert` for files of tokens.

    Raises:
        TypeError, ValueError: An option is invalid, or several say where documents end.
    """
    one_of('by', by, ('document', 'sequence'))
    if dtype is not None:
        check_token_dtype(dtype)
    options = TokenOptions(
        by,
        dtype,
        at_least_or_none('end', end, 0),
        None if offsets is None else os.fspath(offsets),
        at_least_or_none('length', length, 1),
    )
    cuts = [name for name in ('end', 'offsets', 'length') if name in options.given]
    if len(cuts) > 1:
        raise ValueError(f'expected one of end, offsets and length, got {" and ".join(cuts)}')
    return options


def check_token_dtype(text: object) -> np.dtype[np.integer]:
    """Returns a dtype of integers, little-endian unless its name says otherwise.

    Raises:
        ValueError: It is not the name of such a dtype.
    """
    try:
        dtype = np.dtype(text) if isinstance(text, str) else None
    except TypeError:
        dtype = None
    if dtype is None or dtype.kind not in 'iu':
        raise ValueError(f"dtype: expected a dtype of integers, such as 'uint16', got {text!r:.80}")
    assert isinstance(text, str)
    return dtype if text[0] in '<>' else dtype.newbyteorder('<')


def type_of_tokens(dtype: np.dtype[np.generic]) -> str:
    """Returns the type of the field of tokens."""
    is_big = dtype.byteorder == '>' and dtype.itemsize > 1
    return f'array({dtype.str if is_big else dtype.newbyteorder("=").name},?)'


class Values(NamedTuple):
    """The records of a small field of consecutive documents."""

    data: bytes
    """The records, concatenated."""
    sizes: npt.NDArray[np.int64]
    """Bytes of each record."""


class TokenFile(Protocol):
    """A file of tokens, whose documents are byte ranges of it."""

    path: str
    """The path as the user gave it."""
    file: File
    """The open file."""
    dtype: np.dtype[np.generic]
    count: int
    """Number of documents, or of sequences."""
    tokens: int
    """Number of tokens of all documents."""
    spec: dict[str, str]
    """The types of the fields besides the tokens."""
    notes: list[str]

    def ranges(self, start: int, stop: int) -> tuple[Int64s, Int64s]:
        """Returns the first byte and the end of the documents from `start` to `stop`, each of shape (n,)."""
        ...

    def values(self, start: int, stop: int) -> dict[str, Values]:
        """Returns the records of the fields in `spec`."""
        ...
