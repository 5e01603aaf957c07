"""Tokens of Megatron-LM in an object store: their import, and the requests of a read."""

import uuid

import numpy as np

import bags
from bags.storage import store_for
from tests.cloud.test_lengths import requested
from tests.interop.sources.tokens.files import write_megatron

DOCUMENTS = [[np.arange(50_000, dtype='u2') * number] for number in range(1, 9)]


def test_tokens_are_linked_where_they_are(s3_storage, proxy, tmp_path):
    root = f'{s3_storage.root}/tokens/{uuid.uuid4().hex}'
    write_megatron(tmp_path / 'data.bin', DOCUMENTS)
    for name in ('data.bin', 'data.idx'):
        store, path = store_for(f'{root}/{name}', None, s3_storage.options)
        store.replace(path, (tmp_path / name).read_bytes())
    options = s3_storage.through(proxy)
    with proxy.counted() as requests:
        done = bags.convert(f'{root}/data.bin', tmp_path / 'out', link=True, source_options=options)
    assert done.datapoints == 8
    # The index, and the ends of the tokens.
    assert sum(requested(requests)) < (tmp_path / 'data.bin').stat().st_size / 2
    options = {'s3://bucket/': options}
    with bags.open(tmp_path / 'out', trust_links=root, storage_options=options) as dataset:
        assert dataset.lengths('tokens', of='elements').tolist() == [50_000] * 8
        assert dataset[0, {'tokens': slice(0, 2)}]['tokens'].tolist() == [0, 1]  # Compares the sample.
        with proxy.counted() as requests:
            found = dataset[5, {'tokens': slice(20_000, 20_100)}]['tokens']
    assert np.array_equal(found, DOCUMENTS[5][0][20_000:20_100])
    assert requested(requests) == [200]
