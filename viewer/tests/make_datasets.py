"""Writes the datasets of the tests of the viewer, and what they must read as (`expected.json`).

    python viewer/tests/make_datasets.py FOLDER
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np

import bags

SPEC = {
    'any': 'array',
    'bytes': 'bytes',
    'flag': 'bool',
    'float': 'float(4)',
    'half': 'array(float16,4)',
    'id': 'int(8)',
    'json': 'json',
    'maybe': 'utf8?',
    'meta': 'msgpack',
    'small': 'int(2)',
    'state': 'array(float32,3)[]',
    'text': 'utf8',
    'tokens': 'array(uint16,?)',
    'tree': 'tree',
    'unsigned': 'uint(8)',
    'words': 'utf8[]?',
}


def datapoint(index, rng):
    return {
        'any': rng.integers(0, 9, (2, index % 3), np.int64),
        'bytes': bytes(range(index % 5)),
        'flag': index % 2 == 0,
        'float': float(np.float32(index / 3)),
        'half': np.array([0, -1.5, 65504, 2**-14], np.float16) * (index % 2),
        'id': -index * 10**12,
        'json': {'ä': [1, None, 'x' * index], 'nested': {'k': True}},
        'maybe': None if index % 3 == 0 else f'maybe {index}',
        'meta': {'a': index, 'b': [1, 2.5, 'x', None]},
        'small': -index,
        'state': rng.random((index % 4, 3), np.float32),
        'text': f'text {index} ' + 'é' * index + '<script>alert(1)</script>' * (index == 3),
        'tokens': np.arange(index, dtype=np.uint16),
        'tree': {'x': np.arange(index % 3, dtype='>i4'), 'y': [index]},
        'unsigned': 2**64 - 1 - index,
        'words': None if index % 4 == 3 else [f'w{k}' for k in range(index % 4)],
    }


def plain(value):
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, bytes):
        return list(value)
    if isinstance(value, int) and abs(value) > 2**53:
        return str(value)
    return value


def write_values(folder):
    rng = np.random.default_rng(0)
    rows = [datapoint(index, rng) for index in range(23)]
    metadata = {'fields': {'state': {'rate': 10, 'unit': 'rad', 'names': ['a', 'b', 'c']}}}
    compression = ['text', 'json', 'words', 'any']
    with bags.DatasetWriter(folder / 'single', SPEC, compression=compression, metadata=metadata) as writer:
        for row in rows:
            writer.append(row)
    for name in ('indexed', 'probed'):
        with bags.ShardedDatasetWriter(
            folder / name, SPEC, shard_length=5, compression=compression, metadata=metadata
        ) as writer:
            for row in rows:
                writer.append(row)
    bags.consolidate(folder / 'indexed')
    (folder / 'probed' / 'shards.json').unlink(missing_ok=True)
    with bags.DatasetWriter(folder / 'empty', {'id': 'int(8)'}):
        pass
    with bags.open(folder / 'single') as dataset:
        return [plain(dataset[index]) for index in range(len(dataset))]


def write_unclosed(folder):
    code = f"""
import bags, os
writer = bags.DatasetWriter({str(folder / 'unclosed')!r}, {{'id': 'int(8)', 'words': 'utf8[]'}}, compression=['words'])
for index in range(10):
    writer.append({{'id': index, 'words': [f'w{{index}}'] * (index % 3)}}, flush=True)
os._exit(0)
"""
    subprocess.run([sys.executable, '-c', code], check=True)


def write_damaged(folder):
    spec = {'id': 'int(8)', 'text': 'utf8', 'plain': 'utf8'}
    with bags.DatasetWriter(folder / 'damaged', spec, compression=['text']) as writer:
        for index in range(10):
            writer.append({'id': index, 'text': f'a longer text {index} ' * 9, 'plain': f'plain {index}'})
    path = folder / 'damaged' / 'text.bagz'
    data = bytearray(path.read_bytes())
    ends = np.frombuffer(bytes(data[-80:]), '<u8')
    data[int(ends[4]) - 1] ^= 0xFF  # The checksum of record 4.
    path.write_bytes(data)
    path = folder / 'damaged' / 'plain.bag'
    path.write_bytes(path.read_bytes()[:-11])


def main():
    folder = Path(sys.argv[1])
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    rows = write_values(folder)
    write_unclosed(folder)
    write_damaged(folder)
    (folder / 'expected.json').write_text(json.dumps(rows))


if __name__ == '__main__':
    main()
    os._exit(0)
