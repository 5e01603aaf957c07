"""Chooses the client of an object store, for each process.

obstore is used if it is installed and supports the store and its options; else fsspec. obstore does not work
in a child that was forked after its parent loaded it: the child lacks its threads, and requests hang.
"""

from __future__ import annotations

import contextlib
import os
import sys
import weakref
from collections.abc import Mapping
from typing import Any

from bags.errors import MissingDependencyError
from bags.storage.object_client import ObjectClient
from bags.storage.obstore_options import FSSPEC_TUNING, OBSTORE_NAMES, hub_options, unsupported_options
from bags.storage.retry import RetryPolicy

_FORKED: set[int] = set()  # Processes that were forked when obstore was loaded.


def _after_fork_in_child() -> None:
    if 'obstore' in sys.modules:
        _FORKED.add(os.getpid())
    asyn = sys.modules.get('fsspec.asyn')
    if asyn is not None:
        asyn.reset_lock()  # fsspec 2025.2 keeps the parent's event loop, whose thread does not exist here.


if hasattr(os, 'register_at_fork'):
    os.register_at_fork(after_in_child=_after_fork_in_child)


class Clients:
    """The clients of one object store: one per process, created on first use.

    Args:
        scheme: The URL scheme.
        filesystem: The fsspec file system to use; None to choose a client.
        options: Storage options.
    """

    def __init__(self, scheme: str, filesystem: Any, options: Mapping[str, Any]) -> None:
        self.scheme = scheme
        self.filesystem = filesystem
        # Copied, because the caller may change them.
        copied = {
            name: dict(value) if isinstance(value, Mapping) else value for name, value in options.items()
        }
        self.given = scheme, copied
        self.policy, self.options = RetryPolicy.from_options(options)
        self.client = self.options.pop('client', 'auto')
        if self.client not in ('auto', 'obstore', 'fsspec'):
            raise ValueError(
                f"storage option 'client': expected auto, obstore or fsspec, got {self.client!r}"
            )
        # Clients of other processes stay in the dict: a forked child must not close its parent's connections.
        self._readers: dict[int, ObjectClient] = {}
        self._writers: dict[int, ObjectClient] = {}

    def reader(self) -> ObjectClient:
        """Returns the client for reading in this process."""
        # If two threads create clients at the same time, `setdefault` makes both use the same one.
        process = os.getpid()
        return self._readers.get(process) or self._readers.setdefault(process, self._make_reader())

    def writer(self) -> ObjectClient:
        """Returns the client for writing in this process."""
        process = os.getpid()
        return self._writers.get(process) or self._writers.setdefault(process, self._make_writer())

    def _make_reader(self) -> ObjectClient:
        is_hub = self.scheme == 'hf' and self.options.keys() - FSSPEC_TUNING <= {'token', 'endpoint'}
        if is_hub and self.filesystem is None and self.client == 'auto':
            from bags.storage.hub_client import HubClient

            return HubClient(self.options, self.policy)
        if self.filesystem is None and self.client != 'fsspec' and os.getpid() not in _FORKED:
            from bags.storage.obstore_options import obstore_settings

            settings = obstore_settings(self.scheme, self.options)
            if settings is not None:
                try:
                    from bags.storage.obstore_client import ObstoreClient

                    return ObstoreClient(settings, self.policy)
                except MissingDependencyError:
                    extra = 'gcs' if self.scheme == 'gs' else 's3'
                    if self.client == 'obstore':
                        raise MissingDependencyError('obstore', extra) from None
                    try:
                        return self._make_fsspec()
                    except MissingDependencyError as exc:
                        raise MissingDependencyError(f'obstore (or {exc.package})', extra) from None
            if self.client == 'obstore':
                raise ValueError(f'{self.scheme} with {", ".join(self.options)}: not supported by obstore')
        try:
            return self._make_fsspec()
        except MissingDependencyError as exc:
            raise MissingDependencyError(exc.package, exc.extra, self._why_fsspec()) from None

    def _why_fsspec(self) -> str:
        """Returns why obstore is not used, and what can be done; '' if it does not have the scheme."""
        if self.filesystem is not None or self.client == 'fsspec' or self.scheme not in OBSTORE_NAMES:
            return ''
        if os.getpid() in _FORKED:
            return (
                'this process was forked from one that had loaded obstore, which does not work in it; '
                "processes that are started by 'spawn' or 'forkserver' can use obstore"
            )
        names = unsupported_options(self.scheme, self.options)
        return f'obstore does not support storage option {", ".join(map(repr, names))}'

    def _make_writer(self) -> ObjectClient:
        reader = self.reader()
        if reader.version_type == 'hub':
            return self._make_fsspec()
        if self.scheme == 'gs' and reader.version_type == 'etag':
            # obstore writes to GCS through the XML API, which emulators do not implement.
            with contextlib.suppress(MissingDependencyError):
                return self._make_fsspec()
        return reader

    def _make_fsspec(self) -> ObjectClient:
        from bags.storage.filesystem import make_filesystem
        from bags.storage.fsspec_client import FsspecClient

        filesystem = self.filesystem
        if filesystem is None:
            filesystem = make_filesystem(self.scheme, self.options, self.policy)
        return FsspecClient(filesystem, self.policy)


_SHARED: weakref.WeakValueDictionary[int, Clients] = weakref.WeakValueDictionary()
"""Clients in use. Callers that open a store with equal options share its connections: creating an obstore
client takes 40 ms, and each connection a handshake. A client is freed with its last reference."""


def clients_for(scheme: str, filesystem: Any, options: Mapping[str, Any]) -> Clients:
    """Returns the clients of an object store, shared between callers with equal options."""
    if scheme == 'hf' and filesystem is None:
        options = hub_options(options)
    for reference in _SHARED.valuerefs():
        clients = reference()
        if clients is not None and clients.filesystem is filesystem and clients.given == (scheme, options):
            return clients
    clients = Clients(scheme, filesystem, options)
    _SHARED[id(clients)] = clients
    return clients
