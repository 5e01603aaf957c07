"""What media are, by their headers: no pixel and no sample is decoded."""

from __future__ import annotations

from typing import Any, BinaryIO

from bags.formats.signatures import DEMUXERS, EXTENSIONS, HEAD, identify

__all__ = ['media_facts']

_DEMUXERS = {**DEMUXERS, 'FLV': 'flv'}
_IMAGES = {'JPEG', 'PNG', 'WebP', 'AVIF', 'GIF', 'BMP', 'TIFF', 'JPEG 2000'}


def media_facts(file: BinaryIO) -> dict[str, Any]:
    """Returns what a file is: `format` (None: no media), `bytes`, and what its header says.

    That is `width`, `height` and `mode` of an image; of a film also `frames`, `fps`, `seconds` and `codec`;
    `rate`, `channels` and `seconds` of audio. What no package is installed for is left out;
    `unreadable` says what is wrong with a header.
    """
    size = file.seek(0, 2)
    file.seek(0)
    name = identify(file.read(HEAD))
    file.seek(0)
    facts: dict[str, Any] = {'format': name if name in EXTENSIONS else None, 'bytes': size}
    try:
        if name in _IMAGES:
            facts |= _image_facts(file)
        elif name in EXTENSIONS and name in _DEMUXERS:
            facts |= _stream_facts(file, _DEMUXERS[name])
    except Exception as exc:  # Of what kind, only the decoders know.
        facts['unreadable'] = f'{type(exc).__name__}: {exc}' if str(exc) else type(exc).__name__
    return facts


def _image_facts(file: BinaryIO) -> dict[str, Any]:
    try:
        from PIL import Image
    except ImportError:
        return {}
    with Image.open(file) as image:
        return {'width': image.width, 'height': image.height, 'mode': image.mode}


def _stream_facts(file: BinaryIO, format: str) -> dict[str, Any]:
    try:
        import av
    except ImportError:
        return {}
    facts: dict[str, Any] = {}
    container: Any
    with av.open(file, format=format, metadata_errors='replace') as container:
        if container.duration:
            facts['seconds'] = round(container.duration / 1_000_000, 3)
        for stream in container.streams.video[:1]:
            facts |= {'width': stream.width, 'height': stream.height, 'codec': stream.codec_context.name}
            if stream.average_rate:
                facts['fps'] = round(float(stream.average_rate), 3)
            if stream.frames:
                facts['frames'] = stream.frames
        for sound in container.streams.audio[:1]:
            facts |= {'rate': sound.rate, 'channels': sound.channels}
            facts.setdefault('codec', sound.codec_context.name)
    return facts
