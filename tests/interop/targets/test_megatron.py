"""Export of tokens for Megatron-LM; tests/megatron reads the files with Megatron-Core."""

import numpy as np
import pytest

import bags
from bags.interop.targets import megatron
from tests.interop.sources.tokens.files import CODES, write_megatron

DOCUMENTS = [[[1, 2, 3], [4]], [[5, 6]], [[]], [[7], [], [8, 9]]]
MODES = [1, 0, -1, 1, 0, 1, 0]


def files_of(folder, name):
    return (folder / f'{name}.bin').read_bytes(), (folder / f'{name}.idx').read_bytes()


def write(path, spec, rows, **options):
    with bags.DatasetWriter(path, spec, **options) as writer:
        for row in rows:
            writer.append(row)
    return path


@pytest.fixture(params=[1, 3, 1 << 14])
def block(request, monkeypatch):
    """The number of datapoints that are read at a time."""
    monkeypatch.setattr(megatron, 'BLOCK', request.param)


@pytest.mark.parametrize('dtype', CODES)
@pytest.mark.parametrize('modes', [None, MODES])
def test_sequences_come_back(tmp_path, block, dtype, modes):
    write_megatron(tmp_path / 'data.bin', DOCUMENTS, dtype, modes and [abs(mode) for mode in modes])
    bags.convert(tmp_path / 'data.bin', tmp_path / 'out', link=True, by='sequence')
    with bags.open(tmp_path / 'out', trust_links=True) as dataset:
        done = bags.export(dataset, tmp_path / 'back', format='megatron')
    assert files_of(tmp_path / 'back', 'tokens') == files_of(tmp_path, 'data')
    assert (done.datapoints, done.shards, done.notes) == (7, 1, [])
    assert done.size == sum(map(len, files_of(tmp_path, 'data')))


@pytest.mark.parametrize('modes', [None, [1, 0, 1]])
def test_documents_come_back(tmp_path, block, modes):
    """Also those without a sequence, if there are modes, which say so."""
    documents = [[[1, 2]], [[]], [[3, 4, 5]]]
    if modes:
        documents = [[], *documents, []]
    write_megatron(tmp_path / 'data.bin', documents, modes=modes)
    bags.convert(tmp_path / 'data.bin', tmp_path / 'out', link=True)
    with bags.open(tmp_path / 'out', trust_links=True) as dataset:
        bags.export(dataset, tmp_path / 'back', format='megatron')
    assert files_of(tmp_path / 'back', 'tokens') == files_of(tmp_path, 'data')


def test_a_document_is_a_datapoint(tmp_path, monkeypatch):
    """Of any field of tokens, in any form; long ones are read in parts."""
    monkeypatch.setattr(megatron, 'BLOCK_BYTES', 8)
    arrays = [np.arange(length, dtype='>i4') for length in (5, 0, 1, 2, 3)]
    rows = [{'ids': array, 'text': 'x'} for array in arrays]
    path = write(tmp_path / 'a', {'ids': 'array(>i4,?)', 'text': 'utf8'}, rows, compression=['ids'])
    done = bags.export(path, tmp_path / 'out', format='megatron')
    expected = write_megatron(tmp_path / 'data.bin', [[array.tolist()] for array in arrays], 'int32')
    assert files_of(tmp_path / 'out', 'tokens') == files_of(tmp_path, expected.stem)
    assert done.notes == ["field 'text' is left out: Megatron has tokens, modes and documents"]
    bags.export(bags.open(path)[1:3], tmp_path / 'out', format='megatron', mode='overwrite')
    assert bags.convert(tmp_path / 'out', tmp_path / 'back').datapoints == 2


def test_an_empty_dataset(tmp_path):
    path = write(tmp_path / 'a', {'tokens': 'array(uint16,?)'}, [])
    bags.export(path, tmp_path / 'out', format='megatron')
    write_megatron(tmp_path / 'data.bin', [])
    assert files_of(tmp_path / 'out', 'tokens') == files_of(tmp_path, 'data')


@pytest.mark.parametrize(
    ('spec', 'message'),
    [
        ({'tokens': 'array(uint32,?)'}, 'expected an array of one dimension, of uint8, int8, int16'),
        ({'tokens': 'array(uint16,?,2)'}, 'expected an array of one dimension'),
        (
            {'a': 'array(uint16,?)', 'b': 'array(uint16,?)'},
            r"expected a field 'tokens', or one field .*--fields",
        ),
        ({'a': 'int(4)'}, r"expected a field 'tokens', or one field of type array\(DTYPE,\?\), got 'a'"),
        ({'tokens': 'array(uint16,?)', 'document': 'int(8)?'}, "field 'document': expected a type without"),
    ],
)
def test_fields_that_are_refused(tmp_path, spec, message):
    path = write(tmp_path / 'a', spec, [])
    with pytest.raises(TypeError, match=message):
        bags.export(path, tmp_path / 'out', format='megatron')
    assert not [*(tmp_path / 'out').glob('*')]


def test_values_that_are_refused(tmp_path):
    tokens = np.arange(3, dtype='u2')
    path = write(tmp_path / 'a', {'tokens': 'array(uint16,?)?'}, [{'tokens': tokens}, {'tokens': None}])
    with pytest.raises(bags.SourceError, match="datapoint 1: field 'tokens': expected tokens, got no value"):
        bags.export(path, tmp_path / 'out', format='megatron')
    spec = {'tokens': 'array(uint16,?)', 'modes': 'array(int8,?)'}
    path = write(tmp_path / 'b', spec, [{'tokens': tokens, 'modes': np.zeros(2, 'i1')}])
    with pytest.raises(bags.SourceError, match=r"datapoint 0: field 'modes': .*got 2: by='sequence'"):
        bags.export(path, tmp_path / 'out', format='megatron')
    spec = {'tokens': 'array(uint16,?)', 'document': 'int(8)', 'mode': 'int(8)'}
    path = write(tmp_path / 'c', spec, [{'tokens': tokens, 'document': 0, 'mode': 200}])
    with pytest.raises(bags.SourceError, match=r"field 'mode': expected modes in \[-128, 127\]"):
        bags.export(path, tmp_path / 'out', format='megatron')
    with pytest.raises(TypeError, match='key: expected none for Megatron'):
        bags.export(path, tmp_path / 'out', format='megatron', key='document')
