"""`bags.torch.decode`: planes and pixels of torchcodec beside those of `bags.Video`."""

import io

import numpy as np
import pytest
import torch

import bags
import bags.torch
from bags.media.torchcodec import RawFrames, import_torchcodec
from tests.media.samples import DATA, HEVC, KINDS, deep, example, film, x264
from tests.media.test_excerpts import OFTEN

try:
    import_torchcodec()
except bags.MissingDependencyError as exc:
    pytest.skip(f'torchcodec is needed for this, with FFmpeg: {str(exc)[:80]}', allow_module_level=True)

CPU = torch.device('cpu')
MAX_DIFFERENCES = {'photograph': 5, 'noise': 50}
"""The largest difference of 255 for colours of 10 bits, which docs/video.md states."""


def ranges_of(count):
    return [(count // 3, count // 3 + 5), (count // 5, count // 5 + 1), (count - 3, count)]


@pytest.mark.slow(*(kind for kind in KINDS if kind not in OFTEN))
@pytest.mark.parametrize('kind', KINDS)
def test_planes_and_colors_are_equal(kind):
    video = bags.Video(example(kind)[0])
    for start, stop in ranges_of(len(video)) if len(video) > 5 else [(0, len(video))]:
        excerpt = video.excerpt(start, stop)
        with video.decoder.use() as decoder:
            ours = {number - start: frame for number, frame in decoder.frames(np.arange(start, stop))}
            for positions, frame in RawFrames(excerpt, CPU):
                own = ours[int(positions[0])]
                assert frame.pixel_format == own.format.name
                for plane, other in zip(frame.planes, own.planes, strict=True):
                    stored = np.frombuffer(other, np.uint8).reshape(-1, other.line_size)
                    assert np.array_equal(plane, stored[: other.height, : other.width])
        assert np.array_equal(bags.torch.decode(excerpt), video[start:stop])


def test_depth_is_uint16():
    values = np.random.default_rng(0).integers(0, 4096, (30, 32, 48)).astype(np.uint16)
    options = {'x265-params': 'lossless=1:bframes=2:keyint=8:log-level=none'}
    excerpt = bags.Video(deep(values, 'gray12le', 'libx265', 'mp4', options)).excerpt(9, 20)
    found = bags.torch.decode(excerpt)
    assert found.dtype == torch.uint16
    assert np.array_equal(found, values[9:20])


@pytest.mark.parametrize('content', MAX_DIFFERENCES)
def test_colors_of_10_bits_differ_by_their_rounding(content):
    chance, image = np.random.default_rng(0), bags.decoders['jpeg']((DATA / 'cat.jpg').read_bytes())

    def draw(number, height, width):
        if content == 'photograph':
            return np.ascontiguousarray(image[number : number + height, number : number + width])
        return chance.integers(0, 256, (height, width, 3)).astype(np.uint8)

    video = bags.Video(film('libx265', 12, options=HEVC, pix_fmt='yuv420p10le', draw=draw))
    found = bags.torch.decode(video.excerpt(3, 9)).numpy().astype(int)
    assert np.abs(found - video[3:9]).max() <= MAX_DIFFERENCES[content]


def test_a_batch_is_one_tensor(tmp_path):
    with bags.DatasetWriter(tmp_path / 'it', {'camera': 'video'}) as writer:
        for row in range(3):
            numbers = range(200 * row, 200 * row + 60)
            writer.append({'camera': film(count=60, numbers=numbers, options=x264(open_gop=1))})
    with bags.open(tmp_path / 'it') as reader:
        rows, times = [2, 0, 2, 1], np.array([[0.0, 1.0], [0.44, 0.4], [2.36, 0.04], [0.0, 0.0]])
        found = bags.torch.decode(reader.excerpts(rows, 'camera', times), 'cpu')
        expected = [reader.stream(row, 'camera').at(at) for row, at in zip(rows, times, strict=True)]
        assert found.shape == (4, 2, 96, 128, 3)
        assert np.array_equal(found, np.stack(expected))
        assert bags.torch.decode(reader.excerpts([], 'camera', np.empty((0, 2)))).shape[:2] == (0, 2)


def test_sizes_that_differ(tmp_path):
    with bags.DatasetWriter(tmp_path / 'it', {'camera': 'video'}) as writer:
        for size in ((96, 128), (64, 128)):
            writer.append({'camera': film(count=3, size=size)})
    with bags.open(tmp_path / 'it') as reader:
        excerpts = reader.excerpts([0, 1], 'camera', [0.0, 0.0])
        with pytest.raises(
            ValueError, match=r"datapoint 1, field 'camera': expected a frame of .*96, 128.*got"
        ):
            bags.torch.decode(excerpts)


def test_a_damaged_frame_is_named(tmp_path):
    data = bytearray(film('libx265', 30, options=HEVC))
    with bags.DatasetWriter(tmp_path / 'it', {'camera': 'video'}) as writer:
        video = bags.Video(bytes(data))
        with video.decoder.use() as decoder:
            offset, size = (
                int(column[0]) for column in (decoder.packets.table.offsets, decoder.packets.table.sizes)
            )
        data[offset : offset + size] = bytes(size)
        writer.append({'camera': bytes(data)})
    message = "datapoint 0, field 'camera': expected the frame at 0.04 s"
    with bags.open(tmp_path / 'it') as reader, pytest.raises(ValueError, match=message):
        bags.torch.decode(reader.excerpts([0], 'camera', [0.04]))


def test_rotated_frames_are_upright():
    stored = io.BytesIO(film(count=20)).getvalue()
    at = stored.index(b'tkhd') + 44
    matrix = np.array([0, 1 << 16, 0, -(1 << 16), 0, 0, 0, 0, 1 << 30], '>i4').tobytes()
    video = bags.Video(stored[:at] + matrix + stored[at + 36 :])
    assert video.rotation == 90
    assert np.array_equal(bags.torch.decode(video.excerpt(3, 6)), video[3:6])
