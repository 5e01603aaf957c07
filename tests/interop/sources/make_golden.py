"""Writes the samples in `golden`, each with the library of its format.

    python tests/interop/sources/make_golden.py hdf5 zarr npz

Without arguments it writes all of them.
"""

import datetime as dt
import decimal
import hashlib
import io
import json
import shutil
import sys
import tempfile
import wave
from pathlib import Path

import numpy as np
from PIL import Image

GOLDEN = Path(__file__).parent / 'golden'


def jpeg(seed, width=8):
    file = io.BytesIO()
    pixels = np.random.default_rng(seed).integers(0, 255, (8, width, 3)).astype(np.uint8)
    Image.fromarray(pixels).save(file, 'JPEG')
    return file.getvalue()


def padded_rows(items):
    rows = np.zeros((len(items), max(map(len, items)) + 5), np.uint8)
    for row, item in zip(rows, items, strict=True):
        row[: len(item)] = np.frombuffer(item, np.uint8)
    return rows


def make_hdf5():
    """ALOHA has one file an episode, with images as JPEG; robomimic has one group an episode."""
    import h5py

    rng = np.random.default_rng(0)
    (GOLDEN / 'aloha').mkdir()
    for episode, count in ((0, 3), (2, 4), (10, 3)):
        with h5py.File(GOLDEN / f'aloha/episode_{episode}.hdf5', 'w') as file:
            file.attrs['sim'] = True
            file['action'] = rng.normal(size=(count, 2)).astype('f4')
            file['observations/qpos'] = rng.normal(size=(count, 3)).astype('>f8')
            pictures = [jpeg(10 * episode + number, 8 + number) for number in range(count)]
            file.create_dataset('observations/images/cam_high', data=padded_rows(pictures), chunks=True)
            file['compress_len'] = np.array([[len(picture) for picture in pictures]])
    with h5py.File(GOLDEN / 'robomimic.hdf5', 'w') as file:
        data = file.create_group('data')
        data.attrs['env_args'] = '{"env_name": "Lift"}'
        for demo, count in ((0, 2), (1, 3), (10, 2)):
            group = data.create_group(f'demo_{demo}')
            group.attrs['num_samples'] = count
            group.attrs['model_file'] = f'<mujoco model="{demo}"/>'
            group['actions'] = rng.normal(size=(count, 2))
            group['dones'] = np.arange(count) == count - 1
            group['obs/eye image'] = rng.integers(0, 256, (count, 2, 3, 3)).astype(np.uint8)
            group['obs/depth'] = rng.integers(0, 65536, (count, 2, 3)).astype(np.uint16)
            group['words'] = ['pick', 'ä']
        file['mask/train'] = np.array([b'demo_0', b'demo_10'])


def make_zarr():
    """A replay buffer of diffusion policy, in both versions of the format."""
    import zarr

    rng = np.random.default_rng(1)
    images, states = rng.integers(0, 256, (9, 2, 2, 3)).astype('f4'), rng.normal(size=(9, 2)).astype('f4')
    depth = rng.integers(0, 65536, (9, 2, 2)).astype(np.uint16)
    for version in (2, 3):
        with zarr.storage.ZipStore(GOLDEN / f'replay_v{version}.zarr.zip', mode='w') as store:
            root = zarr.open_group(store, mode='w', zarr_format=version, attributes={'robot': 'ur5'})
            root.create_array('meta/episode_ends', data=np.array([3, 5, 9]))
            root.create_array('data/img', data=images, chunks=(2, 2, 2, 3))
            root.create_array('data/state', data=states)
            root.create_array('data/depth', data=depth)
            root.create_array('data/reward', data=np.arange(9.0))


def make_npz():
    rng = np.random.default_rng(2)
    (GOLDEN / 'npz').mkdir()
    for number, count in enumerate((2, 3, 3)):
        np.savez_compressed(
            GOLDEN / f'npz/{number}.npz',
            obs=rng.normal(size=(count, 2)),
            depth=rng.integers(0, 65536, (count, 2, 3)).astype(np.uint16),
            image=rng.integers(0, 256, (2, 2, 3)).astype(np.uint8),
            task='pick',
            **({'score': np.float32(0.5)} if number else {}),
        )


