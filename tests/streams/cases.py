"""The cases of streams: `cases.json`, which the tests of the page have too, and the datasets of the cases.

spec, fields    of the dataset, and its metadata of fields
rows            the datapoints. {"frames": [8, 12], "rate": 10}: clips of 8 and 12 frames at 10 Hz.
                {"intervals": [[0.1, 0.3]]}: a clip of two frames of these seconds. {"samples": [800]}: blocks
                of samples. {"items": 5}: items or rows. {"segment": [5, 15]}: a part of a linked file
expected        by field: the type of the elements; for each datapoint their number, their seconds, and the
                times of the first and the last (null: missing, or none); `at`: a datapoint, seconds, and the
                last element then; `between`: a datapoint, an interval, and the elements in it
conditions      conditions, and the datapoints that match
concat          cases whose datasets are concatenated: each datapoint is as in its own dataset

`python -m tests.streams.cases FOLDER` writes the dataset of each case to FOLDER/NUMBER.
"""

from __future__ import annotations

import io
import json
import sys
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

import bags
from bags.dataset.format.registry import AUDIO_FORMATS, VIDEO_FORMATS
from bags.dataset.format.spec import parse_spec
from bags.formats.write_video import MP4, write_frames

TABLE: dict[str, Any] = json.loads(Path(__file__).with_name('cases.json').read_text())
CASES: list[dict[str, Any]] = TABLE['cases']
SIZE = 32


def frame(number: int) -> np.ndarray[Any, Any]:
    """Returns a gray frame whose level is its number."""
    return np.full((SIZE, SIZE, 3), 8 * number % 256, np.uint8)


def clip_of_intervals(intervals: list[float], first: int) -> bytes:
    """Returns an MP4 of frames that last for these seconds."""
    ends = np.rint(np.cumsum(intervals) * 1000).astype(int)
    starts = [0, *ends[:-1].tolist()]
    frames = (
        (frame(first + i), start, end)
        for i, (start, end) in enumerate(zip(starts, ends.tolist(), strict=True))
    )
    file = io.BytesIO()
    write_frames(file, frames, MP4, Fraction(10), Fraction(1, 1000), is_exact=True)
    return file.getvalue()


def records(about: dict[str, Any], type_format: str) -> list[Any]:
    """Returns the clips, or the blocks of samples, that a value describes."""
    found: list[Any] = []
    first = 0
    for intervals in about.get('intervals', ()):
        found.append(clip_of_intervals(intervals, first))
        first += len(intervals)
    for count in about.get('frames', ()):
        format = type_format if type_format != 'video' else 'mp4'
        found.append(
            bytes(bags.encoders[format]([frame(first + i) for i in range(count)], str(about['rate'])))
        )
        first += count
    for count in about.get('samples', ()):
        samples = (np.arange(first, first + count) % 30_000).astype(np.int16)[:, None]
        found.append((samples, about['rate']))
        first += count
    return found + (records(about['more'], type_format) if 'more' in about else [])


def value(about: Any, field_type: Any, file: Path) -> Any:
    """Returns the value of a field that a case describes. `file` is written for a linked segment."""
    if about is None:
        return None
    if isinstance(about, list):
        return np.array([np.nan if time is None else time for time in about], float)
    if field_type.format in (*VIDEO_FORMATS, *AUDIO_FORMATS):
        parts = records(about, field_type.format)
        if 'segment' in about:
            (data,) = parts
            if not isinstance(data, bytes):
                data = bytes(bags.encoders['flac'](data))
            file.write_bytes(data)
            return bags.Link(file, frames=tuple(about['segment']))
        return parts if field_type.sequence else parts[0]
    count = about['items']
    if field_type.format == 'utf8':
        return [f'word {i}' for i in range(count)]
    if field_type.format == 'jpeg':
        return [frame(i) for i in range(count)]
    if field_type.format == 'array':
        dtype, *lengths = field_type.args
        shape = [int(length) for length in lengths if length != '?']
        items = np.arange(count).reshape(-1, *(1 for _ in shape))
        return np.broadcast_to(items, (count, *shape)).astype(dtype)
    return np.arange(count)


def write_case(case: dict[str, Any], path: Path) -> None:
    """Writes the dataset of a case."""
    schema, linked = parse_spec(case['spec']), case.get('linked', ())
    metadata = {'fields': case['fields']} if 'fields' in case else {}
    with bags.DatasetWriter(
        path, case['spec'], metadata=metadata, compression=case.get('compression', ()), linked_fields=linked
    ) as writer:
        for number, row in enumerate(case['rows']):
            files = {name: path / f'{name}-{number}.data' for name in row}
            writer.append({name: value(about, schema[name], files[name]) for name, about in row.items()})


def write_cases(folder: Path) -> None:
    """Writes the dataset of each case to a folder with its number."""
    for number, case in enumerate(CASES):
        write_case(case, folder / str(number))


if __name__ == '__main__':
    write_cases(Path(sys.argv[1]))
