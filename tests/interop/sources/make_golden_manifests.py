"""Writes `golden/manifests`: manifests of Lhotse 2.0a7 and NeMo, and what these read from them.

    python tests/interop/sources/make_golden_manifests.py

Needs `lhotse` and `soundfile`. NeMo is not installed: its rule is the one of `AudioSegment.from_file`,
which seeks to `int(offset * rate)`, and reads `int(duration * rate)` samples if the duration is above 0.
"""

import hashlib
import json
import os
from pathlib import Path

import lhotse
import numpy as np
import soundfile
from lhotse import CutSet, MonoCut, MultiCut, Recording, RecordingSet, SupervisionSegment, SupervisionSet
from lhotse.supervision import AlignmentItem

GOLDEN = Path(__file__).parent / 'golden' / 'manifests'
FILES = {'mono.wav': (16_000, 4000, 1), 'odd.flac': (22_050, 5000, 1), 'stereo.wav': (8000, 2000, 2)}
TIMES = [
    (0.1, 0.05),
    (0.00003125, 0.1),
    (0.033333, 0.066667),
    (0.0123456789, 0.0987654321),
    (0.05, 0.0002),
]


def digest(samples):
    """Returns a hash of samples, shape (channels, time)."""
    return [list(samples.shape), hashlib.sha256(np.ascontiguousarray(samples, '<f4').tobytes()).hexdigest()]


def supervisions_of(cut):
    keys = 'id', 'start', 'end', 'text', 'speaker', 'language'
    found = sorted(cut.supervisions, key=lambda each: each.start)
    return [{key: getattr(each, key) for key in keys} for each in found]


def make_lhotse():
    recordings = [Recording.from_file(name, relative_path_depth=1) for name in FILES]
    supervisions = []
    for recording in recordings:
        for number, (start, duration) in enumerate([(0.1, 0.05), (0.0, 0.08), (0.02, 0.1)]):
            supervisions.append(
                SupervisionSegment(
                    f'{recording.id}-{number}', recording.id, start, duration, channel=0,
                    text=f'text {number}', speaker='a' if number else None, language='de',
                    custom={'snr': 3.5} if number == 1 else None,
                    alignment={'word': [AlignmentItem('text', start, duration / 2)]} if number == 2 else None,
                )
            )  # fmt: skip
    cuts = []
    for recording in recordings:
        for number, (start, duration) in enumerate(TIMES):
            id, count = f'{recording.id}-cut-{number}', recording.num_channels
            several = count > 1 and number % 2
            cut = (MultiCut if several else MonoCut)(
                id, start, duration, [0, 1] if several else number % count, recording=recording,
                custom={'number': number},
            )  # fmt: skip
            own = [each for each in supervisions if each.recording_id == recording.id]
            cut.supervisions = [each.with_offset(-start) for each in own]
            cuts.append(cut)
    whole = [MonoCut('whole', 0, recordings[0].duration, 0, recording=recordings[0])]
    cuts = CutSet.from_cuts(cuts + whole + [each.truncate(offset=0.01) for each in whole])
    RecordingSet.from_recordings(recordings).to_file('recordings.jsonl.gz')
    SupervisionSet.from_segments(supervisions).to_file('supervisions.jsonl')
    cuts.to_file('cuts.jsonl.gz')
    read = CutSet.from_file('cuts.jsonl.gz')
    expected = {
        cut.id: {
            'audio': digest(cut.load_audio()),
            'channels': cut.channel if isinstance(cut.channel, list) else [cut.channel],
            'offset': cut.start,
            'duration': cut.duration,
            'recording_id': cut.recording.id,
            'custom': cut.custom,
            'supervisions': supervisions_of(cut),
        }
        for cut in read
    }
    read_supervisions = SupervisionSet.from_file('supervisions.jsonl')
    of_recordings = {}
    for each in RecordingSet.from_file('recordings.jsonl.gz'):
        cut = each.to_cut()
        cut.supervisions = list(read_supervisions.find(each.id))
        of_recordings[each.id] = {'audio': digest(each.load_audio()), 'supervisions': supervisions_of(cut)}
    return {'version': lhotse.__version__, 'cuts': expected, 'recordings': of_recordings}


def make_nemo():
    lines = [{'audio_filepath': name, 'text': 'whole', 'lang': 'en'} for name in FILES]
    lines += [
        {'audio_filepath': name, 'offset': start, 'duration': duration, 'text': f'from {start}', 'lang': 'en'}
        for name in FILES
        for start, duration in TIMES
    ]
    lines += [
        {
            'audio_filepath': 'mono.wav',
            'offset': 0.2,
            'duration': 0.0500625,
            'text': 'a bit too long',
            'lang': 'en',
        },
        {'audio_filepath': 'mono.wav', 'offset': 0.2, 'duration': None, 'text': 'to the end', 'lang': 'en'},
    ]
    Path('nemo.json').write_text(''.join(json.dumps(line) + '\n' for line in lines))
    expected = []
    for line in lines:
        offset, duration = line.get('offset') or 0, line.get('duration') or 0
        with soundfile.SoundFile(line['audio_filepath']) as file:
            if offset > 0:
                file.seek(int(offset * file.samplerate))
            count = int(duration * file.samplerate) if duration > 0 else -1
            expected.append(digest(file.read(count, dtype='float32', always_2d=True).T))
    return expected


def main():
    GOLDEN.mkdir(exist_ok=True)
    os.chdir(GOLDEN)
    for number, (name, (rate, length, channels)) in enumerate(FILES.items()):
        samples = np.random.default_rng(number).integers(-20_000, 20_000, (length, channels)).astype(np.int16)
        soundfile.write(name, samples, rate)
    content = {'lhotse': make_lhotse(), 'nemo': make_nemo()}
    Path('expected.json').write_text(json.dumps(content) + '\n')


if __name__ == '__main__':
    main()
