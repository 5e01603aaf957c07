"""Recordings of ROS: MCAP files, rosbag2 folders, and bags of ROS 1. A datapoint each.

The messages of a topic become sequences: one of their times, and one for each field of the message.
"""

from __future__ import annotations

import dataclasses
import keyword
import posixpath
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bags.errors import MissingDependencyError, SourceError
from bags.formats.signatures import HEAD_BYTES, identify
from bags.interop.arrays import PADDED, natural_order
from bags.interop.source import Source, list_paths, name_fields

__all__ = ['McapSource', 'open_source']

IMAGE = 'sensor_msgs/msg/Image'
MAX_DEPTH = 16
"""Of messages in messages."""
BYTES = ('uint8', 'byte', 'octet', 'char')
NUMBERS = {'bool': 'bool', 'float32': 'float(4)', 'float64': 'float(8)', **dict.fromkeys(BYTES, 'uint(1)')}
NUMBERS |= {f'{kind}{8 * size}': f'{kind}({size})' for kind in ('int', 'uint') for size in (1, 2, 4, 8)}
CHANNELS = {'mono': 1, 'rgb': 3, 'bgr': 3, 'rgba': 4, 'bgra': 4}
ENCODINGS = {f'{name}{bits}': f'{bits}UC{count}' for name, count in CHANNELS.items() for bits in (8, 16)}
"""Those of ROS as those of OpenCV: bits, U for unsigned, S for signed or F for float, channels."""
_OPENCV = re.compile(r'(8|16|32|64)([USF])C([1-9])')
_IDENTIFIER = re.compile(r'[A-Za-z_]\w*(/[A-Za-z_]\w*){0,3}', re.ASCII)


class Leaf(NamedTuple):
    """A field of the messages of a topic that holds no messages."""

    path: tuple[str, ...]
    """The attributes that lead to it."""
    kind: str
    """The type of an item."""
    is_large: bool = False
    """Whether items are read one by one."""


def open_source(paths: list[str], storage_options: Mapping[str, Any] | None = None) -> McapSource:
    """Returns recordings: files, or folders with `metadata.yaml`."""
    files = list_paths(paths, storage_options)
    folders = {posixpath.dirname(path) for path in files if posixpath.basename(path) == 'metadata.yaml'}
    alone = {path for path in files if posixpath.dirname(path) not in folders}
    return McapSource(sorted(folders | alone, key=natural_order))


