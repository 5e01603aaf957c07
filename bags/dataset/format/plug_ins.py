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


class AddedName(NamedTuple):
    """An entry point of an installed package, whose object is not imported yet."""

    name: str
    package: str
    """Name of the package in pip."""
    point: EntryPoint

    def load(self) -> Added:
        """Imports the object.

        Raises:
            ValueError: The package cannot be imported.
        """
        try:
            return Added(self.name, self.point.load(), self.package)
        except Exception as exc:  # Raised by code of the package.
            what, got = f'{self.name!r} of the package {self.package}', f'{type(exc).__name__}: {exc}'
            raise ValueError(f'expected {what} to load, got {got}') from exc


def find_one(group: str, name: str) -> Added | None:
    """Returns the object of an installed package under a name in a group of entry points.

    Raises:
        ValueError: The package cannot be imported, or several packages have the name.
    """
    points = [each for each in find_all(group) if each.name == name]
    packages = [each.package for each in points]
    if len(packages) > 1:
        raise ValueError(f'expected one package that has {name!r}, got {" and ".join(packages)}')
    return points[0].load() if points else None


def find_all(group: str) -> list[AddedName]:
    """Returns the entry points of a group, each package once, sorted by name and package. Imports nothing."""
    from importlib.metadata import entry_points

    points = {(point.name, _package(point)): point for point in reversed(entry_points(group=group))}
    return [AddedName(*key, points[key]) for key in sorted(points)]


def _package(point: EntryPoint) -> str:
    return point.dist.name if point.dist is not None else point.value
