"""What the library datasets of Hugging Face reads of an export."""

from pathlib import Path

import numpy as np
import pytest

import bags

datasets = pytest.importorskip('datasets')

CAT = (Path(__file__).parents[2] / 'examples' / 'data' / 'cat.jpg').read_bytes()


@pytest.mark.parametrize('streaming', [False, True])
def test_load_dataset_gives_typed_columns(streaming, tmp_path):
    spec = {
        'grid': 'array(float32,2,3)', 'id': 'int(4)', 'label': 'int(8)', 'photo': 'jpeg?',
        'photos': 'jpeg[]', 'sound': 'audio', 'words': 'utf8[]',
    }  # fmt: skip
    sound = (np.zeros((100, 1), 'i2'), 8000)
    metadata = {'fields': {'label': {'classes': ['cat', 'dog']}}}
    with bags.DatasetWriter(tmp_path / 'in', spec, metadata=metadata) as writer:
        for index in range(5):
            writer.append({
                'grid': np.full((2, 3), index, 'f4'), 'id': index, 'label': index % 2,
                'photo': CAT if index else None, 'photos': [CAT] * index, 'sound': sound,
                'words': ['a'] * index,
            })  # fmt: skip
    bags.export(tmp_path / 'in', tmp_path / 'out', format='parquet', shard_length=2)
    found = datasets.load_dataset(
        'parquet',
        data_dir=str(tmp_path / 'out'),
        split='train',
        streaming=streaming,
        cache_dir=str(tmp_path / 'c'),
    )
    assert found.features == datasets.Features({
        'grid': datasets.Array2D((2, 3), 'float32'), 'id': datasets.Value('int32'),
        'label': datasets.ClassLabel(names=['cat', 'dog']), 'photo': datasets.Image(),
        'photos': datasets.List(datasets.Image()), 'sound': datasets.Audio(),
        'words': datasets.List(datasets.Value('string')),
    })  # fmt: skip
    found = found.cast_column('sound', datasets.Audio(decode=False))  # Decoding would need torchcodec.
    rows = list(found)
    assert rows[0]['sound']['bytes'][:4] == b'fLaC'
    assert [row['photo'] and row['photo'].size for row in rows] == [None] + [(451, 300)] * 4
    assert [len(row['photos']) for row in rows] == list(range(5))
    assert np.array_equal(rows[3]['grid'], np.full((2, 3), 3))
    assert rows[2]['words'] == ['a', 'a']
