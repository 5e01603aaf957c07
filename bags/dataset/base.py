"""`Dataset`, the base class of readers and views; and the views that select datapoints and fields."""

from __future__ import annotations

import abc
import functools
import hashlib
import io
import itertools
import operator
import os
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import EllipsisType
from typing import (
    TYPE_CHECKING,
    Any,
    BinaryIO,
    ClassVar,
    Literal,
    NamedTuple,
    Self,
    SupportsIndex,
    Unpack,
    overload,
)

import numpy as np
import numpy.typing as npt

from bags.concurrency import Shareable, cached_attribute, map_concurrently
from bags.dataset import above
from bags.dataset.format.folder import Folder
from bags.dataset.format.metadata import Metadata, merge_metadata, metadata_of_fields, rename_facts
from bags.dataset.format.options import WriteOptions
from bags.dataset.format.refs import is_missing
from bags.dataset.format.registry import VIDEO_FORMATS, decoders
from bags.dataset.format.spec import SHOWN_FIELDS, Schema, count_text, some_fields, type_texts
from bags.dataset.reading.batch import Column, concat_ranges
from bags.dataset.reading.columns import ReadField, read_column, read_presence, read_records, read_values
from bags.dataset.reading.difference import Diff
from bags.dataset.reading.field_reader import FieldReader, Record
from bags.dataset.reading.fingerprint import digest_of, fingerprint
from bags.dataset.reading.key_values import Matches, sort_matches
from bags.dataset.reading.origins import Origin, Origins, groups_of
from bags.dataset.reading.row_groups import Datapoint, RowGroup, divide_fields, merge_columns, merge_ranges
from bags.dataset.reading.row_reader import FolderFields, RecordRanges
from bags.dataset.reading.selection import (
    Asked,
    Fields,
    FrameSelection,
    Padding,
    PerRowItems,
    Selection,
    Span,
    check_name,
    check_sequence,
    select_fields,
    select_items,
    select_whole,
)
from bags.indexing import Int64s, as_indices, check_index, chunk_length, offsets_of
from bags.other_names import dataset_advice
from bags.storage.request_counter import RequestCounts
from bags.validation import AdvisedNames, one_of, with_advice, worker_count

if TYPE_CHECKING:
    import pyarrow as pa

RECORD_BYTES_AT_ONCE = 1 << 20
"""Bytes that iteration over records reads at a time. A record may be a whole video."""
MAX_RECORDS_AT_ONCE = 1024
COMPLETED_DATAPOINTS = 100
"""Number of datapoints, from the first, whose fields IPython completes."""
Indices = Sequence[SupportsIndex] | npt.NDArray[np.integer[Any]]
"""Several datapoints: a list, a range or an array of integers."""
Mask = npt.NDArray[np.bool_] | Sequence[bool]
"""A bool for each datapoint."""
DATAPOINTS_AT_ONCE = 256
"""Number of datapoints that a thread of `filter` reads together for a function."""
Media = Literal['bytes', 'location'] | None
"""How images, videos and recordings are represented in Arrow."""


class FieldOrigin(NamedTuple):
    """A dataset that the values of a field come from: a reader, or a view that computes them."""

    dataset: Dataset
    field: str | None
    """The name of the field there; None for datapoints as a whole."""
    datasets: tuple[int, ...] = ()
    """The positions of the datasets, as in `Origin`, on the way to this one."""
    new_names: tuple[Mapping[str, str], ...] = ()
    """The new names of fields on the way, the innermost first."""

    @property
    def facts(self) -> Mapping[str, Any]:
        """The metadata of the field. Names of other fields are as in the dataset whose origins were asked."""
        return functools.reduce(rename_facts, self.new_names, self._facts_of(self.field))

    @property
    def times(self) -> Mapping[str, Any]:
        """The metadata of the field of its times."""
        facts = self._facts_of(self.field)
        times = facts.get('times') if isinstance(facts, Mapping) else None
        return self._facts_of(times) if isinstance(times, str) else {}

    def _facts_of(self, field: str | None) -> Any:
        if isinstance(self.dataset, View):
            return {}  # Its values are computed.
        return self.dataset.metadata.get('fields', {}).get(field, {})


