"""Reads the pieces of datapoints that a sampler has cut: the elements of each field that are in the piece."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from bags.dataset.base import Dataset
from bags.dataset.reading.columns import ReadField, read_column
from bags.dataset.reading.selection import Fields, PerRowItems, has_items, select_fields
from bags.loader.rows import RowBatches
from bags.samplers.pieces import TO_END, UNKNOWN, Pieces
from bags.streams.field import StreamField

Streams = dict[str, StreamField]


def read_pieces(
    dataset: Dataset | RowBatches,
    pieces: Pieces,
    fields: Fields,
    streams: Streams,
    read: ReadField = read_column,
) -> Any:
    """Returns the columns of pieces.

    A field with elements, a sequence or arrays whose first dimension is `?`, has the elements of the piece;
    none if it has none in this datapoint. Other fields are whole, and so are all fields of a datapoint that
    is not cut.

    Args:
        dataset: The dataset.
        pieces: The pieces.
        fields: Fields to read, each as a whole.
        streams: Is filled with the streams of fields, and given again for other pieces: for a bin of 8,192
            tokens and their mask, making them takes 130 us of 400.
        read: Makes the column of a field: `read_column`, or a function that also measures.

    Raises:
        ValueError: A field of a datapoint that is cut has another number of elements than the sampler says.
        IndexError: A field has fewer elements than the piece.
        TypeError: The rows of a map-style dataset would have to be cut, or `fields` selects items.
    """
    are_cut = pieces.are_cut
    any_cut = bool(are_cut.any())
    if isinstance(dataset, RowBatches):
        if any_cut:
            index = int(pieces.values[int(are_cut.argmax())])
            raise TypeError(
                f'datapoint {index}: the sampler cuts it, and {dataset.expression} has no parts of rows: '
                'expected a reader or a view of bags'
            )
        return dataset.batch(pieces.values, fields)
    selection = select_fields(fields, dataset.schema)
    for name, items in selection.items():
        if has_items(dataset.schema[name]):
            if items is not True:
                raise TypeError(
                    f'fields: expected {name!r} as a whole, since the sampler cuts datapoints, got {items!r}'
                )
            # All elements: their numbers, which take as long to look up as to read, are not needed.
            selection[name] = _items_of(dataset, name, pieces, are_cut, streams) if any_cut else slice(None)
    return dataset.read_selection(pieces.values, selection, read)


def _items_of(
    dataset: Dataset, name: str, pieces: Pieces, are_cut: npt.NDArray[np.bool_], streams: Streams
) -> PerRowItems:
    """Returns the elements of a field that belong to pieces."""
    if dataset.schema[name].sequence:
        counts = dataset.item_counts(pieces.values, name)
    else:
        if name not in streams:
            streams[name] = StreamField(dataset, name)
        counts = streams[name].counts(pieces.values)
    are_cut = are_cut & (counts > 0)
    expected = np.full(len(counts), UNKNOWN) if pieces.element_counts is None else pieces.element_counts
    differs = are_cut & (expected != UNKNOWN) & (expected != counts)
    if differs.any():
        row = int(differs.argmax())
        raise ValueError(
            f'datapoint {pieces.values[row]}, field {name!r}: expected the {expected[row]} elements of the '
            f'lengths that were packed, to cut it, got {counts[row]}: leave the field out with fields=, or '
            'pack its lengths'
        )
    starts = np.where(are_cut, pieces.starts, 0)
    stops = np.where(are_cut & (pieces.stops != TO_END), pieces.stops, counts)
    beyond = (starts < 0) | (starts > stops) | (stops > counts)
    if beyond.any():
        row = int(beyond.argmax())
        raise IndexError(
            f'datapoint {pieces.values[row]}, field {name!r}: expected a piece of its {counts[row]} '
            f'elements, got {starts[row]} to {stops[row]}'
        )
    return PerRowItems(starts, stops - starts)
