"""Tokens of Megatron-LM: documents and sequences, linked or copied, and indices that lie."""

import itertools
import struct

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

import bags
from bags.cli.app import build_app
from bags.interop.open_source import open_source
from bags.interop.sources.tokens import megatron, token_source
from bags.interop.sources.tokens.token_source import TokenSource
from tests.interop.sources.tokens.files import CODES, write_llm_c, write_megatron

DOCUMENTS = [[[1, 2, 3], [4]], [], [[5, 6]], [[]], [[7], [], [8, 9]]]
JOINED = [[token for sequence in document for token in sequence] for document in DOCUMENTS]
SEQUENCES = [sequence for document in DOCUMENTS for sequence in document]
MODES = [1, 0, -1, 1, 0, 1, 0]


@pytest.fixture
def data(tmp_path):
    return write_megatron(tmp_path / 'data.bin', DOCUMENTS)


def rows_of(path, **options):
    with bags.open(path, trust_links=True) as dataset:
        return dataset.spec, [
            {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in row.items()}
            for row in dataset
        ]


@pytest.mark.parametrize('link', [True, False])
@pytest.mark.parametrize('name', ['data.bin', 'data.idx', ''])
def test_documents(tmp_path, data, link, name):
    """By the name of either file, and as a folder."""
    folder = tmp_path / 'folder'
    folder.mkdir()
    for path in (data, data.with_suffix('.idx')):
        path.rename(folder / path.name)
    done = bags.convert(folder / name, tmp_path / 'out', link=link)
    spec, rows = rows_of(tmp_path / 'out')
    assert spec == {'tokens': 'array(uint16,?)'}
    assert rows == [{'tokens': tokens} for tokens in JOINED]
    assert any('2 documents of several sequences are joined' in note for note in done.notes)
    assert bags.verify(tmp_path / 'out', trust_links=True) == []
    if link:
        with bags.open(tmp_path / 'out', trust_links=True) as dataset:
            assert dataset.lengths('tokens', of='elements').tolist() == list(map(len, JOINED))
            assert dataset[4, {'tokens': slice(1, None)}]['tokens'].tolist() == [8, 9]
        # A link, its limit and a ref: the tokens are not copied.
        assert done.size < 5 * 64


@pytest.mark.parametrize('link', [True, False])
def test_sequences_and_modes(tmp_path, link):
    write_megatron(tmp_path / 'data.bin', DOCUMENTS, 'int32', MODES)
    done = bags.convert(tmp_path / 'data.bin', tmp_path / 'sequences', link=link, by='sequence')
    spec, rows = rows_of(tmp_path / 'sequences')
    assert spec == {'tokens': 'array(int32,?)', 'document': 'int(8)', 'mode': 'int(1)'}
    assert [row['tokens'] for row in rows] == SEQUENCES
    assert [row['document'] for row in rows] == [0, 0, 2, 3, 4, 4, 4]
    assert [row['mode'] for row in rows] == MODES
    assert any('1 documents without sequences are left out' in note for note in done.notes)
    bags.convert(tmp_path / 'data.bin', tmp_path / 'documents', link=link)
    spec, rows = rows_of(tmp_path / 'documents')
    assert spec == {'tokens': 'array(int32,?)', 'modes': 'array(int8,?)'}
    assert [row['modes'] for row in rows] == [[1, 0], [], [-1], [1], [0, 1, 0]]
    assert [row['tokens'] for row in rows] == JOINED


