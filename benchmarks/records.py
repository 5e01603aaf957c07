"""Records: bags.bag beside bagz and Säckli, from the page cache, by size, compression and operation."""

import dataclasses
import importlib
import itertools
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import data, report
from benchmarks.peers import is_installed
from benchmarks.timing import Candidate, Timing, time_interleaved

LIBRARIES = {'bags': 'bags.bag', 'bagz': 'bagz', 'sackli': 'sackli'}


@dataclass(frozen=True)
class Kind:
    """A size of records and how many of them a run handles.

    Attributes:
        name: The size, as printed.
        size: Bytes a record, or their mean.
        count: Records in the file that is read.
        single: Records read one by one.
        at_once: Records read in one call.
        in_order: Records read in order, and records written.
    """

    name: str
    size: int
    count: int
    single: int
    at_once: int
    in_order: int


KINDS = (
    Kind('100 B', 100, 100_000, 10_000, 1024, 100_000),
    Kind('4 KB', 4096, 20_000, 5_000, 1024, 20_000),
    Kind('1 MB', 1 << 20, 1024, 100, 1024, 128),
)
QUICK = (*KINDS[:2], dataclasses.replace(KINDS[2], at_once=256, in_order=64))


@dataclass(frozen=True)
class Case:
    """A kind of file, whichever library wrote it."""

    kind: Kind
    extension: str
    variable: bool
    content: str

    @property
    def name(self) -> str:
        return f'{self.kind.name:6} {"zstd" if self.extension == "bagz" else "plain":6}'

    @property
    def sizes(self) -> str:
        return 'variable' if self.variable else 'fixed'

    def records(self, count: int) -> Iterator[bytes]:
        """Returns the first records of the file."""
        records = data.records(self.kind.count, self.kind.size, variable=self.variable, content=self.content)
        return itertools.islice(records, count)

    def path(self, library: str, module: Any) -> Path:
        """Returns the file a library wrote; uncompressed bags are the same bytes for all of them."""
        writer = f'-{library}' if self.extension == 'bagz' else ''
        name = f'records-{self.kind.size}-{self.sizes}-{self.content}{writer}.{self.extension}'
        return data.cached(name, lambda path: write(module, path, self.records(self.kind.count)))


@dataclass(frozen=True)
class Cell:
    """One line of the table: an operation on a kind of file, and the time of each library."""

    operation: str
    case: Case
    floor: float
    timings: dict[str, Timing]

    @property
    def name(self) -> str:
        return f'{self.case.name} {self.operation}'

    @property
    def ratio(self) -> float:
        """The faster peer's time divided by that of bags."""
        return self.over(lambda timing: timing.wall)

    def over(self, measure: Callable[[Timing], float]) -> float:
        """The smaller measure of the peers divided by that of bags."""
        peers = [measure(t) for name, t in self.timings.items() if name != 'bags' and not t.error]
        return min(peers, default=math.nan) / measure(self.timings.get('bags', Timing()))


def libraries() -> dict[str, Any]:
    """The modules that are installed, by name."""
    return {name: importlib.import_module(module) for name, module in LIBRARIES.items() if is_installed(name)}


def main(output: report.Report, *, quick: bool, sizes: list[bool], contents: list[str]) -> None:
    """Prints the table; `sizes` says whether records vary in size, for each pass over the cells."""
    modules = libraries()
    budget = {'seconds': 0.5, 'min_rounds': 3} if quick else {'seconds': 1.0, 'min_rounds': 5}
    report.heading('Records, from the page cache: us a record (cpu us), and the faster peer over bags')
    print('Each library reads the file it wrote: zstd records of bags carry a checksum, which it verifies.')
    cells = []
    for content, variable in itertools.product(contents, sizes):
        print(f'\n{"variable" if variable else "fixed"} sizes, {content} content')
        print(f'{"":32}' + ''.join(f'{name:>11}{"":9}' for name in modules) + '  ratio')
        for kind, extension in itertools.product(QUICK if quick or variable else KINDS, ('bag', 'bagz')):
            case = Case(kind, extension, variable, content)
            for operation, candidates in operations(case, modules):
                sequential = operation in ('for x in reader', 'read()')
                floor = 0.5 if sequential and case.name.split() == ['100', 'B', 'zstd'] else 0.75
                cell = Cell(operation, case, floor, time_interleaved(candidates, **budget))
                cells.append(cell)
                show(output, cell)
    totals(output, cells)


