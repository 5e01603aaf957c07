"""The training examples run as programs, and resume with the same losses."""

import pytest

from tests.test_examples import run


@pytest.mark.parametrize('name', ['train_torch', 'train_jax'])
def test_training_resumes_with_the_same_losses(name, tmp_path):
    lines = run(f'{name}.py', tmp_path).splitlines()
    assert lines[-1] == 'the 30 losses after step 30 are equal'
    losses = [float(line.split()[3].rstrip(',')) for line in lines if line.startswith('step')]
    assert len(losses) == 9
    assert losses[:6][3:] == losses[6:]
    assert losses[5] < losses[0] < 2.6
