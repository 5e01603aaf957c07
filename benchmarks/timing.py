"""Interleaved timing: candidates take turns, and the median over the rounds counts."""

import gc
import math
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

PAUSE = 0.002  # Seconds before each run, in which the threads of the previous candidate become idle.


def nothing(*args: object) -> None:
    """Does nothing: the default before and after a run."""


@dataclass(frozen=True)
class Candidate:
    """A candidate to be timed.

    Attributes:
        run: The timed part, given what `before` returned. Its result is freed within the time measured, as
            in a training loop.
        count: Units (records, datapoints, calls) that one run handles.
        before: Prepares a run; not timed.
        after: Cleans up after a run, given what `before` returned; not timed.
    """

    run: Callable[[Any], object]
    count: int
    before: Callable[[], Any] = nothing
    after: Callable[[Any], object] = nothing


@dataclass(frozen=True)
class Timing:
    """Seconds a unit: medians over the rounds, and the wall time of the fastest round.

    `error` says why there are no figures.
    """

    wall: float = math.nan
    cpu: float = math.nan
    best: float = math.nan
    error: str = ''


def time_interleaved(
    candidates: Mapping[str, Candidate], *, seconds: float = 1.5, min_rounds: int = 5, max_rounds: int = 41
) -> dict[str, Timing]:
    """Times candidates in rounds A B C, C B A, B C A, A C B and so on, after one warm-up run each.

    Noise that lasts longer than a round affects all of them alike, and none always follows the same other,
    whose caches and freed memory it would find. Rounds end after `seconds`, but there are at least
    `min_rounds` and at most `max_rounds`. A candidate that raises is left out, with its error.
    """
    runs: dict[str, list[tuple[float, float]]] = {name: [] for name in candidates}
    errors: dict[str, str] = {}

    def attempt(name: str) -> None:
        try:
            runs[name].append(time_once(candidates[name]))
        except Exception as error:
            errors[name] = f'{type(error).__name__}: {error}'
            gc.collect()  # Frees the memory of the failed candidate; the next one may need it.

    for name in candidates:
        attempt(name)
        runs[name].clear()
    # Objects of imports and preparation are not traversed again by a collection within a run.
    gc.collect()
    gc.freeze()
    deadline = time.perf_counter() + seconds
    for index in range(max_rounds):
        names = [name for name in candidates if name not in errors]
        first = index // 2 % len(names) if names else 0
        for name in (names[first:] + names[:first])[:: -1 if index % 2 else 1]:
            attempt(name)
        if index + 1 >= min_rounds and time.perf_counter() > deadline:
            break
    gc.unfreeze()
    return {name: Timing(error=errors[name]) if name in errors else median(runs[name]) for name in candidates}


def time_alternating(candidates: Mapping[str, Candidate], rounds: int) -> dict[str, Timing]:
    """Times long runs in rounds A B, B A, A B, without a warm-up: medians over the rounds."""
    runs: dict[str, list[tuple[float, float]]] = {name: [] for name in candidates}
    for index in range(rounds):
        for name in [*candidates][:: -1 if index % 2 else 1]:
            runs[name].append(time_once(candidates[name]))
    return {name: median(found) for name, found in runs.items()}


def time_once(candidate: Candidate) -> tuple[float, float]:
    """Wall and process time of one run, in seconds a unit."""
    state = candidate.before()
    time.sleep(PAUSE)
    try:
        cpu, wall = time.process_time(), time.perf_counter()
        candidate.run(state)
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    finally:
        candidate.after(state)
    return wall / candidate.count, cpu / candidate.count


def median(runs: list[tuple[float, float]]) -> Timing:
    """Takes medians over runs."""
    walls, cpus = zip(*runs, strict=True)
    return Timing(statistics.median(walls), statistics.median(cpus), min(walls))
