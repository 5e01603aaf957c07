"""Stores a recording of a minute in two ways, and measures how much a random slice of each reads.

Run it with `python examples/recording.py [FOLDER [VIDEO]]`, with a video of your own if you have one.
"""

import contextlib
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

import bags
from bags.storage.range_file import RangeFile

FPS, SECONDS, HEIGHT, WIDTH = 25, 64, 180, 320
LENGTH = 16  # frames of a slice
SLICES = 40


def frames() -> Iterator[np.ndarray]:
    """Draws bouncing discs on a moving background, one frame of uint8 (180, 320, 3) at a time."""
    generator = np.random.default_rng(seed=0)
    size, speed = generator.uniform(10, 30, 5), generator.uniform(1, 5, (5, 2))
    colours = generator.integers(60, 256, (5, 3))
    y, x = np.mgrid[:HEIGHT, :WIDTH].astype(np.float32)
    ground = ((x // 16 + y // 16) % 2 * 40 + 60)[..., None].repeat(3, axis=2).astype(np.uint8)
    for number in range(FPS * SECONDS):
        frame = np.roll(ground, number, axis=1)
        for radius, (down, right), colour in zip(size, speed * number, colours, strict=True):
            # A triangle wave between the edges.
            top = abs((down + HEIGHT) % (2 * HEIGHT) - HEIGHT)
            left = abs((right + WIDTH) % (2 * WIDTH) - WIDTH)
            frame[(y - top) ** 2 + (x - left) ** 2 < radius**2] = colour
        yield frame


def record(path: Path) -> None:
    """Encodes the recording: an MP4 with a key frame at least every 32 frames."""
    with bags.encoders['mp4'](frames(), str(FPS)) as file, path.open('wb') as output:
        shutil.copyfileobj(file, output)


def author(path: Path, folder: Path) -> None:
    """Stores the recording twice: as one record, and as clips of 64 frames, which are copied, not encoded."""
    with bags.DatasetWriter(folder / 'whole', {'recording': 'video'}) as writer:
        writer.append({'recording': path})

    copied = []

    def clips() -> Iterator[bags.types.EncodedClip]:
        # One clip is in memory at a time, however long the recording is.
        for clip in bags.cut_clips(path, frames=64):
            copied.append(clip.copied)
            yield clip

    with bags.DatasetWriter(folder / 'clips', {'recording': 'mp4[]'}) as writer:
        writer.append({'recording': clips()})
    print(f'{len(copied)} clips: {sum(copied)} copied, {len(copied) - sum(copied)} encoded again')


@contextlib.contextmanager
def counted() -> Iterator[list[int]]:
    """Collects the sizes of reads from records."""
    sizes: list[int] = []
    read_at = RangeFile.read_at

    def counting(self: RangeFile, start: int, count: int | None) -> bytes:
        data = read_at(self, start, count)
        sizes.append(len(data))
        return data

    RangeFile.read_at = counting  # type: ignore[method-assign]
    try:
        yield sizes
    finally:
        RangeFile.read_at = read_at  # type: ignore[method-assign]


def measure(what: str, total: int, slices: list[Callable[[], np.ndarray]]) -> list[np.ndarray]:
    """Reads slices, and prints the time and the bytes of each."""
    with counted() as sizes:
        start = time.perf_counter()
        found = [read() for read in slices]
        elapsed = time.perf_counter() - start
    share = sum(sizes) / len(slices)
    print(f'{what:34}{1e3 * elapsed / len(slices):8.1f} ms{share / 1e3:10.1f} KB{share / total:9.2%}')
    return found


def main(folder: Path, path: Path | None = None) -> None:
    """Records, stores and reads."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    if path is None:
        path = folder / 'recording.mp4'
        record(path)
    author(path, folder)
    total = path.stat().st_size

    with bags.open(folder / 'whole') as whole, bags.open(folder / 'clips') as clips:
        video = whole[0]['recording']  # Lazy: it reads what is sliced.
        joined = clips.stream(0, 'recording')
        assert len(video) == len(joined)
        print(f'{len(video)} frames of {video.shape[1:]}, {video.duration:.0f} s, {total / 1e6:.1f} MB\n')

        generator = np.random.default_rng(seed=1)
        starts = generator.integers(len(video) - LENGTH, size=SLICES).tolist()
        print(f'{f"{SLICES} random slices of {LENGTH} frames":34}{"time":>11}{"read":>13}{"of all":>9}')
        one = measure('one video', total, [lambda s=s: video[s : s + LENGTH] for s in starts])
        many = measure('clips as one video', total, [lambda s=s: joined[s : s + LENGTH] for s in starts])
        asked = measure(
            'clips, by the reader',
            total,
            [lambda s=s: clips[0, {'recording': bags.frames(s, s + LENGTH)}]['recording'] for s in starts],
        )
        # As for training: each slice is a datapoint.
        view = clips.windows(every='recording', recording=bags.steps(0, LENGTH), padding='drop')
        windows = measure('windows', total, [lambda s=s: view[s]['recording'] for s in starts])
        measure('a frame at a time', total, [lambda s=s: video[s] for s in starts])
        measure('everything', total, [lambda: video[:]])
        forms = zip(one, many, asked, windows, strict=True)
        same = all(len({part.tobytes() for part in parts}) == 1 for parts in forms)
        print(f'\nthe pixels of all forms are {"the same" if same else "not the same: some were encoded"}')


if __name__ == '__main__':
    paths = [Path(argument) for argument in sys.argv[1:]] or [Path('out/recording')]
    main(*paths)
