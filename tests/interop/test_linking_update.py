"""Linked data that grows: an update adds new data, and equals linking all of it again."""

import contextlib
import functools
import json
import os
import shutil
import sys
import zipfile

import numpy as np
import pytest

import bags
from bags.bag import Writer
from bags.errors import SourceError
from bags.interop.open_source import open_source
from tests.dataset.writing.test_kill import die_at, drain, start
from tests.interop.sources.streams import GOLDEN
from tests.interop.test_linking import make_photos, make_tar, photo, rows
from tests.storage.hub import Hub


def update(source, path, **options):
    return bags.convert(source, path, link=True, update=True, **options)


def by_key(path):
    return sorted(
        ({**row, '__key__': bytes(row['__key__'])} for row in rows(path)), key=lambda row: row['__key__']
    )


def test_folders_that_grow(tmp_path):
    raw, index = tmp_path / 'raw', tmp_path / 'index'
    make_photos(raw, range(0, 12, 2))
    assert update(raw, index).datapoints == 6  # There is no dataset yet.
    for first in (1, 20):
        make_photos(raw, range(first, first + 12, 2))
        before = [bytes(row['__key__']) for row in rows(index)]
        done = update(raw, index)
        bags.convert(raw, tmp_path / f'anew-{first}', link=True)
        assert by_key(index) == by_key(tmp_path / f'anew-{first}')
        assert [bytes(row['__key__']) for row in rows(index)][: len(before)] == before
        assert done.datapoints == len(before) + 6
    assert update(raw, index).datapoints == 18
    assert bags.verify(index, trust_links=True) == []


def test_fields_that_come_later(tmp_path):
    raw, index = tmp_path / 'raw', tmp_path / 'index'
    make_photos(raw, (1, 3))
    update(raw, index)
    (raw / 'z').mkdir()
    (raw / 'z' / '9.jpg').write_bytes(photo(9))
    for extension in ('json', 'cls', 'txt'):
        (raw / 'z' / f'9.{extension}').write_text('9')
    done = update(raw, index)
    bags.convert(raw, tmp_path / 'anew', link=True)
    assert by_key(index) == by_key(tmp_path / 'anew')
    assert done.spec['json'] == 'json?'
    (raw / 'z' / '8.jpg').write_bytes(photo(8))
    with pytest.raises(SourceError, match="z/8: field 'cls' of type utf8: the value is missing"):
        update(raw, index)


def test_what_is_missing_or_has_changed(tmp_path):
    raw, index = tmp_path / 'raw', tmp_path / 'index'
    make_photos(raw, range(6))
    update(raw, index)
    (raw / 'a' / '0003.jpg').write_bytes(photo(7))
    with pytest.raises(ValueError, match=r"a/0003, field 'jpg', datapoint 1 of the dataset: .*changed"):
        update(raw, index)
    (raw / 'a' / '0003.jpg').write_bytes(photo(3))
    (raw / 'b' / '0001.txt').write_text('another caption')
    with pytest.raises(ValueError, match=r"b/0001, field 'txt'"):
        update(raw, index)
    (raw / 'b' / '0001.txt').write_text('caption 1')
    for path in (raw / 'c').glob('0002.*'):
        path.rename(tmp_path / path.name)
    make_photos(raw, (10,))
    with pytest.raises(
        ValueError, match=r"'c/0002': the files of these datapoints are missing; .*check_source"
    ):
        update(raw, index)
    assert update(raw, index, check_source=False).datapoints == 7
    with pytest.raises(ValueError, match='update: expected link=True'):
        bags.convert(raw, index, update=True)


def test_tars_that_come_later(tmp_path):
    raw, index = tmp_path / 'raw', tmp_path / 'index'
    raw.mkdir()
    for tar in range(4):
        # In each tar, keys are the same.
        (raw / f'{tar}.tar').write_bytes(make_tar(range(5)) if tar % 2 else make_tar(range(5, 8)))
        update(raw, index)
    bags.convert(raw, tmp_path / 'anew', link=True)
    assert rows(index) == rows(tmp_path / 'anew')
    (raw / '3.tar').write_bytes(make_tar(range(7)))
    with pytest.raises(ValueError, match=r"000000, field 'jpg', datapoint 11 of the dataset"):
        update(raw, index)


