"""Datasets: 20,000 datapoints of an int, a text, a vector and 30 KB of bytes, from the page cache."""

import gc
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import data, report
from benchmarks.memory import memory
from benchmarks.peers import PEERS, VARIANTS, Bags, Indices, Peer, Reader, is_installed
from benchmarks.timing import Candidate, time_interleaved

COUNT = 20_000
WRITTEN = 4_000
BATCH = 256
SMALL = (('id', 'text'), ('id', 'vector'))


def main(output: report.Report, *, quick: bool) -> None:
    """Prints one table an operation."""
    report.heading(f'Datasets, from the page cache: us a datapoint, of {COUNT:,}')
    seconds = 1.0 if quick else 4.0
    peers = {name: peer for name, peer in (PEERS | VARIANTS).items() if is_installed(peer.module)}
    paths = {name: folder(name, peer) for name, peer in peers.items()}
    readers = opened(peers, paths)
    order = data.order(COUNT, COUNT)
    others = [name for name in readers if name != 'bags']
    with_floors = [name for name in others if name in PEERS]

    def compare(title: str, candidates: dict[str, Candidate], ours: str, floors: dict[str, float]) -> None:
        output.compare(title, time_interleaved(candidates, seconds=seconds), ours, floors)

    rows = {name: one_by_one(reader, order[: peers[name].rows_per_run]) for name, reader in readers.items()}
    compare('random row', rows, 'bags', {name: 3.0 if peers[name].columnar else 0.95 for name in with_floors})
    raw = Bags(raw=True).open(paths['bags']) if 'bags' in readers else None
    ours = {'bags, raw': one_by_one(raw, order[: Bags.rows_per_run])} if raw else {}
    compare(
        'random row, raw',
        {**ours, **{n: rows[n] for n in others}},
        'bags, raw',
        dict.fromkeys(with_floors, 2.0),
    )
    for fields in SMALL:
        batches = {name: batched(reader, order, fields, peers[name]) for name, reader in readers.items()}
        if 'bags' in readers:
            batches['bags, indices in a list'] = batched(readers['bags'], order, fields, Bags(), as_list=True)
        title = f'random batch of {BATCH}: {" and ".join(fields)}'
        compare(title, batches, 'bags', dict.fromkeys(with_floors, 20.0))
    scans = {name: Candidate(lambda _, r=reader: r.scan('id'), COUNT) for name, reader in readers.items()}
    if 'bags' in readers:
        every = np.arange(COUNT)
        scans['bags, indices in an array'] = Candidate(lambda _: readers['bags'].batch(every, ('id',)), COUNT)
    compare('scan of an int field', scans, 'bags', dict.fromkeys(with_floors, 4.0))
    for reader in [*readers.values(), *([raw] if raw else [])]:
        reader.close()
    floors = dict.fromkeys(with_floors, 1.0)
    compare('write', writes(peers, 'none'), 'bags', floors)
    compare('write, synced', writes(peers, 'close'), 'bags', floors)
    opens = {n: Candidate(lambda _, n=n: peers[n].open(paths[n]).close(), 1) for n in readers}
    output.compare('open', time_interleaved(opens, seconds=seconds), 'bags', {}, unit='ms')
    memory(output, f'{COUNT:,} datapoints', {name: paths[name] for name in readers})


def opened(peers: dict[str, Peer], paths: dict[str, Path], size: int = data.BLOB) -> dict[str, Reader]:
    """Opens a reader for each peer, and checks that it reads the right values."""
    readers: dict[str, Reader] = {}
    for name, peer in peers.items():
        try:
            data.warm(paths[name])
            reader = peer.open(paths[name])
            check(reader, size)
            readers[name] = reader
        except Exception as error:
            print(f'  {name} left out: {type(error).__name__}: {str(error)[:80]}')
            gc.collect()
    return readers


def folder(name: str, peer: Peer, shard_length: int | None = None, size: int = data.BLOB) -> Path:
    """Returns the path of a peer's dataset, written once; `size` is that of its bytes field."""
    name = name.partition(',')[0].replace(' ', '-')
    shards = f'-{COUNT // shard_length}-shards' if shard_length else ''
    return data.cached(
        f'dataset-{name}-{size}{shards}', lambda path: peer.write(path, data.rows(COUNT, size), shard_length)
    )


def check(reader: Reader, size: int = data.BLOB) -> None:
    """Raises if a library reads wrong values."""
    for index, expected in enumerate(data.rows(COUNT, size)):
        if index % 97 == 0:
            same(reader.row(index), expected)
    rows = [row for index, row in enumerate(data.rows(300, size)) if index % 3 == 0]
    for fields in SMALL:
        batch = reader.batch(list(range(0, 300, 3)), fields)
        for index, row in enumerate(rows):
            same({field: batch[field][index] for field in fields}, {field: row[field] for field in fields})
    if list(reader.scan('id')) != [index * 7919 for index in range(COUNT)]:
        raise AssertionError('the scan differs')


def same(got: dict[str, Any], expected: dict[str, Any]) -> None:
    """Compares datapoints; a vector may be a list."""
    for field, value in expected.items():
        equal = np.array_equal(got[field], value) if field == 'vector' else got[field] == value
        if not equal:
            raise AssertionError(f'field {field} of datapoint {expected.get("id")} differs')


def one_by_one(reader: Reader, order: np.ndarray) -> Candidate:
    """Reads random rows, each freed before the next."""
    indices = order.tolist()

    def run(_: Any) -> None:
        for index in indices:
            reader.row(index)

    return Candidate(run, len(indices))


def batched(
    reader: Reader, order: np.ndarray, fields: tuple[str, ...], peer: Peer, *, as_list: bool | None = None
) -> Candidate:
    """Reads random batches; indices are arrays for libraries that take them, lists for the others."""
    as_list = peer.module not in ('bags', 'lance', 'bagz', 'sackli') if as_list is None else as_list
    count = 50 if peer.module == 'bags' else 5
    batches: list[Indices] = [order[k * BATCH : (k + 1) * BATCH] for k in range(count)]
    if as_list:
        batches = [np.asarray(batch).tolist() for batch in batches]

    def run(_: Any) -> None:
        for batch in batches:
            reader.batch(batch, fields)

    return Candidate(run, count * BATCH)


def writes(peers: dict[str, Peer], durability: str) -> dict[str, Candidate]:
    """Writes and closes a smaller dataset: with durability 'close', peers sync their files afterwards."""
    rows = [*data.rows(WRITTEN)]

    def write(path: Path, peer: Peer) -> None:
        if peer.module == 'bags':
            Bags(durability=durability).write(path, rows)
            return
        peer.write(path, rows)
        if durability == 'close':
            data.sync(path)

    return {
        name: Candidate(
            lambda path, peer=peers[name]: write(path, peer),
            WRITTEN,
            before=lambda name=name: data.scratch(name.replace(' ', '-').replace(',', '')),
            after=data.remove,
        )
        for name in peers
        if name in PEERS
    }
