"""Writes `tests/golden/lerobot`: a recording made and read by LeRobot, for `test_lerobot.py`.

    pip install 'lerobot[dataset]'            # of version 0.6.1, Python 3.12
    python tests/views/windows/make_lerobot_sample.py

Kept are the videos as LeRobot wrote them, one of each episode, and what its dataset returned for each frame:
the values at `delta_timestamps` and their `is_pad`. States and actions follow from their places: `numbers`.
"""

import os
import shutil
import tempfile
from pathlib import Path

import numpy as np

GOLDEN = Path(__file__).parents[2] / 'golden' / 'lerobot'
FPS, HEIGHT, WIDTH = 10, 32, 48
EPISODES = (12, 7, 20)
"""Frames of each."""
DELTA_TIMESTAMPS = {
    'observation.image': [-0.2, -0.1, 0.0],
    'observation.state': [-0.3, -0.1, 0.0],
    'action': [0.0, 0.1, 0.2, 0.3, 0.4],
}


def numbers(episode, count):
    """Returns the states and actions of an episode, float32 (count, 2) and (count, 3)."""
    frames = 100 * episode + np.arange(count, dtype=np.float32)[:, None]
    return frames + np.array([0, 0.5], np.float32), 10 * frames + np.array([0, 1, 2], np.float32)


def write(root):
    """Writes the recording with LeRobot; frames brighten, each with a mark at another place."""
    from lerobot.configs.video import RGBEncoderConfig
    from lerobot.datasets.lerobot_dataset import LeRobotDataset

    features = {
        'observation.image': {
            'dtype': 'video', 'shape': (HEIGHT, WIDTH, 3), 'names': ['height', 'width', 'channels'],
        },
        'observation.state': {'dtype': 'float32', 'shape': (2,), 'names': None},
        'action': {'dtype': 'float32', 'shape': (3,), 'names': None},
    }  # fmt: skip
    dataset = LeRobotDataset.create(
        'golden/sample', FPS, features, root, rgb_encoder=RGBEncoderConfig(vcodec='h264', g=5),
        video_files_size_in_mb=1e-6,  # A file of its own for each episode.
    )  # fmt: skip
    for episode, count in enumerate(EPISODES):
        states, actions = numbers(episode, count)
        for number in range(count):
            image = np.full((HEIGHT, WIDTH, 3), 40 + 10 * number, np.uint8)
            image[8 * episode : 8 * episode + 8, 2 * number : 2 * number + 8] = 255, 80, 0
            dataset.add_frame({
                'observation.image': image, 'observation.state': states[number], 'action': actions[number],
                'task': 'reach',
            })  # fmt: skip
        dataset.save_episode()
    dataset.finalize()


def main():
    """Writes the golden files."""
    from lerobot.datasets.lerobot_dataset import LeRobotDataset

    shutil.rmtree(GOLDEN, ignore_errors=True)
    GOLDEN.mkdir()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / 'sample'
        write(root)
        for episode, path in enumerate(sorted(root.glob('videos/observation.image/*/*.mp4'))):
            shutil.copy(path, GOLDEN / f'episode-{episode}.mp4')
        dataset = LeRobotDataset(
            'golden/sample', root, delta_timestamps=DELTA_TIMESTAMPS, video_backend='pyav'
        )
        samples = [dataset[index] for index in range(len(dataset))]
    columns = {
        name: np.stack([np.asarray(sample[name]) for sample in samples])
        for key in DELTA_TIMESTAMPS
        for name in (key, f'{key}_is_pad')
    }
    # Frames of float32 from 0 to 1, channels first.
    images = np.rint(columns['observation.image'] * 255).astype(np.uint8)
    assert np.array_equal(images.astype(np.float32) / 255, columns['observation.image'])
    columns['observation.image'] = np.moveaxis(images, 2, -1)
    places = np.array([[int(sample['episode_index']), int(sample['frame_index'])] for sample in samples])
    np.savez_compressed(GOLDEN / 'samples.npz', places=places, **columns)


if __name__ == '__main__':
    os.environ['HF_HUB_OFFLINE'] = '1'
    main()