class Dataset(Shareable, abc.ABC):
    """A sequence of datapoints whose fields and items can be read separately: a reader or a view.

    Every dataset is a random-access source for Grain and a map-style dataset for PyTorch. It is thread-safe,
    fork-safe and picklable, and its `repr` identifies it.

    A reader or a view defines `schema`, `is_remote`, and the abstract methods. All reads are based on
    `plan_rows`, which maps datapoints to rows of folders: the readers of the folders read these rows, and the
    results are merged in the order of the datapoints. A class overrides

    - `read_row`, if one datapoint can be read faster than a batch of one;
    - `read_selection`, `item_counts` and `record_ranges`, if it reads rows itself: the reader of a folder, or
      a view whose values are computed. `plan_rows` then returns a `RowGroup` with the dataset as its reader;
    - `match_keys` for `find` (by default it opens an index in `index_folder`), `metadata`, and, for loaders
      and pipelines that divide the datapoints, `part_lengths` and `bytes_before`.

    `View` implements the abstract methods from the underlying datasets, except `__len__` and `plan_rows`.

    Examples:
        >>> dataset[0, {'id': True, 'state': range(2)}]
        {'id': 0, 'state': array([[0., 1.],
               [2., 3.]], dtype=float32)}
        >>> late = dataset.select(dataset.column('id') >= 4)
        >>> len(late), late[0, 'id']
        (4, {'id': 4})
        >>> [row['task'] for row in dataset[:2]]
        ['reach 0', 'reach 1']
    """

    schema: Schema
    """The type of each field, parsed; in the author's order of fields."""
    is_remote: bool = False
    """Whether reads wait for a network."""
    documented_names: ClassVar[tuple[str, ...]] = (
        *('spec', 'metadata', 'size', 'shards', 'unfinished', 'partial', 'fingerprint', 'retries'),
        *(
            'batch',
            'column',
            'records',
            'datapoint_of',
            'origin',
            'origins',
            'file',
            'lengths',
            'find',
            'find_many',
        ),
        *('stream', 'excerpts', 'durations'),
        *('select', 'filter', 'windows', 'drop', 'rename', 'update', 'split', 'unique', 'diff', 'save'),
        *('to_arrow', 'to_arrow_dataset', 'close'),
    )
    """The names, documented in docs/reference, that `dir` lists in addition to the names of base classes."""

    if not TYPE_CHECKING:  # A name that does not exist is an error for type checkers.

        def __getattr__(self, name: str) -> Any:
            if hasattr(type(self), name):
                return object.__getattribute__(self, name)  # A property, whose own error is raised again.
            message = f'{type(self).__name__!r} object has no attribute {name!r}'
            if not name.startswith('_') and name != 'schema':
                message += dataset_advice(name, dir(self), getattr(self, 'schema', ()))
            raise AttributeError(message)

    @property
    def reads_wait(self) -> bool:
        """Whether reads of records wait for a network: the dataset is remote, or links to remote files."""
        return self.is_remote

    # Datapoints and batches.

    @abc.abstractmethod
    def __len__(self) -> int: ...

    @overload
    def __getitem__(self, key: slice | tuple[slice, Fields]) -> Dataset: ...

    @overload
    def __getitem__(self, key: Indices | tuple[Indices, Fields]) -> dict[str, Any]: ...

    @overload
    def __getitem__(self, key: SupportsIndex | tuple[SupportsIndex, Fields]) -> Datapoint: ...

    def __getitem__(self, key: Any) -> Any:
        """Returns datapoints by index.

        - `dataset[3]`: a datapoint, a dict of its fields.
        - `dataset[3, 'image']`, `dataset[3, ('id', 'image')]`, `dataset[3, {'id': True, 'words': range(2)}]`:
          some fields of it, and some items of sequences.
        - `dataset[[5, 1, 5]]`, `dataset[[5, 1, 5], ('id', 'image')]`: a batch, as `dataset.batch` returns it.
        - `dataset[10:20]`, `dataset[10:20, ('id', 'image')]`: a view, which reads nothing.
        """
        if type(key) is int:
            return self.read_row(key, None)
        fields: Fields = None
        if type(key) is tuple:
            if len(key) != 2:
                raise TypeError(
                    f'expected an index, or an index and fields (several in a tuple), got {len(key)} values'
                )
            key, fields = key
        if isinstance(key, slice):
            return Select(self, range(len(self))[key], fields)
        if isinstance(key, list | range) or (isinstance(key, np.ndarray) and key.ndim > 0):
            return self.batch(key, fields)
        if isinstance(key, str):
            raise TypeError(
                f'index: expected an integer, got {key!r} (dataset.column({key!r}) reads a whole column)'
            )
        selection = None if fields is None else select_fields(fields, self.schema)
        return self.read_row(key if type(key) is int else check_index(key, len(self)), selection)

    def __iter__(self) -> Iterator[Datapoint]:
        return map(self.read_row, range(len(self)), itertools.repeat(None))

    def __getitems__(self, indices: Iterable[SupportsIndex]) -> list[Datapoint]:
        """Returns datapoints as a list, read together (PyTorch's fetchers call this)."""
        return self.read_rows(as_indices(indices, len(self)), dict.fromkeys(self.schema, True))

    def _getitems(self, indices: Iterable[SupportsIndex]) -> list[Datapoint]:
        """Returns `__getitems__(indices)`; Grain calls this name."""
        return self.__getitems__(indices)

    def batch(self, indices: Iterable[SupportsIndex], fields: Fields = None) -> dict[str, Any]:
        """Returns columns of values.

        Args:
            indices: The datapoints, in any order, with repeats; negative ones count from the end.
            fields: A name, names, or a mapping of names to True, False, or items: a range, slice or list of
                the items of a sequence, or of the rows of arrays `array(dtype,?,…)`. Default: all fields.

        Returns:
            The columns in the order of `fields`: a new array (B, *shape) if all values of the type have one
            size, a `Ragged` for a sequence of such a type and for selected rows of arrays, else a list.
            Optional plain fields are lists.

        Raises:
            IndexError, KeyError, TypeError: No such datapoint, field or selection.
            CorruptError, DecodeError: Damaged data.
        """
        return self.read_selection(
            as_indices(indices, len(self)), select_fields(fields, self.schema), read_column
        )

    # Fields.

    @property
    def spec(self) -> dict[str, str]:
        """The type of each field, in the order in which the author gave them."""
        return type_texts(self.schema)

    def column(self, field: str) -> Any:
        """Returns the values of a field of all datapoints, as `batch` returns them."""
        check_name(field)
        return self.batch(range(len(self)), field)[field]

    def stream(self, index: SupportsIndex, field: str) -> Any:
        """Returns a field of a datapoint as a stream: its elements along time, read on access.

        The elements are the frames of a video, or of a sequence of clips as one; the samples of a recording,
        or of a sequence of recordings as one; the rows of an array whose first dimension is `?`; else the
        items of a sequence. With `{'elements': 'items'}` in the metadata of the field, they are its items.

        Returns:
            A `Video`, an `Audio`, or another `bags.types.Stream` with the same methods. None if the value is
            missing.

        Raises:
            IndexError, KeyError: No such datapoint or field.
            TypeError: Values of the field have no elements.
            ValueError: The metadata of the field contradicts the data. When times are used: the times of the
                elements are unknown, or not increasing.

        Examples:
            >>> states = dataset.stream(3, 'state')
            >>> len(states), states[-1]
            (9, array([16., 17.], dtype=float32))
        """
        check_name(field)
        return above.open_stream(self, index, field)

    def excerpts(self, indices: Iterable[SupportsIndex], field: str, times: npt.ArrayLike) -> above.Excerpts:
        """Returns the frames of a batch that are shown at some times, as files in memory.

        The files have only the packets that the frames need, unchanged, for a decoder of another library:
        `bags.torch.decode(excerpts, device)` decodes them to one tensor, also on a GPU. A video or clip that
        several times need is read once, neighbouring groups of pictures become one file, and the packets of
        all files of a remote dataset are requested together.

        Args:
            indices: The datapoints, shape (n,), in any order, with repeats.
            field: A field of videos or clips.
            times: For each datapoint, seconds on its clock, as in `stream(index, field).times`: shape (n,) or
                (n, k). Each is a time at which a frame is shown; times that differ from the start of a frame
                by less than a microsecond are equal to it.

        Raises:
            IndexError, KeyError: No such datapoint or field, or nothing is shown at a time.
            TypeError: Values of the field are not videos.
            ValueError: `times` has another shape, a value is missing, or its times are unknown.
            DecodeError: A video is damaged.
            MissingDependencyError: av is not installed.

        Examples:
            >>> excerpts = bags.open('videos').excerpts([0], 'video', [[0.0, 0.04]])
            >>> excerpts[0].times
            array([0.  , 0.04])
        """
        return above.read_excerpts(self, indices, field, times)

    def durations(self, field: str) -> npt.NDArray[np.float64]:
        """Returns the duration of the stream of a field in each datapoint, float64 seconds (len,).

        It lasts from the first element to the end of the last one. NaN where the value is missing. For videos
        and recordings, only headers are read, which are believed: `verify` finds files that are cut.

        Raises:
            KeyError, TypeError: No such field, or its values have no elements.
            ValueError: The times of the elements are unknown, or not increasing.
        """
        check_name(field)
        select_fields(field, self.schema)
        return above.StreamField(self, field).durations(np.arange(len(self)))

    def lengths(self, field: str, of: Literal['items', 'elements'] = 'items') -> Int64s:
        """Returns the number of items of a sequence field in each datapoint, int64 (len,), from the refs.

        A missing sequence has 0 items. A plain field whose values have frames, such as `video`, has frames
        as its items: both lengths are the same.

        Args:
            field: The field.
            of: 'elements' for the number of elements of the stream (see `stream`), such as the samples of
                recordings or the rows of arrays. Only headers, or the sizes of records, are read.
        """
        check_name(field)
        one_of('lengths: of', of, ('items', 'elements'))
        select_fields(field, self.schema)
        is_plain = not self.schema[field].sequence and self.has_frames(field)
        if of == 'elements' or is_plain:
            return above.StreamField(self, field).counts(np.arange(len(self)))
        check_sequence(field, self.schema)
        return self.item_counts(np.arange(len(self)), field)

    def records(self, field: str) -> Records:
        """Returns the stored records of a field as a sequence of bytes, read on demand.

        A plain field has one record per datapoint (None: missing), a sequence field one per item, in the
        order of the datapoints.

        Raises:
            KeyError, TypeError: No such field.

        Examples:
            >>> tasks, states = dataset.records('task'), dataset.records('state')
            >>> tasks[3], len(tasks), len(states), dataset.datapoint_of('state', 3)
            (b'reach 3', 8, 52, 1)
        """
        check_name(field)
        select_fields(field, self.schema)
        return Records(self, field)

    def datapoint_of(self, field: str, item: SupportsIndex) -> int:
        """Returns the index of the datapoint that contains an item of a sequence field.

        Args:
            field: The field.
            item: An index in `records(field)`.

        Raises:
            IndexError, KeyError: No such item or field.
            TypeError: The field is not a sequence.
        """
        check_sequence(field, self.schema)
        return self.records(field).locate(item)[0]

    def origin(self, index: SupportsIndex, field: str | None = None) -> Origin:
        """Returns where a datapoint comes from: the dataset, the datapoint there, and the part of it.

        Args:
            index: The datapoint.
            field: The field. Default: for windows, the field `every`; for a `join`, any field of the first
                dataset.

        Raises:
            IndexError, KeyError: No such datapoint or field.
            ValueError: The field has no value here, as it has no match in a `join`, or is not in this
                dataset of a `concat`.
        """
        origins = self.origins([check_index(index, len(self))], field)
        datapoint, *part = (int(column[0]) for column in origins[1:])
        if datapoint < 0:
            raise ValueError(f'datapoint {operator.index(index)}: field {field!r} has no value')
        datasets = tuple(number for number in origins.datasets[0].tolist() if number >= 0)
        anchor, start, stop = (None if number < 0 else number for number in part)
        return Origin(datasets, datapoint, anchor, start, stop)

    def origins(self, indices: Iterable[SupportsIndex] | None = None, field: str | None = None) -> Origins:
        """Returns where datapoints come from, as `origin` does, as arrays.

        Args:
            indices: The datapoints. Default: all.
            field: As in `origin`.

        Raises:
            IndexError, KeyError: No such datapoint or field.
        """
        if field is not None:
            check_name(field)
            select_fields(field, self.schema)
        return self.trace(field, np.arange(len(self)) if indices is None else as_indices(indices, len(self)))

    def file(self, index: SupportsIndex, field: str, item: SupportsIndex | None = None) -> BinaryIO:
        """Opens a record as a seekable binary file, read on demand.

        Args:
            index: The datapoint.
            field: The field.
            item: The item, if the field is a sequence.

        Raises:
            IndexError, KeyError: No such datapoint, item or field.
            TypeError: `item` is given for a plain field, or missing for a sequence.
            ValueError: The value is missing.
        """
        select_fields(field, self.schema)
        field_type, number = self.schema[field], check_index(index, len(self))
        if field_type.sequence != (item is not None):
            what = (
                'an item, as it is a sequence' if field_type.sequence else 'no item, as it is not a sequence'
            )
            raise TypeError(f'field {field!r} of type {field_type.text}: expected {what}')
        record = self.record(number, field, None if item is None else operator.index(item))
        if record is not None:
            return record.open()
        (frames,) = self.read_records(np.array([number]), field)
        return io.BytesIO(frames)

    # Views.

    def select(
        self, indices: slice | Iterable[SupportsIndex] | Mask | None = None, fields: Fields = None
    ) -> Select:
        """Returns a view of some datapoints and fields. It reads nothing.

        Args:
            indices: Integers in any order, with repeats (negative ones count from the end), a range, a slice,
                or a mask of one bool for each datapoint. Default: all datapoints.
            fields: A name or names. Default: all fields.

        Raises:
            IndexError: An index out of range, or a mask of another length.
            KeyError, TypeError: No such field, or items of one.
        """
        return Select(self, _positions_of(indices, len(self)), fields)

    def filter(
        self,
        function: Callable[[Datapoint], Any] | str,
        fields: Fields = None,
        *,
        workers: int | None = None,
    ) -> Select:
        """Returns a view of the datapoints that pass a condition, or for which a function returns True.

        Reads `fields`, or the fields that the condition names, of all datapoints, once. The view has all
        fields. A condition tests columns, and is faster than a function.

        Args:
            function: A condition such as 'length > 3 and label == cat', see docs/conditions.md;
                or a function that takes a datapoint, a dict of `fields`, and returns a bool.
            fields: The fields that the function takes, as in `batch`. Default: all fields.
            workers: Threads that read and call the function. Default: the number of processors.

        Raises:
            ValueError: The condition does not follow the grammar, names no field, compares values of
                different types, or needs a value inside a field that no datapoint has.
            TypeError: The function does not return a bool.
            Exception: Any error of the function, with a note that names the datapoint.
        """
        workers = worker_count(workers)
        if isinstance(function, str):
            if fields is not None:
                raise TypeError(f'filter: expected no fields beside a condition, got {fields!r:.80}')
            return Select(self, above.matching(self, function, workers))
        read = functools.partial(self.read_rows, selection=select_fields(fields, self.schema))
        if not callable(function):
            raise TypeError(
                f'filter: expected a condition or a function of a datapoint, got {function!r:.80}; '
                'dataset.select takes indices or a mask'
            )

        def choose(start: int) -> Int64s:
            indices = np.arange(start, min(start + DATAPOINTS_AT_ONCE, len(self)))
            chosen = []
            for index, datapoint in zip(indices.tolist(), read(indices), strict=True):
                try:
                    is_match = function(datapoint)
                except Exception as exc:
                    exc.add_note(f'filter: the function raised this for datapoint {index} of {self!r}')
                    raise
                if not isinstance(is_match, bool | np.bool_):
                    raise TypeError(f'filter: expected a bool for datapoint {index}, got {is_match!r:.80}')
                if is_match:
                    chosen.append(index)
            return np.array(chosen, np.int64)

        parts = map_concurrently(choose, range(0, len(self), DATAPOINTS_AT_ONCE), max_threads=workers)
        return Select(self, np.concatenate([np.empty(0, np.int64), *parts]))

    # Edits: views that `save` writes without copying the unchanged records.

    def drop(
        self,
        indices: slice | Iterable[SupportsIndex] | Mask | None = None,
        *,
        fields: str | Iterable[str] | None = None,
    ) -> Select:
        """Returns a view without some datapoints, some fields, or both. It reads nothing.

        Args:
            indices: As in `select`: the datapoints to leave out.
            fields: A name or names: the fields to leave out.

        Raises:
            IndexError: An index out of range, or a mask of another length.
            KeyError: No such field.
            TypeError: Neither indices nor fields are given.
            ValueError: All fields would be dropped, or the metadata of another field names a dropped field.
        """
        if indices is None and fields is None:
            raise TypeError('drop: expected indices or fields=…, got neither')
        dropped = select_whole(() if fields is None else fields, self.schema, 'drop')
        names = [name for name in self.schema if name not in dropped]
        if not names:
            raise ValueError('drop: expected at least one field to stay, got all fields')
        facts = self.metadata.get('fields', {}) if dropped else {}
        for name in names:
            times = facts[name].get('times') if isinstance(facts.get(name), Mapping) else None
            if times in dropped:
                raise ValueError(
                    f'drop: field {times!r} has the times of {name!r} in the metadata: drop both, or '
                    'select(fields=…) the other fields'
                )
        if indices is None:
            return Select(self, range(len(self)), names)
        mask = np.ones(len(self), bool)
        mask[_positions_of(indices, len(self), 'drop')] = False
        return Select(self, np.flatnonzero(mask), names)

    def rename(self, names: Mapping[str, str]) -> View:
        """Returns a view in which fields have other names. It reads nothing, and records keep their bytes.

        The metadata of the fields has the new names, also where it names a field as the `times` of another.

        Args:
            names: The new name of each field to rename: `{'jpg': 'image'}`. Names may be swapped.

        Raises:
            KeyError: No such field.
            ValueError: Two fields would have one name.
            SpecError: A new name is not valid on all file systems, or differs from another only in case.
        """
        return above.rename_fields(self, names)

    def update(
        self,
        values: Mapping[int, Mapping[str, Any]],
        *,
        encoders: Mapping[str, Callable[..., Any]] | None = None,
    ) -> View:
        """Returns a view in which some datapoints have other values: `dataset.update({5: {'text': 'new'}})`.

        The values are encoded now, as a writer does, and are held in memory until the view is saved.

        Args:
            values: For each datapoint, by index, the new values by field. None is a missing value.
            encoders: Encoders by format. Default: `bags.encoders`.

        Raises:
            IndexError, KeyError: No such datapoint, or no such field.
            EncodeError: A value does not have the type of its field.
            TypeError: Not a mapping, or a field of windows.
        """
        return above.update_values(self, values, encoders)

    def split(
        self,
        shares: Mapping[str, float | Iterable[str | bytes | int] | EllipsisType],
        by: str | None = None,
        *,
        seed: int = 0,
    ) -> dict[str, Select]:
        """Divides the datapoints into views: `dataset.split({'train': 0.9, 'val': 0.1}, by='episode')`.

        With shares, a hash of its key and the seed determines the view of a datapoint. A datapoint stays in
        its view when other datapoints are added or removed, and all datapoints with one key are in the same
        view. Sizes of views are approximate: with 10,000 keys, a share of 0.1 is within 0.01.

        With values of the field `by`, such as `{'val': ['cyd'], 'train': ...}`, the views are exact. `...`
        stands for all other values; without it, datapoints with other values are in no view.

        Args:
            shares: The share of each view by name; shares add up to 1. Or the values of each view, or `...`.
            by: A field of type `utf8`, `bytes`, `int` or `uint`, whose values are the keys and are read now.
                By default the key of a datapoint is its index.
            seed: A different seed gives a different division.

        Raises:
            KeyError: No such field.
            TypeError: The field has no keys, or values are not of its type.
            ValueError: Shares do not add up to 1, a value is in two parts or in no datapoint, a view with a
                share above 0 is empty, or a datapoint has no key.
        """
        return above.split_datapoints(self, shares, by, seed)

    def unique(self, field: str) -> Select:
        """Returns a view of the first datapoint with each value of a field. Reads all records of the field.

        Values are equal if their records are equal byte for byte. All missing values are equal.

        Raises:
            KeyError: No such field.
        """
        return above.unique_datapoints(self, field)

    def diff(self, other: Dataset, on: str | None = None) -> Diff:
        """Compares the datapoints of this dataset with the datapoints of a later one.

        Records are compared byte for byte. Records are not read if they are at the same location of the same
        file, such as links to one record, or if their checksums agree.

        Args:
            other: The later dataset.
            on: A field of keys, as in `split`, in both datasets: datapoints with the same key are compared.
                By default, datapoints with the same index are compared.

        Raises:
            KeyError: No such field.
            TypeError: Not a dataset, or the field has no keys.
            ValueError: Several datapoints of a dataset have the same key, or a datapoint has no key.
        """
        return above.diff_datasets(self, other, on)

    @with_advice
    def save(
        self,
        path: str | os.PathLike[str],
        *,
        link: bool | Iterable[str] = True,
        fields: Fields = None,
        add: Mapping[str, tuple[str, Callable[[Mapping[str, Any]], Any]]] | None = None,
        batch_size: int = 256,
        encoders: Mapping[str, Callable[..., Any]] | None = None,
        relink: Mapping[str, str] | None = None,
        on_error: Literal['raise', 'skip'] = 'raise',
        check_source: bool = True,
        progress: bool | None = None,
        workers: int | None = None,
        **options: Unpack[WriteOptions],
    ) -> above.WriteResult:
        """Saves the dataset or view as a new dataset that needs the original files, unless `link=False`.

        Large records are not copied: the new dataset has links to them. The linked files must stay where they
        are, and opening the dataset elsewhere may need permission. `print` of the result lists the folders
        that it needs, `parents`, and the `trust_links=` for `bags.open`. Small records, new values and
        computed values, such as windows, are copied.

        Args:
            path: The folder of the new dataset: str, path or URL.
            link: Fields whose records are not copied. True links fields whose records have more than 256
                bytes on average; without such a field, all records are copied. False copies all records: the
                new dataset needs no other files.
            fields, add, batch_size, encoders: As in `bags.copy`.
            relink: If linked files have moved, the new prefix of their paths by the old prefix. Sizes and
                samples of all files are compared with the links first. Needs `link`, and links these
                fields.
            on_error, check_source, progress, workers: As in `bags.copy`.
            **options: As in `bags.copy`. Fields that `compression` names are copied.

        Raises:
            FileExistsError: The folder is not empty, and `resume` is not set.
            KeyError: No such field.
            CorruptError: A record cannot be read. `resume` continues after the datapoints before it.
            ValueError: A field that `link` names is computed when it is read. With `mode='overwrite'`, links
                would lead into the replaced dataset. With `resume`, the folder is not a copy of this dataset,
                or the dataset has changed.

        Examples:
            >>> done = dataset.drop([3]).save('fewer')
            >>> done.datapoints, len(done.parents), done.trust_links
            (7, 2, [])
        """
        return above.save(
            self, path, fields, add, batch_size, encoders, link, relink, on_error, check_source, progress,
            workers, options,
        )  # fmt: skip

    @with_advice
    def windows(
        self,
        spans: Mapping[str, Span] | None = None,
        /,
        *,
        every: str | float,
        stride: int = 1,
        padding: Padding = 'edge',
        bounds: tuple[float | None, float | None] | None = None,
        times: Mapping[str, str | float] | None = None,
        whole: Iterable[str] = (),
        **fields: Span,
    ) -> WindowsView:
        """Returns a view in which each window of the sequences is a datapoint.

        `dataset.windows(every='state', state=bags.steps(0, 16), action=bags.steps(0, 16), padding='drop')`
        has a window of 16 consecutive items at each state, within its datapoint, and
        `dataset.windows(every='camera', camera=bags.times(-0.2, 0), action=bags.steps(0, 16))` a window for
        each frame of the camera, with the items of each field at these offsets from it.

        All windows of a field have the same number of items n: numbers are an array (n, *shape), frames
        (n, height, width, 3), frames of depth (n, height, width), samples of audio float32 (n, channels),
        others a list. `FIELD_is_pad`, bool (n,), marks the padding. Only the items of a window are read.

        Other fields have the value of the datapoint that contains the window, except sequences, images, and
        videos and recordings that are decoded when they are read (all types but `video` and `audio`). A
        window has these only if `whole` names them, because each window decodes them again.

        Windows of a field of videos (`video`, `mp4[]`, …) are frames, numbered through all clips. The
        same holds for your own types whose values have frames. The number of frames of every video is read
        when the view is first used, from the header of each file (or all of it, if the container has no
        index), and kept with the view, also when it is pickled.

        Args:
            spans: A mapping from fields to spans, as an alternative to keyword arguments: for fields
                whose names cannot be keywords, such as `observation.images.top`, or are names of
                options.
            every: The field whose items are the anchors of windows, or the seconds between anchors.
            stride: Number of anchors from one window to the next.
            padding: The value of items outside the datapoint: its first or last item ('edge') or zeros
                ('zero'). 'drop' leaves out windows with such items.
            bounds: The first and last time of anchors in each datapoint in seconds; None for no bound.
            times: By field, the field with the times of its items in seconds, or its rate in items per
                second; replaces the times and rates in `metadata`. Videos and audio have timestamps.
            whole: Fields without a span whose whole value each window has, e.g. the events of an episode.
            **fields: `bags.steps(…)` or `bags.times(…)` by field. Fields with times are aligned by time,
                also for `bags.steps`; item k of a field without times belongs to anchor k.

        Raises:
            KeyError, TypeError: No such field, or it is not a sequence, a video or audio.
            ValueError: Sequences of a datapoint without times differ in length, options are invalid, a field
                of `whole` has a span, or a field needs times and has none. When a window is read: times do
                not increase, or no item is within the tolerance.
        """
        if spans is None:
            spans = fields
        elif fields:
            spans = {**spans, **fields}
        return above.Windows(self, spans, every, stride, padding, bounds, times, whole)

    # Arrow, and look-ups by key.

    def to_arrow(
        self, fields: Fields = None, *, media: Media = None, batch_size: int | None = None
    ) -> pa.RecordBatchReader:
        """Returns an Arrow reader of record batches, each read on demand.

        `pa.table(dataset)`, `polars.DataFrame(dataset)` and DuckDB's `from dataset` read all fields. Pass
        `dataset.to_arrow(fields)` instead of the dataset to read only those fields.

        Numbers, bools, texts and times have Arrow's types; float16 becomes float32. Arrays are nested lists
        of a fixed size, or of any size for `?` in a shape, and sequences are lists. `array` without
        a dtype is a struct of dtype, shape and data, and `json` its text. Images, `bytes` and all other types
        are their records. Missing values are null. The dataset's decoders apply to numbers, bools, arrays.

        Args:
            fields: As in `batch`, without frames of videos.
            media: How images, videos and recordings are represented: 'bytes', or 'location', a struct of
                path, offset and length in bytes. By default, `video` and `audio`, which are lazy, are
                locations, and all others bytes.
            batch_size: Datapoints in a batch. By default about 16 MiB, and at most 65,536 datapoints.

        Raises:
            KeyError, TypeError: As `batch`.
            MissingDependencyError: pyarrow is not installed.
            ValueError: When a batch is read: locations in a compressed bag, or a value that Arrow does not
                support.
            CorruptError: When a batch is read: damaged data.
        """
        return above.read_batches(self, fields, media, batch_size)

    def to_arrow_dataset(self, *, media: Media = None) -> Any:
        """Returns a `pyarrow.dataset.Dataset`. Queries read only the fields that they use.

        With `table = dataset.to_arrow_dataset()`, DuckDB's `select max(score) from table` and
        `polars.scan_pyarrow_dataset(table)` read the field `score` alone.

        Args:
            media: As in `to_arrow`.

        Raises:
            MissingDependencyError: pyarrow is not installed.
        """
        return above.arrow_dataset(self, media)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Returns an Arrow stream of all fields as a PyCapsule, Arrow's protocol between libraries."""
        return self.to_arrow().__arrow_c_stream__(requested_schema)

    def find(self, field: str, key: str | bytes | int) -> int:
        """Returns the index of the first datapoint that has a key, without reading the other datapoints.

        It needs the key index that `bags.create_index` writes, and opens it on first use. Slices, `select`,
        `concat` and `join` search the underlying datasets, and return the index in the view.

        Args:
            field: A field of type `utf8`, `bytes`, `int` or `uint`.
            key: A value of this type.

        Raises:
            KeyError: No datapoint has the key, or no such field.
            TypeError: The key is not of the field's type, the field is of a type without keys, or this
                is a view of windows, where several windows share a key.
            FileNotFoundError: The index is missing.
            CorruptError: The index is damaged, or the dataset has changed since it was made.
        """
        return int(above.find_keys(self, field, [key])[0])

    def find_many(self, field: str, keys: Iterable[str] | Iterable[bytes] | Iterable[int]) -> Int64s:
        """Returns the index of the first datapoint that has each key, int64 (n,). Looks up all keys together.

        Raises:
            KeyError: No datapoint has one of the keys; names the first such key.
            TypeError, FileNotFoundError, CorruptError: As `find`; also TypeError for a single key.
        """
        if isinstance(keys, str | bytes) or not isinstance(keys, Iterable):
            raise TypeError(f'find_many: expected several keys, got {keys!r:.80}')
        return above.find_keys(self, field, keys)

    # About the dataset.

    @property
    @abc.abstractmethod
    def size(self) -> int:
        """Bytes on disk of the underlying folders."""

    @property
    @abc.abstractmethod
    def shards(self) -> int:
        """Number of underlying folders."""

    @property
    @abc.abstractmethod
    def unfinished(self) -> bool:
        """Whether the dataset is being written, or its writer ended early (an exception, or it was killed).

        `resume=True` continues such a dataset, and `bags.recover` accepts it as it is. Determined on first
        use.
        """

    @property
    def partial(self) -> Int64s:
        """Indices of the datapoints of episodes that are not committed, int64, as `reopen(partial=True)` has.

        Empty in all other readers. `bags.Loader` and `bags.copy` take them with `partial=True`.
        """
        return np.empty(0, np.int64)

    @property
    def metadata(self) -> Metadata:
        """The author's metadata of the dataset and its fields, as JSON values; empty by default."""
        return {}

    @property
    def fingerprint(self) -> str:
        """A hash of the datapoints, 24 hexadecimal digits, independent of the path; computed at each use.

        It is computed from the id that the writer gave the dataset. A changed dataset has another id.
        Datasets of earlier versions or other libraries have no id: all limits, refs and checksums are
        hashed instead, and the records of each field of up to 64 MiB. The fingerprint of a view is
        computed from the fingerprints of its datasets.
        """
        return fingerprint(self)

    @property
    def retries(self) -> int:
        """Number of requests to the dataset's object stores that were retried by this process.

        Datasets that were opened with equal storage options share a store, and are counted together.
        """
        return self.request_counts().retries

    def request_counts(self) -> RequestCounts:
        """Returns numbers of requests to the dataset's object stores; `retries` says which are counted."""
        counters = {id(root.store.request_counter): root.store.request_counter for root in self.roots()}
        counts = [counter.counts for counter in counters.values() if counter is not None]
        return RequestCounts(*map(sum, zip(*counts, strict=True))) if counts else RequestCounts()

    @abc.abstractmethod
    def close(self) -> None:
        """Closes the files. Values that were read stay valid."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    @property
    def expression(self) -> str:
        """A short expression that makes the dataset: `bags.DatasetReader('photos')[0:100:1]`."""
        return type(self).__name__

    @property
    def length_text(self) -> str:
        """The number of datapoints, for `repr`."""
        return count_text(len(self))

    def __dir__(self) -> list[str]:
        """Returns the documented names, and all names that subclasses outside of Bags define."""
        names = {name for name in object.__dir__(self) if name.startswith('__')}
        for base in type(self).__mro__:
            is_external = base.__module__.partition('.')[0] != 'bags' and issubclass(base, Dataset)
            names.update(vars(base) if is_external else vars(base).get('documented_names', ()))
        return sorted(names)

    def __repr__(self) -> str:
        state = ', unfinished' if self.unfinished else ''
        return f'<{self.expression}: {self.length_text}{state}; {some_fields(self.schema)}>'

    def __str__(self) -> str:
        """Returns a heading and a line for each field; `repr` is one line."""
        return above.dataset_as_text(self)

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """Prints `str` in IPython."""
        printer.text(str(self))

    def _ipython_key_completions_(self) -> list[tuple[int, str]]:
        """The keys that IPython offers for `dataset[0, '`: fields of the first datapoints."""
        return [
            (index, name) for index in range(min(len(self), COMPLETED_DATAPOINTS)) for name in self.schema
        ]

    def _repr_html_(self) -> str:
        """Returns the HTML for notebooks: the fields, with their values in the first datapoints."""
        return above.dataset_as_html(self)

    # Methods that readers and views define or override; see the docstring of the class.

    @abc.abstractmethod
    def plan_rows(self, indices: Int64s, selection: Selection) -> list[RowGroup]:
        """Returns the rows of folders that contain datapoints, without reading records."""

    @abc.abstractmethod
    def open_field(self, name: str) -> FieldReader:
        """Returns the reader of a field, from a folder that has the field."""

    def folders(self, fields: Iterable[str]) -> FolderFields:
        """Returns the folders with the records of some fields, each with the names of these fields in it."""
        merged: dict[str, tuple[Folder, dict[str, bool]]] = {}
        for group in self.plan_rows(np.arange(len(self)), dict.fromkeys(fields, True)):
            for folder, names in group.reader.folders(group.selection):
                merged.setdefault(folder.path, (folder, {}))[1].update(dict.fromkeys(names, True))
        return [(folder, list(names)) for folder, names in merged.values()]

    @abc.abstractmethod
    def roots(self) -> list[Folder]:
        """Returns the folder of each underlying dataset, without duplicates of a path."""

    def field_origins(self, field: str | None) -> list[FieldOrigin]:
        """Returns the datasets that the values of a field come from; for None, the datapoints as a whole."""
        return [FieldOrigin(self, field)]

    def origin_rows(self, field: str | None, indices: Int64s) -> tuple[Int64s, Int64s]:
        """Returns the position in `field_origins` and the datapoint there, of datapoints: int64 (n,) each.

        -1 for the datapoint if there is none.
        """
        return np.zeros(len(indices), np.int64), indices

    def trace(self, field: str | None, indices: Int64s) -> Origins:
        """Returns `origins` of checked indices."""
        which, rows = self.origin_rows(field, indices)
        origins = self.field_origins(field)
        parts = []
        for number, positions in groups_of(np.where(rows >= 0, which, -1)):
            if number >= 0:
                dataset, name, path, _ = origins[number]
                parts.append((positions, path, dataset.trace_rows(name, rows[positions])))
        return Origins.merge(len(indices), parts)

    def trace_rows(self, field: str | None, rows: Int64s) -> Origins:
        """Returns the origins of datapoints of a dataset of `field_origins`."""
        return Origins.of_rows(rows)

    def trace_elements(self, field: str, rows: Int64s, elements: Int64s) -> Int64s:
        """Returns the elements in the origins of datapoints, given elements of these, (n, k) each.

        The elements of windows are then elements of their datapoints; all others stay.
        """
        which, origin_rows = self.origin_rows(field, rows)
        origins, traced = self.field_origins(field), elements.copy()
        if not any(isinstance(origin.dataset, WindowsView) for origin in origins):
            return traced
        for number, positions in groups_of(np.where(origin_rows >= 0, which, -1)):
            dataset, name, *_ = origins[number]
            if number >= 0 and isinstance(dataset, WindowsView) and name is not None:
                rows_there = origin_rows[positions]
                traced[positions] = dataset.trace_window_elements(name, rows_there, elements[positions])
        return traced

    @abc.abstractmethod
    def fingerprint_of(self, fields: Sequence[str], of_origin: bool) -> str:
        """Returns the fingerprint of some fields; see `bags.dataset.reading.fingerprint`."""

    def part_lengths(self) -> list[int]:
        """Returns the number of datapoints of each shard, or of each dataset of a `concat`."""
        return [len(self)]

    def bytes_before(self, index: int, fields: tuple[str, ...] | None = None) -> int:
        """Returns the approximate bytes on disk of the datapoints before an index, for some or all fields.

        Views assume that all datapoints have the same size.
        """
        return self.size * index // max(1, len(self))

    def match_keys(self, field: str, keys: list[bytes | None]) -> Matches:
        """Looks up the datapoints of each key in the key index."""
        indexes = self.key_indexes
        if field not in indexes:
            indexes[field] = above.open_key_index(self, field, self.index_folder())
        return indexes[field].match(self, field, keys)

    @cached_attribute
    def key_indexes(self) -> dict[str, above.KeyIndex]:
        """The open key indexes by field."""
        return {}

    def index_folder(self) -> Folder:
        """Returns the folder that contains the key indexes and statistics of the whole dataset."""
        raise TypeError(
            f'find: {self!r:.200} has no key index: call find on the dataset that it is computed from'
        )

    # Reads of checked indices and selections.

    def read_row(self, index: int, selection: Selection | None) -> Datapoint:
        """Returns one datapoint. Subclasses may override this with a faster implementation."""
        index = check_index(index, len(self))
        asked: Selection = dict.fromkeys(self.schema, True) if selection is None else selection
        columns = self.read_selection(np.array([index], np.int64), asked, read_values)
        return dict(zip(columns, map(operator.itemgetter(0), columns.values()), strict=True))

    def read_rows(self, indices: Int64s, selection: Selection) -> list[Datapoint]:
        columns = self.read_selection(indices, selection, read_values)
        if not columns:
            return [{} for _ in range(len(indices))]
        return [dict(zip(selection, values, strict=True)) for values in zip(*columns.values(), strict=True)]

    def read_selection(self, indices: Int64s, selection: Selection, read: ReadField) -> dict[str, Column]:
        """Calls `read`, a function of `bags.dataset.reading.columns`, for each field."""
        groups = self.plan_rows(indices, selection)
        columns = map_concurrently(
            lambda group: group.reader.read_selection(group.rows, group.selection, read),
            groups,
            self.reads_wait,
        )
        return merge_columns(groups, columns, list(selection))

    def read_records(self, indices: Int64s, field: str, items: Asked = True) -> list[Any]:
        """Returns the undecoded record of each datapoint, for a sequence a list; None if it is missing."""
        return list(self.read_selection(indices, {field: items}, read_records)[field])

    def item_counts(self, indices: Int64s, field: str, items: Asked = True) -> Int64s:
        """Returns the number of items of each sequence, without reading records."""
        groups = self.plan_rows(indices, {field: items})

        def count(group: RowGroup) -> dict[str, Column]:
            return {field: group.reader.item_counts(group.rows, field, group.selection[field])}

        lengths = merge_columns(groups, map_concurrently(count, groups, self.is_remote), [field])[field]
        assert isinstance(lengths, np.ndarray)
        return lengths

    def are_present(self, indices: Int64s, field: str) -> npt.NDArray[np.bool_]:
        """Returns which datapoints have a value of a field, shape (n,), without reading records."""
        if not self.schema[field].optional:
            return np.ones(len(indices), bool)
        items: Asked = slice(0, 0) if self.schema[field].sequence else True
        return np.asarray(self.read_selection(indices, {field: items}, read_presence)[field], bool)

    def has_frames(self, field: str) -> bool:
        """Returns whether `bags.frames` selects parts of the values of a field."""
        format = self.schema[field].format
        return format in VIDEO_FORMATS or (format not in decoders and self.open_field(field).has_frames)

    def frame_counts(self, indices: Int64s, field: str) -> Int64s:
        """Returns the number of frames of each value, or of all items of each sequence; 0 if missing."""
        counts = self.read_selection(indices, {field: FrameSelection(None)}, read_values)[field]
        return np.array([count or 0 for count in counts], np.int64)

    def record_ranges(self, indices: Int64s, field: str, items: Asked = True) -> RecordRanges | None:
        """Returns the locations of the records of a field; None if its values are decoded frames."""
        if not len(indices):
            return None
        groups = self.plan_rows(indices, {field: items})
        ranges = map_concurrently(
            lambda group: group.reader.record_ranges(group.rows, field, group.selection[field]),
            groups,
            self.reads_wait,
        )
        located = [ranges_of_group for ranges_of_group in ranges if ranges_of_group is not None]
        return merge_ranges(groups, located) if len(located) == len(groups) else None

    def record(self, index: int, field: str, item: int | None) -> Record | None:
        """Returns the record of a field, or of an item of a sequence; None for a computed value."""
        (group,) = self.plan_rows(np.array([index], np.int64), {field: True})
        ranges = group.reader.record_ranges(group.rows, field, group.selection[field])
        if ranges is None and item is not None:  # The records of windows may not be consecutive.
            (count,) = group.reader.item_counts(group.rows, field, True).tolist()
            only = PerRowItems(np.array(select_items([item], count)), np.ones(1, np.int64))
            ranges, item = group.reader.record_ranges(group.rows, field, only), 0
        if ranges is None:
            if item is None:
                return None
            raise TypeError(f'field {field!r}: windows are computed when they are read, and have no records')
        first, count = int(ranges.firsts[0]), int(ranges.counts[0])
        if is_missing(first, count):
            raise ValueError(f'datapoint {index}: field {field!r} has no value')
        if item is not None:
            first += select_items([item], count)[0]
        return Record(ranges.sources[0].bag, first, field, self.schema[field].text)

    def _item_offsets(self, field: str) -> Int64s:
        """Returns the number of items before each datapoint, followed by the total; cached."""
        offsets = self._known_offsets
        if field not in offsets:
            offsets[field] = offsets_of(self.item_counts(np.arange(len(self)), field))
        return offsets[field]

    @cached_attribute
    def _known_offsets(self) -> dict[str, Int64s]:
        """The results of `_item_offsets` by field."""
        return {}

    @cached_attribute
    def known_elements(self) -> dict[str, above.KnownElements]:
        """What is known of the streams of fields by name, filled on first use."""
        return {}

    def __getstate__(self) -> dict[str, Any]:
        dropped = ('_known_offsets', '_known_origins', 'key_indexes', '_sorted_indices', 'known_elements')
        return {name: value for name, value in vars(self).items() if name not in dropped}


class Records(Sequence[Any]):
    """The records of one field of a dataset, read on demand.

    Args:
        dataset: A `bags.Dataset`.
        field: A plain field has one record per datapoint; a sequence field has one per item.
    """

    def __init__(self, dataset: Dataset, field: str) -> None:
        self._dataset = dataset
        self._field = field
        self._offsets = dataset._item_offsets(field) if dataset.schema[field].sequence else None

    def __len__(self) -> int:
        return len(self._dataset) if self._offsets is None else int(self._offsets[-1])

    def locate(self, index: SupportsIndex) -> tuple[int, int]:
        """Returns the datapoint of an item, and the item's position in its sequence."""
        index = check_index(index, len(self))
        if self._offsets is None:
            return index, 0
        row = int(np.searchsorted(self._offsets, index, 'right')) - 1
        return row, index - int(self._offsets[row])

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return self.read_indices(range(len(self))[index])
        return self.read_indices([check_index(index, len(self))])[0]

    def read_indices(self, indices: Iterable[SupportsIndex]) -> list[Any]:
        """Returns records by index, read together."""
        chosen = as_indices(indices, len(self))
        if self._offsets is None:
            return self._dataset.read_records(chosen, self._field)
        rows = np.searchsorted(self._offsets, chosen, 'right') - 1
        items = PerRowItems(chosen - self._offsets[rows], np.ones(len(rows), np.int64))
        return [record for (record,) in self._dataset.read_records(rows, self._field, items)]

    def __iter__(self) -> Iterator[Any]:
        start, step = 0, 1
        while start < len(self):
            records = self.read_indices(range(start, min(start + step, len(self))))
            yield from records
            start += len(records)
            size = sum(len(record) for record in records if record is not None)
            step = chunk_length(len(records), size, RECORD_BYTES_AT_ONCE, MAX_RECORDS_AT_ONCE)

    def __repr__(self) -> str:
        return f'{self._dataset.expression}.records({self._field!r})'


