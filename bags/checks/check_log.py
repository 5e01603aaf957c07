"""`CheckLog`: the scores of an interrupted check, in a folder beside the one where it saves them."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import json
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from bags.checks.definition import Scores
from bags.formats.trees import decode_tree, encode_tree
from bags.indexing import Int64s
from bags.storage import Store
from bags.storage.base import MAX_SMALL_FILE_BYTES

HEADER = 'check.json'
BLOCK = re.compile('[0-9]{8}[.]scores')
SAVE_SECONDS = 10.0
"""Seconds of work after which the scores are stored: as many are lost if the process is killed."""
MIN_SAVE_SECONDS = 1.0
"""Seconds of work of the rest of a field from which it is stored: less is computed again instead."""
MAX_BLOCK_BYTES = 1 << 32


@dataclasses.dataclass
class CheckedBlock:
    """What was computed of a field in consecutive datapoints."""

    start: int
    stop: int
    scores: dict[str, list[tuple[Int64s, Scores]]]
    """By check, the datapoints and their scores."""
    kept: dict[str, npt.NDArray[Any]]
    """The parts of the arrays in `Field.kept`."""
    extent: tuple[int, npt.NDArray[np.float64], npt.NDArray[np.float64]]
    """`Extent` after the last datapoint: its count, and the lowest and highest numbers, (d,)."""
    damaged: list[tuple[int, str]]
    """The damaged datapoints, and their errors."""
    failed: dict[str, str]
    """Checks that raised an error, and the error."""


class CheckLog:
    """Stores what was computed, so that a check can be resumed.

    Args:
        store, folder: The folder.
        identity: What is checked, as JSON values.
        resume: Whether to continue the check in the folder, if there is one.

    Raises:
        FileExistsError: The folder exists, and `resume` is not set.
        ValueError: The folder has another check, or of another dataset.
    """

    def __init__(self, store: Store, folder: str, identity: Mapping[str, Any], resume: bool) -> None:
        self._store, self.folder = store, folder
        self._pending: tuple[str, CheckedBlock] | None = None
        self._names: list[str] = []
        header = store.join(folder, HEADER)
        data = json.dumps(identity, sort_keys=True).encode()
        if not store.exists(header):
            store.make_folder(folder)
            store.replace(header, data)
        elif not resume:
            detail = 'an interrupted check: resume=True continues it; to begin again, remove the folder'
            raise FileExistsError(errno.EEXIST, detail, folder)
        else:
            self._expect_same(self._read_header(header), identity)
            self._names = sorted(name for name in store.names(folder) if BLOCK.fullmatch(name))
        self._saved = time.monotonic()

    def _read_header(self, path: str) -> object:
        try:
            return json.loads(self._store.read(path, MAX_SMALL_FILE_BYTES))
        except (ValueError, RecursionError) as exc:
            detail = 'expected the options of an interrupted check; to begin again, remove the folder'
            raise ValueError(f'{path}: {detail} ({exc})') from None

    def _expect_same(self, earlier: object, identity: Mapping[str, Any]) -> None:
        for name, value in identity.items():
            of_earlier = earlier.get(name) if isinstance(earlier, dict) else None
            if of_earlier != value:
                raise ValueError(
                    f'{self.folder}: resume: expected {name} of the earlier run, {of_earlier!r:.200}, got '
                    f'{value!r:.200}; to begin again, remove the folder'
                )

    def blocks(self, field: str) -> Iterator[CheckedBlock]:
        """Yields what earlier runs computed of a field, from the first datapoint, without gaps.

        Raises:
            ValueError: A file is damaged.
        """
        stop = 0
        for name in self._names:
            path = self._store.join(self.folder, name)
            try:
                stored = decode_tree(self._store.read(path, MAX_BLOCK_BYTES), max_size=MAX_BLOCK_BYTES)
                if stored['field'] != field or stored['start'] != stop:
                    continue
                block = _block_of(stored)
            except (ValueError, TypeError, KeyError, IndexError) as exc:
                detail = 'expected scores of an interrupted check; remove the file to compute them again'
                raise ValueError(f'{path}: {detail} ({exc})') from None
            stop = block.stop
            yield block

    def add(self, field: str, block: CheckedBlock) -> None:
        """Adds what was computed after the last block, and stores all after some seconds of work."""
        if self._pending is None:
            self._pending = field, block
        else:
            before = self._pending[1]
            for name, parts in block.scores.items():
                before.scores.setdefault(name, []).extend(parts)
            kept = {
                name: np.concatenate([before.kept[name], part]) if name in before.kept else part
                for name, part in block.kept.items()
            }
            self._pending = field, dataclasses.replace(
                block, start=before.start, scores=before.scores, kept=kept,
                damaged=[*before.damaged, *block.damaged],
            )  # fmt: skip
        if time.monotonic() - self._saved >= SAVE_SECONDS:
            self.save()

    def save(self) -> None:
        """Stores what was added."""
        if self._pending is not None:
            field, block = self._pending
            number = int(self._names[-1].partition('.')[0]) + 1 if self._names else 0
            name = f'{number:08}.scores'
            self._store.replace(self._store.join(self.folder, name), encode_tree(_stored_of(field, block)))
            self._names.append(name)
            self._pending = None
        self._saved = time.monotonic()

    def end_field(self) -> None:
        """Stores the rest of a field that took long, and drops it otherwise."""
        if time.monotonic() - self._saved >= min(SAVE_SECONDS, MIN_SAVE_SECONDS):
            self.save()
        self._pending = None

    def remove(self) -> None:
        """Removes the folder, when the scores are saved."""
        for name in [*self._names, HEADER]:
            self._store.remove(self._store.join(self.folder, name))
        with contextlib.suppress(OSError):  # A file of someone else is in it.
            self._store.remove_folder(self.folder)


def _stored_of(field: str, block: CheckedBlock) -> dict[str, Any]:
    return {
        'field': field, 'start': block.start, 'stop': block.stop, 'kept': block.kept,
        'scores': {
            name: [_columns_of(rows, scores) for rows, scores in parts]
            for name, parts in block.scores.items()
        },
        'extent': {'count': block.extent[0], 'low': block.extent[1], 'high': block.extent[2]},
        'damaged': [{'row': row, 'error': error} for row, error in block.damaged],
        'failed': block.failed,
    }  # fmt: skip


def _columns_of(rows: Int64s, scores: Scores) -> dict[str, npt.NDArray[Any]]:
    columns = {'rows': rows, 'items': scores.items, 'others': scores.others, 'spans': scores.spans}
    integers = {name: np.asarray(column, np.int64) for name, column in columns.items() if column is not None}
    return {'values': np.asarray(scores.values, np.float64), **integers}


def _block_of(stored: Mapping[str, Any]) -> CheckedBlock:
    start, stop = stored['start'], stored['stop']
    if not 0 <= start < stop:
        raise ValueError(f'datapoints {start} to {stop}')
    extent = stored['extent']
    low, high = (_array(extent[name], 'f') for name in ('low', 'high'))
    kept = {name: _array(part, 'u', stop - start) for name, part in stored['kept'].items()}
    return CheckedBlock(
        start, stop, {name: _scores_of(parts, start, stop) for name, parts in stored['scores'].items()}, kept,
        (int(extent['count']), low, high),
        [(int(entry['row']), str(entry['error'])) for entry in stored['damaged']],
        {str(name): str(error) for name, error in stored['failed'].items()},
    )  # fmt: skip


def _scores_of(parts: Sequence[Mapping[str, Any]], start: int, stop: int) -> list[tuple[Int64s, Scores]]:
    scores = []
    for part in parts:
        rows = _array(part['rows'], 'i')
        if rows.ndim != 1 or (len(rows) and not start <= rows.min() <= rows.max() < stop):
            raise ValueError('datapoints outside of the block')
        values = _array(part['values'], 'f', len(rows))
        items, others = (
            None if part.get(name) is None else _array(part[name], 'i', len(rows))
            for name in ('items', 'others')
        )
        spans = None if part.get('spans') is None else _array(part['spans'], 'i', len(rows), 2)
        scores.append((rows, Scores(values, items, others, spans)))
    return scores


def _array(value: object, dtype_kind: str, *shape: int) -> npt.NDArray[Any]:
    if (
        not isinstance(value, np.ndarray)
        or value.dtype.kind != dtype_kind
        or (shape and value.shape != shape)
    ):
        raise ValueError(f'expected an array of shape {shape}, got {value!r:.80}')
    return value
