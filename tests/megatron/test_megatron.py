"""Files of tokens beside Megatron-Core: `make test-megatron`."""

import numpy as np
import pytest

import bags

torch = pytest.importorskip('torch')
indexed_dataset = pytest.importorskip('megatron.core.datasets.indexed_dataset')

pytestmark = pytest.mark.filterwarnings('ignore::DeprecationWarning', 'ignore::ResourceWarning')
DTYPES = [np.uint8, np.int8, np.int16, np.int32, np.int64, np.float64, np.float32, np.uint16]


def build(prefix, documents, dtype, modes=None):
    """Writes documents of sequences with Megatron's builder."""
    builder = indexed_dataset.IndexedDatasetBuilder(
        f'{prefix}.bin', dtype=dtype, multimodal=modes is not None
    )
    first = 0
    for sequences in documents:
        lengths = list(map(len, sequences))
        tokens = torch.tensor([token for sequence in sequences for token in sequence], dtype=torch.int64)
        own = None if modes is None else modes[first : first + len(sequences)]
        builder.add_document(tokens, lengths, own)
        first += len(sequences)
    builder.finalize(f'{prefix}.idx')


def random_documents(seed, count=200):
    rng = np.random.default_rng(seed)
    return [
        [rng.integers(0, 120, rng.integers(0, 30)).tolist() for _ in range(rng.integers(0, 4))]
        for _ in range(count)
    ]


@pytest.mark.parametrize('dtype', DTYPES)
@pytest.mark.parametrize('multimodal', [False, True])
@pytest.mark.parametrize('link', [True, False])
def test_files_of_the_builder(tmp_path, dtype, multimodal, link):
    documents = random_documents(0)
    sequences = [sequence for document in documents for sequence in document]
    modes = [number % 2 for number in range(len(sequences))] if multimodal else None
    build(tmp_path / 'data', documents, dtype, modes)
    theirs = indexed_dataset.IndexedDataset(str(tmp_path / 'data'), multimodal=multimodal)
    bags.convert(tmp_path / 'data.bin', tmp_path / 'sequences', link=link, by='sequence')
    ours = bags.open(tmp_path / 'sequences', trust_links=True)
    assert len(ours) == len(theirs) == len(sequences)
    for number in range(len(ours)):
        tokens, mode = theirs[number] if multimodal else (theirs[number], None)
        found = ours[number]
        assert found['tokens'].dtype == tokens.dtype == dtype
        assert np.array_equal(found['tokens'], tokens)
        assert found.get('mode') == mode
        start = len(tokens) // 3
        part = theirs.get(number, offset=start)
        assert np.array_equal(
            ours[number, {'tokens': slice(start, None)}]['tokens'], part[0] if multimodal else part
        )
    assert np.array_equal(ours.lengths('tokens', of='elements'), theirs.sequence_lengths)
    bags.convert(tmp_path / 'data.bin', tmp_path / 'documents', link=link)
    ours = bags.open(tmp_path / 'documents', trust_links=True)
    bounds = theirs.document_indices
    assert len(ours) == len(documents) == len(bounds) - 1
    for number in range(len(ours)):
        joined = [theirs.get(sequence) for sequence in range(bounds[number], bounds[number + 1])]
        joined = [sequence for sequence, _ in joined] if multimodal else joined
        assert np.array_equal(ours[number]['tokens'], np.concatenate([np.empty(0, dtype), *joined]))


@pytest.mark.parametrize('dtype', DTYPES)
@pytest.mark.parametrize('multimodal', [False, True])
def test_exported_files(tmp_path, dtype, multimodal):
    documents = [document for document in random_documents(1) if document]
    sequences = [sequence for document in documents for sequence in document]
    spec = {'tokens': f'array({np.dtype(dtype).name},?)', 'document': 'int(8)'}
    spec |= {'mode': 'int(1)'} if multimodal else {}
    owners = [number for number, document in enumerate(documents) for _ in document]
    with bags.DatasetWriter(tmp_path / 'a', spec) as writer:
        for number, (sequence, owner) in enumerate(zip(sequences, owners, strict=True)):
            row = {'tokens': np.array(sequence, dtype), 'document': owner, 'mode': number % 3}
            writer.append({name: row[name] for name in spec})
    bags.export(tmp_path / 'a', tmp_path / 'out', format='megatron')
    theirs = indexed_dataset.IndexedDataset(str(tmp_path / 'out' / 'tokens'), multimodal=multimodal)
    assert len(theirs) == len(sequences)
    for number, sequence in enumerate(sequences):
        tokens, mode = theirs[number] if multimodal else (theirs[number], None)
        assert tokens.dtype == dtype
        assert tokens.tolist() == sequence
        assert mode is None or mode == number % 3
    assert theirs.document_indices.tolist() == np.cumsum([0, *map(len, documents)]).tolist()
    # The same bytes as those of the builder.
    build(tmp_path / 'data', documents, dtype, [n % 3 for n in range(len(sequences))] if multimodal else None)
    for end in ('bin', 'idx'):
        own = (tmp_path / 'out' / f'tokens.{end}').read_bytes()
        assert own == (tmp_path / f'data.{end}').read_bytes()
