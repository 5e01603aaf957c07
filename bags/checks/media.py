"""What checks of media share: the facts in the headers of records, and what is measured in frames."""

from __future__ import annotations

import collections
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from bags.checks.column import Column, Field
from bags.display.values import media_info
from bags.indexing import Int64s, offsets_of

Array = npt.NDArray[Any]

FRAMES_BYTES = 1 << 24
"""Approximate bytes of frames of a video that are decoded at a time."""
SOUND_SAMPLES = 1 << 20
"""Samples of a recording that are decoded at a time."""
THUMBNAIL = 96
"""Maximum side of the pictures that are measured, in pixels."""
SHARP_SIDE = 160
"""Side of the middle of a picture whose sharpness is measured, in pixels."""
HASH_ROWS, HASH_COLUMNS = 8, 9
SAME_CHANGE = 0.25
"""Mean difference of two equal frames, of 255, at most: codecs change a still picture by less."""


def headers(column: Column) -> list[list[dict[str, Any]]]:
    """Returns the facts in the headers of the records of each datapoint, as `media_info` does."""
    dataset, name = column.field.dataset, column.field.name
    facts = []
    for row, count in zip(column.rows.tolist(), column.lengths.tolist(), strict=True):
        items = range(count) if column.field.type.sequence else [None] * count
        of_row = []
        for item in items:
            with dataset.file(row, name, item) as file:
                of_row.append(media_info(file))
        facts.append(of_row)
    return facts


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
    return np.array(
        [
            sum(
                all(name in facts for name in names) and tuple(facts[name] for name in names) != usual
                for facts in of_row
            )
            for of_row in column.once(headers)
        ],
        np.int64,
    )


class Pictures(NamedTuple):
    """What was measured in the pictures or frames of n datapoints, `frames` in all; numbers are of 255."""

    offsets: Int64s
    """The start of each datapoint, and the end of the last, shape (n + 1,)."""
    dark: Array
    """The brightness that 99% of the pixels do not exceed, shape (frames,)."""
    bright: Array
    """The brightness that 99% of the pixels exceed, shape (frames,)."""
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
    measured: list[tuple[Any, ...]] = []
    for row in column.rows.tolist():
        before: Array | None = None
        count = 0
        frames, interval = _frames_of(column.field, row)
        for frame in frames:
            thumbnail, values = _measure(frame)
            difference = np.nan
            if before is not None and before.shape == thumbnail.shape:
                difference = float(np.abs(thumbnail - before).mean())
            measured.append((*values, difference, _hash(thumbnail)))
            before, count = thumbnail, count + 1
        counts.append(count)
        intervals.append(interval)
    numbers = np.array([values[:-1] for values in measured], np.float64).reshape(-1, 5)
    dark, bright, mean, sharpness, change = numbers.T
    hashes = np.array([values[-1] for values in measured], np.uint64)
    return Pictures(
        offsets_of(np.array(counts, np.int64)), dark, bright, mean, sharpness, change,
        hashes, np.array(intervals, np.float64),
    )  # fmt: skip


def first_hash(field: Field, row: int) -> int:
    """Returns the perceptual hash of the first picture of a datapoint; 0 if it is unknown."""
    if field.is_video:
        video = field.dataset.stream(row, field.name)
        frames = iter(()) if video is None or not len(video) else iter(video.options(color='gray')[:1])
    else:
        frames, _ = _frames_of(field, row)
    frame = next(frames, None)
    return 0 if frame is None else _hash(_measure(frame)[0])


def _frames_of(field: Field, row: int) -> tuple[Iterator[Array], float]:
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
    """Returns a small grey picture, int16, and what is measured."""
    if frame.dtype == np.uint16:
        frame = frame >> 8
    elif frame.dtype.kind == 'f':  # Depth in metres, in a TIFF.
        frame = np.nan_to_num(frame, posinf=0, neginf=0)
        frame = (frame * (255 / max(float(frame.max()), 1e-9))).clip(0, 255).astype(np.uint8)
    height, width = frame.shape[:2]
    step = max(1, -(-max(height, width) // THUMBNAIL))
    small = _grey(frame[::step, ::step])
    count = small.size
    bright, dark = np.partition(small, [count // 100, count - 1 - count // 100], None)[
        [count // 100, count - 1 - count // 100]
    ]
    top, left = (max(0, (side - SHARP_SIDE) // 2) for side in (height, width))
    middle = frame[top : top + SHARP_SIDE, left : left + SHARP_SIDE]
    # Of colour, green alone: it is most of the brightness, and has most of the pixels of a sensor.
    middle = (middle if middle.ndim == 2 else middle[:, :, min(1, middle.shape[2] - 1)]).astype(np.int16)
    return small, (float(dark), float(bright), float(small.mean()), _sharpness(middle))


def _sharpness(middle: Array) -> float:
    """Returns the variance of the Laplacian, times its ratio to the one of a picture of half the size."""
    middle = middle[: len(middle) // 2 * 2, : middle.shape[1] // 2 * 2]
    if min(middle.shape) < 16:
        return np.nan
    rows = middle[::2] + middle[1::2]
    coarse = (rows[:, ::2] + rows[:, 1::2]) >> 2
    return _edges(middle) ** 2 / max(_edges(coarse), 0.1)


def _edges(picture: Array) -> float:
    """Returns the variance of the Laplacian."""
    inner = picture[1:-1, 1:-1]
    around = picture[:-2, 1:-1] + picture[2:, 1:-1] + picture[1:-1, :-2] + picture[1:-1, 2:]
    around -= 4 * inner
    flat = around.reshape(-1).astype(np.float32)
    return float(flat @ flat / len(flat) - flat.mean() ** 2)


def _grey(frame: Array) -> Array:
    if frame.ndim == 2:
        return frame.astype(np.int16)
    if frame.shape[2] < 3:
        return frame[:, :, 0].astype(np.int16)
    red, green, blue = (frame[:, :, number].astype(np.int32) for number in range(3))
    return ((77 * red + 150 * green + 29 * blue) >> 8).astype(np.int16)


def _hash(small: Array) -> int:
    """Returns 64 bits that are alike for pictures that look alike; 0 for a picture without contrast."""
    rows = np.linspace(0, small.shape[0], HASH_ROWS + 1).astype(int)[:-1]
    columns = np.linspace(0, small.shape[1], HASH_COLUMNS + 1).astype(int)[:-1]
    if small.shape[0] < HASH_ROWS or small.shape[1] < HASH_COLUMNS or small.std() < 4:
        return 0
    sums = np.add.reduceat(np.add.reduceat(small, rows, 0), columns, 1)
    sizes = np.outer(np.diff(np.append(rows, small.shape[0])), np.diff(np.append(columns, small.shape[1])))
    means = sums / sizes
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
