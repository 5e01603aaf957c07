"""Batches of windows by time, beside the same reads written by hand.

A window has two frames of 256 × 256, ten states at 200 Hz and 16 actions at 50 Hz; a batch has 64 windows in
random order, of episodes of ten seconds. Frames are arrays or jpegs of a sequence, or of videos in H.264. The
code by hand computes the items of a window, reads them from the datapoint, and stacks the values.

If `LEROBOT_PYTHON` names a Python in which LeRobot is installed, windows of a recording that it wrote are
measured too, with all streams at 30 Hz. Its dataset and the view read the same video files.
"""

from __future__ import annotations

import itertools
import os
import tempfile
from pathlib import Path

import numpy as np

import bags
from benchmarks.lerobot_windows import DELTA_TIMESTAMPS, LeRobot, draw, states_of
from benchmarks.timing import Candidate, time_interleaved

SECONDS, SIZE, BATCH = 10, 256, 64
EPISODES = {'array(uint8,256,256,3)[]': 4, 'jpeg[]': 20, 'video(30)': 20}
"""By the type of frames."""
EVENT_RECORDS, EVENTS = 10, 20_000
"""Records of events, and the events of each, in four seconds."""
FACTS = {'fields': {'camera': {'rate': 30}, 'state': {'rate': 200}, 'action': {'rate': 50}}}
FLOORS = {'by hand': 0.8, 'lerobot': 2.0}


def write(path, kind):
    """Writes the episodes."""
    frames = draw()
    spec = {'camera': kind, 'state': 'array(float32,7)[]', 'action': 'array(float32,7)[]'}
    with bags.DatasetWriter(path, spec, metadata=FACTS) as writer:
        for index in range(EPISODES[kind]):
            writer.append({
                'camera': np.roll(frames, index, 0),
                'state': np.full((200 * SECONDS, 7), index, np.float32),
                'action': np.full((50 * SECONDS, 7), index, np.float32),
            })  # fmt: skip


class Windows:
    """Makes the view that `dataset.windows` returns."""

    def __init__(self, path):
        self.view = bags.open(path).windows(every='camera', camera=bags.times(-0.2, 0.0),
            state=bags.times(-0.045, 0.0, rate=200), action=bags.steps(0, 16),
        )  # fmt: skip

    def batch(self, indices):
        return self.view.batch(indices)


