"""The built-in types: the functions behind each word, and the arguments that they take.

To add a format: a pair of functions in a module of `bags.formats`, and a line in the table here.
"""

from __future__ import annotations

import difflib
import functools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from bags.dataset.spec import FieldType
from bags.formats import arrays, images, scalars, trees, videos
from bags.formats import audio as audio_formats
from bags.formats.scalars import Buffer, check_count
from bags.media import audio, video
from bags.media import encoders as media_encoders

IMAGE_WORDS = ('avif', 'image', 'jpeg', 'jpg', 'png', 'webp')
"""Words of types whose records are images."""
VIDEO_WORDS = ('mkv', 'mp4', 'video', 'webm')
"""Words of types whose records are videos."""
AUDIO_WORDS = ('audio', 'flac', 'opus', 'wav')
"""Words of types whose records are recordings."""

_Function = Callable[..., Any]


def _no_arguments(*args: str) -> None:
    check_count(args, 0, 'a type without arguments')


_TYPES: dict[str, tuple[_Function, _Function, _Function]] = {
    'bytes': (scalars.encode_bytes, scalars.decode_bytes, _no_arguments),
    'utf8': (scalars.encode_utf8, scalars.decode_utf8, _no_arguments),
    'bool': (scalars.encode_bool, scalars.decode_bool, _no_arguments),
    'int': (scalars.encode_int, scalars.decode_int, scalars.int_size),
    'uint': (scalars.encode_uint, scalars.decode_uint, scalars.int_size),
    'float': (scalars.encode_float, scalars.decode_float, scalars.float_size),
    'i64': (scalars.encode_int, scalars.decode_i64, _no_arguments),
    'u64': (scalars.encode_uint, scalars.decode_uint, _no_arguments),
    'msgpack': (trees.encode_msgpack, trees.decode_msgpack, _no_arguments),
    'json': (trees.encode_json, trees.decode_json, _no_arguments),
    'array': (arrays.encode_array, arrays.decode_array, arrays.array_type),
    'tree': (trees.encode_tree, trees.decode_tree, _no_arguments),
    'jpeg': (images.encode_jpeg, images.decode_jpeg, images.image_quality),
    'jpg': (images.encode_jpeg, images.decode_jpeg, images.image_quality),
    'png': (images.encode_png, images.decode_png, images.png_options),
    'webp': (images.encode_webp, images.decode_webp, images.webp_quality),
    'avif': (images.encode_avif, images.decode_avif, images.image_quality),
    'image': (images.encode_image, images.decode_image, images.image_mode),
    'mp4': (videos.encode_mp4, videos.decode_mp4, videos.video_options),
    'webm': (videos.encode_webm, videos.decode_webm, videos.video_options),
    'mkv': (videos.encode_mkv, videos.decode_mkv, videos.mkv_options),
    'video': (media_encoders.encode_video, video.decode_video, media_encoders.stored_video_options),
    'wav': (audio_formats.encode_wav, audio_formats.decode_wav, _no_arguments),
    'flac': (audio_formats.encode_flac, audio_formats.decode_flac, _no_arguments),
    'opus': (audio_formats.encode_opus, audio_formats.decode_opus, audio_formats.opus_bitrate),
    'audio': (media_encoders.encode_audio, audio.decode_audio, media_encoders.audio_options),
}
"""The encoder, the decoder, and the check of the arguments of each word."""

encoders: dict[str, _Function] = {word: entry[0] for word, entry in _TYPES.items()}
"""Word → function of a value and the type's arguments, which are strings. It returns bytes, a buffer, or a
binary file open at its start, which the writer copies and closes."""

decoders: dict[str, _Function] = {word: entry[1] for word, entry in _TYPES.items()}
"""Word → function of a record and the type's arguments. Records are read-only buffers that are valid during
the call. A function with a true attribute `lazy` takes a `bags.media.source.Source` instead, which it opens
when its value is used."""


def check_type(
    word: str,
    args: tuple[str, ...],
    functions: Mapping[str, Callable[..., Any]] = encoders,
) -> None:
    """Checks the arguments of a built-in type when a spec is read, before any value is read.

    Args:
        word, args: The type.
        functions: The encoders or decoders in use. Arguments of user functions are not checked.

    Raises:
        ValueError: The type cannot have these arguments.
    """
    if functions.get(word) in (encoders.get(word), decoders.get(word)) and word in encoders:
        _TYPES[word][2](*args)


# Binding: the function for one type, with its arguments parsed. The tables are keyed by function, because a
# user may replace the function of a word, or use a built-in function for another word.

_ENCODERS: dict[_Function, Callable[..., Callable[[Any], Any]]] = {
    scalars.encode_int: scalars.int_encoder,
    scalars.encode_uint: scalars.uint_encoder,
    scalars.encode_float: scalars.float_encoder,
    arrays.encode_array: arrays.array_encoder,
}
_DECODERS: dict[_Function, Callable[..., Callable[[Buffer], Any]]] = {
    scalars.decode_bytes: lambda: bytes,
    scalars.decode_int: scalars.int_decoder,
    scalars.decode_uint: scalars.uint_decoder,
    scalars.decode_float: scalars.float_decoder,
    scalars.decode_i64: lambda: scalars.int_decoder('8'),
    arrays.decode_array: arrays.array_decoder,
}
_BUILT_IN = {id(function) for entry in _TYPES.values() for function in entry[:2]}
_BUILT_IN.add(id(scalars.decode_legacy_int))


def is_built_in(function: object) -> bool:
    """Returns whether a function is an encoder or decoder of this library."""
    return id(function) in _BUILT_IN  # A user function need not be hashable.


