"""A LeRobot dataset of version 3 whose episodes share a video file, and whose video has few key frames."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

RATE, SIZE = 30, 256


def write_lerobot(root: Path, episodes: int, frames: int) -> None:
    """Writes episodes of a camera and a state of ten numbers, each of the same number of frames."""
    for folder in ('meta/episodes/chunk-000', 'data/chunk-000', 'videos/cam/chunk-000'):
        (root / folder).mkdir(parents=True)
    column = {'dtype': 'int64', 'shape': [1]}
    path = '{chunk_index:03d}/file-{file_index:03d}'
    info = {
        'codebase_version': 'v3.0',
        'fps': RATE,
        'features': {
            'cam': {'dtype': 'video', 'shape': [SIZE, SIZE, 3]},
            'state': {'dtype': 'float32', 'shape': [10]},
            'timestamp': {'dtype': 'float32', 'shape': [1]},
            **dict.fromkeys(('frame_index', 'episode_index', 'index', 'task_index'), column),
        },
        'data_path': f'data/chunk-{path}.parquet',
        'video_path': f'videos/{{video_key}}/chunk-{path}.mp4',
    }
    (root / 'meta/info.json').write_text(json.dumps(info))
    pq.write_table(pa.table({'task_index': [0], 'task': ['a']}), root / 'meta/tasks.parquet')
    parts = [f'{part}/{name}_index' for part in ('data', 'videos/cam') for name in ('chunk', 'file')]
    listed = [
        {
            'episode_index': number,
            'length': frames,
            'tasks': ['a'],
            **dict.fromkeys(parts, 0),
            'videos/cam/from_timestamp': number * frames / RATE,
            'videos/cam/to_timestamp': (number + 1) * frames / RATE,
        }
        for number in range(episodes)
    ]
    pq.write_table(pa.Table.from_pylist(listed), root / 'meta/episodes/chunk-000/file-000.parquet')
    rows = [
        {
            'state': [float(frame)] * 10,
            'timestamp': frame / RATE,
            'frame_index': frame,
            'episode_index': number,
            'index': number * frames + frame,
            'task_index': 0,
        }
        for number in range(episodes)
        for frame in range(frames)
    ]
    pq.write_table(pa.Table.from_pylist(rows), root / 'data/chunk-000/file-000.parquet')
    noise = np.random.default_rng(0).integers(0, 255, (SIZE + frames, SIZE, 3), np.uint8)
    with av.open(str(root / 'videos/cam/chunk-000/file-000.mp4'), 'w') as container:
        stream = container.add_stream('libx264', RATE, {'g': '10', 'preset': 'ultrafast'})
        stream.width = stream.height = SIZE
        stream.pix_fmt, stream.time_base = 'yuv420p', Fraction(1, RATE)
        for number in range(episodes * frames):
            first = number % frames  # The picture moves.
            frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(noise[first : first + SIZE]), 'rgb24')
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
