import functools
import os

import numpy as np
import pytest

import bags
from bags.formats.audio import encode_flac, encode_opus, encode_wav
from bags.media.audio import Audio
from bags.media.video import Video
from bags.streams import measure as measuring
from bags.streams.measure import measure
from tests.media import samples, test_audio
from tests.media.samples import film, several, x264


@functools.cache
def flac(count, rate=16_000):
    return encode_flac((np.arange(count, dtype=np.int16)[:, None], rate))


@functools.cache
def clip(count, **options):
    return film('mpeg4', count, **options)


def written(path, field_type, values, **options):
    with bags.DatasetWriter(path, {'id': 'int(8)', 'm': field_type}, **options) as writer:
        for number, value in enumerate(values):
            writer.append({'id': number, 'm': value})
    return path


def by_opening(files, cls, **options):
    """Returns elements and seconds of lists of files, by opening each; of a list as if joined."""
    opened = [[cls(file, **options) for file in row] for row in files]
    elements = [sum(map(len, row)) for row in opened]
    seconds = [sum((stream.duration for stream in row), 0.0) if row else np.nan for row in opened]
    for index, row in enumerate(opened):
        if cls is Audio and len({audio.rate for audio in row}) == 1:
            seconds[index] = elements[index] / row[0].rate
    return elements, seconds


def expect(found, elements, seconds, fallbacks=0):
    assert found.elements.tolist() == elements
    assert found.elements.dtype == np.int64
    np.testing.assert_array_equal(found.seconds, seconds)
    assert found.fallbacks == fallbacks


def all_rows(reader):
    return np.arange(len(reader))


SOUND = [flac(100), flac(3333, 44_100), encode_wav((np.zeros((77, 2), np.int16), 8000)),
         encode_opus((np.zeros((9999, 1), np.float32), 48_000))]  # fmt: skip


@pytest.mark.parametrize(('field_type', 'files'), [
    ('flac', [flac(100), flac(5), flac(3333, 44_100)]),
    ('wav', [encode_wav((np.zeros((count, 2), np.int16), 8000)) for count in (0, 5, 99)]),
    ('wav', [encode_wav((np.zeros((count, 1), np.float32), 8000)) for count in (3, 5)]),
    ('opus', [encode_opus((np.zeros((count, 1), np.float32), 24_000)) for count in (2500, 30_000)]),
    ('audio', SOUND),
    ('mp4', [clip(1), clip(9)]),
    ('mp4(30,23)', [clip(1), clip(9)]),
    ('video', [clip(1), clip(9, format='mov'), film(count=30, options=x264())]),
])  # fmt: skip
def test_plain_fields_and_sequences(tmp_path, field_type, files):
    cls = Video if field_type.startswith(('mp4', 'video')) else Audio
    with bags.open(written(tmp_path / 'plain', field_type, files)) as reader:
        expect(measure(reader, all_rows(reader), 'm'), *by_opening([[file] for file in files], cls))
    rows = [files, [], files[1:], files[:1]]
    with bags.open(written(tmp_path / 'items', f'{field_type}[]', rows)) as reader:
        expect(measure(reader, all_rows(reader), 'm'), *by_opening(rows, cls))


@pytest.mark.parametrize('media_type', ['audio', 'video'])
def test_every_format(tmp_path, media_type):
    module, cls = (test_audio, Audio) if media_type == 'audio' else (samples, Video)
    kinds = ['WAV', 'FLAC in Ogg', 'MP3', 'Opus', 'AAC', 'AIFF', 'Vorbis', 'the demo', 'Opus in WebM']
    if media_type == 'video':
        kinds = ['closed groups', 'Matroska', 'fragments', 'an edit', 'VP9 in MP4', 'the demo']
    files = [module.example(kind)[0] for kind in kinds]
    with bags.open(written(tmp_path / 'data', media_type, files)) as reader:
        found = measure(reader, all_rows(reader), 'm')
    expect(found, *by_opening([[file] for file in files], cls), fallbacks=3 if media_type == 'audio' else 2)


def test_missing_values(tmp_path):
    for field_type, values in (
        ('flac?', [None, flac(7), None]),
        ('flac[]?', [None, [flac(7)], []]),
        ('video?', [None, None, clip(2)]),
    ):
        path = written(tmp_path / field_type.replace('?', ''), field_type, values)
        with bags.open(path) as reader:
            files = [value if isinstance(value, list) else [value] if value else [] for value in values]
            cls = Video if field_type == 'video?' else Audio
            expect(measure(reader, all_rows(reader), 'm'), *by_opening(files, cls))


