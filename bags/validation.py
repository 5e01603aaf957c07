"""Arguments: checks of numbers, choices and records, whose errors name the option; options of many functions.

Options that many functions have are declared once, as a TypedDict:

    class WriteOptions(TypedDict, total=False):
        shard_length: Annotated[int | None, Option(None, positive_or_none)]

A function takes them as `**options: Unpack[WriteOptions]`, and `made_from` makes a dataclass of them, whose
fields are checked when they are set. To add an option, declare it, and use it where it takes effect.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import importlib
import inspect
import os
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeVar, get_type_hints

from bags.concurrency import Shareable
from bags.errors import MissingDependencyError

RENAMED = {
    'shardsize': 'shard_size (bytes) or shard_length (datapoints)',
    'shardlen': 'shard_length (datapoints)',
    'shardstart': 'shard_start',
    'shardstep': 'shard_step',
    'shard_stop': 'shard_step',
    'overwrite': "mode='overwrite'",
    'directory': 'path',
    'num_workers': 'workers',
    'prefetch_factor': 'prefetch',
    'persistent_workers': 'epochs=None: the iteration does not end, and neither do its workers',
    'multiprocessing_context': 'processes=True',
    'num_replicas': 'world_size',
    'drop_last': "last_batch='drop' (of a Loader) or padding='drop' (of windows)",
    'collate_fn': 'collate',
    'pin_memory': 'to_device',
    'generator': 'seed',
    'batch_sampler': 'sampler',
    'split': 'the path of the split, or dataset.split',
    'streaming': 'no option: only what is used is read',
    'columns': 'fields',
}
"""Options of Bags 0.x, Granular, PyTorch and other libraries, and their replacements."""
CALLS = {
    'windows': "windows(fields, length) is windows(every=FIELD, FIELD=bags.steps(0, length), padding='drop')",
}
"""Forms of calls that a function had before, and their replacements."""


class Option(NamedTuple):
    """The declaration of an option, beside its type: `Annotated[bool, Option(False, boolean)]`."""

    default: Any
    check: Callable[[str, Any], Any]
    """Function from the name and a value other than the default to the value as it is kept; it raises
    TypeError or ValueError, with the name and the value."""


class Options(Shareable):
    """Base of the dataclasses that `made_from` makes. Their fields are checked when they are set.

    Raises:
        TypeError, ValueError: Of the check of the option.
        AttributeError: No such option.
    """

    declared: ClassVar[dict[str, Option]] = {}
    """The declaration of each option."""
    defaults: ClassVar[Any] = None
    """The options with their defaults."""

    if TYPE_CHECKING:

        def __init__(self, *positional: Any, **keywords: Any) -> None: ...

        def __getattr__(self, name: str) -> Any: ...

    def __setattr__(self, name: str, value: Any) -> None:
        option = self.declared.get(name)
        if option is None:
            raise AttributeError(f'{type(self).__name__} has no option {name!r}')
        object.__setattr__(self, name, value if value is option.default else option.check(name, value))


Made = TypeVar('Made', bound=Options)
Called = TypeVar('Called', bound=Callable[..., Any])


def made_from(keywords: Any, *first: str) -> Callable[[type[Made]], type[Made]]:
    """Returns a decorator that makes a class a dataclass with a field for each option of a TypedDict.

    The fields of a base class are kept. `first` are those that come first, for positional arguments.
    """

    def make(options: type[Made]) -> type[Made]:
        hints = get_type_hints(keywords, include_extras=True)
        declared = {name: hints[name].__metadata__[0] for name in dict.fromkeys((*first, *hints))}
        options.declared = options.declared | declared
        options.__annotations__ = dict.fromkeys(declared, 'Any')
        for name, option in declared.items():
            setattr(options, name, option.default)
        made = dataclasses.dataclass(options)
        made.defaults = made()
        return made

    return make


def merge(
    options_type: type[Made],
    options: Made | None,
    keywords: Mapping[str, object],
    known: Collection[str] = (),
    function: Callable[..., Any] | None = None,
) -> Made:
    """Returns a copy of `options`, or of the defaults, updated with the keyword arguments.

    Args:
        options_type: The type of the options.
        options: Of this type.
        keywords: Options by name.
        known: Names of the options that may be given; all unless given.
        function: The function that has these options, whose parameters are named in errors too.

    Raises:
        TypeError: A keyword that is not an option, or an option of another type.
        ValueError: An invalid option.
    """
    if options is not None and not isinstance(options, options_type):
        raise TypeError(f'options: expected {options_type.__name__}, got {type(options).__name__}')
    if keywords:
        reject_unknown_options(keywords, known or options_type.declared, function)
    merged: Made = copy.copy(options or options_type.defaults)
    for name, value in keywords.items():
        if value is not vars(merged)[name]:
            setattr(merged, name, value)
    return merged


def with_advice(function: Called) -> Called:
    """Makes a function give advice as `reject_unknown_options`, and on former calls.

    Its signature stays as it is. Functions with keywords of any name check these themselves.
    """
    parameters = inspect.signature(function).parameters.values()
    takes_any = any(each.kind == inspect.Parameter.VAR_KEYWORD for each in parameters)
    names = [each.name for each in parameters if each.name != 'self']

    @functools.wraps(function)
    def call(*args: Any, **keywords: Any) -> Any:
        for name in () if takes_any else keywords:
            reject_renamed_option(name)
        try:
            return function(*args, **keywords)
        except TypeError as exc:
            is_of_call = exc.__traceback__ is not None and exc.__traceback__.tb_next is None
            if is_of_call and not takes_any:
                reject_unknown_options(keywords, names)
            if is_of_call and function.__name__ in CALLS:
                raise TypeError(f'{exc}: {CALLS[function.__name__]}') from None
            raise

    return call  # type: ignore[return-value]


def nearest_name(name: object, known: Iterable[str]) -> str | None:
    """Returns the known name that is probably meant by one that is not known; None if none is similar."""
    import difflib

    by_lower = {each.lower(): each for each in known}
    similar = difflib.get_close_matches(str(name).lower(), by_lower, 1)
    return by_lower[similar[0]] if similar else None


def no_field(name: object, known: Collection[str]) -> str:
    """Returns the message for a field that does not exist, with the one that is probably meant."""
    similar = nearest_name(name, known)
    perhaps = '' if similar is None else f' (perhaps {similar!r})'
    return f'no field {name!r}{perhaps}; the fields are {", ".join(map(repr, known))}'


def reject_renamed_option(name: str) -> None:
    """Raises TypeError with advice if an option is one of other libraries."""
    if name in RENAMED:
        raise TypeError(f'unexpected option {name!r}: use {RENAMED[name]}')


def reject_unknown_options(
    given: Iterable[str], known: Collection[str] = (), function: Callable[..., Any] | None = None
) -> None:
    """Raises TypeError for an unknown option, with advice for a misspelled one and those of other libraries.

    Args:
        given: Names of options that a function got as `**options`.
        known: Names of those that it has.
        function: The function, whose other parameters are named in the error too.
    """
    for name in given:
        if name in known:
            continue
        reject_renamed_option(name)
        names = list(known)
        if function is not None:
            variadic = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
            parameters = inspect.signature(function).parameters.values()
            names[:0] = [each.name for each in parameters if each.kind not in variadic]
        similar = nearest_name(name, names)
        advice = f'did you mean {similar!r}? Expected' if similar else 'expected'
        raise TypeError(f'unexpected option {name!r}: {advice} one of {", ".join(names)}')


def integer(name: str, value: Any, alternative: str = '') -> int:
    """Returns an integer, which may be given as a float without a fraction, such as `5e9`.

    `alternative` names other accepted values in the error message.

    Raises:
        TypeError: The value is not an integer.
    """
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not hasattr(value, '__index__'):
        raise TypeError(f'{name}: expected an integer{alternative}, got {value!r:.200}')
    return int(value)


def at_least(name: str, value: Any, minimum: int, alternative: str = '') -> int:
    """Returns an integer that is not below a minimum.

    Raises:
        TypeError: The value is not an integer.
        ValueError: It is below the minimum.
    """
    number = integer(name, value, alternative)
    if number < minimum:
        raise ValueError(f'{name}: expected at least {minimum}{alternative}, got {number}')
    return number


def item_count(name: str, value: Any, minimum: int) -> int:
    """As `at_least`, for numbers of datapoints and items, which are below 2^62.

    Arithmetic with larger ones would overflow int64.
    """
    number = at_least(name, value, minimum)
    if number >= 1 << 62:
        raise ValueError(f'{name}: expected less than 2^62, got {number}')
    return number


def at_least_or_none(name: str, value: Any, minimum: int) -> int | None:
    """As `at_least`, for an option that may also be None."""
    return None if value is None else at_least(name, value, minimum, ' or None')


def positive(name: str, value: Any) -> int:
    """Returns an integer that is at least 1; see `at_least`."""
    return at_least(name, value, 1)


def positive_or_none(name: str, value: Any) -> int | None:
    """As `positive`, for an option that may also be None."""
    return at_least_or_none(name, value, 1)


def positive_seconds(name: str, value: Any) -> float:
    """Returns a number of seconds; ValueError unless it is positive and finite."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e9:
        raise ValueError(f'{name}: expected a positive number of seconds, got {value!r}')
    return float(value)


