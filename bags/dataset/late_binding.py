"""Functions and types of packages above `dataset` that it uses: `bags/__init__` names them.

This package imports none of those packages. Each is imported when it is first used.
"""

from __future__ import annotations

import functools
import importlib
from typing import Any

FUNCTIONS: dict[str, str] = {}
"""Name → module of `bags` that defines it."""


@functools.cache
def late(name: str) -> Any:
    """Returns a function or a type that is defined above."""
    return getattr(importlib.import_module(f'bags.{FUNCTIONS[name]}'), name)