def test_rows_in_any_order_of_any_view(tmp_path):
    files = [flac(count) for count in range(1, 30)]
    path = written(tmp_path / 'data', 'flac', files)
    spec = {'id': 'int(8)', 'm': 'flac'}
    with bags.ShardedDatasetWriter(tmp_path / 'shards', spec, shard_length=4) as writer:
        for number, file in enumerate(files):
            writer.append({'id': number, 'm': file})
    with bags.open(path) as reader, bags.open(tmp_path / 'shards') as shards:
        order = np.array([5, 5, 28, 0, 17, 5, 3])
        views = {
            'reader': (reader, range(29)),
            'shards': (shards, range(29)),
            'selected': (reader.select([28, 3, 3, 0, *range(25)]), [28, 3, 3, 0, *range(25)]),
            'joined': (bags.concat([shards, reader]).select(range(20, 49)), [*range(20, 29), *range(20)]),
            'renamed': (reader.rename({'m': 'n'}).rename({'n': 'm'}), range(29)),
            'sorted': (reader.filter('id >= 0'), range(29)),
            'updated': (
                reader.update({row: {'m': files[28 - row]} for row in range(29)}),
                range(28, -1, -1),
            ),
        }
        for view, numbers in views.values():
            expected = by_opening([[files[numbers[row]]] for row in order], Audio)
            expect(measure(view, order, 'm'), *expected)
        nothing = measure(reader, order[:0], 'm')
        assert (nothing.elements.shape, nothing.seconds.shape, nothing.fallbacks) == ((0,), (0,), 0)


def test_fields_beside_windows(tmp_path):
    with bags.DatasetWriter(tmp_path / 'data', {'m': 'flac', 'x': 'int[]'}) as writer:
        for count in (3, 1, 2):
            writer.append({'m': flac(10 * count), 'x': range(count)})
    with bags.open(tmp_path / 'data') as reader:
        windows = reader.windows(every='x', x=bags.steps(0, 1), whole=['m'])
        files = [[flac(30)]] * 3 + [[flac(10)]] + [[flac(20)]] * 2
        expect(measure(windows, all_rows(windows), 'm'), *by_opening(files, Audio))


def test_options_of_the_type(tmp_path):
    files = [flac(1000, 44_100), flac(44_101, 44_100), flac(160)]
    with bags.open(written(tmp_path / 'rate', 'audio(rate=16000,channels=1)', files)) as reader:
        expected = by_opening([[file] for file in files], Audio, rate=16_000, channels=1)
        expect(measure(reader, all_rows(reader), 'm'), *expected)
    files = [several('mp4', [('mpeg4', 25, 30, (96, 128), 0), ('mpeg4', 50, 70, (48, 64), 0)])]
    with bags.open(written(tmp_path / 'track', 'video(track=1)', files)) as reader:
        expect(measure(reader, all_rows(reader), 'm'), *by_opening([files], Video, track=1))


def test_compressed_records(tmp_path):
    files = [flac(1000), flac(44_101, 44_100), *SOUND]
    path = written(tmp_path / 'data', 'audio', files, compression={'m': 3})
    assert any(name.endswith('.bagz') for name in os.listdir(path))
    with bags.open(path) as reader:
        expect(measure(reader, all_rows(reader), 'm'), *by_opening([[file] for file in files], Audio))


@pytest.fixture
def linked(tmp_path):
    """Returns a function that writes files, and links to them, and opens the links."""

    def write(field_type, files, links=None):
        (tmp_path / 'files').mkdir()
        paths = [tmp_path / 'files' / str(number) for number in range(len(files))]
        for path, file in zip(paths, files, strict=True):
            path.write_bytes(file)
        values = links(paths) if links else [bags.Link(path) for path in paths]
        written(tmp_path / 'links', field_type, values, linked_fields=['m'])
        return bags.open(tmp_path / 'links', trust_links=tmp_path / 'files')

    return write


def test_linked_files(linked):
    with linked('audio', SOUND) as reader:
        expect(measure(reader, all_rows(reader), 'm'), *by_opening([[file] for file in SOUND], Audio))


def test_parts_of_one_file(linked):
    content = b'before' + flac(500) + flac(700)
    first = len(flac(500))

    def links(paths):
        return [bags.Link(paths[0], 6, first), bags.Link(paths[0], 6 + first, len(flac(700)))] * 2

    with linked('flac', [content], links) as reader:
        expect(measure(reader, all_rows(reader), 'm'), *by_opening([[flac(500)], [flac(700)]] * 2, Audio))


