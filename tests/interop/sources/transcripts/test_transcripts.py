"""TextGrid, CTM, SRT and WebVTT files as datasets of texts and times; errors name the line."""

from __future__ import annotations

import codecs

import numpy as np
import pytest

import bags
from bags.interop.open_source import open_source

LONG = '''File type = "ooTextFile"
Object class = "TextGrid"

xmin = 0
xmax = 2.5
tiers? <exists>
size = 2
item []:
    item [1]:
        class = "IntervalTier"
        name = "words"
        xmin = 0
        xmax = 2.5
        intervals: size = 3
        intervals [1]:
            xmin = 0
            xmax = 0.5
            text = ""
        intervals [2]:
            xmin = 0.5
            xmax = 1.25
            text = "say ""größer"""
        intervals [3]:
            xmin = 1.25
            xmax = 2.5
            text = "two
lines"
    item [2]:
        class = "TextTier"
        name = "tones"
        xmin = 0
        xmax = 2.5
        points: size = 1
        points [1]:
            number = 0.75
            mark = "H*"
'''
SHORT = '''File type = "ooTextFile"
"TextGrid"
! a comment with "quotes" and 12
0 2.5 <exists> 2
"IntervalTier" "words" 0 2.5 3
0
0.5
""
0.5
1.25
"say ""größer"""
1.25 2.5 "two
lines" ! the last
"TextTier" "tones" 0 2.5 1 0.75 "H*"'''
GRID = {
    '__key__': 'a',
    'words': ['', 'say "größer"', 'two\nlines'],
    'words_start': [0, 0.5, 1.25],
    'words_stop': [0.5, 1.25, 2.5],
    'tones': ['H*'],
    'tones_time': [0.75],
}
CTM = """;; of a recognizer
talk A 0.10 0.20 hello 0.9
talk A 0.30 0.05 world
talk B 0.05 0.5 yes 1
other 1 7.25 0.5 ok .5
"""
SRT = """1
00:00:01,500 --> 00:00:03,250
<i>Hello</i>
there

2
01:02:03,004 --> 01:02:04,000 X1:0

3
01:02:04.5 --> 01:02:05,000
end"""
WEBVTT = """WEBVTT - a title
Kind: captions

NOTE two
lines 00:00

STYLE
::cue { color: red }

intro
00:01.500 --> 00:03.250 align:start
<v Ann>Hello

01:02:03.004 --> 01:02:04.000
there
"""


def plain(row):
    return {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in row.items()}


def imported(folder, name, data, **options):
    path = folder / name
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    done = bags.convert(path, folder / 'dataset', mode='overwrite', **options)
    return done, [plain(row) for row in bags.open(folder / 'dataset')]


@pytest.mark.parametrize('text', [LONG, SHORT], ids=['long', 'short'])
@pytest.mark.parametrize(
    ('mark', 'encoding'),
    [
        (b'', 'utf-8'),
        (codecs.BOM_UTF8, 'utf-8'),
        (codecs.BOM_UTF16_BE, 'utf-16-be'),
        (codecs.BOM_UTF16_LE, 'utf-16-le'),
    ],
    ids=['utf-8', 'utf-8-bom', 'utf-16-be', 'utf-16-le'],
)
@pytest.mark.parametrize('end', ['\n', '\r\n', '\r'], ids=['lf', 'crlf', 'cr'])
def test_textgrid(tmp_path, text, mark, encoding, end):
    done, rows = imported(tmp_path, 'a.TextGrid', mark + text.replace('\n', end).encode(encoding))
    assert rows == [GRID]
    assert done.spec == {
        '__key__': 'utf8',
        'words': 'utf8[]',
        'words_start': 'float(8)[]',
        'words_stop': 'float(8)[]',
        'tones': 'utf8[]',
        'tones_time': 'float(8)[]',
    }
    facts = bags.open(tmp_path / 'dataset').metadata['fields']
    assert facts == {'words': {'times': 'words_start'}, 'tones': {'times': 'tones_time'}}


