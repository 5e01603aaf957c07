"""`bags.lerobot.dataset` beside `LeRobotDataset`, over recordings that LeRobot wrote."""

import pickle

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

import bags
from tests.lerobot.recordings import HAS_0_4, expect_equal, open_ours, open_theirs, positions_of


@pytest.mark.slow
@pytest.mark.parametrize('form', ['copied', 'linked'])
def test_items_are_those_of_lerobot(recording, form):
    theirs = open_theirs(recording, delta_timestamps=recording.deltas)
    ours = open_ours(recording, form, delta_timestamps=recording.deltas)
    assert len(ours) == len(theirs) == sum(recording.lengths)
    numbers = np.random.default_rng(1).integers(0, len(theirs), 200).tolist()
    edges = np.cumsum([0, *recording.lengths[:-1]]).tolist()
    numbers += [*edges, *(edge - 1 for edge in edges)]  # Padding at both ends.
    padded = set()
    for start in range(0, len(numbers), 20):
        batch = numbers[start : start + 20]
        for number, item in zip(batch, ours.__getitems__(batch), strict=True):
            expect_equal(item, theirs[number])
            padded |= {name for name in item if name.endswith('_is_pad') and item[name].any()}
    assert padded == {
        f'{name}_is_pad' for name, offsets in recording.deltas.items() if np.any(np.array(offsets) != 0)
    }


def test_items_without_offsets(recording):
    theirs, ours = open_theirs(recording), open_ours(recording)
    for number in (0, recording.lengths[0], -1):
        expect_equal(ours[number], theirs[number])


def test_chosen_episodes_in_the_order_of_the_dataset(recording):
    options = {'episodes': [2, 0], 'delta_timestamps': recording.deltas}
    theirs, ours = open_theirs(recording, **options), open_ours(recording, **options)
    assert (len(ours), ours.num_frames, ours.num_episodes) == (len(theirs), theirs.num_frames, 2)
    for number in (0, recording.lengths[0] - 1, recording.lengths[0], len(theirs) - 1):
        expect_equal(ours[number], theirs[number])
    assert ours.absolute_to_relative_idx == positions_of(theirs)
    assert open_ours(recording).absolute_to_relative_idx is None


def test_transforms_of_images(recording):
    def invert(picture):
        return 1 - picture

    theirs = open_theirs(recording, image_transforms=invert, delta_timestamps=recording.deltas)
    ours = open_ours(recording, image_transforms=invert, delta_timestamps=recording.deltas)
    expect_equal(ours[7], theirs[7])
    ours.clear_image_transforms()
    if HAS_0_4:
        theirs.image_transforms = None
    else:
        theirs.clear_image_transforms()
    expect_equal(ours[7], theirs[7])


def test_frames_as_bytes(recordings):
    floats, ours = (open_ours(recordings['pusht'], return_uint8=value)[5] for value in (False, True))
    assert ours['observation.image'].dtype == torch.uint8
    assert torch.equal(ours['observation.image'] / 255, floats['observation.image'])


@pytest.mark.slow
@pytest.mark.parametrize('context', ['fork', 'spawn'])
def test_batches_of_a_data_loader(recordings, context):
    recording = recordings['aloha']
    theirs = DataLoader(open_theirs(recording, delta_timestamps=recording.deltas), 16)
    ours = DataLoader(
        open_ours(recording, 'linked', delta_timestamps=recording.deltas), 16, num_workers=2,
        multiprocessing_context=context,
    )  # fmt: skip
    count = 0
    for found, expected in zip(ours, theirs, strict=True):
        assert found.keys() == expected.keys()
        for name, value in expected.items():
            assert found[name] == value if name == 'task' else torch.equal(found[name], value), name
        count += 1
    assert count == len(theirs)


def test_a_dataset_is_pickled(recordings):
    ours = open_ours(recordings['pusht'], delta_timestamps={'action': [0, 0.1]})
    expect_equal(pickle.loads(pickle.dumps(ours))[3], ours[3])


@pytest.fixture(scope='module')
def s3():
    from tests.servers import s3_server

    with s3_server() as url:
        yield {'key': 'a', 'secret': 'b', 'endpoint_url': url}


@pytest.mark.parametrize('name', ['pusht', 'images'])
def test_a_dataset_on_s3(recordings, s3, name):
    recording = recordings[name]
    url = f's3://bucket/{name}'
    with bags.open(recording.root / 'copied') as dataset:
        bags.copy(dataset, url, storage_options=s3)
    ours = bags.lerobot.dataset(url, delta_timestamps=recording.deltas, storage_options=s3)
    theirs = open_theirs(recording, delta_timestamps=recording.deltas)
    batch = [0, 5, recording.lengths[0], len(theirs) - 1]
    for number, item in zip(batch, ours.__getitems__(batch), strict=True):
        expect_equal(item, theirs[number])
    ours.close()


