"""The file `source.json` beside the shards of a dataset: what it is made from, and how far that has come."""

from __future__ import annotations

import json
from typing import Any

from bags.dataset.sharded_writer import ShardedDatasetWriter
from bags.dataset.unfinished import SOURCE

__all__ = ['ProgressLog']


class ProgressLog:
    """What a dataset is made from, and the state that resuming needs besides its length.

    Args:
        writer: Writes the dataset.
        source: What it is made from, as JSON values.
        resume: Whether to read the log of an earlier run, if there was one.

    Raises:
        ValueError: The dataset is made from something else, or has datapoints without a log.
    """

    def __init__(self, writer: ShardedDatasetWriter, source: dict[str, Any], resume: bool) -> None:
        self._store = store = writer.store
        self._path = store.join(writer.directory, SOURCE)
        self._source = source
        self.state: dict[str, Any] = {}
        """JSON values, stored by `save`."""
        if resume and store.exists(self._path):
            found = json.loads(store.read(self._path))
            for name, value in source.items():
                if found.get(name) != value:
                    raise ValueError(f'{self._path}: {_difference(name, found.get(name), value)}')
            self.state = found.get('state', {})
        elif resume and len(writer):
            raise ValueError(
                f'{self._path}: is missing, so it is unknown what the {len(writer)} datapoints are made '
                'from; expected the file that an earlier run wrote'
            )
        else:
            self.save()

    def save(self) -> None:
        """Writes source and state, atomically."""
        self._store.replace(self._path, json.dumps({**self._source, 'state': self.state}).encode())


def _difference(name: str, found: Any, given: Any) -> str:
    """Returns how the source differs from that of the earlier run, and what can be done."""
    if name == 'length' and isinstance(found, int) and isinstance(given, int):
        if given < found:
            return f'resume: expected the {found:,} inputs of the earlier run, got only {given:,}'
        return (
            f'resume: expected the {found:,} inputs of the earlier run, got {given:,}. Resume with the first '
            f'{found:,} of them; write the others to a dataset of their own, and join both with bags.concat'
        )
    return f'resume: the dataset is made from something else: expected {name} {found!r}, got {given!r}'