def test_ctm(tmp_path):
    done, rows = imported(tmp_path, 'words.ctm', CTM)
    assert [(row['__key__'], row['channel'], row['text']) for row in rows] == [
        ('talk', 'A', ['hello', 'world']),
        ('talk', 'B', ['yes']),
        ('other', '1', ['ok']),
    ]
    assert rows[0]['start'] == [0.1, 0.3]
    np.testing.assert_allclose(rows[0]['stop'], [0.3, 0.35])
    assert rows[0]['confidence'][0] == 0.9
    assert np.isnan(rows[0]['confidence'][1])
    assert done.notes == []
    done, rows = imported(tmp_path, 'words.ctm', 'a 1 0 1 x\n')
    assert 'confidence' not in done.spec


def test_srt(tmp_path):
    done, rows = imported(tmp_path, 'film.srt', SRT)
    assert rows == [
        {
            '__key__': 'film',
            'text': ['<i>Hello</i>\nthere', '', 'end'],
            'start': [1.5, 3723.004, 3724.5],
            'stop': [3.25, 3724.0, 3725.0],
        }
    ]
    assert done.spec == {'__key__': 'utf8', 'text': 'utf8[]', 'start': 'float(8)[]', 'stop': 'float(8)[]'}


def test_webvtt(tmp_path):
    _, rows = imported(tmp_path, 'film.vtt', WEBVTT)
    assert (rows[0]['text'], rows[0]['start']) == (['<v Ann>Hello', 'there'], [1.5, 3723.004])


CUE = '00:01.000 --> 00:02.000'
NEXT = '00:02.000 --> 00:03.000'
BLOCKS = {
    'no line after the header': (f'WEBVTT\n{CUE}\na\n\n{NEXT}\nb\n', ['a', 'b']),
    'settings before the first cue': (f'WEBVTT\nKind: captions\n{CUE}\na\n', ['a']),
    'no line between cues': (f'WEBVTT\n\n{CUE}\na\n{NEXT}\nb', ['a', 'b']),
    'cues without texts': (f'WEBVTT\n\n{CUE}\n{NEXT}\nb\n', ['', 'b']),
    'lines of a space': (f'WEBVTT\n\n{CUE}\n \na\n\n{NEXT}\nb\n \n\n', [' \na', 'b\n ']),
    'a name after a space': (f'WEBVTT\n\n{CUE}\na\n \n2\n{NEXT}\nb\n', ['a\n \n2', 'b']),
    'a cue in a comment': (f'WEBVTT\n\nNOTE\nx\n{CUE}\na\n\nNOTE\n{NEXT}\nb\n', ['a', 'b']),
    'carriage returns': (f'\ufeffWEBVTT\ttitle\r\r{CUE}\ra\r{NEXT}\rb', ['a', 'b']),
    'settings without a space': (f'WEBVTT\n\n{CUE}align:start\na\n', ['a']),
}


@pytest.mark.parametrize('name', BLOCKS)
def test_webvtt_is_split_as_its_standard_says(tmp_path, name):
    data, texts = BLOCKS[name]
    _, rows = imported(tmp_path, 'film.vtt', data)
    assert rows[0]['text'] == texts
    assert rows[0]['start'] == [1, 2][: len(texts)]
    assert rows[0]['stop'] == [2, 3][: len(texts)]


def test_a_file_without_texts_is_a_datapoint_beside_others(tmp_path):
    (tmp_path / 'films').mkdir()
    (tmp_path / 'films/a.srt').write_text('')
    (tmp_path / 'films/b.srt').write_text(SRT)
    bags.convert(tmp_path / 'films', tmp_path / 'dataset')
    dataset = bags.open(tmp_path / 'dataset')
    assert dataset.column('__key__') == ['a', 'b']
    assert dataset.item_counts([0, 1], 'text').tolist() == [0, 3]


