"""Tables with columns of paths: the files become fields, below the root or where the user permits."""

import os

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet
from typer.testing import CliRunner

import bags
from bags.cli.app import build_app
from bags.interop.open_source import open_source
from tests.interop.sources.manifests.manifests import write_lines, write_sound

FILES = {'audio_filepath': 'audio'}


@pytest.fixture
def corpus(tmp_path):
    """Six recordings in two folders, and their samples."""
    folder = tmp_path / 'corpus'
    return folder, [write_sound(folder / f'wavs/{i % 2}/{i}.wav', seed=i, samples=400 + i) for i in range(6)]


def rows_of(count=6):
    return [{'audio_filepath': f'wavs/{i % 2}/{i}.wav', 'text': f'text {i}'} for i in range(count)]


def write_table(folder, extension, rows):
    path = folder / f'm.{extension}'
    if extension == 'parquet':
        parquet.write_table(pa.Table.from_pylist(rows), path)
    elif extension == 'csv':
        path.write_text('\n'.join([','.join(rows[0]), *(','.join(row.values()) for row in rows)]) + '\n')
    else:
        write_lines(path, rows)
    return path


@pytest.mark.parametrize('link', [True, False])
@pytest.mark.parametrize('extension', ['jsonl', 'jsonl.gz', 'csv', 'parquet'])
def test_files_of_a_table(corpus, tmp_path, extension, link):
    folder, samples = corpus
    manifest = write_table(folder, extension, rows_of())
    done = bags.convert(manifest, tmp_path / 'out', link=link, file=FILES)
    assert done.spec == {'audio_filepath': 'utf8', 'text': 'utf8', 'audio': 'audio'}
    assert done.parents == ([str(folder / 'wavs')] if link else [])
    with bags.open(tmp_path / 'out', trust_links=done.parents) as dataset:
        for index in range(6):
            row = dataset[index]
            assert row['text'] == f'text {index}'
            np.testing.assert_array_equal(row['audio'][:], samples[index])
            assert dataset.records('audio')[index] == (folder / row['audio_filepath']).read_bytes()


def test_command(corpus, tmp_path, monkeypatch):
    assert corpus
    write_lines(tmp_path / 'm.jsonl', rows_of())
    monkeypatch.chdir(tmp_path)
    command = ['import', 'm.jsonl', 'out', '--link', '--file', 'audio_filepath=audio', '--root', 'corpus']
    result = CliRunner().invoke(build_app(), command)
    assert result.exit_code == 0, result.output
    assert len(bags.open('out', trust_links='corpus')) == 6
    result = CliRunner().invoke(build_app(), ['import', 'm.jsonl', '--file', 'audio=sound', '--dry-run'])
    assert result.exit_code == 1
    assert "file: no field 'audio'" in result.output


def test_fields_and_types(corpus, tmp_path):
    folder, _ = corpus
    (folder / 'notes').mkdir()
    (folder / 'notes/1').write_text('a note')
    rows = [{**row, 'note': 'notes/1' if i else None} for i, row in enumerate(rows_of(2))]
    manifest = write_lines(folder / 'm.jsonl', rows)
    source = open_source(manifest, file={**FILES, 'note': 'note'}, spec={'note': 'utf8?', 'text': None})
    assert source.spec == {'audio_filepath': 'utf8', 'audio': 'audio', 'note': 'utf8?'}
    bags.convert(source, tmp_path / 'out')
    with bags.open(tmp_path / 'out') as dataset:
        assert [*dataset.column('note')] == [None, 'a note']
    with pytest.raises(bags.SourceError, match=r"file: expected another name .* 'text', which is a column"):
        open_source(manifest, file={'audio_filepath': 'text'})
    with pytest.raises(ValueError, match='expected another field for each column'):
        open_source(manifest, file={'audio_filepath': 'a', 'text': 'a'})
    with pytest.raises(TypeError, match='file: expected a mapping'):
        open_source(manifest, file=['audio_filepath'])
    with pytest.raises(ValueError, match="file: expected none for the format 'folder'"):
        open_source(folder, file=FILES)
    with pytest.raises(ValueError, match="root: expected none for the format 'jsonl'"):
        open_source(manifest, root=folder)


@pytest.mark.parametrize(
    ('row', 'message'),
    [
        ({'audio_filepath': 'wavs/none.wav'}, 'wavs/none.wav cannot be read: No such file'),
        ({'audio_filepath': 'wavs'}, 'is a folder|Is a directory'),
        ({'audio_filepath': 'wavs/'}, "expected the path of a file, got 'wavs/'"),
        ({'audio_filepath': ''}, "expected the path of a file, got ''"),
        ({'audio_filepath': 'a\0b.wav'}, 'expected the path of a file'),
        ({'audio_filepath': 'text.wav'}, 'expected .*WAV'),
        ({'audio_filepath': '../outside.wav'}, 'outside.wav is not below .*corpus: .*trust_links='),
        ({'audio_filepath': 'link.wav'}, 'outside.wav is not below .*corpus: .*trust_links='),
        ({'audio_filepath': 'above/outside.wav'}, 'outside.wav is not below .*corpus: .*trust_links='),
        ({'audio_filepath': '/etc/passwd'}, '/etc/passwd is not below .*corpus'),
        ({'audio_filepath': 'http://localhost:1/a.wav'}, 'http://localhost:1/a.wav is not below'),
        ({'audio_filepath': 'file:///etc/passwd'}, '/etc/passwd is not below .*corpus'),
        ({'audio_filepath': 'pipe.wav'}, 'pipe.wav'),
    ],
)
@pytest.mark.parametrize('link', [True, False])
def test_bad_rows_are_named(corpus, tmp_path, row, message, link):
    folder, _ = corpus
    write_sound(tmp_path / 'outside.wav')
    (folder / 'text.wav').write_text('no sound, but a text')
    os.symlink(tmp_path / 'outside.wav', folder / 'link.wav')
    os.symlink(tmp_path, folder / 'above')
    if hasattr(os, 'mkfifo'):  # Otherwise the file is missing.
        os.mkfifo(folder / 'pipe.wav')
    manifest = write_lines(folder / 'm.jsonl', [*rows_of(2), '', {**row, 'text': 'bad'}, *rows_of(1)])
    where = rf"{manifest}, line 4, row 2: field 'audio': .*({message})"
    with pytest.raises(bags.SourceError, match=where):
        bags.convert(manifest, tmp_path / 'out', link=link, file=FILES)
    done = bags.convert(
        manifest, tmp_path / 'out', link=link, file=FILES, on_error='skip', mode='overwrite', progress=False
    )
    assert done.datapoints == 3
    assert len(done.skipped) == 1


