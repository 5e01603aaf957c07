"""The display of a dataset: a heading, the fields, and in notebooks the first datapoints."""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import BinaryIO

import numpy as np

from bags.dataset.base import Dataset
from bags.dataset.format.registry import AUDIO_FORMATS, IMAGE_FORMATS, VIDEO_FORMATS
from bags.display.counts import byte_count, plural
from bags.display.html import MAX_HTML_TEXT, SIDE, image_as_html, sound_as_html, value_as_html
from bags.display.values import MAX_NUMBERS_IN_TEXT, cut_off, is_undecoded, open_records, show_value
from bags.formats.ffmpeg import open_container
from bags.formats.pixels import frame_format
from bags.formats.scalars import check_value_size
from bags.formats.signatures import DEMUXERS, IMAGES, identify_file

SHOWN_DATASET_ROWS = 3
"""Number of datapoints that notebooks show."""
MAX_PIXELS = 1 << 26
MAX_SHOWN_RECORD_BYTES = 1 << 25
"""Maximum bytes of a record to decode. Of a larger record, the size is shown."""
MAX_CURVE_NUMBERS = 1 << 20
"""Maximum count of numbers in a sequence that is read completely for curves."""


def dataset_as_text(dataset: Dataset) -> str:
    """Returns a heading and a line for each field."""
    width = max(map(len, dataset.spec), default=0)
    lines = [f'  {name:<{width}}  {text}' for name, text in dataset.spec.items()]
    return '\n'.join([f'{_heading(dataset)}:', *lines])


def dataset_as_html(dataset: Dataset, rows: Iterable[int] | None = None) -> str:
    """Returns the heading and a table of the fields, with their values in some datapoints.

    Args:
        dataset: The dataset.
        rows: The datapoints. Default: the first ones. Of a value that cannot be read, the error is shown.
    """
    rows = range(min(SHOWN_DATASET_ROWS, len(dataset))) if rows is None else rows
    columns = {str(row): {name: _cell(dataset, row, name) for name in dataset.schema} for row in rows}
    left = '<td style="text-align:left;vertical-align:top">'
    head = ''.join(f'<th style="text-align:left">{escape(name)}</th>' for name in ('', '', *columns))
    cells = ''.join(
        f'<tr>{left}{escape(name)}</td>{left}<code>{escape(text)}</code></td>'
        + ''.join(f'{left}{column[name]}</td>' for column in columns.values())
        + '</tr>'
        for name, text in dataset.spec.items()
    )
    head = f'<tr>{head}</tr>' if columns else ''
    return f'<p>{escape(_heading(dataset))}</p><table>{head}{cells}</table>'


def _heading(dataset: Dataset) -> str:
    """Returns e.g. `DatasetReader of 1,000 datapoints in 4 shards`."""
    where = f' in {dataset.shards:,} shards' if dataset.shards != 1 else ''
    state = ', unfinished' if dataset.unfinished else ''
    return f'{type(dataset).__name__} of {plural(len(dataset), "datapoint")}{where}{state}'


# Values in a table: images and first frames as thumbnails, others as text.


def _cell(dataset: Dataset, row: int, field: str) -> str:
    """Returns the value of a field as HTML, or the error if it cannot be read."""
    field_type = dataset.schema[field]
    try:
        if field_type.format in (*IMAGE_FORMATS, *VIDEO_FORMATS) and (
            thumbnail := _thumbnail(dataset, row, field)
        ):
            return thumbnail
        if not field_type.sequence and not is_undecoded(field_type):
            for file in open_records(dataset, row, field):
                with file:
                    if (size := file.seek(0, io.SEEK_END)) > MAX_SHOWN_RECORD_BYTES:
                        return byte_count(size)
        if field_type.format in AUDIO_FORMATS and not field_type.sequence:
            return _player(dataset, row, field)
        if _is_drawn(dataset, row, field):
            return value_as_html(dataset[row, field][field], class_names(dataset, field))
        text = show_value(dataset, row, field, has_range=False).text
    except Exception as exc:  # Shown instead of the value.
        text = f'{type(exc).__name__}: {exc}'
    return escape(cut_off(text, MAX_HTML_TEXT))


