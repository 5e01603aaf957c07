"""A view, and the same view saved as links: its size, saving it, and reads of both; `--only links`.

The view has 1,000,000 datapoints in random order, of 100 shards with an int, a text of 30 bytes, a vector
of 1 KB and a JPEG of about 3 KB. Windows of 16 pictures are of 5,000 datapoints with a sequence of 20, and
reads from S3 of 20,000 datapoints. All records are read once before reads are timed, and each dataset is
then read at the same places.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

import bags
from benchmarks import data, report
from benchmarks.server import BUCKET, delayed, nginx, nginx_path
from benchmarks.timing import Candidate, Timing, time_interleaved, time_once

SPEC = {'id': 'int(8)', 'text': 'utf8', 'vector': 'array(float32,256)', 'image': 'jpeg'}
CLIPS = {'id': 'int(8)', 'frames': 'jpeg[]'}
LINKED = ('vector', 'image')
COUNT, SHARDS, BATCH, PICTURES, EPOCH = 1_000_000, 100, 256, 64, 5_000
REMOTE_COUNT, REMOTE_SHARDS, LATENCY = 20_000, 20, 0.02
FLOORS = {'the view': 0.8, 'one folder': 0.5}
"""A read of the saved view takes at most 1.25 times that of the view, and twice that of a whole copy of it in
one folder."""


def main(output: report.Report, *, quick: bool) -> None:
    """Prints a table for each read, and for saving."""
    count = COUNT // 20 if quick else COUNT
    report.heading(f'Links: a view of {count:,} datapoints, and the same saved')
    compare_local(output, count)
    compare_windows(output, count // 200)
    compare_remote(output, REMOTE_COUNT // 10 if quick else REMOTE_COUNT)


def compare_local(output: report.Report, count: int) -> None:
    """Times saving views in order and shuffled, and reads of them and of what was saved."""
    source = data.cached(f'links-{count}', lambda path: write(path, count, SHARDS))
    folder = data.cached(f'links-folder-{count}', lambda path: write_folder(path, source))
    ordered, shuffled = data.scratch('links-ordered'), data.scratch('links')
    data.warm(source)
    with contextlib.ExitStack() as stack:

        def opened(path: Path, **options: Any) -> Any:
            return stack.enter_context(bags.open(path, **options))

        order = np.random.default_rng(1).permutation(count)
        view, view_in_order = opened(source).select(order), opened(source)[:]
        save(output, f'save {count:,} datapoints, in order', view_in_order, ordered)
        save(output, f'save {count:,} datapoints, shuffled', view, shuffled)
        both = {'the view': view, 'saved': opened(shuffled)}
        in_order = {'the view': view_in_order, 'saved': opened(ordered), 'one folder': opened(folder)}
        raw = {'the view': opened(source, raw=True).select(order), 'saved': opened(shuffled, raw=True)}
        read_once(both, SPEC)
        read_once(in_order, ('id', 'vector'))
        read_once(raw, ('id', 'image'))
        timed(output, 'random row', both, row)
        timed(output, 'batch of id and text', both, batch('id', 'text'))
        timed(output, 'batch of vectors, in order', in_order, batch('vector'))
        timed(output, 'batch of vectors, shuffled', both, batch('vector'))
        timed(output, 'batch of pictures, raw', raw, batch('image'))
        timed(output, 'batch of pictures', both, batch('image'))
        timed(output, 'scan of vectors, in order', in_order, batch('vector', length=count // 20))
        timed(output, 'epoch of vectors', both, epoch('id', 'vector'))
        timed(output, 'epoch of pictures, raw', raw, epoch('id', 'image'))
        timed(output, 'epoch of pictures', both, epoch('id', 'image'))
        timed(
            output, 'open', {'saved': shuffled}, lambda path, _: Candidate(lambda _: bags.open(path), 1), 'ms'
        )


def compare_windows(output: report.Report, count: int) -> None:
    """Times batches of windows of 16 pictures."""
    clips, path = (
        data.cached(f'links-clips-{count}', lambda path: write_clips(path, count)),
        data.scratch('links-clips'),
    )
    with bags.open(clips) as dataset:
        view = dataset.select(np.random.default_rng(2).permutation(count))
        view.save(path, link=['frames'], durability='none')
        with bags.open(path) as saved:
            both = {'the view': view, 'saved': saved}
            read_once(both, CLIPS)
            options: Any = {'every': 'frames', 'frames': bags.steps(0, 16), 'padding': 'drop'}
            windows = {name: each.windows(**options) for name, each in both.items()}
            timed(output, 'windows of 16 pictures', windows, batch(length=16))


def compare_remote(output: report.Report, count: int) -> None:
    """Times reads from S3: of a view of a dataset, and of the same saved beside it."""
    if nginx_path() is None:
        print('skipped reads from S3: nginx is not installed')
        return
    root = data.cached(f'links-remote-{count}', lambda path: write_bucket(path / BUCKET, count))
    with nginx(root) as url, delayed(url, LATENCY) as slow, contextlib.ExitStack() as stack:

        def both(**options: Any) -> dict[str, Any]:
            storage_options = {'endpoint_url': slow, 'key': 'a', 'secret': 'b'}
            source, saved = (
                stack.enter_context(
                    bags.open(f's3://{BUCKET}/{name}', storage_options=storage_options, **options)
                )
                for name in ('source', 'saved')
            )
            found = {'the view': source.select(remote_order(count)), 'saved': saved}
            read_once(found, SPEC)
            return found

        decoded, raw = both(), both(raw=True)
        for title, each, make in (
            ('random row', decoded, row),
            ('batch of vectors', decoded, batch('vector')),
            ('batch of pictures, raw', raw, batch('image')),
            ('batch of pictures', decoded, batch('image')),
            ('epoch of pictures, raw', raw, epoch('id', 'image')),
            ('epoch of pictures', decoded, epoch('id', 'image')),
        ):
            timed(output, f'{title}, S3 with {LATENCY * 1e3:g} ms a request', each, make)


# Reads.


def row(dataset: Any, chance: np.random.Generator) -> Candidate:
    """Returns reads of random datapoints."""
    count = 16 if dataset.is_remote else BATCH
    indices = iter(chance.integers(0, len(dataset), 1 << 16).tolist())
    return Candidate(lambda _: [dataset[next(indices)] for _ in range(count)], count)


def batch(*fields: str, length: int = BATCH) -> Callable[[Any, np.random.Generator], Candidate]:
    """Returns what makes reads of consecutive datapoints from a random one on."""

    def make(dataset: Any, chance: np.random.Generator) -> Candidate:
        starts = iter(chance.integers(0, len(dataset) - length + 1, 1 << 10).tolist())

        def read(_: Any) -> object:
            return dataset.batch(np.arange(start := next(starts), start + length), fields or None)

        return Candidate(read, length)

    return make


def epoch(*fields: str) -> Callable[[Any, np.random.Generator], Candidate]:
    """Returns what makes epochs of some datapoints, in random order."""

    def make(dataset: Any, _: np.random.Generator) -> Candidate:
        step = max(1, len(dataset) // EPOCH)
        part = dataset.select(range(0, len(dataset), step), fields=fields)
        return Candidate(
            lambda _: sum(1 for _ in bags.Loader(part, BATCH, epochs=1, workers=2, seed=0)), len(part)
        )

    return make


def read_once(datasets: dict[str, Any], fields: Any) -> None:
    """Reads all records of some fields, and checks that the datasets have the same."""
    first, *others = datasets.values()
    for start in range(0, len(first), 1 << 12):
        indices = np.arange(start, min(start + (1 << 12), len(first)))
        for name in fields:
            records = first.read_records(indices, name)
            for each in others:
                assert each.read_records(indices, name) == records, f'{name}: other records from {start} on'


def timed(
    output: report.Report,
    title: str,
    datasets: dict[str, Any],
    make: Callable[[Any, np.random.Generator], Candidate],
    unit: str = 'us',
) -> None:
    """Times a read of each dataset in turn, at the same random places."""
    candidates = {name: make(each, np.random.default_rng(3)) for name, each in datasets.items()}
    output.compare(title, time_interleaved(candidates, seconds=4, min_rounds=9), 'saved', FLOORS, unit=unit)


def save(output: report.Report, title: str, view: Any, path: Path) -> None:
    """Saves a view once, and prints what a datapoint takes of time and of the disk."""

    def run(_: Any) -> None:
        view.save(path, link=LINKED, durability='none', checksum=False)

    wall, cpu = time_once(Candidate(run, len(view)))
    output.collect(title, {'saved': Timing(wall, cpu, wall)}, 'saved', 'us', bytes=size_of(path) / len(view))
    print(
        f'  {title}: {1 / wall:,.0f} a second, {size_of(path) / len(view):.0f} bytes a datapoint', flush=True
    )


def size_of(path: Path) -> int:
    """Returns the bytes of all files of a folder."""
    return sum(file.stat().st_size for file in path.rglob('*') if file.is_file())


# What is linked to.


def pictures() -> list[bytes]:
    """Returns JPEGs of about 3 KB."""
    found = []
    for number in range(PICTURES):
        noise = np.random.default_rng(number).integers(0, 255, (12, 12, 3), np.uint8)
        file = io.BytesIO()
        Image.fromarray(noise).resize((96, 96)).save(file, 'JPEG', quality=85)
        found.append(file.getvalue())
    return found


def write(path: Path, count: int, shards: int) -> None:
    """Writes datapoints of the four fields."""
    images, noise = pictures(), np.random.default_rng(0).standard_normal(1 << 20, np.float32)

    def rows() -> Iterator[dict[str, Any]]:
        for index in range(count):
            start = index * 37 % (len(noise) - 256)
            yield {
                'id': index, 'text': f'{index:030}', 'vector': noise[start : start + 256],
                'image': images[index % PICTURES],
            }  # fmt: skip

    with bags.ShardedDatasetWriter(path, SPEC, shard_length=count // shards, durability='none') as writer:
        for row in rows():
            writer.append(row)


def write_folder(path: Path, source: Path) -> None:
    """Writes the numbers and vectors of a dataset as one folder."""
    with (
        bags.open(source) as dataset,
        bags.DatasetWriter(
            path, {name: SPEC[name] for name in ('id', 'vector')}, durability='none'
        ) as writer,
    ):
        for start in range(0, len(dataset), 1 << 12):
            for each in dataset[start : start + (1 << 12)].select(fields=('id', 'vector')):
                writer.append(each)


def write_bucket(path: Path, count: int) -> None:
    """Writes a dataset, and a shuffled view of it with links, into the folder of a bucket."""
    path.mkdir(parents=True)
    write(path / 'source', count, REMOTE_SHARDS)
    bags.consolidate(path / 'source')
    with bags.open(path / 'source') as dataset:
        dataset.select(remote_order(count)).save(path / 'saved', link=LINKED)
    bags.consolidate(path / 'saved')


def remote_order(count: int) -> np.ndarray:
    """Returns the order of the view on S3."""
    return np.random.default_rng(1).permutation(count)


def write_clips(path: Path, count: int) -> None:
    """Writes datapoints with a sequence of 20 pictures."""
    images = pictures()
    with bags.DatasetWriter(path, CLIPS, durability='none') as writer:
        for index in range(count):
            writer.append({'id': index, 'frames': [images[(index + item) % PICTURES] for item in range(20)]})
