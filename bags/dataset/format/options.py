"""Options of `bags.open`, of the readers and writers of datasets, and of the functions that write them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, Unpack

from bags.bag.options import (
    GiB,
    LimitsStorage,
    ReaderOptions,
    ReadingKeywords,
    WriterOptions,
    WritingKeywords,
)
from bags.dataset.format.folder_layout import Decoders
from bags.formats.scalars import MAX_VALUE_SIZE
from bags.links.files import options_by_prefix
from bags.links.open import first_url
from bags.links.permission import PermittedPaths, permitted_paths
from bags.storage import Store, plain_path, store_for
from bags.validation import (
    Option,
    Options,
    boolean,
    made_from,
    merge,
    one_of,
    positive,
    positive_or_none,
    unchecked,
)

SHARD_SIZE = 10 * GiB
"""Bytes at which a shard is full, by default."""

MAX_ID_LENGTH = 200

Compression = Iterable[str] | Mapping[str, Any] | None
"""Names of fields, or a mapping of names to a zstd level, 'dictionary', or `('dictionary', level)`."""


# Reading.


class ReadOptions(ReadingKeywords, total=False):
    """Options of `bags.open` and the readers of datasets."""

    raw: Annotated[bool, Option(False, boolean)]
    """Return undecoded records, as buffers that may alias the files, instead of values."""
    max_value_size: Annotated[int, Option(MAX_VALUE_SIZE, positive)]
    """Maximum bytes of a record that is read as a whole, and of a decoded image, video, recording or tree.
    Default: 1 GiB. SECURITY.md lists the types."""

    trust_links: Annotated[PermittedPaths, Option((), permitted_paths)]
    """Paths of files and folders that links may reach, besides the dataset itself and bags of the datasets
    beside it, or True for all. Default: no paths, as a dataset must not make its reader open other files."""


class OpenOptions(ReadOptions, total=False):
    """Options of `bags.open` as keywords, for functions that open a dataset."""

    decoders: Mapping[str, Callable[..., Any]] | None
    cache_index: bool
    shard_start: int
    shard_step: int


@made_from(ReadOptions)
class FolderOptions(ReaderOptions):
    """Options of the readers of bags, and options for datasets only."""

    if TYPE_CHECKING:

        def __init__(self, *positional: Any, **keywords: Unpack[ReadOptions]) -> None: ...


class DatasetPath(NamedTuple):
    """The location of a dataset, and the options for reading it."""

    store: Store
    path: str
    """Its path in the store."""
    options: FolderOptions
    decoders: Decoders


def dataset_path(
    path: str | os.PathLike[str],
    decoders: Mapping[str, Callable[..., Any]] | None,
    cache_index: bool,
    options: ReadOptions,
    function: Callable[..., Any],
) -> DatasetPath:
    """Returns the location of a dataset, and the options for reading it.

    Args:
        path, decoders, cache_index: As in `bags.open`.
        options: Options by name.
        function: Name of the function with these options, for errors.

    Raises:
        TypeError: An option does not exist for datasets.
        ValueError: An option of the cache is set without a cache.
    """
    made = merge(FolderOptions, None, options, ReadOptions.__annotations__, function)
    for name in ('cache_size', 'cache_check'):
        if name in options and made.cache is None:
            raise ValueError(f'{name}: has no effect without cache')
    try:
        store, path = store_for(
            path, made.filesystem, made.storage_options, made.cache, made.cache_size, made.cache_check
        )
    except ValueError as exc:
        linked = first_url(os.fspath(plain_path(path))) if made.storage_options else None
        if linked is None:
            raise
        raise ValueError(f'{exc}; {options_by_prefix(linked)}') from None
    if store.is_remote:
        path = store.pinned(path)
    is_local = not store.is_remote or made.cache is not None
    if cache_index and not (is_local and made.mapped):
        made.limits_storage = LimitsStorage.IN_MEMORY
    return DatasetPath(store, path, made, Decoders(decoders, made.raw, made.max_value_size))


# Writing.


def _mode(name: str, value: Any) -> str:
    one_of(name, value, ('create', 'overwrite'))
    return str(value)


def _id(name: str, value: Any) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str):
        raise TypeError(f'{name}: expected a text, got {value!r:.80}')
    if not 0 < len(value) <= MAX_ID_LENGTH or not value.isprintable():
        raise ValueError(f'{name}: expected 1 to {MAX_ID_LENGTH} printable characters, got {value!r:.80}')
    return value


def _field_names(name: str, value: Any) -> frozenset[str]:
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise TypeError(f'{name}: expected names of fields, got {value!r:.80}')
    return frozenset(value)


class DatasetWriteOptions(WritingKeywords, total=False):
    """Options of the writers of datasets, of one folder or of many."""

    compression: Annotated[Compression, Option(None, unchecked)]
    """Fields to compress with zstd, or a mapping of fields to levels, to 'dictionary' or to
    `('dictionary', level)`. A dictionary is trained on the first records and saved as `FIELD.zdict`; it makes
    many small, similar records much smaller. None compresses none; `bags.copy` keeps the compression of its
    source."""
    resume: Annotated[bool, Option(False, boolean)]
    """Append to the dataset in the folder, whether it was closed or not; functions resume an earlier run
    with the same inputs. The folder may also be new."""
    mode: Annotated[Literal['create', 'overwrite'], Option('create', _mode)]
    """'create', or 'overwrite' to replace the dataset in a local folder: the new one is written beside it and
    moved into place when it is complete. After an exception, the old one stays."""
    metadata: Annotated[Mapping[str, Any] | None, Option(None, unchecked)]
    """JSON values by name, which readers return as `metadata`; facts of fields are under `'fields'`. With
    `resume`, it replaces the metadata of the folder, or of all shards. None keeps the stored metadata;
    `bags.copy` and `bags.convert` keep the metadata of their source."""
    id: Annotated[str | None, Option(None, _id)]
    """The id of the dataset, from which its fingerprint is computed: a text of up to 200 characters. Equal
    datapoints with the same id give equal files. None: a random id, which changes with each change."""
    linked_fields: Annotated[Iterable[str], Option(frozenset(), _field_names)]
    """The fields whose values may be `bags.Link`: records that stay in other files. Default: none. Fixed
    when the dataset is created, and kept by `resume`. `dataset.save` and `bags.convert` have `link` instead;
    `from_numpy` has neither option."""


class WriteOptions(DatasetWriteOptions, total=False):
    """Options of the functions that write datasets, which consist of many folders (shards)."""

    shard_size: Annotated[int | None, Option(SHARD_SIZE, positive_or_none)]
    """Bytes at which a shard is full; None for no limit. Default: 10 GiB."""
    shard_length: Annotated[int | None, Option(None, positive_or_none)]
    """Datapoints at which a shard is full. Default: None, no limit."""


@made_from(WriteOptions)
class WriterSettings(Options):
    """Options of writers, checked and with defaults."""

    if TYPE_CHECKING:

        def __init__(self, **keywords: Unpack[WriteOptions]) -> None: ...

    @property
    def storage(self) -> dict[str, Any]:
        """The options that select the store of a path."""
        return {'filesystem': self.filesystem, 'storage_options': self.storage_options}

    def refuse_links(self, detail: str) -> None:
        """Raises ValueError for `linked_fields`, in functions whose values cannot be `bags.Link`."""
        if self.linked_fields:
            given = ', '.join(sorted(self.linked_fields))
            raise ValueError(f'linked_fields: expected no fields, got {given}: {detail}')

    def is_full(self, size: int, length: int) -> bool:
        """Returns whether a shard with these bytes and datapoints is full."""
        return (self.shard_size is not None and size >= self.shard_size) or (
            self.shard_length is not None and length >= self.shard_length
        )

    def of_bags(self, **changes: Any) -> WriterOptions:
        """Returns the options of the bags of a dataset."""
        return WriterOptions(**{name: vars(self)[name] for name in WritingKeywords.__annotations__} | changes)

    def of_shard(self, **changes: Any) -> DatasetWriteOptions:
        """Returns the options of the writer of a shard."""
        options: Any = {name: vars(self)[name] for name in DatasetWriteOptions.__annotations__} | changes
        return options  # type: ignore[no-any-return]
