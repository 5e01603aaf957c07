"""`bags.verify` reports every change that makes a dataset inconsistent, and nothing else."""

import os
import random
import shutil
import tempfile
from pathlib import Path

import msgpack
import numpy as np
import pytest

import bags
from tests.interop.test_linking import make_tar
from tests.interop.test_linking_damage import as_somebody_else

DATA = Path(__file__).parents[2] / 'examples' / 'data'

SPEC = {
    'flag': 'bool',
    'id': 'int(8)',
    'image': 'png',
    'meta': 'msgpack',
    'note': 'utf8?',
    'nums': 'int(4)[]',
    'text': 'utf8',
    'words': 'utf8[]',
}
COUNT = 20
FORMS = {'plain': (), 'zstd': ('flag', 'id', 'meta', 'note', 'nums', 'text', 'words')}


def row(index):
    chance = np.random.default_rng(index)
    return {
        'flag': index % 2 == 0,
        'id': index,
        'image': chance.integers(0, 255, (5, 6, 3), np.uint8),
        'meta': {'at': index},
        'note': None if index % 3 else f'note {index}',
        'nums': list(range(index % 4)),
        'text': f'text {index} ' * (index % 3 + 1),
        'words': [f'word {index}'] * (index % 3),
    }


@pytest.fixture(params=FORMS, scope='module')
def whole(request, kit, tmp_path_factory):
    path = tmp_path_factory.mktemp('verify') / 'whole'
    kit.fill(path, map(row, range(COUNT)), SPEC, compression=FORMS[request.param])
    return path


@pytest.fixture
def hurt(whole, tmp_path):
    return shutil.copytree(whole, tmp_path / 'hurt')


def damage(path, **options):
    return bags.verify(path, **options)


# A reader of the format as the README describes it, independent of the library.


def ends_of(data):
    last = int.from_bytes(data[-8:], 'little')
    assert last <= len(data) - 8
    assert (len(data) - last) % 8 == 0
    ends = np.frombuffer(data[last:], '<u8').tolist()
    assert all(a <= b for a, b in zip([0, *ends], ends, strict=False))
    return ends


def is_consistent(path):
    """Returns whether limits and refs are consistent with the records: frames, PNGs and fixed sizes."""
    sizes = {'flag': 1, 'id': 8, 'nums': 4}
    try:
        counts = {}
        for name in SPEC:
            (file,) = [path / f for f in os.listdir(path) if f in (f'{name}.bag', f'{name}.bagz')]
            data = file.read_bytes()
            ends = ends_of(data)
            counts[name] = len(ends)
            for start, end in zip([0, *ends], ends, strict=False):
                record = data[start:end]
                if file.suffix == '.bagz':
                    if record:
                        assert record.startswith(b'\x28\xb5\x2f\xfd')
                        decompress(record)
                elif name in sizes:
                    assert len(record) == sizes[name]
                elif name == 'image':
                    assert record.startswith(b'\x89PNG')
        data = (path / 'refs.bag').read_bytes()
        ends = ends_of(data)
        for start, end in zip([0, *ends], ends, strict=False):
            entries = msgpack.unpackb(data[start:end])
            assert isinstance(entries, list)
            assert len(entries) == len(SPEC)
            for (name, kind), entry in zip(SPEC.items(), entries, strict=True):
                if kind.endswith('[]'):
                    first, count = entry
                    assert type(first) is int
                    assert type(count) is int
                    assert first >= 0
                    assert first + count <= counts[name]
                    assert count >= 0
                else:
                    assert type(entry) is int
                    assert 0 <= entry < counts[name] or (kind.endswith('?') and entry == 0xFFFFFFFF)
    except (AssertionError, ValueError, TypeError, msgpack.UnpackException):
        return False
    return True


def decompress(frame):
    import zstandard

    stream = zstandard.ZstdDecompressor().decompressobj()
    try:
        stream.decompress(frame)
    except zstandard.ZstdError:
        raise AssertionError from None
    assert stream.eof
    assert not stream.unused_data


