"""An epoch over a recording of LeRobot: by its own dataset class, and by `bags.lerobot.dataset`.

    python -m benchmarks.lerobot_epoch FOLDER [WORKERS]     # the Python of .venv-lerobot

Writes the recording and its import into the folder, then reads all frames once in random order in batches of
32 by a `DataLoader`: two cameras of 128 × 128, the frame and the one 0.2 s before, and the next 16 actions.
Prints the milliseconds of a frame, on the clock and of all processors.
"""

import os
import sys
import time
from pathlib import Path

import numpy as np
import torch

import bags

# torchvision finds no compiled operators beside the torch of this environment, and imports with this one.
OPERATORS = torch.library.Library('torchvision', 'DEF')
OPERATORS.define('nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor')

FPS, EPISODES, FRAMES, SIZE, BATCH = 30, 4, 75, 128, 32
CAMERAS = 'observation.images.top', 'observation.images.wrist'
DELTA_TIMESTAMPS = {
    **{camera: [-6 / FPS, 0.0] for camera in CAMERAS},
    'action': [item / FPS for item in range(16)],
}


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


def measure(dataset, workers):
    """Returns the seconds of an epoch on the clock, and of all processors."""
    order = torch.Generator().manual_seed(0)
    loader = torch.utils.data.DataLoader(dataset, BATCH, shuffle=True, num_workers=workers, generator=order)
    begun, busy = time.perf_counter(), os.times()
    for _ in loader:
        pass
    now = os.times()
    # Those of workers are known once they have ended.
    return time.perf_counter() - begun, sum(now[:4]) - sum(busy[:4])


def main():
    folder, workers = Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0
    from lerobot.datasets.lerobot_dataset import LeRobotDataset

    root = folder / 'recording'
    if not root.exists():
        write(root, LeRobotDataset.create)
        bags.convert(root, folder / 'copied')
        bags.convert(root, folder / 'linked', link=True)
    options = {'delta_timestamps': DELTA_TIMESTAMPS}
    opened = {
        'LeRobot, PyAV': LeRobotDataset('benchmark/epoch', root, video_backend='pyav', **options),
        'bags, copied': bags.lerobot.dataset(folder / 'copied', **options),
        'bags, linked': bags.lerobot.dataset(folder / 'linked', links=True, **options),
    }
    for name, dataset in opened.items():
        taken, busy = (1e3 * seconds / len(dataset) for seconds in measure(dataset, workers))
        print(f'{name:16} {taken:6.2f} ms a frame, {busy:6.2f} ms of processors', flush=True)


if __name__ == '__main__':
    main()
