"""The data of both training examples: patches of the demo's images, and the image that each is from."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import demo
import numpy as np

import bags

SIZE = 48  # width and height of a patch
PATCHES = 8  # from each image in a batch


def dataset(folder: Path) -> Any:
    """Opens the dataset of the demo, and writes it if it does not exist."""
    if not folder.exists():
        demo.write(folder)
    return bags.open(folder)


def cutter(reader: Any) -> Callable[..., dict[str, np.ndarray]]:
    """Returns a transform that cuts patches from a batch of images; the threads of the loader call it."""
    labels = {str(name, 'utf-8'): label for label, name in enumerate(reader.records('name'))}

    def cut(batch: dict[str, Any], rng: np.random.Generator) -> dict[str, np.ndarray]:
        # `rng` depends on the seed and the position only: a resumed run cuts the same patches.
        patches = np.empty((len(batch['image']), PATCHES, SIZE, SIZE, 3), np.float32)
        for image, target in zip(batch['image'], patches, strict=True):
            colour = image if image.ndim == 3 else image[:, :, None]
            for patch in target:
                top, left = (int(rng.integers(size - SIZE + 1)) for size in image.shape[:2])
                patch[:] = colour[top : top + SIZE, left : left + SIZE]
        chosen = np.array([labels[name] for name in batch['name']])
        return {'patch': patches.reshape(-1, SIZE, SIZE, 3) / 255 - 0.5, 'label': np.repeat(chosen, PATCHES)}

    return cut
