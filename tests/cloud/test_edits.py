"""Edits of datasets on object stores: random sequences of edits, and the requests of an edit."""

import uuid

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import bags
from bags.storage import store_for
from tests.views.sequences import COUNT, SPEC, Model, apply, check, row


@pytest.fixture
def source(s3_storage):
    """The URL of a dataset, and the options to open it and links to it."""
    root = f'{s3_storage.root}/edits/{uuid.uuid4().hex}/source'
    options = {s3_storage.root: s3_storage.options}
    with bags.ShardedDatasetWriter(root, SPEC, shard_length=6, storage_options=options) as writer:
        for index in range(COUNT):
            writer.append(row(index))
    bags.create_index(root, 'id', storage_options=options)
    return root, {'storage_options': options}


def objects(root, options):
    store, path = store_for(root, None, options['storage_options'][root.partition('/edits')[0]])
    paths = (store.join(path, folder) for folder in ('000000', '000001'))
    return {
        name: store.read(name)
        for each in paths
        for name in (store.join(each, file) for file in store.names(each))
    }


@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_edits(tmp_path_factory, source, data):
    root, options = source
    with bags.open(root, **options) as remote:
        model = Model([row(index) for index in range(COUNT)], SPEC, {'id'})
        scratch = tmp_path_factory.mktemp('saved')
        dataset, model = apply(data.draw, remote, model, (scratch, options), 5)
        check(data.draw, dataset, model)


def test_a_saved_edit_in_the_bucket(source, proxy, s3_storage):
    root, options = source
    before = objects(root, options)
    target = root.replace('source', 'clean')
    through = {'storage_options': s3_storage.through(proxy)}
    with bags.open(root, **through) as remote:
        view = remote.drop([3]).rename({'blob': 'image'}).update({0: {'image': b'new', 'text': 'fixed'}})
        view.save(target, link=['image', 'vector', 'parts'], **options)
        with proxy.counted() as requests:
            # One row takes the requests that it takes without edits.
            assert view[0]['image'] == b'new'
            remote[5]
            assert view[4]['text'] == 'text 1'
        assert len(requests) <= 12
    with bags.open(target, **options) as clean, bags.open(root, **options) as remote:
        assert len(clean) == COUNT - 1
        assert clean[0]['image'] == b'new'
        assert clean.records('image')[5] == remote.records('blob')[6]
        assert clean.diff(remote.rename({'blob': 'image'}), on='id').added.tolist() == [3]
    assert objects(root, options) == before
