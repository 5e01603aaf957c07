"""Import and export of folders: nothing is changed or lost."""

import ast
import csv
import gc
import io
import itertools
import json
import random
import re
import tarfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

import bags
from bags.formats.audio import encode_flac, encode_opus, encode_wav
from bags.interop.file_extensions import escape_key, unescape_key
from bags.interop.open_source import open_source
from bags.interop.sources.files.layouts import find_layout, group
from tests.media.samples import film, number_of
from tests.media.test_audio import write as sound

DATA = Path(__file__).parents[4] / 'examples' / 'data'
CAT = (DATA / 'cat.jpg').read_bytes()


def make(root, files):
    for name, data in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return root


def tree(root):
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob('*') if path.is_file()}


def test_stems_with_sidecars(tmp_path):
    files = {f'a/x{i}.jpg': CAT for i in range(5)}
    files |= {f'a/x{i}.txt': f'caption {i}\n'.encode() for i in range(5)}
    files |= {f'a/x{i}.json': b'{"n":  %d}' % i for i in range(0, 5, 2)}
    source = make(tmp_path / 'in', files)
    done = bags.convert(source, tmp_path / 'out')
    assert done.spec == {'__key__': 'utf8', 'jpg': 'jpeg', 'json': 'json?', 'txt': 'utf8'}
    assert done.datapoints == 5
    assert not done.skipped
    with bags.open(tmp_path / 'out') as dataset:
        assert dataset[2, ('__key__', 'txt', 'json')] == {
            '__key__': 'a/x2',
            'txt': 'caption 2\n',
            'json': {'n': 2},
        }
        assert dataset[1, 'json'] == {'json': None}
        assert dataset.records('jpg')[3] == CAT
        assert dataset.records('json')[2] == files['a/x2.json']
        bags.export(dataset, tmp_path / 'files', format='files')
    assert tree(tmp_path / 'files') == files


def test_media_of_every_format_round_trip(tmp_path):
    files = {path.name: path.read_bytes() for path in DATA.iterdir() if path.name != 'README.md'}
    done = bags.convert(DATA, tmp_path / 'out')
    assert done.spec['flac'] == 'audio?'
    assert done.spec['mp4'] == 'video?'
    with bags.open(tmp_path / 'out') as dataset:
        bags.export(dataset, tmp_path / 'files', format='files')
    assert tree(tmp_path / 'files') == files


def test_class_folders(tmp_path):
    files = {f'{kind}/{i:03}.jpg': CAT for kind in ('cat', 'dog') for i in range(3)}
    done = bags.convert(make(tmp_path / 'in', files), tmp_path / 'out')
    assert done.spec == {'__key__': 'utf8', 'jpg': 'jpeg', 'label': 'utf8'}
    with bags.open(tmp_path / 'out') as dataset:
        assert dataset.batch(range(6), 'label') == {'label': ['cat'] * 3 + ['dog'] * 3}
        bags.export(dataset, tmp_path / 'files', format='files')
    assert tree(tmp_path / 'files') == files


def test_episodes_are_sequences(tmp_path):
    files = {
        f'ep_{episode}/{name}': data
        for episode in range(3)
        for name, data in {
            **{f'frame_{i}.jpg': CAT for i in range(12)},
            **{f'depth/{i:04}.txt': b'%d' % i for i in range(3)},
            'meta.json': b'{}',
        }.items()
    }
    del files['ep_1/meta.json']
    done = bags.convert(make(tmp_path / 'in', files), tmp_path / 'out', spec={'depth': 'utf8[]'})
    assert done.spec == {'__key__': 'utf8', 'depth': 'utf8[]', 'frame': 'jpeg[]', 'meta': 'json?'}
    with bags.open(tmp_path / 'out') as dataset:
        assert len(dataset) == 3
        assert dataset[0, 'depth'] == {'depth': ['0', '1', '2']}
        assert dataset.lengths('frame').tolist() == [12, 12, 12]
        assert dataset[1, 'meta'] == {'meta': None}


def test_sequences_of_episodes_are_ordered_by_number():
    names = [f'1/f{i}.png' for i in range(12)] + ['2/f0.png', '2/f1.png']
    assert find_layout(names) == 'episodes'
    assert group(names, 'episodes')[0] == ('1', {'f': [f'1/f{i}.png' for i in range(12)]})


def test_each_file_a_datapoint(tmp_path):
    source = make(tmp_path / 'in', {'a.txt': b'1', 'a.json': b'2', 'noext': b'3'})
    done = bags.convert(source, tmp_path / 'out', layout='files')
    assert done.datapoints == 3
    assert done.spec == {'__key__': 'utf8', 'data': 'bytes?', 'json': 'json?', 'txt': 'utf8?'}


CASES = {
    'A.TXT': b'1',
    'b.txt': b'2',
    'deep/C.Json': b'{}',
    'deep/d.JPG': CAT,
    'deep/d.txt': b'3',
    'e.txt.txt': b'4',
    'o.-x': b'5',
    'x.tar.GZ': b'6',
}


@pytest.mark.parametrize('layout', ['stems', 'files'])
def test_names_round_trip(tmp_path, layout):
    source = make(tmp_path / 'in', CASES)
    done = bags.convert(source, tmp_path / 'out', layout=layout)
    assert done.spec['__extensions__'] == 'json?'
    with bags.open(tmp_path / 'out') as dataset:
        by_key = {row['__key__']: row['__extensions__'] for row in dataset}
        bags.export(dataset, tmp_path / 'files', format='files')
        bags.export(dataset, tmp_path / 'tars')
    wanted = {'A': {'txt': 'TXT'}, 'b': None} if layout == 'stems' else {'A.TXT': None, 'o.-x': {'_-x': ''}}
    assert {key: by_key[key] for key in wanted} == wanted
    assert tree(tmp_path / 'files') == CASES
    if layout == 'stems':
        bags.convert(tmp_path / 'tars', tmp_path / 'again')
        bags.export(tmp_path / 'again', tmp_path / 'back', format='files')
        tree_of_tars = {name.replace('txt.txt', 'txt'): data for name, data in CASES.items()}
        assert tree(tmp_path / 'back') == tree_of_tars  # A tar does not record the layout.
        plain = bags.convert(source, tmp_path / 'plain', layout=layout, spec={'__extensions__': None})
        assert '__extensions__' not in plain.spec


