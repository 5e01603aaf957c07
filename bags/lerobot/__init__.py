"""LeRobot: a dataset whose episodes are datapoints, with the interface and the items of its dataset class.

frames      `dataset`: a map-style dataset of PyTorch; a training script changes one line
metadata    `meta` of such a dataset: features, statistics, episodes and tasks
samples     frames with their windows, as tensors
storage     `export`: a dataset with the meta/ that LeRobot itself reads, for versions that take readers
reader      the reader that these versions use
"""

from bags.lerobot.frames import FrameDataset, dataset
from bags.lerobot.storage import export, register_reader

__all__ = ['FrameDataset', 'dataset', 'export']

register_reader()
