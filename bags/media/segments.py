"""Opens the video or audio of a source, which may be a segment of a linked file, and copies segments."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, BinaryIO, TypeVar

import numpy as np

from bags.indexing import Int64s
from bags.links.segments import Parsed, Segment
from bags.media.demux import open_packets
from bags.media.encoders import audio_options, reading_options
from bags.media.open_audio import AnyAudioDecoder, open_audio
from bags.media.packets import Packets
from bags.media.remux import FrameCopier
from bags.media.source import MediaSource
from bags.media.timeline import Timeline
from bags.media.video_decoder import VideoDecoder, open_video
from bags.media.wav_reader import Samples
from bags.storage.range_file import positioned

T = TypeVar('T')


def segment_of(source: MediaSource) -> Segment | None:
    """Returns the segment of a source; None if the source is a whole file."""
    return getattr(source, 'segment', None)


def open_whole(source: MediaSource) -> BinaryIO:
    """Opens the file of a source; for a segment, the whole linked file."""
    segment = segment_of(source)
    return source.open() if segment is None else segment.open()


def segment_length(source: MediaSource, format: str) -> int | None:
    """Returns the number of frames or samples of a segment of a type `format`; None for other sources."""
    segment = segment_of(source)
    return None if segment is None or segment.type.format != format else segment.stop - segment.first


# Videos.


class VideoPart(VideoDecoder):
    """A range of frames of a video, as a video that begins at 0 s.

    Args:
        whole: The video.
        first, stop: The range of frames.
    """

    def __init__(self, whole: VideoDecoder, first: int, stop: int) -> None:
        super().__init__(whole.file, whole.packets, whole.timeline.part(first, stop))
        self._whole, self._first, self._stop = whole, first, stop

    def over(self, file: BinaryIO) -> VideoPart:
        return VideoPart(self._whole.over(file), self._first, self._stop)

    def whole(self) -> tuple[VideoDecoder, int]:
        return self._whole, self._first

    def close(self) -> None:
        self._whole.close()

    def frames(self, numbers: Int64s, threads: int | None = None) -> Iterator[tuple[int, Any]]:
        try:
            for number, frame in self._whole.frames(numbers + self._first, threads):
                yield number - self._first, frame
        except ValueError as exc:
            raise ValueError(f'frames {self._first} to {self._stop} of a video: {exc}') from exc


def video_of(source: MediaSource, track: int | None = None) -> VideoDecoder:
    """Opens the video of a source; `track` and errors as in `open_video`."""
    segment = segment_of(source)
    if segment is None:
        return _open(source.open(), lambda file: open_video(file, track))
    if segment.type.format != 'video':
        raise ValueError('expected a part of a video, got a part of a recording, in samples')
    whole = _whole_video(segment, track)
    try:
        return VideoPart(whole, segment.first, segment.stop)
    except BaseException:
        whole.close()
        raise


def _open(file: BinaryIO, open: Callable[[BinaryIO], T]) -> T:
    """Returns `open(file)`; closes the file if `open` raises."""
    try:
        return open(file)
    except BaseException:
        file.close()
        raise


def _whole_video(segment: Segment, track: int | None) -> VideoDecoder:
    """Returns a decoder of the whole video of a segment. Its tables are parsed once."""
    return open_parsed_video(segment.open(), track, segment.parsed)


def open_parsed_video(
    file: BinaryIO, track: int | None, parsed: Callable[[object, Callable[[], Parsed]], VideoDecoder]
) -> VideoDecoder:
    """Opens the video of a file, whose tables of packets are parsed once; closes the file if that fails.

    Args:
        file, track: As for `open_video`.
        parsed: Returns what a function makes of the file, from a cache; given a name and the function.
    """

    def parse(file: BinaryIO) -> Parsed:
        decoder = open_video(file, track).without_file()
        return Parsed(decoder, _size_of(decoder.timeline, decoder.packets.table))

    return _open(file, lambda file: parsed(('video', track), lambda: parse(file)).over(file))


def _size_of(*tables: Any) -> int:
    """Returns the total size of the arrays in tables, in bytes."""
    return sum(array.nbytes for table in tables for array in vars(table).values() if hasattr(array, 'nbytes'))


def _times(timeline: Timeline, first: int, stop: int) -> tuple[float, float]:
    """Returns the start and the end of a range of frames, in seconds."""
    numerator, denominator = timeline.time_base
    begin = int(timeline.ticks[first])
    end = begin + timeline.part(first, stop).end
    return begin * numerator / denominator, end * numerator / denominator


# Recordings.


class AudioPart:
    """A range of samples of a recording. Attributes as in `AnyAudioDecoder`.

    Args:
        whole: The recording.
        first, stop: The range of samples.
        begin: The time of the first sample, in seconds.
    """

    truncation: str | None = None

    def __init__(self, whole: AnyAudioDecoder, first: int, stop: int, begin: float) -> None:
        if stop > whole.length:
            missing = whole.truncation or f'the recording has {whole.length}'
            raise ValueError(f'expected samples {first} to {stop}, but {missing}')
        self._whole, self._first = whole, first
        self.length, self.begin = stop - first, begin
        self.file, self.rate = whole.file, whole.rate
        self.channels, self.layout = whole.channels, whole.layout

    def close(self) -> None:
        """Closes the file."""
        self._whole.close()

    def ranges(self, start: int, stop: int) -> list[tuple[int, int]]:
        """Returns the byte ranges to read for samples."""
        return self._whole.ranges(self._first + start, self._first + stop)

    def read(self, start: int, stop: int, exact: bool = False) -> Samples:
        """Returns samples, shape (stop - start, channels)."""
        return self._whole.read(self._first + start, self._first + stop, exact)


def audio_of(source: MediaSource, track: int | None = None) -> AnyAudioDecoder:
    """Opens the audio of a source; `track` and errors as in `open_audio`.

    The audio of a segment of a video has the same clock as the frames of the segment.
    """
    segment = segment_of(source)
    if segment is None:
        return _open(source.open(), lambda file: open_audio(file, track))
    whole = _whole_audio(segment, track)
    try:
        if segment.type.format == 'audio':
            return _audio_part(whole, segment.first, segment.stop, 0.0)
        video = _whole_video(segment, None)
        video.close()
        begin, end = _times(video.timeline, segment.first, segment.stop)
        low, high = _sample_at(whole, begin), _sample_at(whole, end)
        return _audio_part(whole, low, high, whole.begin + low / whole.rate - begin)
    except BaseException:
        whole.close()
        raise


def _audio_part(whole: AnyAudioDecoder, first: int, stop: int, begin: float) -> AnyAudioDecoder:
    return AudioPart(whole, first, stop, begin)


def _whole_audio(segment: Segment, track: int | None) -> AnyAudioDecoder:
    """Returns a decoder of the whole recording of a segment. Its tables are parsed once."""
    none: Any = None

    def find(file: BinaryIO, media_type: str, track: int | None) -> Packets:
        def parse() -> Parsed:
            packets = replace(open_packets(file, media_type, track), file=none)
            return Parsed(packets, _size_of(packets.table))

        packets: Packets = segment.parsed((media_type, track), parse)
        return replace(packets, file=positioned(file))

    return _open(segment.open(), lambda file: open_audio(file, track, find))


def _sample_at(recording: AnyAudioDecoder, seconds: float) -> int:
    """Returns the index of the first sample at or after a time."""
    number = math.ceil(round((seconds - recording.begin) * recording.rate, 6))
    return min(max(number, 0), recording.length)


# For writers and copies.


def find_frames(segment: Segment, times: tuple[float, float], *args: str) -> tuple[int, int]:
    """Returns the range (start, stop) of the frames or samples with times in a half-open interval.

    Args:
        segment: The file.
        times: Start and end of the interval, in seconds.
        *args: The arguments of the type `video` or `audio`.

    Raises:
        ValueError: The interval contains no frame or sample, or the file cannot be read.
    """
    if segment.type.format == 'audio':
        recording = _whole_audio(segment, audio_options(*args).get('track'))
        recording.close()
        first, stop = (_sample_at(recording, time) for time in times)
        start, end = recording.begin, recording.begin + recording.length / recording.rate
        truncation = recording.truncation
    else:
        video = _whole_video(segment, reading_options(*args).get('track'))
        video.close()
        timeline = video.timeline
        first, stop = np.searchsorted(timeline.seconds(timeline.ticks), times, 'left').tolist()
        (start, end), truncation = _times(timeline, 0, len(timeline)), timeline.truncation
    if truncation and times[1] > end:
        raise ValueError(truncation)
    if first == stop:
        raise ValueError(f'expected a part with times from {start:.6g} to {end:.6g} s, got {times}')
    return first, stop


def copy_segment(segment: Segment) -> bytes:
    """Copies the packets of a segment of a video to an MP4 without audio; see `FrameCopier`.

    Raises:
        ValueError: The packets cannot be copied.
    """
    if segment.type.format == 'audio':
        raise ValueError(
            f'samples {segment.first} to {segment.stop} cannot be copied: they are not whole packets'
        )
    decoder = _whole_video(segment, reading_options(*segment.type.args).get('track'))
    with decoder.file, FrameCopier(decoder) as copier:
        decoder.timeline.part(segment.first, segment.stop)  # Raises if there are fewer frames.
        return copier.copy(segment.first, segment.stop)