@given(st.text('ab.%25E', min_size=1, max_size=9))
def test_keys_in_tars_round_trip_without_dots(key):
    assert '.' not in escape_key(key)
    assert unescape_key(escape_key(key)) == key
    if '.' not in key:
        assert escape_key(unescape_key(key)) == key


def test_a_spec_can_be_changed(tmp_path):
    source = make(tmp_path / 'in', {f'{i}.{kind}': b'%d' % i for i in range(4) for kind in ('cls', 'txt')})
    done = bags.convert(source, tmp_path / 'out', spec={'cls': 'int(8)', 'txt': None})
    assert done.spec == {'__key__': 'utf8', 'cls': 'int(8)'}
    with bags.open(tmp_path / 'out') as dataset:
        np.testing.assert_array_equal(dataset.batch(range(4), 'cls')['cls'], range(4))
    with pytest.raises(bags.SpecError, match='nothing'):
        open_source(source, spec={'nothing': 'utf8'})


BAD = {
    'a.jpg': CAT[:-100],
    'b.jpg': b'',
    'c.png': CAT,
    'd.txt': b'\xff\xfe\x00',
    'e.json': b'{"a": ',
    'f.mp4': (DATA / 'bunny.mp4').read_bytes()[:-1000],
}


@pytest.mark.parametrize('name', BAD)
def test_a_damaged_file_is_named_or_skipped(name, tmp_path):
    kind = name.partition('.')[2]
    good = {'jpg': CAT, 'txt': b'x', 'json': b'1', 'mp4': (DATA / 'bunny.mp4').read_bytes(), 'png': None}[
        kind
    ]
    files = {name: BAD[name], '0.txt': b'zero'}
    if good is not None:
        files[f'z.{kind}'] = good
    source = make(tmp_path / 'in', files)
    with pytest.raises(bags.SourceError, match=name):
        bags.convert(source, tmp_path / 'raised')
    done = bags.convert(source, tmp_path / 'out', on_error='skip')
    assert [Path(file).name for file, _ in done.skipped] == [name]
    assert done.datapoints == len(files) - 1
    # An interrupted import resumes, also after a skipped file.
    (source / name).unlink()
    if good is not None:
        again = bags.convert(source, tmp_path / 'raised', resume=True, spec=None)
        assert again.datapoints == len(files) - 1


def test_bad_input(tmp_path):
    with pytest.raises(FileNotFoundError, match='nothing'):
        bags.convert(tmp_path / 'nothing', tmp_path / 'out')
    source = make(tmp_path / 'in', {'a.txt': b'1', 'b/a.txt': b'1'})
    with pytest.raises(ValueError, match='layout'):
        bags.convert(source, tmp_path / 'out', layout='other')
    with pytest.raises(ValueError, match='outside'):
        bags.convert(source, tmp_path / 'out', layout='classes')
    twice = make(tmp_path / 'twice', {'a.txt': b'1', 'a.TXT': b'1'})
    with pytest.raises(ValueError, match="field 'txt'"):
        bags.convert(twice, tmp_path / 'out')
    bags.convert(source, tmp_path / 'out')
    with pytest.raises(FileExistsError):
        bags.convert(source, tmp_path / 'out')


def test_resume_continues_after_the_last_datapoint(tmp_path):
    files = {f'{i:03}.txt': b'%d' % i for i in range(50)}
    source = make(tmp_path / 'in', files)
    (source / '030.txt').write_bytes(b'\xff')
    (source / '003.txt').write_bytes(b'\xff')
    with pytest.raises(bags.SourceError, match='003'):
        bags.convert(source, tmp_path / 'out', shard_length=7)
    (source / '003.txt').write_bytes(b'3')
    with pytest.raises(bags.SourceError, match='030'):
        bags.convert(source, tmp_path / 'out', shard_length=7, resume=True)
    done = bags.convert(source, tmp_path / 'out', shard_length=7, resume=True, on_error='skip')
    assert done.datapoints == 49
    with bags.open(tmp_path / 'out') as dataset:
        keys = dataset.batch(range(49), '__key__')['__key__']
    assert keys == [f'{i:03}' for i in range(50) if i != 30]


def test_resume_lists_files_before_the_last_datapoint_that_are_not_in_the_dataset(tmp_path):
    source = make(tmp_path / 'in', {f'{i}.txt': b'%d' % i for i in (1, 3, 5)})
    bags.convert(source, tmp_path / 'out')
    for name in ('0', '4', '6'):
        (source / f'{name}.txt').write_bytes(b'new')
    done = bags.convert(source, tmp_path / 'out', resume=True)
    reason = 'not in the dataset: left out before, or added since'
    assert [(Path(name).name, detail) for name, detail in done.skipped] == [('0', reason), ('4', reason)]
    with bags.open(tmp_path / 'out') as dataset:
        assert dataset.column('__key__') == ['1', '3', '5', '6']
    (source / '3.txt').unlink()
    with pytest.raises(bags.SourceError, match="expected a source that has its datapoint '3', to resume"):
        bags.convert(source, tmp_path / 'out', resume=True)


