"""Batches of pieces: each field with elements has those of the piece."""

import struct

import numpy as np
import pytest

import bags
from bags.samplers import Mixture, Packed, Pieces

SPEC = {'id': 'int(8)', 'tokens': 'array(uint16,?)', 'mask': 'int(1)[]', 'tags': 'array(float32,?,2)?'}
LENGTHS = np.random.default_rng(0).integers(0, 40, 60)


def row_of(index):
    length = int(LENGTHS[index])
    tags = None if index % 3 else np.arange(2 * length, dtype='f4').reshape(-1, 2) + index
    tokens = np.arange(length, dtype='u2') + 100 * index
    return {'id': index, 'tokens': tokens, 'mask': tokens % 2, 'tags': tags}


@pytest.fixture(params=['stored', 'zstd'], scope='module')
def dataset(request, tmp_path_factory):
    path = tmp_path_factory.mktemp('pieces') / 'dataset'
    options = {'compression': ('tokens', 'mask')} if request.param == 'zstd' else {}
    with bags.ShardedDatasetWriter(path, SPEC, shard_length=25, **options) as writer:
        for index in range(len(LENGTHS)):
            writer.append(row_of(index))
    return bags.open(path)


def rows_of(batches):
    """Returns the rows of batches: the datapoint, its piece, and all fields."""
    return [
        {
            'index': int(batch['_datapoint'][row]),
            'start': int(batch['_start'][row]),
            **{name: batch[name][row] for name in SPEC},
        }
        for batch in batches
        for row in range(len(batch['_datapoint']))
    ]


