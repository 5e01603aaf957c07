"""One recording in all forms of storage: frames that carry their number, samples that carry theirs."""

from typing import NamedTuple

import numpy as np

import bags

SIZE = 32, 48
SAMPLE_RATE = 8000


class Numbers:
    """A type of one's own: a record has a time, a number and a duration for each element."""

    def __init__(self, record):
        self._numbers = np.frombuffer(record.open().read(), '<f8').reshape(-1, 3)

    def __len__(self):
        return len(self._numbers)

    def __getitem__(self, numbers):
        return self._numbers[numbers, 1]

    @property
    def timestamps(self):
        return self._numbers[:, 0]

    @property
    def duration(self):
        return float(self._numbers[:, 2].sum())


def encode_numbers(value):
    return np.asarray(value, '<f8').tobytes()


def decode_numbers(record):
    return np.frombuffer(record, '<f8').reshape(-1, 3)


decode_numbers.frames = Numbers
ENCODERS = {**bags.encoders, 'numbers': encode_numbers}
DECODERS = {**bags.decoders, 'numbers': decode_numbers}


class Recording(NamedTuple):
    """Elements of a stream at a constant rate."""

    count: int
    rate: float
    start: float | None = None

    @property
    def times(self):
        return (self.start or 0.0) + np.arange(self.count) / self.rate


PICTURES = ('video', 'mp4(30)', 'mp4(30)[]', 'mkv[]', 'jpeg[]', f'array(uint8,{SIZE[0]},{SIZE[1]},3)[]')
SOUNDS = ('audio', 'flac', 'flac[]', 'array(float32)[]')
OWN = ('numbers', 'numbers[]')
FORMS = (*PICTURES, *SOUNDS, *OWN)


def frame(number):
    return np.full((*SIZE, 3), 4 * number + 4, np.uint8)


def number_of(picture):
    """Returns the numbers of frames, from their pixels."""
    return np.rint((np.asarray(picture, float)[..., 8, 8, 0] - 4) / 4).astype(int).tolist()


def sample(number):
    return np.asarray(number) % 4001


def sample_of(value):
    """Returns what the samples carry: their numbers modulo 4,001."""
    return np.rint(np.asarray(value, float).reshape(len(value), -1)[:, 0] * 32768).astype(int).tolist()


def film(numbers, rate):
    return bytes(bags.encoders['mp4'](np.stack([frame(number) for number in numbers]), str(round(rate))))


def value_of(form, recording, block=None):
    """Returns the value of a field of a type for a recording, in blocks of `block` elements."""
    count = recording.count
    block = block or max(1, count // 3 + 1)
    blocks = [range(low, min(low + block, count)) for low in range(0, count, block)]
    if form in ('video', 'mp4(30)'):
        return film(range(count), recording.rate)
    if form == 'mp4(30)[]':
        return [film(numbers, recording.rate) for numbers in blocks]
    if form == 'mkv[]':
        return [np.stack([frame(number) for number in numbers]) for numbers in blocks]
    if form in PICTURES:
        return [frame(number) for number in range(count)]
    samples = sample(np.arange(count)).astype(np.int16)
    if form in ('audio', 'flac'):
        return samples[:, None], round(recording.rate)
    if form == 'flac[]':
        return [(samples[numbers.start : numbers.stop, None], round(recording.rate)) for numbers in blocks]
    if form in SOUNDS:
        return samples.astype(np.float32) / 32768
    own = np.stack(
        [np.arange(count) / recording.rate, np.arange(count), np.full(count, 1 / recording.rate)], 1
    )
    return own if form == 'numbers' else [own[numbers.start : numbers.stop] for numbers in blocks]


def numbers_of(form, values):
    """Returns the numbers of elements that values of a form carry."""
    if form in PICTURES:
        return number_of(values) if len(values) else []
    if form in SOUNDS:
        return sample_of(values) if len(values) else []
    return np.rint(np.asarray(values)).astype(int).tolist()


def expected_numbers(form, numbers):
    return (sample(numbers) if form in SOUNDS else np.asarray(numbers)).tolist()


def facts_of(form, recording):
    """Returns the metadata of a field: a rate, except where the records have times of their own."""
    facts = {} if recording.start is None else {'start': recording.start}
    if form in ('audio', 'flac', *OWN, 'video', 'mp4(30)'):
        return facts
    return {**facts, 'rate': recording.rate}


def write(path, form, recordings, field='x'):
    """Writes a dataset with a recording for each datapoint; None: missing."""
    first = next((each for each in recordings if each is not None), Recording(0, 30.0))
    metadata = {'fields': {field: facts_of(form, first)}}
    spec = {'id': 'int(4)', field: f'{form}?'}
    with bags.DatasetWriter(path, spec, metadata=metadata, encoders=ENCODERS) as writer:
        for number, recording in enumerate(recordings):
            value = None if recording is None else value_of(form, recording)
            writer.append({'id': number, field: value})
    return bags.open(path, decoders=DECODERS)


def linked(path, form, recording, file):
    """Writes a dataset whose value is a part of a longer file, from element 7 on."""
    longer = Recording(recording.count + 12, recording.rate)
    if form == 'video':
        data = film(range(longer.count), longer.rate)
    else:
        data = bytes(bags.encoders['flac'](value_of('audio', longer)))
    file.write_bytes(data)
    with bags.DatasetWriter(path, {'x': form}, linked_fields=['x']) as writer:
        writer.append({'x': bags.Link(file, frames=(7, 7 + recording.count))})
    return bags.open(path, trust_links=str(file.parent))
