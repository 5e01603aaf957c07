"""The errors of obstore as this library's: what it says is mostly in their text."""

from __future__ import annotations

import re

from bags.bag.files.faults import Precondition, Transient, by_status

__all__ = ['fault_of']

STATUS = re.compile(
    r'status code:? (\d{3})|status: (\d{3})|non-2xx status code: (\d{3})|\b(\d{3}) [A-Z][a-z]+ '
)
LATE = re.compile(r'timed? ?out', re.IGNORECASE)
NO_RANGE = re.compile('non-partial response|CONTENT_RANGE')  # Or the object is empty.
DENIED = re.compile(
    r'metadata endpoint|169\.254\.169\.254|metadata\.google\.internal|latest/api/token|credential',
    re.IGNORECASE,
)


def fault_of(path: str, exc: Exception) -> Exception:
    """Returns the error that one of obstore's stands for."""
    import obstore.exceptions as known

    if type(exc).__module__.startswith('bags.'):
        return exc
    text = str(exc).partition('Debug source')[0]
    if isinstance(exc, FileNotFoundError):
        return by_status(path, 404, text)
    if isinstance(exc, known.PermissionDeniedError | known.UnauthenticatedError):
        return by_status(path, 403, text)
    if isinstance(exc, known.PreconditionError | known.AlreadyExistsError | known.NotModifiedError):
        return Precondition(text)
    if isinstance(exc, known.NotSupportedError) or NO_RANGE.search(text):
        return NotImplementedError(text)
    if isinstance(exc, PermissionError | FileExistsError | TypeError | KeyboardInterrupt):
        return exc
    status = STATUS.search(str(exc))
    if DENIED.search(text):
        return PermissionError(
            13, f'no credentials (anon=True needs none): {" ".join(text.split())[:300]}', path
        )
    if status is not None:
        return by_status(path, int(next(filter(None, status.groups()))), text)
    return Transient(' '.join(text.split())[:300], bool(LATE.search(str(exc))))
