"""Decodes excerpts to tensors with torchcodec, on the CPU or a GPU."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from bags.errors import MissingDependencyError
from bags.formats.pixels import DEEP_GRAY
from bags.media.excerpts import Excerpt, Excerpts
from bags.validation import import_optional

if TYPE_CHECKING:
    import torch

MAX_TIME_ERROR = 1e-6
"""Seconds by which equal times in a file may differ, from rounding."""


def decode(excerpts: Excerpt | Excerpts, device: torch.device | str | int | None = None) -> torch.Tensor:
    """Decodes the frames of excerpts with torchcodec, on the CPU or a GPU.

    Frames of 8 bits are equal to the frames of `bags.Video`. Colours of more bits become uint8, with
    another rounding. Frames are rotated as in players. Grey of more than 8 bits, such as depth, keeps the
    stored values, and is decoded on the CPU.

    Args:
        excerpts: An excerpt, from `Video.excerpt`, or the excerpts of a batch, from `Dataset.excerpts`.
        device: The device on which frames are decoded, and of the result. Default: the CPU.

    Returns:
        uint8 RGB, shape (*times, height, width, 3), where `times` is (n,) for an excerpt, and for a batch the
        shape of the requested times. Grey of more than 8 bits is uint16, shape (*times, height, width).

    Raises:
        ValueError: A frame is damaged, or frames differ in size. The message names the video.
        MissingDependencyError: PyTorch or torchcodec is not installed, or the libraries of FFmpeg, which
            torchcodec needs, are missing.
    """
    torch = import_optional('torch')
    one = [excerpts] if isinstance(excerpts, Excerpt) else excerpts
    shape = (len(excerpts),) if isinstance(excerpts, Excerpt) else excerpts.shape
    places = [np.arange(len(excerpts))] if isinstance(excerpts, Excerpt) else excerpts.positions
    device = torch.device('cpu' if device is None else device)
    result: Any = None
    for excerpt, positions in zip(one, places, strict=True):
        for found, pixels in _decoded(torch, excerpt, device):
            if result is None:
                result = torch.empty((math.prod(shape), *pixels.shape), dtype=pixels.dtype, device=device)
            if (result.shape[1:], result.dtype) != (pixels.shape, pixels.dtype):
                expected, got = ((tuple(value.shape), value.dtype) for value in (result[0], pixels))
                raise ValueError(f'{excerpt.name}: expected a frame of {expected}, as the first, got {got}')
            for position in positions[found].tolist():
                result[position] = pixels
    if result is None:
        return torch.empty((*shape, 0, 0, 3), dtype=torch.uint8, device=device)
    return result.reshape(*shape, *result.shape[1:])


def _decoded(torch: Any, excerpt: Excerpt, device: torch.device) -> Iterator[tuple[Any, torch.Tensor]]:
    """Yields wanted frames: their positions in the excerpt, and their pixels.

    Raises:
        ValueError: A frame cannot be decoded.
    """
    frames = RawFrames(excerpt, device)
    convert = None if frames.are_deep_gray else frames.decoders.ColorConverter(device)
    for positions, frame in frames:
        if convert is None:
            pixels = torch.rot90(frame.planes[0], round(frame.rotation / 90) % 4)
            yield positions, pixels.to(device)
        else:
            yield positions, convert.convert(frame).data.permute(1, 2, 0)


class RawFrames:
    """The wanted frames of an excerpt as torchcodec decodes them, before their conversion to RGB.

    Args:
        excerpt: The excerpt.
        device: The device that decodes. Grey of more than 8 bits is decoded on the CPU.

    Attributes:
        decoders: The module `torchcodec.decoders`.
        are_deep_gray: Whether frames are grey with more than 8 bits.
    """

    def __init__(self, excerpt: Excerpt, device: torch.device) -> None:
        self.decoders = import_torchcodec()
        self._excerpt = excerpt
        self._demuxer = self.decoders.Demuxer(excerpt.file)
        (stream,) = self._demuxer.streams
        self.are_deep_gray = stream.metadata.pixel_format in DEEP_GRAY
        self._decoder = stream.make_decoder('cpu' if self.are_deep_gray else device)

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        """Yields positions in the excerpt, and frames.

        Raises:
            ValueError: A frame is damaged.
        """
        times, places = np.unique(self._excerpt.file_times, return_inverse=True)
        missing = set(range(len(times)))
        error: Exception | None = None
        try:
            for frame in self._all_frames():
                number = int(np.abs(times - frame.pts_seconds).argmin())
                if number in missing and abs(times[number] - frame.pts_seconds) < MAX_TIME_ERROR:
                    missing.remove(number)
                    yield np.flatnonzero(places == number), frame
                if not missing:
                    return
        except RuntimeError as exc:
            error = exc
        if missing:
            shown = self._excerpt.times[places == min(missing)][0]
            detail = error or 'the decoder does not return it'
            raise ValueError(
                f'{self._excerpt.name}: expected the frame at {shown:.6g} s, but it is damaged: {detail}'
            ) from error

    def _all_frames(self) -> Iterator[Any]:
        for packet in self._demuxer:
            yield from self._decoder.decode(packet)
        yield from self._decoder.drain()


def import_torchcodec() -> Any:
    """Returns the module `torchcodec.decoders`.

    Raises:
        MissingDependencyError: torchcodec is not installed, lacks the decoding of packets, or cannot load the
            libraries of FFmpeg.
    """
    try:
        module = import_optional('torchcodec.decoders', 'torchcodec')
    except RuntimeError as exc:  # torchcodec cannot load the libraries of FFmpeg.
        raise MissingDependencyError('torchcodec', 'torchcodec', str(exc)) from exc
    return module
