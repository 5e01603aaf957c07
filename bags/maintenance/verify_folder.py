"""A dataset folder: its files, its spec, its refs, and the jobs that look at each bag."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from bags.bag.bag_file import BagFile
from bags.bag.open import open_bag
from bags.bag.options import ReaderOptions
from bags.dataset.field import Field
from bags.dataset.folder import Folder, is_being_made
from bags.dataset.registry import decoders
from bags.dataset.schema import Schema, SchemaCache
from bags.dataset.spec import FieldType
from bags.errors import CorruptError, SpecError
from bags.maintenance.findings import Damage, Finding, Note
from bags.maintenance.verify_bag import Decode, Kind, record_jobs
from bags.maintenance.verify_heads import HEADS
from bags.maintenance.verify_jobs import Job, Result
from bags.maintenance.verify_refs import look_at_rows
from bags.maintenance.verify_values import field_decode, record_decode
from bags.storage import Store

__all__ = ['bag_job', 'folder_job', 'gaps']

LARGE = frozenset(
    ['jpeg', 'jpg', 'png', 'webp', 'avif', 'mp4', 'webm', 'mkv', 'video', 'wav', 'flac', 'opus', 'audio']
)
"""Words whose values may be much larger than their records."""


def bag_job(store: Store, path: str, options: ReaderOptions, decode: bool) -> Job:
    """Returns the job of looking at a bag by itself."""

    def look() -> Result:
        try:
            bag = open_bag(store, path, options)
        except CorruptError as exc:
            return Result([Damage(path, None, None, exc.detail)])
        notes = []
        if bag.limits.path != bag.file.path:
            notes = [Note(path, None, f'its limits are beside it, in {bag.limits.path}: {BESIDE}')]
        return Result(notes, record_jobs(bag, Kind(decode=record_decode(bag) if decode else None)))

    return look


BESIDE = 'it is being written, or was not closed, or has them there for good'


def folder_job(
    store: Store,
    path: str,
    options: ReaderOptions,
    schemas: SchemaCache,
    decode: bool,
    expected: Callable[[], dict[str, str] | None],
    is_last: bool,
) -> Job:
    """Returns the job of looking at a dataset folder.

    Args:
        store, path: Where it is.
        options: How bags are read.
        schemas: What specs mean.
        decode: Whether every value is decoded.
        expected: Gives the spec that the folder must have, if any.
        is_last: Whether a writer may be just making it.
    """

    def look() -> Result:
        folder = Folder(store, path, options)
        findings: list[Finding] = []
        try:
            refs = folder.open_refs()
        except FileNotFoundError as exc:
            if is_last and is_being_made(folder.names):
                return Result(
                    [Note(path, None, 'has no datapoint yet: it is being made, or its writer was killed')]
                )
            return Result([Damage(path, None, None, f'has no {_name(exc.filename)}')])
        except CorruptError as exc:
            refs, broken = None, True
            findings.append(Damage(exc.path, None, exc.record, exc.detail))
        else:
            broken = False
        try:
            schema = folder.schema(schemas)
        except (FileNotFoundError, SpecError) as exc:
            detail = 'is missing' if isinstance(exc, FileNotFoundError) else str(exc).split(': ', 1)[-1]
            findings.append(Damage(store.join(path, 'spec.json'), None, None, detail))
            return Result(findings, _without_spec(folder, decode))
        spec = {name: kind.text for name, kind in schema.types.items()}
        if expected() not in (None, spec):
            detail = f'expected the spec of the first shard, {expected()}, got {spec}'
            findings.append(Damage(store.join(path, 'spec.json'), None, None, detail))
        findings += _notes(folder, schema)
        return Result(findings, _fields(folder, schema, refs, broken, decode))

    return look


def gaps(path: str, shards: list[str]) -> Result:
    """Notes numbers of shard folders that are not there."""
    missing: list[str] = []
    after = 0
    for shard in shards:
        name = _name(shard)
        if (number := int(name)) > after:
            first, last = (str(each).rjust(len(name), '0') for each in (after, number - 1))
            missing.append(first if first == last else f'{first} to {last}')
        after = number + 1
    if not missing:
        return Result([])
    detail = (
        f'has no shard folder {", ".join(missing)}: it was removed, or its writer did not get to it '
        f'(with shard_start and shard_step). Opening takes those there are, one after the other'
    )
    return Result([Note(path, None, detail)])


def _name(path: Any) -> str:
    return str(path).replace('\\', '/').rsplit('/', 1)[-1]


def _without_spec(folder: Folder, decode: bool) -> Iterator[Job]:
    for name in sorted(folder.names):
        if name.endswith(('.bag', '.bagz')) and not name.startswith(('limits.', '.')):
            yield bag_job(folder.store, folder.store.join(folder.path, name), folder.options, decode)


def _notes(folder: Folder, schema: Schema) -> list[Finding]:
    notes: list[Finding] = []
    if any(name.startswith('limits.') for name in folder.names):
        notes.append(Note(folder.path, None, 'is not closed: it is being written, or bags recover closes it'))
    known = {'spec.json', 'refs.bag', 'limits.refs.bag'}
    for name in schema.types:
        known |= {f'{name}.idx', f'{name}.bag', f'{name}.bagz', f'limits.{name}.bag', f'limits.{name}.bagz'}
    notes.extend(
        Note(folder.store.join(folder.path, name), None, 'is no file of the dataset')
        for name in sorted(folder.names - known)
        if name.startswith('limits.') or name.endswith(('.bag', '.bagz', '.idx', '.new'))
    )
    return notes


def _found(finding: Finding) -> Job:
    return lambda: Result([finding])


def _fields(
    folder: Folder, schema: Schema, refs: BagFile | None, broken: bool, decode: bool
) -> Iterator[Job]:
    """Yields the jobs of a folder whose spec is known: the bags first, then the refs."""
    counts: dict[str, tuple[str, int]] = {}
    for name, kind in schema.types.items():
        try:
            bag = folder.open_bag(name)
        except CorruptError as exc:
            found = Damage(exc.path, name, exc.record, exc.detail.removeprefix(f'field {name!r}: '))
            yield _found(found)
            continue
        counts[name] = (bag.path, bag.count)
        yield from _field_jobs(folder, schema, name, kind, bag, decode)
    if refs is not None:
        yield from record_jobs(refs, Kind())
        yield lambda: look_at_rows(refs, schema.format, counts)
    elif not broken and len({count for _, count in counts.values()}) > 1:
        few = min(count for _, count in counts.values())
        note = Note(folder.path, None, f'its fields differ in length; the shortest, {few}, counts')
        yield _found(note)


def _field_jobs(
    folder: Folder, schema: Schema, name: str, kind: FieldType, bag: BagFile, decode: bool
) -> Iterator[Job]:
    try:
        decoder = schema.decoder(name, folder.path)
    except SpecError as exc:
        found: Finding
        if kind.word in schema.functions:
            found = Damage(
                folder.store.join(folder.path, 'spec.json'), name, None, str(exc).split(': ', 2)[-1]
            )
        else:
            found = Note(
                folder.path, name, f'values of {kind.text} are not decoded: there is no decoder for them'
            )
        if decode or isinstance(found, Damage):
            yield _found(found)
        yield from record_jobs(bag, Kind(name, kind.text, decode=record_decode(bag) if decode else None))
        return
    how: Decode | None = None
    if decode:
        field = Field(name, kind, schema.format.places[name], bag, decoder)
        how = field_decode(field, kind.word in LARGE)
    # Integers of Bags 0.x and Granular may have other lengths than their type says.
    loose = kind.word == 'int' and (folder.starts or not kind.args)
    built_in = schema.functions.get(kind.word) is decoders.get(kind.word)
    head = kind.word if built_in and kind.word in HEADS else ''
    yield from record_jobs(bag, Kind(name, kind.text, 0 if loose else decoder.length, head, how))