def test_segments(linked):
    recordings = [flac(1000, 44_100), test_audio.example('AIFF')[0]]
    ranges = [(0, 1000), (10, 11), (200, 900)]

    def links(paths):
        return [bags.Link(path, frames=frames) for path in paths for frames in ranges] + [flac(5)]

    with linked('audio', recordings, links) as reader:
        streams = [reader[row]['m'] for row in range(7)]
        elements, seconds = map(len, streams), [stream.duration for stream in streams]
        expect(measure(reader, all_rows(reader), 'm'), [*elements], seconds, fallbacks=3)


def test_segments_of_videos(linked):
    files = [film(count=120, options=x264()), film(times=samples.varied()), samples.example('Matroska')[0]]
    ranges = [(0, 120), (0, 1), (23, 25), (48, 119), (119, 120)]

    def links(paths):
        return [bags.Link(path, frames=frames) for path in paths for frames in ranges]

    with linked('video', files, links) as reader:
        streams = [reader[row]['m'] for row in range(15)]
        elements, seconds = map(len, streams), [stream.duration for stream in streams]
        elements = [*elements]
        expect(measure(reader, all_rows(reader), 'm'), elements, seconds, fallbacks=5)
        found = measure(reader, all_rows(reader), 'm', seconds=False)
        assert found.elements.tolist() == elements
        assert found.fallbacks == 0


def test_headers_are_believed(tmp_path):
    """What follows them is not read, and no checksum is compared."""
    files = [encode_wav((np.ones((100_000, 1), np.int16), 16_000)), flac(100_000)]
    path = written(tmp_path / 'data', 'audio', files, checksum=True)
    data = (path / 'm.bag').read_bytes()
    (path / 'm.bag').write_bytes(data[:150] + b'changed' + data[157:])
    with bags.open(path, checksum=True) as reader:
        with pytest.raises(bags.CorruptError):
            reader[0]['m'][:]
        expect(measure(reader, all_rows(reader), 'm'), [100_000, 100_000], [6.25, 6.25])
        assert len(reader[1]['m']) == 100_000


def test_both_lengths_of_a_video_are_in_its_header(tmp_path):
    data = clip(9)
    path = written(tmp_path / 'data', 'video', [data, clip(4)], checksum=True)
    stored = (path / 'm.bag').read_bytes()
    at = stored.index(b'mdat') + 4
    (path / 'm.bag').write_bytes(stored[:at] + bytes(20) + stored[at + 20 :])
    with bags.open(path, checksum=True) as reader:
        with pytest.raises(bags.CorruptError):
            len(reader[0]['m'])
        assert reader.lengths('m').tolist() == reader.lengths('m', of='elements').tolist() == [9, 4]


def test_tiny_records(tmp_path):
    files = [encode_wav((np.zeros((0, 1), np.int16), 8000)), flac(5)]
    with bags.open(written(tmp_path / 'data', 'audio', files[::-1] + files)) as reader:
        expect(
            measure(reader, all_rows(reader), 'm'),
            *by_opening([[file] for file in files[::-1] + files], Audio),
        )


def test_many_at_a_time(tmp_path, monkeypatch):
    """Blocks, groups and parsers of small sizes give the same."""
    for name, size in (('MAX_RECORDS', 7), ('MAX_PARSERS', 3), ('MAX_HELD_BYTES', 5000)):
        monkeypatch.setattr(measuring, name, size)
    files = [[flac(5 + number), clip(1 + number % 4), *SOUND][number % 6] for number in range(40)]
    files = [file for file in files if file[4:8] != b'ftyp']
    with bags.open(written(tmp_path / 'data', 'audio', files)) as reader:
        expect(measure(reader, all_rows(reader), 'm'), *by_opening([[file] for file in files], Audio))
    clips = [clip(1 + number % 4) for number in range(20)]
    with bags.open(written(tmp_path / 'clips', 'mp4', clips)) as reader:
        expect(measure(reader, all_rows(reader), 'm'), *by_opening([[file] for file in clips], Video))


def test_errors(tmp_path):
    with bags.open(written(tmp_path / 'data', 'jpeg', [])) as reader:
        with pytest.raises(TypeError, match="'id' of type int"):
            measure(reader, np.arange(0), 'id')
        with pytest.raises(TypeError, match='expected recordings or videos'):
            measure(reader, np.arange(0), 'm')
    data = film(count=3, options=x264())
    damaged = data.replace(b'stsz', b'none')
    with bags.open(written(tmp_path / 'damaged', 'video', [data, damaged])) as reader:
        with pytest.raises(bags.DecodeError) as raised:
            measure(reader, np.arange(2), 'm')
        assert (raised.value.field, raised.value.index) == ('m', 1)
