"""The defects that lerobot-doctor 0.2.0 and lerobot-lint 0.1.1 plant in their own tests are found here, too.

Each function changes an episode of clean data as a test of the linter does. The tables in docs/check.md say
which checks are the same.
"""

import dataclasses
from collections.abc import Callable

import numpy as np
import pytest

import bags

EPISODES, LENGTH, WRONG = 20, 100, 5
DEFECTS = []


@dataclasses.dataclass
class Defect:
    linter: str
    name: str
    base: str
    plant: Callable
    check: str
    field: str
    datapoints: tuple | None
    options: dict

    def __str__(self):
        return f'{self.linter}-{self.name}'


def defect(linter, name, base, check, field, datapoints=(WRONG,), **options):
    def add(function):
        DEFECTS.append(Defect(linter, name, base, function, check, field, datapoints, options))
        return function

    return add


def episodes(base, rate=30, length=LENGTH):
    """Returns clean episodes, as those of the linters: noise, or slow ramps whose actions lead by an item."""
    rng = np.random.default_rng(0)
    rows = []
    for _ in range(EPISODES):
        if base == 'noise':
            states = rng.normal(size=(length, 3))
        else:
            ramp = np.linspace(0, 1, length)[:, None] * rng.uniform(0.8, 1.2, 3)
            states = ramp + rng.normal(0, 0.001, (length, 3))
        actions = np.concatenate([states[1:], states[-1:] + 0.01])
        task = 'pick up the block'
        rows.append({'state': states, 'action': actions, 'time': np.arange(length) / rate, 'task': task})
    return rows


def write(path, rows, metadata=None):
    vector = f'array(float32,{rows[0]["state"].shape[1]})[]'
    spec = {'state': vector, 'action': vector, 'time': 'float(8)[]', 'task': 'utf8'}
    facts = {'state': {'times': 'time', **(metadata or {})}, 'action': {'times': 'time'}}
    if 'camera' in rows[0]:
        spec['camera'], facts['camera'] = 'png[]', {'times': 'time'}
    with bags.DatasetWriter(path, spec, metadata={'fields': facts}) as writer:
        for row in rows:
            vectors = {name: row[name].astype(np.float32) for name in ('state', 'action')}
            writer.append({**row, **vectors})
    return path


# lerobot-lint.


@defect('lint', 'dead-joint', 'noise', 'still_dimensions', 'state')
def dead_joint(rows):
    rows[WRONG]['state'][:, 2] = 0.5


@defect('lint', 'saturated-joint', 'noise', 'saturated_share', 'state', None)
def saturated_joint(rows):
    for row in rows:
        row['state'][:40, 1] = 5.0


@defect('lint', 'jitter', 'ramp', 'jump_steps', 'state')
def velocity_spike(rows):
    rows[WRONG]['state'][50, 0] += 5.0


@defect('lint', 'discontinuity', 'ramp', 'jump_steps', 'state')
def encoder_wraparound(rows):
    rows[WRONG]['state'][50:, 0] += 6.0


@defect('lint', 'frozen-state', 'noise', 'stuck_seconds', 'state')
def frozen_state(rows):
    rows[WRONG]['state'][40:60] = rows[WRONG]['state'][40]


@defect('lint', 'gripper-inert', 'noise', 'still_dimensions', 'state')
def inert_gripper(rows):
    rows[WRONG]['state'][:, 2] = 0


@defect('lint', 'action-state-divergence', 'ramp', 'unfollowed_ratio', 'action')
def states_that_ignore_actions(rows):
    rows[WRONG]['action'] = np.tile(np.linspace(0, 10, LENGTH), (3, 1)).T.copy()
    rows[WRONG]['state'] = np.random.default_rng(5).normal(size=(LENGTH, 3))


@defect('lint', 'action-range-mismatch', 'noise', 'action_outside_share', 'action', None)
def actions_in_other_units(rows):
    rng = np.random.default_rng(6)
    for row in rows:
        row['action'] = rng.uniform(10.0, 12.0, (LENGTH, 3))


@defect('lint', 'timestamp-backwards', 'noise', 'falling_items', 'state')
def falling_timestamp(rows):
    rows[WRONG]['time'][5] = rows[WRONG]['time'][3]


@defect('lint', 'timestamp-duplicated', 'noise', 'repeated_time_items', 'state')
def repeated_timestamp(rows):
    rows[WRONG]['time'][5] = rows[WRONG]['time'][4]


@defect('lint', 'frame-drops', 'noise', 'dropped_share', 'state')
def dropped_frames(rows):
    for item in range(10, 60, 5):
        rows[WRONG]['time'][item:] += 3 / 30


@defect('lint', 'fps-mismatch', 'noise', 'stated_rate_share', 'state', None, metadata={'rate': 30})
def other_rate(rows):
    for row in rows:
        row['time'] = np.arange(LENGTH) / 20


def with_camera(rows, count=20):
    rng = np.random.default_rng(9)
    for row in rows:
        for name in ('state', 'action', 'time'):
            row[name] = row[name][:count]
        row['camera'] = list(rng.integers(50, 200, (count, 8, 8, 3), np.uint8))


@defect('lint', 'video-length-mismatch', 'noise', 'untimed_items', 'camera')
def missing_frames(rows):
    with_camera(rows)
    rows[WRONG]['camera'] = rows[WRONG]['camera'][:15]


