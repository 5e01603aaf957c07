"""Writes the datasets of the tests of the viewer, and what they must read as (`expected.json`).

python viewer/tests/make_datasets.py FOLDER
"""

import base64
import hashlib
import io
import json
import os
import shutil
import struct
import subprocess
import sys
import zlib
from fractions import Fraction
from pathlib import Path

import numpy as np

import bags
from tests.streams.cases import write_cases

GOLDEN = Path(__file__).parents[2] / 'tests' / 'golden'
SPEC = {
    'any': 'array',
    'bytes': 'bytes',
    'flag': 'bool',
    'float': 'float(4)',
    'half': 'array(float16,4)',
    'hashes': 'array(uint64,2)',
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


CAPTIONS = [
    'A robot arm puts a cup on a shelf.',
    '<img src=x onerror="window.hacked=1"><script>window.hacked=1</script>',
    'Ein längerer Text über viele Zeilen. ' * 40,
    '',
]


def datapoint(index, rng):
    return {
        'any': rng.integers(0, 9, (2, index % 3), np.int64),
        'bytes': bytes(range(index % 5)),
        'flag': index % 2 == 0,
        'float': float(np.float32(index / 3)),
        'half': np.array([0, -1.5, 65504, 2**-14], np.float16) * (index % 2),
        'hashes': np.array([2**64 - 1 - index, 2**63], np.uint64),
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
        return plain(value.tolist())
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
    order = {'words': 'utf8[]', 'id': 'int(8)', 'label': 'utf8'}
    with bags.DatasetWriter(folder / 'ordered', order, metadata={'fields': {'id': {'unit': 'm'}}}) as writer:
        writer.append({'id': 7, 'label': 'seven', 'words': ['a', 'b']})
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


def write_wider(folder):
    """Shards of which the later one has another optional field."""
    for shard, extra in enumerate([{}, {'more': 'utf8?'}]):
        with bags.DatasetWriter(folder / 'wider' / f'{shard:06}', {'id': 'int(8)', **extra}) as writer:
            for index in range(3):
                writer.append(
                    {'id': 3 * shard + index, **({'more': f'more {index}'} if extra and index else {})}
                )


def write_unclosed(folder):
    code = f"""
import bags, os
SPEC = {{'id': 'int(8)', 'words': 'utf8[]'}}
writer = bags.DatasetWriter({str(folder / 'unclosed')!r}, SPEC, compression=['words'])
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
    # Shards of which one has damaged refs, and another has none.
    shutil.copytree(folder / 'indexed', folder / 'shards_damaged')
    path = folder / 'shards_damaged' / '000001' / 'refs.bag'
    path.write_bytes(path.read_bytes()[:-8] + b'\xff' * 8)
    (folder / 'shards_damaged' / '000003' / 'refs.bag').unlink()


def write_trained(folder):
    """A field with a zstd dictionary, once whole and once with another file in its place."""
    with bags.DatasetWriter(
        folder / 'trained', {'id': 'int(8)', 'text': 'utf8'}, compression={'text': 'dictionary'}
    ) as writer:
        for index in range(300):
            writer.append(
                {'id': index, 'text': f'a short text about the number {index * 7919 % 1000}, {index}'}
            )
    shutil.copytree(folder / 'trained', folder / 'untrained')
    (folder / 'untrained' / 'text.zdict').write_bytes(b'no dictionary')
    shutil.copy(GOLDEN / 'sackli-dictionary.bagz', folder / 'sackli.bagz')
    shutil.copy(GOLDEN / 'dictionary.zdict', folder / 'sackli.zdict')


def numbered(frames, height=192, width=256):
    """Frames that show their number in 16 blocks of bits, over noise, which makes the video large."""
    rng = np.random.default_rng(1)
    noise = rng.integers(60, 190, (8, height, width, 3), np.uint8)
    for number in range(frames):
        frame = noise[number % 8].copy()
        for bit in range(16):
            frame[:24, bit * 16 : bit * 16 + 16] = 255 if number >> bit & 1 else 0
        yield frame


def write_mp4(path, frames, codec='libx264', fps=30):
    import av

    with av.open(path, 'w', format='mp4', options={'movflags': 'faststart'}) as container:
        stream = container.add_stream(
            codec, rate=fps, options={'g': '15', 'bf': '0'} if codec == 'libx264' else {}
        )
        stream.height, stream.width = frames[0].shape[:2]
        stream.pix_fmt = 'yuv420p'
        for frame in frames:
            container.mux(stream.encode(av.VideoFrame.from_ndarray(frame, 'rgb24')))
        container.mux(stream.encode())
    return path


def write_media(folder):
    spec = {
        'action': 'array(float32,2)[]',
        'camera': 'jpeg(90)[]',
        'caption': 'utf8',
        'clips': 'mp4[]',
        'depth': 'png',
        'gyro': 'float(4)[]',
        'gyro_time': 'float(8)[]',
        'heat': 'array(float32,24,32)',
        'info': 'json',
        'label': 'int(1)',
        'loop': 'webm(10)[]?',
        'old': 'mp4?',
        'sound': 'wav',
        'tokens': 'array(uint16,?)',
        'video': 'mp4',
        'words': 'utf8[]',
        'zipped': 'mp4?',
    }
    metadata = {'fields': {
        'action': {'rate': 10, 'names': ['shoulder', 'elbow'], 'unit': 'rad'}, 'camera': {'rate': 5},
        'gyro': {'times': 'gyro_time'}, 'label': {'classes': ['cat', 'dog', 'owl']},
    }}  # fmt: skip
    frames = list(numbered(600))
    path = write_mp4(str(folder / 'video.mp4'), frames)
    parts = [write_mp4(str(folder / f'clip{k}.mp4'), frames[k * 45 : k * 45 + 45]) for k in range(4)]
    old = write_mp4(str(folder / 'old.mp4'), frames[:20], 'mpeg4')
    rng = np.random.default_rng(2)
    times = np.arange(200) / 10
    x, y = np.meshgrid(np.linspace(-2, 2, 160), np.linspace(-2, 2, 120))
    time = np.arange(16000 * 4) / 16000
    sweep = (0.4 * np.sin(2 * np.pi * (200 * time + 300 * time**2)) * 32767).astype(np.int16)
    with bags.DatasetWriter(folder / 'media', spec, metadata=metadata, compression=['zipped']) as writer:
        for index in range(4):
            writer.append(
                {
                    'action': np.stack([np.sin(times + index), np.cos(2 * times)], 1).astype(np.float32),
                    'camera': [np.full((90, 120, 3), (k * 2, 90, 255 - k * 2), np.uint8) for k in range(100)],
                    'caption': CAPTIONS[index],
                    'clips': parts,
                    'depth': (500 + 4000 * np.exp(-(x**2) - y**2)).astype(np.uint16) * (x > -1.8),
                    'gyro': np.sin(np.arange(50)),
                    'gyro_time': np.sort(rng.random(50) * 20),
                    'heat': rng.random((24, 32), np.float32),
                    'info': {
                        'robot': {'name': 'arm 7', 'joints': [1, 2, 3]},
                        'notes': ['<b>?</b>'],
                        'ok': True,
                    },
                    'label': index % 3,
                    'loop': [frames[:10], frames[10:20]] if index == 3 else None,
                    'old': old if index == 1 else None,
                    'sound': (sweep[:, None], 16000),
                    'tokens': rng.integers(0, 50000, 300).astype(np.uint16),
                    'video': path,
                    'words': ['the', 'cup', 'is', 'on', 'the', 'shelf', 'now'],
                    'zipped': parts[0] if index == 2 else None,
                }
            )


def write_formats(folder):
    """One datapoint with each type of the library, and some dtypes."""
    import av
    from PIL import Image

    rng = np.random.default_rng(6)
    image = rng.integers(0, 256, (24, 32, 3), np.uint8)
    frames = list(numbered(10, 64, 256))
    tone = (np.sin(np.arange(24_000) / 9)[:, None] * 9000).astype(np.int16)
    gif, mp3 = io.BytesIO(), io.BytesIO()
    Image.fromarray(image).save(gif, 'gif')
    with av.open(mp3, 'w', format='mp3') as container:
        stream = container.add_stream('libmp3lame', rate=48_000, layout='mono')
        sound = av.AudioFrame.from_ndarray(tone.T, 's16', 'mono')
        sound.sample_rate = 48_000
        container.mux([*stream.encode(sound), *stream.encode()])
    datapoint = {
        **{f'{format}_image': (format, image) for format in ('avif', 'image', 'jpeg', 'jpg', 'png', 'webp')},
        'gif_image': ('image', gif.getvalue()),
        'gray_image': ('png', image[..., 0]),
        'deep_image': ('png', image[..., 0].astype(np.uint16) * 200),
        **{f'{format}_video': (f'{format}(10)', frames) for format in ('mkv', 'mp4', 'webm')},
        'any_video': ('video', write_mp4(str(folder / 'any.mp4'), frames)),
        **{f'{format}_sound': (format, (tone, 48_000)) for format in ('flac', 'opus', 'wav')},
        'any_sound': ('audio', mp3.getvalue()),
        'sounds': ('flac[]', [(tone[:12_000], 48_000), (tone, 48_000)]),
        'said': ('flac[]', [(tone[:12_000], 48_000), (tone, 48_000)]),
        'shots': ('mp4(10)[]', [frames, frames[:5]]),
        'rates': ('flac[]', [(tone[:12_000], 48_000), (tone[:8000], 16_000)]),
        'bool': ('bool', True),
        'int': ('int(1)', -3),
        'uint': ('uint(2)', 65_000),
        'float': ('float', 0.125),
        'i64': ('i64', -(2**40)),
        'u64': ('u64', 2**40),
        'utf8': ('utf8', 'a text'),
        'bytes': ('bytes', b'\0\1'),
        'json': ('json', {'a': [1, None]}),
        'msgpack': ('msgpack', {'b': 2}),
        'tree': ('tree', {'c': np.arange(3)}),
        'array': ('array', np.eye(2)),
        'array_fixed': ('array(float32,2,3)', np.ones((2, 3), np.float32)),
        'array_free': ('array(int16,?,2)', np.ones((4, 2), np.int16)),
        'array_bool': ('array(bool,3)', [True, False, True]),
        'array_complex': ('array(complex64,2)', [3 + 4j, 0]),
        'array_text': ('array(U3,2)', ['é', 'abc']),
        'times': (
            'array(datetime64[us],2)',
            np.array(['2026-01-02T03:04:05.678901', 'NaT'], 'datetime64[us]'),
        ),
        'nanos': ('array(datetime64[ns],2)', np.array([-1, 'NaT'], 'datetime64[ns]')),
        'days': ('array(datetime64[D],2)', np.array(['1969-12-31', '2026-01-02'], 'datetime64[D]')),
        'spaces': ('utf8', '  '),
        'observation.images.number_with_a_long_name': ('int', 3),
        'spans': ('array(timedelta64[s],1)', np.array([90], 'timedelta64[s]')),
        'small_4': ('array(uint8,4)', [0x38, 0xBC, 0x7F, 0x01]),
        'small_5': ('array(uint8,4)', [0x3C, 0xC2, 0x7C, 0x01]),
        'brain': ('array(uint16,2)', [0x3F80, 0xC040]),
        'missing': ('jpeg?', None),
        'none': ('mp4[]?', None),
        'empty': ('png[]', []),
    }
    spec = {name: type for name, (type, _) in datapoint.items()}
    items = {'elements': 'items'}
    metadata = {'fields': {'said': items, 'shots': items}}
    with bags.DatasetWriter(folder / 'formats', spec, metadata=metadata) as writer:
        writer.append({name: value for name, (_, value) in datapoint.items()})
    # Types of the package ml_dtypes, which is not needed for their bytes.
    spec |= {
        'small_4': 'array(float8_e4m3fn,4)',
        'small_5': 'array(float8_e5m2,4)',
        'brain': 'array(bfloat16,2)',
    }
    (folder / 'formats' / 'spec.json').write_text(json.dumps(spec))


def write_long(folder):
    """Texts of 72 MB, more than a filter reads."""
    with bags.DatasetWriter(folder / 'long', {'id': 'int(8)', 'text': 'utf8'}) as writer:
        for index in range(9):
            writer.append({'id': index, 'text': f'{index:08}' * 1_000_000})


def write_depth(folder):
    """PNGs of 16 bits with each of the filters."""
    rng = np.random.default_rng(5)
    images = []
    for kind in range(5):
        values = np.cumsum(rng.integers(0, 300, (17, 31)), 1).astype('>u2')
        rows = values.view(np.uint8).reshape(17, 62).astype(int)
        left, up = np.pad(rows, ((0, 0), (2, 0)))[:, :-2], np.pad(rows, ((1, 0), (0, 0)))[:-1]
        corner = np.pad(up, ((0, 0), (2, 0)))[:, :-2]
        guess = left + up - corner
        far = [abs(guess - side) for side in (left, up, corner)]
        paeth = np.where(
            (far[0] <= far[1]) & (far[0] <= far[2]), left, np.where(far[1] <= far[2], up, corner)
        )
        filtered = (rows - [0, left, up, (left + up) // 2, paeth][kind]) % 256
        data = np.pad(filtered.astype(np.uint8), ((0, 0), (1, 0)), constant_values=kind).tobytes()

        def chunk(name, data):
            return struct.pack('>I', len(data)) + name + data + struct.pack('>I', zlib.crc32(name + data))

        header = struct.pack('>IIBBBBB', 31, 17, 16, 0, 0, 0, 0)
        parts = chunk(b'IHDR', header) + chunk(b'IDAT', zlib.compress(data)) + chunk(b'IEND', b'')
        png = b'\x89PNG\r\n\x1a\n' + parts
        assert (bags.decoders['png'](png).reshape(17, 31) == values).all()
        images.append({'png': base64.b64encode(png).decode(), 'values': values.reshape(-1).tolist()})
    (folder / 'depth.json').write_text(json.dumps(images))


def write_photos(folder):
    rng = np.random.default_rng(3)
    spec = {'id': 'int(8)', 'image': 'png', 'label': 'int(1)', 'text': 'utf8'}
    metadata = {'fields': {'label': {'classes': ['cat', 'dog', 'owl', 'fox']}}}
    pixels = []
    with bags.ShardedDatasetWriter(
        folder / 'photos', spec, shard_length=128, metadata=metadata, compression=['text']
    ) as writer:
        for index in range(500):
            image = np.kron(rng.integers(0, 256, (12, 16, 3), np.uint8), np.ones((16, 16, 1), np.uint8))
            image += rng.integers(0, 6, image.shape, np.uint8)
            pixels.append(hashlib.sha256(image).hexdigest())
            writer.append(
                {
                    'id': index,
                    'image': image,
                    'label': index % 4,
                    'text': f'photo {index} of ' + 'a fox' * (index % 2) + 'an owl' * (index % 3),
                }
            )
    bags.consolidate(folder / 'photos')
    bags.create_index(folder / 'photos', 'text')
    bags.create_index(folder / 'photos', 'id')
    return pixels


def write_checked(folder):
    """Episodes with a frozen camera, a gap, and equal photos; and the scores of a check."""
    rng = np.random.default_rng(5)
    spec = {
        'id': 'int(8)', 'front': 'mp4(30)', 'state': 'array(float32,2)[]', 'time': 'float(8)[]',
        'photo': 'png',
    }  # fmt: skip
    metadata = {'fields': {'state': {'times': 'time'}, 'front': {'rate': 30}}}
    noise = rng.integers(40, 220, (120, 64, 96, 3), np.uint8)
    photos = [
        np.kron(rng.integers(0, 256, (9, 12, 3), np.uint8), np.ones((12, 12, 1), np.uint8)) for _ in range(10)
    ]
    photos[7] = photos[2]
    photos[8] = photos[4] ^ 1
    with bags.DatasetWriter(folder / 'checked', spec, metadata=metadata, checksum=True) as writer:
        for index in range(10):
            frames, times = np.roll(noise, 7 * index, 0).copy(), np.arange(120) / 30
            if index == 3:
                frames[45:105] = frames[45]
            if index == 6:
                times[80:] += 1.5
            phase = np.linspace(0, 3, 120)[:, None] + rng.uniform(0, 6, 2)
            state = (np.sin(phase) + rng.normal(0, 0.002, phase.shape)).astype(np.float32)
            writer.append(
                {'id': index, 'front': frames, 'state': state, 'time': times, 'photo': photos[index]}
            )
    bags.check(folder / 'checked', decode=True, save=folder / 'checked_scores', progress=False)


def write_linked(folder):
    """Views that are saved as links, and links to files in the folder of the dataset and beside it."""
    for name, fields in [('probed', tuple(SPEC)), ('trained', ('text',)), ('media', True)]:
        bags.open(folder / name).save(folder / f'{name}_view', link=fields)
    with bags.open(folder / 'photos', raw=True) as photos:
        images = [bytes(photos[index]['image']) for index in (3, 4)]
    path = folder / 'linked'
    spec = {'id': 'int(8)', 'image': 'png', 'outside': 'mp4?', 'video': 'mp4'}
    with bags.ShardedDatasetWriter(
        path, spec, shard_length=2, linked_fields=['image', 'outside', 'video']
    ) as writer:
        (path / 'raw').mkdir(parents=True)
        for name, data in [('a photo #3 %2e?.png', images[0]), ('changed.png', images[1])]:
            (path / 'raw' / name).write_bytes(data)
        shutil.copy(folder / 'video.mp4', path / 'raw')
        video, outside = bags.Link(path / 'raw' / 'video.mp4'), bags.Link(folder / 'video.mp4')
        for index, image in enumerate(['a photo #3 %2e?.png', None, 'changed.png']):
            image = images[1] if image is None else bags.Link(path / 'raw' / image)
            outside_of = outside if index == 0 else None
            writer.append({'id': index, 'image': image, 'outside': outside_of, 'video': video})
    (path / 'raw' / 'changed.png').write_bytes(images[1][:-1] + b'?')
    shutil.copytree(path / '000000', folder / 'linked_damaged')
    links = folder / 'linked_damaged' / 'image.links'
    links.write_bytes(bytes([links.read_bytes()[0] ^ 1]) + links.read_bytes()[1:])


def write_segments(folder):
    """Parts of a video that datapoints share, and of a recording."""
    path = folder / 'segments'
    spec = {'id': 'int(8)', 'video': 'video', 'clips': 'video[]', 'sound': 'audio?'}
    with bags.DatasetWriter(path, spec, linked_fields=['video', 'clips', 'sound']) as writer:
        shutil.copy(folder / 'video.mp4', path)
        (path / 'sound.wav').write_bytes(bags.encoders['wav']((np.zeros((8000, 1), np.int16), 8000)))
        for index, frames in enumerate([(100, 130), (200, 260), None, (590, 601)]):
            clips = [bags.Link(path / 'video.mp4', frames=each) for each in [(300, 330), (30, 60)]]
            sound = bags.Link(path / 'sound.wav', frames=(100, 200)) if index == 0 else None
            video = bags.Link(path / 'video.mp4', frames=frames)
            writer.append({'id': index, 'video': video, 'clips': clips, 'sound': sound})


def write_million(folder, count=1_000_000):
    rng = np.random.default_rng(4)
    arrays = {
        'id': np.arange(count),
        'score': rng.random(count, np.float32),
        'state': np.cumsum(rng.normal(size=(count, 16)).astype(np.float32), 1),
    }
    bags.from_numpy(arrays, folder / 'million', progress=False)


def write_strange(folder):
    """HTML wherever a dataset has text; such names of fields only other writers give."""
    spec = {'a': 'utf8', 'b': 'int(1)', 'c': 'array(float32,2)[]', 'd': 'json'}
    name, script = '<img src=x onerror=window.hacked=1>', '</span><script>window.hacked=1</script>'
    metadata = {
        'title': script,
        'fields': {'b': {'classes': [script, name]}, 'c': {'rate': 5, 'unit': name, 'names': [name, script]}},
    }
    with bags.DatasetWriter(folder / 'strange', spec, metadata=metadata) as writer:
        for index in range(3):
            state = np.random.default_rng(index).random((9, 2), np.float32)
            writer.append({'a': script, 'b': index % 2, 'c': state, 'd': {name: [script]}})
    os.rename(folder / 'strange' / 'a.bag', folder / 'strange' / f'{name}.bag')
    del spec['a']
    (folder / 'strange' / 'spec.json').write_text(json.dumps({name: 'utf8', **spec}))


SOUNDS = {
    'aac': ('adts', 'aac', 16_000),
    'au': ('au', 'pcm_s16be', 16_000),
    'flac': ('flac', 'flac', 22_050),
    'm4a': ('mp4', 'aac', 32_000),
    'mka': ('matroska', 'flac', 11_025),
    'mp3': ('mp3', 'libmp3lame', 16_000),
    'mp3_old': ('mp3', 'libmp3lame', 8000),
    'ogg_flac': ('ogg', 'flac', 16_000),
    'ogg_opus': ('ogg', 'libopus', 48_000),
    'wav': ('wav', 'pcm_s16le', 16_000),
}


def write_sounds(folder):
    """A tone of half a second in each format, the rate of each, and the samples that Python decodes."""
    import av

    files = {}
    for name, (container, codec, rate) in SOUNDS.items():
        file = io.BytesIO()
        with av.open(file, 'w', format=container) as output:
            stream = output.add_stream(codec, rate=rate, layout='mono')
            tone = (np.sin(np.arange(rate // 2) * 2 * np.pi * 440 / rate) * 9000).astype(np.int16)
            frame = av.AudioFrame.from_ndarray(tone[None], 's16', 'mono')
            frame.sample_rate, frame.pts = rate, 0
            output.mux([*stream.encode(frame), *stream.encode()])
        files[name] = file.getvalue()
    junk = b'JUNK' + struct.pack('<I', 7) + bytes(8)
    files['wav_junk'] = files['wav'][:12] + junk + files['wav'][12:]
    shown = {name: data for name, data in files.items() if name != 'au'}
    with bags.DatasetWriter(folder / 'sounds', dict.fromkeys(shown, 'audio')) as writer:
        writer.append(shown)
    piped = bytearray(files['flac'])
    piped[21:26] = bytes([piped[21] & 0xF0, 0, 0, 0, 0])  # Without a length, as in a FLAC that was piped.
    files['flac_piped'] = bytes(piped)
    described = [
        {
            'name': name,
            'data': base64.b64encode(data).decode(),
            'rate': SOUNDS[name.removesuffix('_junk').removesuffix('_piped')][2],
            'samples': len(bags.Audio(data)),
        }
        for name, data in files.items()
    ]
    (folder / 'sounds.json').write_text(json.dumps(described))


def write_headers(folder):
    """Videos whose frames are stored in another order than they are shown, or last for different times."""
    import av

    frames = list(numbered(24, 64, 256))
    found = []
    for name, format, codec, options, steps in [
        ('b_frames', 'mp4', 'libx264', {'bf': '3'}, [40] * 24),
        ('varying', 'mp4', 'libx264', {'bf': '3'}, [40, 80, 20] * 8),
        ('late', 'mp4', 'libx264', {'bf': '0'}, [40] * 24),
        ('varying_mkv', 'matroska', 'libx264', {'bf': '2'}, [40, 80, 20] * 8),
        ('webm', 'webm', 'libvpx-vp9', {}, [50] * 24),
    ]:
        file, time = io.BytesIO(), 500 if name == 'late' else 0
        with av.open(file, 'w', format=format) as container:
            stream = container.add_stream(codec, rate=25, options=options)
            stream.height, stream.width, stream.pix_fmt = 64, 256, 'yuv420p'
            stream.codec_context.time_base = Fraction(1, 1000)
            for pixels, step in zip(frames, steps, strict=True):
                frame = av.VideoFrame.from_ndarray(pixels, 'rgb24')
                frame.pts, frame.duration, frame.time_base = time, step, Fraction(1, 1000)
                container.mux(stream.encode(frame))
                time += step
            container.mux(stream.encode())
        data = file.getvalue()
        video = bags.Video(data)
        times = [*video.times.tolist(), float(video.times[0]) + video.duration]
        found.append({'name': name, 'data': base64.b64encode(data).decode(), 'times': times})
    (folder / 'headers.json').write_text(json.dumps(found))


def write_durations(folder):
    """Sounds of 1.0 and 1.5 seconds in turns, of noise, which is large."""
    rng = np.random.default_rng(7)
    spec = {'id': 'int(8)', 'flac': 'flac', 'wav': 'wav', 'ogg': 'opus(24)'}
    sounds = []
    for seconds in (1.0, 1.5):
        noise = rng.integers(-9000, 9000, (int(16_000 * seconds), 1)).astype(np.int16)
        formats = {'flac': ('flac',), 'wav': ('wav',), 'ogg': ('opus', '24')}
        sounds.append(
            {
                name: bytes(bags.encoders[format]((noise, 16_000), *args))
                for name, (format, *args) in formats.items()
            }
        )
    with bags.DatasetWriter(folder / 'durations', spec) as writer:
        for index in range(200):
            writer.append({'id': index, **sounds[index % 2]})


def write_recording(folder):
    """Two cameras, joints at 200 Hz, sound in blocks and words, as they are recorded.

    Frames show their time in 1/30 s, and samples are their time over 32 s. The wrist camera begins late and
    lost ten frames.
    """
    spec = {
        'front': 'mp4(30)[]', 'wrist': 'mp4(30)[]', 'wrist_time': 'float(8)[]', 'mic': 'flac[]',
        'joints': 'array(float32,3)[]', 'words': 'utf8[]', 'word_time': 'float(8)[]',
        'grip': 'array(float32,?,2)',
    }  # fmt: skip
    fields = {
        'wrist': {'times': 'wrist_time'}, 'mic': {'rate': 16_000}, 'joints': {'rate': 200},
        'grip': {'rate': 50}, 'words': {'times': 'word_time'}, 'word_time': {'unit': 'ms'},
    }  # fmt: skip
    frames = list(numbered(480))
    with bags.ShardedDatasetWriter(folder / 'recording', spec, metadata={'fields': fields}) as recorder:
        for seconds in (16, 6):
            ramp = (np.arange(16_000 * seconds) / (16_000 * 32) * 32767).astype(np.int16)
            grip = np.stack([np.arange(50 * seconds)] * 2, 1).astype(np.float32)
            words = [f'word{k}' for k in range(seconds)]
            with recorder.begin({'grip': grip}, clip_seconds=2) as episode:
                for second, word in enumerate(words):
                    episode.append({'words': word, 'word_time': 1000.0 * second + 500})
                for number in range(30 * seconds):
                    episode.append({'front': frames[number]})
                    if number >= 8 and not 100 <= number < 110:
                        episode.append({'wrist': frames[number], 'wrist_time': number / 30})
                for start in range(0, len(ramp), 533):
                    episode.append({'mic': ramp[start : start + 533]})
                for step in range(200 * seconds):
                    episode.append({'joints': np.sin(np.arange(1, 4) * step / 200).astype(np.float32)})


def write_gaps(folder):
    """Curves whose middle is not finite: a line over it was never measured."""
    spec = {'inf': 'float(4)[]', 'missing': 'float(4)[]'}
    values = np.where(np.arange(300) % 2, 1.0, -1.0).astype(np.float32)
    gap = values.copy()
    gap[100:200] = np.nan
    gap[150] = 0.5
    infinite = values.copy()
    infinite[[10, 20]] = np.inf, -np.inf
    with bags.DatasetWriter(folder / 'gaps', spec) as writer:
        writer.append({'inf': infinite, 'missing': gap})


def write_episode(folder):
    """An episode of a robot with two cameras, and pictures without any time."""
    joints = [f'{side}_{joint}' for side in ('left', 'right') for joint in 'abcdefg']
    spec = {
        'task': 'utf8', 'success': 'bool', 'top_camera': 'mp4(10)', 'wrist_camera': 'mp4(10)',
        'depth': 'png[]', 'state': 'array(float32,14)[]', 'action': 'array(float32,14)[]',
        'force': 'float(4)[]', 'episode': 'int',
    }  # fmt: skip
    rates = {'depth': 5, 'state': 50, 'action': 50, 'force': 50}
    metadata = {'fields': {name: {'rate': rate, 'names': joints} for name, rate in rates.items()}}
    time = np.arange(150) / 50
    state = np.sin(time[:, None] * np.arange(1, 15)).astype(np.float32)
    frames = list(numbered(30, 240, 320))
    depth = [np.full((60, 80), 500 + 10 * k, np.uint16) for k in range(15)]
    with bags.DatasetWriter(folder / 'episode', spec, metadata=metadata) as writer:
        for index in range(2):
            writer.append(
                {
                    'task': 'put the red cup on the saucer',
                    'success': True,
                    'top_camera': frames,
                    'wrist_camera': frames,
                    'depth': depth,
                    'state': state,
                    'action': state,
                    'force': time,
                    'episode': index,
                }
            )
    # Boxes and their labels beside a field that has a time.
    spec = {
        'photo': 'png', 'boxes': 'array(float32,4)[]', 'box_labels': 'utf8[]', 'words': 'utf8[]',
        'force': 'float(4)[]', 'taken': 'array(datetime64[s])',
    }  # fmt: skip
    over = {'over': 'photo', 'format': 'xywh', 'labels': 'box_labels'}
    with bags.DatasetWriter(
        folder / 'labelled', spec, metadata={'fields': {'boxes': over, 'force': {'rate': 50}}}
    ) as writer:
        writer.append(
            {
                'photo': np.full((60, 80, 3), 200, np.uint8),
                'boxes': np.array([[10, 10, 20, 30], [50, 5, 20, 30]], np.float32),
                'box_labels': ['cup', 'hand'],
                'words': ['a', 'cup'],
                'force': time,
                'taken': np.datetime64('2026-01-02T03:04:05'),
            }
        )
    bags.statistics(folder / 'episode', fields=['state', 'force', 'episode', 'top_camera'], keep=True)
    for count, name in ((3, 'grown'), (2, 'more')):
        with bags.ShardedDatasetWriter(folder / name, {'state': 'array(float32,2)[]'}) as writer:
            for _ in range(count):
                writer.append({'state': np.ones((4, 2), np.float32)})
    bags.statistics(folder / 'grown', keep=True)
    bags.append(folder / 'more', folder / 'grown', progress=False)
    spec = {
        'id': 'int',
        'keywords': 'utf8[]',
        'views': 'png[]',
        'photo': 'png',
        'label': 'int(1)',
        'caption': 'utf8',
    }
    metadata = {'fields': {'label': {'classes': ['cat', 'dog']}}}
    with bags.DatasetWriter(folder / 'untimed', spec, metadata=metadata) as writer:
        for index in range(60):
            image = np.full((24, 32, 3), 4 * index, np.uint8)
            row = {'id': index, 'keywords': ['a', 'cat'], 'views': [image] * 3, 'photo': image}
            writer.append({**row, 'label': index % 2, 'caption': f'photo {index}'})


def write_drawn(folder):
    """What is drawn over an image, arrays that are pictures, and metadata that does not fit."""
    image = np.full((60, 80, 3), 200, np.uint8)
    mask = np.zeros((60, 80), np.uint8)
    mask[10:30, 20:50] = 2
    over = {'over': 'photo'}
    fields = {
        'boxes': {**over, 'format': 'xywh', 'labels': 'box_labels', 'names': ['x', 'y', 'w', 'h']},
        'points': {**over, 'format': 'xyv', 'edges': [[0, 1], [1, 9]], 'normalized': True},
        'mask': {**over, 'classes': ['none', 'cat', 'dog']},
        'small_mask': over,
        'odd': {**over, 'format': 'spiral'},
        'lost': {'over': 'no_such_field'},
        'over_text': {'over': 'title'},
        'few_labels': {**over, 'labels': 'title'},
        'no_labels': {**over, 'labels': 'gone'},
        'many': {**over, 'format': 'xyxy'},
        'semantic': {'classes': ['void', 'road']},
        'depth': {'unit': 'm'},
        'scan': {'names': ['x', 'y', 'z']},
        'label': {'classes': [f'class {k}' for k in range(70_000)]},
    }
    boxes = np.array([[10, 10, 20, 30], [70, 50, 20, 30]], np.float32)
    y, x = np.mgrid[:60, :80]
    datapoint = {
        'title': 'a cat',
        'photo': image,
        'boxes': boxes,
        'box_labels': ['cat', 'dog'],
        'points': np.array([[0.25, 0.5, 2], [0.5, 0.5, 1], [0.75, 0.5, 0]], np.float32),
        'mask': mask,
        'small_mask': mask[::2, ::4] > 0,
        'odd': boxes,
        'lost': boxes,
        'over_text': boxes,
        'few_labels': boxes,
        'no_labels': boxes,
        'many': np.zeros((250_000, 4), np.float32),
        'semantic': (x // 40).astype(np.uint8),
        'labels': (y * 80 + x).astype(np.int32) * 14,
        'depth': (x / 10).astype(np.float32),
        'colors': image,
        'normal': np.stack([x / 40 - 1, y / 60, 0 * x], -1).astype(np.float32),
        'voxels': np.zeros((9, 10, 11), np.uint8),
        'scan': np.stack([x, y, x * y], -1)[::6, ::8].reshape(-1, 3),
        'colored': np.random.default_rng(0).random((300, 6), np.float32),
        'waves': np.array([1 - 2j, 0.1 + 3j]),
        'third': 1 / 3,
        'short': 0.1,
        'label': 69_999,
        'gray': np.arange(4800).astype(np.uint8).reshape(60, 80),
    }
    datapoint['voxels'][:, 3, 4] = np.arange(9)
    datapoint['depth'][:2] = np.nan
    datapoint['normal'][0, :5, 1] = np.inf
    spec = {
        'title': 'utf8',
        'photo': 'png',
        'boxes': 'array(float32,4)[]',
        'box_labels': 'utf8[]',
        'points': 'array(float32,?,3)',
        'mask': 'png',
        'small_mask': 'array(bool,30,20)',
        'odd': 'array(float32,4)[]',
        'lost': 'array(float32,4)[]',
        'over_text': 'array(float32,4)[]',
        'few_labels': 'array(float32,4)[]',
        'no_labels': 'array(float32,4)[]',
        'many': 'array(float32,4)[]',
        'semantic': 'array(uint8,60,80)',
        'labels': 'array(int32,60,80)',
        'depth': 'array(float32,60,80)',
        'colors': 'array(uint8,60,80,3)',
        'normal': 'array(float32,60,80,3)',
        'voxels': 'array(uint8,9,10,11)',
        'scan': 'array(float32,?,3)',
        'colored': 'array(float32,?,6)',
        'waves': 'array(complex64,?)',
        'third': 'float',
        'short': 'float(4)',
        'label': 'int',
        'gray': 'png',
    }
    fields['labels'] = fields['label']
    datapoint['scan'] = datapoint['scan'].astype(np.float32)
    datapoint['waves'] = datapoint['waves'].astype(np.complex64)
    with bags.DatasetWriter(folder / 'drawn', spec, metadata={'fields': fields}) as writer:
        writer.append(datapoint)


def write_unfit(folder, count=1_000_000):
    """Values that are too long to show whole, and metadata that does not fit the dataset."""
    classes = [f'class {k}' for k in range(70_000)]
    fields = {
        'mask': {'over': 'photo', 'classes': classes},
        'boxes': {'over': 'photo', 'labels': 'gone'},
        'curve': {'times': 'no_times', 'unit': 'm'},
        'joints': {'rate': 'fast', 'names': ['a', 'b']},
        'label': {'classes': classes},
        'title': {'over': 7, 'classes': 'cat'},
        'ghost': {'rate': 3},
        'photo': [1],
        'words': None,
    }
    rng = np.random.default_rng(0)
    datapoint = {
        'mask': np.arange(4800, dtype=np.uint16).reshape(60, 80) * 14,
        'photo': np.full((60, 80, 3), 200, np.uint8),
        'title': 'x' * 200_000,
        'label': 69_999,
        'boxes': rng.random((count, 4), np.float32) * 300 - 100,
        'table': rng.random((count, 3), np.float32),
        'wide': rng.random((300_000, 5), np.float32),
        'items': np.arange(count, dtype=np.int32),
        'words': ['w'] * 100_000,
        'curve': np.arange(1600.0),
        'joints': rng.random((20, 3), np.float32),
    }
    datapoint['curve'][5:8] = np.nan
    spec = {
        'mask': 'png',
        'photo': 'png',
        'title': 'utf8',
        'label': 'int(4)',
        'boxes': 'array(float32,?,4)',
        'table': 'array(float32,?,3)',
        'wide': 'array(float32,?,5)',
        'items': 'int(4)[]',
        'words': 'utf8[]',
        'curve': 'float(4)[]',
        'joints': 'array(float32,3)[]',
    }
    with bags.DatasetWriter(folder / 'unfit', spec) as writer:
        writer.append(datapoint)
    path = folder / 'unfit' / 'metadata.json'
    metadata = json.loads(path.read_text())
    for name, facts in fields.items():
        known = metadata['fields'].get(name, {})
        metadata['fields'][name] = known | facts if isinstance(facts, dict) else facts
    path.write_text(json.dumps(metadata))


def write_notebook(folder):
    """What notebooks show of a dataset, of a view and of a damaged dataset."""
    with bags.open(folder / 'media') as media, bags.open(folder / 'damaged') as damaged:
        shown = [media._repr_html_(), bags.view(media[1:3])._repr_html_(), damaged._repr_html_()]
    (folder / 'notebook.html').write_text('<meta charset=utf-8>' + '<hr>'.join(shown))


def with_arrays(value):
    """Returns a tree in which lists are arrays."""
    if isinstance(value, dict):
        return {key: with_arrays(item) for key, item in value.items()}
    if not isinstance(value, list):
        return value
    return np.array(value, 'M8[us]' if value and isinstance(value[0], str) else None)


def write_conditions(folder):
    """The datapoints of the cases of conditions."""
    table = json.loads((GOLDEN.parent / 'conditions' / 'conditions.json').read_text())
    photo = np.zeros((2, 2, 3), np.uint8)
    path = folder / 'conditions'
    with bags.ShardedDatasetWriter(
        path, table['spec'], shard_length=2, metadata={'fields': table['fields']}
    ) as writer:
        for row in table['rows']:
            for name in ('photo', 'frames', 'raw'):
                if row[name] is not None:
                    row[name] = {
                        'photo': photo,
                        'frames': [photo] * len(row['frames'] or ()),
                        'raw': bytes(row['raw'] or ()),
                    }[name]
            row['state'] = np.array(row['state'], np.float32)
            row['stamps'] = np.array(row['stamps'], np.int64)
            row['plan'] = with_arrays(row['plan'])
            if row['sound'] is not None:
                row['sound'] = np.zeros((row['sound'], 1), np.int16), 8000
            writer.append(row)


def main():
    folder = Path(sys.argv[1])
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    rows = write_values(folder)
    write_unclosed(folder)
    write_wider(folder)
    write_damaged(folder)
    write_trained(folder)
    write_media(folder)
    write_million(folder)
    write_strange(folder)
    write_conditions(folder)
    write_cases(folder / 'streams')
    write_formats(folder)
    write_long(folder)
    write_sounds(folder)
    write_headers(folder)
    write_durations(folder)
    write_recording(folder)
    write_gaps(folder)
    write_episode(folder)
    write_drawn(folder)
    write_unfit(folder)
    write_notebook(folder)
    write_depth(folder)
    (folder / 'pixels.json').write_text(json.dumps(write_photos(folder)))
    write_checked(folder)
    write_linked(folder)
    write_segments(folder)
    (folder / 'expected.json').write_text(json.dumps(rows))


if __name__ == '__main__':
    main()
    os._exit(0)
