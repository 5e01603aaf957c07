"""What tells that a dataset is unfinished: a mark in a folder, and files that a killed writer leaves.

A writer makes the mark before the first datapoint and removes it at `close`. So it is there while the dataset
is being written, and stays where the writer is killed or its `with` block ends by an exception. Of several
shards, the one that is being written has it, or the one that was written last. Readers of bags and of other
libraries open files by name and do not see it.
"""

from __future__ import annotations

from bags.bag.checksums import SUFFIX
from bags.dataset.metadata import METADATA, STATISTICS
from bags.dataset.shard_index import INDEX
from bags.storage import Store

__all__ = ['MARK', 'MARK_TEXT', 'SOURCE', 'is_file_of_dataset', 'is_temporary', 'remove_files']

MARK = 'unfinished'
MARK_TEXT = b'This dataset is being written, or its writer ended early: resume=True continues it.\n'
SOURCE = 'source.json'
"""Beside shards: what they are made from, see `bags.dataset.progress_log`."""


def is_temporary(name: str) -> bool:
    """Tells by its name whether a file is written to be renamed: one that is left is of a killed writer."""
    return name.endswith('.new')


def is_file_of_dataset(name: str) -> bool:
    """Tells by its name whether a file in a dataset folder is a part of the dataset."""
    files = ('spec.json', METADATA, STATISTICS, MARK, SOURCE, INDEX)
    return name in files or name.endswith(('.bag', '.bagz', '.idx', '.index', '.zdict', '.new', SUFFIX))


def remove_files(store: Store, folder: str) -> None:
    """Removes the files of a dataset folder, refs first and the mark last."""
    names = filter(is_file_of_dataset, store.names(folder))
    for name in sorted(names, key=lambda name: (name == MARK, name != 'refs.bag')):
        store.remove(store.join(folder, name))
