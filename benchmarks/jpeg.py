"""Decoders for JPEG, side by side: milliseconds an image, and the largest difference to Pillow's pixels.

    python benchmarks/jpeg.py

Every decoder gets a memoryview, as from a reader. "2 threads" is the time of two images at once, divided
by two: the same as with one thread if the decoder holds the GIL, half of it with two idle cores. The images
are photographs of the examples, some of them scaled up.
"""

from __future__ import annotations

import importlib.metadata
import io
import threading
import time
from pathlib import Path

import numpy as np
from PIL import Image

from bags.dataset.format.registry import decoders
from bags.storage.range_file import BufferFile

DATA = Path(__file__).parents[1] / 'examples/data'


def encode(name, quality, size=None):
    image = Image.open(DATA / f'{name}.jpg')
    stream = io.BytesIO()
    (image.resize(size, Image.Resampling.LANCZOS) if size else image).save(stream, 'JPEG', quality=quality)
    return stream.getvalue()


def pictures():
    return {
        '512 x 512, quality 75': encode('astronaut', 75),
        '512 x 512, quality 95': encode('astronaut', 95),
        '600 x 400, quality 95': encode('coffee', 95),
        '1411 x 1411, quality 90': encode('retina', 90, (1411, 1411)),
        '3000 x 2000, quality 85': encode('temple', 85, (3000, 2000)),
        '3000 x 2000, quality 95': encode('temple', 95, (3000, 2000)),
    }


def pillow(data):
    return np.array(Image.open(io.BytesIO(data)))


def pillow_view(data):
    return np.array(Image.open(BufferFile(data)))


def simplejpeg():
    import simplejpeg

    return simplejpeg.decode_jpeg


def turbojpeg():
    import turbojpeg

    decoder = turbojpeg.TurboJPEG()
    return lambda data: decoder.decode(data, pixel_format=turbojpeg.TJPF_RGB)


def imagecodecs():
    import imagecodecs

    return imagecodecs.jpeg8_decode


def opencv():
    import cv2

    flags = cv2.IMREAD_COLOR_RGB | cv2.IMREAD_IGNORE_ORIENTATION
    return lambda data: cv2.imdecode(np.frombuffer(data, np.uint8), flags)


def pyav():
    import av

    def decode(data):
        frames = av.CodecContext.create('mjpeg', 'r').decode(av.Packet(data))
        return frames[0].to_ndarray(format='rgb24')

    return decode


CANDIDATES = {
    'bags': lambda: decoders['jpeg'],
    'simplejpeg': simplejpeg,
    'Pillow, BytesIO': lambda: pillow,
    'Pillow, BufferFile': lambda: pillow_view,
    'imagecodecs': imagecodecs,
    'opencv': opencv,
    'PyTurboJPEG': turbojpeg,
    'av': pyav,
}


def seconds(decode, data, threads):
    """Returns the seconds an image in the fastest of five rounds of about 0.2 s."""

    def work(count):
        for _ in range(count):
            decode(data)

    start = time.perf_counter()
    work(2)
    count = max(2, int(0.2 / (time.perf_counter() - start)))
    best = float('inf')
    for _ in range(5):
        workers = [threading.Thread(target=work, args=(count,)) for _ in range(threads)]
        start = time.perf_counter()
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        best = min(best, (time.perf_counter() - start) / count / threads)
    return best


def main():
    found = {}
    for name, make in CANDIDATES.items():
        try:
            found[name] = make()
        except (ImportError, RuntimeError) as exc:
            print(f'{name} is left out: {str(exc).splitlines()[0]}')
    for package in ('pillow', 'simplejpeg', 'imagecodecs', 'opencv-python-headless', 'av'):
        try:
            print(package, importlib.metadata.version(package), end='  ')
        except importlib.metadata.PackageNotFoundError:
            continue
    print()
    for title, data in pictures().items():
        view = memoryview(data)
        expected = pillow(data)
        print(
            f'\n{title}, {len(data) // 1000} KB\n{"":20}{"1 thread":>10}{"2 threads":>11}{"difference":>12}'
        )
        for name, decode in found.items():
            difference = np.abs(decode(view).astype(int) - expected).max()
            one, two = (1000 * seconds(decode, view, threads) for threads in (1, 2))
            print(f'{name:20}{one:10.2f}{two:11.2f}{difference:12}')


if __name__ == '__main__':
    main()
