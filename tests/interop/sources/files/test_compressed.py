"""Compressed files: damage anywhere is an error before the end of the content is reported."""

import bz2
import gzip
import io
import lzma
import random

import pytest
import zstandard

from bags.interop.sources.files.compressed import DecompressedFile, codec_of

CONTENT = random.Random(0).randbytes(120) + b'abc' * 100
COMPRESS = {
    'gz': lambda data: gzip.compress(data, mtime=0),
    'bz2': bz2.compress,
    'xz': lzma.compress,
    'zstd': zstandard.ZstdCompressor(write_checksum=True).compress,
}
FORMS = pytest.mark.parametrize('codec', COMPRESS)


def decompressed(data, codec, size=100):
    stream = DecompressedFile(io.BytesIO(data), codec)
    return b''.join(iter(lambda: stream.read(size), b''))


@FORMS
@pytest.mark.parametrize('size', [1, 100, 1 << 20])
def test_content(codec, size):
    data = COMPRESS[codec](CONTENT)
    assert codec_of(data) == codec
    assert decompressed(data, codec, size) == CONTENT
    assert decompressed(data + COMPRESS[codec](b'') + data, codec, size) == 2 * CONTENT


@FORMS
def test_every_cut_and_every_changed_byte(codec):
    data = COMPRESS[codec](CONTENT)
    for size in range(len(data)):
        with pytest.raises(ValueError, match=f'{codec} data'):
            decompressed(data[:size], codec)
    for place in range(len(data)):
        changed = bytearray(data)
        changed[place] ^= 1 << place % 8
        try:
            found = decompressed(changed, codec)
        except ValueError:
            continue
        assert found == CONTENT, place  # Headers have bytes without a meaning, such as a time.


@FORMS
@pytest.mark.parametrize('more', [b'x', b'\0\0\0\0x'])
def test_other_bytes_after_the_end(codec, more):
    with pytest.raises(ValueError, match=f'{codec} data'):
        decompressed(COMPRESS[codec](CONTENT) + more, codec)


@pytest.mark.parametrize('codec', ['gz', 'xz'])
def test_zeros_after_the_end_are_padding(codec):
    data = COMPRESS[codec](CONTENT)
    assert decompressed(data + bytes(8) + data + bytes(5000), codec) == 2 * CONTENT


@FORMS
def test_positions(codec):
    content = bytes(range(256)) * 1000
    stream = DecompressedFile(io.BytesIO(COMPRESS[codec](content)), codec)
    assert stream.seek(100_000) == stream.tell() == 100_000
    assert stream.read(10) == content[100_000:100_010]
    assert stream.seek(-10, io.SEEK_CUR) == 100_000
    assert stream.read(20) == content[100_000:100_020]
    assert stream.seek(1 << 20) == len(content)
    assert stream.read(1) == b''
