"""A folder of files as a source of datapoints."""

from __future__ import annotations

import mmap
import os
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from bags.interop.extensions import split_name, written_extensions
from bags.interop.layouts import LAYOUTS, Group, find_layout, group
from bags.interop.source import Damaged, Entry, Source, checked_value, infer_spec
from bags.validation import one_of

__all__ = ['FolderSource', 'list_files']

STREAMED_BYTES = 1 << 24
"""Local videos and audio from this size on are copied without being held in memory."""


def list_files(root: str, storage_options: Mapping[str, Any] | None = None) -> list[str]:
    """Returns the paths of the files below a folder, without hidden files and linked folders."""
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


class FolderSource(Source):
    """The files of a folder, grouped into datapoints.

    Args:
        root: The folder.
        names: Its files, by their paths in it.
        layout: How they are grouped; by default what fits the names.
        storage_options: As in `bags.open`, for a URL.
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
        examples = {field: file for _, files in self.groups for field, file in files.items()}
        fields = {}
        for field, file in examples.items():
            _, extension = split_name(file[0] if isinstance(file, list) else file)
            fields[field] = extension, isinstance(file, list), counts[field]
        has_extensions = any(self._extensions(key, files) for key, files in self.groups)
        self.spec = infer_spec(fields, self.count, has_extensions)
        self.is_labelled = self.layout == 'classes' and 'label' not in self.spec
        if self.is_labelled:
            self.spec['label'] = 'utf8'

    def _extensions(self, key: str, files: Mapping[str, str | list[str]]) -> dict[str, str]:
        if self.layout == 'episodes':
            return {}  # An export gives these files other names anyway.
        names = {field: file for field, file in files.items() if isinstance(file, str)}
        return written_extensions(key, names)

    def entries(self) -> Iterator[Entry]:
        for key, files in self.groups:
            label = {'label': key.partition('/')[0]} if self.is_labelled else {}
            yield Entry(self.root, key, files | label, self._extensions(key, files))

    def read(self, entry: Entry, field: str, word: str) -> Any:
        file = entry.files[field]
        if field == 'label' and self.is_labelled:
            return file
        if isinstance(file, list):
            return (self._read(name, word) for name in file)
        return self._read(file, word)

    def _read(self, name: str, word: str) -> Any:
        path, inner = f'{self.root.rstrip("/")}/{name}', f'{self._path.rstrip("/")}/{name}'
        try:
            if 'file' in self._fs.protocol:
                with open(inner, 'rb') as file:
                    if word not in ('video', 'audio') or os.path.getsize(inner) < STREAMED_BYTES:
                        return checked_value(path, word, file.read())
                    checked_value(path, word, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
                return inner
            return checked_value(path, word, self._fs.cat_file(inner))
        except OSError as exc:
            raise Damaged(path, f'cannot be read: {exc}') from exc
