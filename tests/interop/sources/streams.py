"""Shared by the tests of streaming formats: the values that their own readers returned."""

import base64
import json
import struct
from pathlib import Path

import numpy as np

import bags

GOLDEN = Path(__file__).parent / 'golden'


def expected(name):
    """Returns what a format's own reader returned for a sample; see make_golden_streams.py."""

    def restored(value):
        if isinstance(value, list):
            return [restored(item) for item in value]
        if not isinstance(value, dict):
            return value
        if set(value) == {'bytes'}:
            return base64.b64decode(value['bytes'])
        if set(value) == {'dtype', 'shape', 'values'}:
            return np.array(value['values'], value['dtype']).reshape(value['shape'])
        return {key: restored(item) for key, item in value.items()}

    return restored(json.loads((GOLDEN / f'{name}.expected.json').read_text()))


def converted(source, directory, **options):
    """Converts a source and returns the result and every datapoint."""
    done = bags.convert(source, directory, **options)
    with bags.open(directory) as dataset:
        return done, [dataset[index] for index in range(len(dataset))]


def assert_equal(found, wanted):
    if isinstance(wanted, list | tuple):
        assert len(found) == len(wanted)
        for one, other in zip(found, wanted, strict=True):
            assert_equal(one, other)
    elif isinstance(wanted, np.ndarray):
        np.testing.assert_array_equal(found, wanted)
        if wanted.shape:
            assert np.asarray(found).dtype == wanted.dtype
    else:
        assert found == wanted


def records(data):
    """Returns the start and the length of the data of each record of TFRecord."""
    place, found = 0, []
    while place < len(data):
        (length,) = struct.unpack_from('<Q', data, place)
        found.append((place + 12, length))
        place += 16 + length
    return found
