"""The script of docs/migration/lerobot.md over the recording of that page, and the examples of docstrings."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import bags
from tests.lerobot.recordings import HAS_0_4
from tests.test_docs import prepare_examples, run_examples

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / 'docs/migration/lerobot.md').read_text('utf-8')
START = (
    ''
    if not HAS_0_4
    else f"""
import runpy
import warnings
warnings.simplefilter('ignore')
kept = runpy.run_path({str(ROOT / 'tests/lerobot/recordings.py')!r})
"""
)


def block(pattern):
    return re.search(rf'{pattern}\n(.*?)^```', PAGE, re.DOTALL | re.MULTILINE)[1]


@pytest.mark.slow
def test_the_script_of_the_page(tmp_path):
    script = block('^```python title="train.py"')
    if not HAS_0_4:
        script = script.replace('lerobot.datasets.utils', 'lerobot.utils.feature_utils')
    theirs = re.sub(r'^# (data = LeRobotDataset.*)\n.*\n', r'\1\n', script, flags=re.MULTILINE)
    assert theirs != script
    theirs = f'from lerobot.datasets.lerobot_dataset import LeRobotDataset\n{theirs}'
    theirs = theirs.replace("root='arm',", "root='arm', video_backend='pyav',")
    recording = block('<!-- The recording of this page:\n```python')
    for name in ('camera', 'state'):  # The names that policies expect.
        recording = recording.replace(f"'{name}'", f"'observation.{name}'")
    losses = []
    for number, text in enumerate((theirs, script)):
        text = text.replace('policy = ACT', 'torch.manual_seed(0); torch.set_num_threads(1); policy = ACT')
        text = text.replace('    loss.backward()', '    print("loss", loss.item())\n    loss.backward()')
        file = tmp_path / f'{number}.py'
        converted = "bags.convert('arm', 'dataset')\n"
        file.write_text(START + (recording + converted if not number else '') + text)
        done = subprocess.run(
            [sys.executable, file], check=False, cwd=tmp_path, capture_output=True, text=True,
            env={'PYTHONPATH': str(ROOT), 'PATH': ''},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        losses.append(re.findall(r'^loss (.*)$', done.stdout, re.MULTILINE))
    assert len(losses[0]) == 3
    assert losses[0] == losses[1]


@pytest.mark.parametrize('name', ['RecordingDataset', 'dataset', 'export'])
def test_examples_of_docstrings_run(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    prepare_examples()
    spec = {'camera': 'video(10)', 'action': 'array(float32,7)[]', 'task': 'utf8'}
    with bags.DatasetWriter('arm', spec, metadata={'fps': 10}) as writer:
        for number in range(4):
            frames = np.full((10, 32, 32, 3), number, np.uint8)
            writer.append({'camera': frames, 'action': np.zeros((10, 7), np.float32), 'task': 'wave'})
    run_examples(name, getattr(bags.lerobot, name))
