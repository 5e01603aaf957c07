"""Retries with backoff, and the storage options that bound them.

A request that fails for a reason that may pass (throttling, 5xx, a reset, a time-out, fewer bytes than were
asked for) is retried after 0.1 s, 0.2 s, 0.4 s … A random part of each delay is left out, so that many
clients do not come back at the same moment.
"""

from __future__ import annotations

import dataclasses
import random
import time
from collections.abc import Callable, Mapping
from typing import Any, ParamSpec, TypeVar

from bags.storage.errors import TransientError, retries_exhausted

__all__ = ['RetryPolicy', 'with_retries']

Result = TypeVar('Result')
Arguments = ParamSpec('Arguments')

FIRST_DELAY = 0.1  # Seconds.
LONGEST_DELAY = 5.0


@dataclasses.dataclass(frozen=True)
class RetryPolicy:
    """Bounds on the time and the requests spent on an object store; storage options of the same names."""

    timeout: float = 60.0
    """Seconds for a request with its retries. An attempt has a third of it, or all of it to send data."""
    connect_timeout: float = 5.0
    """Seconds to connect."""
    retries: int = 8
    """Attempts after the first, at most."""
    concurrency: int = 64
    """Requests at the same time, at most."""

    @classmethod
    def from_options(cls, options: Mapping[str, Any]) -> tuple[RetryPolicy, dict[str, Any]]:
        """Returns the policy that storage options ask for, and the other options.

        Raises:
            ValueError: Not a number, or too small.
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
    def attempt_timeout(self) -> float:
        """Seconds for one attempt that sends no data."""
        return self.timeout / 3


def with_retries(
    policy: RetryPolicy,
    map_error: Callable[[str, Exception], Exception],
    path: str,
    work: Callable[Arguments, Result],
    *args: Arguments.args,
    **options: Arguments.kwargs,
) -> Result:
    """Returns the result of `work(*args)`, retried while it fails for a reason that may pass.

    Args:
        policy: How often, and how long.
        map_error: Maps a path and a foreign exception to one of this library.
        path: What the work is about, for messages.
        work: Makes one request.
        args, options: Passed to `work`.

    Raises:
        TimeoutError, OSError: All attempts failed; names the path and the last reason.
    """
    begun, attempts = time.monotonic(), 0
    while True:
        try:
            return work(*args, **options)
        except Exception as exc:
            error = map_error(path, exc)
            if not isinstance(error, TransientError):
                if error is exc:
                    raise
                raise error from exc
            attempts += 1
            delay = min(LONGEST_DELAY, FIRST_DELAY * 2.0 ** (attempts - 1))
            delay *= 0.5 + 0.5 * random.random()  # noqa: S311 - not for security
            if attempts > policy.retries or time.monotonic() + delay - begun > policy.timeout:
                raise retries_exhausted(path, error, attempts) from exc
        time.sleep(delay)