@pytest.mark.parametrize('dtype', CODES)
def test_each_dtype(tmp_path, dtype):
    write_megatron(tmp_path / 'data.bin', [[[1, 2]], [[3]]], dtype)
    bags.convert(tmp_path / 'data.bin', tmp_path / 'out', link=True)
    spec, rows = rows_of(tmp_path / 'out')
    assert (spec, rows) == ({'tokens': f'array({dtype},?)'}, [{'tokens': [1, 2]}, {'tokens': [3]}])


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.lists(st.lists(st.integers(0, 65535), max_size=5), max_size=4), max_size=12),
    st.integers(1, 5),
    st.sampled_from(['document', 'sequence']),
)
def test_blocks(tmp_path_factory, monkeypatch, documents, block, by):
    """The index is read in blocks, and datapoints are written in blocks: the result is the same."""
    path = tmp_path_factory.mktemp('blocks')
    monkeypatch.setattr(megatron, 'BLOCK', block)
    monkeypatch.setattr(token_source, 'BLOCK', block)
    write_megatron(
        path / 'data.bin', documents, modes=[i % 3 for document in documents for i, _ in enumerate(document)]
    )
    bags.convert(path / 'data.bin', path / 'out', link=True, by=by, shard_length=3)
    bags.convert(path / 'data.bin', path / 'copy', by=by, shard_length=3)
    spec, rows = rows_of(path / 'out')
    assert rows_of(path / 'copy') == (spec, rows)
    if by == 'document':
        expected = [[token for sequence in document for token in sequence] for document in documents]
    else:
        expected = [sequence for document in documents for sequence in document]
        owners = [number for number, document in enumerate(documents) for _ in document]
        assert [row['document'] for row in rows] == owners
    assert [row['tokens'] for row in rows] == expected


def test_several_files(tmp_path):
    for number in range(3):
        write_megatron(tmp_path / f'part{number}.bin', [[[number]], [[number, number]]])
    bags.convert([tmp_path / f'part{number}.bin' for number in range(3)], tmp_path / 'list', link=True)
    _, rows = rows_of(tmp_path / 'list')
    assert [row['tokens'] for row in rows] == [[0], [0, 0], [1], [1, 1], [2], [2, 2]]
    write_megatron(tmp_path / 'part1.bin', [[[1]]], 'int32')
    with pytest.raises(
        bags.SourceError, match=r'part1\.bin.*expected tokens of uint16, .*part0\.bin has, got int32'
    ):
        open_source([tmp_path / 'part0.bin', tmp_path / 'part1.bin'])
    write_megatron(tmp_path / 'part1.bin', [[[1]]], modes=[0])
    with pytest.raises(bags.SourceError, match=r"part1\.bin.*expected the fields \['tokens'\].*'modes'"):
        open_source([tmp_path / 'part0.bin', tmp_path / 'part1.bin'])


def test_checksums_of_links(tmp_path, data):
    bags.convert(data, tmp_path / 'out', link=True, checksum=True)
    assert bags.open(tmp_path / 'out', trust_links=True, checksum=True).column('tokens')[4].tolist() == [
        7,
        8,
        9,
    ]
    data.write_bytes(data.read_bytes()[:-2] + b'!!')
    with pytest.raises(bags.CorruptError):
        bags.open(tmp_path / 'out', trust_links=True, checksum=True)[4]


@pytest.mark.parametrize('link', [True, False])
def test_shards_and_resume(tmp_path, link, monkeypatch):
    documents = [[[number] * (number % 7)] for number in range(100)]
    write_megatron(tmp_path / 'data.bin', documents)
    done = bags.convert(tmp_path / 'data.bin', tmp_path / 'out', link=link, shard_length=30)
    assert (done.shards, done.datapoints) == (4, 100)
    done = bags.convert(tmp_path / 'data.bin', tmp_path / 'small', link=link, shard_size=1500)
    assert done.shards > 1
    _, rows = rows_of(tmp_path / 'small')
    assert [row['tokens'] for row in rows] == [sequence for (sequence,) in documents]
    blocks = TokenSource.blocks

    def interrupted(source, start, digests):
        yield from itertools.islice(blocks(source, start, digests), 4)
        raise KeyboardInterrupt

    with monkeypatch.context() as context:
        context.setattr(token_source, 'BLOCK', 10)
        context.setattr(TokenSource, 'blocks', interrupted)
        with pytest.raises(KeyboardInterrupt):
            bags.convert(tmp_path / 'data.bin', tmp_path / 'resumed', link=link, shard_length=30)
    assert len(bags.open(tmp_path / 'resumed', trust_links=True)) == 40
    done = bags.convert(tmp_path / 'data.bin', tmp_path / 'resumed', link=link, shard_length=30, resume=True)
    assert (done.shards, done.datapoints) == (4, 100)
    assert rows_of(tmp_path / 'resumed') == rows_of(tmp_path / 'small')
    with pytest.raises(ValueError, match='expected the spec of the other shards'):
        bags.convert(tmp_path / 'data.bin', tmp_path / 'out', link=link, by='sequence', resume=True)
    write_megatron(tmp_path / 'data.bin', documents[::-1])
    with pytest.raises(ValueError, match='has changed since the earlier run'):
        bags.convert(tmp_path / 'data.bin', tmp_path / 'out', link=link, resume=True)


