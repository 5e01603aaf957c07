"""Opening a dataset, whatever its form."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

from bags.bag.files import store_for
from bags.dataset import Rows
from bags.reader import DatasetReader
from bags.sharded_reader import ShardedDatasetReader
from bags.views import join

__all__ = ['open']


def open(
    directory: str | os.PathLike[str] | Iterable[str | os.PathLike[str]], *args: Any, **keywords: Any
) -> Rows:
    """Opens a dataset: a folder with a spec.json, or one of shard folders.

    Args:
        directory: The folder, or several: these are joined, later ones adding fields or replacing those of
            earlier ones, as `bags.join([...], replace=True)` does.
        *args, **keywords: As in `DatasetReader` or `ShardedDatasetReader`.

    Raises:
        FileNotFoundError: No such folder, or no dataset in it.
        SpecError, CorruptError: As the readers.
    """
    if not isinstance(directory, str | os.PathLike):
        return join([open(part, *args, **keywords) for part in directory], replace=True)
    store, path = store_for(directory, keywords.get('filesystem'), keywords.get('storage_options'))
    single = store.exists(store.join(path, 'spec.json'))
    kind = DatasetReader if single else ShardedDatasetReader
    return kind(directory, *args, **keywords)
