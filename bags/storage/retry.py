"""How long to wait for a storage, and how often to try again.

A request that fails for a reason that may pass (throttling, 5xx, a reset, a time-out, fewer bytes than were
asked for) is tried again: after 0.1 s, 0.2 s, 0.4 s … of which a random part is waited, so that many
clients do not come back all at once.
"""

from __future__ import annotations

import asyncio
import dataclasses
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

from bags.storage.errors import Transient, given_up

__all__ = ['RetryPolicy', 'pause', 'persist', 'persist_async']

Result = TypeVar('Result')

FIRST = 0.1
LONGEST = 5.0


@dataclasses.dataclass(frozen=True)
class RetryPolicy:
    """Bounds on what is spent on a storage; all are storage options of the same names."""

    timeout: float = 60.0
    """Seconds a request may take with all its tries. One try has a third of it, and all to send data."""
    connect_timeout: float = 5.0
    """Seconds to connect."""
    retries: int = 8
    """Most tries after the first."""
    concurrency: int = 64
    """Most requests at a time."""

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> tuple[RetryPolicy, dict[str, Any]]:
        """Takes what is about patience out of storage options, and returns the others too.

        Raises:
            ValueError: A number that makes no sense.
        """
        rest = dict(options)
        chosen = {field.name: rest.pop(field.name) for field in dataclasses.fields(cls) if field.name in rest}
        for name, value in chosen.items():
            least = 0 if name == 'retries' else 1 if name == 'concurrency' else 1e-3
            if isinstance(value, bool) or not isinstance(value, int | float) or value < least:
                raise ValueError(
                    f'storage option {name!r}: expected a number of at least {least}, got {value!r}'
                )
        return cls(**chosen), rest

    @property
    def attempt(self) -> float:
        """Seconds for one try."""
        return self.timeout / 3


def pause(tries: int) -> float:
    """Returns seconds to wait after so many tries."""
    longest = min(LONGEST, FIRST * 2.0 ** (tries - 1))
    return longest * (0.5 + 0.5 * random.random())  # noqa: S311 - nobody is to be kept from guessing it


def persist(work: Callable[[], Result], path: str, patience: RetryPolicy) -> Result:
    """Does work on a path, again where it fails for a reason that may pass.

    Raises:
        TimeoutError, OSError: It kept failing; names the path and the last reason.
    """
    begun, tries = time.monotonic(), 0
    while True:
        try:
            return work()
        except Transient as exc:
            tries += 1
            wait = pause(tries)
            if tries > patience.retries or time.monotonic() + wait - begun > patience.timeout:
                raise given_up(path, exc, tries) from exc.__cause__
        time.sleep(wait)


async def persist_async(
    work: Callable[[], Awaitable[Result]], path: str, patience: RetryPolicy, attempt: float | None = None
) -> Result:
    """As `persist`, with a time limit for each try."""
    begun, tries = time.monotonic(), 0
    while True:
        try:
            async with asyncio.timeout(attempt or patience.attempt):
                return await work()
        except (Transient, TimeoutError) as exc:
            late = not isinstance(exc, Transient)
            fault = Transient(f'no answer within {attempt or patience.attempt:g} s', True) if late else exc
            tries += 1
            wait = pause(tries)
            if tries > patience.retries or time.monotonic() + wait - begun > patience.timeout:
                raise given_up(path, fault, tries) from exc  # type: ignore[arg-type]
        await asyncio.sleep(wait)