def bind_encoder(
    word: str, args: tuple[str, ...] = (), encoders: Mapping[str, _Function] = encoders
) -> Callable[[Any], Any]:
    """Returns the function that turns a value of a type into a record.

    Raises:
        KeyError: No function for the word.
        ValueError: A built-in type cannot have these arguments.
    """
    function = encoders[word]
    check_type(word, args, encoders)
    if (factory := _known(_ENCODERS, function)) is not None:
        return factory(*args)  # type: ignore[no-any-return]
    return (lambda value: function(value, *args)) if args else function


def bind_decoder(
    word: str,
    args: tuple[str, ...] = (),
    decoders: Mapping[str, _Function] = decoders,
    max_value_size: int = scalars.MAX_VALUE_SIZE,
) -> Callable[[Buffer], Any]:
    """Returns the function that turns a record of a type into a value.

    Built-in decoders take the record's buffer and keep no reference to it. User functions take `bytes`, and
    functions with the attribute `lazy` a source to open.

    Args:
        word, args: The type.
        decoders: The functions in use.
        max_value_size: Maximum bytes of a value, for built-in decoders whose values may be much larger than
            their records.

    Raises:
        KeyError: No function for the word.
        ValueError: A built-in type cannot have these arguments.
    """
    # Nanoseconds a value, from a memoryview: float(4) 54, bytes 89, int(8) 130, bool 130, utf8 128,
    # msgpack of two keys 205, array(float32,256) 439. With the arguments read at every call, int(8) takes
    # 930.
    function = decoders[word]
    check_type(word, args, decoders)
    if (factory := _known(_DECODERS, function)) is not None:
        return factory(*args)  # type: ignore[no-any-return]
    if is_built_in(function) or getattr(function, 'lazy', False):
        defaults = getattr(function, '__kwdefaults__', None) or {}
        limited = defaults.get('max_size', max_value_size) != max_value_size
        limits = {'max_size': max_value_size} if limited else {}
        return (lambda data: function(data, *args, **limits)) if args or limits else function
    return lambda data: function(bytes(data), *args)


def fixed_dtype(
    word: str, args: tuple[str, ...] = (), decoders: Mapping[str, _Function] = decoders
) -> tuple[np.dtype[Any], tuple[int, ...]] | None:
    """Returns dtype and shape of the values of a type whose records all have one size.

    Records of an `int` without a size, or of `int(4)` in an old folder, may have another length; these need
    the decoder (see `decode_int`). `invalid_row` checks the values.

    Returns:
        The dtype (little-endian unless the type of an array says otherwise) and the shape of one value. None
        if records differ in size, if no dtype has their size, as for `int(3)`, or if the word's function in
        `decoders` is not a built-in one.

    Raises:
        ValueError: A built-in type cannot have these arguments.
    """
    reader = _known(_FIXED, decoders.get(word))
    if reader is None:
        return None
    check_type(word, args, decoders)
    return reader(*args)  # type: ignore[no-any-return]


def _number(word: str, size: Callable[..., int], *args: str) -> tuple[np.dtype[Any], tuple[int, ...]] | None:
    width = size(*args)
    return (np.dtype(f'<{word}{width}'), ()) if width in (1, 2, 4, 8) else None


_FIXED: dict[_Function, Callable[..., tuple[np.dtype[Any], tuple[int, ...]] | None]] = {
    scalars.decode_bool: lambda: (np.dtype(bool), ()),
    scalars.decode_int: functools.partial(_number, 'i', scalars.int_size),
    scalars.decode_uint: functools.partial(_number, 'u', scalars.int_size),
    scalars.decode_legacy_int: functools.partial(_number, 'u', scalars.int_size),
    scalars.decode_float: functools.partial(_number, 'f', scalars.float_size),
    scalars.decode_i64: lambda: (np.dtype('<i8'), ()),
    arrays.decode_array: arrays.fixed_array_type,
}


_OTHER_NAMES = {
    **{f'{kind}{8 * size}': f'{kind}({size})' for kind in ('int', 'uint') for size in (1, 2, 4, 8)},
    **dict.fromkeys(('str', 'string', 'text', 'utf-8', 'unicode'), 'utf8'),
    **dict.fromkeys(('dict', 'list', 'object', 'any'), 'msgpack'),
    **dict.fromkeys(('ndarray', 'numpy', 'tensor'), 'array'),
    'float16': 'array(float16)', 'float32': 'float(4)', 'float64': 'float(8)', 'double': 'float(8)',
    'binary': 'bytes', 'boolean': 'bool', 'mp3': 'audio', 'mov': 'video', 'pickle': 'msgpack',
}  # fmt: skip
"""Names of the built-in types in Python, NumPy and other libraries."""


def known_types(kind: FieldType, functions: Mapping[str, _Function]) -> str:
    """Returns the known types, and the likely replacement of an unknown one, for error messages."""
    word, rest = kind.word, kind.text[len(kind.word) :]
    nearest = _OTHER_NAMES.get(word.lower())
    if nearest is not None and kind.args and word.lower()[-1].isdigit():
        nearest, rest = f'array({word},{",".join(kind.args)})', rest[rest.index(')') + 1 :]
    if nearest is None or nearest.partition('(')[0] not in functions:
        nearest = next(iter(difflib.get_close_matches(word, functions, 1)), None)
    perhaps = f' (perhaps {nearest}{rest})' if nearest is not None else ''
    return f'a type of {", ".join(sorted(functions))}{perhaps}'


def _known(entries: Mapping[_Function, Any], function: Any) -> Any:
    return entries.get(function) if is_built_in(function) else None
