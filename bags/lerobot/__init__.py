"""LeRobot: a dataset whose episodes are datapoints, with the interface and the items of its dataset class.

frames      `dataset`: a map-style PyTorch dataset; a training script changes one line
metadata    `meta` of this dataset: features, statistics, episodes and tasks
recording   `RecordingDataset`: records episodes in a record loop of LeRobot
recorded_features   the fields of a recording, and the checks of its frames
samples     frames with their windows, as tensors
storage     `export`: writes a dataset with the meta/ that LeRobot reads, for versions with custom readers
reader      the reader for these versions
"""

from bags.lerobot.frames import FrameDataset, dataset
from bags.lerobot.recording import RecordingDataset
from bags.lerobot.storage import export, register_reader

__all__ = ['FrameDataset', 'RecordingDataset', 'dataset', 'export']

register_reader()
