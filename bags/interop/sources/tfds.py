"""Folders of TensorFlow Datasets, with RLDS episodes among them: `features.json` and files of examples."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bags.errors import SourceError
from bags.interop.examples import open_examples
from bags.interop.folders import list_files
from bags.interop.source import Source
from bags.interop.sources import array_record, tfrecord

__all__ = ['open_source']


def open_source(paths: list[str], storage_options: Mapping[str, Any] | None) -> Source:
    """Returns the source of a folder of TensorFlow Datasets."""
    root = paths[0].rstrip('/')
    names = [name for name in list_files(root, storage_options) if '/' not in name]
    for format, module in (('tfrecord', tfrecord), ('array_record', array_record)):
        files = [f'{root}/{name}' for name in names if f'.{format}' in name]
        if files:
            return open_examples(format, files, module.count_records, module.read_records, storage_options)
    raise SourceError(root, 'expected *.tfrecord* or *.array_record* beside features.json')
