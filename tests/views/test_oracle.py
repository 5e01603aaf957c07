"""Every edit against plain lists: random sequences of edits, views and saves."""

import hashlib
import shutil

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import bags
from tests.views.sequences import COUNT, EDITS, SPEC, Model, apply, check, rename, row, save, update

few = settings(deadline=None, max_examples=20, suppress_health_check=list(HealthCheck))


def hashes(root):
    return {
        str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(root.rglob('*'))
        if path.is_file()
    }


@pytest.fixture(scope='module')
def sources(tmp_path_factory):
    """A folder and a dataset of shards, both with an index of keys, and the hashes of their files."""
    root = tmp_path_factory.mktemp('sources')
    for name, options in (('folder', {}), ('shards', {'shard_length': 4, 'checksum': True})):
        with bags.ShardedDatasetWriter(root / name, SPEC, compression={'parts': 3}, **options) as writer:
            for index in range(COUNT):
                writer.append(row(index))
        bags.create_index(root / name, 'id')
    return root, hashes(root)


def run(data, sources, steps):
    root, before = sources
    draw = data.draw
    scratch = root.parent / f'{root.name}-saved'
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir()
    with bags.open(root / draw(st.sampled_from(['folder', 'shards']))) as source:
        model = Model([row(index) for index in range(COUNT)], SPEC, {'id'})
        dataset, model = apply(draw, source, model, (scratch, {}), steps)
        check(draw, dataset, model)
        if model.rows:
            bags.copy(dataset, scratch / 'last')
            with bags.open(scratch / 'last') as saved:
                check(draw, saved, model.copy(keys=()))
                assert dataset.diff(saved).is_empty
                options = {'shuffle': True, 'seed': 5, 'workers': 0}
                order, other = (
                    [each.tolist() for batch in bags.Loader(found, 2, **options) for each in batch['id']]
                    if 'id' in model.types and model.types['id'] == 'int(8)'
                    else []
                    for found in (dataset, saved)
                )
                assert order == other
    return before


@few
@given(st.data())
def test_edits(sources, data):
    before = run(data, sources, 6)
    assert hashes(sources[0]) == before


@pytest.mark.slow
@settings(few, max_examples=300)
@given(st.data())
def test_more_edits(sources, data):
    before = run(data, sources, 9)
    assert hashes(sources[0]) == before


@pytest.mark.campaign
@settings(few, max_examples=10_000)
@given(st.data())
def test_edits_at_length(sources, data):
    run(data, sources, 12)


@settings(few, max_examples=2)
@given(st.data())
def test_a_hundred_edits(sources, tmp_path_factory, data):
    scratch = tmp_path_factory.mktemp('hundred'), {}
    with bags.open(sources[0] / 'shards') as source:
        dataset, model = source, Model([row(index) for index in range(COUNT)], SPEC, {'id'})
        for _ in range(50):
            dataset, model = update(data.draw, *rename(data.draw, dataset, model, None), None)
        check(data.draw, dataset, model)
        # They are one edit of the dataset.
        assert dataset.datasets == [source]
        dataset, model = save(data.draw, dataset, model, scratch)
        for _ in range(50):
            step = data.draw(st.sampled_from([*EDITS[:8], save]))
            dataset, model = step(data.draw, dataset, model, scratch)
        check(data.draw, dataset, model)
