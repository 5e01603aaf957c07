"""Calls that append a frame to an episode, beside plain copies of frames and LeRobot's writer.

Cameras of 720p at 30 fps are recorded by a process of each writer. Both encode H.264 with x264's preset
`veryfast`, a quality of 20 and a key frame every 32 frames, in the background. Before every other call, a
frame is copied into memory that was used before; calls and copies that came first after a pause are counted.

If `LEROBOT_PYTHON` names a Python in which LeRobot 0.6.1 is installed, its writer records one camera with
`streaming_encoding=True`.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

FPS, SECONDS, HEIGHT, WIDTH = 30, 30, 720, 1280
CASES = {
    'one camera': ('bags', 1, False),
    'one camera, LeRobot': ('lerobot', 1, False),
    'one camera, `copy=False`': ('bags_uncopied', 1, False),
    'three cameras': ('bags', 3, False),
    'three cameras, `copy=False`': ('bags_uncopied', 3, False),
    'one camera, all cores busy': ('bags', 1, True),
    'one camera, all cores busy, LeRobot': ('lerobot', 1, True),
}
"""By title: the writer, the number of cameras, and whether a process computes on each core."""
FORGOTTEN_SECONDS = 1
"""Seconds at the beginning that are not counted: encoders are loaded, and memory is mapped."""

Image = np.ndarray[Any, Any]


def play(
    append: Callable[[int, Image, Image], Any], cameras: int, seconds: int, is_new: bool = False
) -> dict[str, Any]:
    """Gives frames and states at their rate, and returns the milliseconds of calls and copies.

    Args:
        append: Appends a frame of a camera, and a state.
        cameras: The number of cameras, with a call for each.
        seconds: How long they are recorded.
        is_new: Whether each frame is a new array.
    """
    y, x = np.mgrid[:HEIGHT, :WIDTH]
    noise = np.random.default_rng(0).integers(0, 4, (HEIGHT, WIDTH, 3), np.uint8)
    image = np.stack([x, y, x + y], axis=-1).astype(np.uint8) + noise
    images, target = [image.copy() for _ in range(6)], image.copy()
    times: list[float] = []
    copies: list[float] = []
    usage = os.times()
    begin = time.monotonic()
    for number in range(FPS * seconds):
        image = images[number % len(images)]
        left = 7 * number % (WIDTH - 80)
        image[300:380, left : left + 80] = 5 * number % 256
        if is_new:
            image = image.copy()
        time.sleep(max(0.0, begin + number / FPS - time.monotonic()))
        is_copied = number % 2 == 0
        if is_copied:
            start = time.perf_counter()
            np.copyto(target, image)
            copies.append(1000 * (time.perf_counter() - start))
        for camera in range(cameras):
            state = np.full(7, number, np.float32)
            start = time.perf_counter()
            append(camera, image, state)
            if not is_copied:
                times.append(1000 * (time.perf_counter() - start))
    used = os.times()
    cpu = used.user + used.system - usage.user - usage.system
    skipped = FORGOTTEN_SECONDS * FPS // 2
    return {'times': times[skipped * cameras :], 'copies': copies[skipped:], 'cores': cpu / seconds}


def record_bags(path: Path, cameras: int, seconds: int, copy: bool = True) -> dict[str, Any]:
    """Records with bags; returns what was measured, and how many calls waited for the encoder."""
    import bags

    spec = {f'camera{number}': 'mp4(30)[]' for number in range(cameras)} | {'state': 'array(float32,7)[]'}
    names = list(spec)
    with bags.DatasetWriter(path, spec) as writer, writer.begin(copy=copy) as episode:

        def append(camera: int, image: Image, state: Image) -> None:
            episode.append({names[camera]: image, 'state': state} if not camera else {names[camera]: image})

        found = play(append, cameras, seconds, is_new=not copy)
    with bags.open(path) as dataset:
        frames = [dataset.lengths(name, of='elements')[0] for name in names[:-1]]
    if frames != [FPS * seconds] * cameras:
        raise AssertionError(f'expected all frames, got {frames}')
    return found | {'late': episode.waits}


def record_uncopied(path: Path, cameras: int, seconds: int) -> dict[str, Any]:
    """Records with bags, new arrays that are not copied."""
    return record_bags(path, cameras, seconds, copy=False)


def record_lerobot(path: Path, cameras: int, seconds: int) -> dict[str, Any]:
    """Records with LeRobot; returns what was measured, and how many frames were dropped."""
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
    found = play(
        lambda _, image, state: dataset.add_frame({names[0]: image, names[1]: state, 'task': 'none'}),
        cameras,
        seconds,
    )
    dropped = sum(dataset.writer._streaming_encoder._dropped_frames.values())
    dataset.save_episode()
    dataset.finalize()
    return found | {'late': dropped}


def main(output: Any, *, quick: bool) -> None:
    """Prints and collects the figures of each case."""
    lerobot = os.environ.get('LEROBOT_PYTHON')
    if not lerobot:
        print('recording: not beside LeRobot: LEROBOT_PYTHON names no Python in which it is installed')
    seconds = 10 if quick else SECONDS
    print(f'\n{"ms a call":<44} {"p50":>8} {"p99":>8} {"over 2 ms":>10} {"cores":>6} {"MB":>6} {"late":>5}')
    for title, (writer, cameras, is_busy) in CASES.items():
        python = lerobot if writer == 'lerobot' else sys.executable
        if python:
            output.tables[title] = {'unit': 'ms', 'cells': measure(python, writer, cameras, seconds, is_busy)}
            for name, cell in output.tables[title]['cells'].items():
                shown = f'{cell["median"]:8.2f} {cell["p99"]:8.2f} {cell["over 2 ms"]:9.1f}%'
                rest = f'{cell["cores"]:6.2f} {cell["MB"]:6.0f} {cell["late"]:5}' if 'late' in cell else ''
                print(f'{title + ", " + name:<44} {shown} {rest}', flush=True)


def measure(python: str, writer: str, cameras: int, seconds: int, is_busy: bool) -> dict[str, dict[str, Any]]:
    """Returns the figures of calls and of copies beside them."""
    busy = [sys.executable, '-c', 'while True: pass']
    load = [subprocess.Popen(busy) for _ in range((os.cpu_count() or 1) if is_busy else 0)]
    try:
        with tempfile.TemporaryDirectory() as folder:
            command = [python, '-P', __file__, writer, folder, str(cameras), str(seconds)]
            environment = os.environ | {'PYTHONPATH': str(Path(__file__).parents[1])}
            done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    finally:
        for process in load:
            process.kill()
            process.wait()
    found = json.loads(done.stdout.splitlines()[-1])
    more = {'cores': round(found['cores'], 2), 'MB': round(found['MB']), 'late': found['late']}
    return {'append': figures(found['times']) | more, 'copy': figures(found['copies'])}


def figures(times: list[float]) -> dict[str, Any]:
    p50, p99 = np.percentile(times, [50, 99]).tolist()
    return {
        'median': round(p50, 3),
        'p99': round(p99, 3),
        'over 2 ms': round(100 * float(np.mean(np.array(times) > 2)), 2),
        'max': round(max(times), 1),
        'count': len(times),
    }


if __name__ == '__main__':
    name, path, cameras, seconds = sys.argv[1], Path(sys.argv[2]), *map(int, sys.argv[3:])
    records = {'bags': record_bags, 'bags_uncopied': record_uncopied, 'lerobot': record_lerobot}
    result = records[name](path / name, cameras, seconds)
    result['MB'] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    print(json.dumps(result))
