"""Beam transforms that read and write the records of bags. Paths have the forms of the bagz connectors."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator, Mapping
from typing import Any, Unpack

import apache_beam as beam
from apache_beam.coders import coders
from apache_beam.io import iobase, range_trackers
from apache_beam.transforms.display import DisplayDataItem

from bags import bag
from bags.bag.open import limits_name
from bags.bag.options import LimitsPlacement, ReaderKeywords, ReaderOptions, WriterKeywords, WriterOptions
from bags.bag.sharding import shard_name
from bags.beam.bundles import BundleOutput, FolderSink, SequenceSource
from bags.storage import Store
from bags.storage.urls import plain_path
from bags.validation import merge

SHARDED_OUTPUT = re.compile(r'(?P<stem>.*)@(?P<count>[0-9]+|\*)(?P<suffix>[._].+)?')
SINGLE = re.compile(r'(?P<stem>.+)(?P<suffix>\.bagz?)@0')


class ReadFromBag(beam.PTransform):  # type: ignore[misc]
    """Reads the records of bags. Nothing is opened while the pipeline is built.

    Args:
        file_pattern: A path, `name@8.bagz`, `name@*.bagz` or a glob, or several separated by commas; or URLs.
        coder: Decodes a record. Default: bytes.
        compression_type: Ignored, for compatibility with bagz: file names and `compression` decide.
        **options: As in `bags.bag.Reader`.

    Examples:
        >>> with beam.Pipeline() as pipeline:
        ...     _ = pipeline | bags.beam.ReadFromBag('dataset/text.bag') | beam.Map(print)
    """

    def __init__(
        self,
        file_pattern: str | os.PathLike[str],
        coder: coders.Coder | None = None,
        compression_type: Any = None,
        **options: Unpack[ReaderKeywords],
    ) -> None:
        super().__init__()
        self._source = BagSource(os.fspath(plain_path(file_pattern)), coder or coders.BytesCoder(), options)

    def expand(self, pbegin: Any) -> Any:
        return pbegin | iobase.Read(self._source)


class BagSource(SequenceSource):
    """Bags as a source of records."""

    def __init__(self, pattern: str, coder: coders.Coder, options: Mapping[str, Any]) -> None:
        self._pattern, self._coder, self._options = pattern, coder, dict(options)
        merge(ReaderOptions, None, self._options)  # Raises for unknown options.

    def open(self) -> bag.Reader:
        return bag.Reader(self._pattern, **self._options)

    def bytes_before(self, index: int) -> int:
        before: int = self.sequence().bytes_before(index)
        return before

    def read(self, range_tracker: range_trackers.OffsetRangeTracker) -> Iterator[Any]:
        start, stop = range_tracker.start_position(), range_tracker.stop_position()
        decode = self._coder.decode
        records = self.sequence().read_range_iter(start, stop - start)
        for index, record in enumerate(records, start):
            if not range_tracker.try_claim(index):
                return
            yield decode(record)

    def display_data(self) -> dict[str, Any]:
        return {'file_pattern': DisplayDataItem(self._pattern, label='File Pattern')}


class WriteToBag(beam.PTransform):  # type: ignore[misc]
    """Writes records to bags, which appear once all of them are written.

    Args:
        file_path: `name@8.bagz` for eight files, `name@*.bagz` for one file per bundle, `name@0.bagz` or
            `name.bagz@0` for a single file without a number. May be a URL.
        coder: Encodes a record. Default: bytes.
        compression_type: Ignored, for compatibility with bagz: file names and `compression` decide.
        **options: As in `bags.bag.Writer`: `compression`, `limits_placement` and so on.

    Raises:
        ValueError: The path has another form.

    Examples:
        >>> with beam.Pipeline() as pipeline:
        ...     _ = pipeline | beam.Create([b'one', b'two']) | bags.beam.WriteToBag('words@2.bagz')
    """

    def __init__(
        self,
        file_path: str | os.PathLike[str],
        coder: coders.Coder | None = None,
        compression_type: Any = None,
        **options: Unpack[WriterKeywords],
    ) -> None:
        super().__init__()
        self._sink = BagSink(os.fspath(plain_path(file_path)), coder or coders.BytesCoder(), options)

    def expand(self, records: Any) -> Any:
        return records | iobase.Write(self._sink)


class BagSink(FolderSink):
    """Bags as a sink."""

    def __init__(self, path: str, coder: coders.Coder, options: Mapping[str, Any]) -> None:
        folder, name = os.path.split(path)
        super().__init__(folder or '.', options)
        match = SINGLE.fullmatch(name) or SHARDED_OUTPUT.fullmatch(name)
        suffix = (match['suffix'] or '') if match else ''
        if match is None or not suffix.endswith(('.bag', '.bagz')):
            raise ValueError(
                f'{path}: expected name@N.bagz or name@N.bag with a number N, * or 0, or name.bagz@0'
            )
        count = match.groupdict().get('count', '0')
        self._shards = None if count == '*' else int(count)
        """None for one file per bundle, 0 for a single file without a number."""
        self._stem, self._suffix, self._coder = match['stem'], suffix, coder
        merge(WriterOptions, None, self.options)  # Raises for unknown options.
        self.num_shards = 0 if self._shards is None else max(1, self._shards)

    def check_absent(self, store: Store, folder: str) -> None:
        # With `@*` the names are not known yet, so the target may not have any shard with this stem.
        pattern = re.compile(re.escape(self._stem) + r'-[0-9]{5}-of-[0-9]{5}' + re.escape(self._suffix))
        expected = self.names(self.num_shards)
        for name in store.names(folder):
            if (pattern.fullmatch(name) and self._shards != 0) or name in expected:
                raise FileExistsError(errno.EEXIST, 'exists already', store.join(folder, name))

    def names(self, count: int) -> list[str]:
        if self._shards == 0:
            return [self._stem + self._suffix]
        return [shard_name(self._stem, shard, count, self._suffix) for shard in range(count)]

    def output(self, path: str) -> BundleOutput:
        path += self._suffix
        encode, writer = self._coder.encode, bag.Writer(path, **self.options)
        return BundleOutput(path, writer, lambda value: writer.write(encode(value)))

    def moves(self, path: str, target: str) -> list[tuple[str, str]]:
        moves = [(path, target)]
        if WriterOptions(**self.options).limits_placement is LimitsPlacement.SEPARATE:
            moves.insert(0, (limits_name(path), limits_name(target)))
        return moves

    def display_data(self) -> dict[str, Any]:
        path = f'{os.path.join(self.folder, self._stem)}@{"*" if self._shards is None else self._shards}'
        return {'file_path': DisplayDataItem(path + self._suffix, label='File Path')}


ReadFromBagz = ReadFromBag
WriteToBagz = WriteToBag
