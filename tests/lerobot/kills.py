"""Kills the record loop of LeRobot at random moments, and measures what `bags recover` keeps.

Run as `python -m tests.lerobot.kills FOLDER COUNT SEED`, it prints the seconds of the streams that each kill
loses, and the time from the first frame that is not in the dataset to the kill. They differ if the loop is
slower than its frame rate. It imports LeRobot once, and forks for each kill.
"""

import json
import os
import random
import shutil
import signal
import sys
import time
import warnings
from pathlib import Path

import numpy as np

import bags
from tests.lerobot.config_fake import FakeArmConfig
from tests.lerobot.fake import CAMERAS, FakeArm, number_of
from tests.lerobot.recordings import HAS_0_4, LeRobotDataset

FPS, SIZE, EPISODE_SECONDS, TASK = 30, (480, 640), 2, 'stack the cubes'
FRONT = 'observation.images.front'


def arm_config(folder, size=SIZE):
    height, width = size
    return FakeArmConfig(
        id='arm', calibration_dir=folder / 'calibration', log=str(folder / 'log'), height=height, width=width
    )


def record(folder, episodes, seconds, size=SIZE, resume=False):
    """Records with the command of LeRobot, of which one import is changed."""
    import lerobot.scripts.lerobot_record as command
    from lerobot.configs.dataset import DatasetRecordConfig

    from tests.lerobot.config_fake import FakeLeaderConfig

    command.LeRobotDataset = bags.lerobot.RecordingDataset
    return command.record(
        command.RecordConfig(
            robot=arm_config(folder, size),
            teleop=FakeLeaderConfig(id='leader', calibration_dir=folder / 'calibration'),
            dataset=DatasetRecordConfig(
                repo_id='me/cubes',
                single_task=TASK,
                root=folder / 'cubes',
                fps=FPS,
                episode_time_s=seconds,
                reset_time_s=0,
                num_episodes=episodes,
                push_to_hub=False,
            ),
            play_sounds=False,
            resume=resume,
        )
    )


def record_in_a_loop(folder):
    """Records in a loop of the same calls, for versions whose command needs more packages."""
    arm = FakeArm(arm_config(folder))
    joints = {'dtype': 'float32', 'shape': (6,), 'names': [*arm.action_features]}
    picture = {'dtype': 'video', 'shape': arm.shape, 'names': ['height', 'width', 'channels']}
    features = {f'observation.images.{name}': picture for name in CAMERAS}
    features |= {'observation.state': joints, 'action': joints}
    dataset = bags.lerobot.RecordingDataset.create('me/cubes', FPS, features, folder / 'cubes')
    while True:
        for _ in range(FPS * EPISODE_SECONDS):
            due = time.perf_counter() + 1 / FPS
            seen = arm.get_observation()
            state = np.array([seen[name] for name in arm.action_features], np.float32)
            frame = {f'observation.images.{name}': seen[name] for name in CAMERAS}
            dataset.add_frame({**frame, 'observation.state': state, 'action': state, 'task': TASK})
            time.sleep(max(0.0, due - time.perf_counter()))
        dataset.save_episode()


def check(folder, killed):
    """Recovers a dataset; returns the seconds and the time that are lost, and the number of frames kept."""
    times = np.fromfile(folder / 'log', np.float64)
    bags.recover(folder / 'cubes')
    with bags.open(folder / 'cubes') as dataset:
        states = [row['observation.state'][:, 0] for row in dataset] if len(dataset) else []
        numbers = np.concatenate(states) if states else np.empty(0)
    kept = len(numbers)
    if not np.array_equal(numbers, np.arange(kept)):
        raise AssertionError(f'expected the frames 0 to {kept - 1}, got {numbers.tolist()}')
    if kept:
        bags.export(folder / 'cubes', folder / 'exported', format='lerobot', every=FRONT, progress=False)
        theirs = LeRobotDataset('me/cubes', folder / 'exported', video_backend='pyav')
        if len(theirs) != kept:
            raise AssertionError(f'expected {kept} frames in LeRobot, got {len(theirs)}')
        for index in (0, kept - 1):
            item = theirs[index]
            for name in CAMERAS:
                pixels = item[f'observation.images.{name}'].permute(1, 2, 0).numpy() * 255
                if number_of(pixels) != index or item['task'] != TASK:
                    raise AssertionError(f'{name}: expected frame {index}, got {number_of(pixels)}')
    time_lost = max(0.0, killed - times[kept]) if kept < len(times) else 0.0
    return (len(times) - kept) / FPS, time_lost, kept


def in_child(function):
    """Runs a function in a forked process; returns its process."""
    process = os.fork()
    if process:
        return process
    status = 1
    try:
        with warnings.catch_warnings():
            warnings.simplefilter('ignore')
            function()
        status = 0
    finally:
        os._exit(status)


def kill_once(folder, moment):
    """Returns the result of `check` after a kill `moment` seconds after the first frame."""
    folder.mkdir(parents=True)
    log, result = folder / 'log', folder / 'result'
    recorder = in_child(
        lambda: record_in_a_loop(folder) if HAS_0_4 else record(folder, 1000, EPISODE_SECONDS)
    )
    while not (log.exists() and log.stat().st_size):
        time.sleep(0.01)
    time.sleep(moment)
    os.kill(recorder, signal.SIGKILL)
    killed = time.monotonic()
    os.waitpid(recorder, 0)
    checker = in_child(lambda: result.write_text(json.dumps(check(folder, killed))))
    _, status = os.waitpid(checker, 0)
    if status:
        raise AssertionError(f'{folder}: the check failed after a kill at {moment} s')
    return json.loads(result.read_text())


def main(folder, count, seed):
    rng = random.Random(seed)
    if not HAS_0_4:
        import lerobot.scripts.lerobot_record  # noqa: F401
    bags.lerobot.RecordingDataset  # noqa: B018  # Imported before the forks.
    losses, times = [], []
    for number in range(count):
        moment = rng.uniform(0.1, 6)
        lost, time_lost, kept = kill_once(folder / str(number), moment)
        losses.append(lost)
        times.append(time_lost)
        text = f'{lost:.2f} s lost, recorded in {time_lost:.2f} s; {kept} frames kept'
        sys.stdout.write(f'kill {number} after {moment:.2f} s: {text}\n')
        sys.stdout.flush()
        shutil.rmtree(folder / str(number))
    result = {
        'median': float(np.median(losses)),
        'maximum': max(losses),
        'longest_time': max(times),
        'count': count,
    }
    sys.stdout.write(f'{json.dumps(result)}\n')


if __name__ == '__main__':
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
