"""What is copied at a time: chunks of datapoints, as runs of records and refs."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from bags.authoring.computed_fields import Added
from bags.authoring.copy_records import Layout, lay_out, move, read_other
from bags.bag.limits import ENTRY
from bags.dataset.base import Dataset
from bags.dataset.compression import Compressed
from bags.dataset.field_writer import Run
from bags.dataset.record_ranges import Pieces, Tail, pieces_of
from bags.dataset.refs import RefsFormat
from bags.dataset.spec import FieldType, Spec
from bags.errors import SpecError

__all__ = ['Chunk', 'Copier', 'Plan', 'copied_type', 'held_as']


@dataclasses.dataclass
class Plan:
    """Which records a chunk takes, before they are read."""

    start: int
    """The first of its datapoints,"""
    stop: int
    """and the one behind the last."""
    fields: dict[str, tuple[Pieces, Layout] | None]
    """By field; None where the records are in no bag."""
    tails: dict[str, Tail]
    """By field, what the next chunk may refer to."""
    size: int
    """Bytes that it takes, as far as that is known before."""
    records: int
    """Of the field that has the most."""


@dataclasses.dataclass
class Chunk:
    """Datapoints to be written."""

    runs: dict[str, list[Run]]
    refs: dict[str, Any]


class Copier:
    """Reads chunks of a dataset.

    Args:
        dataset: What is copied.
        types: Of the fields that are taken from it, as the copy has them.
        compressions: How the copy's fields are compressed.
        anew: Those of them that are compressed anew.
        verify: Look also through compressed records that are not made over.
        threads: Most threads that decompress a chunk.
        added: New fields.
    """

    def __init__(
        self,
        dataset: Dataset,
        types: Spec,
        compressions: Mapping[str, Compressed],
        anew: Collection[str],
        verify: bool,
        threads: int,
        added: Added | None,
    ) -> None:
        self._dataset = dataset
        self._types = types
        self._compressions = compressions
        self._anew = anew
        self._verify = verify
        self._threads = threads
        self._added = added
        every = {**types, **(added.types if added is not None else {})}
        self._stride = RefsFormat(dict(sorted(every.items()))).stride + ENTRY

    def plan(self, start: int, stop: int, tails: Mapping[str, Tail]) -> Plan:
        """Plans to take some datapoints.

        Args:
            start, stop: Which.
            tails: What was taken before them.

        Raises:
            CorruptError: Refs or limits that cannot be right.
        """
        indices = np.arange(start, stop)
        plan = Plan(start, stop, {}, {}, (stop - start) * self._stride, 0)
        for name, kind in self._types.items():
            spans = self._dataset._record_ranges(indices, name)
            if spans is None:
                plan.fields[name] = None
                continue
            for source in spans.sources:
                if copied_type(self._dataset._types[name], source.unsigned) != kind:
                    raise SpecError(name, f'{kind.text} in all parts', 'integers without a sign in some')
            pieces = pieces_of(spans, tails.get(name))
            layout = lay_out(pieces)
            plan.fields[name] = pieces, layout
            if pieces.tail is not None:
                plan.tails[name] = pieces.tail
            plan.size += int(layout.sizes.sum()) + ENTRY * len(layout.sizes)
            plan.records = max(plan.records, len(layout.sizes))
        return plan

    def load(self, plan: Plan) -> Chunk:
        """Reads what a plan says.

        Raises:
            CorruptError, DecodeError: A record that cannot be read.
        """
        chunk = Chunk({}, {})
        indices = np.arange(plan.start, plan.stop)
        for name, kind in self._types.items():
            found = plan.fields[name]
            if found is None:
                chunk.runs[name], chunk.refs[name] = read_other(self._dataset, indices, name)
                continue
            pieces, layout = found
            chunk.runs[name] = move(
                pieces,
                layout,
                self._compressions.get(name),
                anew=name in self._anew,
                verify=self._verify,
                threads=self._threads,
            )
            chunk.refs[name] = (pieces.firsts, pieces.counts) if kind.sequence else pieces.firsts
        if self._added is not None:
            for name, (runs, refs) in self._added.make(indices).items():
                chunk.runs[name], chunk.refs[name] = runs, refs
        return chunk


def held_as(dataset: Dataset, field: str) -> tuple[Compressed | None, bool]:
    """Returns how the first record of a field is compressed, and whether its integers are unsigned."""
    spans = dataset._record_ranges(np.arange(1), field) if len(dataset) else None
    if spans is None:
        return None, False
    source = spans.sources[0]
    codec = source.bag.codec
    if codec is None:
        return None, source.unsigned
    dictionary = codec.options.dictionary
    return Compressed(trained=bool(dictionary), dictionary=dictionary), source.unsigned


def copied_type(kind: FieldType, unsigned: bool) -> FieldType:
    """Returns the type of a field in a copy: integers of Bags 0.x have no sign, whatever their type says."""
    if not unsigned or kind.word != 'int':
        return kind
    return kind._replace(word='uint', text=f'u{kind.text}')
