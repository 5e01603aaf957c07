"""`bags.export`: writes tars, folders of files, Parquet files, LeRobot datasets, and tokens for Megatron."""

from __future__ import annotations

import io
import itertools
import os
import posixpath
import sys
import tarfile
from collections.abc import Iterator, Mapping
from typing import Any, Literal

import numpy as np

from bags.dataset.base import Dataset, check_dataset, expect_committed
from bags.dataset.format.metadata import METADATA, dump_metadata, metadata_of_fields, metadata_to_store
from bags.dataset.format.options import SHARD_SIZE
from bags.dataset.open import open_with_known_decoders
from bags.dataset.reading.columns import read_values
from bags.dataset.reading.fingerprint import fingerprint
from bags.dataset.reading.selection import Fields, Selection, select_whole
from bags.errors import SourceError
from bags.formats.signatures import EXTENSION_OF_FORMAT, SIGNATURE_BYTES, identify
from bags.indexing import Int64s, chunk_length
from bags.interop.exported import EXPORT, NUMBERS, are_classes, is_one_array, names_of, names_tell_types
from bags.interop.file_extensions import KEY, WRITTEN_EXTENSIONS, escape_key, extension_of, file_name
from bags.interop.ignored_files import may_be_ignored
from bags.interop.targets.lerobot import write_lerobot
from bags.interop.targets.megatron import write_megatron
from bags.interop.targets.parquet import write_parquet
from bags.interop.targets.target import Target
from bags.progress.progress import Advance
from bags.progress.progress import progress as show_progress
from bags.progress.write_result import WriteResult
from bags.storage import Durability
from bags.storage.urls import plain_path
from bags.validation import one_of, positive_or_none, with_advice
from bags.views.windows.grid import Gaps, GridFill, grid_options

KEYS = ('utf8', 'int', 'uint', 'i64', 'u64')
BATCH_BYTES = 1 << 24
"""Approximate number of bytes that are read at a time."""
MAX_BATCH = 64
"""Maximum number of datapoints that are read at a time."""
MAX_KEYS = 1 << 16
"""Number of keys that are read at a time to check file names."""

SampleFile = tuple[str, bytes]
"""The part of the file name after the key, and the content of the file."""
Sample = tuple[str, list[SampleFile], bool]
"""A key, the files of its datapoint, and whether the key may be the whole name of a single file."""


