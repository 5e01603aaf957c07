"""The formats that an import reads, built in or of other installed packages, and the names of their files."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple, Protocol

from bags.dataset.format.plug_ins import Added, find_all, find_one
from bags.interop.ignored_files import matches
from bags.interop.source import Source
from bags.validation import import_optional

GROUP = 'bags.sources'
"""Entry points of other packages: the name of a format, and an `Importer`."""


class Importer(Protocol):
    """Reads a format of files: a module or an object that an entry point in the group `bags.sources` names.

    `files` and `open_source` suffice. An importer may also have these attributes, which the built-in formats
    have too:

    - `marker`: Path of a file that identifies a folder of this format, relative to the folder, such as
      `'meta/info.json'`. A folder counts if it has the marker, and also a file of the format in it or below.
      `open_source` gets the path of the folder. Default: None.
    - `needs_marker`: Whether files are of this format only in a folder with the marker. Default: True.
    - `is_joined`: Whether several folders with the marker are one source. Default: False, which raises.
    - `reads`: Patterns of other files whose paths `open_source` gets too. Default: `()`.
    - `beside`: Patterns of other files that belong to the format, and are not reported as left out.
      Default: `()`.
    - `layouts`: Names of the layouts of a folder that `layout=` of `bags.convert` selects. `open_source` then
      takes a keyword `layout`, which is None by default. Default: `()`.
    - `options`: Names of further keywords that `open_source` takes: `'root'`, the folder that the keys of
      datapoints are relative to, and `'left_out'`, the fields that the import leaves out, which need not be
      readable. Default: `()`.

    Patterns are in lower case, and match the name of a file without its folder, or its path in a folder with
    the marker.
    """

    @property
    def files(self) -> Collection[str]:
        """Patterns of the names of its files, in lower case: `('*.xyz',)`."""
        ...

    def open_source(self, paths: list[str], storage_options: Mapping[str, Any] | None, /) -> Source:
        """Returns the datapoints of files, without reading their values.

        Args:
            paths: Files, or folders with the marker: paths or URLs, which `bags.interop.records.open_file`
                opens.
            storage_options: Options of the object store, for URLs.

        Raises:
            ValueError: A file is damaged.
        """
        ...


class Format(NamedTuple):
    """A format: its name, its importer, and what the importer declares. See `Importer`."""

    name: str
    importer: str | Importer
    """An importer, or the name of a module in `bags.interop.sources`, which is imported on first use."""
    files: tuple[str, ...]
    packages: tuple[str, ...] = ()
    """Packages that a built-in importer needs."""
    extra: str = ''
    """The extra of bags that installs these packages."""
    marker: str | None = None
    needs_marker: bool = True
    is_by_content: bool = False
    """Whether the first bytes of a file identify the format, or the user: names such as `*.bin` do not."""
    is_joined: bool = False
    reads: tuple[str, ...] = ()
    beside: tuple[str, ...] = ()
    layouts: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    package: str = ''
    """The package that added the format, as pip names it. Empty for a built-in format."""

    @property
    def is_by_name(self) -> bool:
        """Whether the name of a file alone may identify the format."""
        return not (self.is_by_content or (self.marker and self.needs_marker))

    def open_source(
        self, paths: list[str], storage_options: Mapping[str, Any] | None, /, **keywords: Any
    ) -> Source:
        """Opens files with the importer.

        Args:
            paths: As in `Importer.open_source`.
            storage_options: As in `Importer.open_source`.
            **keywords: Values of `root`, `left_out`, `tokens`, `manifest` and `layout`; the importer gets
                those that it takes.

        Raises:
            MissingDependencyError: A package that the importer needs is not installed.
        """
        importer: Any = self.importer
        if isinstance(importer, str):
            for package in self.packages:
                import_optional(package, self.extra)
            importer = importlib.import_module(f'bags.interop.sources.{importer}')
        taken = (*self.options, *(('layout',) if self.layouts else ()))
        source: Source = importer.open_source(paths, storage_options, **{key: keywords[key] for key in taken})
        return source


_BUILT_IN = (
    Format('mds', 'chunks.mds', ('*.mds', '*.mds.*'), marker='index.json', is_joined=True),
    Format('litdata', 'chunks.litdata', ('*.bin',), marker='index.json'),
    Format(
        'tfrecord',
        'tfrecord.tfrecord',
        ('*.tfrecord*', '*.tfrec'),
        ('google_crc32c',),
        'tfrecord',
        beside=('features.json', 'dataset_info.json', '*.labels.txt'),
    ),
    Format(
        'array_record',
        'tfrecord.array_record',
        ('*.array_record*', '*.arrayrecord*'),
        ('array_record',),
        'array-record',
        beside=('features.json', 'dataset_info.json', '*.labels.txt'),
    ),
    Format('bagz', 'bagz', ('*.bagz', '*.bag'), beside=('limits.*',)),
    Format(
        'lerobot',
        'lerobot.lerobot',
        ('*.parquet',),
        ('av', 'pyarrow'),
        'lerobot',
        marker='meta/info.json',
        beside=('meta/*', 'data/*', 'videos/*', 'images/*'),
    ),
    Format('hdf5', 'arrays.hdf5', ('*.hdf5', '*.h5', '*.hdf'), ('h5py',), 'hdf5', options=('left_out',)),
    Format('zarr', 'arrays.zarr', ('*.zarr', '*.zarr.zip'), ('zarr',), 'zarr', options=('left_out',)),
    Format('npz', 'arrays.npz', ('*.npz',), options=('left_out',)),
    Format(
        'parquet',
        'tables.arrow',
        ('*.parquet', '*.parq', '*.pq'),
        ('pyarrow',),
        'hf',
        beside=('dataset_infos.json',),
    ),
    Format(
        'arrow',
        'tables.arrow',
        ('*.arrow', '*.feather', '*.ipc'),
        ('pyarrow',),
        'hf',
        reads=('state.json',),
        beside=('dataset_info.json', 'dataset_dict.json'),
    ),
    Format('csv', 'tables.arrow', ('*.csv', '*.tsv', '*.csv.gz', '*.tsv.gz'), ('pyarrow',), 'hf'),
    Format('jsonl', 'tables.arrow', ('*.jsonl', '*.ndjson', '*.jsonl.gz', '*.ndjson.gz'), ('pyarrow',), 'hf'),
    Format('textgrid', 'transcripts.transcripts', ('*.textgrid',), options=('root',)),
    Format('ctm', 'transcripts.transcripts', ('*.ctm',), options=('root',)),
    Format('subtitles', 'transcripts.transcripts', ('*.srt', '*.vtt'), options=('root',)),
    Format(
        'nemo',
        'manifests.nemo',
        ('*.json', '*.jsonl', '*.ndjson', '*.json.gz', '*.jsonl.gz', '*.ndjson.gz'),
        ('pyarrow',),
        'hf',
        is_by_content=True,
        options=('manifest',),
    ),
    Format(
        'lhotse', 'manifests.lhotse', ('*.jsonl', '*.jsonl.gz'), is_by_content=True, options=('manifest',)
    ),
    Format('megatron', 'tokens.megatron', ('*.bin', '*.idx'), is_by_content=True, options=('tokens',)),
    Format('tokens', 'tokens.plain_files', ('*.bin', '*.npy'), is_by_content=True, options=('tokens',)),
    Format(
        'mcap',
        'mcap.mcap',
        ('*.mcap', '*.db3', '*.bag', '*.mcap.zstd', '*.db3.zstd'),
        ('rosbags',),
        'mcap',
        marker='metadata.yaml',
        needs_marker=False,
        is_joined=True,
    ),
)
FORMATS = {format.name: format for format in _BUILT_IN}
"""The built-in formats by name, in the order in which they are tried."""

OPTIONS = {'root', 'left_out'}
"""What `Importer.options` may name. Built-in importers also take `tokens` or `manifest`."""
SPLITS = ('train', 'training', 'test', 'testing', 'validation', 'valid', 'val', 'dev', 'eval', 'evaluation')
"""Names of the splits of a dataset."""


def find_format(name: str) -> Format | None:
    """Returns a format of this library or of another installed package; None if there is none of this name.

    Raises:
        ValueError: A package has the format, but cannot be used, or two packages have it.
    """
    if name in FORMATS:
        return FORMATS[name]
    added = find_one(GROUP, name)
    return None if added is None else _format_of(added)


def installed_formats() -> list[Format]:
    """Returns the formats of other installed packages, by name. Those that cannot be used raise a warning."""
    formats: list[Format] = []
    for added in find_all(GROUP):
        try:
            formats.append(_format_of(added.load()))
        except ValueError as exc:
            warnings.warn(f'entry point of {GROUP}: {exc}', RuntimeWarning, stacklevel=2)
    return formats


def format_of_extension(extension: str) -> str | None:
    """Returns the first format, built-in or of an installed package, of files with an extension alone."""
    for formats in (FORMATS.values, installed_formats):
        for format in formats():
            if format.is_by_name and matches(f'_.{extension}', format.files):
                return format.name
    return None


def _format_of(added: Added) -> Format:
    """Reads what an importer declares.

    Raises:
        ValueError: It has no `files` or `open_source`, or an attribute of another type than `Importer` says.
    """
    importer, where = added.value, f'of {added.name!r} in the package {added.package}'
    if not hasattr(importer, 'files') or not callable(getattr(importer, 'open_source', None)):
        raise ValueError(f'expected files and open_source {where}, got {importer!r:.80}')
    texts = {key: getattr(importer, key, ()) for key in ('files', 'reads', 'beside', 'layouts', 'options')}
    for key, value in texts.items():
        if isinstance(value, str) or not isinstance(value, Collection) or not all(map(_is_text, value)):
            raise ValueError(f'expected {key} {where} to be a tuple of str, got {value!r:.80}')
    marker = getattr(importer, 'marker', None)
    if marker is not None and not _is_text(marker):
        raise ValueError(f'expected marker {where} to be the path of a file, got {marker!r:.80}')
    if unknown := set(texts['options']) - OPTIONS:
        raise ValueError(f'expected options {where} among {sorted(OPTIONS)}, got {sorted(unknown)}')
    return Format(
        added.name,
        importer,
        marker=marker,
        needs_marker=bool(getattr(importer, 'needs_marker', True)),
        is_joined=bool(getattr(importer, 'is_joined', False)),
        package=added.package,
        files=tuple(texts['files']),
        reads=tuple(texts['reads']),
        beside=tuple(texts['beside']),
        layouts=tuple(texts['layouts']),
        options=tuple(texts['options']),
    )


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and value != ''
