"""What is printed: numbers, ratios, and marks against the floors the library holds itself to."""

import importlib.metadata
import math
import os
import platform
import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path

from benchmarks.timing import Timing

PACKAGES = (
    *('bags', 'numpy', 'msgpack', 'zstandard', 'bagz', 'sackli', 'granular', 'array_record'),
    *(
        'mosaicml-streaming',
        'pylance',
        'datasets',
        'pyarrow',
        'torch',
        'grain',
        'webdataset',
        'litdata',
        'loaderx',
    ),
)


class Report:
    """Prints tables and remembers which floors were met.

    Attributes:
        met: How many floors were reached.
        below: A line for every ratio below its floor.
    """

    def __init__(self) -> None:
        self.met = 0
        self.below: list[str] = []

    def floor(self, what: str, ratio: float, best: float, floor: float | None) -> str:
        """The ratio as text, with a mark where there is a floor; NaN (not measured) has neither.

        `best` is the ratio of the best turns, said where the medians are below the floor: if it is not, the
        machine was busy.
        """
        if math.isnan(ratio):
            return ''
        if floor is None:
            return f'{ratio:6.2f}x'
        if ratio >= floor:
            self.met += 1
            return f'{ratio:6.2f}x  ok    >= {floor:g}'
        said = f'{ratio:.2f}x, floor {floor:g}, best turns {best:.2f}x'
        self.below.append(f'{what}: {said}')
        return f'{ratio:6.2f}x  BELOW {floor:g}, best turns {best:.2f}x'

    def contest(
        self, title: str, timings: dict[str, Timing], ours: str, floors: dict[str, float], *, unit: str = 'us'
    ) -> None:
        """One line a contestant; a ratio is the peer's time over the time of `ours`."""
        scale = {'us': 1e6, 'ms': 1e3}[unit]
        print(f'\n{title:<44} {unit:>10} {"cpu":>10}   peer/bags')
        base = timings.get(ours, Timing())
        for name, timing in timings.items():
            if timing.error:
                print(f'  {name:<42} failed: {timing.error[:90]}')
                continue
            ratio, best = timing.wall / base.wall, timing.best / base.best
            mark = self.floor(f'{title}, {name}', ratio, best, floors.get(name))
            print(f'  {name:<42} {timing.wall * scale:10.3f} {timing.cpu * scale:10.3f} {mark}'.rstrip())

    def summary(self) -> None:
        """How many floors were met, and every ratio below its floor."""
        print(f'\n{self.met} floors met, {len(self.below)} not')
        for line in self.below:
            print(f'  {line}')


def geometric(ratios: Iterable[float]) -> float:
    """The geometric mean; NaN of nothing."""
    known = [ratio for ratio in ratios if not math.isnan(ratio)]
    return statistics.geometric_mean(known) if known else float('nan')


def heading(title: str) -> None:
    """A line above a part of the output."""
    print(f'\n{title}\n{"=" * len(title)}')


def environment(absent: Sequence[str], directory: Path) -> None:
    """Prints what the numbers depend on: machine, versions, and the peers that are not installed."""
    cpuinfo = Path('/proc/cpuinfo')
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    models = [line.partition(': ')[2] for line in lines if line.startswith('model name')]
    load = ', '.join(f'{value:.1f}' for value in os.getloadavg())
    print(f'{[*models, platform.machine()][0]}, {os.cpu_count()} cores, load {load}')
    if os.getloadavg()[0] > (os.cpu_count() or 1) / 2:
        print('The machine is busy: compare CPU times and best turns, too.')
    print(f'{platform.platform()}, Python {platform.python_version()}')
    print(' · '.join(f'{name} {version}' for name in PACKAGES if (version := installed(name))))
    print(f'files in {directory}')
    for name in absent:
        print(f'skipped: {name} is not installed')


def installed(package: str) -> str:
    """The version of a package, empty where it is not installed."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ''
