from __future__ import annotations

import io
import struct
import tracemalloc
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from PIL import Image

from bags.dataset.registry import decoders, encoders
from bags.formats import images


def save(image, format, **how):
    stream = io.BytesIO()
    image.save(stream, format, **how)
    return stream.getvalue()


def close(first, second, tolerance):
    return first.shape == second.shape and np.abs(first.astype(int) - second).mean() < tolerance


def pixels(*channels, dtype=np.uint8):
    sides = st.tuples(st.integers(1, 9), st.integers(1, 9))
    shapes = sides.flatmap(lambda side: st.sampled_from([(*side, *count) for count in channels]))
    return hnp.arrays(dtype, shapes)


@given(pixels((), (1,), (3,), (4,)))
def test_png_is_exact(array):
    decoded = decoders['png'](encoders['png'](array))
    assert decoded.dtype == np.uint8
    assert np.array_equal(decoded, array[:, :, 0] if array.shape[2:] == (1,) else array)


@given(pixels((), (1,), dtype=np.uint16))
def test_png_of_16_bits_is_exact(array):
    decoded = decoders['png'](encoders['png'](array))
    assert decoded.dtype == np.uint16
    assert np.array_equal(decoded, array.reshape(array.shape[:2]))
    assert np.array_equal(decoders['png'](encoders['png'](array.astype('>u2'))), decoded)


@given(pixels((3,), (4,)))
def test_lossless_webp_is_exact(array):
    decoded = decoders['webp'](encoders['webp'](array, 'lossless'), 'lossless')
    if array.shape[2] == 4 and (array[:, :, 3] == 255).all():  # Nothing of the alpha channel is kept.
        array = array[:, :, :3]
    assert np.array_equal(decoded, array)


@pytest.mark.parametrize('word', ['jpeg', 'jpg', 'webp', 'avif'])
@pytest.mark.parametrize('name', ['astronaut', 'coffee', 'cat', 'rocket'])
def test_photographs(word, name, photograph):
    photo = photograph(name)[:201, :303]
    decoded = decoders[word](memoryview(encoders[word](photo)))
    assert decoded.dtype == np.uint8
    assert close(decoded, photo, 3)
    assert len(encoders[word](photo, '20')) < len(encoders[word](photo, '95')) < photo.nbytes / 3


def test_gray(photograph):
    gray = photograph('photographer')[::4, ::4]
    for array in (gray, gray[:, :, None]):
        decoded = decoders['jpeg'](encoders['jpeg'](array))
        assert close(decoded, gray, 2)
        assert decoded.flags.owndata
    for word in ('webp', 'avif'):
        with pytest.raises(ValueError, match='expected an image of shape'):
            encoders[word](gray)


def test_alpha(photo):
    array = np.dstack([photo, np.arange(photo[..., 0].size).reshape(photo.shape[:2]) % 256]).astype(np.uint8)
    for word in ('webp', 'avif'):
        decoded = decoders[word](encoders[word](array, '100'))
        assert decoded.shape == array.shape
        assert np.abs(decoded[..., 3].astype(int) - array[..., 3]).mean() < 3
    with pytest.raises(ValueError, match='expected an image of shape'):
        encoders['jpeg'](array)


def test_pngs_of_other_modes(photo):
    image = Image.fromarray(photo)
    palette = image.quantize(64)
    assert np.array_equal(decoders['png'](save(palette, 'PNG')), np.array(palette.convert('RGB')))
    decoded = decoders['png'](save(palette, 'PNG', transparency=3))
    assert (
        np.array_equal(decoded, np.array(palette.convert('RGB').convert('RGBA'))[..., :4])
        or decoded.shape[2] == 4
    )
    assert set(np.unique(decoded[..., 3])) == {0, 255}
    bits = image.convert('1')
    assert np.array_equal(decoders['png'](save(bits, 'PNG')), np.array(bits).astype(np.uint8) * 255)
    gray = np.array([[0, 128], [255, 7]], np.uint8)
    both = Image.merge('LA', [Image.fromarray(gray), Image.fromarray(gray[::-1].copy())])
    assert np.array_equal(decoders['png'](save(both, 'PNG')), np.dstack([gray, gray, gray, gray[::-1]]))
    keyed = save(Image.fromarray(gray), 'PNG', transparency=128)
    assert np.array_equal(decoders['png'](keyed)[..., 3], np.where(gray == 128, 0, 255))


