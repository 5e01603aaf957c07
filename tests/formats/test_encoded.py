"""Tests of every image, video and audio type."""

from __future__ import annotations

import io
import random
import struct
import tracemalloc

import numpy as np
import pytest

from bags.dataset.format.registry import bind_decoder, decoders, encoders
from bags.errors import MissingDependencyError

NAMES = {
    'jpeg': 'JPEG',
    'png': 'PNG',
    'webp': 'WebP',
    'avif': 'AVIF',
    'mp4': 'MP4',
    'webm': 'WebM',
    'mkv': 'Matroska',
    'wav': 'WAV',
    'flac': 'FLAC',
    'opus': 'Ogg Opus',
}
CHECKED = ('png', 'mkv', 'flac', 'opus')  # These have checksums.


@pytest.fixture(scope='module')
def records(photo, film, sound):
    """By type: an encoded value."""
    audio = ((sound * 32767).astype(np.int16), 8000)
    values = dict.fromkeys(('jpeg', 'png', 'webp', 'avif'), photo[:40, :50])
    values |= dict.fromkeys(('mp4', 'webm', 'mkv'), film[:, :32, :48]) | dict.fromkeys(
        ('wav', 'flac', 'opus'), audio
    )
    return {format: encoders[format](value) for format, value in values.items()}


def same(first, second):
    if isinstance(first, tuple):
        return first[1] == second[1] and same(first[0], second[0])
    return first.dtype == second.dtype and np.array_equal(first, second)


@pytest.mark.parametrize('format', NAMES)
def test_encoded_values_go_in_untouched(format, records, tmp_path):
    data = records[format]
    for kind in (bytes, bytearray, memoryview):
        assert encoders[format](kind(data)) == data
    path = tmp_path / 'medium'
    path.write_bytes(data)
    for value in (path, str(path)):
        with encoders[format](value) as file:
            assert file.tell() == 0
            assert file.read() == data


@pytest.mark.parametrize('format', NAMES)
def test_other_formats_are_refused_by_name(format, records, tmp_path):
    others = {name: records[other] for other, name in NAMES.items() if other != format}
    others |= {'GIF': b'GIF89a', 'bytes that begin with 00 01': b'\x00\x01', 'no bytes': b''}
    for found, data in others.items():
        path = tmp_path / 'medium'
        path.write_bytes(data)
        for call in (encoders[format], decoders[format]):
            with pytest.raises(ValueError, match=f'expected {NAMES[format]}, got {found}'):
                call(data)
        with pytest.raises(ValueError, match=rf'medium: expected {NAMES[format]}, got {found}'):
            encoders[format](path)


@pytest.mark.parametrize('format', NAMES)
def test_a_path_that_is_not_there(format, tmp_path):
    with pytest.raises(FileNotFoundError):
        encoders[format](tmp_path / 'nothing')


@pytest.mark.parametrize('format', NAMES)
def test_any_buffer_decodes_to_memory_of_its_own(format, records):
    source = bytearray(records[format])
    values = [
        decoders[format](records[format]),
        decoders[format](memoryview(records[format])),
        bind_decoder(format)(source),
    ]
    source[:] = bytes(len(source))
    for value in values:
        assert same(value, values[0])
        array = value[0] if isinstance(value, tuple) else value
        assert array.flags.owndata
        assert array.flags.writeable
        assert array.flags.c_contiguous


