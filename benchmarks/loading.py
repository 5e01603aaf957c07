"""Loading: JPEGs to batches, and small arrays to batches, in random order, beside other loaders."""

import concurrent.futures
import functools
import gc
import io
import itertools
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

import bags
from benchmarks import data, report
from benchmarks.loaders import BATCH, CORES, LOADERS, SIZE, decode
from benchmarks.peers import is_installed
from benchmarks.timing import Candidate, time_interleaved

PICTURES = 2_048
ROWS, WIDTH, ROW_BATCH = 50_000, 1_024, 256
PHOTOGRAPHS = Path(__file__).parents[1] / 'examples/data'


def main(output: report.Report, *, quick: bool, only: Iterable[str] = ()) -> None:
    """Prints one table for images and one for arrays."""
    images(output, quick=quick, only=only)
    arrays(output, quick=quick)


@functools.cache
def pictures() -> list[bytes]:
    """Crops of the photographs of the examples, each a JPEG of SIZE x SIZE, quality 90."""
    from PIL import Image

    photographs = [Image.open(path).convert('RGB') for path in sorted(PHOTOGRAPHS.glob('*.jpg'))]
    rng = np.random.default_rng(5)
    found: dict[bytes, None] = {}
    for photograph in itertools.cycle(photographs):
        left, top = (int(rng.integers(size - SIZE + 1)) for size in photograph.size)
        stream = io.BytesIO()
        photograph.crop((left, top, left + SIZE, top + SIZE)).save(stream, 'JPEG', quality=90)
        found[stream.getvalue()] = None  # Two crops of the night sky may be equal.
        if len(found) == PICTURES:
            break
    return list(found)


def images(output: report.Report, *, quick: bool, only: Iterable[str] = ()) -> None:
    """JPEGs to stacked batches."""
    records = pictures()
    kilobytes = sum(map(len, records)) / len(records) / 1000
    what = f'{PICTURES:,} JPEGs of {SIZE} x {SIZE}, {kilobytes:.0f} KB, in batches of {BATCH}'
    report.heading(f'Loading: {what}, us a picture')
    candidates = {f'only decoding, {CORES} threads': Candidate(lambda _: decode_all(records), PICTURES)}
    for name, loader in LOADERS.items():
        if (only and name not in only) or not is_installed(loader.module):
            continue
        try:
            folder = 'bags' if name.startswith('bags') else name.replace(' ', '-')
            path = data.cached(f'loading-{folder}', lambda path, loader=loader: loader.write(path, records))
            data.warm(path)
            epoch = loader.open(path)
            check(epoch(), records)
            candidates[name] = Candidate(lambda _, epoch=epoch: consume(epoch()), PICTURES)
        except Exception as error:
            print(f'  {name} left out: {type(error).__name__}: {str(error)[:200]}')
    floors = {name: 0.9 if name.startswith('only') else 1.0 for name in candidates if 'bags' not in name}
    timings = time_interleaved(candidates, seconds=2.0 if quick else 20.0, min_rounds=9)
    output.compare('pictures, decoded and stacked', timings, 'bags', floors)
    candidates.clear()
    gc.collect()


def decode_all(records: list[bytes]) -> None:
    """Decodes and drops, with as many threads as cores."""

    def some(start: int) -> None:
        for record in itertools.islice(records, start, None, CORES):
            decode(record)

    with concurrent.futures.ThreadPoolExecutor(CORES) as pool:
        list(pool.map(some, range(CORES)))


def consume(batches: Iterable[Any]) -> None:
    """Reads batches, and frees each before the next."""
    count = 0
    for batch in batches:
        count += len(batch)
    if count < PICTURES - BATCH * (CORES + 1):
        raise AssertionError(f'{count} pictures of {PICTURES}')


