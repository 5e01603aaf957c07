"""Delays forks until imports in other threads are complete.

A child that is forked while another thread imports a module inherits the locked import lock of that module,
and hangs when it imports the module. bags and its dependencies import many modules on first use. So a fork
waits until no other thread imports one of them, and no thread can start an import until the child exists.

The locks of modules are private to `importlib`, and the same in Python 3.4 to 3.14. If they are missing,
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

IMPORT_SAFE_PACKAGES = sys.stdlib_module_names | {
    'PIL', 'adlfs', 'aiobotocore', 'aiohttp', 'apache_beam', 'array_record', 'av', 'bags', 'botocore',
    'fsspec', 'gcsfs', 'google', 'google_crc32c', 'grain', 'h5py', 'huggingface_hub', 'jax', 'lerobot', 'lz4',
    'ml_dtypes', 'msgpack', 'numcodecs', 'numpy', 'obstore', 'pyarrow', 'ray', 'rich', 'rosbags',
    's3fs', 'simplejpeg', 'torch', 'typer', 'typing_extensions', 'xxhash', 'yarl', 'zarr', 'zstandard',
}  # fmt: skip
"""Packages whose imports a fork waits for. Importing a user's module may run a whole program."""
MAX_FORK_SECONDS = 60.0
"""Maximum time that a fork waits: the import may itself wait for the thread that forks."""
ACQUIRE_SECONDS = 0.1
"""Maximum wait for locks without an owner, which are about to be acquired or have just been released."""
FORK_POLL_SECONDS = 0.001


def _owners(bootstrap: Any) -> set[int | None]:
    """Returns the threads that import modules of `IMPORT_SAFE_PACKAGES`; None stands for a future owner."""
    locks = {name: reference() for name, reference in list(bootstrap._module_locks.items())}
    return {
        lock.owner
        for name, lock in locks.items()
        if lock is not None and name.partition('.')[0] in IMPORT_SAFE_PACKAGES
    }


def _before_fork(bootstrap: Any, lock: Any) -> None:
    # While this lock is held, no thread can start an import.
    lock.acquire_lock()
    start, own = time.monotonic(), threading.get_ident()
    while owners := _owners(bootstrap) - {own}:
        if time.monotonic() - start > (MAX_FORK_SECONDS if owners != {None} else ACQUIRE_SECONDS):
            break
        # Running imports may need the lock, to import other modules.
        lock.release_lock()
        time.sleep(FORK_POLL_SECONDS)
        lock.acquire_lock()


def _after_fork(lock: Any) -> None:
    with contextlib.suppress(RuntimeError):
        lock.release_lock()


def make_forks_wait() -> None:
    """Makes all later forks of this process wait for imports in other threads."""
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