def test_dataset_as_source_is_refused(tmp_path):
    with bags.ShardedDatasetWriter(tmp_path / 'in', {'id': 'int'}) as writer:
        writer.append({'id': 1})
    with pytest.raises(ValueError, match=r'bags\.copy'):
        bags.convert(tmp_path / 'in', tmp_path / 'out')


def test_keys_outside_of_the_target_are_refused(tmp_path):
    for key in ('../x', '/x', 'a/../../x', '', 'a\\b', 'a//b'):
        folder = tmp_path / f'{random.random()}'
        with bags.DatasetWriter(folder, {'__key__': 'utf8', 'txt': 'utf8'}) as writer:
            writer.append({'__key__': key, 'txt': 'x'})
        with bags.open(folder) as dataset:
            for format in ('webdataset', 'files'):
                with pytest.raises(ValueError, match='relative name'):
                    bags.export(dataset, tmp_path / f'{random.random()}', format=format)


NAMES = st.text('ab1_-', min_size=1, max_size=3)


@settings(max_examples=25, deadline=None)
@given(
    st.dictionaries(st.tuples(NAMES, NAMES, st.sampled_from(['txt', 'bin', 'seg'])), st.binary(max_size=9))
)
def test_any_folder_round_trips(tmp_path_factory, files):
    root = tmp_path_factory.mktemp('any')
    named = {
        f'{a}/{b}.{kind}': data if kind != 'txt' else data.hex().encode()
        for (a, b, kind), data in files.items()
    }
    if not named:
        return
    make(root / 'in', named)
    bags.convert(root / 'in', root / 'out', layout='stems')
    with bags.open(root / 'out') as dataset:
        bags.export(dataset, root / 'files', format='files')
    assert tree(root / 'files') == named


def test_json_is_stored_unchanged(tmp_path):
    text = json.dumps({'b': [1, 2.50], 'a': 'ä'}, indent=3).encode()
    bags.convert(make(tmp_path / 'in', {'x.json': text}), tmp_path / 'out')
    with bags.open(tmp_path / 'out') as dataset:
        assert dataset.records('json')[0] == text


ODD = {
    'ä ö/日本 語.txt': b'1',
    'a::b.txt': b'2',
    "it's *[1] #%?~.txt": b'3',
    'v1.0/a.b.c.txt': b'4',
    'two\nlines.txt': b'5',
    'x' * 200 + '/' + 'y' * 240 + '.txt': b'6',
    'Makefile': b'7',
    'iris.data': b'8',
    'iris': b'9',
    'z.7z': b'',
    'f.odd extension': b'10',
    'end.': b'11',
}


def test_odd_names_round_trip(tmp_path):
    source = make(tmp_path / 'in[1]', ODD)
    bags.convert(source, tmp_path / 'out', layout='stems')
    with bags.open(tmp_path / 'out') as dataset:
        bags.export(dataset, tmp_path / 'files', format='files')
    assert tree(tmp_path / 'files') == ODD


def test_links_to_folders_are_not_followed(tmp_path):
    source = make(tmp_path / 'in', {'d/a.txt': b'a', 'd/.hidden.txt': b'h'})
    (source / 'loop').symlink_to(source)
    (source / 'b.txt').symlink_to(source / 'd' / 'a.txt')
    (source / 'gone.txt').symlink_to(source / 'nothing.txt')
    with pytest.raises(bags.SourceError, match='gone'):
        bags.convert(source, tmp_path / 'raised')
    done = bags.convert(source, tmp_path / 'out', on_error='skip')
    assert [Path(name).name for name, _ in done.skipped] == ['gone.txt']
    with bags.open(tmp_path / 'out') as dataset:
        assert dataset.batch(range(2), '__key__') == {'__key__': ['b', 'd/a']}


def test_json_that_could_not_be_decoded_is_damaged(tmp_path):
    files = {'a.json': b'\xef\xbb\xbf{}', 'b.json': '{}'.encode('utf-16'), 'c.json': b'{}'}
    done = bags.convert(make(tmp_path / 'in', files), tmp_path / 'out', on_error='skip')
    assert [Path(name).name for name, _ in done.skipped] == ['a.json', 'b.json']


def test_truncated_media_are_found(tmp_path, monkeypatch):
    samples = np.arange(9000, dtype=np.int16)[:, None]
    whole = {
        'a.jpg': CAT,
        'b.wav': bytes(bags.encoders['wav']((samples, 8000))),
        'c.mp4': (DATA / 'bunny.mp4').read_bytes(),
        'd.png': bytes(bags.encoders['png'](np.zeros((9, 9, 3), np.uint8))),
    }
    for most in (1 << 24, 1):  # Read as a whole, or streamed.
        monkeypatch.setattr('bags.interop.sources.files.folders.STREAMED_BYTES', most)
        for share in (0.02, 0.5, 0.999):
            for name, data in whole.items():
                source = make(tmp_path / f'{most}-{share}-{name}', {name: data[: int(len(data) * share)]})
                with pytest.raises(bags.SourceError, match=name):
                    bags.convert(source, tmp_path / f'out {source.name}')
        bags.convert(make(tmp_path / 'whole', whole), tmp_path / f'out {most}')


def test_key_field_is_required(tmp_path):
    source = make(tmp_path / 'in', {'a.txt': b''})
    with pytest.raises(bags.SpecError, match='resumed'):
        open_source(source, spec={'__key__': None})
    with pytest.raises(ValueError, match='another extension'):
        open_source(make(tmp_path / 'key', {'a.__key__': b''}))


def test_failed_export_removes_what_it_wrote(tmp_path):
    with bags.DatasetWriter(tmp_path / 'in', {'__key__': 'utf8', 'txt': 'utf8'}) as writer:
        for key in ('a', 'b', 'a'):
            writer.append({'__key__': key, 'txt': 'x'})
        writer.append({'__key__': '../a', 'txt': 'x'})
    with bags.open(tmp_path / 'in') as dataset:
        with pytest.raises(bags.SourceError, match="'a' twice"):
            bags.export(dataset, tmp_path / 'out', format='files')
        assert not tree(tmp_path / 'out')
        with pytest.raises(ValueError, match='relative name'):
            bags.export(dataset, tmp_path / 'out', shard_length=1)
        assert not tree(tmp_path / 'out')
        bags.export(dataset[:2], tmp_path / 'out')