def make_hf():
    """A dataset with most features, as Parquet on a hub and as save_to_disk writes it, and what they hold.

    It needs the package datasets, which the tests do without.
    """
    import datasets
    from datasets import Array2D, Audio, ClassLabel, Image, LargeList, List, Value, Video

    file_type = {'bytes': Value('binary'), 'path': Value('string')}
    features = datasets.Features({
        'amount': Value('decimal128(10, 2)'),
        'audio': file_type,
        'big': LargeList(Value('int64')),
        'day': Value('date32'),
        'grid': Array2D((2, 3), 'float32'),
        'half': Value('float16'),
        'id': Value('int32'),
        'image': Image(),
        'images': List(Image()),
        'label': ClassLabel(names=['cat', 'dog']),
        'labels': List(ClassLabel(names=['a', 'b'])),
        'meta data': {'a': Value('int64'), 'b': List(Value('string'))},
        'nested': List(List(Value('int64'))),
        'note': Value('string'),
        'objects': List({'box': List(Value('float32'), length=4), 'kind': ClassLabel(names=['x', 'y'])}),
        'raw': Value('binary'),
        'rows': Array2D((None, 3), 'int64'),
        'tags': List(Value('string')),
        'vector': List(Value('float32'), length=4),
        'video': file_type,
        'when': Value('timestamp[us, tz=UTC]'),
    })  # fmt: skip
    rows = [
        {
            'amount': decimal.Decimal(f'{index}.25'),
            'audio': {'bytes': wav(index), 'path': f'{index}.wav'},
            'big': [index, -index],
            'day': dt.date(2026, 1, 1 + index),
            'grid': (np.arange(6, dtype='f4').reshape(2, 3) / 3 + index).tolist(),
            'half': index / 4,
            'id': index,
            'image': {'bytes': jpeg(index), 'path': f'{index}.jpg'},
            'images': [{'bytes': jpeg(item), 'path': None} for item in range(1 + index % 2)],
            'label': index % 2,
            'labels': [1, 0],
            'meta data': {'a': index, 'b': None if index else ['x']},
            'nested': [[index], [], [1, 2]],
            'note': None if index % 3 == 1 else f'note {index}',
            'objects': [{'box': [0.0, 1.0, 2.0, index], 'kind': 1}],
            'raw': bytes([0, index]),
            'rows': [[index, 1, 2]] * (1 + index % 2),
            'tags': [f'tag {index}', 'ü'],
            'vector': [index, 0.5, 1.0, 2.0],
            'video': {'bytes': film(index), 'path': None},
            'when': dt.datetime(2026, 1, 1, 12, index, tzinfo=dt.UTC),
        }
        for index in range(5)
    ]
    data = datasets.Dataset.from_list(rows, features=features)
    data = data.cast_column('audio', Audio()).cast_column('video', Video())
    (GOLDEN / 'hf/hub/data').mkdir(parents=True)
    for number in range(2):
        shard = data.shard(2, number, contiguous=True)
        shard.to_parquet(GOLDEN / f'hf/hub/data/train-{number:05}-of-00002.parquet', batch_size=2)
    data.save_to_disk(GOLDEN / 'hf/saved', num_shards=2)
    few = data.select([0]).select_columns(['id', 'label'])
    datasets.DatasetDict({'train': few, 'test': few}).save_to_disk(GOLDEN / 'hf/splits')
    # With the values that the library itself reads from the files.
    found = datasets.load_dataset('parquet', data_dir=str(GOLDEN / 'hf/hub/data'), split='train')
    assert found.features == data.features
    found = found.cast_column('audio', Audio(decode=False)).cast_column('video', Video(decode=False))
    found = found.cast_column('image', Image(decode=False)).cast_column('images', List(Image(decode=False)))
    (GOLDEN / 'hf/expected.json').write_text(json.dumps(list(found), default=as_text))


