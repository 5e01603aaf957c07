"""The blocks `py` of the documentation run: those with PyTorch, Grain, JAX, Beam, Ray and torchcodec."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import bags.grain
import bags.jax
import bags.torch
from bags.media.torchcodec import import_torchcodec
from tests.test_docs import prepare_examples, run_examples

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r'^```py\n(.*?)^```', re.DOTALL | re.MULTILINE)
EVERY_BLOCK = re.compile(r'^```py(?:thon)?\n(.*?)^```', re.DOTALL | re.MULTILINE)
"""Of recipes and of docs/lerobot.md, whose blocks with PyTorch go on from those without."""
RAY_WARNS = 'ignore::DeprecationWarning:ray.data.context'
"""Ray sets options of its own that it has deprecated."""
RAY_DID_NOT_START = 'Timed out waiting for file'
"""In the error of `ray.init` if Ray's own server has not started within 30 s; it mostly takes less than 1."""
TRIES = 3
DOCUMENTS = [path for path in sorted(ROOT.glob('docs/**/*.md')) if BLOCK.search(path.read_text('utf-8'))]


@pytest.mark.parametrize('path', DOCUMENTS, ids=lambda path: path.name)
def test_blocks_run(path, tmp_path):
    """Each page runs in its own process, because PyTorch forks."""
    text = path.read_text('utf-8')
    if 'torchcodec' in text:
        try:
            import_torchcodec()
        except bags.MissingDependencyError as exc:
            pytest.skip(f'torchcodec is needed for this, with FFmpeg: {str(exc)[:80]}')
    lines = [''] * text.count('\n')
    goes_on = path.parent.name == 'recipes' or path == ROOT / 'docs/lerobot.md'
    pattern = EVERY_BLOCK if goes_on else BLOCK
    for block in pattern.finditer(text):
        # Line numbers as in the document, for tracebacks.
        first = text.count('\n', 0, block.start(1))
        body = block[1].splitlines()
        lines[first : first + len(body)] = body
    for attempt in range(TRIES):
        folder = tmp_path / str(attempt)
        folder.mkdir()
        script = folder / path.with_suffix('.py').name
        script.write_text('\n'.join(lines), 'utf-8')
        done = subprocess.run(
            [sys.executable, '-W', 'error', '-W', RAY_WARNS, script],
            check=False,
            cwd=folder,
            capture_output=True,
            text=True,
            env={**os.environ, 'PYTHONPATH': str(ROOT)},
        )
        if RAY_DID_NOT_START not in done.stderr:
            break
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    'name',
    [
        'grain.batches',
        'grain.iter_dataset',
        'jax.Prefetch',
        'jax.device_put',
        'jax.prefetch',
        'torch.IterableDataset',
        'torch.to_torch',
    ],
)
def test_examples_of_docstrings_run(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    prepare_examples()
    module, function = name.split('.')
    run_examples(name, getattr(getattr(bags, module), function))
