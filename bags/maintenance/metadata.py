"""Sets the metadata of an existing dataset."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from bags.bag.checksums import checksums_name
from bags.dataset.json_files import remove_json, write_json
from bags.dataset.metadata import METADATA, dump_metadata
from bags.dataset.spec import load_spec
from bags.maintenance.location import locate
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

    Each shard has a copy, which is replaced as a whole; readers use that of the first shard. An empty mapping
    removes the metadata.

    Args:
        path: A dataset: path or URL.
        metadata: As in `DatasetWriter`.
        filesystem, storage_options: As in `bags.open`.

    Raises:
        FileNotFoundError: No such dataset.
        ValueError: The path is a single bag, or metadata is invalid, or of fields that do not exist.
        TypeError: Not a mapping, or values that JSON cannot hold.
    """
    location = locate(path, filesystem, storage_options)
    if location.type == 'bags':
        raise ValueError(f'{location.path}: expected a dataset, got a bag')
    store = location.store
    spec = store.join(location.parts[0], 'spec.json')
    data = dump_metadata(metadata, load_spec(store.read(spec), spec))
    for folder in location.parts:
        file = store.join(folder, METADATA)
        if metadata:
            write_json(store, file, data, store.exists(store.join(folder, checksums_name('refs.bag'))))
        else:
            remove_json(store, file)
            store.sync_folder(folder)
