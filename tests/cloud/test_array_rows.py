"""The requests and bytes that rows of arrays in object stores take."""

import uuid

import numpy as np
import pytest

import bags
from bags.dataset.reading.columns import read_column
from bags.dataset.reading.selection import PerRowItems
from bags.storage import store_for
from tests.cloud.test_lengths import requested, write

TOKENS = [np.arange(200_000, dtype='u2') * (number + 1) for number in range(6)]
FAR = 100_000
"""Tokens between ranges that are too far from each other for one request."""


@pytest.fixture
def root(s3_storage):
    return f'{s3_storage.root}/rows/{uuid.uuid4().hex}'


@pytest.fixture(params=['a bag', 'a linked file'])
def reader(request, root, s3_storage, proxy):
    """A reader of `TOKENS` through the proxy, which has read a datapoint before."""
    options = {'s3://bucket/': s3_storage.options}
    values, more = TOKENS, {}
    if request.param == 'a linked file':
        store, path = store_for(f'{root}/data.bin', None, s3_storage.options)
        store.replace(path, b''.join(array.tobytes() for array in TOKENS))
        size = TOKENS[0].nbytes
        values = [bags.Link(f'{root}/data.bin', number * size, size) for number in range(len(TOKENS))]
        more = {'linked_fields': ['m']}
    write(f'{root}/data', options, 'array(uint16,?)', values, **more)
    options = {'s3://bucket/': s3_storage.through(proxy)}
    with bags.open(f'{root}/data', storage_options=options, trust_links=root) as reader:
        assert reader[0, {'m': slice(0, 1)}]['m'].tolist() == [0]
        yield reader


def test_a_range_takes_one_request(reader, proxy):
    with proxy.counted() as requests:
        found = reader[3, {'m': slice(FAR, FAR + 500)}]['m']
    assert np.array_equal(found, TOKENS[3][FAR : FAR + 500])
    assert requested(requests) == [1000]


def test_a_batch_of_ranges(reader, proxy):
    """Ranges that are close share a request; one request a range otherwise, and none for empty ranges."""
    rows = np.array([4, 1, 2, 4, 1])
    starts, counts = np.array([600, 0, FAR, 0, 5]), np.array([200, 300, 50, 500, 0])
    with proxy.counted() as requests:
        column = reader.read_selection(rows, {'m': PerRowItems(starts, counts)}, read_column)['m']
    for row, start, count, found in zip(rows, starts, counts, column, strict=True):
        assert np.array_equal(found, TOKENS[row][start : start + count])
    assert sorted(requested(requests)) == [100, 600, 1600]


def test_a_slice_of_each_datapoint(reader, proxy):
    with proxy.counted() as requests:
        column = reader.batch(range(5), {'m': slice(-300, None, 3)})['m']
    assert [found.tolist() for found in column] == [array[-300::3].tolist() for array in TOKENS[:5]]
    assert requested(requests) == [596] * 5


def test_windows(reader, proxy):
    windows = reader.windows(every='m', m=bags.steps(0, 100), stride=100, padding='drop')
    assert len(windows) == 12_000
    with proxy.counted() as requests:
        batch = windows.batch([7000, 7001])['m']
    assert np.array_equal(batch.ravel(), TOKENS[3][FAR : FAR + 200])
    assert requested(requests) == [400]
