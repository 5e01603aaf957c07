"""The types by format: their encoders, decoders and arguments.

Media types are defined above this package: the first use of their formats imports them.

To add a format, write a pair of functions in a module of `bags.formats`, and add a line to the table here.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from bags.dataset import above
from bags.dataset.format.plug_ins import find_one
from bags.dataset.format.spec import FieldType, Schema
from bags.formats import arrays, audio, images, scalars, trees, videos
from bags.formats.scalars import Buffer, check_count

_Function = Callable[..., Any]

FORMATS_GROUP = 'bags.formats'
"""Entry points of other packages: they map the format of a type to an object with `encode` and `decode`."""


class TypeFunctions(NamedTuple):
    """The functions of a type."""

    encode: _Function
    """Converts a value, given the type's arguments, to a record."""
    decode: _Function
    """Converts a record, given the type's arguments, to a value."""
    check: _Function | None = None
    """Raises ValueError for invalid arguments of the type."""
    package: str = ''
    """The package that defines them, if it is not this one."""


INTEGER_FORMATS = ('int', 'uint', 'i64', 'u64')
"""Formats of types whose values are integers."""
NUMBER_FORMATS = ('int', 'uint', 'float', 'bool')
"""Formats of types whose values are numbers of up to 8 bytes."""
IMAGE_FORMATS = ('avif', 'image', 'jpeg', 'jpg', 'png', 'webp')
"""Formats of types whose records are images."""
VIDEO_FORMATS = ('mkv', 'mp4', 'video', 'webm')
"""Formats of types whose records are videos."""
AUDIO_FORMATS = ('audio', 'flac', 'opus', 'wav')
"""Formats of types whose records are recordings."""
STRUCTURED_FORMATS = ('json', 'msgpack', 'tree')
"""Formats of types whose values are objects and lists with values inside."""


def _no_arguments(*args: str) -> None:
    check_count(args, 0, 'a type without arguments')


_TYPES: dict[str, tuple[_Function, _Function, _Function] | str] = {
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
    'video': 'VIDEO',
    'wav': (audio.encode_wav, audio.decode_wav, _no_arguments),
    'flac': (audio.encode_flac, audio.decode_flac, _no_arguments),
    'opus': (audio.encode_opus, audio.decode_opus, audio.opus_bitrate),
    'audio': 'AUDIO',
}
"""The encoder, decoder and check of the arguments of each format; or the name in `above` of its
`TypeFunctions`."""

_loaded = {format: TypeFunctions(*entry) for format, entry in _TYPES.items() if not isinstance(entry, str)}
"""The types whose functions are imported."""
_built_in = {id(function) for known in _loaded.values() for function in known[:2]}
_built_in.add(id(scalars.decode_legacy_int))


def _find(format: str) -> TypeFunctions:
    """Returns the functions of a type, and imports them if needed.

    Raises:
        KeyError, ValueError: As `_find_added`.
    """
    known = _loaded.get(format)
    if known is None and format in _TYPES:
        known = above.VIDEO if format == 'video' else above.AUDIO
        _built_in.update(map(id, known[:2]))
    if known is None:
        known = _find_added(format)
    _loaded[format] = known
    return known


def _find_added(format: str) -> TypeFunctions:
    """Returns the functions of a type that another package defines.

    Raises:
        KeyError: No installed package has an entry point for the format.
        ValueError: The entry point cannot be used.
    """
    added = find_one(FORMATS_GROUP, format)
    if added is None:
        raise KeyError(format)
    encode, decode = getattr(added.value, 'encode', None), getattr(added.value, 'decode', None)
    if not callable(encode) or not callable(decode):
        detail = f'expected functions encode and decode of {format!r} in the package {added.package}'
        raise ValueError(f'{detail}, got {added.value!r:.80}')
    return TypeFunctions(encode, decode, getattr(added.value, 'check', None), added.package)


class Functions(Mapping[str, _Function]):
    """The encoders or the decoders of the built-in types by format. Functions of media are imported on
    first use.

    Other formats are looked up among the entry points of installed packages; iteration does not list them.
    """

    def __init__(self, name: str, attribute: str) -> None:
        self._name, self._attribute = name, attribute

    def __getitem__(self, format: str) -> _Function:
        function: _Function = getattr(_find(format), self._attribute)
        return function

    def __iter__(self) -> Iterator[str]:
        return iter(_TYPES)

    def __len__(self) -> int:
        return len(_TYPES)

    def __contains__(self, format: object) -> bool:
        return format in _TYPES

    def __or__(self, others: Mapping[str, _Function]) -> dict[str, _Function]:
        return {**self, **others}

    def __ror__(self, others: Mapping[str, _Function]) -> dict[str, _Function]:
        return {**others, **self}

    def __repr__(self) -> str:
        return f'bags.{self._name}'

    def __reduce__(self) -> str:
        return self._name


