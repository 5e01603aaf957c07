"""Makes forks wait until imports are done that a child could need.

A child that is forked while another thread imports a module inherits the lock of that module, which nobody
releases. It hangs as soon as it imports the module too. bags, and the libraries that it uses, import many
modules when they are first used. So a fork waits until no other thread imports one of them, and no thread
begins an import until the child is there.

The locks of modules are private to `importlib`, and the same in Python 3.4 to 3.14. Where they are missing,
forks do not wait.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
import threading
import time
from typing import Any

PACKAGES = sys.stdlib_module_names | {
    'PIL', 'adlfs', 'aiobotocore', 'aiohttp', 'apache_beam', 'array_record', 'av', 'bags', 'botocore',
    'fsspec', 'gcsfs', 'google', 'google_crc32c', 'grain', 'h5py', 'huggingface_hub', 'jax', 'lerobot', 'lz4',
    'ml_dtypes', 'msgpack', 'numcodecs', 'numpy', 'obstore', 'pyarrow', 'ray', 'rich', 'rosbags',
    's3fs', 'simplejpeg', 'torch', 'typer', 'xxhash', 'zarr', 'zstandard',
}  # fmt: skip
"""Packages whose imports a fork waits for. The import of a module of the user may run a whole program."""
MAX_SECONDS = 60.0
"""A fork waits at most so long: the import may itself wait for the thread that forks."""
ACQUIRE_SECONDS = 0.1
"""A lock exists while a thread uses it. One without an owner is about to be acquired, or just released."""
POLL_SECONDS = 0.001


def _owners(bootstrap: Any) -> set[int | None]:
    """Returns the threads that import modules of `PACKAGES`; None for one that is about to."""
    locks = {name: reference() for name, reference in list(bootstrap._module_locks.items())}
    return {
        lock.owner for name, lock in locks.items() if lock is not None and name.partition('.')[0] in PACKAGES
    }


def _before_fork(bootstrap: Any, lock: Any) -> None:
    # With this lock, no thread can begin an import.
    lock.acquire_lock()
    begun, own = time.monotonic(), threading.get_ident()
    while owners := _owners(bootstrap) - {own}:
        if time.monotonic() - begun > (MAX_SECONDS if owners != {None} else ACQUIRE_SECONDS):
            break
        # Imports that have begun may need it, to import other modules.
        lock.release_lock()
        time.sleep(POLL_SECONDS)
        lock.acquire_lock()


def _after_fork(lock: Any) -> None:
    with contextlib.suppress(RuntimeError):
        lock.release_lock()


def make_forks_wait() -> None:
    """Makes all later forks of this process wait for imports."""
    bootstrap, lock = getattr(importlib, '_bootstrap', None), sys.modules.get('_imp')
    if not hasattr(os, 'register_at_fork') or not hasattr(lock, 'acquire_lock'):
        return
    if not isinstance(getattr(bootstrap, '_module_locks', None), dict):
        return
    os.register_at_fork(
        before=lambda: _before_fork(bootstrap, lock),
        after_in_parent=lambda: _after_fork(lock),
        after_in_child=lambda: _after_fork(lock),
    )