def operations(case: Case, modules: dict[str, Any]) -> Iterator[tuple[str, dict[str, Candidate]]]:
    """Yields what is timed on one kind of file: each operation, with a candidate for each library."""
    kind = case.kind
    readers = {name: module.Reader(str(case.path(name, module))) for name, module in modules.items()}
    for reader in readers.values():
        check(reader, case)
    order = data.order(max(kind.single, kind.at_once), kind.count)
    single, at_once = order[: kind.single].tolist(), order[: kind.at_once]
    listed = at_once.tolist()

    def one_by_one(reader: Any) -> None:
        for index in single:
            reader[index]

    def sweep(reader: Any) -> None:
        for _ in reader:
            pass

    def reading(run: Callable[[Any], object], count: int, readers: dict[str, Any]) -> dict[str, Candidate]:
        return {name: Candidate(lambda _, r=reader: run(r), count) for name, reader in readers.items()}

    yield 'single', reading(one_by_one, len(single), readers)
    yield 'gather (list)', reading(lambda reader: reader.read_indices(listed), kind.at_once, readers)
    yield 'gather (array)', reading(lambda reader: reader.read_indices(at_once), kind.at_once, readers)
    if kind.in_order < kind.count:
        readers = {name: reader[: kind.in_order] for name, reader in readers.items()}
    yield 'for x in reader', reading(sweep, kind.in_order, readers)
    yield 'read()', reading(lambda reader: reader.read(), kind.in_order, readers)
    yield 'write', writing(case, modules)


def writing(case: Case, modules: dict[str, Any]) -> dict[str, Candidate]:
    """Writes a file and closes it, without waiting for the disk: durability 'none'."""
    records = list(case.records(case.kind.in_order))
    return {
        name: Candidate(
            lambda path, module=module: write(module, path, records),
            len(records),
            before=lambda name=name: data.scratch(f'{name}.{case.extension}'),
            after=data.remove,
        )
        for name, module in modules.items()
    }


def write(module: Any, path: Path, records: Iterable[bytes]) -> None:
    """Writes a bag, compressed or not as its name says."""
    options = {'durability': 'none'} if module.__name__ == 'bags.bag' else {}
    with module.Writer(str(path), **options) as writer:
        for record in records:
            writer.write(record)


def check(reader: Any, case: Case) -> None:
    """Raises if a library reads wrong records; also brings the file into the page cache."""
    for index, expected in enumerate(case.records(case.kind.count)):
        if reader[index] != expected:
            raise AssertionError(f'{type(reader).__module__}: record {index} differs')


def show(output: report.Report, cell: Cell) -> None:
    """Prints one cell."""
    columns = ''
    for timing in cell.timings.values():
        columns += (
            f'{timing.wall * 1e6:11.3f} {f"({timing.cpu * 1e6:.3g})":8}'
            if not timing.error
            else timing.error[:20]
        )
    what = f'{cell.case.sizes} {cell.case.content}, {" ".join(cell.name.split())}'
    output.collect(what, cell.timings, 'bags', 'us', faster_peer=cell.ratio)
    mark = output.check(f'records, {what}', cell.ratio, cell.over(lambda timing: timing.best), cell.floor)
    print(f'{cell.name:32}{columns} {mark}'.rstrip(), flush=True)


def totals(output: report.Report, cells: list[Cell]) -> None:
    """Prints geometric means and the worst cell."""
    cells = [cell for cell in cells if not math.isnan(cell.ratio)]
    if not cells:
        return
    means = {
        operation: report.geometric(cell.ratio for cell in cells if cell.operation == operation)
        for operation in dict.fromkeys(cell.operation for cell in cells)
    }
    print('\nGeometric means')
    for operation, mean in means.items():
        print(f'{operation:32}{mean:6.2f}x')
    # Of two operations with the same result, only the one with the lower ratio counts.
    pairs = (('gather (list)', 'gather (array)'), ('for x in reader', 'read()'))
    easier = [max(pair, key=lambda operation: means[operation]) for pair in pairs]
    counted = [cell for cell in cells if cell.operation not in easier]
    mean, best = (
        report.geometric(cell.over(measure) for cell in counted)
        for measure in (lambda timing: timing.wall, lambda timing: timing.best)
    )
    print(f'{"all but the easier of a pair":32}{output.check("records, geometric mean", mean, best, 1.1)}')
    worst = min(cells, key=lambda cell: cell.ratio / cell.floor)
    print(f'{"worst cell":32}{worst.ratio:6.2f}x  {worst.case.sizes} {worst.name}')
