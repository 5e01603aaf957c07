"""Writing with what other systems have; `make test-systems` runs all tests of bags and datasets so."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != 'linux', reason='takes calls from Linux')
@pytest.mark.parametrize('system', ['windows', 'macos'])
def test_bags_and_datasets_are_written(system, tmp_path):
    files = ('tests/bag/test_writer.py', 'tests/dataset/writing/test_writer.py')
    command = [sys.executable, '-m', 'pytest', '-q', '-n', '0', '-p', 'no:cacheprovider']
    done = subprocess.run(
        [*command, '-p', f'tests.systems.{system}', f'--basetemp={tmp_path}/each', *files],
        check=False, cwd=ROOT, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-4000:]
    assert ' passed' in done.stdout
