"""For all tests of power cuts: links of datasets lead to files beside them."""

import pytest


@pytest.fixture(autouse=True)
def links(tmp_path, monkeypatch):
    monkeypatch.setenv('BAGS_TRUST_LINKS', str(tmp_path))
