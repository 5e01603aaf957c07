"""What an import takes files for: it says so, and raises where another layout would complete datapoints."""

import os
import re
import tarfile
import tracemalloc
import zipfile

import numpy as np
import pytest

import bags
from bags.interop.open_source import open_source
from tests.interop.sources.files.test_folders import CAT, DATA, make

PNG = bytes(bags.encoders['png'](np.zeros((4, 4, 3), np.uint8)))
FLAC = (DATA / 'austen-2.flac').read_bytes()


def named(*patterns, count=3, content=b'x'):
    """Returns files of names with `{}` for a number."""
    contents = {'jpg': CAT, 'png': PNG, 'flac': FLAC}
    return {
        pattern.format(*[number] * pattern.count('{')): contents.get(pattern.rpartition('.')[2], content)
        for pattern in patterns
        for number in range(count)
    }


def pack(folder, path):
    """Writes the files of a folder into a zip or a tar, sorted by name."""
    path.parent.mkdir(exist_ok=True)
    names = sorted(str(each.relative_to(folder)) for each in folder.rglob('*') if each.is_file())
    if path.suffix == '.zip':
        with zipfile.ZipFile(path, 'w', zipfile.ZIP_DEFLATED) as archive:
            for name in names:
                archive.write(folder / name, name)
    else:
        with tarfile.open(path, 'w:gz' if path.suffix == '.gz' else 'w') as archive:
            for name in names:
                archive.add(folder / name, name)
    return path


HALVES = {
    'two types': (named('audio/{}.flac', 'text/{}.txt'), {'audio': 'audio', 'text': 'utf8'}),
    'other names': (named('a/{}.flac', 'b/{}.txt'), {'a': 'audio', 'b': 'utf8'}),
    'splits': (
        named('train/a/{}.flac', 'train/b/{}.txt', 'val/a/{}.flac', 'val/b/{}.txt'),
        {'a': 'audio', 'b': 'utf8'},
    ),
    'splits below': (named('a/train/{}.flac', 'b/train/{}.txt'), {'a': 'audio', 'b': 'utf8'}),
    'a folder around': (named('data/a/{}.flac', 'data/b/{}.txt'), {'a': 'audio', 'b': 'utf8'}),
    'one lacks some': (
        named('a/{}.flac', count=6) | named('b/{}.txt', count=2),
        {'a': 'audio', 'b': 'utf8?'},
    ),
    'masks': (named('images/{}.png', 'masks/{}.png'), {'images': 'png', 'masks': 'png'}),
    'cameras': (named('left/{}.jpg', 'right/{}.jpg'), {'left': 'jpeg', 'right': 'jpeg'}),
    'of VOC': (
        named('JPEGImages/{}.jpg', 'Annotations/{}.xml') | {'ImageSets/Main/train.txt': b'0'},
        {'Annotations': 'utf8', 'JPEGImages': 'jpeg'},
    ),
    'of KITTI': (
        named('training/image_2/{}.png', 'training/label_2/{}.txt', 'training/calib/{}.txt'),
        {'calib': 'utf8', 'image_2': 'png', 'label_2': 'utf8'},
    ),
    'beside': (named('{}.jpg', 'captions/{}.txt'), {'captions': 'utf8', 'jpg': 'jpeg'}),
    'beside, of any name': (named('{}.jpg', 'x/{}.txt'), {'jpg': 'jpeg', 'x': 'utf8'}),
    'several files of a name': (
        named('audio/{}.flac', 'audio/{}.json', 'text/{}.txt', content=b'1'),
        {'audio.flac': 'audio', 'audio.json': 'json', 'text': 'utf8'},
    ),
    'several formats': (
        named('images/{}.jpg') | named('images/1{}.png', 'masks/1{}.png', 'masks/{}.png'),
        {'images': 'image', 'masks': 'png'},
    ),
}  # fmt: skip


