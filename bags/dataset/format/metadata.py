"""Metadata of a dataset: JSON in `metadata.json`, beside spec.json.

    {"robot": "arm 7",
     "fields": {"state": {"rate": 200, "unit": "rad", "names": ["shoulder", "elbow"]},
                "events": {"times": "event_time"}}}

The author chooses the content, except for three facts of a sequence field that `dataset.windows` uses:
`rate`, items per second; `start`, the time of the first item in seconds, 0 by default; and `times`, the field
with the times of the items. Writers also store the `package` of a field whose type comes from another
package.
"""

from __future__ import annotations

import json
import math
import re
import warnings
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from bags.bag.checksums import checksums_name
from bags.dataset.format.json_files import check_json, check_no_lfs_pointer
from bags.dataset.format.registry import AUDIO_FORMATS, INTEGER_FORMATS, VIDEO_FORMATS, are_pictures, decoders
from bags.dataset.format.spec import Schema
from bags.errors import CorruptError
from bags.storage import Store

METADATA = 'metadata.json'
STATISTICS = 'statistics.json'
"""Statistics of the fields, which `bags.statistics` writes."""
RENEW_STATISTICS = '`bags statistics PATH --recompute --keep` computes it again'
MAX_METADATA_BYTES = 1 << 24

TIME_FORMATS = ('float', 'array', *INTEGER_FORMATS)
"""Formats of types whose values may be times."""
MAX_USUAL_PICTURE_RATE = 1000
"""Frames per second above which a rate of pictures is doubtful."""

UNITS = {'s': 1.0, 'ms': 1e-3, 'us': 1e-6, 'ns': 1e-9}
"""The units of times, in seconds."""

PACKAGE = re.compile(r'[A-Za-z0-9]([A-Za-z0-9._-]{0,98}[A-Za-z0-9])?')

POSITION = 'spec_position'
"""Name of the fact with the position of a field in the author's order."""

Metadata = dict[str, Any]


def dump_metadata(metadata: Mapping[str, Any], schema: Schema) -> bytes:
    """Returns the content of metadata.json.

    Raises:
        TypeError: The metadata is not a mapping, or has values that JSON cannot represent.
        ValueError: A number is not finite, `fields` names a field that is not in the dataset, a fact that
            `dataset.windows` uses is invalid, or the metadata takes more than 16 MiB.
    """
    if not isinstance(metadata, Mapping):
        raise TypeError(f'metadata: expected a mapping, got {type(metadata).__name__}')
    try:
        data = json.dumps(metadata, allow_nan=False, ensure_ascii=False).encode()
    except TypeError as exc:
        raise TypeError(f'metadata: expected values of JSON: {exc}') from None
    except (ValueError, RecursionError) as exc:
        raise ValueError(f'metadata: expected values of JSON: {exc}') from None
    if len(data) > MAX_METADATA_BYTES:
        raise ValueError(f'metadata: expected at most {MAX_METADATA_BYTES} bytes of JSON, got {len(data)}')
    _check_fields(json.loads(data), schema)
    return data


def load_metadata(data: bytes, where: object) -> Metadata:
    """Parses the content of metadata.json.

    Raises:
        CorruptError: The content is not JSON, is not an object, or takes more than 16 MiB.
    """
    if len(data) > MAX_METADATA_BYTES:
        raise CorruptError(where, None, f'expected at most {MAX_METADATA_BYTES} bytes, got {len(data)}')
    try:
        found = json.loads(data)
    except (ValueError, RecursionError) as exc:
        check_no_lfs_pointer(where, data)
        raise CorruptError(where, None, f'is not JSON: {exc}') from None
    if not isinstance(found, dict) or not isinstance(found.get('fields', {}), dict):
        raise CorruptError(where, None, 'expected an object, in which "fields", if present, is an object')
    return found


def read_metadata(store: Store, folder: str, names: Collection[str]) -> Metadata:
    """Returns the metadata of a dataset folder, empty by default. `names` are the files in the folder.

    Raises:
        CorruptError: The content is invalid, or differs from its checksum.
    """
    path = store.join(folder, METADATA)
    try:
        data = store.read(path, MAX_METADATA_BYTES)
    except FileNotFoundError:
        return {}
    if checksums_name(METADATA) in names:
        check_json(store, path, data, f'`bags metadata PATH --set {path}` accepts it')
    return load_metadata(data, path)


