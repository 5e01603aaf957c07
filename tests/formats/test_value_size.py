"""Small records that decode to huge values: `max_size` refuses them before memory is allocated."""

from __future__ import annotations

import pickle
import random
import struct
import subprocess
import sys
import zlib
from pathlib import Path

import msgpack
import numpy as np
import pytest

import bags
from bags.dataset.format.registry import bind_decoder, decoders, encoders

MB = 1 << 20


def png(colour: int, depth: int, side: int, *chunks: tuple[bytes, bytes]) -> bytes:
    """Returns a black PNG."""
    row = bytes(1 + side * depth * (3 if colour == 2 else 1) // 8)
    parts = [(b'IHDR', struct.pack('>IIBBBBB', side, side, depth, colour, 0, 0, 0)), *chunks]
    parts += [(b'IDAT', zlib.compress(row * side)), (b'IEND', b'')]
    return b'\x89PNG\r\n\x1a\n' + b''.join(
        struct.pack('>I', len(data)) + kind + data + struct.pack('>I', zlib.crc32(kind + data))
        for kind, data in parts
    )


def black(side: int) -> np.ndarray:
    return np.zeros((side, side, 3), np.uint8)


def silence(count: int, dtype: type = np.int16) -> tuple[np.ndarray, int]:
    return np.zeros((count, 2), dtype), 48_000


def understated_flac(count: int) -> bytes:
    """Returns a FLAC whose header announces one sample."""
    data = bytearray(encoders['flac'](silence(count)))
    info = int.from_bytes(data[18:26], 'big')
    data[18:26] = ((info >> 36 << 36) + 1).to_bytes(8, 'big')
    return bytes(data)


def wav8(count: int) -> bytes:
    form = struct.pack('<HHIIHH', 1, 1, 8000, 8000, 1, 8)
    body = b'WAVEfmt \x10\0\0\0' + form + b'data' + struct.pack('<I', count) + bytes(count)
    return b'RIFF' + struct.pack('<I', len(body)) + body


PALETTE = (b'PLTE', bytes(6)), (b'tRNS', bytes(2))

# Type, record, bytes of the value.
BOMBS = {
    'gray png': lambda: ('png', png(0, 1, 4000), 4000**2),
    'rgb png': lambda: ('png', png(2, 8, 2000), 3 * 2000**2),
    'gray 16 png': lambda: ('png', png(0, 16, 2000), 2 * 2000**2),
    'transparent png': lambda: ('png', png(3, 1, 3000, *PALETTE), 4 * 3000**2),
    'jpeg': lambda: ('jpeg', encoders['jpeg'](black(2000)), 3 * 2000**2),
    'webp': lambda: ('webp', encoders['webp'](black(2000)), 3 * 2000**2),
    'avif': lambda: ('avif', encoders['avif'](black(2000)), 3 * 2000**2),
    'mp4': lambda: ('mp4', encoders['mp4'](np.zeros((40, 240, 320, 3), np.uint8)), 40 * 240 * 320 * 3),
    'webm': lambda: ('webm', encoders['webm'](np.zeros((40, 240, 320, 3), np.uint8)), 40 * 240 * 320 * 3),
    'mkv': lambda: ('mkv', encoders['mkv'](np.zeros((40, 240, 320, 3), np.uint8)), 40 * 240 * 320 * 3),
    'flac': lambda: ('flac', encoders['flac'](silence(2_000_000)), 4 * 2_000_000),
    'opus': lambda: ('opus', encoders['opus'](silence(500_000)), 8 * 500_000),
    'wav': lambda: ('wav', wav8(1_000_000), 2 * 1_000_000),
}


@pytest.mark.slow('avif', 'webp')
@pytest.mark.parametrize('name', BOMBS)
def test_exactly_the_bytes_of_the_value_are_allowed(name):
    format, record, size = BOMBS[name]()
    value = bind_decoder(format, max_value_size=size)(record)
    array = value[0] if isinstance(value, tuple) else value
    assert array.nbytes == size
    for limit in (1, size // 100, size - 1):
        with pytest.raises(ValueError, match=f'exceeds max_value_size={limit}$'):
            bind_decoder(format, max_value_size=limit)(record)


def empty(kind: bytes, count: int) -> bytes:
    return b'\xdd' + count.to_bytes(4, 'big') + kind * count


TREES = {
    'lists': ('msgpack', empty(b'\x90', 100_000)),
    'dicts': ('msgpack', empty(b'\x81\xc0\xc0', 100_000)),
    'nested': ('tree', b'\xdd\x00\x01\x86\xa0' * 400 + b'\x90' * 100_000),
    'deep': ('msgpack', empty(b'\x91' * 400 + b'\xc0', 300)),
    'numbers': ('tree', empty(b'\xcb' + b'abcdefgh', 500_000)),
    'long map': ('msgpack', b'\xdf\x00\x01\x86\xa0' + b'\xc0\xc0' * 100_000),
    'json lists': ('json', b'[' + b'[],' * 100_000 + b'0]'),
    'json dicts': ('json', b'[' + b'{"a":{}},' * 100_000 + b'0]'),
    'json deep': ('json', b'[' + b'[[[[]]]],' * 50_000 + b'0]'),
}


@pytest.mark.parametrize('name', TREES)
def test_trees_of_many_values(name):
    format, record = TREES[name]
    with pytest.raises(ValueError, match=r'max_value_size=4000000$'):
        bind_decoder(format, max_value_size=4_000_000)(record)


def test_trees_within_the_limit():
    values = {'a': [1, 2.5, 'text', None, True, {'b': [b'bytes']}], (1, 2): list(range(1000))}
    assert bind_decoder('msgpack', max_value_size=100_000)(encoders['msgpack'](values)) == values
    tree = {'image': np.zeros((500, 500), np.uint8), 'label': 3}
    decoded = bind_decoder('tree', max_value_size=260_000)(encoders['tree'](tree))
    assert np.array_equal(decoded['image'], tree['image'])
    with pytest.raises(ValueError, match=r'exceeds max_value_size=200000$'):
        bind_decoder('tree', max_value_size=200_000)(encoders['tree'](tree))
    text = {'prose': 'One, two, three. ' * 10_000}
    assert bind_decoder('json', max_value_size=1_000_000)(encoders['json'](text)) == text
    with pytest.raises(ValueError, match='expected one MessagePack value'):
        bind_decoder('msgpack', max_value_size=1000)(b'\x91')


def test_array_headers_announce_no_more_than_is_there():
    for shape in ([2**40], [2**61, 0, 2**61], [2**20] * 3):
        record = msgpack.packb(['<f4', shape, b''])
        with pytest.raises(ValueError, match='expected'):
            decoders['array'](record)


def test_a_flac_of_more_samples_than_it_announces():
    with pytest.raises(ValueError, match=r'exceeds max_value_size=1000000$'):
        bind_decoder('flac', max_value_size=1_000_000)(understated_flac(2_000_000))
    with pytest.raises(ValueError, match='expected 1 samples, got 2000000'):
        decoders['flac'](understated_flac(2_000_000))


# In processes of their own, as their peak memory counts what libraries allocate.

PEAK = """
import resource, sys
import bags
from bags.dataset.format.registry import bind_decoder, encoders
from tests.formats.test_value_size import black, silence
values = {'flac': silence(9), 'opus': silence(9), 'wav': silence(9)}
values |= {word: [black(64)] for word in ('mp4', 'webm', 'mkv')}
for word in ('png', 'jpeg', 'webp', 'avif', *values):
    bind_decoder(word)(encoders[word](values.get(word, black(64))))
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
before = peak()
for argument in sys.argv[2:]:
    word, path = argument.split('=')
    try:
        bind_decoder(word, max_value_size=int(sys.argv[1]))(open(path, 'rb').read())
    except ValueError:
        pass
print(peak() - before)
"""


def peak_of(directory: Path, records: list[tuple[str, bytes]], limit: int) -> int:
    """Returns by how many MB the memory of a process that decodes some records grows."""
    arguments = []
    for number, (format, record) in enumerate(records):
        (directory / str(number)).write_bytes(record)
        arguments.append(f'{format}={directory / str(number)}')
    command = [sys.executable, '-c', PEAK, str(limit), *arguments]
    return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


@pytest.mark.slow(all_but='msgpack-*')
@pytest.mark.parametrize(
    ('format', 'make'),
    [
        ('png', lambda: png(0, 1, 16_000)),
        ('png', lambda: png(3, 1, 16_000, *PALETTE)),
        ('msgpack', lambda: empty(b'\x90', 5_000_000)),
        ('json', lambda: b'[' + b'[],' * 2_000_000 + b'0]'),
        ('flac', lambda: understated_flac(30_000_000)),
        ('webm', lambda: encoders['webm'](np.zeros((1000, 120, 160, 3), np.uint8))),
    ],
)
def test_memory_stays_near_the_limit(tmp_path, format, make):
    """Decoded, each would take more than 55 MB."""
    assert peak_of(tmp_path, [(format, make())], 8 * MB) < 40


@pytest.mark.slow
@pytest.mark.parametrize('seed', range(8))
def test_mutated_headers_allocate_little(seed, tmp_path):
    """Changes a few bytes of records, most of them near the beginning."""
    generator = random.Random(seed)
    records = []
    for make in BOMBS.values():
        format, record, _ = make()
        for _ in range(60):
            data = bytearray(record)
            for _ in range(generator.choice([1, 2, 4])):
                place = min(int(generator.expovariate(1 / 100)), len(data) - 1)
                data[place] = generator.choice([0, 1, 0x7F, 0x80, 0xFF, generator.randrange(256)])
            records.append((format, bytes(data)))
    assert peak_of(tmp_path, records, 2 * MB) < 100


# Datasets.


@pytest.fixture
def dataset(tmp_path):
    """Writes a dataset whose datapoint 7 has large values, and returns its path."""
    spec = {'image': 'png', 'images': 'png[]', 'words': 'json', 'rows': 'array(uint8,1000)[]'}
    with bags.DatasetWriter(tmp_path / 'd', spec, compression=['rows']) as writer:
        for index in range(20):
            large = index == 7
            image = black(200 if large else 4)
            rows = np.zeros((200 if large else 2, 1000), np.uint8)
            formats = [[]] * (1300 if large else 2)
            writer.append({'image': image, 'images': [image] * 2, 'words': formats, 'rows': rows})
    return tmp_path / 'd'


READS = {
    'row': lambda d, name: d[7, name],
    'batch': lambda d, name: d.batch([3, 7], name),
    'large batch': lambda d, name: d.batch(range(20), name),
    'rows': lambda d, name: d[:, name].__getitems__(range(20)),
    'pickled': lambda d, name: pickle.loads(pickle.dumps(d)).batch(range(20), name),
    'concat': lambda d, name: bags.concat([d, d]).batch([3, 27], name),
    'loader': lambda d, name: list(bags.Loader(d, 20, fields=name, workers=2, epochs=1)),
}


@pytest.mark.parametrize('how', READS)
@pytest.mark.parametrize(('field', 'record'), [('image', 7), ('images', 14), ('words', 7), ('rows', 14)])
def test_max_value_size_of_datasets(dataset, how, field, record):
    READS[how](bags.open(dataset), field)
    READS[how](bags.open(dataset, max_value_size=200_000), field)
    limited = bags.open(dataset, max_value_size=100_000)
    with pytest.raises(bags.DecodeError, match=r'exceed.* max_value_size') as caught:
        READS[how](limited, field)
    assert caught.value.field == field
    assert caught.value.index == record
    assert len(limited.batch([i for i in range(20) if i != 7])['image']) == 19


def test_some_items_of_a_long_sequence(dataset):
    with bags.open(dataset, max_value_size=100_000) as limited:
        assert len(limited[7, {'rows': range(50)}]['rows']) == 50
        assert limited.batch([7], {'rows': range(50)})['rows'].dense().shape == (1, 50, 1000)
    with pytest.raises(ValueError, match='max_value_size'):
        bags.open(dataset, max_value_size=0)
