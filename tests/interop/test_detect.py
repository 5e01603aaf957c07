"""Detection of the format of a folder: other files beside those of a format never change it."""

import io
import tarfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zarr
from rosbags.rosbag2 import CompressionFormat, CompressionMode, StoragePlugin, Writer
from rosbags.typesys import Stores, get_typestore

import bags
from bags.interop.open_source import open_source

GOLDEN = Path(__file__).parent / 'sources' / 'golden'
PICTURE = (Path(__file__).parents[2] / 'examples' / 'data' / 'cat.jpg').read_bytes()
STORE = get_typestore(Stores.ROS2_HUMBLE)


def tar(path, names=('0.txt', '1.txt')):
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, 'w') as file:
        for name in names:
            member = tarfile.TarInfo(name)
            member.size = 1
            file.addfile(member, io.BytesIO(b'x'))


def parquet(path, values=(1, 2)):
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({'id': list(values)}), path)


def npz(path):
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez(path, x=np.arange(3))


def group(path, version=3):
    root = zarr.open_group(path, mode='w', zarr_format=version)
    root.create_array('x', data=np.arange(5))


def recording(path, plugin=StoragePlugin.MCAP, mode=None):
    path.parent.mkdir(parents=True, exist_ok=True)
    kind = STORE.types['std_msgs/msg/Float64']
    writer = Writer(path, version=9, storage_plugin=plugin)
    if mode is not None:
        writer.set_compression(mode, CompressionFormat.ZSTD)
    with writer:
        connection = writer.add_connection('/x', kind.__msgtype__, typestore=STORE)
        writer.write(connection, 1, STORE.serialize_cdr(kind(data=1.0), kind.__msgtype__))


def copy_of(name, root):
    root.mkdir(parents=True)
    for path in (GOLDEN / name).rglob('*'):
        if path.is_file():
            target = root / path.relative_to(GOLDEN / name)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(path.read_bytes())


SAMPLES = {
    'tars': (lambda root: [tar(root / f'{i}.tar', (f'{i}.txt',)) for i in range(2)], 'webdataset', 2),
    'tars below': (lambda root: tar(root / 'data/train/0.tar'), 'webdataset', 2),
    'parquet': (lambda root: [parquet(root / f'train-{i}.parquet', [i]) for i in range(2)], 'parquet', 2),
    'npz': (lambda root: [npz(root / f'{i}.npz') for i in range(2)], 'npz', 2),
    'hdf5': (lambda root: copy_of('aloha', root), 'hdf5', 3),
    'mds': (lambda root: copy_of('mds', root), 'mds', 4),
    'mds below': (lambda root: copy_of('mds', root / 'train'), 'mds', 4),
    'litdata': (lambda root: copy_of('litdata', root), 'litdata', None),
    'saved': (lambda root: copy_of('hf/saved', root), 'arrow', None),
    'tfds': (lambda root: copy_of('tfds', root), 'tfds', None),
    'lerobot': (lambda root: copy_of('lerobot_v3', root), 'lerobot', None),
    'lerobot below': (lambda root: copy_of('lerobot_v2', root / 'robot'), 'lerobot', None),
    'zarr': (lambda root: group(root / 'a.zarr'), 'zarr', 1),
    'zarr 2': (lambda root: [group(root / f'{i}.zarr', 2) for i in range(2)], 'zarr', 2),
    'zarr of another name below': (lambda root: group(root / 'replay'), 'zarr', 1),
    'mcap': (lambda root: recording(root / 'run'), 'mcap', 1),
    'runs': (lambda root: [recording(root / f'run_{i}', StoragePlugin.SQLITE3) for i in range(2)], 'mcap', 2),
    'file compression': (
        lambda root: recording(root / 'run', mode=CompressionMode.FILE), 'mcap', 1
    ),
    'file compression of SQLite': (
        lambda root: recording(root / 'run', StoragePlugin.SQLITE3, CompressionMode.FILE), 'mcap', 1
    ),
}  # fmt: skip
BYSTANDERS = {
    'README.md': b'# Data', 'LICENSE': b'MIT', 'notes.txt': b'x', 'stats.csv': b'a,b\n1,2\n',
    'logo.png': PICTURE, '.gitattributes': b'*.tar', '.DS_Store': b'x', '._0.tar': b'x', 'Thumbs.db': b'x',
    'dataset_infos.json': b'{}', '__MACOSX/._a.tar': b'x', 'SHA256SUMS': b'x', 'checksums.md5': b'x',
    '.cache/huggingface/download/0.tar.metadata': b'x', '.cache/huggingface/index.json': b'{}',
    '3.jpg~': PICTURE, '#notes.txt#': b'x', 'notes.txt.swp': b'x', '~$notes.docx': b'x',
    '_SUCCESS': b'', '0.tar.part': b'x', 'x.parquet.tmp': b'x', 'shard.mds.sha256': b'x',
    'extra.tfrecord.crc': b'x', 'load.py': b'import os',
}  # fmt: skip


