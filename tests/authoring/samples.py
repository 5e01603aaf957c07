"""Functions for the workers of `bags.write`, in a module so that new processes can import them."""

import os
import random
import signal
import time
from pathlib import Path

SPEC = {'id': 'int(8)', 'text': 'utf8', 'items': 'int(2)[]', 'maybe': 'bytes?'}


def datapoint(number):
    return {
        'id': number,
        'text': f'datapoint {number} ' * (number % 7),
        'items': range(number % 5),
        'maybe': None if number % 3 else bytes([number % 256]) * 100,
    }


def long(number):
    """Like `datapoint`, with incompressible texts of 1 KB, and one of 8 KB."""
    return {
        **datapoint(number),
        'text': random.Random(number).randbytes(500 if number != 1500 else 4000).hex(),
    }


def uneven(number):
    """Like `datapoint`, with varying delays."""
    time.sleep(0.02 if number % 17 == 3 else 0.0005)
    return datapoint(number)


def busy(number):
    total = 0
    for value in range(20_000):
        total += value * number % 7
    return {**datapoint(number), 'text': str(total)}


def fails_at_70(number):
    if number == 70:
        raise ZeroDivisionError('seventy')
    return datapoint(number)


def dies_at_70(number):
    if number == 70:
        os.kill(os.getpid(), signal.SIGKILL)
    return datapoint(number)


def dies_once_at_70(number):
    flag = Path(os.environ['BAGS_TEST_FLAG'])
    if number == 70 and not flag.exists():
        flag.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return datapoint(number)


def doubled(row):
    return {**row, 'id': 2 * row['id']}
