"""A generated function that reads all fields of a row, one after another.

A shortcut of `bags.dataset.reading.columns` for one row: a row of an integer, a text and a vector takes 1.1
us with it, 2.3 us with a call of `read_value` for each field, and 30 us as a batch of one. With another 30
KB of bytes, a row takes 2.9 and 4.5 us (from the processor's cache). Limits and tags are checked at every
read, or once for a block of rows of the same length. The generated text contains only numbers of fields,
never names or values from a file, which are in the function's closure.

The function returns None for damaged data, an error in a decoder, or an index out of range. The reader then
reads the row as a batch, which raises the error.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from bags.bag.verified import SHIFT, VERIFIED
from bags.dataset.reading.columns import read_value
from bags.dataset.reading.field_reader import FieldReader
from bags.dataset.reading.refs_reader import RefsReader

MAX_SPAN_BYTES = 1 << 16
"""Maximum bytes of items of a sequence that are copied from the map without a hint to the kernel."""

RowFunction = Callable[..., dict[str, Any] | None]
"""Function of an index, and of a selection if items are selected. Returns None if it cannot read the row."""


def make_row_function(
    fields: Sequence[FieldReader], refs: RefsReader, has_items: bool = False
) -> RowFunction:
    """Returns a function from an index to these fields of a datapoint.

    With `has_items`, it also takes a selection of items or frames.
    """
    if refs.bag is not None and not refs.is_table:
        return lambda *_: None
    scope: dict[str, Any] = {'count': refs.count}
    values = []
    lines = ['if not 0 <= index < count: return None']
    numbers = ', '.join(map('r{}'.format, range(len(refs.format.tags))))
    if refs.bag is None:
        lines.append(f'{numbers.replace(", ", " = ")} = index')  # Granular does not have sequences.
    else:
        verified = refs.bag.verified
        scope |= {
            'states': verified.states,
            'verify': verified.verify,
            'table': refs.bag.file.buffer,
            'unpack': refs.format.unpack_numbers,
            'stride': refs.format.stride,
        }
        lines += [
            f'if states[index >> {SHIFT}] != {VERIFIED} and not verify(index): return None',
            f'{numbers}, = unpack(table, index * stride)',
        ]
    for number, field in enumerate(fields):
        scope |= {f'name{number}': field.name, f'field{number}': field, 'read_value': read_value}
        count = f'r{field.position + 1}' if field.type.sequence else '1'
        read = f'read_value(field{number}, r{field.position}, {count}'
        if has_items:
            lines.append(f'v{number} = {read}, selection[name{number}])')
        else:
            lines += _lines(field, number, f'r{field.position}', f'{read})', scope)
        values.append(f'name{number}: v{number}')
    function: RowFunction = _maker(tuple(scope), (*lines, f'return {{{", ".join(values)}}}'))(**scope)
    return function


def _lines(field: FieldReader, i: int, r: str, read: str, scope: dict[str, Any]) -> list[str]:
    """Returns the lines that read a field into `v{i}`, and adds the names that they use to the scope.

    Args:
        field, i: The field and its number.
        r: The variable with the ref.
        read: The call that reads the field without a fast path.
        scope: The names that the lines can use.
    """
    bag, decoder = field.bounded, field.decoder
    table, n = field.table, f'r{field.position + 1}'
    scope |= {f'count{i}': bag.count, f'table{i}': table}
    if table is not None:
        blocks = bag.verified
        scope |= {f'states{i}': blocks.states, f'verify{i}': blocks.verify, f'item{i}': table.item}
    if table is not None and field.type.sequence:
        max_count = min(1 << SHIFT, MAX_SPAN_BYTES // decoder.length)
        verified = f'states{i}[{{0}} >> {SHIFT}] == {VERIFIED} or verify{i}({{0}})'
        are_verified = f'({verified.format(r)}) and ({verified.format("last")})'
        return [
            f'last = {r} + {n} - 1',
            f'if 0 < {n} <= {max_count} and last < count{i} and {are_verified}:',
            f'    v{i} = table{i}[{r}:last + 1].copy()',
            f'else: v{i} = {read}',
        ]
    is_plain = not field.type.sequence and not field.type.optional and not decoder.lazy
    if is_plain and table is not None:
        return [
            f'if {r} >= count{i}: return None',
            f'if states{i}[{r} >> {SHIFT}] != {VERIFIED} and not verify{i}({r}): return None',
            f'v{i} = item{i}({r})' if decoder.is_scalar else f'v{i} = table{i}[{r}].copy()',
        ]
    if is_plain and not bag.in_place:
        get: Any = bag.get_view if decoder.accepts_view else bag.get
        scope |= {f'get{i}': get, f'decode{i}': decoder.decode}
        return [f'v{i} = get{i}({r})' if decoder.decode is None else f'v{i} = decode{i}(get{i}({r}))']
    if not is_plain:
        return [f'v{i} = {read}']
    scope |= {
        f'ends{i}': bag.ends_view,
        f'end{i}': bag.end,
        f'buffer{i}': bag.view if decoder.accepts_view else bag.buffer,
        f'decode{i}': decoder.decode,
    }
    value = f'buffer{i}[start:stop]'
    is_too_large = ''
    if bag.size_limit is not None:
        scope[f'max_size{i}'] = bag.size_limit.max_size
        is_too_large = f' or stop - start > max_size{i}'
    return [
        f'start, stop = ends{i}[{r} - 1] if {r} else 0, ends{i}[{r}]',
        f'if not start <= stop <= end{i}{is_too_large}: return None',
        f'v{i} = {value}' if decoder.decode is None else f'v{i} = decode{i}({value})',
    ]


@functools.lru_cache(64)
def _maker(names: tuple[str, ...], lines: tuple[str, ...]) -> Callable[..., Any]:
    """Returns a function that creates the row function from the values of its names. All shards share it."""
    body = ''.join(map('            {}\n'.format, lines))
    text = (
        f'def make({", ".join(names)}):\n'
        f'    def row(index, selection=None):\n'
        f'        try:\n'
        f'{body}'
        f'        except Exception: return None\n'
        f'    return row\n'
    )
    scope: dict[str, Any] = {}
    exec(compile(text, '<row of a dataset>', 'exec'), scope)  # noqa: S102 - only the text above
    make: Callable[..., Any] = scope['make']
    return make
