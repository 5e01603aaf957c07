from __future__ import annotations

import random
import threading

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from bags.bag import compression as codecs
from bags.bag.compression import Zstd, codec_for
from bags.bag.options import CompressionAutoDetect, CompressionNone, CompressionZstd
from tests.bag.samples import few

TRAINED = zstandard.train_dictionary(
    2048, [b'a photo of thing number %d, at %d' % (i, i * i) for i in range(2000)]
).as_bytes()
DICTIONARIES = [b'', b'raw bytes that records have in common ' * 10, TRAINED]


def codec(most=1 << 30, **options):
    return Zstd(CompressionZstd(**options), most)


def encode(record, zstd=None):
    return bytes((zstd or codec()).encode_many([record])[0])


@pytest.mark.parametrize('dictionary', DICTIONARIES, ids=['none', 'raw', 'trained'])
@pytest.mark.parametrize('level', [-5, 0, 1, 3, 19])
@few
@given(st.lists(st.binary(max_size=300)))
def test_round_trip(level, dictionary, records):
    zstd = codec(level=level, dictionary=dictionary)
    frames = [bytes(frame) for frame in zstd.encode_many(records)]
    assert frames == [encode(record, zstd) for record in records]
    assert [zstd.decode(frame) for frame in frames] == records
    assert zstd.decode_many(frames, 4) == records
    assert [zstd.decode(memoryview(frame)) for frame in frames] == records


def test_frames_say_their_size_and_carry_a_checksum():
    frame = encode(b'x' * 1000)
    parameters = zstandard.get_frame_parameters(frame)
    assert parameters.content_size == 1000
    assert parameters.has_checksum


def test_an_empty_record_is_an_empty_frame():
    assert encode(b'') == b''
    assert codec().decode(b'') == b''


def test_many_are_compressed_in_their_order():
    zstd = codec(dictionary=TRAINED)
    records = [b'a photo of thing number %d' % i * (i % 7) for i in range(5000)]
    assert zstd.decode_many(zstd.encode_many(records)) == records


@few
@given(st.data())
def test_every_change_of_a_frame_is_detected(data):
    record = data.draw(st.binary(min_size=1, max_size=200))
    frame = bytearray(encode(record))
    place = data.draw(st.integers(0, len(frame) - 1))
    frame[place] ^= 1 << data.draw(st.integers(0, 7))
    try:
        assert codec().decode(bytes(frame)) == record
    except ValueError:
        pass


def test_every_shortened_frame_is_refused():
    frame = encode(b'a photo of thing number 5' * 40)
    for length in range(1, len(frame)):
        with pytest.raises(ValueError, match='zstd frame'):
            codec().decode(frame[:length])


def frame_without_size(record):
    return zstandard.ZstdCompressor(write_content_size=False).compress(record)


SKIPPABLE = b'\x50\x2a\x4d\x18' + (4).to_bytes(4, 'little') + b'skip'
EMPTY_CONTENT = zstandard.ZstdCompressor().compress(b'')
ANNOUNCES_100_GB = b'\x28\xb5\x2f\xfd\xe0' + (100 << 30).to_bytes(8, 'little') + b'\x01\0\0'
BAD_FRAMES = {
    'trailing byte': encode(b'abc') + b'x',
    'two frames': encode(b'abc') * 2,
    'frame and skippable': encode(b'abc') + SKIPPABLE,
    'skippable': SKIPPABLE,
    'skippable and frame': SKIPPABLE + encode(b'abc'),
    'announces 100 GB': ANNOUNCES_100_GB,
    'one byte': b'\x28',
    'magic only': b'\x28\xb5\x2f\xfd',
    'text': b'not a frame at all',
    'unsized and trailing': frame_without_size(b'abc' * 2000) + b'x',
    'unsized, far trailing': frame_without_size(b'abc' * 2000) + b'x' * 5000,
    'unsized twice': frame_without_size(b'abc' * 2000) * 2,
    'unsized and cut': frame_without_size(b'abc' * 2000)[:-3],
    'empty content and trailing': EMPTY_CONTENT + b'x',
    'window of 2 GiB': b'\x28\xb5\x2f\xfd\x00\xa8' + b'\x01\0\0',
}


@pytest.mark.parametrize('name', BAD_FRAMES)
def test_bad_frames_are_refused_alone_and_among_others(name):
    zstd, good = codec(), encode(b'good')
    with pytest.raises(ValueError):
        zstd.decode(BAD_FRAMES[name])
    for many in ([BAD_FRAMES[name]], [good, BAD_FRAMES[name]], [good, BAD_FRAMES[name], good] * 50):
        with pytest.raises(ValueError):
            zstd.decode_many(many, 4)


def test_frames_without_a_size_are_read_up_to_the_bound():
    record = bytes(range(256)) * 1000
    assert codec(len(record)).decode(frame_without_size(record)) == record
    with pytest.raises(ValueError, match='255999'):
        codec(len(record) - 1).decode(frame_without_size(record))


def test_a_frame_of_no_content_is_an_empty_record():
    # A valid frame: other writers may write it where this library writes zero bytes.
    for frame in (EMPTY_CONTENT, frame_without_size(b'')):
        assert codec().decode(frame) == b''
        assert codec().decode_many([frame, encode(b'x'), frame]) == [b'', b'x', b'']


