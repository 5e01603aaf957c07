"""Scale: the same datapoints in 1, 100 and 10,000 shards, and a field of 20 million rows."""

import gc
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import data, report
from benchmarks.datasets import BATCH, COUNT, folder, one_by_one, opened
from benchmarks.memory import memory
from benchmarks.peers import PEERS, is_installed
from benchmarks.timing import Candidate, time_interleaved

SHARDS = (1, 100, 10_000)
# Without Granular, which keeps a descriptor a field and shard, and Lance and HF, which take minutes to write.
MANY = ('bags', 'bagz, one record', 'sackli, one record', 'mosaicml streaming')
SHARDED = (*MANY, 'granular', 'lance', 'hf datasets')
# Small, so that the overhead of a read is measured, and not copying the bytes.
SIZE = 1000
LARGE = 20_000_000


def main(output: report.Report, *, quick: bool) -> None:
    """Measures opening and reading with many shards and with many rows."""
    report.heading(f'Scale: {COUNT:,} datapoints in shards')
    for shards in SHARDS[:2] if quick else SHARDS:
        names = MANY if shards == max(SHARDS) else SHARDED
        compare(
            output,
            shards,
            [name for name in names if is_installed(PEERS[name].module)],
            1.0 if quick else 3.0,
        )
    if is_installed('bags'):
        large(output)


def compare(output: report.Report, shards: int, names: list[str], seconds: float) -> None:
    """Prints the tables for one number of shards."""
    peers = {name: PEERS[name] for name in names}
    paths = {name: folder(name, peer, COUNT // shards, SIZE) for name, peer in peers.items()}
    title = f'{shards:,} shard{"s" if shards > 1 else ""}'
    opens = {name: Candidate(lambda _, n=name: peers[n].open(paths[n]).close(), 1) for name in peers}
    output.compare(f'open, {title}', time_interleaved(opens, seconds=seconds), 'bags', {}, unit='ms')
    readers = opened(peers, paths, SIZE)
    order = data.order(COUNT, COUNT)
    rows = {name: one_by_one(reader, order[: peers[name].rows_per_run]) for name, reader in readers.items()}
    output.compare(f'random row, {title}', time_interleaved(rows, seconds=seconds), 'bags', {})
    for reader in readers.values():
        reader.close()
    readers.clear()
    gc.collect()
    memory(output, title, paths)


def large(output: report.Report) -> None:
    """Compares a batch from 20 million rows with one from 20 thousand, which should take the same time."""
    import bags

    report.heading(f'A batch of {BATCH} from an int field')
    readers = {}
    for count in (COUNT, LARGE):
        path = data.cached(f'rows-{count}', lambda path, count=count: build(path, count))
        readers[f'{count:,} rows'] = bags.open(str(path))
    candidates = {name: Candidate(neighbours(reader), BATCH * 50) for name, reader in readers.items()}
    output.compare('random batch of an int field', time_interleaved(candidates), f'{COUNT:,} rows', {})
    for reader in readers.values():
        reader.close()


def neighbours(reader: Any) -> Callable[[Any], None]:
    """Reads random batches from as many neighbouring rows at any size, so that caches have equal effect."""
    batches = [data.order(BATCH, COUNT, seed) + (len(reader) - COUNT) // 2 for seed in range(50)]

    def run(_: Any) -> None:
        for batch in batches:
            reader.batch(batch, 'id')

    return run


def build(path: Path, count: int) -> None:
    """Writes the numbers from 0 on."""
    write_numbers(path, np.arange(count))


def write_numbers(path: Path, numbers: np.ndarray) -> None:
    """Writes a dataset of one int field with numpy, in seconds instead of minutes."""
    path.mkdir()
    (path / 'spec.json').write_text(json.dumps({'id': 'int(8)'}))
    count = len(numbers)
    refs = np.zeros(count, np.dtype([('array', 'u1'), ('tag', 'u1'), ('id', '>u4')]))
    refs['array'], refs['tag'], refs['id'] = 0x91, 0xCE, np.arange(count)
    for name, records in (('refs', refs), ('id', numbers.astype('<i8'))):
        limits = np.arange(1, count + 1, dtype='<u8') * records.itemsize
        with open(path / f'{name}.bag', 'wb') as file:
            records.tofile(file)
            limits.tofile(file)
