"""A read-only web server on loopback, for the page of the viewer and the files of one dataset."""

from __future__ import annotations

import errno
import itertools
import json
import mimetypes
import os
import re
import threading
import urllib.parse
from collections.abc import Iterator, Mapping
from html import escape
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from bags.bag.bag_file import BagFile
from bags.concurrency import FifoCache
from bags.dataset.base import Dataset
from bags.dataset.format.options import FolderOptions
from bags.dataset.format.shard_index import INDEX, dump_index
from bags.dataset.open import open as open_dataset
from bags.dataset.reader import DatasetReader
from bags.dataset.sharded_reader import ShardedDatasetReader
from bags.errors import BagsError
from bags.links.files import LINKED
from bags.links.linked_files import LazyFile, LinkedFiles
from bags.links.open import open_links
from bags.links.permission import PermittedPaths
from bags.links.records import LinkedRecords
from bags.maintenance.consolidate import describe_shards
from bags.maintenance.location import Location, a_file, locate
from bags.storage import File, Hints
from bags.storage.base import Buffer
from bags.storage.descriptors import opened_path
from bags.storage.pread_file import PreadFile
from bags.viewer.page import find_page

HOST = '127.0.0.1'
RESPONSE_CHUNK_BYTES = 1 << 20
"""Bytes read and sent at a time."""
OPEN_FILES = 64
"""Number of remote files that stay open."""
FILE = re.compile(
    r'(?:(?P<shard>[0-9]+)/)?(?P<name>[^/\\\0]+)'
    r'(?:(?<=\.files)/(?P<number>[0-9]{1,10})(?P<dictionary>\.zdict)?)?'
)
"""A file of the dataset, or a linked file by its number in `FIELD.files`, or its dictionary."""
LIVE = re.compile(r'live/(?P<version>[0-9]{1,18})/(?P<path>.+)')
"""A file of a snapshot of a dataset that is being written."""
SNAPSHOTS = 16
"""Number of snapshots that the page can still read: it polls every half second."""
JSON = frozenset(['spec.json', 'shards.json', 'metadata.json', 'statistics.json'])
SERVED_SUFFIXES = ('.bag', '.bagz', '.idx', '.index', '.zdict', *LINKED)


