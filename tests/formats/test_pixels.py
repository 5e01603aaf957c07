"""Images are decoded as viewers show them, for each EXIF orientation."""

import io
import random

import numpy as np
import pytest
from PIL import Image, ImageOps

import bags
from bags import decoders, encoders
from bags.formats.pixels import Orientation, exif_orientation, jpeg_orientation, matrix_orientation

PICTURE = np.arange(24 * 16 * 3, dtype=np.uint8).reshape(24, 16, 3)
OPTIONS = {'jpeg': {'quality': 95}, 'png': {}, 'webp': {'lossless': True}, 'avif': {'quality': 100}}


def save(image, format, **how):
    file = io.BytesIO()
    image.save(file, format, **how)
    return file.getvalue()


def stored(format, orientation):
    exif = Image.Exif()
    exif[0x010E] = 'a picture'
    exif[0x0112] = orientation
    return save(Image.fromarray(PICTURE), format.upper(), exif=exif.tobytes(), **OPTIONS[format])


@pytest.mark.parametrize('orientation', range(1, 9))
@pytest.mark.parametrize('format', OPTIONS)
def test_images_are_shown_as_viewers_show_them(format, orientation, tmp_path):
    data = stored(format, orientation)
    (tmp_path / 'it').write_bytes(data)
    with Image.open(tmp_path / 'it') as image:
        expected = np.array(ImageOps.exif_transpose(image))
        as_stored = np.array(image)
    shown = decoders[format](data)
    assert shown.shape == ((16, 24, 3) if orientation > 4 else (24, 16, 3))
    assert np.array_equal(shown, expected)
    assert shown.flags.c_contiguous
    assert shown.flags.writeable
    assert np.array_equal(decoders[format](data, 'rotate=False'), as_stored)
    spec = {'shown': format, 'stored': f'{format}(rotate=False)'}
    with bags.DatasetWriter(tmp_path / 'data', spec) as writer:
        writer.append({'shown': data, 'stored': tmp_path / 'it'})
    with bags.open(tmp_path / 'data') as reader:
        assert np.array_equal(reader[0]['shown'], expected)
        assert np.array_equal(reader[0]['stored'], as_stored)


@pytest.mark.parametrize('hidden', [(), ('simplejpeg',)])
def test_both_jpeg_decoders_turn(hidden, without):
    without(*hidden)
    gray = save(Image.fromarray(PICTURE[:, :, 0]), 'JPEG', exif=b'Exif\0\0' + exif_bytes(6), quality=95)
    assert decoders['jpeg'](gray).shape == (16, 24)
    assert decoders['jpeg'](gray, 'rotate=False').shape == (24, 16)


def exif_bytes(value):
    exif = Image.Exif()
    exif[0x0112] = value
    return exif.tobytes()[6:]


def test_a_pil_image_is_encoded_as_shown(tmp_path):
    (tmp_path / 'it.jpg').write_bytes(stored('jpeg', 6))
    with Image.open(tmp_path / 'it.jpg') as image:
        assert decoders['png'](encoders['png'](image)).shape == (16, 24, 3)


@pytest.mark.parametrize('wrong', ['rotate=maybe', 'turn=False', 'rotate=True,rotate=True'])
@pytest.mark.parametrize('format', OPTIONS)
def test_wrong_options(format, wrong, tmp_path):
    with pytest.raises(ValueError, match='expected'):
        bags.DatasetWriter(tmp_path / 'it', {'x': f'{format}({wrong})'})


def test_damaged_exif_is_upright():
    data, chance = stored('jpeg', 6), random.Random(0)
    assert jpeg_orientation(data) == Orientation(True, False, True)
    for _ in range(300):
        damaged = bytearray(data[: chance.randrange(2, 120)])
        for _ in range(3):
            damaged[chance.randrange(2, len(damaged)) if len(damaged) > 2 else 0] = chance.randrange(256)
        assert isinstance(jpeg_orientation(bytes(damaged)), Orientation)
    for wrong in (b'', b'Exif\0\0', b'II*\0', b'II*\0\xff\xff\xff\xff', exif_bytes(9)):
        assert exif_orientation(wrong) == Orientation()


def test_matrices():
    """The matrix moves each corner of an image to where the orientation moves it."""
    numbers = np.arange(6).reshape(2, 3)
    for a, b, c, d in [(1, 0, 0, 1), (0, 1, -1, 0), (-1, 0, 0, -1), (0, -1, 1, 0), (-1, 0, 0, 1),
                       (1, 0, 0, -1), (0, 1, 1, 0), (0, -1, -1, 0)]:  # fmt: skip
        matrix = np.array([a << 16, b << 16, 0, c << 16, d << 16, 0, 0, 0, 1 << 30], np.int32)
        ys, xs = np.indices(numbers.shape)
        new_xs, new_ys = a * xs + c * ys, b * xs + d * ys
        expected = np.empty((np.ptp(new_ys) + 1, np.ptp(new_xs) + 1), int)
        expected[new_ys - new_ys.min(), new_xs - new_xs.min()] = numbers
        assert np.array_equal(matrix_orientation(matrix.tobytes()).apply(numbers), expected)
    assert matrix_orientation(None) == matrix_orientation(bytes(36)) == Orientation()
