"""What `print`, IPython and notebooks show of a dataset; `repr` stays on one line."""

import base64
import io
import os
import re

import numpy as np
import pytest

import bags
from bags.display.html import value_as_html


class Printer:
    def __init__(self):
        self.shown = ''

    def text(self, part):
        self.shown += part


def test_a_dataset_prints_as_a_table_of_its_fields(tmp_path, kit):
    spec = {'id': 'int(8)', 'words': 'utf8[]?'}
    rows = [{'id': index, 'words': ['a']} for index in range(5)]
    kit.fill(tmp_path / 'x', rows, spec, shard_length=2)
    with bags.open(tmp_path / 'x') as dataset:
        table = 'ShardedDatasetReader of 5 datapoints in 3 shards:\n  id     int(8)\n  words  utf8[]?'
        assert str(dataset) == table
        assert str(dataset[1:2]).splitlines()[0] == 'Select of 1 datapoint in 3 shards:'
        assert repr(dataset) == repr(bags.open(tmp_path / 'x'))
        assert '\n' not in repr(dataset)
        printer = Printer()
        dataset._repr_pretty_(printer, False)
        assert printer.shown == table
        assert '<code>utf8[]?</code>' in dataset._repr_html_()
    assert str(dataset) == table


@pytest.fixture
def secret(tmp_path):
    """Writes a video beside the dataset, whose frames are not in the dataset."""
    av = pytest.importorskip('av')
    path = tmp_path / 'secret.ts'
    with av.open(str(path), 'w', format='mpegts') as container:
        stream = container.add_stream('mpeg2video', rate=25)
        stream.width, stream.height, stream.pix_fmt = 64, 64, 'yuv420p'
        for _ in range(25):
            container.mux(stream.encode(av.VideoFrame.from_ndarray(np.full((64, 64, 3), 200, np.uint8))))
        container.mux(stream.encode())
    return path


def table(tmp_path, type, record):
    """Returns what notebooks show of a dataset with a record that no writer accepts."""
    folder = tmp_path / 'data'
    with bags.DatasetWriter(folder, {'x': 'bytes'}) as writer:
        writer.append({'x': record})
    (folder / 'spec.json').write_text(f'{{"x": "{type}"}}')
    with bags.open(folder) as dataset:
        return dataset._repr_html_()


@pytest.mark.parametrize('type', ['mp4', 'video', 'webm'])
def test_a_playlist_opens_no_other_file(tmp_path, secret, type, monkeypatch):
    pytest.importorskip('PIL')
    monkeypatch.chdir(tmp_path)
    for name in (secret, secret.name, f'file:{secret}'):
        playlist = f'#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXTINF:1.0,\n{name}\n#EXT-X-ENDLIST\n'
        for text in (playlist, f"ffconcat version 1.0\nfile '{name}'\n"):
            assert '<img' not in table(tmp_path / str(len(os.listdir(tmp_path))), type, text.encode())


def test_only_pictures_of_the_type_image(tmp_path):
    """Pillow would pass PostScript to a program, and has decoders of many more formats."""
    image = pytest.importorskip('PIL.Image')
    for format in ('EPS', 'PCX', 'TGA', 'PPM'):
        data = io.BytesIO()
        image.new('RGB', (9, 9)).save(data, format)
        assert '<img' not in table(tmp_path / format, 'image', data.getvalue())
    data = io.BytesIO()
    image.new('RGB', (9, 9)).save(data, 'GIF')
    assert '<img' in table(tmp_path / 'GIF', 'image', data.getvalue())


def test_values_in_notebooks_read_as_those_of_the_command_line(tmp_path):
    rows = [{'n': np.arange(3.0, dtype=np.float32), 's': 'a <b>', 'b': b'\x00\x01', 'i': [1, 2], 'l': None}]
    spec = {'b': 'bytes', 'i': 'int(8)[]', 'l': 'utf8[]?', 'n': 'array(float32,3)', 's': 'utf8'}
    bags.write(rows, tmp_path / 'x', spec, workers=1)
    with bags.open(tmp_path / 'x') as dataset:
        html = dataset._repr_html_()
    for text in (
        'float32 (3,) [0., 1., 2.]',
        '&#x27;a &lt;b&gt;&#x27;',
        '2 B: 00 01',
        '2 items: 1; 2',
        'None',
    ):
        assert f'>{text}</td>' in html
    with bags.open(tmp_path / 'x', raw=True) as dataset:
        assert '>5 B &#x27;a &lt;b&gt;&#x27;</td>' in dataset._repr_html_()


