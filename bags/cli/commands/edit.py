"""`bags edit` and `bags split`, which save views as links; `bags diff`, which compares datasets."""

from __future__ import annotations

import contextlib
import errno
import json as json_text
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bags.cli.arguments import (
    DropField,
    Json,
    Mode,
    Rename,
    TrustLinks,
    argument,
    option,
    parse_fields,
    parse_pairs,
    parse_renames,
    parse_rows,
    parse_trusted,
)
from bags.cli.errors import UsageError
from bags.cli.output import answer, facts_of, print_rich, say, summary, table, trust_lines
from bags.display.counts import plural

if TYPE_CHECKING:
    from bags.dataset.base import Dataset

Copied = Annotated[bool, typer.Option('--copy', help='Copy all records instead of linking to the source.')]
DryRun = Annotated[bool, typer.Option('--dry-run', help='Only print what would be written.')]
Source = Annotated[str, argument('SOURCE', 'A dataset, which stays unchanged; also a URL.')]
MAX_SHOWN_CHANGES = 20


def edit(
    source: Source,
    target: Annotated[str, argument('TARGET', 'The edited dataset; also a URL.')] = '',
    drop: Annotated[
        str, option('--drop', metavar='ROWS', help='Leave out datapoints, as 3,7 or 10:20.')
    ] = '',
    drop_field: DropField = None,
    rename: Rename = None,
    set_: Annotated[
        list[str] | None,
        option(
            '--set',
            metavar='ROW:FIELD=VALUE',
            help='New value: a text for utf8, else JSON, or @FILE for the bytes of a file.',
        ),
    ] = None,
    where: Annotated[
        str,
        option('--where', metavar='CONDITION', help='Keep only these, as \'length > 3 and task != "test"\'.'),
    ] = '',
    scores: Annotated[
        str | None,
        option('--scores', metavar='FOLDER', help='Scores of `bags check --save`, as fields for --where.'),
    ] = None,
    relink: Annotated[
        list[str] | None,
        option('--relink', metavar='OLD=NEW', help='New folder of the files that the source links to.'),
    ] = None,
    trust_links: TrustLinks = None,
    copy: Copied = False,
    mode: Mode = 'create',
    dry_run: DryRun = False,
    json: Json = False,
) -> None:
    """Saves a dataset with datapoints and fields left out, fields renamed, or values changed.

    The source stays unchanged, and the new dataset links to its records. Rows count in the source, fields
    have their names before --rename, and --where applies after --set.

    Example: bags edit episodes clean --drop 3,7 --drop-field mask --rename image=camera

    With --scores, the condition may also test the scores of `bags check --save`, as state.gap_seconds.

    --relink makes a dataset whose links lead to the new location of files, if sizes and samples match.

    Example: bags edit episodes clean --set 5:id=50 --where 'id != 3' --dry-run
    """
    import numpy as np

    from bags.checks.scores import join_scores, open_scores
    from bags.display.values import open_to_show

    with open_to_show(source, trust_links=parse_trusted(trust_links)) as dataset:
        changes = _parse_changes(set_ or [], dataset)
        view = dataset.update(changes) if changes else dataset
        if drop and set(drop.split(',')) <= dataset.spec.keys():
            raise UsageError(f'--drop: expected rows, as 3,7 or 10:20; --drop-field {drop} leaves out fields')
        dropped = parse_rows(drop, len(dataset)) if drop else ()
        if scores is not None and not where:
            raise UsageError('--scores needs --where CONDITION, which uses the scores')
        if where:
            tested = view if scores is None else join_scores(view, open_scores(dataset, scores))
            _check_condition(where, tested)
            kept = np.asarray(tested.filter(where).indices)
            view = view.select(kept[~np.isin(kept, dropped)])
        elif drop:
            view = view.drop(dropped)
        names = parse_fields(drop_field, dataset.spec)
        if names:
            view = view.drop(fields=names)
        renames = parse_renames(rename, dataset.spec)
        if renames:
            view = view.rename(renames)
        facts: dict[str, Any] = {
            'source': source,
            'datapoints': len(view),
            'left_out': len(dataset) - len(view),
            'spec': view.spec,
            'changes': _shown(dataset, changes),
        }
        if dry_run or not target:
            if not dry_run:
                raise UsageError('expected a target, or --dry-run')
            _preview(json, facts, dataset.spec, renames)
            return
        done = view.save(target, link=not copy, mode=mode, relink=parse_pairs('--relink', relink))
    lines = summary(target, done), *done.notes, *trust_lines(done.trust_links)
    answer(json, {**facts, 'target': target, **facts_of(done)}, *lines)