encoders = Functions('encoders', 'encode')
"""Format → function of a value and the type's arguments, which are strings. It returns bytes, a buffer, or a
binary file open at its start, which the writer copies and closes."""

decoders = Functions('decoders', 'decode')
"""Format → function of a record and the type's arguments. Records are read-only buffers that are valid during
the call. A function with a true attribute `lazy` takes a `bags.media.source.MediaSource` instead, which
it opens when its value is used. A function with an attribute `frames` has values that are sequences, whose
items are read on their own; see `bags.dataset.reading.frames`."""


def check_type(
    format: str,
    args: tuple[str, ...],
    functions: Mapping[str, Callable[..., Any]] = encoders,
) -> None:
    """Checks the arguments of a type when a spec is read, before any value is read.

    Args:
        format, args: The type.
        functions: The encoders or decoders in use. Arguments of user functions are not checked.

    Raises:
        ValueError: The arguments are invalid for the type.
    """
    known = _find(format) if format in _TYPES else _loaded.get(format)
    if known is not None and known.check is not None and functions.get(format) in known[:2]:
        known.check(*args)


def packages_of(schema: Schema, encoders: Mapping[str, _Function]) -> dict[str, str]:
    """Returns the package of each field whose encoder is an entry point of another package."""
    known = {name: _loaded.get(field_type.format) for name, field_type in schema.items()}
    return {
        name: found.package
        for name, found in known.items()
        if found is not None and found.package and encoders.get(schema[name].format) is found.encode
    }


def is_stream(field_type: FieldType) -> bool:
    """Returns whether values of a type may have elements along time, see `Dataset.stream`."""
    if field_type.sequence or field_type.format in (*VIDEO_FORMATS, *AUDIO_FORMATS):
        return True
    return has_varying_rows(field_type) or field_type.format not in _TYPES


@functools.lru_cache(1024)
def has_varying_rows(field_type: FieldType) -> bool:
    """Returns whether values of a type are arrays whose first dimension is `?`: their elements are rows."""
    if field_type.sequence or field_type.format != 'array':
        return False
    array = arrays.array_type(*field_type.args)
    return array is not None and array[1][:1] == (-1,)


def array_rows(
    format: str, args: tuple[str, ...], decoders: Mapping[str, _Function] | None = None
) -> tuple[np.dtype[Any], tuple[int, ...]] | None:
    """Returns dtype and shape of the rows of arrays `array(dtype,?,*shape)`; also with a length for the `?`.

    Returns:
        None for other types; and with `decoders` also if the function of `array` is not the built-in one.

    Raises:
        ValueError: The arguments are invalid for the type.
    """
    if format != 'array' or (decoders is not None and decoders.get(format) is not arrays.decode_array):
        return None
    array = arrays.array_type(*args)
    if array is None or not array[1] or -1 in array[1][1:] or 0 in array[1][1:]:
        return None
    return array[0], array[1][1:]


def may_have_times(field_type: FieldType) -> bool:
    """Returns whether values of a type may contain the times of their elements."""
    return field_type.format in (*VIDEO_FORMATS, *AUDIO_FORMATS) or field_type.format not in _TYPES


def are_pictures(format: str, args: tuple[str, ...]) -> bool:
    """Returns whether values of a type are images: `jpeg`, or `array(uint8,64,64,3)`."""
    if format in IMAGE_FORMATS:
        return True
    array = arrays.fixed_array_type(*args) if format == 'array' else None
    if array is None or array[0].name not in ('uint8', 'uint16'):
        return False
    return len(array[1]) == 3 and array[1][2] in (1, 3, 4)


def frames_of(format: str, functions: Mapping[str, _Function] = decoders) -> _Function | None:
    """Returns the function that opens a record of a type as frames (see `bags.dataset.reading.frames`).

    Args:
        format: The format of the type.
        functions: The decoders in use. Videos have frames with any decoder.

    Returns:
        A function of a record and the type's arguments; None if values of the type do not have frames.
    """
    own: _Function | None = getattr(functions.get(format), 'frames', None)
    if own is None and format in VIDEO_FORMATS:
        own = decoders['video'].frames  # type: ignore[attr-defined]
    return own


