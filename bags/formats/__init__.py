"""How values become records and records values: one plain pair of functions for each word of a type.

    arguments   what stands in a type's parentheses
    scalars     bytes · utf8 · bool · int · uint · float · i64 · u64
    arrays      array
    trees       msgpack · json · tree
    containers  what a media file is, and whether it is whole
    media       what is already encoded; reading without a copy
    images      jpeg · png · webp · avif
    wav         wav
    ffmpeg      FFmpeg's libraries: importing them, opening a file with them
    videos      mp4 · webm · mkv
    source      what a handle opens
    moov        where the samples of an MP4 are
    packets     where the packets of any media file are
    scan        going through a file to find that out
    timeline    which packet holds which frame
    reel        from frame numbers to frames
    tape        from sample numbers to samples
    handle      what is opened when it is first needed
    lazy_video  video: the handle
    lazy_audio  audio: the handle
    finished    video · audio: files that go in as they are
    remuxing    rewriting a video for quick access
    pieces      where a video is cut
    cutting     copying and decoding parts of a video
    clips       a long video as clips
    audio       flac · opus
    words       all of them, by word
    binding     a type's functions with its arguments read ahead of time

`encode_x(value, *args)` returns a record: bytes, a buffer, or an open file. `decode_x(data, *args)` takes
bytes or a memoryview of any origin and returns a value that keeps nothing of it. Both raise ValueError for
what cannot be right and TypeError for a value of the wrong type.
"""

from bags.formats.arrays import invalid_row
from bags.formats.binding import bind_decoder, bind_encoder, fixed_dtype
from bags.formats.lazy_audio import Audio
from bags.formats.lazy_video import Frames, Video
from bags.formats.remuxing import remux
from bags.formats.scalars import Buffer, decode_legacy_int
from bags.formats.words import check_type, decoders, encoders

__all__ = [
    'Audio',
    'Buffer',
    'Frames',
    'Video',
    'bind_decoder',
    'bind_encoder',
    'check_type',
    'decode_legacy_int',
    'decoders',
    'encoders',
    'fixed_dtype',
    'invalid_row',
    'remux',
]
