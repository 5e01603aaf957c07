"""A recording written by LeRobot, and its windows, in a process of its own: it needs another PyAV.

    python -P benchmarks/lerobot_windows.py FOLDER     # by a Python in which LeRobot is installed

Writes the recording into the folder, then answers each line of indices on standard input with a line when it
has made a batch of them; the first one is kept as `first.npz`.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np

FPS, SECONDS, SIZE, EPISODES = 30, 10, 256, 8
DELTA_TIMESTAMPS = {
    'camera': [-6 / FPS, 0.0],
    'state': [(item - 9) / FPS for item in range(10)],
    'action': [item / FPS for item in range(16)],
}


def draw():
    """Returns the frames of an episode: moving noise, so that encoded frames have a usual size."""
    noise = np.random.default_rng(0).integers(0, 60, (SIZE + FPS * SECONDS, SIZE, 3)).astype(np.uint8)
    noise += np.linspace(0, 190, len(noise), dtype=np.uint8)[:, None, None]
    return np.stack([noise[start : start + SIZE] for start in range(FPS * SECONDS)])


def states_of(episode):
    """Returns the states of an episode, float32 (frames, 7); its actions are those below zero."""
    return episode + np.arange(FPS * SECONDS * 7, dtype=np.float32).reshape(-1, 7)


def write(root):
    """Writes the recording, with a video file of its own for each episode."""
    from lerobot.datasets.lerobot_dataset import LeRobotDataset

    features = {name: {'dtype': 'float32', 'shape': (7,), 'names': None} for name in ('state', 'action')}
    features['camera'] = {
        'dtype': 'video',
        'shape': (SIZE, SIZE, 3),
        'names': ['height', 'width', 'channels'],
    }
    dataset = LeRobotDataset.create(
        'benchmark/windows', FPS, features, root, streaming_encoding=True,
        encoder_queue_maxsize=FPS * SECONDS, video_files_size_in_mb=1e-6,
    )  # fmt: skip
    frames = draw()
    for episode in range(EPISODES):
        for frame, state in zip(np.roll(frames, episode, 0), states_of(episode), strict=True):
            dataset.add_frame({'camera': frame, 'state': state, 'action': -state, 'task': ''})
        dataset.save_episode()
    dataset.finalize()


def serve(root, first):
    """Makes batches: LeRobot's samples as PyTorch stacks them, with frames of uint8, not of floats."""
    from lerobot.datasets.lerobot_dataset import LeRobotDataset
    from torch.utils.data import default_collate

    dataset = LeRobotDataset('benchmark/windows', root, delta_timestamps=DELTA_TIMESTAMPS, return_uint8=True)
    answers, sys.stdout = sys.stdout, sys.stderr
    for number, line in enumerate(sys.stdin):
        batch = default_collate([dataset[index] for index in json.loads(line)])
        if number == 0:
            np.savez(first, **{name: np.asarray(batch[name]) for name in DELTA_TIMESTAMPS})
        print('done', file=answers, flush=True)


class LeRobot:
    """The recording, written and read by the process.

    Args:
        python: A Python in which LeRobot is installed.
        folder: Where the recording is written.
    """

    def __init__(self, python, folder):
        self.folder = Path(folder)
        self._process = subprocess.Popen(
            [python, '-P', __file__, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, text=True, env={**os.environ, 'HF_HUB_OFFLINE': '1'},
        )  # fmt: skip

    def batch(self, indices):
        print(json.dumps(indices), file=self._process.stdin, flush=True)
        if self._process.stdout.readline() != 'done\n':
            raise RuntimeError('the process of LeRobot ended')

    def first(self):
        """Returns the first batch that was made, its frames with channels last."""
        found = dict(np.load(self.folder / 'first.npz'))
        return {**found, 'camera': np.moveaxis(found['camera'], 2, -1)}

    def videos(self):
        """Returns the video of each episode, as bytes."""
        return [path.read_bytes() for path in sorted(self.folder.glob('recording/videos/camera/*/*.mp4'))]

    def close(self):
        self._process.stdin.close()
        self._process.wait()


if __name__ == '__main__':
    parent = Path(sys.argv[1])
    write(parent / 'recording')
    serve(parent / 'recording', parent / 'first.npz')