def test_an_episode_of_a_view(recordings):
    """Views too: an episode is a datapoint, and frames are counted anew."""
    recording = recordings['pusht']
    with bags.open(recording.root / 'copied') as dataset:
        ours = bags.lerobot.dataset(dataset[1:])
        theirs = open_theirs(recording)[recording.lengths[0] + 3]
        found = ours[3]
        assert (found['index'], found['episode_index'], found['frame_index']) == (3, 0, 3)
        assert torch.equal(found['observation.image'], theirs['observation.image'])


SPEC = {'camera': 'video(10)', 'state': 'array(float32,2)[]', 'task': 'utf8', 'note': 'utf8[]'}


def write(path, spec=SPEC, metadata=None, **values):
    with bags.DatasetWriter(path, spec, metadata={'fps': 10} if metadata is None else metadata) as writer:
        for number, length in enumerate((12, 7)):
            frames = np.arange(length, dtype=np.uint8)[:, None, None, None] * 9
            row = {
                'camera': np.broadcast_to(frames, (length, 32, 48, 3)).copy(),
                'state': np.arange(2 * length, dtype=np.float32).reshape(-1, 2),
                'task': f'task {number}',
                'note': [f'note {item}' for item in range(length)],
                **values,
            }
            writer.append({name: row[name] for name in spec})
    return path


def test_a_dataset_that_lerobot_never_saw(tmp_path):
    """Counters, times, tasks and statistics are those of the export, which LeRobot opens."""
    write(tmp_path / 'own')
    bags.export(tmp_path / 'own', tmp_path / 'lerobot', format='lerobot')
    deltas = {'camera': [0, 0.1], 'state': [-0.1, 0]}
    ours = bags.lerobot.dataset(tmp_path / 'own', delta_timestamps=deltas)
    from lerobot.datasets.lerobot_dataset import LeRobotDataset

    theirs = LeRobotDataset('me/own', tmp_path / 'lerobot', delta_timestamps=deltas, video_backend='pyav')
    assert len(ours) == len(theirs) == 19
    for number in range(19):
        found, expected = ours[number], theirs[number]
        assert found.keys() == expected.keys()
        expect_equal({name: found[name] for name in expected}, expected)
    assert ours.meta.tasks.equals(theirs.meta.tasks)
    for name, stats in theirs.meta.stats.items():
        for key, value in stats.items():
            np.testing.assert_array_equal(ours.meta.stats[name][key], value)


def test_what_is_refused(tmp_path, recordings):
    recording = recordings['images']
    with pytest.raises(KeyError, match=r"delta_timestamps: .*'acton'.*'action'"):
        open_ours(recording, delta_timestamps={'acton': [0]})
    with pytest.raises(ValueError, match=r"'action'.*multiples of 1/30 s.*got 0\.05"):
        open_ours(recording, delta_timestamps={'action': [0, 0.05]})
    with pytest.raises(ValueError, match=r"'action'.*got none"):
        open_ours(recording, delta_timestamps={'action': []})
    with pytest.raises(IndexError, match=r'7'):
        open_ours(recording, episodes=[7])
    with pytest.raises(IndexError, match=r'24'):
        open_ours(recording)[24]
    write(tmp_path / 'a')
    with pytest.raises(TypeError, match=r"'note'.*got texts"):
        bags.lerobot.dataset(tmp_path / 'a', delta_timestamps={'note': [0, 0.1]})
    write(tmp_path / 'b', metadata={})
    with pytest.raises(ValueError, match=r"lerobot: .*'fps' in the metadata, got none"):
        bags.lerobot.dataset(tmp_path / 'b')
    write(tmp_path / 'c', {'state': SPEC['state'], 'sound': 'bytes'}, sound=b'x')
    with pytest.raises(TypeError, match=r"lerobot: field 'sound'.*got type bytes.*drop\(fields='sound'\)"):
        bags.lerobot.dataset(tmp_path / 'c')
    assert len(bags.lerobot.dataset(bags.open(tmp_path / 'c').drop(fields='sound'))) == 19
    write(tmp_path / 'd', {'state': SPEC['state'], 'other': 'float(4)[]'}, other=np.zeros(12, np.float32))
    with pytest.raises(
        ValueError, match=r"datapoint 1: .*one length.*7 items of 'state'.*12 of 'other'|other"
    ):
        bags.lerobot.dataset(tmp_path / 'd')
