from __future__ import annotations

import pytest

from bags.formats.signatures import DEMUXERS, EXTENSION_OF_FORMAT, SIGNATURES, identify, starts_with


def test_identify():
    assert identify(b'') == 'no bytes'
    assert identify(b'\0\0\0\x14ftypqt  ' + bytes(8)) == 'QuickTime'
    assert identify(b'\0\0\0\x18ftypheic' + b'\0\0\0\0mif1heic') == 'HEIF'
    assert identify(b'\0\0\0\x1cftypmif1' + b'\0\0\0\0mif1avifmiaf') == 'AVIF'
    assert identify(b'RIFF\0\0\0\0AVI ') == 'AVI'
    assert identify(b'OggS' + bytes(24) + b'\x01vorbis') == 'Ogg'


MAGIC_BYTES = {
    'JPEG': [b'\xff\xd8\xff'], 'PNG': [b'\x89PNG\r\n\x1a\n'], 'FLAC': [b'fLaC'], 'GIF': [b'GIF8'],
    'BMP': [b'BM'], 'TIFF': [b'II*\0', b'MM\0*'], 'JPEG XL': [b'\xff\x0a', b'\0\0\0\x0cJXL '],
    'MPEG-TS': [b'\x47' + bytes(187) + b'\x47'],
    'JPEG 2000': [b'\0\0\0\x0cjP  '], 'AAC': [b'\xff\xf1', b'\xff\xf9'], 'RF64': [b'RF64'], 'FLV': [b'FLV'],
    'MP3': [b'ID3', b'\xff\xfb', b'\xff\xfa', b'\xff\xf3', b'\xff\xf2', b'\xff\xe3', b'\xff\xe2'],
    'zstd': [b'\x28\xb5\x2f\xfd'], 'PDF': [b'%PDF'], 'WebP': [b'RIFF\n\n\n\nWEBP'], 'WAV': [b'RIFF----WAVE'],
    'AVI': [b'RIFF----AVI '], 'RIFF': [b'RIFF'], 'Matroska': [b'\x1a\x45\xdf\xa3'],
    'WebM': [b'\x1a\x45\xdf\xa3'], 'MP4': [b'\0\0\0\nftyp'], 'AVIF': [b'----ftyp'], 'HEIF': [b'----ftyp'],
    'QuickTime': [b'\0\0\0\n' + kind for kind in b'ftyp moov mdat wide free skip pnot'.split()],
    'Ogg Opus': [b'OggS'], 'Ogg': [b'OggS'], 'M2TS': [b'----\x47' + bytes(191) + b'\x47'],
    'MPEG-PS': [b'\0\0\1\xba'], 'MPEG video': [b'\0\0\1\xb3'], 'AIFF': [b'FORM----AIFF', b'FORM----AIFC'],
    'ASF': [bytes.fromhex('3026b2758e66cf11')], 'AU': [b'.snd'],
}  # fmt: skip


@pytest.mark.parametrize('name', SIGNATURES)
def test_magic_bytes(name):
    shared = {'WebM': 'Matroska', 'Ogg Opus': 'Ogg', 'AVIF': 'MP4', 'HEIF': 'MP4', 'QuickTime': 'MP4'}
    for start in MAGIC_BYTES[name]:
        head = start + bytes(64)
        assert starts_with(head, name)
        assert not starts_with(head[1:], name)
        assert identify(head) in (name, shared.get(name))
        assert identify(memoryview(head)) == identify(head)


def test_every_format_has_magic_bytes():
    assert EXTENSION_OF_FORMAT.keys() <= SIGNATURES.keys()
    assert DEMUXERS.keys() <= SIGNATURES.keys()
