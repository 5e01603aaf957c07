"""Segments: records that are parts of linked videos and recordings equal slices of these."""

import functools
import os
import pickle
import shutil

import numpy as np
import pytest

import bags
from bags.media import demux
from tests.dataset.writing.killed import leave_open
from tests.media.samples import film, several, x264

OPEN_GOP = x264(**{'open-gop': 1, 'keyint': 12, 'min-keyint': 12})
FILMS = {
    'h264': {'options': x264()},
    'open groups of pictures': {'options': OPEN_GOP},
    'hevc': {'codec': 'libx265', 'options': {'x265-params': 'log-level=none:keyint=20'}},
    'vp9': {'codec': 'libvpx-vp9', 'options': {'g': '16', 'deadline': 'realtime', 'cpu-used': '8'}},
    'av1': {'codec': 'libsvtav1', 'options': {'g': '30', 'preset': '12', 'svtav1-params': 'rc=0'}},
    'Matroska': {'format': 'matroska', 'options': x264()},
    'MPEG-TS': {'format': 'mpegts', 'options': x264()},
    'variable rate': {'times': np.cumsum([40, 90, 10] * 40).tolist()},
}
RANGES = [(0, 120), (0, 1), (10, 50), (23, 25), (24, 48), (119, 120)]


@functools.cache
def encoded(name):
    return film(**FILMS[name])


@pytest.fixture
def session(tmp_path):
    """A file `raw/session.mp4` with sound."""
    (tmp_path / 'raw').mkdir()
    (tmp_path / 'raw' / 'session.mp4').write_bytes(film(options=x264(), audio=True))
    return tmp_path / 'raw' / 'session.mp4'


def write(path, video, ranges=RANGES, field_type='video', **options):
    with bags.DatasetWriter(
        path, {'id': 'int(8)', 'clip': field_type}, linked_fields=['clip'], **options
    ) as writer:
        for number, frames in enumerate(ranges):
            writer.append({'id': number, 'clip': bags.Link(video, frames=frames)})


