"""Finding datapoints by key: `python -m benchmarks.keys [10_000_000]` prints what docs/keys.md says."""

import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt

import bags
from benchmarks.scale import write_numbers
from benchmarks.server import BUCKET, nginx, nginx_path

SHARDS = 1, 10
LOOK_UPS = 2000
REPEATS = 7


def median_seconds(work: Callable[[], object]) -> float:
    """Returns the median time of several calls, after one that does not count."""
    work()
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def main(count: int) -> None:
    """Indexes integers in random order, and looks some of them up."""
    keys = np.random.default_rng(0).permutation(count)
    wanted = np.random.default_rng(1).integers(0, count, LOOK_UPS).tolist()
    for shards in SHARDS:
        print(f'{count:,} keys in {shards} shards')
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / 'root' / BUCKET / 'x'
            path.mkdir(parents=True)
            for number, part in enumerate(np.array_split(keys, shards)):
                write_numbers(path / f'{number:06}', part)
            bags.consolidate(path)
            time_look_ups(path, keys, wanted)
            if nginx_path():
                count_requests(Path(folder), keys, wanted[:200])


def time_look_ups(path: Path, keys: npt.NDArray[np.int64], wanted: list[int]) -> None:
    """Makes the index of a dataset, and looks up some keys."""
    start = time.perf_counter()
    bags.create_index(path, 'id', progress=False)
    seconds = time.perf_counter() - start
    size = next(path.rglob('id.index')).stat().st_size
    print(f'create_index: {seconds:.1f} s, {size / 1e6:.0f} MB')
    # The first look-up opens both; opening the dataset and reading a datapoint is subtracted.
    find = median_seconds(lambda: bags.open(path).find('id', 7))
    row = median_seconds(lambda: bags.open(path)[7])
    print(f'the first look-up opens the index: {(find - row) * 1e3:.2f} ms')
    dataset = bags.open(path)
    found = [dataset.find('id', key) for key in wanted]
    assert keys[found].tolist() == wanted
    seconds = median_seconds(lambda: [dataset.find('id', key) for key in wanted])
    print(f'find: {seconds / LOOK_UPS * 1e6:.1f} us')
    seconds = median_seconds(lambda: dataset.find_many('id', wanted))
    print(f'find_many, of {LOOK_UPS:,} keys: {seconds / LOOK_UPS * 1e6:.1f} us a key')


def count_requests(folder: Path, keys: npt.NDArray[np.int64], wanted: list[int]) -> None:
    """Counts the requests of look-ups over HTTP, which are those of look-ups from S3."""
    log = folder / 'access.log'
    folder.chmod(0o755)  # nginx runs as another user.
    with nginx(folder / 'root', str(log)) as url:
        dataset = bags.open(f'{url}/{BUCKET}/x')
        requests = []
        for key in wanted:
            requests.append(requests_in(log))
            assert keys[dataset.find('id', key)] == key
        first, *later = np.diff(requests).tolist()
        print(f'over HTTP, the first look-up: {first} requests')
        # The first look-up in each shard opens the shard.
        print(f'later ones: {statistics.median(later)}, at most {max(later[len(later) // 2 :])} at the end')


def requests_in(log: Path) -> int:
    """Returns the number of requests so far; nginx logs each after its response."""
    time.sleep(0.02)
    return len(log.read_bytes().splitlines())


if __name__ == '__main__':
    main(int(float(sys.argv[1])) if len(sys.argv) > 1 else 10_000_000)
