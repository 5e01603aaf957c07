"""`bags.card`: describes a dataset in Markdown, for repositories of the Hugging Face hub."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import quote

from bags.dataset.format.registry import AUDIO_FORMATS, IMAGE_FORMATS, VIDEO_FORMATS
from bags.display.counts import byte_count, plural
from bags.maintenance.info import DatasetInfo, Distribution, info
from bags.storage.hub_path import web_address
from bags.validation import with_advice

NOTE = '<!-- Written by bags push, which replaces this file. Remove this line to keep a text of your own. -->'
LICENSES = frozenset([
    'afl-3.0', 'agpl-3.0', 'apache-2.0', 'artistic-2.0', 'bsd', 'bsd-2-clause', 'bsd-3-clause',
    'bsd-3-clause-clear', 'bsl-1.0', 'c-uda', 'cc', 'cc-by-2.0', 'cc-by-2.5', 'cc-by-3.0', 'cc-by-4.0',
    'cc-by-nc-2.0', 'cc-by-nc-3.0', 'cc-by-nc-4.0', 'cc-by-nc-nd-3.0', 'cc-by-nc-nd-4.0', 'cc-by-nc-sa-2.0',
    'cc-by-nc-sa-3.0', 'cc-by-nc-sa-4.0', 'cc-by-nd-4.0', 'cc-by-sa-3.0', 'cc-by-sa-4.0', 'cc0-1.0',
    'cdla-permissive-1.0', 'cdla-permissive-2.0', 'cdla-sharing-1.0', 'ecl-2.0', 'epl-1.0', 'epl-2.0',
    'etalab-2.0', 'eupl-1.1', 'eupl-1.2', 'gfdl', 'gpl', 'gpl-2.0', 'gpl-3.0', 'isc', 'lgpl', 'lgpl-2.1',
    'lgpl-3.0', 'lgpl-lr', 'lppl-1.3c', 'mit', 'mpl-2.0', 'ms-pl', 'ncsa', 'odbl', 'odc-by', 'ofl-1.1',
    'openrail', 'osl-3.0', 'pddl', 'postgresql', 'unknown', 'unlicense', 'wtfpl', 'zlib',
])  # fmt: skip
"""The licence identifiers of the hub. Other licences need a name."""
SIZES = ('n<1K', '1K<n<10K', '10K<n<100K', '100K<n<1M', '1M<n<10M', '10M<n<100M', '100M<n<1B', '1B<n<10B',
         '10B<n<100B', '100B<n<1T', 'n>1T')  # fmt: skip
"""Classes of the number of datapoints."""
MAX_SHOWN = 300
"""Maximum characters of a fact of the metadata."""


@with_advice
def card(
    path: str | os.PathLike[str],
    *,
    url: str | None = None,
    viewer: str | None = None,
    filesystem: Any = None,
    storage_options: Mapping[str, Any] | None = None,
) -> str:
    """Returns a description of a dataset in Markdown, with the facts that the Hugging Face hub searches.

    It has the fields with their types and sizes, the metadata, and the code that loads the dataset. In the
    metadata, `name` or `title` is the heading, `description` the text below it, `licence` or `license` the
    licence, and `language`, `tags` and `task_categories` are facts that the hub searches. Other entries
    become a table. `bags.push` writes the card as README.md.

    Args:
        path: The path or URL of a dataset.
        url: The URL of the dataset for readers of the card, such as `hf://datasets/OWNER/NAME`. Default:
            `path`.
        viewer: The URL of a page that `bags view --export` wrote, which the card links to.
        filesystem, storage_options: As in `bags.open`.

    Raises:
        FileNotFoundError: No dataset at the path.
        ValueError: The path is a bag.
        CorruptError, SpecError: Damaged data.

    Examples:
        >>> text = bags.card('episodes', url='hf://datasets/u/d')
        >>> "bags.open('hf://datasets/u/d')" in text
        True
    """
    dataset_info = info(path, filesystem=filesystem, storage_options=storage_options)
    if not isinstance(dataset_info, DatasetInfo):
        raise ValueError(f'{dataset_info.path}: expected a dataset, got a bag')
    return card_of(dataset_info, os.fspath(path) if url is None else url, viewer)


def card_of(dataset_info: DatasetInfo, url: str, viewer: str | None) -> str:
    """Returns the card of a dataset that is loaded from `url`, as `card` does."""
    facts = {key: value for key, value in dataset_info.metadata.items() if key != 'fields'}
    name = _take_text(facts, 'name', 'title') or url.rstrip('/').rpartition('/')[2].rpartition('@')[2]
    description = _take_text(facts, 'description')
    parts = [_front_matter(dataset_info, name, facts), NOTE, f'# {_line(name)}']
    if description:
        parts.append(description.strip())
    size = f'{plural(dataset_info.datapoints, "datapoint")} in {plural(dataset_info.shards, "shard")}'
    parts.append(f'{size}, {byte_count(dataset_info.bytes)}.')
    if viewer is not None:
        parts.append(f'[Look at it in the browser]({viewer}?data={quote(web_address(url), safe=":/")}).')
    parts += ['## Fields', _fields(dataset_info)]
    if facts:
        parts += ['## Facts', _table(('', ''), [(key, _shown(value)) for key, value in facts.items()])]
    parts += ['## Load it', _how_to_load(url)]
    return '\n\n'.join(parts) + '\n'


def _front_matter(dataset_info: DatasetInfo, name: str, facts: dict[str, Any]) -> str:
    """Returns the facts that the hub searches, and removes the ones that it also shows from `facts`."""
    matter: dict[str, Any] = {'pretty_name': name}
    license = next((facts[key] for key in ('license', 'licence') if isinstance(facts.get(key), str)), '')
    if license:
        # "CC BY 4.0", "CC0 1.0" and "Apache 2.0" are identifiers with other separators.
        identifier = re.sub(r'[\s_]+', '-', license.strip().lower())
        matter['license'] = identifier if identifier in LICENSES else 'other'
        if identifier not in LICENSES:
            matter['license_name'] = re.sub(r'[^a-z0-9.]+', '-', identifier).strip('-') or 'other'
    tags = ['bags', *_media(dataset_info)]
    for key in ('language', 'tags', 'task_categories'):
        value = facts.get(key)
        texts = [value] if isinstance(value, str) else value
        if isinstance(texts, list) and texts and all(isinstance(text, str) for text in texts):
            del facts[key]
            if key == 'tags':
                tags += [tag for tag in texts if tag not in tags]
            else:
                matter[key] = texts
    matter['tags'] = tags
    matter['size_categories'] = [SIZES[min(max(len(str(dataset_info.datapoints)) - 3, 0), len(SIZES) - 1)]]
    matter['viewer'] = False  # The hub's own viewer reads other formats.
    # JSON is YAML.
    lines = [f'{key}: {json.dumps(value, ensure_ascii=False)}' for key, value in matter.items()]
    return '\n'.join(['---', *lines, '---'])


def _media(dataset_info: DatasetInfo) -> list[str]:
    """Returns the media types of the fields, as tags of the hub."""
    formats = {re.split(r'[(\[?]', field.type)[0] for field in dataset_info.fields.values()}
    media = {'image': IMAGE_FORMATS, 'video': VIDEO_FORMATS, 'audio': AUDIO_FORMATS, 'text': ('utf8',)}
    return [name for name, media_words in media.items() if formats & {*media_words}]


def _fields(dataset_info: DatasetInfo) -> str:
    """Returns the table of the fields, with their sizes and metadata."""
    facts = dataset_info.metadata.get('fields', {})
    rows = []
    for name, field in dataset_info.fields.items():
        rows.append((
            f'`{name}`', f'`{field.type}`', byte_count(field.bytes + field.linked_bytes),
            _range(field.record_bytes, byte_count), _range(field.items, '{:,.0f}'.format),
            ', '.join(f'{key}: {_shown(value)}' for key, value in facts.get(name, {}).items()),
        ))  # fmt: skip
    return _table(('field', 'type', 'size', 'of a record', 'items', ''), rows)


def _table(heading: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    """Returns a table in Markdown, without empty columns after the second."""
    shown = [index for index in range(len(heading)) if index < 2 or any(row[index] for row in rows)]
    lines = [heading, ('---',) * len(heading), *rows]
    cells = [[_line(line[index]).replace('|', '\\|') for index in shown] for line in lines]
    return '\n'.join(f'| {" | ".join(row)} |' for row in cells)


def _range(distribution: Distribution | None, as_text: Callable[[float], str]) -> str:
    if distribution is None:
        return ''
    low, high = as_text(distribution.min), as_text(distribution.max)
    return low if low == high else f'{low} … {high}'


def _how_to_load(url: str) -> str:
    package = 'bags[hf]' if url.startswith('hf://') else 'bags'
    lines = [
        'import bags', '', f'dataset = bags.open({url!r})', 'dataset[0]  # a datapoint: a dict of its fields',
        'for batch in bags.Loader(dataset, batch_size=8):', '    ...',
    ]  # fmt: skip
    return '\n'.join(['```sh', f"pip install '{package}>=1.0'", '```', '', '```python', *lines, '```'])


def _take_text(facts: dict[str, Any], *keys: str) -> str:
    """Removes the first of some facts that is a text, and returns it; '' if there is none."""
    for key in keys:
        if isinstance(facts.get(key), str) and facts[key].strip():
            text: str = facts.pop(key)
            return text
    return ''


def _shown(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= MAX_SHOWN else f'{text[:MAX_SHOWN]}…'


def _line(text: str) -> str:
    """Returns a text on one line."""
    return ' '.join(text.split())
