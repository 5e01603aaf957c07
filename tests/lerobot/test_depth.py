"""Depth cameras: items and statistics are those of LeRobot 0.6.1, which `make_golden_depth.py` wrote."""

import json
import shutil

import numpy as np
import pytest
import torch

import bags
from tests.lerobot.make_golden_depth import DELTAS, GOLDEN, UNITS, with_old_key
from tests.lerobot.recordings import HAS_0_4, LeRobotDataset

DEPTHS = ['depth', 'depth_mm', 'depth_m']
KEYS = {'min', 'max', 'mean', 'std', 'q01', 'q50', 'q99', 'count'}


def convert(tmp_path, name, edit=None, **options):
    """Imports a golden recording, whose `info` of features a function may edit."""
    root = tmp_path / 'lerobot'
    shutil.copytree(GOLDEN / name, root)
    if edit is not None:
        path = root / 'meta/info.json'
        info = json.loads(path.read_text())
        for depth in DEPTHS:
            edit(info['features'][depth], info['features'][depth]['info'])
        path.write_text(json.dumps(info))
    bags.convert(root, tmp_path / 'bags', **options)
    return tmp_path / 'bags'


def assert_equal_to_golden(path, name, unit, **options):
    ours = bags.lerobot.dataset(path, depth_output_unit=unit, **options)
    windows = bags.lerobot.dataset(path, depth_output_unit=unit, delta_timestamps=DELTAS, **options)
    assert (ours.meta.depth_keys, ours.depth_output_unit) == (DEPTHS, unit)
    with np.load(GOLDEN / f'{name}.npz') as golden:
        for feature in (*DEPTHS, 'color'):
            items = torch.stack([ours[index][feature] for index in range(len(ours))])
            assert items.dtype == torch.float32
            np.testing.assert_array_equal(items, golden[f'{unit}/item/{feature}'], strict=True)
            stats = ours.meta.stats[feature] if feature in DEPTHS else {}
            for key, value in stats.items():
                np.testing.assert_array_equal(value, golden[f'{unit}/stats/{feature}/{key}'], strict=True)
        for feature in DELTAS:
            items = torch.stack([windows[index][feature] for index in range(len(ours))])
            np.testing.assert_array_equal(items, golden[f'{unit}/window/{feature}'], strict=True)


@pytest.mark.parametrize('unit', UNITS)
@pytest.mark.parametrize('name', ['log', 'linear'])
def test_items_are_those_of_lerobot(tmp_path, name, unit):
    assert_equal_to_golden(convert(tmp_path, name), name, unit)


def with_old_name(feature, info):
    """What LeRobot 0.3 called it."""
    info['video.is_depth_map'] = info.pop('is_depth_map')
    feature['video_info'] = feature.pop('info')


@pytest.mark.parametrize('form', ['key', 'name', 'linked'])
def test_other_forms(tmp_path, form):
    if form == 'key':
        with_old_key(GOLDEN / 'linear', tmp_path / 'old')
        bags.convert(tmp_path / 'old', tmp_path / 'bags')
        return assert_equal_to_golden(tmp_path / 'bags', 'linear', 'mm')
    if form == 'name':
        path = convert(tmp_path, 'linear', with_old_name)
        renamed = bags.open(path).rename({'depth': 'far'})
        assert bags.lerobot.dataset(renamed).meta.depth_keys == ['depth_mm', 'depth_m', 'far']
        return assert_equal_to_golden(path, 'linear', 'mm')
    linked = bags.convert(GOLDEN / 'log', tmp_path / 'bags', link=True)
    return assert_equal_to_golden(tmp_path / 'bags', 'log', 'm', trust_links=linked.parents)


def test_an_export_has_the_same_items(tmp_path):
    source = convert(tmp_path, 'linear')
    bags.export(source, tmp_path / 'out', format='lerobot')
    before, after = (
        json.loads((root / 'meta/info.json').read_text())['features']
        for root in (GOLDEN / 'linear', tmp_path / 'out')
    )
    for name in DEPTHS:
        assert after[name]['info'].items() >= before[name]['info'].items()
        assert after[name]['shape'] == before[name]['shape']
    stats = json.loads((tmp_path / 'out/meta/stats.json').read_text())
    assert stats['depth_m'] == json.loads((GOLDEN / 'linear/meta/stats.json').read_text())['depth_m']
    bags.convert(tmp_path / 'out', tmp_path / 'again')
    assert_equal_to_golden(tmp_path / 'again', 'linear', 'm')
    bags.lerobot.export(source, tmp_path / 'stored')
    stored = json.loads((tmp_path / 'stored/meta/stats.json').read_text())
    assert {name: stored[name] for name in DEPTHS} == {name: stats[name] for name in DEPTHS}


def test_transforms_leave_depth_alone(tmp_path):
    path = convert(tmp_path, 'log')
    plain, changed = bags.lerobot.dataset(path), bags.lerobot.dataset(path, image_transforms=lambda x: -x)
    item, other = plain[1], changed[1]
    assert torch.equal(other['color'], -item['color'])
    for name in DEPTHS:
        assert torch.equal(other[name], item[name])
    loader = torch.utils.data.DataLoader(plain, batch_size=2, num_workers=1, multiprocessing_context='spawn')
    batch = next(iter(loader))
    assert torch.equal(batch['depth'], torch.stack([plain[0]['depth'], plain[1]['depth']]))


def without_unit(feature, info):
    del info['depth_unit']


