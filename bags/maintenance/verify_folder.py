"""Checks a dataset folder: its files, its spec, its refs, and the bag of each field."""

from __future__ import annotations

import functools
import os
from collections.abc import Generator, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from bags.bag.bag_file import BagFile
from bags.bag.checksums import SUFFIX, checksums_name
from bags.bag.journal import journal_name
from bags.bag.journal_recovery import check_certain
from bags.bag.limits import invalid_ranges
from bags.bag.open import limits_name, open_bag
from bags.bag.options import ReaderOptions
from bags.bag.records import StoredRecords
from bags.concurrency import map_concurrently
from bags.dataset.format.file_names import BAG_SUFFIXES, IDENTITY, is_temporary
from bags.dataset.format.folder import Folder
from bags.dataset.format.folder_layout import Decoders, FolderLayout
from bags.dataset.format.identity import REMOVE_IDENTITY
from bags.dataset.format.journal import JOURNAL
from bags.dataset.format.json_files import check_json, has_checksums
from bags.dataset.format.listing import is_being_made
from bags.dataset.format.metadata import METADATA, RENEW_STATISTICS, STATISTICS, read_metadata
from bags.dataset.format.refs import MISSING, RefsFormat, dangling
from bags.dataset.format.registry import decoders
from bags.dataset.format.spec import FieldType, Schema, type_texts, union
from bags.errors import CorruptError, SpecError
from bags.formats.signatures import FORMAT_OF_TYPE
from bags.indexing import Int64s
from bags.maintenance.verify_bag import (
    Check,
    Damage,
    Expected,
    Finding,
    Note,
    Result,
    add_finding,
    bag_checks,
    unreadable,
)
from bags.storage import Store
from bags.validation import merge

TEMPORARY = 'was left by a writer that was killed, or belongs to a running one; `bags recover` removes it'
UNFINISHED_NOTE = (
    'is {}: it is being written, or its writer ended early (resume=True continues it, `bags recover` accepts '
    'it as it is)'
)
RESTORE_SPEC = 'restore it: it must not be changed'
REFS_ROWS = 1 << 18
"""Number of rows of refs that are checked at a time."""


def lone_bag_checks(
    store: Store, path: str, options: ReaderOptions, decode: bool
) -> Iterator[Finding | Check]:
    """Yields the checks of a bag outside of a dataset."""
    try:
        bag = open_bag(
            store, path, merge(ReaderOptions, options, {'checksum': store.exists(checksums_name(path))})
        )
        if not store.is_remote:
            check_certain(store, journal_name(path), [path], limits_name(path))
    except CorruptError as exc:
        yield Damage(path, None, None, exc.detail)
        return
    except OSError as exc:
        yield unreadable(exc, path)
        return
    if bag.limits.path != bag.file.path:
        reason = 'it is being written, was not closed, or was written with separate limits'
        yield Note(path, None, f'its limits are in {bag.limits.path}: {reason}')
    yield from bag_checks(bag, Expected(), decode)


def missing_shards(path: str, shards: list[str]) -> Iterator[Note]:
    """Yields a note if there are gaps in the numbers of shard folders."""
    names = list(map(os.path.basename, shards))
    missing: list[str] = []
    for name, before, number in zip(names, [-1, *map(int, names)], map(int, names), strict=False):
        if number > before + 1:
            first, last = (f'{missed:0{len(name)}}' for missed in (before + 1, number - 1))
            missing.append(first if first == last else f'{first} to {last}')
    if missing:
        detail = (
            f'has no shard folder {", ".join(missing)}: it was removed, or its writer did not reach it '
            f'(with shard_start and shard_step). Opening concatenates the remaining shards'
        )
        yield Note(path, None, detail)