def test_video_and_audio_get_the_extension_of_their_format(tmp_path):
    data = Path(__file__).parents[4] / 'examples/data'
    spec = {'film': 'video', 'mp4': 'video', 'takes': 'audio[]'}
    with bags.DatasetWriter(tmp_path / 'dataset', spec) as writer:
        takes = [data / 'austen-2.flac', data / 'austen-3.flac']
        writer.append({'film': data / 'bunny.mp4', 'mp4': data / 'bunny.mp4', 'takes': takes})
    with bags.open(tmp_path / 'dataset') as dataset:
        bags.export(dataset, tmp_path / 'out', format='files')
    found = {path.name: path.read_bytes() for path in (tmp_path / 'out').iterdir()}
    film = (data / 'bunny.mp4').read_bytes()
    assert json.loads(found.pop('metadata.json'))['__export__']['spec'] == spec
    assert found == {
        '000000000.film.mp4': film,
        '000000000.mp4': film,
        '000000000.takes.000000.flac': takes[0].read_bytes(),
        '000000000.takes.000001.flac': takes[1].read_bytes(),
    }


def mixed():
    """Images of several formats with their usual names, and a PNG that is named as a JPEG."""
    image = Image.open(DATA / 'cat.jpg').resize((40, 30))
    files = {}
    for name in ('jpg', 'jpeg', 'png', 'webp', 'gif', 'bmp', 'tiff'):
        stream = io.BytesIO()
        image.save(stream, {'jpg': 'jpeg'}.get(name, name))
        files[f'{name}.{name}'] = stream.getvalue()
    return files | {'wrong.JPG': files['png.png'], 'jpg.txt': b'a cat'}


@pytest.mark.parametrize('layout', ['stems', 'classes', 'files'])
def test_a_mixed_folder_is_one_field_of_images(layout, tmp_path):
    files = {f'cats/{name}': data for name, data in mixed().items()}
    done = bags.convert(make(tmp_path / 'in', files), tmp_path / 'out', layout=layout)
    assert done.spec['image'] == ('image?' if layout == 'files' else 'image')
    assert {*done.spec} <= {'__key__', '__extensions__', 'image', 'txt', 'label'}
    with bags.open(tmp_path / 'out') as dataset:
        shapes = [image.shape for image in dataset.batch(range(len(dataset)))['image'] if image is not None]
        assert shapes == [(30, 40, 3)] * 8
        for format in ('files', 'webdataset'):
            bags.export(dataset, tmp_path / format, format=format)
    assert tree(tmp_path / 'files') == files
    if layout != 'files':
        again = bags.convert(str(tmp_path / 'webdataset/*.tar'), tmp_path / 'again')
        assert (again.spec['image'], again.datapoints) == ('image', 8)
        with bags.open(tmp_path / 'again') as dataset:
            bags.export(dataset, tmp_path / 'files again', format='files', fields=['image', 'txt'])
        assert tree(tmp_path / 'files again') == files


def test_pictures_of_one_datapoint_stay_apart(tmp_path):
    files = mixed()
    pairs = {f'{number}.{name}': files[f'{name}.{name}'] for number in range(3) for name in ('jpg', 'png')}
    done = bags.convert(make(tmp_path / 'in', pairs | {'4.webp': files['webp.webp']}), tmp_path / 'out')
    assert done.spec == {'__key__': 'utf8', 'jpg': 'jpeg?', 'png': 'png?', 'webp': 'webp?'}


def test_a_png_that_is_called_a_jpeg(tmp_path):
    files = mixed()
    source = make(tmp_path / 'in', {'a.jpg': files['jpg.jpg'], 'b.jpg': files['png.png']})
    with pytest.raises(
        bags.SourceError, match=r"b\.jpg: expected JPEG, got PNG, which a field of type 'image' can hold"
    ):
        bags.convert(source, tmp_path / 'out')
    bags.convert(source, tmp_path / 'other', spec={'jpg': 'image'})
    with bags.open(tmp_path / 'other') as dataset:
        bags.export(dataset, tmp_path / 'files', format='files')
    exported = tree(tmp_path / 'files')
    assert json.loads(exported.pop('metadata.json'))['__export__']['spec']['jpg'] == 'image'
    assert exported == tree(source)
    with bags.DatasetWriter(tmp_path / 'mine', {'photo': 'image', 'few': 'image[]'}) as writer:
        writer.append({'photo': files['gif.gif'], 'few': [files['png.png'], files['bmp.bmp']]})
    bags.export(tmp_path / 'mine', tmp_path / 'named', format='files')
    assert {*tree(tmp_path / 'named')} == {
        '000000000.photo.gif', '000000000.few.000000.png', '000000000.few.000001.bmp', 'metadata.json',
    }  # fmt: skip


