"""Parses the lines of manifests of Lhotse: cuts, recordings and supervisions. No I/O.

Nothing of a manifest is executed: a source of the type `command` is an error, as are sources whose data are
in the manifest (`memory`) or in another file (`shar`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple, NoReturn

from bags.interop.sources.manifests.sound_parts import DIGITS, MAX_SECONDS, TOLERANCE

SOURCES = ('file', 'url')
"""Types of sources that are read."""
CUTS = ('MonoCut', 'MultiCut', 'Cut')
"""Types of cuts of one recording; `Cut` is the former name of `MonoCut`."""
TEXTS = ('text', 'speaker', 'language', 'gender')
"""Keys of supervisions with texts."""
VALUES = ('channel', 'custom', 'alignment')
"""Keys of supervisions with other values."""
MAX_RATE = 1 << 31


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f'expected a finite number, got {name}')


_DECODER = json.JSONDecoder(parse_constant=_no_constant)


class Supervision(NamedTuple):
    """A supervision, with times on the clock of its cut or recording."""

    id: str
    recording_id: str
    start: float
    duration: float
    values: Mapping[str, Any]
    """Its other values, by key."""

    @property
    def stop(self) -> float:
        """The end, as `SupervisionSegment.end`."""
        return round(self.start + self.duration, DIGITS)


class Recording(NamedTuple):
    """A recording of one source."""

    id: str
    type: str
    path: str
    channels: list[int]
    rate: int
    samples: int
    duration: float


class Cut(NamedTuple):
    """A part of a recording, or a whole recording, with its supervisions."""

    id: str
    recording: Recording
    start: float
    duration: float | None
    """Seconds; None for a whole recording."""
    channels: list[int]
    supervisions: list[Supervision]
    custom: Any


class LineKeys(NamedTuple):
    """What a cut or recording has."""

    id: str
    keys: set[str]
    """The keys with values of its supervisions."""
    channels: int
    """Number of channels of its recording."""
    has_custom: bool


def kind_of(value: Mapping[str, Any]) -> str:
    """Returns what a line has: 'recordings', 'supervisions' or 'cuts'.

    Raises:
        ValueError: Something else.
    """
    if 'sources' in value:
        return 'recordings'
    if 'type' not in value and 'recording_id' in value and 'start' in value:
        return 'supervisions'
    if value.get('type') in CUTS:
        return 'cuts'
    if isinstance(value.get('type'), str):
        _fail('type', f'one of {", ".join(CUTS)}', value['type'])
    raise ValueError('expected a cut, a recording or a supervision, got an object without their keys')


def parse_line(text: bytes) -> dict[str, Any]:
    """Returns the object of a line.

    Raises:
        ValueError: The line is not a JSON object, or has NaN or an infinite number.
    """
    try:
        value = _DECODER.decode(text.decode('utf-8-sig'))
    except RecursionError:
        raise ValueError('expected fewer levels of nesting') from None
    if not isinstance(value, dict):
        raise ValueError(f'expected a JSON object, got {value!r:.80}')
    return value


def keys_of(value: Mapping[str, Any]) -> LineKeys:
    """Returns what the object of a cut or recording has, without checks of its values."""
    keys = set[str]()
    supervisions, recording = value.get('supervisions'), value.get('recording', value)
    for each in supervisions if isinstance(supervisions, list) else ():
        if isinstance(each, dict):
            keys.update(key for key in (*TEXTS, *VALUES) if each.get(key) is not None)
    sources = recording.get('sources') if isinstance(recording, dict) else None
    channels = 1
    if isinstance(sources, list) and sources and isinstance(sources[0], dict):
        found = sources[0].get('channels')
        channels = len(found) if isinstance(found, list) else 1
    has_custom = 'recording' in value and value.get('custom') is not None
    return LineKeys(str(value.get('id')), keys, channels, has_custom)


def parse_cut(value: Mapping[str, Any]) -> Cut:
    """Returns the cut of a line.

    Raises:
        ValueError: A key is missing, has another type, or contradicts another; names the key.
    """
    id, start = _text(value, 'id'), _seconds(value, 'start')
    duration = _seconds(value, 'duration', is_length=True)
    if value.get('recording') is None:
        _fail('recording', 'a recording', value.get('recording'))
    recording = parse_recording(_object(value, 'recording'), 'recording.')
    if start + duration > recording.duration + TOLERANCE:
        raise ValueError(
            f'duration: expected a cut of the {recording.duration:g} s of its recording, got {start:g} to '
            f'{start + duration:g} s'
        )
    channel = value.get('channel', 0)
    channels = _channels(channel if isinstance(channel, list) else [channel], 'channel')
    if not {*channels} <= {*recording.channels}:
        raise ValueError(f'channel: expected channels among {recording.channels}, got {channels}')
    supervisions = []
    for number, each in enumerate(_list(value, 'supervisions')):
        where = f'supervisions[{number}]'
        if not isinstance(each, dict):
            _fail(where, 'an object', each)
        supervisions.append(parse_supervision(each, f'{where}.', is_before=True))
        if supervisions[-1].recording_id != recording.id:
            _fail(f'{where}.recording_id', repr(recording.id), supervisions[-1].recording_id)
    return Cut(id, recording, start, duration, channels, in_order(supervisions), value.get('custom'))


def cut_of(recording: Recording, supervisions: list[Supervision], custom: Any = None) -> Cut:
    """Returns the cut that is a whole recording."""
    channels = recording.channels
    return Cut(recording.id, recording, 0.0, None, channels, in_order(supervisions), custom)


def in_order(supervisions: list[Supervision]) -> list[Supervision]:
    """Returns supervisions in the order of their starts.

    Raises:
        ValueError: Two have one id.
    """
    ids = set[str]()
    for each in supervisions:
        if each.id in ids:
            raise ValueError(f'supervisions: expected each id once, got {each.id!r:.80} twice')
        ids.add(each.id)
    return sorted(supervisions, key=lambda each: each.start)


def parse_recording(value: Mapping[str, Any], where: str = '') -> Recording:
    """Returns the recording of an object; `where` is before the keys in messages.

    Raises:
        ValueError: As in `parse_cut`; or it has several sources, or one that is not a file or a URL.
    """
    id, sources = _text(value, 'id', where), _list(value, 'sources', where)
    for number, source in enumerate(sources):
        key = f'{where}sources[{number}]'
        if not isinstance(source, dict):
            _fail(key, 'an object', source)
        if source.get('type') not in SOURCES:
            detail = 'file or url, as nothing is executed, and no data are read from the manifest'
            _fail(f'{key}.type', detail, source.get('type'))
    if len(sources) != 1:
        raise ValueError(f'{where}sources: expected one file, got {len(sources)}')
    if value.get('transforms'):
        raise ValueError(f'{where}transforms: expected none, as a link is to the file as it is')
    where_source = f'{where}sources[0].'
    channels = _channels(sources[0].get('channels'), f'{where_source}channels')
    rate = _integer(value, 'sampling_rate', where, MAX_RATE)
    samples = _integer(value, 'num_samples', where, int(MAX_SECONDS) * MAX_RATE)
    duration = _seconds(value, 'duration', where, is_length=True)
    if abs(duration - samples / rate) > TOLERANCE:
        raise ValueError(
            f'{where}duration: expected {samples / rate:g} s, of {samples:,} samples, got {duration:g}'
        )
    path = _text(sources[0], 'source', where_source)
    return Recording(id, sources[0]['type'], path, channels, rate, samples, duration)


def parse_supervision(value: Mapping[str, Any], where: str = '', *, is_before: bool = False) -> Supervision:
    """Returns the supervision of an object.

    Args:
        value: The object.
        where: The text before the keys in messages.
        is_before: Whether it may start before 0 s, as in a cut that begins in the supervision.

    Raises:
        ValueError: As in `parse_cut`.
    """
    id, recording_id = _text(value, 'id', where), _text(value, 'recording_id', where)
    start = _seconds(value, 'start', where, is_before=is_before)
    duration = _seconds(value, 'duration', where, is_length=True)
    values = {key: value[key] for key in (*TEXTS, *VALUES) if value.get(key) is not None}
    for key in TEXTS:
        if not isinstance(values.get(key, ''), str):
            _fail(f'{where}{key}', 'a text', values[key])
    return Supervision(id, recording_id, start, duration, values)


def _fail(key: str, expected: str, value: object) -> NoReturn:
    raise ValueError(f'{key}: expected {expected}, got {"nothing" if value is None else repr(value)[:80]}')


def _text(value: Mapping[str, Any], key: str, where: str = '') -> str:
    found = value.get(key)
    return found if isinstance(found, str) and found else _fail(f'{where}{key}', 'a text', found)


def _list(value: Mapping[str, Any], key: str, where: str = '') -> list[Any]:
    found = value.get(key)
    found = [] if found is None else found
    return found if isinstance(found, list) else _fail(f'{where}{key}', 'a list', found)


def _object(value: Mapping[str, Any], key: str) -> dict[str, Any]:
    found = value.get(key)
    return found if isinstance(found, dict) else _fail(key, 'an object', found)


def _channels(channels: object, key: str) -> list[int]:
    if (
        not isinstance(channels, list)
        or not channels
        or not all(type(each) is int and 0 <= each < 1 << 31 for each in channels)
    ):
        _fail(key, 'numbers of channels', channels)
    return channels


def _integer(value: Mapping[str, Any], key: str, where: str, maximum: int) -> int:
    found = value.get(key)
    if type(found) is float and found.is_integer():
        found = int(found)
    if type(found) is not int or not 0 < found <= maximum:
        _fail(f'{where}{key}', 'an integer above 0', found)
    return found


def _seconds(
    value: Mapping[str, Any], key: str, where: str = '', *, is_before: bool = False, is_length: bool = False
) -> float:
    found = value.get(key)
    lowest = -MAX_SECONDS if is_before else 0.0
    if isinstance(found, bool) or not isinstance(found, int | float) or not lowest <= found <= MAX_SECONDS:
        _fail(f'{where}{key}', 'a number of seconds' + ' from 0 on' * (not is_before), found)
    if is_length and not found:
        _fail(f'{where}{key}', 'a number of seconds above 0', found)
    return float(found)
