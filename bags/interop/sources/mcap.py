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
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from bags.errors import SourceError
from bags.interop.arrays import image_type, natural_order
from bags.interop.mcap_end import Survey, check_data, survey, with_end
from bags.interop.source import Collecting, Source, list_paths, list_some, name_fields, reading

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
_WIDE = re.compile(r'\bw(string|char)\b')
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
        self._surveys: dict[str, Survey] = {}
        types: dict[str, str] = {}
        leaves: dict[str, list[Leaf]] = {}
        counts: Counter[str] = Counter()
        why: dict[str, str] = {}
        for path in paths:
            with Collecting(self.damaged):
                with self._open(path) as reader:
                    topics = {(each.topic, each.msgtype) for each in reader.connections}
                    for topic, kind in sorted(topics):
                        if (first := types.setdefault(topic, kind)) != kind:
                            detail = f'expected messages of one type, got {first} and {kind}'
                            raise SourceError(path, f'topic {topic!r}: {detail}')
                        if topic in leaves:
                            continue
                        if unread := _unreadable(reader.typestore, kind, set()):
                            why[topic] = unread
                        else:
                            leaves[topic] = _leaves_of_topic(reader, topic, kind)
                self.records.append(path)
                counts.update(topic for topic, _ in topics)
        notes = [f'topic {each!r} is left out: {why[each]}' for each in sorted(types.keys() - leaves.keys())]
        if not leaves:
            nothing = ', '.join(paths), '; '.join(['expected messages, found none', *notes])
            raise SourceError(*self.damaged[0] if self.damaged else nothing)
        self.count = len(self.records)
        self.notes += notes
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
        with self._open(entry, check=True) as reader:
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

    @contextlib.contextmanager
    def _open(self, path: str, *, check: bool = False) -> Iterator[Any]:
        """Opens a recording. SQLite recordings without message definitions have those of ROS 2.

        Args:
            path: The file or folder.
            check: Compare the checksum of the data of MCAP files.
        """
        from rosbags.highlevel import AnyReader
        from rosbags.typesys import Stores, get_typestore

        if '://' in path:
            raise SourceError(path, 'expected a local file, which rosbags needs')
        survey_of = self._survey

        class RecordingPath(type(Path())):  # type: ignore[misc]
            """A path whose MCAP files have an end."""

            def open(self, mode: str = 'r', *args: Any, **options: Any) -> Any:
                file = super().open(mode, *args, **options)
                if self.suffix != '.mcap' or mode != 'rb':
                    return file
                try:
                    found = survey_of(str(self), file)
                    if check:
                        check_data(file, found)
                except BaseException:
                    file.close()
                    raise
                file.seek(0)
                return with_end(file, found)

        default = get_typestore(Stores.ROS2_HUMBLE)
        with reading(path, 'messages of ROS'):
            recording = AnyReader([RecordingPath(path)], default_typestore=default)
            for each in recording.readers:
                _leave_out_hashes(getattr(each, 'storage', None))
            with recording as reader:
                yield reader

    def _survey(self, path: str, file: BinaryIO) -> Survey:
        """Returns what an MCAP file holds; the first time, notes what of it is not imported."""
        if path not in self._surveys:
            found = self._surveys[path] = survey(file)
            if found.attachments:
                self.notes.append(f'{path}: attachments are left out: {list_some(found.attachments)}')
            if found.left_out:
                self.notes.append(f'{path}: topics are left out, as not of ROS: {list_some(found.left_out)}')
            if found.end is not None and found.is_whole:
                self.notes.append(f'{path}: its index is missing or damaged; all messages are read')
            elif not found.is_whole:
                detail = (
                    f'has no end: {found.size - found.stop:,} of {found.size:,} bytes, those from byte '
                    f'{found.stop} on, are cut off or damaged'
                )
                if not found.messages:
                    raise SourceError(path, detail)
                detail += f"; on_error='skip' reads the {found.messages:,} messages before them"
                self.damaged.append((path, detail))
        return self._surveys[path]

    def _large(self, path: str, topic: str, leaf: Leaf) -> Iterator[Any]:
        """Yields a field of all messages of a topic."""
        with self._open(path) as reader:
            for _, _, message in _messages(reader, {topic}):
                yield _get(message, leaf)


def _leave_out_hashes(storage: Any) -> None:
    """Leaves out the hashes of types with texts of wide characters, which rosbags cannot compute."""
    if storage is None:
        return
    open_storage = storage.open

    def open_without_hashes() -> None:
        open_storage()
        storage.connections[:] = [
            each._replace(digest='') if _WIDE.search(each.msgdef.data) else each
            for each in storage.connections
        ]

    storage.open = open_without_hashes


def _unreadable(store: Any, kind: str, seen: set[str]) -> str:
    """Returns why messages of a type cannot be read; empty if they can. `seen` are types known to be."""
    if kind not in store.fielddefs:
        return f'{kind} is not known'
    if kind in seen:
        return ''
    seen.add(kind)
    for name, (node, about) in store.fielddefs[kind][1]:
        inner, word = about[0] if node.name in ('ARRAY', 'SEQUENCE') else (node, about)
        if inner.name == 'NAME' and (found := _unreadable(store, word, seen)):
            return f'{name}: {found}'
        if inner.name != 'NAME' and word[0] not in NUMBERS and word[0] != 'string':
            return f'{name} is a {word[0]}, which rosbags does not read'
    return ''


def _messages(reader: Any, topics: Collection[str]) -> Iterator[tuple[str, int, Any]]:
    """Yields topic, time in ns, and message of some topics, ordered by time."""
    connections = [each for each in reader.connections if each.topic in topics]
    if connections:  # With an empty list, rosbags reads all.
        number = -1
        for number, (connection, time, data) in enumerate(reader.messages(connections)):
            try:
                yield connection.topic, time, reader.deserialize(data, connection.msgtype)
            except Exception as exc:
                raise ValueError(f'message {number} of {connection.topic}: {exc}') from exc
        expected = sum(each.msgcount for each in connections)
        if number + 1 != expected and reader.paths[0].suffix == '.mcap':
            raise ValueError(f'expected {expected} messages, as its statistics say, got {number + 1}')


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
