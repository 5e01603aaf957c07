"""SECURITY.md names tests that exist."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
NAMED = re.findall(
    r'`((?:tests|viewer)/[\w./]+)(?:::(\w+))?`', (ROOT / 'SECURITY.md').read_text(encoding='utf-8')
)


def test_facts_are_held_by_tests():
    assert len(NAMED) >= 15


@pytest.mark.parametrize(('path', 'name'), NAMED)
def test_a_named_test_exists(path, name):
    assert (ROOT / path).is_file()
    if name:
        assert f'def {name}(' in (ROOT / path).read_text(encoding='utf-8')
