"""`bags.view`: a dataset as a page in a notebook, or as a table of thumbnails."""

from __future__ import annotations

import os
from collections.abc import Mapping
from html import escape
from typing import Any, Self, SupportsIndex

from bags.dataset.base import Dataset
from bags.dataset.reader import DatasetReader
from bags.dataset.sharded_reader import ShardedDatasetReader
from bags.display.datasets import dataset_as_html
from bags.indexing import check_index
from bags.links.permission import PermittedPaths
from bags.maintenance.location import Location
from bags.validation import with_advice
from bags.viewer.server import ViewServer

TABLE_ROWS = 12
"""Number of datapoints in the table that shows a view."""


@with_advice
def view(
    dataset: Dataset | str | os.PathLike[str],
    index: SupportsIndex | None = None,
    *,
    height: int = 720,
    port: int = 0,
    follow: bool = False,
    trust_links: PermittedPaths = (),
    filesystem: Any = None,
    storage_options: Mapping[str, Any] | None = None,
) -> DatasetPage | DatapointTable:
    """Shows a dataset in a notebook.

    A reader or a path is shown by the page of the viewer, from a server on loopback, so the browser must run
    on the same machine. A view (a selection, a join, …) has no folder that a browser could read, and is
    shown as a table of thumbnails.

    Args:
        dataset: A reader, a view, or the path or URL of a dataset.
        index: The datapoint to show; None for the grid, or for the first datapoints of a view.
        height: Height of the page, in pixels.
        port: Port of the server; 0 for a free one.
        follow: Whether the page shows episodes of a local dataset while they are recorded.
        trust_links, filesystem, storage_options: As in `bags.open`, for a path.

    Raises:
        FileNotFoundError: The path has no dataset, or the page is not built.
        IndexError: The datapoint does not exist.
        ValueError: With `follow`, the dataset is remote, or a view.

    Example:
        `bags.view('episodes', 7)` as the last line of a cell.

    Examples:
        >>> table = bags.view(dataset[:3])  # In a notebook, the last line of a cell shows it.
    """
    if isinstance(dataset, str | os.PathLike):
        server = ViewServer(
            dataset,
            port,
            follow=follow,
            trust_links=trust_links,
            filesystem=filesystem,
            storage_options=storage_options,
        )
        return DatasetPage(server, None if index is None else index.__index__(), height)
    number = None if index is None else check_index(index, len(dataset))
    if (of_reader := _server_of(dataset, port, follow)) is not None:
        return DatasetPage(of_reader, number, height)
    if follow:
        raise ValueError(f'view: follow: expected a dataset in a local folder, got {dataset!r}')
    rows = range(min(TABLE_ROWS, len(dataset))) if number is None else [number]
    return DatapointTable(dataset, list(rows))


def _server_of(dataset: Dataset, port: int, follow: bool) -> ViewServer | None:
    """Returns a server for the folder of a reader; None for a view, or a reader of only some shards."""
    if isinstance(dataset, DatasetReader):
        folder = dataset.folder
        location = Location('folder', folder.store, folder.path, [folder.path])
    elif isinstance(dataset, ShardedDatasetReader) and dataset.share == (0, 1):
        folder = dataset.folder_of(dataset.shard_list[0])
        location = Location('shards', dataset.store, dataset.path, [])
    else:
        return None
    options: Any = folder.options
    return ViewServer(
        location,
        port,
        follow=follow,
        trust_links=options.trust_links,
        storage_options=options.storage_options,
    )


class DatasetPage:
    """A page of the viewer and its server: shown by notebooks, open at `url` until it is closed."""

    def __init__(self, server: ViewServer, index: int | None, height: int) -> None:
        self._server = server
        self.height = height
        self.url = server.url if index is None else f'{server.url}#view=datapoint&at={index}'
        """URL of the page."""

    def close(self) -> None:
        """Ends the server."""
        self._server.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f'bags.view at {self.url}'

    def _repr_html_(self) -> str:
        """Called by notebooks."""
        style = f'width:100%;height:{int(self.height)}px;border:1px solid #8884;border-radius:6px'
        return f'<iframe src="{escape(self.url)}" style="{style}"></iframe>'


class DatapointTable:
    """Datapoints of a dataset as a table of thumbnails, for notebooks."""

    def __init__(self, dataset: Dataset, rows: list[int]) -> None:
        self._dataset = dataset
        self._rows = rows

    def __repr__(self) -> str:
        return f'datapoints {self._rows} of {self._dataset!r}'

    def _repr_html_(self) -> str:
        """Called by notebooks."""
        return dataset_as_html(self._dataset, self._rows)
