"""Values as HTML for notebooks: pictures, masks, curves, recordings, numbers and texts."""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Mapping
from html import escape
from typing import Any, BinaryIO

import numpy as np

from bags.display.counts import plural
from bags.display.values import MAX_NUMBERS_IN_TEXT, cut_off, value_as_text
from bags.formats.audio import encode_wav
from bags.formats.signatures import EXTENSION_OF_FORMAT, identify_file

SIDE = 96
"""Length in pixels of the longer side of a thumbnail."""
MAX_HTML_TEXT = 120
"""Maximum number of characters shown of a value."""
MAX_SOUND_BYTES = 1 << 19
"""Maximum bytes of a recording that is embedded in a notebook as a player."""
MAX_POINTS = 120
"""Maximum number of points of a curve."""
MAX_CURVES = 32
"""Maximum number of curves in one drawing."""
MAX_LABEL = 31
"""8-bit grey images without larger values are shown as masks of labels: in grey they would be black."""
SOUND_TYPES = {
    'flac': 'audio/flac', 'ogg': 'audio/ogg', 'opus': 'audio/ogg', 'wav': 'audio/wav', 'mp3': 'audio/mpeg',
    'aac': 'audio/aac', 'mp4': 'audio/mp4', 'webm': 'audio/webm',
}  # fmt: skip
"""Media types of the files that browsers play, by extension."""


def value_as_html(value: Any, classes: Mapping[int, str] | None = None) -> str:
    """Returns a decoded value as HTML.

    Args:
        value: A value of a datapoint, or a tensor of another library on the host.
        classes: Names by number.
    """
    classes = classes or {}
    if value is not None and hasattr(value, '__array__') and not isinstance(value, np.generic):
        try:
            value = np.asarray(value)
        except Exception:  # Tensors on a device, and dtypes that NumPy lacks.
            return _text(f'{value.dtype} {tuple(value.shape)}')
        return _array(value[()] if value.ndim == 0 else value, classes)
    if isinstance(value, float | np.floating):
        return f'{float(value):.6g}'
    if isinstance(value, int | np.integer) and not isinstance(value, bool):
        name = classes.get(int(value))
        return f'{value}' if name is None else f'{_text(name)} ({value})'
    if isinstance(value, tuple) and len(value) == 2 and isinstance(value[0], np.ndarray):
        return _samples(*value)
    if isinstance(value, list) and value and isinstance(value[0], np.ndarray):
        return f'{plural(len(value), "item")}: {value_as_html(value[0], classes)}'
    return _text(value_as_text(value))


def _text(text: str) -> str:
    return escape(cut_off(text, MAX_HTML_TEXT))


def _array(value: Any, classes: Mapping[int, str]) -> str:
    if not isinstance(value, np.ndarray):
        return value_as_html(value, classes)
    shape, sort = value.shape, value.dtype.kind
    is_image = value.ndim == 3 and shape[2] in (3, 4) and value.dtype == np.uint8
    is_gray = value.ndim == 2 and sort in 'bu' and min(shape, default=0) > MAX_NUMBERS_IN_TEXT
    if value.size and (is_image or is_gray):
        return _pixels(value, bool(classes))
    is_video = value.ndim == 4 and shape[3] == 3 and value.dtype == np.uint8
    is_gray_video = value.ndim == 3 and value.dtype == np.uint16 and min(shape[1:]) > MAX_NUMBERS_IN_TEXT
    if value.size and (is_video or is_gray_video):
        return f'{shape[0]} × {_pixels(value[0], False)}'
    is_curve = value.ndim == 1 or (value.ndim == 2 and shape[1] <= MAX_CURVES)
    if sort in 'iuf' and is_curve and len(value) > MAX_NUMBERS_IN_TEXT:
        return curve_as_html(value)
    return _text(value_as_text(value))


def curve_as_html(values: np.ndarray) -> str:
    """Returns numbers, shape (n,) or (n, curves), as curves with their number and range."""
    values = values.astype(np.float64)
    finite = values[np.isfinite(values)]
    missing = values.size - finite.size
    text = plural(len(values), 'item') if values.ndim == 1 else f'{len(values):,} × {values.shape[1]}'
    text += f', {finite.min():.4g} to {finite.max():.4g}' if finite.size else ''
    return f'{sparkline(values)} {text}' + (f', {missing:,} not finite' if missing else '')