def as_text(value):
    """Converts bytes to a digest, and times and decimals to text."""
    return hashlib.sha256(value).hexdigest() if isinstance(value, bytes) else str(value)


def wav(seed):
    file = io.BytesIO()
    with wave.open(file, 'wb') as writer:
        writer.setparams((1, 2, 8000, 0, 'NONE', ''))
        writer.writeframes(np.random.default_rng(seed).bytes(40))
    return file.getvalue()


def film(seed):
    import bags

    frames = np.full((2, 16, 16, 3), 40 * seed, np.uint8)
    return bags.encoders['mp4'](frames, '10')


def make_lerobot():
    """Episodes that share files: colour, depth and images; and what LeRobot returns for each frame.

    Made with `lerobot[dataset]` 0.6.1; the same as version 2.1 by `split`.
    """
    from lerobot.configs.video import DepthEncoderConfig, RGBEncoderConfig
    from lerobot.datasets.lerobot_dataset import LeRobotDataset

    features = {
        'observation.images.front': {
            'dtype': 'video', 'shape': (32, 48, 3), 'names': ['height', 'width', 'channels'],
        },
        'observation.images.depth': {
            'dtype': 'video', 'shape': (32, 48, 1), 'names': ['height', 'width', 'channels'],
            'info': {'is_depth_map': True},
        },
        'observation.images.wrist': {
            'dtype': 'image', 'shape': (4, 6, 3), 'names': ['height', 'width', 'channels'],
        },
        'observation.state': {'dtype': 'float32', 'shape': (2,), 'names': {'motors': ['a', 'b']}},
        'matrix': {'dtype': 'float64', 'shape': (2, 3), 'names': None},
        'done': {'dtype': 'bool', 'shape': (1,), 'names': None},
        'action': {'dtype': 'float32', 'shape': (3,), 'names': None},
    }  # fmt: skip
    root = GOLDEN / 'lerobot_v3'
    dataset = LeRobotDataset.create(
        'golden/sample', 10, features, root, robot_type='so100',
        rgb_encoder=RGBEncoderConfig(vcodec='h264', g=3),
        # LeRobot's reader does not find frames of the open groups of pictures that x265 makes by default.
        depth_encoder=DepthEncoderConfig(extra_options={'x265-params': 'lossless=1:open-gop=0'}),
    )  # fmt: skip
    rng = np.random.default_rng(3)
    for episode, count in enumerate((5, 3, 6)):
        for number in range(count):
            image = np.full((32, 48, 3), 40 + 10 * number, np.uint8)
            image[8 * episode : 8 * episode + 8, 2 * number : 2 * number + 8] = 255, 80, 0
            ramp = np.arange(32 * 48).reshape(32, 48, 1) + 500 + 1000 * episode + 100 * number
            dataset.add_frame({
                'observation.images.front': image,
                'observation.images.depth': ramp.astype(np.uint16),
                'observation.images.wrist': rng.integers(0, 256, (4, 6, 3)).astype(np.uint8),
                'observation.state': rng.normal(size=2).astype(np.float32),
                'matrix': rng.normal(size=(2, 3)),
                'done': np.array([number == count - 1]),
                'action': rng.normal(size=3).astype(np.float32),
                'task': 'push' if episode else 'pull',
            })  # fmt: skip
        dataset.save_episode()
    dataset.finalize()
    shutil.rmtree(root / 'images')
    samples = read_lerobot(root)
    np.savez_compressed(GOLDEN / 'lerobot.npz', **samples)
    split_lerobot(root, GOLDEN / 'lerobot_v2')


def read_lerobot(root):
    """Returns what LeRobot has for all frames, by feature."""
    from lerobot.datasets.lerobot_dataset import LeRobotDataset

    dataset = LeRobotDataset('golden/sample', root, video_backend='pyav')
    samples = [dataset[index] for index in range(len(dataset))]
    columns = {}
    for key, value in samples[0].items():
        found = np.array([sample[key] for sample in samples]) if isinstance(value, str) else np.stack(
            [np.asarray(sample[key]) for sample in samples]
        )  # fmt: skip
        if key in ('observation.images.front', 'observation.images.wrist'):
            # Frames of float32 from 0 to 1, channels first.
            found = np.moveaxis(np.rint(found * 255).astype(np.uint8), 1, -1)
        columns[key] = found
    return columns


