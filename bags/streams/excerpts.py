"""`read_excerpts`: the frames of a batch that are shown at some times, as excerpts of their files."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import SupportsIndex

import numpy as np
import numpy.typing as npt

from bags.concurrency import map_concurrently
from bags.dataset.base import Dataset
from bags.dataset.reading.origins import groups_of
from bags.indexing import Int64s, as_indices
from bags.links.segments import Parsed, ParsedFiles
from bags.media.excerpts import Excerpts, FileFrames, cut_excerpts
from bags.media.frames import SAME_SECONDS
from bags.media.segments import open_parsed_video, segment_of
from bags.media.source import LazyDecoder, MediaSource
from bags.media.video import Video
from bags.media.video_decoder import VideoDecoder
from bags.streams.stream import open_stream


def read_excerpts(
    dataset: Dataset, indices: Iterable[SupportsIndex], field: str, times: npt.ArrayLike
) -> Excerpts:
    """Returns the excerpts with the frames that are shown at times; see `Dataset.excerpts`."""
    rows = as_indices(indices, len(dataset))
    wanted = np.asarray(times, np.float64)
    if wanted.ndim not in (1, 2) or len(wanted) != len(rows):
        raise ValueError(
            f'excerpts: times: expected shape ({len(rows)},) or ({len(rows)}, n), for {len(rows)} '
            f'datapoints, got {wanted.shape}'
        )
    row_of_time = np.repeat(rows, wanted.size // max(1, len(rows)))
    seconds = wanted.ravel()

    def find(group: tuple[int, Int64s]) -> list[FileFrames]:
        row, positions = group
        name = f'{dataset.expression}, datapoint {row}, field {field!r}'
        stream = open_stream(dataset, row, field)
        if stream is None:
            raise ValueError(f'{name}: expected a video, got no value')
        if not isinstance(stream, Video):
            raise TypeError(f'{name}: expected a video, got a field of type {dataset.schema[field].text}')
        stream = _with_kept_tables(stream, dataset.known_elements[field].videos, row)
        try:
            numbers = stream.numbers_at(seconds[positions], SAME_SECONDS, name)
            requests = stream.file_frames(numbers, positions)
        except Exception as exc:
            exc.add_note(f'in the excerpt of {name}')
            raise
        return [request._replace(name=name) for request in requests]

    found = map_concurrently(find, [*groups_of(row_of_time)], dataset.reads_wait)
    requests = [request for of_row in found for request in of_row]
    return cut_excerpts(requests, wanted.shape, dataset.reads_wait)


def _with_kept_tables(video: Video, kept: ParsedFiles, row: int) -> Video:
    """Returns a video of a dataset, whose tables of packets are parsed once for all batches.

    Segments of linked files keep their tables themselves, and clips are opened by each batch.
    """
    if video.is_joined or segment_of(video.source) is not None:
        return video

    def parsed(name: object, parse: Callable[[], Parsed]) -> VideoDecoder:
        decoder: VideoDecoder = (kept.get((row, name)) or kept.add((row, name), parse())).value
        return decoder

    def open_kept(source: MediaSource, track: int | None) -> VideoDecoder:
        return open_parsed_video(source.open(), track, parsed)

    video.decoder = LazyDecoder(video.source, open_kept, video.decoder.track)
    return video
