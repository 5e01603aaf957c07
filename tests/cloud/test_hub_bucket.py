"""A storage bucket of the Hugging Face hub, through its S3 interface: docs/hub.md."""

import numpy as np
import pytest

import bags
from tests.servers import Proxy

FSSPEC = {
    'client': 'fsspec',
    'config_kwargs': {
        's3': {'addressing_style': 'path'},
        'request_checksum_calculation': 'when_required',
        'response_checksum_validation': 'when_required',
    },
}


class Namespace(Proxy):
    """An S3 server whose buckets are below a path, as those of the hub are below a name."""

    def pass_on(self, handler, fault):
        name, path = handler.path[1:].split('/', 1)
        assert name == 'acme', f'expected a path of the namespace, got {handler.path}'
        handler.path = f'/{path}'
        super().pass_on(handler, fault)


@pytest.mark.parametrize('client', [{}, FSSPEC], ids=['obstore', 'fsspec'])
def test_a_storage_bucket(s3, client, tmp_path):
    path = f's3://bucket/hub-{client.get("client", "obstore")}'
    with bags.DatasetWriter(tmp_path / 'episodes', {'id': 'int(8)', 'state': 'array(float32,3)'}) as writer:
        for index in range(20):
            writer.append({'id': index, 'state': np.full(3, index, np.float32)})
    with Namespace(s3) as hub:
        options = {
            'endpoint_url': f'{hub.url}/acme', 'region': 'us-east-1', 'key': 'a', 'secret': 'b', **client,
        }  # fmt: skip
        bags.copy(bags.open(tmp_path / 'episodes'), path, storage_options=options)
        dataset = bags.open(path, storage_options=options)
        assert len(dataset) == 20
        batch = dataset.batch([7, 0, 19])
        assert batch['id'].tolist() == batch['state'][:, 2].tolist() == [7, 0, 19]
        assert bags.verify(path, storage_options=options) == []
        assert hub.requests
        assert {asked.split('/')[1] for _, asked, _ in hub.requests} == {'acme'}
