"""A Hugging Face hub on loopback, with the host that it redirects to."""

from __future__ import annotations

import hashlib
import json
import os
import re
import urllib.parse
from pathlib import Path

from tests.servers import LoopbackServer

RANGE = re.compile(r'bytes=(\d*)-(\d*)')
LARGE = ('.bag', '.bagz', '.idx')
"""Suffixes of files that are on the other host."""
MESSAGES = {
    'RepoNotFound': 'Repository not found',
    'RevisionNotFound': 'Invalid rev id',
    'EntryNotFound': 'Entry not found',
}


def is_large(path):
    return path.suffix in LARGE and path.stat().st_size > 0


def version_of(path):
    """Returns the SHA-256 of a large file, and what git names the content of a small one."""
    data = path.read_bytes()
    if is_large(path):
        return hashlib.sha256(data).hexdigest()
    return hashlib.sha1(f'blob {len(data)}\0'.encode() + data).hexdigest()


def answer(handler, status, data=b'', headers=()):
    handler.send_response(status)
    for name, value in dict(headers).items():
        handler.send_header(name, value)
    handler.send_header('Content-Length', str(len(data)))
    handler.end_headers()
    handler.wfile.write(data)


def read_body(handler):
    if handler.headers.get('Transfer-Encoding') != 'chunked':
        return handler.rfile.read(int(handler.headers.get('Content-Length') or 0))
    body = b''
    while size := int(handler.rfile.readline() or b'0', 16):
        body += handler.rfile.read(size)
        handler.rfile.readline()
    handler.rfile.readline()
    return body


def answer_range(handler, data, headers=()):
    if 'Range' not in handler.headers:
        return answer(handler, 200, data, headers)
    first, last = RANGE.fullmatch(handler.headers['Range']).groups()
    start = int(first) if first else max(0, len(data) - int(last))
    stop = min(len(data), int(last) + 1) if first and last else len(data)
    if start >= len(data):
        return answer(handler, 416, b'', {'Content-Range': f'bytes */{len(data)}'})
    headers = {**dict(headers), 'Content-Range': f'bytes {start}-{stop - 1}/{len(data)}'}
    return answer(handler, 206, data[start:stop], headers)


class SignedHost(LoopbackServer):
    """Serves files by signed addresses, each of which is valid for `reads` requests, and refuses a token."""

    reads = 20

    def __init__(self):
        self.files, self.left = {}, {}
        super().__init__()

    def sign(self, file):
        with self.lock:
            name = f'/{len(self.files)}/x%20y?signature=secret%2F{len(self.files)}'
            self.files[name], self.left[name] = file, self.reads
        return self.url + name

    def serve(self, handler):
        name = handler.path
        with self.lock:
            self.requests.append((handler.command, name, handler.headers.get('Range', '')))
            self.left[name] -= 1
            is_valid = self.left[name] >= 0
        if 'Authorization' in handler.headers:
            return answer(handler, 400, b'two ways to sign in')
        if not is_valid:
            return answer(handler, 403, b'expired')
        return answer_range(handler, self.files[name].read_bytes(), {'ETag': '"of another kind"'})