def check(batches: Iterable[Any], records: list[bytes]) -> None:
    """Raises if a loader decodes wrong pixels, repeats an image, or does not shuffle."""
    expected = {decode(record).tobytes(): number for number, record in enumerate(records)}
    numbers = []
    for batch in batches:
        array = np.asarray(batch)
        if array.shape != (BATCH, SIZE, SIZE, 3) or array.dtype != np.uint8:
            raise AssertionError(f'a batch of {array.dtype} {array.shape}')
        numbers += [expected[picture.tobytes()] for picture in array]
    if len(set(numbers)) < len(numbers) or len(numbers) < PICTURES - BATCH * (CORES + 1):
        raise AssertionError(f'{len(set(numbers))} different pictures of {len(numbers)}')
    if numbers == sorted(numbers):
        raise AssertionError('not shuffled')


def arrays(output: report.Report, *, quick: bool) -> None:
    """Rows of 4 KB."""
    report.heading(f'Loading: {ROWS:,} rows of {WIDTH} float32, in batches of {ROW_BATCH}, us a row')
    rows = data.cached('loading-rows.npy', write_rows)
    data.warm(rows)
    mapped = np.load(rows, mmap_mode='r')
    folder = data.cached('loading-rows-bags', functools.partial(write_bags, mapped))
    data.warm(folder)
    loader = bags.Loader(bags.open(folder), ROW_BATCH, last_batch='drop', workers=CORES)
    inline = bags.Loader(bags.open(folder), ROW_BATCH, last_batch='drop', workers=0)
    batch = next(iter(bags.Loader(bags.open(folder), ROW_BATCH, shuffle=False, workers=0)))
    if not np.array_equal(batch['row'], mapped[:ROW_BATCH]):
        raise AssertionError('the rows differ')
    count = ROWS // ROW_BATCH * ROW_BATCH
    order = np.random.default_rng(1).permutation(ROWS)

    def take(_: Any) -> None:
        for start in range(0, count, ROW_BATCH):
            np.take(mapped, order[start : start + ROW_BATCH], axis=0)

    candidates = {
        'bags': Candidate(lambda _: consume_rows(loader, count), count),
        'bags, without workers': Candidate(lambda _: consume_rows(inline, count), count),
        'np.take': Candidate(take, count),
    }
    if is_installed('loaderx'):
        try:
            candidates['loaderx'] = loaderx(mapped, count)
        except Exception as error:
            print(f'  loaderx left out: {type(error).__name__}: {str(error)[:200]}')
    timings = time_interleaved(candidates, seconds=2.0 if quick else 10.0)
    output.compare('random rows of 4 KB', timings, 'bags', {'np.take': 0.7, 'loaderx': 1.0})


def consume_rows(batches: Iterable[dict[str, np.ndarray]], expected: int) -> None:
    """Reads batches, and frees each before the next."""
    if sum(len(batch['row']) for batch in batches) != expected:
        raise AssertionError('rows are missing')


def write_rows(path: Path) -> None:
    rows = np.lib.format.open_memmap(path, 'w+', np.float32, (ROWS, WIDTH))
    rows[:] = np.random.default_rng(6).random((ROWS, WIDTH), np.float32)
    rows.flush()


def write_bags(rows: np.ndarray, path: Path) -> None:
    with bags.DatasetWriter(path, {'row': f'array(float32,{WIDTH})'}) as writer:
        for row in rows:
            writer.append({'row': row})


def loaderx(rows: np.ndarray, count: int) -> Candidate:
    """loaderx, uncompressed, with the number of workers that was fastest."""
    from loaderx import Loader
    from loaderx.sampler import Sampler
    from loaderx.zrecord import Dense

    def write(path: Path) -> None:
        with Dense.create(str(path), rows.dtype, rows.shape[1:], codec='raw') as store:
            for start in range(0, len(rows), 4096):
                store.append(np.array(rows[start : start + 4096]))

    path = data.cached('loading-rows-loaderx', write)
    data.warm(path)
    store = Dense.open(str(path))
    sampler = Sampler(ROWS, ROW_BATCH, Sampler.Mode.CYCLIC, seed=1)
    stream = iter(Loader({'row': [store]}, sampler, transform=lambda shards: shards[0], workers=CORES))

    def run(_: Any) -> None:
        for _ in range(count // ROW_BATCH):
            np.from_dlpack(next(stream)['row'])

    return Candidate(run, count)
