"""The display of a dataset: a heading, its fields, and in notebooks the first datapoints."""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, BinaryIO

import numpy as np

from bags.dataset.base import Dataset
from bags.dataset.batch import Ragged
from bags.dataset.registry import AUDIO_WORDS, IMAGE_WORDS, VIDEO_WORDS
from bags.display.counts import byte_count, plural
from bags.display.values import MAX_NUMBERS_IN_TEXT, cut_off, is_undecoded, open_records, show_value
from bags.formats.ffmpeg import open_container
from bags.formats.scalars import check_value_size
from bags.formats.signatures import DEMUXERS, IMAGES, identify_file

SHOWN_ROWS = 3
"""Number of datapoints that notebooks show."""
SHOWN_SEQUENCES = 8
"""Number of sequences of a batch that notebooks show."""
SIDE = 96
"""Length in pixels of the longer side of a thumbnail."""
MAX_PIXELS = 1 << 26
MAX_BYTES = 1 << 25
"""Maximum bytes of a record that is decoded. A larger record is shown as its size."""
MAX_TEXT = 120
"""Maximum number of characters of a value."""
MAX_SOUND_BYTES = 1 << 19
"""Maximum bytes of a recording that a notebook keeps, to play it."""
MAX_POINTS = 120
"""Maximum number of values that a curve is drawn from."""
MAX_CURVE_ITEMS = 1 << 20
"""Maximum number of items of a sequence that is read whole for a curve."""
SOUND_TYPES = {'flac': 'audio/flac', 'ogg': 'audio/ogg', 'wav': 'audio/wav', 'mp3': 'audio/mpeg'}


def dataset_as_text(dataset: Dataset) -> str:
    """Returns a heading and a line for each field."""
    width = max(map(len, dataset.spec), default=0)
    lines = [f'  {name:<{width}}  {text}' for name, text in dataset.spec.items()]
    return '\n'.join([f'{_heading(dataset)}:', *lines])


def dataset_as_html(dataset: Dataset, rows: Iterable[int] | None = None) -> str:
    """Returns the heading and a table of the fields, with their values in some datapoints.

    Args:
        dataset: The dataset.
        rows: The datapoints; the first ones unless given. A value that cannot be read is shown as its error.
    """
    from html import escape  # Imported here: the import takes 3 ms.

    rows = range(min(SHOWN_ROWS, len(dataset))) if rows is None else rows
    columns = {str(row): {name: _cell(dataset, row, name) for name in dataset.types} for row in rows}
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


def ragged_as_html(batch: Ragged) -> str:
    """Returns a table of the first sequences of a batch: those of numbers as curves, others as text."""
    from html import escape

    lines = []
    for index in range(min(len(batch), SHOWN_SEQUENCES)):
        found = batch[index]
        values = None if found is None else np.asarray(found)
        if values is not None and values.ndim == 1 and values.dtype.kind in 'iuf' and len(values) > 1:
            numbers = values.astype(np.float64)
            cell = f'{sparkline(numbers)} {plural(len(values), "item")}{_range_text(numbers)}'
        else:
            cell = escape('None' if values is None else f'{values.dtype} {values.shape}')
        lines.append(f'<tr><td>{index}</td><td style="text-align:left">{cell}</td></tr>')
    return f'<p>{escape(repr(batch))}</p><table>{"".join(lines)}</table>'


def _heading(dataset: Dataset) -> str:
    """Returns e.g. `DatasetReader of 1,000 datapoints in 4 shards`."""
    where = f' in {dataset.shards:,} shards' if dataset.shards != 1 else ''
    state = ', unfinished' if dataset.unfinished else ''
    return f'{type(dataset).__name__} of {plural(len(dataset), "datapoint")}{where}{state}'


# Values in a table: images and first frames as thumbnails, others as text.


def _cell(dataset: Dataset, row: int, field: str) -> str:
    """Returns the value of a field as HTML, or its error if it cannot be read."""
    from html import escape

    field_type = dataset.types[field]
    try:
        if field_type.word in (*IMAGE_WORDS, *VIDEO_WORDS) and (found := _thumbnail(dataset, row, field)):
            return found
        if not field_type.sequence and not is_undecoded(field_type):
            for file in open_records(dataset, row, field):
                with file:
                    if (size := file.seek(0, io.SEEK_END)) > MAX_BYTES:
                        return byte_count(size)
        if field_type.word in AUDIO_WORDS and not field_type.sequence:
            return _player(dataset, row, field)
        if (found := _number_or_curve(dataset, row, field)) is not None:
            return found
        text = show_value(dataset, row, field, has_range=False).text
    except Exception as exc:  # Shown in place of the value.
        text = f'{type(exc).__name__}: {exc}'
    return escape(cut_off(text, MAX_TEXT))


def class_names(dataset: Dataset, field: str) -> Mapping[int, str]:
    """Returns the names of classes that the metadata of a field has, by number."""
    fields = dataset.metadata.get('fields')
    found = fields.get(field, {}).get('classes') if isinstance(fields, Mapping) else None
    if isinstance(found, Mapping):
        return {int(number): str(name) for number, name in found.items() if str(number).isdecimal()}
    return dict(enumerate(map(str, found))) if isinstance(found, Sequence) else {}


