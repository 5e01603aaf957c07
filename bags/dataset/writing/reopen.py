"""Reopens a dataset folder that a writer did not close, and closes it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, Literal

from bags.dataset.format import registry
from bags.dataset.format.spec import Schema, type_texts
from bags.dataset.writing.writer import DatasetWriter


def reopen(
    path: str,
    schema: Schema,
    partial: Literal['keep', 'drop'] = 'keep',
    partial_values: Mapping[str, Any] | None = None,
    encoders: Mapping[str, Callable[..., Any]] | None = None,
    **options: Any,
) -> DatasetWriter:
    """Resumes a folder with its spec, only to close it. `partial*` are as in `bags.recover`.

    Encoders are used for the partial values only, so that a folder of a type without encoder can be closed.
    Default: the built-in encoders.
    """
    values = partial_values or {}
    for name in values:
        if name not in schema or schema[name].sequence:
            plain = ', '.join(repr(each) for each, field_type in schema.items() if not field_type.sequence)
            raise KeyError(f'partial_values: no plain field {name!r}; the plain fields are {plain}')
    functions = registry.encoders if encoders is None else encoders
    by_format = {
        field_type.format: functools.partial(_encode, functions, field_type.format)
        for field_type in schema.values()
    }
    return DatasetWriter(
        path, type_texts(schema), by_format, resume=True, partial=partial, partial_values=values, **options
    )


def _encode(encoders: Mapping[str, Callable[..., Any]], format: str, value: Any, *args: str) -> Any:
    try:
        encode = registry.bind_encoder(format, args, encoders)
    except KeyError:
        raise ValueError(
            f'there is no encoder for {format}: resume the dataset with encoders= and partial_values='
        ) from None
    return encode(value)
