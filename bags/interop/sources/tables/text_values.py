"""Conversion of texts, numbers and lists to values of a field type."""

from __future__ import annotations

import contextlib
import decimal
import re
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from bags.arrow.types import element_type, import_pyarrow
from bags.dataset.format.spec import FieldType
from bags.formats.arrays import array_type, is_small_float
from bags.formats.trees import check_json

MAX_EXACT = 1 << 53
"""The largest integer up to which floats hold all integers."""
_INTEGER_TEXT = re.compile(r'[-+]?\d+')
_HEX_TEXT = re.compile(r'[-+]?0[xX][0-9a-fA-F]+')
_FLOAT_TEXT = re.compile(r'[-+]?((\d+\.?\d*|\.\d+)([eE][-+]?\d+)?|inf|infinity|nan)', re.IGNORECASE)
_BOOLS = {'true': True, '1': True, 'false': False, '0': False}
_NULLS = {
    '', '#N/A', '#N/A N/A', '#NA', '-1.#IND', '-1.#QNAN', '-NaN', '-nan', '1.#IND', '1.#QNAN', 'N/A', 'NA',
    'NULL', 'NaN', 'n/a', 'nan', 'null',
}  # fmt: skip
"""Texts that mean a missing value in columns of other types than text, as for Arrow."""


def convert_each(values: Iterable[Any], convert: Callable[[Any], Any]) -> list[Any]:
    """Converts values, except None; errors replace values that cannot be converted."""
    converted: list[Any] = []
    for value in values:
        try:
            converted.append(None if value is None else convert(value))
        except (ValueError, TypeError, OverflowError, RecursionError) as exc:
            converted.append(exc)
    return converted


def text_converter(field_type: FieldType) -> Callable[[str], Any]:
    """Returns the function that converts the text of a value of CSV to a value of a field."""
    format, is_optional, array = field_type.format, field_type.optional, array_of(field_type)
    kind = {'float': 'f', 'bool': 'b'}.get(format, 'i') if array is None else array[0].kind

    def convert(text: str) -> Any:
        if format in ('utf8', 'bytes', 'json'):
            if not text and is_optional:
                return None
            if format == 'utf8':
                return text
            if format == 'json':
                if not text:
                    raise ValueError('expected JSON, got an empty value; json? takes it as missing')
                check_json(text)
            return text.encode()
        word = text.strip()
        is_nan = kind == 'f' and not is_optional and word.lower() == 'nan'
        if word in _NULLS and not is_nan:
            return None
        value: Any = word  # The text of a time.
        if kind == 'f':
            value = float(_expect_text(word, _FLOAT_TEXT, 'a number'))
        elif kind in 'iu':
            value = integer_of(word)
        elif kind == 'b':
            if word.lower() not in _BOOLS:
                raise ValueError(f'expected true, false, 1 or 0, got {text!r:.80}')
            value = _BOOLS[word.lower()]
        return value if array is None else to_array(value, array[0])

    return convert


def array_of(field_type: FieldType) -> tuple[np.dtype[Any], tuple[int, ...]] | None:
    """Returns the dtype and shape of arrays of numbers or times; None for other types."""
    array = array_type(*field_type.args) if field_type.format == 'array' else None
    return array if array and array[0].kind in 'biufM' and not is_small_float(array[0]) else None


def to_array(value: Any, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """Converts a number, nested lists of numbers, or the text of a time.

    Raises:
        ValueError: The value is of another type, or not exact as an integer or a time.
    """
    if dtype.kind == 'M':
        return _time(value, dtype)
    array = np.asarray(value)
    if array.dtype.kind not in 'biuf':
        raise ValueError(f'expected numbers, got {value!r:.80}')
    with np.errstate(all='ignore'):
        converted = array.astype(dtype)
    if dtype.kind != 'f' and not np.array_equal(converted, array):
        raise ValueError(f'expected {dtype}, got {value!r:.80}')
    return converted


def _time(text: Any, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """Converts the text of a time, with a zone to UTC."""
    pa = import_pyarrow()
    type = element_type(dtype)
    if isinstance(text, str):
        for each in (type, pa.timestamp(type.unit, 'UTC')) if pa.types.is_timestamp(type) else (type,):
            with contextlib.suppress(pa.ArrowInvalid):
                return np.asarray(pa.scalar(text).cast(each).value, 'i8').astype(dtype)
    raise ValueError(f'expected a time as {dtype}, got {text!r:.80}')


def integer_of(text: str) -> int:
    """Returns the integer of a text with decimal digits, or with hexadecimal digits after `0x`."""
    if _HEX_TEXT.fullmatch(text):
        return int(text, 16)
    return int(_expect_text(text, _INTEGER_TEXT, 'an integer'))


def _expect_text(text: str, pattern: re.Pattern[str], what: str) -> str:
    if pattern.fullmatch(text) is None:
        raise ValueError(f'expected {what}, got {text!r:.80}')
    return text


def is_exact(text: str) -> bool:
    """Returns whether a float holds an integer, up to the digits with which the float is written."""
    return decimal.Decimal(repr(float(text))) == decimal.Decimal(text)
