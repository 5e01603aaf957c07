"""ROS recordings, each a datapoint: MCAP files, rosbag2 folders, and ROS 1 bags.

The messages of a topic become sequences: one of their times, and one for each field of the message.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import keyword
import posixpath
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bags.errors import SourceError
from bags.interop.arrays import image_type, natural_order
from bags.interop.source import Collecting, Source, list_paths, name_fields, reading

__all__ = ['McapSource', 'open_source']

IMAGE = 'sensor_msgs/msg/Image'
MAX_FIELDS = 4096
"""Maximum number of fields in the messages of a topic, including nested messages."""
LARGE = ('array', 'bytes', 'jpeg', 'png')
"""Types of items that are read one at a time."""
BYTES = ('uint8', 'byte', 'octet', 'char')
NUMBERS = {'bool': 'bool', 'float32': 'float(4)', 'float64': 'float(8)', **dict.fromkeys(BYTES, 'uint(1)')}
NUMBERS |= {f'{kind}{8 * size}': f'{kind}({size})' for kind in ('int', 'uint') for size in (1, 2, 4, 8)}
CHANNELS = {'mono': 1, 'rgb': 3, 'bgr': 3, 'rgba': 4, 'bgra': 4}
ENCODINGS = {f'{name}{bits}': f'{bits}UC{count}' for name, count in CHANNELS.items() for bits in (8, 16)}
"""Encodings of ROS to those of OpenCV: bits, U for unsigned, S for signed or F for float, channels."""
_OPENCV = re.compile(r'(8|16|32|64)([USF])C([1-9])')


class Leaf(NamedTuple):
    """A field of the messages of a topic that is not itself a message."""

    path: tuple[str, ...]
    """Names of the attributes that lead to the field."""
    kind: str
    """The type of an item."""


def open_source(paths: list[str], storage_options: Mapping[str, Any] | None = None) -> McapSource:
    """Opens recordings: files, or folders with `metadata.yaml`."""
    files = list_paths(paths, storage_options)
    folders = {posixpath.dirname(path) for path in files if posixpath.basename(path) == 'metadata.yaml'}
    alone = {path for path in files if posixpath.dirname(path) not in folders}
    return McapSource(sorted(folders | alone, key=natural_order))


class McapSource(Source):
    """Recordings. Times of topic `/arm/state` are `arm.state_time`, in ns, its fields `arm.state.…`."""

    def __init__(self, paths: list[str]) -> None:
        super().__init__('mcap', {}, 0)
        self.records: list[str] = []
        types: dict[str, str] = {}
        leaves: dict[str, list[Leaf]] = {}
        counts: Counter[str] = Counter()
        for path in paths:
            with Collecting(self.damaged):
                with _open(path) as reader:
                    topics = {(each.topic, each.msgtype) for each in reader.connections}
                    for topic, kind in sorted(topics):
                        if (first := types.setdefault(topic, kind)) != kind:
                            detail = f'expected messages of one type, got {first} and {kind}'
                            raise SourceError(path, f'topic {topic!r}: {detail}')
                        if topic not in leaves and kind in reader.typestore.fielddefs:
                            leaves[topic] = _leaves_of_topic(reader, topic, kind)
                self.records.append(path)
                counts.update(topic for topic, _ in topics)
        if not leaves:
            nothing = ', '.join(paths), 'expected messages, found none'
            raise SourceError(*self.damaged[0] if self.damaged else nothing)
        self.count = len(self.records)
        left_out = types.keys() - leaves.keys()
        self.notes += [f'topic {each!r} is left out: {types[each]} is not known' for each in sorted(left_out)]
        names: dict[tuple[str, Leaf | None], str] = {}
        for topic in sorted(leaves):
            names[topic, None] = f'{topic}_time'
            for leaf in leaves[topic]:
                name = '/'.join((topic, *leaf.path))
                names[topic, leaf] = name + '_' * (name in names.values())
        fields = name_fields(names.values(), [])
        self._fields = {each: fields[name] for each, name in names.items()}
        about: dict[str, Any] = {}
        for (topic, part), field in self._fields.items():
            self.spec[field] = f'{part.kind if part else "int(8)"}[]{"?" * (counts[topic] < self.count)}'
            about[field] = {'times': self._fields[topic, None]} if part else {'unit': 'ns'}
        self.metadata = {'topics': {topic: types[topic] for topic in sorted(leaves)}, 'fields': about}

    def load(self, entry: str) -> dict[str, Any]:
        found: dict[str, Any] = {}
        small: dict[str, list[tuple[Leaf | None, str]]] = {}
        with _open(entry) as reader:
            topics = {connection.topic for connection in reader.connections}
            for (topic, leaf), field in self._fields.items():
                if field in self.spec and topic in topics:
                    found[field] = []
                    if leaf and leaf.kind in LARGE:
                        found[field] = self._large(entry, topic, leaf)
                    else:
                        small.setdefault(topic, []).append((leaf, field))
            for topic, time, message in _messages(reader, small.keys()):
                for leaf, field in small[topic]:
                    found[field].append(_get(message, leaf) if leaf else time)
        return found

    def _large(self, path: str, topic: str, leaf: Leaf) -> Iterator[Any]:
        """Yields a field of all messages of a topic."""
        with _open(path) as reader:
            for _, _, message in _messages(reader, {topic}):
                yield _get(message, leaf)


@contextlib.contextmanager
def _open(path: str) -> Iterator[Any]:
    """Opens a recording. SQLite recordings without message definitions have those of ROS 2."""
    from rosbags.highlevel import AnyReader
    from rosbags.typesys import Stores, get_typestore

    if '://' in path:
        raise SourceError(path, 'expected a local file, which rosbags needs')
    default = get_typestore(Stores.ROS2_HUMBLE)
    with reading(path, 'messages of ROS'), AnyReader([Path(path)], default_typestore=default) as reader:
        yield reader


def _messages(reader: Any, topics: Collection[str]) -> Iterator[tuple[str, int, Any]]:
    """Yields topic, time in ns, and message of some topics, ordered by time."""
    connections = [each for each in reader.connections if each.topic in topics]
    if connections:  # With an empty list, rosbags reads all.
        for number, (connection, time, data) in enumerate(reader.messages(connections)):
            try:
                yield connection.topic, time, reader.deserialize(data, connection.msgtype)
            except Exception as exc:
                raise ValueError(f'message {number} of {connection.topic}: {exc}') from exc


def _leaves_of_topic(reader: Any, topic: str, kind: str) -> list[Leaf]:
    """Returns the fields of the messages of a topic; the first message determines the types of images."""
    leaves = list(itertools.islice(_leaves(reader.typestore, kind, ()), MAX_FIELDS + 1))
    if len(leaves) > MAX_FIELDS:
        raise ValueError(f'topic {topic!r}: expected at most {MAX_FIELDS} fields')
    if any(leaf.kind == 'bytes' for leaf in leaves):
        for _, _, message in itertools.islice(_messages(reader, {topic}), 1):
            for number, leaf in enumerate(leaves):
                if leaf.kind == 'bytes':
                    leaves[number] = leaf._replace(kind=image_type(_get(message, leaf)) or 'bytes')
    return leaves


def _leaves(store: Any, kind: str, path: tuple[str, ...]) -> Iterator[Leaf]:
    """Yields the fields of a message type, including those of nested messages."""
    for name, (node, about) in store.fielddefs[kind][1]:
        here = (*path, name)
        if node.name == 'NAME':
            yield from _leaves(store, about, here)
        elif node.name == 'BASE':
            yield Leaf(here, NUMBERS.get(about[0], 'utf8'))
        elif about[0][0].name == 'NAME' or about[0][1][0] not in NUMBERS:
            yield Leaf(here, 'msgpack')
        elif kind == IMAGE and name == 'data':
            yield Leaf(here, 'array')
        elif node.name == 'SEQUENCE' and about[0][1][0] in BYTES:
            yield Leaf(here, 'bytes')
        else:
            dtype = 'uint8' if about[0][1][0] in BYTES else about[0][1][0]
            yield Leaf(here, f'array({dtype},{about[1] if node.name == "ARRAY" else "?"})')


def _get(message: Any, leaf: Leaf) -> Any:
    """Returns the value of a field, converted to its type."""
    value = message
    for name in leaf.path:
        parent, value = value, getattr(value, name + '_' * keyword.iskeyword(name))
    if leaf.kind == 'msgpack':
        return _tree(value)
    if leaf.kind == 'array':
        return _pixels(parent)
    return bytes(value) if leaf.kind in LARGE else value


def _tree(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        names = [field.name for field in dataclasses.fields(value) if not field.name.startswith('__')]
        return {name: _tree(getattr(value, name)) for name in names}
    if isinstance(value, np.ndarray):
        return value.tobytes() if value.dtype == np.uint8 else value.tolist()
    return [_tree(each) for each in value] if isinstance(value, list) else value


def _pixels(image: Any) -> Any:
    """Returns the pixels of an image as sent, shape (height, width) or (height, width, channels).

    For an unknown encoding, returns the bytes, shape (n,).
    """
    match = _OPENCV.fullmatch(ENCODINGS.get(image.encoding, image.encoding))
    if match is None:
        return image.data
    kind, channels = match[2].replace('S', 'i').lower(), int(match[3])
    dtype = np.dtype(f'{">" if image.is_bigendian else "<"}{kind}{int(match[1]) // 8}')
    strides = image.step, channels * dtype.itemsize, dtype.itemsize
    rank = 2 + (channels > 1)
    if image.step < image.width * strides[1] or len(image.data) < image.height * image.step:
        size = f'{image.height} x {image.width} pixels of {image.encoding}'
        raise ValueError(f'expected {size}, got {len(image.data)} bytes in rows of {image.step}')
    shape = image.height, image.width, channels
    return np.ascontiguousarray(np.ndarray(shape[:rank], dtype, image.data, strides=strides[:rank]))
