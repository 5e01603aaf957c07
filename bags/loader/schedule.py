"""How an order is dealt out to hosts in batches: which positions each of them takes at each step. No I/O.

With a batch size of 2 and 3 hosts, a step takes 6 positions; host 1 has the middle two:

    positions   0 1 | 2 3 | 4 5    6 7 | 8 9 | …       epoch of 10
    step        0                  1
    host        0     1     2      0     1     2

So after any step the positions that were taken are the first ones of the epoch, whatever the number of
hosts, and another number of them, or another batch size, can go on from there. The last step of an epoch
has too few positions for all; `even` says what becomes of it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bags.indexing import Int64s

__all__ = ['Place', 'Step', 'Steps', 'Turns']


class Place(NamedTuple):
    """A point between two steps of a run."""

    epoch: int = 0
    consumed: int = 0
    """Positions of the epoch that all hosts together have taken."""


class Step(NamedTuple):
    """What one host takes at a step."""

    epoch: int
    start: int
    """The first of the host's positions, not wrapped around."""
    stop: int
    after: Place
    """Where the run is when all hosts have done this step."""


class Steps:
    """The steps of one host from a place on, by number.

    Args:
        length: Positions in an epoch, at least 1.
        batch_size: Of one host.
        shard: Which of how many hosts.
        even: 'pad': all hosts take whole batches, in the last step of an epoch from its beginning again;
            'drop': they leave out what does not fill a step; False: they share it, and some may take one
            datapoint, or step, less.
        epochs: After how many to end; None for never.
        begin: Where to begin.
    """

    def __init__(
        self,
        length: int,
        batch_size: int,
        shard: tuple[int, int],
        even: str | bool,
        epochs: int | None,
        begin: Place,
    ) -> None:
        self.length, self.batch_size, self.even, self.begin = length, batch_size, even, begin
        self.host, self.hosts = shard
        self.first = self._count(begin.consumed)
        """Steps in what is left of the epoch that is begun,"""
        self.each = self._count(0)
        """and in each after it."""
        self.total: int | None = None
        """All of them; None if there is no end."""
        if epochs is not None:
            later = epochs - begin.epoch - 1
            self.total = self.first + later * self.each if later >= 0 else 0

    def _count(self, consumed: int) -> int:
        """Returns how many steps this host takes in what is left of an epoch."""
        together = self.batch_size * self.hosts
        whole, rest = divmod(max(0, self.length - consumed), together)
        if not rest or self.even == 'drop':
            return whole
        return whole + (self.even == 'pad' or self._share(rest, 0)[0] < self._share(rest, 0)[1])

    def _share(self, rest: int, start: int) -> tuple[int, int]:
        return start + rest * self.host // self.hosts, start + rest * (self.host + 1) // self.hosts

    def _locate(self, number: int) -> tuple[int, int, int, int]:
        """Returns the epoch of a step, where that began, the step's place in it, and its steps."""
        if number < self.first:
            return self.begin.epoch, self.begin.consumed, number, self.first
        later, within = divmod(number - self.first, self.each)
        return self.begin.epoch + 1 + later, 0, within, self.each

    def __getitem__(self, number: int) -> Step:
        epoch, begun, within, count = self._locate(number)
        together = self.batch_size * self.hosts
        start = begun + within * together
        after = Place(epoch, start + together) if within + 1 < count else Place(epoch + 1, 0)
        if start + together <= self.length or self.even == 'pad':
            mine = start + self.host * self.batch_size
            return Step(epoch, mine, mine + self.batch_size, after)
        return Step(epoch, *self._share(self.length - start, start), after)

    def wraps(self, number: int) -> bool:
        """Tells whether a step goes on at the beginning of its epoch."""
        return self.even == 'pad' and self[number].stop > self.length

    def positions(self, number: int, count: int) -> list[tuple[int, Int64s, list[int]]]:
        """Returns the positions of consecutive steps, by epoch.

        Returns:
            For each epoch its number, the positions of all steps one after the other, wrapped around, and
            how many each step has.
        """
        found = []
        while count > 0:
            epoch, begun, within, steps = self._locate(number)
            here = min(count, steps - within)
            together = self.batch_size * self.hosts
            first = begun + within * together
            whole = here if self.even == 'pad' else min(here, (self.length - first) // together)
            starts = first + self.host * self.batch_size + together * np.arange(whole)
            positions = (starts[:, None] + np.arange(self.batch_size)).reshape(-1)
            sizes = [self.batch_size] * whole
            if whole < here:
                last = self[number + whole]
                positions = np.concatenate([positions, np.arange(last.start, last.stop)])
                sizes.append(last.stop - last.start)
            elif first + whole * together > self.length:
                positions %= self.length
            found.append((epoch, positions, sizes))
            number, count = number + here, count - here
        return found


class Turns:
    """Some of the steps of a host: those of one of its workers, which take turns.

    Args:
        steps: All steps of the host.
        skip: How many of them to leave out at first,
        each: and of how many each one is the first.
    """

    def __init__(self, steps: Steps, skip: int, each: int) -> None:
        self.length, self.begin, self.batch_size = steps.length, steps.begin, steps.batch_size
        self.total = None if steps.total is None else max(0, -((skip - steps.total) // each))
        self._steps, self._skip, self._each = steps, skip, each

    def __getitem__(self, number: int) -> Step:
        return self._steps[self._skip + number * self._each]

    def wraps(self, number: int) -> bool:
        return self._steps.wraps(self._skip + number * self._each)

    def positions(self, number: int, count: int) -> list[tuple[int, Int64s, list[int]]]:
        numbers = range(
            self._skip + number * self._each, self._skip + (number + count) * self._each, self._each
        )
        return [part for one in numbers for part in self._steps.positions(one, 1)]