@pytest.mark.parametrize('name', HALVES)
def test_folders_that_would_be_rows_in_halves(name, tmp_path):
    files, fields = HALVES[name]
    source = make(tmp_path / 'in', files)
    with pytest.raises(
        bags.SourceError, match=r"several ways.*: layout='fields': \d+ datapoints, .*; layout='"
    ):
        bags.convert(source, tmp_path / 'out')
    assert not (tmp_path / 'out').exists()
    done = bags.convert(source, tmp_path / 'out', layout='fields')
    assert done.spec == {'__key__': 'utf8', **fields}
    assert done.notes[0].startswith(
        f'read as fields: {done.datapoints} datapoints, a folder, prefix or suffix for each field'
    )
    assert bags.convert(source, tmp_path / 'stems', layout='stems').datapoints > done.datapoints


def test_the_numbers_of_datapoints_in_the_error(tmp_path):
    """Layouts that the user gives have documents too."""
    files = named('{}.flac', 'text/{}.txt') | {'README.md': b'x', 'sha1sum.txt': b'x'}
    source = make(tmp_path / 'in', files)
    with pytest.raises(bags.SourceError, match='several ways') as raised:
        bags.convert(source, tmp_path / 'out')
    counts = dict(re.findall(r"layout='(\w+)': (\d+) datapoints", str(raised.value)))
    assert counts.keys() == {'fields', 'stems'}
    for layout, count in counts.items():
        assert bags.convert(source, tmp_path / layout, layout=layout).datapoints == int(count)


COMPLETE = {
    'classes': (named('cats/{}.jpg', 'dogs/{}.jpg'), 'classes', 6),
    'classes of several formats': (named('cats/{}.jpg', 'dogs/{}.png'), 'classes', 6),
    'classes with sidecars': (named('cats/{}.jpg', 'cats/{}.txt', 'dogs/{}.jpg'), 'classes', 6),
    'photos of which some lack a caption': (named('{}.jpg', count=5) | {'1.txt': b'x'}, 'stems', 5),
    'classes of which one has captions': (named('cats/{}.jpg', 'cats/{}.txt', 'dogs/9{}.jpg'), 'classes', 6),
    'splits': (named('train/{}.jpg', 'train/{}.txt', 'val/{}.jpg', 'val/{}.txt'), 'classes', 6),
    'splits of classes': (
        named('train/a/{}.jpg', 'train/b/{}.jpg', 'val/a/{}.jpg', 'val/b/{}.jpg'),
        'stems', 12,
    ),
    'thumbnails': (named('{}.jpg', 'small/{}.jpg'), 'stems', 6),
    'a text below': (named('{}.jpg', count=9) | {'notes/3.txt': b'x'}, 'stems', 10),
    'other stems': (named('audio/a{}.flac', 'text/b{}.txt'), 'classes', 6),
    'episodes': (
        named('ep_0/rgb/{}.png', 'ep_0/depth/{}.png', 'ep_1/rgb/{}.png', 'ep_1/depth/{}.png'),
        'episodes', 2,
    ),
    'videos': (named('video_1/frame_{}.jpg', 'video_2/frame_{}.jpg'), 'episodes', 2),
    'frames with texts': (named('ep_0/{}.jpg', 'ep_0/{}.txt', 'ep_1/{}.jpg', 'ep_1/{}.txt'), 'episodes', 2),
    'speakers': (
        named('1089/utt{}.flac', '1089/utt{}.TextGrid', '121/utt{}.flac', '121/utt{}.TextGrid'),
        'classes', 6,
    ),
    'other speakers': (named('spk_1/{}.flac', 'spk_1/{}.txt', 'spk_2/{}.flac', 'spk_2/{}.txt'), 'classes', 6),
    'sessions': (
        named('session_1/{}.flac', 'session_1/{}.txt', 'session_2/{}.flac', 'session_2/{}.txt'),
        'classes', 6,
    ),
    'digits, numbered over all classes': (
        {f'{(7 * n + n // 9) % 10}/{n}.png': PNG for n in range(60)},
        'classes', 60,
    ),
    'two classes with numbers': ({f'{n * n % 5 % 2}/{n:05}.jpg': CAT for n in range(20)}, 'classes', 20),
    'digits of cameras': (
        {f'{digit}/IMG_{1000 + 37 * n * n % 911 + digit}.jpg': CAT for digit in range(5) for n in range(8)},
        'classes', 40,
    ),
    'frames of recordings with numbers': (
        {f'{recording}/{n}.png': PNG for recording in range(3) for n in range(5 + recording)},
        'episodes', 3,
    ),
    'frames with gaps': (
        {f'{recording}/{5 * n:04}.png': PNG for recording in range(3) for n in range(9) if n != 4},
        'episodes', 3,
    ),
    'frames numbered on': ({f'{n // 10}/{n}.png': PNG for n in range(30)}, 'episodes', 3),
    'frames with times': (
        {f'{n // 9}/{1690000000000 + 33 * n + n * n % 7}.png': PNG for n in range(27)},
        'episodes', 3,
    ),
    'speakers and chapters': (named('19/1/19-1-{}.flac', '26/2/26-2-{}.flac'), 'stems', 6),
    'shards of img2dataset': (
        named('00000/0{}.jpg', '00000/0{}.json', '00001/1{}.jpg', '00001/1{}.json'),
        'classes', 6,
    ),
}  # fmt: skip


