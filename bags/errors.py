"""The exceptions of the library.

    Exception
    └ BagsError
      ├ CorruptError(ValueError)            path, record, detail
      │ └ LinkError                         field, file, expected, found
      ├ SpecError(ValueError)               field, expected, got
      ├ EncodeError(ValueError)             field, type, item; from the cause
      ├ DecodeError(ValueError)             field, index, type; from the cause
      ├ StackError(ValueError)              shapes, field, datapoints
      ├ SourceError(ValueError)             name, detail
      └ MissingDependencyError(ImportError) package, extra, reason

Each is built from its attributes, and formats the message: where, what, expected, got. All can be pickled, so
that worker processes can send them to their parent.

Invalid arguments raise Python's own TypeError, ValueError, KeyError and IndexError; file operations raise
OSError.
"""

from __future__ import annotations

__all__ = [
    'BagsError',
    'CorruptError',
    'DecodeError',
    'EncodeError',
    'LinkError',
    'MissingDependencyError',
    'SourceError',
    'SpecError',
    'StackError',
]


class BagsError(Exception):
    """Base class of the exceptions of the library.

    Examples:
        >>> try:
        ...     bags.open('episodes')[0, 'colour']
        ... except (bags.BagsError, KeyError) as error:
        ...     print(error)
        "no field 'colour'; the fields are 'id', 'label', 'task', 'image', 'state'"
    """

    def __reduce__(self) -> tuple[object, ...]:
        # By default, unpickling would call the class with the message, but the classes take other arguments.
        return _rebuild, (type(self), self.args, self.__dict__)


def _rebuild(error_type: type[BagsError], args: tuple[object, ...], facts: dict[str, object]) -> BagsError:
    error = error_type.__new__(error_type, *args)
    error.args = args
    error.__dict__.update(facts)
    return error


class CorruptError(BagsError, ValueError):
    r"""A file is damaged.

    Attributes:
        path: The file or folder.
        record: Index of the damaged record; None if the damage concerns the whole file.
        detail: The expected and the actual content.

    Examples:
        >>> from pathlib import Path
        >>> data = Path('episodes/000000/task.bag').read_bytes()
        >>> Path('damaged.bag').write_bytes(data[:-8] + bytes([255] * 8))
        60
        >>> try:
        ...     bags.bag.Reader('damaged.bag')[0]
        ... except bags.CorruptError as error:
        ...     print(error.detail)
        expected a limit at its end, got b'\xff\xff\xff\xff\xff\xff\xff\xff'; is it cut off, or not a bag?
    """

    def __init__(self, path: object, record: int | None, detail: str) -> None:
        self.path = str(path)
        self.record = record
        self.detail = detail
        where = self.path if record is None else f'{self.path}, record {record}'
        super().__init__(f'{where}: {detail}')


class LinkError(CorruptError):
    """A linked file is missing, or has changed since it was linked.

    Attributes:
        path, record: The file with the links of the field, and the index of the link.
        field: Name of the field.
        file: The linked file.
        expected: A description of the file when it was linked.
        found: A description of the current file.

    The message names the folder with the links, the linked file, and what to do.

    Examples:
        >>> import os
        >>> with bags.DatasetWriter('moved', {'photo': 'jpeg'}, linked_fields=['photo']) as writer:
        ...     writer.append({'photo': bags.Link('photos/dogs/000.jpg')})
        0
        >>> os.rename('photos/dogs/000.jpg', 'photos/dogs/renamed.jpg')
        >>> try:
        ...     bags.open('moved', trust_links='photos')[0]
        ... except bags.LinkError as error:
        ...     print(error.field, error.expected)
        photo a file of 675 bytes
    """

    def __init__(
        self,
        path: object,
        record: int | None,
        field: str,
        file: str,
        expected: str,
        found: str,
        advice: str = '',
    ) -> None:
        self.field = field
        self.file = file
        self.expected = expected
        self.found = found
        detail = f'field {field!r}: link to {file}: expected {expected}, got {found}'
        super().__init__(path, record, f'{detail}; {advice}' if advice else detail)
        folder = self.path.removesuffix(f'/{field}.links')
        self.args = (f'{folder}, {self.detail}',)


