"""LeRobot datasets, versions 2 and 3: a datapoint an episode.

Version 2 has files of its own for each episode. Version 3 has many episodes in a file: rows of Parquet, and
videos, from which an episode is copied without decoding it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from bags.errors import MissingDependencyError, SourceError
from bags.interop.arrays import type_of_arrays
from bags.interop.parquet import ROWS, Rows, read_table
from bags.interop.source import Source, name_fields
from bags.media.cutting import copy_frames
from bags.media.video_decoder import VideoDecoder, open_video

__all__ = ['LeRobotSource', 'open_source']

MAX_JSON_BYTES = 1 << 26
MAX_KNOWN_VIDEOS = 16
COUNTERS = ('index', 'frame_index')
"""Features that follow from the place of a frame."""
IN_EPISODES = {'bool': 'bool', 'double': 'float(8)', 'string': 'utf8', 'large_string': 'utf8'}
"""The types of columns of the table of episodes that become fields; integers are `int(8)`."""
_TEMPLATE = re.compile(r'(?:[^{}]|\{\w+(?::0?\dd)?\}){1,256}')


class Episode(NamedTuple):
    """The facts of an episode, and its rows."""

    number: int
    facts: dict[str, Any]
    rows: Any
    """A table of Arrow."""


def open_source(paths: list[str], storage_options: Mapping[str, Any] | None = None) -> LeRobotSource:
    """Returns the episodes of a LeRobot dataset."""
    if len(paths) > 1:
        raise SourceError(paths[0], 'expected one LeRobot dataset, got several paths; import one by one')
    return LeRobotSource(paths[0], storage_options)


class LeRobotSource(Source):
    """The episodes of a LeRobot dataset.

    Args:
        root: The folder that has `meta/info.json`: path or URL.
        storage_options: As in `bags.open`, for a URL.

    Raises:
        SourceError: Not a LeRobot dataset of version 2 or 3, or its tables are damaged.
    """

    def __init__(self, root: str, storage_options: Mapping[str, Any] | None = None) -> None:
        import fsspec

        try:
            import av  # noqa: F401
            import pyarrow.parquet  # noqa: F401
        except ImportError as exc:
            raise MissingDependencyError(str(exc.name).partition('.')[0], 'lerobot') from exc
        self._fs, self._root = fsspec.core.url_to_fs(root, **(storage_options or {}))
        info = self._info = self._json('meta/info.json')
        version = str(info.get('codebase_version'))
        if not version.startswith(('v2.', 'v3.')) or not isinstance(info.get('features'), dict):
            detail = f'expected a codebase_version of v2.1 or v3.0 and features, got {version:.20}'
            raise SourceError(self._path('meta/info.json'), detail)
        self._is_v3 = version.startswith('v3')
        self._decoders: dict[str, VideoDecoder] = {}
        self._episodes = self._read_episodes()
        super().__init__('lerobot', {}, len(self._episodes))
        names = dict.fromkeys([*info['features'], *self._episodes.column_names])
        types = {name: kind for name in names if (kind := self._type(name))}
        self._fields = name_fields(types, self.notes)
        self.spec = {field: types[name] for name, field in self._fields.items()}
        self.notes.append(f'{" and ".join(map(repr, COUNTERS))} are left out: they count the frames')
        self.metadata = self._describe()

    def name(self, entry: Episode) -> str:
        return f'{self._root}, episode {entry.number}'

    def _path(self, *parts: str) -> str:
        """Returns the path of a file.

        Raises:
            SourceError: It is outside the dataset.
        """
        path = '/'.join(parts)
        if path.startswith('/') or '\\' in path or any(part in ('', '.', '..') for part in path.split('/')):
            raise SourceError(f'{self._root}/meta/info.json', f'expected paths in the dataset, got {path!r}')
        return f'{self._root}/{path}'

    def _template(self, key: str, facts: Mapping[str, Any], **more: Any) -> str:
        template = str(self._info.get(key))
        try:
            if not _TEMPLATE.fullmatch(template):
                raise ValueError('expected placeholders like {file_index:03d}')
            return self._path(template.format_map({**facts, **more}))
        except (KeyError, ValueError) as exc:
            if isinstance(exc, SourceError):
                raise
            raise SourceError(f'{self._root}/meta/info.json', f'{key}: {template:.80}: {exc}') from exc

    def _json(self, name: str, lines: bool = False) -> Any:
        path = self._path(name)
        if (size := self._fs.size(path)) > MAX_JSON_BYTES:
            raise SourceError(path, f'expected at most {MAX_JSON_BYTES} bytes, got {size}')
        try:
            text = self._fs.cat_file(path).decode()
            parts = [line for line in text.split('\n') if line.strip()] if lines else [text]
            found = [json.loads(part, parse_constant=lambda _: None) for part in parts]
        except (ValueError, RecursionError) as exc:
            raise SourceError(path, f'is not JSON: {exc}') from exc
        if not all(isinstance(each, dict) for each in found):
            raise SourceError(path, 'expected objects of JSON')
        return found if lines else found[0]

    def _read_episodes(self) -> Any:
        """Returns the table of episodes: their indices, lengths, tasks, and other columns."""
        import pyarrow as pa

        try:
            if self._is_v3:
                paths = sorted(self._fs.glob(f'{self._root}/meta/episodes/*/*.parquet'))
                tables = [read_table(self._fs, path, ('stats/', 'meta/')) for path in paths]
                table = pa.concat_tables(tables, promote_options='permissive')
            else:
                found = self._json('meta/episodes.jsonl', lines=True)
                keys = 'episode_index', 'length', 'tasks'
                table = pa.Table.from_pylist([{key: each[key] for key in keys} for each in found])
            for name in ('episode_index', 'length'):
                column = table.column(name).cast(pa.int64())
                table = table.set_column(table.column_names.index(name), name, column)
                if column.null_count or (len(column) and min(column.to_pylist()) < 0):
                    raise ValueError(f'expected numbers from 0 on as {name}')
            return table.sort_by('episode_index')
        except (KeyError, ValueError) as exc:
            if isinstance(exc, SourceError):
                raise
            raise SourceError(f'{self._root}/meta', f'cannot read the episodes: {exc}') from exc

    def _tasks(self) -> list[Any]:
        """Returns the tasks by their index; nothing if their indices have gaps."""
        if self._is_v3:
            found = read_table(self._fs, self._path('meta/tasks.parquet')).to_pylist()
        else:
            found = self._json('meta/tasks.jsonl', lines=True)
        # The other column is an index of pandas, which may have no name.
        tasks = {row.pop('task_index', None): next(iter(row.values()), None) for row in found}
        return [tasks[index] for index in range(len(tasks))] if set(tasks) == set(range(len(tasks))) else []

    def _type(self, name: str) -> str | None:
        if name in COUNTERS:
            return None
        if name == 'episode_index':
            return 'int(8)'
        if name == 'tasks' and name not in self._info['features']:
            return 'utf8[]'
        feature = self._info['features'].get(name)
        if feature is None:
            kind = str(self._episodes.schema.field(name).type)
            inner = name == 'length' or '/' in name or name.startswith('dataset_')
            found = 'int(8)' if 'int' in kind and '<' not in kind else IN_EPISODES.get(kind)
            return None if inner or found is None else f'{found}?'
        dtype, shape = str(feature.get('dtype')), tuple(feature.get('shape', ()))
        if dtype in ('video', 'image', 'string'):
            return {'video': 'video', 'image': 'image[]', 'string': 'utf8[]'}[dtype]
        try:
            np.dtype(dtype)
        except TypeError:
            return 'json[]'  # Lists of annotations.
        return type_of_arrays({dtype}, {() if shape == (1,) else shape}) + '[]'

    def _describe(self) -> dict[str, Any]:
        info, fields = self._info, {}
        stats = self._json('meta/stats.json') if self._fs.exists(self._path('meta/stats.json')) else {}
        if not stats:
            self.notes.append(
                'statistics of single episodes are left out; bags.statistics makes those of all'
            )
        for name, feature in info['features'].items():
            if (field := self._fields.get(name)) not in self.spec:
                continue
            names = feature.get('names')
            if isinstance(names, dict) and len(names) == 1:
                (names,) = names.values()
            facts = {'names': names, 'stats': stats.get(name), 'info': feature.get('info')}
            if self.spec[field].endswith('[]'):
                facts['rate'] = info['fps']
            if name == 'task_index':
                facts['classes'] = self._tasks()
            fields[field] = {key: fact for key, fact in facts.items() if fact}
        kept = {
            key: info[key] for key in ('fps', 'robot_type', 'splits', 'codebase_version') if info.get(key)
        }
        return {**kept, 'fields': fields}

    def entries(self, start: int = 0) -> Iterator[Episode]:
        columns = [
            name
            for name, feature in self._info['features'].items()
            if self._fields.get(name) in self.spec and feature.get('dtype') != 'video'
        ]
        columns = list(dict.fromkeys([*columns, 'episode_index']))
        first = start  # Rows are read from the start of a file.
        if self._is_v3 and start < self.count:
            files = [self._episodes.column(f'data/{key}_index') for key in ('chunk', 'file')]
            while first and all(column[first - 1] == column[start] for column in files):
                first -= 1
        path, rows = '', None
        for number, facts in enumerate(self._facts(first), first):
            if (found := self._template('data_path', facts)) != path:
                path, rows = found, Rows(self._fs, found, columns)
            assert rows is not None
            part = rows.take(facts['length'])
            if number >= start:
                yield Episode(facts['episode_index'], facts, part)

    def _facts(self, start: int) -> Iterator[dict[str, Any]]:
        """Yields what is known of each episode from one on, with the variables of `data_path`."""
        size = self._info.get('chunks_size')
        for batch in self._episodes.slice(start).to_batches(ROWS):
            for facts in batch.to_pylist():
                if not self._is_v3 and isinstance(size, int) and size > 0:
                    facts['episode_chunk'] = facts['episode_index'] // size
                names = [name for name in facts if name.startswith('data/')]
                yield facts | {name.removeprefix('data/'): facts[name] for name in names}

    def load(self, entry: Episode) -> dict[str, Any]:
        if isinstance(entry.rows, SourceError):
            raise entry.rows
        where, features = self.name(entry), self._info['features']
        if set(entry.rows.column('episode_index').to_pylist()) - {entry.number}:
            raise SourceError(where, 'expected its rows one after the other, got some of other episodes')
        found: dict[str, Any] = {}
        for name, field in self._fields.items():
            if field not in self.spec:
                continue
            if name not in features or name == 'episode_index':
                found[field] = entry.facts.get(name)
            elif features[name]['dtype'] == 'video':
                found[field] = self._video(name, entry.facts)
            else:
                try:
                    found[field] = _values(entry.rows.column(name), features[name])
                except (ValueError, TypeError, KeyError) as exc:
                    raise SourceError(f'{where}, {name}', str(exc)) from exc
        return found

    def _video(self, name: str, facts: Mapping[str, Any]) -> bytes | str:
        """Returns the video of an episode: the path of its file, or a part of it."""
        keys = {key: facts.get(f'videos/{name}/{key}_index') for key in ('chunk', 'file')}
        more = {f'{key}_index': value for key, value in keys.items()} if self._is_v3 else {}
        path = self._template('video_path', facts, video_key=name, **more)
        begin, count = facts.get(f'videos/{name}/from_timestamp') or 0.0, facts['length']
        try:
            with self._fs.open(path, 'rb') as file:
                decoder = self._decoder(path, file)
                times = decoder.timeline.seconds(decoder.timeline.ticks)
                start = int(abs(times - begin).argmin()) if self._is_v3 else 0
                if abs(times[start] - begin) > 0.5 / self._info['fps'] and self._is_v3:
                    raise ValueError(f'expected a frame at {begin} s, the nearest is at {times[start]} s')
                if len(times) - start < count or (not self._is_v3 and len(times) > count):
                    raise ValueError(f'expected {count} frames from {begin} s on, got {len(times) - start}')
                if len(times) > count:
                    return copy_frames(decoder, start, start + count)
                if 'file' in self._fs.protocol:
                    return path
                file.seek(0)
                return bytes(file.read())
        except (ValueError, OSError) as exc:  # Errors of libav are both.
            raise SourceError(path, f'episode {facts["episode_index"]}: {exc}') from exc

    def _decoder(self, path: str, file: Any) -> VideoDecoder:
        """Returns a decoder of an open video; the packets of those used last are known already."""
        known = self._decoders
        if path not in known:
            recent = list(known.items())[1 - MAX_KNOWN_VIDEOS :]
            self._decoders = known = {**dict(recent), path: open_video(file)}
        return known[path].over(file)


def _values(column: Any, feature: Mapping[str, Any]) -> Any:
    """Returns the values of a feature in an episode: an array, shape (frames, *shape), or a list."""
    dtype, shape = feature['dtype'], tuple(feature['shape'])
    if dtype == 'image':
        items = column.to_pylist()
        if not all(isinstance(item, dict) and isinstance(item.get('bytes'), bytes) for item in items):
            raise ValueError('expected the bytes of an image in each row')
        return [item['bytes'] for item in items]
    try:
        wanted = np.dtype(dtype)
    except TypeError:
        return column.to_pylist()
    values = column.combine_chunks()
    while hasattr(values, 'flatten') and hasattr(values.type, 'value_type'):
        if values.null_count:
            break
        values = values.flatten()
    if values.null_count:
        raise ValueError(f'expected a value in each row, got {values.null_count} missing ones')
    array = values.to_numpy(zero_copy_only=False).astype(wanted, copy=False)
    return array.reshape(len(column), *(() if shape == (1,) else shape))
