"""Values as a person wants to see them, and as JSON: facts of media, shapes of arrays, the rest in full."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, BinaryIO

import numpy as np

from bags.cli.facts import media_facts
from bags.cli.printing import byte_count
from bags.dataset.base import Dataset
from bags.dataset.open import open_with_known_decoders
from bags.dataset.registry import decoders
from bags.dataset.spec import FieldType
from bags.errors import BagsError

__all__ = [
    'Shown',
    'is_opaque',
    'open_for_show',
    'show_file',
    'show_record',
    'show_value',
    'to_json',
]

MEDIA = frozenset(
    [
        'jpeg',
        'jpg',
        'png',
        'webp',
        'avif',
        'mp4',
        'webm',
        'mkv',
        'video',
        'wav',
        'flac',
        'opus',
        'audio',
        'bytes',
    ]
)
"""Words whose records are looked at, and not decoded."""
LONGEST = 2000  # Characters of a value that people are shown.
ITEMS = 3  # Of a sequence of media, as many are described.
NUMBERS = 64  # Arrays of as many numbers are printed in JSON.


def open_for_show(path: str) -> Dataset:
    """Opens a dataset whose values can be shown, also those of types that only their author can decode."""
    return open_with_known_decoders(path, undecoded=MEDIA)


def is_opaque(kind: FieldType) -> bool:
    """Tells whether records of a type are looked at rather than decoded."""
    return kind.word in MEDIA or kind.word not in decoders


class Shown:
    """A value: `text` for people, `json` for programs."""

    def __init__(self, text: str, json: Any) -> None:
        self.text = text
        self.json = json


def show_value(dataset: Dataset, index: int, field: str) -> Shown:
    """Shows the value of a field; of what cannot be read, what is wrong with it."""
    kind = dataset._types[field]
    try:
        if not is_opaque(kind):
            value = dataset[index, field][field]
            said = items_text(value) if kind.sequence and value is not None else as_text(value)
            return Shown(said if len(said) <= LONGEST else f'{said[:LONGEST]}…', to_json(value))
        if kind.sequence:
            return _show_files(dataset, index, field)
        return show_file(dataset.file(index, field))
    except BagsError as exc:
        return Shown(f'{type(exc).__name__}: {exc}', {'error': str(exc)})
    except ValueError:
        if not kind.optional:
            raise
        return Shown('None', None)  # What `file` says of a value that is missing.


def _show_files(dataset: Dataset, index: int, field: str) -> Shown:
    if dataset[index, {field: range(0)}][field] is None:
        return Shown('None', None)
    count = int(dataset._lengths(np.array([index]), field)[0])
    found = [show_file(dataset.file(index, field, item)) for item in range(min(count, ITEMS))]
    more = '; …' if count > ITEMS else ''
    listed = '; '.join(shown.text for shown in found)
    return Shown(
        f'{count} items' + (f': {listed}{more}' if count else ''),
        {'items': count, 'first': [shown.json for shown in found]},
    )


def show_file(file: BinaryIO) -> Shown:
    """Shows a record that is open as a file, and closes it: facts of media, else how it begins."""
    with file:
        facts = media_facts(file)
        if facts['format'] is None and not facts.get('unreadable'):
            file.seek(0)
            return show_record(file.read(256), facts['bytes'])
    return Shown(facts_text(facts), facts)


def show_record(head: bytes, size: int) -> Shown:
    """Shows a record that is nothing known: as text if it is text, else as bytes.

    Args:
        head: How it begins, or the whole of it.
        size: Bytes it has.
    """
    more = '…' if size > len(head) else ''
    try:
        text = head.decode()
        if text.isprintable() or not text.strip('\t\n\r').translate({9: '', 10: '', 13: ''}):
            return Shown(f'{byte_count(size)} {text!r}{more}', {'bytes': size, 'text': text})
    except UnicodeDecodeError:
        pass
    shown = head[:16].hex(' ') + ('…' if size > 16 else '')
    return Shown(f'{byte_count(size)}: {shown}', {'bytes': size, 'begins': head[:16].hex()})


def facts_text(facts: Mapping[str, Any]) -> str:
    """Returns the facts of media on a line: `JPEG 640×480 RGB, 81.2 kB`."""
    said = [facts['format'] or 'bytes']
    if 'width' in facts:
        said[0] += f' {facts["width"]}×{facts["height"]}'
    if 'mode' in facts:
        said[0] += f' {facts["mode"]}'
    if 'codec' in facts:
        said[0] += f' {facts["codec"]}'
    if 'frames' in facts:
        said.append(f'{facts["frames"]:,} frames')
    if 'fps' in facts:
        said.append(f'{facts["fps"]:g} fps')
    if 'rate' in facts:
        said.append(f'{facts["rate"]:,} Hz × {facts["channels"]}')
    if 'seconds' in facts:
        said.append(f'{facts["seconds"]:g} s')
    said.append(byte_count(facts['bytes']))
    if 'unreadable' in facts:
        said.append(f'cannot be read: {facts["unreadable"]}')
    return ', '.join(said)


def as_text(value: Any) -> str:
    """Returns a value as text, arrays within it as their dtype, shape and range."""
    if isinstance(value, np.ndarray):
        return array_text(value)
    if isinstance(value, np.generic):
        return as_text(value.item())
    if isinstance(value, dict):
        return '{' + ', '.join(f'{key!r}: {as_text(part)}' for key, part in value.items()) + '}'
    if isinstance(value, list | tuple):
        return '[' + ', '.join(map(as_text, value)) + ']'
    if isinstance(value, bytes):
        return show_record(value[:256], len(value)).text
    return repr(value)


def items_text(values: list[Any]) -> str:
    """Returns the items of a sequence: all of those that are short, and some of arrays."""
    shown = values[:ITEMS] if values and isinstance(values[0], np.ndarray) else values
    more = '; …' if len(shown) < len(values) else ''
    return f'{len(values)} items' + (f': {"; ".join(map(as_text, shown))}{more}' if values else '')


def array_text(value: np.ndarray) -> str:
    """Returns what an array is: `float32 (3, 224)  -1.2 … 3.4`, and its numbers where they are few."""
    shape = f'({value.shape[0]},)' if value.ndim == 1 else f'({", ".join(map(str, value.shape))})'
    said = f'{value.dtype} {shape}'
    if value.dtype.kind not in 'biuf' or not value.size:
        return said
    if value.size <= 8:
        numbers = np.array2string(value, precision=4, separator=', ', threshold=8)
        return f'{said} {" ".join(numbers.split())}'
    if value.dtype.kind == 'f':
        finite = value[np.isfinite(value)]
        strange = value.size - finite.size
        among = f', {strange:,} not finite' if strange else ''
        return f'{said} {finite.min():.4g} … {finite.max():.4g}{among}' if finite.size else f'{said}{among}'
    return f'{said} {value.min()} … {value.max()}'


def to_json(value: Any) -> Any:
    """Returns a value in what JSON has; numbers that JSON has not, as NaN, are strings."""
    if isinstance(value, np.ndarray):
        made: dict[str, Any] = {'dtype': str(value.dtype), 'shape': list(value.shape)}
        if value.size <= NUMBERS and value.dtype.kind in 'biufU':
            # As short as its own precision allows: 0.1, not 0.10000000149011612.
            numbers = _floats(value) if value.dtype.kind == 'f' else value
            made['values'] = to_json(numbers.tolist())
        return made
    if isinstance(value, np.generic):
        return to_json(value.item())
    if isinstance(value, dict):
        return {str(key): to_json(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [to_json(part) for part in value]
    if isinstance(value, bytes | bytearray | memoryview):
        return show_record(bytes(value[:256]), len(value)).json
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return repr(value)


def _floats(value: np.ndarray) -> np.ndarray:
    return np.array([float(str(number)) for number in value.ravel()]).reshape(value.shape)
