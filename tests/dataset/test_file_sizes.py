"""Files and records that are far too large are refused before they are read."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import sys

import numpy as np
import pytest

import bags
from tests.servers import WebServer

resource = pytest.importorskip('resource')

SIZE = 8 << 30
SPEC = {'id': 'int(8)', 'text': 'utf8', 'doc': 'json', 'words': 'utf8[]', 'link': 'bytes', 'note': 'utf8?'}


@pytest.fixture
def memory_limit():
    """Limits the memory of the process, without mapped files, to what it has and 512 MiB."""
    if sys.platform != 'linux':
        pytest.skip('needs the memory limits of Linux')
    limits = resource.getrlimit(resource.RLIMIT_DATA)
    with open('/proc/self/statm', encoding='utf-8') as file:
        used = int(file.read().split()[5]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_DATA, (used + (512 << 20), limits[1]))
    yield
    resource.setrlimit(resource.RLIMIT_DATA, limits)


def make_row(index: int, folder: object) -> dict[str, object]:
    return {
        'id': index,
        'text': f'a text that the dictionary has in common with all others, number {index}' * 3,
        'doc': {'index': index},
        'words': ['one', 'two'] * index,
        'link': bags.Link(f'{folder}/linked/{index % 3}.bin'),
        'note': None if index % 2 else f'{index}',
    }


@pytest.fixture(scope='module')
def made(tmp_path_factory):
    """A folder with a dataset in shards that has all optional files, and a dataset that is being written."""
    folder = tmp_path_factory.mktemp('sizes')
    (folder / 'linked').mkdir()
    for index in range(3):
        (folder / 'linked' / f'{index}.bin').write_bytes(b'linked %d' % index)
    with bags.ShardedDatasetWriter(
        folder / 'd',
        SPEC,
        shard_length=200,
        compression={'text': 'dictionary'},
        checksum=True,
        metadata={'a': 1},
        linked_fields=['link'],
    ) as writer:
        for index in range(220):
            writer.append(make_row(index % 7, folder))
    bags.statistics(folder / 'd' / '000000', keep=True)
    bags.create_index(folder / 'd', 'id')
    bags.consolidate(folder / 'd')
    writer = bags.DatasetWriter(folder / 'begun', {'id': 'int(8)', 'text': 'utf8'}, checksum=True)
    for index in range(3):
        writer.append({'id': index, 'text': f'{index}'}, flush=True)
    shutil.copytree(folder / 'begun', folder / 'unfinished')
    writer.close()
    return folder


FILES = [
    'd/shards.json', 'd/shards.json.xxh3',
    *(f'd/000000/{name}' for name in (
        'spec.json', 'spec.json.xxh3', 'metadata.json', 'metadata.json.xxh3', 'source.json',
        'source.json.xxh3', 'statistics.json', 'statistics.json.xxh3', 'text.zdict', 'id.index', 'refs.bag',
        'refs.bag.xxh3', 'id.bag', 'id.bag.xxh3', 'text.bagz', 'text.bagz.xxh3', 'doc.bag', 'words.bag',
        'note.bag', 'link.links', 'link.files', 'link.values', 'link.links.xxh3',
    )),
    *(f'unfinished/{name}' for name in (
        'unfinished', 'spec.json', 'refs.bag', 'refs.bag.xxh3', 'limits.refs.bag', 'id.bag', 'id.bag.xxh3',
        'limits.id.bag', 'text.bag', 'text.bag.xxh3', 'limits.text.bag',
    )),
]  # fmt: skip


def read(path, **options):
    with bags.open(path, **options) as dataset:
        assert len(dataset[0]) >= 2
        dataset.batch([0, 1])
        assert dataset.metadata is not None


def write(path):
    kind = bags.DatasetWriter if path.name == 'unfinished' else bags.ShardedDatasetWriter
    with kind(path, bags.open(path).spec, resume=True) as writer:
        assert len(writer) >= 0


USES = {
    'read': read,
    'read without maps': lambda path: read(path, mapped=False, cache_index=False),
    'compare with checksums': lambda path: read(path, checksum=True),
    'find': lambda path: bags.open(path).find('id', 3),
    'fingerprint': lambda path: bags.open(path).fingerprint,
    'info': lambda path: str(bags.info(path)),
    'recover': bags.recover,
    'write': write,
    'metadata': lambda path: bags.set_metadata(path, {'b': 1}),
    'consolidate': bags.consolidate,
}


@pytest.mark.slow(all_but='d/000000/spec.json')
@pytest.mark.parametrize('name', FILES)
def test_sparse_files_do_not_take_memory(made, tmp_path, memory_limit, name):
    for how, use in USES.items():
        if how in ('fingerprint', 'find') and name.endswith(('.xxh3', '.values')):
            continue  # The fingerprint reads the whole file, for many seconds.
        shutil.rmtree(tmp_path)
        shutil.copytree(made, tmp_path)
        assert (tmp_path / name).exists()
        os.truncate(tmp_path / name, SIZE)
        with contextlib.suppress(bags.BagsError, ValueError, OSError):
            use(tmp_path / name.split('/')[0])


@pytest.mark.parametrize(
    ('name', 'use', 'most'),
    [
        ('spec.json', bags.open, 1 << 26),
        ('metadata.json', lambda path: bags.open(path).metadata, 1 << 24),
        ('statistics.json', bags.statistics, 1 << 26),
        ('text.zdict', lambda path: bags.open(path)[0], 1 << 26),
    ],
)
def test_the_error_of_a_file_that_is_too_large(made, tmp_path, memory_limit, name, use, most):
    shard = shutil.copytree(made / 'd' / '000000', tmp_path / 'd')
    os.truncate(shard / name, SIZE)
    with pytest.raises(bags.CorruptError) as caught:
        use(shard)
    assert str(caught.value) == f'{shard / name}: expected at most {most} bytes, got {SIZE}'
    assert [finding.path for finding in bags.verify(shard) if finding.detail == caught.value.detail]


def test_a_list_of_shards_that_is_too_large(made, tmp_path, memory_limit):
    path = shutil.copytree(made / 'd', tmp_path / 'd')
    shutil.copytree(made / 'linked', tmp_path / 'linked')
    os.truncate(path / 'shards.json', SIZE)
    detail = f'expected at most {1 << 30} bytes, got {SIZE}'
    assert detail in {finding.detail for finding in bags.verify(path)}
    with pytest.raises(bags.CorruptError, match=detail):  # It has a checksum.
        bags.open(path)
    bags.consolidate(path)
    assert len(bags.open(path)) == 220
    assert not bags.verify(path, trust_links=True)


def test_metadata_that_is_too_large_can_be_replaced(made, tmp_path, memory_limit):
    shard = shutil.copytree(made / 'd' / '000000', tmp_path / 'd')
    os.truncate(shard / 'metadata.json', SIZE)
    bags.set_metadata(shard, {'b': 2})
    assert bags.open(shard).metadata == {'b': 2}
    assert not [finding for finding in bags.verify(shard) if 'metadata.json' in finding.path]


# Servers.


class LargeFileServer(WebServer):
    """Serves one file of a folder as a file of `SIZE` bytes, of which each response has a range or all."""

    def __init__(self, root, large, ranges):
        self.large, self.ranges = large, ranges
        super().__init__(root)

    def serve(self, handler):
        if not handler.path.endswith(f'/{self.large}'):
            super().serve(handler)
            return
        first, last = re.fullmatch(r'bytes=(\d*)-(\d*)', handler.headers.get('Range', 'bytes=0-')).groups()
        start, stop = int(first or SIZE - int(last)), int(last) + 1 if first and last else SIZE
        if not self.ranges:
            start, stop = 0, SIZE
        handler.send_response(206 if self.ranges else 200)
        handler.send_header('Content-Length', str(stop - start))
        if self.ranges:
            handler.send_header('Content-Range', f'bytes {start}-{stop - 1}/{SIZE}')
        handler.send_header('ETag', '"large"')
        handler.end_headers()
        for _ in range(start, stop, 1 << 16):
            handler.wfile.write(bytes(min(1 << 16, stop - start)))
            self.sent += 1 << 16


@pytest.mark.parametrize('client', ['obstore', 'fsspec'])
@pytest.mark.parametrize('cached', [False, True], ids=['direct', 'cached'])
@pytest.mark.parametrize('ranges', [True, False], ids=['ranges', 'whole'])
@pytest.mark.parametrize('name', ['spec.json', 'metadata.json', 'text.zdict', 'shards.json'])
def test_a_server_that_announces_a_large_file(made, tmp_path, memory_limit, client, cached, ranges, name):
    path = 'd' if name == 'shards.json' else 'd/000000'
    cache = {'cache': tmp_path / 'cache'} if cached else {}
    with LargeFileServer(made, name, ranges) as server:
        options = {'storage_options': {'client': client, 'retries': 0}, **cache}

        def read():
            dataset = bags.open(f'{server.url}/{path}', **options)
            return dataset.metadata, dataset[0, 'text']

        with pytest.raises((bags.CorruptError, OSError), match=name) as caught:
            read()
        if ranges:
            assert re.search(rf'expected at most \d+ bytes, got {SIZE}', str(caught.value))
        assert server.sent < 64 << 20
    assert not cached or sum(file.stat().st_size for file in (tmp_path / 'cache').iterdir()) < 1 << 20


# Records.

VALUES = {
    'bytes': b'abc',
    'utf8': 'abc',
    'utf8?': 'abc',
    'utf8[]': ['abc'],
    'json': {'a': 1},
    'msgpack': [1],
    'array': np.zeros(3),
    'png': np.zeros((4, 4, 3), np.uint8),
}


def write_with_large_record(path, type, compressed=False, checksum=False):
    """Writes a dataset of four datapoints, and inserts `SIZE` zeros before record 2 of its first field."""
    options = {'compression': ['x'] if compressed else None, 'checksum': checksum}
    with bags.DatasetWriter(path, {'x': type, 'id': 'int(8)'}, **options) as writer:
        for index in range(4):
            writer.append({'x': VALUES[type], 'id': index})
    bag = path / ('x.bagz' if compressed else 'x.bag')
    data = bag.read_bytes()
    ends = np.frombuffer(data[-32:], '<i8')
    with open(bag, 'wb') as file:
        file.write(data[: ends[1]])
        file.seek(SIZE, 1)
        file.write(data[ends[1] : ends[3]])
        file.write(np.add(ends, [0, 0, SIZE, SIZE], dtype='<i8').tobytes())
    return SIZE + int(ends[2] - ends[1])


@pytest.mark.parametrize(
    ('type', 'compressed', 'checksum'),
    [
        *((type, False, False) for type in VALUES),
        ('bytes', True, False),
        ('bytes', False, True),
        ('json', True, True),
    ],
)
def test_records_that_are_too_large_to_be_read(tmp_path, memory_limit, type, compressed, checksum):
    size = write_with_large_record(tmp_path / 'd', type, compressed, checksum)
    path = tmp_path / 'd' / ('x.bagz' if compressed else 'x.bag')
    expected = (
        f"{path}, field 'x' of type {type}, record 2: the record has {size} bytes, "
        f'which exceeds max_value_size={1 << 30}'
    )
    reads = [
        lambda dataset: dataset[2],
        lambda dataset: dataset[2, 'x'],
        lambda dataset: dataset[2, {'x': [0]}] if type == 'utf8[]' else dataset[2],
        lambda dataset: dataset.batch([2, 3]),
        lambda dataset: dataset.batch([3, 2] * 10, 'x'),
        lambda dataset: list(dataset[:, 'x']),
        lambda dataset: next(iter(bags.Loader(dataset, 4))),
    ]
    for mapped in (True, False):
        with bags.open(tmp_path / 'd', mapped=mapped, checksum=checksum) as dataset:
            assert dataset[1]['id'] == 1
            for read in reads:
                with pytest.raises(bags.DecodeError, match=re.escape(expected)):
                    read(dataset)
            assert dataset[2, 'id'] == {'id': 2}
            if not compressed and not checksum:
                item = 0 if type.endswith('[]') else None
                assert dataset.file(2, 'x', item).read(3) == bytes(3)


def test_what_is_not_read_whole_has_no_limit(tmp_path, memory_limit):
    write_with_large_record(tmp_path / 'd', 'bytes')
    raw = bags.open(tmp_path / 'd', raw=True)
    assert len(raw[2]['x']) == SIZE + 3
    assert len(bags.open(tmp_path / 'd', {**bags.decoders, 'bytes': bags.decoders['video']})[2]) == 2
    assert bags.verify(tmp_path / 'd', decode=True) == []
    with bags.open(tmp_path / 'd', max_value_size=2 * SIZE) as dataset, pytest.raises(MemoryError):
        dataset[2]


def test_a_linked_file_that_is_too_large(tmp_path, memory_limit):
    (tmp_path / 'd').mkdir()
    for index in range(3):
        (tmp_path / 'd' / f'{index}.bin').write_bytes(b'abc')
    os.truncate(tmp_path / 'd' / '1.bin', SIZE)
    with bags.DatasetWriter(tmp_path / 'd' / 'set', {'x': 'bytes'}, linked_fields=['x']) as writer:
        for index in range(3):
            writer.append({'x': bags.Link(str(tmp_path / 'd' / f'{index}.bin'))})
    dataset = bags.open(tmp_path / 'd' / 'set', trust_links=True)
    assert dataset.batch([0, 2])['x'] == [b'abc', b'abc']
    for read in (lambda: dataset[1], lambda: dataset.batch([0, 1])):
        with pytest.raises(
            bags.DecodeError, match=f"field 'x' .* has {SIZE} bytes, which exceeds max_v"
        ) as caught:
            read()
        assert str(caught.value).startswith(f'{tmp_path}/d/1.bin, field')
        assert 'dataset.file' in str(caught.value)
    assert dataset.file(1, 'x').read(3) == b'abc'


def test_arrays_that_are_too_large(tmp_path, memory_limit):
    with bags.DatasetWriter(tmp_path / 'd', {'x': 'array(uint8,3)', 'id': 'int(8)'}) as writer:
        writer.append({'x': np.zeros(3, np.uint8), 'id': 1})
    (tmp_path / 'd' / 'spec.json').write_text(f'{{"x": "array(uint8,{SIZE})", "id": "int(8)"}}')
    assert bags.open(tmp_path / 'd')[0, 'id'] == {'id': 1}
    with pytest.raises(bags.CorruptError, match=f'1 records of {SIZE} bytes, but they take 3'):
        bags.open(tmp_path / 'd')[0]
    with open(tmp_path / 'd' / 'x.bag', 'wb') as file:
        file.seek(SIZE)
        file.write(SIZE.to_bytes(8, 'little'))
    for read in (lambda dataset: dataset[0], lambda dataset: dataset.batch([0], 'x')):
        for mapped in (True, False):
            with pytest.raises(bags.DecodeError, match=f'has {SIZE} bytes, which exceeds max_value_size'):
                read(bags.open(tmp_path / 'd', mapped=mapped))


# Imports.


@pytest.mark.parametrize(
    ('name', 'detail'),
    [
        ('a.jsonl', 'expected less than 2,147,483,648 bytes'),
        ('a.csv', 'expected less than 2,147,483,648 bytes'),
        ('a.vtt', 'expected less than 2,147,483,648 bytes'),
        ('a.bin', f'expected at most {1 << 30} bytes for a sparse or compressed file, got {SIZE}'),
        ('a.json', f'expected at most {1 << 30} bytes for a sparse or compressed file, got {SIZE}'),
    ],
)
def test_imports_of_sparse_files(tmp_path, memory_limit, name, detail):
    source = tmp_path / 'files' / name
    source.parent.mkdir()
    source.touch()
    os.truncate(source, SIZE)
    with pytest.raises(bags.SourceError, match=detail):
        bags.convert(source if 'less' in detail else source.parent, tmp_path / 'd')
