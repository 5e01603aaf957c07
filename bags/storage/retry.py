"""Retries with backoff, and the storage options that limit them.

A request that fails with a transient error (throttling, 5xx, a connection reset, a timeout, a short response)
is retried after 0.1 s, 0.2 s, 0.4 s … Each delay has random jitter, so that clients do not retry at the same
moment, and a Retry-After header extends it. Each retry is counted, and logged as a warning by the logger
`bags.storage`.
"""

from __future__ import annotations

import dataclasses
import errno
import logging
import random
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Concatenate, ParamSpec, TypeVar

from bags.storage.errors import StorageTimeoutError, TransientError
from bags.storage.request_counter import RequestCounter

logger = logging.getLogger('bags.storage')
logger.addHandler(logging.NullHandler())  # Programs without logging print nothing.

Result = TypeVar('Result')
Arguments = ParamSpec('Arguments')

FIRST_DELAY = 0.1  # Seconds.
MAX_DELAY = 5.0
FIRST_TIMEOUT = 1.0
"""Timeout, in seconds, while a server has refused all connections: the address is probably wrong."""


@dataclasses.dataclass(frozen=True)
class RetryPolicy:
    """Limits on time, retries and concurrency of requests. The storage options have the same names."""

    timeout: float = 60.0
    """Seconds for a request with its retries. An attempt may take a third of it, or all if it sends data."""
    connect_timeout: float = 5.0
    """Seconds to connect."""
    retries: int = 8
    """Maximum number of attempts after the first."""
    concurrency: int = 64
    """Maximum number of concurrent requests."""
    counter: RequestCounter = dataclasses.field(default_factory=RequestCounter, init=False, compare=False)
    """Counts the requests."""

    @classmethod
    def from_options(cls, options: Mapping[str, Any]) -> tuple[RetryPolicy, dict[str, Any]]:
        """Splits storage options into a policy and the other options.

        Raises:
            ValueError: A value is not a number, or is too small.
        """
        others = dict(options)
        names = [field.name for field in dataclasses.fields(cls) if field.init and field.name in others]
        values = {name: others.pop(name) for name in names}
        for name, value in values.items():
            minimum = 0 if name == 'retries' else 1 if name == 'concurrency' else 1e-3
            if isinstance(value, bool) or not isinstance(value, int | float) or value < minimum:
                raise ValueError(
                    f'storage option {name!r}: expected a number of at least {minimum}, got {value!r}'
                )
        return cls(**values), others

    @property
    def attempt_timeout(self) -> float:
        """Seconds for one attempt that sends no data."""
        return self.timeout / 3


def with_retries(
    policy: RetryPolicy,
    map_error: Callable[[str, Exception], Exception],
    work: Callable[Concatenate[str, Arguments], Result],
    path: str,
    *args: Arguments.args,
    **options: Arguments.kwargs,
) -> Result:
    """Returns the result of `work(path, *args)`, retried after transient errors.

    Args:
        policy: Number and duration of attempts.
        map_error: Maps a path and a foreign exception to one of this library.
        work: Makes one request.
        path, args, options: Passed to `work`.

    Raises:
        StorageTimeoutError, OSError: All attempts failed; names the path and the last reason.
    """
    start, attempts, counter, thread = time.monotonic(), 0, policy.counter, threading.get_ident()
    server = '/'.join(path.split('/', 3)[:3])  # https://host or s3://bucket. A client may have many.
    while True:
        counter.requests[thread] += 1
        try:
            result = work(path, *args, **options)
        except Exception as exc:
            error = map_error(path, exc)
            if not getattr(error, 'no_connection', False):
                counter.connected.add(server)
            if not isinstance(error, TransientError):
                if error is exc:
                    raise
                raise error from exc
            attempts += 1
            delay = min(MAX_DELAY, FIRST_DELAY * 2.0 ** (attempts - 1))
            delay *= 0.5 + 0.5 * random.random()  # noqa: S311 - not for security
            delay = max(delay, error.delay)
            timeout = policy.timeout if server in counter.connected else min(policy.timeout, FIRST_TIMEOUT)
            if attempts > policy.retries or time.monotonic() + delay - start > timeout:
                count = f'{attempts} tries' if attempts > 1 else 'one try'
                later = f'; the server asks to wait {error.delay:g} s' if error.delay else ''
                reason = f'{error.reason} (after {count}{later})'
                if error.timed_out:
                    raise StorageTimeoutError(errno.ETIMEDOUT, reason, path) from exc
                # The client's chain of exceptions adds nothing to a refused connection.
                raise OSError(errno.EIO, reason, path) from None if error.no_connection else exc
            text = '%s: %s (try %d of %d, the next in %.1f s)'
            logger.warning(text, path, error.reason, attempts, policy.retries + 1, delay)
            counter.retries[thread] += 1
        else:
            counter.connected.add(server)
            return result
        time.sleep(delay)