def test_tiers_that_some_files_lack_are_optional(tmp_path):
    folder = tmp_path / 'grids'
    (folder / 'ann').mkdir(parents=True)
    (folder / 'ann/a.TextGrid').write_text(LONG)
    (folder / 'ann/b.TextGrid').write_text(SHORT.replace('"tones"', '"Ton (hoch)"'))
    (folder / 'empty.TextGrid').write_text('"ooTextFile" "TextGrid" 0 1 <absent>')
    (folder / 'README.md').write_text('about')
    done = bags.convert(folder, tmp_path / 'dataset')
    assert (done.spec['words'], done.spec['words_stop']) == ('utf8[]?', 'float(8)[]?')
    assert done.notes == ["field 'Ton (hoch)' is named 'Ton_hoch_'", "left out: 'README.md'"]
    rows = [plain(row) for row in bags.open(tmp_path / 'dataset')]
    assert [row['__key__'] for row in rows] == ['ann/a', 'ann/b', 'empty']
    assert [row['tones'] for row in rows] == [['H*'], None, None]
    assert rows[1]['Ton_hoch__time'] == [0.75]
    assert rows[2]['words'] is None


def test_overlaps_of_words_and_subtitles_are_noted(tmp_path):
    done, rows = imported(tmp_path, 'a.ctm', 'a 1 0 2 x\na 1 1 2 y\na 1 2.5 1 z\n')
    assert len(rows[0]['text']) == 3
    assert len(done.notes) == 1
    assert done.notes[0].startswith('2 texts begin before the end of the previous text, the first in ')
    assert done.notes[0].endswith('a.ctm, line 2')


def changed(text, old, new):
    assert old in text
    return text.replace(old, new)


