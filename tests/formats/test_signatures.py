from __future__ import annotations

import pytest

from bags.formats.signatures import DEMUXERS, EXTENSIONS, SIGNATURES, identify


def test_identify():
    assert identify(b'') == 'no bytes'
    assert identify(b'\0\0\0\x14ftypqt  ' + bytes(8)) == 'QuickTime'
    assert identify(b'\0\0\0\x18ftypheic' + b'\0\0\0\0mif1heic') == 'HEIF'
    assert identify(b'\0\0\0\x1cftypmif1' + b'\0\0\0\0mif1avifmiaf') == 'AVIF'
    assert identify(b'RIFF\0\0\0\0AVI ') == 'AVI'
    assert identify(b'OggS' + bytes(24) + b'\x01vorbis') == 'Ogg'


@pytest.mark.parametrize('name', SIGNATURES)
def test_magic_bytes(name):
    shared = {'WebM': 'Matroska', 'Ogg Opus': 'Ogg', 'AVIF': 'MP4', 'HEIF': 'MP4', 'QuickTime': 'MP4'}
    for marks in SIGNATURES[name]:
        head = bytearray(64)
        for offset, mark in marks:
            head[offset : offset + len(mark)] = mark
        assert identify(head) in (name, shared.get(name))
        assert identify(memoryview(head)) == identify(head)


def test_every_format_has_magic_bytes():
    assert EXTENSIONS.keys() <= SIGNATURES.keys()
    assert DEMUXERS.keys() <= SIGNATURES.keys()
