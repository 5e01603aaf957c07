"""The storage format 'bags' of LeRobot: meta/ beside the folder bags/, and the registration of its reader."""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import os
from pathlib import Path
from typing import Any, Literal

from bags.authoring.copy import copy
from bags.dataset.base import Dataset, check_dataset
from bags.dataset.open import open as open_dataset
from bags.dataset.reading.fingerprint import fingerprint
from bags.dataset.reading.selection import Fields, select_whole
from bags.interop.targets.lerobot_features import BAGS_FOLDER
from bags.interop.targets.lerobot_meta import write_meta
from bags.interop.targets.target import Target
from bags.lerobot.metadata import LeRobotMetadata
from bags.progress.write_result import WriteResult
from bags.storage import Durability
from bags.storage.urls import plain_path

STORAGE_FORMAT = 'bags'
READER = 'bags.lerobot.reader'
READER_GROUP = 'lerobot.dataset_readers'
"""The group of entry points in pyproject.toml, in which LeRobot finds readers (huggingface/lerobot#4576)."""


def register_reader() -> bool:
    """Registers the reader of `storage_format: bags`; returns whether LeRobot has custom readers.

    LeRobot, whose import takes seconds, is imported only if it has `datasets/storage.py`.
    """
    spec = importlib.util.find_spec('lerobot')
    folders = list(spec.submodule_search_locations or ()) if spec else []
    if not any(Path(folder, 'datasets', 'storage.py').is_file() for folder in folders):
        return False
    storage = importlib.import_module('lerobot.datasets.storage')
    if not hasattr(storage, 'register_dataset_reader'):
        return False
    if getattr(storage, 'DATASET_READER_ENTRY_POINT_GROUP', None) == READER_GROUP:
        installed = {point.name for point in importlib.metadata.entry_points(group=READER_GROUP)}
        if STORAGE_FORMAT in installed:
            return True  # LeRobot registers it, and would warn of an earlier registration.
    storage.register_dataset_reader(STORAGE_FORMAT, READER)
    return True


def export(
    dataset: str | os.PathLike[str] | Dataset,
    target: str | os.PathLike[str],
    *,
    fields: Fields = None,
    progress: bool | None = None,
    durability: Durability | int | Literal['none', 'close', 'flush'] = Durability.CLOSE,
) -> WriteResult:
    """Writes the episodes of a dataset to bags, beside the meta/ that LeRobot reads.

    `target/bags` is a copy with unchanged records and resolved links. `target/meta` has the features,
    statistics, episodes and tasks, and `"storage_format": "bags"`. Versions of LeRobot with custom readers
    open the folder after `import bags.lerobot`. No release has custom readers yet, so this is untested.

    Args:
        dataset: A dataset whose datapoints are episodes: a path, or an open dataset.
        target: A folder, which must be new or empty.
        fields: Names of fields. Default: all.
        progress: Show a progress bar: True, False, or None for only on terminals.
        durability: As in `bags.export`.

    Raises:
        FileExistsError: The folder is not empty.
        MissingDependencyError: pyarrow is not installed.
        TypeError, ValueError: As `dataset`.

    Examples:
        >>> bags.lerobot.export('arm', 'arm-for-lerobot').datapoints
        4
        >>> import os
        >>> sorted(os.listdir('arm-for-lerobot'))
        ['bags', 'meta']
    """
    opened = plain_path(dataset)
    if not isinstance(opened, Dataset):
        with open_dataset(opened) as source:
            return export(source, target, fields=fields, progress=progress, durability=durability)
    check_dataset('export', opened)
    names = select_whole(fields, opened.schema, 'export')
    LeRobotMetadata(opened.select(range(len(opened)), names))  # Raises before anything is written.
    level = Durability(durability)  # type: ignore[arg-type]
    facts: dict[str, Any] = {
        'format': 'lerobot',
        'extension': STORAGE_FORMAT,
        'spec': {n: opened.spec[n] for n in names},
    }
    with Target(target, None, facts, lambda: fingerprint(opened, names), durability=level) as folder:
        result = copy(
            opened, f'{folder.path}/{BAGS_FOLDER}', fields=names, progress=progress, durability=level
        )
        with open_dataset(f'{folder.path}/{BAGS_FOLDER}') as copied:
            meta = LeRobotMetadata(copied)
            features = {
                name: {**feature, 'shape': list(feature['shape'])} for name, feature in meta.features.items()
            }
            info: dict[str, Any] = {
                'storage_format': STORAGE_FORMAT,
                'robot_type': meta.robot_type,
                'fps': meta.fps,
            }
            stats = {
                name: {key: value.tolist() for key, value in field_stats.items()}
                for name, field_stats in meta.stored_stats().items()
            }
            # LeRobot expects these path templates.
            info |= {'chunks_size': 1000, 'data_path': '', 'video_path': '', 'features': features}
            write_meta(folder.write, info, stats, meta.task_names, list(meta.episodes))
    return result
