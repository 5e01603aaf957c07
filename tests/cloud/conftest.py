"""Object stores on loopback, each read through obstore and through fsspec."""

from typing import NamedTuple

import pytest

from tests.bag.samples import records_of_many_kinds
from tests.servers import Proxy, gcs_server, s3_server


class Storage(NamedTuple):
    """An object store, with the options to open it."""

    root: str
    options: dict
    server: str

    def through(self, proxy):
        """Returns the options for reading it through a proxy."""
        return {**self.options, 'endpoint_url': proxy.url}


@pytest.fixture(scope='session')
def s3():
    with s3_server() as url:
        yield url


@pytest.fixture(scope='session')
def gcs():
    with gcs_server() as url:
        yield url


def make_storage(request, name):
    scheme, _, client = name.partition('-')
    if scheme == 'memory':
        return Storage('memory://files', {}, '')
    if scheme == 's3':
        url = request.getfixturevalue('s3')
        options = {'key': 'a', 'secret': 'b', 'endpoint_url': url, 'client': client}
        return Storage(f's3://bucket/{client}', options, url)
    url = request.getfixturevalue('gcs')
    options = {'token': 'anon', 'project': 't', 'endpoint_url': url, 'client': client}
    return Storage(f'gs://bucket/{client}', options, url)


# The second client runs with `make test-cloud`.
CLIENTS = ['obstore', pytest.param('fsspec', marks=pytest.mark.slow)]
S3 = ['s3-obstore', pytest.param('s3-fsspec', marks=pytest.mark.slow)]
GCS = ['gs-obstore', pytest.param('gs-fsspec', marks=pytest.mark.slow)]


@pytest.fixture(scope='module', params=['memory', *S3, *GCS])
def storage(request):
    """Every object store in turn."""
    return make_storage(request, request.param)


@pytest.fixture(scope='module', params=S3)
def s3_storage(request):
    """S3 through both clients, for tests that count requests."""
    return make_storage(request, request.param)


@pytest.fixture
def proxy(s3_storage):
    with Proxy(s3_storage.server) as proxy:
        yield proxy


@pytest.fixture
def records():
    return records_of_many_kinds()