class ViewServer:
    """Serves the page at `/` and a dataset below `/data/`, until it is closed.

    It listens on loopback, answers GET and HEAD, and refuses requests for another host, so that other sites
    cannot read the dataset by resolving their name to this machine. It serves the files of the dataset; local
    files must be in its folder after symbolic links are resolved. Linked files are served by their number in
    `FIELD.files`, if links may reach them.

    With `follow`, it also serves snapshots of a dataset that is being written: `live.json` has the version of
    the newest snapshot and its partial datapoints, and `live/VERSION/` the files of a snapshot.

    Args:
        dataset: A path or URL, or the location of a dataset.
        port: The port to listen on; 0 for a free one.
        trust_links: As in `bags.open`.
        follow: Whether the page shows episodes while they are recorded.
        source: The path of the dataset in the code and the commands that the page copies; None: `dataset`.
        filesystem, storage_options: As in `bags.open`.

    Raises:
        FileNotFoundError: The dataset does not exist, or the page is not built.
        ValueError: The path is a bag, not a dataset; or, with `follow`, it is a URL.
        OSError: The port is in use.
    """

    def __init__(
        self,
        dataset: str | os.PathLike[str] | Location,
        port: int = 0,
        *,
        trust_links: PermittedPaths = (),
        follow: bool = False,
        source: str | None = None,
        filesystem: Any = None,
        storage_options: Mapping[str, Any] | None = None,
    ) -> None:
        self.page = find_page()
        self._source = source
        if not isinstance(dataset, Location):
            dataset = locate(dataset, filesystem, storage_options)
        self.location = dataset
        if self.location.type == 'bags':
            raise ValueError(
                f'{self.location.path}: expected a dataset, which is a folder, got {a_file(self.location)}'
            )
        self._snapshots: Snapshots | None = None
        if follow:
            if dataset.store.is_remote:
                detail = 'on an object store, the datapoints of a folder appear when it is closed'
                raise ValueError(f'{dataset.path}: follow: expected a local dataset: {detail}')
            self._snapshots = Snapshots(dataset.path)
        # Resolved once: the folder may be exchanged with a symbolic link later.
        self._root = '' if dataset.store.is_remote else os.path.realpath(dataset.path)
        # Not mapped: truncating a mapped file while it is sent would kill the process.
        self._options = FolderOptions(trust_links=trust_links, storage_options=storage_options, mapped=False)
        self._linked = LinkedFiles(dataset.store, dataset.path, self._options)
        self._files: FifoCache[str, File] = FifoCache(self._open, OPEN_FILES)
        self._links: FifoCache[tuple[str, str], LinkedRecords] = FifoCache(self._open_links, OPEN_FILES)
        self._index: bytes | None = None
        self._lock = threading.Lock()
        try:
            self._server = _Server((HOST, port), _Handler)
        except OSError as exc:
            if exc.errno != errno.EADDRINUSE:
                raise
            detail = f'port {port} is in use: choose another, or 0 for a free one'
            raise OSError(errno.EADDRINUSE, detail) from None
        self._server.view = self
        self.port: int = self._server.server_address[1]
        name = os.path.basename(self.location.path.rstrip('/')) or 'data'
        self.folder = urllib.parse.quote(name, safe='')
        """The folder of the dataset below /data/, which the page shows as its name."""
        # `close` waits at most 50 ms.
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """The address of the page with the dataset."""
        data = urllib.parse.quote(f'data/{self.folder}')
        return f'http://{HOST}:{self.port}/?data={data}'

    def wait(self) -> None:
        """Returns when the server is closed."""
        self._thread.join()

    def close(self) -> None:
        """Stops the server. Open pages keep the data that they have loaded."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def find(self, path: str) -> tuple[File | bytes, str] | None:
        """Returns the content and the type of the file at a URL path; None if the file does not exist."""
        prefix = f'/data/{self.folder}/'
        if path.startswith(prefix):
            return self._find_data(urllib.parse.unquote(path.removeprefix(prefix)))
        name = path.removeprefix('/') or 'index.html'
        if not re.fullmatch(r'(assets/)?[\w-]+(\.[\w-]+)*', name, re.ASCII):
            return None
        try:
            with open(os.path.join(self.page, name), 'rb') as file:
                if name == 'index.html':
                    return self._named(file.read().decode()).encode(), 'text/html'
                return file.read(), mimetypes.guess_type(name)[0] or 'application/octet-stream'
        except OSError:
            return None

    def _named(self, page: str) -> str:
        """Returns the page with the address of the dataset, which it shows unless its own address names one.

        The page also has the path of a local dataset, for the Python code that it copies.
        """
        url = escape(f'data/{self.folder}')
        metas = [f'<meta name="bags-data" content="{url}">']
        if not self.location.store.is_remote:
            path = escape(os.path.abspath(self.location.path) if self._source is None else self._source)
            metas.append(f'<meta name="bags-source" data-url="{url}" content="{path}">')
        if self._snapshots is not None:
            metas.append(f'<meta name="bags-follow" content="{url}">')
        return page.replace('</head>', ''.join(f'{meta}\n' for meta in metas) + '</head>', 1)

    def _find_data(self, path: str) -> tuple[File | bytes, str] | None:
        if self._snapshots is not None:
            if path == 'live.json':
                return self._snapshots.describe(), 'application/json'
            if (live := LIVE.fullmatch(path)) is not None:
                return self._find_live(self._snapshots, int(live['version']), live['path'])
            if path == INDEX:
                return None  # It would be older than the dataset; the page looks for each shard.
        match = FILE.fullmatch(path)
        if match is None or not (match['name'] in JSON or match['name'].endswith(SERVED_SUFFIXES)):
            return None
        store, folder = self.location.store, self.location.path
        shard = store.join(folder, match['shard']) if match['shard'] else folder
        full = store.join(shard, match['name'])
        content_type = 'application/json' if match['name'] in JSON else 'application/octet-stream'
        if not store.is_remote and not self._is_inside(full):
            return None
        try:
            if match['number']:
                key = shard, match['name'].removesuffix(LINKED[1])
                linked = self._find_linked(key, int(match['number']), match['dictionary'])
                return None if linked is None else (linked, content_type)
            # Local files may grow or be replaced; opening a remote file takes a request.
            return (self._files[full] if store.is_remote else self._open(full)), content_type
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            index = self._make_index() if path == INDEX and self.location.type == 'shards' else b''
            return (index, content_type) if index else None

    def _find_live(self, snapshots: Snapshots, version: int, path: str) -> tuple[File | bytes, str] | None:
        """Returns a file of a snapshot: its refs with partial datapoints, else a file of the dataset.

        Bags only grow while a dataset is written, and the refs say which of their records are in the
        snapshot.
        """
        refs = snapshots.refs_of(version)
        if refs is None:
            return None
        folder, name = os.path.split(path)
        bag = refs.get(folder)
        if bag is not None and name in ('refs.bag', 'limits.refs.bag'):
            # As the files of a bag that is being written, so that the page reads the other bags as such.
            parts = (0, bag.offset) if name == 'refs.bag' else (bag.offset, bag.file.size)
            return bytes(bag.file.read(*parts)), 'application/octet-stream'
        return self._find_data(path)

    def _find_linked(self, key: tuple[str, str], number: int, dictionary: str | None) -> File | bytes | None:
        """Returns a linked file, or its dictionary; None for an unknown number.

        Raises:
            PermissionError: Links must not reach the file.
            LinkError: The file is missing, or has changed since it was linked.
        """
        records = self._links[key] if self.location.store.is_remote else self._open_links(key)
        if not 1 <= number <= records.files.count:
            return None
        entry = records.entry(number)
        file: Any = LazyFile(records, number, None, entry.size, records.is_remote)
        file.check()  # Also checks its dictionary.
        if not dictionary:
            return file  # type: ignore[no-any-return]
        if entry.dictionary is None:
            return None
        return self._linked.read(records.folder, entry.dictionary.path)

    def _open_links(self, key: tuple[str, str]) -> LinkedRecords:
        """Opens the links of a folder and a field; raises FileNotFoundError if the field has no links."""
        store, (folder, field) = self.location.store, key
        if not store.exists(store.join(folder, field + LINKED[1])):
            raise FileNotFoundError(errno.ENOENT, 'no links', folder)
        return open_links(store, folder, field, self._options, self._linked)

    def _open(self, path: str) -> File:
        """Opens a file of the dataset.

        Raises:
            FileNotFoundError: A symbolic link to a file outside of the folder has come into the path.
        """
        file = self.location.store.open(path, Hints(mapped=False))
        if isinstance(file, PreadFile) and not self._is_inside(opened_path(file.descriptor(), path)):
            raise FileNotFoundError(errno.ENOENT, 'not in the folder of the dataset', path)
        return file

    def _is_inside(self, path: str) -> bool:
        """Returns whether a local path is in the folder of the dataset, after symbolic links are resolved."""
        return os.path.commonpath([self._root, os.path.realpath(path)]) == self._root

    def _make_index(self) -> bytes:
        """Returns a shards.json for a dataset without one; empty if some shards are being written."""
        with self._lock:
            if self._index is None:
                try:
                    self._index = dump_index(*describe_shards(self.location))
                except (BagsError, OSError, ValueError):
                    self._index = b''
            return self._index


class Snapshots:
    """The snapshots of a local dataset that is being written. Each request for the newest one reads it anew.

    Args:
        path: The dataset.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._reader: Dataset | None = None
        self._lock = threading.Lock()
        self._version = 0
        self._state: object = None
        """The datapoints of the newest snapshot: their number, and the refs of the partial ones."""
        self._refs: dict[int, dict[str, BagFile]] = {}
        """For each snapshot, the refs of shards with a partial datapoint by name; '' is a dataset folder."""

    def describe(self) -> bytes:
        """Returns the version of the newest snapshot, its length, and its partial datapoints, as JSON."""
        with self._lock:
            try:
                reader = self._reopen()
            except FileNotFoundError:  # The writer has not created it yet.
                return _live_json(self._version, 0, [])
            refs = {
                '' if path == reader.path else os.path.basename(path): bag
                for path, bag in reader.partial_refs().items()
            }
            state = len(reader), [(name, bag.get(bag.count - 1)) for name, bag in refs.items()]
            if state != self._state:
                self._state, self._version = state, self._version + 1
                self._refs[self._version] = refs
                self._refs.pop(self._version - SNAPSHOTS, None)
            return _live_json(self._version, len(reader), reader.partial.tolist())

    def _reopen(self) -> DatasetReader | ShardedDatasetReader:
        reader = self._reader or open_dataset(self._path, raw=True)
        assert isinstance(reader, DatasetReader | ShardedDatasetReader)
        self._reader = reader = reader.reopen(partial=True)
        return reader

    def refs_of(self, version: int) -> dict[str, BagFile] | None:
        """Returns the refs of shards with a partial datapoint in a snapshot; None if it is too old."""
        return self._refs.get(version)


