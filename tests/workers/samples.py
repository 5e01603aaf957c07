"""Functions for worker processes, which import them from here."""

import os
import signal
import time
from pathlib import Path

from bags.workers.outcome import PartialResult


def square(number):
    return number * number


def uneven(number):
    time.sleep(0.05 if number % 5 == 0 else 0.001)
    return number, os.getpid()


def fails_at_7(number):
    if number == 7:
        raise ArithmeticError('seven')
    return number


def partial_at_7(number):
    return PartialResult(number, ArithmeticError('seven')) if number == 7 else number


class Unpicklable(Exception):
    def __init__(self, one, two):
        super().__init__(one)


def raises_unpicklable(number):
    raise Unpicklable('one', number)


def returns_unpicklable(number):
    return (item for item in 'ab')


class Unloadable:
    def __reduce__(self):
        return fail, ()


def fail(*args):
    raise FileNotFoundError('not here')


def returns_unloadable(number):
    return Unloadable() if number == 3 else number


class LoadsNowhere:
    """Work that cannot be unpickled."""

    def __reduce__(self):
        return fail, ()


def exits_at_7(number):
    if number == 7:
        raise SystemExit(3)
    return number


class DiesAt:
    """Kills its process at some tasks: always, or while a file does not exist."""

    def __init__(self, numbers, flag=None):
        self.numbers, self.flag = numbers, flag

    def __call__(self, number):
        if number in self.numbers:
            flag = self.flag and Path(f'{self.flag}-{number}')
            if flag is None or not flag.exists():
                if flag is not None:
                    flag.touch()
                os.kill(os.getpid(), signal.SIGKILL)
        return number


class Forks:
    """Forks a child, which inherits the pipes, and dies at task 7."""

    def __init__(self, path):
        self.path = path

    def __call__(self, number):
        if number == 7:
            import warnings

            warnings.simplefilter('ignore')  # Python 3.12 warns of threads.
            pid = os.fork()
            if not pid:
                time.sleep(30)
                os._exit(0)
            Path(self.path).write_text(str(pid))
            os.kill(os.getpid(), signal.SIGKILL)
        return number


def size_of(data):
    return len(data)


def sleeps(seconds):
    time.sleep(seconds)


def state_of_interrupts(number):
    return signal.getsignal(signal.SIGINT) is signal.SIG_IGN


class CountingTransport:
    """Counts what passes through it on both sides."""

    def __init__(self):
        self.count = 0

    def encode(self, result):
        self.count += 1
        return 'encoded', self.count, result

    def decode(self, message):
        word, count, result = message
        assert word == 'encoded'
        return count, result

    def close(self):
        self.count = None