def test_notebooks_describe_audio_by_its_header(tmp_path):
    pytest.importorskip('av')
    with bags.DatasetWriter(tmp_path / 'x', {'sound': 'wav'}) as writer:
        writer.append({'sound': (np.zeros((1600, 1), np.int16), 16000)})
    with bags.open(tmp_path / 'x') as dataset:
        html = dataset._repr_html_()
    assert '<audio controls preload="metadata" src="data:audio/wav;base64,' in html
    assert '></audio><br>WAV pcm_s16le, 16,000 Hz × 1, 0.1 s, 3.2 kB</td>' in html


def test_notebooks_name_classes_round_numbers_and_draw_curves(tmp_path):
    spec = {'label': 'int(1)', 'score': 'float(8)', 'curve': 'float(8)[]', 'other': 'int(1)'}
    metadata = {'fields': {'label': {'classes': ['cat', '<dog>']}, 'other': {'classes': {'1': 'one'}}}}
    with bags.DatasetWriter(tmp_path / 'x', spec, metadata=metadata) as writer:
        curve = [0.0, 1.0, np.nan, 3.0, np.inf, 5.0, 6.0, 7.0, 8.0]
        writer.append({'label': 1, 'score': 1 / 7, 'curve': curve, 'other': 5})
    with bags.open(tmp_path / 'x') as dataset:
        html = dataset._repr_html_()
    for text in ('&lt;dog&gt; (1)', '0.142857', '5'):
        assert f'>{text}</td>' in html
    path = re.search('<path d="([^"]*)"', html)[1]
    assert path.count('M') == 3, 'NaN and inf leave gaps'
    assert ' 9 items, 0 to 8, 2 not finite</td>' in html


def test_notebooks_colour_masks_that_have_classes(tmp_path):
    image = pytest.importorskip('PIL.Image')
    mask = np.zeros((20, 30), np.uint8)
    mask[10:] = 2
    metadata = {'fields': {'mask': {'classes': ['sky', 'road', 'car']}}}
    with bags.DatasetWriter(tmp_path / 'x', {'mask': 'png'}, metadata=metadata) as writer:
        writer.append({'mask': mask})
    with bags.open(tmp_path / 'x') as dataset:
        html = dataset._repr_html_()
    data = base64.b64decode(re.search('data:image/png;base64,([^"]*)"', html)[1])
    pixels = np.asarray(image.open(io.BytesIO(data)))
    assert not pixels[0].any()
    assert len(np.unique(pixels[15], axis=0)) == 1
    assert int(pixels[15, 0].max()) - int(pixels[15, 0].min()) > 100, 'a colour, not grey'


@pytest.mark.slow
def test_a_very_long_sequence_is_not_read_for_a_curve(tmp_path):
    values = np.zeros((1 << 20) + 1, np.int8)
    with bags.DatasetWriter(tmp_path / 'long', {'n': 'int(1)[]'}) as writer:
        writer.append({'n': values[1:]})
        writer.append({'n': values})
    with bags.open(tmp_path / 'long') as dataset:
        assert '<svg' in dataset[:1]._repr_html_()
        assert '<svg' not in dataset[1:]._repr_html_()


