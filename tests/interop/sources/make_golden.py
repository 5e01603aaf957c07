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
    """ALOHA has a file an episode, its pictures as JPEG; robomimic a group an episode."""
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
    # With what the library itself reads from the files.
    found = datasets.load_dataset('parquet', data_dir=str(GOLDEN / 'hf/hub/data'), split='train')
    assert found.features == data.features
    found = found.cast_column('audio', Audio(decode=False)).cast_column('video', Video(decode=False))
    found = found.cast_column('image', Image(decode=False)).cast_column('images', List(Image(decode=False)))
    (GOLDEN / 'hf/expected.json').write_text(json.dumps(list(found), default=as_text))


def as_text(value):
    """Bytes as a digest, and times and decimals as text."""
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


FORMATS = {
    'hf': (make_hf, 'hf'),
    'hdf5': (make_hdf5, 'aloha', 'robomimic.hdf5'),
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
