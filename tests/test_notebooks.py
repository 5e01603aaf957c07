"""The notebooks run from their first cell to their last, and are stored with their outputs."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / 'docs/notebooks').glob('*.ipynb'))

RUN = """
import sys
import nbclient, nbformat

notebook = nbformat.read(sys.argv[1], as_version=4)
nbformat.validate(notebook)
nbclient.NotebookClient(notebook, timeout=300, kernel_name='python3').execute(cwd='.')
for cell in notebook.cells:
    for output in cell.get('outputs', []):
        print(output.get('text') or output['data'].get('text/html') or output['data'].get('text/plain'))
"""
SHOWN = {
    'look': [
        'Select of 3 datapoints',
        '<img src="data:image/jpeg;base64,',
        "'name': 'cat'",
        '(132, 360, 640, 3)',
    ],
    'train': ['<p>Batch of 32</p>', 'rocket (2)', 'accuracy before: 0.33'],
    'record': [
        '4 datapoints in 2 shards, unfinished',
        '([5, 5, 5, 5], 4.0)',
        '(18, (3, 4, 2))',
        'reach target 3',
    ],
}
"""What the outputs contain."""


def test_all_are_run():
    assert {path.stem for path in NOTEBOOKS} == set(SHOWN)


@pytest.mark.slow(all_but='record')
@pytest.mark.parametrize('path', NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook(path, tmp_path):
    for package in ('nbclient', 'ipykernel', 'PIL', 'av'):
        pytest.importorskip(package)
    # Datasets go to a temporary folder; kernels and their settings have home folders of their own.
    homes = dict.fromkeys(('TMPDIR', 'HOME', 'IPYTHONDIR', 'JUPYTER_RUNTIME_DIR'), str(tmp_path))
    done = subprocess.run(
        [sys.executable, '-c', RUN, path.name],
        check=False,
        cwd=path.parent,
        capture_output=True,
        text=True,
        encoding='utf-8',
        env={**os.environ, **homes, 'PYTHONPATH': str(ROOT), 'PYTHONIOENCODING': 'utf-8'},
    )
    assert done.returncode == 0, done.stderr[-4000:]
    for text in SHOWN[path.stem]:
        assert text in done.stdout


@pytest.mark.parametrize('path', NOTEBOOKS, ids=lambda path: path.stem)
def test_they_are_stored_with_their_outputs(path):
    """After a change, `make notebooks` runs and stores them."""
    text = path.read_text(encoding='utf-8')
    code = [cell for cell in json.loads(text)['cells'] if cell['cell_type'] == 'code']
    assert [cell['execution_count'] for cell in code] == list(range(1, len(code) + 1))
    shown = ''.join(json.dumps(cell['outputs'], ensure_ascii=False) for cell in code)
    for expected in SHOWN[path.stem]:
        assert json.dumps(expected, ensure_ascii=False)[1:-1] in shown
    assert '/tmp/' not in text