class McapSource(Source):
    """Recordings. Of topic `/arm/state` the times are `arm.state_time`, in ns, and the fields `arm.state.…`.

    Args:
        paths: Local files or folders.

    Raises:
        SourceError: No recording can be read, or a topic has messages of different types in them.
    """

    def __init__(self, paths: list[str]) -> None:
        super().__init__('mcap', {}, 0)
        self._paths: list[str] = []
        self._topics: dict[str, str] = {}
        leaves: dict[str, list[Leaf]] = {}
        counts: dict[str, int] = {}
        left_out: dict[str, str] = {}
        for path in paths:
            try:
                with _open(path) as (reader, store):
                    for topic, kind in {(each.topic, each.msgtype) for each in reader.connections}:
                        if (first := self._topics.setdefault(topic, kind)) != kind:
                            detail = f'expected messages of one type, got {first} and {kind}'
                            raise SourceError(path, f'topic {topic!r}: {detail}')
                        counts[topic] = counts.get(topic, 0) + 1
                        if kind not in store.fielddefs:
                            left_out[topic] = kind
                        elif topic not in leaves:
                            leaves[topic] = list(_leaves(store, kind, ()))
                            self._peek(path, reader, store, topic, leaves[topic])
                self._paths.append(path)
            except SourceError as exc:
                self.damaged.append((exc.name, exc.detail))
        if not leaves:
            nothing = ', '.join(paths), 'expected messages, found none'
            raise SourceError(*self.damaged[0] if self.damaged else nothing)
        self.count = len(self._paths)
        self.notes += [
            f'topic {topic!r} is left out: {kind} is not known' for topic, kind in left_out.items()
        ]
        names: dict[tuple[str, Leaf | None], str] = {}
        for topic in sorted(leaves):
            names[topic, None] = f'{topic}_time'
            is_alone = [leaf.path for leaf in leaves[topic]] == [('data',)]
            for leaf in leaves[topic]:  # A message that is all data is named as its topic.
                name = topic if is_alone else '/'.join((topic, *leaf.path))
                names[topic, leaf] = name + '_' * (name in names.values())
        fields = name_fields(names.values(), [])
        self._fields = {each: fields[name] for each, name in names.items()}
        about: dict[str, Any] = {}
        for (topic, part), field in self._fields.items():
            self.spec[field] = f'{part.kind if part else "int(8)"}[]{"?" * (counts[topic] < self.count)}'
            about[field] = {'times': self._fields[topic, None]} if part else {'unit': 'ns'}
        self.metadata = {'topics': {topic: self._topics[topic] for topic in sorted(leaves)}, 'fields': about}

    @staticmethod
    def _peek(path: str, reader: Any, store: Any, topic: str, leaves: list[Leaf]) -> None:
        """Finds out by the first message which pictures a topic has."""
        if not any(leaf.kind == 'bytes' for leaf in leaves):
            return
        for _, _, message in _messages(path, reader, store, {topic}):
            for number, leaf in enumerate(leaves):
                if leaf.kind == 'bytes' and leaf.path[-1] == 'data':
                    found = PADDED.get(identify(_get(message, leaf)[:HEAD_BYTES]), 'bytes')
                    leaves[number] = leaf._replace(kind=found)
            return

    def name(self, entry: str) -> str:
        return entry

    def entries(self, start: int = 0) -> Iterator[str]:
        return iter(self._paths[start:])

    def load(self, entry: str) -> dict[str, Any]:
        wanted = [(topic, leaf, field) for (topic, leaf), field in self._fields.items() if field in self.spec]
        small: dict[str, list[tuple[Leaf | None, str]]] = {}
        for topic, leaf, field in wanted:
            if leaf is None or not leaf.is_large:
                small.setdefault(topic, []).append((leaf, field))
        with _open(entry) as (reader, store):
            there = {connection.topic for connection in reader.connections}
            found: dict[str, Any] = {field: [] for topic, _, field in wanted if topic in there}
            for topic, time, message in _messages(entry, reader, store, there & small.keys()):
                for leaf, field in small[topic]:
                    found[field].append(_get(message, leaf) if leaf else time)
        for topic, leaf, field in wanted:
            if leaf and leaf.is_large and topic in there:
                found[field] = self._large(entry, topic, leaf)
        return found

    def _large(self, path: str, topic: str, leaf: Leaf) -> Iterator[Any]:
        """Yields a field of all messages of a topic."""
        with _open(path) as (reader, store):
            for _, _, message in _messages(path, reader, store, {topic}):
                yield _get(message, leaf)


@contextmanager
def _open(path: str) -> Iterator[tuple[Any, Any]]:
    """Opens a recording; gives its reader, and a store of the types of its messages."""
    try:
        from rosbags import rosbag1, rosbag2
        from rosbags.typesys import Stores, get_types_from_idl, get_types_from_msg, get_typestore
    except ImportError as exc:
        raise MissingDependencyError('rosbags', 'mcap') from exc
    if '://' in path:
        raise SourceError(path, 'expected a local file, which rosbags needs')
    reader_of = rosbag1.Reader if path.endswith('.bag') else rosbag2.Reader
    try:
        with reader_of(Path(path)) as reader:
            types: dict[str, Any] = {}
            for connection in reader.connections:
                if connection.msgdef.format.name == 'MSG':
                    types.update(get_types_from_msg(connection.msgdef.data, connection.msgtype))
                elif connection.msgdef.format.name == 'IDL':
                    for part in re.split(r'^=+\nIDL: .*\n', connection.msgdef.data, flags=re.MULTILINE):
                        types.update(get_types_from_idl(part) if part.strip() else {})
            # rosbags writes Python of them.
            names = [
                *types,
                *(each[0] for constants, fields in types.values() for each in (*constants, *fields)),
            ]
            if wrong := [name for name in names if not _IDENTIFIER.fullmatch(name)]:
                raise ValueError(f'expected names of types and fields, got {wrong[0]:.80}')
            store = get_typestore(Stores.EMPTY if types else Stores.ROS2_HUMBLE)
            if types:
                store.register(types)
            yield reader, store
    except (SourceError, FileNotFoundError):
        raise
    except Exception as exc:  # Of a damaged file, rosbags raises also errors of Python, as MemoryError.
        raise SourceError(
            path, f'cannot be read as messages of ROS: {str(exc) or type(exc).__name__}'
        ) from exc


