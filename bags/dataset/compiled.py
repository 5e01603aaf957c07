"""One function for a whole row: the ways to all its fields, written out one after the other.

A row of four small fields takes about 2 µs beside copying its payload. Half of that were the calls from the
row to its fields, so they are written into one function, as `collections.namedtuple` writes its `__new__`. No
name or value of a file is in the text of it, only the numbers of fields; all else is in its closure.

Where each datapoint of a block has the record of its own number in all fields, the function goes to that at
once, past refs and marks: a tenth less for a row with 30 KB.

The function gives up, by returning None, where anything is out of the ordinary: a record without sound
limits, the first record of a bag, an error in a decoder. Then the row is read in the usual way, which knows
what to raise.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from bags.bag.getters import ends_of
from bags.bag.uniform import SHIFT, SOUND
from bags.dataset.field import Field
from bags.dataset.refs_reader import RefsReader

__all__ = ['compile_row']

STRAIGHT, CROOKED = 1, 2  # Blocks; 0 where it is not known yet.


def compile_row(fields: Sequence[Field], refs: RefsReader) -> Callable[[int], dict[str, Any] | None] | None:
    """Returns a function from an index to these fields of a datapoint; None if the refs have no table."""
    if refs.bag is None or refs.sound is None:
        return None
    places = sum(1 + kind.sequence for kind in refs.format.spec.values())
    straight = bytearray((refs.count >> SHIFT) + 1)
    names = [field.name for field in fields]
    count, size, table = refs.count, refs.bag.count, refs.bag.file.buffer

    def look(block: int) -> None:
        # Called for a block of which a row was read in the usual way, so that its refs and marks are sound.
        rows = slice(block << SHIFT, min((block + 1) << SHIFT, count))
        is_straight = refs.format.is_straight(table, size, rows, names)
        straight[block] = STRAIGHT if is_straight else CROOKED

    scope: dict[str, Any] = {
        'count': count,
        'marks': refs.sound.marks,
        'straight': straight,
        'look': look,
        'table': table,
        'unpack': refs.format.unpack_from,
        'stride': refs.format.stride,
    }
    quick, usual, checks = [], [], []
    for number, field in enumerate(fields):
        scope[f'name{number}'] = field.name
        quick += _write(field, number, scope, 'index', f'(index,) * {places}')
        usual += _write(field, number, scope, f'r{field.place}', 'refs')
        checks += _check(field, number, f'r{field.place}')
    result = f'return {{{", ".join(f"name{number}: v{number}" for number in range(len(fields)))}}}'
    is_plain = bool(fields) and all(
        not field.kind.sequence and refs.count <= field.bag.count for field in fields
    )
    lines = ['if not 0 <= index < count: return None']
    if is_plain:
        lines.append(f'if straight[index >> {SHIFT}] == {STRAIGHT}:')
        lines += [f'    {line}' for line in (*quick, result)]
    lines += [
        f'if marks[index >> {SHIFT}] != {SOUND}: return None',
        'refs = unpack(table, index * stride)',
        f'{"".join(f"r{place}, " for place in range(places))} = refs',
        *checks,
        *usual,
    ]
    if is_plain:
        numbers = ' == '.join(f'r{field.place}' for field in fields)
        lines.append(f'if index == {numbers} and not straight[index >> {SHIFT}]: look(index >> {SHIFT})')
    made: Callable[[int], dict[str, Any] | None] = _maker(tuple(scope), (*lines, result))(**scope)
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


def _is_usual(field: Field) -> bool:
    return (
        field.kind.sequence
        or field.kind.optional
        or field.decoder.lazy
        or not field.bag.is_sliced
        or not field.bag.count
    )


def _check(field: Field, i: int, r: str) -> list[str]:
    """Returns the lines that give up where a record is not there, or not known to have the length of all."""
    if _is_usual(field):
        return []
    if field.bag.uniform is None:
        return [f'if {r} >= count{i}: return None']
    return [f'if {r} >= count{i} or marks{i}[{r} >> {SHIFT}] != {SOUND}: return None']


def _write(field: Field, i: int, scope: dict[str, Any], r: str, row: str) -> list[str]:
    """Returns the lines that make the value of a field, and puts what they use into the scope.

    Args:
        field: The field.
        i: Its number, for names.
        scope: What lines use by name.
        r: What is the number of the record, which is known to be there.
        row: What is the row of refs.
    """
    bag, decoder, uniform = field.bag, field.decoder, field.bag.uniform
    if _is_usual(field):
        scope[f'read{i}'] = field.read
        return [f'v{i} = read{i}({row})']
    scope[f'count{i}'] = bag.count
    if uniform is not None:
        scope[f'marks{i}'] = uniform.marks
    values = field.table()
    if uniform is not None and values is not None:
        scope |= {f'item{i}': values.item, f'values{i}': values}
        return [f'v{i} = item{i}({r})' if decoder.is_scalar else f'v{i} = values{i}[{r}].copy()']
    scope |= {
        f'buffer{i}': bag.view if decoder.accepts_view else bag.file.buffer,
        f'decode{i}': decoder.decode,
    }
    value = f'buffer{i}[start:stop]' if decoder.decode is None else f'decode{i}(buffer{i}[start:stop])'
    if uniform is not None:
        scope[f'length{i}'] = uniform.length
        return [f'start = {r} * length{i}; stop = start + length{i}', f'v{i} = {value}']
    scope |= {f'ends{i}': ends_of(bag), f'end{i}': bag.end}
    return [
        f'if not {r}: return None',
        f'start, stop = ends{i}[{r} - 1], ends{i}[{r}]',
        f'if not start <= stop <= end{i}: return None',
        f'v{i} = {value}',
    ]
