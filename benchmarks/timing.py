"""Interleaved timing: contestants take turns, and the median of their turns is what counts."""

import gc
import math
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

REST = 0.002  # Seconds in which the threads of the contestant before come to rest.


def nothing(*args: object) -> None:
    """Does nothing: the default before and after a turn."""


@dataclass(frozen=True)
class Contestant:
    """One thing to be timed.

    Attributes:
        run: The timed part, given what `before` returned. Its result is dropped within the time taken, as
            a training loop would.
        count: How many units (records, datapoints, calls) one run handles.
        before: What a turn needs that is not timed.
        after: What a turn leaves behind, given what `before` returned.
    """

    run: Callable[[Any], object]
    count: int
    before: Callable[[], Any] = nothing
    after: Callable[[Any], object] = nothing


@dataclass(frozen=True)
class Timing:
    """What a contestant took, in seconds a unit: medians over its turns, and the best turn's wall time.

    `error` says why there is nothing.
    """

    wall: float = math.nan
    cpu: float = math.nan
    best: float = math.nan
    error: str = ''


def race(
    contestants: Mapping[str, Contestant], *, seconds: float = 1.5, least: int = 5, most: int = 41
) -> dict[str, Timing]:
    """Times contestants in turn, A B C, C B A, B C A, A C B and so on, after one warm-up turn each.

    Noise that lasts longer than a turn meets all of them alike, and none always follows the same other, whose
    caches and freed memory it would find. Rounds go on until `seconds` are spent, at
    least `least` and at most `most` of them. A contestant that fails is left out, with its error.
    """
    turns: dict[str, list[tuple[float, float]]] = {name: [] for name in contestants}
    errors: dict[str, str] = {}

    def attempt(name: str) -> None:
        try:
            turns[name].append(turn(contestants[name]))
        except Exception as error:
            errors[name] = f'{type(error).__name__}: {error}'
            gc.collect()  # What it held may be what the next one needs.

    for name in contestants:
        attempt(name)
        turns[name].clear()
    # What was imported and prepared is not searched again when the collector runs within a turn.
    gc.collect()
    gc.freeze()
    deadline = time.perf_counter() + seconds
    for index in range(most):
        names = [name for name in contestants if name not in errors]
        first = index // 2 % len(names) if names else 0
        for name in (names[first:] + names[:first])[:: -1 if index % 2 else 1]:
            attempt(name)
        if index + 1 >= least and time.perf_counter() > deadline:
            break
    gc.unfreeze()
    return {
        name: Timing(error=errors[name]) if name in errors else median(turns[name]) for name in contestants
    }


def turn(contestant: Contestant) -> tuple[float, float]:
    """One turn's wall and process time, in seconds a unit."""
    state = contestant.before()
    time.sleep(REST)
    try:
        cpu, wall = time.process_time(), time.perf_counter()
        contestant.run(state)
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    finally:
        contestant.after(state)
    return wall / contestant.count, cpu / contestant.count


def median(turns: list[tuple[float, float]]) -> Timing:
    """The middle of what the turns took."""
    walls, cpus = zip(*turns, strict=True)
    return Timing(statistics.median(walls), statistics.median(cpus), min(walls))