def _live_json(version: int, length: int, partial: list[int]) -> bytes:
    return json.dumps({'version': version, 'length': length, 'partial': partial}).encode()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    view: ViewServer

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignores errors: browsers drop connections that they no longer need."""


class _Handler(BaseHTTPRequestHandler):
    """Handles one connection."""

    protocol_version = 'HTTP/1.1'
    timeout = 60
    disable_nagle_algorithm = True  # Otherwise the body waits 40 ms for the acknowledgement of the headers.
    server: _Server

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def _answer(self, *, with_body: bool) -> None:
        view = self.server.view
        hosts = {f'{name}:{view.port}' for name in (HOST, 'localhost')}
        if (self.headers.get('Host') or '').lower() not in hosts:
            self._refuse(HTTPStatus.MISDIRECTED_REQUEST, 'expected a request for this host')
            return
        try:
            result = view.find(urllib.parse.urlsplit(self.path).path)
        except (OSError, BagsError) as exc:
            self._refuse(HTTPStatus.BAD_GATEWAY, str(exc))
            return
        if result is None:
            self._refuse(HTTPStatus.NOT_FOUND, 'not a file of the page or the dataset')
            return
        content, content_type = result
        size = len(content) if isinstance(content, bytes) else content.size
        text = self.headers.get('Range')
        span = _parse_range(text, size) if text else range(size)
        if span is None:
            self.send_response(HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE)
            self.send_header('Content-Range', f'bytes */{size}')
            self.send_header('Content-Length', '0')
            self.end_headers()
            return
        parts = _read_parts(content, span if with_body else range(0))
        try:
            first = next(parts, b'')
        except (OSError, EOFError, BagsError) as exc:
            self._refuse(HTTPStatus.BAD_GATEWAY, str(exc))
            return
        self.send_response(HTTPStatus.PARTIAL_CONTENT if text else HTTPStatus.OK)
        if text:
            self.send_header('Content-Range', f'bytes {span.start}-{span.stop - 1}/{size}')
        self.send_header('Content-Type', content_type)
        self.send_header('Content-Length', str(len(span)))
        self.send_header('Accept-Ranges', 'bytes')
        self.send_header('Cache-Control', 'no-cache')
        self.send_header('Cross-Origin-Resource-Policy', 'same-origin')
        self.send_header('X-Content-Type-Options', 'nosniff')
        self.end_headers()
        for part in itertools.chain([first], parts):
            self.wfile.write(part)

    def _refuse(self, status: HTTPStatus, text: str) -> None:
        data = f'{text}\n'.encode()
        self.send_response(status)
        self.send_header('Content-Type', 'text/plain; charset=utf-8')
        self.send_header('Content-Length', str(len(data)))
        self.send_header('X-Content-Type-Options', 'nosniff')
        self.end_headers()
        if self.command != 'HEAD':
            self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        """Logs nothing."""


def _read_parts(content: File | bytes, span: range) -> Iterator[Buffer]:
    for start in range(span.start, span.stop, RESPONSE_CHUNK_BYTES):
        stop = min(start + RESPONSE_CHUNK_BYTES, span.stop)
        yield content[start:stop] if isinstance(content, bytes) else content.read(start, stop)


def _parse_range(text: str, size: int) -> range | None:
    """Returns the bytes that a Range header requests; None for no bytes, or several ranges."""
    match = re.fullmatch(r'bytes=(\d*)-(\d*)', text.strip(), re.ASCII)
    if match is None or not (match[1] or match[2]):
        return None
    if not match[1]:
        span = range(max(0, size - int(match[2])), size)
    else:
        span = range(int(match[1]), min(int(match[2]) + 1 if match[2] else size, size))
    return span or None
