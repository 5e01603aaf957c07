"""A plugin of pytest that lists what campaigns found: parallel runs show no output of tests."""

import functools

import pytest

__all__ = ['Found']

PROPERTY = 'found'


class Found:
    """The plugin."""

    @pytest.fixture
    def found(self, record_property):
        """A function that adds a line to the summary of the run."""
        return functools.partial(record_property, PROPERTY)

    def pytest_terminal_summary(self, terminalreporter):
        reports = [
            report for outcome in ('passed', 'failed') for report in terminalreporter.getreports(outcome)
        ]
        lines = [
            text
            for report in reports
            if report.when == 'call'
            for name, text in report.user_properties
            if name == PROPERTY
        ]
        if lines:
            terminalreporter.section('found')
            terminalreporter.write('\n'.join([*lines, '']))
