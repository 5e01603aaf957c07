"""Errors of object stores, mapped from HTTP statuses and from the exceptions of obstore and fsspec."""

from __future__ import annotations

import errno
import re
import socket
from collections.abc import Mapping
from typing import Any

from bags.errors import CorruptError
from bags.storage.base import Stat


class TransientError(Exception):
    """A transient failure: the request is retried."""

    def __init__(
        self, reason: str, timed_out: bool = False, delay: float = 0.0, no_connection: bool = False
    ) -> None:
        self.reason = reason
        self.delay = delay
        """Minimum seconds before the next attempt."""
        self.timed_out = timed_out
        self.no_connection = no_connection
        """Whether the connection was refused, or the host name is unknown."""
        super().__init__(reason)


class CutResponseError(TransientError):
    """The body of a response of a web server ended early."""

    def __init__(self, error: TransientError, stat: Stat, data: bytes) -> None:
        super().__init__(error.reason, error.timed_out, error.delay)
        self.stat = stat
        """Size and version of the file, from the headers."""
        self.data = data
        """The bytes before the end."""


class StorageTimeoutError(TimeoutError):
    """An object store did not answer in time."""


class PreconditionError(Exception):
    """The object has a different version than expected (412), or exists although it must not."""


class RangeError(Exception):
    """The requested byte range is outside the object (416)."""


class MissingOrDeniedError(FileNotFoundError, PermissionError):
    """A web server responds with 403. Many do so for missing files, such as S3 without ListBucket."""


