"""Videos and recordings that go in as the files they are: the types `video` and `audio`.

video, video(30), video(30,23)    arrays and iterables of frames are encoded as `mp4(30,23)` does it
video(remux=True)                 files are rewritten for quick access, by `bags.remux`
audio                             samples are encoded as `flac`, or as `wav` if they are floats
"""

from __future__ import annotations

import io
import os
from typing import Any, BinaryIO

import numpy as np

from bags.formats.audio import encode_flac
from bags.formats.encoded import Encoded
from bags.formats.signatures import HEAD, identify
from bags.formats.videos import encode_mp4, video_options
from bags.formats.wav import encode_wav
from bags.media.remux import Remuxed, remux

__all__ = ['encode_audio', 'encode_video', 'stored_video_options']

VIDEOS = ('MP4', 'QuickTime', 'Matroska', 'WebM', 'AVI')
SOUNDS = ('WAV', 'FLAC', 'Ogg Opus', 'Ogg', 'MP3', 'AAC', 'MP4', 'QuickTime', 'Matroska', 'WebM')


def stored_video_options(*args: str) -> tuple[tuple[str, ...], bool]:
    """Reads the arguments of `video(fps,crf,remux=True)`, each of which may be left out.

    Returns:
        Those of `mp4`, and whether files are rewritten.
    """
    remuxes = [arg for arg in args if arg.partition('=')[0].strip() == 'remux']
    others = tuple(arg for arg in args if arg not in remuxes)
    if len(remuxes) > 1 or any(arg not in ('remux', 'remux=True', 'remux=False') for arg in remuxes):
        raise ValueError(f'expected video(fps,crf,remux=True), got the arguments {", ".join(args)}')
    video_options(*others)
    return others, bool(remuxes) and remuxes != ['remux=False']


def encode_video(value: Any, *args: str) -> Encoded:
    """Takes a video as it is.

    Args:
        value: A path, bytes, or a binary file that is open at its start: MP4, QuickTime, Matroska, WebM or
            AVI. It is copied without being held in memory. Or frames, as `encode_mp4` takes them.
        *args: Frames a second and constant rate factor for frames, as in `mp4`; `remux=True` stores the
            streams of a file in an MP4 whose header comes first, which makes slices of it cheap.

    Raises:
        ValueError: Not a video. (Whether it can be decoded is seen when it is read.)
    """
    encoder, remuxes = stored_video_options(*args)
    found = _file(value, VIDEOS)
    if found is None:
        return encode_mp4(value, *encoder)
    if not remuxes:
        return found
    try:
        return remux(found)
    finally:
        if not isinstance(found, bytes):
            found.close()


def encode_audio(value: Any) -> Encoded:
    """Takes a recording as it is.

    Args:
        value: A path, bytes, or a binary file that is open at its start: WAV, FLAC, Ogg, MP3, M4A, or one
            with video beside the audio. Or a pair of samples and rate: integers as `encode_flac` takes
            them, floats as `encode_wav` does. What is read back is as exact as what was given.

    Raises:
        ValueError: Not audio. (Whether it can be decoded is seen when it is read.)
    """
    found = _file(value, SOUNDS)
    if found is not None:
        return found
    is_pair = isinstance(value, tuple | list) and len(value) == 2
    return encode_wav(value) if is_pair and np.asarray(value[0]).dtype.kind == 'f' else encode_flac(value)


def _file(value: Any, names: tuple[str, ...]) -> Encoded | None:
    """Returns a value that is a file, after a look at its first bytes; None if it is none."""
    if isinstance(value, bytes | bytearray | memoryview):
        data = bytes(value)
        _check(data[:HEAD], names, '')
        return data
    if isinstance(value, str | os.PathLike):
        file: Any = open(value, 'rb')  # noqa: SIM115 - the writer closes it
    elif hasattr(value, 'read') and hasattr(value, 'seek'):
        file = value if isinstance(value, Remuxed) else _Borrowed(value)
    else:
        return None
    try:
        start = file.tell()
        _check(file.read(HEAD), names, f'{getattr(file, "name", file)}: ')
        file.seek(start)
    except BaseException:
        file.close()
        raise
    return file  # type: ignore[no-any-return]


def _check(head: bytes, names: tuple[str, ...], where: str) -> None:
    found = identify(head)
    if found not in names:
        raise ValueError(f'{where}expected {", ".join(names[:-1])} or {names[-1]}, got {found}')


class _Borrowed(io.RawIOBase):
    """A file of somebody else, who will close it."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.name = getattr(file, 'name', repr(file))

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def read(self, size: int | None = -1, /) -> bytes:
        return self._file.read(-1 if size is None else size)

    def readall(self) -> bytes:
        return self.read()

    def readinto(self, buffer: Any, /) -> int:
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        return self._file.tell()