def test_permitted_files_outside_of_the_root(corpus, tmp_path, monkeypatch):
    folder, _ = corpus
    samples = write_sound(tmp_path / 'other/outside.wav')
    rows = [{'audio_filepath': f'{folder}/wavs/0/0.wav'}, {'audio_filepath': '../other/outside.wav'}]
    manifest = write_lines(folder / 'm.jsonl', rows)
    for options in ({'trust_links': tmp_path / 'other'}, {'trust_links': True}, {'root': folder}):
        if 'root' in options:
            monkeypatch.setenv('BAGS_TRUST_LINKS', str(tmp_path / 'other/outside.wav'))
        done = bags.convert(manifest, tmp_path / 'out', link=True, file=FILES, mode='overwrite', **options)
        assert done.parents == [str(tmp_path)]
        monkeypatch.delenv('BAGS_TRUST_LINKS', raising=False)
        with bags.open(tmp_path / 'out', trust_links=folder) as dataset:
            assert dataset[0]['audio'].shape == (400, 1)
            with pytest.raises(PermissionError, match='not permitted'):
                dataset[1]['audio'][:]
        with bags.open(tmp_path / 'out', trust_links=done.parents) as dataset:
            np.testing.assert_array_equal(dataset[1]['audio'][:], samples)


def test_non_string_paths(corpus, tmp_path):
    folder, _ = corpus
    manifest = write_lines(folder / 'm.jsonl', [*rows_of(2), {'audio_filepath': 5, 'text': ''}])
    with pytest.raises(bags.SourceError, match="column 'audio_filepath': line 3"):
        open_source(manifest, file=FILES)
    write_lines(folder / 'm.jsonl', [{'audio_filepath': 5, 'text': ''}])
    with pytest.raises(bags.SourceError, match="row 0: field 'audio': expected the path of a file, got 5"):
        bags.convert(manifest, tmp_path / 'out', file=FILES)
    write_lines(folder / 'm.jsonl', [*rows_of(2), '["no object"]'])
    with pytest.raises(bags.SourceError, match='line 3'):
        open_source(manifest, file=FILES)


def test_a_table_that_grows(corpus, tmp_path):
    folder, samples = corpus
    manifest = write_lines(folder / 'm.jsonl', rows_of(3))
    keywords = {'link': True, 'file': FILES, 'update': True}
    bags.convert(manifest, tmp_path / 'out', **keywords)
    write_lines(manifest, rows_of(6))
    assert bags.convert(manifest, tmp_path / 'out', **keywords).datapoints == 6
    assert bags.convert(manifest, tmp_path / 'out', **keywords).datapoints == 6
    with bags.open(tmp_path / 'out', trust_links=folder) as dataset:
        for row, expected in zip(dataset, samples, strict=True):
            np.testing.assert_array_equal(row['audio'][:], expected)
    write_lines(manifest, rows_of(6)[::-1] + rows_of(1))
    with pytest.raises(ValueError, match="datapoint 5 of the dataset, field 'audio': its source has another"):
        bags.convert(manifest, tmp_path / 'out', **keywords)
    write_lines(manifest, rows_of(5))
    with pytest.raises(ValueError, match='got only 5'):
        bags.convert(manifest, tmp_path / 'out', **keywords)


def test_rows_of_one_file_that_move(corpus, tmp_path):
    folder, _ = corpus
    rows = [{'audio_filepath': 'wavs/0/0.wav', 'text': f'caption {i}'} for i in range(5)]
    manifest = write_lines(folder / 'm.jsonl', rows)
    keywords = {'link': True, 'file': FILES, 'update': True}
    bags.convert(manifest, tmp_path / 'out', **keywords)
    write_lines(manifest, [{**rows[0], 'text': 'before'}, *rows])
    with pytest.raises(ValueError, match="datapoint 4 of the dataset, field 'text'"):
        bags.convert(manifest, tmp_path / 'out', **keywords)


def test_an_interrupted_import_resumes(corpus, tmp_path):
    folder, samples = corpus
    manifest = write_lines(folder / 'm.jsonl', rows_of())
    moved = (folder / 'wavs/1/3.wav').rename(tmp_path / 'moved.wav')
    with pytest.raises(bags.SourceError, match='line 4, row 3'):
        bags.convert(manifest, tmp_path / 'out', link=True, file=FILES)
    moved.rename(folder / 'wavs/1/3.wav')
    done = bags.convert(manifest, tmp_path / 'out', link=True, file=FILES, resume=True)
    assert done.datapoints == 6
    with bags.open(tmp_path / 'out', trust_links=folder) as dataset:
        np.testing.assert_array_equal(dataset[3]['audio'][:], samples[3])
    with pytest.raises(ValueError, match='another source'):
        bags.convert(manifest, tmp_path / 'out', link=True, format='nemo', resume=True)
