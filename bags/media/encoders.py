"""Encoders of the types `video` and `audio`, whose records are complete files of any common format.

video, video(30), video(30,23)    arrays and iterables of frames are encoded as with `mp4(30,23)`
video(remux=True)                 files are rewritten with `bags.remux`, for fast slices
video(track=1,rotate=False)       options of `bags.Video`: `track`, `rotate`, `dtype`, `color`
audio                             samples are encoded as `flac`, or as `wav` if they are floats
audio(rate=16000,channels=1)      options of `bags.Audio`: `rate`, `channels`, `exact`, `track`
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import numpy as np

from bags.formats.audio import encode_flac, encode_wav
from bags.formats.encoded import Encoded, already_encoded, check_file
from bags.formats.pixels import PIXEL_OPTIONS, PixelOptions
from bags.formats.scalars import check_count, parse_bool, parse_int, split_options
from bags.formats.videos import encode_mp4, video_options
from bags.media import clip_encoders
from bags.media.remux import RemuxedFile, remux
from bags.media.source import LazyDecoder
from bags.storage.range_file import BorrowedFile

MAX_RATE = 1 << 24
"""Maximum sample rate to resample to, in Hz."""
MAX_MIXED = 2
"""Maximum number of channels to mix to."""
VIDEO_FILE_FORMATS = (
    'MP4', 'QuickTime', 'Matroska', 'WebM', 'AVI', 'MPEG-TS', 'M2TS', 'MPEG-PS', 'MPEG video', 'FLV',
    'ASF', 'Ogg', 'GIF',
)  # fmt: skip
AUDIO_FILE_FORMATS = (
    'WAV', 'FLAC', 'Ogg Opus', 'Ogg', 'MP3', 'AAC', 'MP4', 'QuickTime', 'Matroska', 'WebM', 'AIFF', 'AU',
    'ASF',
)  # fmt: skip


def stored_video_options(*args: str) -> tuple[tuple[str, ...], dict[str, Any]]:
    """Parses the arguments of `video(fps,crf,remux=True,rotate=False)`, which are all optional.

    Returns:
        The arguments of `mp4`, and the options.
    """
    others, options = split_options(_renamed(args), remux=parse_bool, track=_track, **PIXEL_OPTIONS)
    video_options(*others)
    return others, options


def reading_options(*args: str) -> dict[str, Any]:
    """Parses the options of `bags.Video` from the arguments of the type `video`."""
    options = stored_video_options(*args)[1]
    return {name: value for name, value in options.items() if name != 'remux'}


def audio_options(*args: str) -> dict[str, Any]:
    """Parses the options of `bags.Audio` from the arguments of the type `audio`, e.g. `audio(exact)`."""
    others, options = split_options(
        _renamed(args), exact=parse_bool, track=_track, rate=_rate, channels=_channels
    )
    check_count(others, 0, 'audio(rate=16000,channels=1)')
    return options


def _renamed(args: tuple[str, ...]) -> list[str]:
    """Returns the arguments of a type with `track=` for `stream=`, which the specs of older datasets have."""
    return [re.sub(r'^\s*stream\s*=', 'track=', arg) for arg in args]


def _track(text: str) -> int:
    return parse_int(text, 0, 10_000, 'a track')


def _rate(text: str) -> int:
    return parse_int(text, 1, MAX_RATE, 'a rate')


def _channels(text: str) -> int:
    return parse_int(text, 1, MAX_MIXED, 'channels')


def encode_video(value: Any, *args: str) -> Encoded:
    """Stores a video file unchanged, or encodes frames.

    Args:
        value: A path, bytes, or a binary file at its start: MP4, QuickTime, Matroska, WebM, AVI, MPEG-TS,
            M2TS, MPEG-PS, FLV, ASF (WMV), Ogg or GIF. The file is copied without loading it into memory. The
            same holds for a `bags.Video` with the options of this type. Or frames, as for `encode_mp4`.
        *args: Frames per second and constant rate factor for frames, as for `mp4`. `remux=True` copies the
            tracks of a file to an MP4 whose header comes first, which makes slices fast. The options
            `track`, `rotate`, `dtype` and `color` apply to the `bags.Video` when the field is read.

    Raises:
        ValueError: The first bytes are not a signature of a video. The video is not decoded.
    """
    arguments, options = stored_video_options(*args)
    stored = _stored(value, VIDEO_FILE_FORMATS, options)
    if stored is None:
        return encode_mp4(value, *arguments)
    if not options.get('remux'):
        return stored
    try:
        return remux(stored)
    finally:
        if not isinstance(stored, bytes):
            stored.close()


def _encode_clips(frames: Any, seconds: float, rate: float | None, *args: str) -> Iterator[Encoded]:
    return clip_encoders.MP4.encode(frames, seconds, rate, *stored_video_options(*args)[0])


encode_video.clips = clip_encoders.MP4._replace(encode=_encode_clips)  # type: ignore[attr-defined]


def encode_audio(value: Any, *args: str) -> Encoded:
    """Stores an audio file unchanged, or encodes samples losslessly.

    Args:
        value: A path, bytes, or a binary file at its start: WAV, FLAC, Ogg, MP3, AAC, M4A, AIFF, AU, WMA, or
            a video file with audio. Or a `bags.Audio` of such a file. Or a pair of samples and rate: integers
            as for `encode_flac`, floats as for `encode_wav`.
        *args: Options that apply to the `bags.Audio` when the field is read.

    Raises:
        ValueError: The first bytes are not a signature of audio. The audio is not decoded.
    """
    stored = _stored(value, AUDIO_FILE_FORMATS, audio_options(*args))
    if stored is not None:
        return stored
    is_pair = isinstance(value, tuple | list) and len(value) == 2
    return encode_wav(value) if is_pair and np.asarray(value[0]).dtype.kind == 'f' else encode_flac(value)


encode_audio.clips = clip_encoders.AUDIO  # type: ignore[attr-defined]


def _stored(value: Any, formats: tuple[str, ...], options: dict[str, Any]) -> Encoded | None:
    """Checks the format of a file and returns the file; None for a value that is not a file."""
    if _is_read_with(value, options):
        return check_file(value.decoder.source.open(), formats)  # type: ignore[no-any-return]
    if hasattr(value, 'read') and hasattr(value, 'seek'):
        # The writer closes the returned file, so it must not be the file of the caller.
        file = value if isinstance(value, RemuxedFile) else BorrowedFile(value)
        return check_file(file, formats)  # type: ignore[return-value]
    return already_encoded(value, *formats)


def _is_read_with(value: Any, options: dict[str, Any]) -> bool:
    """Returns whether a value is a `bags.Video` or `bags.Audio` that is read with these options."""
    decoder = None if getattr(value, 'is_joined', False) else getattr(value, 'decoder', None)
    if not isinstance(decoder, LazyDecoder) or decoder.track != options.get('track'):
        return False
    resampling = options.get('rate'), options.get('channels')
    expected = PixelOptions(
        color=options.get('color'), dtype=options.get('dtype'), rotate=options.get('rotate', True)
    )
    is_resampling_equal = getattr(value, 'resampling', resampling) == resampling
    return is_resampling_equal and getattr(value, 'pixel_options', expected) == expected