@pytest.mark.parametrize('name', FILMS)
def test_frames_are_those_of_the_file(tmp_path, name):
    path = tmp_path / 'film'
    path.write_bytes(encoded(name))
    whole = bags.Video(path)
    frames, times = whole[:], np.append(whole.times, whole.times[0] + whole.duration)
    write(tmp_path / 'data', path)
    with bags.open(tmp_path / 'data', trust_links=path) as dataset:
        assert dataset.frame_counts(np.arange(len(RANGES)), 'clip').tolist() == [b - a for a, b in RANGES]
        for index in (*range(len(RANGES)), 2, 0):
            (start, stop), clip = RANGES[index], dataset[index]['clip']
            assert len(clip) == stop - start
            assert clip.truncation is None
            assert np.array_equal(clip[:], frames[start:stop])
            assert np.array_equal(np.stack([*clip]), frames[start:stop])
            chosen = [stop - start - 1, 0, (stop - start) // 2]
            assert np.array_equal(clip[chosen], frames[start:stop][chosen])
            assert np.array_equal(pickle.loads(pickle.dumps(clip))[-1], frames[stop - 1])
            assert np.allclose(clip.times, times[start:stop] - times[start], 0, 1e-9)
            assert clip.duration == pytest.approx(times[stop] - times[start])
            assert clip.tracks == whole.tracks
            assert np.array_equal(clip.at(clip.times), frames[start:stop])


def test_parts_are_found_by_their_times(session):
    whole = bags.Video(session)
    times = (0.4, 2.01)
    with bags.DatasetWriter(session.parent / 'data', {'clip': 'video'}, linked_fields=['clip']) as writer:
        writer.append({'clip': bags.Link(session, times=times)})
        writer.append({'clip': bags.Link(session, times=(4, 99))})
        with pytest.raises(bags.EncodeError, match=r'expected a part with times from 0 to 4.8 s, got \(5'):
            writer.append({'clip': bags.Link(session, times=(5, 6))})
    with bags.open(session.parent / 'data', trust_links=session) as dataset:
        assert np.array_equal(dataset[0]['clip'][:], whole.between(*times))
        assert np.array_equal(dataset[1]['clip'][:], whole[100:])


def test_audio_has_the_clock_of_the_frames(tmp_path):
    path = tmp_path / 'film'
    path.write_bytes(several('mp4', [('libx264', 25, 50, (48, 64), 0)], [('aac', 8000, 440)]))
    write(tmp_path / 'data', path, [(0, 50), (13, 40)])
    whole = bags.Video(path).audio
    with bags.open(tmp_path / 'data', trust_links=path) as dataset:
        audio = dataset[1]['clip'].audio
        assert audio.rate == 8000
        assert audio.duration == pytest.approx(27 / 25, abs=1 / 8000)
        assert audio.start == pytest.approx(0, abs=1 / 8000)
        for start, stop in ((0, 0.5), (0.25, 0.75), (0.7, 1.08)):
            expected = whole.between(start + 13 / 25, stop + 13 / 25)
            assert np.allclose(audio.between(start, stop), expected, 0, 1e-3)
        assert dataset[0]['clip'].audio.start == pytest.approx(whole.start)


def test_audio_of_another_file_beside_a_part_of_a_video(session):
    sound = session.parent / 'microphone.wav'
    samples = (np.random.default_rng(0).standard_normal((48_000, 1)) * 4000).astype(np.int16)
    sound.write_bytes(bags.encoders['wav']((samples, 8000)))
    spec, times = {'clip': 'video', 'sound': 'audio'}, (0.4, 2.0)
    with bags.DatasetWriter(session.parent / 'data', spec, linked_fields=['clip', 'sound']) as writer:
        writer.append(
            {name: bags.Link(path, times=times) for name, path in (('clip', session), ('sound', sound))}
        )
    with bags.open(session.parent / 'data', trust_links=session.parent) as dataset:
        row = dataset[0]
        assert np.array_equal(row['clip'][:], bags.Video(session).between(*times))
        assert (row['clip'].duration, row['sound'].duration) == (pytest.approx(1.6), pytest.approx(1.6))
        assert np.array_equal(row['sound'][:], bags.Audio(sound)[3200:16_000])
        assert np.array_equal(row['sound'].between(0.5, 0.7), bags.Audio(sound)[7200:8800])


@pytest.mark.parametrize('field_type', ['flac', 'wav'])
def test_a_part_of_a_recording_is_mixed_and_resampled(tmp_path, field_type):
    path = tmp_path / 'sound'
    samples = (np.random.default_rng(0).standard_normal((24_000, 2)) * 4000).astype(np.int16)
    path.write_bytes(bags.encoders[field_type]((samples, 8000)))
    spec = {'sound': 'audio(channels=1)', 'quick': 'audio(rate=16000)'}
    with bags.DatasetWriter(tmp_path / 'data', spec, linked_fields=list(spec)) as writer:
        writer.append({name: bags.Link(path, frames=(8000, 16_000)) for name in spec})
    with bags.open(tmp_path / 'data', trust_links=path) as dataset:
        row = dataset[0]
        assert np.allclose(row['sound'][:], bags.Audio(path, channels=1)[8000:16_000], 0, 1e-6)
        assert row['quick'].shape == (16_000, 2)
    assert bags.verify(tmp_path / 'data', decode=True, trust_links=path) == []


@pytest.mark.parametrize('field_type', ['flac', 'wav', 'aac'])
def test_samples_are_those_of_the_recording(tmp_path, field_type):
    path = tmp_path / 'sound'
    sound = np.random.default_rng(0).standard_normal((24_000, 1)).astype(np.float32) / 8
    if field_type == 'aac':
        path.write_bytes(several('mp4', [], [('aac', 8000, 440)]))
    else:
        pair = ((sound * 32767).astype(np.int16), 8000)
        path.write_bytes(bags.encoders[field_type](pair))
    whole = bags.Audio(path)
    ranges = [(0, len(whole)), (5, 6), (1000, 9001)]
    with bags.DatasetWriter(tmp_path / 'data', {'sound': 'audio'}, linked_fields=['sound']) as writer:
        for samples in ranges:
            writer.append({'sound': bags.Link(path, frames=samples)})
        writer.append({'sound': bags.Link(path, times=(0.25, 1.5))})
    with bags.open(tmp_path / 'data', trust_links=path) as dataset:
        for index, (start, stop) in enumerate([*ranges, (2000, 12_000)]):
            found = dataset[index]['sound']
            assert (len(found), found.start, found.rate) == (stop - start, 0, 8000)
            assert np.allclose(found[:], whole[start:stop], 0, 1e-3)
            assert np.array_equal(pickle.loads(pickle.dumps(found))[:], found[:])
        assert np.allclose(dataset[3]['sound'].between(0.5, 0.75), whole.between(0.75, 1), 0, 1e-3)
        with pytest.raises(bags.DecodeError, match='samples 5 to 6 cannot be copied: they are not whole'):
            dataset.file(1, 'sound')


def test_the_header_of_a_file_is_read_once(session, monkeypatch):
    write(session.parent / 'data', session)
    found, find = [], demux.find_moov
    monkeypatch.setattr(demux, 'find_moov', lambda file: found.append(1) or find(file))
    with bags.open(session.parent / 'data', trust_links=session) as dataset:
        for _ in range(3):
            for row in dataset:
                row['clip'][0]
        assert [len(window['clip']) for window in dataset.windows(every='clip', clip=bags.steps(0, 8))]
        assert len(found) == 1


def test_counts_open_no_file(session):
    write(session.parent / 'data', session)
    os.rename(session, f'{session}.moved')
    with bags.open(session.parent / 'data', trust_links=session) as dataset:
        assert [len(row['clip']) for row in dataset] == [b - a for a, b in RANGES]
        assert len(dataset.windows(every='clip', clip=bags.steps(0, 8), padding='edge')) == sum(
            b - a for a, b in RANGES
        )
        with pytest.raises(bags.LinkError, match=r'session.mp4.*got none'):
            dataset[0]['clip'][0]


def test_windows_frames_and_batches(session):
    write(session.parent / 'data', session)
    frames = bags.Video(session)[:]
    with bags.open(session.parent / 'data', trust_links=session) as dataset:
        windows = dataset.windows(every='clip', clip=bags.steps(-1, 3), padding='edge')
        starts = np.cumsum([0] + [b - a for a, b in RANGES])
        for position in np.random.default_rng(0).permutation(len(windows))[:60].tolist():
            index = int(np.searchsorted(starts, position, 'right')) - 1
            first, stop = RANGES[index]
            number = first + position - int(starts[index])
            chosen = np.clip(np.arange(number - 1, number + 3), first, stop - 1)
            assert np.array_equal(windows[position]['clip'], frames[chosen])
        batch = dataset.batch([4, 2], {'clip': bags.frames([1, 3])})
        assert np.array_equal(batch['clip'][0], frames[[25, 27]])
        assert np.array_equal(batch['clip'][1], frames[[11, 13]])


@pytest.mark.parametrize('options', [{}, {'checksum': True}])
def test_records_are_files_of_their_packets(session, options):
    pa = pytest.importorskip('pyarrow')
    frames = bags.Video(session)[:]
    ranges = [(0, 24), (24, 48), (96, 120)]
    write(session.parent / 'data', session, ranges, **options)
    with bags.open(session.parent / 'data', trust_links=session, **options) as dataset:
        records = [dataset.file(index, 'clip').read() for index in range(3)]
        for (start, stop), record in zip(ranges, records, strict=True):
            clip = bags.Video(record)
            assert np.array_equal(clip[:], frames[start:stop])
            assert clip.times[0] == 0
        assert [*dataset.records('clip')] == records
        table = pa.RecordBatchReader.from_stream(dataset.to_arrow('clip', media='bytes')).read_all()
        assert table['clip'].to_pylist() == records
        with pytest.raises(ValueError, match='segments cannot be read by their location'):
            dataset.to_arrow('clip', media='location').read_all()
        assert bags.copy(dataset, session.parent / 'copy').datapoints == 3
        bags.copy(dataset, session.parent / 'sharded', shard_length=2)
    with bags.open(session.parent / 'data', trust_links=session, raw=True, **options) as dataset:
        assert [bytes(row['clip']) for row in dataset] == records
    session.unlink()
    for path in ('copy', 'sharded'):
        with bags.open(session.parent / path) as copy:
            assert [*copy.records('clip')] == records
            for (start, stop), row in zip(ranges, copy, strict=True):
                assert np.array_equal(row['clip'][:], frames[start:stop])


def test_packets_that_cannot_be_copied(session):
    write(session.parent / 'data', session)
    with bags.open(session.parent / 'data', trust_links=session) as dataset:
        detail = (
            r"clip.links, field 'clip' of type video, record 2: frames 10 to 50 cannot be copied: some .*; "
            r'dataset\.save\(path\) keeps the link'
        )
        with pytest.raises(bags.DecodeError, match=detail):
            dataset.file(2, 'clip')
        with pytest.raises(bags.DecodeError, match=detail):
            bags.copy(dataset, session.parent / 'copy')
        written = bags.copy(dataset, session.parent / 'some', on_error='skip')
        assert 2 in [skipped.datapoint for skipped in written.skipped]


@pytest.mark.parametrize('options', [{}, {'checksum': True}])
def test_linked_copies_keep_the_segments(session, options):
    root, frames = session.parent, bags.Video(session)[:]
    with bags.DatasetWriter(
        root / 'data', {'id': 'int(8)', 'clip': 'video'}, linked_fields=['clip'], **options
    ) as w:
        for number, range_ in enumerate(RANGES):
            w.append({'id': number, 'clip': bags.Link(session, frames=range_)})
        w.append({'id': 6, 'clip': bags.Link(session)})
        w.append({'id': 7, 'clip': frames[:3]})
    expected = [frames[start:stop] for start, stop in [*RANGES, (0, 120)]]
    with bags.open(root / 'data', trust_links=session) as dataset:
        view = dataset.select([6, 2, 7, 1, 4])
        view.save(root / 'view', link=('clip',))
        bags.concat([dataset, dataset]).save(root / 'both', link=('clip',), shard_length=3)
        dataset.update({1: {'clip': frames[5:9]}}).save(root / 'edited', link=('clip',))
        own = dataset[7]['clip'][:]
    with bags.open(root / 'view', trust_links=session, checksum=bool(options)) as saved:
        for row, number in zip(saved, [6, 2, 7, 1, 4], strict=True):
            assert row['id'] == number
            assert np.array_equal(row['clip'][:], own if number == 7 else expected[number])
    for path, count in (('both', 16), ('edited', 8)):
        with bags.open(root / path, trust_links=session) as saved:
            assert len(saved) == count
            assert np.array_equal(saved[count - 6]['clip'][:], expected[2])
    if not options:
        assert os.path.getsize(root / 'edited' / '000000' / 'clip.links') < 8 * 48 + 1
    with bags.open(root / 'data') as dataset, bags.open(root / 'view') as view:
        found = dataset.select([6, 2, 7, 1, 4]).diff(view)
        assert not found.changed
        assert {*dataset.select([6, 3, 7, 1, 4]).diff(view).changed} == {'clip', 'id'}
    for path in ('data', 'view', 'both', 'edited'):
        assert bags.verify(root / path, trust_links=session, decode=True) == []


def test_a_wrong_checksum_is_found(session):
    write(session.parent / 'data', session, [(24, 48), (48, 72)], checksum=True)
    data = bytearray(session.read_bytes())
    middle = len(data) // 2
    data[middle] ^= 1
    session.write_bytes(data)
    with bags.open(session.parent / 'data', trust_links=session, checksum=True) as dataset:
        for index in range(2):
            with pytest.raises(bags.CorruptError, match='checksum'):
                dataset[index]['clip'][0]
    found = bags.verify(session.parent / 'data', trust_links=session)
    assert [(each.record, each.count, 'checksum' in each.detail) for each in found] == [(0, 2, True)]


def test_checksums_of_parts_that_cannot_be_copied_are_verified(session):
    write(session.parent / 'data', session, [(3, 50), (50, 70), (0, 120)], checksum=True)
    assert bags.verify(session.parent / 'data', trust_links=session) == []
    assert bags.verify(session.parent / 'data', trust_links=session, decode=True) == []


def test_bytes_of_a_range_count_once(session):
    write(session.parent / 'data', session, [(0, 60), (60, 90), (90, 120)])
    size = os.path.getsize(session)
    with bags.open(session.parent / 'data') as dataset:
        before = [dataset.bytes_before(index) for index in range(4)]
        shares = np.diff(before) / size
        assert np.allclose(shares, [0.5, 0.25, 0.25], 0, 0.1)
    info = bags.info(session.parent / 'data')
    assert info.linked_bytes == size


def test_resumed_recovered_and_consolidated(session):
    root = session.parent
    frames = bags.Video(session)[:]
    spec = {'id': 'int(8)', 'clip': 'video[]'}

    def append(writer, start, stop):
        for number in range(start, stop):
            links = [bags.Link(session, frames=(n, n + 3)) for n in range(number % 3)]
            writer.append({'id': number, 'clip': [*links, bags.Link(session)][: number % 4]})

    with bags.ShardedDatasetWriter(root / 'data', spec, linked_fields=['clip'], shard_length=5) as writer:
        append(writer, 0, 7)
    with bags.ShardedDatasetWriter(
        root / 'data', spec, linked_fields=['clip'], shard_length=5, resume=True
    ) as writer:
        append(writer, 7, 17)
    bags.consolidate(root / 'data')

    writer = bags.DatasetWriter(root / 'open', spec, linked_fields=['clip'])
    append(writer, 0, 17)
    writer.flush()
    leave_open(writer)
    del writer
    assert bags.recover(root / 'open')[0].kept == 17
    for path in ('data', 'open'):
        with bags.open(root / path, trust_links=session) as dataset:
            assert len(dataset) == 17
            for number, row in enumerate(dataset):
                expected = [3] * (number % 3) + [120]
                assert [len(clip) for clip in row['clip']] == expected[: number % 4]
                for start, clip in enumerate(row['clip'][: number % 3]):
                    assert np.array_equal(clip[:], frames[start : start + 3])


@pytest.mark.parametrize('ranges', [[(0, 4), (5, 9), (7, 12)], [(0, 4), None, (7, 12)]])
def test_every_flipped_byte_of_the_rows_raises_or_is_harmless(session, ranges):
    root = session.parent
    with bags.DatasetWriter(root / 'data', {'clip': 'video'}, linked_fields=['clip']) as writer:
        for frames in ranges:
            writer.append({'clip': bags.Link(session, frames=frames)})

    def read():
        with bags.open(root / 'data', trust_links=session) as dataset:
            batch = dataset.batch(range(3))['clip']
            return [[len(row['clip']), len(clip)] for row, clip in zip(dataset, batch, strict=True)]

    path, expected = root / 'data' / 'clip.links', read()
    data = path.read_bytes()
    for offset in range(len(data)):
        changed = bytearray(data)
        changed[offset] ^= 0x10
        path.write_bytes(changed)
        try:
            assert read() == expected
        except (bags.CorruptError, ValueError):
            pass
    path.write_bytes(data)
    assert read() == expected


def test_frames_that_the_video_lacks(session):
    write(session.parent / 'data', session, [(110, 121), (0, 3)])
    with bags.open(session.parent / 'data', trust_links=session) as dataset:
        with pytest.raises(bags.DecodeError, match='expected frames 110 to 121, but the video has 120'):
            dataset[0]['clip'][0]
        with pytest.raises(bags.DecodeError, match='expected frames 110 to 121, but the video has 120'):
            dataset.file(0, 'clip')
        assert dataset[1]['clip'].shape[0] == 3
    assert [
        each.record for each in bags.verify(session.parent / 'data', trust_links=session, decode=True)
    ] == [0]


def test_what_cannot_be_a_segment(session, tmp_path):
    with (
        bags.DatasetWriter(tmp_path / 'data', {'clip': 'mp4'}, linked_fields=['clip']) as writer,
        pytest.raises(bags.EncodeError, match='expected a field of type video or audio for a part of a file'),
    ):
        writer.append({'clip': bags.Link(session, frames=(0, 3))})
    for wrong in ({'frames': (3, 3)}, {'frames': (-1, 3)}, {'times': (2.0, 1.0)}, {'frames': (0, 2**63)}):
        with pytest.raises(ValueError, match='expected a start before its end'):
            bags.Link(session, **wrong)
    for wrong in (
        {'frames': 3},
        {'frames': (0.5, 2)},
        {'times': ('a', 'b')},
        {'times': (0, 1), 'frames': (0, 1)},
    ):
        with pytest.raises(TypeError):
            bags.Link(session, **wrong)


def test_a_folder_moves_with_its_files(session, tmp_path_factory):
    write(session.parent / 'data', session, [(24, 48)])
    frames = bags.Video(session)[24:48]
    moved = tmp_path_factory.mktemp('other') / 'moved'
    shutil.move(session.parent, moved)
    with bags.open(moved / 'data', trust_links=moved) as dataset:
        assert np.array_equal(dataset[0]['clip'][:], frames)
        assert np.array_equal(bags.Video(dataset.file(0, 'clip').read())[:], frames)
