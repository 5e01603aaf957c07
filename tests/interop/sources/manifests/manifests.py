"""Writes recordings, and manifests that list them, for tests."""

import gzip
import json

import numpy as np

import bags

RATE = 16_000


def write_sound(path, seed=0, samples=RATE, channels=1, rate=RATE, format='wav'):
    """Writes a recording, and returns its samples as float32."""
    values = np.random.default_rng(seed).integers(-20_000, 20_000, (samples, channels)).astype(np.int16)
    path.parent.mkdir(parents=True, exist_ok=True)
    encoded = bags.encoders[format]((values, rate))
    path.write_bytes(encoded.read() if hasattr(encoded, 'read') else bytes(encoded))
    return values.astype(np.float32) / 32_768


def write_lines(path, lines):
    """Writes JSON lines; a str is a line as it is."""
    text = ''.join((line if isinstance(line, str) else json.dumps(line)) + '\n' for line in lines)
    path.write_bytes(gzip.compress(text.encode()) if path.name.endswith('.gz') else text.encode())
    return path


def recording(name, samples=RATE, channels=1, **changes):
    """Returns a recording of Lhotse, of the file `name.wav`."""
    return {
        'id': name,
        'sources': [{'type': 'file', 'channels': list(range(channels)), 'source': f'{name}.wav'}],
        'sampling_rate': RATE,
        'num_samples': samples,
        'duration': samples / RATE,
        'channel_ids': list(range(channels)),
        **changes,
    }


def supervision(id, recording_id, start=0.0, duration=0.5, **values):
    return {'id': id, 'recording_id': recording_id, 'start': start, 'duration': duration, **values}


def cut(id, of, start=0.0, duration=0.5, supervisions=(), **values):
    return {
        'id': id, 'type': 'MonoCut', 'start': start, 'duration': duration, 'channel': 0, 'recording': of,
        'supervisions': list(supervisions), **values,
    }  # fmt: skip
