"""The progress log of a dataset made from a source: the source, and how much of it was processed."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from bags.dataset.format.file_names import EARLIER_PROGRESS, PROGRESS
from bags.dataset.format.json_files import check_json, write_json
from bags.dataset.writing.sharded_writer import ShardedDatasetWriter
from bags.storage import Store

_Skipped = TypeVar('_Skipped', bound=Sequence[Any])

MAX_LOG_BYTES = 1 << 30
"""Maximum bytes of a log: it lists the inputs that were skipped."""
SOURCE_CHANGED = (
    'resume: the source is another one, or has changed since the earlier run: datapoints of both would be '
    'mixed (check_source=False resumes anyway, mode="overwrite" begins again)'
)


class ProgressLog:
    """The source of a dataset and, besides its length, the state for resuming, in `progress.json`.

    Datasets begun by an earlier version keep their log in `source.json`.

    Args:
        writer: The `ShardedDatasetWriter` that writes the dataset.
        source: The source of the dataset, as JSON values.
        resume: Whether to read the log of an earlier run, if it exists.
        check_source: Whether to raise if the fingerprint of the source has changed.
        grows: Whether the source may have more inputs than in the earlier run.
        is_required: Whether a dataset with datapoints must have a log. Otherwise, a log is added.

    Raises:
        ValueError: The dataset has another source, or has datapoints without a log.
    """

    def __init__(
        self,
        writer: ShardedDatasetWriter,
        source: dict[str, Any],
        resume: bool,
        check_source: bool = True,
        *,
        grows: bool = False,
        is_required: bool = True,
    ) -> None:
        self._writer = writer
        self._store = store = writer.store
        names = (PROGRESS, EARLIER_PROGRESS) if resume else ()
        found_name = next((name for name in names if store.exists(store.join(writer.path, name))), None)
        self._path = store.join(writer.path, found_name or PROGRESS)
        self._checksum: bool = writer.checksum
        self._source = source
        self.state: dict[str, Any] = {}
        """JSON values, stored by `save`."""
        self.may_be_repaired = False
        """Whether the run ended at damaged data in the source, which may be repaired before resuming."""
        if found_name is not None:
            data = store.read(self._path, MAX_LOG_BYTES)
            check_json(store, self._path, data, 'remove it and begin again with mode="overwrite"')
            stored = json.loads(data)
            check_source = check_source and not stored.get('may_be_repaired')
            # The identity replaces the fingerprint; earlier versions did not write it.
            ignored = 'fingerprint' if 'identity' in stored and 'identity' in source else 'identity'
            for name, value in source.items():
                is_checked = name != ignored and (check_source or name not in ('fingerprint', 'identity'))
                is_checked = is_checked and (is_required or name in stored)
                is_longer = grows and name == 'length' and stored.get(name, value) <= value
                if is_checked and not is_longer and stored.get(name) != value:
                    raise ValueError(f'{self._path}: {_difference(name, stored.get(name), value)}')
            self.state = stored.get('state', {})
            if any(stored.get(name) != value for name, value in source.items()):
                self.save()
        elif is_required and resume and len(writer):
            raise ValueError(
                f'{self._path}: is missing, so it is unknown what the {len(writer)} datapoints are made '
                'from; expected the file of the earlier run'
            )
        else:
            self.save()

    def save(self) -> None:
        """Writes source and state atomically."""
        entries = {**self._source, 'state': self.state}
        if self.may_be_repaired:
            entries['may_be_repaired'] = True
        data = json.dumps(entries).encode()
        self._writer.take_remote_dataset()
        write_json(self._store, self._path, data, self._checksum, max_size=MAX_LOG_BYTES)


def source_of(store: Store, folder: str) -> dict[str, Any]:
    """Returns the source in the log of a dataset, without a check; empty if it has no log."""
    for name in (PROGRESS, EARLIER_PROGRESS):
        with contextlib.suppress(FileNotFoundError, ValueError):
            found = json.loads(store.read(store.join(folder, name)))
            return found if isinstance(found, dict) else {}
    return {}


def resumed(
    length: int, skipped: Iterable[_Skipped], count: Callable[[_Skipped], int] = lambda _: 1
) -> tuple[int, list[_Skipped]]:
    """Returns the input at which to resume after some datapoints, and the inputs skipped before it.

    Inputs that were skipped after the last durable datapoint are read again.

    Args:
        length: Number of datapoints.
        skipped: The skipped inputs; each entry begins with the number of the input.
        count: Returns the number of inputs that an entry represents.
    """
    position, before = length, []
    for entry in sorted(skipped, key=lambda entry: entry[0]):
        if entry[0] <= position:
            before.append(entry)
            position += count(entry)
    return position, before


def _difference(name: str, stored: Any, given: Any) -> str:
    """Returns how the source differs from the source of the earlier run, and what the user can do."""
    if name == 'length' and isinstance(stored, int) and isinstance(given, int):
        if given < stored:
            return f'resume: expected the {stored:,} inputs of the earlier run, got only {given:,}'
        return (
            f'resume: expected the {stored:,} inputs of the earlier run, got {given:,}. Resume with the '
            f'first {stored:,} of them; write the rest to another dataset, and combine both with bags.concat'
        )
    if name in ('fingerprint', 'identity'):
        return SOURCE_CHANGED
    return f'resume: the dataset is made from another source: expected {name} {stored!r}, got {given!r}'
