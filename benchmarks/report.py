"""Prints and saves times and ratios, and lists the ratios below their floors."""

import datetime as dt
import importlib.metadata
import json
import math
import os
import platform
import re
import statistics
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.timing import Timing

RESULTS = Path(__file__).parent / 'results'
PACKAGES = (
    *('bags', 'numpy', 'msgpack', 'zstandard', 'bagz', 'sackli', 'granular', 'array_record'),
    *('mosaicml-streaming', 'pylance', 'datasets', 'pyarrow', 'torch', 'grain', 'webdataset', 'litdata'),
    *('loaderx', 'obstore', 's3fs', 'av', 'torchcodec', 'lerobot'),
)
SCALE = {'us': 1e6, 'ms': 1e3}


class Report:
    """Prints tables, collects them for the file of results, and remembers which floors were reached.

    Attributes:
        command: What was run, for the file of results.
        reached: How many floors were reached.
        below: A line for every ratio below its floor.
        tables: The tables of the part that is measured now, by title.
    """

    def __init__(self, command: str) -> None:
        self.command = command
        self.reached = 0
        self.below: list[str] = []
        self.tables: dict[str, dict[str, Any]] = {}

    def check(self, what: str, ratio: float, best: float, floor: float | None) -> str:
        """Returns a ratio as text, with a mark if it has a floor; nothing for NaN (not measured).

        `best` is the ratio of the fastest rounds, printed where the ratio of the medians is below the floor:
        if `best` is above it, the machine was busy.
        """
        if math.isnan(ratio):
            return ''
        if floor is None:
            return f'{ratio:6.2f}x'
        if ratio >= floor:
            self.reached += 1
            return f'{ratio:6.2f}x  ok    >= {floor:g}'
        self.below.append(f'{what}: {ratio:.2f}x, floor {floor:g}, fastest rounds {best:.2f}x')
        return f'{ratio:6.2f}x  BELOW {floor:g}, fastest rounds {best:.2f}x'

    def compare(
        self,
        title: str,
        timings: Mapping[str, Timing],
        base: str,
        floors: Mapping[str, float],
        *,
        unit: str = 'us',
    ) -> None:
        """Prints and collects one line a candidate; a ratio is its time over the time of `base`."""
        self.collect(title, timings, base, unit)
        print(f'\n{title:<44} {unit:>10} {"cpu":>10}   peer/bags')
        ours = timings.get(base, Timing())
        for name, timing in timings.items():
            if timing.error:
                print(f'  {name:<42} failed: {timing.error[:90]}')
                continue
            ratio, best = timing.wall / ours.wall, timing.best / ours.best
            mark = self.check(f'{title}, {name}', ratio, best, floors.get(name))
            wall, cpu = timing.wall * SCALE[unit], timing.cpu * SCALE[unit]
            print(f'  {name:<42} {wall:10.3f} {cpu:10.3f} {mark}'.rstrip(), flush=True)

    def collect(self, title: str, timings: Mapping[str, Timing], base: str, unit: str, **more: float) -> None:
        """Adds a table to the results of the current part."""
        ours = timings.get(base, Timing())
        cells: dict[str, dict[str, Any]] = {}
        for name, timing in timings.items():
            figures = {
                'median': timing.wall * SCALE[unit],
                'cpu': timing.cpu * SCALE[unit],
                'best': timing.best * SCALE[unit],
                'ratio': timing.wall / ours.wall,
            }
            cells[name] = {'error': timing.error[:200]} if timing.error else rounded(figures)
        self.tables[title] = {'unit': unit, **rounded(more), 'cells': cells}

    def save(self, part: str, folder: Path = RESULTS) -> None:
        """Writes the tables of a part to its file of results, and begins with the next part."""
        if self.tables:
            result = {
                'part': part,
                'command': self.command,
                'date': dt.datetime.now(dt.UTC).date().isoformat(),
                'commit': commit(),
                'machine': machine(),
                'system': f'{platform.platform()}, Python {platform.python_version()}',
                'versions': {name: version for name in PACKAGES if (version := installed(name))},
                'tables': self.tables,
            }
            folder.mkdir(exist_ok=True)
            (folder / f'{part}.json').write_text(as_json(result), encoding='utf-8')
        self.tables = {}

    def summary(self) -> None:
        """Prints how many floors were reached, and every ratio below its floor."""
        print(f'\n{self.reached} floors reached, {len(self.below)} not')
        for line in self.below:
            print(f'  {line}')


def rounded(figures: Mapping[str, float]) -> dict[str, float]:
    """Rounds each figure that was measured to four digits."""
    return {name: float(f'{value:.4g}') for name, value in figures.items() if not math.isnan(value)}


def as_json(result: Mapping[str, Any]) -> str:
    """Formats results as JSON with one candidate a line."""
    text = json.dumps(result, indent=2, ensure_ascii=False)
    return re.sub(r'\{[^{}]*\}', lambda found: ' '.join(found[0].split()), text) + '\n'


def geometric(ratios: Iterable[float]) -> float:
    """Returns the geometric mean; NaN for no ratios."""
    measured = [ratio for ratio in ratios if not math.isnan(ratio)]
    return statistics.geometric_mean(measured) if measured else float('nan')


def heading(title: str) -> None:
    """Prints a line above a part of the output."""
    print(f'\n{title}\n{"=" * len(title)}')


def environment(absent: Sequence[str], directory: Path) -> None:
    """Prints the machine, the versions, and the peers that are not installed."""
    load = ', '.join(f'{value:.1f}' for value in os.getloadavg())
    print(f'{machine()}, load {load}')
    if os.getloadavg()[0] > (os.cpu_count() or 1) / 2:
        print('The machine is busy: compare CPU times and fastest rounds, too.')
    print(f'{platform.platform()}, Python {platform.python_version()}')
    print(' · '.join(f'{name} {version}' for name in PACKAGES if (version := installed(name))))
    print(f'files in {directory}')
    for name in absent:
        print(f'skipped: {name} is not installed')


def machine() -> str:
    """Returns the name of the processor and its number of cores."""
    cpuinfo = Path('/proc/cpuinfo')
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    models = [line.partition(': ')[2] for line in lines if line.startswith('model name')]
    return f'{[*models, platform.machine()][0]}, {os.cpu_count()} cores'


def commit() -> str:
    """Returns the commit that is checked out, marked if files differ from it; empty without git."""
    command = ['git', 'describe', '--always', '--dirty', '--exclude', '*']
    try:
        done = subprocess.run(command, cwd=RESULTS.parent, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return ''
    return done.stdout.strip()


def installed(package: str) -> str:
    """Returns the version of a package, empty if it is not installed."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ''