@pytest.mark.parametrize('name', COMPLETE)
def test_folders_with_one_reading(name, tmp_path):
    files, layout, count = COMPLETE[name]
    found = open_source(make(tmp_path / 'in', files))
    assert (found.layout, found.count) == (layout, count)
    assert found.notes[0].startswith(f'read as {layout}: {count} datapoints, ')


def test_speakers_are_labels_of_their_utterances(tmp_path):
    names = [
        f'{speaker}/{speaker}_{{}}.{kind}' for speaker in range(200, 208) for kind in ('flac', 'TextGrid')
    ]
    files = named(*names, count=25)
    done = bags.convert(make(tmp_path / 'in', files), tmp_path / 'out')
    assert done.datapoints == 200
    with bags.open(tmp_path / 'out') as dataset:
        assert dataset.column('label')[::25] == [str(speaker) for speaker in range(200, 208)]
        assert {'flac', 'textgrid'} <= dataset.spec.keys()


TABLES = {
    'labels.csv': b'file,label\na/0.jpg,cat\na/1.jpg,dog\n',
    'train.csv': b'label,path\ncat,/home/me/a/0.jpg\ndog,/home/me/a/1.jpg\n',
    'x.tsv': b'label\timage\ncat\t0.jpg\ndog\t1.jpg\n',
    'metadata.csv': b'filename;label\n0.jpg;cat\n1.jpg;dog\n',
    'a/labels.csv': b'photo,label\n0.jpg,cat\n1.jpg,dog\n',
    'ids.csv': b'id,label\n0,cat\n1,dog\n',
    'columns.csv': b'file,0,1,label\n0.jpg,5,6,cat\n1.jpg,7,8,dog\n',
    'x.jsonl': b'{"image": "a/0.jpg", "label": "cat"}\n{"image": "a/1.jpg", "label": "dog"}\n',
    'x.csv': b'image_file|label\n0.jpg|cat\n1.jpg|dog\n',
}


@pytest.mark.parametrize('name', TABLES)
def test_tables_with_names_of_files(name, tmp_path):
    source = make(tmp_path / 'in', named('a/{}.jpg') | {name: TABLES[name]})
    done = bags.convert(source, tmp_path / 'out')
    assert done.notes == ['read as tables: 3 datapoints, files with the columns of tables that name them']
    with bags.open(tmp_path / 'out') as dataset:
        assert dataset.column('__key__') == ['a/0', 'a/1', 'a/2']
        assert dataset.column('label') == ['cat', 'dog', None]
        assert ('id' in dataset.spec) == (name == 'ids.csv')
    assert bags.convert(source, tmp_path / 'stems', layout='stems').datapoints == 4