class View(Dataset):
    """A dataset over other datasets. Creating it reads nothing."""

    def __init__(self, datasets: Sequence[Dataset], schema: Schema) -> None:
        self.datasets = list(datasets)
        schemas = [*(dataset.schema for dataset in datasets), schema]
        advised = (names for names in schemas if isinstance(names, AdvisedNames))
        advice = {
            name: text for names in advised for name, text in names.advice.items() if name not in schema
        }
        self.schema = AdvisedNames(schema, advice) if advice else schema
        self.is_remote = any(dataset.is_remote for dataset in datasets)

    @property
    def reads_wait(self) -> bool:
        return any(dataset.reads_wait for dataset in self.datasets)

    @property
    def size(self) -> int:
        return sum(dataset.size for dataset in self.datasets)

    @property
    def shards(self) -> int:
        return sum(dataset.shards for dataset in self.datasets)

    @property
    def metadata(self) -> Metadata:
        return metadata_of_fields(merge_metadata(dataset.metadata for dataset in self.datasets), self.schema)

    @property
    def unfinished(self) -> bool:
        return any(dataset.unfinished for dataset in self.datasets)

    @property
    def partial(self) -> Int64s:
        # By default, a view has the datapoints of its datasets.
        return np.unique(np.concatenate([dataset.partial for dataset in self.datasets]))

    def close(self) -> None:
        for dataset in self.datasets:
            dataset.close()

    def fingerprint_of(self, fields: Sequence[str], of_origin: bool) -> str:
        fingerprints = [
            dataset.fingerprint_of([name for name in fields if name in dataset.schema], of_origin)
            for dataset in self.datasets
        ]
        spec = [(name, self.schema[name].text) for name in fields]
        return digest_of(type(self).__name__, self.fingerprint_options(), spec, fingerprints)

    def fingerprint_options(self) -> object:
        """Returns the options of the view for its fingerprint: numbers, strings, and tuples of them."""
        return ()

    def dataset_of(self, field: str) -> Dataset:
        """Returns a dataset that has a field."""
        return next(dataset for dataset in self.datasets if field in dataset.schema)

    def source_indices(self, indices: Int64s) -> Int64s:
        """Converts indices to indices of the underlying dataset."""
        return indices

    def _dataset_of_origin(self, field: str | None) -> Dataset:
        return self.datasets[0] if field is None else self.dataset_of(field)

    def field_origins(self, field: str | None) -> list[FieldOrigin]:
        return self._dataset_of_origin(field).field_origins(field)

    def origin_rows(self, field: str | None, indices: Int64s) -> tuple[Int64s, Int64s]:
        return self._dataset_of_origin(field).origin_rows(field, self.source_indices(indices))

    def open_field(self, name: str) -> FieldReader:
        return self.dataset_of(name).open_field(name)

    def roots(self) -> list[Folder]:
        return list({root.path: root for dataset in self.datasets for root in dataset.roots()}.values())


