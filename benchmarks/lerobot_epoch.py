"""Epochs over a recording of LeRobot: by its own dataset class, and by `bags.lerobot.dataset`.

    python -m benchmarks.lerobot_epoch FOLDER     # by a Python in which lerobot is installed

Writes the recording and its import into the folder, if it is new. An epoch reads all frames once in random
order, in batches of 32 by a `DataLoader`, without workers and with two: two cameras of 128 × 128 in the codec
that LeRobot chooses, the frame and the one 0.2 s before, and the next 16 actions. LeRobot decodes by PyAV, as
bags does: with FFmpeg 5.1, torchcodec 0.11 fails at AV1 frames in random order. Saves `results/lerobot.json`.
"""

import importlib.metadata
import shlex
import sys
import warnings
from pathlib import Path

import numpy as np
import torch

import bags
from benchmarks import report
from benchmarks.timing import Candidate, time_alternating

if importlib.metadata.version('lerobot').startswith('0.4.'):
    # torchvision finds no compiled operators beside the torch of this environment, and imports with this one.
    OPERATORS = torch.library.Library('torchvision', 'DEF')
    OPERATORS.define('nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor')

FPS, EPISODES, FRAMES, SIZE, BATCH = 30, 4, 75, 128, 32
ROUNDS = 3
WORKERS = 0, 2
CAMERAS = 'observation.images.top', 'observation.images.wrist'
DELTA_TIMESTAMPS = {
    **{camera: [-6 / FPS, 0.0] for camera in CAMERAS},
    'action': [item / FPS for item in range(16)],
}
FLOORS = {'LeRobot, PyAV': 1.0}


def write(root, create):
    """Writes the recording in the codec and the files that LeRobot chooses."""
    picture = {'dtype': 'video', 'shape': (SIZE, SIZE, 3), 'names': ['height', 'width', 'channels']}
    vector = {'dtype': 'float32', 'shape': (7,), 'names': None}
    features = {**dict.fromkeys(CAMERAS, picture), 'observation.state': vector, 'action': vector}
    dataset = create('benchmark/epoch', FPS, features, root)
    noise = np.random.default_rng(0).integers(0, 60, (SIZE + FRAMES, SIZE, 3)).astype(np.uint8)
    for episode in range(EPISODES):
        for number in range(FRAMES):
            frame = np.roll(noise[number : number + SIZE], episode, 1)
            state = np.full(7, number, np.float32)
            values = {**dict.fromkeys(CAMERAS, frame), 'observation.state': state, 'action': -state}
            dataset.add_frame({**values, 'task': 'wave'})
        dataset.save_episode()
    dataset.finalize()


def epoch(dataset, workers):
    """Returns a function that reads all frames of a dataset once."""

    def run(_):
        order = torch.Generator().manual_seed(0)
        loader = torch.utils.data.DataLoader(
            dataset, BATCH, shuffle=True, num_workers=workers, generator=order
        )
        for _ in loader:
            pass

    return run


def main():
    folder = Path(sys.argv[1])
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')  # Of torchvision, about the operators.
        from lerobot.datasets.lerobot_dataset import LeRobotDataset
    output = report.Report(shlex.join(['python', '-m', 'benchmarks.lerobot_epoch', 'FOLDER']))
    report.environment([], folder)
    root = folder / 'recording'
    if not root.exists():
        write(root, LeRobotDataset.create)
        bags.convert(root, folder / 'copied')
        bags.convert(root, folder / 'linked', link=True)
    options = {'delta_timestamps': DELTA_TIMESTAMPS}
    opened = {
        'LeRobot, PyAV': LeRobotDataset('benchmark/epoch', root, video_backend='pyav', **options),
        'bags, copied': bags.lerobot.dataset(folder / 'copied', **options),
        'bags, linked': bags.lerobot.dataset(folder / 'linked', trust_links=True, **options),
    }
    for workers in WORKERS:
        candidates = {
            name: Candidate(epoch(dataset, workers), len(dataset)) for name, dataset in opened.items()
        }
        title = f'{workers} workers' if workers else 'no workers'
        timings = time_alternating(candidates, ROUNDS)
        output.compare(title, timings, 'bags, copied', FLOORS, unit='ms')
    output.save('lerobot')
    output.summary()


if __name__ == '__main__':
    main()
