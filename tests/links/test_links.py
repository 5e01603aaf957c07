"""Datasets whose records are links: written, resumed and read, also when linked files have changed."""

import io
import os
import pickle
import shutil
import struct

import msgpack
import numpy as np
import pytest

import bags
from bags.bag import Reader, Writer
from bags.links.rows import make_rows
from tests.dataset.writing.killed import leave_open

SPEC = {'id': 'int(8)', 'blob': 'bytes?', 'parts': 'bytes[]', 'vector': 'array(float32,4)'}
LINKS = ('blob', 'parts', 'vector')
SIZES = (0, 10, 9000, 40_000)


@pytest.fixture
def raw(tmp_path):
    """Files to link to: `raw/0`, … and `all`, in a folder beside the dataset."""
    chance = np.random.default_rng(0)
    (tmp_path / 'raw').mkdir()
    for number, size in enumerate(SIZES):
        (tmp_path / 'raw' / f'{number}').write_bytes(chance.bytes(size))
    (tmp_path / 'all').write_bytes(chance.standard_normal(5000, np.float32).tobytes())
    return tmp_path


def datapoint(raw, index):
    """Returns a datapoint with links, and the same with their values."""
    path, every = raw / 'raw' / f'{index % 4}', (raw / 'all').read_bytes()
    written = {
        'id': index,
        'blob': [bags.Link(path), None, b'own %d' % index, bags.Link(str(path), offset=2, length=3)][
            index % 4 if index % 4 < 3 or index % 8 == 3 else 2
        ],
        'parts': [bags.Link(raw / 'all', offset=n, length=n) for n in range(index % 3)]
        + [b'x'] * (index % 2),
        'vector': bags.Link(raw / 'all', offset=16 * index, length=16)
        if index % 5
        else np.full(4, index, np.float32),
    }
    data = path.read_bytes()
    expected = {
        'id': index,
        'blob': {
            0: data,
            1: None,
            2: b'own %d' % index,
            3: data[2:5] if index % 8 == 3 else b'own %d' % index,
        }[index % 4],
        'parts': [every[n : 2 * n] for n in range(index % 3)] + [b'x'] * (index % 2),
        'vector': np.frombuffer(every, np.float32, 4, 16 * index).tolist() if index % 5 else [index] * 4,
    }
    return written, expected


def write(raw, path, start, stop, **options):
    with bags.DatasetWriter(path, SPEC, linked_fields=LINKS, **options) as writer:
        for index in range(start, stop):
            writer.append(datapoint(raw, index)[0])


def plain(row):
    return {name: value.tolist() if hasattr(value, 'tolist') else value for name, value in row.items()}


def check(raw, path, count, **options):
    """Compares rows and batches of a dataset with what was written."""
    expected = [datapoint(raw, index)[1] for index in range(count)]
    with bags.open(path, trust_links=raw, **options) as reader:
        assert list(map(plain, map(reader.__getitem__, range(len(reader))))) == expected
        chosen = np.random.default_rng(1).permutation(count)
        batch = reader.batch(chosen)
        assert batch['vector'].tolist() == [expected[index]['vector'] for index in chosen]
        assert batch['blob'] == [expected[index]['blob'] for index in chosen]
        assert [list(each) for each in batch['parts']] == [expected[index]['parts'] for index in chosen]
        for index, row in enumerate(expected):
            if row['blob'] is not None:
                with reader.file(index, 'blob') as file:
                    assert file.read() == row['blob']
        assert reader.size == reader.bytes_before(count)


@pytest.mark.parametrize('options', [{}, {'checksum': True}])
@pytest.mark.parametrize('mapped', [True, False])
def test_round_trip(raw, options, mapped):
    write(raw, raw / 'data', 0, 40, **options)
    check(raw, raw / 'data', 40, mapped=mapped, **options)
    with bags.open(raw / 'data', trust_links=raw, raw=True) as reader:
        assert bytes(reader[6]['blob']) == b'own 6'


def test_only_links_and_own_records_are_in_the_folder(raw):
    write(raw, raw / 'data', 0, 40)
    names = set(os.listdir(raw / 'data'))
    assert {name for name in names if name.startswith('blob')} == {'blob.files', 'blob.links', 'blob.values'}
    with Reader(raw / 'data' / 'blob.files') as files, Reader(raw / 'data' / 'blob.links') as links:
        assert [msgpack.unpackb(entry)[:2] for entry in files] == [['../raw/0', 0], ['../raw/3', 40_000]]
        assert {len(row) for row in links} == {24}
        row = struct.unpack('<IIQQ', links[2])
        assert row[0] == 2
        assert row[2:] == (2, 5)
    with Reader(raw / 'data' / 'blob.values') as values:
        assert values[0] == b'own 2'


