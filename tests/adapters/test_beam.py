"""Beam's direct runner reads and writes bags and datasets, in one process and in several."""

import os
import random

import numpy as np
import pytest

beam = pytest.importorskip('apache_beam')

from apache_beam.options.pipeline_options import PipelineOptions  # noqa: E402
from apache_beam.testing.util import assert_that, equal_to  # noqa: E402

import bags  # noqa: E402
from bags.beam import (  # noqa: E402  # noqa: E402
    ReadDataset,
    ReadFromBag,
    ReadFromBagz,
    WriteDataset,
    WriteToBag,
    WriteToBagz,
    bagzio,
    sacklio,
)

pytestmark = pytest.mark.filterwarnings('ignore')
MODES = ['in_memory', 'multi_processing']


def pipeline(mode='in_memory', workers=2):
    options = PipelineOptions(
        [f'--direct_running_mode={mode}', f'--direct_num_workers={1 if mode == "in_memory" else workers}']
    )
    return beam.Pipeline('DirectRunner', options=options)


def records(count, seed=0):
    rng = random.Random(seed)
    return [b'%d:' % i + rng.randbytes(rng.choice((0, 3, 50, 2000))) for i in range(count)]


@pytest.mark.parametrize(
    ('name', 'mode'),
    [
        ('x@3.bagz', 'multi_processing'),
        ('x@*.bag', 'in_memory'),
        ('x@0.bagz', 'in_memory'),
        ('x.bag@0', 'in_memory'),
        ('x@2_part.extra.bag', 'in_memory'),
    ],
)
def test_records_there_and_back(mode, name, tmp_path):
    expected = records(500)
    with pipeline(mode) as p:
        p | beam.Create(expected) | WriteToBag(tmp_path / name)
    written = sorted(os.listdir(tmp_path))
    if name == 'x@3.bagz':
        assert written == [f'x-{i:05}-of-00003.bagz' for i in range(3)]
    if name == 'x@0.bagz':
        assert written == ['x.bagz']
    if name == 'x.bag@0':
        assert written == ['x.bag']
    pattern = ','.join(str(tmp_path / each) for each in written)
    assert sorted(bags.bag.Reader(pattern).read()) == sorted(expected)
    with pipeline(mode) as p:
        assert_that(p | ReadFromBag(pattern), equal_to(expected))


def test_bagz_names_and_coders(tmp_path):
    from apache_beam.coders import StrUtf8Coder

    assert ReadFromBagz is ReadFromBag
    assert bagzio.ReadFromBagz is sacklio.ReadFromSackli is ReadFromBag
    assert bagzio.WriteToBagz is sacklio.WriteToSackli is WriteToBag
    assert WriteToBagz is WriteToBag
    with pipeline() as p:
        p | beam.Create(['ä', 'b']) | WriteToBagz(tmp_path / 'x@1.bagz', coder=StrUtf8Coder())
    with pipeline() as p:
        assert_that(p | ReadFromBagz(str(tmp_path / 'x@*.bagz'), coder=StrUtf8Coder()), equal_to(['ä', 'b']))


def test_options_reach_the_writer_and_the_reader(tmp_path):
    options = {'limits_placement': 'separate', 'compression': bags.bag.CompressionZstd(19)}
    with pipeline() as p:
        p | beam.Create([b'a' * 1000] * 9) | WriteToBag(tmp_path / 'x@0.bag', **options)
    assert sorted(os.listdir(tmp_path)) == ['limits.x.bag', 'x.bag']
    with pipeline() as p:
        found = p | ReadFromBag(tmp_path / 'x.bag', limits_placement='separate', compression='zstd')
        assert_that(found, equal_to([b'a' * 1000] * 9))


def test_nothing_is_opened_while_the_pipeline_is_built(tmp_path):
    p = pipeline()
    p | ReadFromBag(tmp_path / 'not there.bagz')
    p | 'other' >> ReadDataset(tmp_path / 'not there')
    p | beam.Create([]) | WriteToBag(tmp_path / 'folder' / 'x@2.bag')
    assert not list(tmp_path.iterdir())


def test_paths_of_another_form_are_refused(tmp_path):
    for name in ('x.bag', 'x@a.bag', 'x@3.txt', 'x@3'):
        with pytest.raises(ValueError, match='expected name@N'):
            WriteToBag(tmp_path / name)


