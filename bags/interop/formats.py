"""The formats that an import reads, the names of their files, and the packages that they need."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple, Protocol

from bags.dataset.format.entry_points import Added, find_added, names_of_added
from bags.interop.extensions import split_name, type_of
from bags.interop.ignored_files import is_beside, is_hidden, matches
from bags.interop.source import Source
from bags.validation import import_optional

GROUP = 'bags.sources'
"""Entry points of other packages: the name of a format, and an `Importer`."""


class Importer(Protocol):
    """What reads a format: one of `FORMATS`, or a module or object that is an entry point `bags.sources`."""

    @property
    def files(self) -> Collection[str]:
        """Patterns of the names of its files, in lower case: `('*.xyz',)`."""
        ...

    def open_source(self, paths: list[str], storage_options: Mapping[str, Any] | None, /) -> Source:
        """Returns the datapoints of files, without reading their values.

        Args:
            paths: Files: paths or URLs, which `bags.interop.records.open_file` opens.
            storage_options: Options of the object store, for URLs.

        Raises:
            ValueError: A file is damaged.
        """
        ...


class Format(NamedTuple):
    """A format, and the library that reads it."""

    module: str
    """The module in `bags.interop.sources`. Its `open_source(paths, storage_options)` opens files, or a
    folder with the marker."""
    files: tuple[str, ...]
    """Patterns of file names, in lower case."""
    packages: tuple[str, ...] = ()
    extra: str = ''
    """The extra that installs the packages."""
    marker: str | None = None
    """Path of the file that identifies a folder of this format, with a file of the format in it."""
    reads: tuple[str, ...] = ()
    """Patterns of other files that the module gets."""
    beside: tuple[str, ...] = ()
    """Patterns of other files that belong to the format: the module reads them itself, or needs them not."""
    is_joined: bool = False
    """Whether several folders with the marker are one source."""
    has_arrays: bool = False
    """Whether `open_source` takes `left_out` too: fields whose arrays need not be readable."""
    has_keys: bool = False
    """Whether `open_source` takes `root` too: the folder that the keys of datapoints are relative to."""

    def open_source(
        self, paths: list[str], storage_options: Mapping[str, Any] | None, /, **options: Any
    ) -> Source:
        """Opens files with the module, as `Importer.open_source`.

        Raises:
            MissingDependencyError: A package that the module needs is not installed.
        """
        for package in self.packages:
            import_optional(package, self.extra)
        module = importlib.import_module(f'bags.interop.sources.{self.module}')
        source: Source = module.open_source(paths, storage_options, **options)
        return source


FORMATS: dict[str, Format] = {
    'mds': Format('chunks.mds', ('*.mds', '*.mds.*'), marker='index.json', is_joined=True),
    'litdata': Format('chunks.litdata', ('*.bin',), marker='index.json'),
    'tfrecord': Format(
        'tfrecord.tfrecord',
        ('*.tfrecord*', '*.tfrec'),
        ('google_crc32c',),
        'tfrecord',
        beside=('features.json', 'dataset_info.json', '*.labels.txt'),
    ),
    'array_record': Format(
        'tfrecord.array_record',
        ('*.array_record*', '*.arrayrecord*'),
        ('array_record',),
        'array-record',
        beside=('features.json', 'dataset_info.json', '*.labels.txt'),
    ),
    'bagz': Format('bagz', ('*.bagz', '*.bag'), beside=('limits.*',)),
    'lerobot': Format(
        'lerobot.lerobot',
        ('*.parquet',),
        ('av', 'pyarrow'),
        'lerobot',
        'meta/info.json',
        beside=('meta/*', 'data/*', 'videos/*', 'images/*'),
    ),
    'hdf5': Format('arrays.hdf5', ('*.hdf5', '*.h5', '*.hdf'), ('h5py',), 'hdf5', has_arrays=True),
    'zarr': Format('arrays.zarr', ('*.zarr', '*.zarr.zip'), ('zarr',), 'zarr', has_arrays=True),
    'npz': Format('arrays.npz', ('*.npz',), has_arrays=True),
    'parquet': Format(
        'tables.arrow', ('*.parquet', '*.parq', '*.pq'), ('pyarrow',), 'hf', beside=('dataset_infos.json',)
    ),
    'arrow': Format(
        'tables.arrow',
        ('*.arrow', '*.feather', '*.ipc'),
        ('pyarrow',),
        'hf',
        reads=('state.json',),
        beside=('dataset_info.json', 'dataset_dict.json'),
    ),
    'csv': Format('tables.arrow', ('*.csv', '*.tsv', '*.csv.gz', '*.tsv.gz'), ('pyarrow',), 'hf'),
    'jsonl': Format('tables.arrow', ('*.jsonl', '*.ndjson', '*.jsonl.gz', '*.ndjson.gz'), ('pyarrow',), 'hf'),
    'textgrid': Format('transcripts.transcripts', ('*.textgrid',), has_keys=True),
    'ctm': Format('transcripts.transcripts', ('*.ctm',), has_keys=True),
    'subtitles': Format('transcripts.transcripts', ('*.srt', '*.vtt'), has_keys=True),
    'mcap': Format(
        'mcap.mcap',
        ('*.mcap', '*.db3', '*.bag', '*.mcap.zstd', '*.db3.zstd'),
        ('rosbags',),
        'mcap',
        'metadata.yaml',
        is_joined=True,
    ),
}
"""Formats by name, in the order in which they are tried."""

SPLITS = ('train', 'training', 'test', 'testing', 'validation', 'valid', 'val', 'dev', 'eval', 'evaluation')
"""Names of the splits of a dataset."""


def find_importer(format: str) -> Importer | None:
    """Returns what reads a format, of this library or of another installed package; None if there is none.

    Raises:
        ValueError: A package has the format, but cannot be used.
    """
    if format in FORMATS:
        return FORMATS[format]
    added = find_added(GROUP, format)
    return None if added is None else _importer_of(added)


def has_unknown(names: Iterable[str]) -> bool:
    """Returns whether this library has no type for a file, by its name, and it does not describe others."""
    return any(type_of(split_name(name)[1]) == 'bytes' and not is_beside(name) for name in names)


def importer_for(names: Iterable[str]) -> tuple[Importer, list[str], list[str]] | None:
    """Finds what reads files that this library does not know, among other installed packages.

    Args:
        names: Paths of files whose names match no built-in format.

    Returns:
        The importer, its files, and the files beside them that describe them. None if a file is neither, or
        if this library has a type for all of them.
    """
    names = [name for name in names if not is_hidden(name)]
    if not has_unknown(names):
        return None
    own, beside = list[str](), list[str]()
    for name in names:
        (beside if is_beside(name) else own).append(name)
    for name in names_of_added(GROUP):
        try:
            importer = find_importer(name)
        except ValueError as exc:
            warnings.warn(f'entry point of {GROUP}: {exc}', RuntimeWarning, stacklevel=2)
            continue
        if importer is not None and all(matches(each, tuple(importer.files)) for each in own):
            return importer, own, beside
    return None


def _importer_of(added: Added) -> Importer:
    if not hasattr(added.value, 'files') or not callable(getattr(added.value, 'open_source', None)):
        detail = f'expected files and open_source of {added.name!r} in the package {added.package}'
        raise ValueError(f'{detail}, got {added.value!r:.80}')
    importer: Importer = added.value
    return importer
