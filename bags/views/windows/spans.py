"""Spans of windows: the items of a field at times or steps relative to an anchor. No I/O."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, Literal, SupportsIndex

import numpy as np

from bags.dataset.base import Dataset
from bags.dataset.format.registry import AUDIO_FORMATS, IMAGE_FORMATS, VIDEO_FORMATS, fixed_dtype
from bags.dataset.format.spec import FieldType, parse_type
from bags.dataset.reading.selection import Fill, Padding, Span, Steps, Times, select_fields, select_whole
from bags.validation import integer, one_of, reject_other_name

MAX_OFFSETS = 1 << 20
MAX_STEP = 1 << 40
EXACT_TOLERANCE = 1e-4
"""Maximum seconds between an item and its time, for `fill='exact'`; also the default of LeRobot."""


def times(
    *offsets: float,
    rate: float | None = None,
    fill: Fill = 'nearest',
    tolerance: float | None = None,
    gaps: Literal['raise', 'pad'] = 'raise',
) -> Times:
    """Returns the items of a field at times relative to an anchor, for `dataset.windows`.

    `times(-0.2, 0.0)` selects two items, and `times(-0.1, 0.0, rate=100)` eleven, from the range including
    both ends. For a field of type `audio`, `times(-0.5, 0.0)` selects the samples in this range, excluding
    its end.

    Args:
        *offsets: Seconds from the anchor, negative before it.
        rate: Items per second of the range between two offsets.
        fill: The value at a time without an item: the 'nearest' item (the earlier of two); the 'previous'
            item; 'linear' interpolation of the items around it, for types of floats; or 'exact', which
            requires an item at the time.
        tolerance: Maximum seconds between a time and its item (with 'linear', the closer one). Default: no
            limit; 0.0001 for 'exact'.
        gaps: How to handle a time inside the datapoint without an item within the tolerance: 'raise' a
            ValueError, or 'pad' with the nearest item and mark it in `FIELD_is_pad`.

    Raises:
        TypeError, ValueError: Invalid offsets, rate, fill, tolerance or gaps.

    Examples:
        >>> windows = dataset.windows(every='state', state=bags.times(-0.1, 0.0))
        >>> windows[1, 'state']
        {'state': array([[0., 1.],
               [2., 3.]], dtype=float32)}
    """
    seconds = [_seconds('times', offset) for offset in offsets]
    one_of('times: fill', fill, ('nearest', 'previous', 'linear', 'exact'))
    one_of('times: gaps', gaps, ('raise', 'pad'))
    if tolerance is not None and not _seconds('times: tolerance', tolerance) >= 0:
        raise ValueError(f'times: tolerance: expected at least 0 s, got {tolerance!r}')
    if not 0 < len(seconds) <= MAX_OFFSETS:
        raise ValueError(f'times: expected 1 to {MAX_OFFSETS} offsets in seconds, got {len(seconds)}')
    if rate is not None:
        rate = positive('times: rate', rate, 'items per second')
        if len(seconds) != 2 or seconds[1] < seconds[0]:
            raise ValueError(
                'times: rate divides a range: expected a start and a stop that is not before it, '
                f'got {offsets}'
            )
        count = math.floor((seconds[1] - seconds[0]) * rate + 1e-6) + 1
        if count > MAX_OFFSETS:
            raise ValueError(f'times: expected at most {MAX_OFFSETS} items, got {count}')
        seconds = [seconds[0] + item / rate for item in range(count)]
    if tolerance is None and fill == 'exact':
        tolerance = EXACT_TOLERANCE
    return Times(tuple(seconds), fill, tolerance, gaps)


def steps(start: SupportsIndex, stop: SupportsIndex) -> Steps:
    """Returns the items of a field from `start` to `stop` relative to an anchor, for `dataset.windows`.

    Step 0 is the first item at or after the anchor's time: `steps(0, 16)` selects the next 16 items and
    `steps(-2, 0)` the two items before. A field without times must have an item for each anchor.

    Raises:
        TypeError, ValueError: The arguments are not integers, or the range is empty.

    Examples:
        >>> windows = dataset.windows(
        ...     every='state', state=bags.steps(0, 2), stride=2, padding='drop'
        ... )
        >>> len(windows), windows[0]['state'].shape
        (24, (2, 2))
    """
    low, high = integer('steps: start', start), integer('steps: stop', stop)
    if not -MAX_STEP <= low < high <= min(low + MAX_OFFSETS, MAX_STEP):
        raise ValueError(f'steps: expected 1 to {MAX_OFFSETS} items, got start {low} and stop {high}')
    return Steps(low, high)


def _seconds(what: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        raise TypeError(f'{what}: expected a number, got {value!r:.80}')
    if not math.isfinite(value):
        raise ValueError(f'{what}: expected a finite number, got {value!r}')
    return float(value)


def positive(what: str, value: Any, unit: str) -> float:
    """Checks that a number is above 0, and returns it as a float."""
    number = _seconds(what, value)
    if number <= 0:
        raise ValueError(f'{what}: expected {unit}, above 0, got {value!r}')
    return number


def check_spans(
    dataset: Dataset, spans: Mapping[str, Any], every: str | float, sources: Mapping[str, Any]
) -> None:
    """Checks the fields of windows, by the arguments of `Dataset.windows`.

    Raises:
        KeyError, TypeError, ValueError: A field does not exist, or cannot have such windows or times.
    """
    if not isinstance(spans, Mapping):
        raise TypeError(f'windows: expected a mapping of fields to spans, got {spans!r:.80}')
    for name, span in spans.items():
        if not isinstance(span, Times | Steps):
            if name not in dataset.schema:
                reject_other_name('windows', name)
                raise TypeError(f'windows: no option or field {name!r}')
            raise TypeError(
                f'windows: field {name!r}: expected bags.times(…) or bags.steps(…), got {span!r:.80}'
            )
    if not spans:
        raise ValueError('windows: expected at least one field with bags.times(…) or bags.steps(…), got none')
    for name in select_fields(
        [*spans, *sources, *([every] if isinstance(every, str) else [])], dataset.schema
    ):
        field_type = dataset.schema[name]
        has_items = field_type.sequence or field_type.format == 'audio' or dataset.has_frames(name)
        if not has_items:
            raise TypeError(
                f'windows: expected sequences, videos or audio, got {name!r} of type {field_type.text}'
            )
    if isinstance(every, str) and dataset.schema[every].format == 'audio':
        raise TypeError(f'windows: every: expected a field of items, or seconds, got {every!r} of type audio')
    for name, source in sources.items():
        if not isinstance(source, str):
            positive(f'windows: times of {name!r}', source, 'items per second')


def check_whole_fields(
    dataset: Dataset, spans: Mapping[str, Span], whole: Iterable[str] | str
) -> tuple[str, ...]:
    """Returns the fields that windows have as a whole, by the argument `whole` of `Dataset.windows`.

    Raises:
        KeyError, TypeError, ValueError: A field does not exist, or has a span.
    """
    names = tuple(select_whole(whole, dataset.schema, 'windows: whole'))
    both = [name for name in names if name in spans]
    if both:
        raise ValueError(f'windows: whole: expected fields without a span, got {both[0]!r}, which has one')
    return names


def is_left_out(field_type: FieldType) -> bool:
    """Returns whether windows lack fields of a type by default, as each window would decode whole values."""
    is_media = field_type.format in (*IMAGE_FORMATS, *VIDEO_FORMATS, *AUDIO_FORMATS)
    return field_type.sequence or (is_media and field_type.format not in ('video', 'audio'))


def types_of(
    name: str, field_type: FieldType, span: Span, padding: Padding, has_frames: bool, has_samples: bool
) -> tuple[FieldType, FieldType]:
    """Returns the types of a field of windows and of its mask.

    Raises:
        TypeError: The field cannot have such windows.
    """
    if has_samples:
        offsets = span.offsets if isinstance(span, Times) and span.fill == 'nearest' else ()
        if len(offsets) != 2 or offsets[0] >= offsets[1]:
            detail = f'field {name!r} of type {field_type.text}: expected times(start, stop), got {span}'
            raise TypeError(f'windows: {detail}')
        return parse_type('array'), parse_type('array')
    mask = parse_type(f'array(bool,{span.count})')
    fixed = fixed_dtype(field_type.format, field_type.args)
    if isinstance(span, Times) and span.fill == 'linear' and (fixed is None or fixed[0].kind != 'f'):
        raise TypeError(f'windows: field {name!r} of type {field_type.text}: linear fill needs floats')
    if has_frames:
        return parse_type('array'), mask
    if fixed is not None and fixed[0].kind in 'biufc':
        shape = ','.join(map(str, (fixed[0].newbyteorder('=').name, span.count, *fixed[1])))
        return parse_type(f'array({shape})'), mask
    if padding == 'zero' and fixed is None and field_type.format not in ('array', *IMAGE_FORMATS):
        raise TypeError(f"windows: field {name!r} of type {field_type.text}: padding='zero' needs arrays")
    args = f'({",".join(field_type.args)})' if field_type.args else ''
    return parse_type(f'{field_type.format}{args}[]'), mask


def check_bounds(value: Any) -> tuple[float, float]:
    """Returns the bounds of anchors in seconds; None means infinite."""
    try:
        low, high = (None, None) if value is None else value
    except (TypeError, ValueError):
        raise TypeError(f'windows: bounds: expected (start, stop) in seconds, got {value!r:.80}') from None
    return (
        -math.inf if low is None else _seconds('windows: bounds', low),
        math.inf if high is None else _seconds('windows: bounds', high),
    )