def changed(path, chance, where):
    """Changes one byte of a bag: of its 'limits', of its 'records', or of either."""
    data = bytearray(path.read_bytes())
    last = int.from_bytes(data[-8:], 'little')
    start, stop = {'limits': (last, len(data)), 'records': (0, last), 'either': (0, len(data))}[where]
    data[chance.randrange(start, stop)] ^= chance.choice([1 << chance.randrange(8), chance.randrange(1, 256)])
    path.write_bytes(data)


def test_undamaged_dataset(whole):
    assert is_consistent(whole)
    assert damage(whole, decode=True, notes=True) == []


@pytest.mark.slow(all_but='plain')
def test_changes_to_limits_and_refs(whole, tmp_path):
    chance = random.Random(0)
    seen = 0
    for number in range(260):
        hurt = shutil.copytree(whole, tmp_path / str(number))
        name = chance.choice(sorted(name for name in os.listdir(hurt) if '.bag' in name))
        changed(hurt / name, chance, 'either' if name == 'refs.bag' else 'limits')
        found = damage(hurt)
        if not is_consistent(hurt):
            seen += 1
            assert found, (number, name)
            assert all(str(hurt) in str(each) for each in found)
        shutil.rmtree(hurt)
    assert seen > 200


@pytest.mark.slow(all_but='zstd')
def test_changes_to_frames_and_pictures(whole, tmp_path):
    chance = random.Random(1)
    seen = 0
    names = [name for name in os.listdir(whole) if name.endswith('.bagz') or name == 'image.bag']
    for number in range(120):
        hurt = shutil.copytree(whole, tmp_path / str(number))
        name = chance.choice(sorted(names))
        changed(hurt / name, chance, 'records')
        found = damage(hurt, decode=True)
        if not found:
            # A changed frame may decode to the same record.
            assert [to_list(each) for each in bags.open(hurt)] == [to_list(each) for each in bags.open(whole)]
            continue
        seen += 1
        assert {each.path for each in found} == {str(hurt / name)}
        assert len({each.record for each in found}) == 1
        shutil.rmtree(hurt)
    assert seen >= 118


def to_list(datapoint):
    return {**datapoint, 'image': datapoint['image'].tolist(), 'nums': datapoint['nums'].tolist()}


def test_continues_after_damage(kit, tmp_path):
    path = tmp_path / 'several'
    kit.fill(path, map(row, range(40)), SPEC, shard_length=10)
    data = bytearray((path / '000001' / 'image.bag').read_bytes())
    ends = ends_of(bytes(data))
    for record in (2, 5):
        data[ends[record] - 8] ^= 1
    (path / '000001' / 'image.bag').write_bytes(data)
    (path / '000002' / 'text.bag').unlink()
    (path / '000003' / 'spec.json').write_text('{"id": "int(8)"}')
    found = damage(path, decode=True)
    assert [(os.path.relpath(each.path, path), each.field, each.record) for each in found] == [
        ('000001/image.bag', 'image', 2),
        ('000001/image.bag', 'image', 5),
        ('000002', 'text', None),
        ('000003/spec.json', None, None),
        *[('000003/refs.bag', None, record) for record in range(10)],
    ]
    assert 'checksum' in found[0].detail


def test_each_damaged_record_is_named(hurt):
    refs = bytearray((hurt / 'refs.bag').read_bytes())
    ends = ends_of(bytes(refs))
    stride = ends[0]
    for record in (3, 7):
        refs[record * stride] ^= 0xFF
    (hurt / 'refs.bag').write_bytes(refs)
    assert [each.record for each in damage(hurt)] == [3, 7]


def test_unclosed_dataset_is_a_note(tmp_path, kit):
    path = tmp_path / 'open'
    writer = bags.DatasetWriter(path, SPEC)
    for index in range(5):
        writer.append(row(index))
    writer.flush()
    found = list(bags.verify(path, decode=True, notes=True))
    assert [type(each) for each in found] == [bags.types.Note]
    assert 'not closed' in found[0].detail
    assert damage(path) == []
    writer.close()


