"""Real images, videos and sounds, small enough for quick tests."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

DATA = Path(__file__).parents[2] / 'examples/data'


@pytest.fixture(scope='session')
def photograph():
    """Returns the uint8 pixels of a photograph of the examples."""
    return lambda name: np.array(Image.open(DATA / f'{name}.jpg'))


@pytest.fixture(scope='session')
def photo(photograph):
    """uint8, shape (96, 120, 3): a part of a photograph."""
    return np.ascontiguousarray(photograph('astronaut')[60:156, 170:290])


@pytest.fixture(scope='session')
def film(photograph):
    """uint8, shape (12, 64, 80, 3): the view moves over a photograph."""
    photo = photograph('astronaut')
    return np.stack([photo[100 + t : 164 + t, 200 + 2 * t : 280 + 2 * t] for t in range(12)])


@pytest.fixture(scope='session')
def sound():
    """float32, shape (12000, 2), 1.5 s at 8000: a rising tone on the left, one with a rhythm on the right."""
    time = np.arange(12_000) / 8000
    left = 0.5 * np.sin(2 * np.pi * (200 + 300 * time) * time)
    right = 0.4 * np.sin(2 * np.pi * 440 * time) * (np.sin(2 * np.pi * 4 * time) > 0)
    return np.stack([left, right], axis=1).astype(np.float32)


@pytest.fixture
def without(monkeypatch):
    """Makes packages impossible to import."""

    def hide(*names):
        import sys

        for module in list(sys.modules):
            if module.partition('.')[0] in names:
                monkeypatch.delitem(sys.modules, module)
        for name in names:
            monkeypatch.setitem(sys.modules, name, None)

    return hide