@with_advice
def export(
    dataset: Dataset | str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    format: Literal['webdataset', 'files', 'parquet', 'lerobot', 'megatron'] = 'webdataset',
    fields: Fields = None,
    shard_size: int | None = SHARD_SIZE,
    shard_length: int | None = None,
    progress: bool | None = None,
    storage_options: Mapping[str, Any] | None = None,
    key: str | None = None,
    resume: bool = False,
    mode: Literal['create', 'overwrite'] = 'create',
    durability: Durability | int | Literal['none', 'close', 'flush'] = Durability.CLOSE,
    every: str | None = None,
    fps: float | None = None,
    fill: GridFill = 'previous',
    gap: float | None = None,
    gaps: Gaps = 'raise',
) -> WriteResult:
    """Writes the datapoints of a dataset as media files, with unchanged records, or in another format.

    With the format 'lerobot', each datapoint becomes an episode of a LeRobot dataset of version 3. Its fields
    have an item for each frame, or with `every`, streams of any rates are sampled at the same times. The
    file names below apply to 'webdataset' and 'files'.

    File names are `KEY.FIELD.EXTENSION`: the field `__key__`, or the index of the datapoint; the field; and
    an extension that fits the type, unless the field ends in one. Numbers become text; arrays, and sequences
    of numbers or of `array(…)`, become `.npy`; other sequences `KEY.FIELD.000003.EXTENSION` for each item.
    Missing values have no file. `metadata.json` has the metadata, and the types of the fields if file names
    do not determine them; `convert` reads both. An export that fails removes its files. An export that is
    killed leaves a hidden file `.unfinished-export.json`, with which `convert` rejects the folder.

    Parquet files `000000.parquet`, … have a column for each field, as in `Dataset.to_arrow`, with the bytes
    of images, videos and recordings. Their metadata have the types for `convert`, and features for
    `datasets.load_dataset` of Hugging Face.

    The files `tokens.bin` and `tokens.idx` of Megatron-LM have a document for each datapoint. The tokens are
    the field `tokens`, or the only field of type `array(DTYPE,?)`. A field `modes` has the mode of each
    sequence. With a field `document`, as `convert(…, by='sequence')` writes it, datapoints are sequences:
    those that follow each other with one number are one document, and a field `mode` has their modes.

    Args:
        dataset: A reader, a view, or the path of a dataset.
        target: A folder, which must be new or empty: path or URL.
        format: 'webdataset' for tars `000000.tar`, …, 'files' for a folder of files, 'parquet', 'lerobot',
            or 'megatron'.
        fields: Names of fields. Default: all.
        shard_size, shard_length: Bytes and datapoints at which a tar or Parquet file is full; None for no
            limit.
        progress: Whether to show a bar; None: if standard error is a terminal.
        storage_options: As in `bags.open`, for a URL.
        key: A field of texts or integers that names the files instead of `__key__`, and is not exported as
            files. Not supported for Parquet and Megatron.
        resume: Continue an export that was killed: complete tars and Parquet files are kept, other files are
            written again. With a new or empty target, starts an export.
        mode: 'create', or 'overwrite' to replace an earlier export in a local folder, finished or not, when
            the new one is complete.
        durability: As in `ShardedDatasetWriter`: unless 'none', local files are on disk when this returns.
        every: For LeRobot, a field of frames or items: episodes begin at its first element at which all
            streams have begun, and have a frame every `1 / fps` seconds, up to the end of the stream that
            ends first. Sound, words, events, and fields without a feature are left out; the notes of the
            result name them, and count the frames of cameras that are repeated or left out.
        fps: Frames per second. Default: the rate of `every`, or the median of the rates of its datapoints.
        fill: The value at a time between elements: the 'previous' one; the 'nearest' one; or 'linear'
            interpolation for floats, with the previous one for others. Only 'previous' takes nothing from
            after the time of a frame.
        gap: Maximum seconds between a frame and the last element of each stream. Default: no limit.
        gaps: Whether a longer gap is an error ('raise'), or ends the episode ('end').

    Raises:
        FileExistsError: The target is not empty. With `resume` or 'overwrite': it does not contain an
            unfinished, or any, export.
        MissingDependencyError: pyarrow, for Parquet, is not installed.
        SourceError: A key is not a valid file name, or two datapoints have the same key (in tars: two in a
            row); for LeRobot, sequences of a datapoint differ in length; for Megatron, a datapoint has no
            tokens, or several modes.
        TypeError: LeRobot has no feature for a field; the fields have no tokens for Megatron.
        ValueError: For LeRobot, the metadata has no frame rate, or with `every`, the times of a field are
            unknown, a datapoint has a gap, or its streams have no time in common; the export to resume has
            other arguments or another dataset; 'overwrite' with a URL.

    Examples:
        >>> done = bags.export(dataset, 'tars', format='webdataset', fields=('id', 'task', 'image'))
        >>> done.datapoints
        8
    """
    dataset = plain_path(dataset)
    if isinstance(dataset, str | os.PathLike):
        with open_with_known_decoders(dataset) as opened:
            return export(
                opened, target, format=format, fields=fields, shard_size=shard_size,
                shard_length=shard_length, progress=progress, storage_options=storage_options, key=key,
                resume=resume, mode=mode, durability=durability, every=every, fps=fps, fill=fill, gap=gap,
                gaps=gaps,
            )  # fmt: skip
    check_dataset('export', dataset)
    expect_committed('export', dataset)
    one_of('format', format, ('webdataset', 'files', 'parquet', 'lerobot', 'megatron'))
    grid = grid_options(every, fps, fill, gap, gaps)
    if grid is not None and format != 'lerobot':
        raise ValueError(f"every: expected none for the format {format!r}, got {every!r}; use 'lerobot'")
    shard_size = positive_or_none('shard_size', shard_size) or sys.maxsize
    shard_length = positive_or_none('shard_length', shard_length)
    if key is not None:
        select_whole(key, dataset.schema, 'key')
        if (field_type := dataset.schema[key]).format not in KEYS or field_type.sequence:
            raise TypeError(
                f'key: expected a field of texts or integers, got {key!r} of type {field_type.text}'
            )
        if format in ('parquet', 'megatron'):
            name = format.capitalize()
            raise TypeError(f'key: expected none for {name}, whose files have no keys, got {key!r}')
    one_of('mode', mode, ('create', 'overwrite'))
    if resume and mode == 'overwrite':
        raise ValueError("mode: expected 'create' with resume=True, got 'overwrite'")
    names = select_whole(fields, dataset.schema, 'export')
    facts: dict[str, Any] = {
        'format': format, 'extension': {'webdataset': 'tar'}.get(format, format), 'key': key,
        'spec': {name: dataset.spec[name] for name in names}, 'shard_size': shard_size,
        'shard_length': shard_length, 'datapoints': len(dataset),
    }  # fmt: skip
    if grid is not None:
        facts['grid'] = [every, fps, fill, gap, gaps]
    with (
        Target(
            target,
            storage_options,
            facts,
            lambda: fingerprint(dataset, names),
            resume=resume,
            mode=mode,
            durability=Durability(durability),  # type: ignore[arg-type]
        ) as folder,
        show_progress('exporting', len(dataset) - folder.start, 'datapoints', show=progress) as advance,
    ):
        if format == 'lerobot':
            left_out = [name for name in names if name in (KEY, WRITTEN_EXTENSIONS, key)]
            names = [name for name in names if name not in left_out]
            folder.notes += [f'field {name!r} is left out: LeRobot numbers episodes' for name in left_out]
            write_lerobot(folder, dataset, names, advance, grid)
            shards = 1
        elif format == 'megatron':
            write_megatron(folder, dataset, names, advance)
            shards = 1
        elif format == 'parquet':
            shards = write_parquet(folder, dataset, names, shard_size, shard_length, advance)
        else:
            shards = _write_media(folder, dataset, names, key, format, shard_size, shard_length, advance)
    spec = {name: dataset.spec[name] for name in names}
    return WriteResult(len(dataset), shards, folder.size, spec, notes=folder.notes)