def test_only_new_tars(tmp_path):
    (tmp_path / '0.tar').write_bytes(make_tar(range(5)))
    (tmp_path / '1.tar').write_bytes(make_tar(range(5, 9), without=['cls']))
    (tmp_path / '2.tar').write_bytes(make_tar(range(9, 12)))
    update(tmp_path / '0.tar', tmp_path / 'index', spec={'cls': 'int(8)?'})
    for tar in (1, 2):
        update(tmp_path / f'{tar}.tar', tmp_path / 'index', check_source=False)
    bags.convert(tmp_path / '*.tar', tmp_path / 'anew', link=True)
    assert rows(tmp_path / 'index') == rows(tmp_path / 'anew')
    with pytest.raises(ValueError, match=r"'000000', '000001', .* and 4 more: the files of these datapoints"):
        update(tmp_path / '2.tar', tmp_path / 'index')


def test_an_interrupted_import(tmp_path):
    raw, index = tmp_path / 'raw', tmp_path / 'index'
    make_photos(raw, range(6))
    (raw / 'b' / '0004.jpg').write_bytes(b'no photo')
    with pytest.raises(SourceError):
        update(raw, index)
    make_photos(raw, range(8))
    update(raw, index)
    bags.convert(raw, tmp_path / 'anew', link=True)
    assert by_key(index) == by_key(tmp_path / 'anew')


def make_binaries(path, numbers):
    path.mkdir(exist_ok=True)
    for number in numbers:
        (path / f'{number}.bin').write_bytes(bytes([number]) * 1000)
        (path / f'{number}.txt').write_text(f'text {number}')


def folders_at_each_created_file(write, path, folder, monkeypatch):
    """Calls `write`, which writes to `path`, and copies it into `folder` before each file that is created."""
    copies = []

    def create(name, flags, *args, open=os.open, **options):
        if flags & os.O_CREAT and path.exists():
            copies.append(shutil.copytree(path, folder / str(len(copies))))
        return open(name, flags, *args, **options)

    monkeypatch.setattr(os, 'open', create)
    write()
    monkeypatch.undo()
    return copies


@pytest.mark.slow(all_but='0-False')
@pytest.mark.parametrize('recovers', [False, True])
@pytest.mark.parametrize('first', [0, 2])
def test_what_a_kill_leaves_is_continued(first, recovers, tmp_path, monkeypatch):
    raw, index = tmp_path / 'raw', tmp_path / 'index'
    if first:
        make_binaries(raw, range(first))
        update(raw, index, shard_length=2)
    make_binaries(raw, range(3))
    copies = folders_at_each_created_file(
        # Shards are closed in this thread.
        lambda: update(raw, index, shard_length=2, durability='none'),
        index,
        tmp_path / 'killed',
        monkeypatch,
    )
    assert len(copies) > 10
    for killed in copies:
        shutil.rmtree(index)
        shutil.move(killed, index)
        if recovers:
            with contextlib.suppress(FileNotFoundError):  # There is no shard yet.
                bags.recover(index)
        done = update(raw, index, shard_length=2)
        assert done.datapoints == 3
        assert done.parents == [str(raw)]
        assert [bytes(row['txt']) for row in rows(index)] == [b'text %d' % number for number in range(3)]
        assert bags.verify(index, trust_links=True) == []
        assert not bags.open(index).unfinished


def test_a_field_that_comes_later_is_linked(tmp_path):
    raw, index = tmp_path / 'raw', tmp_path / 'index'
    make_binaries(raw, range(2))
    update(raw, index)
    make_binaries(raw, range(2, 4))
    (raw / '3.jpg').write_bytes(photo(3))
    update(raw, index)
    bags.convert(raw, tmp_path / 'anew', link=True)
    assert by_key(index) == by_key(tmp_path / 'anew')
    assert (index / '000001' / 'jpg.links').exists()


