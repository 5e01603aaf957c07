"""Reads recordings that a manifest lists, and parts of them: links, or samples."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numpy as np

from bags.concurrency import FifoCache
from bags.interop.sources.manifests.listed_files import ListedFiles
from bags.interop.sources.manifests.sound_parts import SoundLength
from bags.links.sources import LinkOpener, OpenedLink
from bags.media.audio import Audio
from bags.media.headers import parse_header
from bags.media.open_audio import open_audio
from bags.storage.range_file import RangeFile

MAX_KNOWN_FILES = 1 << 14
"""Maximum number of files whose lengths are kept."""
INT16_STEPS = 1 << 15


ChoosePart = Callable[[SoundLength], tuple[int, int]]
"""Returns the range (start, stop) of the samples of a part."""


class Sounds:
    """Reads recordings, and parts of them. Thread-safe.

    Args:
        files: The files.
    """

    def __init__(self, files: ListedFiles) -> None:
        self._files = files
        self._known: tuple[LinkOpener, FifoCache[str, tuple[OpenedLink, SoundLength]]] | None = None

    def read(self, path: str) -> Any:
        """Returns the value for a whole recording: its bytes, or its path.

        Raises:
            SourceError, ValueError: It cannot be read.
        """
        return self._files.read(path, 'audio')

    def link(self, path: str, opener: LinkOpener) -> OpenedLink:
        """Returns a link to a whole recording.

        Raises:
            SourceError, ValueError: It cannot be read.
        """
        return self._files.link(path, 'audio', opener)

    def read_part(self, path: str, choose: ChoosePart) -> Any:
        """Returns the value for a part of a recording: its samples and rate; as `read` if it is the whole.

        The samples are integers of 16 bits if these are exact, else float32.

        Raises:
            SourceError, ValueError: It cannot be read, or decoded.
        """
        whole = self._files.read(path, 'audio')
        audio = Audio(whole, exact=True)
        length = SoundLength(len(audio), audio.rate)
        first, stop = choose(length)
        if (first, stop) == (0, length.samples):
            return whole
        samples = audio[first:stop]
        scaled = samples * np.float32(INT16_STEPS)
        integers = scaled.astype(np.int16) if np.abs(scaled).max() < INT16_STEPS else None
        is_exact = integers is not None and np.array_equal(integers, scaled)
        return (integers if is_exact else samples), length.rate

    def link_part(self, path: str, choose: ChoosePart, opener: LinkOpener) -> OpenedLink:
        """Returns a link to a part of a recording, or to the whole.

        Raises:
            SourceError, ValueError: It cannot be read, or its length is unknown.
        """
        known = self._known
        if known is None or known[0] is not opener:  # Another import of the same source.
            known = self._known = opener, FifoCache(lambda path: self._open(path, opener), MAX_KNOWN_FILES)
        link, length = known[1][path]
        first, stop = choose(length)
        is_whole = (first, stop) == (0, length.samples)
        if is_whole:
            return link
        return OpenedLink(
            link.path,
            link.offset,
            link.length,
            None,
            (first, stop),
            entry=link.entry,
            open=link.open,
            known=b'',
        )

    def _open(self, path: str, opener: LinkOpener) -> tuple[OpenedLink, SoundLength]:
        link = self._files.link(path, 'audio', opener)
        kept = OpenedLink(link.path, 0, link.length, entry=link.entry, open=link.open, known=b'')
        return kept, _length_of(link)


def _length_of(link: OpenedLink) -> SoundLength:
    """Returns the length of a recording from its header, or else by counting its samples."""
    parser, data = parse_header(link.known, len(link), 'audio'), None
    try:
        while True:
            start, stop = parser.send(data)  # type: ignore[arg-type]
            data = bytes(link[start:stop])
    except StopIteration as end:
        header = end.value
    if header is not None:
        return SoundLength(header.elements, int(header.rate))
    decoder = open_audio(cast(Any, RangeFile(link.file, 0, len(link), str(link.path))))
    try:
        return SoundLength(decoder.length, decoder.rate)
    finally:
        decoder.close()
