"""`Diff`, the result of `Dataset.diff`."""

from __future__ import annotations

import dataclasses

from bags.indexing import Int64s


@dataclasses.dataclass(frozen=True, eq=False)
class Diff:
    """The differences between a dataset and a later one.

    Examples:
        >>> diff = dataset.diff(dataset[:6])
        >>> diff.removed.tolist(), diff.is_empty
        ([6, 7], False)
        >>> print(diff)
        2 datapoints removed: 6, 7
    """

    fields: dict[str, tuple[str | None, str | None]]
    """The types in the two datasets of fields that only one has (None where it is missing), or whose types
    differ. Their values are not compared."""
    removed: Int64s
    """The datapoints that are missing in the other dataset, by index in the first."""
    added: Int64s
    """The datapoints that are missing in the first dataset, by index in the other."""
    changed: dict[str, Int64s]
    """The changed datapoints of each changed field: their indices in the two datasets, shape (n, 2)."""
    compared: int
    """Number of datapoints in both datasets."""

    @property
    def is_empty(self) -> bool:
        """Whether the datasets are equal."""
        return not (self.fields or len(self.removed) or len(self.added) or self.changed)

    def __str__(self) -> str:
        """Returns one line for each difference."""
        lines = [
            f'{name}: {old or "no such field"} → {new or "no such field"}'
            for name, (old, new) in self.fields.items()
        ]
        lines += [
            f'{_count_text(len(rows))} {what}: {_some(rows.tolist())}'
            for what, rows in (('removed', self.removed), ('added', self.added))
            if len(rows)
        ]
        lines += [
            f'{name}: {_count_text(len(pairs))} changed: {_some(pairs[:, 0].tolist())}'
            for name, pairs in self.changed.items()
        ]
        return '\n'.join(lines or [f'no difference in {_count_text(self.compared)}'])


def _count_text(count: int) -> str:
    return f'{count:,} {"datapoint" if count == 1 else "datapoints"}'


def _some(rows: list[int]) -> str:
    """Returns the first few indices as text."""
    return ', '.join(map(str, rows[:10])) + (', …' if len(rows) > 10 else '')
