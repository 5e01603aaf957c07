"""Tokens without an index: of llm.c, `.npy`, and without a header. The user says where documents end."""

import io

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import bags
from bags.interop.open_source import open_source
from bags.interop.sources.tokens import plain_files
from tests.interop.sources.tokens.files import write_llm_c

TOKENS = [5, 6, 0, 7, 0, 0, 8, 9]


def documents_of(path):
    with bags.open(path, trust_links=True) as dataset:
        return dataset.spec['tokens'], [row['tokens'].tolist() for row in dataset]


def npy(array):
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


@pytest.fixture
def train(tmp_path):
    path = tmp_path / 'train.bin'
    path.write_bytes(np.array(TOKENS, 'u2').tobytes())
    return path


@pytest.mark.parametrize('link', [True, False])
def test_the_ends_of_documents(tmp_path, train, link):
    done = bags.convert(train, tmp_path / 'out', link=link, format='tokens', dtype='uint16', end=0)
    expected = [[5, 6, 0], [7, 0], [0], [8, 9]]
    assert documents_of(tmp_path / 'out') == ('array(uint16,?)', expected)
    assert any('the last document does not end with the token 0' in note for note in done.notes)
    train.write_bytes(np.array([*TOKENS, 0], '<u4').tobytes())
    done = bags.convert(train, tmp_path / 'out4', link=link, format='tokens', dtype='uint32', end=0)
    assert documents_of(tmp_path / 'out4') == ('array(uint32,?)', [*expected[:-1], [8, 9, 0]])
    assert not any('does not end' in note for note in done.notes)


def test_equal_lengths(tmp_path, train):
    bags.convert(train, tmp_path / 'out', link=True, format='tokens', dtype='uint16', length=3)
    assert documents_of(tmp_path / 'out')[1] == [[5, 6, 0], [7, 0, 0], [8, 9]]
    bags.convert(train, tmp_path / 'out2', link=True, format='tokens', dtype='uint16', length=100)
    assert documents_of(tmp_path / 'out2')[1] == [TOKENS]


@pytest.mark.parametrize('offsets', [[0, 3, 3, 4], [0, 3, 3, 4, 8]])
@pytest.mark.parametrize('form', ['raw', 'npy'])
def test_offsets(tmp_path, train, offsets, form):
    file = tmp_path / 'offsets'
    file.write_bytes(np.array(offsets, '<i8').tobytes() if form == 'raw' else npy(np.array(offsets, 'u4')))
    bags.convert(train, tmp_path / 'out', link=True, format='tokens', dtype='uint16', offsets=file)
    assert documents_of(tmp_path / 'out')[1] == [[5, 6, 0], [], [7], [0, 0, 8, 9]]


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.integers(0, 4), min_size=1, max_size=40), st.integers(1, 9))
def test_ends_at_the_borders_of_blocks(tmp_path_factory, monkeypatch, tokens, block):
    """Each token is in one document, and a document has its end once, as its last token."""
    path = tmp_path_factory.mktemp('ends')
    monkeypatch.setattr(plain_files, 'SCAN_BYTES', 2 * block)
    (path / 'a.bin').write_bytes(np.array([*tokens, 4], 'u2').tobytes())
    bags.convert(path / 'a.bin', path / 'out', format='tokens', dtype='uint16', end=4)
    documents = documents_of(path / 'out')[1]
    assert [token for document in documents for token in document] == [*tokens, 4]
    assert all(document.count(4) == 1 and document[-1] == 4 for document in documents)


@pytest.mark.parametrize(('magic', 'version', 'dtype'), [(20240520, 1, 'uint16'), (20240801, 7, 'uint32')])
def test_llm_c(tmp_path, magic, version, dtype):
    write_llm_c(tmp_path / 'a.bin', TOKENS, magic, version)
    done = bags.convert(tmp_path / 'a.bin', tmp_path / 'out', link=True, end=0)
    assert documents_of(tmp_path / 'out') == (f'array({dtype},?)', [[5, 6, 0], [7, 0], [0], [8, 9]])
    assert done.datapoints == 4
    # A folder of such files, and with the header's dtype said again.
    (tmp_path / 'folder').mkdir()
    for number in range(2):
        write_llm_c(tmp_path / 'folder' / f'train_{number}.bin', [number, 0], magic, version)
    bags.convert(tmp_path / 'folder', tmp_path / 'out2', link=True, end=0)
    assert documents_of(tmp_path / 'out2')[1] == [[0], [0], [1, 0]]


def test_npy(tmp_path):
    np.save(tmp_path / 'a.npy', np.array(TOKENS, 'i4'))
    bags.convert(tmp_path / 'a.npy', tmp_path / 'out', link=True, length=5)
    assert documents_of(tmp_path / 'out') == ('array(int32,?)', [TOKENS[:5], TOKENS[5:]])
    np.save(tmp_path / 'rows.npy', np.arange(6, dtype='>u2').reshape(3, 2))
    bags.convert(tmp_path / 'rows.npy', tmp_path / 'rows', link=True)
    assert documents_of(tmp_path / 'rows') == ('array(>u2,?)', [[0, 1], [2, 3], [4, 5]])


