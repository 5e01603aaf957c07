"""The formats that an import reads, the names of their files, and the packages that they need."""

from __future__ import annotations

from typing import NamedTuple


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


FORMATS: dict[str, Format] = {
    'mds': Format('mds', ('*.mds', '*.mds.*'), marker='index.json', is_joined=True),
    'litdata': Format('litdata', ('*.bin',), marker='index.json'),
    'tfrecord': Format(
        'tfrecord',
        ('*.tfrecord*', '*.tfrec'),
        ('google_crc32c',),
        'tfrecord',
        beside=('features.json', 'dataset_info.json', '*.labels.txt'),
    ),
    'array_record': Format(
        'array_record',
        ('*.array_record*', '*.arrayrecord*'),
        ('array_record',),
        'array-record',
        beside=('features.json', 'dataset_info.json', '*.labels.txt'),
    ),
    'bagz': Format('bagz', ('*.bagz', '*.bag'), beside=('limits.*',)),
    'lerobot': Format(
        'lerobot',
        ('*.parquet',),
        ('av', 'pyarrow'),
        'lerobot',
        'meta/info.json',
        beside=('meta/*', 'data/*', 'videos/*', 'images/*'),
    ),
    'hdf5': Format('hdf5', ('*.hdf5', '*.h5', '*.hdf'), ('h5py',), 'hdf5', has_arrays=True),
    'zarr': Format('zarr', ('*.zarr', '*.zarr.zip'), ('zarr',), 'zarr', has_arrays=True),
    'npz': Format('npz', ('*.npz',), has_arrays=True),
    'parquet': Format(
        'arrow', ('*.parquet', '*.parq', '*.pq'), ('pyarrow',), 'hf', beside=('dataset_infos.json',)
    ),
    'arrow': Format(
        'arrow',
        ('*.arrow', '*.feather', '*.ipc'),
        ('pyarrow',),
        'hf',
        reads=('state.json',),
        beside=('dataset_info.json', 'dataset_dict.json'),
    ),
    'mcap': Format(
        'mcap',
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
