"""Excerpts of batches: frames at times, of videos, clips and segments, in few reads of a remote dataset."""

import pickle

import numpy as np
import pytest

import bags
from tests.media.samples import film, x264
from tests.servers import WebServer

CLOSED = x264(keyint=10, bframes=0, **{'min-keyint': 10})


def frames_of(excerpts):
    """Returns the frames of a batch in the order of the request, decoded by bags."""
    found = np.zeros((int(np.prod(excerpts.shape)), 96, 128, 3), np.uint8)
    for excerpt, positions in zip(excerpts, excerpts.positions, strict=True):
        found[positions] = bags.Video(excerpt.file)[excerpt.frames]
    return found.reshape(*excerpts.shape, *found.shape[1:])


@pytest.fixture(scope='module')
def dataset(tmp_path_factory):
    """Videos of different numbers, clips with the times of a field, pictures, and a missing video."""
    path = tmp_path_factory.mktemp('data') / 'it'
    spec = {'camera': 'video?', 'clips': 'video[]', 'time': 'float[]', 'image': 'jpeg[]', 'text': 'utf8'}
    facts = {'fields': {'clips': {'times': 'time'}}}
    with bags.DatasetWriter(path, spec, metadata=facts) as writer:
        for row in range(4):
            numbers = [film(count=20, numbers=range(100 * row + at, 100 * row + at + 20), options=CLOSED)
                       for at in (0, 20)]  # fmt: skip
            writer.append(
                {
                    'camera': film(count=60, numbers=range(200 * row, 200 * row + 60), options=CLOSED)
                    if row < 3
                    else None,
                    'clips': numbers,
                    'time': 5 + np.arange(40) / 10,
                    'image': [np.zeros((8, 8, 3), np.uint8)],
                    'text': 'a',
                }
            )
    with bags.open(path) as reader:
        yield reader


def test_frames_at_times(dataset):
    rows, times = [2, 0, 2], np.array([[0.0, 1.0], [0.44, 0.4], [2.36, 0.04]])
    excerpts = dataset.excerpts(rows, 'camera', times)
    expected = np.stack([dataset.stream(row, 'camera').at(at) for row, at in zip(rows, times, strict=True)])
    assert np.array_equal(frames_of(excerpts), expected)
    assert excerpts.shape == (3, 2)
    assert 'datapoint 0' in excerpts[0].name
    # Datapoint 0 is one excerpt of a group; datapoint 2 needs three groups, of which none are neighbours.
    assert len(excerpts) == 4
    assert sorted(np.concatenate(excerpts.positions).tolist()) == list(range(6))
    again = pickle.loads(pickle.dumps(excerpts))
    assert np.array_equal(frames_of(again), expected)
    # Times of floats, just below the start of a frame.
    near = dataset.excerpts([1], 'camera', [np.nextafter(0.4, 0)])
    assert np.array_equal(frames_of(near)[0], dataset.stream(1, 'camera')[10])
    assert near[0].times.tolist() == [0.4]


def test_neighbouring_groups_are_one_excerpt(dataset):
    (excerpt,) = dataset.excerpts([1, 1], 'camera', [0.36, 0.44])
    assert len(bags.Video(excerpt.file)) == 3
    assert excerpt.frames.tolist() == [0, 2]
    assert len(dataset.excerpts([1, 1], 'camera', [0.0, 2.0])) == 2


def test_clips_with_the_times_of_a_field(dataset):
    excerpts = dataset.excerpts([3, 1], 'clips', [[5.0, 7.0, 8.93], [6.9, 6.9, 7.1]])
    video = dataset.stream(3, 'clips')
    assert np.array_equal(frames_of(excerpts)[0], video[[0, 20, 39]])
    assert excerpts[0].times.tolist() == [6.9, 6.9] or excerpts[0].times.tolist() == [5.0]
    joined = dataset.stream(1, 'clips')
    excerpt = joined.excerpt(22, 25)
    assert np.array_equal(bags.Video(excerpt.file)[excerpt.frames], joined[22:25])
    assert np.allclose(excerpt.times, [7.2, 7.3, 7.4])
    with pytest.raises(ValueError, match='frames 18 to 22 are in several clips: expected frames of one'):
        joined.excerpt(18, 22)