def check(rows, overlap=0):
    """Checks that rows have the parts of their datapoints, and all elements as often as the overlap says."""
    seen = [np.zeros(length, int) for length in LENGTHS]
    for row in rows:
        whole, start = row_of(row['index']), row['start']
        part = slice(start, start + len(row['tokens']))
        seen[row['index']][part] += 1
        assert row['id'] == row['index']
        assert row['tokens'].dtype == np.uint16
        assert (row['tokens'] == whole['tokens'][part]).all()
        assert (row['mask'] == whole['mask'][part]).all()
        assert (row['tags'] is None) == (whole['tags'] is None)
        if row['tags'] is not None:
            assert (row['tags'] == whole['tags'][part]).all()
    for count, length in zip(seen, LENGTHS.tolist(), strict=True):
        pieces = max(1, -(-(length - overlap) // (16 - overlap)))
        assert count.min(initial=1) >= 1
        assert count.sum() == length + (pieces - 1) * overlap


@pytest.mark.parametrize('overlap', [0, 1])
def test_all_fields_with_elements_are_cut_alike(dataset, overlap):
    sampler = Packed(16, dataset.lengths('tokens', of='elements'), longer='cut', overlap=overlap)
    loader = bags.Loader(dataset, 3, sampler=sampler, workers=0)
    batches = list(loader)
    check(rows_of(batches), overlap)
    for batch in batches:
        assert batch['_start'].dtype == np.int64
        lengths = [len(tokens) for tokens in batch['tokens']]
        assert np.bincount(batch['_bin'], lengths).max() <= 16
    # Workers read several batches together, or one at a time.
    ahead = list(bags.Loader(dataset, 3, sampler=sampler, workers=2, prefetch=1))
    assert [batch['_start'].tolist() for batch in ahead] == [batch['_start'].tolist() for batch in batches]
    assert loader.indices(0, 0).tolist() == batches[0]['_datapoint'].tolist()


def test_parts_of_views_and_mixtures(dataset):
    lengths = dataset.lengths('tokens', of='elements')
    halves = [dataset[:30], dataset[30:]]
    sources = [Packed(16, part, longer='cut') for part in (lengths[:30], lengths[30:])]
    sampler = Mixture(sources, weights=[1, 1], samples=200)
    rows = rows_of(bags.Loader(bags.concat(halves), 4, sampler=sampler, workers=0))
    for row in rows:
        whole = row_of(row['index'])['tokens'][row['start'] :][: len(row['tokens'])]
        assert (row['tokens'] == whole).all()
    assert {row['index'] for row in rows} == set(range(60))


@pytest.mark.parametrize('hosts', [1, 3])
def test_a_run_resumes_in_the_middle_of_a_schedule_on_other_hosts(dataset, hosts):
    lengths = dataset.lengths('tokens', of='elements')
    sources = [Packed(16, lengths[:30], longer='cut'), Packed(16, lengths[30:], longer='cut')]
    sampler = Mixture(sources, weights={0: [3, 1], 40: [1, 1]}, samples=96)
    both = bags.concat([dataset[:30], dataset[30:]])

    def run(hosts, state=None):
        """Returns the pieces that the hosts read at each step."""
        loaders = [
            bags.Loader(
                both, 12 // hosts, sampler=sampler, rank=rank, world_size=hosts, workers=0, epochs=2,
                last_batch='drop', fields='tokens',
            )
            for rank in range(hosts)
        ]  # fmt: skip
        for loader in loaders:
            if state is not None:
                loader.load_state_dict(state)
        return [
            [
                piece
                for batch in batches
                for piece in zip(*map(np.ndarray.tolist, (batch['_datapoint'], batch['_start'])), strict=True)
            ]
            for batches in zip(*loaders, strict=True)
        ]

    expected = run(2)
    iterators = [
        iter(
            bags.Loader(
                both, 6, sampler=sampler, rank=rank, world_size=2, workers=0, epochs=2, last_batch='drop'
            )
        )
        for rank in range(2)
    ]
    for step in range(len(expected)):
        assert iterators[0].state_dict() == iterators[1].state_dict()
        if step % 4 == 1:
            assert run(hosts, iterators[0].state_dict()) == expected[step:]
        for iterator in iterators:
            next(iterator)


class OnePiece:
    """A sampler of a single piece."""

    datapoints = 60

    def __init__(self, index, start, stop, count=None):
        self.piece = index, start, stop, count

    def __len__(self):
        return 1

    def __repr__(self):
        return f'OnePiece{self.piece}'

    def take(self, epoch, positions):
        index, start, stop, count = (
            np.full(len(positions), 0 if part is None else part) for part in self.piece
        )
        counts = None if self.piece[3] is None else count
        return Pieces(index, np.arange(len(positions) + 1), starts=start, stops=stop, element_counts=counts)


def test_pieces_that_do_not_fit_name_the_datapoint_and_the_field(dataset):
    index = int((LENGTHS > 8).argmax())
    length = int(LENGTHS[index])

    def read(*piece, rows=dataset, **options):
        return next(iter(bags.Loader(rows, 1, sampler=OnePiece(*piece), workers=0, **options)))

    assert read(index, 2, -1)['tokens'][0].tolist() == row_of(index)['tokens'][2:].tolist()
    assert read(index, 0, 4)['mask'][0].tolist() == row_of(index)['mask'][:4].tolist()
    assert read(index, 0, length, length)['_start'].tolist() == [0]
    with pytest.raises(
        ValueError, match=rf"datapoint {index}, field 'tokens': expected the 99 .* got {length}"
    ):
        read(index, 2, 9, 99)
    for piece in ((index, 2, length + 1), (index, -3, 4), (index, 5, 4)):
        with pytest.raises(IndexError, match=rf"datapoint {index}, field 'tokens': expected a piece of its"):
            read(*piece)
    with pytest.raises(TypeError, match="expected 'mask' as a whole, since the sampler cuts datapoints"):
        read(index, 2, 9, fields={'mask': slice(3)})
    # A field without elements in a datapoint stays empty; plain fields are whole.
    assert read(index, 2, 9, fields='id')['id'].tolist() == [index]
    rows = [{'tokens': np.arange(5)}] * 60
    assert read(index, 0, -1, rows=rows)['tokens'].shape == (1, 5)
    with pytest.raises(
        TypeError, match=f'datapoint {index}: the sampler cuts it, and list of 60 rows has no parts'
    ):
        read(index, 2, 9, rows=rows)
    # An error that is not of the data is raised, also if damaged datapoints are skipped.
    with pytest.raises(ValueError, match='expected the 99'):
        read(index, 2, 9, 99, on_error='skip')


@pytest.mark.parametrize(('overlap', 'cap'), [(0, None), (1, 3)])
def test_an_epoch_over_linked_tokens_has_each_token_as_often_as_the_overlap_says(tmp_path, overlap, cap):
    """The oracle is the file of tokens itself."""
    lengths = np.random.default_rng(3).integers(0, 150, 200).astype('<i4')
    tokens = np.arange(lengths.sum()).astype('<u2')
    ends = np.cumsum(lengths, dtype=np.int64)
    tokens.tofile(tmp_path / 'data.bin')
    (tmp_path / 'data.idx').write_bytes(
        b'MMIDIDX\0\0'
        + struct.pack('<QBQQ', 1, 8, len(lengths), len(lengths) + 1)
        + lengths.tobytes()
        + ((ends - lengths) * 2).astype('<i8').tobytes()
        + np.arange(len(lengths) + 1, dtype='<i8').tobytes()
    )
    bags.convert(tmp_path / 'data.bin', tmp_path / 'tokens', link=True)
    dataset = bags.open(tmp_path / 'tokens', trust_links=True)
    found = dataset.lengths('tokens', of='elements')
    assert found.tolist() == lengths.tolist()
    sampler = Packed(64, found, longer='cut', overlap=overlap, max_datapoints=cap)
    seen = np.zeros(len(tokens), int)
    for batch in bags.Loader(dataset, 5, sampler=sampler, collate=bags.bins(flat=True)):
        starts = (ends - lengths)[batch['_datapoint']] + batch['_start']
        for start, first, stop in zip(
            starts.tolist(), batch['cu_seqlens'], batch['cu_seqlens'][1:], strict=False
        ):
            count = int(stop - first)
            assert (batch['tokens'][first:stop] == tokens[start : start + count]).all()
            seen[start : start + count] += 1
    expected = np.ones(len(tokens), int)
    for end, length in zip(ends.tolist(), lengths.tolist(), strict=True):
        for at in range(64 - overlap, length - overlap, 64 - overlap):
            expected[end - length + at : end - length + at + overlap] += 1
    assert (seen == expected).all()