def _messages(path: str, reader: Any, store: Any, topics: set[str]) -> Iterator[tuple[str, int, Any]]:
    """Yields topic, time in ns, and message, of some topics, by time."""
    connections = [each for each in reader.connections if each.topic in topics]
    deserialize = store.deserialize_ros1 if path.endswith('.bag') else store.deserialize_cdr
    number = 0
    try:
        if connections:
            for connection, time, data in reader.messages(connections):
                number += 1
                yield connection.topic, time, deserialize(data, connection.msgtype)
    except OSError:
        raise
    except Exception as exc:  # The code that rosbags makes of a type raises what it likes.
        raise SourceError(path, f'message {number}: {type(exc).__name__}: {exc}') from exc


def _leaves(store: Any, kind: str, path: tuple[str, ...]) -> Iterator[Leaf]:
    """Yields the fields of a type of messages, and those of the messages in it."""
    if len(path) > MAX_DEPTH:
        raise ValueError(f'expected at most {MAX_DEPTH} messages in each other, got {"/".join(path)}')
    for name, (node, about) in store.fielddefs[kind][1]:
        here = (*path, name)
        if node.name == 'NAME':
            yield from _leaves(store, about, here)
        elif node.name == 'BASE':
            yield Leaf(here, NUMBERS.get(about[0], 'utf8'))
        elif about[0][0].name == 'NAME' or about[0][1][0] not in NUMBERS:
            yield Leaf(here, 'msgpack')
        elif kind == IMAGE and name == 'data':
            yield Leaf(here, 'array', is_large=True)
        elif node.name == 'SEQUENCE' and about[0][1][0] in BYTES:
            yield Leaf(here, 'bytes', is_large=True)
        else:
            dtype = 'uint8' if about[0][1][0] in BYTES else about[0][1][0]
            yield Leaf(here, f'array({dtype},{about[1] if node.name == "ARRAY" else "?"})')


def _get(message: Any, leaf: Leaf) -> Any:
    """Returns the value of a field as its type wants it."""
    value = message
    for name in leaf.path:
        parent, value = value, getattr(value, name + '_' * keyword.iskeyword(name))
    if leaf.kind == 'msgpack':
        return _tree(value)
    if leaf.kind == 'array':
        return _pixels(parent)
    return value if leaf.kind in ('utf8', 'bool') or not leaf.is_large else bytes(value)


def _tree(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        names = [field.name for field in dataclasses.fields(value) if not field.name.startswith('__')]
        return {name: _tree(getattr(value, name)) for name in names}
    if isinstance(value, np.ndarray):
        return value.tobytes() if value.dtype == np.uint8 else value.tolist()
    return [_tree(each) for each in value] if isinstance(value, list) else value


def _pixels(image: Any) -> Any:
    """Returns the pixels of an image, shape (height, width) or (height, width, channels), as they are sent.

    Its bytes, shape (n,), if the encoding is not known.
    """
    match = _OPENCV.fullmatch(ENCODINGS.get(image.encoding, image.encoding))
    if match is None:
        return image.data
    bits, kind, channels = int(match[1]), {'U': 'u', 'S': 'i', 'F': 'f'}[match[2]], int(match[3])
    dtype = np.dtype(f'{">" if image.is_bigendian else "<"}{kind}{bits // 8}')
    length = image.width * channels * dtype.itemsize
    if image.step < length or len(image.data) < image.height * image.step:
        size = f'{image.height} x {image.width} pixels of {image.encoding}'
        raise ValueError(f'expected {size}, got {len(image.data)} bytes in rows of {image.step}')
    rows = np.ascontiguousarray(
        image.data[: image.height * image.step].reshape(image.height, image.step)[:, :length]
    )
    shape = (image.height, image.width, *((channels,) if channels > 1 else ()))
    return rows.view(dtype).reshape(shape)
