from __future__ import annotations

import io
import itertools
import pickle
import struct
import tracemalloc
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from PIL import Image

import bags
from bags.dataset.format.registry import decoders, encoders
from bags.formats import images

PHOTO = Path(__file__).parents[2] / 'examples' / 'data' / 'astronaut.jpg'


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
    if array.shape[2] == 4 and (array[:, :, 3] == 255).all():  # A fully opaque alpha channel is not stored.
        array = array[:, :, :3]
    assert np.array_equal(decoded, array)


@pytest.mark.slow('[!a]*-avif')
@pytest.mark.parametrize('format', ['jpeg', 'jpg', 'webp', 'avif'])
@pytest.mark.parametrize('name', ['astronaut', 'coffee', 'cat', 'rocket'])
def test_photographs(format, name, photograph):
    photo = photograph(name)[:201, :303]
    decoded = decoders[format](memoryview(encoders[format](photo)))
    assert decoded.dtype == np.uint8
    assert close(decoded, photo, 3)
    assert len(encoders[format](photo, '20')) < len(encoders[format](photo, '95')) < photo.nbytes / 3


def test_gray(photograph):
    gray = photograph('photographer')[::4, ::4]
    for array in (gray, gray[:, :, None]):
        decoded = decoders['jpeg'](encoders['jpeg'](array))
        assert close(decoded, gray, 2)
        assert decoded.flags.owndata
    for format in ('webp', 'avif'):
        with pytest.raises(ValueError, match='expected an image of shape'):
            encoders[format](gray)


def test_alpha(photo):
    array = np.dstack([photo, np.arange(photo[..., 0].size).reshape(photo.shape[:2]) % 256]).astype(np.uint8)
    for format in ('webp', 'avif'):
        decoded = decoders[format](encoders[format](array, '100'))
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
    """Makes a 16-bit RGB PNG without Pillow, which cannot write one."""

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
    for type in ('png', 'image'):
        with pytest.raises(ValueError, match=r"in grayscale only, got .*; 'image\(rgb\)' decodes"):
            encoders[type](data)
    assert encoders['image'](data, 'rgb') == data


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
    for format, data in bombs.items():
        tracemalloc.start()
        with pytest.raises(ValueError, match=r'pixels would take .* exceeds max_value_size='):
            decoders[format](data)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 1e6