NO_TABLES = {
    'labels.csv': (b'a,b\n1,2\n0,1\n2,0\n', 'no column has names of files'),
    'x.csv': (b'label\n0\n1\n2\n', 'no column has names of files'),
    'empty.csv': (b'', 'no column has names of files'),
    'header.csv': (b'file,label\n', 'no column has names of files'),
    'other.csv': (b'file,label\nx.jpg,1\ny.jpg,2\n0.jpg,3\n', 'no column has names of files'),
    'boxes.csv': (
        b'file,x,y\n0.jpg,1,2\n0.jpg,3,4\n',
        "several rows have the same file in the column 'file'",
    ),
    'ragged.csv': (b'file,label\n0.jpg,1,2\n1.jpg,2\n', 'expected a value for each column'),
    'latin.csv': ('file,label\n0.jpg,Ä\n'.encode('latin-1'), "'utf-8' codec can't decode"),
    'x.jsonl': (b'[1]\n[2]\n', 'expected a value for each column'),
    'names.csv': (
        b'0.jpg,cat\n1.jpg,dog\n2.jpg,cow\n',
        "expected the names of its columns in the first line, got the file '0.jpg'",
    ),
    'paths.tsv': (b'cat\t./0.jpg\ndog\t./1.jpg\n', "in the first line, got the file './0.jpg'"),
    'stems.csv': (b'0|Printing\n1|In being\n', "in the first line, got the file '0'"),
}


@pytest.mark.parametrize('name', NO_TABLES)
def test_tables_without_names_of_files_stay_files(name, tmp_path):
    content, reason = NO_TABLES[name]
    found = open_source(make(tmp_path / 'in', named('{}.jpg') | {name: content}))
    assert (found.layout, found.count) == ('stems', 4)
    (note,) = (note for note in found.notes if note.startswith(f'{tmp_path}/in/{name}'))
    assert 'is not joined to the files beside it: ' in note
    assert reason in note
    with pytest.raises(bags.SourceError, match='is not joined to the files beside it'):
        open_source(tmp_path / 'in', layout='tables')


def test_why_a_table_beside_folders_of_classes_is_left_out(tmp_path):
    tables = {'labels.csv': b'cats/0.jpg,1\ncats/1.jpg,2\n'}
    found = open_source(make(tmp_path / 'in', named('cats/{}.jpg', 'dogs/{}.jpg') | tables))
    assert (found.layout, found.count) == ('classes', 6)
    assert found.notes[0].endswith("1 left out: 'labels.csv'")
    assert 'the names of its columns in the first line' in found.notes[1]


def test_numbers_of_classes_are_no_names_of_files(tmp_path):
    """`classes.csv` is about the classes 0 to 2, not about the first three of many photos."""
    classes = {'classes.csv': b'id,name\n0,cat\n1,dog\n2,cow\n'}
    found = open_source(make(tmp_path / 'in', named('photos/{}.jpg', count=50) | classes))
    assert (found.layout, found.count) == ('stems', 51)
    assert "the numbers in the column 'id' are the names of few files" in '; '.join(found.notes)
    some = open_source(make(tmp_path / 'some', named('photos/{}.jpg', count=10) | classes))
    assert (some.layout, some.spec['name']) == ('tables', 'utf8?')


