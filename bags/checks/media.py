"""What checks of media share: the facts in the headers of records, and what is measured in frames."""

from __future__ import annotations

import collections
import functools
import io
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from bags.checks.column import Column, Field
from bags.display.values import media_info
from bags.formats.images import decode_grey_jpeg
from bags.indexing import Int64s, offsets_of
from bags.storage.base import Buffer

Array = npt.NDArray[Any]

FRAMES_BYTES = 1 << 24
"""Approximate bytes of frames of a video that are decoded at a time."""
SOUND_SAMPLES = 1 << 20
"""Samples of a recording that are decoded at a time."""
THUMBNAIL = 96
"""Maximum side of the pictures that are measured, in pixels."""
MIN_SHARP_SIDE, MAX_SHARP_SIDE = 64, 160
"""Sides of the middle of a picture whose sharpness is measured, in pixels: half the height or width."""
HASH_ROWS, HASH_COLUMNS = 8, 9
MIN_CONTRAST = 4
"""Standard deviation of a picture, of 255, below which it has no hash."""
MAX_BLACK = 16
MIN_WHITE = 250
"""Brightness of 255."""
READ_BYTES = 1 << 22
"""Bytes of records that are read at a time."""
MAX_WHOLE_BYTES = 1 << 15
"""Mean bytes of the records of images up to which they are read whole for their headers."""
SAME_CHANGE = 0.25
"""Mean difference of two equal frames, of 255, at most: codecs change a still picture by less."""


def headers(column: Column) -> list[list[dict[str, Any]]]:
    """Returns the facts in the headers of the records of each datapoint, as `media_info` does."""
    dataset, name = column.field.dataset, column.field.name
    if column.field.is_image and not column.field.type.sequence and not dataset.reads_wait:
        ranges = dataset.record_ranges(column.rows, name)
        if ranges is not None and ranges.sizes().mean() <= MAX_WHOLE_BYTES:
            return [[] if record is None else [_image_info(record)] for record in _records(column)]
    facts = []
    for row, count in zip(column.rows.tolist(), column.lengths.tolist(), strict=True):
        items = range(count) if column.field.type.sequence else [None] * count
        of_row = []
        for item in items:
            with dataset.file(row, name, item) as file:
                of_row.append(media_info(file))
        facts.append(of_row)
    return facts


def _records(column: Column) -> Iterator[Buffer | None]:
    """Yields the record of each datapoint of a plain field with stored records; None if it is missing."""
    ranges = column.field.dataset.record_ranges(column.rows, column.field.name)
    if ranges is None:
        return
    ends = np.cumsum(ranges.sizes())
    start = 0
    while start < len(column):
        before = ends[start - 1] if start else 0
        stop = max(start + 1, int(np.searchsorted(ends, before + READ_BYTES, 'right')))
        yield from column.field.dataset.read_records(column.rows[start:stop], column.field.name)
        start = stop


def _image_info(record: Buffer) -> dict[str, Any]:
    """Returns what `media_info` does of an image, of a JPEG without Pillow."""
    try:
        import simplejpeg

        height, width, space, _ = simplejpeg.decode_jpeg_header(record)
    except (ImportError, ValueError):
        space = ''
    if space in ('Gray', 'YCbCr', 'RGB'):
        mode = 'L' if space == 'Gray' else 'RGB'
        return {'format': 'JPEG', 'bytes': len(record), 'width': width, 'height': height, 'mode': mode}
    return media_info(io.BytesIO(record))


def usual_fact(field: Field, names: tuple[str, ...]) -> tuple[Any, ...] | None:
    """Returns the most frequent values of facts in the sampled datapoints; None without any."""
    counts = collections.Counter(
        tuple(facts[name] for name in names)
        for of_row in field.sample.once(headers)
        for facts in of_row
        if all(name in facts for name in names)
    )
    return counts.most_common(1)[0][0] if counts else None


def other_facts(column: Column, names: tuple[str, ...], usual: tuple[Any, ...] | None) -> Int64s:
    """Returns the number of records of each datapoint whose facts are not the usual ones."""
    expected = None if usual is None else dict(zip(names, usual, strict=True)).items()

    def is_other(facts: dict[str, Any]) -> bool:
        return (expected is None or not expected <= facts.items()) and all(name in facts for name in names)

    return np.array([sum(map(is_other, of_row)) for of_row in column.once(headers)], np.int64)


