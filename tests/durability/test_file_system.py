"""The model of what a power cut leaves: what is synced is there, and anything else may not be."""

import random

from tests.durability.file_system import PAGE, FileSystem
from tests.durability.recorder import Operation

ROOT = '/root'


def op(call, path, *values, **named):
    return Operation(call, f'{ROOT}/{path}'.rstrip('/'), *values, **named)


def write(path, data, offset=0):
    return op('write', path, offset=offset, data=data)


def rename(path, other, call='rename'):
    return op(call, path, f'{ROOT}/{other}')


def sync(path, start):
    return op('sync', path, start=start)


def states(*operations, stop=None, count=300):
    """Returns the different states after a power cut."""
    system, chance = FileSystem(ROOT, operations), random.Random(0)
    stop = len(operations) if stop is None else stop
    found = [system.snapshot(stop, chance).files for _ in range(count)]
    found += [
        system.snapshot(stop, chance, names, data).files
        for names in ('none', 'all')
        for data in ('none', 'all', 'holes')
    ]
    return [dict(state) for state in {tuple(sorted(state.items())) for state in found}]


def test_what_programs_see():
    system = FileSystem(
        ROOT,
        [
            op('mkdir', 'a'),
            op('create', 'a/x'),
            write('a/x', b'abc', 2),
            op('resize', 'a/x', offset=4),
            op('create', 'y'),
            op('copy', 'y', f'{ROOT}/a/x', 1, begin=1, count=3),
            rename('a', 'b'),
            op('mkdir', 'c'),
            rename('b', 'c', 'exchange'),
            op('rmdir', 'b'),
        ],
    )
    assert system.contents() == {'c': None, 'c/x': b'\0\0ab', 'y': b'\0\0ab'}


def test_nothing_is_promised_without_sync():
    found = states(op('create', 'x'), write('x', b'abc'))
    assert {} in found
    assert {'x': b''} in found
    assert {'x': b'\0\0\0'} in found
    assert {'x': b'a'} in found
    assert {'x': b'abc'} in found


def test_syncing_a_file_promises_its_bytes_and_not_its_name():
    found = states(op('create', 'x'), write('x', b'abc'), sync('x', 2))
    assert sorted(found, key=len) == [{}, {'x': b'abc'}]


def test_syncing_a_folder_promises_names_and_not_bytes():
    found = states(op('create', 'x'), write('x', b'abc'), sync('', 2))
    assert {} not in found
    assert {'x': b''} in found


def test_both_promise_the_file():
    operations = op('create', 'x'), write('x', b'abc'), sync('x', 2), sync('', 3)
    assert states(*operations) == [{'x': b'abc'}]
    assert {} in states(*operations, stop=3)


def test_a_sync_covers_only_what_had_returned_when_it_was_called():
    found = states(op('create', 'x'), write('x', b'abc'), sync('x', 1), sync('', 1))
    assert {'x': b''} in found
    assert {} not in found


def test_a_rename_may_survive_the_bytes():
    old = op('create', 'x'), write('x', b'old'), sync('x', 2), sync('', 3)
    new = op('create', 'y'), write('y', b'new')
    found = states(*old, *new, rename('y', 'x'))
    assert {'x': b''} in found
    assert {'x': b'old'} in found
    assert {'x': b'old', 'y': b'new'} in found
    assert all('x' in state for state in found)
    safe = states(*old, *new, sync('y', 6), rename('y', 'x'))
    assert {state['x'] for state in safe} == {b'old', b'new'}


def test_names_of_a_folder_are_lost_from_the_last_on():
    found = states(op('create', 'x'), op('create', 'y'), op('unlink', 'x'))
    assert sorted(map(sorted, found)) == [[], ['x'], ['x', 'y'], ['y']]


def test_folders_are_lost_one_by_one():
    found = states(op('mkdir', 'a'), op('create', 'a/x'), op('create', 'y'), sync('', 3))
    assert {'a': None, 'y': b''} in found
    found = states(op('mkdir', 'a'), op('create', 'a/x'), op('create', 'y'), sync('a', 3))
    assert {} in found


def test_a_rename_between_folders_is_one_change():
    operations = op('mkdir', 'a'), op('create', 'x'), sync('', 2), rename('x', 'a/x'), op('create', 'z')
    for state in states(*operations):
        assert ('x' in state) != ('a/x' in state)
    assert [state.keys() for state in states(*operations, sync('a', 5), stop=6) if 'x' in state] == []


def test_an_exchange_is_one_change():
    old = op('mkdir', 'a'), op('create', 'a/x'), op('mkdir', 'b'), sync('a', 3), sync('', 4)
    found = states(*old, rename('a', 'b', 'exchange'))
    assert sorted(map(sorted, found)) == [['a', 'a/x', 'b'], ['a', 'b', 'b/x']]


def test_pages_are_written_in_any_order():
    data = b'a' * PAGE, b'b' * PAGE
    found = states(
        op('create', 'x'),
        write('x', data[0]),
        write('x', data[1], PAGE),
        sync('', 3),
        write('x', b'c' * PAGE),
        stop=5,
    )
    assert {'x': bytes(PAGE) + data[1]} in found
    assert {'x': b'c' * PAGE + bytes(PAGE)} in found
    assert {'x': data[0]} in found


def test_a_truncated_file_may_be_long_or_short():
    found = states(
        op('create', 'x'), write('x', b'abc'), sync('x', 2), sync('', 3), op('resize', 'x'), write('x', b'de')
    )
    assert {state['x'] for state in found} >= {b'', b'abc', b'de', b'd'}
