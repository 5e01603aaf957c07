"""ROS recordings as datapoints: MCAP files, rosbag2 folders, and ROS 1 bags.

The messages of a topic become sequences: one for the times, and one for each field of the messages.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import keyword
import posixpath
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from bags.errors import SourceError
from bags.interop.source import Source, as_source_errors, collect_errors, list_some, name_fields
from bags.interop.sources.arrays.arrays import image_type, natural_order
from bags.interop.sources.mcap.mcap_end import Survey, check_data, survey, with_ends
from bags.interop.sources.mcap.ros_types import LARGE, MAX_FIELDS, Definitions, Leaf, leaves_of, unreadable
from bags.interop.stores import list_paths

if TYPE_CHECKING:
    from rosbags.highlevel import AnyReader
    from rosbags.interfaces import Connection
CHANNELS = {'mono': 1, 'rgb': 3, 'bgr': 3, 'rgba': 4, 'bgra': 4}
ENCODINGS = {f'{name}{bits}': f'{bits}UC{count}' for name, count in CHANNELS.items() for bits in (8, 16)}
"""OpenCV encodings by ROS encoding: bits, then U (unsigned), S (signed) or F (float), then channels."""
_WIDE = re.compile(r'\bw(string|char)\b')
_OPENCV = re.compile(r'(8|16|32|64)([USF])C([1-9])')


def open_source(paths: list[str], storage_options: Mapping[str, Any] | None = None) -> McapSource:
    """Opens recordings: files, or folders with `metadata.yaml`."""
    files = list_paths(paths, storage_options)
    folders = {posixpath.dirname(path) for path in files if posixpath.basename(path) == 'metadata.yaml'}
    alone = {path for path in files if posixpath.dirname(path) not in folders}
    return McapSource(sorted(folders | alone, key=natural_order))


class McapSource(Source[str]):
    """Recordings. Times of topic `/arm/state` are `arm.state_time`, in ns; its fields are `arm.state.…`."""

    def __init__(self, paths: list[str]) -> None:
        super().__init__('mcap', {}, 0)
        self.records: list[str] = []
        self._surveys: dict[str, Survey] = {}
        self._types: dict[str, str] = {}
        """The message type of each topic."""
        self._topics: dict[str, set[str]] = {}
        """The imported topics of each recording."""
        definitions = Definitions()
        shapes: dict[str, list[Leaf]] = {}
        leaves: dict[str, list[Leaf]] = {}
        counts: Counter[str] = Counter()
        noted: dict[str, list[str]] = {}
        for path in paths:
            with collect_errors(self.damaged):
                notes = []
                with self._open(path) as reader:
                    clashes = definitions.clashes(reader)
                    topics = set()
                    for topic, connections in _by_topic(reader):
                        message_type, why = self._type_of_topic(topic, connections)
                        notes += [f'topic {topic!r}: {each}' for each in why]
                        if not message_type:
                            continue
                        unread = clashes.get((topic, message_type)) or unreadable(
                            reader.typestore, message_type, set()
                        )
                        shape = [] if unread else leaves_of(reader.typestore, message_type)
                        if len(shape) > MAX_FIELDS:
                            unread = f'{message_type} has more than {MAX_FIELDS} fields'
                        elif not unread and shape != shapes.setdefault(topic, shape):
                            unread = f'{message_type} has other fields than in earlier recordings'
                        if unread:
                            notes.append(f'topic {topic!r} is left out: {unread}')
                            continue
                        topics.add(topic)
                        self._types.setdefault(topic, message_type)
                        if topic not in leaves:
                            chosen = _connections(reader, {topic: message_type})
                            leaves[topic] = _leaves_of_topic(reader, chosen, shape)
                self.records.append(path)
                self._topics[path] = topics
                counts.update(topics)
                for note in notes:
                    noted.setdefault(note, []).append(path)
        self.notes[:0] = [
            note if len(some) == len(paths) else f'{list_some(some, 1)}: {note}'
            for note, some in noted.items()
        ]
        if not leaves:
            nothing = ', '.join(paths), '; '.join(['expected messages, found none', *self.notes])
            raise SourceError(*self.damaged[0] if self.damaged else nothing)
        self.count = len(self.records)
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
            self.spec[field] = f'{part.type if part else "int(8)"}[]{"?" * (counts[topic] < self.count)}'
            about[field] = {'times': self._fields[topic, None]} if part else {'unit': 'ns'}
        self.metadata = {'topics': {topic: self._types[topic] for topic in sorted(leaves)}, 'fields': about}

    def load(self, entry: str) -> dict[str, Any]:
        values: dict[str, Any] = {}
        small: dict[str, list[tuple[Leaf | None, str]]] = {}
        with self._open(entry, check=True) as reader:
            for (topic, leaf), field in self._fields.items():
                if field in self.spec and topic in self._topics[entry]:
                    values[field] = []
                    if leaf and leaf.type in LARGE:
                        values[field] = self._large(entry, topic, leaf)
                    else:
                        small.setdefault(topic, []).append((leaf, field))
            chosen = _connections(reader, {topic: self._types[topic] for topic in small})
            for topic, time, message in _messages(reader, chosen):
                for leaf, field in small[topic]:
                    values[field].append(_get(message, leaf) if leaf else time)
        return values

    @contextlib.contextmanager
    def _open(self, path: str, *, check: bool = False) -> Iterator[AnyReader]:
        """Opens a recording. SQLite recordings without message definitions use the ROS 2 definitions.

        Args:
            path: The file or folder.
            check: Verify the checksum of the data of MCAP files.
        """
        from rosbags.highlevel import AnyReader
        from rosbags.typesys import Stores, get_typestore

        if '://' in path:
            raise SourceError(path, 'expected a local file, which rosbags needs')
        survey_of = self._survey

        class RecordingPath(type(Path())):  # type: ignore[misc]
            """A path that opens MCAP files with the header and the index that rosbags needs."""

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
                return with_ends(file, found)

        default = get_typestore(Stores.ROS2_HUMBLE)
        with as_source_errors(path, 'messages of ROS'):
            recording = AnyReader([RecordingPath(path)], default_typestore=default)
            for each in recording.readers:
                _leave_out_hashes(getattr(each, 'storage', None))
            with recording as reader:
                yield reader

    def _survey(self, path: str, file: BinaryIO) -> Survey:
        """Returns the survey of an MCAP file; the first call adds notes on content that is not imported."""
        if path not in self._surveys:
            contents = self._surveys[path] = survey(file)
            if contents.attachments:
                self.notes.append(f'{path}: attachments are left out: {list_some(contents.attachments)}')
            if contents.left_out:
                others = list_some(contents.left_out)
                self.notes.append(f'{path}: topics without messages of ROS 2 are left out: {others}')
            elif contents.end is not None and contents.is_whole:
                self.notes.append(f'{path}: its index is missing or damaged; all messages are read')
            elif not contents.is_whole:
                detail = (
                    f'has no end: {contents.size - contents.stop:,} of {contents.size:,} bytes, from byte '
                    f'{contents.stop} on, are cut off or damaged'
                )
                if not contents.messages:
                    raise SourceError(path, detail)
                detail += f"; on_error='skip' reads the {contents.messages:,} messages before that byte"
                self.damaged.append((path, detail))
        return self._surveys[path]

    def _type_of_topic(self, topic: str, connections: list[Connection]) -> tuple[str, list[str]]:
        """Returns the imported message type of a topic, '' if the topic lacks it; and notes on other types.

        The type is the one in earlier recordings, or else the type of most messages.
        """
        counts: Counter[str] = Counter()
        for each in connections:
            counts[each.msgtype] += each.msgcount or 0
        message_type = self._types.get(topic) or max(sorted(counts), key=lambda each: counts[each])
        notes = [
            f'{counts[each]:,} messages of {each} are left out, as others are of {message_type}'
            for each in sorted(counts)
            if each != message_type
        ]
        return message_type if message_type in counts else '', notes

    def _large(self, path: str, topic: str, leaf: Leaf) -> Iterator[Any]:
        """Yields a field of all messages of a topic."""
        with self._open(path) as reader:
            chosen = _connections(reader, {topic: self._types[topic]})
            for _, _, message in _messages(reader, chosen):
                yield _get(message, leaf)


def _leave_out_hashes(storage: Any) -> None:
    """Removes the hashes of types with wide strings or characters, which rosbags cannot compute."""
    if storage is None:
        return
    open_storage = storage.open

    def open_without_hashes() -> None:
        open_storage()
        storage.connections[:] = [
            connection._replace(digest='') if _WIDE.search(connection.msgdef.data) else connection
            for connection in storage.connections
        ]

    storage.open = open_without_hashes


def _by_topic(reader: AnyReader) -> list[tuple[str, list[Connection]]]:
    by_topic: dict[str, list[Connection]] = {}
    for connection in reader.connections:
        by_topic.setdefault(connection.topic, []).append(connection)
    return sorted(by_topic.items())


def _connections(reader: AnyReader, types: Mapping[str, str]) -> list[Connection]:
    """Returns the connections of topics whose messages have the given types."""
    return [each for each in reader.connections if types.get(each.topic) == each.msgtype]


def _messages(reader: AnyReader, connections: list[Connection]) -> Iterator[tuple[str, int, Any]]:
    """Yields topic, time in ns, and message for the messages of connections, ordered by time."""
    if connections:  # For an empty list, rosbags reads all messages.
        number = -1
        for number, (connection, time, data) in enumerate(reader.messages(connections)):
            try:
                yield connection.topic, time, reader.deserialize(data, connection.msgtype)
            except Exception as exc:
                raise ValueError(f'message {number} of {connection.topic}: {exc}') from exc
        expected = sum(each.msgcount for each in connections)
        if number + 1 != expected and reader.paths[0].suffix == '.mcap':
            raise ValueError(f'expected {expected} messages, as its statistics say, got {number + 1}')


def _leaves_of_topic(reader: AnyReader, connections: list[Connection], shape: list[Leaf]) -> list[Leaf]:
    """Returns the fields of the messages of a topic; the first message determines image types."""
    leaves = list(shape)
    if any(leaf.type == 'bytes' for leaf in leaves):
        for _, _, message in itertools.islice(_messages(reader, connections), 1):
            for number, leaf in enumerate(leaves):
                if leaf.type == 'bytes':
                    leaves[number] = leaf._replace(type=image_type(_get(message, leaf)) or 'bytes')
    return leaves


def _get(message: Any, leaf: Leaf) -> Any:
    """Returns the value of a field, converted to its type."""
    value = message
    for name in leaf.path:
        parent, value = value, getattr(value, name + '_' * keyword.iskeyword(name))
    if leaf.type == 'msgpack':
        return _tree(value)
    if leaf.type == 'array':
        return _pixels(parent)
    return bytes(value) if leaf.type in LARGE else value


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
    code, channels = match[2].replace('S', 'i').lower(), int(match[3])
    dtype = np.dtype(f'{">" if image.is_bigendian else "<"}{code}{int(match[1]) // 8}')
    strides = image.step, channels * dtype.itemsize, dtype.itemsize
    rank = 2 + (channels > 1)
    if image.step < image.width * strides[1] or len(image.data) < image.height * image.step:
        size = f'{image.height} x {image.width} pixels of {image.encoding}'
        raise ValueError(f'expected {size}, got {len(image.data)} bytes in rows of {image.step}')
    shape = image.height, image.width, channels
    return np.ascontiguousarray(np.ndarray(shape[:rank], dtype, image.data, strides=strides[:rank]))
