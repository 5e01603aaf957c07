"""Memory of loaders over 1, 35 and 200 sources: `python -m benchmarks --only loader_memory`.

Each loader has a process of its own, which runs `python -m benchmarks.loader_memory NAME WORKERS PATH`.
It takes an epoch of shuffled batches, and reads the memory of itself and its workers from Linux after the
first batches and in each tenth of the epoch, where the maximum counts: own memory, where pages that forked
processes share count once (`Pss_Anon`), shared memory (`Pss_Shmem`), and mapped files (`Pss_File`), which the
system takes back when it needs memory.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import data, report
from benchmarks.peers import is_installed

COUNT, BATCH, FIRST = 100_000, 256, 20
"""Datapoints of all sources together, and in a batch; batches before the first measurement."""
SOURCES, WORKERS = (1, 35, 200), (1, 16)
TITLE = 'sources: {}, MB after the first batches, and the maximum of an epoch'


def row(index: int) -> dict[str, Any]:
    """Returns a datapoint of half a kilobyte."""
    return {'id': index, 'text': f'text {index:<195}', 'vector': np.full(64, index, np.float32)}


def rows_of(number: int, sources: int) -> range:
    """Returns the datapoints of a source."""
    return range(COUNT * number // sources, COUNT * (number + 1) // sources)


# What is written.


def write_bags(path: Path, sources: int) -> None:
    import bags

    spec = {'id': 'int(8)', 'text': 'utf8', 'vector': 'array(float32,64)'}
    for number in range(sources):
        with bags.DatasetWriter(path / f'{number:03}', spec, durability='none') as writer:
            for index in rows_of(number, sources):
                writer.append(row(index))


def write_parquet(path: Path, sources: int) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    for number in range(sources):
        rows = [row(index) for index in rows_of(number, sources)]
        columns = {name: [each[name] for each in rows] for name in rows[0]}
        pq.write_table(pa.table(columns), path / f'{number:03}.parquet', row_group_size=1024)


def write_mds(path: Path, sources: int) -> None:
    from streaming import MDSWriter

    columns = {'id': 'int', 'text': 'str', 'vector': 'ndarray:float32:64'}
    for number in range(sources):
        with MDSWriter(out=str(path / f'{number:03}'), columns=columns) as writer:
            for index in rows_of(number, sources):
                writer.write(row(index))


def write_litdata(path: Path, sources: int) -> None:
    from litdata.streaming.writer import BinaryWriter

    for number in range(sources):
        (path / f'{number:03}').mkdir()
        writer = BinaryWriter(str(path / f'{number:03}'), chunk_bytes='8MB')
        for position, index in enumerate(rows_of(number, sources)):
            writer[position] = row(index)
        writer.done()
        writer.merge()


# How it is loaded. Each function returns an iterable of the batches of an epoch.


def load_bags(path: Path, workers: int, processes: bool) -> Any:
    import bags

    dataset = bags.concat([bags.open(each) for each in sorted(path.iterdir())])
    return bags.Loader(dataset, BATCH, workers=workers, processes=processes)


class Objects:
    """Rows as Python objects, in a list."""

    def __init__(self) -> None:
        self.rows = [row(index) for index in range(COUNT)]

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> Any:
        return self.rows[index]


class Table:
    """Rows of an Arrow table, read from Parquet files."""

    def __init__(self, path: Path) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        files = sorted(path.iterdir())
        self.table = pa.concat_tables([pq.read_table(file, memory_map=True) for file in files])

    def __len__(self) -> int:
        return len(self.table)

    def __getitems__(self, indices: list[int]) -> list[Any]:
        found = self.table.take(indices)
        vectors = found['vector'].combine_chunks().flatten().to_numpy().reshape(len(indices), -1)
        columns = found['id'].to_pylist(), found['text'].to_pylist(), vectors
        return [dict(zip(('id', 'text', 'vector'), each, strict=True)) for each in zip(*columns, strict=True)]


def load_torch(dataset: Any, workers: int) -> Any:
    from torch.utils.data import DataLoader

    options = {'num_workers': workers, 'shuffle': True, 'multiprocessing_context': 'fork'}
    return DataLoader(dataset, BATCH, **options)


def load_mds(path: Path, workers: int) -> Any:
    from streaming import Stream, StreamingDataset
    from torch.utils.data import DataLoader

    streams = [Stream(local=str(each)) for each in sorted(path.iterdir())]
    dataset = StreamingDataset(streams=streams, batch_size=BATCH, shuffle=True, num_canonical_nodes=1)
    return DataLoader(dataset, BATCH, num_workers=workers)


def load_litdata(path: Path, workers: int) -> Any:
    from litdata import CombinedStreamingDataset, StreamingDataLoader, StreamingDataset

    parts = [StreamingDataset(str(each), shuffle=True) for each in sorted(path.iterdir())]
    dataset = parts[0] if len(parts) == 1 else CombinedStreamingDataset(parts, iterate_over_all=True)
    return StreamingDataLoader(dataset, batch_size=BATCH, num_workers=workers)


LOADERS: dict[str, tuple[str, str, Callable[[Path, int], Any]]] = {
    'bags, threads': ('bags', 'bags', lambda path, workers: load_bags(path, workers, False)),
    'bags, processes': ('bags', 'bags', lambda path, workers: load_bags(path, workers, True)),
    'PyTorch, Python objects': ('torch', '', lambda _, workers: load_torch(Objects(), workers)),
    'PyTorch, Parquet': ('torch', 'parquet', lambda path, workers: load_torch(Table(path), workers)),
    'MosaicML Streaming': ('streaming', 'mds', load_mds),
    'LitData': ('litdata', 'litdata', load_litdata),
}
"""The module, the format and the function of each loader."""
WRITERS = {'bags': write_bags, 'parquet': write_parquet, 'mds': write_mds, 'litdata': write_litdata}


# Measuring.


def memory() -> list[float]:
    """Returns own, shared and mapped memory of this process and its descendants, in MB."""
    total = dict.fromkeys(('Pss_Anon', 'Pss_Shmem', 'Pss_File'), 0)
    for pid in descendants(os.getpid()):
        try:
            lines = Path(f'/proc/{pid}/smaps_rollup').read_text().splitlines()
        except OSError:  # It has ended.
            continue
        for line in lines:
            name, _, value = line.partition(':')
            if name in total:
                total[name] += int(value.split()[0])
    return [kilobytes / 1024 for kilobytes in total.values()]


def descendants(pid: int) -> Iterator[int]:
    """Yields a process and the processes that it started."""
    yield pid
    for task in Path(f'/proc/{pid}/task').iterdir():
        for child in (task / 'children').read_text().split():
            yield from descendants(int(child))


def main(output: report.Report, *, quick: bool) -> None:
    """Prints the memory of each loader that is installed."""
    report.heading('Memory of loaders')
    for sources in SOURCES[:2] if quick else SOURCES:
        title = TITLE.format(sources)
        cells: dict[str, Any] = {}
        output.tables[title] = {'unit': 'MB: own, shared, mapped', 'cells': cells}
        print(f'\n{title:<60}{"own":>16}{"shared":>8}{"mapped":>8}')
        for name, (module, format, _) in LOADERS.items():
            if not is_installed(module) or (not format and sources > 1):
                continue  # Python objects have no sources.
            path = data.cached(f'memory-{format}-{sources}', written(format, sources)) if format else Path()
            for workers in WORKERS[:1] if quick else WORKERS:
                label = f'{name}, {workers}'
                cells[label] = measured(name, workers, path)
                show(label, cells[label])


def written(format: str, sources: int) -> Callable[[Path], None]:
    """Returns a function that writes the sources in a format."""

    def write(path: Path) -> None:
        path.mkdir(exist_ok=True)
        WRITERS[format](path, sources)

    return write


def measured(name: str, workers: int, path: Path) -> dict[str, Any]:
    """Returns the memory of a loader, which it measures in a process of its own."""
    command = [sys.executable, '-m', 'benchmarks.loader_memory', name, str(workers), str(path)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=150)
    except (OSError, subprocess.SubprocessError) as error:
        lines = (getattr(error, 'stderr', None) or str(error)).strip().splitlines()
        return {'error': lines[-1][:200]}
    first, last = json.loads(done.stdout.splitlines()[-1])
    return {
        'first': round(first[0], 1), 'own': round(last[0], 1), 'shared': round(last[1], 1),
        'mapped': round(last[2], 1),
    }  # fmt: skip


def show(label: str, cell: dict[str, Any]) -> None:
    if 'error' in cell:
        print(f'  {label:<58}failed: {cell["error"][:60]}', flush=True)
        return
    own = f'{cell["first"]:,.0f} {cell["own"]:,.0f}'
    print(f'  {label:<58}{own:>16}{cell["shared"]:8,.0f}{cell["mapped"]:8,.0f}', flush=True)


def run(name: str, workers: int, path: Path) -> None:
    """Prints the memory after the first batches, and before the last one, as JSON."""
    loader = LOADERS[name][2](path, workers)
    batches = iter(loader)
    steps = COUNT // BATCH
    for _ in itertools.islice(batches, FIRST):
        pass
    first = memory()
    last = first
    for step, _ in enumerate(itertools.islice(batches, steps - FIRST - 1)):
        if step % (steps // 10) == 0:  # Workers of some end before the epoch does.
            last = max(last, memory())
    print(json.dumps([first, max(last, memory())]), flush=True)
    for pid in [*descendants(os.getpid())][1:]:  # Workers of PyTorch would keep the pipe open.
        os.kill(pid, signal.SIGKILL)
    os._exit(0)


if __name__ == '__main__':
    run(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))
