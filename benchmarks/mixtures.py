"""Batches of 64 datapoints of four datasets, beside 64 of one: `python -m benchmarks --only mixtures`.

A datapoint has a state and an action, alone or with a JPEG. The four datasets have one spec, or vectors of 7,
14, 7 and 3 numbers, which are put together with `fields='union'` and padded. The files are in the page cache,
or were dropped from it before each batch. Batches are read one at a time, and by an epoch of a loader.
"""

from __future__ import annotations

import collections
import itertools
import os
import tempfile
from pathlib import Path

import numpy as np

import bags
from benchmarks.timing import Candidate, time_interleaved

BATCH, COUNT, DATASETS, PICTURES, STEPS = 64, 1000, 4, 40, 64
JOINTS = {'one spec': (7, 7, 7, 7), 'four specs': (7, 14, 7, 3)}
SIZES = {
    'two vectors': 0,
    'two vectors and a JPEG of 96 × 96': 96,
    'two vectors and a JPEG of 224 × 224': 224,
}
CACHED, COLD, LOADER = '{}', '{}, read from the disk', '{}, steps of a loader'
FLOORS = {'one dataset': 1 / 1.3}
"""Of batches with pictures: a batch of four datasets takes at most 1.3 times that of one."""


def pictures(size):
    """Returns JPEGs of smooth noise, which have a usual number of bytes."""
    rng = np.random.default_rng(0)
    coarse = rng.integers(0, 256, (PICTURES, size // 8, size // 8, 3), np.uint8)
    return [bags.encoders['jpeg'](each.repeat(8, 0).repeat(8, 1), '90') for each in coarse]


def write(folder, joints, size):
    """Writes the datasets, and returns them open."""
    jpegs = pictures(size) if size else []
    found = []
    for number, count in enumerate(joints):
        spec = dict.fromkeys(('state', 'action'), f'array(float32,{count})')
        spec |= {'image': 'jpeg'} if size else {}
        with bags.DatasetWriter(folder / str(number), spec) as writer:
            for index in range(COUNT):
                vector = np.full(count, index, np.float32)
                image = {'image': jpegs[(index + number) % PICTURES]} if size else {}
                writer.append({'state': vector, 'action': -vector, **image})
        found.append(bags.open(folder / str(number)))
    return found


def padded(dataset):
    """Returns a function that reads a batch and pads its vectors, as a loader does."""

    def read(indices):
        batch = dataset.batch(indices)
        return batch | bags.pad({name: batch[name] for name in ('state', 'action')}, mask=True)

    return read


def steps(dataset, **options):
    """Returns a candidate: steps of an endless loader without workers."""
    batches = iter(bags.Loader(dataset, BATCH, epochs=None, seed=0, workers=0, **options))
    return Candidate(lambda _: collections.deque(itertools.islice(batches, STEPS), 0), STEPS)


def drop(folder):
    """Drops the files from the page cache."""
    for path in folder.rglob('*.bag'):
        with path.open('rb') as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def main(output, *, quick):
    """Prints the tables."""
    rng = np.random.default_rng(1)
    draws = itertools.cycle([rng.permutation(COUNT)[:BATCH] for _ in range(32)])

    def of_four():
        """Returns as many datapoints of each dataset, in random order, as `samplers.Mixture` does."""
        return rng.permutation(next(draws) + COUNT * (np.arange(BATCH) % DATASETS))

    for content, size in SIZES.items():
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            same, different = (write(folder / spec, joints, size) for spec, joints in JOINTS.items())
            reads = {
                'four datasets': (bags.concat(same).batch, of_four),
                'four specs, padded': (padded(bags.concat(different, fields='union')), of_four),
                'one dataset': (same[0].batch, lambda: next(draws)),
            }
            for title, is_cold in ((CACHED, False), (COLD, True)):
                if is_cold and not size:
                    continue

                def prepare(place, is_cold=is_cold, folder=folder):
                    if is_cold:
                        drop(folder)
                    return place()

                candidates = {
                    name: Candidate(read, 1, before=lambda place=place: prepare(place))
                    for name, (read, place) in reads.items()
                }
                timings = time_interleaved(
                    candidates, seconds=1 if quick else 6, min_rounds=5, max_rounds=201 if size else 2001
                )
                output.compare(title.format(content), timings, 'four datasets', FLOORS if size else {})
            mixture = bags.samplers.Mixture([COUNT] * DATASETS, [1] * DATASETS)
            collate = dict.fromkeys(('state', 'action'), 'mask')
            loaders = {
                'four datasets': steps(bags.concat(same), sampler=mixture),
                'four specs, padded': steps(
                    bags.concat(different, fields='union'), sampler=mixture, collate=collate
                ),
                'one dataset': steps(same[0]),
            }
            timings = time_interleaved(loaders, seconds=1 if quick else 6, max_rounds=201)
            output.compare(LOADER.format(content), timings, 'four datasets', FLOORS if size else {})
