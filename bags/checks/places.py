"""`Places`: where the datapoints of a check are stored, and the commands that show them or leave them out."""

from __future__ import annotations

import shlex
import urllib.parse
from collections.abc import Sequence

import numpy as np

from bags.indexing import Int64s


class Places:
    """The path of a dataset, or the paths of the parts of a split, whose datapoints follow one another.

    Args:
        paths: The path of each part.
        lengths: The number of datapoints of each.
    """

    def __init__(self, paths: Sequence[str], lengths: Sequence[int]) -> None:
        self.paths = list(paths)
        self.ends = np.cumsum(np.asarray(lengths, np.int64))
        self._starts = self.ends - np.asarray(lengths, np.int64)

    @property
    def parts(self) -> Int64s | None:
        """The number of the part of each datapoint, (n,); None if there is one part."""
        if len(self.paths) < 2:
            return None
        return np.repeat(np.arange(len(self.paths)), self.ends - self._starts)

    def _locate(self, row: int) -> tuple[int, int]:
        """Returns the part of a datapoint, and its index in the part."""
        part = int(np.searchsorted(self.ends, row, 'right'))
        return part, row - int(self._starts[part])

    def text(self, row: int) -> str:
        """Returns the name of a datapoint: `7`, or `val 7` in a split."""
        part, index = self._locate(row)
        return str(index) if len(self.paths) == 1 else f'{self._name(part)} {index}'

    def show(self, row: int, seconds: float | None = None, other: int | None = None) -> str:
        """Returns the command that shows a datapoint, with the fragment of the page's link button."""
        part, index = self._locate(row)
        params = {'view': 'datapoint'}
        if index:
            params['at'] = str(index)
        if other is not None and self._locate(other)[0] == part:
            params['with'] = str(self._locate(other)[1])
        if seconds is not None and seconds > 0:
            params['t'] = f'{seconds:.3f}'
        return (
            f'bags view {shlex.quote(self.paths[part])} {shlex.quote("#" + urllib.parse.urlencode(params))}'
        )

    def drop(self, rows: Sequence[int]) -> str:
        """Returns the command that saves a dataset without datapoints; of a split, one for each part."""
        indices: dict[int, list[str]] = {}
        for row in sorted(rows):
            part, index = self._locate(row)
            indices.setdefault(part, []).append(str(index))
        edits = [self._edit(part, f'--drop {",".join(of_part)}') for part, of_part in indices.items()]
        return ' && '.join(edits)

    def where(self, condition: str, scores: str | None = None) -> str:
        """Returns the command that saves the datapoints that pass a condition; of a split, one for each part.

        Args:
            condition: On fields, and on scores if they are given.
            scores: The scores. They are of all parts: empty for several parts, as a command reads one.
        """
        if scores is not None and len(self.paths) > 1:
            return ''
        with_scores = '' if scores is None else f'--scores {shlex.quote(scores)} '
        options = f'{with_scores}--where {shlex.quote(condition)}'
        return ' && '.join(self._edit(part, options) for part in range(len(self.paths)))

    def _edit(self, part: int, options: str) -> str:
        target = 'clean' if len(self.paths) == 1 else f'clean/{self._name(part)}'
        return f'bags edit {shlex.quote(self.paths[part])} {shlex.quote(target)} {options}'

    def _name(self, part: int) -> str:
        return self.paths[part].rstrip('/').rpartition('/')[2]

    def verify(self) -> str:
        """Returns the commands that list all damage."""
        return '; '.join(f'bags verify {shlex.quote(path)} --decode' for path in self.paths)
