"""A folder of files as a source of datapoints."""

from __future__ import annotations

import itertools
import json
import mmap
import os
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from bags.dataset.spec import parse_type
from bags.interop.extensions import KEY, WRITTEN, split_name, written
from bags.interop.layouts import LAYOUTS, Group, find_layout, group
from bags.interop.source import Damaged, infer, value_of
from bags.validation import one_of

__all__ = ['FolderSource', 'list_files']

STREAMED = 1 << 24  # Local media from this size on are copied in without being held in memory.


def list_files(root: str, storage_options: Mapping[str, Any] | None = None) -> list[str]:
    """Returns the files below a folder by their paths in it; no hidden ones, none in linked folders."""
    import fsspec

    fs, path = fsspec.core.url_to_fs(root, **(storage_options or {}))
    path = path.rstrip('/')
    found: dict[str, dict[str, Any]] = fs.find(path, detail=True)
    names = [
        name[len(path) + 1 :]
        for name, facts in found.items()
        if name != path and (facts['type'] == 'file' or (facts.get('islink') and not fs.isdir(name)))
    ]
    return sorted(name for name in names if not any(part.startswith('.') for part in name.split('/')))


class FolderSource:
    """The files of a folder, each in its datapoint.

    Args:
        root: The folder.
        names: Its files, by their paths in it.
        layout: How they are divided; unless told, what fits the names.
        storage_options: Of the storage behind a URL.
    """

    def __init__(
        self,
        root: str,
        names: list[str],
        layout: str | None = None,
        storage_options: Mapping[str, Any] | None = None,
    ) -> None:
        import fsspec

        if layout is not None:
            one_of('layout', layout, LAYOUTS)
        self.root = root
        self.damaged: list[tuple[str, str]] = []
        self.layout = layout or find_layout(names)
        self._fs, self._path = fsspec.core.url_to_fs(root.rstrip('/') or '/', **(storage_options or {}))
        self.groups: list[Group] = group(names, self.layout)
        self.count = len(self.groups)
        counts: Counter[str] = Counter(field for _, files in self.groups for field in files)
        one = {field: file for _, files in self.groups for field, file in files.items()}
        fields = {}
        for field, file in one.items():
            is_sequence = isinstance(file, list)
            _, extension = split_name(file[0] if isinstance(file, list) else file)
            fields[field] = extension, is_sequence, counts[field]
        notes = any(self._written(key, files) for key, files in self.groups)
        self.spec = infer(fields, self.count, notes)
        self.labelled = self.layout == 'classes' and 'label' not in self.spec
        if self.labelled:
            self.spec['label'] = 'utf8'

    def _written(self, key: str, files: Mapping[str, str | list[str]]) -> dict[str, str]:
        if self.layout == 'episodes':
            return {}  # These do not come back as they were anyway.
        return written(key, {field: file for field, file in files.items() if isinstance(file, str)})

    def entries(self) -> Iterator[Group]:
        return iter(self.groups)

    def load(self, entry: Group) -> dict[str, Any]:
        key, files = entry
        datapoint: dict[str, Any] = {}
        for field, kind in self.spec.items():
            if field == KEY:
                datapoint[field] = key
            elif field == WRITTEN:
                noted = self._written(key, files)
                datapoint[field] = json.dumps(noted).encode() if noted else None
            elif field == 'label' and self.labelled:
                datapoint[field] = key.partition('/')[0]
            else:
                found = files.get(field)
                word = parse_type(field, kind).word
                if isinstance(found, list):
                    datapoint[field] = map(self._read, found, itertools.repeat(word))
                elif found is not None:
                    datapoint[field] = self._read(found, word)
        return datapoint

    def _read(self, name: str, word: str) -> Any:
        path, inner = f'{self.root.rstrip("/")}/{name}', f'{self._path.rstrip("/")}/{name}'
        try:
            if 'file' in self._fs.protocol:
                with open(inner, 'rb') as file:
                    if word not in ('video', 'audio') or os.path.getsize(inner) < STREAMED:
                        return value_of(path, word, file.read())
                    value_of(path, word, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
                return inner
            return value_of(path, word, self._fs.cat_file(inner))
        except OSError as exc:
            raise Damaged(path, f'cannot be read: {exc}') from exc
