"""HDF5 files of ALOHA and robomimic: every value equals that of h5py."""

import shutil
from pathlib import Path

import h5py
import numpy as np
import pytest

import bags
from bags.interop.open_source import open_source

GOLDEN = Path(__file__).parents[1] / 'golden'


def test_aloha(tmp_path):
    source = open_source(GOLDEN / 'aloha')
    assert source.spec == {
        '__key__': 'utf8',
        'action': 'array(float32,2)[]',
        'compress_len': 'array(int64,1,?)',
        'observations.images.cam_high': 'jpeg[]',
        'observations.qpos': 'array(float64,3)[]',
        'sim': 'bool',
    }
    assert "field 'observations/qpos' is named 'observations.qpos'" in source.notes
    assert bags.convert(source, tmp_path / 'out').datapoints == 3
    with bags.open(tmp_path / 'out') as dataset:
        assert dataset.records('__key__')[:] == [b'episode_0', b'episode_2', b'episode_10']
        for index, episode in enumerate((0, 2, 10)):
            with h5py.File(GOLDEN / f'aloha/episode_{episode}.hdf5') as file:
                found = dataset[index]
                assert found['sim'] is True
                assert np.array_equal(found['action'], file['action'][:])
                assert np.array_equal(found['observations.qpos'], file['observations/qpos'][:])
                assert np.array_equal(found['compress_len'], file['compress_len'][:])
                raw = bags.open(tmp_path / 'out', decoders={'jpeg': bytes})
                pictures = raw[index, 'observations.images.cam_high']['observations.images.cam_high']
                for picture, row, size in zip(
                    pictures, file['observations/images/cam_high'], file['compress_len'][0], strict=True
                ):
                    assert picture == row[:size].tobytes()


def test_robomimic(tmp_path):
    source = open_source(GOLDEN / 'robomimic.hdf5')
    assert source.spec == {
        '__key__': 'utf8',
        'actions': 'array(float64,2)[]',
        'dones': 'bool[]',
        'model_file': 'utf8',
        'num_samples': 'int(8)',
        'obs.depth': 'array(uint16,2,3)[]',
        'obs.eye_image': 'array(uint8,2,3,3)[]',
        'words': 'utf8[]',
    }
    assert source.metadata == {'env_args': '{"env_name": "Lift"}', 'mask': {'train': ['demo_0', 'demo_10']}}
    bags.convert(GOLDEN / 'robomimic.hdf5', tmp_path / 'out', spec={'obs.eye_image': 'png[]'})
    with bags.open(tmp_path / 'out') as dataset, h5py.File(GOLDEN / 'robomimic.hdf5') as file:
        assert dataset.metadata['env_args'] == '{"env_name": "Lift"}'
        for found, key in zip(dataset, ('demo_0', 'demo_1', 'demo_10'), strict=True):
            group = file[f'data/{key}']
            assert found['__key__'] == key
            assert found['num_samples'] == group.attrs['num_samples']
            assert found['model_file'] == group.attrs['model_file']
            assert found['words'] == ['pick', 'ä']
            for field in ('actions', 'dones', 'obs/depth', 'obs/eye image'):
                values = found[field.replace('/', '.').replace(' ', '_')]
                assert np.array_equal(values, group[field][:])
                assert np.asarray(values).dtype == group[field].dtype


def test_mixed_shapes_optional_fields_and_unknown_dtypes(tmp_path):
    for number, rows in enumerate((2, 3)):
        with h5py.File(tmp_path / f'{number}.h5', 'w') as file:
            file['a'], file['b'] = np.arange(rows), np.ones(rows)
            file['size'] = np.zeros((4 + number, 3 + number))
            file['either'] = np.zeros((rows, 2), 'f4' if number else 'i4')
            file['empty'] = np.zeros((0, 2))
            if number:
                file['late'] = 'text'
                file['pair'] = np.zeros(3, [('x', 'f4'), ('y', 'i4')])
    source = open_source(tmp_path)
    assert source.spec == {
        '__key__': 'utf8', 'a': 'int(8)[]', 'b': 'float(8)[]', 'either': 'array[]',
        'empty': 'array(float64,0,2)', 'late': 'utf8?', 'size': 'array',
    }  # fmt: skip
    assert any("'pair' is left out: expected numbers or texts" in note for note in source.notes)
    bags.convert(source, tmp_path / 'out')
    with bags.open(tmp_path / 'out') as dataset:
        assert dataset[0]['late'] is None
        assert dataset[1]['late'] == 'text'
        assert [part.dtype for part in dataset[0]['either']] == [np.int32] * 2
        assert dataset[1]['size'].shape == (5, 4)


