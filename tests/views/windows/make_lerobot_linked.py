"""Writes `tests/golden/lerobot_linked`: LeRobot 3 datasets and what LeRobot's class returns of them.

    make .venv-adapters/ready
    .venv-adapters/bin/python -m tests.views.windows.make_lerobot_linked

Each dataset has many episodes in one video file a camera. The golden ones are recorded by LeRobot; those of
`VARIANTS` have videos that are encoded again as a whole, so that episodes begin between key frames.
"""

import shutil
from pathlib import Path

import numpy as np

GOLDEN = Path(__file__).parents[2] / 'golden' / 'lerobot_linked'
RATE, HEIGHT, WIDTH = 10, 64, 64
EPISODES = (9, 5, 12, 7)
"""Frames of each."""
CAMERAS = 'observation.images.front', 'observation.images.wrist'
DELTAS = {
    'observation.images.front': [-0.2, 0.0],
    'observation.images.wrist': [0.0],
    'observation.state': [-0.3, -0.1, 0.0],
    'action': [0.0, 0.1, 0.2, 0.3],
}
"""Seconds from each frame, as `delta_timestamps`."""
CODECS = {'h264': {}, 'hevc': {'x265-params': 'log-level=none:open-gop=0'}, 'libsvtav1': {}}
"""Those that LeRobot records, with further options: its reader does not find frames of open groups."""
VARIANTS = {
    'h264, B-frames': ('libx264', {'g': '60', 'bf': '3', 'x264-params': 'b-adapt=0:scenecut=0'}),
    'h264, open groups': ('libx264', {'bf': '3', 'x264-params': 'keyint=12:open-gop=1:b-adapt=0'}),
    'hevc': ('libx265', {'x265-params': 'log-level=none:keyint=50:bframes=3:open-gop=0'}),
    'vp9': ('libvpx-vp9', {'g': '30', 'deadline': 'realtime', 'cpu-used': '8'}),
    'av1, long groups': ('libsvtav1', {'g': '100', 'preset': '12'}),
}


def picture(camera, episode, frame):
    """Returns a frame of four bands, with a mark that moves, uint8 (height, width, 3)."""
    bands = np.arange(4)[:, None] * [30, -20, 10] + [40 + 6 * frame, 120 - 5 * frame, 60 + 40 * camera]
    image = np.repeat(bands, HEIGHT // 4, 0)[:, None].repeat(WIDTH, 1).astype(np.uint8)
    top, left = 8 * episode % (HEIGHT - 8), 4 * frame % (WIDTH - 8)
    image[top : top + 8, left : left + 8] = 250, 80 * camera, 20
    return image


def numbers(episode, count):
    """Returns states and actions, float32 (count, 3) and (count, 2)."""
    frames = 100 * episode + np.arange(count, dtype=np.float32)[:, None]
    return frames + np.array([0, 0.25, 0.5], np.float32), 3 * frames + np.array([0, 1], np.float32)


def options_of(codec):
    """Returns the option of LeRobot's class that chooses a codec, which 0.5 has renamed."""
    try:
        from lerobot.configs.video import RGBEncoderConfig
    except ImportError:
        return {'vcodec': codec}
    return {'rgb_encoder': RGBEncoderConfig(vcodec=codec)}


def record(root, codec, lengths=EPISODES):
    """Records a dataset with LeRobot."""
    from lerobot.datasets.lerobot_dataset import LeRobotDataset

    image = {'dtype': 'video', 'shape': (HEIGHT, WIDTH, 3), 'names': ['height', 'width', 'channels']}
    features = {
        **dict.fromkeys(CAMERAS, image),
        'observation.state': {'dtype': 'float32', 'shape': (3,), 'names': None},
        'action': {'dtype': 'float32', 'shape': (2,), 'names': None},
    }
    dataset = LeRobotDataset.create('golden/sample', RATE, features, root, **options_of(codec))
    add_episodes(dataset, lengths, 0)
    dataset.finalize()


def add_episodes(dataset, lengths, first):
    """Records episodes, from the number `first` on."""
    for episode, count in enumerate(lengths, first):
        states, actions = numbers(episode, count)
        for frame in range(count):
            images = {name: picture(camera, episode, frame) for camera, name in enumerate(CAMERAS)}
            dataset.add_frame({
                **images, 'observation.state': states[frame], 'action': actions[frame],
                'task': f'task {episode % 2}',
            })  # fmt: skip
        dataset.save_episode()


def encode_again(root, codec, options):
    """Encodes the video files of a dataset again, each as a whole."""
    import av

    for path in sorted(root.glob('videos/*/*/*.mp4')):
        with av.open(path) as container:
            frames = [frame.to_ndarray(format='rgb24') for frame in container.decode(video=0)]
        with av.open(path, 'w') as container:
            stream = container.add_stream(codec, RATE, options=options)
            stream.width, stream.height, stream.pix_fmt = WIDTH, HEIGHT, 'yuv420p'
            for image in frames:
                container.mux(stream.encode(av.VideoFrame.from_ndarray(image, format='rgb24')))
            container.mux(stream.encode(None))


def read(root):
    """Returns what LeRobot's class has for each frame: values at `DELTAS` and their `is_pad`, by name."""
    from lerobot.datasets.lerobot_dataset import LeRobotDataset

    dataset = LeRobotDataset('golden/sample', root, delta_timestamps=DELTAS, video_backend='pyav')
    samples = [dataset[index] for index in range(len(dataset))]
    columns = {
        name: np.stack([np.asarray(sample[name]) for sample in samples])
        for key in DELTAS
        for name in (key, f'{key}_is_pad')
    }
    for name in CAMERAS:  # Of one time, LeRobot leaves out the axis.
        found = columns[name].reshape(len(dataset), len(DELTAS[name]), 3, HEIGHT, WIDTH)
        images = np.rint(found * 255).astype(np.uint8)
        assert np.array_equal(images.astype(np.float32) / 255, found)
        columns[name] = np.moveaxis(images, 2, -1)
    places = [[int(sample['episode_index']), int(sample['frame_index'])] for sample in samples]
    return {**columns, 'places': np.array(places), 'tasks': np.array([sample['task'] for sample in samples])}


def make_smaller(root):
    """Removes statistics, which most of the bytes are."""
    import pyarrow.parquet as pq

    (root / 'meta' / 'stats.json').unlink()
    for path in root.glob('meta/episodes/*/*.parquet'):
        table = pq.read_table(path)
        kept = [name for name in table.column_names if not name.startswith('stats/')]
        pq.write_table(table.select(kept).replace_schema_metadata(), path)


def main():
    """Writes the golden files."""
    from lerobot.datasets import video_utils

    shutil.rmtree(GOLDEN, ignore_errors=True)
    options_of = video_utils._get_codec_options
    video_utils._get_codec_options = lambda codec, *args: options_of(codec, *args) | CODECS[codec]
    for codec in CODECS:
        record(GOLDEN / codec, codec)
        np.savez_compressed(GOLDEN / f'{codec}.npz', **read(GOLDEN / codec))
        make_smaller(GOLDEN / codec)


if __name__ == '__main__':
    import tests.lerobot.recordings  # noqa: F401 - imports lerobot without what torchvision lacks.

    main()
