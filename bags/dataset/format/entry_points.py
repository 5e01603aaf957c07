"""Entry points: finds objects that other installed packages add to bags, by name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint


class Added(NamedTuple):
    """An object of an installed package."""

    name: str
    value: Any
    package: str
    """Name of the package in pip."""


def find_added(group: str, name: str) -> Added | None:
    """Returns the object of an installed package under a name in a group of entry points.

    Raises:
        ValueError: The package cannot be imported, or several packages have the name.
    """
    from importlib.metadata import entry_points

    found = [(point, _package(point)) for point in entry_points(group=group, name=name)]
    packages = sorted({package for _, package in found})
    if len(packages) > 1:
        raise ValueError(f'expected one package that has {name!r}, got {" and ".join(packages)}')
    return _load(*found[0]) if found else None


def names_of_added(group: str) -> list[str]:
    """Returns the names of a group of entry points of installed packages, sorted. Imports nothing."""
    from importlib.metadata import entry_points

    return sorted({point.name for point in entry_points(group=group)})


def _package(point: EntryPoint) -> str:
    return point.dist.name if point.dist is not None else point.value


def _load(point: EntryPoint, package: str) -> Added:
    try:
        return Added(point.name, point.load(), package)
    except Exception as exc:  # Raised by code of the package.
        detail = f'{type(exc).__name__}: {exc}'
        raise ValueError(f'expected {point.name!r} of the package {package} to load, got {detail}') from exc
