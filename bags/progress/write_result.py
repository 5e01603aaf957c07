"""The result of functions that write or export a dataset."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple


class Skipped(NamedTuple):
    """A datapoint that was left out because of an error.

    Examples:
        >>> path = Path('photos/cats/000.jpg')
        >>> _ = path.write_bytes(b'no picture')
        >>> done = bags.convert('photos', 'pictures', on_error='skip')
        >>> len(done.skipped), done.datapoints
        (1, 5)
    """

    datapoint: int | str
    """The index in the source dataset; for `convert`, the file, row or record that cannot be read."""
    error: str


@dataclasses.dataclass(frozen=True)
class WriteResult:
    """The result of `write`, `copy`, `save`, `convert`, `from_numpy` and `export`; `print` shows it as text.

    Examples:
        >>> done = bags.copy(dataset[:4], 'four')
        >>> done.datapoints, done.shards
        (4, 1)
    """

    datapoints: int
    """Number of datapoints written, including earlier runs with `resume`."""
    shards: int
    """Number of shards: folders of the dataset; for `export`, tars or Parquet files, else 1."""
    size: int
    """Bytes written, including earlier runs."""
    spec: dict[str, str]
    """The type of each field."""
    skipped: list[Skipped] = dataclasses.field(default_factory=list)
    """The datapoints left out because of an error, with `on_error='skip'`."""
    notes: list[str] = dataclasses.field(default_factory=list)
    """Notes about omissions and changes, such as renamed fields and replaced types."""
    parents: list[str] = dataclasses.field(default_factory=list)
    """The folders with the targets of the links in a saved or linked dataset. The dataset needs them."""
    trust_links: list[str] = dataclasses.field(default_factory=list)
    """The folders to pass to `bags.open` as `trust_links=`: the parents that are not beside the dataset; for
    sharded datasets, the folder of all shards."""

    def __str__(self) -> str:
        """Returns a summary, and the files that the dataset needs, in lines of text."""
        counts = f'{self.datapoints:,} datapoints, {self.shards:,} shards, {self.size:,} bytes'
        lines = [f'{counts}, {len(self.skipped):,} skipped' if self.skipped else counts, *self.notes]
        if self.parents:
            lines.append(f'needs {", ".join(self.parents)}')
        if self.trust_links:
            lines.append(f'open with trust_links={self.trust_links}')
        return '\n'.join(lines)