def png(depth, colour, width, height, raw):
    """A PNG made by hand, since Pillow writes no 16-bit colour."""

    def chunk(kind, data):
        return struct.pack('>I', len(data)) + kind + data + struct.pack('>I', zlib.crc32(kind + data))

    header = struct.pack('>IIBBBBB', width, height, depth, colour, 0, 0, 0)
    return (
        b'\x89PNG\r\n\x1a\n'
        + chunk(b'IHDR', header)
        + chunk(b'IDAT', zlib.compress(raw))
        + chunk(b'IEND', b'')
    )


@pytest.mark.parametrize(('colour', 'channels'), [(2, 3), (4, 2), (6, 4)])
def test_16_bits_of_colour_are_never_cut_to_8(colour, channels):
    data = png(16, colour, 2, 1, b'\0' + bytes(range(2 * 2 * channels)))
    with pytest.raises(ValueError, match='16 bits'):
        decoders['png'](data)
    assert encoders['png'](data) == data


@pytest.mark.parametrize('channels', [3, 4])
def test_16_bits_of_colour_are_not_written(channels):
    with pytest.raises(ValueError, match='grayscale only'):
        encoders['png'](np.zeros((2, 2, channels), np.uint16))


@pytest.mark.parametrize('depth', [1, 2, 4])
def test_few_bits_of_gray_fill_the_range(depth):
    data = png(
        depth, 0, 2, 1, bytes([0, 0b10000000 if depth == 1 else 0b11000000 if depth == 2 else 0b11110000])
    )
    assert decoders['png'](data).tolist() == [[255, 0]]


def test_pictures_that_claim_too_many_pixels():
    bombs = {
        'png': png(8, 2, 60_000, 60_000, bytes(1000)),
        'jpeg': encoders['jpeg'](np.zeros((8, 8, 3), np.uint8)).replace(
            b'\xff\xc0\x00\x11\x08\x00\x08\x00\x08', b'\xff\xc0\x00\x11\x08\xff\xff\xff\xff'
        ),
    }
    for word, data in bombs.items():
        tracemalloc.start()
        with pytest.raises(ValueError, match=f'at most {images.MAX_PIXELS} pixels'):
            decoders[word](data)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 1e6


def test_large_pictures_do_not_warn():
    # Pillow warns from 89 million pixels on.
    data = png(1, 0, 9000, 10_000, bytes(10_000 * (1 + 9000 // 8)))
    assert decoders['png'](data).shape == (10_000, 9000)


@pytest.mark.parametrize('word', ['png', 'jpeg', 'webp', 'avif'])
def test_pil_images(word, photo):
    expected = decoders[word](encoders[word](photo))
    assert np.array_equal(decoders[word](encoders[word](Image.fromarray(photo))), expected)
    assert decoders[word](encoders[word](Image.fromarray(photo).quantize(8))).shape == photo.shape
    with pytest.raises(ValueError, match='mode F'):
        encoders[word](Image.fromarray(photo).convert('F'))


@pytest.mark.parametrize('word', ['png', 'jpeg', 'webp', 'avif'])
@pytest.mark.parametrize(
    'value',
    [
        np.zeros((4, 4, 3)),
        np.zeros((4, 4, 3), np.int8),
        np.zeros((4, 4), bool),
        [[1, 2]],
        None,
        5,
        {},
    ],
)
def test_values_of_another_type(word, value):
    with pytest.raises((TypeError, ValueError)):
        encoders[word](value)


@pytest.mark.parametrize('word', ['png', 'jpeg', 'webp', 'avif'])
@pytest.mark.parametrize('shape', [(3,), (4, 4, 2), (4, 4, 5), (2, 4, 4, 3), (0, 4, 3), (4, 0, 3), ()])
def test_values_of_another_shape(word, shape):
    with pytest.raises(ValueError, match='expected an image of shape'):
        encoders[word](np.zeros(shape, np.uint8))


def test_pictures_larger_than_the_format():
    for word, side in (('jpeg', 65_536), ('webp', 16_384)):
        with pytest.raises(ValueError):
            encoders[word](np.zeros((1, side, 3), np.uint8))


def test_memory_layouts(photo):
    for array in (photo[::-1], photo[:, ::2], np.asfortranarray(photo), photo[:, :, ::-1]):
        assert np.array_equal(decoders['png'](encoders['png'](array)), array)
