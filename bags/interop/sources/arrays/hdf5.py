"""HDF5: a datapoint is a file, as in ALOHA, or a numbered group, as in robomimic."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from bags.interop.records import open_file
from bags.interop.source import as_source_errors, check_claim, collect_errors
from bags.interop.sources.arrays.arrays import ArrayGroup, Arrays, ArraySource, StoredArray, split_episodes

if TYPE_CHECKING:
    import h5py
MAX_NOTED = 16
"""Maximum number of names of an enumeration in a note."""
MAX_MASK_BYTES = 1 << 20
MAX_NAMES = 1 << 20
MAX_DEPTH = 64
"""Limits on the number and depth of names: links allow more names than the file has bytes."""


class HDF5Source(ArraySource[ArrayGroup]):
    """The datasets and attributes of files, or of their groups `data/demo_0`, …, as datapoints.

    In a file with several datapoints, attributes of the file and of its group `data` become metadata, like
    the names of datapoints in its group `mask`.
    """

    name_of_format = 'hdf5'

    def find(self, paths: list[str]) -> list[ArrayGroup]:
        episodes: list[ArrayGroup] = []
        metadata: dict[str, Any] = {}
        notes: dict[str, None] = {}
        for path in paths:
            stem = path.rpartition('/')[2].rpartition('.')[0]
            with collect_errors(self.damaged), self._file(path) as file:
                groups, others, remarks = _survey(file)
                metadata = {**_metadata_of(file, groups, remarks), **metadata}
                remarks |= dict.fromkeys(others, 'is left out: it is in none of the numbered groups')
                for name, remark in remarks.items():
                    group = next((each for each in groups if name.startswith(f'{each}/')), '')
                    notes[f'{name.removeprefix(f"{group}/")!r} {remark}'] = None
                for group in groups:
                    unread: dict[str, str] = {}
                    _attributes(file[group or '/'], unread)
                    notes |= dict.fromkeys(f'{name!r} {remark}' for name, remark in unread.items())
                    parts = stem if not group or len(paths) > 1 else '', group.rpartition('/')[2]
                    episodes.append(ArrayGroup(path, group, '/'.join(filter(None, parts))))
        self.metadata = metadata
        self.notes += notes
        return episodes

    def key(self, record: ArrayGroup) -> str:
        return record.key

    @contextmanager
    def open(self, record: ArrayGroup) -> Iterator[Arrays]:
        with self._file(record.path) as file:
            group = file[record.group or '/']
            remarks: dict[str, str] = {}
            arrays: dict[str, StoredArray | Exception] = {**_datasets(group, remarks)}
            for name, value in _attributes(group, remarks).items():
                arrays[f'{name}_attribute' if name in arrays else name] = value
            yield arrays

    @contextmanager
    def _file(self, path: str) -> Iterator[h5py.File]:
        import h5py

        with (
            as_source_errors(path, 'HDF5'),
            open_file(path, self.storage_options) as stream,
            h5py.File(stream, 'r') as file,
        ):
            yield file


open_source = HDF5Source

_EMPTY = 'is left out: an empty group'


def _survey(file: h5py.File) -> tuple[list[str], list[str], dict[str, str]]:
    """Returns the groups that are datapoints, the datasets outside them, and remarks by name."""
    remarks: dict[str, str] = {}
    datasets = _datasets(file, remarks)
    claimed = 0
    for name, dataset in datasets.items():
        if isinstance(dataset, Exception):
            continue
        claimed += max(dataset.nbytes, dataset.size)
        remark = _remark_on_names(dataset.dtype)
        if dataset.size and _count_missing(dataset):
            never = f'has values that were never written: they are {dataset.fillvalue}'
            remark = f'{never}; {remark}' if remark else never
        if remark:
            remarks[name] = remark
    check_claim(claimed, file.id.get_filesize(), 'the shapes')
    groups, outside = split_episodes([name for name in datasets if not name.startswith('mask/')])
    parent = groups[0].rpartition('/')[0]
    for name, remark in remarks.items():
        above, _, base = name.rpartition('/')
        if groups != [''] and remark == _EMPTY and above == parent and base[-1:].isdecimal():
            raise ValueError(f'{name}: expected arrays, as in the other numbered groups, got none')
    return groups, outside, remarks


def _remark_on_names(dtype: np.dtype[Any]) -> str:
    """Returns a remark for an enumeration, whose values become integers; '' for other types."""
    import h5py

    names = h5py.check_enum_dtype(dtype)
    if not names:
        return ''
    some = sorted((value, name) for name, value in names.items())
    others = f' and {len(some) - MAX_NOTED:,} more' if len(some) > MAX_NOTED else ''
    return f'becomes integers: {", ".join(f"{value} is {name}" for value, name in some[:MAX_NOTED])}{others}'


def _count_missing(dataset: h5py.Dataset) -> int:
    """Returns the number of chunks that were never written."""
    if dataset.chunks is None:
        return int(dataset.id.get_storage_size() == 0)
    lengths = zip(dataset.shape, dataset.chunks, strict=True)
    count: int = math.prod(-(-length // chunk) for length, chunk in lengths)
    return count - int(dataset.id.get_num_chunks())


def _metadata_of(file: h5py.File, groups: list[str], remarks: dict[str, str]) -> dict[str, Any]:
    """Returns the attributes of a file with several datapoints and of their parent group, and its `mask`."""
    import h5py

    if groups == ['']:
        return {}
    metadata: dict[str, Any] = {}
    for group in (file[groups[0]].parent, file):
        metadata |= {name: value.tolist() for name, value in _attributes(group, remarks).items()}
    mask = file.get('mask')
    for name, keys in mask.items() if isinstance(mask, h5py.Group) else ():
        is_small = isinstance(keys, h5py.Dataset) and keys.size * keys.dtype.itemsize <= MAX_MASK_BYTES
        if is_small and h5py.check_string_dtype(keys.dtype):
            metadata.setdefault('mask', {})[name] = keys.asstr()[:].tolist()
        else:
            remarks[f'mask/{name}'] = 'is left out: expected names'
    return metadata


def _datasets(group: h5py.Group, remarks: dict[str, str]) -> dict[str, h5py.Dataset | Exception]:
    """Returns the datasets below a group, by path; an error replaces a dataset that cannot be read.

    Links to other files and to parent groups are left out, with a remark by path.

    Raises:
        ValueError: There are too many names, or damaged names.
    """
    import h5py

    datasets: dict[str, h5py.Dataset | Exception] = {}
    visited = 0

    def visit(above: list[h5py.Group], prefix: str) -> None:
        nonlocal visited
        if len(above) > 1 and not len(above[-1]):
            remarks[prefix.rstrip('/')] = _EMPTY
        for name in above[-1]:
            visited += 1
            if visited > MAX_NAMES or len(above) > MAX_DEPTH:
                raise ValueError(
                    f'expected up to {MAX_NAMES} names, {MAX_DEPTH} deep, those behind links too'
                )
            path = prefix + name
            if not name or path in datasets:
                raise ValueError(f'{prefix!r:.200}: expected names that differ, got {name!r:.80}')
            link = above[-1].get(name, getlink=True)
            if isinstance(link, h5py.ExternalLink):
                remarks[path] = 'is left out: a link to another file'
                continue
            # `get` returns None for a damaged object too.
            value = above[-1][name] if isinstance(link, h5py.HardLink) else above[-1].get(name)
            if isinstance(value, h5py.Group) and value not in above:
                visit([*above, value], f'{path}/')
            elif not isinstance(value, h5py.Dataset):
                what = 'a link to nothing' if value is None else 'a link to a group above it'
                remarks[path] = f'is left out: {"a type" if isinstance(value, h5py.Datatype) else what}'
            elif value.shape is None:
                remarks[path] = 'is left out: it has no values'
            elif value.external or value.is_virtual:
                datasets[path] = ValueError(f'expected values in this file, {value.name!r} refers to others')
            else:
                datasets[path] = value

    visit([group], '')
    return datasets


def _attributes(group: h5py.Group, remarks: dict[str, str]) -> dict[str, np.ndarray]:
    """Returns attributes that are numbers or texts, as arrays; other attributes get a remark."""
    attributes = {}
    for name, value in ((name, np.asarray(value)) for name, value in group.attrs.items()):
        try:
            value = np.char.decode(value) if value.dtype.kind == 'S' else value
        except UnicodeDecodeError:
            remarks[f'@{name}'] = 'is left out: expected texts of UTF-8'
            continue
        if value.dtype.kind in 'biufSU':
            attributes[name] = value
            if remark := _remark_on_names(group.attrs.get_id(name).dtype):
                remarks[f'@{name}'] = remark
        else:
            remarks[f'@{name}'] = 'is left out: expected numbers or texts'
    return attributes
