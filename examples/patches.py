"""What both training examples learn from: patches of the demo's pictures, and which picture each is of."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import demo
import numpy as np

import bags

SIZE = 48  # pixels across a patch
PATCHES = 8  # of each picture in a batch


def dataset(folder: Path) -> Any:
    """Opens the dataset of the demo, and writes it first where there is none."""
    if not folder.exists():
        demo.write(folder)
    return bags.open(folder)


def cutter(reader: Any) -> Callable[..., dict[str, np.ndarray]]:
    """Returns what makes patches of a batch of pictures; the threads of the loader run it."""
    labels = {str(name, 'utf-8'): label for label, name in enumerate(reader.field('name'))}

    def cut(batch: dict[str, Any], rng: np.random.Generator) -> dict[str, np.ndarray]:
        # `rng` depends on the seed and the place in the order only: a run that goes on cuts the same patches.
        patches = np.empty((len(batch['image']), PATCHES, SIZE, SIZE, 3), np.float32)
        for image, room in zip(batch['image'], patches, strict=True):
            colour = image if image.ndim == 3 else image[:, :, None]
            for patch in room:
                top, left = (int(rng.integers(size - SIZE + 1)) for size in image.shape[:2])
                patch[:] = colour[top : top + SIZE, left : left + SIZE]
        chosen = np.array([labels[name] for name in batch['name']])
        return {'patch': patches.reshape(-1, SIZE, SIZE, 3) / 255 - 0.5, 'label': np.repeat(chosen, PATCHES)}

    return cut
