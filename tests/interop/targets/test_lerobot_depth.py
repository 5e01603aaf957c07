"""Depth of LeRobot: scales of codes, units, `info` of exports, statistics, and encoded videos."""

import io
import json
import shutil
from pathlib import Path

import av
import numpy as np
import pytest
from PIL import Image

import bags
from bags.interop.targets.lerobot_depth import (
    as_distances,
    depth_statistics,
    distances_of,
    info_of_gray,
    scale_of,
    unit_of,
)

pytest.importorskip('pyarrow')

GOLDEN = Path(__file__).parents[2] / 'golden' / 'lerobot_depth'
FIELD = 'depth'


def feature(**info):
    return {'dtype': 'video', 'info': {'is_depth_map': True, **{f'video.{k}': v for k, v in info.items()}}}


@pytest.mark.parametrize('unit', ['mm', 'm'])
@pytest.mark.parametrize('name', ['log', 'linear'])
def test_distances_are_those_of_lerobot(name, unit, tmp_path):
    bags.convert(GOLDEN / name, tmp_path / 'out')
    with bags.open(tmp_path / 'out') as dataset, np.load(GOLDEN / f'{name}.npz') as golden:
        facts = dataset.metadata['fields'][FIELD]
        codes = np.concatenate([value[FIELD][:] for value in dataset])
        found = as_distances(FIELD, codes, distances_of(FIELD, facts, unit))
        expected = golden[f'{unit}/item/{FIELD}'][:, 0]
        # The exponential functions of NumPy and PyTorch differ in the last bit.
        assert (found.shape, found.dtype) == (expected.shape, np.float32)
        np.testing.assert_allclose(found, expected, atol=2e-6 if unit == 'm' else 1)
        stats = {key: np.array(value) for key, value in facts['stats'].items()}
        computed = depth_statistics(iter(as_distances(FIELD, codes, distances_of(FIELD, facts, 'mm'))))
        low, high = (10, 10_000) if name == 'log' else (200, 4000)
        for key in ('min', 'max'):  # LeRobot's are of the frames before they were quantized.
            assert computed[key][0][0][0] == np.clip(stats[key], low, high).item()


def test_defaults_and_units():
    assert scale_of('x', {'info': {}}) == (0.01, 10.0, 3.5, True)
    assert scale_of('x', feature(depth_max=None, use_log=False)) == (0.01, 10.0, 3.5, False)
    assert scale_of('x', {'video_info': {'video.depth_max': 4}}).depth_max == 4
    assert unit_of('x', {'info': {'depth_unit': 'm'}}) == 'm'
    assert unit_of('x', {}) is unit_of('x', {'info': 5}) is None
    for bits in (9, 10, 12):
        info = info_of_gray(bits) | {'video.pix_fmt': f'gray{bits}le'}
        assert np.array_equal(distances_of('x', {'info': info}, 'mm'), np.arange(1 << bits))


@pytest.mark.parametrize(
    ('info', 'expected'),
    [
        ({'depth_min': float('nan')}, "'x', its info: video.depth_min: expected a number of metres, got nan"),
        ({'shift': []}, r'video.shift: expected a number of metres, got \[\]'),
        ({'depth_max': 10**400}, 'video.depth_max: expected a number of metres, got 1000'),
        ({'use_log': 0.5}, 'video.use_log: expected true or false, got 0.5'),
        ({'depth_min': 11}, 'expected video.depth_min < video.depth_max'),
        ({'shift': -1}, r'video.depth_min \+ video.shift > 0'),
        ({'pix_fmt': 'gray16le'}, "expected depth of video.pix_fmt 'gray12le', got 'gray16le'; leave it out"),
    ],
)  # fmt: skip
def test_wrong_scales(info, expected):
    with pytest.raises((TypeError, ValueError), match=expected):
        distances_of('x', feature(**info), 'mm')


def info_of(path, name):
    return json.loads((path / 'meta/info.json').read_text())['features'][name].get('info')