@pytest.mark.parametrize('sample', SAMPLES)
def test_bystanders_do_not_change_the_format(sample, tmp_path):
    make, format, count = SAMPLES[sample]
    make(tmp_path / 'in')
    plain = open_source(tmp_path / 'in')
    for name, data in BYSTANDERS.items():
        (tmp_path / 'in' / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / 'in' / name).write_bytes(data)
    found = open_source(tmp_path / 'in')
    assert (found.format, found.spec, found.count) == (format, plain.spec, plain.count)
    assert count in (None, found.count)
    (note,) = (note for note in found.notes if note.startswith(('left out: ', 'read as ')))
    assert "'.DS_Store'" in note
    rows = bags.convert(tmp_path / 'in', tmp_path / 'out').datapoints
    assert rows == found.count


@pytest.mark.parametrize('version', [2, 3])
def test_a_zarr_group_of_another_name(version, tmp_path):
    group(tmp_path, version)
    assert (open_source(tmp_path).format, open_source(tmp_path).notes) == ('zarr', [])


def test_parquet_of_spark_and_of_dask(tmp_path):
    parquet(tmp_path / 'x.parquet/part-0.parquet')
    parquet(tmp_path / 'x.parquet/_metadata')
    parquet(tmp_path / 'x.parquet/_common_metadata')
    parquet(tmp_path / 'x.parquet/_temporary/0.parquet')
    found = open_source(tmp_path / 'x.parquet')
    assert (found.format, found.count) == ('parquet', 2)
    assert any("'_metadata'" in note for note in found.notes)


@pytest.mark.parametrize(
    'log', ['_delta_log/00000000000000000000.json', 'metadata/v1.metadata.json', '.hoodie/x']
)
def test_tables_whose_log_may_delete_files_are_refused(log, tmp_path):
    parquet(tmp_path / 'data/a.parquet')
    (tmp_path / log).parent.mkdir()
    (tmp_path / log).write_text('{}')
    with pytest.raises(bags.SourceError, match=r"is a table with the log .*format='parquet' takes all files"):
        open_source(tmp_path)
    assert open_source(tmp_path, format='parquet').count == 2


def test_files_of_editors_are_no_datapoints(tmp_path):
    left = [
        '3.jpg~',
        '3.jpg.~1~',
        '#3.jpg#',
        '3.swp',
        '.3.jpg.swp',
        '~$3.docx',
        'cats/3.jpg~',
        '3.jpg.bak',
        'cats/3.txt.orig',
    ]
    (tmp_path / 'cats').mkdir()
    for name in ('3.jpg', 'cats/3.jpg', *left):
        (tmp_path / name).write_bytes(PICTURE)
    for options in ({}, {'layout': 'stems'}, {'layout': 'files'}, {'format': 'folder'}):
        found = open_source(tmp_path, **options)
        assert (found.count, found.spec) == (2, {'__key__': 'utf8', 'jpg': 'jpeg'})
        assert "left out: '#3.jpg#'" in found.notes[0]


def test_marks_alone_are_no_files(tmp_path):
    for name in ('_SUCCESS', 'x.md5', '.DS_Store', 'Thumbs.db', '3.jpg~'):
        (tmp_path / name).write_bytes(b'x')
    with pytest.raises(FileNotFoundError, match='no files to import'):
        open_source(tmp_path)


def test_a_saved_dataset_without_its_files_is_refused(tmp_path):
    copy_of('hf/saved', tmp_path / 'in')
    for path in (tmp_path / 'in').glob('*.arrow'):
        path.unlink()
    with pytest.raises(bags.SourceError, match=r'state.json: expected files beside it'):
        open_source(tmp_path / 'in')


