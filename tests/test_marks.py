"""The mark `slow` may name variants of a test; unmarked tests that take long are listed."""

import pytest

pytest_plugins = 'pytester'

VARIANTS = """
import pytest

@pytest.mark.slow(all_but='x-a')
@pytest.mark.parametrize('first', 'ab')
@pytest.mark.parametrize('second', 'xy')
def test_one(first, second): pass

@pytest.mark.slow('b-*')
@pytest.mark.parametrize('second', 'xy')
@pytest.mark.parametrize('first', 'ab')
def test_some(first, second): pass

@pytest.mark.slow
def test_all(): pass

@pytest.mark.slow
@pytest.mark.campaign
def test_long(): pass
"""

LONG = """
import subprocess, sys, pytest

BURN = 'import time\\nwhile time.process_time() < 0.15: pass'

def burn():
    subprocess.run([sys.executable, '-c', BURN], check=True)

def test_child(): burn()

@pytest.fixture(scope='module')
def shared(): burn()

def test_shared(shared): pass

@pytest.mark.slow
def test_slow(): burn()
"""


CONFTEST = """
import pytest
from tests.marks import choose_slow_variants
from tests.processor_time import ProcessorTime

@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    choose_slow_variants(config, items)

def pytest_configure(config):
    config.pluginmanager.register(ProcessorTime(0.1))
"""


@pytest.fixture
def run(pytester):
    def run(code, *args):
        pytester.makeini('[pytest]\nmarkers =\n  slow:\n  campaign:\n')
        pytester.makeconftest(CONFTEST)
        pytester.makepyfile(test_it=code)
        return pytester.runpytest_inprocess(*args)

    return run


def test_variants_that_are_slow(run):
    def chosen(marks):
        found = run(VARIANTS, '--collect-only', '-q', '-m', marks).outlines
        return {line.partition('::')[2] for line in found if '::' in line}

    assert chosen('not slow') == {'test_one[x-a]', 'test_some[a-x]', 'test_some[a-y]'}
    slow = {'test_one[x-b]', 'test_one[y-a]', 'test_one[y-b]', 'test_some[b-x]', 'test_some[b-y]', 'test_all'}
    assert chosen('slow and not campaign') == slow


def test_a_variant_that_is_not_there_is_an_error(run):
    done = run(VARIANTS.replace('x-a', 'x-c'))
    assert done.ret == pytest.ExitCode.USAGE_ERROR
    assert "test_one: no variant matches ['x-c']" in done.stderr.str()


def test_unmarked_tests_that_take_long_are_listed(run):
    done = run(LONG)
    assert done.ret == pytest.ExitCode.TESTS_FAILED
    assert [line.split()[-1] for line in done.outlines if ' s  ' in line] == ['test_it.py::test_child']
    done.assert_outcomes(passed=3)
    assert run(LONG, '-k', 'shared or slow').ret == pytest.ExitCode.OK
