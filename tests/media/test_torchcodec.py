"""Without torchcodec, `bags.torch.decode` says what to install. The tests with it are in tests/adapters."""

import sys

import pytest

import bags
import bags.torch
from bags.media.torchcodec import import_torchcodec
from tests.media.samples import film


def test_what_is_needed(monkeypatch):
    monkeypatch.setitem(sys.modules, 'torchcodec', None)
    monkeypatch.delitem(sys.modules, 'torchcodec.decoders', raising=False)
    with pytest.raises(bags.MissingDependencyError, match=r"pip install 'bags\[torchcodec\]'"):
        import_torchcodec()
    monkeypatch.setitem(sys.modules, 'torch', None)
    with pytest.raises(bags.MissingDependencyError, match=r"pip install 'bags\[torch"):
        bags.torch.decode(bags.Video(film(count=2)).excerpt(0, 1))