@defect('lint', 'degenerate-image-black', 'noise', 'black_share', 'camera', decode=True)
def black_frames(rows):
    with_camera(rows, 10)
    rows[WRONG]['camera'] = [np.full((8, 8, 3), 2, np.uint8)] * 10


@defect('lint', 'degenerate-image-white', 'noise', 'white_share', 'camera', decode=True)
def white_frames(rows):
    with_camera(rows, 10)
    rows[WRONG]['camera'] = [np.full((8, 8, 3), 253, np.uint8)] * 10


def shortened(row, length):
    for name in ('state', 'action', 'time'):
        row[name] = row[name][:length]


@defect('lint', 'short-episode', 'noise', 'length_deviations', 'state')
def short_episode(rows):
    shortened(rows[WRONG], 10)


@defect('lint', 'duration-outlier', 'noise', 'length_deviations', 'state')
def long_episode(rows):
    rng = np.random.default_rng(1)
    states = rng.normal(size=(1800, 3))
    rows[WRONG] |= {'state': states, 'action': np.roll(states, -1, 0), 'time': np.arange(1800) / 30}


@defect('lint', 'missing-task', 'noise', 'blank_texts', 'task')
def missing_task(rows):
    rows[WRONG]['task'] = ''


@defect('lint', 'missing-task-spaces', 'noise', 'blank_texts', 'task')
def task_of_spaces(rows):
    rows[WRONG]['task'] = '  '


@defect('lint', 'task-imbalance', 'noise', 'class_ratio', 'task', None)
def rare_task(rows):
    rows += [dict(row) for row in rows * 4]
    for row in rows[98:]:
        row['task'] = 'push the block'


# lerobot-doctor.


@defect('doctor', 'non-monotonic', 'noise', 'falling_items', 'state', rate=10)
def non_monotonic_timestamps(rows):
    rows[WRONG]['time'][5] = rows[WRONG]['time'][3]


@defect('doctor', 'dropped-frames', 'noise', 'gap_seconds', 'state', rate=10)
def half_a_second_without_frames(rows):
    rows[WRONG]['time'][5:] += 0.4


@defect('doctor', 'timestamp-gap', 'noise', 'gap_seconds', 'state', rate=10)
def ten_seconds_without_frames(rows):
    rows[WRONG]['time'][5:] += 10.0


@defect('doctor', 'nan', 'noise', 'nan_values', 'action')
def nan_action(rows):
    rows[WRONG]['action'][5] = np.nan


@defect('doctor', 'inf', 'noise', 'nan_values', 'action')
def infinite_action(rows):
    rows[WRONG]['action'][5, 0] = np.inf


@defect('doctor', 'outlier', 'noise', 'outlier_ranges', 'action')
def outlier(rows):
    rows[WRONG]['action'][5, 0] = 60.0


@defect('doctor', 'frozen-actions', 'noise', 'stuck_seconds', 'action', rate=10)
def frozen_actions(rows):
    rows[WRONG]['action'][5:20] = [1.0, 2.0, 0.5]


@defect('doctor', 'frozen-episode', 'noise', 'still_dimensions', 'action', rate=10)
def frozen_episode(rows):
    rows[WRONG]['action'][:] = 0.5


@defect('doctor', 'clipping', 'noise', 'saturated_share', 'action', None)
def clipped_actions(rows):
    for row in rows:
        row['action'][:, 0] = np.minimum(row['action'][:, 0], 0.0 - 0.1)


@defect('doctor', 'stuck-actuator', 'noise', 'stuck_seconds', 'action', rate=10)
def stuck_actuator(rows):
    rows[WRONG]['action'][: LENGTH * 9 // 10, 0] = 1.0


@defect('doctor', 'constant-observation', 'noise', 'constant_dimensions', 'state', None)
def constant_observation(rows):
    for row in rows:
        row['state'][:] = [1.0, 2.0, 3.0]


@defect('doctor', 'duplicate-episode', 'noise', 'equal_records', 'action')
def duplicate_episode(rows):
    rows[WRONG] |= {name: rows[0][name].copy() for name in ('state', 'action')}


@defect('doctor', 'distribution-shift', 'noise', 'shift_deviations', 'state', None)
def distribution_shift(rows):
    for row in rows[EPISODES // 2 :]:
        row['state'][:, 1] += 12


@defect('doctor', 'short-episodes', 'noise', 'length_deviations', 'state', rate=10)
def two_frames(rows):
    shortened(rows[WRONG], 2)


@defect('doctor', 'policy-window', 'noise', 'window_missing_items', 'state', window=16, rate=10)
def shorter_than_the_chunk(rows):
    shortened(rows[WRONG], 8)


@pytest.mark.parametrize('defect', DEFECTS, ids=str)
def test_a_defect_of_another_linter_is_found(tmp_path, defect):
    options = dict(defect.options)
    rows = episodes(defect.base, options.pop('rate', 30))
    defect.plant(rows)
    found = bags.check(write(tmp_path / 'data', rows, options.pop('metadata', None)), **options)
    named = [each for each in found if (each.check, each.field) == (defect.check, defect.field)]
    assert len(named) == 1, found
    if defect.datapoints is not None:
        assert named[0].datapoints == defect.datapoints, named


@pytest.mark.parametrize('base', ['noise', 'ramp'])
def test_their_clean_data_has_no_finding(tmp_path, base):
    found = bags.check(write(tmp_path / 'data', episodes(base)))
    assert [each for each in found if each.severity != 'info'] == []