def metadata_of_fields(metadata: Metadata, names: Collection[str]) -> Metadata:
    """Returns the metadata of the dataset and of the fields in `names` only."""
    if 'fields' not in metadata:
        return metadata
    kept = {name: facts for name, facts in metadata['fields'].items() if name in names}
    return {**metadata, 'fields': kept}


def rename_metadata(metadata: Metadata, names: Mapping[str, str]) -> Metadata:
    """Returns the metadata of renamed fields, including the names of fields in `times`, `over` and `labels`.

    Args:
        metadata: The metadata.
        names: The new name of each kept field.
    """
    if 'fields' not in metadata:
        return metadata
    fields = {
        names[name]: rename_facts(facts, names) for name, facts in metadata['fields'].items() if name in names
    }
    return {**metadata, 'fields': fields}


def rename_facts(facts: Any, names: Mapping[str, str]) -> Any:
    """Returns the facts of a field, with the new names of the fields in `times`, `over` and `labels`."""
    if not isinstance(facts, Mapping):
        return facts
    known = {key: facts[key] for key in ('times', 'over', 'labels') if isinstance(facts.get(key), str)}
    renamed = {key: names[name] for key, name in known.items() if name in names}
    return {**facts, **renamed} if renamed else facts


def metadata_to_store(metadata: Metadata, schema: Schema) -> Metadata:
    """Returns the metadata for a dataset with these fields only.

    Leaves out `times` if its field is left out or is not a sequence.
    """
    kept = metadata_of_fields(metadata, schema)
    if 'fields' not in kept:
        return kept
    fields = {}
    for name, facts in kept['fields'].items():
        if isinstance(facts, dict) and not _is_sequence(facts.get('times'), schema):
            facts = {key: fact for key, fact in facts.items() if key != 'times'}
        fields[name] = facts
    return {**kept, 'fields': fields}


def with_order(metadata: Mapping[str, Any], names: Iterable[str]) -> Metadata:
    """Returns metadata with the positions of fields in an order; without positions if it is alphabetical."""
    bare, names = without_order(metadata), list(names)
    if names == sorted(names):
        return bare
    fields = dict(bare.get('fields', {}))
    for position, name in enumerate(names):
        facts = fields.get(name)
        fields[name] = {**(facts if isinstance(facts, dict) else {}), POSITION: position}
    return {**bare, 'fields': fields}


def without_order(metadata: Mapping[str, Any]) -> Metadata:
    """Returns metadata without the positions of fields, and without fields that have no other facts."""
    bare, kept = dict(metadata), {}
    fields = metadata.get('fields')
    if not isinstance(fields, Mapping) or not any(_position(facts) is not None for facts in fields.values()):
        return bare
    for name, facts in fields.items():
        if not isinstance(facts, Mapping):
            kept[name] = facts
        elif rest := {key: fact for key, fact in facts.items() if key != POSITION}:
            kept[name] = rest
    if kept:
        return {**bare, 'fields': kept}
    del bare['fields']
    return bare


def in_order(schema: Schema, metadata: Metadata) -> Schema:
    """Returns a schema in the order of metadata; fields without a position come last, alphabetically."""
    positions = {
        name: position
        for name, facts in metadata.get('fields', {}).items()
        if (position := _position(facts)) is not None
    }
    if not positions:
        return schema
    last = max(positions.values()) + 1
    return {name: schema[name] for name in sorted(schema, key=lambda each: (positions.get(each, last), each))}


def _position(facts: Any) -> int | None:
    position = facts.get(POSITION) if isinstance(facts, Mapping) else None
    return position if type(position) is int and position >= 0 else None


def with_packages(metadata: Mapping[str, Any], packages: Mapping[str, str]) -> Metadata:
    """Returns metadata with the packages that define the types of some fields."""
    if not packages:
        return dict(metadata)
    fields = dict(metadata.get('fields', {}))
    for name, package in packages.items():
        facts = fields.get(name)
        fields[name] = {**(facts if isinstance(facts, dict) else {}), 'package': package}
    return {**metadata, 'fields': fields}