@pytest.mark.parametrize('above', ['', 'train_data/'])
def test_tables_of_folders_with_files_of_the_same_names(above, tmp_path):
    tables = {
        f'{above}train.csv': b'id,label\n0,cat\n1,dog\n2,cow\n',
        f'{above}test.csv': b'id,label\n0,ant\n1,bee\n2,fly\n',
    }
    source = make(tmp_path / 'in', named(f'{above}train/{{}}.jpg', f'{above}test/{{}}.jpg') | tables)
    bags.convert(source, tmp_path / 'out')
    with bags.open(tmp_path / 'out') as dataset:
        assert dataset.column('__key__')[::3] == [f'{above}test/0', f'{above}train/0']
        assert dataset.column('label') == ['ant', 'bee', 'fly', 'cat', 'dog', 'cow']


def test_rows_of_a_table_without_a_file_are_said(tmp_path):
    content = b'file,label\n0.jpg,cat\n1.jpg,dog\ngone.jpg,cow\n'
    found = open_source(make(tmp_path / 'in', named('{}.jpg') | {'labels.csv': content}))
    assert (found.layout, found.count) == ('tables', 3)
    note = f"{tmp_path}/in/labels.csv: rows are left out, as there is no file 'gone.jpg'"
    assert found.notes[1:] == [note]


def test_several_tables(tmp_path):
    tables = {
        'dev.tsv': b'path\tx\n0.jpg\t5\n',
        'train.tsv': b'path\tx\n1.jpg\t6\n2.jpg\t7\n',
        'validated.tsv': b'path\tx\n0.jpg\t5\n1.jpg\t6\n',
    }
    found = open_source(make(tmp_path / 'in', named('clips/{}.jpg') | tables))
    assert (found.layout, found.spec['x']) == ('tables', 'int(8)?')
    reason = "is not joined to the files beside it: another table has rows of 'clips/0.jpg' and 1 more too"
    assert f'{tmp_path}/in/validated.tsv: {reason}' in found.notes


def test_every_layout_that_fits(tmp_path):
    source = make(tmp_path / 'in', named('cats/{}.jpg', 'cats/{}.txt', 'dogs/{}.jpg'))
    assert open_source(source).readings() == [('classes', 6), ('files', 9), ('stems', 6), ('episodes', 2)]
    for layout, count in open_source(source).readings():
        found = open_source(source, layout=layout)
        assert (found.count, found.readings()[0]) == (count, ('classes', 6))


def test_layouts_that_the_files_do_not_have(tmp_path):
    source = make(tmp_path / 'in', named('cats/{}.jpg', 'dogs/{}.jpg'))
    for layout in ('fields', 'coco', 'yolo', 'tables'):
        with pytest.raises(bags.SourceError, match='expected '):
            open_source(source, layout=layout)


@pytest.mark.parametrize('has_log', [True, False])
@pytest.mark.parametrize('layout', ['files', 'stems', 'classes', 'fields', 'tables'])
def test_a_resume_keeps_the_layout_of_the_first_run(layout, has_log, tmp_path):
    files = named('audio/{}.flac', 'text/{}.txt') | {'labels.csv': b'file,label\naudio/0.flac,a\n'}
    if layout == 'classes':
        del files['labels.csv']
    source = make(tmp_path / 'in', files | {'text/2.txt': b'\xff'})
    with pytest.raises(bags.SourceError, match=r'text/2\.txt'):
        bags.convert(source, tmp_path / 'out', layout=layout)
    with bags.open(tmp_path / 'out') as dataset:
        assert 1 < len(dataset) < 9
    if not has_log:  # As in datasets of earlier versions.
        (tmp_path / 'out' / 'progress.json').unlink()
        if layout == 'files':
            pytest.skip('its fields are those of `stems`')
    (source / 'text/2.txt').write_bytes(b'x')
    done = bags.convert(source, tmp_path / 'out', resume=True)
    expected = bags.convert(source, tmp_path / 'new', layout=layout)
    assert (done.datapoints, done.spec) == (expected.datapoints, expected.spec)
    with bags.open(tmp_path / 'out') as dataset, bags.open(tmp_path / 'new') as new:
        assert dataset.column('__key__') == new.column('__key__')