class ByHand:
    """Makes a batch with one read a window, of the items that it takes."""

    def __init__(self, path):
        self.reader = bags.open(path)
        self.is_video = not self.reader.spec['camera'].endswith('[]')
        self.videos = {}

    def window(self, index):
        row, frame = divmod(index, 30 * SECONDS)
        frames = [max(0, frame - 6), frame]
        state, action = round(200 * frame / 30), -(-50 * frame // 30)
        states = np.arange(state - 9, state + 1).clip(0, 200 * SECONDS - 1)
        actions = np.arange(action, action + 16).clip(0, 50 * SECONDS - 1)
        items = {'state': states.tolist(), 'action': actions.tolist()}
        if not self.is_video:
            found = self.reader[row, {'camera': frames, **items}]
            return {name: np.stack(list(values)) for name, values in found.items()}
        if row not in self.videos:
            self.videos[row] = self.reader[row, 'camera']['camera']
        found = self.reader[row, items]
        return {'camera': self.videos[row][frames], **{name: np.stack(list(found[name])) for name in found}}

    def batch(self, indices):
        found = [self.window(index) for index in indices]
        return {name: np.stack([each[name] for each in found]) for name in found[0]}


def compare(output, title, made, places, quick):
    """Prints the rates of batches of places."""
    starts = range(0, len(places) - BATCH, BATCH)
    batches = itertools.cycle([places[start : start + BATCH] for start in starts])
    candidates = {name: Candidate(each.batch, BATCH, before=batches.__next__) for name, each in made.items()}
    timings = time_interleaved(candidates, seconds=2 if quick else 8, min_rounds=5)
    output.compare(title, timings, 'bags', FLOORS)


def check_equal(batch, other, rounding=0):
    """Checks that batches have equal windows; decoders may round a colour up or down."""
    for name in ('camera', 'state', 'action'):
        if not np.allclose(batch[name], other[name], rtol=0, atol=rounding if name == 'camera' else 0):
            raise AssertionError(f'{name}: expected equal windows')


def beside_hand(output, folder, quick):
    """Prints a table for each kind of frames."""
    for number, (kind, episodes) in enumerate(EPISODES.items()):
        path = folder / str(number)
        write(path, kind)
        made = {'bags': Windows(path), 'by hand': ByHand(path)}
        places = np.random.default_rng(1).permutation(episodes * 30 * SECONDS).tolist()
        check_equal(*(each.batch(places[:BATCH]) for each in made.values()))
        compare(output, f'{BATCH} windows, frames of {kind}', made, places, quick)


class EventFrames:
    """The events of a record as elements that are read on their own."""

    def __init__(self, record):
        self.events = np.frombuffer(record.open().read(), '<f8').reshape(-1, 2)

    def __len__(self):
        return len(self.events)

    def __getitem__(self, numbers):
        return self.events.take(numbers, 0)  # Rows of two numbers take a tenth of `events[numbers]`.

    @property
    def timestamps(self):
        return self.events[:, 0]


def decode_events(data):
    return np.frombuffer(data, '<f8').reshape(-1, 2)


decode_events.frames = EventFrames


def beside_sliced_events(output, folder, quick):
    """Prints a table for windows of events in the records of one's own type, in order and at random."""
    path = folder / 'events'
    encoders = {**bags.encoders, 'events': lambda events: np.asarray(events, '<f8').tobytes()}
    spec, facts = {'events': 'events', 'mark': 'int(8)[]'}, {'fields': {'mark': {'rate': 50}}}
    records = []
    with bags.DatasetWriter(path, spec, metadata=facts, encoders=encoders) as writer:
        for index in range(EVENT_RECORDS):
            times = np.unique(np.random.default_rng(index).uniform(0, 4, EVENTS))
            records.append(np.stack([times, np.arange(len(times))], 1))
            writer.append({'events': records[-1], 'mark': range(200)})
    windows = bags.open(path, decoders={**bags.decoders, 'events': decode_events}).windows(
        every='mark', events=bags.between(-0.05, 0.0)
    )

    def by_hand(indices):
        found = []
        for index in indices:
            row, mark = divmod(index, 200)
            events, time = records[row], mark / 50
            low, high = np.searchsorted(events[:, 0], [time - 0.05 - 1e-6, time - 1e-6])
            found.append(events[low:high].copy())
        return found

    def in_view(indices):
        return windows.batch(indices, 'events')['events']

    orders = {
        'in order': list(range(len(windows))),
        'at random': np.random.default_rng(1).permutation(len(windows)).tolist(),
    }
    for order, places in orders.items():
        for ours, other in zip(in_view(places[:BATCH]), by_hand(places[:BATCH]), strict=True):
            if not np.array_equal(ours, other):
                raise AssertionError(f'events {order}: expected equal windows')
        starts = range(0, len(places) - BATCH, BATCH)
        batches = itertools.cycle([places[start : start + BATCH] for start in starts])
        made = {'bags': in_view, 'decoded records, sliced': by_hand}
        candidates = {name: Candidate(each, BATCH, before=batches.__next__) for name, each in made.items()}
        timings = time_interleaved(candidates, seconds=2 if quick else 8, min_rounds=5)
        output.compare(f'{BATCH} windows of events, {order}', timings, 'bags', {})


def beside_lerobot(output, folder, quick):
    """Prints a table, or which requirement is missing."""
    python = os.environ.get('LEROBOT_PYTHON')
    if not python:
        print('windows: not beside LeRobot: LEROBOT_PYTHON names no Python in which it is installed')
        return
    lerobot = LeRobot(python, folder)
    try:
        lerobot.batch([0])  # Waits until the recording is written.
        spec = {'camera': 'video', 'state': 'array(float32,7)[]', 'action': 'array(float32,7)[]'}
        with bags.DatasetWriter(folder / 'bags', spec) as writer:
            for episode, video in enumerate(lerobot.videos()):
                states = states_of(episode)
                writer.append({'camera': video, 'state': states, 'action': -states})
        windows = bags.open(folder / 'bags').windows(
            {name: bags.times(*offsets, fill='exact') for name, offsets in DELTA_TIMESTAMPS.items()},
            every='camera', times={'state': 30, 'action': 30},
        )  # fmt: skip
        places = np.random.default_rng(1).permutation(len(windows)).tolist()
        check_equal(windows.batch([0]), lerobot.first(), rounding=2)
        compare(
            output, f'{BATCH} windows of a recording of LeRobot', {'bags': windows, 'lerobot': lerobot},
            places, quick,
        )  # fmt: skip
    finally:
        lerobot.close()


def main(output, *, quick):
    """Prints the tables."""
    with tempfile.TemporaryDirectory() as folder:
        beside_hand(output, Path(folder), quick)
        beside_sliced_events(output, Path(folder), quick)
        beside_lerobot(output, Path(folder), quick)