@pytest.mark.parametrize(
    ('removed', 'named'), [([0], '000000:'), ([1, 3], '000001, 000003:'), ([2, 3], '000002 to 000003:')]
)
def test_gaps_in_shard_numbers_are_a_note(tmp_path, kit, removed, named):
    path = tmp_path / 'd'
    kit.fill(path, map(row, range(10)), SPEC, shard_length=2)
    assert not damage(path, notes=True)
    for number in removed:
        shutil.rmtree(path / f'{number:06}')
    assert not damage(path)
    (note,) = damage(path, notes=True)
    assert (note.path, note.field) == (str(path), None)
    assert note.detail.startswith(f'has no shard folder {named}')
    there = [index for index in range(10) if index // 2 not in removed]
    assert [found['id'] for found in bags.open(path)] == there


def test_unused_records_are_a_note(tmp_path):
    path = tmp_path / 'orphans'
    with bags.DatasetWriter(path, {'id': 'int(8)', 'words': 'utf8[]'}) as writer:
        writer.append({'id': 0, 'words': ['a', 'b']})
        with pytest.raises(ValueError):
            writer.append({'id': 0, 'words': ['c', 5]})
        writer.append({'id': 1, 'words': ['d']})
    with bags.bag.Writer(path / 'id.bag', mode='append') as bag:
        bag.write(bytes(8))
    found = list(bags.verify(path, decode=True, notes=True))
    assert damage(path) == []
    assert any(isinstance(each, bags.types.Note) and '1 record of 3' in each.detail for each in found)


def test_shared_and_overlapping_records_are_used(tmp_path):
    path = tmp_path / 'shared'
    with bags.DatasetWriter(path, {'words': 'utf8[]'}) as writer:
        writer.append({'words': list('abcdef')})
    from bags.dataset.format.refs import RefsFormat
    from bags.dataset.format.spec import parse_spec

    format = RefsFormat(parse_spec({'words': 'utf8[]'}))
    with bags.bag.Writer(path / 'refs.bag', mode='overwrite') as refs:
        for first, count in ((0, 3), (1, 4), (0, 5), (2, 2)):
            refs.write(format.pack(np.array([[first, count]])))
    (note,) = bags.verify(path, notes=True)
    assert '1 record of 6' in note.detail


def test_an_open_dataset_and_views(whole, hurt):
    (hurt / 'text.bag').unlink(missing_ok=True)
    (hurt / 'text.bagz').unlink(missing_ok=True)
    with bags.open(whole) as good, bags.open(hurt) as bad:
        assert damage(good[2:5]) == []
        view = bags.concat([good[:3], bad[:3]])
        assert [(each.path, each.field) for each in damage(view)] == [(str(hurt), 'text')]


def test_lone_bag(tmp_path):
    path = tmp_path / 'texts.bagz'
    with bags.bag.Writer(path) as writer:
        for number in range(100):
            writer.write(f'text {number}')
    assert damage(path, decode=True, notes=True) == []
    data = bytearray(path.read_bytes())
    ends = ends_of(bytes(data))
    data[ends[7] - 1] ^= 1
    path.write_bytes(data)
    for decode in (False, True):  # Compressed records of local files are always decompressed.
        (found,) = damage(path, decode=decode)
        assert (found.path, found.field, found.record) == (str(path), None, 7)


def test_types_without_decoder_are_a_note(tmp_path):
    encoders = {**bags.encoders, 'mine': bytes}
    with bags.DatasetWriter(tmp_path / 'mine', {'x': 'mine'}, encoders) as writer:
        writer.append({'x': b'abc'})
    (note,) = bags.verify(tmp_path / 'mine', decode=True, notes=True)
    assert 'mine' in note.detail

    def refuse(record):
        raise ValueError('no good')

    (found,) = bags.verify(tmp_path / 'mine', decode=True, decoders={'mine': refuse})
    assert found.record == 0
    assert 'no good' in found.detail


def test_datasets_of_other_libraries(kit):
    for name in ('bags05-dataset', 'bags05-sharded', 'granular-dataset', 'granular-sharded'):
        assert list(bags.verify(kit.GOLDEN / name, decode=True, notes=True)) == [], name
    for name in ('bagz-zstd.bagz', 'sackli-shards@*.bagz', 'bagz-first-empty.bag', 'bagz-empty.bag'):
        assert list(bags.verify(kit.GOLDEN / name, decode=True, notes=True)) == [], name


def test_lazy_audio_is_decoded(tmp_path):
    pytest.importorskip('av')
    samples = np.random.default_rng(0).integers(-9999, 9999, (40_000, 1)).astype(np.int16)
    with bags.DatasetWriter(tmp_path / 'sounds', {'flac': 'audio', 'wav': 'audio?'}) as writer:
        flac = bags.encoders['flac']((samples, 16_000))
        writer.append({'flac': flac, 'wav': (samples, 16_000)})
        # Written to a pipe: without the number of samples, the cut shows only when it is decoded.
        piped = flac[:21] + bytes([flac[21] & 0xF0]) + bytes(4) + flac[26:]
        writer.append({'flac': piped[: len(flac) // 2]})
    assert [(found.field, found.record) for found in bags.verify(tmp_path / 'sounds', decode=True)] == [
        ('flac', 1)
    ]


@pytest.mark.parametrize('field_type', ['audio', 'video'])
def test_checksums_of_videos_and_recordings(field_type, tmp_path):
    pytest.importorskip('av')
    spec = {'id': 'int(8)', 'media': field_type, 'more': f'{field_type}[]'}
    value = DATA / ('bunny.mp4' if field_type == 'video' else 'bunny.flac')
    with bags.DatasetWriter(tmp_path / 'x', spec, checksum=True) as writer:
        for index in range(3):
            writer.append({'id': index, 'media': value, 'more': [value] * index})
    assert damage(tmp_path / 'x') == damage(tmp_path / 'x', decode=True) == []
    path = tmp_path / 'x' / 'media.bag'
    data = bytearray(path.read_bytes())
    data[value.stat().st_size + 5000] ^= 1
    path.write_bytes(data)
    (found,) = damage(tmp_path / 'x')
    assert (found.field, found.record) == ('media', 1)
    assert 'checksum' in found.detail


def test_lazy_decoder_of_a_user_may_return_anything(tmp_path):
    def decode_size(record):
        with record.open() as file:
            return len(file.read())

    decode_size.lazy = True
    with bags.DatasetWriter(tmp_path / 'sizes', {'size': 'bytes'}) as writer:
        writer.append({'size': b'abc'})
    with bags.open(tmp_path / 'sizes', {**bags.decoders, 'bytes': decode_size}) as reader:
        assert list(bags.verify(reader, decode=True)) == []


def test_missing_paths(tmp_path):
    with pytest.raises(FileNotFoundError, match='nowhere'):
        bags.verify(tmp_path / 'nowhere')
    with pytest.raises(FileNotFoundError, match='expected a dataset'):
        bags.verify(tmp_path)
    with bags.bag.Writer(tmp_path / 'x.bag') as writer:
        writer.write(b'x')
    with pytest.raises(FileNotFoundError, match=r'such as x\.bag'):
        bags.verify(tmp_path)


def test_an_open_dataset_is_checked_with_what_it_was_opened_with(tmp_path):
    """Also a view, and past a cache, which has bytes from before."""
    system = pytest.importorskip('fsspec.implementations.memory').MemoryFileSystem()
    path = f'/{tmp_path.name}/data'
    with bags.ShardedDatasetWriter(path, {'text': 'utf8'}, shard_length=2, filesystem=system) as writer:
        for number in range(5):
            writer.append({'text': f'text {number}'})
    dataset = bags.open(path, filesystem=system, cache=tmp_path / 'cache')
    assert dataset.batch(range(5))['text'] == [f'text {number}' for number in range(5)]
    assert bags.verify(dataset) == bags.verify(dataset[1:3], decode=True) == []
    system.pipe_file(f'{path}/000001/text.bag', system.cat_file(f'{path}/000001/text.bag')[:-1])
    found = bags.verify(dataset.select([0]), decode=True)
    assert [each.field for each in found] == ['text']
    assert bags.verify(path, filesystem=system, decode=True) == found
    system.rm(f'/{tmp_path.name}', recursive=True)


def test_links_of_one_file_are_one_finding(tmp_path):
    (tmp_path / 'raw').mkdir()
    for tar in range(3):
        (tmp_path / 'raw' / f'{tar}.tar').write_bytes(make_tar(range(5 * tar, 5 * tar + 5)))
    bags.convert(tmp_path / 'raw', tmp_path / 'index', link=True)
    (refused,) = bags.verify(tmp_path / 'index')
    assert (refused.field, refused.record, refused.count) == ('jpg', 0, 15)
    assert f'--trust-links {tmp_path / "raw"} ' in refused.detail
    (tmp_path / 'raw' / '1.tar').unlink()
    changed = bytearray((tmp_path / 'raw' / '2.tar').read_bytes())
    changed[0] ^= 1
    (tmp_path / 'raw' / '2.tar').write_bytes(changed)
    missing, changed = bags.verify(tmp_path / 'index', trust_links=True)
    assert (missing.record, missing.count, changed.record, changed.count) == (5, 5, 10, 5)
    assert f"field 'jpg', record 5 and 4 more: field 'jpg': link to {tmp_path}/raw/1.tar: " in str(missing)
    assert 'expected the sample' in changed.detail


@pytest.mark.skipif(os.name == 'nt', reason='needs permissions of files')
@pytest.mark.parametrize('decode', [False, True])
def test_files_that_may_not_be_read_are_listed(decode):
    files = ('refs.bag', 'text.bag', 'spec.json', 'metadata.json', 'index', 'shard')
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, 'data')
        with bags.ShardedDatasetWriter(
            path, {'id': 'int(8)', 'text': 'utf8'}, shard_length=2, metadata={'name': 'x'}
        ) as writer:
            for index in range(2 * len(files) + 2):
                writer.append({'id': index, 'text': f'text {index}'})
        bags.create_index(path, 'id')
        refused = [path / f'{shard:06}' / name for shard, name in enumerate(files)]
        refused[4] = next(path.glob('*/*.index'))
        refused[5] = path / '000005'
        torn = path / f'{len(files):06}' / 'text.bag'
        os.truncate(torn, torn.stat().st_size - 1)
        for part in [Path(folder), path, *path.rglob('*')]:
            part.chmod(0o755 if part.is_dir() else 0o644)
        try:
            for part in refused:
                part.chmod(0)
            with as_somebody_else():
                found = bags.verify(path, decode=decode)
        finally:
            refused[5].chmod(0o755)
    assert [
        Path(each.path) for each in found if each.detail == 'cannot be read: Permission denied'
    ] == sorted(refused, key=lambda part: (part.suffix != '.index', part))
    assert [each.field for each in found if each.path == str(refused[1])] == ['text']
    (other,) = [each for each in found if Path(each.path) not in refused]
    assert (Path(other.path), other.field) == (torn, 'text')


@pytest.mark.skipif(os.name == 'nt', reason='needs permissions of files')
def test_bags_that_may_not_be_read_are_listed():
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        paths = [Path(folder, f'x-0000{number}-of-00003.bag') for number in range(3)]
        for path in paths:
            with bags.bag.Writer(path) as writer:
                writer.write(b'x')
        for path in paths[::2]:
            path.chmod(0)
        with as_somebody_else():
            found = bags.verify(Path(folder, 'x@*.bag'))
    assert [(Path(each.path), each.detail) for each in found] == [
        (path, 'cannot be read: Permission denied') for path in paths[::2]
    ]


def test_much_damage_of_a_field_ends_as_one_finding(tmp_path):
    with bags.DatasetWriter(tmp_path / 'd', {'x': 'int(4)'}) as writer:
        for number in range(2500):
            writer.append({'x': number})
    (tmp_path / 'd' / 'spec.json').write_text('{"x": "int(8)"}')
    *first, last = bags.verify(tmp_path / 'd')
    assert [finding.record for finding in first] == list(range(999))
    assert (last.record, last.count, last.detail) == (999, 1501, 'has 4 bytes, but int(8) takes 8')