def test_a_bomb_of_unknown_size_takes_no_more_than_the_bound():
    import tracemalloc

    bomb = frame_without_size(bytes(256 << 20))
    assert len(bomb) < 1 << 16
    zstd = codec(1 << 20)
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match='max_record_size'):
            zstd.decode(bomb)
        assert tracemalloc.get_traced_memory()[1] < 64 << 20
    finally:
        tracemalloc.stop()


def test_an_announced_size_beyond_the_bound_is_refused_and_one_at_it_is_not():
    frame = encode(b'x' * 1000)
    assert codec(1000).decode(frame) == b'x' * 1000
    with pytest.raises(ValueError, match='announces 1000 bytes, which exceeds max_record_size=999'):
        codec(999).decode(frame)


@pytest.mark.parametrize('written', DICTIONARIES[1:], ids=['raw', 'trained'])
@pytest.mark.parametrize('read', [b'', b'something else ' * 20, TRAINED[:-20] + bytes(20)])
def test_the_wrong_dictionary_is_refused(written, read):
    record = b'a photo of thing number 7, at 49; raw bytes that records have in common'
    frame = encode(record, codec(dictionary=written))
    with pytest.raises(ValueError, match='zstd frame'):
        codec(dictionary=read).decode(frame)


def test_large_frames_are_decoded_in_threads_with_the_first_error():
    zstd = codec()
    records = [bytes([i]) * 300_000 for i in range(20)]
    records += [random.Random(i).randbytes(200_000) for i in range(12)]
    frames = zstd.encode_many(records)
    assert zstd.decode_many(frames, 4) == records
    frames = list(map(bytes, frames))
    frames[5] = frames[5][:-1]
    with pytest.raises(ValueError):
        zstd.decode_many(frames, 4)


SKIPPABLE = b'\x50\x2a\x4d\x18' + (3).to_bytes(4, 'little') + b'abc'


@pytest.mark.slow(all_but='*-15000-*')
@pytest.mark.parametrize('parallelism', [1, 4])
@pytest.mark.parametrize('size', [100, 4096, 15_000, 200_000])
@pytest.mark.parametrize('kind', ['random', 'text', 'same', 'mixed'])
def test_one_bad_frame_among_many(kind, size, parallelism, monkeypatch):
    monkeypatch.setattr(codecs, 'MIN_PARALLEL_FRAME_BYTES', 1)
    monkeypatch.setattr(codecs, 'PARALLEL_FRAME', 0)
    rng = random.Random(size)
    makers = {
        'random': lambda: rng.randbytes(size),
        'text': lambda: b' '.join(b'%d' % rng.randrange(1000) for _ in range(size // 4)),
        'same': lambda: b'a' * size,
    }
    count = max(8, min(1500, 1_000_000 // size))
    records = [makers[rng.choice(list(makers)) if kind == 'mixed' else kind]() for _ in range(count)]
    records[3] = records[-1] = b''
    zstd = codec()
    frames = list(map(bytes, zstd.encode_many(records)))
    for _ in range(3):
        assert zstd.decode_many(frames, parallelism) == records
    assert zstd.decode_many(list(map(memoryview, frames)), parallelism) == records
    for place in (1, count - 2):
        for bad in (
            frames[place] + b'x',
            frames[place] + SKIPPABLE,
            SKIPPABLE + frames[place],
            frames[place] * 2,
            frames[place][:-1],
            frames[place][:-4] + bytes(4),
        ):
            damaged = [*frames[:place], bad, *frames[place + 1 :]]
            with pytest.raises(ValueError):
                zstd.decode_many(damaged, parallelism)


@pytest.mark.freethreaded
def test_threads_share_a_codec():
    zstd = codec()
    frames = {i: encode(b'%d' % i * 200, zstd) for i in range(50)}
    wrong = []

    def work():
        for _ in range(20):
            wrong.extend(i for i, frame in frames.items() if zstd.decode(frame) != b'%d' % i * 200)
            wrong.extend(i for i, frame in frames.items() if encode(b'%d' % i * 200, zstd) != frame)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.parametrize(
    ('name', 'compression', 'compressed'),
    [
        ('a.bagz', CompressionAutoDetect(), True),
        ('a.bag', CompressionAutoDetect(), False),
        ('a.bagz.tmp', CompressionAutoDetect(), False),
        ('bagz', CompressionAutoDetect(), False),
        ('a.bagz', CompressionNone(), False),
        ('a.bag', CompressionZstd(), True),
    ],
)
def test_the_name_decides_unless_the_option_does(name, compression, compressed):
    assert (codec_for(name, compression, 1 << 30) is not None) == compressed


def test_levels_and_dictionaries_are_checked():
    for level in (23, -131073):
        with pytest.raises(ValueError, match='level'):
            CompressionZstd(level)
    assert CompressionZstd(dictionary=bytearray(b'abc')) == CompressionZstd(dictionary=b'abc')
    with pytest.raises(TypeError):
        CompressionZstd(dictionary=5)