def test_sizes_count_linked_bytes(raw):
    with bags.DatasetWriter(raw / 'data', {'x': 'bytes'}, linked_fields=['x']) as writer:
        for _ in range(4):
            writer.append({'x': bags.Link(raw / 'all', length=1000)})
        size = writer.size
    with bags.open(raw / 'data') as reader:
        assert size < 500
        assert reader.size - size == 4000
        assert [reader.bytes_before(index) // 1000 for index in range(5)] == [0, 1, 2, 3, 4]
    with bags.DatasetWriter(raw / 'data', {'x': 'bytes'}, resume=True) as writer:
        assert writer.size == size


def test_older_readers_refuse_it(raw):
    write(raw, raw / 'data', 0, 3)
    # They open FIELD.bag or FIELD.bagz.
    assert not any(
        name.startswith(LINKS) and name.endswith(('.bag', '.bagz')) for name in os.listdir(raw / 'data')
    )


@pytest.mark.parametrize('options', [{}, {'checksum': True}])
def test_resume(raw, options):
    for start in range(0, 40, 7):
        with (
            bags.DatasetWriter(raw / 'data', SPEC, resume=True, linked_fields=LINKS[: start and 1], **options)
            if start
            else (bags.DatasetWriter(raw / 'data', SPEC, linked_fields=LINKS, **options)) as writer
        ):
            for index in range(start, start + 7):
                writer.append(datapoint(raw, index)[0])
    check(raw, raw / 'data', 42, **options)
    with bags.DatasetWriter(raw / 'data', SPEC, resume=True, truncate_to=10) as writer:
        writer.append(datapoint(raw, 10)[0])
    check(raw, raw / 'data', 11, **options)


def test_a_killed_writer(raw):
    for start in (0, 5, 9):
        writer = bags.DatasetWriter(raw / 'data', SPEC, resume=True, linked_fields=LINKS)
        assert len(writer) == start
        for index in range(start, start + 6):
            writer.append(datapoint(raw, index)[0], flush=index < start + (5 if start == 0 else 4))
        leave_open(writer)
        del writer
        check(raw, raw / 'data', 5 if start == 0 else start + 4)
    assert bags.verify(raw / 'data', decode=True, trust_links=raw) == []
    assert bags.recover(raw / 'data')[0].kept == 13
    check(raw, raw / 'data', 13)


def test_sharded(raw):
    for start in (0, 13):
        with bags.ShardedDatasetWriter(
            raw / 'data', SPEC, shard_length=10, resume=start > 0, linked_fields=() if start else LINKS
        ) as writer:
            for index in range(start, start + 13):
                writer.append(datapoint(raw, index)[0])
    check(raw, raw / 'data', 26)
    with Reader(raw / 'data' / '000001' / 'blob.files') as files:
        assert msgpack.unpackb(files[0])[0] == '../../raw/3'


def test_a_failed_append_leaves_nothing(raw):
    def items():
        yield bags.Link(raw / 'all', length=3)
        yield b'own'
        raise OSError('no more')

    with bags.DatasetWriter(raw / 'data', SPEC, linked_fields=LINKS) as writer:
        for index in range(8):
            writer.append(datapoint(raw, index)[0])
            with pytest.raises(OSError, match='no more'):
                writer.append({**datapoint(raw, index)[0], 'parts': items()})
    check(raw, raw / 'data', 8)


def test_files_are_copied_to_values(raw):
    spec = {'video': 'bytes'}
    with bags.DatasetWriter(
        raw / 'data', spec, {'bytes': lambda value: value}, linked_fields=['video']
    ) as writer:
        writer.append({'video': b'first'})
        writer.append({'video': io.BytesIO(b'of a file')})
        writer.append({'video': bags.Link(raw / 'raw' / '1')})
        writer.append({'video': b'last'})
    with bags.open(raw / 'data', trust_links=raw) as reader:
        expected = [b'first', b'of a file', (raw / 'raw' / '1').read_bytes(), b'last']
        assert [row['video'] for row in reader] == expected


def test_a_folder_moves_with_its_files(raw, tmp_path_factory):
    write(raw, raw / 'data', 0, 12)
    other = tmp_path_factory.mktemp('other') / 'moved'
    shutil.move(raw, other)
    check(other, other / 'data', 12)


def test_what_cannot_be_linked(raw):
    def append(value, spec='bytes', **options):
        with bags.DatasetWriter(raw / 'other', {'x': spec}, mode='overwrite', **options) as writer:
            writer.append({'x': value})

    with pytest.raises(bags.EncodeError, match=r"links need a writer with linked_fields=\('x',\)"):
        append(bags.Link(raw / 'all'))
    with pytest.raises(FileNotFoundError):
        append(bags.Link(raw / 'none'), linked_fields=['x'])
    with pytest.raises(IsADirectoryError):
        append(bags.Link(raw / 'raw'), linked_fields=['x'])
    for link in (
        bags.Link(raw / 'all', 20_001),
        bags.Link(raw / 'all', 1, 20_000),
        bags.Link(raw / 'all', 0, 1 << 62),
    ):
        with pytest.raises(bags.EncodeError, match='expected a range of the 20000 bytes'):
            append(link, linked_fields=['x'])
    write(raw, raw / 'data', 0, 3)
    with pytest.raises(bags.EncodeError, match='a file that is not a bag'):
        append(bags.Link(raw / 'data' / 'id.bag'), linked_fields=['x'])
    with pytest.raises(bags.EncodeError, match='expected JPEG, got bytes that begin with'):
        append(bags.Link(raw / 'all'), 'jpeg', linked_fields=['x'])
    with pytest.raises(ValueError, match='a field that is not linked'):
        append(b'', linked_fields=['x'], compression=['x'])
    with pytest.raises(bags.SpecError, match='one of the fields x to link'):
        append(b'', linked_fields=['y'])
    with pytest.raises(TypeError, match='linked_fields: expected names of fields'):
        append(b'', linked_fields='x')
    append(b'')
    with pytest.raises(ValueError, match="field 'x' is not linked in the folder"):
        bags.DatasetWriter(raw / 'other', {'x': 'bytes'}, linked_fields=['x'], resume=True)
    with pytest.raises(ValueError, match='its records have no checksums'):
        bags.DatasetWriter(raw / 'data', SPEC, checksum=True, resume=True)
    check(raw, raw / 'data', 3)


@pytest.mark.parametrize('arguments', [(7,), (b'a',), ('',), (None,), ('a', 1.5), ('a', 0, 'b')])
def test_other_arguments_of_links_are_refused(arguments):
    with pytest.raises(TypeError):
        bags.Link(*arguments)


@pytest.mark.parametrize('arguments', [('a', -1), ('a', 0, -1), ('a', 1 << 63), ('a', 1 << 62, 1 << 62)])
def test_other_ranges_of_links_are_refused(arguments):
    with pytest.raises(ValueError, match='expected'):
        bags.Link(*arguments)


# Files that are not as they were.


def one_link(raw, **options):
    """A dataset whose field x links to `raw/3` twice, to `all`, and has a record of its own."""
    with bags.DatasetWriter(
        raw / 'data', {'x': 'bytes', 'y': 'int(4)'}, linked_fields=['x'], **options
    ) as writer:
        for number, value in enumerate(
            [
                bags.Link(raw / 'raw' / '3'),
                bags.Link(raw / 'raw' / '3', 10, 20),
                b'own',
                bags.Link(raw / 'all'),
            ]
        ):
            writer.append({'x': value, 'y': number})
    return raw / 'raw' / '3'


def remove(path):
    path.unlink()


def cut(path):
    os.truncate(path, 39_999)


def grow(path):
    path.write_bytes(path.read_bytes() + b'1')


def change_end(path):
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


def replace_by_folder(path):
    path.unlink()
    path.mkdir()


def replace_by_pipe(path):
    path.unlink()
    os.mkfifo(path)


@pytest.mark.parametrize(
    ('change', 'found'),
    [
        (remove, 'a file of 40000 bytes, got none'),
        (cut, '40000 bytes, got 39999'),
        (grow, '40000 bytes, got 40001'),
        (change_end, 'it has changed since it was linked'),
        (replace_by_folder, 'a file, got something else'),
        (replace_by_pipe, 'a file, got something else'),
    ],
)
def test_a_file_that_differs_raises_for_its_rows_only(raw, change, found):
    path = one_link(raw)
    change(path)
    with bags.open(raw / 'data', trust_links=raw) as reader:
        for index in (0, 1):
            for read in (
                lambda index=index: reader[index],
                lambda index=index: reader.batch([2, index]),
                lambda index=index: reader.file(index, 'x').read(),
            ):
                with pytest.raises(bags.LinkError) as caught:
                    read()
                assert found in str(caught.value)
                assert caught.value.field == 'x'
                assert caught.value.record == index
                assert caught.value.file == str(path)
                assert caught.value.path == str(raw / 'data' / 'x.links')
                assert pickle.loads(pickle.dumps(caught.value)).found == caught.value.found
            assert reader[index, 'y']['y'] == index
        assert reader[2]['x'] == b'own'
        assert reader[3]['x'] == (raw / 'all').read_bytes()
        assert reader.batch([2, 3])['x'][0] == b'own'
    damage = bags.verify(raw / 'data', trust_links=raw)
    assert [(each.field, each.record, each.count) for each in damage] == [('x', 0, 2)]


def test_a_file_that_is_cut_while_it_is_open(raw):
    path = one_link(raw)
    with bags.open(raw / 'data', trust_links=raw) as reader:
        file = reader.file(0, 'x')
        assert reader[1]['x'] == path.read_bytes()[10:30]
        os.truncate(path, 100)
        assert reader[1]['x'] == path.read_bytes()[10:30]
        for read in (lambda: reader[0], lambda: reader.batch([0, 1]), file.read):
            with pytest.raises(bags.LinkError, match=r"field 'x': link to .*3: expected 40000 bytes"):
                read()


def test_changed_bytes_between_the_samples_are_found_by_checksums(raw):
    path = one_link(raw, checksum=True)
    data = bytearray(path.read_bytes())
    data[20_000] ^= 1
    path.write_bytes(data)
    with bags.open(raw / 'data', trust_links=raw, checksum=True) as reader:
        for read in (lambda: reader[0], lambda: reader.batch([0]), lambda: reader.file(0, 'x')):
            with pytest.raises(bags.CorruptError, match=f"^{path}, field 'x': differs from its checksum"):
                read()
        assert reader[1]['x'] == data[10:30]
    assert [each.record for each in bags.verify(raw / 'data', trust_links=raw)] == [0]


@pytest.mark.parametrize(
    ('name', 'mapped', 'least'), [('x.links', True, 3), ('x.links', False, 2), ('x.files', True, 3)]
)
def test_every_flipped_byte_raises_or_is_harmless(raw, name, mapped, least):
    one_link(raw)
    expected = [
        (raw / 'raw' / '3').read_bytes(),
        (raw / 'raw' / '3').read_bytes()[10:30],
        b'own',
        (raw / 'all').read_bytes(),
    ]
    path = raw / 'data' / name
    intact = path.read_bytes()
    raised = 0
    for offset in range(len(intact)):
        for flip in (1, 0x80, 0xFF, intact[offset]):
            data = bytearray(intact)
            data[offset] ^= flip
            path.write_bytes(data)
            try:
                with bags.open(raw / 'data', trust_links=raw, mapped=mapped) as reader:
                    found = [reader[index]['x'] for index in range(4)]
                    assert reader.batch(range(4))['x'] == found
            except (bags.CorruptError, PermissionError):
                raised += 1
            else:
                assert found == expected
    assert raised > least * len(intact)


@pytest.mark.parametrize(
    ('link', 'found'),
    [
        ((1, 0, 40_001), 'link to byte 40001 of ../raw/3, which has 40000 bytes'),
        ((1, 2**62, 2**62 + 5), f'link to byte {2**62 + 5} of ../raw/3'),
        ((1, 100, 50), 'leads to bytes 100 to 50, expected start <= end'),
        ((1, 2**63, 2**63 + 5), f'leads to bytes {2**63} to {2**63 + 5}, expected'),
        ((0, 0, 4), 'link to byte 4 of '),
        ((77, 0, 5), 'link to file 77, but '),
        ((2**32 - 1, 0, 5), f'link to file {2**32 - 1}, but '),
    ],
)
def test_links_that_lead_nowhere(raw, link, found):
    one_link(raw)
    path = raw / 'data' / 'x.links'
    rows = [make_rows(*link).tobytes() if index == 1 else row for index, row in enumerate(Reader(path))]
    path.unlink()
    with Writer(path.with_suffix('.bag'), compression='none') as writer:
        for row in rows:
            writer.write(row)
    path.with_suffix('.bag').rename(path)
    for mapped in (True, False):
        with bags.open(raw / 'data', trust_links=raw, mapped=mapped) as reader:
            for read in (
                lambda reader=reader: reader[1],
                lambda reader=reader: reader.batch([0, 1]),
                lambda reader=reader: reader.file(1, 'x'),
                lambda reader=reader: bags.copy(reader, raw / 'copy', mode='overwrite'),
                lambda reader=reader: reader.save(raw / 'copy', link=['x'], mode='overwrite'),
            ):
                with pytest.raises(bags.CorruptError) as caught:
                    read()
                assert found in str(caught.value)
                assert (caught.value.path, caught.value.record) == (str(path), 1)
            assert reader[0]['x'] == (raw / 'raw' / '3').read_bytes()
    (damage,) = bags.verify(raw / 'data', trust_links=raw)
    assert (damage.field, damage.record) == ('x', 1)
    assert found in damage.detail


def test_damaged_bags_of_links(raw):
    one_link(raw)
    for name in ('x.links', 'x.files', 'x.values'):
        path = raw / 'data' / name
        data = path.read_bytes()
        path.unlink()
        with pytest.raises(bags.CorruptError, match=name if name != 'x.links' else "field 'x': has neither"):
            bags.open(raw / 'data', trust_links=raw)[0]
        path.write_bytes(data)


# Permission.


def test_links_of_a_stranger_are_not_followed(raw, monkeypatch, tmp_path_factory):
    secret = tmp_path_factory.mktemp('home') / 'key'
    secret.write_bytes(b'secret')
    with bags.DatasetWriter(raw / 'data', {'x': 'bytes', 'v': 'bytes'}, linked_fields=['x']) as writer:
        writer.append({'x': bags.Link(secret), 'v': b''})
    with bags.open(raw / 'data') as reader:
        for read in (lambda: reader[0], lambda: reader.batch([0]), lambda: reader.file(0, 'x').read()):
            with pytest.raises(
                PermissionError, match=r"not permitted: .*bags.open\(…, trust_links=\['"
            ) as caught:
                read()
            assert caught.value.__notes__ == [f"field 'x', record 0 of {raw / 'data' / 'x.links'}"]
        assert reader[0, 'v']['v'] == b''
        again = pickle.loads(pickle.dumps(reader))
        with pytest.raises(PermissionError):
            again[0]
        with pytest.raises(PermissionError):
            list(bags.Loader(reader, batch_size=1, workers=1, processes=True))
        with pytest.raises(PermissionError):
            bags.copy(reader, raw / 'copy')
        monkeypatch.setenv('BAGS_TRUST_LINKS', str(secret))
        assert reader[0]['x'] == b'secret'
        assert [batch['x'] for batch in bags.Loader(reader, batch_size=1, workers=1, processes=True)] == [
            [b'secret']
        ]
    monkeypatch.delenv('BAGS_TRUST_LINKS')
    for links in (secret, [secret.parent], True):
        with bags.open(raw / 'data', trust_links=links) as reader:
            assert pickle.loads(pickle.dumps(reader))[0]['x'] == b'secret'
            assert [batch['x'] for batch in bags.Loader(reader, batch_size=1, workers=1, processes=True)] == [
                [b'secret']
            ]
    assert [each.detail for each in bags.verify(raw / 'data') if 'not permitted' in each.detail]


def test_an_unpickled_record_asks_again(raw, monkeypatch):
    from bags.dataset.reading.field_reader import Record

    path = one_link(raw)
    with bags.open(raw / 'data') as reader:
        record = Record(reader.open_field('x').bag, 0, 'x', 'bytes')
        monkeypatch.setenv('BAGS_TRUST_LINKS', str(raw))
        assert record.open().read() == path.read_bytes()
        data = pickle.dumps(record)
        assert pickle.loads(data).open().read() == path.read_bytes()
        monkeypatch.delenv('BAGS_TRUST_LINKS')
        with pytest.raises(PermissionError):
            pickle.loads(data).open().read()


# What reads and opens.


def test_opening_reads_no_linked_file(raw, monkeypatch):
    from bags.links import link_table, linked_files

    write(raw, raw / 'data', 0, 40)
    parsed, opened = [], []
    parse, open_file = link_table.parse_file, linked_files.LinkedFiles._open
    monkeypatch.setattr(link_table, 'parse_file', lambda entry: parsed.append(entry) or parse(entry))
    monkeypatch.setattr(
        linked_files.LinkedFiles,
        '_open',
        lambda self, folder, entry: opened.append(entry.path) or open_file(self, folder, entry),
    )
    with bags.open(raw / 'data', trust_links=raw) as reader:
        reader.batch(range(40), 'id')
        assert (parsed, opened) == ([], [])
        assert reader[6]['blob'] == b'own 6'
        assert reader[3]['blob'] == (raw / 'raw' / '3').read_bytes()[2:5]
        assert {os.path.basename(path) for path in opened} <= {'3', 'all'}
        assert len(opened) == len(parsed) <= 3
        reader.batch(range(40))
        assert len(opened) <= 6


def test_open_files_are_bounded(tmp_path, monkeypatch):
    from bags.links import linked_files

    monkeypatch.setattr(linked_files, 'MAX_OPEN_FILES', 16)
    for number in range(50):
        (tmp_path / f'{number}').write_bytes(b'%d' % number)
    with bags.DatasetWriter(tmp_path / 'data', {'x': 'bytes'}, linked_fields=['x']) as writer:
        for number in range(50):
            writer.append({'x': bags.Link(tmp_path / f'{number}')})
    with bags.open(tmp_path / 'data', trust_links=tmp_path) as reader:
        assert reader[0]['x'] == b'0'
        before = len(os.listdir('/proc/self/fd'))
        assert reader.batch(range(50))['x'] == [b'%d' % number for number in range(50)]
        assert [reader[index]['x'] for index in range(50)] == [b'%d' % number for number in range(50)]
        assert len(os.listdir('/proc/self/fd')) - before <= 16


def test_copies_are_whole(raw):
    write(raw, raw / 'data', 0, 20)
    with bags.open(raw / 'data', trust_links=raw) as reader:
        bags.copy(reader, raw / 'copy')
        bags.copy(reader.select(range(19, -1, -1)), raw / 'reversed')
    assert not any(name.endswith('.links') for name in os.listdir(raw / 'copy' / '000000'))
    check(raw, raw / 'copy', 20)
    with bags.open(raw / 'reversed') as reader:
        assert [plain(row) for row in reader][::-1] == [datapoint(raw, index)[1] for index in range(20)]


def test_what_is_made_of_whole_datasets(raw, monkeypatch):
    """Key indexes, shards.json and fingerprints of linked records are as those of others."""
    path, spec = raw / 'keyed', {'id': 'int(8)', 'name': 'utf8', 'blob': 'bytes'}
    (raw / 'names').write_bytes(b''.join(b'n%03d' % index for index in range(50)))

    def fill(start, stop, **options):
        options |= {'linked_fields': ['name', 'blob'], 'shard_length': 20}
        with bags.ShardedDatasetWriter(path, spec, **options) as writer:
            for index in range(start, stop):
                name = bags.Link(raw / 'names', 4 * index, 4) if index % 2 else f'n{index:03}'
                writer.append({'id': index, 'name': name, 'blob': bags.Link(raw / 'all', index, 100)})

    fill(0, 40)
    monkeypatch.setenv('BAGS_TRUST_LINKS', str(raw))  # Permits functions that open the dataset themselves.
    bags.create_index(path, 'name')
    bags.consolidate(path)
    with bags.open(path) as reader:
        first = reader.fingerprint
        assert [reader.find('name', key) for key in ('n007', 'n038')] == [7, 38]
        assert reader[33]['blob'] == (raw / 'all').read_bytes()[33:133]
    assert not bags.verify(path)
    fill(40, 50, resume=True)
    with bags.open(path) as reader:
        assert (len(reader), reader.fingerprint != first) == (50, True)
        with pytest.raises(bags.CorruptError, match='create_index'):
            reader.find('name', 'n007')
    bags.create_index(path, 'name')
    with bags.open(path) as reader:
        assert reader.find('name', 'n049') == 49


def test_a_writer_that_was_killed_before_it_created_the_links(raw):
    writer = bags.DatasetWriter(raw / 'data', SPEC, linked_fields=LINKS)
    leave_open(writer)
    del writer
    (raw / 'data/vector.links').unlink()
    assert bags.recover(raw / 'data')[0].kept == 0
    with bags.open(raw / 'data') as dataset:
        assert (len(dataset), dataset.unfinished) == (0, False)