def _player(dataset: Dataset, row: int, field: str) -> str:
    """Returns a short recording as a player with its facts, a longer one as its facts."""
    from html import escape

    text = escape(cut_off(show_value(dataset, row, field).text, MAX_TEXT))
    for file in open_records(dataset, row, field):
        with file:
            if file.seek(0, io.SEEK_END) > MAX_SOUND_BYTES:
                continue
            file.seek(0)
            data = file.read()
            file.seek(0)
            file_type = SOUND_TYPES.get(str(identify_file(file)).lower(), '')
            if file_type:
                source = f'data:{file_type};base64,{base64.b64encode(data).decode()}'
                return f'<audio controls preload="metadata" src="{source}"></audio><br>{text}'
    return text


def _number_or_curve(dataset: Dataset, row: int, field: str) -> str | None:
    """Returns a number rounded or with its class, many numbers as a curve; None for other values."""
    from html import escape

    field_type = dataset.types[field]
    if field_type.word not in ('int', 'uint', 'float'):
        return None
    if not field_type.sequence:
        value = dataset[row, field][field]
        name = class_names(dataset, field).get(value) if isinstance(value, int) else None
        if name is not None:
            return f'{escape(cut_off(name, MAX_TEXT))} ({value})'
        return f'{value:.6g}' if isinstance(value, float) else None
    count = int(dataset.item_counts(np.array([row]), field)[0])
    if not MAX_NUMBERS_IN_TEXT < count <= MAX_CURVE_ITEMS:
        return None
    values = np.asarray(dataset[row, field][field], np.float64)
    return f'{sparkline(values)} {count:,} items{_range_text(values)}'


def sparkline(values: np.ndarray) -> str:
    """Returns numbers, shape (n,), as a curve in SVG; NaN and inf leave gaps."""
    points = values[:: -(-len(values) // MAX_POINTS)]
    finite = points[np.isfinite(points)]
    low, high = (finite.min(), finite.max()) if len(finite) else (0.0, 0.0)
    heights = 22 - 20 * (points - low) / ((high - low) or 1)
    path, pen = '', 'M'
    for number, height in enumerate(heights.tolist()):
        if not math.isfinite(height):
            pen = 'M'
            continue
        path += f'{pen}{96 * number / max(1, len(points) - 1):.1f} {height:.1f}'
        pen = 'L'
    style = 'vertical-align:middle;fill:none;stroke:currentColor'
    return f'<svg width="96" height="24" style="{style}"><path d="{path}"/></svg>'


def _range_text(values: np.ndarray) -> str:
    finite = values[np.isfinite(values)]
    missing = len(values) - len(finite)
    text = f', {finite.min():.4g} to {finite.max():.4g}' if len(finite) else ''
    return f'{text}, {missing:,} not finite' if missing else text


def _thumbnail(dataset: Dataset, row: int, field: str) -> str | None:
    """Returns an image or the first frame of a video, of a sequence its first item; None if there is none."""
    field_type = dataset.types[field]
    file = next(open_records(dataset, row, field), None)
    if file is None:
        return None
    with file:
        is_image = field_type.word in IMAGE_WORDS
        if is_image and file.seek(0, io.SEEK_END) > MAX_BYTES:
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

    # Other plugins of Pillow are excluded: the one for PostScript starts a program.
    with Image.open(file, formats=[name.upper() for name in IMAGES]) as image:
        check_value_size(image.width * image.height, MAX_PIXELS, 'an image')
        if is_mask and image.mode in ('L', 'P'):
            return _mask_as_html(np.asarray(image))
        image.draft('RGB', (SIDE, SIDE))  # Reads a JPEG at a reduced size.
        return _as_html(image)


def _mask_as_html(labels: np.ndarray) -> str:
    """Returns a mask of labels, shape (height, width), with a colour for each label; 0 is black."""
    from PIL import Image

    step = max(1, -(-max(labels.shape) // SIDE))
    labels = labels[::step, ::step].astype(np.int64)
    hues = labels * 137 % 360  # Neighbouring labels are far apart.
    shade = np.where(labels, 220, 0)
    image = np.stack([hues * 255 // 360, np.where(labels, 170, 0), shade], axis=-1).astype(np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(image, 'HSV').convert('RGB').save(buffer, 'PNG')
    return f'<img src="data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode()}">'


def _first_frame(file: BinaryIO) -> str:
    from PIL import Image

    if (name := identify_file(file)) not in DEMUXERS:
        raise ValueError(f'expected a video, got {name}')
    with open_container(file, name) as container:
        stream = container.streams.video[0]
        check_value_size(stream.width * stream.height, MAX_PIXELS, 'a frame')
        frame = next(container.decode(stream))
        scale = SIDE / max(frame.width, frame.height, 1)
        small = frame.reformat(
            max(1, round(frame.width * scale)), max(1, round(frame.height * scale)), 'rgb24'
        )
        return _as_html(Image.fromarray(small.to_ndarray()))


def _as_html(image: Any) -> str:
    if image.mode.startswith('I') or image.mode == 'F':  # Depth images with more than 8 bits.
        from PIL import Image

        values = np.asarray(image, np.float32)
        low, high = float(values.min(initial=0)), float(values.max(initial=0))
        image = Image.fromarray(((values - low) * (255 / max(high - low, 1))).astype(np.uint8))
    image.thumbnail((SIDE, SIDE))
    buffer = io.BytesIO()
    image.convert('RGB').save(buffer, 'JPEG', quality=80)
    return f'<img src="data:image/jpeg;base64,{base64.b64encode(buffer.getvalue()).decode()}">'