class UnsupportedError(OSError):
    """An operation that the object store does not support, such as reading byte ranges."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(errno.EOPNOTSUPP, reason, path)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.filename, self.strerror)


def no_ranges_error(path: str) -> UnsupportedError:
    """Returns the error for a server that responds with status 200 to a request for a byte range."""
    return UnsupportedError(path, 'the server ignores Range, and responded with the whole file')


def encoded_error(path: str, encoding: str) -> UnsupportedError:
    """Returns the error for a server that compresses its responses."""
    reason = f'expected the bytes of the file, got Content-Encoding {encoding:.40}'
    return UnsupportedError(path, f'{reason}: turn off compression for this folder on the server')


REGION = re.compile(r"expecting '([a-z0-9-]+)'|x-amz-bucket-region: ([a-z0-9-]+)")


RATE_LIMIT = re.compile(r';\s*r=0\s*;\s*t=(\d+)')
"""Matches a RateLimit header (a draft standard) without remaining requests; captures the seconds to wait."""


def retry_after(headers: Mapping[str, str]) -> str | None:
    """Returns the number of seconds after which to retry, from the headers; None if they do not say."""
    limit = RATE_LIMIT.search(headers.get('RateLimit', ''))
    return headers.get('Retry-After') or (limit and limit[1])


def error_for_status(path: str, status: int, reason: str, retry_after: str | None = None) -> Exception:
    """Returns the error for an HTTP status.

    Args:
        path: The file.
        status, reason: Status and reason of the response.
        retry_after: The Retry-After header of the response, in seconds. Dates are ignored.
    """
    because = ' '.join(reason.split())[:300]
    because = f': {because}' if because else ''
    if status in (404, 410):
        return FileNotFoundError(errno.ENOENT, f'no such file, or no such bucket{because}', path)
    if status == 403 and _is_web(path):
        reason = f'status 403: access denied, or no such file{because}'
        return MissingOrDeniedError(errno.EACCES, reason, path)
    if status in (401, 403):
        return PermissionError(errno.EACCES, f'access denied{because}', path)
    if status == 412 or (status == 409 and 'AlreadyExists' in reason):  # The latter is Azure's.
        return PreconditionError(reason)
    if status == 409:
        # Another conditional write of the same object is in progress: S3 and GCS say to try again.
        return TransientError(f'status 409{because}')
    if status == 416:
        return RangeError(reason)
    if status == 501:
        return UnsupportedError(path, f'status 501{because}')
    if status in (408, 425, 429) or status >= 500:
        delay = float(retry_after) if retry_after is not None and retry_after.isdecimal() else 0.0
        return TransientError(f'status {status}{because}', delay=delay)
    region = REGION.search(reason)
    if 300 <= status < 400 and (_is_web(path) or path.startswith('hf://')):
        return OSError(
            errno.EIO, f'redirected in a loop, without a Location header, or from a link{because}', path
        )
    if status in (301, 302, 307) or region is not None:
        # Only some responses name the region.
        where = f'region {next(filter(None, region.groups()))}' if region is not None else 'another region'
        reason = f'the bucket is in {where} (storage option region){because}'
        return OSError(errno.EIO, reason, path)
    return OSError(errno.EIO, f'status {status}{because}', path)


def _is_web(path: str) -> bool:
    return path.startswith(('http://', 'https://'))


def replaced_error(
    path: str,
    expected: tuple[int, str],
    got: tuple[int, str] | Exception,
    advice: str = 'open the dataset or bag again',
) -> CorruptError:
    """Returns the error for a file that was replaced since it was opened or listed.

    Args:
        path: The file.
        expected: Its size and version, as in `Stat`.
        got: Size and version of the file that replaced it, or the error of a conditional request.
        advice: What to do.
    """
    found = f'another version ({got})' if isinstance(got, Exception) else _version_text(*got)
    detail = f'was replaced since it was opened: expected {_version_text(*expected)}, got {found}'
    return CorruptError(path, None, f'{detail}; {advice}')


def _version_text(size: int, version: str) -> str:
    return f'{size} bytes' + (f' of version {version:.80}' if version else '')


def condition_error(path: str, version: str | None) -> OSError:
    """Returns the error for an object that was not written because its condition was not met.

    Args:
        path: The object.
        version: The version that it must have; None if it must not exist.
    """
    if version is None:
        detail = 'already exists: another process has written it, and it is not overwritten; run this again, '
        detail += 'or use another path'
        return FileExistsError(errno.EEXIST, detail, path)
    detail = 'another process replaced or removed it after it was read: not overwritten; run this again'
    return OSError(errno.ESTALE, detail, path)


def too_large_error(path: str, size: int, max_size: int) -> CorruptError:
    """Returns the error for a file that is too large to be read as a whole."""
    return CorruptError(path, None, f'expected at most {max_size} bytes, got {size}')


# obstore: most facts about an error are only in its text.

STATUS = re.compile(
    r'status code:? (\d{3})|status: (\d{3})|non-2xx status code: (\d{3})|\b(\d{3}) [A-Z][a-z]+ '
)
CONFLICT = re.compile('status code: 409|status: 409')
TIMEOUT = re.compile('kind: Timeout|TimedOut|timed out')
NO_CONNECTION = re.compile('kind: Connect,')
SERVER = re.compile(r'https?://([^/?\s]+)')
XML_ERROR = re.compile(r'<Code>(.*?)</Code>.*?<Message>(.*?)</Message>', re.DOTALL)
SYSTEM_ERROR = re.compile(r'(?:message|error): "([^"]+)"')  # Only present in the details of an error.
REDIRECT = re.compile('redirect without LOCATION|error following redirect')
NO_RANGE = re.compile('non-partial response|Range request not supported')  # Or the object is empty.
NO_HEADER = re.compile('CONTENT_RANGE')
FSSPEC_HINT = "set the storage option client='fsspec'"
FSSPEC_CAN = re.compile('Content-Length Header missing|invalid utf-8 sequence')  # Of an error page.
INVALID_KEY = re.compile(
    r'Error parsing Path "(.*?)": Encountered illegal|Path "(.*?)" contained empty path segment', re.DOTALL
)
NO_CREDENTIALS = re.compile(
    r'metadata endpoint|169\.254\.169\.254|metadata\.google\.internal|latest/api/token|credential',
    re.IGNORECASE,
)


def map_obstore_error(path: str, exc: Exception) -> Exception:
    """Maps an exception of obstore to an error of this library."""
    import obstore.exceptions as known

    if type(exc).__module__.startswith('bags.'):
        return exc
    details = str(exc)
    text = details.partition('Debug source')[0]
    response = XML_ERROR.search(text)
    if response is not None:
        text = ' '.join(response.groups())
    reason = ' '.join(text.split())[:300]
    if isinstance(exc, FileNotFoundError):
        return error_for_status(path, 404, text)
    if isinstance(exc, known.PermissionDeniedError | known.UnauthenticatedError):
        return error_for_status(path, 403 if isinstance(exc, known.PermissionDeniedError) else 401, text)
    if isinstance(exc, known.PreconditionError | known.AlreadyExistsError | known.NotModifiedError):
        return error_for_status(path, 409 if CONFLICT.search(details) else 412, text)
    if NO_RANGE.search(text):
        return no_ranges_error(path)
    invalid = INVALID_KEY.search(text)
    if invalid is not None:
        key = next(filter(None, invalid.groups()))
        return UnsupportedError(
            path, f'obstore cannot read the key {key!r:.200}: {FSSPEC_HINT} to use such keys'
        )
    if FSSPEC_CAN.search(text):
        reason += f'; {FSSPEC_HINT} to read such responses'
        return UnsupportedError(path, reason)
    if 'Could not parse path' in text:
        return UnsupportedError(path, f'{reason}; {FSSPEC_HINT} to use such paths')
    if isinstance(exc, known.NotSupportedError) or NO_HEADER.search(text):
        return UnsupportedError(path, reason)
    if isinstance(exc, PermissionError | FileExistsError | TypeError | AttributeError):
        return exc
    if NO_CREDENTIALS.search(text):
        return PermissionError(errno.EACCES, f'no credentials (anon=True needs none): {reason}', path)
    if REDIRECT.search(text):
        return error_for_status(path, 301, text)
    status = STATUS.search(details)
    if status is not None:
        return error_for_status(path, int(next(filter(None, status.groups()))), text)
    timed_out, cause = bool(TIMEOUT.search(details)), SYSTEM_ERROR.search(details)
    if cause is not None:
        reason += f': {cause[1]}'
    elif timed_out:
        reason += ': no answer in time'
    if not timed_out and NO_CONNECTION.search(details) is not None:
        server = SERVER.search(text)
        return no_connection_error(server and server[1], cause[1] if cause is not None else reason)
    return TransientError(reason, timed_out)


def is_of_file(exc: OSError) -> bool:
    """Returns whether an error is about one file, so that other files may be readable.

    False for a network that is down, and for limits of this process, such as the number of open files.
    """
    if isinstance(exc, ConnectionError | TimeoutError | BlockingIOError):
        return False
    return exc.errno not in (errno.EMFILE, errno.ENFILE, errno.ENOMEM)


def no_connection_error(server: str | None, reason: str) -> TransientError:
    """Returns the error for a server (`host:port`) that refuses connections or whose name is unknown."""
    return TransientError(f'cannot connect{f" to {server}" if server else ""}: {reason}', no_connection=True)


def no_connection_reason(exc: BaseException | None) -> str | None:
    """Returns the system's message if an exception was caused by a refused connection or an unknown host.

    Returns None for other causes.
    """
    while exc is not None and not isinstance(exc, ConnectionRefusedError | socket.gaierror):
        exc = exc.__cause__ or exc.__context__
    return None if exc is None else exc.strerror or str(exc)


def map_fsspec_error(path: str, exc: Exception) -> Exception:
    """Maps an exception of an fsspec file system, or of its HTTP client, to an error of this library."""
    if type(exc).__module__.startswith('bags.'):
        return exc
    cause = exc.__cause__ if exc.__cause__ is not None else exc
    response = getattr(cause, 'response', None)
    if isinstance(response, dict):  # botocore's ClientError.
        return _error_for_s3(path, response)
    # The text of an error of aiohttp has the address, which may be signed.
    text = str(getattr(exc, 'message', exc) if hasattr(exc, 'request_info') else exc)
    name = type(cause).__name__
    if any(word in name for word in ('Credentials', 'Profile', 'TokenRetrieval', 'RefreshError')):
        return PermissionError(errno.EACCES, f'no credentials (anon=True needs none): {cause}', path)
    if isinstance(exc, FileNotFoundError):
        return error_for_status(path, 404, '')
    if isinstance(exc, PermissionError) or text.startswith('Forbidden'):  # The latter is gcsfs's.
        return error_for_status(path, 403, text)
    if isinstance(exc, FileExistsError):
        return PreconditionError(text)
    if isinstance(exc, IsADirectoryError | NotADirectoryError):
        return type(exc)(exc.errno or errno.EISDIR, text, path)
    if name == 'TooManyRedirects':
        return error_for_status(path, 302, text)
    status = exc.status if hasattr(exc, 'status') else getattr(exc, 'code', None)  # aiohttp's; gcsfs's.
    if str(status).isdigit():
        retry_after = (getattr(exc, 'headers', None) or {}).get('Retry-After')
        return error_for_status(path, int(str(status)), text, retry_after)
    if 'not satisfiable' in text:
        return RangeError(text)
    if isinstance(exc, NotImplementedError):
        return UnsupportedError(path, f'not supported by the file system{f": {text}" if text else ""}')
    if isinstance(exc, ValueError):
        return OSError(errno.EINVAL, f'ValueError: {exc}', path)  # E.g. an invalid bucket name.
    if isinstance(exc, TypeError | AttributeError):
        exc.add_note(path)  # A programming error, here or in the file system.
        return exc
    timed_out = isinstance(exc, TimeoutError) or 'imeout' in name
    reason = no_connection_reason(exc)
    if reason is not None:
        host, port = getattr(exc, 'host', None), getattr(exc, 'port', None)
        return no_connection_error(host and f'{host}:{port}', reason)
    return TransientError(f'{name}: {str(cause) or "no answer in time"}', timed_out)


def _error_for_s3(path: str, response: dict[str, Any]) -> Exception:
    error, about = response.get('Error', {}), response.get('ResponseMetadata', {})
    status = about.get('HTTPStatusCode') or 500
    if error.get('Code') in ('SlowDown', 'RequestTimeout', 'InternalError'):
        status = 503
    reason = f'{error.get("Code", "")} {error.get("Message", "")}'
    region = about.get('HTTPHeaders', {}).get('x-amz-bucket-region')
    if region and status in (301, 400):
        reason += f', x-amz-bucket-region: {region}'
    return error_for_status(path, status, reason)
