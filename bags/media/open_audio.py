"""Opens an audio track with the decoder that its format needs."""

from __future__ import annotations

from typing import Any, BinaryIO, Protocol

import numpy as np

from bags.formats.audio import decode_flac, encode_wav
from bags.formats.ffmpeg import frame_samples, open_container
from bags.formats.signatures import identify_file
from bags.media.audio_decoder import WITH_VIDEO, AudioDecoder
from bags.media.demux import open_packets
from bags.media.packets import Packets
from bags.media.timeline import PacketTable
from bags.media.wav_reader import Samples, WavReader, as_float
from bags.storage.range_file import BufferFile, PositionedFile


class AnyAudioDecoder(Protocol):
    """Reads the samples of a recording: `WavReader`, `AudioDecoder`, or a part of a recording."""

    rate: int
    """Samples per second."""
    channels: int
    layout: str
    """FFmpeg's name of the channel layout."""
    length: int
    """Number of samples."""
    begin: float
    """The time of the first sample, in seconds."""
    truncation: str | None
    """Description of the missing end of the file; None if the file is complete."""

    @property
    def file(self) -> BinaryIO | PositionedFile: ...

    def close(self) -> None:
        """Closes the file."""

    def ranges(self, start: int, stop: int) -> list[tuple[int, int]]:
        """Returns the byte ranges to read for samples."""
        ...

    def read(self, start: int, stop: int, exact: bool = False) -> Samples:
        """Returns samples, shape (stop - start, channels)."""
        ...


def _is_contiguous(file: BinaryIO, table: PacketTable) -> bool:
    """Returns whether the packets of a FLAC are contiguous and complete.

    Otherwise libavformat split the file wrongly: at damage, or (rarely) at samples that look like a frame
    header. Decoding the whole file distinguishes the two.
    """
    file.seek(18)
    expected = int.from_bytes(file.read(8), 'big') & (1 << 36) - 1
    ends = table.times + table.durations
    if int(table.times[0]) or not np.array_equal(ends[:-1], table.times[1:]):
        return False
    return not expected or int(ends[-1]) == expected  # A tick is a sample.


def _decode_whole(file: BinaryIO, packets: Packets) -> WavReader:
    """Decodes all samples of a WMA, whose decoder itself drops the first samples and delays the last."""
    blocks, rate, begin = [], 0, None
    file.seek(0)
    with file, open_container(file, packets.name) as container:
        stream = container.streams[packets.stream]
        for frame in container.decode(stream):
            blocks.append(frame_samples(frame))
            rate, begin = rate or frame.sample_rate, frame.time if begin is None else begin
    if not blocks:
        raise ValueError('expected at least one sample, got none')
    data = encode_wav((as_float(np.concatenate(blocks)), rate))
    reader = WavReader(BufferFile(data))  # type: ignore[arg-type]
    reader.truncation = packets.table.truncation
    reader.begin = float(begin or 0) if packets.name in WITH_VIDEO else 0.0
    return reader


def open_audio(file: BinaryIO, track: int | None = None, find: Any = open_packets) -> AnyAudioDecoder:
    """Opens an audio track and numbers its samples.

    Args:
        file: A seekable binary file.
        track: The index of the track. By default, the track that players choose.
        find: Function that finds the packets, with the arguments of `open_packets`.

    Raises:
        ValueError: The file is not audio, or has no samples.
    """
    file.seek(0)
    if identify_file(file) == 'WAV' and not track:
        try:
            return WavReader(file)
        except ValueError as exc:
            if 'cut off' in str(exc):
                raise  # With any other error, the WAV is compressed.
    packets = find(file, 'audio', track)
    if packets.name == 'FLAC' and not _is_contiguous(file, packets.table):
        file.seek(0)
        with file:
            return WavReader(BufferFile(encode_wav(decode_flac(file.read()))))  # type: ignore[arg-type]
    if packets.codec and packets.codec.startswith('wma'):
        return _decode_whole(file, packets)
    return AudioDecoder(file, packets)