def split(
    source: Source,
    target: Annotated[str, argument('TARGET', 'The parent folder of the parts; also a URL.')],
    shares: Annotated[
        list[str],
        argument(
            'NAME=SHARE…',
            'The parts, and their shares of the datapoints, which add up to 1. With --by also their values, '
            'as val=a,b, and train=... for the rest.',
        ),
    ],
    by: Annotated[
        str | None,
        option('--by', metavar='FIELD', help='Keep datapoints with the same value of this field together.'),
    ] = None,
    seed: Annotated[int, typer.Option('--seed', metavar='N', help='Seed of the random split.')] = 0,
    trust_links: TrustLinks = None,
    copy: Copied = False,
    dry_run: DryRun = False,
    json: Json = False,
) -> None:
    """Splits a dataset into parts, such as train and val. Datapoints stay in their part as others are added.

    The parts link to the records of the source.

    Example: bags split episodes parts train=0.9 val=0.1 --by id

    Example: bags split episodes parts val=3,7 train=... --by id
    """
    import bags
    from bags.storage import store_for

    given: dict[str, Any] = {}
    for text in shares:
        name, equals, given[name] = text.partition('=')
        if not equals or not name or name in ('.', '..') or set(name) & set('/\\\0'):
            raise UsageError(f'expected the name of a folder, got {name!r}')
    store, root = store_for(target)
    paths = {name: f'{target.rstrip("/")}/{name}' for name in given}
    with bags.open(source, raw=True, trust_links=parse_trusted(trust_links)) as dataset:
        if by is not None:
            parse_fields(by, dataset.spec)
        views = dataset.split(_parse_parts(given, dataset, by), by, seed=seed)
        facts: dict[str, Any] = {
            name: {'path': paths[name], 'datapoints': len(views[name])} for name in given
        }
        for name in () if dry_run else given:  # Checked before anything is written.
            with contextlib.suppress(FileNotFoundError):
                if store.names(store.join(root, name)):
                    raise FileExistsError(errno.EEXIST, 'the folder is not empty', paths[name])
        for name, view in views.items():
            if not dry_run:
                facts[name] |= facts_of(view.save(paths[name], link=not copy))
    total = max(1, sum(map(len, views.values())))
    lines = [
        f'{paths[name]}: {plural(part["datapoints"], "datapoint")}, {part["datapoints"] / total:.1%}'
        for name, part in facts.items()
    ]
    trusted = {folder for part in facts.values() for folder in part.get('trust_links', ())}
    answer(json, facts, *lines, *trust_lines(sorted(trusted)))


def _parse_parts(texts: Mapping[str, str], dataset: Dataset, by: str | None) -> dict[str, Any]:
    """Parses shares; or values of the field `by` and `...`, if a part is not a number."""
    try:
        return {name: float(text) for name, text in texts.items()}
    except ValueError:
        if by is None:
            shown = ' '.join(f'{name}={text}' for name, text in texts.items())
            raise UsageError(
                f'expected NAME=SHARE as train=0.9, or --by and values as val=a,b train=..., got {shown!r}'
            ) from None
    from bags.dataset.format.registry import INTEGER_FORMATS

    format = dataset.schema[by].format
    convert = int if format in INTEGER_FORMATS else str.encode if format == 'bytes' else str
    parts: dict[str, Any] = {}
    for name, text in texts.items():
        try:
            parts[name] = ... if text == '...' else [convert(value) for value in text.split(',')]
        except ValueError:
            raise UsageError(f'{name}: expected integers of field {by!r}, got {text!r}') from None
    return parts


