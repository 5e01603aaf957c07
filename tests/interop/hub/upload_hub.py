"""A Hugging Face hub on loopback that huggingface_hub uploads to: Git LFS, and commits."""

from __future__ import annotations

import base64
import collections
import hashlib
import json
import re
import shutil
import threading
import urllib.parse
from pathlib import Path

from tests.storage.hub import LARGE, Hub, SignedHost, answer, read_body, version_of

NAMES = 'datasets/u/d'


class UploadHost(SignedHost):
    """Also takes files at signed addresses, once each.

    Attributes:
        objects: The content of each complete file, by SHA-256.
        stored: How often each of them was sent.
        on_upload: Called with the number of uploads before each of them.
    """

    def __init__(self):
        self.objects, self.stored = {}, collections.Counter()
        self.parts = {}
        self.uploads, self.on_upload = 0, None
        super().__init__()

    def store(self, oid, data):
        assert hashlib.sha256(data).hexdigest() == oid
        with self.lock:
            self.objects[oid] = data
            self.stored[oid] += 1

    def complete(self, handler):
        """Joins the parts of a file. The request has no token, as huggingface_hub makes it."""
        found = json.loads(read_body(handler))
        assert 'Authorization' not in handler.headers
        assert [part['partNumber'] for part in found['parts']] == [*range(1, len(found['parts']) + 1)]
        keys = [(found['oid'], part['partNumber']) for part in found['parts']]
        self.store(found['oid'], b''.join(map(self.parts.get, keys)))
        return answer(handler, 200, b'{}', {'Content-Type': 'application/json'})

    def serve(self, handler):
        if handler.path == '/complete?signature=secret':
            return self.complete(handler)
        if handler.command != 'PUT':
            return super().serve(handler)
        with self.lock:
            self.requests.append((handler.command, handler.path, ''))
            self.uploads += 1
            number = self.uploads
        if self.on_upload is not None:
            self.on_upload(number)
        data = read_body(handler)
        if 'Authorization' in handler.headers:
            return answer(handler, 400, b'two ways to sign in')
        oid, part = re.fullmatch(r'/upload/(\w+)/(\d+)\?signature=secret', handler.path).groups()
        if len(data) != int(handler.headers.get('Content-Length', len(data))):
            return None  # The client has gone.
        if part == '0':
            self.store(oid, data)
        else:
            with self.lock:
                self.parts[oid, int(part)] = data
        return answer(handler, 200, b'', {'ETag': f'"{hashlib.md5(data).hexdigest()}"'})


