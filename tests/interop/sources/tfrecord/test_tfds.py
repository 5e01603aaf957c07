"""Import of TensorFlow Datasets and RLDS episodes, written and read by tensorflow_datasets itself."""

import json
import shutil

import numpy as np
import pytest

import bags
from bags.interop.open_source import open_source
from tests.interop.sources.streams import GOLDEN, assert_equal, converted, expected, records


def test_episodes_are_those_of_the_reader_of_tfds(tmp_path):
    done, found = converted(GOLDEN / 'tfds', tmp_path / 'out')
    assert done.spec['observation.image'] == 'jpeg[]'
    assert done.spec['observation.state'] == 'array(float32,3)[]'
    assert done.spec['objects.box'] == 'array(float32,4)[]'
    assert done.spec['is_first'] == 'bool[]'
    wanted = {sample['audio'].size: sample for sample in expected('tfds')}
    assert [each['split'] for each in found] == ['train', 'train', 'train', 'val']
    for datapoint in found:
        sample = wanted[len(datapoint['audio'])]
        steps = sample['steps']
        for field in ('label', 'audio', 'levels', 'rows'):
            assert_equal(datapoint[field], sample[field])
        assert_equal(np.array(datapoint['clip']), sample['clip'])
        assert_equal(list(datapoint['objects.x']), sample['objects']['x'].tolist())
        assert_equal(list(datapoint['objects.box']), list(sample['objects']['box']))
        assert datapoint['words'] == [word.decode() for word in sample['words']]
        assert datapoint['episode_metadata.file_path'].encode() == sample['episode_metadata']['file_path']
        assert datapoint['episode_metadata.seed'] == sample['episode_metadata']['seed']
        assert len(steps) == len(datapoint['action'])
        for field in ('action', 'reward', 'is_first', 'count', 'pose', 'ratio', 'kind'):
            assert_equal(list(datapoint[field]), [step[field] for step in steps])
        assert_equal(list(datapoint['observation.state']), [step['observation']['state'] for step in steps])
        depths = [step['observation']['depth'][..., 0] for step in steps]
        assert_equal(datapoint['observation.depth'], depths)  # 16 bits, exactly.
        for image, step in zip(datapoint['observation.image'], steps, strict=True):
            difference = image.astype(int) - step['observation']['image']
            assert abs(difference).max() <= 16  # TensorFlow decodes JPEG faster and less exactly.


def test_the_same_in_array_record(tmp_path):
    module = pytest.importorskip('array_record.python.array_record_module')
    source = shutil.copytree(GOLDEN / 'tfds', tmp_path / 'in')
    for path in sorted(source.glob('*.tfrecord*')):
        writer = module.ArrayRecordWriter(str(path).replace('tfrecord', 'array_record'), 'group_size:1')
        data = path.read_bytes()
        for start, length in records(data):
            writer.write(data[start : start + length])
        writer.close()
        path.unlink()
    bags.convert(GOLDEN / 'tfds', tmp_path / 'one')
    bags.convert(source, tmp_path / 'other')
    with bags.open(tmp_path / 'one') as one, bags.open(tmp_path / 'other') as other:
        assert one.spec == other.spec
        for field in one.spec:
            assert list(one.records(field)) == list(other.records(field))


def test_images_stay_byte_for_byte(tmp_path):
    bags.convert(GOLDEN / 'tfds', tmp_path / 'out')
    files = b''.join(file.read_bytes() for file in (GOLDEN / 'tfds').glob('arm-*'))
    with bags.open(tmp_path / 'out') as dataset:
        for field in ('observation.image', 'observation.depth'):
            records = dataset.records(field)
            assert len(records) == 11
            assert all(record in files for record in records)


def test_names_of_classes_become_metadata(tmp_path):
    bags.convert(GOLDEN / 'tfds', tmp_path / 'out')
    with bags.open(tmp_path / 'out') as dataset:
        fields = dataset.metadata['fields']
    assert fields['label'] == {'classes': ['cat', 'dog']}
    assert fields['kind'] == {'classes': ['walk', 'run']}
    assert fields['audio'] == {'sample_rate': 8000}


def test_one_split_by_a_glob(tmp_path):
    done, _ = converted(str(GOLDEN / 'tfds' / '*-train.*'), tmp_path / 'out')
    assert done.datapoints == 3
    assert 'split' not in done.spec


def test_features_that_cannot_be_fields_and_damage_are_named(tmp_path):
    source = shutil.copytree(GOLDEN / 'tfds', tmp_path / 'in')
    text = (source / 'features.json').read_text()
    features = json.loads(text)
    features['featuresDict']['features']['levels'] = {'pythonClassName': 'a.b.Strange'}
    nested = {'sequence': {'feature': {'sequence': {'feature': {'text': {}}}}}}
    for damaged in (
        json.dumps(features),
        json.dumps(nested),
        '{',
        '{"featuresDict": {"features": 3}}',
        '[' * 100_000,
    ):
        (source / 'features.json').write_text(damaged)
        with pytest.raises(bags.SourceError, match=r'features\.json'):
            open_source(source)
    del features['featuresDict']['features']['levels']
    (source / 'features.json').write_text(json.dumps(features))
    assert 'levels' not in bags.convert(source, tmp_path / 'out').spec


def test_examples_that_are_not_as_the_features_say(tmp_path):
    source = shutil.copytree(GOLDEN / 'tfds', tmp_path / 'in')
    text = (source / 'features.json').read_text()
    features = json.loads(text)
    features['featuresDict']['features']['levels']['tensor']['shape']['dimensions'] = ['4']
    (source / 'features.json').write_text(json.dumps(features))
    with pytest.raises(
        bags.SourceError, match=r"arm-train.*, record 0: field 'levels': expected uint8 of shape"
    ):
        bags.convert(source, tmp_path / 'out')
    done = bags.convert(source, tmp_path / 'out2', on_error='skip', spec={'levels': None})
    assert done.datapoints == 4
    assert np.all([not name for name, _ in done.skipped])
