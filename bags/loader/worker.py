"""What a worker process does: it makes the batches that it is asked for, for as long as its parent lives."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import sys
import threading
import time
from typing import Any

from bags.loader.batches import Made, Recipe
from bags.loader.shared_memory import Arena
from bags.loader.signals import default_signals
from bags.loader.transport import failed, portable, put

__all__ = ['work']

LOOKING = 1.0  # Seconds from one look for the parent to the next.


def work(connection: Any, slots: list[Arena], sent: Arena, size: int) -> None:
    """Makes runs of batches until there is nobody to ask for more.

    Args:
        connection: To the parent, which sends first batch, count and slot; it gets first batch, count, parts
            in the slot, seconds, and, if there are no parts, the pickled run.
        slots: Where runs are put.
        sent: Where the pickled recipe is,
        size: and its bytes.
    """
    default_signals()
    threading.Thread(target=_end_with_parent, name='bags-loader-parent', daemon=True).start()
    recipe: Recipe | Exception
    try:
        recipe = pickle.loads(sent.view(size))
    except Exception as exc:
        exc.add_note('in a worker process: functions and classes must be where it can import them')
        recipe = exc
    sent.close()
    default_signals()  # The modules that were imported may have set their own.
    try:
        while True:
            first, count, slot = connection.recv()
            began = time.perf_counter()
            run = _make(recipe, first, count)
            parts, data = 0, b''
            try:
                parts = put(slots[slot], run)
            except Exception as exc:
                data = failed(first, exc)
            del run
            connection.send((first, count, parts, time.perf_counter() - began, data))
    except (EOFError, BrokenPipeError, ConnectionResetError):
        pass  # The process that asked has ended.


def _end_with_parent() -> None:
    """Ends this process, in the midst of whatever it does, when its parent has ended.

    A parent that is killed cannot say so, and a pipe to it stays open for as long as another child of it has
    the other end; but a process that has lost its parent gets another one.
    """
    parent = multiprocessing.parent_process()
    if parent is None:
        return
    while parent.is_alive() and (sys.platform == 'win32' or os.getppid() == parent.pid):
        parent.join(LOOKING)
    os._exit(1)


def _make(recipe: Recipe | Exception, first: int, count: int) -> list[Made]:
    run: list[Made] = []
    try:
        if isinstance(recipe, Exception):
            raise recipe
        for made in recipe.make(first, count):
            if made.error is not None:
                made.error = portable(made.error)
            run.append(made)
    except BaseException as exc:
        run.append(Made(None, first, error=portable(exc)))
    return run
