"""Copies packets to new MP4 files without encoding: of whole videos, of clips, and of frames."""

from __future__ import annotations

import io
import itertools
import os
import shutil
import tempfile
from fractions import Fraction
from typing import Any, BinaryIO

import numpy as np

from bags.formats.ffmpeg import import_av, open_container
from bags.formats.signatures import DEMUXERS, identify_file
from bags.indexing import Int64s
from bags.media.source import FileSource
from bags.media.video_decoder import VideoDecoder

__all__ = ['PacketCopier', 'RemuxedFile', 'copy_frames', 'copy_obstacle', 'remux']

MP4_CODECS = {'h264', 'hevc', 'vp9', 'av1', 'mpeg4', 'mjpeg'}
"""Codecs that MP4 supports, with one frame in each packet."""


class RemuxedFile(io.BufferedReader):
    """A temporary file that `remux` returned; the writer that stores it closes it."""


def remux(source: Any) -> BinaryIO:
    """Copies the streams of a video to an MP4 whose header comes first, with an index of all frames.

    Packets and their timestamps are unchanged. Streams other than video and audio are dropped.

    Args:
        source: A path, bytes, or a binary file that is open at its start, and stays open.

    Returns:
        A temporary file, open at its start, for a field of type `video`; closing it deletes it.

    Raises:
        ValueError: Not a video, or a codec that MP4 does not support.
        MissingDependencyError: av is not installed.
    """
    # A path, since libavformat opens the output a second time to move the header to the front.
    with FileSource(source).open() as file, tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, 'remuxed.mp4')
        _copy_streams(file, path)
        if os.name != 'nt':
            return RemuxedFile(io.FileIO(path))  # An unlinked file exists until it is closed.
        copy = tempfile.TemporaryFile()  # noqa: SIM115 - the caller closes it
        with open(path, 'rb') as written:
            shutil.copyfileobj(written, copy, 1 << 20)
        copy.seek(0)
        return copy


def _copy_streams(file: BinaryIO, path: str) -> None:
    av, name = import_av(), identify_file(file)
    if name not in DEMUXERS:
        raise ValueError(f'expected a video, got {name}')
    with open_container(file, name) as source:
        streams = [stream for stream in source.streams if stream.type in ('video', 'audio')]
        if not any(stream.type == 'video' for stream in streams):
            raise ValueError('expected a video, got a file without one')
        with av.open(path, 'w', format='mp4', options={'movflags': '+faststart'}) as target:
            copies: dict[int, Any] = {}
            for stream in streams:
                try:
                    copies[stream.index] = target.add_stream_from_template(stream)
                except (ValueError, av.FFmpegError) as exc:
                    codec = getattr(stream.codec_context, 'name', 'unknown')
                    raise ValueError(
                        f'expected {stream.type} of a codec that MP4 supports, got {codec}: {exc}'
                    ) from exc
            for packet in source.demux(streams):
                if packet.size:
                    packet.stream = copies[packet.stream.index]
                    target.mux(packet)


def copy_obstacle(decoder: VideoDecoder) -> tuple[str, str | None]:
    """Returns the codec of a video, and the reason why it cannot be copied to MP4; None if it can."""
    name = decoder.packets.new_context().codec
    codec = {'libdav1d': 'av1'}.get(name.name, name.canonical_name)
    table, timeline = decoder.packets.table, decoder.timeline
    if codec not in MP4_CODECS:
        return codec, f'MP4 does not support {codec}'
    if not table.one_frame_each:
        return codec, 'not every packet is a frame with a timestamp'
    frames = timeline.frame_of_packet
    if table.truncation and len(timeline.keys):
        frames = frames[: timeline.keys[-1]]  # The packets after that are in no clip.
    if (frames < 0).any():
        return codec, 'some of its frames are not shown'
    if not table.keys[0] or int(table.times.argmin()):
        return codec, 'its first frames refer to frames that are missing'
    return codec, None


