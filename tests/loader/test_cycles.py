"""Iterators that are started and abandoned in every way: no memory, thread or file remains."""

import sys

import pytest

# Starts an iterator, and abandons it in one of several ways.
CYCLE = """
    def cycle(number, **options):
        how = ('unused', 'some', 'closed', 'fails', 'cycle', 'all', 'interrupted')[number % 7]
        transform = {'fails': bad, 'interrupted': stops}.get(how, augment)
        batches = iter(loader(workers=1 + number % 3, transform=transform, epochs=1, **options))
        if how in ('some', 'closed', 'cycle'):
            for _ in range(number % 5):
                next(batches)
        if how == 'closed':
            batches.close()
        if how == 'cycle':
            ring = [batches]
            ring.append(ring)
        if how in ('fails', 'all', 'interrupted'):
            try:
                count = sum(1 for _ in batches)
            except (ArithmeticError, KeyboardInterrupt) as exc:
                assert how == {'fifty': 'fails', 'stop': 'interrupted'}[str(exc)], exc
            else:
                assert (how, count) == ('all', 15)

    def stops(batch):
        if 50 in batch['id']:
            raise KeyboardInterrupt('stop')
        return batch

    def run(count, **options):
        list(loader(processes=False, epochs=1))  # All files of the dataset are open,
        cycle(5, **options)  # and what stays for other reasons is there.
        before = held()
        for number in range(count):
            cycle(number, **options)
        after = held()
        print(f'{count} times: before {before}, after {after}')
        assert after == before
"""


@pytest.mark.slow('inline-70')
@pytest.mark.parametrize(
    ('kind', 'count'),
    [
        ('threads', 70),
        pytest.param('processes', 7, marks=pytest.mark.slow),
        ('inline', 70),
        pytest.param('threads', 1000, marks=pytest.mark.campaign),
        pytest.param('processes', 1000, marks=pytest.mark.campaign),
        pytest.param('inline', 1000, marks=pytest.mark.campaign),
    ],
)
def test_nothing_is_left_behind(script, kind, count):
    code = f"""
        if {kind == 'inline'}:
            make = loader
            loader = lambda **options: make(**{{**options, 'workers': 0}})
        run({count}, processes={kind == 'processes'})
    """
    code, out, errors = script(code, functions=CYCLE, timeout=3000)
    sys.stdout.write(out)
    assert (code, errors) == (0, '')
