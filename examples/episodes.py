"""Stores episodes of a robot as sequences, and reads windows of them as for training.

Run it with `python examples/episodes.py [FOLDER]`.
"""

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import bags

SPEC = {
    'task': 'utf8',
    'success': 'bool',
    # One item for each step. Each step can be read by itself.
    'camera': 'png[]',
    'joints': 'array(float32,2)[]',
    'reward': 'float(4)[]',
}

TASKS = ('reach the left corner', 'reach the middle', 'reach the right corner')


def episodes(count: int) -> Iterator[dict[str, Any]]:
    """Makes episodes of different lengths: a dot moves to its goal in an image of 64 × 64 pixels."""
    generator = np.random.default_rng(seed=0)
    for index in range(count):
        length = int(generator.integers(20, 60))
        goal = np.array([[0.1, 0.1], [0.5, 0.5], [0.9, 0.1]][index % 3], np.float32)
        start = generator.random(2, np.float32)
        joints = start + (goal - start) * np.linspace(0, 1, length, dtype=np.float32)[:, None]
        yield {
            'task': TASKS[index % 3],
            'success': True,
            'camera': map(render, joints),  # An iterator is consumed one step at a time.
            'joints': joints,
            'reward': -np.linalg.norm(joints - goal, axis=1),
        }


def render(position: np.ndarray) -> np.ndarray:
    """Draws the dot: uint8, shape (64, 64, 3)."""
    y, x = np.ogrid[:64, :64]
    near = np.exp(-((x - 63 * position[0]) ** 2 + (y - 63 * position[1]) ** 2) / 18)
    return (np.stack([near, near**2, 0.2 + 0.5 * near], axis=-1) * 255).astype(np.uint8)


def main(folder: Path) -> None:
    """Writes twelve episodes and reads from them."""
    shutil.rmtree(folder, ignore_errors=True)
    with bags.ShardedDatasetWriter(folder, SPEC, shard_length=4) as writer:
        for episode in episodes(12):
            writer.append(episode)

    with bags.open(folder) as reader:
        # The lengths of sequences are known without reading them.
        lengths = reader.lengths('reward')
        print(f'{len(reader)} episodes of {lengths.min()} to {lengths.max()} steps, {lengths.sum()} in all')

        # Eight steps of one episode: eight images are read and decoded, not the whole episode.
        steps = range(10, 18)
        window = reader[3, {'task': True, 'camera': steps, 'joints': steps}]
        camera, joints = np.shape(window['camera']), np.shape(window['joints'])
        print(f'a window: {window["task"]!r}, camera {camera}, joints {joints}')

        # Columns of small fields: sequences of different lengths are one array of values and their offsets.
        batch = reader.batch(range(len(reader)), ('joints', 'reward'))
        values, offsets = batch['reward'].values, batch['reward'].offsets
        returns = np.add.reduceat(values, offsets[:-1])
        print(f'all rewards: {values.dtype} {values.shape}; the best episode is {returns.argmax()}')

        # Random windows, as for training: choose an episode by its number of steps, then the first step.
        generator = np.random.default_rng(seed=1)
        chosen = generator.choice(len(reader), size=4, p=lengths / lengths.sum())
        for index in chosen:
            begin = int(generator.integers(lengths[index] - 8 + 1))
            steps = range(begin, begin + 8)
            window = reader[index, {'camera': steps, 'joints': steps}]
            camera, joints = np.stack(window['camera']), np.stack(window['joints'])
            where = f'episode {index:2}, steps {begin:2} to {begin + 7:2}'
            print(f'{where}: camera {camera.shape}, joints {joints.shape}')


if __name__ == '__main__':
    main(Path(*sys.argv[1:] or ['out/episodes']))