def _write_media(
    folder: Target,
    dataset: Dataset,
    names: list[str],
    key: str | None,
    format: str,
    shard_size: int,
    shard_length: int | None,
    advance: Advance,
) -> int:
    """Writes files named by keys, in tars or in a folder; returns the number of tars, or 1."""
    metadata = metadata_of_fields(metadata_to_store(dataset.metadata, dataset.schema), names)
    key = key or KEY
    files = [name for name in names if name != key]
    is_inferable = key == KEY and _can_infer_fields(dataset, files, folder.notes)
    if is_inferable:
        files = [name for name in files if name not in (WRITTEN_EXTENSIONS, 'label')]
    else:
        spec = {name: dataset.spec[name] for name in names}
        metadata = {**metadata, EXPORT: {'spec': spec, 'key': key if key in names else ''}}
    if metadata:
        folder.write(METADATA, dump_metadata(metadata, dataset.schema))
    samples = _samples(dataset, files, key, is_inferable, advance, folder.start)
    if format == 'webdataset':
        return _write_tars(folder, samples, shard_size, shard_length)
    _write_files(folder, samples, is_inferable)
    return 1


def _can_infer_fields(dataset: Dataset, fields: list[str], notes: list[str]) -> bool:
    """Returns whether an import can infer the fields from file names, and ignores none of the files.

    A note is added if it does so only with a layout.
    """
    names = [name for name in fields if name != WRITTEN_EXTENSIONS]
    columns: dict[str, Any] = {KEY: True}
    if 'label' in names and dataset.schema['label'].text == 'utf8' and KEY in dataset.schema:
        # The label of class folders is the first part of the key.
        names.remove('label')
        columns['label'] = True
    labels = set[str]()
    if not names_tell_types(dataset.schema, names):
        return False
    extensions = [extension_of(field, dataset.schema[field].format) or 'data' for field in names]
    for indices in np.split(np.arange(len(dataset)), range(MAX_KEYS, len(dataset), MAX_KEYS)):
        values = dataset.read_selection(indices, columns, read_values)
        if 'label' in columns:
            rows = zip(values['label'], values[KEY], strict=True)
            if any(key.split('/')[:-1] != [label] for label, key in rows):
                return False
            labels.update(map(str, values['label']))
        if may_be_ignored(map(str, values[KEY]), extensions):
            return False
    if labels and not are_classes(labels):
        notes.append("field 'label' is the folder of the files: convert(…, layout='classes') reads it")
    return True


