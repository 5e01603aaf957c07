"""A power cut at any moment of any command loses nothing that was promised, and makes nothing wrong."""

import sys

import pytest

from tests.durability.commands import commands
from tests.durability.laboratory import Laboratory

pytestmark = pytest.mark.skipif(sys.platform != 'linux', reason='strace is for Linux')

GROUPS = {}
for each in commands():
    GROUPS.setdefault(each.partition('-')[0], []).append(each)


def failures(laboratory, count, **options):
    """Tries states of each command; returns their number and those that are wrong."""
    tried, wrong = 0, []
    for name in laboratory.names:
        assert laboratory.is_complete(name), f'{name}: the replay differs from what is on disk'
        for trial in laboratory.trials(name, count, **options):
            tried += 1
            wrong += [trial] if trial.error else []
    return tried, wrong


@pytest.mark.campaign
@pytest.mark.parametrize('group', GROUPS)
def test_nothing_is_lost_or_wrong(tmp_path, group):
    tried, wrong = failures(Laboratory(tmp_path, GROUPS[group]), 14)
    assert tried > 8 * len(GROUPS[group])
    assert not wrong, '\n'.join(map(str, wrong))


@pytest.mark.parametrize('name', ['new', 'resume', 'overwrite', 'edit-metadata', 'bag-append-tail'])
def test_a_missing_sync_is_found(tmp_path, name):
    _, wrong = failures(Laboratory(tmp_path, [name]), 14, synced=False)
    assert wrong


@pytest.mark.campaign
@pytest.mark.parametrize('durability', ['default', 'flush'])
@pytest.mark.parametrize('group', GROUPS)
def test_nothing_is_lost_or_wrong_in_many_states(tmp_path, capsys, group, durability):
    tried, wrong = failures(Laboratory(tmp_path, GROUPS[group], durability), 400)
    with capsys.disabled():
        sys.stdout.write(f'{group}, durability {durability}: {len(wrong)} of {tried} states wrong\n')
    assert not wrong, '\n'.join(map(str, wrong))
