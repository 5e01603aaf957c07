"""`join_audio`: the recordings of a datapoint as one `Audio`, without gaps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, BinaryIO, ClassVar, NamedTuple, NoReturn, Protocol, SupportsIndex, Unpack

import numpy as np

from bags.concurrency import FifoCache, map_concurrently
from bags.dataset.base import Dataset
from bags.dataset.format.registry import AUDIO_FORMATS
from bags.dataset.reading.frames import Seconds
from bags.indexing import offsets_of
from bags.media.audio import Audio, AudioOptions
from bags.media.encoders import audio_options
from bags.media.open_audio import AnyAudioDecoder
from bags.media.wav_reader import Samples
from bags.streams.records import MAX_OPEN_CLIPS, FieldRecords, Parts


def join_audio(dataset: Dataset, index: SupportsIndex, field: str, **options: Unpack[AudioOptions]) -> Audio:
    """Returns the recordings of a datapoint as one: each begins where the previous one ends.

    Args:
        dataset: A reader or a view.
        index: The datapoint.
        field: A field of type `flac`, `opus`, `wav` or `audio`, or a sequence of one of these types.
        **options: `exact`, `rate` and `channels`, as for `Audio`.

    Returns:
        The `Audio` of a plain field; a `JoinedAudio` for a sequence.
    """
    records = FieldRecords.of(dataset, index, field, AUDIO_FORMATS, 'recordings')
    is_stored = dataset.schema[field].format == 'audio'  # Other types have no options for reading.
    merged: dict[str, Any] = {**(audio_options(*records.args) if is_stored else {}), **options}
    if not records.is_sequence:
        return Audio(records[0], **merged)
    track = merged.pop('track', None)
    return JoinedAudio(_RecordingsOf(records, track), **merged)


NO_FORM = 0, 0, ''
"""Rate, channels and layout without recordings."""


class Recordings(Parts[Audio], Protocol):
    """Consecutive recordings, and their parts of the joined one."""

    def limits(self) -> RecordingLimits | None:
        """Returns the part of the joined recording of each; None if each begins where the last one ends."""
        ...


class RecordingLimits(NamedTuple):
    """The parts of a joined recording, in seconds. Samples that a recording lacks are 0."""

    starts: Seconds
    """The time at which each recording begins in the joined one, and the end of the last, shape (n + 1,)."""
    offsets: Seconds
    """The time in each recording at which its part begins, shape (n,)."""


class _RecordingsOf:
    """The recordings of a datapoint; `track` as for `Audio`."""

    def __init__(self, records: FieldRecords, track: int | None) -> None:
        self._records, self._track = records, track
        self.name, self.is_remote = records.name, records.is_remote

    def __len__(self) -> int:
        return len(self._records)

    def __getitem__(self, number: int) -> Audio:
        return Audio(self._records[number], track=self._track)

    def limits(self) -> None:
        """Returns None: each recording begins where the previous one ends."""


@dataclass(frozen=True)
class JoinedSource:
    """Recordings as the source of an `Audio`."""

    recordings: Recordings

    @property
    def name(self) -> str:
        return self.recordings.name

    @property
    def is_remote(self) -> bool:
        return self.recordings.is_remote

    def open(self) -> BinaryIO:
        raise TypeError(
            f'{self.name}: expected one file, got a recording joined from {len(self.recordings)} recordings'
        )

    def error(self, exc: Exception) -> Exception:
        return ValueError(f'{self.name}: {exc}')


def _join(source: Any, _track: int | None) -> AnyAudioDecoder:
    decoder: Any = JoinedDecoder(source.recordings)
    return decoder  # type: ignore[no-any-return]


class JoinedAudio(Audio):
    """Consecutive recordings as one, with the methods of an `Audio`.

    The first access reads the headers of all recordings to find their lengths. A slice decodes only the
    recordings that it needs. The joined recording is resampled as a whole. Thread-safe, and picklable if the
    dataset is picklable. It is not one file: `tracks` raises AttributeError.

    Lengths and durations of recordings that differ in rate or channels add up; they have no common samples.

    Raises:
        ValueError: On access to samples, `rate` or `channels`: the recordings differ in them.
    """

    is_joined: ClassVar[bool] = True
    open_decoder = staticmethod(_join)

    def __init__(self, recordings: Recordings, **options: Unpack[AudioOptions]) -> None:
        super().__init__(JoinedSource(recordings), **options)

    def __len__(self) -> int:
        decoder = self._joined
        return decoder.length if decoder.differ else super().__len__()

    @property
    def duration(self) -> float:
        """Seconds from the first sample to the end of the last."""
        decoder = self._joined
        return decoder.seconds if decoder.differ else super().duration

    @property
    def _joined(self) -> JoinedDecoder:
        decoder: Any = self.decoder.get()
        return decoder  # type: ignore[no-any-return]

    @property
    def tracks(self) -> NoReturn:
        """A joined recording has no tracks."""
        raise AttributeError(f'{self.decoder.source.name}: expected one file, got a joined recording')


class JoinedDecoder:
    """Consecutive recordings as one. Attributes as in `AnyAudioDecoder`."""

    begin = 0.0
    file = None

    def __init__(self, recordings: Recordings) -> None:
        self._audios: FifoCache[int, Audio] = FifoCache(recordings.__getitem__, MAX_OPEN_CLIPS)

        def describe(number: int) -> tuple[int, float, str | None, tuple[int, int, str]]:
            with self._audios[number].decoder.use() as decoder:
                form = decoder.rate, decoder.channels, decoder.layout
                return decoder.length, decoder.begin, decoder.truncation, form

        facts = map_concurrently(describe, range(len(recordings)), recordings.is_remote)
        self._forms = sorted({form for _, _, _, form in facts} or {NO_FORM})
        cut = next((number for number, fact in enumerate(facts) if fact[2]), len(facts))
        self.truncation = facts[cut][2] if cut < len(facts) else None
        self._lengths = np.array([length for length, _, _, _ in facts[: cut + 1]], np.int64)
        limits = recordings.limits()
        self._starts, self._offsets = offsets_of(self._lengths), np.zeros(len(self._lengths), np.int64)
        self.seconds = sum(length / rate for length, _, _, (rate, _, _) in facts[: cut + 1])
        """Seconds from the first sample to the end of the last."""
        if limits is not None and facts:
            self.seconds = float(limits.starts[-1] - limits.starts[0])
        if limits is not None and facts and not self.differ:
            begins = np.array([begin for _, begin, _, _ in facts])
            starts = np.rint((limits.starts - limits.starts[0]) * self.rate).astype(np.int64)
            self._starts = starts[: len(self._lengths) + 1]
            self._offsets = np.rint((limits.offsets - begins) * self.rate).astype(np.int64)
        self.length = int(self._starts[-1])

    @property
    def differ(self) -> bool:
        """Whether the recordings differ in rate or channels, and therefore have no common samples."""
        return len(self._forms) > 1

    @property
    def _form(self) -> tuple[int, int, str]:
        if self.differ:
            layouts = ' and '.join(f'{layout} at {rate} Hz' for rate, _, layout in self._forms)
            raise ValueError(f'expected recordings of one rate and layout, got {layouts}')
        return self._forms[0]

    @property
    def rate(self) -> int:
        return self._form[0]

    @property
    def channels(self) -> int:
        return self._form[1]

    @property
    def layout(self) -> str:
        return self._form[2]

    def close(self) -> None:
        """Does nothing: the files of the recordings close when the recordings are freed."""

    def ranges(self, start: int, stop: int) -> list[tuple[int, int]]:
        """Returns an empty list: each recording is a separate file."""
        return []

    def read(self, start: int, stop: int, exact: bool = False) -> Samples:
        """Returns samples, shape (stop - start, channels)."""
        samples = np.zeros((max(0, stop - start), self.channels), np.float32)
        first = int(self._starts.searchsorted(start, 'right')) - 1
        for number in range(first, len(self._lengths) if samples.size else first):
            # The part of this recording, as samples of the joined one, and of the recording.
            begin = int(self._starts[number] - self._offsets[number])
            low = max(start, int(self._starts[number]), begin)
            high = min(stop, int(self._starts[number + 1]), begin + int(self._lengths[number]))
            if low < high:
                with self._audios[number].decoder.use() as decoder:
                    samples[low - start : high - start] = decoder.read(low - begin, high - begin, exact)
            if self._starts[number + 1] >= stop:
                break
        return samples
