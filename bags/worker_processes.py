"""Batches made ahead by processes, and delivered in order."""

from __future__ import annotations

from typing import Any

from bags.recipe import Recipe

__all__ = ['Processes', 'check_picklable']


def check_picklable(recipe: Recipe) -> None:
    """Raises a TypeError for what cannot be sent to a process."""


class Processes:
    """Makes batches ahead, in processes."""

    def __init__(self, recipe: Recipe, count: int, prefetch: int | None) -> None:
        raise NotImplementedError

    def get(self) -> Any: ...

    def close(self) -> None: ...