def sparkline(values: np.ndarray) -> str:
    """Returns numbers, shape (n,) or (n, curves), as curves in SVG; NaN and inf leave gaps."""
    points = values[:: -(-len(values) // MAX_POINTS)].reshape(-1, *values.shape[1:2] or (1,))
    finite = points[np.isfinite(points)]
    low, high = (finite.min(), finite.max()) if len(finite) else (0.0, 0.0)
    heights = 22 - 20 * (points - low) / ((high - low) or 1)
    path = ''
    for curve in heights.T.tolist():
        pen = 'M'
        for number, height in enumerate(curve):
            if not math.isfinite(height):
                pen = 'M'
                continue
            path += f'{pen}{SIDE * number / max(1, len(points) - 1):.1f} {height:.1f}'
            pen = 'L'
    style = 'vertical-align:middle;fill:none;stroke:currentColor'
    return f'<svg width="{SIDE}" height="24" style="{style}"><path d="{path}"/></svg>'


def _samples(samples: np.ndarray, rate: Any) -> str:
    """Returns samples, shape (samples, channels), as a player with their duration."""
    text = f'{value_as_text(samples)}, {rate:,} Hz'
    try:
        if samples.nbytes > MAX_SOUND_BYTES:
            raise ValueError('too long to keep')
        data = encode_wav((samples, rate))
        assert isinstance(data, bytes)
    except Exception:  # Not samples.
        return _text(text)
    return sound_as_html(io.BytesIO(data), _text(f'{text}, {len(samples) / rate:.3g} s'))


def sound_as_html(file: BinaryIO, text: str) -> str:
    """Returns a short recording as a player with a text in HTML; of other data, only the text."""
    if file.seek(0, io.SEEK_END) > MAX_SOUND_BYTES:
        return text
    file.seek(0)
    media_type = SOUND_TYPES.get(EXTENSION_OF_FORMAT.get(str(identify_file(file)), ''))
    if media_type is None:
        return text
    file.seek(0)
    source = f'data:{media_type};base64,{base64.b64encode(file.read()).decode()}'
    return f'<audio controls preload="metadata" src="{source}"></audio><br>{text}'


def _pixels(values: np.ndarray, is_mask: bool) -> str:
    """Returns an image, uint8 (H, W, 3 or 4), or a grey image or mask, (H, W), as a thumbnail."""
    try:
        from PIL import Image
    except ImportError:
        return _text(value_as_text(values))
    step = max(1, -(-max(values.shape[:2]) // (4 * SIDE)))  # Pillow copies the pixels.
    values = np.ascontiguousarray(values[::step, ::step])
    if values.ndim == 3:
        return image_as_html(Image.fromarray(values))
    if values.dtype == bool or values.max() <= MAX_LABEL:
        is_mask = True
    if not is_mask and values.dtype != np.uint8:
        return image_as_html(Image.fromarray(values.astype(np.float32)))
    return mask_as_html(values) if is_mask else image_as_html(Image.fromarray(values))


def image_as_html(image: Any, is_mask: bool = False) -> str:
    """Returns a Pillow image as a thumbnail; a mask, or a grey image of small values, in colours."""
    if image.mode == 'P' and is_mask:
        return mask_as_html(np.asarray(image))
    if image.mode == 'L' and (is_mask or image.getextrema()[1] <= MAX_LABEL):
        return mask_as_html(np.asarray(image))
    if image.mode.startswith('I') or image.mode == 'F':  # Depth images with more than 8 bits.
        from PIL import Image

        values = np.nan_to_num(np.asarray(image, np.float32), posinf=0, neginf=0)
        low, high = float(values.min(initial=0)), float(values.max(initial=0))
        image = Image.fromarray(((values - low) * (255 / max(high - low, 1e-9))).astype(np.uint8))
    image.thumbnail((SIDE, SIDE))
    buffer = io.BytesIO()
    image.convert('RGB').save(buffer, 'JPEG', quality=80)
    return f'<img src="data:image/jpeg;base64,{base64.b64encode(buffer.getvalue()).decode()}">'


def mask_as_html(labels: np.ndarray) -> str:
    """Returns a mask of labels, shape (height, width), with a colour for each label; 0 is black."""
    from PIL import Image

    step = max(1, -(-max(labels.shape) // SIDE))
    labels = labels[::step, ::step].astype(np.int64)
    hues = labels * 137 % 360  # Neighbouring labels get distant hues.
    shade = np.where(labels, 220, 0)
    image = np.stack([hues * 255 // 360, np.where(labels, 170, 0), shade], axis=-1).astype(np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(image, 'HSV').convert('RGB').save(buffer, 'PNG')
    return f'<img src="data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode()}">'
