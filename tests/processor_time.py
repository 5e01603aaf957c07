"""Measures the processor time of each test, and lists those that take long and are not marked `slow`.

Processor time depends little on what else the machine does. That of child processes counts once they have
ended; that of fixtures that several tests share does not count.
"""

import os

import pytest

__all__ = ['ProcessorTime']

LISTED_SECONDS = 3
MARKS = {'slow', 'campaign'}
PROPERTY = 'processor time'


def used():
    """Returns the seconds of processor time of this process and of its children that have ended."""
    return sum(os.times()[:4])


class ProcessorTime:
    """A plugin of pytest; with a limit in seconds, unmarked tests above it make the run fail."""

    def __init__(self, limit=None):
        self.limit = limit
        self.listed = LISTED_SECONDS if limit is None else min(LISTED_SECONDS, limit)
        self.start = 0
        self.long = {}

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self):
        self.start = used()
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef):
        start, before = self.start, used()
        try:
            return (yield)
        finally:
            if fixturedef.scope != 'function':
                self.start = start + used() - before

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item, call):
        report = yield
        if call.when == 'teardown' and not any(mark.name in MARKS for mark in item.iter_markers()):
            report.user_properties.append((PROPERTY, used() - self.start))
        return report

    def pytest_runtest_logreport(self, report):
        seconds = dict(report.user_properties).get(PROPERTY, 0)
        if seconds > self.listed:
            self.long[report.nodeid] = seconds

    def pytest_sessionfinish(self, session):
        if self.limit is not None and max(self.long.values(), default=0) > self.limit:
            session.exitstatus = session.exitstatus or pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter):
        if not self.long:
            return
        limit = '' if self.limit is None else f'; above {self.limit:g} s the run fails'
        terminalreporter.section(f'unmarked tests over {self.listed:g} s of processor time{limit}')
        for name, seconds in sorted(self.long.items(), key=lambda item: -item[1]):
            terminalreporter.line(f'{seconds:6.1f} s  {name}')