def test_an_unknown_unit_is_not_converted(tmp_path):
    ours = {
        unit: bags.lerobot.dataset(path, depth_output_unit=unit)
        for path in [convert(tmp_path, 'log', without_unit)]
        for unit in UNITS
    }
    for name in ('depth_mm', 'depth_m'):
        assert torch.equal(ours['mm'][2][name], ours['m'][2][name])
    for name in DEPTHS:
        assert ours['mm'].meta.stats[name]['max'] == ours['m'].meta.stats[name]['max']
    assert ours['mm'][0]['depth'].max() == 10_000  # The scale of codes is in metres.


def edited(**changes):
    def edit(feature, info):
        info |= {f'video.{key}': value for key, value in changes.items() if key != 'depth_unit'}
        info |= {key: value for key, value in changes.items() if key == 'depth_unit'}

    return edit


@pytest.mark.parametrize(
    ('changes', 'expected'),
    [
        ({'depth_unit': 'cm'}, r"feature 'depth', depth_unit in its info: expected 'mm' or 'm', got 'cm'"),
        (
            {'depth_min': 'near'},
            "'depth', its info: video.depth_min: expected a number of metres, got 'near'",
        ),
        ({'depth_max': 0.0}, 'expected video.depth_min < video.depth_max'),
        ({'shift': -0.2, 'use_log': True}, r'with video.use_log video.depth_min \+ video.shift > 0'),
        ({'use_log': 'yes'}, "video.use_log: expected true or false, got 'yes'"),
        ({'pix_fmt': 'yuv420p'}, "expected depth of video.pix_fmt 'gray12le', got 'yuv420p'; leave it out"),
    ],
)
def test_wrong_info(tmp_path, changes, expected):
    path = convert(tmp_path, 'linear', edited(**changes))
    with pytest.raises((TypeError, ValueError), match=expected):
        bags.lerobot.dataset(path)


def test_a_wrong_unit(tmp_path):
    with pytest.raises(ValueError, match="depth_output_unit: expected 'mm' or 'm', got 'cm'"):
        bags.lerobot.dataset(convert(tmp_path, 'log'), depth_output_unit='cm')


@pytest.fixture(scope='module')
def recorded(tmp_path_factory):
    """Depth that bags recorded: without `info`, as millimetres and metres."""
    path = tmp_path_factory.mktemp('recorded') / 'bags'
    spec = {'depth': 'video(10)', 'images': 'png[]', 'state': 'float(4)[]'}
    rng = np.random.default_rng(0)
    with bags.DatasetWriter(path, spec, metadata={'fps': 10}) as writer:
        for count in (4, 6):
            depth = rng.integers(0, 4096, (count, 32, 48)).astype(np.uint16)
            writer.append({'depth': depth, 'images': list(7 * depth), 'state': np.arange(count)})
    return path


@pytest.mark.parametrize('unit', UNITS)
def test_depth_without_info(recorded, unit):
    ours = bags.lerobot.dataset(recorded, depth_output_unit=unit)
    factor = {'mm': 1, 'm': 1000}[unit]
    assert ours.meta.depth_keys == ['depth', 'images']
    with bags.open(recorded) as dataset:
        values = {'depth': dataset[0]['depth'][:], 'images': np.stack(dataset[0]['images'])}
        everything = np.concatenate([dataset[row]['depth'][:] for row in range(2)]) / factor
    for name, stored in values.items():
        assert ours.meta.features[name]['shape'] == (32, 48, 1)
        assert ours[3][name].shape == (1, 32, 48)
        np.testing.assert_allclose(ours[3][name][0], stored[3] / factor, rtol=1e-6, atol=1e-6)
    stats = ours.meta.stats['depth']
    assert stats.keys() == KEYS
    assert all(value.shape == (1, 1, 1) for key, value in stats.items() if key != 'count')
    for key, expected in (('min', everything.min()), ('mean', everything.mean()), ('std', everything.std())):
        np.testing.assert_allclose(stats[key][0, 0, 0], expected, rtol=1e-4, atol=1e-9)
    assert stats['count'].tolist() == [everything.size]


def test_codes_beyond_12_bits(tmp_path):
    with bags.DatasetWriter(tmp_path / 'it', {'depth': 'mkv(10)'}, metadata={'fps': 10}) as writer:
        writer.append({'depth': np.full((3, 16, 16), 5000, np.uint16)})
    with pytest.raises(ValueError, match="field 'depth': expected codes of depth from 0 to 4095, got 5000"):
        bags.lerobot.dataset(tmp_path / 'it')[0]


@pytest.mark.skipif(HAS_0_4, reason='LeRobot 0.6 has depth')
@pytest.mark.parametrize('unit', UNITS)
def test_lerobot_reads_what_bags_recorded(recorded, tmp_path, unit):
    bags.export(recorded, tmp_path / 'out', format='lerobot')
    theirs = LeRobotDataset('our/depth', tmp_path / 'out', video_backend='pyav', depth_output_unit=unit)
    ours = bags.lerobot.dataset(recorded, depth_output_unit=unit)
    assert theirs.meta.depth_keys == ours.meta.depth_keys
    for index, item in enumerate(theirs):
        for name in ours.meta.depth_keys:
            assert torch.equal(item[name], ours[index][name])
    for name in ours.meta.depth_keys:
        np.testing.assert_allclose(ours.meta.stats[name]['mean'], theirs.meta.stats[name]['mean'], rtol=1e-3)