def test_a_damaged_file_is_named_or_skipped(tmp_path):
    shutil.copytree(GOLDEN / 'aloha', tmp_path / 'in')
    middle = tmp_path / 'in/episode_2.hdf5'
    whole = middle.read_bytes()
    middle.write_bytes(whole[: len(whole) // 2])
    done = bags.convert(tmp_path / 'in', tmp_path / 'some', on_error='skip')
    assert done.datapoints == 2
    assert done.skipped[0][0] == str(middle)
    with pytest.raises(bags.SourceError, match=r'episode_2.hdf5: cannot be read as HDF5: .*truncated'):
        bags.convert(tmp_path / 'in', tmp_path / 'out')
    assert not (tmp_path / 'out').exists()


def test_resumes_after_damage_in_values(tmp_path):
    shutil.copytree(GOLDEN / 'aloha', tmp_path / 'in')
    middle = tmp_path / 'in/episode_2.hdf5'
    whole = middle.read_bytes()
    with h5py.File(middle) as file:
        place = file['observations/images/cam_high'].id.get_chunk_info(0).byte_offset
    middle.write_bytes(whole[:place] + bytes(8) + whole[place + 8 :])
    with pytest.raises(
        bags.SourceError, match=r"episode_2.hdf5: field 'observations.images.cam_high' .* item 0:"
    ):
        bags.convert(tmp_path / 'in', tmp_path / 'out', workers=1)
    middle.write_bytes(whole)
    assert bags.convert(tmp_path / 'in', tmp_path / 'out', resume=True).datapoints == 3
    bags.convert(tmp_path / 'in', tmp_path / 'again')
    with bags.open(tmp_path / 'out') as resumed, bags.open(tmp_path / 'again') as again:
        for first, second in zip(resumed, again, strict=True):
            np.testing.assert_equal(first, second)


def test_values_in_other_files_are_refused(tmp_path):
    secret = tmp_path / 'secret'
    secret.write_bytes(bytes(80))
    with h5py.File(tmp_path / 'a.h5', 'w') as file:
        file.create_dataset('x', (10,), 'f8', external=[(str(secret), 0, 80)])
    with pytest.raises(
        bags.SourceError, match=r"a.h5: .* expected values in this file, '/x' refers to others"
    ):
        open_source(tmp_path / 'a.h5')
    with h5py.File(tmp_path / 'b.h5', 'w') as file:
        file['y'] = np.ones(3)
        file['link'] = h5py.ExternalLink(str(GOLDEN / 'robomimic.hdf5'), '/data')
        file['data'] = h5py.ExternalLink(str(GOLDEN / 'robomimic.hdf5'), '/data')
    assert open_source(tmp_path / 'b.h5').spec == {'__key__': 'utf8', 'y': 'array(float64,3)'}


def test_large_arrays_are_read_in_parts(tmp_path, monkeypatch):
    monkeypatch.setattr('bags.interop.sources.arrays.arrays.BLOCK_BYTES', 20)
    bags.convert(GOLDEN / 'aloha', tmp_path / 'out')
    with bags.open(tmp_path / 'out') as dataset, h5py.File(GOLDEN / 'aloha/episode_2.hdf5') as file:
        assert np.array_equal(dataset[1]['action'], file['action'][:])
        assert len(dataset[1]['observations.images.cam_high']) == 4


def test_texts_that_are_not_utf8_are_named(tmp_path, monkeypatch):
    with h5py.File(tmp_path / 'a.h5', 'w') as file:
        file['data/demo_0/text'] = np.array([b'ab', b'\xff\xfe'], 'S2')
        file['data/demo_0/x'] = np.arange(2)
    for size, item in ((1 << 24, ''), (1, ', item 1')):
        monkeypatch.setattr('bags.interop.sources.arrays.arrays.BLOCK_BYTES', size)
        with pytest.raises(bags.SourceError, match=f"a.h5, data/demo_0, text{item}: 'utf-8'"):
            bags.convert(tmp_path / 'a.h5', tmp_path / 'out', mode='overwrite')


def test_links_within_a_file_are_followed(tmp_path):
    with h5py.File(tmp_path / 'a.h5', 'w') as file:
        file['data/demo_0/x'] = np.arange(3)
        file['data/demo_0/hard'] = file['data/demo_0/x']
        file['data/demo_0/soft'] = h5py.SoftLink('/data/demo_0/x')
        file['data/demo_0/up'] = h5py.SoftLink('/data/demo_0')
        file['data/demo_0/nowhere'] = h5py.SoftLink('/none')
        file['data/demo_1'] = h5py.SoftLink('/data/demo_0')
    bags.convert(tmp_path / 'a.h5', tmp_path / 'out', progress=False)
    with bags.open(tmp_path / 'out') as dataset:
        assert sorted(dataset.spec) == ['__key__', 'hard', 'soft', 'x']
        assert dataset.column('__key__') == ['demo_0', 'demo_1']
        assert all(row[name].tolist() == [0, 1, 2] for row in dataset for name in ('x', 'hard', 'soft'))


def test_links_that_make_endless_names_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr('bags.interop.sources.arrays.hdf5.MAX_NAMES', 1000)
    with h5py.File(tmp_path / 'a.h5', 'w') as file:
        for level in range(30):
            group = file.create_group(f'g{level}')
            for name in 'ab':
                group[name] = h5py.SoftLink(f'/g{level + 1}')
    with pytest.raises(bags.SourceError, match=r'a.h5: .* expected up to 1000 names'):
        open_source(tmp_path / 'a.h5')


def test_a_hole_does_not_lose_datapoints_or_fields(tmp_path):
    path = tmp_path / 'a.h5'
    with h5py.File(path, 'w') as file:
        for number in range(10):
            group = file.create_group(f'data/demo_{number}')
            group['a'], group['b'] = np.full((20, 3), number), np.zeros(20, bool)
    whole, source = path.read_bytes(), open_source(path)
    errors = 0
    for start in range(0, len(whole), 1024):
        data = bytearray(whole)
        data[start : start + 1024] = bytes(len(data[start : start + 1024]))
        path.write_bytes(data)
        try:
            found = open_source(path)
        except bags.SourceError:
            errors += 1
        else:
            assert (found.count, found.spec) == (source.count, source.spec)
    assert errors


def test_what_is_left_out_is_noted(tmp_path):
    with h5py.File(tmp_path / 'a.h5', 'w') as file:
        for number in range(2):
            group = file.create_group(f'data/demo_{number}')
            group['x'], group['y'] = np.arange(3), np.arange(3)
            group['empty'] = h5py.Empty('f4')
            group['nowhere'] = h5py.SoftLink('/none')
            group['other'] = h5py.ExternalLink('b.h5', '/x')
            group.create_dataset('rest', (3, 2), 'f4', chunks=(1, 2), fillvalue=7)[0] = 1
        file.attrs['text'] = np.bytes_(b'\xff')
    source = open_source(tmp_path / 'a.h5')
    assert source.notes == [
        "'empty' is left out: it has no values",
        "'nowhere' is left out: a link to nothing",
        "'other' is left out: a link to another file",
        "'rest' has values that were never written: they are 7.0",
        "'@text' is left out: expected texts of UTF-8",
    ]
    with h5py.File(tmp_path / 'a.h5', 'a') as file:
        file.create_group('data/demo_2')
    with pytest.raises(bags.SourceError, match=r'a\.h5: .* data/demo_2: expected arrays, .* got none'):
        open_source(tmp_path / 'a.h5')


@pytest.mark.parametrize('beside', ['times', 'stats/mean', 'data/times', 'data/stats/mean'])
@pytest.mark.parametrize('group', ['data/demo_{}', 'data/{}', 'demo_{}', 'episode_{}'])
def test_arrays_beside_numbered_groups_are_noted(group, beside, tmp_path):
    if beside.startswith('data/') and not group.startswith('data/'):
        beside = beside.removeprefix('data/')
    with h5py.File(tmp_path / 'a.h5', 'w') as file:
        for number in range(3):
            file[f'{group.format(number)}/x'] = np.arange(4)
        file[beside] = np.arange(3)
    source = open_source(tmp_path / 'a.h5')
    assert (source.count, source.spec) == (3, {'__key__': 'utf8', 'x': 'array(int64,4)'})
    assert source.notes == [f'{beside!r} is left out: it is in none of the numbered groups']


def test_an_array_with_the_name_of_the_key_has_another_name(tmp_path):
    for number in range(2):
        with h5py.File(tmp_path / f'{number}.h5', 'w') as file:
            file['__key__'], file['__key___2'], file['x'] = number, 5, np.arange(3)
    done = bags.convert(tmp_path, tmp_path / 'out', format='hdf5')
    with bags.open(tmp_path / 'out') as dataset:
        assert dataset[1, ('__key__', '__key___2', '__key___3')] == {
            '__key__': '1', '__key___2': 5, '__key___3': 1,
        }  # fmt: skip
    (note,) = done.notes
    assert note.startswith("'__key__' becomes '__key___3'")


def test_names_of_enumerations_are_noted(tmp_path):
    kind = h5py.enum_dtype({'RED': 0, 'BLUE': 7, 'GREEN': 1})
    with h5py.File(tmp_path / 'a.h5', 'w') as file:
        file.create_dataset('color', data=np.array([0, 7], kind), dtype=kind)
        file['is_red'] = np.array([True, False])
        file.attrs.create('first', 7, dtype=kind)
        file.attrs['odd'] = np.void(b'xy')
    done = bags.convert(tmp_path / 'a.h5', tmp_path / 'out')
    names = '0 is RED, 1 is GREEN, 7 is BLUE'
    assert set(done.notes) == {
        f"'color' becomes integers: {names}", f"'@first' becomes integers: {names}",
        "'@odd' is left out: expected numbers or texts",
    }  # fmt: skip
    with bags.open(tmp_path / 'out') as dataset:
        assert dataset[0]['color'].tolist() == [0, 7]


def test_an_array_that_cannot_be_read_can_be_left_out(tmp_path):
    with h5py.File(tmp_path / 'a.h5', 'w') as file:
        file.create_dataset('o/x', (10,), 'f8', external=[('b', 0, 80)])
        file['y'] = np.ones(3)
        file['pair'] = np.zeros(3, [('x', 'f4'), ('y', 'i4')])
    with pytest.raises(bags.SourceError, match=r"a\.h5: .* spec=\{'o\.x': None\} leaves it out"):
        open_source(tmp_path / 'a.h5')
    done = bags.convert(tmp_path / 'a.h5', tmp_path / 'out', spec={'o.x': None, 'pair': None})
    assert done.spec == {'__key__': 'utf8', 'y': 'float(8)[]'}
    with pytest.raises(bags.SpecError):
        open_source(tmp_path / 'a.h5', spec={'o.x': None, 'none': None})


def test_a_shape_that_is_far_larger_than_the_file_is_refused(tmp_path):
    with h5py.File(tmp_path / 'a.h5', 'w') as file:
        file.create_dataset('x', (1 << 40,), 'f4', chunks=(1024,))
    with pytest.raises(bags.SourceError, match=r'a\.h5: .* expected up to \d+ bytes of values in \d+ bytes'):
        open_source(tmp_path / 'a.h5')