def keep_packages(metadata: Mapping[str, Any], before: Metadata, schema: Schema) -> Metadata:
    """Returns metadata that replaces earlier metadata, with the packages from the earlier metadata."""
    own = {name for name, field_type in schema.items() if field_type.format not in decoders}
    return with_packages(metadata, {name: found for name in own if (found := package_of(before, name))})


def package_of(metadata: Metadata, field: str) -> str | None:
    """Returns the package that defines the type of a field; None if it is missing or not a package name."""
    facts = metadata.get('fields', {}).get(field)
    package = facts.get('package') if isinstance(facts, dict) else None
    return package if isinstance(package, str) and PACKAGE.fullmatch(package) else None


def merge_metadata(parts: Iterable[Metadata]) -> Metadata:
    """Merges the metadata of several datasets; the first dataset with a key determines its value."""
    merged: Metadata = {}
    fields: dict[str, Any] = {}
    for part in parts:
        merged = {**part, **merged}
        fields = {**part.get('fields', {}), **fields}
    return {**merged, 'fields': fields} if fields else merged


def _check_fields(metadata: Metadata, schema: Schema) -> None:
    fields = metadata.get('fields', {})
    if not isinstance(fields, dict):
        raise TypeError(f'metadata: fields: expected a mapping by field, got {fields!r:.80}')
    for name, facts in fields.items():
        if name not in schema:
            raise ValueError(f'metadata: fields: expected fields of the dataset, got {name!r}')
        check_facts(name, facts)
        times = facts.get('times')
        if times is not None and not _is_sequence(times, schema):
            raise ValueError(f'metadata: field {name!r}: times: expected a sequence field, got {times!r:.80}')
        _check_stream(name, facts, schema)


def _check_stream(name: str, facts: Mapping[str, Any], schema: Schema) -> None:
    """Checks the facts of a stream against the types of its fields.

    Raises:
        ValueError: The facts cannot hold.
    """
    field_type, times = schema[name], facts.get('times')
    where = f'metadata: field {name!r} of type {field_type.text}'
    if times is not None and (times == name or schema[times].format not in TIME_FORMATS):
        raise ValueError(f'{where}: times: expected a sequence of numbers, got {times!r}')
    is_media = field_type.format in (*VIDEO_FORMATS, *AUDIO_FORMATS)
    if 'elements' in facts and is_media and not field_type.sequence:
        raise ValueError(f"{where}: elements: expected a sequence of clips or recordings for 'items'")
    rate = facts.get('rate', 0)
    is_picture = field_type.format in VIDEO_FORMATS or are_pictures(field_type.format, field_type.args)
    if is_picture and rate > MAX_USUAL_PICTURE_RATE:
        warnings.warn(
            f'{where}: rate {rate:g}: frames per second are expected, and more than '
            f'{MAX_USUAL_PICTURE_RATE} are rare',
            RuntimeWarning,
            stacklevel=2,
        )


def check_facts(name: str, facts: Any) -> None:
    """Checks the facts of a field that streams use, except `times`, which other fields determine.

    Raises:
        TypeError, ValueError: As `dump_metadata`.
    """
    if not isinstance(facts, dict):
        raise TypeError(f'metadata: field {name!r}: expected a mapping, got {facts!r:.80}')
    for key, minimum in (('rate', 0.0), ('start', -math.inf)):
        value = facts.get(key, 1)
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not minimum < value < math.inf:
            expected = 'items per second, above 0' if key == 'rate' else 'seconds'
            raise ValueError(f'metadata: field {name!r}: {key}: expected {expected}, got {value!r:.80}')
    if facts.get('elements', 'items') != 'items':
        raise ValueError(
            f"metadata: field {name!r}: elements: expected 'items', got {facts['elements']!r:.80}"
        )


def _is_sequence(name: Any, schema: Schema) -> bool:
    return isinstance(name, str) and name in schema and schema[name].sequence
