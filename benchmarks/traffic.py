"""Bytes of a step, of an append, of a new field and of the state of a run; `--only traffic`.

The object store is in memory, and what is counted does not depend on the machine.
"""

from __future__ import annotations

import itertools
import json
import shutil
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import bags
from bags.storage import store_for
from benchmarks import data, report
from benchmarks.video import FRAMES, RATE, long_video

ROWS, SHARD, PICTURE = 10_000, 1000, 30_000
"""Datapoints, of which each has a picture of so many bytes, and the datapoints of a shard."""
NEW = 100
WINDOWS, WANTED = 64, 8
"""Windows that are read, and the frames of each."""
RANKS, OTHER_RANKS, BATCH = 64, 48, 8
TITLE = 'what is read, sent and stored'


def main(output: report.Report, *, quick: bool) -> None:
    """Prints the table."""
    report.heading('Bytes and requests')
    rows = ROWS // 10 if quick else ROWS
    cells: dict[str, dict[str, Any]] = {}
    folder = Path(tempfile.mkdtemp(dir=data.directory()))
    try:
        frames(cells)
        append(cells, rows)
        labels(cells, folder, rows)
        resume(cells, folder, rows)
    finally:
        shutil.rmtree(folder)
    output.tables[TITLE] = {'unit': 'as said', 'cells': cells}
    for name, cell in cells.items():
        print(f'  {name:<72} {cell["figure"]}')


def frames(cells: dict[str, dict[str, Any]]) -> None:
    """Reads windows of a ten-minute video of a bucket, in random order, one at a time."""
    path = data.cached('traffic-video.mp4', long_video)
    url = f'memory://traffic/{uuid.uuid4().hex}'
    with bags.ShardedDatasetWriter(url, {'camera': f'video({RATE})'}) as writer:
        writer.append({'camera': path})
    bags.consolidate(url)
    dataset = bags.open(url)
    places = np.random.default_rng(0).integers(0, FRAMES - WANTED, WINDOWS + 1)
    dataset[0, {'camera': bags.frames(0, WANTED)}]  # Opens the bag, and reads the header of the video.
    before = dataset.request_counts()
    for place in places[1:].tolist():
        assert len(dataset[0, {'camera': bags.frames(place, place + WANTED)}]['camera']) == WANTED
    used = dataset.request_counts()
    received = (used.received - before.received) / WINDOWS
    requests = (used.requests - before.requests) / WINDOWS
    size = path.stat().st_size
    cells[f'{WANTED} frames of a video of {FRAMES / RATE / 60:g} minutes, on a bucket'] = {
        'figure': f'{text_of(received)} of {text_of(size)}, in {requests:.1f} requests',
        'received': received,
        'size': size,
        'requests': requests,
    }


def append(cells: dict[str, dict[str, Any]], rows: int) -> None:
    """Appends datapoints to a dataset of a bucket."""
    url, new = f'memory://traffic/{uuid.uuid4().hex}', f'memory://traffic/{uuid.uuid4().hex}'
    for path, numbers in ((url, range(rows)), (new, range(rows, rows + NEW))):
        with bags.ShardedDatasetWriter(
            path, {'id': 'int(8)', 'image': 'bytes'}, shard_length=SHARD
        ) as writer:
            for datapoint in datapoints(numbers):
                writer.append(datapoint)
        bags.consolidate(path)
    before = versions(url)
    bags.append(new, url, progress=False)
    after = versions(url)
    sent = sum(size for name, (size, version) in after.items() if before.get(name) != (size, version))
    size = sum(size for size, _ in before.values())
    assert len(bags.open(url)) == rows + NEW
    cells[f'{NEW} datapoints appended to {rows:,} on a bucket'] = {
        'figure': f'{text_of(sent)} sent, {text_of(size)} stay',
        'sent': sent,
        'size': size,
    }


def versions(url: str) -> dict[str, tuple[int, str]]:
    """Returns size and version of each file of a dataset."""
    store, root = store_for(url)
    return {name: (stat.size, stat.version) for name, stat in store.walk(root).items()}


def datapoints(numbers: range) -> Iterator[dict[str, Any]]:
    chance = np.random.default_rng(numbers.start)
    for number in numbers:
        yield {'id': number, 'image': chance.bytes(PICTURE)}


def labels(cells: dict[str, dict[str, Any]], folder: Path, rows: int) -> None:
    """Adds a label to each datapoint of a dataset, and corrects some of them in a saved edit."""
    with bags.DatasetWriter(folder / 'data', {'id': 'int(8)', 'image': 'bytes'}) as writer:
        for datapoint in datapoints(range(rows)):
            writer.append(datapoint)
    with bags.DatasetWriter(folder / 'labels', {'label': 'int(4)'}) as writer:
        for number in range(rows):
            writer.append({'label': number % 7})
    labelled = bags.join([folder / 'data', folder / 'labels'])
    assert labelled[rows - 1, 'label'] == {'label': (rows - 1) % 7}
    sizes = {name: size_of(folder / name) for name in ('data', 'labels')}
    cells[f'a label for each of {rows:,} datapoints'] = {
        'figure': f'{text_of(sizes["labels"])} beside {text_of(sizes["data"])}',
        'size': sizes['labels'],
        'beside': sizes['data'],
    }
    labelled.update({row: {'label': 7} for row in range(NEW)}).save(folder / 'edit', progress=False)
    size = size_of(folder / 'edit')
    cells[f'all of them, saved as an edit with {NEW} other labels'] = {
        'figure': f'{text_of(size)} beside {text_of(sizes["data"])}',
        'size': size,
        'beside': sizes['data'],
    }


def resume(cells: dict[str, dict[str, Any]], folder: Path, rows: int) -> None:
    """Saves the state of a run in the middle of an epoch, and resumes it with other ranks."""
    dataset = bags.open(folder / 'data')

    def loaders(ranks: int) -> list[bags.Loader]:
        return [
            bags.Loader(dataset, BATCH, fields='id', seed=0, rank=rank, world_size=ranks)
            for rank in range(ranks)
        ]

    seen: list[int] = []
    states = set()
    for loader in loaders(RANKS):
        for batch in itertools.islice(loader, rows // RANKS // BATCH // 2):
            seen += batch['id'].tolist()
        states.add(json.dumps(loader.state_dict()))
    (state,) = states
    for loader in loaders(OTHER_RANKS):
        loader.load_state_dict(json.loads(state))
        seen += [int(number) for batch in loader for number in batch['id']]
    counts = np.bincount(seen, minlength=rows)
    assert counts.min() == 1  # The last batches of the ranks have equal lengths, so some repeat datapoints.
    cells[f'the state of {RANKS} ranks, resumed by {OTHER_RANKS} in the middle of an epoch'] = {
        'figure': f'{len(state)} bytes',
        'size': len(state),
        'repeated': int(counts.sum() - rows),
    }


def size_of(path: Path) -> int:
    return sum(file.stat().st_size for file in path.rglob('*') if file.is_file())


def text_of(size: float) -> str:
    """Returns a number of bytes as text, in decimal units."""
    for unit, factor in (('GB', 1e9), ('MB', 1e6), ('KB', 1e3)):
        if size >= factor:
            return f'{float(f"{size / factor:.3g}"):g} {unit}'
    return f'{size:g} bytes'
