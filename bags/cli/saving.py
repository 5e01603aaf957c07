"""Records as files: media with the extension that players know them by."""

from __future__ import annotations

import os
import shutil
from typing import Any, BinaryIO

import numpy as np

from bags.cli.facts import EXTENSIONS
from bags.cli.showing import is_opaque
from bags.formats.signatures import HEAD, identify
from bags.storage import store_for

__all__ = ['save_file', 'save_media']


def save_media(folder: str, dataset: Any, index: int, names: list[str]) -> list[str]:
    """Saves the records of a datapoint that are media, each as a file; returns where they are.

    Raises:
        FileExistsError: A file is there.
    """
    saved = []
    for name in names:
        kind = dataset._types[name]
        if not is_opaque(kind):
            continue
        if not kind.sequence:
            try:
                file = dataset.file(index, name)
            except ValueError:
                if not kind.optional:
                    raise
                continue
            saved.append(save_file(folder, index, name, None, file))
            continue
        count = int(dataset._lengths(np.array([index]), name)[0])
        saved += [
            save_file(folder, index, name, item, dataset.file(index, name, item)) for item in range(count)
        ]
    return saved


def save_file(folder: str, index: int, field: str, item: int | None, file: BinaryIO) -> str:
    """Saves a record as `000012.image.jpg`, or an item as `000012.frames.0003.png`; returns where."""
    store, place = store_for(folder)
    store.make_folder(place)
    with file:
        extension = EXTENSIONS.get(identify(file.read(HEAD)), 'bin')
        file.seek(0)
        name = f'{index:06}.{field}{"" if item is None else f".{item:04}"}.{extension}'
        path = os.path.join(place, name)
        with open(path, 'xb') as target:
            shutil.copyfileobj(file, target, 1 << 20)
    return os.path.join(folder, name)