class WindowsView(View):
    """A view whose datapoints are windows of the datapoints of a dataset: the result of `windows`.

    Examples:
        >>> windows = dataset.windows(every='state', state=bags.steps(0, 2))
        >>> len(windows), windows.origin(3).datapoint, windows.origin(3).anchor
        (52, 1, 0)
    """

    documented_names = ('anchor_times',)

    @abc.abstractmethod
    def trace_window_elements(self, field: str, windows: Int64s, elements: Int64s) -> Int64s:
        """As `trace_elements`, for elements of windows."""

    @abc.abstractmethod
    def element_times(self, field: str, rows: Int64s) -> list[tuple[npt.NDArray[np.float64], float]]:
        """Returns the times of the elements of windows, each (n,), and the seconds that the last one lasts.

        NaN if the seconds are unknown.
        """

    @abc.abstractmethod
    def element_rates(self, field: str, rows: Int64s) -> npt.NDArray[np.float64] | None:
        """Returns the elements per second of windows, shape (n,); None if they have no constant rate."""

    @abc.abstractmethod
    def anchor_times(self, indices: Iterable[SupportsIndex] | None = None) -> npt.NDArray[np.float64]:
        """Returns the times of the anchors of windows, or of all, float64 seconds (n,); NaN without times."""


class Select(View):
    """A view of some datapoints and fields of a dataset: the result of `select` and of slices."""

    def __init__(self, dataset: Dataset, indices: range | Int64s, fields: Fields = None) -> None:
        chosen = select_whole(fields, dataset.schema, 'select')
        names = [name for name in dataset.schema if name in chosen]
        # A selection of a selection selects from the underlying dataset directly.
        if type(self) is type(dataset) is Select:
            if isinstance(indices, range):
                indices = dataset.indices[_as_slice(indices)]
            else:
                indices = dataset.source_indices(indices)
            dataset = dataset.datasets[0]
        super().__init__([dataset], {name: dataset.schema[name] for name in names})
        self.indices: range | Int64s = indices

    def source_indices(self, indices: Int64s) -> Int64s:
        if isinstance(self.indices, range):
            return self.indices.start + self.indices.step * indices
        return self.indices[indices]

    def __len__(self) -> int:
        return len(self.indices)

    @property
    def partial(self) -> Int64s:
        partial = self.datasets[0].partial
        return np.flatnonzero(np.isin(self.indices, partial)) if len(partial) else partial

    def fingerprint_of(self, fields: Sequence[str], of_origin: bool) -> str:
        (dataset,) = self.datasets
        if type(self) is Select and isinstance(self.indices, range) and self.indices == range(len(dataset)):
            return dataset.fingerprint_of(fields, of_origin)
        return super().fingerprint_of(fields, of_origin)

    def fingerprint_options(self) -> object:
        if isinstance(self.indices, range):
            return self.indices.start, self.indices.stop, self.indices.step
        return hashlib.blake2b(self.indices.astype('<i8').tobytes(), digest_size=16).hexdigest()

    def plan_rows(self, indices: Int64s, selection: Selection) -> list[RowGroup]:
        return self.datasets[0].plan_rows(self.source_indices(indices), selection)

    def match_keys(self, field: str, keys: list[bytes | None]) -> Matches:
        owners, rows = self.datasets[0].match_keys(field, keys)
        if isinstance(self.indices, range):
            positions, remainders = np.divmod(rows - self.indices.start, self.indices.step)
            is_selected = (remainders == 0) & (positions >= 0) & (positions < len(self.indices))
            return sort_matches(owners[is_selected], positions[is_selected])
        indices, order = self._sorted_indices
        starts = indices.searchsorted(rows, 'left')
        counts = indices.searchsorted(rows, 'right') - starts
        return sort_matches(np.repeat(owners, counts), order[concat_ranges(starts, counts)])

    @cached_attribute
    def _sorted_indices(self) -> tuple[Int64s, Int64s]:
        """The indices in ascending order, and their positions."""
        order = np.argsort(self.indices, kind='stable')
        return np.asarray(self.indices)[order], order

    def read_row(self, index: int, selection: Selection | None) -> Datapoint:
        dataset = self.datasets[0]
        if selection is None and len(self.schema) < len(dataset.schema):
            selection = dict.fromkeys(self.schema, True)
        return dataset.read_row(int(self.indices[check_index(index, len(self.indices))]), selection)

    @property
    def expression(self) -> str:
        dataset, count = self.datasets[0].expression, len(self.datasets[0])
        fields, names = '', list(self.schema)
        if len(names) < len(self.datasets[0].schema):
            is_short = len(names) <= SHOWN_FIELDS
            fields = f'fields={names if is_short else f"{len(names)} of them #{_mark(repr(names).encode())}"}'
        chosen = self.indices
        if not isinstance(chosen, range):
            # The checksum of the indices distinguishes selections.
            mark = _mark(chosen.tobytes())
            return f'{dataset}.select({len(chosen)} indices #{mark}{", " if fields else ""}{fields})'
        if chosen == range(count):
            part = '' if fields else '[:]'
        else:
            start, stop, step = chosen.start, _as_slice(chosen).stop, chosen.step
            part = f'[{start}:{"" if stop is None else stop}{"" if step == 1 else f":{step}"}]'
        return f'{dataset}{part}.select({fields})' if fields else f'{dataset}{part}'


