"""Tests that hold for all sources."""

import subprocess
import sys
from pathlib import Path

import pytest

import bags

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


def test_an_unknown_format_lists_those_known(tmp_path):
    (tmp_path / 'x.xyz').write_bytes(b'hello')
    with pytest.raises(bags.SourceError, match=r'x.xyz: expected a folder, .*\*.mds, .*\*.parquet'):
        bags.convert(tmp_path / 'x.xyz', tmp_path / 'out')
    with pytest.raises(FileNotFoundError, match=r'no files to import; expected a folder of files, \*\.tar'):
        bags.convert(tmp_path / 'nowhere', tmp_path / 'out')
    assert not (tmp_path / 'out').exists()