def test_large_pictures_do_not_warn():
    # Pillow warns from 89 million pixels on.
    data = png(1, 0, 9000, 10_000, bytes(10_000 * (1 + 9000 // 8)))
    assert decoders['png'](data).shape == (10_000, 9000)


@pytest.mark.parametrize('format', ['png', 'jpeg', 'webp', 'avif'])
def test_pil_images(format, photo):
    expected = decoders[format](encoders[format](photo))
    assert np.array_equal(decoders[format](encoders[format](Image.fromarray(photo))), expected)
    assert decoders[format](encoders[format](Image.fromarray(photo).quantize(8))).shape == photo.shape
    with pytest.raises(ValueError, match='mode F'):
        encoders[format](Image.fromarray(photo).convert('F'))


@pytest.mark.parametrize('format', ['png', 'jpeg', 'webp', 'avif'])
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
def test_values_of_another_type(format, value):
    with pytest.raises((TypeError, ValueError)):
        encoders[format](value)


def test_masked_pixels_are_refused():
    with pytest.raises(ValueError, match='expected an array without masked elements'):
        encoders['png'](np.ma.masked_greater(np.eye(4, dtype=np.uint16), 0))


@pytest.mark.parametrize('format', ['png', 'jpeg', 'webp', 'avif'])
@pytest.mark.parametrize('shape', [(3,), (4, 4, 2), (4, 4, 5), (2, 4, 4, 3), (0, 4, 3), (4, 0, 3), ()])
def test_values_of_another_shape(format, shape):
    with pytest.raises(ValueError, match='expected an image of shape'):
        encoders[format](np.zeros(shape, np.uint8))


def test_pictures_larger_than_the_format():
    for format, side in (('jpeg', 65_536), ('webp', 16_384)):
        with pytest.raises(ValueError):
            encoders[format](np.zeros((1, side, 3), np.uint8))


def test_memory_layouts(photo):
    for array in (photo[::-1], photo[:, ::2], np.asfortranarray(photo), photo[:, :, ::-1]):
        assert np.array_equal(decoders['png'](encoders['png'](array)), array)


# JPEG.


def test_jpeg_without_the_fast_decoder_is_the_same(photo, without):
    data = [encoders['jpeg'](photo), encoders['jpeg'](photo[..., 0])]
    data += [save(Image.fromarray(photo), 'JPEG', subsampling=how, progressive=True) for how in (0, 1, 2)]
    fast = [decoders['jpeg'](each) for each in data]
    without('simplejpeg')
    for each, expected in zip(data, fast, strict=True):
        decoded = decoders['jpeg'](memoryview(each))
        assert decoded.flags.writeable
        assert np.array_equal(decoded, expected)
        for cut in (100, len(each) // 2, len(each) - 3):
            with pytest.raises(ValueError):
                decoders['jpeg'](each[:cut])


@pytest.fixture
def megabyte():
    """A JPEG of a megabyte, most of which is a comment."""
    comment = b'\xff\xfe' + struct.pack('>H', 60_002) + bytes(60_000)
    data = encoders['jpeg'](np.zeros((8, 8, 3), np.uint8))
    return data[:2] + 17 * comment + data[2:]


def test_decoding_a_jpeg_does_not_copy_it(megabyte):
    pytest.importorskip('simplejpeg')
    decoders['jpeg'](megabyte)
    tracemalloc.start()
    decoded = decoders['jpeg'](memoryview(megabyte))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert decoded.shape == (8, 8, 3)
    assert peak < 20_000


def test_pillow_decodes_a_jpeg_piece_by_piece(without, monkeypatch):
    without('simplejpeg')
    sizes = []

    class File(images.BufferFile):
        def read(self, size=-1, /):
            found = super().read(size)
            sizes.append(len(found))
            return found

    monkeypatch.setattr(images, 'BufferFile', File)
    noise = np.random.default_rng(0).integers(0, 256, (600, 600, 3), np.uint8)
    data = encoders['jpeg'](noise, '100')
    assert decoders['jpeg'](memoryview(data)).shape == noise.shape
    assert sum(sizes) < 1.2 * len(data)
    assert max(sizes) <= 2**16 < len(data) / 8


@pytest.fixture(params=['simplejpeg', 'Pillow'])
def library(request, without):
    """The library that decodes JPEGs."""
    if request.param == 'Pillow':
        without('simplejpeg')
    else:
        pytest.importorskip('simplejpeg')


@pytest.mark.usefixtures('library')
def test_jpegs_of_cameras(photo):
    cmyk = save(Image.fromarray(photo).convert('CMYK'), 'JPEG', quality=95)
    assert close(decoders['jpeg'](cmyk), photo, 4)
    exif = Image.Exif()
    exif[0x0112] = 6  # With an orientation of 90 degrees.
    turned = save(Image.fromarray(photo), 'JPEG', quality=95, exif=exif)
    assert decoders['jpeg'](turned).shape == photo.swapaxes(0, 1).shape
    assert decoders['jpeg'](turned, 'rotate=False').shape == photo.shape
    data = encoders['jpeg'](photo)
    assert np.array_equal(decoders['jpeg'](data + b'trailing bytes'), decoders['jpeg'](data))
    stray = data[:-2] + b'\x01\x02' + data[-2:]
    assert np.array_equal(decoders['jpeg'](stray), decoders['jpeg'](data))


def test_a_jpeg_that_ends_early_with_the_right_marker(photo):
    pytest.importorskip('simplejpeg')  # Pillow does not detect it, and returns an image that is half grey.
    data = encoders['jpeg'](photo)
    with pytest.raises(ValueError, match='remature end'):
        decoders['jpeg'](data[: len(data) // 2] + b'\xff\xd9')


@pytest.fixture
def write(tmp_path):
    """Writes records of a field `image` of type jpeg, and opens the dataset."""

    def write(records):
        path = tmp_path / str(len(list(tmp_path.iterdir())))
        unchecked = {**bags.encoders, 'jpeg': bytes}
        with bags.DatasetWriter(path, {'image': 'jpeg'}, unchecked) as writer:
            for record in records:
                writer.append({'image': record})
        return bags.open(path)

    return write


def test_a_batch_of_jpegs_is_as_each_alone(photo, write):
    large = np.tile(photo, (4, 6, 1))[:1100, :1300]
    pictures = [photo, photo[:40, :30], photo[:40, :30, 0], large, *(photo[:64, size:] for size in range(30))]
    records = [encoders['jpeg'](picture) for picture in pictures]
    reader = write(records)
    for chosen in (range(len(records)), [0], [2], []):
        found = reader.batch(chosen)['image']
        assert len(found) == len(chosen)
        for picture, index in zip(found, chosen, strict=True):
            alone = decoders['jpeg'](records[index])
            assert (picture.shape, picture.dtype) == (alone.shape, alone.dtype)
            assert np.array_equal(picture, alone)
            assert picture.flags.writeable
            picture[:] = 7
        assert not any(np.shares_memory(a, b) for a, b in itertools.pairwise(found))
        assert all((picture == 7).all() for picture in found)


def camera_jpegs(photo):
    """Returns JPEGs of many kinds, some with equal first bytes."""
    small = Image.fromarray(photo[:96, :128])
    exif = Image.Exif()
    exif[0x010E] = 'x' * 5000
    comment = b'\xff\xfe' + struct.pack('>H', 1002) + bytes(1000)
    plain = save(small, 'JPEG', quality=90)
    frame = plain.index(b'\xff\xc0')
    thumbnail = b'\xff\xe1' + struct.pack('>H', 2 + len(plain)) + plain
    records = {
        'plain': plain,
        'the same size': save(Image.fromarray(photo[5:101, :128]), 'JPEG', quality=90),
        'another size': save(Image.fromarray(photo[:64, :64]), 'JPEG', quality=90),
        'full colour': save(small, 'JPEG', quality=90, subsampling=0),
        'RGB': save(small, 'JPEG', quality=90, keep_rgb=True),
        'progressive': save(small, 'JPEG', quality=90, progressive=True),
        'optimised': save(small, 'JPEG', quality=90, optimize=True),
        'gray': save(small.convert('L'), 'JPEG', quality=90),
        'CMYK': save(small.convert('CMYK'), 'JPEG', quality=90),
        'exif': save(small, 'JPEG', quality=90, exif=exif),
        'restarts': save(small, 'JPEG', quality=90, restart_marker_blocks=3),
        'a comment': plain[:2] + comment + plain[2:],
        'many comments': plain[:2] + 100 * comment + plain[2:],
        'a thumbnail': plain[:2] + thumbnail + save(small.resize((40, 30)), 'JPEG')[2:],
        'bytes between segments': plain[:frame] + b'\x07\x08' + plain[frame:],
        'fill bytes': plain[:frame] + b'\xff\xff' + plain[frame:],
        'trailing bytes': plain + b'more',
        'arithmetic': plain[: frame + 1] + b'\xc9' + plain[frame + 2 :],
        'twelve bits': plain[: frame + 4] + b'\x0c' + plain[frame + 5 :],
        'two frames': plain[:frame] + plain[frame : frame + 19] + plain[frame:],
        'no size': plain[: frame + 5] + bytes(4) + plain[frame + 9 :],
        'a large size': plain[: frame + 5] + b'\x01\x00\x01\x00' + plain[frame + 9 :],
        'a huge size': plain[: frame + 5] + b'\xff\xff\xff\xff' + plain[frame + 9 :],
        'a frame cut off': plain[: frame + 6],
        'two bytes': plain[:2],
    }
    return list(records), list(records.values())


def outcome(decode):
    try:
        return decode()
    except ValueError as exc:
        return exc


@pytest.mark.usefixtures('library')
def test_jpegs_of_all_sorts_in_a_batch(photo, write):
    names, records = camera_jpegs(photo)
    alone = [outcome(lambda record=record: decoders['jpeg'](record)) for record in records]
    sound = [place for place, found in enumerate(alone) if not isinstance(found, Exception)]
    assert len(sound) >= 14
    stored = [place for place in range(len(records)) if records[place][:3] == b'\xff\xd8\xff']
    reader = write([records[place] for place in stored])
    for order in (sound, sound[::-1], sorted(sound * 2)):
        batch = reader.batch([stored.index(place) for place in order])['image']
        for place, picture in zip(order, batch, strict=True):
            assert picture.shape == alone[place].shape, names[place]
            assert np.array_equal(picture, alone[place]), names[place]
    for place in set(stored) - set(sound):
        with pytest.raises(bags.DecodeError) as caught:
            reader.batch([0, stored.index(place), 0])
        assert str(alone[place]) in str(caught.value), names[place]
        assert caught.value.index == stored.index(place)


def test_a_jpeg_that_ends_early_in_a_batch(photo, write):
    records = [encoders['jpeg'](photo[:64, :64]) for _ in range(5)]
    records[3] = records[3][:-200]
    with pytest.raises(bags.DecodeError, match=r'cut off|end') as caught:
        write(records).batch(range(5))
    assert caught.value.index == 3


def pictures(photo):
    """Files of every format and mode of the type `image`, and the pixels of each; None if it is lossy."""
    image = Image.fromarray(photo)
    moving = {'save_all': True, 'append_images': [Image.fromarray(photo[::-1])]}
    palette = image.quantize(64)
    alpha = np.dstack([photo, photo[:, :, 0]])
    deep = photo[:, :, 0].astype(np.uint16) * 257
    return {
        'JPEG': (save(image, 'JPEG'), None),
        'JPEG in gray': (save(image.convert('L'), 'JPEG'), None),
        'PNG': (save(image, 'PNG'), photo),
        'PNG with alpha': (save(Image.fromarray(alpha), 'PNG'), alpha),
        'PNG of 16 bits': (save(Image.fromarray(deep), 'PNG'), deep),
        'WebP': (save(image, 'WEBP', lossless=True), photo),
        'WebP, moving': (
            save(image, 'WEBP', lossless=True, **moving),
            np.dstack([photo, photo[:, :, 0] | 255]),
        ),
        'AVIF': (save(image, 'AVIF'), None),
        'GIF': (save(palette, 'GIF'), np.array(palette.convert('RGB'))),
        'GIF, moving': (save(palette, 'GIF', **moving), np.array(palette.convert('RGB'))),
        'BMP': (save(image, 'BMP'), photo),
        'BMP with a palette': (save(palette, 'BMP'), np.array(palette.convert('RGB'))),
        'BMP in black and white': (
            save(image.convert('1'), 'BMP'),
            np.array(image.convert('1').convert('L')),
        ),
        'TIFF': (save(image, 'TIFF'), photo),
        'TIFF, LZW': (save(image, 'TIFF', compression='tiff_lzw'), photo),
        'TIFF of 16 bits': (save(Image.fromarray(deep), 'TIFF'), deep),
        'TIFF of several pages': (save(image, 'TIFF', **moving), photo),
    }


def test_tiff_of_floats(tmp_path):
    metres = np.random.default_rng(0).random((5, 7), np.float32) * 9
    metres[0, 0] = np.nan
    data = save(Image.fromarray(metres), 'TIFF')
    with bags.DatasetWriter(tmp_path / 'it', {'depth': 'image[]'}) as writer:
        writer.append({'depth': [data, data]})
    with bags.open(tmp_path / 'it') as reader:
        value = reader[0]['depth'][1]
        assert value.dtype == np.float32
        np.testing.assert_array_equal(value, metres)
        assert '<img' in reader._repr_html_()
    turned = Image.Exif()
    turned[0x112] = 6
    rotated = decoders['image'](save(Image.fromarray(metres), 'TIFF', exif=turned))
    np.testing.assert_array_equal(rotated, np.rot90(metres, -1))
    for call in (encoders['image'], decoders['image']):
        with pytest.raises(ValueError, match='mode F of 32 bits'):
            call(data, 'rgb')
    with pytest.raises(ValueError, match=r'take .* exceeds max_value_size='):
        decoders['image'](data, max_size=100)


def test_image_takes_a_picture_of_any_format(photo, tmp_path):
    found = pictures(photo)
    with bags.DatasetWriter(tmp_path / 'it', {'one': 'image', 'all': 'image(rgb)[]'}) as writer:
        for name, (data, _) in found.items():
            path = tmp_path / name
            path.write_bytes(data)
            writer.append({'one': path, 'all': [data, photo]})
    reader = bags.open(tmp_path / 'it')
    for row, (name, (data, pixels)) in enumerate(found.items()):
        assert bytes(reader.records('one')[row]) == data, name
        value = reader[row]
        if pixels is None:
            assert close(value['one'], photo if value['one'].ndim == 3 else photo.mean(axis=2), 8), name
        else:
            assert value['one'].dtype == pixels.dtype, name
            assert np.array_equal(value['one'], pixels), name
        assert [(item.shape, item.dtype) for item in value['all']] == [(photo.shape, np.uint8)] * 2, name
        assert np.array_equal(value['all'][1], photo)


@pytest.mark.parametrize(('mode', 'name'), [('gray', 'L'), ('rgb', 'RGB'), ('rgba', 'RGBA')])
def test_modes_of_image(photo, mode, name):
    for data, pixels in pictures(photo).values():
        found = decoders['image'](data, mode)
        if pixels is None:
            pixels = decoders['image'](data)
        if pixels.dtype == np.uint16:
            pixels = (pixels >> 8).astype(np.uint8)
        assert found.flags.owndata
        assert np.array_equal(found, np.array(Image.fromarray(pixels).convert(name)))


def test_colours_of_16_bits_are_cut_only_where_8_are_asked_for(photo):
    deep = photo.astype('>u2') * 257
    height, width = photo.shape[:2]
    rows = b''.join(b'\0' + row.tobytes() for row in deep)
    chunks = (
        (b'IHDR', struct.pack('>IIBBBBB', width, height, 16, 2, 0, 0, 0)),
        (b'IDAT', zlib.compress(rows)),
        (b'IEND', b''),
    )
    png = b'\x89PNG\r\n\x1a\n' + b''.join(
        struct.pack('>I', len(content)) + kind + content + struct.pack('>I', zlib.crc32(kind + content))
        for kind, content in chunks
    )
    tags = [
        (256, 4, 1, width), (257, 4, 1, height), (258, 3, 3, 122), (259, 3, 1, 1 << 16), (262, 3, 1, 2 << 16),
        (273, 4, 1, 128), (277, 3, 1, 3 << 16), (278, 4, 1, height), (279, 4, 1, deep.nbytes),
    ]  # fmt: skip
    head = struct.pack('>2sHIH', b'MM', 42, 8, len(tags)) + b''.join(
        struct.pack('>HHII', *tag) for tag in tags
    )
    tiff = (head + bytes(4)).ljust(122, b'\0') + struct.pack('>3H', 16, 16, 16) + deep.tobytes()
    for data in (png, tiff):
        with pytest.raises(ValueError, match='16 bits a channel is decoded in grayscale only'):
            decoders['image'](data)
        assert np.array_equal(decoders['image'](data, 'rgb'), photo)


def test_image_encodes_pixels_as_png(photo):
    for pixels in (photo, photo[:, :, 0], photo[:, :, 0].astype(np.uint16), Image.fromarray(photo)):
        assert encoders['image'](pixels) == encoders['png'](pixels)


@pytest.mark.filterwarnings('ignore')  # Pillow warns of some TIFFs before it raises.
def test_an_image_that_is_cut_off_raises(photo):
    for name, (data, _) in pictures(photo).items():
        whole = decoders['image'](data)
        for cut in range(1, len(data), len(data) // 25 + 1):
            try:
                found = decoders['image'](data[:cut])
            except ValueError:
                continue
            assert name in ('GIF, moving', 'TIFF of several pages', 'GIF', 'TIFF, LZW')
            assert np.array_equal(found, whole), name  # The missing bytes are not part of the first image.


def test_what_is_no_image(photo):
    with pytest.raises(ValueError, match='expected JPEG, PNG, WebP, AVIF, GIF, BMP or TIFF, got MP3'):
        encoders['image'](b'ID3' + bytes(100))
    with pytest.raises(ValueError, match='expected JPEG, PNG, WebP, AVIF, GIF, BMP or TIFF, got MP3'):
        decoders['image'](b'ID3' + bytes(100))
    with pytest.raises(ValueError, match="expected JPEG, got PNG, which a field of type 'image' can hold"):
        encoders['jpeg'](encoders['png'](photo))
    with pytest.raises(bags.SpecError, match='expected a mode of gray, rgb, rgba'):
        bags.DatasetWriter('nowhere', {'image': 'image(cmyk)'})


@pytest.mark.parametrize('format', ['jpeg', 'image'])
def test_jpegs_at_a_reduced_size(format, tmp_path):
    whole = decoders['jpeg'](PHOTO.read_bytes())
    height, width = whole.shape[:2]
    with bags.DatasetWriter(tmp_path / 'x', {'photo': format}) as writer:
        writer.append({'photo': PHOTO})
    for min_side in (1, height // 4, height // 2, height - 1, height, 10 * height):
        with bags.open(tmp_path / 'x', bags.decoders | bags.draft_decoders(min_side)) as dataset:
            found = dataset[0]['photo']
        # The smallest n/8 of the size with so many pixels a side.
        scales = [n for n in range(1, 9) if -(-min(height, width) * n // 8) >= min_side]
        scale = min(scales, default=8)
        assert found.shape == (-(-height * scale // 8), -(-width * scale // 8), 3)
        expected = Image.fromarray(whole).resize(found.shape[1::-1], Image.Resampling.BOX)
        assert close(found, np.array(expected), 4)
    assert decoders[format](PHOTO.read_bytes(), f'min_side={height // 2}').shape[0] == height // 2
    for wrong in (0, -1, 65_536):
        with pytest.raises(ValueError, match='min_side'):
            bags.draft_decoders(wrong)
    pickle.loads(pickle.dumps(bags.draft_decoders(9)))  # Loaders pickle it for worker processes.


def test_files_of_a_depth_that_is_not_decoded_are_not_stored(tmp_path):
    path = tmp_path / 'deep.png'
    path.write_bytes(png(16, 2, 2, 1, b'\0' + bytes(range(12))))
    with pytest.raises(ValueError, match='in grayscale only'):
        encoders['image'](path)
    with encoders['image'](path, 'rgb') as file:
        assert file.read() == path.read_bytes()
    Image.fromarray(np.zeros((5, 6), np.int32)).save(tmp_path / 'deep.tif')
    with pytest.raises(ValueError, match='expected an image of 8 bits a channel, or 16 of gray'):
        encoders['image'](tmp_path / 'deep.tif')
    Image.fromarray(np.full((5, 6), 500, np.uint16)).save(tmp_path / 'gray.tif')
    with encoders['image'](tmp_path / 'gray.tif') as file:
        assert (decoders['image'](file.read()) == 500).all()