def class_names(dataset: Dataset, field: str) -> Mapping[int, str]:
    """Returns the class names in the metadata of a field, by number."""
    fields = dataset.metadata.get('fields')
    classes = fields.get(field, {}).get('classes') if isinstance(fields, Mapping) else None
    if isinstance(classes, Mapping):
        return {int(number): str(name) for number, name in classes.items() if str(number).isdecimal()}
    return dict(enumerate(map(str, classes))) if isinstance(classes, Sequence) else {}


def _player(dataset: Dataset, row: int, field: str) -> str:
    """Returns a short recording as a player with a description, and a longer one as its description."""
    text = escape(cut_off(show_value(dataset, row, field).text, MAX_HTML_TEXT))
    for file in open_records(dataset, row, field):
        with file:
            return sound_as_html(file, text)
    return text


def _is_drawn(dataset: Dataset, row: int, field: str) -> bool:
    """Returns whether to read and draw a value: a number, an array, or a sequence of not too many numbers."""
    field_type = dataset.schema[field]
    if field_type.format not in ('int', 'uint', 'float', 'array') or not field_type.sequence:
        return field_type.format in ('int', 'uint', 'float', 'array')
    count = int(dataset.item_counts(np.array([row]), field)[0])
    if count <= MAX_NUMBERS_IN_TEXT:
        return False
    return count * np.size(dataset[row, {field: range(1)}][field]) <= MAX_CURVE_NUMBERS


def _thumbnail(dataset: Dataset, row: int, field: str) -> str | None:
    """Returns an image, or the first frame of a video, or the first item of a sequence; None if missing."""
    field_type = dataset.schema[field]
    file = next(open_records(dataset, row, field), None)
    if file is None:
        return None
    with file:
        is_image = field_type.format in IMAGE_FORMATS
        if is_image and file.seek(0, io.SEEK_END) > MAX_SHOWN_RECORD_BYTES:
            return None
        file.seek(0)
        try:
            is_mask = bool(is_image and class_names(dataset, field))
            image = _image(file, is_mask) if is_image else _first_frame(file)
        except ImportError:
            return None
    count = f'{int(dataset.item_counts(np.array([row]), field)[0])} × ' if field_type.sequence else ''
    return count + image


def _image(file: BinaryIO, is_mask: bool = False) -> str:
    from PIL import Image

    # Other Pillow plugins are excluded, e.g. the PostScript plugin, which starts a program.
    with Image.open(file, formats=[name.upper() for name in IMAGES]) as image:
        check_value_size(image.width * image.height, MAX_PIXELS, 'an image')
        image.draft('RGB', (SIDE, SIDE))  # Reads a JPEG at a reduced size.
        return image_as_html(image, is_mask)


def _first_frame(file: BinaryIO) -> str:
    from PIL import Image

    if (name := identify_file(file)) not in DEMUXERS:
        raise ValueError(f'expected a video, got {name}')
    with open_container(file, name) as container:
        stream = container.streams.video[0]
        check_value_size(stream.width * stream.height, MAX_PIXELS, 'a frame')
        frame = next(container.decode(stream))
        scale = SIDE / max(frame.width, frame.height, 1)
        is_deep_gray = frame_format(frame).is_deep_gray
        small = frame.reformat(
            max(1, round(frame.width * scale)),
            max(1, round(frame.height * scale)),
            'gray16le' if is_deep_gray else 'rgb24',
        )
        pixels = small.to_ndarray()
        # Floats are drawn from 0 to their largest value.
        return image_as_html(Image.fromarray(pixels.astype(np.float32) if is_deep_gray else pixels))
