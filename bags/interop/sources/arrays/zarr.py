"""Zarr, versions 2 and 3: a datapoint is an episode of a replay buffer (diffusion policy), or a group."""

from __future__ import annotations

import functools
import itertools
import math
import re
import warnings
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from bags.interop.ignored_files import is_hidden
from bags.interop.source import MAX_EXPANDED_BYTES, as_source_errors, check_claim, collect_errors
from bags.interop.sources.arrays.arrays import ArrayGroup, Arrays, ArraySource, StoredArray, split_episodes
from bags.interop.sources.files.zip_files import check_zip
from bags.interop.stores import is_present

if TYPE_CHECKING:
    import zarr
    from zarr.core.metadata import ArrayMetadata
    from zarr.storage import StorePath

    from bags.interop.sources.arrays.zarr_store import ReadOnlyStore

    ZarrArray = zarr.Array[Any]

ENDS = 'meta/episode_ends'
MAX_EPISODES = 1 << 24
_CHUNK = re.compile(r'c|(c[/.])?[0-9]+([/.][0-9]+)*')
_METADATA = ('zarr.json', '.zarray', '.zgroup', '.zattrs', '.zmetadata')


class ZarrSource(ArraySource[ArrayGroup]):
    """The rows of arrays in `data` between `meta/episode_ends`, or the arrays of groups, as datapoints."""

    name_of_format = 'zarr'

    def find(self, paths: list[str]) -> list[ArrayGroup]:
        self._arrays: dict[str, dict[str, ZarrArray | Exception]] = {}
        episodes: list[ArrayGroup] = []
        metadata: dict[str, Any] = {}
        outside: list[str] = []
        notes: dict[str, None] = {}
        for path in paths:
            with collect_errors(self.damaged), as_source_errors(path, 'Zarr'), _noting_warnings(path, notes):
                root = _open(path, self.storage_options)
                metadata = {**root.attrs, **metadata}
                arrays = dict(_arrays(root, notes))
                _check(arrays, notes)
                self._arrays[path] = arrays
                if ENDS in arrays:
                    rows = _rows_of_episodes(arrays)
                    episodes += [ArrayGroup(path, 'data', rows=each) for each in rows]
                    end = rows[-1][1] if rows else 0
                    lengths = (_length(array) for name, array in arrays.items() if name.startswith('data/'))
                    count = max(lengths, default=0)
                    if end < count:
                        note = f'{path}: rows {end} to {count - 1} are left out: {ENDS} ends before them'
                        notes[note] = None
                    outside += [name for name in arrays if not name.startswith('data/') and name != ENDS]
                else:
                    groups, others = split_episodes(arrays)
                    episodes += [ArrayGroup(path, group) for group in groups]
                    outside += others
        self.metadata = metadata
        self.notes += [*notes, *(f'{name!r} is left out: it is in no datapoint' for name in outside)]
        return episodes

    @contextmanager
    def open(self, record: ArrayGroup) -> Iterator[Arrays]:
        group = f'{record.group}/' if record.group else ''
        with as_source_errors(self.name(record), 'Zarr'):
            yield {
                name.removeprefix(group): array if isinstance(array, Exception) else _part(array, record.rows)
                for name, array in self._arrays[record.path].items()
                if name.startswith(group)
            }


open_source = ZarrSource


class _ArrayRows:
    """Some rows of an array."""

    def __init__(self, array: ZarrArray, start: int, stop: int) -> None:
        self._array, self._start = array, start
        self.shape: tuple[int, ...] = (stop - start, *array.shape[1:])
        self.dtype = array.dtype

    def __getitem__(self, key: Any) -> Any:
        start, stop, _ = (key if isinstance(key, slice) else slice(None)).indices(self.shape[0])
        return self._array[self._start + start : self._start + stop]


def _part(array: ZarrArray, rows: tuple[int, int] | None) -> StoredArray:
    return array if rows is None else _ArrayRows(array, *rows)


def _length(array: ZarrArray | Exception) -> int:
    return 0 if isinstance(array, Exception) or not array.shape else int(array.shape[0])


