"""Photos, WebDataset tars and a LeRobot dataset, linked in place, beside their peers; `--only linking`.

`python -m benchmarks.linking photos 1000000`, `tars 1000`, `episodes 60` or `tokens 10000000` links as many,
once.
"""

from __future__ import annotations

import argparse
import io
import os
import resource
import tarfile
import time
from collections.abc import Callable, Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

import bags
from bags.interop.targets.megatron_index import HEADER, MAGIC, VERSION
from benchmarks import data, report
from benchmarks.lerobot import write_lerobot
from benchmarks.links import pictures, size_of
from benchmarks.loaders import decode
from benchmarks.server import BUCKET, delayed, nginx, nginx_path
from benchmarks.timing import Candidate, time_alternating, time_interleaved

PHOTOS, TARS, SAMPLES, BATCH, LATENCY, ROUNDS = 100_000, 200, 100, 64, 0.02, 3
EPISODES, FRAMES, WINDOWS = 60, 200, 1_500


def main(output: report.Report, *, quick: bool) -> None:
    """Prints a table for linking each source, and for its epochs."""
    photos, tars, episodes = (PHOTOS // 50, TARS // 20, EPISODES // 10) if quick else (PHOTOS, TARS, EPISODES)
    report.heading(f'Linking: {photos:,} photos, {tars} tars of {SAMPLES} datapoints, {episodes} episodes')
    folder = data.cached(f'linking-photos-{photos}', lambda path: write_photos(path, photos))
    index = data.scratch('linking-photos')
    runs = {
        'linked': lambda: link_source(folder, index, layout='stems'),
        'PIL opens it': lambda: open_with_pillow(folder),
        'read 512 bytes': lambda: read_heads(folder),
    }
    compare(output, 'link a photo', runs, photos, {'PIL opens it': 0.5})
    print(f'  {size_of(index) / photos:.0f} bytes a photo', flush=True)
    with bags.open(index, trust_links=folder) as photos_of_bags:
        epochs = {'linked': lambda: count(bags.Loader(photos_of_bags, BATCH, workers=2))}
        if find_spec('torch'):
            epochs['DataLoader of files'] = lambda: count(files_of_torch(folder))
        compare(output, 'shuffled epoch of photos', epochs, photos, {})
        opening = {'linked': Candidate(lambda _: bags.open(index), 1)}
        output.compare(
            'open photos', time_interleaved(opening, seconds=1, min_rounds=5), 'linked', {}, unit='ms'
        )
    root = data.cached(f'linking-tars-{tars}', lambda path: write_tars(path, tars))
    local = sorted(map(str, root.glob('*/*.tar')))
    compare_tars(output, 'local', local, local, {}, {})
    if nginx_path() is not None:
        with nginx(root) as url, delayed(url, LATENCY) as slow:
            ours = [f's3://{BUCKET}/{number:04}.tar' for number in range(tars)]
            theirs = [f'{slow}/{BUCKET}/{number:04}.tar' for number in range(tars)]
            options = {'endpoint_url': slow, 'key': 'a', 'secret': 'b'}
            compare_tars(output, '20 ms a request', ours, theirs, options, {'webdataset': 1})
    compare_episodes(output, episodes)


def compare_tars(
    output: report.Report,
    where: str,
    tars: list[str],
    urls: list[str],
    options: dict[str, Any],
    floors: dict[str, float],
) -> None:
    """Times linking tars, and epochs of them; `urls`: those of `webdataset`."""
    index, total = data.scratch('linking-tars'), len(tars) * SAMPLES
    runs = {'linked': lambda: link_source(tars, index, source_options=options or None)}
    compare(output, f'link a datapoint of tars, {where}', runs, total, {}, rounds=1)
    storage = {f's3://{BUCKET}': options} if options else None
    with bags.open(index, trust_links=True, raw=True, storage_options=storage) as linked:
        for title, shuffled in (('epoch of tars in order', False), ('shuffled epoch of tars', True)):
            epochs = {'linked': lambda shuffled=shuffled: count(bags.Loader(linked, BATCH, shuffle=shuffled))}
            if find_spec('webdataset'):
                epochs['webdataset'] = lambda shuffled=shuffled: count(webdataset_of(urls, shuffled))
            compare(output, f'{title}, {where}', epochs, total, floors)


def compare_episodes(output: report.Report, episodes: int) -> None:
    """Times linking a LeRobot dataset of one video file, and windows of it, beside a copy."""
    root = data.cached(f'linking-lerobot-{episodes}', lambda path: write_lerobot(path, episodes, FRAMES))
    paths = {name: data.scratch(f'linking-lerobot-{name}') for name in ('linked', 'copied')}
    runs = {
        'linked': lambda: link_source(root, paths['linked']),
        'copied': lambda: link_source(root, paths['copied'], link=False),
    }
    compare(output, 'link an episode of LeRobot 3', runs, episodes, {})
    opened = {name: bags.open(path, trust_links=root) for name, path in paths.items()}
    windows = {
        name: reader.windows(every='state', cam=bags.steps(0, 2), padding='drop')
        for name, reader in opened.items()
    }
    step = max(1, len(windows['copied']) // WINDOWS)
    for title, shuffled in (
        ('window of two frames, in order', False),
        ('window of two frames, shuffled', True),
    ):
        epochs = {
            name: lambda view=view, shuffled=shuffled: count(
                bags.Loader(view[::step] if shuffled else view[:WINDOWS], 8, shuffle=shuffled)
            )
            for name, view in windows.items()
        }
        compare(output, title, epochs, min(WINDOWS, len(windows['copied'])), {})
    for reader in opened.values():
        reader.close()


def link_source(source: Any, index: Path, **options: Any) -> None:
    data.remove(index)
    bags.convert(source, index, progress=False, durability='none', **{'link': True, **options})


def compare(
    output: report.Report,
    title: str,
    runs: dict[str, Callable[[], object]],
    total: int,
    floors: dict[str, float],
    *,
    rounds: int = ROUNDS,
) -> None:
    """Runs each candidate in alternation; prints the time of each of `total` files or datapoints."""
    candidates = {name: Candidate(lambda _, run=run: run(), total) for name, run in runs.items()}
    output.compare(title, time_alternating(candidates, rounds), 'linked', floors)


def count(batches: Iterable[Any]) -> int:
    """Reads all batches."""
    return sum(1 for _ in batches)


def open_with_pillow(folder: Path) -> int:
    """Reads the size of each picture from its header with PIL."""
    from PIL import Image

    width = 0
    for path, _, names in os.walk(folder):
        for name in names:
            with Image.open(os.path.join(path, name)) as picture:
                width += picture.size[0]
    return width


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


def write_tokens(path: Path, count: int) -> None:
    """Writes an index of Megatron of documents of 600 tokens on average, over a sparse file of zeros."""
    lengths = np.random.default_rng(0).integers(0, 1200, count).astype('<i4')
    stops = np.cumsum(lengths, dtype='<i8') * 2
    path.mkdir(parents=True)
    with open(path / 'data.bin', 'wb') as file:
        file.truncate(int(stops[-1]))
    with open(path / 'data.idx', 'wb') as file:
        file.write(HEADER.pack(MAGIC, VERSION, 8, count, count + 1))
        for table in (lengths, stops - 2 * lengths.astype('<i8'), np.arange(count + 1, dtype='<i8')):
            table.tofile(file)


# Linking very many.


def measure(source: str, number: int) -> None:
    """Links files, episodes or tokens of the benchmarks, or tars 20 ms away; prints what that costs."""
    index = data.scratch(f'linking-{source}')
    if source == 'tokens':
        folder = data.cached(f'linking-tokens-{number}', lambda path: write_tokens(path, number))
        print_cost(number, index, lambda: link_source(folder / 'data.bin', index))
        return
    if source == 'episodes':
        folder = data.cached(f'linking-lerobot-{number}', lambda path: write_lerobot(path, number, FRAMES))
        print_cost(number, index, lambda: link_source(folder, index))
        return
    if source == 'photos':
        folder = data.cached(f'linking-photos-{number}', lambda path: write_photos(path, number))
        print_cost(number, index, lambda: link_source(folder, index, layout='stems'))
        return
    root = data.cached(f'linking-tars-{TARS}', lambda path: write_tars(path, TARS))
    log = root.parent / 'linking-requests.log'
    with nginx(root, str(log)) as url, delayed(url, LATENCY) as slow:
        options = {'endpoint_url': slow, 'key': 'a', 'secret': 'b'}
        for tar in range(TARS, number):  # A name that is given twice is linked once.
            if not (path := root / BUCKET / f'{tar:04}.tar').exists():
                os.link(root / BUCKET / f'{tar % TARS:04}.tar', path)
        tars = [f's3://{BUCKET}/{tar:04}.tar' for tar in range(number)]
        print_cost(number * SAMPLES, index, lambda: link_source(tars, index, source_options=options))
    answers = [line.split('"')[2].split() for line in log.read_text().splitlines()]
    print(f'{len(answers):,} requests, {sum(int(size) for _, size in answers) / 1e6:,.0f} MB of answers')


def print_cost(total: int, index: Path, run: Callable[[], object]) -> None:
    wall, cpu = time.perf_counter(), time.process_time()
    run()
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    size = size_of(index)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    print(
        f'{total:,} datapoints: {wall:.1f} s, {cpu:.1f} s of processor; {size / total:.0f} bytes each; '
        f'peak of memory: {peak} MiB'
    )


if __name__ == '__main__':
    parser = argparse.ArgumentParser(description=measure.__doc__)
    parser.add_argument('source', choices=('photos', 'tars', 'episodes', 'tokens'))
    parser.add_argument('number', type=int)
    arguments = parser.parse_args()
    measure(arguments.source, arguments.number)