def boolean(name: str, value: Any) -> bool:
    """Returns True or False.

    Raises:
        TypeError: Anything else.
    """
    if not isinstance(value, bool):
        raise TypeError(f'{name}: expected True or False, got {value!r:.80}')
    return value


def boolean_or_none(name: str, value: Any) -> bool | None:
    """As `boolean`, for an option that may also be None."""
    return None if value is None else boolean(name, value)


def worker_count(workers: Any) -> int:
    """Returns the number of workers for the option `workers`: the number of processors for None.

    Raises:
        TypeError, ValueError: Neither a positive integer nor None.
    """
    return positive_or_none('workers', workers) or os.cpu_count() or 1


def unchecked(_name: str, value: Any) -> Any:
    """Returns the value, for an option that is checked where it is used."""
    return value


def one_of(name: str, value: Any, choices: Iterable[str]) -> None:
    """Raises ValueError for a value that is not one of the choices."""
    known = list(choices)
    if value not in known:
        raise ValueError(f'{name}: expected {" or ".join(map(repr, known))}, got {value!r}')


def as_record(value: Any) -> bytes:
    """Returns a record as bytes, from bytes, str (as UTF-8) or any buffer.

    Raises:
        TypeError: Anything else.
    """
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode()
    try:
        return bytes(memoryview(value))
    except TypeError:
        raise TypeError(f'record: expected bytes, str or a buffer, got {type(value).__name__}') from None


def import_optional(package: str, extra: str = '') -> Any:
    """Imports a package that an extra installs, one of the same name unless given.

    Raises:
        MissingDependencyError: It is not installed; says how to install it.
    """
    try:
        return importlib.import_module(package)
    except ImportError as exc:
        raise MissingDependencyError(package.replace('_', '-'), extra or package) from exc
