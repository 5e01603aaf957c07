"""`bags import`: makes a dataset from files of other formats; `bags export`: writes such files."""

from __future__ import annotations

import errno
from collections.abc import Collection
from pathlib import Path as LocalPath
from typing import Annotated, Any, Literal

import typer

from bags.cli.arguments import (
    SHARD_SIZE_TEXT,
    CheckSource,
    Checksum,
    Compression,
    DropField,
    Durability,
    Fields,
    Json,
    Mode,
    OnError,
    Path,
    Rename,
    ShardLength,
    ShardSize,
    TrustLinks,
    Workers,
    argument,
    check_field,
    option,
    parse_byte_count,
    parse_compression,
    parse_fields,
    parse_pairs,
    parse_renames,
    parse_trusted,
)
from bags.cli.errors import UsageError, fail
from bags.cli.output import answer, facts_of, say_error, summary
from bags.display.counts import plural

READ_AS = 'read as '
"""The beginning of the note about what an import takes files for."""
Format = Literal['webdataset', 'files', 'parquet', 'lerobot', 'megatron']
By = Literal['document', 'sequence']
Storage = Literal['files', 'bags']
Fill = Literal['previous', 'nearest', 'linear']
Gaps = Literal['raise', 'end']


def import_(
    source: Annotated[
        list[str],
        argument('SOURCE… PATH', 'Files or folders of other data, then the dataset to create.'),
    ],
    format: Annotated[
        str | None,
        option('--format', metavar='NAME', help='The format of the source. Default: by its names.'),
    ] = None,
    layout: Annotated[
        str | None,
        option(
            '--layout',
            metavar='NAME',
            help='files, stems, classes, episodes, fields, coco, yolo or tables; webdataset or stems for '
            'tars. Default: by the files.',
        ),
    ] = None,
    spec: Annotated[
        list[str] | None,
        option('--spec', metavar='FIELD=TYPE', help='Change the type of a field; none drops the field.'),
    ] = None,
    drop_field: DropField = None,
    rename: Rename = None,
    dry_run: Annotated[
        bool, typer.Option('--dry-run', help='Only print the resulting dataset, and every layout that fits.')
    ] = False,
    on_error: OnError = 'raise',
    encode: Annotated[
        bool,
        typer.Option('--encode', help='Re-encode episodes of videos that do not begin at a key frame.'),
    ] = False,
    link: Annotated[
        bool,
        typer.Option('--link', help='Link to files instead of copying records of over 256 bytes on average.'),
    ] = False,
    update: Annotated[
        bool, typer.Option('--update', help='With --link: add the datapoints that are new in the source.')
    ] = False,
    by: Annotated[
        By,
        typer.Option('--by', help='What a datapoint of tokens of Megatron is.'),
    ] = 'document',
    dtype: Annotated[
        str | None,
        option(
            '--dtype', metavar='NAME', help='With --format tokens: the dtype without a header, as uint16.'
        ),
    ] = None,
    end: Annotated[
        int | None,
        option('--end', metavar='TOKEN', help='The last token of each document, of tokens without an index.'),
    ] = None,
    offsets: Annotated[
        str | None,
        option('--offsets', metavar='FILE', help='The first token of each document instead: int64, or .npy.'),
    ] = None,
    length: Annotated[
        int | None,
        option('--length', metavar='N', help='The number of tokens of each document instead.'),
    ] = None,
    file: Annotated[
        list[str] | None,
        option(
            '--file', metavar='COLUMN=FIELD', help='The field for the files that a column of a table names.'
        ),
    ] = None,
    root: Annotated[
        str | None,
        option('--root', metavar='FOLDER', help='The folder of the files of a manifest. Default: its own.'),
    ] = None,
    trust_links: Annotated[
        list[str] | None,
        option(
            '--trust-links',
            metavar='PREFIX',
            help='A manifest may also name this file or folder, or "all"; repeatable.',
        ),
    ] = None,
    compression: Compression = None,
    shard_size: ShardSize = SHARD_SIZE_TEXT,
    shard_length: ShardLength = None,
    resume: Annotated[bool, typer.Option('--resume', help='Resume an interrupted import.')] = False,
    check_source: CheckSource = True,
    mode: Mode = 'create',
    checksum: Checksum = None,
    durability: Durability = 'close',
    workers: Workers = None,
    json: Json = False,
) -> None:
    """Makes a dataset from a folder of media, WebDataset tars, or data of another library.

    Media are stored byte for byte. Files of a folder that differ only in their extension are one datapoint,
    with a field for each extension. docs/import.md lists the other formats.

    Example: bags import photos dataset

    Example: bags import photos index --link --update

    Example: bags import web.bin web --link

    Example: bags import corpus/train.jsonl sentences --link --file audio_filepath=audio

    Example: bags import nemo.json nemo --link --format nemo --root corpus

    Example: bags import train.bin train --link --format tokens --dtype uint16 --end 50256

    Example: bags import photos dataset --dry-run --spec cls='int(8)' --spec json=none
    """
    from bags.dataset.format.spec import parse_spec
    from bags.dataset.writing.encoder import bind_encoders
    from bags.errors import SourceError, SpecError
    from bags.interop.convert import convert, open_to_import
    from bags.interop.open_source import choose_format
    from bags.interop.sources.files.webdataset import is_tar

    *sources, target = source if len(source) > 1 or not dry_run else [*source, '']
    if not sources:
        if '://' not in target and not LocalPath(target).exists():
            raise FileNotFoundError(errno.ENOENT, 'No such file or folder', target)
        raise UsageError('expected a source and then the dataset to create, got one path')
    types: dict[str, str | None] = {}
    for change in spec or ():
        field, equals, text = change.partition('=')
        if not equals:
            raise UsageError(f'--spec: expected FIELD=TYPE, got {change!r}')
        types[field] = None if text == 'none' else text
    try:
        choose_format(format, layout)
    except ValueError as exc:
        raise UsageError(f'--{exc}') from exc
    try:
        original = open_to_import(
            sources[0] if len(sources) == 1 else sources,
            target,
            format=format,
            layout=layout,
            spec=types,
            rename=parse_pairs('--rename', rename),
            on_error=on_error,
            resume=(resume or update) and bool(target),
            by=by,
            dtype=dtype,
            end=end,
            offsets=offsets,
            length=length,
            file=parse_pairs('--file', file),
            root=root,
            trust_links=parse_trusted(trust_links),
        )
        bind_encoders(parse_spec(original.spec), None)
    except SpecError as exc:
        raise UsageError(str(exc)) from exc
    except SourceError as exc:
        fail(
            f'{exc} (--on-error skip imports the datapoints before the damage)'
            if is_tar(exc.name)
            else str(exc)
        )
    detected_layout = getattr(original, 'layout', original.format)
    for name in parse_fields(drop_field, original.spec) or ():
        del original.spec[name]
    names = parse_renames(rename, original.spec)
    types = {names.get(name, name): text for name, text in original.spec.items()}
    if dry_run:
        facts = {
            'layout': detected_layout,
            'datapoints': original.count,
            'spec': types,
            'notes': original.notes,
            'readings': [{'layout': name, 'datapoints': count} for name, count in original.readings()],
        }
        if original.ambiguity is not None:
            facts['notes'] = [str(original.ambiguity), *original.notes]
        _print(json, facts)
        return
    if original.ambiguity is not None:
        fail(f'{original.ambiguity} (--layout NAME)')
    says = [note for note in original.notes if note.startswith(READ_AS)]
    compressions, max_shard_size = parse_compression(compression, types), parse_byte_count(shard_size)
    say_error(says[0] if says else f'{READ_AS}{original.format}: {plural(original.count, "datapoint")}')
    try:
        done = convert(
            original,
            target,
            rename=names,
            on_error=on_error,
            link=link,
            update=update,
            encode=encode,
            check_source=check_source,
            workers=workers,
            compression=compressions,
            shard_size=max_shard_size,
            shard_length=shard_length,
            resume=resume,
            mode=mode,
            checksum=checksum,
            durability=durability,
        )
    except SourceError as exc:
        fail(f'{exc} (--resume --on-error skip continues without it)')
    _print(json, {'layout': detected_layout, 'target': target, **facts_of(done)}, says)


