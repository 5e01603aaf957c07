"""The reader for `storage_format: bags`, against an abstract class with the signatures of LeRobot's.

No release of LeRobot has the registry, so the class and the registry are the ones of this file.
"""

import importlib
import importlib.metadata
import json
import sys
import tomllib
from abc import ABC, abstractmethod
from pathlib import Path
from types import ModuleType

import pytest
from lerobot.datasets.lerobot_dataset import LeRobotDatasetMetadata

import bags
import bags.lerobot.storage
from tests.lerobot.recordings import expect_equal, open_theirs, positions_of


class AbstractReader(ABC):
    """The four abstract members, and the methods that a dataset of LeRobot calls besides."""

    @property
    @abstractmethod
    def num_frames(self): ...

    @property
    @abstractmethod
    def num_episodes(self): ...

    @property
    @abstractmethod
    def absolute_to_relative_idx(self): ...

    @abstractmethod
    def get_item(self, idx): ...

    def get_items(self, indices):
        return list(map(self.get_item, indices))

    def __len__(self):
        return self.num_frames


@pytest.fixture
def module(monkeypatch):
    """The module of the reader, over the class above."""
    base = ModuleType('lerobot.datasets.dataset_reader')
    base.BaseDatasetReader = AbstractReader
    monkeypatch.setitem(sys.modules, base.__name__, base)
    sys.modules.pop('bags.lerobot.reader', None)
    yield importlib.import_module('bags.lerobot.reader')
    sys.modules.pop('bags.lerobot.reader', None)


@pytest.fixture(scope='module')
def exported(recordings, tmp_path_factory):
    folder = tmp_path_factory.mktemp('exported') / 'aloha'
    bags.lerobot.export(recordings['aloha'].root / 'copied', folder)
    return folder


def make(module, folder, **options):
    """Makes a reader as LeRobot does, with all of its keywords."""
    keywords = {
        'episodes': None, 'delta_timestamps': None, 'image_transforms': None, 'tolerance_s': 1e-4,
        'revision': None, 'return_uint8': False, 'depth_output_unit': 'mm', 'token': None,
    }  # fmt: skip
    meta = LeRobotDatasetMetadata('me/aloha', folder)
    return module.DATASET_READER(meta=meta, root=folder, **(keywords | options))


def test_the_meta_beside_bags_is_that_of_lerobot(exported, recordings):
    ours, theirs = LeRobotDatasetMetadata('me/aloha', exported), open_theirs(recordings['aloha']).meta
    assert json.loads((exported / 'meta/info.json').read_text())['storage_format'] == 'bags'
    for name in ('fps', 'features', 'total_frames', 'total_episodes', 'total_tasks', 'robot_type'):
        assert getattr(ours, name) == getattr(theirs, name)
    assert ours.tasks.equals(theirs.tasks)
    assert ours.episodes['dataset_to_index'][:] == theirs.episodes['dataset_to_index'][:]
    assert (ours.stats['action']['mean'] == theirs.stats['action']['mean']).all()


def test_a_reader_has_the_items_of_lerobot(module, exported, recordings):
    recording = recordings['aloha']
    theirs = open_theirs(recording, delta_timestamps=recording.deltas)
    reader = make(module, exported, delta_timestamps=recording.deltas)
    assert isinstance(reader, AbstractReader)
    assert (len(reader), reader.num_episodes, reader.episodes) == (len(theirs), theirs.num_episodes, None)
    assert reader.absolute_to_relative_idx is None
    for number, item in zip([0, 40, 124], reader.get_items([0, 40, 124]), strict=True):
        expect_equal(item, theirs[number])
        expect_equal(reader.get_item(number), theirs[number])


def test_a_reader_of_chosen_episodes(module, exported, recordings):
    theirs = open_theirs(recordings['aloha'], episodes=[3, 1])
    reader = make(module, exported, episodes=[3, 1])
    assert (reader.num_frames, reader.num_episodes, reader.episodes) == (len(theirs), 2, [3, 1])
    known = reader.absolute_to_relative_idx
    assert known == positions_of(theirs)
    expect_equal(reader.get_item(known[80]), theirs[known[80]])


def test_transforms_are_replaced(module, exported):
    reader = make(module, exported, image_transforms=lambda picture: picture * 0)
    name = 'observation.images.top'
    assert not reader.get_item(3)[name].any()
    reader.clear_image_transforms()
    assert reader.get_item(3)[name].any()
    reader.set_image_transforms(lambda picture: picture * 0)
    assert not reader.get_item(3)[name].any()
    with pytest.raises(TypeError, match='image_transforms: expected a function or None, got 3'):
        reader.set_image_transforms(3)


def test_what_does_not_belong_together(module, exported, recordings, tmp_path):
    theirs = open_theirs(recordings['pusht']).meta
    with pytest.raises(ValueError, match=r'bags: expected 71 frames as in meta/info\.json, got 125'):
        module.DATASET_READER(meta=theirs, root=exported)
    with pytest.raises(FileNotFoundError):
        module.DATASET_READER(meta=theirs, root=tmp_path)
    with pytest.raises(FileNotFoundError, match=r's3://bucket/x: .*bags\.lerobot\.dataset'):
        module.localize_root('me/x', 's3://bucket/x', None, token=None, force_cache_sync=False)
    with pytest.raises(FileExistsError):
        bags.lerobot.export(recordings['pusht'].root / 'copied', exported)


REGISTRY = 'known = {}\nregister_dataset_reader = known.__setitem__\n'
GROUP = "DATASET_READER_ENTRY_POINT_GROUP = 'lerobot.dataset_readers'\n"


@pytest.mark.parametrize(('text', 'is_installed', 'registered'), [
    (REGISTRY, False, {'bags': 'bags.lerobot.reader'}),
    (REGISTRY + GROUP, False, {'bags': 'bags.lerobot.reader'}),  # E.g. a source tree.
    (REGISTRY + GROUP, True, {}),  # LeRobot finds the entry point.
])  # fmt: skip
def test_registration(text, is_installed, registered, tmp_path, monkeypatch):
    assert not bags.lerobot.storage.register_reader()  # Releases take no readers.
    points = [importlib.metadata.EntryPoint('bags', bags.lerobot.storage.READER, GROUP)] * is_installed
    monkeypatch.setattr(importlib.metadata, 'entry_points', lambda group: points)
    for name, content in {
        'lerobot/__init__.py': '',
        'lerobot/datasets/__init__.py': '',
        'lerobot/datasets/storage.py': text,
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content)
    for name in [name for name in sys.modules if name.split('.')[0] == 'lerobot']:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(tmp_path)
    assert bags.lerobot.storage.register_reader()
    assert bags.lerobot.storage.register_reader()  # Again, as when the module is reloaded.
    storage = importlib.import_module('lerobot.datasets.storage')
    assert storage.known == registered
    for name in ('lerobot', 'lerobot.datasets', 'lerobot.datasets.storage'):
        monkeypatch.delitem(sys.modules, name)


def test_the_entry_point_names_the_reader():
    text = (Path(__file__).parents[2] / 'pyproject.toml').read_text('utf-8')
    points = tomllib.loads(text)['project']['entry-points'][bags.lerobot.storage.READER_GROUP]
    assert points == {bags.lerobot.storage.STORAGE_FORMAT: bags.lerobot.storage.READER}