def test_sequences_of_numbers_become_one_array(tmp_path):
    spec = {
        'actions': 'float(4)[]', 'frames': 'array(uint8,2)[]?', 'odd': 'int(3)[]', 'png': 'png[]',
        'seg.png': 'png[]', 'views': 'png[]', 'words': 'utf8[]', 'blob': 'bytes[]', 'shapes': 'array[]',
    }  # fmt: skip
    image = np.zeros((4, 4, 3), np.uint8)
    lists = {
        'png': [image], 'seg.png': [image], 'views': [image], 'words': ['a', 'b'], 'blob': [b'1'],
        'shapes': [np.zeros(2)],
    }  # fmt: skip
    with bags.DatasetWriter(tmp_path / 'in', spec) as writer:
        writer.append({'actions': [0.5, 1.5], 'frames': np.zeros((3, 2), np.uint8), 'odd': [-1, 7], **lists})
        writer.append({'actions': [], 'odd': [], **{name: [] for name in lists}})
    bags.export(tmp_path / 'in', tmp_path / 'out', format='files')
    names = {name.removeprefix('000000000.') for name in tree(tmp_path / 'out') if name[8] == '0'}
    assert names == {
        'actions.npy', 'frames.npy', 'odd.npy', 'png.000000.png', 'seg.000000.png', 'views.000000.png',
        'words.000000.txt', 'words.000001.txt', 'blob.000000', 'shapes.000000.npy',
    }  # fmt: skip
    actions = np.load(tmp_path / 'out' / '000000000.actions.npy')
    assert (actions.dtype, actions.tolist()) == (np.float32, [0.5, 1.5])
    assert np.load(tmp_path / 'out' / '000000000.frames.npy').shape == (3, 2)
    assert np.load(tmp_path / 'out' / '000000000.odd.npy').tolist() == [-1, 7]
    assert np.load(tmp_path / 'out' / '000000001.actions.npy').shape == (0,)
    assert not (tmp_path / 'out' / '000000001.frames.npy').exists()  # The value is missing.


def test_a_field_names_the_exported_files(tmp_path):
    spec = {'id': 'int(8)', 'name': 'utf8', 'maybe': 'utf8?', 'txt': 'utf8', 'data': 'bytes'}
    with bags.DatasetWriter(tmp_path / 'in', spec) as writer:
        for index in range(3):
            writer.append({'id': 7 * index, 'name': f'n{index}/x', 'txt': 't', 'data': b''})
    bags.export(tmp_path / 'in', tmp_path / 'a', format='files', fields=('txt', 'id'), key='id')
    assert set(tree(tmp_path / 'a')) == {'0.txt', '7.txt', '14.txt', 'metadata.json'}
    bags.export(tmp_path / 'in', tmp_path / 'b', format='files', fields='txt', key='name')
    assert set(tree(tmp_path / 'b')) == {'n0/x.txt', 'n1/x.txt', 'n2/x.txt', 'metadata.json'}
    with pytest.raises(bags.SourceError, match="datapoint 0, field 'maybe': expected a name"):
        bags.export(tmp_path / 'in', tmp_path / 'c', key='maybe')
    with pytest.raises(bags.SourceError, match=r"datapoint 1, field 'txt': .* got 't' twice"):
        bags.export(tmp_path / 'in', tmp_path / 'c', key='txt')
    with pytest.raises(TypeError, match="'data' of type bytes"):
        bags.export(tmp_path / 'in', tmp_path / 'c', key='data')
    with pytest.raises(KeyError, match='nope'):
        bags.export(tmp_path / 'in', tmp_path / 'c', key='nope')


@pytest.mark.parametrize('form', ['csv', 'jsonl'])
def test_metadata_is_joined_to_its_files(tmp_path, form):
    rows = [
        {'file_name': f'{part}/{i}.jpg', 'text': f'a "{i}",\nß', 'class': i, 'score': i / 2, 'code': f'00{i}'}
        for part in 'ab'
        for i in range(3)
    ]
    rows[4]['text'] = None
    files = {f'{part}/{i}.jpg': CAT for part in 'ab' for i in range(4)}
    if form == 'csv':
        table = io.StringIO(newline='')
        writer = csv.DictWriter(table, rows[0])
        writer.writeheader()
        writer.writerows(rows)
        data = table.getvalue()
    else:
        for row in rows:
            row |= {'box': [1, {'x': row['class']}], 'ok': row['class'] > 1, 'number': '12'}
        data = ''.join(json.dumps(row) + '\n' for row in rows)
    source = make(tmp_path / 'in', files | {f'metadata.{form}': data.encode()})
    done = bags.convert(source, tmp_path / 'out')
    more = {'box': 'json?', 'ok': 'bool?', 'number': 'utf8?'} if form == 'jsonl' else {}
    assert done.spec == dict(sorted({
        '__key__': 'utf8', 'jpg': 'jpeg', 'label': 'utf8', 'text': 'utf8?', 'class': 'int(8)?',
        'score': 'float(8)?', 'code': 'utf8?', **more,
    }.items()))  # fmt: skip
    with bags.open(tmp_path / 'out') as dataset:
        found = {row['__key__'] + '.jpg': row for row in dataset}
    for row in rows:
        got = found.pop(row.pop('file_name'))
        assert {name: got[name] for name in row} == row
    assert all(row['class'] is row['text'] is None for row in found.values())
    assert len(found) == 2
    done = bags.convert(source, tmp_path / 'other', spec={'class': 'int(2)?', 'score': None})
    assert (done.spec['class'], 'score' in done.spec) == ('int(2)?', False)


NUMBERS = {
    'csv zeros': ('csv', ['7', '007'], 'utf8'),
    'csv plus': ('csv', ['5', '+4915112345'], 'utf8'),
    'csv wide': ('csv', ['1', '12345678901234567890'], 'utf8'),
    'csv wide and float': ('csv', ['1.5', '12345678901234567'], 'utf8'),
    'csv float': ('csv', ['1.10', '2'], 'float(8)'),
    'jsonl wide': ('jsonl', ['1', '12345678901234567890'], 'uint(8)'),
    'jsonl wider': ('jsonl', ['1', '123456789012345678901'], 'utf8'),
    'jsonl wide and float': ('jsonl', ['1.5', '12345678901234567'], 'utf8'),
    'jsonl float': ('jsonl', ['1.10', '2'], 'float(8)'),
}


