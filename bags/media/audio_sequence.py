"""`AudioSequence`: the recordings of a datapoint as one recording, without gaps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, BinaryIO, SupportsIndex, Unpack

import numpy as np

from bags.concurrency import FifoCache, map_concurrently
from bags.dataset.base import Dataset, check_dataset
from bags.dataset.format.registry import AUDIO_FORMATS
from bags.dataset.reading.selection import select_fields
from bags.indexing import check_index, offsets_of
from bags.media.audio import Audio, AudioOptions
from bags.media.encoders import audio_options
from bags.media.open_audio import AnyAudioDecoder
from bags.media.wav_reader import Samples

MAX_OPEN_CLIPS = 16
"""Maximum number of open recordings of an `AudioSequence`."""


def _join(source: Any, _stream: int | None) -> AnyAudioDecoder:
    joined: Any = JoinedAudio(source)
    return joined  # type: ignore[no-any-return]


class AudioSequence(Audio):
    """The recordings of a datapoint as one `Audio`: each recording begins where the previous one ends.

    The first access reads the headers of all recordings to find their lengths. A slice decodes only the
    recordings that it needs. Thread-safe, and picklable if the dataset is picklable.

    Args:
        dataset: A reader or a view.
        index: The datapoint.
        field: A field of type `flac[]`, `opus[]`, `wav[]` or `audio[]`, or without `[]` for a single
            recording.
        **options: `exact`, `rate` and `channels`, as for `Audio`. The joined recording is resampled as a
            whole.

    Raises:
        ValueError: On access: the recordings differ in rate or channels, or the datapoint has none.

    Examples:
        >>> with bags.DatasetWriter('sounds', {'sound': 'flac[]'}) as writer:
        ...     writer.append({'sound': [(np.zeros((16000, 1), np.int16), 16000)] * 2})
        0
        >>> sound = bags.AudioSequence(bags.open('sounds'), 0, 'sound')
        >>> sound.shape, sound[15_000:17_000].shape
        ((32000, 1), (2000, 1))
    """

    open_decoder = staticmethod(_join)

    def __init__(
        self, dataset: Dataset, index: SupportsIndex, field: str, **options: Unpack[AudioOptions]
    ) -> None:
        check_dataset('AudioSequence', dataset)
        select_fields(field, dataset.schema)
        field_type = dataset.schema[field]
        if field_type.format not in AUDIO_FORMATS:
            raise TypeError(f'AudioSequence: field {field!r} of type {field_type.text} is not audio')
        source = _Recordings(dataset, check_index(index, len(dataset)), field)
        own = audio_options(*field_type.args) if field_type.format == 'audio' else {}
        merged: dict[str, Any] = {**own, **options}
        merged.pop('stream', None)
        super().__init__(source, **merged)


@dataclass(frozen=True)
class _Recordings:
    """The recordings of a datapoint, as a source."""

    dataset: Dataset
    row: int
    field: str

    @property
    def name(self) -> str:
        return f'{self.dataset.expression}, datapoint {self.row}, field {self.field!r}'

    @property
    def is_remote(self) -> bool:
        return self.dataset.reads_wait

    def __len__(self) -> int:
        if not self.dataset.schema[self.field].sequence:
            return 1
        return int(self.dataset.item_counts(np.array([self.row]), self.field)[0])

    def __getitem__(self, number: int) -> Audio:
        field_type = self.dataset.schema[self.field]
        stream = audio_options(*field_type.args).get('stream') if field_type.format == 'audio' else None
        item = number if field_type.sequence else None
        return Audio(self.dataset.record(self.row, self.field, item), stream=stream)

    def open(self) -> BinaryIO:
        """Opens the first recording, whose streams stand for all recordings."""
        return self[0].decoder.source.open()

    def error(self, exc: Exception) -> Exception:
        return ValueError(f'{self.name}: {exc}')


class JoinedAudio:
    """Consecutive recordings as one. Attributes as in `AnyAudioDecoder`."""

    begin = 0.0
    file = None

    def __init__(self, recordings: _Recordings) -> None:
        self._audios: FifoCache[int, Audio] = FifoCache(recordings.__getitem__, MAX_OPEN_CLIPS)

        def describe(number: int) -> tuple[int, str | None, tuple[int, int, str]]:
            with self._audios[number].decoder.use() as decoder:
                return decoder.length, decoder.truncation, (decoder.rate, decoder.channels, decoder.layout)

        facts = map_concurrently(describe, range(len(recordings)), recordings.is_remote)
        forms = {form for _, _, form in facts}
        if len(forms) != 1:
            layouts = ' and '.join(f'{layout} at {rate} Hz' for rate, _, layout in sorted(forms))
            raise ValueError(f'expected recordings of one rate and layout, got {layouts or "none"}')
        self.rate, self.channels, self.layout = forms.pop()
        self.truncation = next((text for _, text, _ in facts if text), None)
        cut = next((number for number, fact in enumerate(facts) if fact[1]), len(facts))
        self._starts = offsets_of(np.array([length for length, _, _ in facts[: cut + 1]], np.int64))
        self.length = int(self._starts[-1])

    def close(self) -> None:
        """Does nothing: the files of the recordings close when the recordings are freed."""

    def ranges(self, start: int, stop: int) -> list[tuple[int, int]]:
        """Returns an empty list: each recording is a separate file."""
        return []

    def read(self, start: int, stop: int, exact: bool = False) -> Samples:
        """Returns samples, shape (stop - start, channels)."""
        parts: list[Samples] = [np.empty((0, self.channels), np.float32)]
        first = int(self._starts.searchsorted(start, 'right')) - 1
        while start < stop:
            low, high = int(self._starts[first]), min(stop, int(self._starts[first + 1]))
            with self._audios[first].decoder.use() as decoder:
                parts.append(decoder.read(start - low, high - low, exact))
            start, first = max(start, high), first + 1
        return np.concatenate(parts)
