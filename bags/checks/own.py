"""Checks of one's own: from a Python file, or from an installed package (entry point `bags.checks`)."""

from __future__ import annotations

import os
import runpy
from collections.abc import Iterable

from bags.checks.definition import Check
from bags.dataset.format.plug_ins import find_all, find_one
from bags.validation import nearest_name

CHECKS_GROUP = 'bags.checks'


def installed_checks() -> list[str]:
    """Returns the names of the checks of installed packages, without importing them."""
    return sorted({added.name for added in find_all(CHECKS_GROUP)})


def load_checks(names: Iterable[str | os.PathLike[str] | Check]) -> list[Check]:
    """Returns checks, given themselves, the paths of Python files, or names of installed checks.

    A file or an entry point has one `Check` or several: all that are defined in the file, or that the entry
    point names. Files and packages are executed: pass only what you trust.

    Raises:
        FileNotFoundError: A file does not exist.
        ValueError: No installed package has the name, a package cannot be imported, or there is no check.
        Exception: Any error of the file.
    """
    checks: list[Check] = []
    for name in names:
        if isinstance(name, Check):
            checks.append(name)
        elif str(name).endswith('.py'):
            checks += _of_file(os.fspath(name))
        else:
            checks += _of_package(str(name))
    return checks


def _of_file(path: str) -> list[Check]:
    if not os.path.exists(path):
        raise FileNotFoundError(2, 'no such file of checks', path)
    found = list(_checks_in(runpy.run_path(path).values()))
    if not found:
        raise ValueError(f'{path}: expected a file that defines a bags.types.Check, got none')
    return found


def _of_package(name: str) -> list[Check]:
    added = find_one(CHECKS_GROUP, name)
    if added is None:
        known = installed_checks()
        similar = nearest_name(name, known)
        advice = f'did you mean {similar!r}?' if similar else f'installed are {", ".join(known) or "none"}'
        raise ValueError(f'checks: expected a .py file or an installed check, got {name!r}; {advice}')
    value = added.value
    found = list(_checks_in(value if isinstance(value, list | tuple) else [value]))
    if not found:
        raise ValueError(
            f'checks: expected {name!r} of the package {added.package} to be a bags.types.Check or a list of '
            f'them, got {value!r:.80}'
        )
    return found


def _checks_in(values: Iterable[object]) -> Iterable[Check]:
    seen: set[int] = set()
    for value in values:
        if isinstance(value, Check) and id(value) not in seen:
            seen.add(id(value))
            yield value
