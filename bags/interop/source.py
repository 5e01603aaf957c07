"""What a source of datapoints is, and the spec that is inferred from one."""

from __future__ import annotations

import errno
import io
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, BinaryIO, Protocol, cast, runtime_checkable

import numpy as np

from bags.errors import SpecError
from bags.formats.encoded import BufferFile
from bags.formats.signatures import check_whole, identify
from bags.formats.wav import find_samples
from bags.interop.extensions import KEY, WRITTEN, type_of

__all__ = ['Damaged', 'Source', 'infer', 'open_source', 'value_of']


class Damaged(ValueError):
    """A source file that is not what its name says, or cannot be read."""

    def __init__(self, name: str, detail: str) -> None:
        super().__init__(f'{name}: {detail}')
        self.name = name
        self.detail = detail

    def __reduce__(self) -> tuple[Any, ...]:
        return Damaged, (self.name, self.detail)


@runtime_checkable
class Source(Protocol):
    """Files that can become a dataset. What can be said without reading them is known at once."""

    spec: dict[str, str]
    """The type of each field, inferred from names; may be changed before anything is loaded."""
    count: int
    """Datapoints."""
    layout: str
    """How files are divided into datapoints."""
    damaged: list[tuple[str, str]]
    """Of a source opened with `on_error='skip'`: what was found damaged at once, and why."""

    def entries(self) -> Iterator[Any]:
        """Yields what `load` needs for each datapoint: small, and picklable."""
        ...

    def load(self, entry: Any) -> dict[str, Any]:
        """Returns the datapoint of an entry, its values as they are in the files: bytes, or str.

        Raises:
            Damaged: A file that cannot be what its field's type says.
        """
        ...


def open_source(
    source: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    *,
    layout: str | None = None,
    spec: Mapping[str, str | None] | None = None,
    storage_options: Mapping[str, Any] | None = None,
    on_error: str = 'raise',
) -> Source:
    """Finds out what a folder, a tar or several tars would be as a dataset.

    Args:
        source: A folder of files, a folder of tars, a tar, or a list or glob of tars; path or URL.
        layout: Of a folder: 'files', 'stems', 'classes' or 'episodes'; unless told, what fits its names.
        spec: Changes to the spec: a type by field, or None to leave a field out.
        storage_options: Of the storage behind a URL.
        on_error: 'raise' refuses a tar that is damaged, 'skip' takes what stands before the damage.

    Raises:
        FileNotFoundError: Nothing is there.
        ValueError: Files that cannot be divided into datapoints.
        SpecError: A type for a field that is not there.
    """
    from bags.interop.folders import FolderSource, list_files
    from bags.interop.webdataset import TarSource, is_tar

    if not isinstance(source, str | os.PathLike | Iterable):
        raise TypeError(f'source: expected a folder, a tar or several tars, got {source!r:.80}')
    if not isinstance(spec, Mapping | None):
        raise TypeError(f'spec: expected a mapping of fields to types, got {spec!r:.80}')
    parts = [source] if isinstance(source, str | os.PathLike) else source
    tars = [os.fspath(part) for part in parts]
    if not tars:
        raise ValueError('source: expected a folder, a tar or several tars, got none')
    if isinstance(source, str | os.PathLike) and not is_tar(root := tars[0]):
        names = list_files(root, storage_options)
        if any(name.rpartition('/')[2] == 'refs.bag' for name in names):
            raise ValueError(f'{root}: is a dataset already; bags.copy copies one')
        if names and (layout is not None or not all(map(is_tar, names))):
            return _adjusted(FolderSource(root, names, layout, storage_options), spec)
        if names:
            tars = [f'{root.rstrip("/")}/{name}' for name in sorted(names)]
        elif not any(letter in root for letter in '*?['):
            raise FileNotFoundError(
                errno.ENOENT, 'no files to import; expected a folder of files, or tars', root
            )
    return _adjusted(TarSource(tars, storage_options, on_error), spec)


