"""The built-in checks: quiet on clean datasets, and every planted mistake found by name and place."""

import pytest

import bags
from tests.checks.clean import CLEAN
from tests.checks.planted import PLANTED

CASES = [
    pytest.param(each, severity, id=f'{each.name}-{severity}')
    for each in PLANTED
    for severity in each.severities
]


@pytest.fixture(scope='session')
def clean(tmp_path_factory):
    """Function that writes a clean dataset once, and returns its path."""
    folder = tmp_path_factory.mktemp('clean')

    def path_of(name):
        if not (folder / name).exists():
            CLEAN[name](folder / name)
        return folder / name

    return path_of


@pytest.mark.parametrize('name', CLEAN)
def test_clean_datasets_have_no_error_and_at_most_one_warning(clean, name):
    found = bags.check(clean(name), decode=True)
    serious = [finding for finding in found if finding.severity != 'info']
    assert not found.has('error'), found
    assert len(serious) <= 1, found


def test_there_are_many_clean_datasets_and_planted_mistakes():
    assert len(CLEAN) >= 30
    assert len({each.name for each in PLANTED}) >= 40


@pytest.mark.parametrize(('planted', 'severity'), CASES)
def test_planted_mistakes_are_found_by_name_and_place(clean, tmp_path, planted, severity):
    wrong = planted.write(clean(planted.dataset), tmp_path / 'data', severity)
    found = bags.check(tmp_path / 'data', **planted.options)
    named = [each for each in found if (each.check, each.field) == (planted.check, planted.field)]
    assert len(named) == 1, found
    assert wrong is None or set(named[0].datapoints) == set(wrong), named