def _samples(
    dataset: Dataset, fields: list[str], key_field: str, is_inferable: bool, advance: Advance, start: int
) -> Iterator[Sample]:
    """Yields the files of each datapoint from `start` on; reports each when the next one is requested."""
    names: Selection = {name: True for name in (key_field, WRITTEN_EXTENSIONS) if name in dataset.schema}
    previous = None
    step = 1
    while start < len(dataset):
        indices = np.arange(start, min(start + step, len(dataset)))
        columns = {field: _column(dataset, field, indices) for field in fields}
        names_read: dict[str, Any] = dataset.read_selection(indices, names, read_values)
        keys = names_read.get(key_field) or [f'{index:09}' for index in indices.tolist()]
        extensions = (is_inferable and names_read.get(WRITTEN_EXTENSIONS)) or [None] * len(indices)
        batch_size = 0
        for position, value in enumerate(keys):
            key, where = str(value), f'datapoint {start + position}, field {key_field!r}'
            if value is None:
                raise SourceError(where, 'expected a name for files, got a missing value')
            if key == previous:
                raise SourceError(where, f'expected a key for each datapoint, got {key!r} twice in a row')
            previous = _checked(where, key)
            original = extensions[position] or {}
            files = [
                (original.get(field, name), data)
                for field, column in columns.items()
                for name, data in column[position]
            ]
            if len(dict(files)) < len(files):
                raise SourceError(
                    where, f'two fields have the same file name: {", ".join(name for name, _ in files)}'
                )
            if not files:
                detail = (
                    'expected at least one file, got none: all values are missing; '
                    "format='parquet' exports such datapoints"
                )
                raise SourceError(f'datapoint {start + position}', detail)
            # An original extension is added even if the key ends with it.
            yield key, sorted(files), is_inferable and len(files) == 1 and not original
            size = sum(len(data) for _, data in files)
            advance(1, size)
            batch_size += size
        start += len(indices)
        step = chunk_length(len(indices), batch_size, BATCH_BYTES, MAX_BATCH)


def _column(dataset: Dataset, field: str, indices: Int64s) -> list[list[SampleFile]]:
    """Returns the files of a field, for each datapoint."""
    field_type = dataset.schema[field]
    stem, suffix, is_numbered, is_media = names_of(field, field_type)

    def file(data: bytes, number: str = '') -> SampleFile:
        extension = EXTENSION_OF_FORMAT.get(identify(data[:SIGNATURE_BYTES])) if is_media else None
        if field_type.format == 'audio' and extension in ('mp4', 'mov'):
            extension = 'm4a'
        return f'{stem}{number}{suffix}' + (f'.{extension}' if extension else ''), data

    contents = _contents(dataset, field, indices)
    if is_numbered:
        return [[file(data, f'.{item:06}') for item, data in enumerate(items or ())] for items in contents]
    return [[] if data is None else [file(data)] for data in contents]


def _contents(dataset: Dataset, field: str, indices: Int64s) -> list[Any]:
    """Returns the content of the file of each datapoint, or a list of contents for a sequence."""
    field_type = dataset.schema[field]
    if field_type.format in NUMBERS or field_type.format == 'array':
        values = dataset.read_selection(indices, {field: True}, read_values)[field]
        if field_type.sequence and not is_one_array(field_type):
            return [list(map(_as_npy, items or ())) for items in values]
        as_file = _as_npy if field_type.sequence or field_type.format == 'array' else _as_text
        return [None if value is None else as_file(value) for value in values]
    return dataset.read_records(indices, field)


def _as_npy(value: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, np.asarray(value), allow_pickle=False)
    return file.getvalue()


def _as_text(value: Any) -> bytes:
    return str(value.item() if isinstance(value, np.generic) else value).encode()


def _checked(where: str, name: str) -> str:
    """Returns a file name; raises SourceError if the file would be outside the target."""
    if '\\' in name or '\0' in name or any(part in ('', '.', '..') for part in name.split('/')):
        raise SourceError(where, f'expected a relative name for files, got {name!r}')
    return name


def _write_files(target: Target, samples: Iterator[Sample], is_inferable: bool) -> None:
    """Writes the files of all datapoints."""
    for key, files, is_only in samples:
        for name, data in files:
            path = file_name(key, name, is_only) if is_inferable else f'{escape_key(key)}.{name or "data"}'
            path = _checked(key, path)
            where = posixpath.join(target.path, path)
            if path == METADATA and (path in target.files or data.lstrip()[:1] == b'{'):
                raise SourceError(where, f'expected another key, got {key!r}: this file is for metadata')
            if path in target.files:
                raise SourceError(where, f'expected a key for each datapoint, got {key!r} twice')
            target.write(path, data)


def _write_tars(target: Target, samples: Iterator[Sample], shard_size: int, shard_length: int | None) -> int:
    """Writes all files into tars; returns the number of tars."""
    for number, first in enumerate(samples, len(target.shards)):
        size = length = 0
        with (
            target.create(f'{number:06}.tar') as file,
            tarfile.TarFile(fileobj=file, mode='w') as tar,
        ):
            for length, (key, files, _) in enumerate(itertools.chain([first], samples), 1):
                stem = escape_key(key)
                for name, data in files:
                    member = tarfile.TarInfo(_checked(key, f'{stem}.{name or "data"}'))
                    member.size, member.mode = len(data), 0o644
                    tar.addfile(member, io.BytesIO(data))
                    size += len(data)
                if size >= shard_size or length == shard_length:
                    break
        target.end_shard(target.start + length)
    return len(target.shards)