class Pictures(NamedTuple):
    """What was measured in the pictures or frames of n datapoints, `frames` in all; numbers are of 255."""

    offsets: Int64s
    """The start of each datapoint, and the end of the last, shape (n + 1,)."""
    black: Array
    """The share of the pixels with a brightness of at most `MAX_BLACK`, shape (frames,)."""
    white: Array
    """The share of the pixels with a brightness of at least `MIN_WHITE`, shape (frames,)."""
    mean: Array
    """(frames,)."""
    sharpness: Array
    """The variance of the Laplacian of the middle of the picture, times its ratio to the one of a coarse
    picture, shape (frames,). It depends on the focus, and less on what is shown. NaN for small pictures."""
    change: Array
    """The mean difference from the frame before, shape (frames,); NaN for the first one of a datapoint."""
    hashes: npt.NDArray[np.uint64]
    """A perceptual hash, shape (frames,): signs of horizontal differences of a picture of 9 × 8 pixels."""
    intervals: Array
    """Seconds from frame to frame, shape (n,); NaN if they are unknown."""

    def owners(self) -> Int64s:
        """Returns the position of the datapoint of each frame, shape (frames,)."""
        return np.repeat(np.arange(len(self.offsets) - 1), np.diff(self.offsets))


def is_pictures(field: Field) -> bool:
    """Returns whether values are images, sequences of images, or videos."""
    return field.is_image or field.is_video


def pictures(column: Column) -> Pictures:
    """Measures all images or frames of some datapoints. Each is decoded once."""
    counts, intervals = [], []
    measured: list[tuple[float, ...]] = []
    hashes: list[int] = []
    for frames, interval in _all_frames(column):
        before: Array | None = None
        count = 0
        for frame in frames:
            thumbnail, values = _measure(frame)
            difference = np.nan
            if before is not None and before.shape == thumbnail.shape:
                difference = float(np.abs(thumbnail.astype(np.int16) - before).mean())
            measured.append((*values, difference))
            hashes.append(_hash(thumbnail))
            before, count = thumbnail, count + 1
        counts.append(count)
        intervals.append(interval)
    black, white, mean, sharpness, change = np.array(measured, np.float64).reshape(-1, 5).T
    return Pictures(
        offsets_of(np.array(counts, np.int64)), black, white, mean, sharpness, change,
        np.array(hashes, np.uint64), np.array(intervals, np.float64),
    )  # fmt: skip


def _all_frames(column: Column) -> Iterator[tuple[Iterable[Array], float]]:
    """Yields the frames of each datapoint, and the seconds between them; see `_frames_of`."""
    field = column.field
    is_plain_jpeg = field.type.format == 'jpeg' and not field.type.sequence and len(field.type.args) < 2
    if not is_plain_jpeg or field.has_own_decoders:
        yield from (_frames_of(field, row) for row in column.rows.tolist())
        return
    # Without colour, a JPEG is decoded in two thirds of the time.
    for row, record in zip(column.rows.tolist(), _records(column), strict=True):
        grey = None if record is None else decode_grey_jpeg(record)
        yield _frames_of(field, row) if grey is None else ((grey,), float('nan'))


def first_hash(field: Field, row: int) -> int:
    """Returns the perceptual hash of the first picture of a datapoint; 0 if it is unknown."""
    if field.is_video:
        video = field.dataset.stream(row, field.name)
        frames = iter(()) if video is None or not len(video) else iter(video.options(color='gray')[:1])
    else:
        frames = iter(_frames_of(field, row)[0])
    frame = next(frames, None)
    return 0 if frame is None else _hash(_measure(frame)[0])


def _frames_of(field: Field, row: int) -> tuple[Iterable[Array], float]:
    """Returns the frames of a datapoint, grey if they are decoded so, and the seconds between them."""
    if field.is_video:
        video = field.dataset.stream(row, field.name)
        if video is None or not len(video):
            return iter(()), float('nan')
        interval = 1 / field.rate if field.rate else video.duration / len(video)
        return _frames_of_video(video.options(color='gray', dtype='uint8')), float(interval)
    value = field.dataset[row, field.name][field.name]
    if value is None:
        return iter(()), float('nan')
    images = iter(value) if field.type.sequence else iter([value])
    interval = 1 / field.rate if field.rate else float('nan')
    if field.times is not None and field.type.sequence:
        times = Column(field, np.array([row])).times
        assert times is not None
        steps = np.diff(times.items[:, 0])
        interval = float(np.median(steps)) if len(steps) else float('nan')
    return images, interval


