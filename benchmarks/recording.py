"""Records a camera of 720p at 30 fps, with a writer in a process of its own.

    python -P benchmarks/recording.py bags FOLDER
    python -P benchmarks/recording.py lerobot FOLDER     # by a Python in which LeRobot 0.6.1 is installed

Both encode H.264 with x264's preset `veryfast`, a quality of 20 and a key frame every 32 frames, in the
background. Prints how long a call that appends a frame takes, beside a plain copy of it.
"""

from __future__ import annotations

import os
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

FPS, SECONDS, HEIGHT, WIDTH = 30, 20, 720, 1280


def play(append: Callable[[np.ndarray[Any, Any], np.ndarray[Any, Any]], Any]) -> None:
    """Gives frames and states at their rate, and prints the times."""
    y, x = np.mgrid[:HEIGHT, :WIDTH]
    noise = np.random.default_rng(0).integers(0, 4, (HEIGHT, WIDTH, 3), np.uint8)
    image = np.stack([x, y, x + y], axis=-1).astype(np.uint8) + noise
    times: list[float] = []
    copies: list[float] = []
    begin = time.monotonic()
    for number in range(FPS * SECONDS):
        left = 7 * number % (WIDTH - 80)
        image[300:380, left : left + 80] = 5 * number % 256
        state = np.full(7, number, np.float32)
        start = time.perf_counter()
        append(image, state)
        times.append(time.perf_counter() - start)
        start = time.perf_counter()
        image.copy()
        copies.append(time.perf_counter() - start)
        time.sleep(max(0.0, begin + (number + 1) / FPS - time.monotonic()))
    for what, seconds in (('append', times), ('a copy', copies)):
        p50, p99 = 1000 * np.percentile(seconds, [50, 99])
        print(f'{what}: p50 {p50:.2f} ms, p99 {p99:.2f} ms, at most {1000 * max(seconds):.0f} ms')


def record_bags(path: Path) -> str:
    """Records with bags; returns what it did when the encoder was late."""
    import bags

    spec = {'front': 'mp4(30)[]', 'state': 'array(float32,7)[]'}
    with bags.DatasetWriter(path, spec) as writer, writer.begin() as episode:
        play(lambda image, state: episode.append({'front': image, 'state': state}))
    with bags.open(path) as dataset:
        return f'{episode.waits} calls waited, {len(bags.ClipSequence(dataset, 0, "front"))} frames stored'


def record_lerobot(path: Path) -> str:
    """Records with LeRobot's streaming encoding; returns what it did when the encoder was late."""
    os.environ['HF_HUB_OFFLINE'] = '1'
    from lerobot.configs.video import RGBEncoderConfig
    from lerobot.datasets.lerobot_dataset import LeRobotDataset

    features = {
        'observation.images.front': {'dtype': 'video', 'shape': (HEIGHT, WIDTH, 3), 'names': ['y', 'x', 'c']},
        'observation.state': {'dtype': 'float32', 'shape': (7,), 'names': None},
    }
    encoder = RGBEncoderConfig(vcodec='h264', preset='veryfast', crf=20, g=32)
    dataset = LeRobotDataset.create(
        'bags/recording', FPS, features, root=path, rgb_encoder=encoder, streaming_encoding=True
    )
    names = list(features)
    play(lambda image, state: dataset.add_frame({names[0]: image, names[1]: state, 'task': 'none'}))
    dropped = sum(dataset.writer._streaming_encoder._dropped_frames.values())
    dataset.save_episode()
    dataset.finalize()
    return f'{dropped} frames dropped'


if __name__ == '__main__':
    print({'bags': record_bags, 'lerobot': record_lerobot}[sys.argv[1]](Path(sys.argv[2]) / sys.argv[1]))
    usage = resource.getrusage(resource.RUSAGE_SELF)
    print(
        f'{usage.ru_utime + usage.ru_stime:.1f} s of processor time, at most {usage.ru_maxrss / 1e3:.0f} MB'
    )
    print(f'load of the machine: {os.getloadavg()[0]:.0f}')