def split_lerobot(root, target):
    """Writes a sample of version 2.1, which LeRobot writes no more, and checks that LeRobot converts it."""
    import json

    import av
    import pyarrow.parquet as pq
    from lerobot.scripts.convert_dataset_v21_to_v30 import convert_dataset

    info = json.loads((root / 'meta/info.json').read_text())
    info |= {
        'codebase_version': 'v2.1', 'total_chunks': 1, 'total_videos': 6, 'chunks_size': 1000,
        'data_path': 'data/chunk-{episode_chunk:03d}/episode_{episode_index:06d}.parquet',
        'video_path': 'videos/chunk-{episode_chunk:03d}/{video_key}/episode_{episode_index:06d}.mp4',
    }  # fmt: skip
    (target / 'meta').mkdir(parents=True)
    (target / 'meta/info.json').write_text(json.dumps(info))
    tasks = pq.read_table(root / 'meta/tasks.parquet').to_pylist()
    write_lines(target / 'meta/tasks.jsonl', tasks)
    episodes = pq.read_table(next(root.glob('meta/episodes/*/*.parquet'))).to_pylist()
    facts = [{key: each[key] for key in ('episode_index', 'tasks', 'length')} for each in episodes]
    write_lines(target / 'meta/episodes.jsonl', facts)
    kinds = 'min', 'max', 'mean', 'std', 'count'
    stats = [
        {
            'episode_index': each['episode_index'],
            'stats': {
                feature: {kind: each[f'stats/{feature}/{kind}'] for kind in kinds}
                for feature in info['features'] if f'stats/{feature}/min' in each
            },
        }
        for each in episodes
    ]  # fmt: skip
    write_lines(target / 'meta/episodes_stats.jsonl', stats)
    rows = pq.read_table(next(root.glob('data/*/*.parquet')))
    for each in episodes:
        index = each['episode_index']
        path = target / f'data/chunk-000/episode_{index:06}.parquet'
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(rows.slice(each['dataset_from_index'], each['length']), path)
        for key, feature in info['features'].items():
            if feature['dtype'] == 'video':
                path = target / f'videos/chunk-000/{key}/episode_{index:06}.mp4'
                path.parent.mkdir(parents=True, exist_ok=True)
                start, stop = (each[f'videos/{key}/{end}_timestamp'] for end in ('from', 'to'))
                with av.open(next(root.glob(f'videos/{key}/*/*.mp4'))) as source, av.open(path, 'w') as copy:
                    template = source.streams.video[0]
                    stream = copy.add_stream_from_template(template, opaque=True)
                    for packet in source.demux(template):
                        if packet.size and start - 1e-6 <= packet.pts * packet.time_base < stop - 1e-6:
                            begin = round(start / packet.time_base)
                            packet.pts, packet.dts, packet.stream = (
                                packet.pts - begin,
                                packet.dts - begin,
                                stream,
                            )
                            copy.mux(packet)
    with tempfile.TemporaryDirectory() as folder:
        sample = Path(folder) / 'sample'
        shutil.copytree(target, sample)
        del info['features']['matrix']  # The converter cannot join tables of such columns.
        (sample / 'meta/info.json').write_text(json.dumps(info))
        for path in sample.glob('data/*/*.parquet'):
            rows = pq.read_table(path).drop_columns('matrix').replace_schema_metadata()
            pq.write_table(rows, path)
        convert_dataset('golden/sample', root=str(sample), push_to_hub=False)
        expected = read_lerobot(root)
        for key, values in read_lerobot(sample).items():
            np.testing.assert_array_equal(values, expected[key], key)


def write_lines(path, lines):
    import json

    path.write_text(''.join(json.dumps(line) + '\n' for line in lines))