@contextmanager
def _noting_warnings(path: str, notes: dict[str, None]) -> Iterator[None]:
    """Adds warnings of zarr to `notes`, and issues other warnings again."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter('always')
        try:
            yield
        finally:
            found = list(caught)
    for each in found:
        if each.category.__module__.startswith('zarr'):
            notes[f'{path}: {each.message}'] = None
        else:
            warnings.warn_explicit(each.message, each.category, each.filename, each.lineno)


def _open(path: str, storage_options: Mapping[str, Any] | None) -> zarr.Group:
    import zarr

    if path.endswith('.zip'):
        with open(path, 'rb') as file, zipfile.ZipFile(file) as archive:
            check_zip(archive, file)
            if (name := archive.testzip()) is not None:  # Zarr's partial reads skip checksums.
                raise ValueError(f'{name!r:.200} is damaged: expected another checksum')
        root = zarr.open(zarr.storage.ZipStore(path, mode='r'), mode='r')
    else:
        try:
            root = zarr.open(_store_of(path, storage_options), mode='r')
        except FileNotFoundError as exc:
            if not is_present(path, storage_options):
                raise
            raise ValueError('expected zarr.json, .zgroup or .zarray at its top, got none') from exc
    if not isinstance(root, zarr.Group):
        raise ValueError(f'expected a group of arrays, got an array of shape {root.shape}')
    return root


def _store_of(path: str, storage_options: Mapping[str, Any] | None) -> str | ReadOnlyStore:
    if '://' not in path:
        return path
    from bags.interop.sources.arrays.zarr_store import ReadOnlyStore

    return ReadOnlyStore(path, storage_options)


def _arrays(
    group: zarr.Group, notes: dict[str, None], prefix: str = ''
) -> Iterator[tuple[str, ZarrArray | Exception]]:
    """Yields the path of each array below a group, and the array, or an error if it cannot be opened.

    Zarr skips folders without metadata; here, they raise ValueError.
    """
    import zarr
    from zarr.core.sync import sync

    consolidated = getattr(group.metadata, 'consolidated_metadata', None)
    known = {name.partition('/')[0] for name in consolidated.metadata} if consolidated else set()
    for name in sorted(known | set(_names(group.store_path))):
        if '\\' in name or name == '..':
            raise ValueError(f'expected a name without "..", got {prefix}{name!r}')
        member: ZarrArray | zarr.Group
        try:
            member = group[name]
        except KeyError as exc:
            if next(_names(group.store_path / name), None) is not None:
                detail = 'expected an array or a group, got a folder without their metadata'
                raise ValueError(f'{prefix}{name}: {detail}') from exc
            notes[f'{prefix + name!r} is left out: it is not an array'] = None
            continue
        except OSError:
            raise
        except Exception as exc:  # An unknown codec, or invalid metadata.
            yield prefix + name, exc
            continue
        if isinstance(member, zarr.Array):
            _check_blosc(member.metadata)
            yield prefix + name, member
        elif sync((member.store_path / '.zarray').exists()):  # Damaged: zarr reads a group.
            yield prefix + name, ValueError('expected the shape of an array in .zarray, got none')
        else:
            yield from _arrays(member, notes, f'{prefix}{name}/')


def _names(path: StorePath) -> Iterator[str]:
    """Yields the names in a folder of a store, except metadata and hidden files."""
    from zarr.core.sync import sync

    async def listed() -> list[str]:
        return [name async for name in path.store.list_dir(path.path)]

    return (name for name in sync(listed()) if name and name not in _METADATA and name[0] != '.')


def _check(arrays: Mapping[str, ZarrArray | Exception], notes: dict[str, None]) -> None:
    """Compares the shapes of arrays with their stored chunks; raises ValueError for pickled values."""
    claimed, found = 0, [(name, array) for name, array in arrays.items() if not isinstance(array, Exception)]
    for name, array in found:
        about = {key: value for key, value in array.metadata.to_dict().items() if key != 'attributes'}
        if 'pickle' in str(about):
            raise ValueError(f'{name}: expected values that are not pickled')
        claimed += max(array.nbytes, array.size)
        lengths = zip(array.shape, getattr(array, 'shards', None) or array.chunks, strict=True)
        count = math.prod(-(-length // chunk) for length, chunk in lengths)
        stored, others = _count_chunks(array)
        notes |= dict.fromkeys(f'{f"{name}/{other}"!r} is left out: it is not a chunk' for other in others)
        if stored > count:
            raise ValueError(f'{name}: expected {count} chunks for shape {array.shape}, got {stored}')
        if stored < count:
            missing = f'{count - stored} of {count} chunks are not stored'
            notes[f'{name!r}: {missing}, their values are {array.fill_value}'] = None
    if claimed > MAX_EXPANDED_BYTES:
        check_claim(claimed, sum(_stored_bytes(array) for _, array in found), 'the shapes')


def _count_chunks(array: ZarrArray) -> tuple[int, list[str]]:
    """Returns the number of stored chunks, and the other files in the folder of an array."""
    from zarr.core.sync import sync

    path = array.store_path
    folder = f'{path.path}/' if path.path else ''

    async def names() -> list[str]:
        return [name.removeprefix(folder) async for name in path.store.list_prefix(folder)]

    # A zip may list folders, with names that end with a slash.
    found = [name for name in sync(names()) if name.rpartition('/')[2] not in ('', *_METADATA)]
    others = [name for name in found if not _CHUNK.fullmatch(name)]
    return len(found) - len(others), [name for name in others if not is_hidden(name)]


def _stored_bytes(array: ZarrArray) -> int:
    from zarr.core.sync import sync

    return int(sync(array.store_path.store.getsize_prefix(array.store_path.path)))


def _check_blosc(metadata: ArrayMetadata) -> None:
    """Replaces the Blosc codecs of an array with `CheckedBlosc`."""
    codecs = [*getattr(metadata, 'codecs', ())]
    codecs += [inner for codec in codecs for inner in getattr(codec, 'codecs', ())]  # Of shards.
    found = [getattr(codec, '_blosc_codec', None) or getattr(codec, '_codec', None) for codec in codecs]
    found += [getattr(metadata, 'compressor', None), *(getattr(metadata, 'filters', None) or ())]
    plain, checked = _blosc()
    for codec in found:
        if isinstance(codec, plain):
            codec.__class__ = checked


@functools.cache
def _blosc() -> tuple[type[Any], type[Any]]:
    from numcodecs.blosc import Blosc

    class CheckedBlosc(Blosc):  # type: ignore[misc, unused-ignore]
        """Checks the size in the header, up to which Blosc reads, even beyond the end of the chunk."""

        def decode(self, buf: Any, out: Any = None) -> Any:
            size, head = memoryview(buf).nbytes, bytes(memoryview(buf).cast('B')[:16])
            if len(head) < 16 or int.from_bytes(head[12:], 'little') != size:
                raise ValueError(f'expected a whole chunk of Blosc, got {size} bytes')
            return super().decode(buf, out)

    return Blosc, CheckedBlosc


def _rows_of_episodes(arrays: Mapping[str, ZarrArray | Exception]) -> list[tuple[int, int]]:
    ends = arrays[ENDS]
    if isinstance(ends, Exception):
        raise ValueError(f'{ENDS}: {ends}') from ends
    if ends.size > MAX_EPISODES:
        raise ValueError(f'{ENDS}: expected at most {MAX_EPISODES} episodes, got {ends.size}')
    rows = list(itertools.pairwise([0, *np.asarray(ends[:]).tolist()]))
    if any(start > stop for start, stop in rows):
        raise ValueError(f'{ENDS}: expected increasing integers, got {str(ends[:])[:80]}')
    for name, array in arrays.items():
        is_read = name.startswith('data/') and not isinstance(array, Exception)
        if is_read and rows and (length := _length(array)) < rows[-1][1]:
            raise ValueError(f'{name}: expected {rows[-1][1]} rows, as {ENDS} says, got {length}')
    return rows