def test_an_update_adds_new_files(tmp_path):
    (tmp_path / 'data').mkdir()
    write_megatron(tmp_path / 'data' / 'a.bin', [[[1]]])
    bags.convert(tmp_path / 'data', tmp_path / 'out', link=True, update=True)
    write_megatron(tmp_path / 'data' / 'b.bin', [[[2, 3]]])
    done = bags.convert(tmp_path / 'data', tmp_path / 'out', link=True, update=True)
    assert done.datapoints == 2
    assert [row['tokens'] for row in rows_of(tmp_path / 'out')[1]] == [[1], [2, 3]]
    write_megatron(tmp_path / 'data' / 'a.bin', [[[1, 1]]])
    with pytest.raises(ValueError, match=r'a\.bin has changed'):
        bags.convert(tmp_path / 'data', tmp_path / 'out', link=True, update=True)


# Indices that lie.


def assign(position, value):
    def change(table):
        table[position] = value

    return change


@pytest.mark.parametrize(
    ('changes', 'message'),
    [
        (
            {'lengths': assign(3, 900)},
            r'sequence 3, in document 3: .* overlap|sequence 3, in document 3: has 900',
        ),
        (
            {'lengths': assign(-1, 900)},
            r'sequence 6, in document 4: has 900 tokens of uint16 from byte 14 on',
        ),
        ({'lengths': assign(2, -1)}, r'sequence 2, in document 2: expected a number of tokens, got -1'),
        ({'lengths': assign(0, 2**31 - 1)}, r'sequence 0, in document 0: has 2147483647 tokens'),
        (
            {'pointers': assign(2, 2)},
            r'sequence 2, in document 2: expected a pointer of at least 8, .* got 2',
        ),
        (
            {'pointers': assign(0, -8)},
            r'sequence 0, in document 0: expected a pointer of at least 0, .* got -8',
        ),
        ({'pointers': assign(-1, 2**63 - 1)}, r'sequence 6, in document 4: has 2 tokens'),
        ({'indices': assign(0, 1)}, r'expected document 0 to begin at sequence 0, got 1'),
        ({'indices': assign(2, 1)}, r'document 2: expected its first sequence in \[2, 7\], got 1'),
        ({'indices': assign(3, 2**62)}, r'document 3: expected its first sequence in \[2, 7\]'),
        ({'indices': assign(3, -(2**63))}, r'document 3: expected its first sequence in \[2, 7\]'),
        ({'indices': assign(-1, 6)}, r'expected the documents to end at sequence 7, got 6'),
    ],
)
@pytest.mark.parametrize('block', [1, 2, 1 << 20])
def test_an_index_that_lies(tmp_path, monkeypatch, changes, message, block):
    monkeypatch.setattr(megatron, 'BLOCK', block)
    write_megatron(tmp_path / 'data.bin', DOCUMENTS, **changes)
    for by in ('document', 'sequence'):
        with pytest.raises(bags.SourceError, match=r'data\.idx: ' + f'(?:{message})'):
            open_source(tmp_path / 'data.bin', by=by)


