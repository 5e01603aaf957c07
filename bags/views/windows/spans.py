"""Spans of windows: the items of a field at times or steps relative to an anchor. No I/O."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, Literal, SupportsIndex

import numpy as np

from bags.dataset.base import Dataset
from bags.dataset.format.registry import AUDIO_FORMATS, IMAGE_FORMATS, VIDEO_FORMATS, fixed_dtype
from bags.dataset.format.spec import FieldType, parse_type
from bags.dataset.reading.selection import (
    Between,
    Fill,
    Padding,
    Span,
    Steps,
    Times,
    select_fields,
    select_whole,
)
from bags.formats.arrays import array_type
from bags.streams.clocks import Clock, RateClock
from bags.streams.field import StreamField
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
    both ends. To select all elements of an interval, such as the samples of half a second or the events in
    it, see `between`.

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
    return Times(tuple(seconds), fill, tolerance, gaps, rate is not None)


def between(
    start: float,
    stop: float,
    *,
    closed: Literal['left', 'right'] = 'left',
    count: SupportsIndex | None = None,
    keep: Literal['first', 'last'] = 'last',
) -> Between:
    """Returns the elements of a field in an interval relative to an anchor, for `dataset.windows`.

    `between(-0.5, 0.0)` selects the elements from half a second before the anchor, excluding the anchor. If
    the field has a rate, as recordings have, a window has `round((stop - start) * rate)` elements, from the
    first one at or after `start`; elements outside the datapoint are padding, which `FIELD_is_pad` marks.
    Else a window has as many elements as there are in the interval, or with `count` this number of them.

    Args:
        start, stop: Seconds from the anchor, negative before it.
        closed: The end of the interval that belongs to it: 'left' for [start, stop), or 'right' for
            (start, stop], e.g. to include what happens at the anchor.
        count: The number of elements of each window. Missing elements are padding.
        keep: Which elements to keep if there are more than `count`: the 'last' or the 'first' ones.

    Raises:
        TypeError, ValueError: The interval is empty or not finite, or an option is invalid.

    Examples:
        >>> windows = dataset.windows(every=0.5, state=bags.between(0.0, 0.5))
        >>> windows[1]['state'].shape
        (5, 2)
    """
    low, high = _seconds('between: start', start), _seconds('between: stop', stop)
    if low >= high:
        raise ValueError(f'between: expected a stop after the start, got start {start!r} and stop {stop!r}')
    one_of('between: closed', closed, ('left', 'right'))
    one_of('between: keep', keep, ('first', 'last'))
    limit = None if count is None else integer('between: count', count)
    if limit is not None and not 0 < limit <= MAX_OFFSETS:
        raise ValueError(f'between: count: expected 1 to {MAX_OFFSETS} elements, got {limit}')
    return Between(low, high, closed, limit, keep)


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
        if not isinstance(span, Times | Steps | Between):
            if name not in dataset.schema:
                reject_other_name('windows', name)
                raise TypeError(f'windows: no option or field {name!r}')
            raise TypeError(
                f'windows: field {name!r}: expected bags.times(…), bags.steps(…) or bags.between(…), got '
                f'{span!r:.80}'
            )
    if not spans:
        raise ValueError(
            'windows: expected at least one field with bags.times(…), bags.steps(…) or '
            'bags.between(…), got none'
        )
    select_fields([*spans, *sources, *([every] if isinstance(every, str) else [])], dataset.schema)
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


def check_stream(stream: StreamField, span: Span | None, is_every: bool) -> None:
    """Checks that windows can select the elements of a field with a span.

    Raises:
        TypeError, ValueError: They cannot. The error says which span can.
    """
    where = f'windows: field {stream.name!r} of type {stream.dataset.schema[stream.name].text}'
    use = "use bags.between(start, stop); with {'elements': 'items'} in its metadata, records have steps"
    if stream.type == 'samples' and is_every:
        raise TypeError(f'{where}: every: expected a field of items or frames, or seconds, got samples')
    if stream.type == 'samples' and isinstance(span, Steps):
        raise TypeError(f'{where}: its elements are samples, which have no steps: {use}')
    if stream.type == 'samples' and isinstance(span, Times) and span.count == 2 and not span.has_rate:
        raise TypeError(
            f'{where}: bags.times selects single samples: for all samples of an interval, use '
            f'bags.between{span.offsets}, and for points, bags.times(start, stop, rate=…)'
        )
    if isinstance(span, Between) and count_of(span, stream.clock) == 0:
        raise ValueError(f'{where}: expected an interval of at least one element, got {span}')


def count_between(span: Between, rate: float) -> int:
    """Returns the number of elements of an interval at a rate."""
    return round((span.stop - span.start) * rate)


def count_of(span: Span, clock: Clock | None) -> int | None:
    """Returns the number of elements of windows of a field; None if it differs from window to window."""
    if isinstance(span, Between) and span.count is None:
        return count_between(span, clock.rate) if isinstance(clock, RateClock) else None
    return span.count


def types_of(stream: StreamField, span: Span, padding: Padding) -> tuple[FieldType, FieldType | None]:
    """Returns the types of a field of windows and of its mask; no mask if windows have no padding.

    Raises:
        TypeError: The field cannot have such windows.
    """
    name, field_type = stream.name, stream.dataset.schema[stream.name]
    count = count_of(span, stream.clock)
    is_padded = count is not None or stream.has_rate
    mask = None
    if is_padded:
        mask = parse_type('array' if count is None else f'array(bool,{count})')
    fixed = _fixed_type(stream, field_type)
    are_floats = stream.type == 'samples' or (fixed is not None and fixed[0].kind == 'f')
    if isinstance(span, Times) and span.fill == 'linear' and not are_floats:
        raise TypeError(f'windows: field {name!r} of type {field_type.text}: linear fill needs floats')
    if stream.type in ('frames', 'samples'):
        return parse_type('array'), mask
    if fixed is not None and fixed[0].kind in 'biufc' and count is not None:
        shape = ','.join(map(str, (fixed[0].newbyteorder('=').name, count, *fixed[1])))
        return parse_type(f'array({shape})'), mask
    if stream.type == 'rows':
        return parse_type('array'), mask
    is_image = field_type.format in ('array', *IMAGE_FORMATS)
    if padding == 'zero' and is_padded and fixed is None and not is_image:
        raise TypeError(f"windows: field {name!r} of type {field_type.text}: padding='zero' needs arrays")
    args = f'({",".join(field_type.args)})' if field_type.args else ''
    return parse_type(f'{field_type.format}{args}[]'), mask


def _fixed_type(stream: StreamField, field_type: FieldType) -> tuple[np.dtype[Any], tuple[int, ...]] | None:
    """Returns the dtype and the shape of elements; None if they differ."""
    if stream.type != 'rows':
        return fixed_dtype(field_type.format, field_type.args)
    array = array_type(*field_type.args)
    return None if array is None else (array[0], array[1][1:])


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
