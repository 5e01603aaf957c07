"""`bags.create_index`: writes the index of a field of keys beside it, for `dataset.find`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from bags.dataset.key_index import INDEX_SUFFIX, KeyIndex, check_key_field, dump_key_index
from bags.dataset.open import open as open_dataset
from bags.progress import progress as show_progress
from bags.storage.memory_file import MemoryFile
from bags.validation import with_advice


@with_advice
def create_index(
    path: str | os.PathLike[str],
    field: str,
    *,
    progress: bool | None = None,
    filesystem: Any = None,
    storage_options: Mapping[str, Any] | None = None,
) -> int:
    """Writes the index of a field of keys, with which `dataset.find` and `find_many` find datapoints.

    It is one file for the whole dataset, `FIELD.index`, with 16 bytes for each key, and replaces an older
    one. Readers of bags and other libraries ignore it. It is refused after datapoints were added or replaced,
    and `bags.copy` leaves it out. About 60 bytes of memory are used for each key. Several datapoints may have
    the same key.

    Args:
        path: The dataset: str, path or URL.
        field: A field of type `utf8`, `bytes`, `int` or `uint`. Missing values are not in the index.
        progress: Show a bar: True, False, or None for on terminals.
        filesystem, storage_options: As in `bags.open`.

    Returns:
        The number of datapoints in the index.

    Raises:
        FileNotFoundError: No such dataset.
        KeyError: No such field.
        TypeError: The field is a sequence, or of another type.
        ValueError: The dataset is unfinished.
        OSError: The dataset is on a web server.
        CorruptError: A record cannot be read.
    """
    with open_dataset(path, filesystem=filesystem, storage_options=storage_options) as dataset:
        check_key_field(dataset, field)
        folder = dataset.index_folder()
        folder.store.make_folder(folder.path)  # Raises for a web server before any key is read.
        if dataset.unfinished:
            detail = 'expected a finished dataset, got one that is being written, or whose writer ended early'
            raise ValueError(f'{folder.path}: {detail} (bags.recover accepts it as it is)')
        with show_progress('indexing', len(dataset), 'keys', show=progress) as advance:
            data = dump_key_index(dataset, field, advance)
        path = folder.store.join(folder.path, field + INDEX_SUFFIX)
        folder.store.replace(path, data)
        return KeyIndex(MemoryFile(path, data)).count
