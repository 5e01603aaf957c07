"""The words of the built-in types, and what may stand in their parentheses.

To add a format: a pair of functions in one of the modules beside this one, and a line in each table here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from bags.formats import (
    arrays,
    audio,
    finished,
    images,
    jpeg,
    lazy_audio,
    lazy_video,
    scalars,
    trees,
    videos,
    wav,
)
from bags.formats.arguments import check_count

__all__ = ['check_type', 'decoders', 'encoders']

encoders: dict[str, Callable[..., Any]] = {
    'bytes': scalars.encode_bytes,
    'utf8': scalars.encode_utf8,
    'bool': scalars.encode_bool,
    'int': scalars.encode_int,
    'uint': scalars.encode_uint,
    'float': scalars.encode_float,
    'i64': scalars.encode_i64,
    'u64': scalars.encode_u64,
    'msgpack': trees.encode_msgpack,
    'json': trees.encode_json,
    'array': arrays.encode_array,
    'tree': trees.encode_tree,
    'jpeg': jpeg.encode_jpeg,
    'jpg': jpeg.encode_jpeg,
    'png': images.encode_png,
    'webp': images.encode_webp,
    'avif': images.encode_avif,
    'mp4': videos.encode_mp4,
    'webm': videos.encode_webm,
    'mkv': videos.encode_mkv,
    'video': finished.encode_video,
    'wav': wav.encode_wav,
    'flac': audio.encode_flac,
    'opus': audio.encode_opus,
    'audio': finished.encode_audio,
}
"""Word → function of a value and the type's arguments, which are strings. It returns bytes, a buffer, or a
binary file open at its start, which whoever writes the record copies from and closes."""

decoders: dict[str, Callable[..., Any]] = {
    'bytes': scalars.decode_bytes,
    'utf8': scalars.decode_utf8,
    'bool': scalars.decode_bool,
    'int': scalars.decode_int,
    'uint': scalars.decode_uint,
    'float': scalars.decode_float,
    'i64': scalars.decode_i64,
    'u64': scalars.decode_u64,
    'msgpack': trees.decode_msgpack,
    'json': trees.decode_json,
    'array': arrays.decode_array,
    'tree': trees.decode_tree,
    'jpeg': jpeg.decode_jpeg,
    'jpg': jpeg.decode_jpeg,
    'png': images.decode_png,
    'webp': images.decode_webp,
    'avif': images.decode_avif,
    'mp4': videos.decode_mp4,
    'webm': videos.decode_webm,
    'mkv': videos.decode_mkv,
    'video': lazy_video.decode_video,
    'wav': wav.decode_wav,
    'flac': audio.decode_flac,
    'opus': audio.decode_opus,
    'audio': lazy_audio.decode_audio,
}
"""Word → function of a record and the type's arguments. Records are read-only buffers that last as long as
the call. One with a true attribute `opens` gets something to open instead (`bags.formats.source.Source`),
when it needs it: its value is a handle."""


def _no_arguments(*args: str) -> None:
    check_count(args, 0, 'a type without arguments')


_ARGUMENTS: dict[str, Callable[..., object]] = {
    'int': scalars.int_size,
    'uint': scalars.int_size,
    'float': scalars.float_size,
    'array': arrays.array_type,
    'jpeg': images.image_quality,
    'jpg': images.image_quality,
    'webp': images.webp_quality,
    'avif': images.image_quality,
    'mp4': videos.video_options,
    'webm': videos.video_options,
    'mkv': videos.mkv_options,
    'video': finished.stored_video_options,
    'opus': audio.opus_bitrate,
}


def check_type(
    word: str,
    args: tuple[str, ...],
    functions: Mapping[str, Callable[..., Any]] = encoders,
) -> None:
    """Checks the arguments of a built-in type when a spec is read, long before a value is.

    Args:
        word: The type's word.
        args: What its parentheses hold.
        functions: The encoders or decoders in use. Where the function behind the word is not the built-in
            one, its arguments are its own affair.

    Raises:
        ValueError: The type cannot have these arguments.
    """
    if functions.get(word) in (encoders.get(word), decoders.get(word)) and word in encoders:
        _ARGUMENTS.get(word, _no_arguments)(*args)
