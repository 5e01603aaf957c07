"""The file `source.json` beside the shards of a dataset: what it is made from, and how far that has come."""

from __future__ import annotations

import json
from typing import Any

from bags.dataset.sharded_writer import ShardedDatasetWriter
from bags.storage import Store

__all__ = ['ProgressLog', 'open_progress_log']

NAME = 'source.json'


class ProgressLog:
    """What a dataset is made from, and the state that resuming needs besides its length.

    Args:
        store, directory: The dataset.
        source: What it is made from, as JSON values.
        resumed: Datapoints that the dataset has, to read what the run that wrote them saved; None to start
            the log anew.

    Raises:
        ValueError: The dataset is made from something else, or has datapoints without a log.
    """

    def __init__(
        self, store: Store, directory: str, source: dict[str, Any], resumed: int | None = None
    ) -> None:
        self._store = store
        self._path = store.join(directory, NAME)
        self._source = source
        self.state: dict[str, Any] = {}
        """JSON values, stored by `save`."""
        if resumed is not None and store.exists(self._path):
            found = json.loads(store.read(self._path))
            for name, value in source.items():
                if found.get(name) != value:
                    raise ValueError(f'{self._path}: {_difference(name, found.get(name), value)}')
            self.state = found.get('state', {})
        elif resumed:
            raise ValueError(
                f'{self._path}: is missing, so it is unknown what the {resumed} datapoints are made from; '
                f'expected the file that an earlier run wrote'
            )
        else:
            self.save()

    def save(self) -> None:
        """Writes source and state, atomically."""
        self._store.replace(self._path, json.dumps({**self._source, 'state': self.state}).encode())


def open_progress_log(writer: ShardedDatasetWriter, source: dict[str, Any], resume: bool) -> ProgressLog:
    """Returns the log of the dataset that is written, of an earlier run if that is resumed."""
    return ProgressLog(writer.store, writer.directory, source, len(writer) if resume else None)


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
