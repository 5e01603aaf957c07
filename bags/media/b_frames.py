"""Parses picture headers in packets: B-frames, the start of each frame, and gradual key frames. No I/O.

A B-frame refers to a later frame, which precedes the B-frame in the file:

    packet               0   1   2   3        I   P   b   b
    presented at         0   3   1   2
    wrongly stored       0   1   2   3        decoding times: the B-frames are presented last
"""

from __future__ import annotations

import re
from collections.abc import Iterator

REORDERED_CODECS = ('h264', 'hevc', 'mpeg4', 'mpeg1video', 'mpeg2video')
"""Codecs that may store frames in an order other than presentation order."""
MAX_HEADER_BYTES = 24
"""Maximum number of bytes of a slice header up to the type of the slice."""

MAX_SEI_BYTES = 256
"""Maximum number of bytes of a message of H.264 that are searched for the recovery point."""
_SEI, _RECOVERY_POINT = 6, 6
"""The type of NAL units with messages, and the type of the message."""

VOP = b'\0\0\1\xb6'
"""The start code of a frame of MPEG-4."""
_PICTURE = b'\0\0\1\0'
"""The start code of a frame of MPEG-1 and MPEG-2."""
_NAL_START = re.compile(rb'\x00\x00\x01(?=.)', re.DOTALL)


def nal_length_size(codec: str, extradata: bytes | None) -> int:
    """Returns the bytes of the length field before each NAL unit of H.264 and HEVC; 0 for start codes."""
    position = {'h264': 4, 'hevc': 21}.get(codec)
    if position is None or not extradata or extradata[0] != 1 or len(extradata) <= position:
        return 0
    return (extradata[position] & 3) + 1


def is_b_frame(codec: str, data: bytes, length_size: int = 0) -> bool:
    """Returns whether a packet contains a B-frame, according to its first header.

    Args:
        codec: The name of the codec in libavcodec. False for codecs outside `REORDERED_CODECS`.
        data: The packet.
        length_size: The result of `nal_length_size`.
    """
    if codec in ('h264', 'hevc'):
        return any(_is_b_slice(codec, data[at : at + MAX_HEADER_BYTES]) for at in _nals(data, length_size))
    start, bit = (VOP, 6) if codec == 'mpeg4' else (_PICTURE, 3)
    if codec not in REORDERED_CODECS:
        return False
    at = data.find(start) + (4 if codec == 'mpeg4' else 5)
    return 4 <= at < len(data) and data[at] >> bit & 7 == (2 if codec == 'mpeg4' else 3)


def may_reorder(codec: str, extradata: bytes | None) -> bool:
    """Returns whether frames may be reordered; False only if an H.264 header rules it out.

    Args:
        codec: The name of the codec in libavcodec.
        extradata: The header in the form of MP4, which begins with a parameter set.
    """
    if codec != 'h264' or not extradata or extradata[0] != 1 or len(extradata) < 12:
        return True
    length = int.from_bytes(extradata[6:8], 'big')
    data = extradata[9 : 8 + length].replace(b'\0\0\3', b'\0\0')
    try:
        return _sps_may_reorder(_Bits(data))
    except IndexError:
        return True


def recovery_frames(data: bytes, length_size: int) -> int:
    """Returns the number of frames after which pictures are complete that begin at a key frame of H.264.

    Above 0 if the picture is restored gradually, in place of a key frame (D.1.8): only frames that other
    frames refer to count. 0 for a complete key frame.

    Args:
        data: The packet.
        length_size: The result of `nal_length_size`.
    """
    for at in _nals(data, length_size):
        if data[at] & 31 == _SEI:
            unit, position = data[at + 1 : at + 1 + MAX_SEI_BYTES].replace(b'\0\0\3', b'\0\0'), 0
            while position + 2 < len(unit):
                sizes = []  # Of the type and the length, which are sums of bytes up to one below 255.
                for _ in range(2):
                    total = 0
                    while position < len(unit) and unit[position] == 255:
                        total, position = total + 255, position + 1
                    sizes.append(total + (unit[position] if position < len(unit) else 0))
                    position += 1
                if sizes[0] == _RECOVERY_POINT:
                    try:
                        return _Bits(unit[position:]).golomb()
                    except IndexError:
                        return 0
                position += sizes[1]
    return 0


def is_reference(data: bytes, length_size: int) -> bool:
    """Returns whether other frames may refer to a frame of H.264; arguments as for `recovery_frames`."""
    return any(data[at] & 31 in (1, 2, 5) and data[at] & 0x60 for at in _nals(data, length_size))


