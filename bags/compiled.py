"""One function for a whole row: the ways to all its fields, written out one after the other.

A row of four small fields takes about 2 µs beside copying its payload. Half of that were the calls from the
row to its fields, so they are written into one function, as `collections.namedtuple` writes its `__new__`. No
name or value of a file is in the text of it, only the numbers of fields; all else is in its closure.

The function gives up, by returning None, where anything is out of the ordinary: a record without sound
limits, the first record of a bag, an error in a decoder. Then the row is read in the usual way, which knows
what to raise.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from bags.bag.getters import ends_of
from bags.field import Field
from bags.refs_reader import RefsReader

__all__ = ['compile_row']


def compile_row(fields: Sequence[Field], refs: RefsReader) -> Callable[[int], dict[str, Any] | None] | None:
    """Returns a function from an index to these fields of a datapoint; None if the refs have no table."""
    if refs.bag is None or refs.sound is None:
        return None
    format = refs.format
    places = sum(1 + kind.sequence for kind in format.spec.values())
    scope: dict[str, Any] = {
        'count': refs.count,
        'marks': refs.sound.marks,
        'table': refs.bag.file.buffer,
        'unpack': format.unpack_from,
        'stride': format.stride,
    }
    lines = [
        'if not 0 <= index < count or marks[index >> 9] != 255: return None',
        'refs = unpack(table, index * stride)',
        f'{"".join(f"r{place}, " for place in range(places))} = refs',
    ]
    for number, field in enumerate(fields):
        scope[f'name{number}'] = field.name
        lines += _write(field, number, scope)
    lines.append(f'return {{{", ".join(f"name{number}: v{number}" for number in range(len(fields)))}}}')
    made: Callable[[int], dict[str, Any] | None] = _maker(tuple(scope), tuple(lines))(**scope)
    return made


@functools.lru_cache(64)
def _maker(names: tuple[str, ...], lines: tuple[str, ...]) -> Callable[..., Any]:
    """Returns what makes the function of these lines, given what they use by name; the same for all shards.

    A function inside one: free-threaded Python 3.13 never frees others.
    """
    body = ''.join(f'            {line}\n' for line in lines)
    text = (
        f'def make({", ".join(names)}):\n'
        f'    def row(index):\n'
        f'        try:\n'
        f'{body}'
        f'        except Exception: return None\n'
        f'    return row\n'
    )
    scope: dict[str, Any] = {}
    exec(compile(text, '<row of a dataset>', 'exec'), scope)  # noqa: S102 - of the text above, and nothing else
    make: Callable[..., Any] = scope['make']
    return make


def _write(field: Field, i: int, scope: dict[str, Any]) -> list[str]:
    """Returns the lines that make the value of a field, and puts what they use into the scope."""
    bag, decoder, uniform, r = field.bag, field.decoder, field.bag.uniform, f'r{field.place}'
    if field.kind.sequence or field.kind.optional or decoder.opens or not bag.is_sliced or not bag.count:
        scope[f'read{i}'] = field.read
        return [f'v{i} = read{i}(refs)']
    scope[f'count{i}'] = bag.count
    values = field.table()
    if uniform is not None and values is not None:
        scope |= {f'marks{i}': uniform.marks, f'item{i}': values.item, f'values{i}': values}
        value = f'item{i}({r})' if decoder.is_scalar else f'values{i}[{r}].copy()'
        return [f'if {r} >= count{i} or marks{i}[{r} >> 9] != 255: return None', f'v{i} = {value}']
    scope |= {f'buffer{i}': bag.view if decoder.aliases else bag.file.buffer, f'decode{i}': decoder.decode}
    value = f'buffer{i}[start:stop]' if decoder.decode is None else f'decode{i}(buffer{i}[start:stop])'
    if uniform is not None:
        scope |= {f'marks{i}': uniform.marks, f'length{i}': uniform.length}
        return [
            f'if {r} >= count{i} or marks{i}[{r} >> 9] != 255: return None',
            f'start = {r} * length{i}; stop = start + length{i}',
            f'v{i} = {value}',
        ]
    scope |= {f'ends{i}': ends_of(bag), f'end{i}': bag.end}
    return [
        f'if not 0 < {r} < count{i}: return None',
        f'start, stop = ends{i}[{r} - 1], ends{i}[{r}]',
        f'if not start <= stop <= end{i}: return None',
        f'v{i} = {value}',
    ]