@pytest.mark.parametrize('field', ['txt', 'bin'])
def test_all_files_of_an_optional_field_are_gone(field, tmp_path):
    raw, index = tmp_path / 'raw', tmp_path / 'index'
    make_binaries(raw, range(4))
    (raw / f'0.{field}').unlink()
    (raw / '0.jpg').write_bytes(photo(0))
    assert update(raw, index).spec[field].endswith('?')
    for number in range(1, 4):
        (raw / f'{number}.{field}').rename(tmp_path / f'{number}.{field}')
    (raw / '5.jpg').write_bytes(photo(5))
    (raw / f'5.{"txt" if field == "bin" else "bin"}').write_bytes(bytes(1000))
    expected = (
        f"update: {raw}: expected field '{field}', which datapoint 1 of the dataset has, got .*check_source"
    )
    with pytest.raises(ValueError, match=expected):
        update(raw, index)
    assert len(bags.open(index)) == 4
    assert update(raw, index, check_source=False).datapoints == 5
    for number in range(1, 4):
        (tmp_path / f'{number}.{field}').rename(raw / f'{number}.{field}')
    assert update(raw, index).datapoints == 5


def add_photos(path, part):
    make_photos(path, range(4 * part, 4 * part + 4))


def add_episode(path, part):
    (path / f'episode_{part}').mkdir()
    for frame in range(part + 2):
        (path / f'episode_{part}' / f'{frame:03}.jpg').write_bytes(photo(10 * part + frame))


def add_tar(path, part):
    (path / f'{part}.tar').write_bytes(make_tar(range(5 * part, 5 * part + 5)))


def add_zip(path, part):
    with zipfile.ZipFile(path / f'{part}-day.zip', 'w') as archive:
        for number in range(3):
            archive.writestr(f'{number}.jpg', photo(3 * part + number))


def add_bag(path, part):
    with Writer(path / f'{part}.bag') as writer:
        for number in range(4):
            writer.write(b'%d' % (10 * part + number) * 400)


def add_npz(path, part):
    np.savez(path / f'{part}.npz', x=np.full((4, 100), part))


def add_chunk(path, part, golden, chunks, name):
    """Copies the golden chunks in turn, under new names."""
    found = json.loads((GOLDEN / golden / 'index.json').read_text())
    of = json.loads((path / 'index.json').read_text())[chunks] if part else []
    chunk = found[chunks][part % len(found[chunks])]
    facts = chunk.get('raw_data', chunk)
    key = 'basename' if 'basename' in facts else 'filename'
    shutil.copy(GOLDEN / golden / facts[key], path / name.format(part))
    facts[key] = name.format(part)
    (path / 'index.json').write_text(json.dumps({**found, chunks: [*of, chunk]}))


GROWING = {
    'files': add_photos,
    'episodes': add_episode,
    'tars': add_tar,
    'zips': add_zip,
    'bags': add_bag,
    'npz': add_npz,
    'mds': functools.partial(add_chunk, golden='mds', chunks='shards', name='shard.{:05}.mds'),
    'litdata': functools.partial(add_chunk, golden='litdata', chunks='chunks', name='chunk-0-{}.bin'),
}


LAYOUTS_OF_ONE = {'zips': 'stems', 'episodes': 'episodes'}
"""Layouts that one zip or folder does not show yet."""


