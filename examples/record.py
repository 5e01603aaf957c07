"""Records episodes of live streams from threads, is killed once, and recovers what was recorded.

A camera, the joints of an arm and a microphone deliver items at rates of their own. Frames and sound are
encoded in the background, as clips of MP4 and FLAC. A second process follows the dataset while it grows.
Run it with `python examples/record.py [FOLDER]`.
"""

import multiprocessing
import shutil
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import bags

SPEC = {
    'task': 'utf8',
    'success': 'bool?',
    'camera': 'mp4(25)[]',
    'camera_time': 'float(8)[]',
    'joints': 'array(float32,6)[]',
    'joints_time': 'float(8)[]',
    'sound': 'flac[]',
}
FACTS = {
    'fields': {
        'camera': {'times': 'camera_time'},
        'joints': {'times': 'joints_time'},
        'sound': {'rate': 16_000},
    }
}
TAKES, SECONDS, CLIP_SECONDS = 3, 1.0, 0.4


def frame(now: float) -> np.ndarray:
    """Returns what a camera would: uint8 (72, 96, 3)."""
    y, x = np.mgrid[:72, :96]
    return np.stack([x * 2, y * 3, np.full_like(x, int(now * 100) % 256)], axis=-1).astype(np.uint8)


def joints(now: float) -> np.ndarray:
    """Returns the angles of six joints: float32 (6,)."""
    return np.sin(now * np.arange(1, 7), dtype=np.float32)


def sound(now: float) -> np.ndarray:
    """Returns a block of 1/20 s of a tone at 16 kHz: int16 (800,)."""
    return (8000 * np.sin(2 * np.pi * 440 * (now + np.arange(800) / 16_000))).astype(np.int16)


STREAMS: dict[str, tuple[float, Callable[[float], Any]]] = {
    'camera': (25, frame),
    'joints': (100, joints),
    'sound': (20, sound),
}


def deliver(episode: Any, name: str, stop: threading.Event) -> None:
    """Appends items of a stream to an episode at the rate of the stream."""
    rate, read = STREAMS[name]
    begin = time.monotonic()
    for number in range(int(60 * rate)):
        if stop.wait(max(0.0, begin + number / rate - time.monotonic())):
            break
        now = number / rate
        episode.append({name: read(now)} if name == 'sound' else {name: read(now), f'{name}_time': now})


def record(folder: Path, takes: int, seconds: float) -> None:
    """Records takes; the second one is discarded."""
    with bags.ShardedDatasetWriter(folder, SPEC, metadata=FACTS, resume=True) as writer:
        for take in range(takes):
            with writer.begin({'task': f'take {take}'}, flush=0.2, clip_seconds=CLIP_SECONDS) as episode:
                stop = threading.Event()
                streams = [threading.Thread(target=deliver, args=(episode, name, stop)) for name in STREAMS]
                for stream in streams:
                    stream.start()
                time.sleep(seconds)
                stop.set()
                for stream in streams:
                    stream.join()
                if take == 1:
                    episode.discard()
                else:
                    episode.set({'success': True})


def follow(folder: Path, count: int) -> None:
    """Prints each datapoint of a growing dataset as soon as it is committed, until there are `count`."""
    shown = 0
    while shown < count:
        try:
            with bags.open(folder) as reader:
                while shown < len(reader):
                    row = reader[shown, ('task', 'joints')]
                    print(f'followed: {row["task"]}', flush=True)
                    shown += 1
        except FileNotFoundError:
            pass  # The writer has not created it yet.
        time.sleep(0.05)


def main(folder: Path) -> None:
    """Records, is killed, recovers, and prints what is there."""
    shutil.rmtree(folder, ignore_errors=True)
    processes = multiprocessing.get_context('spawn')
    follower = processes.Process(target=follow, args=(folder, TAKES - 1))
    follower.start()
    record(folder, TAKES, SECONDS)
    follower.join()
    recorder = processes.Process(target=record, args=(folder, 1, 60.0))
    recorder.start()
    while not list(folder.rglob('limits.*')):
        time.sleep(0.05)  # Limits are beside bags that are being written.
    time.sleep(2 * SECONDS)
    recorder.kill()
    recorder.join()
    *_, shard, _ = bags.recover(folder)
    print(f'recovered: datapoint {shard.partial} of the last shard is what was written before the kill')
    with bags.open(folder) as dataset:
        for index in range(len(dataset)):
            frames = len(bags.ClipSequence(dataset, index, 'camera'))
            sound = bags.AudioSequence(dataset, index, 'sound')
            counts = {
                name: len(dataset[index, name][name]) for name in ('camera_time', 'joints', 'joints_time')
            }
            are_whole = counts['camera_time'] == frames > 0 and counts['joints'] == counts['joints_time'] > 0
            task = dataset[index, 'task']['task']
            print(
                f'{task}: {", ".join(f"{name} at {rate} Hz" for name, (rate, _) in STREAMS.items())}'
                f'{"" if are_whole and sound.duration > 0 else ", damaged"}'
            )


if __name__ == '__main__':
    main(Path(sys.argv[1] if len(sys.argv) > 1 else 'recorded'))