def test_a_list_or_glob_with_bystanders(tmp_path):
    for number in range(2):
        tar(tmp_path / f'{number}.tar', (f'{number}.txt',))
    (tmp_path / 'README.md').write_text('x')
    found = open_source(tmp_path / '*')
    assert (found.format, found.count) == ('webdataset', 2)
    assert found.notes[0].startswith('read as webdataset: 2 datapoints, ')
    assert found.notes[0].endswith("; 1 left out: 'README.md'")
    for number in range(2):
        recording(tmp_path / f'runs/{number}')
    assert open_source(sorted((tmp_path / 'runs').iterdir())).count == 2
    for number in range(2):
        (tmp_path / f'media/{number}').mkdir(parents=True)
        (tmp_path / f'media/{number}/a.jpg').write_bytes(PICTURE)
    with pytest.raises(bags.SourceError, match='expected one folder of files, or files of one format'):
        open_source(tmp_path / 'media/*')


def test_several_formats_are_refused_with_what_to_pass(tmp_path):
    parquet(tmp_path / 'a.parquet')
    npz(tmp_path / 'b.npz')
    message = r"1 of npz \('b.npz'\) and 1 of parquet \('a.parquet'\)|1 of parquet .* and 1 of npz"
    with pytest.raises(bags.SourceError, match=message):
        open_source(tmp_path)
    found = open_source(tmp_path, format='npz')
    assert (found.format, found.count, found.notes) == ('npz', 1, ["left out: 'a.parquet'"])


@pytest.mark.parametrize('pictures', [['0.jpg'], ['a.jpg', 'b.jpg']])
def test_pictures_that_may_be_the_data_are_refused(pictures, tmp_path):
    npz(tmp_path / '0.npz')
    for name in pictures:
        (tmp_path / name).write_bytes(PICTURE)
    with pytest.raises(
        bags.SourceError, match="format='npz' takes only the first, format='folder' each file"
    ):
        open_source(tmp_path)
    assert open_source(tmp_path, format='npz').count == 1
    assert set(open_source(tmp_path, format='folder').spec) == {'__key__', 'jpg', 'npz'}


def test_tables_of_img2dataset_beside_its_tars(tmp_path):
    for number in range(2):
        tar(tmp_path / f'{number:05}.tar', (f'{number}.txt',))
        parquet(tmp_path / f'{number:05}.parquet')
        (tmp_path / f'{number:05}_stats.json').write_text('{}')
    found = open_source(tmp_path)
    assert (found.format, found.count) == ('webdataset', 2)
    assert any("'00000.parquet'" in note for note in found.notes)


def test_several_folders_of_mds(tmp_path):
    for part in ('0', '1'):
        copy_of('mds', tmp_path / 'parts' / part)
    assert open_source(tmp_path / 'parts').count == 8
    bags.convert(tmp_path / 'parts', tmp_path / 'out')
    with bags.open(tmp_path / 'out') as dataset:
        assert [row['id'] for row in dataset[:, 'id']] == [0, -1, -2, -3] * 2
    for split in ('train', 'val'):
        copy_of('mds', tmp_path / 'splits' / split)
    with pytest.raises(bags.SourceError, match=r"got 'train', 'val': give the folder of one"):
        open_source(tmp_path / 'splits')
    (tmp_path / 'splits/train/index.json').unlink()
    (tmp_path / 'splits/val/index.json').unlink()
    with pytest.raises(bags.SourceError, match=r'shard.00000.mds: expected index.json of mds beside it'):
        open_source(tmp_path / 'splits')


def test_several_lerobot_datasets_are_refused(tmp_path):
    for name in ('a', 'b'):
        copy_of('lerobot_v3', tmp_path / name)
    with pytest.raises(bags.SourceError, match=r"expected one dataset of lerobot, got 'a', 'b'"):
        open_source(tmp_path)


def test_archives_are_refused(tmp_path):
    (tmp_path / 'a.rar').write_bytes(b'Rar!')
    with pytest.raises(bags.SourceError, match=r'a.rar: is an archive, which is not read: unpack it'):
        open_source(tmp_path)
    assert open_source(tmp_path, layout='files').spec == {'__key__': 'utf8', 'rar': 'bytes'}
    (tmp_path / 'a.rar').unlink()
    (tmp_path / 't.lance/data').mkdir(parents=True)
    (tmp_path / 't.lance/data/0.bin').write_bytes(b'x')
    with pytest.raises(bags.SourceError, match=r'0.bin: is of a format that is not read'):
        open_source(tmp_path)


def test_an_archive_alone_is_refused(tmp_path):
    path = tmp_path / 'a.7z'
    path.write_bytes(b'7z')
    with pytest.raises(bags.SourceError, match=r'a.7z: is an archive, which is not read: unpack it'):
        bags.convert(path, tmp_path / 'out')
    for url in (f'zip://::{path}', f'zip://{path}', f'zip://*.txt::{path}'):
        with pytest.raises(ValueError, match='zip:// is not supported: unpack the archive'):
            bags.convert(url, tmp_path / 'out')
    assert not (tmp_path / 'out').exists()


