"""Which client serves a storage, in this process.

obstore where it is installed, knows the storage and its options, and is safe; else fsspec. obstore is not
safe in a forked child whose parent had loaded it: its threads are not there, and requests would hang.
"""

from __future__ import annotations

import os
import sys
import weakref
from collections.abc import Mapping
from typing import Any

from bags.errors import MissingDependencyError
from bags.storage.object_client import Client
from bags.storage.retry import RetryPolicy

__all__ = ['Clients', 'clients_for', 'obstore_is_safe']

_FORKED: set[int] = set()  # Processes that were forked when obstore was loaded, and their children.


def _note_fork() -> None:
    if 'obstore' in sys.modules:
        _FORKED.add(os.getpid())


if hasattr(os, 'register_at_fork'):
    os.register_at_fork(after_in_child=_note_fork)


def obstore_is_safe() -> bool:
    """Tells whether obstore can be used in this process."""
    return os.getpid() not in _FORKED


class Clients:
    """The way to one storage: a client for each process that asks, made when it is first needed.

    Args:
        scheme: Of its URLs.
        filesystem: The fsspec file system to use, if one was given.
        options: Its options.
    """

    def __init__(self, scheme: str, filesystem: Any, options: Mapping[str, Any]) -> None:
        self.scheme = scheme
        self.filesystem = filesystem
        self.options = dict(options)
        self.patience, self.rest = RetryPolicy.of(self.options)
        self.kind = self.rest.pop('client', 'auto')
        if self.kind not in ('auto', 'obstore', 'fsspec'):
            raise ValueError(f"storage option 'client': expected auto, obstore or fsspec, got {self.kind!r}")
        # Those of other processes are kept too: a forked child must not take apart what its parent uses.
        self._made: dict[int, Client] = {}

    def client(self) -> Client:
        """Returns the client of this process."""
        made = self._made.get(os.getpid())
        if made is None:
            # Two threads may both make one, of which one is then used by both.
            made = self._made.setdefault(os.getpid(), self._make())
        return made

    def _make(self) -> Client:
        if self.filesystem is None and self.kind != 'fsspec':
            client = self._make_obstore()
            if client is not None:
                return client
        return self._make_fsspec()

    def _make_fsspec(self) -> Client:
        from bags.storage.fsspec_client import make_fsspec_client

        return make_fsspec_client(self.scheme, self.filesystem, self.rest, self.patience)

    def _make_obstore(self) -> Client | None:
        if not obstore_is_safe():
            return None
        from bags.storage.obstore_options import store_maker

        try:
            import obstore  # noqa: F401
        except ImportError:
            if self.kind == 'obstore':
                raise MissingDependencyError('obstore', 'gcs' if self.scheme == 'gs' else 's3') from None
            return None
        if store_maker(self.scheme, self.rest, self.patience) is None:
            if self.kind == 'obstore':
                raise ValueError(f'{self.scheme} with {", ".join(self.rest)}: is not for obstore')
            return None
        from bags.storage.obstore_client import ObstoreClient

        # Not `self`, to which the client would refer while it refers to the client.
        scheme, rest, patience = self.scheme, self.rest, self.patience

        def uploader() -> Client | None:
            from bags.storage.fsspec_client import make_fsspec_client

            try:
                return make_fsspec_client(scheme, None, rest, patience)
            except MissingDependencyError:
                return None

        # What obstore sends to GCS goes through its XML interface, which emulators do not have.
        return ObstoreClient(
            lambda use: store_maker(scheme, rest, patience, use),
            patience,
            uploader if scheme in ('s3', 'gs') else lambda: None,
            sends_all=scheme == 'gs',
        )


_SHARED: weakref.WeakValueDictionary[Any, Clients] = weakref.WeakValueDictionary()
"""Clients in use, so that all that open one storage in one way share its connections: making a client of
obstore takes 40 ms, and each connection a handshake. They go with the last that uses them."""


def clients_for(scheme: str, filesystem: Any, options: Mapping[str, Any]) -> Clients:
    """Returns the way to a storage, that of others who use it with equal options."""
    key = (scheme, None if filesystem is None else id(filesystem), _frozen(options))
    found = _SHARED.get(key)
    if found is None:
        found = _SHARED.setdefault(key, Clients(scheme, filesystem, options))
    return found


def _frozen(value: Any) -> Any:
    """Returns a key for options; objects count as equal if they are the same one, which the clients keep."""
    if isinstance(value, Mapping):
        return tuple(sorted((str(name), _frozen(item)) for name, item in value.items()))
    if isinstance(value, list | tuple):
        return ('list', *map(_frozen, value))
    return repr(value) if isinstance(value, str | bytes | int | float | None) else f'object {id(value)}'