class Hub(LoopbackServer):
    """The repository datasets/u/d.

    Attributes:
        commits: The folder of each commit.
        branches: The commit of each branch.
        token: What it asks for; None for a public repository.
        statuses: Statuses and headers of the next responses, which are sent instead of others.
        other: The host of large files.
    """

    make_other = SignedHost

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self.commits = {'a' * 40: Path(root)}
        self.branches = {'main': 'a' * 40}
        self.token: str | None = None
        self.statuses: list[tuple[int, dict[str, str]]] = []
        self.other = self.make_other()
        super().__init__()

    def __exit__(self, *exc: object) -> None:
        self.other.__exit__()
        super().__exit__()

    def count(self) -> tuple[int, int, int]:
        """Returns the number of requests so far: of the API, for files, and on the other host."""
        api = sum(path.startswith('/api/') for _, path, _ in self.requests)
        return api, len(self.requests) - api, len(self.other.requests)

    def missing(self, handler, code):
        return answer(handler, 404, b'', {'X-Error-Code': code, 'X-Error-Message': MESSAGES[code]})

    def serve(self, handler):
        with self.lock:
            self.requests.append((handler.command, handler.path, handler.headers.get('Range', '')))
            status = self.statuses.pop(0) if self.statuses else None
        handler.body = read_body(handler)
        if status is not None:
            return answer(handler, status[0], b'', status[1])
        if self.token is not None and handler.headers.get('Authorization') != f'Bearer {self.token}':
            text = 'Invalid username or password.'
            return answer(handler, 401, b'', {'X-Error-Message': text})
        return self.respond(handler)

    def respond(self, handler):
        url = urllib.parse.urlsplit(handler.path)
        methods = 'revision|tree|paths-info|resolve'
        found = re.fullmatch(rf'(/api)?/datasets/(u/d)/({methods})/([^/]+)(?:/(.*))?', url.path)
        if found is None:
            return self.missing(handler, 'RepoNotFound')
        _, _, method, revision, name = found.groups()
        revision, name = map(urllib.parse.unquote, (revision, name or ''))
        commit = self.branches.get(revision, revision)
        if commit not in self.commits:
            return self.missing(handler, 'RevisionNotFound')
        if method == 'revision':
            facts = {'private': False, 'disabled': False, 'downloads': 0, 'likes': 0, 'tags': []}
            return self.json(handler, {'id': 'u/d', 'sha': commit, **facts})
        if method == 'paths-info':
            data = handler.body
            if 'json' in handler.headers['Content-Type']:
                asked = json.loads(data)['paths']
            else:
                asked = urllib.parse.parse_qs(data.decode())['paths']
            root = self.commits[commit]
            paths = [root / name for name in asked]
            return self.json(handler, [self.entry(root, path) for path in paths if path.exists()])
        path = self.commits[commit] / name
        if method == 'tree':
            return self.tree(handler, self.commits[commit], path, urllib.parse.parse_qs(url.query))
        if not path.is_file():
            return self.missing(handler, 'EntryNotFound')
        version = version_of(path)
        if is_large(path):
            headers = {'Location': self.other.sign(path), 'X-Linked-Etag': f'"{version}"'}
            return answer(handler, 302, b'', headers)
        return answer_range(handler, path.read_bytes(), {'ETag': f'W/"{version}"'})

    def tree(self, handler, root, folder, query):
        if not folder.is_dir():
            return self.missing(handler, 'EntryNotFound')
        paths = sorted(
            folder.rglob('*') if query.get('recursive') in (['true'], ['True']) else folder.iterdir()
        )
        entries = [self.entry(root, path) for path in paths]
        start = int(query.get('cursor', ['0'])[0])
        headers = {}
        if start + 3 < len(entries):
            query = urllib.parse.urlencode(
                {**{key: value[0] for key, value in query.items()}, 'cursor': start + 3}
            )
            headers['Link'] = f'<{self.url}{handler.path.partition("?")[0]}?{query}>; rel="next"'
        return self.json(handler, entries[start : start + 3], headers)

    def entry(self, root, path):
        name = path.relative_to(root).as_posix()
        if path.is_dir():
            return {'path': name, 'type': 'directory', 'size': 0, 'oid': 'git'}
        size = path.stat().st_size
        found = {'path': name, 'type': 'file', 'size': size, 'oid': version_of(path)}
        if is_large(path):
            found |= {'oid': 'git', 'lfs': {'oid': version_of(path), 'size': size, 'pointerSize': 130}}
        return found

    def json(self, handler, value, headers=()):
        return answer(
            handler, 200, json.dumps(value).encode(), {'Content-Type': 'application/json', **dict(headers)}
        )
