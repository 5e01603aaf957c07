"""Values as text and as JSON: media by their headers, arrays by dtype, shape and range, others in full."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from bags.dataset.base import Dataset
from bags.dataset.format.registry import decoders
from bags.dataset.format.spec import FieldType
from bags.dataset.open import open_with_known_decoders
from bags.display.counts import byte_count, plural
from bags.errors import BagsError
from bags.formats.ffmpeg import open_container
from bags.formats.scalars import float_size
from bags.formats.signatures import DEMUXERS, EXTENSION_OF_FORMAT, FORMAT_OF_TYPE, IMAGES, identify_file
from bags.links.permission import PermittedPaths

UNDECODED = frozenset([*FORMAT_OF_TYPE, 'image', 'video', 'audio', 'bytes'])
"""Types whose records are described by their headers instead of decoded."""
WITH_IMAGE_HEADERS = (*IMAGES, 'JPEG 2000')
"""Formats whose headers Pillow reads."""
MAX_PLAIN_TEXT = 2000
"""Maximum number of characters of a value in text."""
MAX_ITEMS = 3
"""Number of items shown of a long sequence, or of a sequence of media or arrays."""
MAX_ITEMS_IN_JSON = 64
"""Maximum number of items that JSON contains in full."""
MAX_NUMBERS = 64
"""Maximum number of numbers of an array in JSON."""
MAX_NUMBERS_IN_TEXT = 8
PADDING = re.compile(r'(?<=\[) | (?=\]|,|[+-][\d.])')
"""The spaces that NumPy adds to align numbers."""
RECORD_HEAD = 256
"""Bytes of an unknown record that are inspected."""


def open_to_show(path: str, *, trust_links: PermittedPaths = ()) -> Dataset:
    """Opens a dataset; values of media and of unknown types are bytes. `trust_links` is as in `bags.open`."""
    return open_with_known_decoders(path, undecoded=UNDECODED, trust_links=trust_links)


def is_undecoded(field_type: FieldType) -> bool:
    """Returns whether records of a type are described by their headers instead of decoded."""
    return field_type.format in UNDECODED or field_type.format not in decoders


class Shown(NamedTuple):
    """A value as text and as JSON."""

    text: str
    json: Any


def show_value(dataset: Dataset, index: int, field: str, *, has_range: bool = True) -> Shown:
    """Returns the value of a field, or the error if it cannot be read.

    Args:
        dataset: The dataset, opened with any decoders: media are described by their headers.
        index: The datapoint.
        field: Name of the field.
        has_range: Whether the text of a long sequence of numbers ends with their range, which requires
            reading the whole sequence.
    """
    field_type = dataset.schema[field]
    try:
        if not is_undecoded(field_type):
            if field_type.sequence:
                return _show_items(dataset, index, field, has_range)
            value = dataset[index, field][field]
            shown = value
            if field_type.format == 'float' and value is not None:  # Shortest text for the stored precision.
                shown = np.dtype(f'f{float_size(*field_type.args)}').type(value)
            return Shown(cut_off(value_as_text(shown)), to_json(value))
        if field_type.sequence and dataset[index, {field: range(0)}][field] is None:
            return Shown('None', None)
        if not field_type.sequence and (part := _show_part(dataset, index, field)) is not None:
            return part
        records = [
            show_file(file) for file in itertools.islice(open_records(dataset, index, field), MAX_ITEMS)
        ]
        if not field_type.sequence:
            return records[0] if records else Shown('None', None)
        count = _item_count(dataset, index, field)
        text = _listed(count, [shown.text for shown in records])
        return Shown(text, {'items': count, 'first': [shown.json for shown in records]})
    except BagsError as exc:
        return Shown(f'{type(exc).__name__}: {exc}', {'error': str(exc)})


def _show_part(dataset: Dataset, index: int, field: str) -> Shown | None:
    """Shows a part of a linked video or recording without opening the file; None for other records."""
    format = dataset.schema[field].format
    try:
        record = dataset.record(index, field, None) if format in ('video', 'audio') else None
    except ValueError:
        return None  # The value is missing.
    part = None if record is None else record.segment
    if part is None:
        return None
    unit, path, count = 'frames' if format == 'video' else 'samples', part.where[0], part.stop - part.first
    text = f'{count:,} {unit}, {part.first:,} to {part.stop:,} of {path}'
    return Shown(text, {unit: count, 'first': part.first, 'stop': part.stop, 'path': path})


def _show_items(dataset: Dataset, index: int, field: str, has_range: bool) -> Shown:
    """Shows a sequence of decoded values; of a long one, the first items and the range of all numbers."""
    head = dataset[index, {field: range(MAX_ITEMS_IN_JSON)}][field]
    if head is None:
        return Shown('None', None)
    count = _item_count(dataset, index, field)
    is_short = count <= MAX_NUMBERS_IN_TEXT and not (count and isinstance(head[0], np.ndarray))
    text = _listed(count, list(map(value_as_text, head if is_short else head[:MAX_ITEMS])))
    if has_range and isinstance(head, np.ndarray) and count > (len(head) if is_short else MAX_ITEMS):
        text += f', range{range_of}' if (range_of := _range_text(dataset[index, field][field])) else ''
    items = [to_json(item) for item in head]
    return Shown(
        cut_off(text), items if count == len(items) else {'items': count, 'first': items[:MAX_ITEMS]}
    )


def cut_off(text: str, max_length: int = MAX_PLAIN_TEXT) -> str:
    """Returns a text, or its first characters and `…` if it has more than `max_length`."""
    return text if len(text) <= max_length else f'{text[:max_length]}…'


def open_records(dataset: Dataset, index: int, field: str) -> Iterator[BinaryIO]:
    """Yields the record of a field, or the records of its items, as files; nothing for a missing value."""
    field_type = dataset.schema[field]
    if field_type.sequence:
        for item in range(_item_count(dataset, index, field)):
            yield dataset.file(index, field, item)
        return
    try:
        file = dataset.file(index, field)
    except ValueError as exc:
        if isinstance(exc, BagsError) or not field_type.optional:
            raise
        return  # The value is missing.
    yield file


def _item_count(dataset: Dataset, index: int, field: str) -> int:
    return int(dataset.item_counts(np.array([index]), field)[0])


def _listed(count: int, items: list[str]) -> str:
    more = '; …' if count > len(items) else ''
    return f'{plural(count, "item")}: {"; ".join(items)}{more}' if count else '0 items'


def show_file(file: BinaryIO) -> Shown:
    """Describes a record, an open file, and closes it: media by their header, others by their start."""
    with file:
        facts = media_info(file)
        if facts['format'] is None and not facts.get('unreadable'):
            file.seek(0)
            return _show_bytes(file.read(RECORD_HEAD), facts['bytes'])
    return Shown(_media_text(facts), facts)


def _show_bytes(head: bytes, size: int) -> Shown:
    """Shows the first bytes of a record of unknown format: as text if they are text."""
    more = '…' if size > len(head) else ''
    try:
        text = head.decode()
        if text.translate(dict.fromkeys(b'\t\n\r', '')).isprintable():
            return Shown(f'{byte_count(size)} {text!r}{more}', {'bytes': size, 'text': text})
    except UnicodeDecodeError:
        pass
    start = head[:16]
    more = '…' if size > len(start) else ''
    return Shown(f'{byte_count(size)}: {start.hex(" ")}{more}', {'bytes': size, 'begins': start.hex()})


def media_info(file: BinaryIO) -> dict[str, Any]:
    """Returns the facts in the header of a file, without decoding pixels or samples.

    Returns:
        `format` (None: not media) and `bytes`; `width`, `height` and `mode` of images; of video also
        `frames`, `fps`, `seconds` and `codec`; `rate`, `channels` and `seconds` of audio; `unreadable` with
        the error in the header. Facts that need a missing package are omitted.
    """
    size = file.seek(0, 2)
    file.seek(0)
    name = identify_file(file)
    facts: dict[str, Any] = {'format': name if name in EXTENSION_OF_FORMAT else None, 'bytes': size}
    try:
        if name in WITH_IMAGE_HEADERS:
            facts |= _image_info(file)
        elif name in DEMUXERS:
            facts |= _stream_info(file, name)
    except ImportError:
        pass
    except Exception as exc:  # The errors of decoders have no common class.
        facts['unreadable'] = f'{type(exc).__name__}: {exc}' if str(exc) else type(exc).__name__
    return facts


def _image_info(file: BinaryIO) -> dict[str, Any]:
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(file) as image:
            return {'width': image.width, 'height': image.height, 'mode': image.mode}
    except UnidentifiedImageError:
        raise ValueError('damaged header') from None  # The message of Pillow contains the file object.


def _stream_info(file: BinaryIO, name: str) -> dict[str, Any]:
    facts: dict[str, Any] = {}
    with open_container(file, name) as container:
        if container.duration:
            facts['seconds'] = round(container.duration / 1_000_000, 3)
        for stream in container.streams.video[:1]:
            facts |= {'width': stream.width, 'height': stream.height, 'codec': stream.codec_context.name}
            if stream.average_rate:
                facts['fps'] = round(float(stream.average_rate), 3)
            if stream.frames:
                facts['frames'] = stream.frames
        for stream in container.streams.audio[:1]:
            facts |= {'rate': stream.rate, 'channels': stream.channels}
            facts.setdefault('codec', stream.codec_context.name)
    return facts


def _media_text(facts: Mapping[str, Any]) -> str:
    """Returns the facts of media on one line: `JPEG 640×480 RGB, 81.2 kB`."""
    facts = {**facts, 'format': facts['format'] or 'bytes', 'bytes': byte_count(facts['bytes'])}
    if facts.get('codec', '').startswith(facts['format'].lower()):
        del facts['codec']  # The codec repeats the format, e.g. FLAC in FLAC, or `mp3float` in MP3.
    templates = {
        'format': '{format}', 'width': ' {width}×{height}', 'mode': ' {mode}', 'codec': ' {codec}',
        'frames': ', {frames:,} frames', 'fps': ', {fps:g} fps', 'rate': ', {rate:,} Hz × {channels}',
        'seconds': ', {seconds:g} s', 'bytes': ', {bytes}', 'unreadable': ', cannot be read: {unreadable}',
    }  # fmt: skip
    return ''.join(template.format(**facts) for name, template in templates.items() if name in facts)


def value_as_text(value: Any) -> str:
    """Returns a value as text; arrays within it as their dtype, shape and range."""
    if isinstance(value, np.ndarray):
        return _array_text(value)
    if isinstance(value, np.generic):  # Shortest text of a float for its own precision.
        return str(value) if value.dtype.kind == 'f' else value_as_text(value.item())
    if isinstance(value, dict):
        return '{' + ', '.join(f'{key!r}: {value_as_text(part)}' for key, part in value.items()) + '}'
    if isinstance(value, list | tuple):
        return '[' + ', '.join(map(value_as_text, value)) + ']'
    if isinstance(value, bytes | bytearray | memoryview):
        return _show_bytes(bytes(value[:RECORD_HEAD]), len(value)).text
    return repr(value)


def _array_text(value: np.ndarray) -> str:
    """Returns an array as `float32 (3, 224) -1.2 … 3.4`, or with all numbers if it has few."""
    text = f'{value.dtype} {value.shape}'
    if value.dtype.kind in 'biufcmM' and 0 < value.size <= MAX_NUMBERS_IN_TEXT:
        numbers = np.array2string(value, precision=4, separator=', ', threshold=MAX_NUMBERS_IN_TEXT)
        return f'{text} {re.sub(PADDING, "", " ".join(numbers.split()))}'
    return text + _range_text(value)


def _range_text(value: np.ndarray) -> str:
    """Returns ` min … max` of the finite numbers of an array, and the count of other numbers."""
    if value.dtype.kind not in 'biuf':
        return ''
    finite = value[np.isfinite(value)]
    form = '.4g' if value.dtype.kind == 'f' else ''
    text = f' {finite.min():{form}} … {finite.max():{form}}' if finite.size else ''
    return text if finite.size == value.size else f'{text}, {value.size - finite.size:,} not finite'


def to_json(value: Any) -> Any:
    """Converts a value to JSON types; numbers that JSON lacks, such as NaN, become strings."""
    if isinstance(value, np.ndarray):
        facts: dict[str, Any] = {'dtype': str(value.dtype), 'shape': list(value.shape)}
        if value.size <= MAX_NUMBERS and value.dtype.kind in 'biufcmMU':
            if value.dtype.kind == 'f':  # Shortest text for its precision: 0.1, not 0.10000000149011612.
                value = np.array([float(str(number)) for number in value.ravel()]).reshape(value.shape)
            elif value.dtype.kind in 'mM':
                value = value.astype(str)
            facts['values'] = to_json(value.tolist())
        return facts
    if isinstance(value, np.generic):
        return to_json(float(str(value)) if value.dtype.kind == 'f' else value.item())
    if isinstance(value, dict):
        return {str(key): to_json(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [to_json(part) for part in value]
    if isinstance(value, bytes | bytearray | memoryview):
        return _show_bytes(bytes(value[:RECORD_HEAD]), len(value)).json
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return repr(value)
