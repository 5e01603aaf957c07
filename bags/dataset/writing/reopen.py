"""Reopens a dataset folder that a writer did not close, and closes it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from bags.dataset.format.spec import Schema, type_texts
from bags.dataset.writing.encoder import Encoder
from bags.dataset.writing.writer import DatasetWriter


def reopen(
    path: str,
    schema: Schema,
    partial: Literal['keep', 'drop'] = 'keep',
    partial_values: Mapping[str, Any] | None = None,
    **options: Any,
) -> DatasetWriter:
    """Resumes a folder with its spec, only to close it. `partial*` are as in `bags.recover`."""
    values = partial_values or {}
    for name in values:
        if name not in schema or schema[name].sequence:
            plain = ', '.join(repr(each) for each, field_type in schema.items() if not field_type.sequence)
            raise KeyError(f'partial_values: no plain field {name!r}; the plain fields are {plain}')
    encoder = Encoder({name: schema[name] for name in values if name in schema}, None)
    records = {name: encoder.encode_item(name, value, None) for name, value in values.items()}
    encoders = {field_type.format: bytes for field_type in schema.values()}
    return DatasetWriter(
        path, type_texts(schema), encoders, resume=True, partial=partial, partial_values=records, **options
    )