class _Bits:
    """Reads a bit string; raises IndexError past its end."""

    def __init__(self, data: bytes) -> None:
        self._bits, self._rest = int.from_bytes(data, 'big'), 8 * len(data)

    def read(self, count: int) -> int:
        self._rest -= count
        if self._rest < 0:
            raise IndexError
        return self._bits >> self._rest & (1 << count) - 1

    def golomb(self) -> int:
        """Reads an Exp-Golomb number."""
        zeros = 0
        while not self.read(1):
            zeros += 1
        return (1 << zeros) - 1 + self.read(zeros)

    def skip(self, *counts: int) -> None:
        """Skips fields, given by their numbers of bits; 0 for an Exp-Golomb number."""
        for count in counts:
            if count:
                self.read(count)
            else:
                self.golomb()


_HIGH_PROFILES = (100, 110, 122, 244, 44, 83, 86, 118, 128, 138, 139, 134, 135)


def _sps_may_reorder(bits: _Bits) -> bool:
    """Reads a sequence parameter set of H.264 (7.3.2.1, E.1) up to `max_num_reorder_frames`."""
    profile = bits.read(8)
    bits.skip(16, 0)
    if profile in _HIGH_PROFILES:
        if bits.golomb() == 3:  # chroma_format_idc
            bits.skip(1)
        bits.skip(0, 0, 1)
        if bits.read(1):
            return True  # Scaling matrices are not parsed.
    bits.skip(0)
    order = bits.golomb()  # pic_order_cnt_type
    if order == 2:
        return False
    if order == 0:
        bits.skip(0)
    elif order == 1:
        bits.skip(1, 0, 0)
        bits.skip(*[0] * min(bits.golomb(), 256))
    bits.skip(0, 1, 0, 0)
    if not bits.read(1):  # frame_mbs_only_flag
        bits.skip(1)
    bits.skip(1)
    if bits.read(1):  # frame_cropping_flag
        bits.skip(0, 0, 0, 0)
    if not bits.read(1):  # vui_parameters_present_flag
        return True
    if bits.read(1) and bits.read(8) == 255:  # aspect_ratio_idc
        bits.skip(32)
    if bits.read(1):  # overscan_info_present_flag
        bits.skip(1)
    if bits.read(1):  # video_signal_type_present_flag
        bits.skip(4)
        if bits.read(1):
            bits.skip(24)
    if bits.read(1):  # chroma_loc_info_present_flag
        bits.skip(0, 0)
    if bits.read(1):  # timing_info_present_flag
        bits.skip(32, 32, 1)
    has_buffers = [bits.read(1) and _skip_buffer(bits) for _ in range(2)]
    if any(has_buffers):
        bits.skip(1)
    bits.skip(1)
    if not bits.read(1):  # bitstream_restriction_flag
        return True
    bits.skip(1, 0, 0, 0, 0)
    return bits.golomb() > 0


def _skip_buffer(bits: _Bits) -> bool:
    """Skips the parameters of a buffer (hrd_parameters)."""
    count = min(bits.golomb() + 1, 32)
    bits.skip(8, *[0, 0, 1] * count, 20)
    return True


def split_vops(data: bytes) -> list[int]:
    """Returns the start of each frame in a packet of MPEG-4. The first frame includes the headers before it.

    Packed B-frames are stored in the packet of the frame that they refer to.
    """
    starts = [match.start() for match in re.finditer(re.escape(VOP), data)]
    return [0, *starts[1:]]


def _nals(data: bytes, length_size: int) -> Iterator[int]:
    """Yields the start of each NAL unit of H.264 or HEVC."""
    if not length_size:
        yield from (match.end() for match in _NAL_START.finditer(data))
        return
    at = 0
    while at + length_size < len(data):
        yield at + length_size
        at += length_size + int.from_bytes(data[at : at + length_size], 'big')


def _is_b_slice(codec: str, unit: bytes) -> bool:
    # Remove the bytes that prevent start codes in the content.
    unit = unit.replace(b'\0\0\3', b'\0\0')
    bits = int.from_bytes(unit.ljust(MAX_HEADER_BYTES, b'\xff'), 'big')
    if codec == 'h264':
        if unit[0] & 31 not in (1, 2, 5):
            return False
        _, at = _exp_golomb(bits, 8)  # first_mb_in_slice
        return _exp_golomb(bits, at)[0] % 5 == 1
    # Types from 16 on are key frames. A slice begins with 1 if it is the first of its picture.
    if unit[0] >> 1 & 63 >= 16 or not bits >> (8 * MAX_HEADER_BYTES - 17) & 1:
        return False
    _, at = _exp_golomb(bits, 17)  # The number of the picture parameter set.
    return _exp_golomb(bits, at)[0] == 0


def _exp_golomb(bits: int, at: int) -> tuple[int, int]:
    """Returns the Exp-Golomb number at bit `at` of `MAX_HEADER_BYTES` bytes, and the bit after it."""
    rest = 8 * MAX_HEADER_BYTES - at
    value = bits & (1 << rest) - 1
    zeros = rest - value.bit_length()
    width = 2 * zeros + 1
    if width > rest:
        return -1, at
    return (value >> rest - width) - 1, at + width