DAMAGED = {
    'latin-1': (
        'a.TextGrid',
        LONG.encode('latin-1'),
        'line 22: expected UTF-8, or UTF-16 with a byte order mark, got the byte 0xf6',
    ),
    'utf-16 cut': ('a.TextGrid', codecs.BOM_UTF16_LE + LONG.encode('utf-16-le')[:-1], 'got the byte 0x0a'),
    'utf-16 without mark': (
        'a.TextGrid',
        LONG.encode('utf-16-le'),
        'line 1: expected UTF-8, or UTF-16 with a byte order mark, got',
    ),
    'binary': (
        'a.TextGrid',
        b'ooBinaryFile\x08TextGrid',
        'is a binary TextGrid: Praat saves it as a text file',
    ),
    'chronological': (
        'a.TextGrid',
        '"Praat chronological TextGrid text file"\n0 1',
        "a TextGrid in the long or the short text format, got 'Praat chr",
    ),
    'other object': (
        'a.TextGrid',
        changed(LONG, '"TextGrid"', '"PitchTier"'),
        "line 2: expected a TextGrid, got 'PitchTier'",
    ),
    'empty': ('a.TextGrid', '', 'line 1: expected the header of a TextGrid, got the end of the file'),
    'cut': (
        'a.TextGrid',
        LONG[: LONG.index('text = "say')],
        'line 21: expected a text, got the end of the file',
    ),
    'open quote': (
        'a.TextGrid',
        LONG[: LONG.index('größer')],
        'line 22: expected a text in double quotes, got \'"say ""\'',
    ),
    'no number': (
        'a.TextGrid',
        changed(LONG, 'xmax = 1.25', 'xmax = 1,25'),
        "line 22: expected the end of an interval, got 'say",
    ),
    'tier': (
        'a.TextGrid',
        changed(LONG, 'TextTier', 'PitchTier'),
        "line 29: expected 'IntervalTier' or 'TextTier', got 'PitchTier'",
    ),
    'count': (
        'a.TextGrid',
        changed(LONG, 'intervals: size = 3', 'intervals: size = -3'),
        "line 14: expected the number of items of tier 'words', got '-3'",
    ),
    'twice': (
        'a.TextGrid',
        changed(LONG, '"tones"', '"words"'),
        "line 30: expected tiers of different names, got 'words'",
    ),
    'overlap': (
        'a.TextGrid',
        changed(LONG, 'xmax = 0.5', 'xmax = 0.75'),
        "line 20: tier 'words': expected intervals one after the other, got an overlap",
    ),
    'grid backwards': (
        'a.TextGrid',
        changed(LONG, 'xmin = 1.25', 'xmin = 0.25'),
        'line 24: expected increasing times, got 0.25 s after 0.5 s',
    ),
    'ends first': (
        'a.TextGrid',
        changed(LONG, 'xmax = 1.25', 'xmax = 0.25'),
        'line 20: expected an end after the beginning, 0.5 s, got 0.25 s',
    ),
    'ctm columns': (
        'a.ctm',
        'a 1 0 1\n',
        'line 1: expected recording, channel, begin, duration, word, and maybe',
    ),
    'ctm number': ('a.ctm', 'a 1 0 1 x\na 1 one 1 x\n', "line 2: expected a number, got 'one'"),
    'ctm infinite': ('a.ctm', 'a 1 0 inf x\n', "line 1: expected a number, got 'inf'"),
    'ctm duration': ('a.ctm', 'a 1 0 -1 x\n', 'line 1: expected a duration of at least 0, got -1 s'),
    'ctm backwards': (
        'a.ctm',
        'a 1 3 1 x\nb 1 0 1 x\na 1 2 1 x\n',
        'line 3: expected increasing times, got 2 s after 3 s',
    ),
    'ctm alternatives': (
        'a.ctm',
        'a 1 * * <ALT_BEGIN>\n',
        'line 1: expected a word, got <ALT_BEGIN>: alternatives are not read',
    ),
    'ctm nothing': ('a.ctm', ';; no words\n', 'expected texts with times, got CTM without any'),
    'srt times': (
        'a.srt',
        changed(SRT, '00:00:01,500', '00:00:61,500'),
        "line 2: expected times as 00:01:02,500 --> 00:01:04,000, got '00:00:61,500",
    ),
    'srt text': (
        'a.srt',
        changed(SRT, 'there', 'there\n\nagain'),
        "line 6: expected times as 00:01:02,500 --> 00:01:04,000, got 'again'",
    ),
    'srt backwards': (
        'a.srt',
        changed(SRT, '00:00:01', '03:00:01').replace('00:00:03', '03:00:03'),
        'line 7: expected increasing times, got 3723 s after 10801.5 s',
    ),
    'srt ends first': (
        'a.srt',
        changed(SRT, '00:00:03,250', '00:00:01,250'),
        'line 2: expected an end after the beginning, 1.5 s, got 1.25 s',
    ),
    'vtt header': ('a.vtt', SRT, "line 1: expected WEBVTT, got '1'"),
    'vtt times': (
        'a.vtt',
        f'WEBVTT\n{CUE}\na\n00:02.000 --> 3\nb\n',
        "line 4: expected times as 00:01:02,500 --> 00:01:04,000, got '00:02.000 --> 3'",
    ),
    'vtt text': ('a.vtt', f'WEBVTT\n\n{CUE}\na\n\nb\n\n', 'line 6: expected times as'),
    'vtt lines before times': ('a.vtt', f'WEBVTT\n\n{CUE}\na\n\nb\nc\n{NEXT}\nd', 'line 6: expected times'),
    'vtt ends first': (
        'a.vtt',
        'WEBVTT\n00:02.000 --> 00:01.000\na\n',
        'line 2: expected an end after the beginning, 2 s, got 1 s',
    ),
}


@pytest.mark.parametrize('name', DAMAGED)
def test_errors_name_the_file_and_the_line(tmp_path, name):
    file, data, message = DAMAGED[name]
    folder = tmp_path / 'files'
    folder.mkdir()
    path = folder / file
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    with pytest.raises(bags.SourceError) as caught:
        bags.convert(path, tmp_path / 'dataset')
    assert str(path) in str(caught.value)
    assert message in str(caught.value)


def test_a_damaged_file_is_skipped(tmp_path):
    folder = tmp_path / 'films'
    folder.mkdir()
    (folder / 'a.srt').write_text('no times')
    (folder / 'b.srt').write_text(SRT)
    done = bags.convert(folder, tmp_path / 'dataset', on_error='skip')
    assert bags.open(tmp_path / 'dataset').column('__key__') == ['b']
    assert [name for name, _ in done.skipped] == [str(folder / 'a.srt')]


