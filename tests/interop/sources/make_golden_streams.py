"""Writes the samples of streaming formats in `golden`, each with its own library.

    python tests/interop/sources/make_golden_streams.py mds litdata    # with PyTorch, streaming, litdata
    python tests/interop/sources/make_golden_streams.py tfds tfrecord  # with tensorflow-datasets

What the format's own reader gives is written beside the sample as `NAME.expected.json`; see `plain`.
"""

import base64
import decimal
import io
import json
import shutil
import sys
import unittest.mock
from pathlib import Path

import numpy as np
from PIL import Image

GOLDEN = Path(__file__).parent / 'golden'


def picture(seed, format, shape=(8, 9, 3)):
    file = io.BytesIO()
    pixels = np.random.default_rng(seed).integers(0, 255, shape).astype(np.uint8)
    Image.fromarray(pixels).save(file, format)
    return file.getvalue()


def plain(value):
    """Converts a value to JSON: bytes in base64, arrays as dtype, shape and elements."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, bytes | memoryview):
        return {'bytes': base64.b64encode(bytes(value)).decode()}
    if isinstance(value, Image.Image):
        return plain(np.asarray(value))
    if hasattr(value, 'dtype'):
        array = np.asarray(value)
        if array.dtype == object:
            return plain(array.tolist())
        return {'dtype': array.dtype.name, 'shape': list(array.shape), 'values': array.ravel().tolist()}
    return value


def write_expected(folder, values):
    path = folder.with_name(f'{folder.name}.expected.json')
    path.write_text(json.dumps(plain(values), separators=(',', ':')) + '\n')


def make_mds():
    for name in (
        'transformers',
        'transformers.feature_extraction_utils',
        'transformers.tokenization_utils_base',
    ):
        sys.modules[name] = (
            unittest.mock.MagicMock()
        )  # Data loaders of streaming import it, writers do not use it.
    for name in ('text', 'vision', 'multimodal'):
        sys.modules[f'streaming.{name}'] = unittest.mock.MagicMock()
    from streaming import LocalDataset, MDSWriter

    columns = {
        'id': 'int', 'u8': 'uint8', 'f16': 'float16', 'f32': 'float32', 'i16': 'int16', 'text': 'str',
        'data': 'bytes', 'meta': 'json', 'any': 'ndarray', 'vector': 'ndarray:float32',
        'fixed': 'ndarray:int16:2,3',
        'jpeg': 'jpeg', 'png': 'png', 'raw': 'pil', 'burst': 'jpegarray',
        'big': 'str_int', 'number': 'str_float', 'money': 'str_decimal', 'a name': 'int32',
    }  # fmt: skip
    for folder, compression in (('mds', None), ('mds-zstd', 'zstd:3'), ('mds-gz', 'gz')):
        out = GOLDEN / folder
        with MDSWriter(out=str(out), columns=columns, compression=compression, size_limit=6000) as writer:
            for i in range(3 if compression else 4):
                jpeg, png = picture(i, 'JPEG'), picture(i, 'PNG', (4, 3))
                writer.write({
                    'id': -i, 'u8': 200 + i, 'f16': np.float16(i / 3), 'f32': i / 3, 'i16': -i,
                    'text': f'tëxt {i}',
                    'data': bytes([i] * i), 'meta': {'i': i, 'list': [1, None]},
                    'any': np.arange(2 * i + 2, dtype=np.uint16).reshape(2, i + 1),
                    'vector': np.arange(i + 1, dtype=np.float32), 'fixed': np.full((2, 3), i, np.int16),
                    'jpeg': Image.open(io.BytesIO(jpeg)), 'png': Image.open(io.BytesIO(png)),
                    'raw': Image.open(io.BytesIO(png)),
                    'burst': [jpeg] * (1 + i % 2),
                    'big': 10**20 + i, 'number': i / 7, 'money': decimal.Decimal('1.50'), 'a name': i,
                })  # fmt: skip
        if compression is None:
            samples = [dict(sample) for sample in LocalDataset(str(out))]
            for sample in samples:
                sample['money'] = str(sample['money'])
                sample['big'] = str(sample['big'])
            write_expected(out, samples)


def make_litdata():
    import litdata
    import torch
    from litdata.streaming.cache import Cache

    def sample(i):
        return {
            'id': i, 'ok': i % 2 == 0, 'number': i / 3, 'text': f'tëxt {i}', 'data': bytes([i] * i),
            'jpeg': Image.open(io.BytesIO(picture(i, 'JPEG'))),
            'raw': Image.open(io.BytesIO(picture(i, 'PNG'))),
            'tokens': np.arange(i, dtype=np.uint16), 'matrix': np.full((2, i + 1), i, np.float32),
            'tensor': torch.full((2, 3), i, dtype=torch.int32),
            'vector': torch.arange(i + 1, dtype=torch.float64),
            'nested': {'a': i, 'b': [i, f'{i}']},
        }  # fmt: skip

    def row(i):  # LitData stores rows of texts and numbers in Arrow.
        return {'id': i, 'text': f'tëxt {i}', 'tags': ['a'] * i, 'facts': {'x': i / 3, 'y': [f'{i}']}}

    for name, options in (
        ('litdata', {}),
        ('litdata-chunk', {'compression': 'zstd', 'compression_level': 'chunk'}),
        ('litdata-batch', {'compression': 'zstd', 'compression_batch_size': 2}),
        ('litdata-sample', {'compression': 'zstd:9', 'compression_level': 'sample'}),
        ('litdata-rows', {'compression': 'zstd'}),
    ):
        cache = Cache(str(GOLDEN / name), chunk_size=3, **options)
        for i in range(5):
            cache[i] = row(i) if name == 'litdata-rows' else sample(i)
        cache.done()
        cache.merge()
        if name in ('litdata', 'litdata-rows'):
            write_expected(GOLDEN / name, [litdata.StreamingDataset(str(GOLDEN / name))[i] for i in range(5)])


def episodes(count):
    import tensorflow_datasets as tfds

    rng = np.random.default_rng(0)
    for i in range(count):
        yield i, {
            'steps': [
                {
                    'observation': {
                        'image': rng.integers(0, 255, (6, 5, 3), dtype=np.uint8),
                        'depth': rng.integers(0, 60000, (4, 4, 1)).astype(np.uint16),
                        'state': rng.normal(size=3).astype(np.float32),
                    },
                    'action': rng.normal(size=2), 'reward': np.float32(t / 3), 'is_first': t == 0, 'count': t,
                    'language_instruction': f'dø {t}', 'pose': np.full((2, 2), t, np.float32),
                    'ratio': np.array([t, 2], np.int16), 'kind': t % 2,
                }
                for t in range(2 + i)
            ],
            'episode_metadata': {'file_path': f'/a/{i}', 'seed': b'\xff\x00'},
            'label': i % 2, 'words': ['a'] * i, 'audio': np.arange(5 + i),
            'levels': np.array([1, 2, 3], np.uint8),
            'rows': np.ones((i, 2), np.float32), 'clip': rng.integers(0, 255, (2, 4, 5, 3), dtype=np.uint8),
            'objects': [{'box': tfds.features.BBox(0.0, 0.0, 0.5, k / 4), 'x': k} for k in range(i)],
        }  # fmt: skip


def make_tfds():
    """Writes RLDS episodes of two splits."""
    import etils.epath
    import tensorflow_datasets as tfds

    types = tfds.features
    features = types.FeaturesDict({
        'steps': types.Dataset({
            'observation': {
                'image': types.Image(shape=(6, 5, 3), encoding_format='jpeg'),
                'depth': types.Image(shape=(4, 4, 1), dtype=np.uint16, encoding_format='png'),
                'state': types.Tensor(shape=(3,), dtype=np.float32),
            },
            'action': types.Tensor(shape=(2,), dtype=np.float64), 'reward': types.Scalar(np.float32),
            'is_first': types.Scalar(np.bool_), 'count': types.Scalar(np.int32),
            'language_instruction': types.Text(), 'pose': types.Tensor(shape=(2, 2), dtype=np.float32),
            'ratio': types.Tensor(shape=(2,), dtype=np.int16, encoding='zlib'),
            'kind': types.ClassLabel(names=['walk', 'run']),
        }),
        'episode_metadata': {'file_path': types.Text(), 'seed': types.Tensor(shape=(), dtype=np.str_)},
        'label': types.ClassLabel(names=['cat', 'dog']), 'words': types.Sequence(types.Text()),
        'audio': types.Audio(shape=(None,), sample_rate=8000),
        'levels': types.Tensor(shape=(3,), dtype=np.uint8),
        'rows': types.Tensor(shape=(None, 2), dtype=np.float32),
        'clip': types.Video(shape=(None, 4, 5, 3)),
        'objects': types.Sequence({'box': types.BBoxFeature(), 'x': types.Scalar(np.int32)}),
    })  # fmt: skip

    class Arm(tfds.core.GeneratorBasedBuilder):
        VERSION = tfds.core.Version('1.0.0')
        pkg_dir_path = etils.epath.Path('.')

        def _info(self):
            return self.dataset_info_from_configs(features=features)

        def _split_generators(self, _manager):
            return {'train': episodes(3), 'val': episodes(1)}

        def _generate_examples(self):
            raise NotImplementedError

    builder = Arm(data_dir=str(GOLDEN / 'made'), file_format='tfrecord')
    builder.download_and_prepare()
    found = [
        {**each, 'steps': list(each['steps'])}
        for split in ('train', 'val')
        for each in tfds.as_numpy(builder.as_dataset(split=split, shuffle_files=False))
    ]
    write_expected(GOLDEN / 'tfds', found)
    Path(builder.data_dir).rename(GOLDEN / 'tfds')
    (GOLDEN / 'tfds' / 'dataset_info.json').unlink()  # This file has no types.
    shutil.rmtree(GOLDEN / 'made')


def make_tfrecord():
    import tensorflow as tf

    def feature(value):
        if isinstance(value[0], bytes) if value else True:
            return tf.train.Feature(bytes_list=tf.train.BytesList(value=value))
        if isinstance(value[0], float):
            return tf.train.Feature(float_list=tf.train.FloatList(value=value))
        return tf.train.Feature(int64_list=tf.train.Int64List(value=value))

    for name, compression in (('tfrecord.tfrecord', ''), ('tfrecord-gz.tfrecord.gz', 'GZIP')):
        expected = []
        with tf.io.TFRecordWriter(str(GOLDEN / name), compression) as writer:
            for i in range(6):
                values = {
                    'image/encoded': [picture(i, 'JPEG')], 'text': [f'tëxt {i}'.encode()], 'label': [-i],
                    'box': [i / 3, 0.0, 1.0, 2.0], 'tokens': list(range(i)), 'tags': [b'a', b'b'][: i % 3],
                    'raw': [bytes([i, 255])], **({'score': [i / 7]} if i % 2 else {}),
                }  # fmt: skip
                example = tf.train.Features(feature={key: feature(value) for key, value in values.items()})
                writer.write(tf.train.Example(features=example).SerializeToString())
                expected.append(values)
        if not compression:
            found = [
                {
                    key: list(getattr(value, value.WhichOneof('kind')).value)
                    for key, value in tf.train.Example.FromString(each.numpy()).features.feature.items()
                }
                for each in tf.data.TFRecordDataset(str(GOLDEN / name))
            ]
            write_expected(GOLDEN / 'tfrecord', found)
    with tf.io.TFRecordWriter(str(GOLDEN / 'tfrecord-sequence.tfrecord')) as writer:
        for i in range(3):
            frames = tf.train.FeatureList(
                feature=[feature([picture(t, 'JPEG', (4, 4, 3))]) for t in range(i + 1)]
            )
            speeds = tf.train.FeatureList(feature=[feature([t / 2, 1.0]) for t in range(i + 1)])
            lists = tf.train.FeatureLists(feature_list={'frame': frames, 'speed': speeds})
            context = tf.train.Features(feature={'id': feature([i])})
            example = tf.train.SequenceExample(context=context, feature_lists=lists)
            writer.write(example.SerializeToString())


def main():
    for name in sys.argv[1:]:
        for path in GOLDEN.glob(f'{name}*'):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        globals()[f'make_{name}']()


if __name__ == '__main__':
    main()