def test_what_exists_is_left_alone(tmp_path):
    with bags.bag.Writer(tmp_path / 'x-00001-of-00002.bag') as writer:
        writer.write(b'old')
    with pytest.raises(Exception, match='exists already'), pipeline() as p:
        p | beam.Create([b'new']) | WriteToBag(tmp_path / 'x@*.bag')
    assert bags.bag.Reader(tmp_path / 'x-00001-of-00002.bag').read() == [b'old']
    with bags.DatasetWriter(tmp_path / 'dataset', {'id': 'int'}) as writer:
        writer.append({'id': 1})
    with pytest.raises(Exception, match='exists already'), pipeline() as p:
        p | beam.Create([{'id': 2}]) | WriteDataset(tmp_path / 'dataset', {'id': 'int'})


def test_no_elements_make_empty_bags_and_datasets(tmp_path):
    with pipeline() as p:
        p | 'a' >> beam.Create([]) | WriteToBag(tmp_path / 'x@2.bag')
        p | 'b' >> beam.Create([]) | 'd' >> WriteDataset(tmp_path / 'd', {'id': 'int'})
    assert len(bags.bag.Reader(tmp_path / 'x@2.bag')) == 0
    with bags.open(tmp_path / 'd') as dataset:
        assert len(dataset) == 0


SPEC = {'id': 'int(8)', 'text': 'utf8', 'vector': 'array(float32,8)', 'words': 'utf8[]'}


def datapoint(i):
    return {
        'id': i,
        'text': f'text {i}' * (i % 7),
        'vector': np.full(8, i, np.float32),
        'words': [f'{i}', 'x'][: i % 3],
    }


def same(found, expected):
    found = sorted(found, key=lambda row: row['id'])
    assert len(found) == len(expected)
    for row, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(row.pop('vector'), other.pop('vector'))
        assert row == other
    return True


@pytest.mark.parametrize('mode', MODES)
def test_datasets_there_and_back(mode, tmp_path):
    with pipeline(mode) as p:
        points = p | beam.Create(range(2000)) | beam.Reshuffle() | beam.Map(datapoint)
        points | WriteDataset(tmp_path / 'd', SPEC, shard_size=20_000, compression=['text'])
    names = sorted(os.listdir(tmp_path / 'd'))
    assert names == [f'{i:06}' for i in range(len(names))]
    assert len(names) > 2
    with bags.open(tmp_path / 'd') as dataset:
        same(list(dataset), [datapoint(i) for i in range(2000)])
    with pipeline(mode) as p:
        assert_that(
            p
            | ReadDataset(tmp_path / 'd', ('id', 'words'))
            | beam.Map(lambda row: (row['id'], tuple(row['words']))),
            equal_to([(i, tuple(datapoint(i)['words'])) for i in range(2000)]),
        )


@pytest.fixture(params=['memory', 'local', 's3'])
def storage(request, tmp_path):
    """Yields a folder on a store, and the storage options."""
    if request.param != 's3':
        yield f'{request.param}://{tmp_path}', {}
        return
    pytest.importorskip('moto')
    from tests.servers import s3_server

    with s3_server() as url:
        yield 's3://bucket/x', {'key': 'a', 'secret': 'b', 'endpoint_url': url}


def test_on_stores(storage):
    folder, options = storage
    with pipeline() as p:
        points = p | beam.Create(range(500)) | beam.Reshuffle() | beam.Map(datapoint)
        points | WriteDataset(f'{folder}/d', SPEC, shard_size=10_000, storage_options=options)
    with pipeline() as p:
        points = p | ReadDataset(f'{folder}/d', storage_options=options)
        points | WriteDataset(f'{folder}/e', SPEC, storage_options=options)
    for name in 'de':
        with bags.open(f'{folder}/{name}', storage_options=options) as dataset:
            same(list(dataset), [datapoint(i) for i in range(500)])
    with pytest.raises(Exception, match='a dataset exists already'), pipeline() as p:
        p | beam.Create([datapoint(0)]) | WriteDataset(f'{folder}/d', SPEC, storage_options=options)
    with pipeline() as p:
        p | beam.Create(records(300)) | WriteToBag(f'{folder}/x@2.bagz', storage_options=options)
    with pipeline() as p:
        found = p | ReadFromBag(f'{folder}/x@*.bagz', storage_options=options)
        assert_that(found, equal_to(records(300)))
    with pytest.raises(TypeError, match='shard_size: expected an integer'):
        WriteDataset(f'{folder}/f', SPEC, shard_size='1GB')


