"""Comparison with a reference dataset: fields, types, metadata and distributions that differ."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

import numpy as np

from bags.checks.column import Field
from bags.checks.definition import Severity
from bags.checks.findings import Finding
from bags.checks.media import usual_fact
from bags.checks.usual import interval_of, usual_clock, usual_numbers
from bags.dataset.base import Dataset

BOUNDS = {
    'unlike_fields': 0.0,
    'unlike_types': 0.0,
    'unlike_facts': 0.0,
    'unlike_intervals_share': 0.02,
    'unlike_items_factor': 3.0,
    'unlike_ranges_share': 0.1,
    'unlike_sizes': 0.0,
}
"""The comparisons, with their bounds: a number above the bound is a finding."""
COMPARED_FACTS = ('classes', 'names', 'range', 'rate', 'unit', 'vocabulary')
MARGIN = 0.1
"""Part of the range of the reference by which numbers may be outside of it."""


def compare_with(
    dataset: Dataset,
    reference: Dataset,
    *,
    fields: Collection[str],
    chosen: Collection[str],
    bounds: Mapping[str, float],
    headers: bool,
) -> list[Finding]:
    """Returns what differs in a dataset from a reference.

    Args:
        dataset, reference: The datasets.
        fields: The fields to compare.
        chosen: The names of the comparisons to make, of `BOUNDS`.
        bounds: Bounds by name, instead of those in `BOUNDS`.
        headers: Whether to compare the sizes, rates and channels in the headers of media.
    """
    found = list(_of_schema(dataset, reference, fields))
    known: dict[str, Field] = {}
    others: dict[str, Field] = {}
    known.update({name: Field(dataset, name, known) for name in dataset.schema})
    others.update({name: Field(reference, name, others) for name in reference.schema})
    for name in fields:
        if dataset.schema[name] == reference.schema.get(name) and len(dataset) and len(reference):
            found += _of_field(known[name], others[name], headers)
    return [
        finding
        for finding in found
        if finding.check in chosen and finding.value > bounds.get(finding.check, finding.bound)
    ]


def _finding(check: str, severity: Severity, field: str, value: float, detail: str) -> Finding:
    return Finding(check, severity, field, detail, value, BOUNDS[check], 0)


def _of_schema(dataset: Dataset, reference: Dataset, fields: Collection[str]) -> Iterator[Finding]:
    for name, field_type in reference.schema.items():
        if name not in dataset.schema:
            yield _finding(
                'unlike_fields', 'warning', name, 1, f'is missing; the reference has {field_type.text}'
            )
    for name in fields:
        own, other = dataset.schema[name], reference.schema.get(name)
        if other is None:
            yield _finding('unlike_fields', 'warning', name, 1, 'the reference has no such field')
        elif own != other:
            yield _finding('unlike_types', 'error', name, 1, f'{own.text} instead of {other.text}')


def _of_field(field: Field, other: Field, headers: bool) -> Iterator[Finding]:
    for fact in COMPARED_FACTS:
        one, two = field.facts.get(fact), other.facts.get(fact)
        if one != two:
            yield _finding(
                'unlike_facts', 'warning', field.name, 1, f'{fact}: {one!r:.80} instead of {two!r:.80}'
            )
    intervals = [_interval(each) for each in (field, other)]
    if np.isfinite(intervals).all():
        share = abs(intervals[0] / intervals[1] - 1)
        detail = f'{1 / intervals[0]:.4g} items a second instead of {1 / intervals[1]:.4g}'
        yield _finding('unlike_intervals_share', 'warning', field.name, share, detail)
    if field.has_items:
        medians = [float(np.median(each.sample.lengths)) for each in (field, other)]
        if min(medians) > 0:
            detail = f'usually {medians[0]:g} items instead of {medians[1]:g}'
            factor = max(medians) / min(medians)
            yield _finding('unlike_items_factor', 'warning', field.name, factor, detail)
    if field.dtype is not None and not field.has_times_as_values:
        yield from _of_numbers(field, other)
    if headers and field.is_media:
        names = ('rate', 'channels') if field.is_sound else ('width', 'height')
        one, two = usual_fact(field, names), usual_fact(other, names)
        if one != two:
            yield _finding(
                'unlike_sizes', 'warning', field.name, 1, f'usually {one} instead of {two}: {names}'
            )


def _interval(field: Field) -> float:
    if field.clock == field.name:
        clock = field.once(usual_clock)
        return clock.interval if clock.is_regular else float('nan')
    return interval_of(field)


def _of_numbers(field: Field, other: Field) -> Iterator[Finding]:
    """Yields one finding with the dimensions of which many numbers are outside the range of the reference."""
    items, usual = field.sample.numbers.items, other.once(usual_numbers)
    if not len(items) or not usual.are_measured.any():
        return
    margin = MARGIN * np.nan_to_num(usual.range)
    outside = ((items < usual.low - margin) | (items > usual.high + margin)).mean(0)
    outside = np.where(usual.are_measured, outside, 0)
    worst = int(outside.argmax())
    detail = (
        f'{field.dimension(worst)}: {outside[worst]:.0%} of the sampled numbers are outside the usual range '
        f'of the reference, {usual.low[worst]:.4g} to {usual.high[worst]:.4g}'
    )
    yield _finding('unlike_ranges_share', 'warning', field.name, float(outside[worst]), detail)
