"""The training examples run as programs, and resume with the same losses."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize('name', ['train_torch', 'train_jax'])
def test_training_resumes_with_the_same_losses(name, tmp_path):
    done = subprocess.run(
        [sys.executable, '-W', 'error', ROOT / f'examples/{name}.py'],
        check=False,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        encoding='utf-8',
        env={**os.environ, 'PYTHONPATH': str(ROOT), 'PYTHONIOENCODING': 'utf-8'},
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[-1] == 'the 30 losses after step 30 are equal'
    losses = [float(line.split()[3].rstrip(',')) for line in lines if line.startswith('step')]
    assert len(losses) == 9
    assert losses[:6][3:] == losses[6:]
    assert losses[5] < losses[0] < 2.6