@pytest.mark.parametrize('name', NUMBERS)
def test_numbers_in_metadata_keep_their_digits(tmp_path, name):
    form, texts, type = NUMBERS[name]
    rows = [f'{index}.txt,{text}' for index, text in enumerate(texts)]
    if form == 'jsonl':
        rows = [f'{{"file_name": "{index}.txt", "n": {text}}}' for index, text in enumerate(texts)]
    table = '\n'.join(['file_name,n'] * (form == 'csv') + rows)
    files = {f'{index}.txt': b'x' for index in range(2)}
    source = make(tmp_path / 'in', files | {f'metadata.{form}': table.encode()})
    done = bags.convert(source, tmp_path / 'out')
    assert done.spec['n'] == type
    parse = str if type == 'utf8' else float if type == 'float(8)' else int
    assert [row['n'] for row in bags.open(tmp_path / 'out')] == list(map(parse, texts))
    assert any("column 'n' is text" in note for note in done.notes) == (type == 'utf8')
    bags.convert(source, tmp_path / 'texts', spec={'n': 'utf8'})
    assert [row['n'] for row in bags.open(tmp_path / 'texts')] == texts


def test_json_in_metadata_is_read_as_it_is(tmp_path):
    values = ['"x"', '{"z":  1.50}', '7', 'true']
    rows = [f'{{"file_name": "{index}.txt", "v": {value}}}\n' for index, value in enumerate(values)]
    files = {f'{index}.txt': b'x' for index in range(4)}
    source = make(tmp_path / 'in', files | {'metadata.jsonl': ''.join(rows).encode()})
    assert bags.convert(source, tmp_path / 'out').spec['v'] == 'json'
    with bags.open(tmp_path / 'out', raw=True) as dataset:
        assert [bytes(row['v']).decode() for row in dataset] == values
    bags.convert(source, tmp_path / 'texts', spec={'v': 'utf8'})
    assert [row['v'] for row in bags.open(tmp_path / 'texts')] == ['x', *values[1:]]


def test_resume_reads_metadata_with_the_types_of_the_dataset(tmp_path):
    files = {f'{index}.txt': b'x' for index in range(3)}
    table = b'file_name,n\n0.txt,7\n1.txt,8\n2.txt,9\n'
    source = make(tmp_path / 'in', files | {'metadata.csv': table, '1.txt': b'\xff'})
    with pytest.raises(bags.SourceError, match='1'):
        bags.convert(source, tmp_path / 'out', spec={'n': 'utf8'})
    (source / '1.txt').write_bytes(b'x')
    done = bags.convert(source, tmp_path / 'out', resume=True)
    assert done.spec['n'] == 'utf8'
    assert [row['n'] for row in bags.open(tmp_path / 'out')] == ['7', '8', '9']


@pytest.mark.parametrize(
    ('table', 'data', 'wanted'),
    [
        ('csv', 'file_name,x\nnone.txt,1\n', "line 2: there is no file 'none.txt'"),
        ('csv', 'file_name,x\na.txt,1\na.txt,2\n', 'line 3: expected one row for each file'),
        ('csv', 'file_name,x\na.txt,1,2\n', 'line 2: expected a value for each column'),
        ('csv', 'file_name,x,x\na.txt,1,2\n', 'columns of different names'),
        ('csv', 'file_name,x\n,1\n', "line 2: expected the name of a file as 'file_name', got ''"),
        ('csv', 'file_name,txt\na.txt,1\n', "column 'txt' has the name of a field of files"),
        ('csv', 'file_name,__key__\na.txt,1\n', 'expected other names of columns'),
        ('csv', b'file_name,x\na.txt,\xff\n', "can't decode byte 0xff"),
        ('csv', 'file_name,x\n../a.txt,1\n', 'there is no file'),
        ('jsonl', '{"file_name": "a.txt"}\n[1]\n', 'line 2: expected a value for each column'),
        ('jsonl', '{"file_name": "a.txt"}\n{"x": 1}\n', 'line 2: expected the name of a file'),
        ('jsonl', '{"file_name": "a.txt"', 'metadata.jsonl: '),
        ('jsonl', '{"file_name": ["a.txt"]}', "expected the name of a file as 'file_name'"),
    ],
)
def test_bad_metadata_is_named(tmp_path, table, data, wanted):
    content = data if isinstance(data, bytes) else data.encode()
    source = make(tmp_path / 'in', {'a.txt': b'x', 'b.txt': b'x', f'metadata.{table}': content})
    with pytest.raises(bags.SourceError, match=re.escape(wanted)) as caught:
        open_source(source)
    assert f'metadata.{table}' in str(caught.value)


def test_metadata_without_file_names_is_a_file(tmp_path):
    source = make(tmp_path / 'in', {'a.txt': b'x', 'metadata.csv': b'time,x\n1,2\n', 'b/metadata.jsonl': b''})
    found = open_source(source)
    assert (found.count, found.spec['csv']) == (3, 'utf8?')


def test_all_that_cannot_be_imported_is_a_bags_error(tmp_path):
    """Damages files of every type that has a file format."""
    chance = random.Random(0)
    names = ('cat.jpg', 'bunny.mp4', 'austen-2.flac')
    files = {name.rpartition('.')[2]: (DATA / name).read_bytes() for name in names}
    table = io.BytesIO()
    np.save(table, np.zeros((3, 4)))
    files |= {'json': b'{"a": [1, 2, {"b": null}]}', 'txt': 'ß'.encode() * 9, 'npy': table.getvalue()}
    files['cls'] = b'12'
    types = {'npy': 'array', 'cls': 'int(8)'}
    for number in range(200):
        extension = chance.choice(sorted(files))
        content = bytearray(files[extension])
        place = chance.randrange(min(len(content), 400))
        if number % 2:
            del content[place:]
        else:
            content[place : place + 4] = chance.randbytes(4)
        source = make(tmp_path / str(number), {f'x.{extension}': bytes(content)})
        spec = {extension: types[extension]} if extension in types else None
        try:
            bags.convert(source, tmp_path / f'{number}.out', spec=spec)
        except bags.BagsError as exc:
            assert f'x.{extension}' in str(exc)  # noqa: PT017 - some changes do no harm


