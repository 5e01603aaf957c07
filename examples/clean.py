"""Cleans a recording session without rewriting it, and publishes the result.

Drops two episodes, fixes a text, renames a field, adds a reward, splits by task, says what has changed, and
writes whole datasets. Run it with `python examples/clean.py [FOLDER]`.
"""

import shutil
import sys
from pathlib import Path

import numpy as np

import bags

SPEC = {'episode': 'int(8)', 'task': 'utf8', 'cam': 'jpeg[]', 'joints': 'array(float32,6)[]'}
TASKS = ('open the drawer', 'close the drawer', 'fold the towl', 'pick up the cup', 'pour the water')
EPISODES = 20


def record(folder: Path) -> None:
    """Writes a session of twenty episodes, with a typing error in one of the tasks."""
    generator = np.random.default_rng(seed=0)
    with bags.ShardedDatasetWriter(folder, SPEC, shard_length=8) as writer:
        for number in range(EPISODES):
            steps = int(generator.integers(10, 20))
            writer.append(
                {
                    'episode': number,
                    'task': TASKS[number % len(TASKS)],
                    'cam': list(generator.integers(0, 255, (steps, 48, 64, 3), np.uint8)),
                    'joints': generator.random((steps, 6), np.float32),
                }
            )


def main(folder: Path) -> None:
    """Records a session, and cleans it."""
    shutil.rmtree(folder, ignore_errors=True)
    record(folder / 'session')
    session = bags.open(folder / 'session')

    # Views: nothing is read but the texts, and nothing is written.
    typos = [row for row, task in enumerate(session.column('task')) if task == 'fold the towl']
    fixed = session.update({row: {'task': 'fold the towel'} for row in typos})
    clean = fixed.drop([3, 7]).rename({'cam': 'observation.image'})

    # A new field is a small dataset of its own.
    with bags.ShardedDatasetWriter(folder / 'rewards', {'episode': 'int(8)', 'reward': 'float(4)'}) as writer:
        for number in range(EPISODES):
            writer.append({'episode': number, 'reward': float(number % 4 == 0)})
    rewarded = bags.join([clean, bags.open(folder / 'rewards')], on='episode')

    # Saved as links: the new texts and rewards are written, and no image.
    done = rewarded.save(folder / 'clean', link=['observation.image'])
    print(f'{done.datapoints} episodes in {done.size:,} bytes, of a session of {session.size:,} bytes')

    with bags.open(folder / 'clean') as cleaned:
        print(session.diff(cleaned, on='episode'))
        # All episodes of a task are in one part, also after the next session.
        for name, part in cleaned.split({'train': 0.7, 'val': 0.3}, by='task', seed=1).items():
            published = bags.copy(part, folder / 'published' / name)
            tasks = sorted(set(part.column('task')))
            print(f'{name}: {published.datapoints} episodes of {len(tasks)} tasks, {published.size:,} bytes')

    # The images are those of the session, byte for byte.
    with bags.open(folder / 'published/val') as val:
        episode = val[0]['episode']
        assert val.file(0, 'observation.image', 0).read() == session.file(episode, 'cam', 0).read()


if __name__ == '__main__':
    main(Path(sys.argv[1] if len(sys.argv) > 1 else 'out/clean'))
