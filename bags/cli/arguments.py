"""Arguments and options that commands share, and their parsers, which raise UsageError for invalid text."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from bags.cli.errors import UsageError
from bags.validation import nearest_name

if TYPE_CHECKING:
    from bags.dataset.base import Dataset


def argument(metavar: str, help: str) -> Any:
    """Returns an argument without its default in the help."""
    return typer.Argument(metavar=metavar, show_default=False, help=help)


def option(*names: str, metavar: str | None = None, help: str) -> Any:
    """Returns an option without its default in the help."""
    return typer.Option(*names, metavar=metavar, show_default=False, help=help)


Path = Annotated[str, argument('PATH', 'A dataset, or a bag or several (name@*.bagz); also a URL.')]
Json = Annotated[bool, option('--json', help='Print JSON, for programs.')]
Rows = Annotated[
    str,
    option('--rows', metavar='ROWS', help='As 7, -1, 0:5, -5: or ::2; several separated by commas.'),
]
Fields = Annotated[str | None, option('--fields', '-f', metavar='NAMES', help='Fields, separated by commas.')]
TrustLinks = Annotated[
    list[str] | None,
    option(
        '--trust-links',
        metavar='PREFIX',
        help='Also follow links to this file or folder, or "all"; repeatable.',
    ),
]
DropField = Annotated[
    str | None, option('--drop-field', metavar='NAMES', help='Leave out fields, separated by commas.')
]
Rename = Annotated[
    list[str] | None, option('--rename', metavar='OLD=NEW', help='Another name for a field; repeatable.')
]
Mode = Annotated[
    Literal['create', 'overwrite'],
    typer.Option('--mode', help='overwrite: replace an existing dataset when the new one is complete.'),
]

OnError = Annotated[
    Literal['raise', 'skip'],
    typer.Option('--on-error', help='skip: leave out datapoints that cannot be read, and list them.'),
]

CheckSource = Annotated[
    bool,
    typer.Option(
        '--check-source/--no-check-source',
        help='With --resume or --update, stop if the source has changed since the earlier run.',
    ),
]

Durability = Annotated[
    Literal['close', 'flush', 'none'],
    typer.Option('--durability', help='When the dataset survives a power cut; none: at some time.'),
]

Checksum = Annotated[
    bool | None,
    typer.Option(
        '--checksum/--no-checksum',
        show_default=False,
        help='Write a checksum of each record. Default: only in copies of sources with checksums.',
    ),
]

Compression = Annotated[
    str | None,
    option(
        '--compression',
        metavar='NAMES',
        help='As meta,text=19 or text=dictionary. Default: none; copies keep the compression.',
    ),
]

ShardSize = Annotated[str, typer.Option('--shard-size', metavar='BYTES', help='Size of a full shard.')]
SHARD_SIZE_TEXT = '10GiB'
"""The library's default, as text."""
ShardLength = Annotated[
    int | None, typer.Option(metavar='N', min=1, show_default=False, help='Datapoints in a full shard.')
]

Workers = Annotated[
    int | None,
    typer.Option(metavar='N', min=1, show_default=False, help='Threads. Default: one per processor.'),
]

INTEGER_TEXT = r'[+-]?[0-9]+'


def parse_rows(text: str, length: int, what: str = 'datapoint') -> range | list[int]:
    """Parses indices such as `7`, `-1`, `10:20`, `:5`, `::2`, or several of them, separated by commas.

    Raises:
        IndexError: An index is out of range for `length`. Ranges are clipped, as in Python.
    """
    parts = [_parse_range(part.strip(), length, what) for part in text.split(',')]
    return parts[0] if len(parts) == 1 else [index for part in parts for index in part]


def _parse_range(text: str, length: int, what: str) -> range:
    if re.fullmatch(INTEGER_TEXT, text):
        index = int(text)
        if not -length <= index < length:
            count = f'there are {length:,}' if length else 'there is none'
            raise IndexError(f'no {what} {index}: {count}')
        index %= length
        return range(index, index + 1)
    match = re.fullmatch(rf'({INTEGER_TEXT})?:({INTEGER_TEXT})?(?::({INTEGER_TEXT})?)?', text)
    if match is None or int(match[3] or 1) == 0:
        raise UsageError(f'expected rows as 7 or -1, or a range as 10:20 or -5:, got {text!r}')
    return range(length)[slice(*(int(bound) if bound else None for bound in match.groups()))]