def diff(
    first: Annotated[str, argument('FIRST', 'A dataset; also a URL.')],
    other: Annotated[str, argument('OTHER', 'The dataset to compare with; also a URL.')],
    on: Annotated[
        str | None,
        option('--on', metavar='FIELD', help='Match datapoints by this key instead of by index.'),
    ] = None,
    trust_links: TrustLinks = None,
    json: Json = False,
) -> None:
    """Prints the datapoints and fields that differ between two datasets. Shared records are not read.

    Example: bags diff episodes dataset
    """
    import bags

    permitted = parse_trusted(trust_links)
    with (
        bags.open(first, raw=True, trust_links=permitted) as one,
        bags.open(other, raw=True, trust_links=permitted) as two,
    ):
        changes = one.diff(two, on)
    facts = {
        'fields': changes.fields,
        'removed': changes.removed.tolist(),
        'added': changes.added.tolist(),
        'changed': {name: pairs.tolist() for name, pairs in changes.changed.items()},
        'compared': changes.compared,
    }
    answer(json, facts, *str(changes).splitlines())
    if on is None and changes.changed and (len(changes.removed) or len(changes.added)) and not json:
        say('Datapoints were matched by index; --on FIELD matches them by key.', 'dim')


def _parse_changes(texts: list[str], dataset: Dataset) -> dict[int, dict[str, Any]]:
    """Parses changes such as `5:text=fixed`: returns the new values by row and field."""
    changes: dict[int, dict[str, Any]] = {}
    for text in texts:
        target, equals, value = text.partition('=')
        row, colon, name = target.partition(':')
        if not equals or not colon:
            raise UsageError(f'--set: expected ROW:FIELD=VALUE as 5:text=fixed, got {text!r}')
        parse_fields(name, dataset.spec)
        (index, *others) = parse_rows(row, len(dataset))
        if others:
            raise UsageError(f'--set: expected one row, got {row!r}')
        classes = dataset.metadata.get('fields', {}).get(name, {}).get('classes', ())
        changes.setdefault(index, {})[name] = (
            classes.index(value)
            if value in classes and dataset.schema[name].format != 'utf8'
            else _parse_value(name, dataset.spec[name], value, classes)
        )
    return changes


def _check_condition(text: str, dataset: Dataset) -> None:
    """Raises UsageError if a text is not a condition on the datapoints of a dataset."""
    from bags.conditions.grammar import parse_condition

    try:
        parse_condition(text, dataset.schema, dataset.metadata.get('fields'))
    except ValueError as exc:
        raise UsageError(f'--where: {exc}') from None


def _parse_value(name: str, field_type: str, text: str, classes: Collection[str]) -> Any:
    if field_type.rstrip('?') == 'utf8':
        return text
    if text.startswith('@'):
        return Path(text[1:]).read_bytes()
    try:
        return json_text.loads(text)
    except ValueError:
        expected = f'one of the classes {", ".join(classes)}' if classes else 'JSON or @FILE'
        raise UsageError(
            f'--set: field {name!r} of type {field_type}: expected {expected}, got {text!r}'
        ) from None


def _shown(dataset: Dataset, changes: Mapping[int, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Returns the old and the new text of each changed value."""
    from bags.display.values import show_value

    view = dataset.update(changes) if changes else dataset
    return [
        {
            'row': row,
            'field': name,
            'from': show_value(dataset, row, name).text,
            'to': show_value(view, row, name).text,
        }
        for row, fields in changes.items()
        for name in fields
    ]


def _preview(json: bool, facts: dict[str, Any], spec: Mapping[str, str], renames: Mapping[str, str]) -> None:
    if json:
        answer(json, facts)
        return
    say(f'{plural(facts["datapoints"], "datapoint")}, {facts["left_out"]:,} left out')
    rows = []
    for name, text in spec.items():
        new = renames.get(name, name)
        rows.append((name, text, new if new in facts['spec'] else 'left out'))
    print_rich(table([('field', 'left'), ('type', 'left'), ('in the target', 'left')], rows))
    if facts['changes']:
        cells = [tuple(map(str, change.values())) for change in facts['changes'][:MAX_SHOWN_CHANGES]]
        say('')
        print_rich(
            table([('row', 'right'), ('field', 'left'), ('value', 'left'), ('new value', 'left')], cells)
        )
    if len(facts['changes']) > MAX_SHOWN_CHANGES:
        say(f'… and {len(facts["changes"]) - MAX_SHOWN_CHANGES:,} more values')
