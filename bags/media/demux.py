"""Finds the packets of a stream: from the header of an MP4, else by demuxing the file once."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any, BinaryIO

import numpy as np

from bags.formats.ffmpeg import (
    Track,
    best_stream,
    describe_stream,
    has_side_data,
    import_av,
    open_container,
    side_data,
)
from bags.formats.signatures import DEMUXERS, identify_file
from bags.media.b_frames import REORDERED_CODECS, is_b_frame, may_reorder, nal_length_size, split_vops
from bags.media.mp4 import Mp4Track, find_moov, find_track
from bags.media.packets import NO_PROBING, DemuxedPackets, Packets, new_context
from bags.media.priming import Skips
from bags.media.source import LazyDecoder
from bags.media.spliced_ts import JOINED_FORMATS, JoinedClock, is_join
from bags.media.timeline import Bools, PacketTable, are_decoding_times, in_order_packets
from bags.media.truncation import find_truncation
from bags.storage.range_file import BorrowedFile, positioned

HANDLERS = {'video': b'vide', 'audio': b'soun'}
PLAIN_CODECS = {
    b'avc1', b'avc3', b'hvc1', b'hev1', b'vp09', b'av01', b'mp4v', b'FFV1',
    b'mp4a', b'Opus', b'fLaC', b'alac',
}  # fmt: skip
"""Codecs whose samples in an MP4 are packets that libavcodec can decode unchanged."""

MAX_SKIPPED_VOP_BYTES = 16
"""Packets of MPEG-4 up to this size may be VOPs that are not coded and repeat a frame."""
MAX_PACKETS_BEFORE_JOIN = 8
"""Maximum number of packets from a packet that libavformat reports as damaged to a join. Without a join,
packets may be missing there."""
MAX_CHECKED_PACKETS = 64
"""Packets of an MP4 that are searched for B-frames, in `CHECKED_RANGES` ranges spread over the file."""
CHECKED_RANGES = 4


def open_packets(file: BinaryIO, media_type: str, index: int | None = None) -> Packets:
    """Finds the packets of a file's video or audio.

    Args:
        file: A seekable binary file.
        media_type: `video` or `audio`.
        index: The index of the track. By default, the track that players choose.

    Raises:
        ValueError: The file is not a media file, has no track of the type, or has an unknown codec.
    """
    file.seek(0)
    name = identify_file(file)
    if name not in DEMUXERS:
        raise ValueError(f'expected {media_type}, got {name}')
    track = None
    if name in ('MP4', 'QuickTime'):
        moov = find_moov(file)
        track = find_track(moov, HANDLERS[media_type]) if index is None else None
        if track is None:
            with _opened(file, name) as container:
                index = best_stream(container, media_type, index).index
            track = find_track(moov, HANDLERS[media_type], index)
        if track is not None and track.codec in PLAIN_CODECS and len(track.table.sizes):
            table = track.table
            if media_type == 'video':
                table = replace(table, shown=table.shown & (table.sizes > 0))
                packets = Packets(positioned(file), table, name, track.index, None, track.header)
                if track.codec != b'mp4v':
                    return _checked_times(packets)
                # With packed B-frames, a packet holds several frames. If times are decoding times, a B-frame
                # may be marked as a key frame, as FFmpeg does when it unpacks B-frames.
                if int(table.sizes.min()) > MAX_SKIPPED_VOP_BYTES:
                    packets = _checked_times(packets)
                    if packets.table.timed:
                        return packets
                index = track.index
            elif audio := _audio_packets(file, track, name):
                return audio
    return _demux(file, name, media_type, index, track is None)


def tracks_of(decoder: LazyDecoder[Any]) -> tuple[Track, ...]:
    """Opens the file of a decoder again and returns its tracks; raises the errors of `LazyDecoder.use`."""
    try:
        segment = getattr(decoder.source, 'segment', None)
        with decoder.source.open() if segment is None else segment.open() as file:
            name = identify_file(file)
            if name not in DEMUXERS:
                raise ValueError(f'expected video or audio, got {name}')
            with _opened(file, name) as container:
                return tuple(describe_stream(stream) for stream in container.streams)
    except Exception as exc:
        decoder.fail(exc)


def _opened(file: BinaryIO, name: str) -> Any:
    file.seek(0)
    try:
        return open_container(BorrowedFile(file), name)
    except import_av().FFmpegError as exc:
        raise ValueError(f'cannot be read as {name}: {exc}') from exc


def _audio_packets(file: BinaryIO, track: Mp4Track, name: str) -> Packets | None:
    """Returns the packets of an MP4 within its edit; None if libavformat begins with other packets.

    The first packets are demuxed, because libavformat determines the number of samples to drop.
    """
    begin, first, length = track.edit or (0, 0, 0)
    table, scale = track.table, track.table.time_base[1]
    times = table.times - begin + first  # Before the edit.
    ends = times + table.durations
    is_in_edit = (ends > first - scale) & (times < first + length if length else True) & (table.sizes > 0)
    numbers = np.flatnonzero(is_in_edit)
    if not len(numbers):
        return None
    skips = np.zeros((len(numbers), 2), np.int64)
    shown = np.ones(len(numbers), bool)
    checked = 0
    skipped = Skips(Packets(positioned(file), table, name, track.index, None, track.header).new_context)
    file.seek(0)
    with open_container(file, name, **NO_PROBING) as container:
        for packet in container.demux(best_stream(container, 'audio', track.index)):
            if not packet.size:
                continue
            number = numbers[checked]
            if (packet.pos, packet.size) != (table.offsets[number], table.sizes[number]):
                return None
            skips[checked, 0] = skipped.count(packet, side_data(packet))[0]
            shown[checked] = not packet.is_discard
            checked += 1
            # Without side data, priming is counted in each packet that contains priming.
            is_last = not packet.is_discard and (has_side_data() or not skips[checked - 1, 0])
            if is_last or checked == len(numbers):
                break
    if not checked:
        return None
    first_number, stop = int(numbers[0]), int(numbers[-1]) + 1
    is_run = len(numbers) == stop - first_number
    chosen = slice(first_number, stop) if is_run else numbers  # A slice is not a copy.
    columns = {key: getattr(table, key)[chosen] for key in ('offsets', 'sizes', 'times', 'durations')}
    table = replace(table, **columns, keys=np.ones(len(numbers), bool), shown=shown, skips=skips)
    return Packets(positioned(file), table, name, track.index, None, track.header)


def _checked_times(packets: Packets) -> Packets:
    """Returns the packets; sets `timed=False` in their table if their times are decoding times.

    A file with sample tables is not read completely: up to `MAX_CHECKED_PACKETS` of the packets whose times
    look as if the video had no B-frames are searched for a B-frame.
    """
    table = packets.table
    numbers = in_order_packets(table.times)
    if not len(numbers):
        return packets
    context = packets.new_context()
    codec = context.name
    if codec not in REORDERED_CODECS or not may_reorder(codec, context.extradata):
        return packets
    if codec == 'hevc':
        context.open(strict=False)
        if not context.has_b_frames:  # From the header; for H.264, set with the first frame.
            return packets
    length_size = nal_length_size(codec, context.extradata)
    b_frames = np.zeros(len(table.times), bool)
    size = MAX_CHECKED_PACKETS // CHECKED_RANGES
    for start in np.linspace(0, max(0, len(numbers) - size), CHECKED_RANGES).astype(int).tolist():
        run = numbers[start : start + size]
        run = run[run < run[0] + size]
        for number, packet in enumerate(packets.read(int(run[0]), int(run[-1]) + 1), int(run[0])):
            b_frames[number] = is_b_frame(codec, bytes(packet), length_size)
        if are_decoding_times(table.times, b_frames):
            return replace(packets, table=replace(table, one_frame_each=False, timed=False))
    return packets


def _demux(file: BinaryIO, name: str, media_type: str, stream_index: int | None, may_change: bool) -> Packets:
    """Reads the file once and records the packets of a stream.

    Args:
        file, name, media_type, stream_index: As in `open_packets`.
        may_change: Whether a stream of an MP4 or Ogg may have several headers.

    Raises:
        ValueError: The stream does not exist or has no packets.
    """
    av = import_av()
    file.seek(0)
    whole = BorrowedFile(file)
    rows: list[tuple[Any, ...]] = []
    packed: list[int] = []  # Rows of packed B-frames. An empty packet follows for each.
    is_packed = False
    shift: int | None = None  # Bytes from `packet.pos` to the packet; -1 if it is not stored as one range.
    truncation = find_truncation(whole, name)
    clock, doubtful = JoinedClock(), None  # Row and position of a packet after which packets may be missing.
    raw_times: list[int] = []
    try:
        with open_container(whole, name) as container:
            stream = best_stream(container, media_type, stream_index)
            index, is_reordered = stream.index, bool(getattr(stream.codec_context, 'has_b_frames', 0))
            codec = stream.codec_context.name
            time_base = stream.time_base.numerator, stream.time_base.denominator
            length_size = nal_length_size(codec, stream.codec_context.extradata)
            skips = Skips(lambda: new_context(BorrowedFile(file), name, index, codec), media_type == 'audio')
            is_matroska = name in ('Matroska', 'WebM') and len(container.streams) == 1
            duration = container.duration if is_matroska else None
            if not has_side_data() and _has_side_data(stream, name, may_change):
                shift = -1
            for packet in container.demux(stream):
                if not packet.size:
                    continue
                if doubtful and not packet.is_corrupt and (packet.pos or -1) > doubtful[1]:
                    if packet.is_keyframe and is_join(whole, doubtful[1], packet.pos, name):
                        doubtful = None
                    elif len(rows) - doubtful[0] > MAX_PACKETS_BEFORE_JOIN:
                        break
                if packet.is_corrupt and not doubtful:
                    doubtful = len(rows), max(packet.pos or 0, int(max(rows)[0] or 0) if rows else 0)
                    if name not in JOINED_FORMATS:
                        break
                data, extra = bytes(packet), side_data(packet)
                if 'new_extradata' in extra or 'palette' in extra:
                    shift = -1
                if shift != -1:
                    shift = _find(whole, packet.pos, data, shift)
                shown = not packet.is_discard and (codec != 'vp8' or bool(data[0] & 0x10))
                times = packet.pts, packet.dts, packet.duration or 0
                if name in JOINED_FORMATS:
                    times = clock.times(*times)
                starts = split_vops(data) if codec == 'mpeg4' else [0]
                if packed and len(starts) == 1 and packet.size <= MAX_SKIPPED_VOP_BYTES:
                    row = packed.pop(0)
                    rows[row] = (*rows[row][:2], *times, *rows[row][5:])
                    continue
                for begin, end in itertools.pairwise([*starts, packet.size]):
                    raw_times.append(packet.pts if packet.pts is not None else packet.dts or 0)
                    if begin:
                        is_packed = True
                        packed.append(len(rows))
                    b_frame = is_b_frame(codec, data[begin:end], length_size)
                    rows.append(
                        (
                            None if packet.pos is None else packet.pos + begin,
                            end - begin,
                            *times,
                            packet.is_keyframe and not begin and not (codec == 'mpeg4' and b_frame),
                            shown,
                            b_frame,
                            skips.count(packet, extra),
                        )
                    )
    except av.FFmpegError as exc:
        if not rows:
            raise ValueError(f'cannot be read as {name}: {exc}') from exc
        truncation = truncation or f'damaged after packet {len(rows) - 1}: {exc}'
    if doubtful:
        truncation = truncation or f'packet {doubtful[0]} is damaged'
        rows = rows[: doubtful[0]]
    if packed and packed[-1] == len(rows) - 1 > 0:
        rows.pop()  # libavcodec decodes a packed frame with the next packet: never the last frame.
    if not rows:
        raise ValueError(truncation or f'expected {media_type}, got a stream without packets')
    if is_packed and shift == -1:
        raise ValueError(f'the B-frames of MPEG-4 are packed, and the {name} does not store packets whole')
    table, b_frames = _table(rows, codec, shift or 0, time_base, truncation)
    if duration is not None and not truncation:
        _round_last_duration(table, duration)
    if (
        is_packed
        or are_decoding_times(table.times, b_frames & table.shown)
        or (name == 'AVI' and is_reordered and codec in ('h264', 'hevc'))
    ):
        table = replace(table, one_frame_each=False, timed=False)
    if shift != -1:
        return Packets(positioned(file), table, name, index, codec)
    stored = np.array(raw_times[: len(rows)], np.int64)
    return DemuxedPackets(positioned(file), table, name, index, codec, stored_times=stored)


def _table(
    rows: list[tuple[Any, ...]],
    codec: str,
    shift: int,
    time_base: tuple[int, int],
    truncation: str | None,
) -> tuple[PacketTable, Bools]:
    """Returns the table of packets, and which packets are B-frames.

    Rows are offset, size, pts, dts, duration, key, shown, B-frame, skips.
    """
    offsets, sizes, times, decoded, durations, keys, shown, b_frames, skips = map(
        list, zip(*rows, strict=True)
    )
    timed = None not in times
    one_frame_each = timed and len(set(times)) == len(times)
    if codec == 'mpeg4':
        one_frame_each = one_frame_each and min(sizes) > MAX_SKIPPED_VOP_BYTES
    horizon = max((time for time in decoded if time is not None), default=None)
    if truncation and timed and horizon is not None:
        # Missing packets have later decoding times, and therefore later presentation times. Frames after this
        # time are left out, since frames between them may be missing.
        shown = [is_shown and time <= horizon for is_shown, time in zip(shown, times, strict=True)]
    if not timed:
        defaults = decoded if None not in decoded else range(len(rows))
        times = [default if time is None else time for time, default in zip(times, defaults, strict=True)]
    table = PacketTable(
        np.array([-1 if offset is None else offset for offset in offsets], np.int64) + max(shift, 0),
        np.array(sizes, np.int64),
        np.array(times, np.int64),
        np.array([duration or 0 for duration in durations], np.int64),
        np.array(keys, bool),
        np.array(shown, bool),
        time_base,
        one_frame_each=one_frame_each,
        timed=timed,
        truncation=truncation,
        skips=np.array(skips, np.int64),
    )
    return table, np.array(b_frames, bool)


def _round_last_duration(table: PacketTable, duration: int) -> None:
    """Corrects the duration of the last packet of a Matroska file with one stream by a tick.

    libavformat omits a duration that equals the default duration rounded up or down, and later rounds the
    default down: each clip of two seconds at 60 fps would lose a millisecond.

    Args:
        table: The packets.
        duration: Duration of the file, in microseconds.
    """
    numerator, denominator = table.time_base
    last = int(np.argmax(table.times))
    exact = round(duration * denominator / (numerator * 1_000_000)) - int(table.times[last])
    if abs(exact - int(table.durations[last])) == 1 and exact > 0:
        table.durations[last] = exact


def _has_side_data(stream: Any, name: str, may_change: bool) -> bool:
    """Returns whether packets may have palettes or new headers as side data, which av before 16 hides."""
    is_palette = getattr(stream.codec_context, 'pix_fmt', None) == 'pal8'
    return is_palette or (may_change and name in ('MP4', 'QuickTime', 'Ogg', 'Ogg Opus'))


def _find(file: BorrowedFile, position: int | None, data: bytes, shift: int | None) -> int:
    """Returns how many bytes after `position` a packet starts; -1 if it is not stored as one range."""
    if position is None or position < 0:
        return -1
    if shift is None:
        return file.read_at(position, len(data) + 32).find(data)
    return shift if file.read_at(position + shift, len(data)) == data else -1
