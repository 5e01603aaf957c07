"""WebDataset tars as a source of datapoints.

The files of a datapoint lie one after the other and share their name up to the first dot. What comes behind
it is the field: `000017.jpg`, `000017.seg.png`.
"""

from __future__ import annotations

import errno
import json
import tarfile
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from bags.dataset.spec import parse_type
from bags.interop.extensions import KEY, WRITTEN, field_of, unescaped, written_in_tars
from bags.interop.source import Damaged, infer, value_of

__all__ = ['TarSource', 'is_tar']

Entry = tuple[str, str, dict[str, Any], dict[str, str]]
"""The tar, the key, and by field where the content is in the tar, or the content of a compressed one, and the
extensions as they are written there."""


def is_tar(name: str) -> bool:
    """Tells by its name whether a file is a tar, perhaps a compressed one."""
    return name.lower().endswith(('.tar', '.tar.gz', '.tgz', '.tar.bz2', '.tar.xz'))


class TarSource:
    """The datapoints of WebDataset tars, one tar after the other.

    Args:
        tars: Paths, URLs or globs of them.
        storage_options: Of the storage behind URLs.
        on_error: 'raise', or 'skip' to go on with the next tar where one is damaged.

    Raises:
        FileNotFoundError: None is there.
        Damaged: One is no tar, or cut off.
    """

    layout = 'webdataset'

    def __init__(
        self,
        tars: list[str],
        storage_options: Mapping[str, Any] | None = None,
        on_error: str = 'raise',
    ) -> None:
        import fsspec

        self.storage_options = dict(storage_options or {})
        self.tars: list[str] = []
        self.damaged: list[tuple[str, str]] = []
        for tar in tars:
            fs, path = fsspec.core.url_to_fs(tar, **self.storage_options)
            is_glob = any(letter in path for letter in '*?[') and not fs.exists(path)
            found = sorted(fs.glob(path)) if is_glob else [path]
            self.tars += found if 'file' in fs.protocol else map(fs.unstrip_protocol, found)
        if not self.tars:
            raise FileNotFoundError(errno.ENOENT, 'no tars to import', ', '.join(tars))
        counts: Counter[str] = Counter()
        self.count = 0
        notes = False
        for tar in self.tars:
            try:
                for _, files, extensions in self._samples(tar, False):
                    counts.update(files.keys())
                    self.count += 1
                    notes = notes or bool(written_in_tars(extensions))
            except Damaged as exc:
                if on_error == 'raise':
                    raise
                self.damaged.append((exc.name, exc.detail))
        self.spec = infer({field: (field, False, counts[field]) for field in counts}, self.count, notes)

    def _samples(self, tar: str, contents: bool) -> Iterator[tuple[str, dict[str, Any], dict[str, str]]]:
        """Yields keys and, by field, the places of the contents and the extensions.

        Where there are no places, it is the contents themselves, if they are wished for.
        """
        import fsspec

        key: str | None = None
        files: dict[str, Any] = {}
        extensions: dict[str, str] = {}
        try:
            with (
                fsspec.open(tar, 'rb', **self.storage_options) as file,
                tarfile.open(fileobj=file) as members,
            ):
                # Whatever a tar is called, it may be compressed.
                has_places = members.fileobj is file
                while (member := members.next()) is not None:
                    members.members = []  # type: ignore[attr-defined]  # Else it keeps all that were ever seen.
                    if not member.isfile() or _is_left_out(member.name):
                        continue
                    name, extension = _split(member.name)
                    field = field_of(extension.lower())
                    if name != key:
                        if key is not None:
                            yield key, files, extensions
                        key, files, extensions = name, {}, {}
                    extensions[field] = extension
                    if field in files:
                        files[field] = Damaged(f'{tar}: {member.name}', 'is there twice in one datapoint')
                    elif has_places and not member.issparse():
                        files[field] = member.offset_data, member.size
                    elif not contents:
                        files[field] = None
                    else:
                        found = members.extractfile(member)
                        assert found is not None
                        files[field] = found.read()
        except (tarfile.TarError, ValueError, EOFError, OSError) as exc:
            if isinstance(exc, FileNotFoundError | PermissionError):
                raise
            raise Damaged(tar, str(exc)) from exc
        if key is not None:
            yield key, files, extensions

    def entries(self) -> Iterator[Entry]:
        damaged = {name for name, _ in self.damaged}
        for tar in self.tars:
            try:
                for key, files, extensions in self._samples(tar, True):
                    yield tar, key, files, extensions
            except Damaged as exc:
                if exc.name not in damaged:
                    raise

    def load(self, entry: Entry) -> dict[str, Any]:
        tar, key, files, extensions = entry
        datapoint: dict[str, Any] = {}
        for field, kind in self.spec.items():
            found = files.get(field)
            if field == KEY:
                datapoint[field] = key
            elif field == WRITTEN:
                noted = written_in_tars(extensions)
                datapoint[field] = json.dumps(noted).encode() if noted else None
            elif isinstance(found, Damaged):
                raise found
            elif found is not None:
                data = found if isinstance(found, bytes) else self._read(tar, *found)
                datapoint[field] = value_of(f'{tar}: {key}.{field}', parse_type(field, kind).word, data)
        return datapoint

    def _read(self, tar: str, start: int, size: int) -> bytes:
        import fsspec

        if not size:
            return b''  # Storages have no empty range, and would give all there is.
        fs, path = fsspec.core.url_to_fs(tar, **self.storage_options)
        try:
            data: bytes = fs.cat_file(path, start=start, end=start + size)
        except OSError as exc:
            raise Damaged(tar, f'cannot be read: {exc}') from exc
        if len(data) != size:
            raise Damaged(tar, f'expected {size} bytes at {start}, got {len(data)}')
        return data


def _is_left_out(name: str) -> bool:
    """Tells which files are of no datapoint: what WebDataset says about a tar, and hidden ones."""
    base = name.rpartition('/')[2]
    return base.startswith('.') or (name == base and name.startswith('__') and name.endswith('__'))


def _split(name: str) -> tuple[str, str]:
    """Splits a member's name into key and extension as WebDataset does, at the first dot of its last part."""
    folder, slash, base = name.removeprefix('./').rpartition('/')
    stem, _, extension = base.partition('.')
    return unescaped(folder + slash + stem), extension