def make_mcap():
    """A recording by the MCAP library of Foxglove, and what its reader gives: `mcap`, `mcap-ros2-support`."""
    import json

    from mcap_ros2.reader import read_ros2_messages
    from mcap_ros2.writer import Writer

    definitions = {
        'std_msgs/Float64': 'float64 data',
        'sensor_msgs/JointState': f'std_msgs/Header header\nstring[] name\nfloat64[] position\n{HEADER}',
        'sensor_msgs/CompressedImage': f'std_msgs/Header header\nstring format\nuint8[] data\n{HEADER}',
        'sensor_msgs/Image': (
            'std_msgs/Header header\nuint32 height\nuint32 width\nstring encoding\nuint8 is_bigendian\n'
            f'uint32 step\nuint8[] data\n{HEADER}'
        ),
        'geometry_msgs/PoseArray': f'geometry_msgs/Point[] points\nfloat32[3] size\n{POINT}',
    }
    path = GOLDEN / 'recording.mcap'
    depth = np.random.default_rng(4).integers(0, 65536, (4, 2, 3)).astype('<u2')
    with path.open('wb') as file, Writer(file) as writer:
        schemas = {
            name: writer.register_msgdef(name.replace('/', '/msg/'), text)
            for name, text in definitions.items()
        }
        for number in range(4):
            header = {'stamp': {'sec': 5, 'nanosec': number}, 'frame_id': 'base'}
            messages = {
                '/speed': ('std_msgs/Float64', {'data': number / 2}),
                '/arm/joints': ('sensor_msgs/JointState', {
                    'header': header, 'name': ['a', 'b'], 'position': [number + 0.25, -1.0][: number + 1],
                }),
                '/camera': ('sensor_msgs/CompressedImage', {
                    'header': header, 'format': 'jpeg', 'data': jpeg(number),
                }),
                '/depth': ('sensor_msgs/Image', {
                    'header': header, 'height': 2, 'width': 3, 'encoding': '16UC1', 'is_bigendian': 0,
                    'step': 8,
                    'data': b''.join(row.tobytes() + b'\0\0' for row in depth[number]),
                }),
                '/poses': ('geometry_msgs/PoseArray', {
                    'points': [{'x': 1.0, 'y': 2.0, 'z': float(number)}], 'size': [1.0, 2.0, 3.0],
                }),
            }  # fmt: skip
            for topic, (name, message) in messages.items():
                if topic != '/camera' or number % 2:
                    time = 10**18 + 10**8 * number + len(topic)
                    writer.write_message(topic, schemas[name], message, time, time)
    found = {}
    for each in read_ros2_messages(str(path)):
        message = json.loads(json.dumps(each.ros_msg, default=plain))
        found.setdefault(each.channel.topic, []).append([each.log_time_ns, message])
    path.with_suffix('.json').write_text(json.dumps(found))


HEADER = """
================================================================================
MSG: std_msgs/Header
builtin_interfaces/Time stamp
string frame_id
================================================================================
MSG: builtin_interfaces/Time
int32 sec
uint32 nanosec"""
POINT = """
================================================================================
MSG: geometry_msgs/Point
float64 x
float64 y
float64 z"""


def plain(value):
    if isinstance(value, bytes | bytearray):
        return list(value)
    return {name: getattr(value, name) for name in value.__slots__}


FORMATS = {
    'hf': (make_hf, 'hf'),
    'hdf5': (make_hdf5, 'aloha', 'robomimic.hdf5'),
    'lerobot': (make_lerobot, 'lerobot_v3', 'lerobot_v2', 'lerobot.npz'),
    'mcap': (make_mcap, 'recording.mcap', 'recording.json'),
    'zarr': (make_zarr, 'replay_v2.zarr.zip', 'replay_v3.zarr.zip'),
    'npz': (make_npz, 'npz'),
}
"""What makes each format, and which files."""


def main(names):
    for name in names or FORMATS:
        make, *files = FORMATS[name]
        for file in files:
            path = GOLDEN / file
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
        make()


if __name__ == '__main__':
    main(sys.argv[1:])
