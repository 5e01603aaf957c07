"""Where the time of a loader goes: the clock of a task, the timer of an iterator, and `LoaderTiming`."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterable
from time import perf_counter
from typing import Any, Literal

from bags.dataset.base import Dataset
from bags.dataset.reading.batch import Column
from bags.dataset.reading.columns import ReadField
from bags.dataset.reading.timed_columns import TimedColumns
from bags.display.counts import byte_count, plural
from bags.storage.request_counter import RequestCounts
from bags.workers.outcome import Outcome

Stage = Literal['read', 'decode', 'transform', 'collate', 'hand over', 'training']

KEEPS_UP_SHARE = 0.1
"""Share of the time, without the first batch, below which waiting means that the loader keeps up."""
BUSY_SHARE = 0.75
"""Share of the processors, or of the time of workers, above which they count as busy."""
ONE_PROCESSOR = 1.35
"""Processors that threads use at most if they wait for the GIL."""


SHORT_TASK_SECONDS = 0.001
"""Duration below which only one of `SHORT_TASKS` tasks is measured, as that takes 3 to 9 us."""
SHORT_TASKS = 16


class TaskClock:
    """Measures the stages of one task in the thread that runs it."""

    __slots__ = ('_last', 'collate', 'decode', 'read', 'transform')

    def __init__(self) -> None:
        self.read = self.transform = self.collate = 0.0
        """Seconds of each stage."""
        self.decode: list[tuple[str, float]] = []
        """Fields, with seconds of decoding."""
        self._last = perf_counter()

    @property
    def seconds(self) -> float:
        """Seconds of all stages."""
        return self.read + self.transform + self.collate + sum(seconds for _, seconds in self.decode)

    def end_read(self) -> None:
        """Ends a part of the stage `read`."""
        now = perf_counter()
        self.read += now - self._last
        self._last = now

    def end_transform(self) -> None:
        """Ends a part of the stage `transform`."""
        now = perf_counter()
        self.transform += now - self._last
        self._last = now

    def end_collate(self) -> None:
        """Ends a part of the stage `collate`."""
        now = perf_counter()
        self.collate += now - self._last
        self._last = now

    def read_columns(
        self, dataset: Dataset, read: Callable[[ReadField], dict[str, Column]]
    ) -> dict[str, Column]:
        """Returns the result of `read`, and adds the seconds of decoding.

        Args:
            dataset: The dataset that it reads.
            read: Takes the function that makes the column of a field.
        """
        columns = TimedColumns(dataset.reads_wait)
        start = perf_counter()
        batch = read(columns)
        for part in columns.decode_seconds(perf_counter() - start):
            self.decode.append(part)
            self._last += part[1]  # So that the time is not also part of `read`.
        return batch


class _Work:
    """The sums of several tasks."""

    def __init__(self) -> None:
        self.read = self.transform = self.collate = self.seconds = 0.0
        self.decode: dict[str, float] = {}

    def add(self, clock: TaskClock, seconds: float) -> None:
        """Adds a task and its duration."""
        self.read += clock.read
        self.transform += clock.transform
        self.collate += clock.collate
        self.seconds += seconds
        for name, part in clock.decode:
            self.decode[name] = self.decode.get(name, 0.0) + part

    def add_scaled(self, other: _Work, factor: float) -> None:
        """Adds a multiple of other work."""
        self.read += factor * other.read
        self.transform += factor * other.transform
        self.collate += factor * other.collate
        for name, part in other.decode.items():
            self.decode[name] = self.decode.get(name, 0.0) + factor * part


class Timer:
    """Adds up the time of one iterator, in the thread that iterates."""

    def __init__(self, workers: int, processes: bool, ahead: int, counts: RequestCounts) -> None:
        self._workers, self._processes, self._ahead = workers, processes, ahead
        self._similar = _Work()
        """Measured tasks, of this period or an earlier one, like those that were not measured."""
        self._has_begun = self._is_waiting = self._is_ended = False
        self._begin(perf_counter(), counts)

    def _begin(self, now: float, counts: RequestCounts) -> None:
        """Begins a period."""
        self._start = self._last = now
        self._counts = counts
        self._process_counts = RequestCounts()
        self._steps, self._waited, self._training, self._first_wait = 0, 0.0, 0.0, 0.0
        self._long, self._short, self._unmeasured = _Work(), _Work(), 0.0
        self._sent, self._received, self._busy, self._cpu = 0.0, 0.0, 0.0, 0.0
        self._made, self._ready, self._prefetch = 0, 0.0, 0.0

    def wait(self) -> None:
        """Begins to wait for a batch: until now, the loop has used the previous one."""
        now = perf_counter()
        self._training += now - self._last
        self._last = now
        self._is_waiting = True

    def stop_waiting(self, steps: int = 0) -> None:
        """Ends the wait, with a batch or without one."""
        now = perf_counter()
        self._waited += now - self._last
        self._last = now
        self._is_waiting = False
        if steps and not self._has_begun:
            self._has_begun, self._first_wait = True, self._waited
        self._steps += steps

    def add_hand_over(self, seconds: float) -> None:
        """Adds time of `to_device`."""
        self._received += seconds

    def add_task(self, outcome: Outcome, ready: int) -> None:
        """Adds the work of a task whose batches are handed over next.

        Args:
            outcome: The task.
            ready: Number of other tasks that were finished by then.
        """
        self._busy += outcome.seconds + outcome.sent_seconds
        self._sent += outcome.sent_seconds
        self._received += outcome.received_seconds
        self._cpu += outcome.cpu_seconds
        made = outcome.result
        clock: TaskClock | None = made[-1].clock if made else None
        if clock is None:
            self._unmeasured += outcome.seconds
        else:
            (self._short if outcome.seconds < SHORT_TASK_SECONDS else self._long).add(clock, outcome.seconds)
        if not made:
            return
        count = len(made)
        self._made += count
        # After each of its batches, the rest of them are also ready.
        self._ready += count * (ready * count + (count - 1) / 2)
        self._prefetch += count * count * self._ahead
        if self._processes:
            self._process_counts = _added(self._process_counts, made[-1].requests)

    def end(self) -> None:
        """Ends the iteration: later time does not count."""
        if not (self._is_waiting or self._is_ended):
            self.wait()
        self._is_ended = True

    def report(self, counts: RequestCounts) -> LoaderTiming:
        """Returns the report of the period so far, and begins another one.

        Args:
            counts: Numbers of requests of this process so far.
        """
        if not self._is_ended:
            self.wait()
        work = self._work()
        requests = _added(counts.since(self._counts), self._process_counts)
        timing = LoaderTiming(
            steps=self._steps,
            wall=self._last - self._start,
            waited=self._waited,
            first_wait=self._first_wait,
            training=self._training,
            read=work.read,
            decode=dict(sorted(work.decode.items(), key=lambda item: -item[1])),
            transform=work.transform,
            collate=work.collate,
            hand_over=self._sent + self._received,
            received=self._received,
            busy=self._busy + self._received,
            processors=self._cpu / max(self._last - self._start, 1e-9),
            workers=self._workers,
            processes=self._processes,
            requests=requests.requests,
            received_bytes=requests.received,
            retries=requests.retries,
            ready=self._ready / max(self._made, 1) if self._workers else 0.0,
            prefetch=self._prefetch / max(self._made, 1),
        )
        self._begin(self._last, counts)
        return timing

    def _work(self) -> _Work:
        """Returns the work of all tasks, where those that were not measured are like the short ones."""
        total = _Work()
        total.add_scaled(self._long, 1.0)
        total.add_scaled(self._short, 1.0)
        # A short period may have no measured task.
        self._similar = next(
            work for work in (self._short, self._long, self._similar) if work.seconds or work is self._similar
        )
        if self._similar.seconds:
            total.add_scaled(self._similar, self._unmeasured / self._similar.seconds)
        return total


def _added(one: RequestCounts, other: RequestCounts) -> RequestCounts:
    return RequestCounts(*map(sum, zip(one, other, strict=True)))


@dataclasses.dataclass(frozen=True, kw_only=True)
class LoaderTiming:
    """Where the time of a loader went, since the previous report or the start of the iteration.

    `print` shows it with its bottleneck. Times are in seconds. Work of batches made ahead counts when they
    are handed over. Workers that wait for the GIL or for a processor count as working.

    Examples:
        >>> loader = bags.Loader(dataset, 2, fields='id', workers=0, timing=True)
        >>> for batch in loader:
        ...     pass
        >>> timing = loader.timing
        >>> timing.steps, timing.wall == timing.waited + timing.training
        (4, True)
    """

    steps: int
    """Number of batches that were handed over."""
    wall: float
    """Duration of the period, until the end of the iteration if it has ended."""
    waited: float
    """Time in which the loop waited for batches."""
    first_wait: float
    """Part of `waited` until the first batch, if the iteration began in this period: workers start, and files
    are opened."""
    training: float
    """Time between batches, in which the loop used them."""
    read: float
    """Work of the sampler, of reading and decompressing records, and of the dataset's own `__getitem__`."""
    decode: dict[str, float]
    """Work of decoding, by field, from the largest to the smallest. Lazy values, such as whole videos, are
    decoded when `transform` or the loop uses them."""
    transform: float
    """Work of `transform`."""
    collate: float
    """Work of `collate`, of stacking the results of `per='datapoint'`, and of columns such as the mask."""
    hand_over: float
    """Work of passing batches from processes, and of `to_device`."""
    received: float
    """Part of `hand_over` in the thread that iterates, where workers do not share it."""
    busy: float
    """Work of the workers, measured as a whole, and `received`: about the sum of all stages."""
    processors: float
    """Number of processors that the workers used on average, without the threads of decoders; 0 without
    workers."""
    workers: int
    """Number of workers; 0 if the thread that iterates makes the batches."""
    processes: bool
    """Whether the workers are processes."""
    requests: int
    """Number of requests to the dataset's object stores. As in `Loader.retries`, requests of other datasets
    with the same storage options are included."""
    received_bytes: int
    """Bytes of these requests. Local files are mapped into memory, and not counted."""
    retries: int
    """Number of these requests that were retries."""
    ready: float
    """Depth of the queue: average number of other batches that were ready when a batch was handed over."""
    prefetch: float
    """Maximum of `ready`."""

    @property
    def stages(self) -> dict[Stage, float]:
        """The work of each stage: read, decode, transform, collate, hand over."""
        return {
            'read': self.read,
            'decode': sum(self.decode.values()),
            'transform': self.transform,
            'collate': self.collate,
            'hand over': self.hand_over,
        }

    @property
    def bottleneck(self) -> Stage | None:
        """The stage that determines the speed of the loop, or 'training'; None without steps."""
        if not self.steps:
            return None
        rest = self.wall - self.first_wait
        waited = self.waited - self.first_wait
        if self.steps == 1 or rest <= 0:
            waited, rest = self.waited, self.wall
        if waited <= max(KEEPS_UP_SHARE * rest, 0.0 if self.workers else self.training):
            return 'training'
        stages = self.stages
        if self.workers:
            # Workers share their stages, but not receiving, in the thread that iterates.
            if self.received * self.workers >= self.busy - self.received:
                return 'hand over'
            stages['hand over'] -= self.received
        return max(stages, key=lambda stage: stages[stage])

    @property
    def advice(self) -> str:
        """A sentence that names the bottleneck, and the option that moves it."""
        bottleneck = self.bottleneck
        if bottleneck is None:
            return 'No batch was handed over yet.'
        share = f'{_percent(self.training, self.wall)} of the time'
        if bottleneck == 'training':
            if not self.workers and self.waited > KEEPS_UP_SHARE * self.wall:
                return f'The bottleneck is training, {share}: workers=1 makes batches at the same time.'
            return f'The bottleneck is training, {share}: the loader keeps up, and no option of it is faster.'
        work = self.stages[bottleneck]
        name: str = bottleneck
        if bottleneck == 'decode':
            field, seconds = next(iter(self.decode.items()))
            name += f' of field {field!r}' if seconds > work / 2 else ''
        return (
            f'The bottleneck is {name}, {_percent(work, self.busy)} of the work: {self._option(bottleneck)}.'
        )

    def _option(self, bottleneck: Stage) -> str:
        """Returns the option that moves a bottleneck of the loader."""
        processors, workers = _processors(), self.workers
        if bottleneck == 'hand over':
            if self.processes:
                return 'processes=False passes batches without copies'
            return 'to_device runs in the thread that iterates, and transform= in workers'
        if not workers:
            return f'workers={max(2, processors)} makes batches ahead, several at a time'
        used, worked = self.processors, max(self.busy - self.received, 1e-9)
        if worked < BUSY_SHARE * workers * self.wall and self.prefetch < 2 * workers:
            return f'prefetch={2 * workers} keeps all workers busy'
        on_processor = used * self.wall / worked
        if self.requests and on_processor < 0.5:
            return f'workers={2 * workers} requests more at a time, and cache= keeps what was read'
        if used > BUSY_SHARE * processors:
            return f'all {plural(processors, "processor")} are busy, so {REDUCE[bottleneck]}'
        if not self.processes and workers > 1 and 2 - ONE_PROCESSOR < used < ONE_PROCESSOR:
            return f'processes=True, as {plural(workers, "thread")} hold the GIL in turn'
        if workers < processors:
            return f'workers={processors} uses all processors'
        waits = _percent(worked - used * self.wall, worked)
        return (
            f'workers={2 * workers}, as workers wait {waits} of their time for a disk, a lock or a processor'
        )

    def as_dict(self) -> dict[str, Any]:
        """Returns all attributes, with bottleneck and advice: numbers, strings, and a dict by field."""
        return {**dataclasses.asdict(self), 'bottleneck': self.bottleneck, 'advice': self.advice}

    def __str__(self) -> str:
        return '\n'.join(self._lines())

    def _lines(self) -> Iterable[str]:
        wall, steps = self.wall, self.steps
        yield (
            f'{plural(steps, "step")} in {_seconds(wall)}: waited {_seconds(self.waited)} '
            f'({_percent(self.waited, wall)}), training {_seconds(self.training)} '
            f'({_percent(self.training, wall)})'
        )
        if self.first_wait:
            yield f'first batch after {_seconds(self.first_wait)}'
        what = 'process' if self.processes else 'thread'
        who = plural(self.workers, what).replace('processs', 'processes') if self.workers else 'no workers'
        used = f', on {self.processors:.1f} processors' if self.workers else ''
        yield f'work of {who}: {_seconds(self.busy)}{used}'
        decode = [(f'decode {name}', work) for name, work in self.decode.items()]
        rows: list[tuple[str, float]] = [('read', self.read), *decode, ('transform', self.transform)]
        rows += [('collate', self.collate), ('hand over', self.hand_over)]
        width = max(len(name) for name, _ in rows)
        for name, work in rows:
            a_step = _seconds(work / max(steps, 1))
            yield f'  {name:{width}}  {_seconds(work):>8}  {_percent(work, self.busy):>4}  {a_step:>8} a step'
        if self.requests:
            rate = byte_count(self.received_bytes / max(wall, 1e-9))
            retries = (
                f', {plural(self.retries, "retry").replace("retrys", "retries")}' if self.retries else ''
            )
            yield (
                f'{plural(self.requests, "request")}{retries}, {byte_count(self.received_bytes)} received, '
                f'{rate}/s'
            )
        if self.workers:
            yield f'queue: {self.ready:.1f} of at most {self.prefetch:.0f} batches ready'
        yield self.advice


REDUCE = {
    'read': 'fields= reads fewer fields',
    'decode': 'fields= decodes fewer fields, or `bags.copy` stores smaller values',
    'transform': 'a faster transform',
    'collate': 'a faster collate',
}
"""How a stage takes less work, if all processors are busy."""


def _processors() -> int:
    """Returns the number of processors that this process may use."""
    if hasattr(os, 'sched_getaffinity'):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _seconds(seconds: float) -> str:
    for factor, unit in ((1, 's'), (1e3, 'ms')):
        if seconds * factor >= 1 or not seconds:
            return f'{seconds * factor:.3g} {unit}' if seconds * factor < 1000 else f'{seconds:,.0f} s'
    return f'{seconds * 1e6:.3g} us'


def _percent(part: float, whole: float) -> str:
    return f'{100 * part / max(whole, 1e-9):.0f}%'