@pytest.mark.parametrize('format', NAMES)
def test_a_file_that_is_cut_off_raises(format, records):
    data = memoryview(records[format])
    whole = decoders[format](data)
    cuts = {*range(0, len(data), max(1, len(data) // 100)), *range(max(0, len(data) - 12), len(data))}
    for cut in sorted(cuts):
        with pytest.raises(ValueError):
            decoders[format](data[:cut])
    assert same(decoders[format](data), whole)


@pytest.mark.parametrize('format', ['jpeg', 'png', 'webp', 'avif', 'mp4', 'image', 'video'])
def test_a_file_that_is_cut_off_is_not_stored(format, records, tmp_path):
    data = records[{'image': 'jpeg', 'video': 'mp4'}.get(format, format)]
    path = tmp_path / 'whole'
    path.write_bytes(data)
    for value in (data, path, memoryview(data)):
        stored = encoders[format](value)
        if not isinstance(stored, bytes):
            with stored as file:
                stored = file.read()
        assert stored == data
    for cut in {*range(20, len(data), len(data) // 40), len(data) - 1}:
        with pytest.raises(ValueError):
            encoders[format](data[:cut])
        path.write_bytes(data[:cut])
        with pytest.raises(ValueError, match=r'whole: .*cut off'):
            encoders[format](path)
        if format == 'video':
            with pytest.raises(ValueError, match='MP4 is cut off after'):
                encoders[format](io.BytesIO(data[:cut]))


def test_a_cut_at_the_end_of_a_thumbnail_is_found(photo):
    thumbnail = encoders['jpeg'](photo[:8, :8])
    exif = b'\xff\xe1' + struct.pack('>H', 2 + len(thumbnail)) + thumbnail
    data = encoders['jpeg'](photo)
    data = data[:2] + exif + data[2:]
    assert encoders['jpeg'](data) == data
    first = 2 + len(exif)
    for end in (first - 20, first, first + 1, first + 300, len(data) // 2, len(data) - 2):
        with pytest.raises(ValueError, match='JPEG is cut off'):
            encoders['jpeg'](data[:end])


def test_what_follows_the_end_is_no_cut(records):
    movie = records['mp4']
    for format, data in (
        ('jpeg', records['jpeg'] + bytes(3000)),
        ('jpeg', records['jpeg'] + movie),
        ('png', records['png'] + b'more'),
        ('mp4', movie + bytes(4)),
        ('mp4', movie + struct.pack('>I4s', 16, b'free') + bytes(8)),
    ):
        assert encoders[format](data) == data
        assert same(decoders[format](data), decoders[format](records[format]))


def test_a_recording_without_its_header_is_refused(records):
    movie = records['mp4']
    start = movie.rindex(b'moov') - 4
    for brand in (b'isom', b'qt  '):
        data = movie[:8] + brand + movie[12:start]
        with pytest.raises(ValueError, match=r'expected a header \(moov\) in the MP4, got none'):
            encoders['video'](data)


@pytest.mark.slow('mp4', 'webm')
@pytest.mark.parametrize('format', NAMES)
def test_damage_raises_or_gives_a_value(format, records):
    generator = random.Random(0)
    whole = decoders[format](records[format])
    tracemalloc.start()
    for _ in range(150):
        data = bytearray(records[format])
        data[generator.randrange(len(data))] ^= 1 << generator.randrange(8)
        try:
            value = decoders[format](data)
        except ValueError:
            continue
        if format in CHECKED:
            assert same(value, whole)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 500e6


@pytest.mark.parametrize('format', NAMES)
def test_garbage_after_the_first_bytes(format, records):
    generator = random.Random(0)
    for _ in range(20):
        for keep in (12, 64, 200):
            with pytest.raises(ValueError):
                decoders[format](records[format][:keep] + generator.randbytes(300))


@pytest.mark.parametrize('format', NAMES)
def test_missing_packages_are_named(format, photo, film, sound, records, without):
    without('PIL', 'simplejpeg', 'av')
    if format == 'wav':
        assert same(decoders[format](encoders[format]((sound, 8000))), (sound, 8000))
        return
    value = {'mp4': film, 'webm': film, 'mkv': film, 'flac': (np.int16(sound), 8000), 'opus': (sound, 8000)}
    package, extra = ('av', 'video') if format in value else ('pillow', 'images')
    for call in (
        lambda: encoders[format](value.get(format, photo)),
        lambda: decoders[format](records[format]),
    ):
        with pytest.raises(MissingDependencyError, match=rf"{package} is needed .* 'bags\[{extra}\]'"):
            call()
    assert encoders[format](records[format]) == records[format]  # Encoded values need no package.