@pytest.mark.parametrize(
    ('offset', 'data', 'message'),
    [
        (0, b'TNTIDX', 'expected an index of Megatron'),
        (9, bytes([2]), 'expected version 1, got 2'),
        (17, bytes([9]), 'expected the code of a dtype, 1 to 8, got 9'),
        (17, bytes([0]), 'expected the code of a dtype, 1 to 8, got 0'),
        (18, struct.pack('<Q', 6), r'expected \d+ bytes for 6 sequences'),
        (18, struct.pack('<Q', 2**64 - 1), 'got 18446744073709551615 sequences in'),
        (26, struct.pack('<Q', 2**40), 'got 1099511627776 document indices in'),
        (26, bytes(8), 'expected at least one document index, got none'),
    ],
)
def test_a_header_that_lies(tmp_path, offset, data, message):
    path = write_megatron(tmp_path / 'data.bin', DOCUMENTS).with_suffix('.idx')
    content = bytearray(path.read_bytes())
    content[offset : offset + len(data)] = data
    path.write_bytes(content)
    with pytest.raises(
        bags.SourceError, match=r'data\.(idx: |bin: expected the index)' + f'.*{message}|{message}'
    ):
        open_source(tmp_path / 'data.bin', format='megatron')


def test_every_cut_of_the_index(tmp_path, data):
    path = data.with_suffix('.idx')
    content = path.read_bytes()
    for size in range(len(content)):
        path.write_bytes(content[:size])
        with pytest.raises(bags.SourceError, match=r'data\.idx: '):
            open_source(data, format='megatron')
    path.write_bytes(content + bytes(3))
    with pytest.raises(bags.SourceError, match='or its counts are wrong'):
        open_source(data, format='megatron')


def test_every_byte_of_the_index(tmp_path, data):
    """A changed byte is an error, or the documents are still ranges of the file."""
    path = data.with_suffix('.idx')
    content, size = path.read_bytes(), data.stat().st_size
    for offset in range(len(content)):
        path.write_bytes(content[:offset] + bytes([content[offset] ^ 0x41]) + content[offset + 1 :])
        try:
            (file,) = open_source(data, format='megatron')._files
        except bags.SourceError:
            continue
        starts, stops = file.ranges(0, file.count)
        assert (starts <= stops).all()
        assert (stops <= size).all()


def test_files_that_are_missing(tmp_path, data):
    data.with_suffix('.idx').unlink()
    with pytest.raises(bags.SourceError, match=r'data\.bin: expected data\.idx beside it, .* got none'):
        open_source(data, format='megatron')
    with pytest.raises(
        bags.SourceError, match=r'data\.bin: expected the index data\.idx .*, or the header of llm\.c'
    ):
        open_source(data)
    for options in ({}, {'format': 'megatron'}):
        with pytest.raises(FileNotFoundError):
            open_source(tmp_path / 'other.bin', **options)
    (tmp_path / 'folder.bin').mkdir()
    with pytest.raises(FileNotFoundError, match='no files to import'):
        open_source(tmp_path / 'folder.bin')


def test_a_cut_file_of_tokens(tmp_path, data):
    data.write_bytes(data.read_bytes()[:-1])
    with pytest.raises(
        bags.SourceError, match=r'data\.idx: sequence 6, in document 4: has 2 tokens .* has 17 bytes'
    ):
        open_source(data)


def test_gaps(tmp_path):
    """Bytes between documents are in no document; within a document, its sequences cannot be joined."""
    write_megatron(tmp_path / 'data.bin', [[[1, 2, 9]], [[3], [4]]], lengths=assign(0, 2))
    done = bags.convert(tmp_path / 'data.bin', tmp_path / 'out', link=True)
    assert [row['tokens'] for row in rows_of(tmp_path / 'out')[1]] == [[1, 2], [3, 4]]
    assert any('2 bytes belong to no sequence' in note for note in done.notes)
    write_megatron(tmp_path / 'data.bin', [[[0]], [[1, 2, 9], [3]]], lengths=assign(1, 2))
    expected = (
        r'document 1: expected sequence 2 to follow the one before it at byte 6, got 8: .*--by sequence'
    )
    with pytest.raises(bags.SourceError, match=expected):
        open_source(tmp_path / 'data.bin')
    bags.convert(tmp_path / 'data.bin', tmp_path / 'sequences', link=True, by='sequence')
    assert [row['tokens'] for row in rows_of(tmp_path / 'sequences')[1]] == [[0], [1, 2], [3]]


