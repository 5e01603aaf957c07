"""FFmpeg through the package av: import, opening untrusted files, streams, decoded samples."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np

from bags.errors import MissingDependencyError
from bags.formats.signatures import DEMUXERS
from bags.storage.base import SeekableFile


def import_av() -> Any:
    """Returns the package av. Raises MissingDependencyError if it is not installed."""
    try:
        import av
        import av.video.reformatter
    except ImportError as exc:
        raise MissingDependencyError('av', 'video') from exc
    return av


@functools.cache
def has_side_data() -> bool:
    """Returns whether packets provide side data, such as priming and palettes: from av 16 on."""
    return hasattr(import_av().Packet, 'has_sidedata')


def side_data(packet: Any) -> dict[str, Any]:
    """Returns the side data of a packet by FFmpeg's names of its types; empty if av hides side data.

    Most packets have none: one call is faster than `has_sidedata` for each type, which takes 0.7 µs.
    """
    return {data.data_type: data for data in packet.iter_sidedata()} if has_side_data() else {}


@functools.cache
def one_thread() -> dict[str, int]:
    """Returns the options with which a `VideoReformatter` uses one thread. Before av 17, it always does."""
    doc = import_av().video.reformatter.VideoReformatter.reformat.__doc__ or ''
    return {'threads': 1} if 'threads' in doc else {}


def open_container(file: SeekableFile, name: str, **options: str) -> Any:
    """Opens a binary file of a format named by `identify`, with options of its demuxer."""
    # With `options`, which also apply to streams, av before 17.1 crashes if the header contains no stream.
    return import_av().open(file, format=DEMUXERS[name], container_options=options, metadata_errors='replace')


@dataclass(frozen=True)
class Track:
    """A track of a media file, with FFmpeg's names. Unknown or inapplicable attributes are None."""

    index: int
    """Index of the track in the file."""
    type: str
    """`video`, `audio`, `subtitle`, `data` or `attachment`."""
    codec: str | None
    format: str | None
    """Pixel or sample format, such as `yuv420p10le`."""
    size: tuple[int, int] | None
    """Height and width of frames, as stored."""
    rate: float | None
    """Frames per second on average, or samples per second."""
    channels: int | None
    language: str | None


def best_stream(container: Any, media_type: str, index: int | None = None) -> Any:
    """Returns a stream of a media type: by its index, or by default the stream that players choose.

    The default depends on the probed data, so choose it once, in a file opened with the usual options.

    Raises:
        ValueError: The stream does not exist, or its codec cannot be decoded.
    """
    streams = container.streams
    stream = streams.best(media_type) if index is None else streams[index] if index < len(streams) else None
    # Decoding a stream without a context crashes av before 18.1.
    if stream is None or stream.type != media_type or stream.codec_context is None:
        descriptions = ', '.join(
            f'{other.index} {other.type} ({getattr(other.codec_context, "name", "unknown codec")})'
            for other in streams
        )
        expected = media_type if index is None else f'track {index} of {media_type}'
        raise ValueError(f'expected {expected}, got tracks: {descriptions or "none"}')
    return stream


def describe_stream(stream: Any) -> Track:
    """Describes a stream of a container."""
    context, type = stream.codec_context, str(stream.type)
    is_video, is_audio = (type == media_type and context is not None for media_type in ('video', 'audio'))
    rate = stream.average_rate if is_video else context.sample_rate if is_audio else None
    return Track(
        stream.index,
        type,
        None if context is None else context.name,
        context.format.name if (is_video or is_audio) and context.format else None,
        (context.height, context.width) if is_video else None,
        float(rate) if rate else None,
        context.layout.nb_channels if is_audio else None,
        stream.language,
    )


def frame_samples(frame: Any) -> np.ndarray[Any, np.dtype[Any]]:
    """Returns the samples of a decoded audio frame, shape (samples, channels), in its own dtype."""
    samples: np.ndarray[Any, np.dtype[Any]] = frame.to_ndarray()
    return samples.T if frame.format.is_planar else samples.reshape(-1, frame.layout.nb_channels)
