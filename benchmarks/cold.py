"""Records, cold: 1,024 random ones in one call, none of them in the page cache."""

import ctypes
import functools
import gc
import itertools
import math
import mmap
import os
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import data, report
from benchmarks.records import libraries, write
from benchmarks.timing import Candidate, Timing, time_interleaved

GATHER = 1024
CONFIGURATIONS: dict[str, tuple[str, dict[str, str]]] = {
    'bags': ('bags', {}),
    'bags RANDOM': ('bags', {'access_pattern': 'RANDOM'}),
    'bags DIRECT_IO': ('bags', {'cache_policy': 'DIRECT_IO'}),
    'bagz': ('bagz', {}),
    'sackli': ('sackli', {}),
    'sackli RANDOM': ('sackli', {'access_pattern': 'RANDOM'}),
    'sackli DIRECT_IO': ('sackli', {'cache_policy': 'DIRECT_IO'}),
}
FLOORS = {'bagz': 1.0, 'sackli': 1.0, 'sackli RANDOM': 1.0, 'sackli DIRECT_IO': 0.85}
SIZES = {'100 B': (100, 5_000_000), '4 KB': (4096, 500_000), '1 MB': (1 << 20, 2_048)}


def main(output: report.Report, *, quick: bool, whole: bool) -> None:
    """Prints one table a size and compression; `whole` drops the page cache of the whole machine."""
    modules = libraries()
    writer = modules.get('bagz') or modules.get('sackli') or modules['bags']
    how = 'the whole page cache' if whole else "the file's pages"
    report.heading(f'Records, cold: us a record of {GATHER:,} random ones in one call')
    print(
        f'All readers are closed, then {how} dropped; opening is timed apart. Every run reads other records.'
    )
    for name, (size, count) in SIZES.items():
        records = functools.partial(data.records, count, size, variable=True, content='random')
        for extension in ('bag', 'bagz') if name == '4 KB' and not quick else ('bag',):
            path = data.cached(f'cold-{size}.{extension}', lambda path, r=records: write(writer, path, r()))
            configurations = {
                name: Configuration(modules[library], path, options, whole=whole, seed=index * 1000)
                for index, (name, (library, options)) in enumerate(CONFIGURATIONS.items())
                if library in modules
            }
            compare(
                output,
                f'cold {name} {"zstd" if extension == "bagz" else "plain"}',
                configurations,
                quick=quick,
            )


def compare(
    output: report.Report, title: str, configurations: dict[str, 'Configuration'], *, quick: bool
) -> None:
    """Times every configuration on one file."""
    candidates = {
        name: Candidate(configuration.read, GATHER, configuration.open, configuration.close)
        for name, configuration in configurations.items()
    }
    timings = time_interleaved(candidates, seconds=1 if quick else 4, min_rounds=3, max_rounds=15)
    output.compare(title, timings, 'bags', FLOORS)
    for name in ('RANDOM', 'DIRECT_IO'):
        ours, theirs = (timings.get(f'{library} {name}', Timing()).wall for library in ('bags', 'sackli'))
        if not math.isnan(theirs / ours):
            print(f'  {"bags and sackli, both " + name:<63} {theirs / ours:6.2f}x')
    print(
        '  open, ms: '
        + ', '.join(
            f'{n} {statistics.median(configuration.opened) * 1e3:.2f}'
            for n, configuration in configurations.items()
            if configuration.opened
        )
    )


class Configuration:
    """Measures one configuration; every run opens a file with a cold page cache, and reads other records."""

    def __init__(self, module: Any, path: Path, options: dict[str, str], *, whole: bool, seed: int) -> None:
        self.module = module
        self.path = path
        self.options = options
        self.whole = whole
        self.seeds = itertools.count(seed)
        self.opened: list[float] = []

    def open(self) -> tuple[Any, np.ndarray]:
        drop(self.path, whole=self.whole)
        start = time.perf_counter()
        reader = self.module.Reader(str(self.path), **self.options)
        self.opened.append(time.perf_counter() - start)
        # The host of a virtual machine may cache records that were read before.
        return reader, data.order(GATHER, len(reader), seed=next(self.seeds))

    def read(self, state: tuple[Any, np.ndarray]) -> object:
        reader, indices = state
        return reader.read_indices(indices)

    def close(self, state: tuple[Any, np.ndarray]) -> None:
        getattr(state[0], 'close', lambda: None)()
        gc.collect()  # bagz has no close


def drop(path: Path, *, whole: bool) -> None:
    """Drops a file from the page cache, and checks that it is gone.

    Raises:
        RuntimeError: More than one page in a hundred stayed, as when some reader still maps the file.
    """
    # Pages with read-ahead in progress cannot be dropped yet.
    for _ in range(100):
        with open(path, 'rb') as file:
            os.fsync(file.fileno())
            if whole:
                Path('/proc/sys/vm/drop_caches').write_text('3')
            else:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        left = resident(path)
        if left <= 0.01:
            return
        time.sleep(0.02)
    raise RuntimeError(f'{path}: {left:.0%} is still in the page cache')


def resident(path: Path) -> float:
    """Returns the fraction of a file's pages that is in the page cache."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mincore.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)
    with open(path, 'rb') as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapped:
        view = np.frombuffer(mapped, np.uint8)
        pages = np.zeros(-(-len(mapped) // mmap.PAGESIZE), np.uint8)
        failed = libc.mincore(view.ctypes.data, len(mapped), pages.ctypes.data)
        del view
        if failed:
            raise OSError(ctypes.get_errno(), 'mincore')
    return float((pages & 1).mean())