class Failing(beam.DoFn):
    """Fails once for every n-th element; files mark the failures, since processes share no memory."""

    def __init__(self, folder, every):
        self.folder, self.every = folder, every

    def process(self, element):
        if element % self.every == 0:
            try:
                open(f'{self.folder}/{element}', 'x').close()
            except FileExistsError:
                pass
            else:
                raise RuntimeError(f'fails at {element} for the first time')
        yield datapoint(element)


def test_bundles_that_fail_and_are_tried_again_leave_nothing_behind(tmp_path):
    (tmp_path / 'failed').mkdir()
    failed = 0
    for _ in range(30):
        try:
            with pipeline() as p:
                points = p | beam.Create(range(300)) | beam.ParDo(Failing(str(tmp_path / 'failed'), 77))
                points | WriteDataset(tmp_path / 'd', SPEC)
            break
        except Exception as exc:
            assert 'fails at' in str(exc)  # noqa: PT017
            failed += 1
            # A failed pipeline leaves no partial dataset.
            with pytest.raises(FileNotFoundError):
                bags.open(tmp_path / 'd')
    assert failed
    with bags.open(tmp_path / 'd') as dataset:
        same(list(dataset), [datapoint(i) for i in range(300)])
    shards = [name for name in os.listdir(tmp_path / 'd') if not name.startswith('.')]
    assert shards == ['000000']


def test_a_sink_whose_bundles_are_written_twice_keeps_one(tmp_path):
    from bags.beam.datasets import DatasetSink
    from bags.dataset.format.options import WriterSettings

    sink = DatasetSink(str(tmp_path / 'd'), SPEC, None, WriterSettings())
    unfinished = sink.initialize_write()
    lost = sink.open_writer(unfinished, 'lost')
    lost.write(datapoint(0))
    del lost
    twice = sink.open_writer(unfinished, 'twice')
    twice.write(datapoint(0))
    twice.close()
    kept = sink.open_writer(unfinished, 'kept')
    kept.write(datapoint(0))
    results = [kept.close()]
    # Beam may repeat finalizing.
    assert list(sink.finalize_write(unfinished, results, None)) == [str(tmp_path / 'd' / '000000')]
    assert list(sink.finalize_write(unfinished, results, None)) == [str(tmp_path / 'd' / '000000')]
    assert os.listdir(tmp_path / 'd') == ['000000']
    with bags.open(tmp_path / 'd') as dataset:
        assert len(dataset) == 1


def test_options_reach_the_writer(tmp_path):
    options = {'checksum': True, 'metadata': {'made': 'here'}, 'shard_length': 4, 'compression': ['id']}
    with beam.Pipeline() as p:
        p | beam.Create(range(20)) | beam.Map(datapoint) | WriteDataset(tmp_path / 'd', SPEC, **options)
    with bags.open(tmp_path / 'd', checksum=True) as dataset:
        assert (len(dataset), dataset.metadata) == (20, {'made': 'here'})
        assert dataset.shards >= 5
    assert (tmp_path / 'd/000000/id.bagz').exists()
    for options, expected in [
        ({'resume': True}, 'resume: expected False: tasks write whole shards'),
        ({'mode': 'overwrite'}, "mode: expected 'create', got 'overwrite': tasks on several machines"),
        ({'metadata': {'fields': {'nope': {}}}}, 'nope'),
        ({'shard_lenght': 3}, "did you mean 'shard_length'"),
        ({'checksum': 'yes'}, 'checksum: expected True or False'),
        ({'linked_fields': ['nope']}, 'nope'),
    ]:
        with pytest.raises((TypeError, ValueError), match=expected):
            WriteDataset(tmp_path / 'e', SPEC, **options)


def test_links(tmp_path):
    (tmp_path / 'all').write_bytes(bytes(range(200)))
    rows = [{'id': n, 'blob': bags.Link(tmp_path / 'all', n, 3) if n % 3 else b'own'} for n in range(100)]
    with beam.Pipeline() as p:
        spec = {'id': 'int(8)', 'blob': 'bytes'}
        p | beam.Create(rows) | WriteDataset(tmp_path / 'd', spec, linked_fields=('blob',))
    assert (tmp_path / 'd/000000/blob.links').exists()
    with bags.open(tmp_path / 'd', trust_links=tmp_path / 'all') as dataset:
        found = {row['id']: bytes(row['blob']) for row in dataset}
    assert found == {n: bytes(range(n, n + 3)) if n % 3 else b'own' for n in range(100)}