def folder_checks(
    folder: Folder, cache: Decoders, decode: bool, first_schema: Schema | None, is_last: bool
) -> Iterator[Finding | Check]:
    """Yields the checks of a dataset folder.

    Args:
        folder, cache: The folder, and the decoders of types.
        decode: Whether to decode every value.
        first_schema: The schema of the first shard. Other shards may only differ in optional fields.
        is_last: Whether it is the last shard, which a writer may be creating.
    """
    refs, is_damaged = None, False
    # A writer that adds checksums to a dataset writes the checksums of refs.bag last.
    is_adding = JOURNAL in folder.names and not has_checksums(folder.names)
    if not is_adding and any(name.endswith(SUFFIX) for name in folder.names):
        folder.options = merge(ReaderOptions, folder.options, {'checksum': True})
    try:
        refs = folder.open_refs()
    except FileNotFoundError as exc:
        if is_last and is_being_made(folder.names):
            detail = 'has no datapoint yet: it is being created, or its writer was killed'
            yield Note(folder.path, None, detail)
        else:
            yield Damage(folder.path, None, None, f'has no {os.path.basename(exc.filename)}')
        return
    except CorruptError as exc:
        is_damaged = True
        yield Damage(exc.path, None, exc.record, exc.detail)
    except OSError as exc:
        is_damaged = True
        yield unreadable(exc, folder.store.join(folder.path, 'refs.bag'))
    except ValueError as exc:  # The checksums of refs.bag are missing.
        is_damaged = True
        yield Damage(folder.store.join(folder.path, 'refs.bag'), None, None, str(exc).rpartition(': ')[2])
    spec_path = folder.store.join(folder.path, 'spec.json')
    try:
        layout = folder.layout()
    except (OSError, CorruptError, SpecError) as exc:
        if isinstance(exc, OSError) and not isinstance(exc, FileNotFoundError):
            yield unreadable(exc, spec_path)
        else:
            detail = 'is missing' if isinstance(exc, FileNotFoundError) else str(exc).split(': ', 1)[-1]
            yield Damage(spec_path, None, None, detail)
        for name in sorted(folder.names):
            if name.endswith(('.bag', '.bagz')) and not name.startswith(('limits.', '.')):
                path = folder.store.join(folder.path, name)
                yield from lone_bag_checks(folder.store, path, folder.options, decode)
        return
    if first_schema is not None and union(first_schema, layout.schema) is None:
        spec, first = type_texts(layout.schema), type_texts(first_schema)
        detail = f'expected the spec of the first shard, {first}, but for optional fields, got {spec}'
        yield Damage(spec_path, None, None, detail)
    try:
        read_metadata(folder.store, folder.path, folder.names)
    except CorruptError as exc:
        yield Damage(exc.path, None, None, exc.detail)
    except OSError as exc:
        yield unreadable(exc, folder.store.join(folder.path, METADATA))
    files = {'spec.json': RESTORE_SPEC, IDENTITY: REMOVE_IDENTITY, STATISTICS: RENEW_STATISTICS}
    for name, renew in files.items():
        if checksums_name(name) in folder.names:
            path = folder.store.join(folder.path, name)
            try:
                check_json(folder.store, path, folder.store.read(path), renew)
            except FileNotFoundError:
                pass  # An earlier version, which does not know the checksum, has removed the file.
            except CorruptError as exc:
                yield Damage(exc.path, None, None, exc.detail)
            except OSError as exc:
                yield unreadable(exc, path)
    yield from _file_notes(folder, layout)
    bags = yield from _field_checks(folder, layout, cache, decode)
    if refs is not None:
        yield from bag_checks(refs, Expected(), decode)
        yield functools.partial(_check_refs, refs, layout.refs_format, bags)
    elif not is_damaged and len({bag.count for bag in bags.values()}) > 1:
        fewest = min(bag.count for bag in bags.values())
        detail = f'its fields differ in length; datapoints after the shortest, {fewest}, are not read'
        yield Note(folder.path, None, detail)


def _file_notes(folder: Folder, layout: FolderLayout) -> Iterator[Note]:
    is_unclosed = any(name.startswith('limits.') and not is_temporary(name) for name in folder.names)
    if is_unclosed or JOURNAL in folder.names:
        states = ['unfinished'] * (JOURNAL in folder.names) + ['not closed'] * is_unclosed
        yield Note(folder.path, None, UNFINISHED_NOTE.format(' and '.join(states)))
    dataset_files = {'spec.json', 'refs.bag', 'limits.refs.bag'}
    for name in layout.schema:
        files = [name + suffix for suffix in BAG_SUFFIXES]
        dataset_files |= {f'{name}.idx', *files, *map('limits.{}'.format, files)}
    for name in sorted(folder.names - dataset_files):
        if is_temporary(name):
            yield Note(folder.store.join(folder.path, name), None, TEMPORARY)
        elif name.startswith('limits.') or name.endswith((*BAG_SUFFIXES, '.idx')):
            yield Note(folder.store.join(folder.path, name), None, 'is not a file of the dataset')


def _field_checks(
    folder: Folder, layout: FolderLayout, cache: Decoders, decode: bool
) -> Generator[Finding | Check, None, dict[str, StoredRecords]]:
    """Yields the checks of all fields; returns the bags that could be opened."""

    def open_field(name: str) -> StoredRecords | CorruptError | OSError:
        try:
            return folder.open_bag(name)
        except (CorruptError, OSError) as exc:
            return exc

    opened = map_concurrently(open_field, list(layout.schema), folder.store.is_remote)
    bags: dict[str, StoredRecords] = {}
    for name, bag in zip(layout.schema, opened, strict=True):
        if isinstance(bag, OSError):
            yield unreadable(bag, folder.path, name)
            continue
        if isinstance(bag, CorruptError):
            yield Damage(bag.path, name, bag.record, bag.detail.removeprefix(f'field {name!r}: '))
            continue
        bags[name] = bag
        expected = yield from _expected(folder, layout.schema[name], name, cache, decode)
        for own in bag.own_bags if not isinstance(bag, BagFile) else ():
            yield from bag_checks(own, Expected(name), decode)
        yield from bag_checks(bag, expected, decode)
    return bags


