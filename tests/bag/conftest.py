from __future__ import annotations

import pytest

from tests.bag.samples import records_of_many_kinds


@pytest.fixture
def records() -> list[bytes]:
    return records_of_many_kinds()
