"""The file `unfinished`, the mark of a dataset that is being written.

A writer creates the mark before the first datapoint and removes it at `close`. It exists while the dataset is
being written, and remains if the writer is killed or its `with` block ends with an exception. It is also the
journal of the bags in a folder (`bags.bag.journal`). Readers of bags and other libraries open files by name
and ignore it.

A sharded dataset has a mark beside its shards from before the first new shard until its writer is closed, and
another one in the shard that is being written. Each of several parallel writers has its own.
"""

from __future__ import annotations

from bags.storage import Store

__all__ = ['MARK', 'TEXT', 'is_mark', 'is_marked', 'mark_name']

MARK = 'unfinished'
TEXT = b'This dataset is being written, or its writer ended early: resume=True continues it.\n'


def mark_name(shard_start: int, shard_step: int) -> str:
    """Returns the name of the mark beside the shards of a writer."""
    return MARK if shard_step == 1 else f'{MARK}-{shard_start}-{shard_step}'


def is_mark(name: str) -> bool:
    """Returns whether a file, by its name, is the mark of a folder or of a sharded writer."""
    return name == MARK or name.startswith(f'{MARK}-')


def is_marked(store: Store, directory: str) -> bool:
    """Returns whether a sharded dataset has a mark beside its shards."""
    if store.can_list:
        return any(map(is_mark, store.names(directory)))
    return store.exists(store.join(directory, MARK))