def test_segments_of_one_linked_file_are_one_excerpt(tmp_path):
    path = tmp_path / 'film.mp4'
    path.write_bytes(film(count=60, options=x264(open_gop=1)))
    whole = bags.Video(path)
    with bags.DatasetWriter(tmp_path / 'it', {'camera': 'video'}, linked_fields=['camera']) as writer:
        for frames in ((0, 30), (30, 60)):
            writer.append({'camera': bags.Link(path, frames=frames)})
    with bags.open(tmp_path / 'it', trust_links=path) as reader:
        excerpts = reader.excerpts([1, 0], 'camera', [0.0, 1.16])
        assert np.array_equal(frames_of(excerpts), whole[[30, 29]])
        assert len(excerpts) == 1
        assert np.allclose(excerpts[0].times[excerpts.positions[0]], [0.0, 1.16])
        one = reader[1]['camera'].excerpt(5, 8)
        assert np.array_equal(bags.Video(one.file)[one.frames], whole[35:38])
        with pytest.raises(IndexError, match=r'expected frames in range\(30\), got 28 to 31'):
            reader[1]['camera'].excerpt(28, 31)


def test_views_and_empty_batches(dataset):
    view = dataset.select([2, 1])
    assert np.array_equal(frames_of(view.excerpts([0], 'camera', [0.2]))[0], dataset.stream(2, 'camera')[5])
    empty = dataset.excerpts([], 'camera', np.empty((0, 2)))
    assert len(empty) == 0
    assert empty.shape == (0, 2)


@pytest.mark.parametrize(
    ('rows', 'field', 'times', 'error', 'message'),
    [
        (
            [0],
            'camera',
            [2.5],
            IndexError,
            "datapoint 0, field 'camera': nothing is shown at 2.5 s; it is shown from 0.0 s to 2.4",
        ),
        ([0], 'camera', [-0.1], IndexError, 'nothing is shown at -0.1 s'),
        ([0], 'camera', [np.nan], IndexError, 'nothing is shown at nan s'),
        ([0, 1], 'camera', [0.5], ValueError, r'times: expected shape \(2,\) or \(2, n\), .* got \(1,\)'),
        ([3], 'camera', [0.5], ValueError, "datapoint 3, field 'camera': expected a video, got no value"),
        ([0], 'image', [0.0], TypeError, r"datapoint 0, field 'image': expected a video, .* jpeg\[\]"),
        ([0], 'text', [0.0], TypeError, "field 'text'"),
        ([0], 'other', [0.0], KeyError, 'other'),
        ([4], 'camera', [0.0], IndexError, '4'),
    ],
)
def test_bad_input(dataset, rows, field, times, error, message):
    with pytest.raises(error, match=message):
        dataset.excerpts(rows, field, times)


def test_damage_names_the_datapoint(tmp_path):
    with bags.remux(film(count=30, options=CLOSED)) as file:
        good = bytes(file)
    with bags.DatasetWriter(tmp_path / 'it', {'camera': 'bytes'}) as writer:
        for data in (good, good[: len(good) // 2], b'no video'):
            writer.append({'camera': data})
    with bags.open(tmp_path / 'it', {**bags.decoders, 'bytes': bags.decoders['video']}) as reader:
        for row, expected in ((1, r'cut off: expected \d+ bytes at byte \d+'), (2, 'expected video, got')):
            with pytest.raises(bags.DecodeError, match=f"field 'camera'.*record {row}: {expected}"):
                reader[row]['camera'].excerpt(25, 28)


def test_a_later_batch_of_a_remote_dataset_reads_only_packets(tmp_path):
    data = film(count=60, options=CLOSED)
    with bags.DatasetWriter(tmp_path / 'it', {'camera': 'video'}) as writer:
        for _ in range(3):
            writer.append({'camera': data + bytes(1 << 20)})  # More than is read ahead.
    with WebServer(tmp_path) as server, bags.open(f'{server.url}/it') as reader:
        reader.excerpts([0, 1, 2], 'camera', [0.0, 0.0, 0.0])
        before = reader.request_counts()
        excerpts = reader.excerpts([2, 0], 'camera', [1.0, 2.0])
        used = reader.request_counts().since(before)
        assert used.requests == 2
        assert used.received < 2 * len(data)
        assert np.array_equal(frames_of(excerpts), bags.Video(data)[[25, 50]])
