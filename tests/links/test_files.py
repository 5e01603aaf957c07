"""Files of links: entries of one form, and paths of one meaning; all others are refused."""

import msgpack
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from bags.links.files import (
    MAX_ENTRY_BYTES,
    Dictionary,
    LinkedFile,
    check_stored_path,
    pack_file,
    parse_file,
    resolved_path,
    sample_of,
    sample_ranges,
    stored_path,
)

STORED = [
    'a.mp4', 'raw/a.mp4', '../base/000000/image.bag', '../../x', '/a', '/data/raw/a b.tar', 'ab:c',
    'a/b:c', 's3://bucket/a.mp4', 'gs://bucket/a/b', 'az://c/d', 'https://example.com/a/b?c=d', '.hidden',
    'a/...', 'ü.jpg',
]  # fmt: skip
REFUSED = [
    '', '/', 'a/', '//host/a', '//host', '/a//b', 'a//b', './a', 'a/./b', 'a/.', 'a/..', 'a/../b',
    '../a/../b', '..', '../..', '../', '/..', '/../a', '/a/../../b', 'C:/a', 'c:a', 'a:b', 'C:\\a',
    '\\\\host\\a', 'a\\b', 'a\0b', 'file:/etc/passwd', 'file:///etc/passwd', 'file:a', 'FILE://a',
    '/file:/etc/passwd', '/posix:/etc/passwd', 's3:/bucket/a', '/s3:/bucket/a', 'http:/host/a',
    'memory://a/b', 'ftp://host/a', 'zip://a::s3://b/c', 'simplecache::s3://b/c', 's3://', 's3://bucket',
    's3://bucket/', 's3:///a', 's3://bucket//a', 's3://bucket/../other/a', 's3://bucket/a/../../b',
    's3://bucket/./a', 'https://host/%2e%2e/a', 'https://host/%2E./a', 'S3://bucket/a', 's3a://bucket/a',
    '../s3://b/c', '://a', 'github://a:b@c/d',
]  # fmt: skip


@pytest.mark.parametrize('path', STORED)
def test_paths_that_are_stored(path):
    check_stored_path(path)
    file = LinkedFile(path, 10, 3)
    assert parse_file(pack_file(file)) == file


@pytest.mark.parametrize('path', REFUSED)
def test_paths_that_are_refused(path):
    with pytest.raises(ValueError, match='path '):
        check_stored_path(path)
    with pytest.raises(ValueError, match='path '):
        parse_file(msgpack.packb([path, 10, 3, None]))
    with pytest.raises(ValueError, match='path '):
        parse_file(msgpack.packb(['a.bagz', 10, 3, [path, 5, 5]]))


def test_vectors():
    digest = 0x0123456789ABCDEF
    vectors = {
        '94a5612e6d70340a03c0': LinkedFile('a.mp4', 10, 3),
        '94a6612e6261677acd0100cf0123456789abcdef90': LinkedFile('a.bagz', 256, digest, True),
        '94a6612e6261677a000093a7612e7a646963740701': LinkedFile(
            'a.bagz', 0, 0, True, Dictionary('a.zdict', 7, 1)
        ),
    }
    for entry, file in vectors.items():
        assert pack_file(file).hex() == entry
        assert parse_file(bytes.fromhex(entry)) == file


@pytest.mark.parametrize('size', [0, 1, 4096, 8191, 8192, 8193, 100_000])
def test_a_sample_is_of_the_first_and_the_last_4_kib(size):
    data = bytes(range(256)) * 400
    sample = sample_of([data[start:stop] for start, stop in sample_ranges(size)])
    expected = data[:size] if size < 8192 else data[:4096] + data[size - 4096 : size]
    assert sample == xxhash.xxh3_64_intdigest(expected)


@pytest.mark.parametrize(
    'entry',
    [
        None, 7, 'a', [], ['a', 1, 2], ['a', 1, 2, None, None], [b'a', 1, 2, None], [1, 1, 2, None],
        ['a', -1, 2, None], ['a', 1 << 63, 2, None], ['a', 1.0, 2, None], ['a', True, 2, None],
        ['a', 1, None, None], ['a', 1, -2, None], ['a', 1, 2, 'zstd'], ['a', 1, 2, True],
        ['a', 1, 2, ['d']], ['a', 1, 2, ['d', 1]], ['a', 1, 2, ['d', 1, 2, 3]], ['a', 1, 2, ['d', -1, 2]],
        ['a', 1, 2, ['d', 1, -2]], ['a', 1, 2, ['d', 1 << 63, 2]], ['a', 1, 2, [b'd', 1, 2]],
        ['a', 1, 2, ['d', True, 2]], {'path': 'a'},
    ],
)  # fmt: skip
def test_other_entries_are_refused(entry):
    with pytest.raises(ValueError, match=r'expected \[path, size'):
        parse_file(msgpack.packb(entry))


def test_damaged_entries_are_refused():
    entry = pack_file(LinkedFile('a.bagz', 256, 5, True, Dictionary('a.zdict', 7, 1)))
    for cut in range(len(entry)):
        with pytest.raises(ValueError, match='msgpack'):
            parse_file(entry[:cut])
    with pytest.raises(ValueError, match='msgpack'):
        parse_file(entry + b'\0')
    with pytest.raises(ValueError, match='at most 65536 bytes of an entry'):
        pack_file(LinkedFile('a' * MAX_ENTRY_BYTES, 1, 1))
    with pytest.raises(ValueError, match='msgpack'):
        parse_file(b'\xdf\xff\xff\xff\xff')  # A map of 2**32 - 1 pairs.


@given(st.binary(max_size=64))
def test_any_bytes_are_an_entry_or_refused(data):
    try:
        file = parse_file(data)
    except ValueError:
        return
    assert parse_file(pack_file(file)) == file


@pytest.mark.parametrize(
    ('path', 'folder', 'above', 'stored'),
    [
        ('/d/base/image.bag', '/d/view', '/d', '../base/image.bag'),
        ('/d/base/000001/image.bag', '/d/view/000000', '/d', '../../base/000001/image.bag'),
        ('/d/view/raw/a.mp4', '/d/view', '/d', 'raw/a.mp4'),
        ('/other/a.mp4', '/d/view', '/d', '/other/a.mp4'),
        ('/data/a.mp4', '/d/view', '/d', '/data/a.mp4'),
        ('s3://b/base/a.bag', 's3://b/view', 's3://b', '../base/a.bag'),
        ('s3://c/base/a.bag', 's3://b/view', 's3://b', 's3://c/base/a.bag'),
        ('https://h/x/a.bag', '/d/view', '/d', 'https://h/x/a.bag'),
        ('/d/a.bag', 's3://b/view', 's3://b', '/d/a.bag'),
        ('/a.bag', '/view', '/', '../a.bag'),
    ],
)  # fmt: skip
def test_paths_are_relative_beside_the_dataset(path, folder, above, stored):
    assert stored_path(path, folder, above) == stored
    assert resolved_path(stored, folder) == path


@pytest.mark.parametrize(
    ('path', 'folder'), [('../../a', '/d'), ('../a', 's3://b'), ('../../a', 's3://b/view'), ('../a', '/')]
)
def test_a_path_above_the_root_is_refused(path, folder):
    with pytest.raises(ValueError, match='above the root'):
        resolved_path(path, folder)


def test_paths_in_a_folder_on_a_drive():
    assert resolved_path('../base/a.bag', 'C:\\d\\view') == 'C:/d/base/a.bag'