def test_info_of_exports(tmp_path):
    values = np.random.default_rng(0).integers(0, 1024, (6, 32, 48)).astype(np.uint16)
    spec = {'ten': 'video', 'images': 'png[]', 'metres': 'image[]', 'color': 'png[]', 'given': 'mp4(10)'}
    given = {'is_depth_map': True, 'depth_unit': 'm', 'video.depth_max': 3.0}
    metadata = {'fps': 10, 'fields': {'given': {'info': given}}}
    picture = np.zeros((32, 48, 3), np.uint8)
    with bags.DatasetWriter(tmp_path / 'in', spec, metadata=metadata) as writer:
        writer.append({
            'ten': at_10_hz(values), 'images': list(values), 'metres': [tiff_of(v / 1000) for v in values],
            'color': [picture] * 6, 'given': values,
        })  # fmt: skip
    bags.export(tmp_path / 'in', tmp_path / 'out', format='lerobot')
    assert info_of(tmp_path / 'out', 'ten')['video.depth_max'] == 1.023
    assert info_of(tmp_path / 'out', 'images') == {'is_depth_map': True, 'depth_unit': 'mm'}
    assert info_of(tmp_path / 'out', 'metres') == {'is_depth_map': True, 'depth_unit': 'm'}
    assert info_of(tmp_path / 'out', 'color') is None
    assert info_of(tmp_path / 'out', 'given').items() >= given.items()
    stats = json.loads((tmp_path / 'out/meta/stats.json').read_text())
    for name, scale in (('ten', 1), ('images', 1), ('metres', 1000)):
        assert np.shape(stats[name]['mean']) == (1, 1, 1)
        assert np.isclose(stats[name]['mean'][0][0][0] * scale, values.mean())
        assert np.isclose(stats[name]['max'][0][0][0] * scale, values.max())
    assert stats['given']['max'][0][0][0] < 3  # In metres.
    bags.convert(tmp_path / 'out', tmp_path / 'back')
    with bags.open(tmp_path / 'back') as dataset:
        assert np.array_equal(dataset[0]['given'][:], values)
        assert dataset.metadata['fields']['metres']['info']['depth_unit'] == 'm'


def tiff_of(values):
    file = io.BytesIO()
    Image.fromarray(values.astype(np.float32)).save(file, 'TIFF')
    return file.getvalue()


def at_10_hz(values):
    """Returns a video of grey of 10 bits."""
    file = io.BytesIO()
    with av.open(file, 'w', format='mp4') as container:
        options = {'x265-params': 'lossless=1:open-gop=0:log-level=none:no-cutree=1'}
        stream = container.add_stream('libx265', rate=10, options=options)
        (stream.height, stream.width), stream.pix_fmt = values.shape[1:], 'gray10le'
        for index, value in enumerate(values):
            frame = av.VideoFrame.from_ndarray(value, format='gray10le')
            frame.pts = index
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return file.getvalue()


def test_depth_at_other_times_is_encoded(tmp_path):
    values = np.random.default_rng(0).integers(0, 4096, (12, 32, 48)).astype(np.uint16)
    facts = {'depth': {'rate': 30}, 'state': {'rate': 15}}
    spec = {'depth': 'mp4(30)[]', 'state': 'float(4)[]'}
    with bags.DatasetWriter(tmp_path / 'in', spec, metadata={'fields': facts}) as writer:
        writer.append({'depth': [values[:7], values[7:]], 'state': np.arange(6)})
    done = bags.export(tmp_path / 'in', tmp_path / 'out', format='lerobot', every='state')
    assert any("field 'depth': encoded in 1 of 1 episodes" in note for note in done.notes)
    bags.convert(tmp_path / 'out', tmp_path / 'back')
    with bags.open(tmp_path / 'back') as dataset:
        assert np.array_equal(dataset[0]['depth'][:], values[::2][: len(dataset[0]['depth'])])
        assert dataset.metadata['fields']['depth']['info']['is_depth_map'] is True


def test_an_import_encodes_depth_without_loss(tmp_path):
    shutil.copytree(GOLDEN / 'log', tmp_path / 'in')
    (path,) = (tmp_path / 'in/videos/depth').rglob('*.mp4')
    frames = bags.Video(path)[:]
    path.write_bytes(bags.encoders['mp4'](frames, '10'))  # With one key frame.
    done = bags.convert(tmp_path / 'in', tmp_path / 'out', encode=True)
    assert any('episode 1 is encoded again' in note for note in done.notes)
    with bags.open(tmp_path / 'out') as dataset:
        assert np.array_equal(np.concatenate([value['depth'][:] for value in dataset]), frames)
