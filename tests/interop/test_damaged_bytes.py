"""Small samples of the formats, damaged at every byte: an error, or the values of the undamaged sample.

Formats without a check of their own may have other values; the campaign prints the rate of each.
"""

import gzip
import io
import json
import random
import shutil
import struct
import tarfile
import warnings
import zipfile
from collections.abc import Iterator

import h5py
import numcodecs
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import xxhash
import zarr
import zstandard
from array_record.python.array_record_module import ArrayRecordWriter
from mcap.writer import CompressionType
from mcap.writer import Writer as McapWriter
from pyarrow import feather

import bags
from bags.interop.open_source import open_source
from bags.interop.source import DamagedEntries
from tests.interop.sources.streams import GOLDEN

pytestmark = [
    pytest.mark.filterwarnings('ignore'),
    pytest.mark.filterwarnings('ignore::pytest.PytestUnraisableExceptionWarning'),
]
TABLE = pa.table({'a': pa.array([1, 2, None]), 'text': ['x', 'yy', 'z'], 'l': [[1.0], [], [2.0, 3.0]]})
ARRAYS = {'x': np.arange(6.0).reshape(3, 2), 'y': np.arange(3)}


def tar(path):
    with tarfile.open(path, 'w') as file:
        for name in ('0.txt', '0.cls', '1.txt', '1.cls'):
            member = tarfile.TarInfo(name)
            member.size = 40
            file.addfile(member, io.BytesIO(b'%40d' % len(name)))
    return path.read_bytes()


def compressed_tar(compress):
    return lambda path: path.write_bytes(compress(tar(path)))


def hdf5(path, **options):
    with h5py.File(path, 'w', libver=options.pop('libver', None)) as file:
        for number in range(2):
            for name, array in ARRAYS.items():
                file.create_dataset(f'data/demo_{number}/{name}', data=array, **options)


def zarr_folder(path, version, codecs):
    root = zarr.open_group(path, mode='w', zarr_format=version)
    for name, array in ARRAYS.items():
        root.create_array(f'data/{name}', data=array, chunks=(2, *array.shape[1:]), compressors=codecs)
    root['data/y'].attrs['unit'] = 'm'
    root.create_array('meta/episode_ends', data=np.array([1, 3]), compressors=codecs)


def zarr_zip(path):
    zarr_folder(path.with_name('folder.zarr'), 3, None)
    shutil.make_archive(str(path.with_suffix('')), 'zip', path.with_name('folder.zarr'))
    shutil.rmtree(path.with_name('folder.zarr'))


def files_in_zip(path):
    with zipfile.ZipFile(path, 'w') as file:
        for name, method in (('0.txt', zipfile.ZIP_STORED), ('1.txt', zipfile.ZIP_DEFLATED)):
            file.writestr(name, 40 * name[0], method)


def arrow(path, is_stream, options=None):
    new = pa.ipc.new_stream if is_stream else pa.ipc.new_file
    with new(str(path), TABLE.schema, options=options) as writer:
        writer.write_table(TABLE)


def bagz(path):
    with bags.bag.Writer(path) as writer:
        for index in range(3):
            writer.write(b'record %d' % index * 3)


def mcap(path):
    """A recording of one topic, in a chunk for each message."""
    with path.open('wb') as file:
        writer = McapWriter(file, chunk_size=64, compression=CompressionType.NONE)
        writer.start('ros2')
        schema = writer.register_schema('std_msgs/msg/Float64', 'ros2msg', b'float64 data')
        channel = writer.register_channel('/speed', 'cdr', schema)
        for time in range(3):
            writer.add_message(channel, time, b'\0\1\0\0' + struct.pack('<d', time / 2), time)
        writer.finish()


def array_record(path):
    writer = ArrayRecordWriter(str(path), 'group_size:2')
    for index in range(3):
        writer.write(b'record %d' % index * 3)
    writer.close()


FRAMES = [np.full((16, 16, 3), shade, np.uint8) for shade in (0, 90, 180)]


def media(path, *types):
    """A folder of a file of each type."""
    path.mkdir()
    pixels = np.arange(768).astype(np.uint8).reshape(16, 16, 3)
    sound = (np.arange(1000) % 100 * 300 - 15000).astype(np.int16), 48_000
    values = {
        **dict.fromkeys(('png', 'jpeg', 'webp'), pixels),
        **dict.fromkeys(('mp4', 'mkv'), FRAMES),
        **dict.fromkeys(('wav', 'flac', 'opus'), sound),
        'json': {'a': [1, 'x']},
    }
    for type in types:
        record = bags.encoders[type](values[type])
        (path / f'0.{type}').write_bytes(record.read() if hasattr(record, 'read') else bytes(record))


