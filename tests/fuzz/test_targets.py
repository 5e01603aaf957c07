"""A brief run of the fuzzing of `make fuzz`, with random mutations in place of coverage."""

import random

import pytest

from tests.fuzz.targets import TARGETS, run


def mutate(data, chance):
    """Returns bytes with a few of them changed, removed, repeated or inserted."""
    data = bytearray(data)
    for _ in range(chance.choice([1, 1, 2, 4])):
        start = chance.randrange(len(data) + 1)
        stop = min(len(data), start + chance.choice([1, 1, 2, 4, 8, 16]))
        new = chance.choice(
            [b'', chance.randbytes(stop - start), b'\xff' * 8, bytes(8), bytes(data[start:stop]) * 2]
        )
        data[start:stop] = new
    return bytes(data)


@pytest.mark.parametrize('name', TARGETS)
def test_examples_are_valid(name):
    function, errors, examples = TARGETS[name]
    found = 0
    for example in examples:
        try:
            function(example)
            found += 1
        except errors:
            pass
    assert found


@pytest.mark.parametrize('name', TARGETS)
def test_mutations_raise_the_errors_that_are_documented(name):
    chance = random.Random(1)
    examples = TARGETS[name][2]
    for number in range(400):
        run(name, mutate(examples[number % len(examples)], chance))
        if number < 50:
            run(name, chance.randbytes(number))