@pytest.mark.parametrize(
    ('content', 'options', 'message'),
    [
        (bytes(7), {'dtype': 'uint16', 'length': 1}, 'of 2 bytes, got 7 bytes: the last token is cut'),
        (bytes(8), {'length': 1}, r'the header of llm.c or .npy, got none: dtype \(--dtype uint16\)'),
        (bytes(8), {'dtype': 'uint16'}, r'expected where documents end: .*--end.*--offsets.*--length'),
        (bytes(8), {'dtype': 'uint16', 'end': 3}, 'the token 3 at the end of documents, got none in 4'),
        (bytes(8), {'dtype': 'uint16', 'end': 65536}, 'expected the token at the end .* in uint16'),
        (b'\x93NUMPY\1', {'length': 1}, 'does not match its format'),
        (npy(np.zeros(3, 'u2'))[:-1], {'length': 1}, 'expected 6 bytes for shape'),
        (npy(np.zeros(3, 'u2')).replace(b'(3,)', b'(3,('), {'length': 1}, 'header of a .npy file'),
        (npy(np.zeros(3, 'f4')), {'length': 1}, 'expected integers in one dimension'),
        (npy(np.zeros((3, 2), 'u2', 'F')), {}, 'in Fortran order'),
        (npy(np.zeros((3, 0), 'u2')), {}, 'expected rows of one token or more'),
        (npy(np.zeros((3, 2), 'u2')), {'length': 1}, 'whose rows are documents: expected no length'),
        (npy(np.zeros(3, 'u2')), {'length': 1, 'dtype': 'int32'}, 'its header says uint16, got dtype int32'),
        (npy(np.array([{}])), {'length': 1}, 'expected integers|pickled|object'),
    ],
)  # fmt: skip
def test_files_that_are_refused(tmp_path, content, options, message):
    (tmp_path / 'a.bin').write_bytes(content)
    with pytest.raises(bags.SourceError, match=rf'a\.bin: .*{message}'):
        open_source(tmp_path / 'a.bin', format='tokens', **options)


@pytest.mark.parametrize(
    ('change', 'message'),
    [
        ({'magic': 20240522}, 'expected tokens, got multiple-choice questions'),
        ({'version': 2}, 'expected version 1 of the magic number 20240520'),
        ({'count': 9}, 'expected 9 tokens of uint16, as its header says, got 8'),
        ({'count': -1}, 'expected -1 tokens'),
    ],
)
def test_headers_of_llm_c_that_lie(tmp_path, change, message):
    write_llm_c(tmp_path / 'a.bin', TOKENS, **change)
    with pytest.raises(bags.SourceError, match=rf'a\.bin: .*{message}'):
        open_source(tmp_path / 'a.bin', length=1)


def test_a_cut_header_of_llm_c(tmp_path):
    write_llm_c(tmp_path / 'a.bin', TOKENS)
    data = (tmp_path / 'a.bin').read_bytes()
    for size in (4, 100, 1023):
        (tmp_path / 'a.bin').write_bytes(data[:size])
        with pytest.raises(bags.SourceError, match=f'of 1024 bytes, got {size}: it is cut'):
            open_source(tmp_path / 'a.bin', length=1)


@pytest.mark.parametrize(
    ('offsets', 'message'),
    [
        ([1, 2], 'expected 0, the first token of document 0, got 1'),
        ([], 'expected 0, the first token of document 0, got none'),
        ([0, 5, 4], r'document 2: expected its first token in \[5, 8\], the tokens of .*train\.bin, got 4'),
        ([0, 9], r'document 1: expected its first token in \[0, 8\]'),
    ],
)
def test_offsets_that_lie(tmp_path, train, offsets, message):
    np.save(tmp_path / 'x.npy', np.array(offsets, 'i8'))
    with pytest.raises(bags.SourceError, match=rf'x\.npy: {message}'):
        open_source(train, format='tokens', dtype='uint16', offsets=tmp_path / 'x.npy')


@pytest.mark.parametrize(
    ('options', 'message'),
    [
        ({'end': 1, 'length': 3}, 'expected one of end, offsets and length, got end and length'),
        ({'dtype': 'float32', 'length': 3}, "expected a dtype of integers, such as 'uint16', got 'float32'"),
        ({'dtype': 'tokens', 'length': 3}, 'dtype: expected a dtype of integers'),
        ({'dtype': 'uint16', 'length': 0}, 'length'),
        ({'dtype': 'uint16', 'end': -1}, 'end'),
        ({'dtype': 'uint16', 'length': 3, 'by': 'sequence'}, "by: expected 'document' for tokens without"),
        ({'dtype': 'uint16', 'length': 3, 'by': 'page'}, "by: expected 'document' or 'sequence'"),
    ],
)  # fmt: skip
def test_options_that_are_refused(train, options, message):
    with pytest.raises(ValueError, match=message):
        open_source(train, format='tokens', **options)


def test_a_resume_with_other_options_is_refused(tmp_path, train):
    bags.convert(train, tmp_path / 'out', link=True, format='tokens', dtype='uint16', length=6)
    with pytest.raises(ValueError, match=r"expected options \{'dtype': 'uint16', 'length': 6\}, got"):
        bags.convert(
            train, tmp_path / 'out', link=True, format='tokens', dtype='uint16', length=5, resume=True
        )