def lerobot(path):
    row = {'state': np.ones((3, 2), np.float32), 'cam': FRAMES, 'task': ['a'] * 3}
    spec = {'state': 'array(float32,2)[]', 'cam': 'mp4', 'task': 'utf8[]'}
    dataset = path.with_name('dataset')
    bags.write([row], dataset, spec, metadata={'fps': 30}, progress=False)
    bags.export(dataset, path, format='lerobot', progress=False)
    shutil.rmtree(dataset)
    (path / 'meta/stats.json').unlink()


def mds_with_hashes(path):
    shutil.copytree(GOLDEN / 'mds-zstd', path)
    index = json.loads((path / 'index.json').read_text())
    for shard in index['shards']:
        about = shard['zip_data']
        about['hashes'] = {'xxh64': xxhash.xxh64((path / about['basename']).read_bytes()).hexdigest()}
    (path / 'index.json').write_text(json.dumps(index))


def tfds(path):
    """The smallest file of the golden dataset, and the description of its features, without spaces."""
    path.mkdir()
    for name in ('arm-val.tfrecord-00000-of-00001', 'label.labels.txt', 'steps-kind.labels.txt'):
        shutil.copy(GOLDEN / 'tfds' / name, path)
    features = json.loads((GOLDEN / 'tfds/features.json').read_text())
    (path / 'features.json').write_text(json.dumps(features, separators=(',', ':')))


def copied(name):
    return lambda path: (shutil.copytree if (GOLDEN / name).is_dir() else shutil.copy)(GOLDEN / name, path)


CHECKED = {
    'a.tar.gz': compressed_tar(lambda data: gzip.compress(data, mtime=0)),
    'a.tar.bz2': compressed_tar(numcodecs.BZ2().encode),
    'a.tar.xz': compressed_tar(numcodecs.LZMA().encode),
    'a.tar.zst': compressed_tar(zstandard.ZstdCompressor(write_checksum=True).compress),
    'a.npz': lambda path: np.savez(path, **ARRAYS),
    'deflated.npz': lambda path: np.savez_compressed(path, **ARRAYS),
    'a.zarr.zip': zarr_zip,
    'a.zip': files_in_zip,
    'a.tfrecord.gz': copied('tfrecord-gz.tfrecord.gz'),
    'a.bagz': bagz,
    'mds-hashes': mds_with_hashes,
    'a.mcap': mcap,
    'a.array_record': array_record,
    'checked-media': lambda path: media(path, 'png', 'opus'),
    'latest.h5': lambda path: hdf5(path, libver='latest', chunks=True, fletcher32=True),
}
"""Formats with a checksum of each byte that has a meaning."""
UNCHECKED = {
    'a.tar': tar,
    'a.tfrecord': copied('tfrecord.tfrecord'),
    'a.h5': hdf5,
    'v2.zarr': lambda path: zarr_folder(path, 2, numcodecs.Blosc('lz4')),
    'v3.zarr': lambda path: zarr_folder(path, 3, zarr.codecs.BloscCodec(cname='lz4')),
    'crc32c.zarr': lambda path: zarr_folder(path, 3, zarr.codecs.Crc32cCodec()),
    'a.parquet': lambda path: pq.write_table(TABLE, path, write_page_checksum=True),
    'a.arrow': lambda path: arrow(path, is_stream=False),
    'stream.arrow': lambda path: arrow(path, is_stream=True),
    'zstd.arrow': lambda path: arrow(path, False, pa.ipc.IpcWriteOptions(compression='zstd')),
    'a.feather': lambda path: feather.write_feather(TABLE, str(path)),
    'mds': copied('mds'),
    'mds-zstd': copied('mds-zstd'),
    'litdata': copied('litdata'),
    'litdata-chunk': copied('litdata-chunk'),
    'litdata-rows': copied('litdata-rows'),
    'tfds': tfds,
    'lerobot': lerobot,
    'media': lambda path: media(path, 'jpeg', 'webp', 'mp4', 'mkv', 'wav', 'flac', 'json'),
}
"""Formats in which some bytes have no checksum: names, shapes, or all values."""
SAMPLES = CHECKED | UNCHECKED