def _expected(
    folder: Folder, field_type: FieldType, name: str, cache: Decoders, decode: bool
) -> Generator[Finding, None, Expected]:
    """Yields damage in the type of a field, and returns the expected properties of its records."""
    format = field_type.format
    try:
        decoder = cache.get(name, field_type, folder.starts, folder.path)
    except (SpecError, KeyError) as exc:
        reason = 'there is no decoder for them' if isinstance(exc, KeyError) else str(exc).split(': ', 2)[-1]
        if isinstance(exc, SpecError) and cache.has(format):
            yield Damage(folder.store.join(folder.path, 'spec.json'), name, None, reason)
        elif decode:
            detail = f'values of {field_type.text} are not decoded: {reason}'
            yield Note(folder.path, name, detail)
        return Expected(name, field_type.text)
    own = format in decoders and (cache.functions is None or cache.functions.get(format) is decoders[format])
    # Integers of Bags 0.x and Granular may differ in length from their type.
    any_length = field_type.format == 'int' and (folder.starts or not field_type.args)
    return Expected(
        name,
        field_type.text,
        0 if any_length else decoder.length,
        FORMAT_OF_TYPE.get(format) if own else None,
        decoder.decode if decode and decoder.decode is not bytes else None,
        decoder.lazy,
    )


def _check_refs(refs: BagFile, refs_format: RefsFormat, bags: dict[str, StoredRecords]) -> Result:
    """Checks that all refs to bags that could be opened point to records; notes records without refs."""
    used = {name: np.zeros(bag.count, bool) for name, bag in bags.items()}
    findings: list[Finding] = []
    for start in range(0, refs.count, REFS_ROWS):
        try:
            rows, columns, damage = _read_refs(refs, refs_format, start, min(start + REFS_ROWS, refs.count))
        except OSError as exc:
            findings.append(unreadable(exc, refs.path))
            break
        for each in damage:
            add_finding(findings, each)
        for name, bag in bags.items():
            field_type = refs_format.schema[name]
            firsts, counts = columns[name] if field_type.sequence else (columns[name], None)
            bad = dangling(field_type, firsts, counts, bag.count)
            if counts is not None:
                # Empty sequences can be read from any start, but writers start none beyond the end.
                bad |= (counts == 0) & (firsts > bag.count) & ~((firsts == MISSING) & field_type.optional)
            lasts = firsts if counts is None else firsts + np.maximum(counts - 1, 0)
            for row in np.flatnonzero(bad).tolist():
                is_missing = firsts[row] == MISSING
                what = 'no value, in a field that is not optional' if is_missing else f'record {lasts[row]}'
                detail = f'refers to {what}; {bag.path} has {bag.count} records'
                add_finding(findings, Damage(refs.path, name, int(rows[row]), detail))
            _mark(used[name], firsts[~bad], None if counts is None else counts[~bad])
    for name, bag in bags.items():
        unused = bag.count - int(np.count_nonzero(used[name]))
        if unused:
            what = '1 record' if unused == 1 else f'{unused:,} records'
            detail = f'{what} of {bag.count:,} that no datapoint refers to; harmless'
            findings.append(Note(bag.path, name, detail))
    return Result(findings, refs.count, refs.count * refs_format.stride)


def _read_refs(
    bag: BagFile, refs_format: RefsFormat, start: int, stop: int
) -> tuple[Int64s, dict[str, Any], list[Finding]]:
    """Returns the indices of valid rows, the refs in them by field, and damage for the other rows.

    Rows without valid limits are left out: the check of the bag's limits reports them.
    """
    names = list(refs_format.schema)
    try:
        starts, stops = bag.limits_of(start, stop)
    except EOFError:
        return np.empty(0, np.int64), refs_format.columns(np.empty(0, refs_format.dtype), names), []
    first, last = int(starts[0]), int(stops[-1])
    if last <= bag.end and bool((stops - starts == refs_format.stride).all()):
        table = np.frombuffer(bag.file.read(first, last), refs_format.dtype)
        if refs_format.has_tags(table.view(np.uint8).reshape(-1, refs_format.stride)):
            return np.arange(start, stop), refs_format.columns(table, names), []
    findings: list[Finding] = []
    indices, rows = [], []
    for position in np.flatnonzero(~invalid_ranges(starts, stops, bag.end)).tolist():
        try:
            rows.append(refs_format.unpack(bytes(bag.file.read(int(starts[position]), int(stops[position])))))
            indices.append(start + position)
        except (ValueError, EOFError) as exc:
            findings.append(Damage(bag.path, None, start + position, str(exc)))
    return (
        np.array(indices, np.int64),
        refs_format.columns(np.array(rows, refs_format.dtype), names),
        findings,
    )


def _mark(used: npt.NDArray[np.bool_], firsts: Int64s, counts: Int64s | None) -> None:
    """Marks the records that refs point to."""
    if counts is None:
        used[firsts[firsts < len(used)]] = True  # Missing values have a larger index.
        return
    firsts, stops = firsts[counts > 0], (firsts + counts)[counts > 0]
    if not len(firsts):
        return
    low, high = int(firsts.min()), int(stops.max())
    # For each record, the number of sequences begun minus the number ended: sequences may overlap.
    depth = np.bincount(firsts - low, minlength=high - low) - np.bincount(stops - low)[: high - low]
    used[low:high] |= np.cumsum(depth) > 0