def _mark(data: bytes) -> str:
    """Returns a checksum for `repr`."""
    return f'{zlib.crc32(data):08x}'


def _positions_of(indices: Any, count: int, what: str = 'select') -> range | Int64s:
    """Converts the `indices` of `select`, or of the method `what`, to non-negative indices."""
    if indices is None or isinstance(indices, slice):
        return range(count)[indices or slice(None)]
    if isinstance(indices, range):
        if not indices or (0 <= indices[0] < count and 0 <= indices[-1] < count):
            return indices or range(0)
        indices = list(indices)
    if not isinstance(indices, Iterable):
        raise TypeError(f'{what}: expected indices or a mask, got {indices!r}')
    chosen: Any = indices if isinstance(indices, np.ndarray) else list(indices)
    if chosen.dtype == bool if isinstance(chosen, np.ndarray) else _are_bools(chosen):
        mask = np.asarray(chosen)
        if mask.shape != (count,):
            raise IndexError(f'{what}: expected a mask of shape ({count},), got {mask.shape}')
        return np.flatnonzero(mask)
    # A copy, because the caller may change the array later.
    return np.array(as_indices(chosen, count), np.int64)


def _are_bools(values: list[Any]) -> bool:
    return bool(values) and all(isinstance(value, bool | np.bool_) for value in values)