# Binding returns the function for a type, with its arguments parsed. The tables are keyed by function: a
# user may replace the function of a format, or use a built-in function for another format.

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


def is_built_in(function: object) -> bool:
    """Returns whether a function is an encoder or decoder of this library."""
    return id(function) in _built_in  # A user function need not be hashable.


def bind_encoder(
    format: str, args: tuple[str, ...] = (), encoders: Mapping[str, _Function] = encoders
) -> Callable[[Any], Any]:
    """Returns the function that turns a value of a type into a record.

    Raises:
        KeyError: The format does not have a function.
        ValueError: The arguments are invalid for a built-in type.
    """
    function = encoders[format]
    check_type(format, args, encoders)
    if (factory := _known(_ENCODERS, function)) is not None:
        return factory(*args)  # type: ignore[no-any-return]
    return (lambda value: function(value, *args)) if args else function


def bind_decoder(
    format: str,
    args: tuple[str, ...] = (),
    decoders: Mapping[str, _Function] = decoders,
    max_value_size: int = scalars.MAX_VALUE_SIZE,
) -> Callable[[Buffer], Any]:
    """Returns the function that turns a record of a type into a value.

    Built-in decoders take the record's buffer and keep no reference to it. User functions take `bytes`, and
    functions with the attribute `lazy` a source to open.

    Args:
        format, args: The type.
        decoders: The functions in use.
        max_value_size: Maximum bytes of a value, for built-in decoders whose values may be much larger than
            their records.

    Raises:
        KeyError: The format does not have a function.
        ValueError: The arguments are invalid for a built-in type.
    """
    # Nanoseconds a value, from a memoryview: float(4) 54, bytes 89, int(8) 130, bool 130, utf8 128,
    # msgpack of two keys 205, array(float32,256) 439. With the arguments read at every call, int(8) takes
    # 930.
    function = decoders[format]
    check_type(format, args, decoders)
    if (factory := _known(_DECODERS, function)) is not None:
        return factory(*args)  # type: ignore[no-any-return]
    if is_built_in(function) or getattr(function, 'lazy', False):
        defaults = getattr(function, '__kwdefaults__', None) or {}
        limited = defaults.get('max_size', max_value_size) != max_value_size
        limits = {'max_size': max_value_size} if limited else {}
        return (lambda data: function(data, *args, **limits)) if args or limits else function
    return lambda data: function(bytes(data), *args)


def fixed_dtype(
    format: str, args: tuple[str, ...] = (), decoders: Mapping[str, _Function] = decoders
) -> tuple[np.dtype[Any], tuple[int, ...]] | None:
    """Returns dtype and shape of the values of a type whose records all have the same size.

    Records of an `int` without a size, or of `int(4)` in an old folder, may have another length; these need
    the decoder (see `decode_int`). `invalid_row` checks the values.

    Returns:
        The dtype (little-endian unless the type of an array says otherwise) and the shape of one value. None
        if records differ in size, if no dtype has their size, as for `int(3)`, or if the function of the
        format in `decoders` is not a built-in one.

    Raises:
        ValueError: The arguments are invalid for a built-in type.
    """
    reader = _known(_FIXED, decoders.get(format)) if format in decoders else None
    if reader is None:
        return None
    check_type(format, args, decoders)
    return reader(*args)  # type: ignore[no-any-return]


def _number(kind: str, size: Callable[..., int], *args: str) -> tuple[np.dtype[Any], tuple[int, ...]] | None:
    width = size(*args)
    return (np.dtype(f'<{kind}{width}'), ()) if width in (1, 2, 4, 8) else None


_FIXED: dict[_Function, Callable[..., tuple[np.dtype[Any], tuple[int, ...]] | None]] = {
    scalars.decode_bool: lambda: (np.dtype(bool), ()),
    scalars.decode_int: functools.partial(_number, 'i', scalars.int_size),
    scalars.decode_uint: functools.partial(_number, 'u', scalars.int_size),
    scalars.decode_legacy_int: functools.partial(_number, 'u', scalars.int_size),
    scalars.decode_float: functools.partial(_number, 'f', scalars.float_size),
    scalars.decode_i64: lambda: (np.dtype('<i8'), ()),
    arrays.decode_array: arrays.fixed_array_type,
}


def _known(entries: Mapping[_Function, Any], function: Any) -> Any:
    return entries.get(function) if is_built_in(function) else None
