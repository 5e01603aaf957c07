"""What maintainers and the repository's host read: workflows, addresses, the citation."""

import re
from pathlib import Path

import pytest

import bags
from tests.cloud import local_only

ROOT = Path(__file__).parents[1]
WORKFLOWS = sorted((ROOT / '.github' / 'workflows').glob('*.yml'))

pytestmark = pytest.mark.skipif(not WORKFLOWS, reason='an sdist has no workflows')


@pytest.mark.parametrize('path', WORKFLOWS, ids=lambda path: path.stem)
def test_workflows_run_known_code_with_no_permissions_but_their_own(path):
    text = path.read_text()
    assert '\npermissions: {}\n' in text
    for line in re.findall(r'uses: (.*)', text):
        assert re.fullmatch(r'[\w./-]+@[0-9a-f]{40}  # v\d+\.\d+\.\d+', line), f'{line}: expected a commit'
    assert 'password' not in re.sub(r'#.*', '', text)
    assert text.count('persist-credentials: false') == text.count('actions/checkout@')


def test_every_supported_python_is_tested():
    text = (ROOT / '.github' / 'workflows' / 'test.yml').read_text()
    lowest = re.search(r">=3\.(\d+)'", (ROOT / 'pyproject.toml').read_text())[1]
    assert f"python: ['3.{lowest}'," in text
    assert 'os: [ubuntu-latest, macos-latest, windows-latest]' in text


def test_the_citation_has_the_version():
    assert f'\nversion: {bags.__version__}\n' in (ROOT / 'CITATION.cff').read_text()


def test_every_test_that_is_named_outside_of_the_tests_is_there():
    for name in ('Makefile', 'SECURITY.md', 'CONTRIBUTING.md', '.github/workflows/test.yml'):
        text = (ROOT / name).read_text(encoding='utf-8')
        paths = set(re.findall(r'(?<![\w/.-])(tests/[\w/]+(?:\.py)?)(?!\w|[*/-]|\.\w)', text))
        assert paths, name
        for path in paths:
            assert (ROOT / path).exists(), f'{name}: {path}'
        for path, function in re.findall(r'(tests/[\w/]+\.py)::(\w+)', text):
            assert f'def {function}(' in (ROOT / path).read_text(encoding='utf-8'), (
                f'{name}: {path}::{function}'
            )


def test_every_test_that_runs_over_object_stores_is_there():
    for path in {*local_only.FILES, *local_only.PART}:
        assert (ROOT / path).is_file(), path
