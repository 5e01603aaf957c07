"""What a dataset is made from: kept beside its shards, so that making it can be gone on with."""

from __future__ import annotations

import json
from typing import Any

from bags.dataset.sharded_writer import ShardedDatasetWriter
from bags.storage import Store

__all__ = ['Provenance', 'note_source']

NAME = 'source.json'


class Provenance:
    """The file `source.json` of a dataset: what it is made from, and what of that it leaves out.

    Args:
        store, directory: The dataset.
        source: What it is made from, as JSON holds it.
    """

    def __init__(self, store: Store, directory: str, source: dict[str, Any]) -> None:
        self._store = store
        self._path = store.join(directory, NAME)
        self._source = source
        self.state: dict[str, Any] = {}
        """What else there is to know, as JSON holds it."""

    def resume(self, length: int) -> None:
        """Goes on with a dataset of so many datapoints.

        Raises:
            ValueError: It is made from something else, or nobody knows what from.
        """
        if not self._store.exists(self._path):
            if length:
                raise ValueError(
                    f'{self._path}: is missing, so nobody knows how far {length} datapoints have come; '
                    f'expected what an earlier run of this left'
                )
            self.save()
            return
        found = json.loads(self._store.read(self._path))
        for name, value in self._source.items():
            if found.get(name) != value:
                raise ValueError(f'{self._path}: {_difference(name, found.get(name), value)}')
        self.state = found.get('state', {})

    def save(self) -> None:
        """Makes the state last."""
        self._store.replace(self._path, json.dumps({**self._source, 'state': self.state}).encode())


def note_source(writer: ShardedDatasetWriter, source: dict[str, Any], resume: bool) -> Provenance:
    """Notes what a dataset is made from; when it is gone on with, looks whether it is that.

    Raises:
        ValueError: As `Provenance.resume`.
    """
    provenance = Provenance(writer.store, writer.directory, source)
    if resume:
        provenance.resume(len(writer))
    else:
        provenance.save()
    return provenance


def _difference(name: str, there: Any, given: Any) -> str:
    """Returns in what a dataset is made from something else, and what can be done."""
    if name == 'length' and isinstance(there, int) and isinstance(given, int):
        if given < there:
            return (
                f'resume: expected the {there:,} inputs that the dataset was begun with, got only {given:,}'
            )
        return (
            f'resume: the inputs have grown: expected the {there:,} that the dataset was begun with, got '
            f'{given:,}. Go on with the first {there:,} of them; write the others to a dataset of their own, '
            f'which bags.concat puts behind this one'
        )
    return f'resume: the dataset is made from something else: expected {name} {there!r}, got {given!r}'
