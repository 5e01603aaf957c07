"""The display of a dataset: a heading, its fields, and in notebooks the first datapoints."""

from __future__ import annotations

import base64
import io
import reprlib
from collections.abc import Iterable, Mapping
from typing import Any, BinaryIO, Protocol

import numpy as np

from bags.dataset.selection import AUDIO_WORDS, IMAGE_WORDS, VIDEO_WORDS
from bags.dataset.spec import Spec
from bags.errors import BagsError
from bags.formats.ffmpeg import open_container
from bags.formats.scalars import check_value_size
from bags.formats.signatures import DEMUXERS, IMAGES, identify_file
from bags.indexing import Int64s

SIDE = 96
"""Length in pixels of the longer side of a thumbnail."""
MAX_PIXELS = 1 << 26
MAX_BYTES = 1 << 25
"""Maximum bytes of a record that is decoded. A larger record is shown as its size."""
MAX_ITEMS = 6
MAX_TEXT = 120


def heading(name: str, count: int, shards: int, unfinished: bool) -> str:
    """Returns e.g. `DatasetReader of 1,000 datapoints in 4 shards`."""
    where = f' in {shards:,} shards' if shards != 1 else ''
    state = ', unfinished' if unfinished else ''
    return f'{name} of {count:,} datapoint{"" if count == 1 else "s"}{where}{state}'


def as_text(heading: str, spec: Mapping[str, str]) -> str:
    """Returns the heading and a line for each field."""
    width = max(map(len, spec), default=0)
    return '\n'.join([f'{heading}:', *(f'  {name:<{width}}  {kind}' for name, kind in spec.items())])


def as_html(heading: str, spec: Mapping[str, str], columns: Mapping[str, Mapping[str, str]]) -> str:
    """Returns the heading and a table of the fields. `columns` maps headings of columns to HTML by field."""
    from html import escape  # Imported here: the import takes 3 ms.

    left = '<td style="text-align:left;vertical-align:top">'
    head = ''.join(f'<th style="text-align:left">{escape(name)}</th>' for name in ('', '', *columns))
    rows = ''.join(
        f'<tr>{left}{escape(name)}</td>{left}<code>{escape(kind)}</code></td>'
        + ''.join(f'{left}{column.get(name, "")}</td>' for column in columns.values())
        + '</tr>'
        for name, kind in spec.items()
    )
    head = f'<tr>{head}</tr>' if columns else ''
    return f'<p>{escape(heading)}</p><table>{head}{rows}</table>'


# Values in a table: images and first frames as thumbnails, others as text.


class Readable(Protocol):
    """The part of `Dataset` that thumbnails need."""

    types: Spec

    def __getitem__(self, key: Any) -> Any: ...
    def file(self, index: int, field: str, item: int | None = None) -> BinaryIO: ...
    def item_counts(self, indices: Int64s, field: str) -> Int64s: ...


def thumbnails(dataset: Readable, rows: Iterable[int]) -> dict[str, dict[str, str]]:
    """Returns HTML by field for each datapoint. A value that cannot be read is shown as its error."""
    return {str(row): {name: _thumbnail(dataset, row, name) for name in dataset.types} for row in rows}


def _thumbnail(dataset: Readable, row: int, field: str) -> str:
    from html import escape

    kind = dataset.types[field]
    try:
        count = int(dataset.item_counts(np.array([row]), field)[0]) if kind.sequence else 1
        note = f'{count} × ' if kind.sequence else ''
        if not count:
            return escape(str(dataset[row, field][field]))
        if kind.word in (*IMAGE_WORDS, *VIDEO_WORDS, *AUDIO_WORDS):
            return note + _media(dataset, row, field, kind.word)
        shown = {field: range(MAX_ITEMS)} if kind.sequence else field
        if not kind.sequence:
            with dataset.file(row, field) as file:
                if (size := file.seek(0, io.SEEK_END)) > MAX_BYTES:
                    return f'{size:,} bytes'
        return note + escape(_as_text(dataset[row, shown][field], is_sequence=kind.sequence))
    except Exception as exc:  # Shown in place of the value.
        if kind.optional and isinstance(exc, ValueError) and not isinstance(exc, BagsError):
            return 'None'
        return escape(f'{type(exc).__name__}: {exc}'[:MAX_TEXT])


def _media(dataset: Readable, row: int, field: str, word: str) -> str:
    with dataset.file(row, field, 0 if dataset.types[field].sequence else None) as file:
        size = file.seek(0, io.SEEK_END)
        file.seek(0)
        try:
            if word in IMAGE_WORDS and size <= MAX_BYTES:
                return _image(file)
            if word in VIDEO_WORDS:
                return _first_frame(file)
        except ImportError:
            pass
    return f'{size:,} bytes'


def _image(file: BinaryIO) -> str:
    from PIL import Image

    # Other plugins of Pillow are excluded: the one for PostScript starts a program.
    with Image.open(file, formats=[name.upper() for name in IMAGES]) as image:
        check_value_size(image.width * image.height, MAX_PIXELS, 'an image')
        image.draft('RGB', (SIDE, SIDE))  # Reads a JPEG at a reduced size.
        return _as_html(image)


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


def _as_text(value: Any, *, is_sequence: bool) -> str:
    if isinstance(value, np.ndarray):
        if value.size <= MAX_ITEMS:
            return np.array2string(value, precision=4, separator=', ')
        return f'{value.dtype} {value.shape[1:] if is_sequence else value.shape}'
    text = value if isinstance(value, str) else reprlib.repr(value)
    return text if len(text) <= MAX_TEXT else f'{text[:MAX_TEXT]}…'
