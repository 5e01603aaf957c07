"""The option `source_options` of functions that read a source and write a dataset."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from bags.storage.urls import locate


@contextlib.contextmanager
def advise_source_options(
    function: str,
    sources: Sequence[Any],
    path: str | os.PathLike[str],
    storage_options: Mapping[str, Any] | None,
    source_options: Mapping[str, Any] | None,
) -> Iterator[str]:
    """Advises `source_options` if reading a source fails and only `storage_options` are given.

    Args:
        function: Name of the function.
        sources: Paths and URLs.
        path: The dataset.
        storage_options: Options of the storage of the dataset.
        source_options: Options of the storage of the sources.

    Yields:
        The advice, which is added to errors as a note; '' if it does not apply.

    Raises:
        ValueError: The dataset is local: its options have no effect.
    """
    is_url = any(locate(str(source))[0] != 'file' for source in sources)
    if not is_url or source_options or not storage_options:
        yield ''
        return
    advice = 'storage_options apply to the dataset; pass source_options= for the source'
    if locate(str(path))[0] == 'file':
        raise ValueError(f'{function}: {advice} {sources[0]}')
    try:
        yield advice
    except Exception as exc:
        exc.add_note(advice)
        raise