class PacketCopier:
    """Copies the packets of a stream of a libavformat container to new files, in order."""

    def __init__(self, container: Any, stream: Any) -> None:
        self._stream = stream
        self.time_base = stream.time_base
        self._packets = (packet for packet in container.demux(stream) if packet.size)
        self._position = 0

    def copy(self, start: int, stop: int, length: int) -> bytes:
        """Returns packets as an MP4 whose frames begin at 0.

        Args:
            start, stop: Packet numbers, after those of the last call.
            length: Ticks from the first frame to the end of the last.
        """
        for _ in itertools.islice(self._packets, start - self._position):
            pass
        packets = list(itertools.islice(self._packets, stop - start))
        self._position = stop
        if len(packets) < stop - start or any(packet.is_corrupt for packet in packets):
            raise ValueError(f'cannot read packets {start} to {stop}')
        times = np.array([packet.pts for packet in packets])
        return _write_packets(packets, times, int(times.min()), length, self._stream)


def copy_frames(decoder: VideoDecoder, start: int, stop: int) -> bytes:
    """Copies the packets of some frames to a new MP4, in which they begin at 0.

    If the first frame is not a key frame, the packets from the key frame on are copied too; an edit list of
    the MP4 hides their frames.

    Raises:
        ValueError: Packets cannot be copied, or the frames before `stop` are not without one after it.
    """
    _, obstacle = copy_obstacle(decoder)
    timeline, table = decoder.timeline, decoder.packets.table
    first = int(timeline.starts[start:stop].min())
    last = int(timeline.packet_of_frame[start:stop].max()) + 1
    if obstacle or int(timeline.frame_of_packet[first:last].max()) >= stop:
        obstacle = obstacle or f'some of them refer to a frame after frame {stop - 1}'
        raise ValueError(f'frames {start} to {stop} cannot be copied: {obstacle}')
    packets = list(decoder.packets.read(first, last))
    for packet in packets:
        packet.time_base = Fraction(*table.time_base)
    begin = int(timeline.ticks[start])
    end = int(timeline.ticks[stop]) if stop < len(timeline) else timeline.end
    file: Any = decoder.file if decoder.packets.header is None else io.BytesIO(decoder.packets.header)
    file.seek(0)
    with open_container(file, decoder.packets.name) as container:
        stream = container.streams[0 if decoder.packets.header is not None else decoder.packets.stream]
        return _write_packets(packets, table.times[first:last], begin, end - begin, stream)


def _write_packets(packets: list[Any], times: Int64s, begin: int, length: int, stream: Any) -> bytes:
    """Returns an MP4 of packets.

    Args:
        packets: In decoding order.
        times: Their presentation times, in ticks.
        begin: The tick of the first presented frame.
        length: Ticks from there to the end of the last frame.
        stream: The stream of the packets.
    """
    shown = np.sort(times)
    until = np.append(shown[1:], max(begin + length, int(shown[-1]) + 1))
    decoded = _decoding_times(times, shown, int(until[-1]))
    durations = dict(zip(shown.tolist(), (until - shown).tolist(), strict=True))
    file = io.BytesIO()
    with import_av().open(file, 'w', format='mp4') as container:
        copy = container.add_stream_from_template(stream, opaque=True)
        for packet, time, decoding_time in zip(packets, times.tolist(), decoded.tolist(), strict=True):
            packet.duration = durations[time]
            packet.dts = decoding_time - begin
            packet.pts = time - begin
            packet.stream = copy
            container.mux(packet)
    return file.getvalue()


def _decoding_times(times: Int64s, shown: Int64s, end: int) -> Int64s:
    """Returns increasing decoding times of packets, none of them after the presentation of its frame.

    In MP4 the duration of a frame is the difference of its decoding time and that of the next packet. It is
    right for the last presented frame, and therefore for the whole video.
    """
    decoded = shown - int((shown - times).max())
    last = int(times.argmax())
    if last + 1 < len(times):
        wrong = int(decoded[last + 1] - decoded[last]) - (end - int(shown[-1]))
        decoded[: last + 1] += min(wrong, 0)
        decoded[last + 1 :] -= max(wrong, 0)
    return decoded
