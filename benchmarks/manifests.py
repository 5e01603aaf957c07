"""Manifests of recordings, linked, beside a loop over the headers; `python -m benchmarks.manifests 10000`.

The loop reads each header with `soundfile`, as NeMo and Lhotse do, or with `wave` if it is not installed, and
the first and last 4 KiB, of which a link has a hash.
"""

from __future__ import annotations

import argparse
import json
import os
import time
import wave
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

import bags
from benchmarks import data

ENDS = 4096
FOLDERS, LONG_FILES, RATE, ROUNDS = 100, 20, 16_000, 3
TEXT = 'a sentence of some words, as it is spoken'


def write_corpus(path: Path, count: int) -> None:
    """Writes recordings of half a second in folders, a few of ten minutes, and manifests that list them."""
    sound = np.random.default_rng(0).integers(-9000, 9000, (RATE // 2, 1)).astype(np.int16)
    for folder in range(FOLDERS):
        (path / f'wavs/{folder}').mkdir(parents=True)
    names = [f'wavs/{number % FOLDERS}/{number}.wav' for number in range(count)]
    for name in names:
        (path / name).write_bytes(bytes(bags.encoders['wav']((sound, RATE))))
    long = np.tile(sound, (1200, 1))
    for number in range(LONG_FILES):
        (path / f'wavs/long{number}.wav').write_bytes(bytes(bags.encoders['wav']((long, RATE))))
    each = -(-count // LONG_FILES)
    parts = [
        {'audio_filepath': f'wavs/long{number % LONG_FILES}.wav', 'duration': 0.3,
         'offset': number // LONG_FILES * 599 / each}
        for number in range(count)
    ]  # fmt: skip
    cuts = []
    for number, name in enumerate(names):
        source = {'type': 'file', 'channels': [0], 'source': name}
        recording = {'id': f'r{number}', 'sources': [source], 'sampling_rate': RATE, 'num_samples': RATE // 2}
        said = {'id': f's{number}', 'recording_id': f'r{number}', 'start': 0.0, 'duration': 0.2, 'channel': 0}
        cuts.append({
            'id': f'c{number}', 'type': 'MonoCut', 'start': 0.1, 'duration': 0.25, 'channel': 0,
            'recording': {**recording, 'duration': 0.5, 'channel_ids': [0]},
            'supervisions': [{**said, 'text': TEXT, 'speaker': 'a'}],
        })  # fmt: skip
    tables: dict[str, list[dict[str, Any]]] = {
        'files': [{'audio_filepath': name, 'text': TEXT} for name in names],
        'nemo': [{'audio_filepath': name, 'duration': 0.5, 'text': TEXT} for name in names],
        'parts': [{**part, 'text': TEXT} for part in parts],
        'lhotse': cuts,
    }
    for table, lines in tables.items():
        (path / f'{table}.jsonl').write_text(''.join(json.dumps(line) + '\n' for line in lines))


def read_headers(manifest: Path) -> int:
    """Reads the rate, the length and both ends of the recording of each line."""
    with_soundfile = find_spec('soundfile') is not None
    samples = 0
    with open(manifest) as lines:
        for line in lines:
            value = json.loads(line)
            name = value.get('audio_filepath') or value['recording']['sources'][0]['source']
            path = str(manifest.parent / name)
            if with_soundfile:
                import soundfile  # type: ignore[import-not-found,unused-ignore]

                samples += soundfile.info(path).frames
            else:
                with wave.open(path) as file:
                    samples += file.getnframes()
            with open(path, 'rb', buffering=0) as ends:
                ends.read(ENDS)
                ends.seek(-ENDS, os.SEEK_END)
                ends.read(ENDS)
    return samples


def seconds_of(run: Callable[[], object]) -> tuple[float, float]:
    """Returns the seconds, and the seconds of processor, of the fastest of a few runs."""
    times = []
    for _ in range(ROUNDS):
        wall, cpu = time.perf_counter(), time.process_time()
        run()
        times.append((time.perf_counter() - wall, time.process_time() - cpu))
    return min(wall for wall, _ in times), min(cpu for _, cpu in times)


def main(count: int) -> None:
    """Prints the times of linking each manifest, and of the loop."""
    corpus = data.cached(f'manifests-{count}', lambda path: write_corpus(path, count))
    index = data.scratch('manifests')
    options: dict[str, dict[str, Any]] = {
        'files': {'file': {'audio_filepath': 'audio'}},
        'nemo': {'format': 'nemo'},
        'parts': {'format': 'nemo'},
        'lhotse': {'format': 'lhotse'},
    }
    print(f'headers with {"soundfile" if find_spec("soundfile") else "wave"}')
    for name, keywords in options.items():
        manifest = corpus / f'{name}.jsonl'

        def link(manifest: Path = manifest, keywords: dict[str, Any] = keywords) -> None:
            bags.convert(manifest, index, link=True, mode='overwrite', progress=False, **keywords)

        def loop(manifest: Path = manifest) -> None:
            read_headers(manifest)

        (wall, cpu), (wall_loop, cpu_loop) = seconds_of(link), seconds_of(loop)
        print(
            f'{name}: linked in {wall:.2f} s, {cpu:.2f} s of processor; headers in {wall_loop:.2f} s, '
            f'{cpu_loop:.2f} s of processor; {wall / wall_loop:.2f} and {cpu / cpu_loop:.2f} times'
        )


if __name__ == '__main__':
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument('count', type=int)
    main(parser.parse_args().count)
