"""Records one session from three processes, one of which is killed, and joins what they recorded.

Two cameras and the joints of an arm have a process each, as with ROS nodes. Each process writes a dataset of
its own, with the name of the take as the key. All of them measure time on one clock, from the start of the
take. The process of a camera is killed in the second take: the others go on, and a new process continues its
dataset. Run it with `python examples/record_processes.py [FOLDER]`.
"""

import multiprocessing
import shutil
import sys
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

import bags

RATES = {'left': 25, 'right': 25, 'joints': 200}
"""Items a second, by stream."""
TAKES, SECONDS = ('take 0', 'take 1', 'take 2'), 1.0


def spec(stream: str) -> dict[str, str]:
    """Returns the spec of the dataset of a stream."""
    items = 'array(float32,6)[]' if stream == 'joints' else 'mp4(25)[]'
    return {'take': 'utf8', stream: items, f'{stream}_time': 'float(8)[]'}


def read(stream: str, now: float) -> np.ndarray:
    """Returns what a device would: a frame, uint8 (48, 64, 3), or the angles of six joints, float32 (6,)."""
    if stream == 'joints':
        return np.sin(now * np.arange(1, 7), dtype=np.float32)
    return np.full((48, 64, 3), int(now * 200) % 256, np.uint8)


def record(folder: Path, stream: str, orders: Connection) -> None:
    """Records the takes that it is told: the name of each, and its start and end on the clock of the machine.

    Processes of one machine share `time.monotonic`. On several machines, use `time.time` and PTP.
    """
    facts = {'fields': {stream: {'times': f'{stream}_time'}}}
    with bags.ShardedDatasetWriter(folder / stream, spec(stream), metadata=facts, resume=True) as writer:
        orders.send('ready')
        while (order := orders.recv()) is not None:
            take, start, stop = order
            with writer.begin({'take': take}, flush=0.1, clip_seconds=0.2) as episode:
                due = time.monotonic()
                while (now := time.monotonic()) < stop:
                    episode.append({stream: read(stream, now - start), f'{stream}_time': now - start})
                    due += 1 / RATES[stream]
                    time.sleep(max(0.0, due - time.monotonic()))
            orders.send(take)


def start(folder: Path, stream: str) -> tuple[Any, Connection]:
    """Starts the process of a stream, and waits until it is ready."""
    context = multiprocessing.get_context('spawn')
    orders, child = context.Pipe()
    process = context.Process(target=record, args=(folder, stream, child), daemon=True)
    process.start()
    orders.recv()
    return process, orders


def describe(row: Any) -> str:
    """Returns a line about a take: the last time of each stream."""
    seconds = {stream: row[f'{stream}_time'][-1:] for stream in RATES}
    if any(sum(map(len, row[stream])) != len(row[f'{stream}_time']) for stream in ('left', 'right')):
        raise AssertionError(f'{row["take"]}: expected a time for each frame')
    return f'{row["take"]}: ' + ', '.join(
        f'{stream} {float(last[0]):.1f} s' for stream, last in seconds.items()
    )


def show_live(folder: Path, take: str) -> None:
    """Shows a take while it is recorded, once all streams have some of it."""
    readers = [bags.ShardedDatasetReader(folder / stream) for stream in RATES]
    while True:
        readers = [reader.reopen(partial=True) for reader in readers]
        if all(take in reader.column('take') for reader in readers):
            row = bags.join(readers, on='take')[-1]
            if all(len(row[f'{stream}_time']) for stream in RATES):
                print(f'live, {describe(row)}', flush=True)
                return
        time.sleep(0.05)


def main(folder: Path) -> None:
    """Records takes with three processes, kills one, and prints what is there."""
    shutil.rmtree(folder, ignore_errors=True)
    running = {stream: start(folder, stream) for stream in RATES}
    for take in TAKES:
        begin = time.monotonic() + 0.1
        for _, orders in running.values():
            orders.send((take, begin, begin + SECONDS))
        if take == 'take 0':
            show_live(folder, take)
        if take == 'take 1':
            time.sleep(0.1 + SECONDS / 2)
            process, _ = running['right']
            process.kill()
            process.join()
            running['right'] = start(folder, 'right')  # Makes a datapoint of what the killed one wrote.
        for stream, (_, orders) in running.items():
            if not (take == 'take 1' and stream == 'right'):
                orders.recv()
    for process, orders in running.values():
        orders.send(None)
        process.join()
    with bags.join([folder / stream for stream in RATES], on='take') as session:
        for row in session:
            print(describe(row))


if __name__ == '__main__':
    main(Path(sys.argv[1] if len(sys.argv) > 1 else 'session'))
