"""Recordings written by LeRobot itself, and the same as datasets of bags: copied and linked.

The tests of this folder need lerobot 0.4.4, and fail without it; `make test-lerobot` has it. They are
collected only when the folder is named: `norecursedirs` in pyproject.toml leaves it out of all else.
"""

from types import SimpleNamespace

import pytest

import bags
from tests.lerobot.recordings import RECORDINGS, record


def pytest_configure(config):
    for module in ('lerobot', 'torchvision', 'datasets', 'torch'):
        config.addinivalue_line('filterwarnings', rf'ignore:::{module}(\..*)?')


@pytest.fixture(scope='session')
def recordings(tmp_path_factory):
    """By name: the folder of LeRobot, and of the datasets `copied` and `linked`, and the links to permit."""
    found = {}
    for name in RECORDINGS:
        root = tmp_path_factory.mktemp(name)
        record(name, root / 'lerobot')
        bags.convert(root / 'lerobot', root / 'copied')
        has_videos = any(feature['dtype'] == 'video' for feature in RECORDINGS[name].features.values())
        links = bags.convert(root / 'lerobot', root / 'linked', link=has_videos).parents
        found[name] = SimpleNamespace(root=root, links=links, **vars(RECORDINGS[name]))
    return found


@pytest.fixture(params=RECORDINGS)
def recording(request, recordings):
    return recordings[request.param]