def _frames_of_video(video: Any) -> Iterator[Array]:
    _, height, width = video.shape[:3]
    step = max(1, FRAMES_BYTES // max(1, height * width))
    for start in range(0, len(video), step):
        yield from video[start : start + step]


def _measure(frame: Array) -> tuple[Array, tuple[float, float, float, float]]:
    """Returns a small grey picture, uint8, and what is measured."""
    if frame.dtype == np.uint16:
        frame = (frame >> 8).astype(np.uint8)
    elif frame.dtype.kind == 'f':  # Depth in metres, in a TIFF.
        frame = np.nan_to_num(frame, posinf=0, neginf=0)
        frame = (frame * (255 / max(float(frame.max()), 1e-9))).clip(0, 255).astype(np.uint8)
    height, width = frame.shape[:2]
    step = max(1, -(-max(height, width) // THUMBNAIL))
    small = _grey(frame[::step, ::step])
    black = np.count_nonzero(small <= MAX_BLACK) / small.size
    white = np.count_nonzero(small >= MIN_WHITE) / small.size
    sharp = min(MAX_SHARP_SIDE, max(MIN_SHARP_SIDE, min(height, width) // 2))
    top, left = max(0, height - sharp) // 2, max(0, width - sharp) // 2
    middle = frame[top : top + sharp, left : left + sharp]
    # Of colour, green alone: it is most of the brightness, and has most of the pixels of a sensor.
    middle = (middle if middle.ndim == 2 else middle[:, :, min(1, middle.shape[2] - 1)]).astype(np.int16)
    return small, (black, white, int(small.sum(dtype=np.uint32)) / small.size, _sharpness(middle))


def _sharpness(middle: Array) -> float:
    """Returns the variance of the Laplacian, times its ratio to the one of a picture of half the size."""
    middle = middle[: len(middle) // 2 * 2, : middle.shape[1] // 2 * 2]
    if min(middle.shape) < 16:
        return np.nan
    rows = middle[::2] + middle[1::2]
    coarse = (rows[:, ::2] + rows[:, 1::2]) >> 2
    return _edges(middle) ** 2 / max(_edges(coarse), 0.1)


def _edges(picture: Array) -> float:
    """Returns the variance of the Laplacian. Its mean, the sum of the steps at the border, is about 0."""
    inner = picture[1:-1, 1:-1]
    around = picture[:-2, 1:-1] + picture[2:, 1:-1]
    around += picture[1:-1, :-2]
    around += picture[1:-1, 2:]
    around -= inner << 2
    flat = around.reshape(-1).astype(np.float32)
    return float(flat @ flat) / len(flat)


def _grey(frame: Array) -> Array:
    if frame.ndim == 2:
        return np.ascontiguousarray(frame)
    if frame.shape[2] < 3:
        return np.ascontiguousarray(frame[:, :, 0])
    red, green, blue = (frame[:, :, number].astype(np.uint16) for number in range(3))
    return ((77 * red + 150 * green + 29 * blue) >> 8).astype(np.uint8)


@functools.lru_cache(maxsize=64)
def _cells(height: int, width: int) -> tuple[Array, Array]:
    """Returns the matrices that average the rows and columns of a picture to its hash."""
    rows, columns = (
        np.diff(
            (np.arange(length) < np.linspace(0, length, count + 1).astype(int)[:, None]).astype(np.float32),
            axis=0,
        )
        for length, count in ((height, HASH_ROWS), (width, HASH_COLUMNS))
    )
    return rows / rows.sum(1, keepdims=True), (columns / columns.sum(1, keepdims=True)).T.copy()


def _hash(small: Array) -> int:
    """Returns 64 bits that are alike for pictures that look alike; 0 for a picture without contrast."""
    if small.shape[0] < HASH_ROWS or small.shape[1] < HASH_COLUMNS:
        return 0
    # Products with matrices take a third of the time of sums of parts.
    pixels = small.astype(np.float32)
    flat = pixels.reshape(-1)
    mean = float(flat.sum()) / len(flat)
    if float(flat @ flat) / len(flat) - mean**2 < MIN_CONTRAST**2:
        return 0
    rows, columns = _cells(*small.shape)
    means = rows @ pixels @ columns
    bits = (means[:, 1:] > means[:, :-1]).reshape(-1)
    return int.from_bytes(np.packbits(bits).tobytes(), 'big')


def sound_parts(field: Field, row: int) -> Iterator[tuple[Array, int]]:
    """Yields the samples of a datapoint in parts, float32 (samples, channels), each with the rate."""
    sound = field.dataset.stream(row, field.name)
    if sound is None:
        return
    for start in range(0, len(sound), SOUND_SAMPLES):
        samples = np.asarray(sound[start : start + SOUND_SAMPLES])
        if samples.dtype.kind in 'iu':
            samples = samples.astype(np.float32) / np.iinfo(samples.dtype).max
        yield samples.reshape(len(samples), -1), int(sound.rate)
