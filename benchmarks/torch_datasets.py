"""Datasets derived from classes of peers, where these are installed."""

from typing import Any

import numpy as np

from benchmarks.loaders import decode

try:
    from streaming import StreamingDataset as MosaicDataset
except ImportError:
    MosaicDataset = object
try:
    from litdata import StreamingDataset as LitDataset
except ImportError:
    LitDataset = object


class MosaicPictures(MosaicDataset):
    """Images in MosaicML Streaming."""

    def __getitem__(self, index: Any) -> np.ndarray:
        return decode(super().__getitem__(index)['image'])


class LitPictures(LitDataset):
    """Images in LitData."""

    def __getitem__(self, index: Any) -> np.ndarray:
        return decode(super().__getitem__(index)['image'])
