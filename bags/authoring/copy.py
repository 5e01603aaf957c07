"""Making a view real: its records copied to a dataset of its own, undecoded and in long runs."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from bags.authoring.computed_fields import Added
from bags.authoring.copy_chunks import Copier, copied_type, held_as
from bags.authoring.copy_plan import Portions, loaded
from bags.authoring.progress_log import note_source
from bags.dataset.base import check_dataset
from bags.dataset.compression import Compressed, Compression, field_compressions
from bags.dataset.encoder import Encoder
from bags.dataset.fingerprint import fingerprint
from bags.dataset.open import open as open_dataset
from bags.dataset.selection import Fields, select_whole
from bags.dataset.sharded_writer import GB, ShardedDatasetWriter
from bags.dataset.spec import Spec, parse_spec
from bags.progress import progress as show_progress
from bags.validation import at_least, at_least_or_none, one_of

__all__ = ['Copied', 'Skipped', 'copy']


class Skipped(NamedTuple):
    """A datapoint that was left out."""

    datapoint: int
    """Its index in the dataset that was copied."""
    error: str


@dataclasses.dataclass(frozen=True)
class Copied:
    """What `copy` did."""

    datapoints: int
    """Datapoints that are in the copy now, with those of an earlier run."""
    shards: int
    size: int
    """Bytes of it."""
    skipped: list[Skipped]
    """With `on_error='skip'`, the datapoints that were left out, and why."""


def copy(
    dataset: Any,
    directory: str | os.PathLike[str],
    *,
    fields: Fields = None,
    compression: Compression = None,
    shard_size: int | None = 10 * GB,
    shard_length: int | None = None,
    add: Mapping[str, tuple[str, Callable[[Mapping[str, Any]], Any]]] | None = None,
    batch_size: int = 256,
    encoders: Mapping[str, Callable[..., Any]] | None = None,
    on_error: str = 'raise',
    resume: bool = False,
    progress: bool | None = None,
    workers: int | None = None,
    filesystem: Any = None,
    storage_options: Mapping[str, Any] | None = None,
) -> Copied:
    """Copies a dataset or a view of one to a new dataset.

    Records are copied undecoded, and made over only where the copy holds them compressed in another way. What
    datapoints that follow one another share is shared in the copy too; else each gets records of its own.

    Args:
        dataset: A reader, a view, or the path of a dataset.
        directory: Where the copy goes: str, path or URL.
        fields: Which of its fields; all unless given.
        compression: As in `DatasetWriter`; unless given, each field is held as in the dataset. A level other
            than 3 compresses anew what is compressed already.
        shard_size, shard_length: Bytes, or datapoints, from which on a shard is full.
        add: New fields: their type, and a function that takes a batch, a mapping of the dataset's fields to
            columns, each of which is read when it is asked for, and returns a value for each of its
            datapoints, as an array or a list. A field of the dataset with that name is replaced. The
            function is called by one thread at a time.
        batch_size: Most datapoints in such a batch.
        encoders: For the new fields; `bags.encoders` unless given.
        on_error: 'raise', or 'skip' to leave out datapoints that cannot be read, which are listed in what is
            returned; then all compressed records are looked through, so that it is slower.
        resume: Go on with a copy that was not finished, after its last datapoint.
        progress: Show a bar: True, False, or None for on terminals.
        workers: Threads that read ahead; the number of processors unless given.
        filesystem, storage_options: As in `DatasetWriter`, for the copy.

    Raises:
        FileExistsError: Something is there, and `resume` is not set.
        CorruptError: A record that cannot be read; what was copied until then can be resumed.
        ValueError: With `resume`, what is there is no copy of this dataset.
    """
    source = open_dataset(dataset, raw=not add) if isinstance(dataset, str | os.PathLike) else dataset
    check_dataset('copy', source)
    one_of('on_error', on_error, ('raise', 'skip'))
    batch_size = at_least('batch_size', batch_size, 1)
    workers = at_least_or_none('workers', workers, 1) or os.cpu_count() or 1
    if not isinstance(add, Mapping | None):
        raise TypeError(f'add: expected a mapping of fields to a type and a function, got {add!r:.80}')
    pairs: Mapping[str, Any] = add or {}
    for name, pair in pairs.items():
        if not (isinstance(pair, tuple | list) and len(pair) == 2 and callable(pair[1])):
            raise TypeError(f'add: expected a type and a function for field {name!r}, got {pair!r}')
    new = parse_spec({name: kind for name, (kind, _) in (add or {}).items()})
    names = select_whole(fields, source._types, 'copy')
    held = {name: held_as(source, name) for name in names if name not in new}
    types = {name: copied_type(source._types[name], unsigned) for name, (_, unsigned) in held.items()}
    spec = {name: kind.text for name, kind in sorted({**types, **new}.items())}
    compressions, anew = _compressions(
        compression, parse_spec(spec), {n: how for n, (how, _) in held.items()}
    )
    skips = on_error == 'skip'
    added = None
    if add:
        functions = {name: function for name, (_, function) in add.items()}
        added = Added(source, new, functions, Encoder(new, encoders), batch_size)
    copier = Copier(source, types, compressions, anew, skips, workers if skips else 1, added)
    with ShardedDatasetWriter(
        directory,
        spec,
        {kind.word: bytes for kind in parse_spec(spec).values()},  # Never called.
        shard_size,
        shard_length,
        compression=compressions,
        resume=resume,
        filesystem=filesystem,
        storage_options=storage_options,
    ) as writer:
        made_from = {
            'kind': 'copy',
            'fields': spec,
            'length': len(source),
            'fingerprint': fingerprint(source),
        }
        provenance = note_source(writer, made_from, resume)
        skipped = [Skipped(*entry) for entry in provenance.state.get('skipped', [])]

        def skip(index: int, exc: Exception) -> None:
            skipped.append(Skipped(index, f'{type(exc).__name__}: {exc}'))
            provenance.state['skipped'] = skipped
            provenance.save()  # Before a later datapoint is there, by whose number its place is found again.

        current = writer.current
        begun = (0, 0, 0) if current is None else (current.size, len(current), current.largest)
        portions = Portions(copier, writer.is_full, begun, shard_length, skip if skips else None)
        position = _position(len(writer), skipped)
        planned, before = 0, writer.size
        with show_progress('copying', len(source) - position, 'datapoints', show=progress) as advance:
            for portion, chunk in loaded(portions.plan(position, len(source)), copier.load, workers):
                if portion.begins_shard:
                    writer.end_shard()
                size = writer.size
                writer.begun().append_runs(chunk.runs, chunk.refs)
                advance(portion.plan.stop - portion.plan.start, writer.size - size)
                planned += portion.plan.size
                portions.scale = (writer.size - before) / planned
    return Copied(len(writer), writer.shards, writer.size, skipped)


def _compressions(
    compression: Compression, spec: Spec, held: Mapping[str, Compressed | None]
) -> tuple[dict[str, Compressed], set[str]]:
    """Returns how the copy is compressed, and which of its fields are compressed anew."""
    if compression is None:
        return {name: how for name, how in held.items() if how is not None}, set()
    asked = field_compressions(compression, spec)
    anew = set()
    for name, how in asked.items():
        source = held.get(name)
        if isinstance(compression, Mapping) and how != Compressed(trained=how.trained):
            anew.add(name)
        elif source is not None and how.trained and source.trained:
            asked[name] = source  # The dictionary that is there will do.
    return asked, anew


def _position(length: int, skipped: list[Skipped]) -> int:
    """Returns up to where a dataset was copied, if there are so many datapoints, and some were left out."""
    for skip in sorted(skipped):
        length += skip.datapoint <= length
    return length
