"""Writes `tests/golden/lerobot_depth`: recordings with depth cameras, and what LeRobot 0.6.1 returns of them.

    make .venv-lerobot-0.6/ready
    .venv-lerobot-0.6/bin/python -m tests.lerobot.make_golden_depth

`log` has the default quantization, and `linear` another one. The former key of depth gives the same items.
"""

import json
import os
import shutil
import tempfile
from pathlib import Path

os.environ['HF_HUB_OFFLINE'] = '1'

import numpy as np

GOLDEN = Path(__file__).parents[1] / 'golden' / 'lerobot_depth'
FPS = 10
LENGTHS = (4, 3)  # Of two frames, LeRobot writes wrong times.
DELTAS = {'depth': [-0.1, 0.0], 'depth_mm': [0.0, 0.1], 'depth_m': [0.0]}
UNITS = ('mm', 'm')
NAMES = ['height', 'width', 'channels']
LINEAR = {'depth_min': 0.2, 'depth_max': 4.0, 'shift': 0.0, 'use_log': False}


def camera(dtype, *shape, **info):
    return {'dtype': dtype, 'shape': shape, 'names': NAMES, **({'info': info} if info else {})}


FEATURES = {
    'depth': camera('video', 64, 64, 1, is_depth_map=True),
    'depth_mm': camera('image', 6, 8, 1, is_depth_map=True),
    'depth_m': camera('image', 6, 8, 1, is_depth_map=True),
    'color': camera('image', 4, 6, 3),
    'action': {'dtype': 'float32', 'shape': (2,), 'names': None},
}


def record(root, options):
    from lerobot.configs.video import DepthEncoderConfig
    from lerobot.datasets.lerobot_dataset import LeRobotDataset

    # LeRobot's reader does not find frames of the open groups of pictures that x265 makes by default.
    encoder = DepthEncoderConfig(extra_options={'x265-params': 'lossless=1:open-gop=0'}, **options)
    dataset = LeRobotDataset.create('golden/depth', FPS, FEATURES, root, depth_encoder=encoder)
    rng = np.random.default_rng(5)
    for episode, count in enumerate(LENGTHS):
        for number in range(count):
            # From below the shortest to above the longest distance, and so that each frame is another one.
            ramp = np.linspace(0, 11_000, 4096).round().reshape(64, 64, 1)
            image = rng.integers(0, 9000, (6, 8, 1))
            dataset.add_frame({
                'depth': np.roll(ramp, 5 * number + episode, 0).astype(np.uint16),
                'depth_mm': image.astype(np.uint16),
                'depth_m': (image / 1000).astype(np.float32),
                'color': rng.integers(0, 256, (4, 6, 3)).astype(np.uint8),
                'action': rng.normal(size=2).astype(np.float32),
                'task': 'look',
            })  # fmt: skip
        dataset.save_episode()
    dataset.finalize()
    shutil.rmtree(root / 'images', ignore_errors=True)


def with_old_key(source, root):
    """Copies a recording whose depth cameras have the former key `video.is_depth_map`."""
    shutil.copytree(source, root)
    path = root / 'meta/info.json'
    info = json.loads(path.read_text())
    for name in ('depth', 'depth_mm', 'depth_m'):
        facts = info['features'][name]['info']
        facts['video.is_depth_map'] = facts.pop('is_depth_map')
    path.write_text(json.dumps(info, indent=4))


def read(root, unit):
    """Returns all items, those with offsets, and the statistics, in a unit of depth."""
    from lerobot.datasets.lerobot_dataset import LeRobotDataset

    names = ['depth', 'depth_mm', 'depth_m', 'color']
    options = {'video_backend': 'pyav', 'depth_output_unit': unit}
    found = {}
    dataset = LeRobotDataset('golden/depth', root, **options)
    for name in names:
        found[f'{unit}/item/{name}'] = np.stack([dataset[index][name] for index in range(sum(LENGTHS))])
        for key, value in dataset.meta.stats[name].items():
            found[f'{unit}/stats/{name}/{key}'] = np.asarray(value)
    windows = LeRobotDataset('golden/depth', root, delta_timestamps=DELTAS, **options)
    for name in DELTAS:
        found[f'{unit}/window/{name}'] = np.stack([windows[index][name] for index in range(sum(LENGTHS))])
    return found


def main():
    shutil.rmtree(GOLDEN, ignore_errors=True)
    GOLDEN.mkdir(parents=True)
    for name, options in {'log': {}, 'linear': LINEAR}.items():
        record(GOLDEN / name, options)
        found = {}
        for unit in UNITS:
            found |= read(GOLDEN / name, unit)
        np.savez_compressed(GOLDEN / f'{name}.npz', **found)
    with tempfile.TemporaryDirectory() as folder:
        with_old_key(GOLDEN / 'linear', Path(folder, 'old'))
        for unit in UNITS:
            for key, value in read(Path(folder, 'old'), unit).items():
                np.testing.assert_array_equal(value, found[key])
    for path in GOLDEN.rglob('*.mp4'):
        path.chmod(0o644)


if __name__ == '__main__':
    main()