def _print(json: bool, facts: dict[str, Any], said: Collection[str] = ()) -> None:
    """Prints the facts of an import; as text, without the notes that were said."""
    from bags.interop.sources.files.layouts import describe

    width = max(map(len, facts['spec']), default=0)
    skipped = facts.get('skipped', [])
    readings = facts.get('readings', [])
    layout_width = max((len(each['layout']) for each in readings), default=0)
    answer(
        json,
        facts,
        f'{plural(facts["datapoints"], "datapoint")}, from {facts["layout"]}',
        *(f'  {field:{width}}  {type}' for field, type in facts['spec'].items()),
        *(note for note in facts['notes'] if note not in said),
        *(['layouts that fit:'] if len(readings) > 1 else []),
        *(
            f'  --layout {each["layout"]:{layout_width}}  {describe(each["layout"], each["datapoints"])}'
            for each in readings[: len(readings) if len(readings) > 1 else 0]
        ),
        *([f'{len(skipped):,} left out:'] if skipped else []),
        *(f'  {entry["datapoint"]}: {entry["error"]}' for entry in skipped),
    )


def export(
    path: Path,
    target: Annotated[str, argument('TARGET', 'A new or empty folder.')],
    format: Annotated[
        Format,
        typer.Option(
            help='webdataset: tars; files: a folder of files; parquet; lerobot; megatron: tokens.bin, .idx.'
        ),
    ] = 'webdataset',
    storage: Annotated[
        Storage,
        typer.Option(help='For LeRobot: its own files, or bags, for LeRobot versions that accept readers.'),
    ] = 'files',
    fields: Fields = None,
    shard_size: ShardSize = SHARD_SIZE_TEXT,
    key: Annotated[
        str | None,
        option('--key', metavar='FIELD', help='A field of texts or integers to name the files by.'),
    ] = None,
    trust_links: TrustLinks = None,
    resume: Annotated[bool, typer.Option('--resume', help='Resume an interrupted export.')] = False,
    mode: Mode = 'create',
    durability: Durability = 'close',
    every: Annotated[
        str | None,
        option(
            '--every', metavar='FIELD', help='For LeRobot: sample streams of any rates, from this field on.'
        ),
    ] = None,
    fps: Annotated[
        float | None,
        option('--fps', metavar='F', help='Frames per second. Default: the rate of --every.'),
    ] = None,
    fill: Annotated[
        Fill,
        typer.Option(help='The value at a time between elements; linear interpolates floats.'),
    ] = 'previous',
    gap: Annotated[
        float | None,
        option('--gap', metavar='SECONDS', help='Longest time without an element of a stream.'),
    ] = None,
    gaps: Annotated[
        Gaps,
        typer.Option(help='Whether a longer time is an error, or ends the episode.'),
    ] = 'raise',
    json: Json = False,
) -> None:
    """Writes a dataset as WebDataset tars, a folder of files, Parquet files, a LeRobot dataset, or tokens.

    Media stay unchanged.

    Example: bags export dataset tars

    Example: bags export dataset photos --format files --fields jpg,txt

    Example: bags export episodes tars --key id

    Example: bags export recording arm --format lerobot --every front --fps 30

    Example: bags export tokens megatron --format megatron
    """
    import bags
    from bags.dataset.open import open_with_known_decoders

    with open_with_known_decoders(path, trust_links=parse_trusted(trust_links)) as dataset:
        names, size = parse_fields(fields, dataset.spec), parse_byte_count(shard_size)
        if key is not None:
            check_field(key, dataset.spec)
        if storage == 'bags':
            if format != 'lerobot' or key is not None or resume or mode != 'create' or every is not None:
                raise UsageError(
                    '--storage bags: expected --format lerobot, without --key, --resume, --mode or --every'
                )
            done = bags.lerobot.export(dataset, target, fields=names, durability=durability)
        else:
            done = bags.export(
                dataset,
                target,
                format=format,
                fields=names,
                shard_size=size,
                key=key,
                resume=resume,
                mode=mode,
                durability=durability,
                every=every,
                fps=fps,
                fill=fill,
                gap=gap,
                gaps=gaps,
            )
    answer(json, {'target': target, **facts_of(done)}, summary(target, done), *done.notes)
