"""Batches of windows by time, beside the same reads by hand.

A window has two frames of 256 × 256, ten states at 200 Hz and 16 actions at 50 Hz; a batch has 64 windows in
random order, of episodes of ten seconds. Frames are arrays or jpegs of a sequence, or of videos in H.264. By
hand, the items of a window are computed, the datapoint is read with them, and the values are stacked.
"""

from __future__ import annotations

import itertools
import tempfile
from pathlib import Path

import numpy as np

import bags
from benchmarks.timing import Candidate, time_interleaved

SECONDS, SIZE, BATCH = 10, 256, 64
EPISODES = {'array(uint8,256,256,3)[]': 4, 'jpeg[]': 20, 'video(30)': 20}
"""By the type of frames."""
FACTS = {'fields': {'camera': {'rate': 30}, 'state': {'rate': 200}, 'action': {'rate': 50}}}
FLOORS = {'by hand': 0.8}


def write(path, kind):
    """Writes the episodes: noise that moves, so that frames have a usual size."""
    noise = np.random.default_rng(0).integers(0, 60, (SIZE + 30 * SECONDS, SIZE, 3)).astype(np.uint8)
    noise += np.linspace(0, 190, len(noise), dtype=np.uint8)[:, None, None]
    frames = np.stack([noise[start : start + SIZE] for start in range(30 * SECONDS)])
    spec = {'camera': kind, 'state': 'array(float32,7)[]', 'action': 'array(float32,7)[]'}
    with bags.DatasetWriter(path, spec, metadata=FACTS) as writer:
        for index in range(EPISODES[kind]):
            writer.append({
                'camera': np.roll(frames, index, 0),
                'state': np.full((200 * SECONDS, 7), index, np.float32),
                'action': np.full((50 * SECONDS, 7), index, np.float32),
            })  # fmt: skip


class Windows:
    """The view that `bags.windows` returns."""

    def __init__(self, path):
        self.view = bags.windows(
            bags.open(path), every='camera', camera=bags.times(-0.2, 0.0),
            state=bags.times(-0.045, 0.0, rate=200), action=bags.steps(0, 16),
        )  # fmt: skip

    def batch(self, indices):
        return self.view.batch(indices)


class ByHand:
    """One read a window, of the items that it takes."""

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


CANDIDATES = {'bags': Windows, 'by hand': ByHand}


def main(output, *, quick):
    """Prints a table for each kind of frames."""
    for kind, episodes in EPISODES.items():
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / 'episodes'
            write(path, kind)
            made = {name: make(path) for name, make in CANDIDATES.items()}
            random = np.random.default_rng(1)
            places = random.permutation(episodes * 30 * SECONDS).tolist()
            starts = range(0, len(places) - BATCH, BATCH)
            batches = itertools.cycle([places[start : start + BATCH] for start in starts])
            found = {name: each.batch(places[:BATCH]) for name, each in made.items()}
            for name in ('camera', 'state', 'action'):
                if not np.array_equal(found['bags'][name], found['by hand'][name]):
                    raise AssertionError(f'{name}: expected equal windows')
            candidates = {
                name: Candidate(each.batch, BATCH, before=batches.__next__) for name, each in made.items()
            }
            timings = time_interleaved(candidates, seconds=2 if quick else 8, min_rounds=5)
            output.compare(f'{BATCH} windows, frames of {kind}', timings, 'bags', FLOORS)
