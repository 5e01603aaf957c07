"""Photos in a folder and WebDataset tars, adopted as links, beside PyTorch and webdataset; `--only adopt`."""

from __future__ import annotations

import io
import os
import tarfile
from collections.abc import Callable, Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import bags
from benchmarks import data, report
from benchmarks.links import pictures, size_of
from benchmarks.loaders import decode
from benchmarks.server import BUCKET, delayed, nginx, nginx_path
from benchmarks.timing import Candidate, Timing, time_interleaved, time_once

PHOTOS, TARS, SAMPLES, BATCH, LATENCY = 100_000, 200, 100, 64, 0.02
Epoch = Callable[[], Iterable[Any]]


def main(output: report.Report, *, quick: bool) -> None:
    """Prints a table for adopting each source, and for its epochs."""
    photos, tars = (PHOTOS // 50, TARS // 20) if quick else (PHOTOS, TARS)
    report.heading(f'Adopt: {photos:,} photos, and {tars} tars of {SAMPLES} datapoints')
    folder = data.cached(f'adopt-photos-{photos}', lambda path: write_photos(path, photos))
    index = data.scratch('adopt-photos')
    runs = {
        'read 512 bytes': lambda _: read_heads(folder),
        'adopted': lambda _: adopt(folder, index, layout='stems'),
    }
    once(output, 'adopt a photo', runs, photos)
    print(f'  {size_of(index) / photos:.0f} bytes a photo', flush=True)
    with bags.open(index, links=folder) as photos_of_bags:
        epochs: dict[str, Epoch] = {'adopted': lambda: bags.Loader(photos_of_bags, BATCH, workers=2)}
        if find_spec('torch'):
            epochs['DataLoader of files'] = lambda: files_of_torch(folder)
        timed(output, 'shuffled epoch of photos', epochs, photos)
        opening = {'adopted': Candidate(lambda _: bags.open(index), 1)}
        output.compare(
            'open photos', time_interleaved(opening, seconds=1, min_rounds=5), 'adopted', {}, unit='ms'
        )
    root = data.cached(f'adopt-tars-{tars}', lambda path: write_tars(path, tars))
    compare_tars(output, 'local', sorted(map(str, root.glob('*/*.tar'))), tars * SAMPLES)
    if nginx_path() is not None:
        with nginx(root) as url, delayed(url, LATENCY) as slow:
            urls = [f'{slow}/{BUCKET}/{number:04}.tar' for number in range(tars)]
            compare_tars(output, '20 ms a request', urls, tars * SAMPLES)


def compare_tars(output: report.Report, where: str, tars: list[str], count: int) -> None:
    """Times adopting tars, and epochs of them."""
    index = data.scratch('adopt-tars')
    once(output, f'adopt a datapoint of tars, {where}', {'adopted': lambda _: adopt(tars, index)}, count)
    with bags.open(index, links=True, raw=True) as adopted:
        for title, shuffled in (('epoch of tars, in order', False), ('shuffled epoch of tars', True)):
            epochs: dict[str, Epoch] = {
                'adopted': lambda shuffled=shuffled: bags.Loader(adopted, BATCH, shuffle=shuffled)  # type: ignore[misc]
            }
            if find_spec('webdataset'):
                epochs['webdataset'] = lambda shuffled=shuffled: webdataset_of(tars, shuffled)  # type: ignore[misc]
            timed(output, f'{title}, {where}', epochs, count)


def adopt(source: Any, index: Path, **options: Any) -> None:
    data.remove(index)
    bags.convert(source, index, link=True, progress=False, durability='none', **options)


def once(output: report.Report, title: str, runs: dict[str, Callable[[Any], object]], count: int) -> None:
    """Runs each candidate once; prints the time of each of `count` files or datapoints."""
    timings = {
        name: Timing(wall, cpu, wall)
        for name, run in runs.items()
        for wall, cpu in [time_once(Candidate(run, count))]
    }
    output.compare(title, timings, 'adopted', {})


def timed(output: report.Report, title: str, epochs: dict[str, Epoch], count: int) -> None:
    """Runs whole epochs once each."""
    once(
        output,
        title,
        {name: lambda _, epoch=epoch: sum(1 for _ in epoch()) for name, epoch in epochs.items()},
        count,
    )


def read_heads(folder: Path) -> int:
    """Reads what identifies each file, as the least that any library has to read."""
    size = 0
    for path, _, names in os.walk(folder):
        for name in names:
            with open(os.path.join(path, name), 'rb') as file:
                size += len(file.read(512))
    return size


def files_of_torch(folder: Path) -> Iterable[Any]:
    """Returns shuffled batches of decoded files, as programs with PyTorch read them."""
    from torch.utils.data import DataLoader

    paths = [os.path.join(path, name) for path, _, names in os.walk(folder) for name in names]
    return DataLoader(paths, BATCH, shuffle=True, num_workers=2, collate_fn=decode_files)  # type: ignore[arg-type]


def decode_files(paths: list[str]) -> list[Any]:
    return [decode(Path(path).read_bytes()) for path in paths]


def webdataset_of(tars: list[str], shuffled: bool) -> Iterable[Any]:
    """Returns the datapoints of tars, shuffled by tar and in a buffer of 1,000."""
    import webdataset

    urls = [each if each.startswith('/') else f'pipe:curl -s {each}' for each in tars]
    found = webdataset.WebDataset(urls, shardshuffle=len(urls) if shuffled else False)
    dataset: Iterable[Any] = found.shuffle(1000) if shuffled else found
    return dataset


# The sources.


def write_photos(path: Path, count: int) -> None:
    """Writes files of about 3 KB, a thousand in a folder."""
    images = pictures()
    for number in range(count):
        if number % 1000 == 0:
            (path / f'{number // 1000:04}').mkdir(parents=True)
        (path / f'{number // 1000:04}' / f'{number:08}.jpg').write_bytes(images[number % len(images)])


def write_tars(path: Path, count: int) -> None:
    """Writes tars of an image of 30 KB, which is padded, a text and a label."""
    images = [each + bytes(30_000 - len(each)) for each in pictures()]
    (path / BUCKET).mkdir(parents=True)
    for number in range(count):
        with tarfile.open(path / BUCKET / f'{number:04}.tar', 'w') as tar:
            for sample in range(number * SAMPLES, (number + 1) * SAMPLES):
                parts = {
                    'jpg': images[sample % len(images)],
                    'txt': b'text %d' % sample,
                    'cls': b'%d' % (sample % 9),
                }
                for extension, content in parts.items():
                    member = tarfile.TarInfo(f'{sample:08}.{extension}')
                    member.size = len(content)
                    tar.addfile(member, io.BytesIO(content))
