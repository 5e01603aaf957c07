"""Interrupts a call at one of the lines that it runs."""

import sys

__all__ = ['InterruptedAt']


class InterruptedAt:
    """A block in which a line of files in a folder raises KeyboardInterrupt, which ends the block.

    Attributes:
        happened: Whether so many lines ran.
    """

    def __init__(self, line, folder):
        self.left, self.folder = line, folder

    @property
    def happened(self):
        return self.left <= 0

    def trace(self, frame, event, _):
        if self.folder not in frame.f_code.co_filename:
            return None
        if event == 'line':
            self.left -= 1
            if not self.left:
                raise KeyboardInterrupt
        return self.trace

    def __enter__(self):
        sys.settrace(self.trace)
        return self

    def __exit__(self, kind, *_):
        sys.settrace(None)
        return kind is KeyboardInterrupt
