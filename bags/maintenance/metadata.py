"""Sets the metadata of an existing dataset."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from typing import Any

from bags.bag.checksums import checksums_name
from bags.concurrency import map_concurrently
from bags.dataset.format.json_files import remove_json, write_json
from bags.dataset.format.metadata import (
    METADATA,
    dump_metadata,
    in_order,
    keep_packages,
    read_metadata,
    with_order,
)
from bags.dataset.format.spec import load_spec
from bags.errors import CorruptError
from bags.maintenance.location import a_file, locate
from bags.validation import with_advice


@with_advice
def set_metadata(
    path: str | os.PathLike[str],
    metadata: Mapping[str, Any],
    *,
    filesystem: Any = None,
    storage_options: Mapping[str, Any] | None = None,
) -> None:
    """Replaces the metadata of a dataset, without rewriting data.

    Each shard has a copy of the metadata, which is replaced as a whole; readers use the copy of the first
    shard. An empty mapping removes the metadata. The names of the packages that define field types, which
    writers store, are kept.

    Args:
        path: A dataset: path or URL.
        metadata: As in `DatasetWriter`.
        filesystem, storage_options: As in `bags.open`.

    Raises:
        FileNotFoundError: The dataset does not exist.
        ValueError: The path is a single bag, or the metadata are invalid, or name fields that do not exist.
        TypeError: The metadata are not a mapping, or have values that JSON cannot represent.
        OSError: On an object store, another process has replaced the metadata of the dataset or of a shard
            meanwhile.

    Examples:
        >>> bags.set_metadata('episodes', {**dataset.metadata, 'licence': 'CC0 1.0'})
        >>> bags.open('episodes').metadata['licence']
        'CC0 1.0'
    """
    location = locate(path, filesystem, storage_options)
    if location.type == 'bags':
        raise ValueError(f'{location.path}: expected a dataset, got {a_file(location)}')
    store = location.store
    spec = store.join(location.parts[0], 'spec.json')
    schema = load_spec(store.read(spec), spec)
    data = dump_metadata(metadata, schema)
    files = [store.join(folder, METADATA) for folder in location.parts]
    versions = map_concurrently(store.current_version, files, store.is_remote)
    with contextlib.suppress(CorruptError):  # Damaged metadata is replaced.
        folder = location.parts[0]
        checksum = checksums_name(METADATA)
        names = {checksum} if store.exists(store.join(folder, checksum)) else ()
        before = read_metadata(store, folder, names)
        metadata = with_order(keep_packages(metadata, before, schema), in_order(schema, before))
        data = dump_metadata(metadata, schema)
    for folder, file, version in zip(location.parts, files, versions, strict=True):
        if metadata:
            has_checksums = store.exists(store.join(folder, checksums_name('refs.bag')))
            write_json(store, file, data, has_checksums, version)
        else:
            remove_json(store, file, version)
            store.sync_folder(folder)
