"""Chooses slow variants of a test: `slow('a', 'b-*')` marks these, `slow(all_but='a')` all but this one."""

from fnmatch import fnmatchcase

import pytest

__all__ = ['choose_slow_variants']


def choose_slow_variants(config, items):
    """Removes a mark `slow` with arguments from the variants of the test that are not slow."""
    unmatched = {}
    for item in items:
        for mark in [mark for mark in item.own_markers if mark.name == 'slow']:
            if mark.args or mark.kwargs:
                patterns = mark.args or (mark.kwargs['all_but'],)
                matching = {pattern for pattern in patterns if fnmatchcase(item.callspec.id, pattern)}
                unmatched.setdefault(item.nodeid.partition('[')[0], set(patterns)).difference_update(matching)
                if bool(matching) != bool(mark.args):
                    item.own_markers.remove(mark)
    # Of tests that were chosen by name, some variants are not here.
    if not config.getoption('lf', False) and not any('::' in arg for arg in config.args):
        for test, patterns in unmatched.items():
            if patterns:
                raise pytest.UsageError(f'{test}: no variant matches {sorted(patterns)} of its mark slow')