@pytest.mark.parametrize('codec', ['libopus', 'libmp3lame', 'flac'])
def test_notebooks_play_recordings_of_every_kind(tmp_path, codec):
    av = pytest.importorskip('av')
    suffix, media_type = {
        'libopus': ('opus', 'audio/ogg'), 'libmp3lame': ('mp3', 'audio/mpeg'), 'flac': ('flac', 'audio/flac'),
    }[codec]  # fmt: skip
    path = tmp_path / f'sound.{suffix}'
    with av.open(str(path), 'w') as container:
        stream = container.add_stream(codec, rate=48000, layout='mono')
        block = np.zeros((1, 960 if codec == 'libopus' else 1152), np.int16)
        for _ in range(30):
            frame = av.AudioFrame.from_ndarray(block, 's16', 'mono')
            frame.sample_rate = 48000
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
    with bags.DatasetWriter(tmp_path / 'x', {'sound': 'audio'}) as writer:
        writer.append({'sound': path})
    with bags.open(tmp_path / 'x') as dataset:
        html = dataset._repr_html_()
    assert f'<audio controls preload="metadata" src="data:{media_type};base64,' in html
    assert re.search(r'</audio><br>[^<]* 48,000 Hz × 1, 0\.\d+ s', html)


def test_notebooks_colour_masks_and_draw_arrays_without_metadata(tmp_path):
    pytest.importorskip('PIL')
    values = {
        'mask': np.arange(400, dtype=np.uint8).reshape(20, 20) % 3,
        'photo': np.full((9, 9), 200, np.uint8),
    }
    values |= {'array': values['mask'], 'curve': np.arange(20.0), 'curves': np.zeros((30, 2))}
    spec = {'mask': 'png', 'photo': 'png', 'array': 'array(uint8,20,20)', 'curve': 'array(float64,?)'}
    with bags.DatasetWriter(tmp_path / 'x', {**spec, 'curves': 'array(float64,2)[]'}) as writer:
        writer.append(values)
    with bags.open(tmp_path / 'x') as dataset:
        cells = dict(
            re.findall(
                r'<tr><td[^>]*>(\w+)</td><td[^>]*><code>[^<]*</code></td><td[^>]*>(.*?)</td>',
                dataset._repr_html_(),
            )
        )
    assert cells['mask'].startswith('<img src="data:image/png'), 'would be black'
    assert cells['photo'].startswith('<img src="data:image/jpeg')
    assert cells['array'] == cells['mask']
    assert cells['curve'].endswith('</svg> 20 items, 0 to 19')
    assert cells['curves'].count('M') == 2
    assert cells['curves'].endswith('</svg> 30 × 2, 0 to 0')


def test_notebooks_show_ragged_batches(tmp_path):
    with bags.DatasetWriter(tmp_path / 'x', {'n': 'int(4)[]?', 'points': 'array(float32,2)[]'}) as writer:
        for row in ([1, 5, *[3] * 7], None, [7]):
            writer.append({'n': row, 'points': np.zeros((2, 2), np.float32)})
    with bags.open(tmp_path / 'x') as dataset:
        batch = dataset.batch([0, 1, 2])
    html = batch['n']._repr_html_()
    assert '</svg> 9 items, 1 to 5</td>' in html
    assert '>None</td>' in html
    assert '>int32 (1,) [7]</td>' in html
    assert '>float32 (2, 2) [[0., 0.], [0., 0.]]</td>' in batch['points']._repr_html_()


def test_notebooks_draw_depth_up_to_its_largest_value(tmp_path):
    pytest.importorskip('av')
    image = pytest.importorskip('PIL.Image')
    depth = np.tile(np.linspace(100, 300, 48, dtype=np.uint16), (3, 32, 1))
    metres = io.BytesIO()
    image.fromarray(np.where(depth[0] > 110, depth[0] / 1000, np.nan).astype(np.float32)).save(metres, 'TIFF')
    spec = {'video': 'video', 'clips': 'mkv(30)[]', 'image': 'image', 'png': 'png'}
    with bags.DatasetWriter(tmp_path / 'it', spec) as writer:
        writer.append({'video': depth, 'clips': [depth], 'image': metres.getvalue(), 'png': depth[0]})
    with bags.open(tmp_path / 'it') as dataset:
        html = dataset._repr_html_() + value_as_html(dataset[0]['clips'][0])
    pictures = re.findall('data:image/jpeg;base64,([^"]*)"', html)
    assert len(pictures) == 5
    for picture in pictures:
        drawn = np.asarray(image.open(io.BytesIO(base64.b64decode(picture))).convert('L'))
        assert min(drawn.shape) >= 32
        assert drawn.max() > 235