@pytest.mark.parametrize('name', GROWING)
def test_what_comes_twice_equals_linking_anew(name, tmp_path):
    raw, index = tmp_path / 'raw', tmp_path / 'index'
    raw.mkdir()
    options = {'layout': LAYOUTS_OF_ONE[name]} if name in LAYOUTS_OF_ONE else {}
    lengths = []
    for part in range(3):
        GROWING[name](raw, part)
        lengths.append(update(raw, index, **options).datapoints)
        assert update(raw, index, **options).datapoints == lengths[-1]
    assert lengths == sorted(set(lengths))
    bags.convert(raw, tmp_path / 'anew', link=True, **options)
    if name == 'files':
        assert by_key(index) == by_key(tmp_path / 'anew')
    else:
        assert rows(index) == rows(tmp_path / 'anew')
    assert bags.verify(index, trust_links=True) == []


def texts(path):
    """Returns the datapoints as texts, which can be sorted."""

    def plain(value):
        if isinstance(value, list):
            return list(map(plain, value))
        return bytes(value) if isinstance(value, memoryview) else value

    return [str({name: plain(value) for name, value in row.items()}) for row in rows(path)]


def link_and_die(raw, index, options, step, halfway, report):
    die_at(step, halfway)
    report(update(raw, index, progress=False, **options).datapoints)


def kill_updates(tmp_path, name, first, halfway, steps):
    """Ends an update at some of its calls that change a file, then continues it; returns the number of kills.

    Args:
        tmp_path, name: A folder; the source.
        first: Whether the dataset is there before, with a part of the source.
        halfway: Whether half of the call is done.
        steps: The numbers of the calls, in order.
    """
    raw, before, index = tmp_path / 'raw', tmp_path / 'before', tmp_path / 'index'
    raw.mkdir()
    layout = {'layout': LAYOUTS_OF_ONE[name]} if name in LAYOUTS_OF_ONE else {}
    options = {'shard_length': 3, **layout}
    for part in range(first):
        GROWING[name](raw, part)
        update(raw, before, **options)
    for part in range(first, first + 2):
        GROWING[name](raw, part)
    bags.convert(raw, tmp_path / 'anew', link=True, **options)
    expected = sorted(texts(tmp_path / 'anew'))
    kills = 0
    for step in steps:
        shutil.rmtree(index, ignore_errors=True)
        if first:
            shutil.copytree(before, index)
        child, source = start(link_and_die, raw, index, options, step, halfway)
        drain(source)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        assert status in (0, 9), f'step {step}'
        kills += status == 9
        if first:
            known = texts(before)
            assert texts(index)[: len(known)] == known, f'step {step}'
        if step % 3 == 0:
            with contextlib.suppress(FileNotFoundError):  # There is no shard yet.
                bags.recover(index)
        done = update(raw, index, **options)
        assert (done.datapoints, done.parents) == (len(expected), [str(raw)]), f'step {step}'
        assert sorted(texts(index)) == expected, f'step {step}'
        assert bags.verify(index, trust_links=True) == [], f'step {step}'
        assert not bags.open(index).unfinished, f'step {step}'
        if not status:
            return kills
    return kills


@pytest.mark.skipif(not hasattr(os, 'fork'), reason='children are forked')
@pytest.mark.parametrize('first', [0, 1])
def test_updates_that_are_killed_at_some_writing_calls(first, tmp_path):
    assert kill_updates(tmp_path, 'files', first, False, range(31 - first, 10_000, 60)) > 2


@pytest.mark.campaign
@pytest.mark.skipif(not hasattr(os, 'fork'), reason='children are forked')
@pytest.mark.parametrize('name', GROWING)
@pytest.mark.parametrize('first', [0, 1])
@pytest.mark.parametrize('halfway', [False, True], ids=['before', 'within'])
def test_updates_that_are_killed_at_each_writing_call(name, first, halfway, tmp_path, found):
    kills = kill_updates(tmp_path, name, first, halfway, range(1, 10_000))
    assert kills > 50
    found(f'{name}: {kills} updates ended at a call that changes a file: 0 lost or wrong')


