"""LeRobot datasets, versions 2 and 3: a datapoint is an episode.

Version 2 has separate files for each episode. Version 3 has many episodes in a Parquet or video file. The
frames of an episode are copied from the video without decoding them, or linked.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple, cast

import numpy as np

from bags.errors import SourceError
from bags.formats.pixels import PixelOptions
from bags.formats.videos import encode_mp4
from bags.interop.files import open_unchanged
from bags.interop.records import open_file, read_json, size_of
from bags.interop.source import DamagedEntries, Source, as_source_errors, name_fields
from bags.interop.sources.arrays.arrays import type_of_arrays
from bags.interop.sources.lerobot.segments import TOLERANCE, EpisodeInVideo, find_frames
from bags.interop.sources.tables.arrow_files import open_table
from bags.interop.stores import find_in_folder, find_store, read_in
from bags.links.sources import OpenedLink
from bags.media.remux import copy_frames
from bags.media.video_decoder import VideoDecoder, open_video

if TYPE_CHECKING:
    import pyarrow as pa

INFO = 'meta/info.json'
MAX_TABLE_BYTES = 1 << 32
"""Maximum bytes of the values in a file; LeRobot starts a new file after 100 MB."""
KNOWN_VIDEOS = 16
"""Number of videos whose packet positions are kept."""
COUNTERS = ('index', 'frame_index')
"""Features that can be computed from the position of a frame."""
TYPES = {'video': 'video', 'image': 'image[]', 'string': 'utf8[]'}
_ALLOWED = re.compile(r'[^{}]|\{(episode_index|episode_chunk|chunk_index|file_index|video_key)(:0?\dd)?\}')


class LeRobotEpisode(NamedTuple):
    """The metadata and the rows of an episode."""

    number: int
    facts: dict[str, Any]
    rows: pa.Table


def open_source(paths: list[str], storage_options: Mapping[str, Any] | None = None) -> LeRobotSource:
    """Returns the episodes of a LeRobot dataset."""
    if len(paths) > 1:
        raise SourceError(paths[0], 'expected one LeRobot dataset, got several paths; import one by one')
    return LeRobotSource(paths[0], storage_options)


class LeRobotSource(Source[LeRobotEpisode]):
    """The episodes of a LeRobot dataset of version 2 or 3."""

    def __init__(self, root: str, storage_options: Mapping[str, Any] | None = None) -> None:
        root = root.rstrip('/')
        self._storage_options = dict(storage_options or {})
        self._store, self._root = find_store(root, storage_options)
        self._videos = functools.lru_cache(KNOWN_VIDEOS)(self._open_video)
        self._opening: dict[str, threading.Lock] = {}
        self._parts = functools.lru_cache(None)(self._find_parts)
        info = self._info = read_json(f'{root}/{INFO}', dict, storage_options)
        version = str(info.get('codebase_version'))
        if not version.startswith(('v2.', 'v3.')):
            detail = f'expected a codebase_version of v2.1 or v3.0, got {version:.20}'
            raise SourceError(f'{root}/{INFO}', detail)
        self._is_v3 = self.rewrites_files = version.startswith('v3')
        self._episodes = self._read_episodes()
        super().__init__('lerobot', {}, len(self._episodes))
        with as_source_errors(f'{self._root}/{INFO}', 'metadata of LeRobot'):
            types = {name: field_type for name in info['features'] if (field_type := self._type(name))}
            types = {'tasks': 'utf8[]', **types, 'episode_index': 'int(8)'}
            self._fields = name_fields(types, self.notes)
            self.spec = {field: types[name] for name, field in self._fields.items()}
            self.notes.append(f'{" and ".join(map(repr, COUNTERS))} are left out: they count the frames')
            self.metadata = self._describe(f'{root}/meta/stats.json')

    def name(self, entry: LeRobotEpisode) -> str:
        return f'{self._root}, episode {entry.number}'

    def _path(self, key: str, facts: Mapping[str, Any], prefix: str, video_key: str = '') -> str:
        """Returns the path of a file of an episode, from the template `key` in info.json.

        In version 3, the columns that start with `prefix` hold the numbers for the template.
        """
        template, number = str(self._info.get(key)), facts['episode_index']
        with as_source_errors(f'{self._root}/{INFO}', 'LeRobot'):
            if _ALLOWED.sub('', template):
                raise ValueError(f'{key}: expected placeholders like {{file_index:03d}}, got {template:.80}')
            numbers = {f'{name}_index': facts.get(f'{prefix}/{name}_index') for name in ('chunk', 'file')}
            numbers['episode_chunk'] = number // self._info.get('chunks_size', 1000)
            path = template.format(episode_index=number, video_key=video_key, **numbers)
            if '\\' in path or any(part in ('', '.', '..') for part in path.split('/')):
                raise ValueError(f'{key}: expected paths in the dataset, got {path!r}')
        return f'{self._root}/{path}'

    def _expect(self, path: str) -> None:
        if not self._store.exists(path):
            raise SourceError(path, 'no such file, but the metadata of episodes names it')

    def _table(self, path: str, wanted: Callable[[str], bool] = bool) -> pa.Table:
        """Reads the columns of a file whose names satisfy `wanted`."""
        import pyarrow as pa
        import pyarrow.json

        with as_source_errors(path, 'a table'):
            self._expect(path)
            if path.endswith('.jsonl'):
                with open_file(path, self._storage_options) as lines:
                    return pa.json.read_json(lines)
            file = open_table(path, self._storage_options)
            names = [name for name in file.schema.names if wanted(name)]
            batches, size = [], 0
            for part in file.scan([])[0]:
                for batch in file.read(part, names):
                    batches.append(batch)
                    size += batch.nbytes
                    if size > MAX_TABLE_BYTES:
                        raise ValueError(f'expected at most {MAX_TABLE_BYTES} bytes of values')
            return pa.Table.from_batches(batches) if batches else file.schema.empty_table()

    def _read_episodes(self) -> pa.Table:
        """Returns the table of episodes: their indices, lengths, tasks, and other columns."""
        import pyarrow as pa

        pattern = f'meta/episodes{"/*/*.parquet" if self._is_v3 else ".jsonl"}'
        with as_source_errors(f'{self._root}/{pattern}', 'a table of episodes'):
            tables = [
                self._table(path, lambda name: not name.startswith(('stats/', 'meta/')))
                for path in sorted(find_in_folder(self._store, self._root, pattern.split('/')))
            ]
            table = pa.concat_tables(tables, promote_options='permissive').sort_by('episode_index')
            if missing := {'length', 'tasks'} - set(table.column_names):
                raise ValueError(f'expected columns {", ".join(sorted(missing))}')
            return table

    def _type(self, name: str) -> str | None:
        if name in COUNTERS:
            return None
        feature = self._info['features'][name]
        dtype, shape = feature['dtype'], tuple(feature['shape'])
        if dtype in TYPES:
            return TYPES[dtype]
        if dtype not in np.sctypeDict:
            return 'json[]'  # Lists of annotations.
        return type_of_arrays({dtype}, {shape if shape != (1,) else ()}) + '[]'

    def _describe(self, path: str) -> dict[str, Any]:
        info, fields = self._info, {}
        has_stats = size_of(path, self._storage_options) is not None
        stats = read_json(path, dict, self._storage_options) if has_stats else {}
        tasks = self._table(f'{self._root}/meta/tasks.{"parquet" if self._is_v3 else "jsonl"}')
        # The other column is a pandas index, which may have no name.
        rows = sorted((row.pop('task_index'), *row.values()) for row in tasks.to_pylist())
        classes = [name for number, (index, name, *_) in enumerate(rows) if index == number]
        if not stats:
            self.notes.append('statistics of episodes are left out; bags.statistics computes them')
        for name, feature in info['features'].items():
            if name not in self._fields:
                continue
            names = feature.get('names')
            if isinstance(names, dict) and len(names) == 1:
                (names,) = names.values()
            facts = {
                'names': names,
                'stats': stats.get(name),
                'info': feature.get('info') or feature.get('video_info'),
            }
            if self.spec[self._fields[name]].endswith('[]'):
                facts['rate'] = info['fps']
            if name == 'task_index' and len(classes) == len(rows):
                facts['classes'] = classes
            fields[self._fields[name]] = {key: fact for key, fact in facts.items() if fact}
        keys = 'fps', 'robot_type', 'splits', 'codebase_version', 'features'
        return {**{key: info[key] for key in keys if info.get(key)}, 'fields': fields}

    def entries(self, start: int = 0) -> Iterator[LeRobotEpisode | DamagedEntries]:
        import pyarrow.compute as pc

        columns = {name for name, field in self._fields.items() if field in self.spec}
        columns |= {'episode_index', 'frame_index', 'timestamp'}
        episodes = self._episodes.slice(start).to_pylist()
        for path, group in itertools.groupby(episodes, lambda facts: self._path('data_path', facts, 'data')):
            try:
                table = self._table(path, columns.__contains__)
            except SourceError as exc:
                yield DamagedEntries(exc, len(list(group)))
                continue
            for facts in group:
                number = facts['episode_index']
                try:
                    rows = table.filter(pc.equal(table.column('episode_index'), number))
                    yield LeRobotEpisode(number, facts, _in_order(rows, number, facts['length']))
                except (ValueError, TypeError, LookupError, NotImplementedError) as exc:  # pyarrow's too.
                    yield DamagedEntries(SourceError(path, str(exc)))

    def load(self, entry: LeRobotEpisode) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for name, field in self._fields.items():
            feature = self._info['features'].get(name)
            if field not in self.spec:
                continue
            if feature is None or name == 'episode_index':
                values[field] = entry.facts.get(name)
            elif feature['dtype'] == 'video':
                values[field] = self._video(name, entry)
            else:
                with as_source_errors(f'{self.name(entry)}, {name}', feature['dtype']):
                    values[field] = _values(entry.rows.column(name), feature)
        return values

    def linkable(self) -> dict[str, float | str]:
        found: dict[str, float | str] = {}
        for name, field in self._fields.items():
            found[field] = 'its values are in tables'
            if self.spec.get(field) == TYPES['video'] and self.count:
                ((path, parts), *_) = self._parts(name).items()
                found[field] = self._store.stat(path).size / len(parts)
        return found

    def _link(self, path: str, name: str, number: int) -> OpenedLink:
        """Returns a link to the frames of an episode in a video file."""
        with as_source_errors(path, f'video of episode {number}'):
            decoder, size, frames = self._frames_of(path, name, number)
            is_whole = len(decoder.timeline) == len(frames)
            part = None if is_whole or not frames else (frames.start, frames.stop)
            return dataclasses.replace(open_unchanged(self.opener, path, size), frames=part)

    def _frames_of(self, path: str, name: str, number: int) -> tuple[VideoDecoder, int, range]:
        """Returns the decoder and the size of a video file, and the frames of an episode in it.

        Threads that need the same file wait for one of them to parse it.

        Raises:
            ValueError: The frames are not in the file.
        """
        with self._opening.setdefault(path, threading.Lock()):
            decoder, size, ranges = self._videos(path, name)
        frames = ranges[number]
        if isinstance(frames, str):
            raise ValueError(frames)
        return decoder, size, frames

    def _video(self, name: str, entry: LeRobotEpisode) -> bytes | str | OpenedLink:
        """Returns the video of an episode: the path of its file, its own bytes, or a link."""
        path = self._path('video_path', entry.facts, f'videos/{name}', name)
        self._expect(path)
        if self._fields[name] in self.linked:
            return self._link(path, name, entry.number)
        with (
            as_source_errors(path, f'video of episode {entry.number}'),
            open_file(path, self._storage_options) as file,
        ):
            decoder, _, frames = self._frames_of(path, name, entry.number)
            if len(decoder.timeline) == len(frames):
                return read_in(self._store, path, self._storage_options) if self._store.is_remote else path
            why = 'it does not begin at a key frame'
            if not self.encode or decoder.timeline.packet_of_frame[frames.start] in decoder.timeline.keys:
                try:
                    return copy_frames(decoder.over(file), frames.start, frames.stop)
                except ValueError as exc:
                    if not self.encode:
                        raise ValueError(f'{exc}; with encode=True, they are encoded again') from exc
                    why = str(exc)
            self.notes.append(f'{path}: episode {entry.number} is encoded again: {why}')
            return self._encode(decoder.over(file), frames)

    def _encode(self, decoder: VideoDecoder, frames: range) -> bytes:
        options = PixelOptions()
        pixels = decoder.in_order(frames.start, lambda index, frame: decoder.pixels(index, frame, options))
        encoded = encode_mp4(itertools.islice(pixels, len(frames)), str(self._info['fps']))
        with cast(BinaryIO, encoded) as file:
            return file.read()

    def _find_parts(self, name: str) -> dict[str, list[EpisodeInVideo]]:
        """Returns the episodes in each video file of a camera."""
        parts: dict[str, list[EpisodeInVideo]] = {}
        for facts in self._episodes.to_pylist():
            times = (facts.get(f'videos/{name}/{key}_timestamp') for key in ('from', 'to'))
            path = self._path('video_path', facts, f'videos/{name}', name)
            parts.setdefault(path, []).append(EpisodeInVideo(facts['episode_index'], facts['length'], *times))
        return parts

    def _open_video(self, path: str, name: str) -> tuple[VideoDecoder, int, dict[int, range | str]]:
        """Opens a video file; returns its decoder, its size, and the frames of each episode or an error."""
        with open_file(path, self._storage_options) as file:
            decoder = open_video(file)
            size = file.seek(0, 2)
        times = decoder.timeline.seconds(decoder.timeline.ticks)
        parts = self._parts(name)[path]
        ranges = find_frames(times, parts, self._info['fps'])
        for part in parts:
            frames = ranges[part.number]
            if isinstance(frames, range) and part.begin is not None and frames:
                late = part.begin - times[frames.start]
                if abs(late) > TOLERANCE:
                    self.notes.append(
                        f'{path}, episode {part.number}: from_timestamp is off by {late:.4f} s; its frames '
                        'are counted, as the file has as many as its episodes'
                    )
                    break  # One note for each file.
        return decoder, size, ranges


def _in_order(rows: pa.Table, number: int, count: int) -> pa.Table:
    """Returns the rows of an episode, sorted by `frame_index`."""
    if len(rows) != count:
        raise ValueError(f'expected {count} rows of episode {number}, got {len(rows)}')
    if 'frame_index' not in rows.column_names:
        return rows
    numbers = rows.column('frame_index').to_numpy()
    order = np.argsort(numbers, kind='stable')
    if not np.array_equal(numbers[order], np.arange(count)):
        raise ValueError(
            f'episode {number}: expected each frame_index from 0 to {count - 1} once, got {numbers!r:.80}'
        )
    return rows if np.array_equal(order, np.arange(count)) else rows.take(order)


def _values(column: pa.ChunkedArray, feature: Mapping[str, Any]) -> Any:
    """Returns the values of a feature in an episode: an array, shape (frames, *shape), or a list."""
    dtype, shape = feature['dtype'], feature['shape']
    if dtype == 'image':
        return [item['bytes'] for item in column.to_pylist()]
    if dtype not in np.sctypeDict:
        return column.to_pylist()
    values = column.combine_chunks()
    while hasattr(values, 'flatten') and hasattr(values.type, 'value_type') and not values.null_count:
        values = values.flatten()
    if values.null_count:
        raise ValueError(f'expected a value in each row, got {values.null_count} missing ones')
    array = values.to_numpy(zero_copy_only=False).astype(dtype, copy=False)
    return array.reshape(len(column), *(shape if shape != [1] else ()))
