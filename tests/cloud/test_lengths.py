"""The requests and bytes that the lengths of recordings take: one small range of each record."""

import re
import uuid

import numpy as np
import pytest

import bags
from bags.formats.audio import encode_flac, encode_opus, encode_wav
from bags.storage import store_for
from bags.streams.measure import measure

COUNT = 40
MAX_BYTES = 8192


def requested(requests):
    """Returns the number of bytes of each range that was requested of a file with records."""
    ranges = [re.fullmatch(r'bytes=(\d+)-(\d+)', text) for method, _, text in requests if method == 'GET']
    return [int(found[2]) - int(found[1]) + 1 for found in ranges if found]


def flac(count, rate=16_000):
    """Noise, which takes 2 bytes a sample."""
    noise = np.random.default_rng(count).integers(-9000, 9000, (count, 1), np.int16)
    return encode_flac((noise, rate))


@pytest.fixture
def root(s3_storage):
    return f'{s3_storage.root}/lengths/{uuid.uuid4().hex}'


def write(root, options, field_type, values, **more):
    with bags.ShardedDatasetWriter(
        root, {'m': field_type}, shard_length=1000, storage_options=options, **more
    ) as writer:
        for value in values:
            writer.append({'m': value})


@pytest.mark.parametrize('field_type', ['flac', 'audio'])
def test_records_of_a_bag(root, s3_storage, proxy, field_type):
    files = [flac(9000 + number) for number in range(COUNT)]
    write(root, s3_storage.options, field_type, files)
    with bags.open(root, storage_options=s3_storage.through(proxy)) as reader:
        measure(reader, np.arange(1), 'm')  # Opens the bags.
        with proxy.counted() as requests:
            found = measure(reader, np.arange(1, COUNT), 'm')
    assert found.elements.tolist() == [9001 + number for number in range(COUNT - 1)]
    assert found.fallbacks == 0
    assert len(requests) <= COUNT - 1
    assert max(requested(requests)) <= MAX_BYTES
    assert proxy.most > 4


def test_small_neighbours_share_a_request(root, s3_storage, proxy):
    blocks = [encode_wav((np.ones((200 + number, 1), np.int16), 16_000)) for number in range(20)]
    write(root, s3_storage.options, 'wav[]', [blocks] * 300)
    with bags.open(root, storage_options=s3_storage.through(proxy)) as reader:
        measure(reader, np.arange(1), 'm')
        with proxy.counted() as requests:
            found = measure(reader, np.arange(300), 'm')
    assert found.elements.tolist() == [sum(range(200, 220))] * 300
    assert len(requests) <= 3


def test_linked_files(root, s3_storage, proxy, tmp_path):
    urls = {f'{root}/files/{number}.flac': flac(9000 + number) for number in range(COUNT)}
    for url, data in urls.items():
        store, path = store_for(url, None, s3_storage.options)
        store.replace(path, data)
    write(
        f'{root}/data',
        {'s3://bucket/': s3_storage.options},
        'flac',
        map(bags.Link, urls),
        linked_fields=['m'],
    )
    options = {'s3://bucket/': s3_storage.through(proxy)}
    with bags.open(f'{root}/data', trust_links=f'{root}/files', storage_options=options) as reader:
        measure(reader, np.arange(1), 'm')
        with proxy.counted() as requests:
            found = measure(reader, np.arange(1, COUNT), 'm')
    assert found.elements.tolist() == [9001 + number for number in range(COUNT - 1)]
    of_files = [request for request in requests if request[1].endswith('.flac')]
    assert len(of_files) == COUNT - 1
    assert max(requested(of_files)) <= MAX_BYTES
    # The entries of all files are read together.
    assert len(requests) - len(of_files) <= 2


def test_a_linked_file_that_has_changed(root, s3_storage):
    url = f'{root}/files/one.flac'
    store, path = store_for(url, None, s3_storage.options)
    store.replace(path, flac(9000))
    write(f'{root}/data', {'s3://bucket/': s3_storage.options}, 'flac', [bags.Link(url)], linked_fields=['m'])
    for data, message in ((flac(9000) + b'more', 'replaced|changed|expected'), (None, 'none')):
        if data is None:
            store.remove(path)
        else:
            store.replace(path, data)
        with (
            bags.open(
                f'{root}/data',
                trust_links=f'{root}/files',
                storage_options={'s3://bucket/': s3_storage.options},
            ) as reader,
            pytest.raises((bags.CorruptError, OSError), match=message),
        ):
            measure(reader, np.arange(1), 'm')


def test_the_ends_of_ogg(root, s3_storage, proxy):
    noise = np.random.default_rng(0).standard_normal((96_000, 1)).astype(np.float32) / 8
    files = [encode_opus((noise[: 60_000 + 700 * number], 48_000), '24') for number in range(8)]
    write(root, s3_storage.options, 'opus', files)
    with bags.open(root, storage_options=s3_storage.through(proxy)) as reader:
        measure(reader, np.arange(1), 'm')
        with proxy.counted() as requests:
            found = measure(reader, np.arange(1, 8), 'm')
    assert found.elements.tolist() == [60_000 + 700 * number for number in range(1, 8)]
    assert len(requests) <= 2 * 7
    assert sum(requested(requests)) <= MAX_BYTES * 7
