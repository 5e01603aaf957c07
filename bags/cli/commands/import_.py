"""`bags import`: files of other kinds become a dataset."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from bags.cli.options import Json

__all__ = ['PANEL', 'import_']

PANEL = 'Make'


def import_(
    source: Annotated[
        list[str],
        typer.Argument(
            metavar='SOURCE… DATASET',
            show_default=False,
            help='A folder of files, or WebDataset tars; last the dataset to make.',
        ),
    ],
    layout: Annotated[
        str | None,
        typer.Option(
            show_default=False, help='Of a folder: files, stems, classes or episodes; else what fits it.'
        ),
    ] = None,
    types: Annotated[
        list[str] | None,
        typer.Option(
            '--type',
            metavar='FIELD=TYPE',
            show_default=False,
            help='Another type for a field; none drops it.',
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option('--dry-run', help='Only show what it would become.')] = False,
    skip: Annotated[
        bool,
        typer.Option('--skip', help='Leave out datapoints with damaged files, and list those at the end.'),
    ] = False,
    resume: Annotated[
        bool, typer.Option('--resume', help='Go on with an import that was interrupted.')
    ] = False,
    workers: Annotated[int, typer.Option(help='Threads that read ahead.')] = 4,
    json: Json = False,
) -> None:
    """Makes a dataset of a folder of media, or of WebDataset tars. Files go in byte for byte.

    Files that differ in their extension only are one datapoint, with a field for each extension.

    Example: bags import photos dataset

    Example: bags import photos dataset --dry-run --type cls='int(8)' --type json=none
    """
    from bags.intake import convert, open_source

    *sources, target = source if len(source) > 1 or not dry_run else [*source, '']
    if not sources:
        raise ValueError('expected a source and then the dataset to make, got one path')
    spec: dict[str, str | None] = {}
    for change in types or ():
        field, equals, kind = change.partition('=')
        if not equals:
            raise ValueError(f'--type: expected FIELD=TYPE, got {change!r}')
        spec[field] = None if kind == 'none' else kind
    on_error = 'skip' if skip else 'raise'
    found = open_source(
        sources[0] if len(sources) == 1 else sources, layout=layout, spec=spec, on_error=on_error
    )
    if dry_run:
        _print(json, {'layout': found.layout, 'datapoints': found.count, 'spec': found.spec})
        return
    done = convert(found, target, on_error=on_error, workers=workers, resume=resume)
    skipped = [{'file': name, 'why': detail} for name, detail in done.skipped]
    _print(
        json, {'layout': found.layout, 'datapoints': done.datapoints, 'spec': done.spec, 'skipped': skipped}
    )


def _print(json: bool, facts: dict[str, Any]) -> None:
    from bags.cli.printing import print_json

    if json:
        print_json(facts)
        return
    print(f'{facts["datapoints"]:,} datapoints, from {facts["layout"]}')
    width = max(map(len, facts['spec']))
    for field, kind in facts['spec'].items():
        print(f'  {field:{width}}  {kind}')
    if facts.get('skipped'):
        print(f'{len(facts["skipped"]):,} left out:')
        for each in facts['skipped']:
            print(f'  {each["file"]}: {each["why"]}')