def test_arrays_are_read_while_another_thread_parses(tmp_path):
    """CPython 3.11 raises a SystemError if it runs during a garbage collection while a header is parsed."""
    table = io.BytesIO()
    np.save(table, np.arange(12.0).reshape(3, 4))
    source = make(tmp_path / 'in', {f'{number}.npy': table.getvalue() for number in range(20)})
    calls, threshold = itertools.count(), gc.get_threshold()

    def parse(phase, info):
        if next(calls) % 4 == 0:
            ast.parse('1')

    gc.callbacks.append(parse)
    try:
        gc.set_threshold(20)
        done = bags.convert(source, tmp_path / 'out', workers=1, progress=False)
    finally:
        gc.set_threshold(*threshold)
        gc.callbacks.remove(parse)
    assert done.datapoints == 20
    assert next(calls) > 20
    assert all(
        np.array_equal(row['npy'], np.arange(12.0).reshape(3, 4)) for row in bags.open(tmp_path / 'out')
    )


@pytest.mark.parametrize('format', ['files', 'webdataset'])
def test_metadata_of_a_dataset_are_exported_and_imported(format, tmp_path):
    facts = {'robot': 'arm 7', 'fields': {'photo': {'rate': 30, 'unit': 'px'}, 'txt': {'times': 'when'}}}
    with bags.DatasetWriter(
        tmp_path / 'x', {'txt': 'utf8', 'photo': 'bytes', 'when': 'float(8)[]'}
    ) as writer:
        writer.append({'txt': 'a', 'photo': b'x', 'when': [0.5]})
    bags.set_metadata(tmp_path / 'x', facts)
    bags.export(tmp_path / 'x', tmp_path / 'out', format=format, fields=['txt', 'photo'])
    exported = {'spec': {'photo': 'bytes', 'txt': 'utf8'}, 'key': ''}
    assert json.loads((tmp_path / 'out/metadata.json').read_text()) == {**facts, '__export__': exported}
    bags.convert(tmp_path / 'out', tmp_path / 'back')
    with bags.open(tmp_path / 'back') as dataset:
        assert len(dataset) == 1
        assert dataset.metadata['robot'] == 'arm 7'
        assert dataset.metadata['fields']['txt'] == {}
        assert dataset.metadata['fields']['photo'] == {'rate': 30, 'unit': 'px'}


def test_a_metadata_file_that_is_none(tmp_path):
    """A JSON list is a file of data; an object with invalid metadata is an error that names the key."""
    (tmp_path / 'in').mkdir()
    (tmp_path / 'in/a.txt').write_text('a')
    (tmp_path / 'in/metadata.json').write_text('[1]')
    assert bags.convert(tmp_path / 'in', tmp_path / 'x').datapoints == 2
    (tmp_path / 'in/metadata.json').write_text('{"fields": {"txt": {"rate": -1}}}')
    with pytest.raises(bags.SourceError, match=r"metadata.json: .*'txt': rate: expected items per second"):
        bags.convert(tmp_path / 'in', tmp_path / 'y')
    with bags.DatasetWriter(tmp_path / 'z', {'__key__': 'utf8', 'json': 'json'}) as writer:
        writer.append({'__key__': 'metadata', 'json': {'a': 1}})
    with pytest.raises(bags.SourceError, match='this file is for metadata'):
        bags.export(tmp_path / 'z', tmp_path / 'out', format='files')
    assert not list((tmp_path / 'out').iterdir())


def test_an_import_with_checksums(tmp_path):
    source = make(tmp_path / 'in', {f'{i}.txt': b'%d' % i for i in range(9)})
    bags.convert(source, tmp_path / 'out', checksum=True)
    with bags.open(tmp_path / 'out', checksum=True) as dataset:
        assert dataset.column('txt') == [str(i) for i in range(9)]


def test_media_of_less_common_extensions(tmp_path):
    """UCF11 is `.mpg`, and GTZAN `.au`."""
    folder = tmp_path / 'source'
    folder.mkdir()
    contents = {
        'mpg': film('mpeg1video', 10, 'mpeg'),
        'avi': film('mpeg4', 10, 'avi'),
        'flv': film('flv', 10, 'flv'),
        'wmv': film('wmv2', 10, 'asf'),
        'm2ts': film(count=10, format='mpegts', muxing={'mpegts_m2ts_mode': '1'}),
        'aiff': sound('pcm_s16be', 'aiff', seconds=0.1),
        'au': sound('pcm_s16be', 'au', seconds=0.1),
        'xyz': b'else',
    }
    for extension, content in contents.items():
        (folder / f'a.{extension}').write_bytes(content)
    written = bags.convert(folder, tmp_path / 'dataset')
    assert any('*.xyz are stored as bytes' in note for note in written.notes)
    with bags.open(tmp_path / 'dataset') as reader:
        for extension, content in contents.items():
            assert bytes(reader.records(extension)[0]) == content
        row = reader[0]
        for field in ('mpg', 'avi', 'flv', 'wmv', 'm2ts'):
            assert number_of(row[field][7]) == 7
        for field in ('aiff', 'au'):
            assert (row[field].rate, len(row[field])) == (44_100, 4410)
        assert row['xyz'] == b'else'
    assert bags.verify(tmp_path / 'dataset', decode=True) == []