@pytest.mark.parametrize(('name', 'layout'), [('zips', 'classes'), ('episodes', 'episodes')])
def test_a_layout_that_the_first_files_did_not_show(name, layout, tmp_path):
    (tmp_path / 'raw').mkdir()
    GROWING[name](tmp_path / 'raw', 0)
    update(tmp_path / 'raw', tmp_path / 'index')
    GROWING[name](tmp_path / 'raw', 1)
    assert open_source(tmp_path / 'raw').layout == layout
    expected = open_source(tmp_path / 'raw', layout='stems').count
    assert update(tmp_path / 'raw', tmp_path / 'index').datapoints == expected
    (tmp_path / 'index' / 'progress.json').unlink()  # As in datasets of earlier versions.
    GROWING[name](tmp_path / 'raw', 2)
    expected = open_source(tmp_path / 'raw', layout='stems').count
    assert update(tmp_path / 'raw', tmp_path / 'index').datapoints == expected
    with pytest.raises(ValueError, match=f"seem to have the layout '{layout}'; pass the"):
        update(tmp_path / 'raw', tmp_path / 'index', layout=layout)


def shards_of_mds(path, count):
    """Makes a folder of MDS of some of the shards of the golden one."""
    path.mkdir(exist_ok=True)
    found = json.loads((GOLDEN / 'mds' / 'index.json').read_text())
    found['shards'] = found['shards'][:count]
    (path / 'index.json').write_text(json.dumps(found))
    for shard in found['shards']:
        shutil.copy(GOLDEN / 'mds' / shard['raw_data']['basename'], path)


def test_shards_of_mds_that_come_later(tmp_path):
    raw, index = tmp_path / 'raw', tmp_path / 'index'
    shards_of_mds(raw, 1)
    update(raw, index)
    shards_of_mds(raw, 2)
    assert update(raw, index).datapoints == update(raw, index).datapoints == 4
    bags.convert(raw, tmp_path / 'anew', link=True)
    assert rows(index) == rows(tmp_path / 'anew')
    bags.convert(raw, index, link=True, resume=True)  # The log has the source as it is now.
    shard = raw / 'shard.00000.mds'
    data = bytearray(shard.read_bytes())
    data[-1] ^= 1
    shard.write_bytes(data)
    with pytest.raises(ValueError, match=r'shard\.00000\.mds has changed; expected a source that only grows'):
        update(raw, index)
    shards_of_mds(raw, 1)
    with pytest.raises(ValueError, match='expected the 4 inputs of the earlier run, got only 2'):
        update(raw, index)


def test_a_repository_of_a_hub_whose_branch_moves(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, 'huggingface_hub', None)  # Reading a hub does not need it.
    first, second = tmp_path / 'first', tmp_path / 'second'
    make_photos(first / 'photos', range(4))
    make_photos(second / 'photos', range(6))
    with Hub(first) as hub:
        monkeypatch.setenv('HF_ENDPOINT', hub.url)
        options = {'source_options': {'endpoint': hub.url}}
        done = update('hf://datasets/u/d/photos', tmp_path / 'index', **options)
        assert done.parents == ['hf://datasets/u/d/photos']
        hub.commits['b' * 40] = second
        hub.branches['main'] = 'b' * 40
        assert update('hf://datasets/u/d/photos', tmp_path / 'index', **options).parents == done.parents
        done = bags.convert('hf://datasets/u/d/photos', tmp_path / 'anew', link=True, **options)
        assert by_key(tmp_path / 'index') == by_key(tmp_path / 'anew')
        with bags.open(tmp_path / 'index', raw=True, trust_links=done.parents) as reader:
            found = {str(row['__key__'], 'utf-8'): row['jpg'] for row in reader}
        assert found['a/0003'] == photo(3)
        assert found['c/0005'] == photo(5)
        addresses = {path.split('/')[5] for _, path, _ in hub.requests if path.startswith('/datasets')}
        assert addresses == {'a' * 40, 'b' * 40}
        other = bags.open(tmp_path / 'index', trust_links='hf://datasets/u/other')
        with other as reader, pytest.raises(PermissionError, match='hf://datasets/u/d'):
            reader[0]