def _adjusted(source: Source, changes: Mapping[str, str | None] | None) -> Source:
    for field, kind in (changes or {}).items():
        if field not in source.spec:
            raise SpecError(field, f'one of the fields {", ".join(source.spec)}', field)
        if field == KEY and kind != 'utf8':
            raise SpecError(field, 'utf8, since it says where an interrupted import goes on', str(kind))
        if kind is None:
            del source.spec[field]
        else:
            source.spec[field] = kind
    return source


def infer(fields: Mapping[str, tuple[str, bool, int]], count: int, notes: bool) -> dict[str, str]:
    """Returns a spec.

    Args:
        fields: By field: the extension of its files, if it is a sequence, and how many datapoints have it.
        count: Datapoints.
        notes: Extensions are to be noted.
    """
    spec = {KEY: 'utf8', WRITTEN: 'json?'} if notes else {KEY: 'utf8'}
    for field, (extension, is_sequence, present) in sorted(fields.items()):
        if field in (KEY, WRITTEN):
            raise ValueError(f'.{extension}: expected another extension, this field is of use already')
        spec[field] = type_of(extension) + '[]' * is_sequence + '?' * (present < count)
    return spec


_CONTAINERS = {
    'jpeg': {'JPEG'},
    'jpg': {'JPEG'},
    'png': {'PNG'},
    'webp': {'WebP'},
    'avif': {'AVIF'},
    'mp4': {'MP4'},
    'webm': {'WebM'},
    'mkv': {'Matroska'},
    'wav': {'WAV'},
    'flac': {'FLAC'},
    'opus': {'Ogg Opus'},
    'video': {'MP4', 'QuickTime', 'WebM', 'Matroska'},
    'audio': {'WAV', 'FLAC', 'Ogg', 'Ogg Opus', 'MP3', 'MP4', 'QuickTime'},
}
_NUMBERS: dict[str, Callable[[str], Any]] = {
    'int': int,
    'uint': int,
    'i64': int,
    'u64': int,
    'float': float,
    'bool': lambda text: {'0': False, '1': True, 'false': False, 'true': True}[text.lower()],
}
_MPEG_AUDIO = re.compile(rb'\xff[\xe2-\xfe]')


def value_of(name: str, word: str, data: Any) -> Any:
    """Returns what is to be appended for a file's content, after a look at its structure.

    A file is kept as it is: what is returned is what was given, bytes or a map. Only where a spec was changed
    to a type that no file has, an int for a text, say, is it read.

    Raises:
        Damaged: It is not of the type, or cut off.
    """
    try:
        if word in _CONTAINERS:
            _check_container(word, data)
        elif word == 'utf8':
            return _text(data)
        elif word == 'json':
            json.loads(_text(data))
        elif word in _NUMBERS:
            return _NUMBERS[word](str(data, 'utf-8').strip())
        elif word == 'array':
            return np.load(io.BytesIO(data), allow_pickle=False)
    except (ValueError, KeyError, EOFError, RecursionError) as exc:
        raise Damaged(
            name, f'{type(exc).__name__}: {exc}' if isinstance(exc, KeyError) else str(exc)
        ) from exc
    return data


def _text(data: bytes) -> str:
    try:
        return str(data, 'utf-8')
    except UnicodeDecodeError as exc:
        raise ValueError(f"{exc}; with 'bytes' as the type of the field it can be kept") from exc


def _check_container(word: str, data: Any) -> None:
    found = identify(data)
    expected = _CONTAINERS[word]
    if found not in expected and not (word == 'audio' and _MPEG_AUDIO.match(data)):
        raise ValueError(f'expected {" or ".join(sorted(expected))}, got {found}')
    check_whole(data, found)
    if found == 'WAV':
        find_samples(cast(BinaryIO, BufferFile(data)))
    if found == 'JPEG' and not 0 <= data.rfind(b'\xff\xda') < data.rfind(b'\xff\xd9'):
        raise ValueError(f'JPEG is cut off after {len(data)} bytes')  # No end of image behind the last scan.