def select_rows(dataset: Dataset, text: str) -> Any:
    """Returns a view with the rows of `--rows`; without the option, the dataset itself."""
    return dataset.select(parse_rows(text, len(dataset))) if text else dataset


def parse_fields(text: str | None, known: Collection[str]) -> list[str] | None:
    """Parses fields such as `id,words`; returns None for None."""
    if text is None:
        return None
    names = [name.strip() for name in text.split(',') if name.strip()]
    if not names:
        raise UsageError(f'no field in {text!r}; the fields are {", ".join(known)}')
    for name in names:
        check_field(name, known)
    return names


def parse_trusted(prefixes: list[str] | None) -> bool | list[str]:
    """Returns the argument `trust_links` of `bags.open`."""
    return 'all' in (prefixes or ()) or prefixes or []


def parse_renames(texts: Collection[str] | None, known: Collection[str]) -> dict[str, str]:
    """Parses new names of fields, such as `image=camera`: returns new names by old names."""
    names = parse_pairs('--rename', texts)
    for name in names:
        check_field(name, known)
    return names


def parse_pairs(option: str, texts: Collection[str] | None) -> dict[str, str]:
    """Parses texts of the form `OLD=NEW`: returns new values by old values."""
    pairs: dict[str, str] = {}
    for text in texts or ():
        old, equals, new = map(str.strip, text.partition('='))
        if not equals or not old or not new:
            raise UsageError(f'{option}: expected OLD=NEW, got {text!r}')
        pairs[old] = new
    return pairs


def check_field(name: str, known: Collection[str]) -> None:
    """Raises UsageError if the field does not exist."""
    if name not in known:
        similar = nearest_name(name, known)
        perhaps = '' if similar is None else f' (perhaps {similar})'
        raise UsageError(f'no field {name!r}{perhaps}; the fields are {", ".join(known)}')


def parse_item(text: str, item: int | None = None) -> tuple[str, int | None]:
    """Splits `frames[3]` into the field and the item."""
    match = re.fullmatch(rf'(?P<field>.+)\[(?P<item>{INTEGER_TEXT})\]', text)
    if match is None:
        return text, item
    if item is not None:
        raise UsageError(f'expected one item, got {text} and --item {item}')
    return match['field'], int(match['item'])


def parse_byte_count(text: str) -> int:
    """Parses a number of bytes, such as `500000`, `2GB` or `1.5 GiB`."""
    match = re.fullmatch(r'([0-9]+(?:[.][0-9]+)?)\s*(?:([kmgt])(i?)b?|b)?', text.strip().lower())
    if match is None:
        raise UsageError(f'expected a number of bytes as 500000, 2GB or 1.5GiB, got {text!r}')
    number, unit, binary = match.groups()
    count = int(float(number) * (1024 if binary else 1000) ** ' kmgt'.index(unit or ' '))
    if not count:
        raise UsageError(f'expected at least one byte, got {text!r}')
    return count


def parse_compression(text: str | None, known: Collection[str]) -> dict[str, Any] | None:
    """Parses the compression of fields, such as `meta,words=19,text=dictionary`; returns None for None."""
    if text is None:
        return None
    compressions: dict[str, Any] = {}
    for part in filter(None, map(str.strip, text.split(','))):
        name, equals, level = map(str.strip, part.partition('='))
        check_field(name, known)
        is_level = re.fullmatch(INTEGER_TEXT, level) and -131072 <= int(level) <= 22
        if equals and level != 'dictionary' and not is_level:
            expected = "expected a zstd level up to 22 or 'dictionary'"
            raise UsageError(f'compression of field {name!r}: {expected}, got {level!r}')
        compressions[name] = 3 if not equals else level if level == 'dictionary' else int(level)
    return compressions
