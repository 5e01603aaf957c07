"""An import does not continue from a source that has changed since."""

import importlib
import itertools
import os

import numpy as np
import pytest

import bags
from bags.interop.fingerprint import fingerprint_of_files

pa = pytest.importorskip('pyarrow')
COUNT = 3000


def write(folder, labels):
    import pyarrow.parquet as pq

    folder.mkdir(exist_ok=True)
    half = COUNT // 2
    for number, part in enumerate((slice(0, half), slice(half, COUNT))):
        table = pa.table({'id': np.arange(COUNT)[part], 'label': labels[part]})
        pq.write_table(table, folder / f'{number}.parquet', compression=None, use_dictionary=False)
    return folder


def interrupt(source, target, monkeypatch):
    """Imports the first 1,000 rows."""
    module = importlib.import_module('bags.interop.convert')
    append, calls = module._append, itertools.count()

    def fails(*args):
        if next(calls) == 1000:
            raise ArithmeticError
        append(*args)

    with monkeypatch.context() as patch:
        patch.setattr(module, '_append', fails)
        with pytest.raises(ArithmeticError):
            bags.convert(source, target)


def test_a_corrected_source_is_refused(tmp_path, monkeypatch):
    labels = np.ones(COUNT, int)
    source = write(tmp_path / 'in', labels)
    interrupt(source, tmp_path / 'out', monkeypatch)
    sizes = [file.stat().st_size for file in sorted(source.iterdir())]
    labels[123] = 2
    write(source, labels)
    assert [file.stat().st_size for file in sorted(source.iterdir())] == sizes
    with pytest.raises(ValueError, match='source is another one, or has changed'):
        bags.convert(source, tmp_path / 'out', resume=True)
    assert bags.convert(source, tmp_path / 'out', resume=True, check_source=False).datapoints == COUNT
    assert bags.convert(source, tmp_path / 'out', resume=True).datapoints == COUNT


def test_the_same_source_is_continued(tmp_path, monkeypatch):
    source = write(tmp_path / 'in', np.arange(COUNT))
    interrupt(source, tmp_path / 'out', monkeypatch)
    for file in source.iterdir():
        os.utime(file, (1, 1))
    source = source.rename(tmp_path / 'moved')
    assert bags.convert(source, tmp_path / 'out', resume=True).datapoints == COUNT
    assert bags.open(tmp_path / 'out').column('label').tolist() == list(range(COUNT))


def test_ends_of_large_files_count(tmp_path, monkeypatch):
    monkeypatch.setattr('bags.interop.fingerprint.MAX_BYTES', 1000)
    monkeypatch.setattr('bags.interop.fingerprint.END_BYTES', 10)
    file = tmp_path / 'x'

    def of(data):
        file.write_bytes(data)
        return fingerprint_of_files([str(file)], None)[0]

    data = bytes(2000)
    found = [
        of(data),
        of(b'1' + data[1:]),
        of(data[:-1] + b'1'),
        of(data[:-1]),
        of(data[:900]),
        of(data[:899]),
    ]
    assert len(set(found)) == len(found)
    assert of(data) == found[0]
    assert fingerprint_of_files([str(file)], None)[1] == [str(file)]


def test_a_note_says_what_was_compared_by_its_ends_only(tmp_path, monkeypatch):
    source = write(tmp_path / 'in', np.arange(COUNT))
    monkeypatch.setattr('bags.interop.fingerprint.MAX_BYTES', (source / '0.parquet').stat().st_size)
    done = bags.convert(source, tmp_path / 'new')
    assert not done.notes
    interrupt(source, tmp_path / 'again', monkeypatch)
    (note,) = bags.convert(source, tmp_path / 'again', resume=True).notes
    file, detail = source / '1.parquet', 'compared with the earlier source by size and ends only'
    assert note == f"resumed: '{file}': {detail}"