def test_limits_of_bagz_are_no_bag(tmp_path):
    options = {'limits_placement': 'separate'}
    with bags.bag.Writer(tmp_path / 'a.bag', **options) as writer:
        writer.write(b'one')
    assert (tmp_path / 'limits.a.bag').exists()
    assert open_source(tmp_path).count == 1


def test_bystanders_do_not_change_the_layout_of_a_folder_of_files(tmp_path):
    for name in ('cat/0.jpg', 'cat/1.jpg', 'dog/0.jpg'):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(PICTURE)
    for name, data in BYSTANDERS.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(data)
    (tmp_path / 'empty').mkdir()
    (tmp_path / 'linked').symlink_to(tmp_path / 'cat')
    found = open_source(tmp_path)
    assert (found.layout, found.spec, found.count) == (
        'classes', {'__key__': 'utf8', 'jpg': 'jpeg', 'label': 'utf8'}, 3,
    )  # fmt: skip
    (note,) = found.notes
    assert "'.DS_Store'" in note
    assert open_source(tmp_path, layout='classes').count == 3


@pytest.mark.parametrize('layout', ['classes', 'episodes'])
def test_pictures_beside_folders_of_classes_or_episodes(layout, tmp_path):
    folders = ('cat', 'dog') if layout == 'classes' else ('ep_0', 'ep_1')
    for name in [f'{folder}/{number}.jpg' for folder in folders for number in range(3)]:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(PICTURE)
    (tmp_path / 'overview.jpg').write_bytes(PICTURE)
    found = open_source(tmp_path)
    assert (found.layout, found.count) == (layout, 6 if layout == 'classes' else 2)
    (note,) = found.notes
    assert note.startswith(f'read as {layout}: {found.count} datapoints, ')
    assert note.endswith("; 1 left out: 'overview.jpg'")
    assert open_source(tmp_path, layout='stems').count == 7
    (tmp_path / 'other.jpg').write_bytes(PICTURE)  # As many as folders: possibly datapoints.
    assert (open_source(tmp_path).layout, open_source(tmp_path).count) == ('stems', 8)


def test_a_checksum_with_the_name_of_a_file_is_a_field(tmp_path):
    for name in ('a.jpg', 'README.jpg'):
        (tmp_path / name).write_bytes(PICTURE)
    for name in ('a.md5', 'README.txt'):
        (tmp_path / name).write_bytes(b'x')
    assert open_source(tmp_path).spec == {'__key__': 'utf8', 'jpg': 'jpeg', 'md5': 'bytes?', 'txt': 'utf8?'}


def test_documents_are_datapoints_if_there_is_nothing_else_or_if_asked(tmp_path):
    (tmp_path / 'README.md').write_text('x')
    assert open_source(tmp_path).count == 1
    (tmp_path / 'a.md').write_text('y')
    assert open_source(tmp_path).count == 1
    assert open_source(tmp_path, layout='stems').count == 2
    assert open_source(tmp_path, format='folder').count == 2


def test_empty_and_linked_folders_are_noted(tmp_path):
    (tmp_path / 'in/a/b').mkdir(parents=True)
    (tmp_path / 'in/0.txt').write_text('x')
    (tmp_path / 'in/c').symlink_to(tmp_path / 'in/a')
    (note,) = open_source(tmp_path / 'in').notes
    assert note.endswith("; 2 left out: 'a/b', 'c'")


@pytest.mark.parametrize('format', ['files', 'webdataset'])
def test_an_export_with_bystanders(format, tmp_path):
    with bags.DatasetWriter(tmp_path / 'x', {'npz': 'bytes', 'box': 'float(4)[]'}) as writer:
        writer.append({'npz': b'x', 'box': [1.0]})
    bags.export(tmp_path / 'x', tmp_path / 'out', format=format)
    (tmp_path / 'out/README.md').write_text('# Mine')
    (tmp_path / 'out/.gitattributes').write_text('x')
    found = open_source(tmp_path / 'out')
    assert (found.spec, found.count) == ({'box': 'float(4)[]', 'npz': 'bytes'}, 1)
    assert found.notes == ["left out: '.gitattributes', 'README.md'"]
    assert bags.convert(tmp_path / 'out', tmp_path / 'back').datapoints == 1
