"""An import of files is not resumed if the files of datapoints that are in the dataset have changed."""

import io
import tarfile

import numpy as np
import pytest

import bags

MOST = 20


def contents(index):
    """The files of a datapoint: bytes, a text, an array, a label, and an image."""
    array = io.BytesIO()
    np.save(array, np.arange(index % 3 + 1))
    image = bags.encoders['png'](np.full((2, 2, 3), index, np.uint8))
    return {
        'bin': b'%05d' % index * 9, 'txt': b'text %05d' % index, 'npy': array.getvalue(),
        'cls': b'%d' % index, 'png': bytes(image),
    }  # fmt: skip


def write(path, source, count=MOST, **changed):
    """Writes a folder, or a tar, of `count` datapoints; `changed` are files with other contents."""
    files = {f'{index:02}.{end}': data for index in range(count) for end, data in contents(index).items()}
    files |= {name.removeprefix('_').replace('_', '.'): data for name, data in changed.items()}
    if source == 'folder':
        path.mkdir(exist_ok=True)
        for name, data in files.items():
            (path / name).write_bytes(data)
        return path
    path = path.with_name(f'{path.name}.{source}')
    with tarfile.open(path, 'w:gz' if source == 'tar.gz' else 'w') as tar:
        for name, data in sorted(files.items()):
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return path


def other(index, end):
    """The content of a file with one byte or digit that differs."""
    data = contents(index)[end]
    at = data.rindex(b'0') if end in ('bin', 'txt') else len(data) - 1
    if end == 'png':
        return bytes(bags.encoders['png'](np.full((2, 2, 3), 200 + index, np.uint8)))
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


sources = pytest.mark.parametrize('source', ['folder', 'tar', 'tar.gz'])


@sources
@pytest.mark.parametrize('end', ['bin', 'txt', 'npy', 'cls', 'png'])
def test_a_changed_file_of_an_imported_datapoint_is_refused(source, end, tmp_path):
    path = write(tmp_path / 'in', source, 11)
    bags.convert(path, tmp_path / 'out', compression=['txt'])
    write(tmp_path / 'in', source, **{f'_06_{end}': other(6, end)})
    with pytest.raises(ValueError, match=rf"06, field '{end}', datapoint 6 .* has changed since"):
        bags.convert(path, tmp_path / 'out', resume=True)
    assert bags.convert(path, tmp_path / 'out', resume=True, check_source=False).datapoints == MOST


@sources
def test_other_files_may_change(source, tmp_path):
    path = write(tmp_path / 'in', source, 11)
    bags.convert(path, tmp_path / 'out')
    write(tmp_path / 'in', source, _15_txt=b'another')
    done = bags.convert(path, tmp_path / 'out', resume=True)
    assert (done.datapoints, done.notes[2:]) == (MOST, [])
    with bags.open(tmp_path / 'out') as dataset:
        assert dataset[15]['txt'] == 'another'


@sources
@pytest.mark.parametrize('compression', [None, ['bin']])
def test_sizes_and_the_last_datapoint_count_beyond_what_is_read(source, compression, tmp_path, monkeypatch):
    monkeypatch.setattr('bags.interop.imported.MAX_BYTES', 100)
    path = write(tmp_path / 'in', source, 11)
    bags.convert(path, tmp_path / 'out', compression=compression)
    done = bags.convert(path, tmp_path / 'out', resume=True)
    assert done.datapoints == 11
    assert done.notes[2:] == [
        "resumed: field 'bin' of 8 earlier datapoints was compared with the source by size only",
        "resumed: field 'npy' of 11 earlier datapoints was not compared with the source",
        "resumed: field 'png' of 9 earlier datapoints was compared with the source by size only",
    ]
    for file, data in {'_01_bin': b'x' * 45, '_07_bin': b'x' * 44, '_10_bin': b'x' * 45}.items():
        write(tmp_path / 'in', source, 11, **{file: data})
        with pytest.raises(ValueError, match="field 'bin'"):
            bags.convert(path, tmp_path / 'out', resume=True)


def test_a_file_that_is_gone_or_cannot_be_read_any_more_is_refused(tmp_path):
    path = write(tmp_path / 'in', 'folder', 11)
    for number in range(9):
        (path / f'{number:02}.bin').unlink()
    bags.convert(path, tmp_path / 'out')
    (path / '09.png').write_bytes(b'not an image')
    with pytest.raises(ValueError, match=r"field '.*png.*', datapoint 9"):
        bags.convert(path, tmp_path / 'out', resume=True)
    (path / '09.png').write_bytes(contents(9)['png'])
    (path / '00.bin').write_bytes(b'new')
    with pytest.raises(ValueError, match="field 'bin', datapoint 0"):
        bags.convert(path, tmp_path / 'out', resume=True)
    (path / '00.bin').unlink()
    assert bags.convert(path, tmp_path / 'out', resume=True).datapoints == 11
    (path / '09.bin').unlink()
    with pytest.raises(ValueError, match="field 'bin', datapoint 9"):
        bags.convert(path, tmp_path / 'out', resume=True)


def test_frames_of_episodes_are_compared(tmp_path, monkeypatch):
    for episode in range(3):
        (tmp_path / 'in' / f'ep_{episode}').mkdir(parents=True)
        for frame in range(4):
            (tmp_path / 'in' / f'ep_{episode}' / f'{frame}.bin').write_bytes(b'%d' % frame)
    bags.convert(tmp_path / 'in', tmp_path / 'out')
    assert bags.convert(tmp_path / 'in', tmp_path / 'out', resume=True).datapoints == 3
    (tmp_path / 'in' / 'ep_1' / '2.bin').write_bytes(b'3')
    with pytest.raises(ValueError, match="ep_1, field 'bin'"):
        bags.convert(tmp_path / 'in', tmp_path / 'out', resume=True)
    monkeypatch.setattr('bags.interop.imported.MAX_BYTES', 0)
    assert bags.convert(tmp_path / 'in', tmp_path / 'out', resume=True).datapoints == 3
    (tmp_path / 'in' / 'ep_1' / '2.bin').write_bytes(b'33')
    with pytest.raises(ValueError, match="ep_1, field 'bin'"):
        bags.convert(tmp_path / 'in', tmp_path / 'out', resume=True)


def test_columns_of_tables_are_compared(tmp_path):
    path = tmp_path / 'in'
    path.mkdir()
    for number in range(3):
        (path / f'{number}.bin').write_bytes(b'x')
    table = 'file_name,score\n0.bin,5\n1.bin,6\n2.bin,7\n'
    (path / 'metadata.csv').write_text(table)
    bags.convert(path, tmp_path / 'out')
    assert bags.convert(path, tmp_path / 'out', resume=True).datapoints == 3
    (path / 'metadata.csv').write_text(table.replace('6', '8'))
    with pytest.raises(ValueError, match="field 'score', datapoint 1"):
        bags.convert(path, tmp_path / 'out', resume=True)
