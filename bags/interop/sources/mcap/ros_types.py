"""The types of ROS messages in a recording: their fields, and whether rosbags can read them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from rosbags.highlevel import AnyReader
    from rosbags.interfaces import Connection
    from rosbags.rosbag1 import Reader as Reader1
    from rosbags.rosbag2 import Reader as Reader2
    from rosbags.typesys.store import Typestore
IMAGE = 'sensor_msgs/msg/Image'
MAX_FIELDS = 4096
"""Maximum number of fields in the messages of a topic, including nested messages."""
LARGE = ('array', 'bytes', 'jpeg', 'png')
"""Item types that are read one item at a time."""
BYTES = ('uint8', 'byte', 'octet', 'char')
NUMBERS = {'bool': 'bool', 'float32': 'float(4)', 'float64': 'float(8)', **dict.fromkeys(BYTES, 'uint(1)')}
NUMBERS |= {f'{word}{8 * size}': f'{word}({size})' for word in ('int', 'uint') for size in (1, 2, 4, 8)}


class Leaf(NamedTuple):
    """A field of messages that is not a nested message."""

    path: tuple[str, ...]
    """Names of the attributes that lead to the field."""
    type: str
    """The type of an item."""


class Definitions:
    """The definitions in recordings, each parsed once."""

    def __init__(self) -> None:
        self._parsed: dict[Any, dict[str, Any]] = {}

    def clashes(self, reader: AnyReader) -> dict[tuple[str, str], str]:
        """Returns the topics and types that rosbags would read with another definition, and the reasons.

        For each type in a recording, rosbags uses one definition: the last one.
        """
        used: dict[str, Any] = {}
        for each in reader.connections:
            used |= self._parse(each)
        return {
            (each.topic, each.msgtype): f'its definition of {name} differs from other topics'
            for part in reader.readers
            for each in _stored_connections(part)
            for name, definition in self._parse(each).items()
            if used.get(name, definition) != definition
        }

    def _parse(self, connection: Connection) -> dict[str, Any]:
        """Returns the fields of the types in the definition of a connection."""
        from rosbags.interfaces import MessageDefinitionFormat
        from rosbags.typesys import get_types_from_msg

        key = connection.msgtype, connection.msgdef.data
        if key not in self._parsed:
            is_text = connection.msgdef.format == MessageDefinitionFormat.MSG
            definitions = get_types_from_msg(*reversed(key)) if is_text else {}
            self._parsed[key] = {name: fields for name, (_, fields) in definitions.items()}
        return self._parsed[key]


def _fields_of(store: Typestore, message_type: str) -> list[tuple[str, tuple[Any, Any]]]:
    """Returns the names of the fields of a message type, and the nested tuples that describe their types."""
    return list(store.fielddefs[message_type][1])


def unreadable(store: Typestore, message_type: str, seen: set[str]) -> str:
    """Returns why messages of a type cannot be read; empty if they can. `seen` are types already checked."""
    if message_type not in store.fielddefs:
        return f'{message_type} is not known'
    if message_type in seen:
        return ''
    seen.add(message_type)
    for name, (node, about) in _fields_of(store, message_type):
        inner, word = about[0] if node.name in ('ARRAY', 'SEQUENCE') else (node, about)
        if inner.name == 'NAME' and (reason := unreadable(store, word, seen)):
            return f'{name}: {reason}'
        if inner.name != 'NAME' and word[0] not in NUMBERS and word[0] != 'string':
            return f'{name} is a {word[0]}, which rosbags does not read'
    return ''


def leaves_of(store: Typestore, message_type: str) -> list[Leaf]:
    """Returns the fields of the messages of a type, at most `MAX_FIELDS` + 1."""
    return list(itertools.islice(_leaves(store, message_type, ()), MAX_FIELDS + 1))


def _leaves(store: Typestore, message_type: str, path: tuple[str, ...]) -> Iterator[Leaf]:
    """Yields the fields of a message type, including fields of nested messages."""
    for name, (node, about) in _fields_of(store, message_type):
        here = (*path, name)
        if node.name == 'NAME':
            yield from _leaves(store, about, here)
        elif node.name == 'BASE':
            yield Leaf(here, NUMBERS.get(about[0], 'utf8'))
        elif about[0][0].name == 'NAME' or about[0][1][0] not in NUMBERS:
            yield Leaf(here, 'msgpack')
        elif message_type == IMAGE and name == 'data':
            yield Leaf(here, 'array')
        elif node.name == 'SEQUENCE' and about[0][1][0] in BYTES:
            yield Leaf(here, 'bytes')
        else:
            dtype = 'uint8' if about[0][1][0] in BYTES else about[0][1][0]
            yield Leaf(here, f'array({dtype},{about[1] if node.name == "ARRAY" else "?"})')


def _stored_connections(reader: Reader1 | Reader2) -> list[Connection]:
    """Returns the connections in all files of a recording; a rosbag2 folder may have several files."""
    storage = getattr(reader, 'storage', reader)
    return [each for part in getattr(storage, 'storages', [storage]) for each in part.connections]