@pytest.mark.parametrize(
    'strays', [named('{}.jpg', count=5), named('{}.txt', count=20)], ids=['media', 'texts']
)
@pytest.mark.parametrize('layout', [None, 'classes', 'episodes'])
@pytest.mark.parametrize('option', ['resume', 'update'])
def test_strays_that_come_later_are_left_out(option, layout, strays, tmp_path):
    folder = 'ep_{}' if layout == 'episodes' else 'cat{}x'
    source = make(tmp_path / 'in', named(f'{folder}/1.jpg', f'{folder}/2.jpg') | {'notes.txt': b'x'})
    is_linked = option == 'update'
    first = bags.convert(source, tmp_path / 'out', layout=layout, link=is_linked)
    make(source, strays)
    done = bags.convert(source, tmp_path / 'out', link=is_linked, **{option: True})
    assert (done.datapoints, done.spec) == (first.datapoints, first.spec)
    assert re.search(r"left out: .*'0\.(jpg|txt)'", done.notes[0])


def test_an_update_keeps_the_layout_when_the_files_suggest_another_one(tmp_path):
    source = make(tmp_path / 'in', named('cats/{}.jpg'))
    assert bags.convert(source, tmp_path / 'out', link=True).spec.keys() == {'__key__', 'jpg'}
    make(source, named('dogs/{}.jpg'))
    assert open_source(source).layout == 'classes'
    done = bags.convert(source, tmp_path / 'out', link=True, update=True)
    assert (done.datapoints, done.spec) == (6, {'__key__': 'utf8', 'jpg': 'jpeg'})


@pytest.mark.parametrize('form', ['folder', 'zip', 'zips', 'tar', 'tar.gz'])
@pytest.mark.parametrize('name', ['metadata.csv', 'metadata.jsonl'])
def test_metadata_tables_that_are_too_large(name, form, tmp_path, monkeypatch):
    rows = {
        'metadata.csv': b'file_name,x\n0.txt,1\n1.txt,2\n',
        'metadata.jsonl': b'{"file_name": "0.txt", "x": 1}\n{"file_name": "1.txt", "x": 2}\n',
    }[name]
    source = make(tmp_path / 'in', {'0.txt': b'a', '1.txt': b'b', name: rows})
    if form != 'folder':
        source = pack(source, tmp_path / f'packed/in.{form.removesuffix("s")}')
    source = source.parent if form == 'zips' else source
    monkeypatch.setattr('bags.interop.sources.files.file_metadata.MAX_BYTES', len(rows) + 1)
    assert open_source(source).spec['x'] == 'int(8)'
    monkeypatch.setattr('bags.interop.sources.files.file_metadata.MAX_BYTES', len(rows))
    match = rf'{name}: expected less than {len(rows)} bytes, got {len(rows)}'
    with pytest.raises(bags.SourceError, match=match):
        open_source(source)


def test_a_sparse_metadata_table_is_not_read(tmp_path):
    source = make(tmp_path / 'in', {'0.txt': b'a', 'metadata.csv': b'file_name,x\n0.txt,1\n'})
    os.truncate(source / 'metadata.csv', 1 << 33)
    tracemalloc.start()
    with pytest.raises(
        bags.SourceError, match=r'metadata\.csv: expected less than 2,147,483,648 bytes, got 8,5'
    ):
        open_source(source)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1 << 24


def test_another_table_that_is_too_large_is_a_file(tmp_path):
    source = make(tmp_path / 'in', named('{}.jpg') | {'labels.csv': b'file,x\n0.jpg,1\n1.jpg,2\n'})
    assert open_source(source).layout == 'tables'
    os.truncate(source / 'labels.csv', 1 << 33)
    found = open_source(source)
    assert found.layout == 'stems'
    assert any(
        'labels.csv: is not joined to the files beside it: expected less' in note for note in found.notes
    )
