"""Adds the type `cloud` to bags, sweeps of points that are read one by one, and imports `.xyz` files."""

import numpy as np

from bags.interop.records import open_file
from bags.types import Source


class Cloud:
    """The sweeps of a record, float32 (n, points, 3), read when they are asked for."""

    def __init__(self, record, points):
        self.record, self.shape = record, (int(points), 3)
        self.size = 12 * int(points)

    def __len__(self):
        with self.record.open() as file:
            return file.seek(0, 2) // self.size

    def __getitem__(self, numbers):
        sweeps = np.empty((len(numbers), *self.shape), np.float32)
        with self.record.open() as file:
            for sweep, number in zip(sweeps, numbers.tolist(), strict=True):
                file.seek(number * self.size)
                sweep[:] = np.frombuffer(file.read(self.size), np.float32).reshape(self.shape)
        return sweeps


def encode(value, points):
    return np.asarray(value, np.float32).reshape(-1, int(points), 3).tobytes()


def decode(record, points):
    return Cloud(record, points)


decode.lazy = True
decode.frames = decode


def check(points):
    if not points.isdigit():
        raise ValueError(f'expected a number of points, got {points!r}')


files = ('*.xyz',)


class Scans(Source):
    """Files of text, with the coordinates of a point in each line: a datapoint is a file, with one sweep."""

    def __init__(self, paths, storage_options):
        super().__init__('xyz', {'name': 'utf8', 'scan': 'cloud(2)'}, len(paths))
        self.records, self.storage_options = paths, storage_options

    def load(self, path):
        with open_file(path, self.storage_options) as file:
            return {'name': path.rpartition('/')[2], 'scan': np.loadtxt(file, ndmin=2)[None]}


open_source = Scans