def plain(value):
    if isinstance(value, list | tuple | Iterator):
        return [plain(part) for part in value]
    if isinstance(value, np.ndarray | np.generic):
        return str(value.dtype), value.shape, value.tolist() if value.dtype == object else value.tobytes()
    return value


def values_of(path):
    """Returns the fields, types and values of a source."""
    source = open_source(path)
    rows = []
    for entry in source.entries():
        if isinstance(entry, DamagedEntries):
            raise entry.error
        rows.append({name: plain(value) for name, value in source.load(entry).items()})
    assert len(rows) == source.count
    return source.spec, rows


def outcome(path, truth):
    try:
        with warnings.catch_warnings():
            warnings.simplefilter('ignore')
            found = values_of(path)
    except (bags.BagsError, FileNotFoundError):
        return 'error'
    if path.suffix == '.bagz' and not path.stat().st_size:
        return 'equal'  # An empty file is a bag without records.
    return 'equal' if repr(found) == repr(truth) else 'other'


def made(name, folder):
    """Writes a sample; returns its path, its values, and its files."""
    path = folder / name
    SAMPLES[name](path)
    files = sorted(each for each in path.rglob('*') if each.is_file()) if path.is_dir() else [path]
    return path, values_of(path), files


def replaced(file, data):
    file.unlink()  # It may be mapped.
    file.write_bytes(data)


def damaged(whole, place, *, is_cut):
    return (
        whole[:place]
        if is_cut
        else whole[:place] + bytes([whole[place] ^ 1 << place % 8]) + whole[place + 1 :]
    )


def offsets(whole):
    """Returns the offset of each byte of a file; of those between many zeros, as in padding, one of 64."""
    return [each for each in range(len(whole)) if each % 64 == 0 or any(whole[max(0, each - 64) : each + 64])]


@pytest.mark.parametrize('name', SAMPLES)
def test_some_damaged_bytes(name, tmp_path):
    chance = random.Random(name)
    path, truth, files = made(name, tmp_path)
    for number in range(10):
        file = chance.choice(files)
        whole = file.read_bytes()
        if not whole:
            continue
        replaced(file, damaged(whole, chance.randrange(len(whole)), is_cut=number % 3 == 0))
        assert outcome(path, truth) in ('error', 'equal', 'other' if name in UNCHECKED else ''), (
            file,
            number,
        )
        replaced(file, whole)


@pytest.mark.campaign
@pytest.mark.parametrize('name', SAMPLES)
def test_every_damaged_byte(name, tmp_path):
    path, truth, files = made(name, tmp_path)
    counts = dict.fromkeys(('error', 'equal', 'other'), 0)
    others = []
    for file in files:
        whole = file.read_bytes()
        for place in offsets(whole):
            for is_cut in (False, True):
                replaced(file, damaged(whole, place, is_cut=is_cut))
                found = outcome(path, truth)
                counts[found] += 1
                if found == 'other':
                    others.append((file.name, place, 'cut' if is_cut else 'bit'))
        replaced(file, whole)
    total = sum(counts.values())
    print(f'| {name} | {total} | {counts["error"]} | {counts["equal"]} | {counts["other"]} |')  # noqa: T201
    print('   ', others[:20])  # noqa: T201
    assert name in UNCHECKED or not others


@pytest.mark.campaign
@pytest.mark.parametrize('name', SAMPLES)
def test_random_changes(name, tmp_path):
    """Several changed bytes, parts that are moved, and numbers that are large: errors, and nothing else."""
    chance = random.Random(name)
    path, truth, files = made(name, tmp_path)
    for _ in range(4000):
        file = chance.choice(files)
        whole = file.read_bytes()
        data = bytearray(whole)
        for _ in range(chance.randrange(1, 6)):
            place, size = chance.randrange(len(data) + 1), chance.choice((1, 2, 4, 8, 64))
            data[place : place + size] = chance.choice((
                chance.randbytes(size), b'', bytes(size), b'\xff' * size,
                whole[(start := chance.randrange(len(whole) + 1)) : start + size],
                struct.pack('<Q', 1 << chance.randrange(64))[:size],
            ))  # fmt: skip
        replaced(file, data)
        outcome(path, truth)
        replaced(file, whole)
