"""A recorder for tests: two cameras, joints and sound from threads, whose items say which they are and when.

Run as `python -m tests.episodes.recorder FOLDER TAKE`, it records a take until it is killed.
"""

from __future__ import annotations

import itertools
import sys
import threading
import time

import numpy as np

import bags

CAMERAS = ('left', 'right')
SPEC = {
    'take': 'int(8)',
    'mark': 'int(8)?',
    'joints': 'array(float64,6)[]',
    'joints_time': 'float(8)[]',
    'left': 'mkv[]',
    'left_time': 'float(8)[]',
    'right': 'mkv[]',
    'right_time': 'float(8)[]',
    'sound': 'flac[]',
}
FACTS = {
    'fields': {
        **{name: {'times': f'{name}_time'} for name in ('left', 'right', 'joints')},
        'sound': {'rate': 16000},
    }
}
RATES = {'left': 25, 'right': 30, 'joints': 200, 'sound': 20}
FLUSH, CLIP = 0.2, 0.5


def picture(take, number, now):
    """A frame with its number, the take and the time in its pixels: uint8 (32, 32, 3)."""
    pixels = np.full((32, 32, 3), number % 256, np.uint8)
    pixels[0, :8, 0] = np.frombuffer(np.float64(now).tobytes(), np.uint8)
    pixels[1, :8, 0] = np.frombuffer(np.int64(number).tobytes(), np.uint8)
    pixels[2, :8, 0] = np.frombuffer(np.int64(take).tobytes(), np.uint8)
    return pixels


def joints(take, number, now):
    return np.array([take, number, now, np.sin(now), np.cos(now), -number], np.float64)


def sound(take, number):
    """A block of 800 samples: int16 (800,)."""
    return ((np.arange(800) + 800 * number + 7 * take) % 20011 - 10000).astype(np.int16)


def check(row, take, first=None):
    """Compares a datapoint with what was recorded; returns the time of the newest frame, or None.

    Args:
        row: The datapoint.
        take: Its number.
        first: By camera, the first clip that is decoded; all others are counted only.
    """
    times, count = row['joints_time'], len(row['joints_time'])
    expected = np.array([joints(take, number, now) for number, now in enumerate(times.tolist())])
    assert np.array_equal(row['joints'], expected.reshape(count, 6))
    assert (np.diff(times) > 0).all()
    assert row['take'] in (None, take)
    assert row['mark'] is None or 0 <= row['mark'] <= count
    newest = None
    for name in CAMERAS:
        clips, times, start = row[name], row[f'{name}_time'].tolist(), 0
        assert sum(map(len, clips)) == len(times)
        for number, clip in enumerate(clips):
            stop = start + len(clip)
            if first is None or number >= first[name]:
                seen = np.stack([np.asarray(frame) for frame in clip])
                wanted = [picture(take, start + index, times[start + index]) for index in range(len(clip))]
                assert np.array_equal(seen, wanted)
            start = stop
        if first is not None:
            first[name] = len(clips)
        if times:
            newest = times[-1] if newest is None else min(newest, times[-1])
    samples = [samples.reshape(-1) for samples, _ in row['sound']]
    heard = np.concatenate(samples) if samples else np.empty(0, np.int16)
    wanted = [sound(take, number) for number in range(len(heard) // 800 + 1)]
    assert np.array_equal(heard, np.concatenate(wanted)[: len(heard)])
    return newest


def deliver(episode, take, name):
    """Appends the items of a stream at its rate, without end."""
    due = time.monotonic()
    for number in itertools.count():
        now = time.monotonic()
        if name == 'sound':
            episode.append({name: sound(take, number)})
        else:
            item = joints(take, number, now) if name == 'joints' else picture(take, number, now)
            episode.append({name: item, f'{name}_time': now})
        if name == 'joints' and number % 100 == 50:
            episode.set({'mark': number})
        due += 1 / RATES[name]
        time.sleep(max(0.0, due - time.monotonic()))


def record(path, take):
    writer = bags.ShardedDatasetWriter(path, SPEC, metadata=FACTS, resume=True, partial_values={'take': -1})
    episode = writer.begin({'take': take}, flush=FLUSH, clip_seconds=CLIP)
    sys.stdout.write('begun\n')
    sys.stdout.flush()
    streams = [threading.Thread(target=deliver, args=(episode, take, name)) for name in RATES]
    for stream in streams:
        stream.start()
    for stream in streams:
        stream.join()


if __name__ == '__main__':
    record(sys.argv[1], int(sys.argv[2]))
