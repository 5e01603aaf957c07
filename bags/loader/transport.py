"""Batches from one process to another: their arrays through memory that both have, all else pickled.

What is written to the memory, each part at a multiple of 64:

    sizes of the parts that follow, int64 | array | … | the batches, pickled without their arrays

A message in a pipe only has to say how many parts there are. So it is small, and there is no half of one if
the process that sends it is killed; whoever reads half of one waits for as long as anybody has the pipe open.
"""

from __future__ import annotations

import pickle
import traceback

import numpy as np

from bags.loader.batches import Made
from bags.loader.shared_memory import Arena
from bags.memory import ALIGNMENT, Pool

__all__ = ['failed', 'portable', 'put', 'taken']


def put(slot: Arena, run: list[Made]) -> int:
    """Writes batches to memory; returns the number of parts.

    Raises:
        Exception: What pickling them raises.
        OSError: There is no memory.
    """
    buffers: list[pickle.PickleBuffer] = []
    data = pickle.dumps(run, 5, buffer_callback=buffers.append)
    parts = [*(buffer.raw() for buffer in buffers), memoryview(data)]
    sizes = np.array([part.nbytes for part in parts], np.int64)
    slot.write([sizes.data.cast('B'), *parts])
    return len(parts)


def taken(slot: Arena, count: int, memory: Pool) -> list[Made]:
    """Returns the batches that another process has put in memory, with arrays of their own, in `memory`."""
    sizes = np.frombuffer(slot.view(8 * count), np.int64)
    rooms = -(-sizes // ALIGNMENT) * ALIGNMENT
    first = -(-sizes.nbytes // ALIGNMENT) * ALIGNMENT
    starts = np.cumsum(rooms) - rooms
    last, size = int(starts[-1]), int(sizes[-1])
    found = slot.view(first + last + size)[first:]
    # One copy, of which the arrays are parts.
    room = memory.take(last)
    room[:] = np.frombuffer(found[:last], np.uint8)
    own = room.data
    buffers = [
        own[start : start + size]
        for start, size in zip(starts[:-1].tolist(), sizes[:-1].tolist(), strict=True)
    ]
    run: list[Made] = pickle.loads(found[last:], buffers=buffers)
    return run


def failed(number: int, exc: BaseException) -> bytes:
    """Returns a run, pickled, that says why it could not be handed over."""
    exc.add_note('in a worker process, while it handed over a batch')
    return pickle.dumps([Made(None, number, error=portable(exc))])


def portable(exc: BaseException) -> BaseException:
    """Returns an error that can be sent, with a note of where it was raised."""
    trace = ''.join(traceback.format_exception(exc))
    try:
        pickle.loads(pickle.dumps(exc))
    except Exception:
        notes = getattr(exc, '__notes__', [])
        exc = RuntimeError(f'{type(exc).__name__}: {exc}')
        for note in notes:
            exc.add_note(note)
    exc.add_note(f'in a worker process:\n{trace}')
    return exc
