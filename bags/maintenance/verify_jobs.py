"""Jobs that find things, and further jobs, in threads: a few at a time, so that little is open at once."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from bags.maintenance.findings import Finding

__all__ = ['Job', 'Result', 'at_once', 'run']


class Result(NamedTuple):
    """What a job found, and what is to be done next."""

    findings: Iterable[Finding] = ()
    """May be made as they are asked for: of a bag of millions, each record may be damaged."""
    jobs: Iterable[Job] = ()
    records: int = 0
    """As many were looked at."""
    size: int = 0
    """Bytes that were."""


Job = Callable[[], Result]


def run(jobs: Iterable[Job], workers: int, advance: Callable[..., None]) -> Iterator[Finding]:
    """Does jobs, and yields what they find in order: what a job leads to comes before the next one."""
    from concurrent.futures import ThreadPoolExecutor

    threads = ThreadPoolExecutor(workers, 'bags')
    try:
        yield from _run(jobs, threads, 2 * workers, advance)
    finally:
        threads.shutdown(cancel_futures=True)


def _run(jobs: Iterable[Job], threads: Any, most: int, advance: Callable[..., None]) -> Iterator[Finding]:
    begun = iter(jobs)
    running: deque[Any] = deque()
    while True:
        while len(running) < most and (job := next(begun, None)) is not None:
            running.append(threads.submit(job))
        if not running:
            return
        result = running.popleft().result()
        yield from result.findings
        advance(result.records, result.size)
        yield from _run(result.jobs, threads, most, advance)


def at_once(job: Job) -> Job:
    """Returns a job that also does the jobs that a job leads to."""

    def work() -> Result:
        result = job()
        parts = [at_once(part)() for part in result.jobs]
        return Result(
            itertools.chain(result.findings, *(part.findings for part in parts)),
            (),
            result.records + sum(part.records for part in parts),
            result.size + sum(part.size for part in parts),
        )

    return work
