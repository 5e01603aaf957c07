"""What all sources have in common."""

import subprocess
import sys
from pathlib import Path

import pytest

GOLDEN = Path(__file__).parent / 'sources' / 'golden'


@pytest.mark.parametrize(
    ('package', 'sample', 'extra'),
    [('h5py', 'aloha', 'hdf5'), ('zarr', 'replay_v3.zarr.zip', 'zarr'), ('rosbags', 'recording.mcap', 'mcap'),
     ('pyarrow', 'lerobot_v3', 'lerobot'), ('av', 'lerobot_v3', 'lerobot')],
)  # fmt: skip
def test_a_missing_package_names_its_extra(package, sample, extra):
    code = f"""
import sys
sys.modules[{package!r}] = None
import bags
from bags.interop.open_source import open_source
try:
    open_source({str(GOLDEN / sample)!r})
except bags.MissingDependencyError as exc:
    assert 'bags[{extra}]' in str(exc), exc
else:
    raise AssertionError
"""
    subprocess.run([sys.executable, '-c', code], check=True)
