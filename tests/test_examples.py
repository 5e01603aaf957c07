"""The examples run as programs, and print the expected output."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / 'examples'
DATA = EXAMPLES / 'data'


def run(name, folder, *args):
    """Runs an example in a folder, with warnings as errors, and returns what it printed."""
    done = subprocess.run(
        [sys.executable, '-W', 'error', EXAMPLES / name, *args],
        check=False,
        cwd=folder,
        capture_output=True,
        text=True,
        encoding='utf-8',
        env={**os.environ, 'PYTHONPATH': str(ROOT), 'PYTHONIOENCODING': 'utf-8'},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_demo_runs_twice_and_draws(tmp_path):
    image = pytest.importorskip('PIL.Image')
    pytest.importorskip('av')
    printed = run('demo.py', tmp_path)
    assert '13 datapoints, 3 shards, 8 fields' in printed
    assert 'float32 (3, 3, 16)' in printed
    assert run('demo.py', tmp_path) == printed
    with image.open(tmp_path / 'out/contact-sheet.png') as sheet:
        assert sheet.size[0] > 1000
        assert len(sheet.convert('RGB').resize((64, 64)).getcolors(4096)) > 500


def test_from_folder(tmp_path):
    pytest.importorskip('PIL')
    printed = run('from_folder.py', tmp_path)
    pictures = sorted(DATA.glob('*.jpg'))
    assert f'{len(pictures)} captioned images' in printed
    for path in pictures:
        assert path.with_suffix('.txt').read_text(encoding='utf-8').strip() in printed


def test_custom_format(tmp_path):
    printed = run('custom_format.py', tmp_path)
    assert 'rejected' in printed
    assert 'expected a mask of shape (480, 640), got (2, 2)' in printed
    assert 'bool (480, 640)' in printed


def test_episodes(tmp_path):
    pytest.importorskip('PIL')
    printed = run('episodes.py', tmp_path)
    assert "'reach the left corner', camera (8, 64, 64, 3), joints (8, 2)" in printed


@pytest.mark.slow
def test_record_processes(tmp_path):
    lines = run('record_processes.py', tmp_path).splitlines()
    streams = r': left (\d\.\d) s, right (\d\.\d) s, joints (\d\.\d) s'
    for line, begin in zip(lines, ('live, take 0', 'take 0', 'take 1', 'take 2'), strict=True):
        assert re.fullmatch(begin + streams, line), line
    left, right, joints = map(float, re.findall(r'(\d\.\d) s', lines[2]))
    assert 0.1 <= right <= 0.6 < min(left, joints)  # It was killed after half a second.


@pytest.mark.slow
def test_record(tmp_path):
    pytest.importorskip('PIL')
    camera = DATA / 'bunny.mp4'
    for arguments, size in (((), '72 x 96'), ((camera,), '360 x 640')):
        streams = rf': [1-9]\d* frames of {size}, joints [1-9]\d* times, \d\.\d s of sound'
        expected = [
            f'followed: take 0{streams}',
            f'followed: take 2{streams}',
            'recovered: datapoint 0 of the last shard is what was written before the kill',
            f'take 0{streams}',
            f'take 2{streams}',
            f'take 0{streams}',
            r'fitted: mean square error \S+ of the joints 0.05 s later',
            'exported 3 episodes for LeRobot:',
            "  field 'success' is left out: .*",
            *(
                rf"  field '{name}_time' is left out: it has the times of '{name}'"
                for name in ('camera', 'joints')
            ),
            "  field 'sound' is left out: LeRobot has no sound",
            r"  field 'camera': (copied|encoded in \d of 3 episodes); of \d+ frames, .*",
        ]
        printed = run('record.py', tmp_path, 'recorded', *arguments)
        assert re.fullmatch('\n'.join(expected) + '\n', printed), printed


def test_clean(tmp_path):
    pytest.importorskip('PIL')
    printed = run('clean.py', tmp_path)
    assert '18 episodes in' in printed
    assert '2 datapoints removed: 3, 7' in printed
    assert 'task: 3 datapoints changed: 2, 12, 17' in printed
    assert 'cam: jpeg[] → no such field' in printed
    parts = {
        name: int(count) for name, count in re.findall(r'^(train|val): (\d+) episodes', printed, re.MULTILINE)
    }
    assert sum(parts.values()) == 18
    assert min(parts.values()) > 0
    assert run('clean.py', tmp_path) == printed


@pytest.mark.slow
def test_recording(tmp_path):
    pytest.importorskip('av')
    printed = run('recording.py', tmp_path)
    assert '25 clips: 25 copied, 0 encoded again' in printed
    assert '1600 frames of (180, 320, 3), 64 s' in printed
    assert 'the pixels of all forms are the same' in printed
    shares = dict(re.findall(r'^(\S.*?)  .* KB +([\d.]+)%$', printed, re.MULTILINE))
    assert float(shares['one video']) < 5
    assert float(shares['clips as one video']) < 8
    assert float(shares['everything']) > 90


def test_media_are_credited_and_captioned():
    credits = json.loads((DATA / 'credits.json').read_text(encoding='utf-8'))
    readme = (DATA / 'README.md').read_text(encoding='utf-8')
    media = [path for path in DATA.iterdir() if path.suffix in {'.jpg', '.mp4', '.flac'}]
    assert {path.stem for path in media} == set(credits)
    for path in media:
        assert f'`{path.name}`' in readme
        assert path.with_suffix('.txt').exists()
    assert sum(path.stat().st_size for path in media) < 3_000_000
