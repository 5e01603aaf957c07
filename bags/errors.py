"""The exceptions of the library.

    BagsError
    ├ CorruptError(ValueError)            path, record, detail
    ├ SpecError(ValueError)               field, expected, got
    ├ EncodeError(ValueError)             field, type, item; from the cause
    ├ DecodeError(ValueError)             field, index, type; from the cause
    ├ StackError(ValueError)              shapes, field, datapoints
    └ MissingDependencyError(ImportError) package, extra

Each is built from facts and writes its own message: where, what, expected, got. All survive pickling,
so a worker process can hand them to its parent.
"""

from __future__ import annotations

__all__ = [
    'BagsError',
    'CorruptError',
    'DecodeError',
    'EncodeError',
    'MissingDependencyError',
    'SpecError',
    'StackError',
]


class BagsError(Exception):
    """Every error the library defines."""

    def __reduce__(self) -> tuple[object, ...]:
        # BaseException pickles its message as the only argument; ours are rebuilt from their facts.
        return _rebuild, (type(self), self.args, self.__dict__)


def _rebuild(kind: type[BagsError], args: tuple[object, ...], facts: dict[str, object]) -> BagsError:
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(facts)
    return error


class CorruptError(BagsError, ValueError):
    """What a file holds cannot be right.

    Attributes:
        path: The file (or folder) that is damaged.
        record: Index of the record the damage was met at, or None where it concerns the whole file.
        detail: What was found and what was expected.
    """

    def __init__(self, path: object, record: int | None, detail: str) -> None:
        self.path = str(path)
        self.record = record
        self.detail = detail
        where = self.path if record is None else f'{self.path}, record {record}'
        super().__init__(f'{where}: {detail}')


class SpecError(BagsError, ValueError):
    """A spec, a type or a field name that does not follow the rules.

    Attributes:
        field: Name of the field, or None where the spec as a whole is meant.
        expected: What would have been right.
        got: What was found.
    """

    def __init__(self, field: str | None, expected: str, got: object, where: object = None) -> None:
        self.field = field
        self.expected = expected
        self.got = got
        prefix = f'{where}: ' if where is not None else ''
        subject = 'spec' if field is None else f'field {field!r}'
        super().__init__(f'{prefix}{subject}: expected {expected}, got {got!r}')

    @classmethod
    def of_type(cls, field: str, type: str, reason: ValueError, where: object = None) -> SpecError:
        """Returns the error of a type whose arguments its format refuses: 'expected this, got that'."""
        expected = str(reason).removeprefix('expected ').replace(', got ', ', not ')
        return cls(field, expected, type, where)


class EncodeError(BagsError, ValueError):
    """A value that could not be turned into a record; the reason is the `__cause__`.

    Attributes:
        field: Name of the field.
        type: The field's type.
        item: Index of the item in the datapoint's sequence, or None where it is no item.
    """

    def __init__(self, field: str, type: str, detail: str, item: int | None = None) -> None:
        self.field = field
        self.type = type
        self.item = item
        where = '' if item is None else f', item {item}'
        super().__init__(f'field {field!r} of type {type}{where}: {detail}')


class DecodeError(BagsError, ValueError):
    """A record that could not be turned into a value; the reason is the `__cause__`.

    Attributes:
        field: Name of the field.
        index: Index of the record in the field's bag.
        type: The field's type.
    """

    def __init__(self, field: str, index: int, type: str, detail: str, where: object = None) -> None:
        self.field = field
        self.index = index
        self.type = type
        prefix = f'{where}, ' if where is not None else ''
        super().__init__(f'{prefix}field {field!r} of type {type}, record {index}: {detail}')


class MissingDependencyError(BagsError, ImportError):
    """An optional package is needed for what was asked.

    Attributes:
        package: Name of the package that could not be imported.
        extra: The extra of bags that installs it; empty if none does.
    """

    def __init__(self, package: str, extra: str = '') -> None:
        self.package = package
        self.extra = extra
        wanted = f"'bags[{extra}]'" if extra else package
        super().__init__(f'{package} is needed for this: pip install {wanted}')


class StackError(BagsError, ValueError):
    """Values of a batch that do not make one array.

    Attributes:
        shapes: The shape of each value, None for one that is missing.
        field: Name of the field, or None where it is not known.
        datapoints: The index of each value's datapoint, or None where they are not known.
    """

    def __init__(
        self,
        shapes: list[tuple[int, ...] | None],
        field: str | None = None,
        datapoints: list[int] | None = None,
    ) -> None:
        self.shapes = shapes
        self.field = field
        self.datapoints = datapoints
        names = list(range(len(shapes))) if datapoints is None else datapoints
        by_shape: dict[tuple[int, ...] | None, list[int]] = {}
        for name, shape in zip(names, shapes, strict=True):
            by_shape.setdefault(shape, []).append(name)
        what = 'values' if datapoints is None else 'datapoints'
        found = ' and '.join(
            f'{"none" if shape is None else shape} at {what} {_few(places)}'
            for shape, places in by_shape.items()
        )
        where = '' if field is None else f'field {field!r}: '
        super().__init__(f'{where}expected values of one shape, got {found}')


def _few(numbers: list[int]) -> str:
    return ', '.join(map(str, numbers[:8])) + (', …' if len(numbers) > 8 else '')