def test_damaged_files_are_left_out(tmp_path):
    for number in range(3):
        write_megatron(tmp_path / f'{number}.bin', [[[number]]])
    (tmp_path / '1.idx').write_bytes(b'MMIDIDX\0\0')
    with pytest.raises(bags.SourceError, match=r'1\.idx: expected a header of 34 bytes'):
        open_source(tmp_path)
    done = bags.convert(
        [tmp_path / f'{number}.bin' for number in range(3)], tmp_path / 'out', on_error='skip'
    )
    assert (done.datapoints, len(done.skipped)) == (2, 1)


# Detection and options.


def test_what_fits_two_formats_is_refused(tmp_path):
    write_llm_c(tmp_path / 'data.bin', [1, 2, 3])
    data = (tmp_path / 'data.bin').read_bytes()
    write_megatron(tmp_path / 'data.bin', [[np.frombuffer(data, 'u2').tolist()]])
    with pytest.raises(
        bags.SourceError, match=r"is both tokens of Megatron.*and of llm\.c.*format='megatron'"
    ):
        open_source(tmp_path / 'data.bin')
    assert open_source(tmp_path / 'data.bin', format='megatron').count == 1
    assert open_source(tmp_path / 'data.bin', format='tokens', length=2).count == 2


def test_options_of_other_formats(tmp_path, data):
    for option in ({'dtype': 'uint16'}, {'end': 3}, {'length': 3}, {'offsets': 'x.npy'}):
        (name,) = option
        with pytest.raises(
            ValueError, match=f"{name}: expected none for Megatron, .*format='tokens' takes it"
        ):
            open_source(data, **option)
    (tmp_path / 'photos').mkdir()
    (tmp_path / 'photos' / 'a.txt').write_text('a')
    with pytest.raises(ValueError, match="by: expected none for the format 'folder'"):
        open_source(tmp_path / 'photos', by='sequence')
    with pytest.raises(
        bags.SpecError, match=r'expected the type of the tokens of the source, array\(uint16,\?\)'
    ):
        bags.convert(data, tmp_path / 'out', spec={'tokens': 'array(int16,?)'})


def test_folders_of_other_files_are_as_before(tmp_path):
    """A `.bin` without an index is a file of a folder; an index without it is no index of Megatron."""
    for name in ('a.bin', 'b.bin', 'c.txt'):
        (tmp_path / name).write_bytes(b'1')
    assert open_source(tmp_path).format == 'folder'
    (tmp_path / 'c.txt').unlink()
    assert open_source(tmp_path).format == 'folder'


def test_the_command(tmp_path, data):
    run = CliRunner()
    result = run.invoke(
        build_app(), ['import', str(data), str(tmp_path / 'out'), '--link', '--by', 'sequence']
    )
    assert result.exit_code == 0, result.output
    assert [row['tokens'] for row in rows_of(tmp_path / 'out')[1]] == SEQUENCES
    result = run.invoke(build_app(), ['export', str(tmp_path / 'out'), str(tmp_path / 'back'), '--format',
                                      'megatron', '--trust-links', str(tmp_path)])  # fmt: skip
    assert result.exit_code == 0, result.output
    assert (tmp_path / 'back' / 'tokens.bin').read_bytes() == data.read_bytes()
    result = run.invoke(build_app(), ['import', str(data), str(tmp_path / 'again'), '--end', '3'])
    assert result.exit_code != 0