def test_tiers_of_one_name_are_of_one_type(tmp_path):
    folder = tmp_path / 'grids'
    folder.mkdir()
    (folder / 'a.TextGrid').write_text(LONG)
    (folder / 'b.TextGrid').write_text(LONG.replace('"tones"', '"x"').replace('"words"', '"tones"'))
    with pytest.raises(bags.SourceError, match=r"b.TextGrid.*tier 'tones': expected points as in the files"):
        bags.convert(folder, tmp_path / 'dataset')
    (folder / 'b.TextGrid').write_text(LONG.replace('"tones"', '"words_start"'))
    with pytest.raises(bags.SourceError, match="expected other names of tiers, got 'words_start'"):
        bags.convert(folder, tmp_path / 'dataset')


def test_a_name_without_a_known_extension(tmp_path):
    (tmp_path / 'words').write_text(CTM)
    with pytest.raises(bags.SourceError, match=r'expected a file named \*\.textgrid, \*\.ctm'):
        bags.convert(tmp_path / 'words', tmp_path / 'dataset', format='ctm')


def test_among_other_files_they_are_values(tmp_path):
    folder = tmp_path / 'speech'
    folder.mkdir()
    for key in 'ab':
        (folder / f'{key}.txt').write_text('text')
        (folder / f'{key}.srt').write_text(SRT)
        (folder / f'{key}.TextGrid').write_text(SHORT)
    done = bags.convert(folder, tmp_path / 'dataset')
    assert done.spec == {
        '__key__': 'utf8', '__extensions__': 'json?', 'srt': 'utf8', 'textgrid': 'bytes', 'txt': 'utf8'
    }  # fmt: skip
    assert done.notes[1:] == [
        "files *.textgrid are stored as bytes; format='textgrid' imports what they contain"
    ]


def test_entries_begin_with_any_datapoint(tmp_path):
    folder = tmp_path / 'words'
    folder.mkdir()
    for number in range(5):
        (folder / f'{number}.ctm').write_text(''.join(f'{number}-{i} 1 {i} 1 w{i}\n' for i in range(3)))
    keys = [f'{number}-{i}' for number in range(5) for i in range(3)]
    source = open_source(folder)
    for start in range(16):
        assert [source.load(entry)['__key__'] for entry in source.entries(start)] == keys[start:]


@pytest.mark.parametrize('name', ['a.TextGrid', 'a.ctm'])
def test_words_of_recordings_are_joined_by_key(tmp_path, name):
    speech = tmp_path / 'speech'
    speech.mkdir()
    ramp = np.linspace(-1, 1, 16_000, dtype=np.float32)[:, None]
    with bags.DatasetWriter(tmp_path / 'made', {'wav': 'wav'}) as writer:
        writer.append({'wav': (ramp, 8000)})
    (speech / 'a.wav').write_bytes(bags.open(tmp_path / 'made', raw=True)[0, 'wav']['wav'])
    grid = '"ooTextFile" "TextGrid" 0 2 <exists> 1 "IntervalTier" "text" 0 2 2 0 0.5 "one" 0.5 2 "two"'
    (speech / name).write_text(grid if name.endswith('Grid') else 'a 1 0 .5 one\na 1 .5 1.5 two\n')
    format = name.rpartition('.')[2].lower()
    bags.convert(speech, tmp_path / 'sounds', spec={format: None})
    done = bags.convert(speech, tmp_path / 'words', format=format)
    assert done.notes == ["left out: 'a.wav'"]
    both = bags.join([bags.open(tmp_path / 'sounds'), bags.open(tmp_path / 'words')], on='__key__')
    windows = both.windows(every='text', wav=bags.between(0.0, 0.25), text=bags.steps(0, 1))
    assert windows.column('text') == [['one'], ['two']]
    np.testing.assert_allclose(windows[1]['wav'], ramp[4000:6000], atol=1e-4)