def _as_slice(part: range) -> slice:
    """Converts a range of non-negative indices to a slice."""
    if not part:
        return slice(0, 0)
    stop = part[-1] + (1 if part.step > 0 else -1)
    return slice(part.start, stop if stop >= 0 else None, part.step)


def check_dataset(what: str, value: Any) -> None:
    """Raises TypeError, naming `what`, if a value is not a dataset."""
    if not isinstance(value, Dataset):
        advice = ' (bags.open opens one)' if isinstance(value, str | os.PathLike) else ''
        text = ' '.join(repr(value).split())
        raise TypeError(f'{what}: expected a dataset, got {text:.80}{advice}')


def expect_committed(what: str, dataset: Dataset) -> None:
    """Raises ValueError, naming `what`, if a dataset has partial datapoints."""
    partial, length = dataset.partial, len(dataset)
    if not len(partial):
        return
    are_last = partial[0] == length - len(partial)
    rest = f'[:-{len(partial)}]' if are_last else '.drop(reader.partial)'
    detail = f'datapoint {partial[0]} of {length} is an episode that is not committed'
    advice = f'reader{rest} leaves it out; bags.Loader and bags.copy take it with partial=True'
    raise ValueError(f'{what}: {detail}: {advice}')


def row_of_part(part: Dataset, index: int, selection: Selection | None, schema: Schema) -> Datapoint:
    """Returns a datapoint of a dataset that lacks some of the fields in `schema`."""
    selected: Selection = dict.fromkeys(schema, True) if selection is None else selection
    datapoint = part.read_row(index, divide_fields(selected, part.schema)[0])
    return {name: datapoint.get(name) for name in selected}
