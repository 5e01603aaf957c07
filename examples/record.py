"""Records episodes of live streams from threads, is killed once, and recovers what was recorded.

A camera, the joints of an arm and a microphone deliver items at rates of their own. Frames and sound are
encoded in the background, as clips of MP4 and FLAC. A second process follows the dataset while it grows. The
recording is then read as windows of aligned streams, and exported for LeRobot.
Run it with `python examples/record.py [FOLDER [CAMERA]]`. The camera is a device, such as `/dev/video0`, or a
video; without it, frames are synthetic.
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


def open_camera(camera: str | None) -> Callable[[float], np.ndarray]:
    """Returns a function that returns the next frame of a camera: uint8 (height, width, 3)."""
    if camera is None:
        return frame
    import av

    container = av.open(camera, format='v4l2' if camera.startswith('/dev/') else None)
    frames = container.decode(video=0)
    return lambda _: next(frames).to_ndarray(format='rgb24')


def joints(now: float) -> np.ndarray:
    """Returns the angles of six joints: float32 (6,)."""
    return np.sin(now * np.arange(1, 7), dtype=np.float32)


def sound(now: float) -> np.ndarray:
    """Returns a block of 1/20 s of a tone at 16 kHz: int16 (800,)."""
    return (8000 * np.sin(2 * np.pi * 440 * (now + np.arange(800) / 16_000))).astype(np.int16)


RATES = {'camera': 25, 'joints': 100, 'sound': 20}
"""Items a second, by stream. A camera that is slower is waited for."""


def deliver(episode: Any, name: str, read: Callable[[float], Any], stop: threading.Event) -> None:
    """Appends items of a stream to an episode at the rate of the stream."""
    rate = RATES[name]
    begin = time.monotonic()
    for number in range(int(60 * rate)):
        if stop.wait(max(0.0, begin + number / rate - time.monotonic())):
            break
        now = number / rate if name == 'sound' else time.monotonic() - begin
        episode.append({name: read(now)} if name == 'sound' else {name: read(now), f'{name}_time': now})


def record(folder: Path, takes: int, seconds: float, camera: str | None) -> None:
    """Records takes; the second one is discarded."""
    with bags.ShardedDatasetWriter(folder, SPEC, metadata=FACTS, resume=True) as writer:
        for take in range(takes):
            with writer.begin({'task': f'take {take}'}, flush=0.2, clip_seconds=CLIP_SECONDS) as episode:
                stop = threading.Event()
                reads = {'camera': open_camera(camera), 'joints': joints, 'sound': sound}
                streams = [
                    threading.Thread(target=deliver, args=(episode, name, read, stop))
                    for name, read in reads.items()
                ]
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
    """Shows each datapoint of a growing dataset as soon as it is committed, until there are `count`."""
    reader = None
    while reader is None:
        try:
            reader = bags.open(folder)
        except FileNotFoundError:
            time.sleep(0.05)  # The writer has not created it yet.
    shown = 0
    while shown < count:
        if shown < len(reader):
            print(f'followed: {describe(reader, shown)}', flush=True)
            shown += 1
        else:
            time.sleep(0.05)
            reader = reader.reopen()


def describe(reader: Any, index: int) -> str:
    """Returns a line about an episode. One whose streams do not fit together raises an error."""
    row = reader[index, ('task', 'camera_time', 'joints', 'joints_time')]
    video, sound = reader.stream(index, 'camera'), reader.stream(index, 'sound')
    if not (len(video) == len(row['camera_time']) > 0 and len(row['joints']) == len(row['joints_time']) > 0):
        raise AssertionError(f'{row["task"]}: expected a time for each frame, and for all joints')
    height, width = video[-1].shape[:2]
    frames, moves = f'{len(video)} frames of {height} x {width}', len(row['joints'])
    return f'{row["task"]}: {frames}, joints {moves} times, {sound.duration:.1f} s of sound'


def fit(dataset: Any) -> float:
    """Fits the next joints to the last ones and to the loudness of sound; returns the mean square error."""
    windows = dataset.filter('duration(camera) > 0.5').windows(
        every='camera',
        joints=bags.times(-0.02, 0.0, 0.05, fill='linear'),
        sound=bags.between(-0.1, 0.0),
        padding='drop',
    )
    inputs, targets = [], []
    for batch in bags.Loader(windows, 16, fields=('joints', 'sound'), seed=0, last_batch='partial'):
        loudness = np.sqrt((batch['sound'] ** 2).mean((1, 2), keepdims=True))[:, 0]
        inputs.append(np.concatenate([batch['joints'][:, 0], batch['joints'][:, 1], loudness], 1))
        targets.append(batch['joints'][:, 2])
    given, wanted = np.concatenate(inputs), np.concatenate(targets)
    weights, *_ = np.linalg.lstsq(given, wanted, rcond=None)
    return float(((given @ weights - wanted) ** 2).mean())


def main(folder: Path, camera: str | None = None) -> None:
    """Records, is killed, recovers, prints what is there, fits a model, and exports it for LeRobot."""
    for path in (folder, for_lerobot := folder.with_name(f'{folder.name}-lerobot')):
        shutil.rmtree(path, ignore_errors=True)
    processes = multiprocessing.get_context('spawn')
    follower = processes.Process(target=follow, args=(folder, TAKES - 1))
    follower.start()
    record(folder, TAKES, SECONDS, camera)
    follower.join()
    recorder = processes.Process(target=record, args=(folder, 1, 60.0, camera))
    recorder.start()
    while not any(path.stat().st_size for path in folder.rglob('limits.camera.bag')):
        time.sleep(0.05)  # Limits are beside bags that are being written: there is no clip yet.
    time.sleep(2 * SECONDS)
    recorder.kill()
    recorder.join()
    *_, shard, _ = bags.recover(folder)
    print(f'recovered: datapoint {shard.partial} of the last shard is what was written before the kill')
    with bags.open(folder) as dataset:
        for index in range(len(dataset)):
            print(describe(dataset, index))
        print(f'fitted: mean square error {fit(dataset):.2g} of the joints 0.05 s later')
    done = bags.export(folder, for_lerobot, format='lerobot', every='camera', fps=25)
    print(f'exported {done.datapoints} episodes for LeRobot:', *done.notes, sep='\n  ')


if __name__ == '__main__':
    main(Path(sys.argv[1] if len(sys.argv) > 1 else 'recorded'), sys.argv[2] if len(sys.argv) > 2 else None)