class UploadHub(Hub):
    """The repository datasets/u/d, with one commit, which takes others.

    Attributes:
        folder: Where commits are.
        chunk: The bytes of a part; larger files are sent in parts.
        ignored: Paths that its .gitignore has.
        titles: The titles of commits.
        refused: Statuses and headers of methods, by name: 'batch', 'preupload', 'commit', 'revision', …
        lost: How many responses of commits get lost.
        created: The requests to create the repository, which exists already.
    """

    make_other = UploadHost

    def __init__(self, folder):
        self.folder = Path(folder)
        self.chunk, self.ignored, self.titles, self.refused, self.lost = 30_000, set(), [], {}, 0
        self.created = []
        self.committing = threading.Lock()
        self.address = ''
        """The address in responses, if the client sees another one."""
        (self.folder / ('a' * 40)).mkdir(parents=True)
        super().__init__(self.folder / ('a' * 40))

    @property
    def files(self):
        """The files of the branch main, by path."""
        root = self.commits[self.branches['main']]
        return {file.relative_to(root).as_posix(): file for file in root.rglob('*') if file.is_file()}

    def respond(self, handler):
        path = urllib.parse.urlsplit(handler.path).path
        if path == '/api/validate-yaml':
            return self.json(handler, {'errors': [], 'warnings': []})
        if path == '/api/repos/create':
            self.created.append(json.loads(handler.body))
            return answer(handler, 409, json.dumps({'url': f'{self.url}/{NAMES}'}).encode())
        if found := re.fullmatch(rf'/api/{NAMES}/branch/([^/]+)', path):
            self.branches.setdefault(found[1], self.branches['main'])
            return self.json(handler, {})
        if found := re.fullmatch(rf'/{NAMES}\.git/info/lfs/objects/(batch|verify)', path):
            method, revision = found[1], 'main'
        elif found := re.fullmatch(rf'/api/{NAMES}/(preupload|commit|revision|tree)/([^/]+)(?:/.*)?', path):
            method, revision = found[1], urllib.parse.unquote(found[2])
        else:
            return super().respond(handler)
        if self.refused.get(method):
            status, headers = self.refused[method].pop(0)
            return answer(handler, status, b'', headers)
        if method in ('revision', 'tree'):
            return super().respond(handler)
        if self.branches.get(revision, revision) not in self.commits:
            return self.missing(handler, 'RevisionNotFound')
        return getattr(self, method)(handler, revision)

    def preupload(self, handler, revision):
        root, found = self.commits[self.branches[revision]], []
        for each in json.loads(handler.body)['files']:
            path = root / each['path']
            oid = version_of(path) if path.is_file() else None
            mode = 'lfs' if path.suffix in LARGE else 'regular'
            ignored = each['path'] in self.ignored
            found.append({'path': each['path'], 'uploadMode': mode, 'shouldIgnore': ignored, 'oid': oid})
        return self.json(handler, {'files': found})

    def batch(self, handler, _revision):
        objects = []
        for each in json.loads(handler.body)['objects']:
            oid, size = each['oid'], each['size']
            if oid not in self.other.objects:
                address = f'{self.other.url}/upload/{oid}'
                own = f'{self.url}/{NAMES}.git/info/lfs/objects'
                upload = {'href': f'{address}/0?signature=secret', 'header': {}}
                if size > self.chunk:
                    count = -(-size // self.chunk)
                    parts = {f'{n:05}': f'{address}/{n}?signature=secret' for n in range(1, count + 1)}
                    complete = f'{self.other.url}/complete?signature=secret'
                    upload = {'href': complete, 'header': {'chunk_size': str(self.chunk), **parts}}
                each = {
                    **each,
                    'actions': {'upload': upload, 'verify': {'href': f'{own}/verify', 'header': {}}},
                }
            objects.append(each)
        return self.json(handler, {'transfer': 'basic', 'objects': objects})

    def verify(self, handler, _revision):
        found = json.loads(handler.body)
        assert len(self.other.objects[found['oid']]) == found['size']
        return self.json(handler, {})

    def commit(self, handler, revision):
        with self.committing:  # A hub compares the parent and moves the branch in one step.
            return self.commit_alone(handler, revision)

    def commit_alone(self, handler, revision):
        lines = [json.loads(line) for line in handler.body.splitlines()]
        header, parent = lines[0]['value'], self.branches[revision]
        if header.get('parentCommit', parent) != parent:
            text = 'A commit has happened since. Please refresh and try again.'
            return answer(handler, 412, b'', {'X-Error-Message': text})
        commit = hashlib.sha1(handler.body + parent.encode()).hexdigest()
        root = self.folder / commit
        shutil.copytree(self.commits[parent], root, dirs_exist_ok=True)  # A test may go back to the parent.
        for line in lines[1:]:
            value = line['value']
            path = root / value['path']
            path.parent.mkdir(parents=True, exist_ok=True)
            if line['key'] == 'file':
                path.write_bytes(base64.b64decode(value['content']))
            elif line['key'] == 'lfsFile':
                path.write_bytes(self.other.objects[value['oid']])
            else:
                assert line['key'] == 'deletedFile'
                path.unlink()
        self.commits[commit], self.branches[revision] = root, commit
        self.titles.append(header['summary'])
        if self.lost:
            self.lost -= 1
            return answer(handler, 504)
        address = self.address or self.url
        return self.json(handler, {'commitUrl': f'{address}/{NAMES}/commit/{commit}', 'commitOid': commit})
