"""FFmpeg's libraries through the package av: importing it, and opening a file of any origin."""

from __future__ import annotations

from typing import Any

from bags.errors import MissingDependencyError
from bags.formats.signatures import DEMUXERS

__all__ = ['best_stream', 'import_av', 'open_container']


def import_av() -> Any:
    """Returns the package av; MissingDependencyError if it is not installed."""
    try:
        import av
        import av.video.reformatter
    except ImportError as exc:
        raise MissingDependencyError('av', 'video') from exc
    return av


def open_container(file: Any, name: str, **options: str) -> Any:
    """Opens a binary file of a format that `identify` names, with options of its demuxer."""
    return import_av().open(file, format=DEMUXERS[name], options=options, metadata_errors='replace')


def best_stream(container: Any, kind: str) -> Any:
    """Returns the stream of a kind, `video` or `audio`, that plays by default; ValueError without one."""
    stream = container.streams.best(kind)
    if stream is None:
        others = ' and '.join(sorted({str(other.type) for other in container.streams} - {kind}))
        found = f'{others} alone' if others else 'none of a codec that can be decoded'
        raise ValueError(f'expected {kind}, got {found}')
    # Decoding a stream without a context crashes av before 18.1.
    if stream.codec_context is None:
        raise ValueError(f'expected {kind}, got none of a codec that can be decoded')
    return stream
