"""The errors of obstore as this library's: what it says is mostly in their text."""

from __future__ import annotations

import re

from bags.storage.errors import Precondition, Transient, Unsupported, by_status

__all__ = ['fault_of']

STATUS = re.compile(
    r'status code:? (\d{3})|status: (\d{3})|non-2xx status code: (\d{3})|\b(\d{3}) [A-Z][a-z]+ '
)
LATE = re.compile('kind: Timeout|TimedOut|timed out')
ANSWER = re.compile(
    r'<Code>(.*?)</Code>.*?<Message>(.*?)</Message>', re.DOTALL
)  # What S3 and GCS say in XML.
CAUSE = re.compile(r'(?:message|error): "([^"]+)"')  # Of what the system says, which is in the details alone.
ELSEWHERE = 'redirect without LOCATION'
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
    answer = ANSWER.search(text)
    if answer is not None:
        text = ' '.join(answer.groups())
    if isinstance(exc, FileNotFoundError):
        return by_status(path, 404, text)
    if isinstance(exc, known.PermissionDeniedError | known.UnauthenticatedError):
        return by_status(path, 403, text)
    if isinstance(exc, known.PreconditionError | known.AlreadyExistsError | known.NotModifiedError):
        return Precondition(text)
    if isinstance(exc, known.NotSupportedError) or NO_RANGE.search(text):
        return Unsupported(path, ' '.join(text.split())[:300])
    if isinstance(exc, PermissionError | FileExistsError | TypeError | KeyboardInterrupt):
        return exc
    status = STATUS.search(str(exc))
    if DENIED.search(text):
        return PermissionError(
            13, f'no credentials (anon=True needs none): {" ".join(text.split())[:300]}', path
        )
    if ELSEWHERE in text:
        return by_status(path, 301, text)
    if status is not None:
        return by_status(path, int(next(filter(None, status.groups()))), text)
    late, cause = bool(LATE.search(str(exc))), CAUSE.search(str(exc))
    said = ' '.join(text.split())[:300]
    if late or cause is not None:
        said += ': no answer in time' if cause is None else f': {cause[1]}'
    return Transient(said, late)
