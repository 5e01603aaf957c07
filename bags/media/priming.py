"""Counts the samples that libavcodec drops at the start and at the end of the packets of a recording.

The file specifies these samples: priming of AAC, MP3 and Opus, padding of the last packet, and edits.
libavformat adds their numbers to packets as side data, which av exposes from version 16 on. With an earlier
version of av, packets are decoded twice, with and without these samples.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from bags.formats.ffmpeg import frame_samples, has_side_data, import_av

SKIP_MANUAL = 1 << 29
"""A flag of libavcodec: the decoder keeps priming and padding."""


class Skips:
    """Counts the dropped samples of consecutive packets.

    Args:
        new_context: Function that returns a new codec context of the stream.
        is_audio: Whether the stream is audio. No samples are dropped from other streams.
    """

    def __init__(self, new_context: Callable[[], Any], is_audio: bool = True) -> None:
        self._is_audio = is_audio
        self._contexts: list[Any] = []
        self._is_first = True
        if is_audio and not has_side_data():
            self._contexts = [new_context(), new_context()]
            for context in self._contexts:
                context.thread_count = 1
            self._contexts[1].flags2 |= SKIP_MANUAL

    def count(self, packet: Any, data: dict[str, Any]) -> tuple[int, int]:
        """Returns the numbers of samples to drop at the start and at the end of a packet with side data."""
        if not self._is_audio:
            return 0, 0
        if not self._contexts:
            is_first, self._is_first = self._is_first, False
            if 'skip_samples' not in data:
                return _priming_in_header(packet.stream.codec_context) if is_first else 0, 0
            start, end = struct.unpack_from('<II', bytes(data['skip_samples']))
            return start, end
        trimmed, whole = (_decode(context, packet) for context in self._contexts)
        length, dropped = trimmed.shape[-1], whole.shape[-1] - trimmed.shape[-1]
        if dropped <= 0 or not length:
            return max(dropped, 0), 0
        order = [*range(dropped, -1, -1)] if self._is_first else [0, *range(dropped, 0, -1)]
        self._is_first = False
        start = next(
            (first for first in order if np.array_equal(whole[..., first : first + length], trimmed)),
            order[0],
        )
        return start, dropped - start


def _priming_in_header(context: Any) -> int:
    """Returns the samples to drop that the header of an Opus stream states, e.g. in an MP4 without edits."""
    head = context.extradata or b''
    return int.from_bytes(head[10:12], 'little') if head.startswith(b'OpusHead') else 0


def _decode(context: Any, packet: Any) -> npt.NDArray[Any]:
    """Returns the samples of a packet, shape (channels, samples); an empty array if the packet is damaged."""
    try:
        frames = context.decode(packet)
    except import_av().FFmpegError:
        frames = []
    blocks = [frame_samples(frame).T for frame in frames]
    return np.concatenate(blocks, axis=1) if blocks else np.empty((1, 0))
