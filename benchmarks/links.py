"""A view, and the same view saved as links: its size, saving it, and reads of both; `--only links`.

The view has 1,000,000 datapoints in random order, of 100 shards with an int, a text of 30 bytes, a vector
of 1 KB and a JPEG of about 3 KB. Windows of 16 pictures are of 5,000 datapoints with a sequence of 20.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

import bags
from benchmarks import data, report
from benchmarks.timing import Candidate, Timing, time_interleaved, time_once

SPEC = {'id': 'int(8)', 'text': 'utf8', 'vector': 'array(float32,256)', 'image': 'jpeg'}
CLIPS = {'id': 'int(8)', 'frames': 'jpeg[]'}
LINKED = ('vector', 'image')
COUNT, SHARDS, BATCH, PICTURES = 1_000_000, 100, 256, 64
FLOOR = 0.8
"""A read of the saved view takes at most 1.25 times that of the view."""


def main(output: report.Report, *, quick: bool) -> None:
    """Prints a table for each read, and for saving."""
    count = COUNT // 20 if quick else COUNT
    report.heading(f'Links: a view of {count:,} datapoints, and the same saved')
    source = data.cached(f'links-{count}', lambda path: write(path, count))
    clips = data.cached(f'links-clips-{count // 200}', lambda path: write_clips(path, count // 200))
    data.warm(source)
    order = np.random.default_rng(1).permutation(count)
    paths = {'in order': data.scratch('links-ordered'), 'shuffled': data.scratch('links')}
    with bags.open(source) as dataset:
        views = {'in order': dataset[:], 'shuffled': dataset.select(order)}
        for name, path in paths.items():
            save(output, f'save {count:,} datapoints, {name}', views[name], path)
        compare_reads(output, views, paths, count)
    windows = {'every': 'frames', 'frames': bags.steps(0, 16), 'padding': 'drop'}
    with bags.open(clips) as dataset:
        view = dataset.select(np.random.default_rng(2).permutation(len(dataset)))
        path = data.scratch('links-clips')
        bags.copy(view, path, link=['frames'], durability='none')
        with bags.open(path) as saved:
            both = {'the view': view.windows(**windows), 'saved': saved.windows(**windows)}
            chosen = data.order(16, len(both['saved']))
            reads = {
                name: Candidate(lambda _, each=each: each.batch(chosen), 16) for name, each in both.items()
            }
            check_same(both, chosen[:2])
            timed(output, 'windows of 16 pictures', reads)


def compare_reads(output: report.Report, views: Any, paths: Any, count: int) -> None:
    """Times reads of views and of what was saved, in turn."""
    opened = {name: bags.open(path) for name, path in paths.items()}
    both = {name: {'the view': views[name], 'saved': opened[name]} for name in paths}
    for pair in both.values():
        check_same(pair, data.order(20, count))
    shuffled, ordered = both['shuffled'], both['in order']
    rows = iter(np.random.default_rng(3).integers(0, count, 1 << 22).tolist())
    starts = iter(np.random.default_rng(4).integers(0, count - BATCH, 1 << 20).tolist())

    def row(each: Any) -> Callable[[Any], object]:
        return lambda _: [each[next(rows)] for _ in range(BATCH)]

    def batch(*fields: str) -> Callable[[Any], Callable[[Any], object]]:
        def make(each: Any) -> Callable[[Any], object]:
            return lambda _: each.batch(np.arange(start := next(starts), start + BATCH), fields)

        return make

    def scan(field: str) -> Callable[[Any], Callable[[Any], object]]:
        return lambda each: lambda _: each[: count // 20].column(field)

    def epoch(decoded: bool) -> Callable[[Any], Callable[[Any], object]]:
        def make(each: Any) -> Callable[[Any], object]:
            fields = ('id', 'image') if decoded else ('id', 'vector')
            part = each.select(range(0, count, count // 5_000), fields=fields)
            return lambda _: sum(1 for _ in bags.Loader(part, BATCH, epochs=1, workers=2, seed=0))

        return make

    for title, pair, units, make in (
        ('random row', shuffled, BATCH, row),
        ('batch of id and text', shuffled, BATCH, batch('id', 'text')),
        ('batch of vectors, in order', ordered, BATCH, batch('vector')),
        ('batch of vectors, shuffled', shuffled, BATCH, batch('vector')),
        ('batch of pictures', shuffled, BATCH, batch('image')),
        ('scan of vectors, in order', ordered, count // 20, scan('vector')),
        ('epoch of vectors', shuffled, 5_000, epoch(False)),
        ('epoch of pictures', shuffled, 5_000, epoch(True)),
    ):
        timed(output, title, {name: Candidate(make(each), units) for name, each in pair.items()})
    timed(output, 'open', {'saved': Candidate(lambda _: bags.open(paths['shuffled']), 1)}, unit='ms')
    for each in opened.values():
        each.close()


def timed(output: report.Report, title: str, candidates: dict[str, Candidate], *, unit: str = 'us') -> None:
    """Times the view and the saved view in turn."""
    timings = time_interleaved(candidates, seconds=3, min_rounds=7)
    output.compare(title, timings, 'saved', {'the view': FLOOR}, unit=unit)


def save(output: report.Report, title: str, view: Any, path: Path) -> None:
    """Saves a view once, and prints what a datapoint takes of time and of the disk."""

    def run(_: Any) -> None:
        bags.copy(view, path, link=LINKED, durability='none', checksum=False)

    wall, cpu = time_once(Candidate(run, len(view)))
    output.collect(title, {'saved': Timing(wall, cpu, wall)}, 'saved', 'us', bytes=size_of(path) / len(view))
    print(
        f'  {title}: {1 / wall:,.0f} a second, {size_of(path) / len(view):.0f} bytes a datapoint', flush=True
    )


def size_of(path: Path) -> int:
    """Returns the bytes of all files of a folder."""
    return sum(file.stat().st_size for file in path.rglob('*') if file.is_file())


def check_same(both: dict[str, Any], chosen: np.ndarray) -> None:
    """Raises an AssertionError unless both datasets have the same rows."""
    found = [each.batch(chosen) for each in both.values()]
    for name in found[0]:
        for one, other in zip(found[0][name], found[1][name], strict=True):
            assert np.array_equal(one, other), f'{name}: the saved view has other values'


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


def write(path: Path, count: int) -> None:
    """Writes datapoints of the four fields."""
    images, noise = pictures(), np.random.default_rng(0).standard_normal(1 << 20, np.float32)

    def rows() -> Iterator[dict[str, Any]]:
        for index in range(count):
            start = index * 37 % (len(noise) - 256)
            yield {
                'id': index, 'text': f'{index:030}', 'vector': noise[start : start + 256],
                'image': images[index % PICTURES],
            }  # fmt: skip

    with bags.ShardedDatasetWriter(path, SPEC, shard_length=count // SHARDS, durability='none') as writer:
        for row in rows():
            writer.append(row)


def write_clips(path: Path, count: int) -> None:
    """Writes datapoints with a sequence of 20 pictures."""
    images = pictures()
    with bags.DatasetWriter(path, CLIPS, durability='none') as writer:
        for index in range(count):
            writer.append({'id': index, 'frames': [images[(index + item) % PICTURES] for item in range(20)]})