@pytest.mark.parametrize('source', ['folder', 'tar', 'episodes'])
def test_a_ts_is_a_video_by_its_content(source, tmp_path):
    contents = {'ts': film(count=10, format='mpegts'), '3gp': film(count=10, format='3gp')}
    if source == 'episodes':
        for number, (end, data) in itertools.product(range(4), contents.items()):
            path = tmp_path / f'in/ep_{number // 2}/{end}_{number % 2}.{end}'
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        found = bags.convert(tmp_path / 'in', tmp_path / 'out')
        assert {found.spec['ts'], found.spec['_3gp']} == {'video[]'}
        return
    path = make(tmp_path / 'in', {f'a.{end}': data for end, data in contents.items()})
    if source == 'tar':
        with tarfile.open(tmp_path / 'in.tar', 'w') as tar:
            tar.add(path, '')
        path = tmp_path / 'in.tar'
    done = bags.convert(path, tmp_path / 'out')
    assert (done.spec, done.notes[1:]) == ({'_3gp': 'video', '__key__': 'utf8', 'ts': 'video'}, [])
    with bags.open(tmp_path / 'out') as dataset:
        assert [number_of(dataset[0][field][7]) for field in ('ts', '_3gp')] == [7, 7]
        bags.export(dataset, tmp_path / 'files', format='files')
    assert bags.convert(tmp_path / 'files', tmp_path / 'again').spec == done.spec
    with bags.open(tmp_path / 'again') as dataset:
        assert bytes(dataset.records('ts')[0]) == contents['ts']


def test_a_ts_of_typescript_stays_bytes_with_a_note(tmp_path):
    done = bags.convert(make(tmp_path / 'in', {'a.ts': b'export const a = 1;'}), tmp_path / 'out')
    assert done.spec['ts'] == 'bytes'
    _, note = done.notes
    assert "spec={'ts': 'video'}, or another type, sets their type" in note


def test_json_that_is_nested_too_deep_is_refused(tmp_path):
    (tmp_path / 'in').mkdir()
    (tmp_path / 'in/a.json').write_text('[' * 987 + ']' * 987)
    with pytest.raises(bags.SourceError, match=r'a\.json: expected up to 500 levels of nesting'):
        bags.convert(tmp_path / 'in', tmp_path / 'out')


def test_pages_of_ogg_are_compared_with_their_checksums(tmp_path):
    """Also without Opus, and if the last page is missing, as in a stream that was recorded."""
    whole, path = sound('flac', 'ogg'), tmp_path / 'in/0.ogg'
    path.parent.mkdir()
    last = whole.rindex(b'OggS')
    for data in (whole, whole[:last]):
        path.write_bytes(data)
        assert bags.convert(path.parent, tmp_path / 'out', mode='overwrite').spec['ogg'] == 'audio'
    for offset in (whole.index(b'FLAC'), len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:offset] + bytes([whole[offset] ^ 1]) + whole[offset + 1 :])
        with pytest.raises(bags.SourceError, match=r'0\.ogg: Ogg page at byte \d+ does not match'):
            bags.convert(path.parent, tmp_path / 'out', mode='overwrite')
    path.write_bytes(whole[:-5])
    with pytest.raises(bags.SourceError, match=rf'0\.ogg: Ogg is cut off after {len(whole) - 5} bytes'):
        bags.convert(path.parent, tmp_path / 'out', mode='overwrite')


def test_a_folder_of_recordings_is_one_field_of_audio(tmp_path):
    rate = np.zeros(8000, np.int16), 8000
    files = {
        'a.wav': encode_wav(rate),
        'b.flac': encode_flac(rate),
        'c.opus': encode_opus(rate),
        'a.txt': b'no',
    }
    done = bags.convert(make(tmp_path / 'in', files), tmp_path / 'out')
    assert (done.spec['audio'], done.spec['txt']) == ('audio', 'utf8?')
    with bags.open(tmp_path / 'out') as dataset:
        assert [audio.duration for audio in dataset.batch(range(3))['audio']] == [1.0] * 3
        bags.export(dataset, tmp_path / 'again', format='files')
    assert tree(tmp_path / 'again') == files
    assert bags.convert(tmp_path / 'again', tmp_path / 'twice').spec == done.spec
    spec = {'audio': 'audio(rate=16000)'}
    bags.convert(tmp_path / 'in', tmp_path / 'resampled', spec=spec)
    with bags.open(tmp_path / 'resampled') as dataset:
        assert [len(audio) for audio in dataset.batch(range(3))['audio']] == [16_000] * 3


def test_two_recordings_of_one_datapoint_stay_apart(tmp_path):
    rate = np.zeros(8000, np.int16), 8000
    files = {'a.wav': encode_wav(rate), 'a.flac': encode_flac(rate)}
    done = bags.convert(make(tmp_path / 'in', files), tmp_path / 'out')
    assert (done.spec['wav'], done.spec['flac']) == ('audio', 'audio')


def test_a_table_without_rows_is_named(tmp_path):
    source = make(tmp_path / 'in', {'a.txt': b'x', 'metadata.csv': b'file_name,x\n'})
    done = bags.convert(source, tmp_path / 'out')
    assert done.spec == {'__key__': 'utf8', 'txt': 'utf8'}
    assert any(note.endswith('in/metadata.csv: has no rows') for note in done.notes)


def test_a_table_of_files_that_are_left_out_is_named(tmp_path):
    files = {f'{folder}/{number}.{folder}': b'1' for folder in ('txt', 'bin') for number in range(3)}
    table = {'other/x.txt': b'x', 'other/metadata.csv': b'file_name,score\nx.txt,1\n'}
    source = make(tmp_path / 'in', files | table)
    done = bags.convert(source, tmp_path / 'out', layout='fields')
    assert done.spec == {'__key__': 'utf8', 'bin': 'bytes', 'txt': 'utf8'}
    assert done.notes[0].endswith("2 left out: 'other/metadata.csv', 'other/x.txt'")
