"""Many frames decompressed by one call: a damaged frame raises an error, and never ends the process."""

import random

import numpy as np
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from bags.bag.small_zstd_frames import decompress_batch

COUNT = 12
LARGEST = 1 << 14


def records(rng):
    words = [rng.randbytes(rng.randrange(1, 9)).hex().encode() for _ in range(20)]
    makers = [
        rng.randbytes,
        lambda size: b' '.join(rng.choice(words) for _ in range(size // 9 + 1)),
        lambda size: b'a' * size,
    ]
    return [rng.choice(makers)(rng.choice([1, 2, 30, 300, 5000])) for _ in range(COUNT)]


def decode(frames, dictionary=None):
    """Decodes frames one by one, separately and in one buffer; the results must be equal."""
    decompressor = zstandard.ZstdDecompressor(dict_data=dictionary)
    lengths = np.array(list(map(len, frames)), np.int64)
    found = decompress_batch(decompressor, frames, lengths, LARGEST)
    assert decompress_batch(decompressor, [b''.join(frames)], lengths, LARGEST) == found
    return found


def one_by_one(frames, dictionary=None):
    """Returns the records of frames with the announced sizes; None if any frame is invalid."""
    found = []
    for frame in frames:
        try:
            size = zstandard.frame_content_size(frame)
            if not 0 < size <= LARGEST:
                return None
            decompressor = zstandard.ZstdDecompressor(dict_data=dictionary)
            found.append(decompressor.decompress(frame, allow_extra_data=False))
        except zstandard.ZstdError:
            return None
        if len(found[-1]) != size:
            return None
    return found


@pytest.mark.parametrize('checksum', [True, False])
def test_records_come_back(checksum):
    expected = [record for seed in range(20) for record in records(random.Random(seed))]
    compress = zstandard.ZstdCompressor(write_checksum=checksum).compress
    for _ in range(3):
        assert decode(list(map(compress, expected))) == expected


def test_frames_of_a_dictionary():
    samples = [b'{"name": "%d", "kind": "sample", "value": %d}' % (n, n * n) for n in range(2000)]
    dictionary = zstandard.train_dictionary(2000, samples)
    other = zstandard.train_dictionary(1000, samples[::3])
    frames = list(map(zstandard.ZstdCompressor(dict_data=dictionary).compress, samples))
    assert decode(frames, dictionary) == samples
    assert decode(frames) is None
    assert decode(frames, other) is None


def test_views_of_frames_more_than_once():
    expected = records(random.Random(1))
    frames = [memoryview(zstandard.compress(record)) for record in expected]
    order = [3, 3, 0, COUNT - 1, 7, 1, 0]
    assert decode([frames[place] for place in order]) == [expected[place] for place in order]


@pytest.mark.parametrize('size', [LARGEST, LARGEST + 1, 1 << 17, (1 << 17) + 1])
def test_large_records_are_left_to_others(size):
    frames = [zstandard.compress(b'small'), zstandard.compress(bytes(size))]
    assert decode(frames) == ([b'small', bytes(size)] if size <= LARGEST else None)


def check(seed, place, byte, kind):
    """Damages one of several frames, and compares with decoding each by itself."""
    rng = random.Random(seed)
    compressor = zstandard.ZstdCompressor(
        rng.choice([1, 3, 19]), write_checksum=rng.random() < 0.5, write_content_size=rng.random() < 0.9
    )
    frames = list(map(compressor.compress, records(rng)))
    which = rng.randrange(COUNT)
    frame = frames[which]
    place %= len(frame)
    frames[which] = {
        'byte': lambda: frame[:place] + bytes([byte]) + frame[place + 1 :],
        'cut': lambda: frame[:place] + frame[place + 1 :],
        'more': lambda: frame[:place] + bytes([byte]) + frame[place:],
        'random': lambda: frame[:4] + rng.randbytes(place),
        'head': lambda: frame[:4] + bytes([byte]) + rng.randbytes(8) + frame[13:],
        'frames': lambda: frame + zstandard.compress(bytes(byte)),
        'empty': lambda: zstandard.compress(b''),
    }[kind]()
    if frames[which]:
        found, expected = decode(frames), one_by_one(frames)
        # It may leave frames to the plain path, but never returns anything else.
        assert found in (None, expected), frames[which]


KINDS = ['byte', 'cut', 'more', 'random', 'head', 'frames', 'empty']


@settings(max_examples=500, deadline=None)
@given(
    st.integers(0, 99), st.integers(0, 5000) | st.integers(0, 20), st.integers(0, 255), st.sampled_from(KINDS)
)
def test_a_frame_that_is_damaged(seed, place, byte, kind):
    check(seed, place, byte, kind)


@pytest.mark.campaign
def test_frames_that_are_damaged_many_times():
    rng = random.Random(7)
    for _ in range(60_000):
        place = rng.randrange(rng.choice([16, 5000]))
        check(rng.randrange(1000), place, rng.randrange(256), rng.choice(KINDS))