@pytest.mark.parametrize('shape', ['even', 'growing', 'one large', 'random'])
def test_bundles_are_balanced_by_bytes(shape, tmp_path):
    rng = random.Random(1)
    sizes = {
        'even': [100] * 3000,
        'growing': [i // 10 for i in range(3000)],
        'one large': [100] * 1500 + [3000] + [100] * 1499,
        'random': [rng.choice((1, 10, 1000)) for _ in range(3000)],
    }[shape]
    for shard in range(3):
        with bags.bag.Writer(tmp_path / f'x-{shard:05}-of-00003.bag') as writer:
            for size in sizes[shard * 1000 : shard * 1000 + 1000]:
                writer.write(bytes(size))
    from apache_beam.coders import BytesCoder

    from bags.beam.records import BagSource

    source = BagSource(str(tmp_path / 'x@3.bag'), BytesCoder(), {})
    total = source.estimate_size()
    bundles = list(source.split(total // 10))
    check(bundles, sizes, 8)
    with bags.DatasetWriter(tmp_path / 'd', {'data': 'bytes', 'id': 'int(8)'}) as writer:
        for index, size in enumerate(sizes):
            writer.append({'data': bytes(size), 'id': index})
    from bags.beam.datasets import DatasetSource

    points = DatasetSource(str(tmp_path / 'd'), None, {})
    check(list(points.split(points.estimate_size() // 10)), sizes, 8 + 16 + 19)


def check(bundles, sizes, more):
    assert [each.start_position for each in bundles] == [0, *(each.stop_position for each in bundles[:-1])]
    assert bundles[-1].stop_position == len(sizes)
    taken = [sum(size + more for size in sizes[b.start_position : b.stop_position]) for b in bundles]
    assert len(taken) == 10
    assert max(taken) < 1.2 * sum(taken) / 10
    assert min(taken) > 0.8 * sum(taken) / 10


def test_ranges_are_split_while_they_are_read(tmp_path):
    from apache_beam.coders import BytesCoder
    from apache_beam.io import source_test_utils

    from bags.beam.records import BagSource

    with bags.bag.Writer(tmp_path / 'x.bag') as writer:
        for record in records(30):
            writer.write(record)
    source = BagSource(str(tmp_path / 'x.bag'), BytesCoder(), {})
    source_test_utils.assert_split_at_fraction_exhaustive(source, perform_multi_threaded_test=False)
    whole = (source, None, None)
    parts = [(b.source, b.start_position, b.stop_position) for b in source.split(3000)]
    source_test_utils.assert_sources_equal_reference_source(whole, parts)


def test_a_coder_that_fails_says_so(tmp_path):
    from apache_beam.coders import StrUtf8Coder

    with bags.bag.Writer(tmp_path / 'x.bag') as writer:
        writer.write(b'\xff')
    with pytest.raises(Exception, match='utf-8'), pipeline() as p:
        p | ReadFromBag(tmp_path / 'x.bag', coder=StrUtf8Coder())
    with pytest.raises(Exception, match="field 'id'"), pipeline() as p:
        p | beam.Create([{'id': 'no number'}]) | WriteDataset(tmp_path / 'd', {'id': 'int'})


@pytest.mark.slow
@pytest.mark.parametrize('mode', MODES)
def test_a_million_records(mode, tmp_path):
    with pipeline(mode) as p:
        numbers = p | beam.Create(range(1000)) | beam.Reshuffle()
        (
            numbers
            | beam.FlatMap(lambda k: (b'%d' % i for i in range(k * 1000, k * 1000 + 1000)))
            | WriteToBag(tmp_path / 'x@*.bagz')
        )
    with pipeline(mode) as p:
        count = p | ReadFromBag(str(tmp_path / 'x@*.bagz')) | beam.combiners.Count.Globally()
        assert_that(count, equal_to([1_000_000]))
    found = np.sort(np.array(list(map(int, bags.bag.Reader(tmp_path / 'x@*.bagz').read()))))
    np.testing.assert_array_equal(found, np.arange(1_000_000))