class SpecError(BagsError, ValueError):
    """A spec, a type or the name of a field is invalid.

    Attributes:
        field: Name of the field; None if the error concerns the whole spec.
        expected: A description of valid values.
        got: The invalid value.

    Examples:
        >>> try:
        ...     bags.DatasetWriter('wrong', {'image': 'jpeg['})
        ... except bags.SpecError as error:
        ...     print(error)
        field 'image': expected a type like format, format(arg,arg), format[] or format?, got 'jpeg['
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
        """Returns the error for a type with invalid arguments.

        Args:
            field: Name of the field.
            type: The type.
            reason: The error of the format: 'expected …, got …'.
            where: The file with the spec.
        """
        expected = str(reason).removeprefix('expected ').replace(', got ', ', not ')
        return cls(field, expected, type, where)

    @classmethod
    def of_decoder(cls, field: str, type: str, detail: str, where: object) -> SpecError:
        """Returns the error for a field of a dataset whose type has no decoder.

        Args:
            field: Name of the field.
            type: The type.
            detail: The missing decoder, and what can be read without it.
            where: The dataset.
        """
        error = cls(field, 'a type that has a decoder', type, where)
        error.args = (f'{where}: field {field!r} of type {type}: {detail}',)
        return error


class EncodeError(BagsError, ValueError):
    """A value cannot be encoded. The `__cause__` is the error of the encoder.

    Attributes:
        field: Name of the field.
        type: Type of the field; empty if the spec does not have the field.
        item: Index of the item in the datapoint's sequence; None if the error does not concern an item.

    Examples:
        >>> with bags.DatasetWriter('numbers', {'n': 'int(1)'}) as writer:
        ...     writer.append({'n': 7})
        ...     try:
        ...         writer.append({'n': 300})
        ...     except bags.EncodeError as error:
        ...         print(error)
        0
        field 'n' of type int(1): ValueError: expected an integer from -2**7 to 2**7 - 1, got 300
    """

    def __init__(self, field: str, type: str, detail: str, item: int | None = None) -> None:
        self.field = field
        self.type = type
        self.item = item
        where = '' if item is None else f', item {item}'
        of_type = f' of type {type}{where}:' if type else ''
        super().__init__(f'field {field!r}{of_type} {detail}')


class DecodeError(BagsError, ValueError):
    """A record cannot be decoded. The `__cause__` is the error of the decoder.

    Attributes:
        field: Name of the field.
        index: Index of the record in the field's bag.
        type: Type of the field.

    Examples:
        >>> with bags.DatasetWriter('broken', {'image': 'bytes'}) as writer:
        ...     writer.append({'image': b'no JPEG'})
        0
        >>> try:
        ...     bags.open('broken', {**bags.decoders, 'bytes': bags.decoders['jpeg']})[0]
        ... except bags.DecodeError as error:
        ...     print(error.field, error.index)
        image 0
    """

    def __init__(self, field: str, index: int, type: str, detail: str, where: object = None) -> None:
        self.field = field
        self.index = index
        self.type = type
        prefix = f'{where}, ' if where is not None else ''
        super().__init__(f'{prefix}field {field!r} of type {type}, record {index}: {detail}')


class SourceError(BagsError, ValueError):
    """A file cannot be imported, or the files of a datapoint cannot be named for export.

    Attributes:
        name: The file, the tar and its member, or the datapoint.
        detail: The expected and the actual content.

    Examples:
        >>> try:
        ...     bags.convert('film.mp4', 'converted')
        ... except bags.SourceError as error:
        ...     print(str(error).partition(',')[0])
        film.mp4: expected a folder
    """

    def __init__(self, name: str, detail: str) -> None:
        self.name = name
        self.detail = detail
        super().__init__(f'{name}: {detail}')


class MissingDependencyError(BagsError, ImportError):
    """An optional package is not installed.

    Attributes:
        package: Name of the package.
        extra: The extra of bags that installs it; empty if no extra does.
        reason: Why it is needed here, and what else helps; may be empty.

    Examples:
        >>> issubclass(bags.MissingDependencyError, ImportError)
        True
    """

    def __init__(self, package: str, extra: str = '', reason: str = '') -> None:
        self.package = package
        self.extra = extra
        self.reason = reason
        requirement = f"'bags[{extra}]'" if extra else package
        text = f'{package} is needed for this: pip install {requirement}'
        super().__init__(f'{text}; {reason}' if reason else text)


class StackError(BagsError, ValueError):
    """Values of a batch differ in shape, so they cannot be stacked into one array.

    Attributes:
        shapes: Shape of each value; None for a missing value.
        field: Name of the field; None if unknown.
        datapoints: Index of each value's datapoint; None if unknown.

    Examples:
        >>> try:
        ...     bags.stack(dataset.batch([0, 1], 'state'))
        ... except bags.StackError as error:
        ...     print(error)
        field 'state': expected values of one shape, got (3, 2) at values 0 and (4, 2) at values 1
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
        by_shape: dict[tuple[int, ...] | None, list[int]] = {}
        for index, shape in zip(datapoints or range(len(shapes)), shapes, strict=True):
            by_shape.setdefault(shape, []).append(index)
        positions = 'values' if datapoints is None else 'datapoints'
        got = ' and '.join(
            f'{"none" if shape is None else shape} at {positions} {_first(indices)}'
            for shape, indices in by_shape.items()
        )
        prefix = '' if field is None else f'field {field!r}: '
        super().__init__(f'{prefix}expected values of one shape, got {got}')


def _first(indices: list[int], count: int = 8) -> str:
    return ', '.join(map(str, indices[:count])) + (', …' if len(indices) > count else '')
