"""Durations of many recordings, by their headers; `--only durations`.

Locally: 1,000,000 FLAC in one bag, beside a loop of `os.pread` of 64 bytes of each. On an object store with
20 ms a request: 10,000 FLAC of a second of noise in one bag, and as links to 10,000 objects; the requests and
the bytes are from the log of the server. The peer is the bare client, which is given the ranges.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import bags
from bags.formats.audio import encode_flac
from bags.formats.flac import first_frame
from bags.streams.measure import measure
from benchmarks import data, report
from benchmarks.server import BUCKET, delayed, nginx, nginx_path
from benchmarks.timing import Candidate, time_interleaved

LOCAL, REMOTE, LATENCY = 1_000_000, 10_000, 0.02
PREAD_BYTES = 64
KEYS = {'key': 'a', 'secret': 'b'}
SPEC = {'mic': 'flac'}


def main(output: report.Report, *, quick: bool) -> None:
    """Prints a table for a local dataset, and one for each form of a remote one."""
    local, remote = (LOCAL // 10, REMOTE // 10) if quick else (LOCAL, REMOTE)
    report.heading(f'durations: {local:,} local FLAC, {remote:,} on S3 with {LATENCY * 1e3:g} ms a request')
    compare_local(output, local, quick)
    if nginx_path() is None:
        print('skipped S3: nginx is not installed')
        return
    compare_remote(output, remote, quick)


def recordings(length: int, count: int = 64) -> list[bytes]:
    """Returns FLACs of noise, of `length` samples and a few more, without the padding of 8 KB."""
    chance, files = np.random.default_rng(0), []
    for number in range(count):
        file = encode_flac((chance.integers(-9000, 9000, (length + number, 1), np.int16), 16_000))
        files.append(b'fLaC\x80' + file[5:42] + file[first_frame(file) :])
    return files


def compare_local(output: report.Report, count: int, quick: bool) -> None:
    """Times the durations of a local dataset beside a read of a few bytes of each record."""
    path = data.cached(f'durations-{count}', lambda path: write(path, recordings(200), count))
    rows = np.arange(count)
    with bags.open(path) as reader:
        bag = reader.open_field('mic').bag
        (ranges,) = bag.locate(range(count))
        starts = ranges.starts.tolist()
        assert measure(reader, rows, 'mic').fallbacks == 0

        def loop(_: Any) -> None:
            descriptor = os.open(bag.path, os.O_RDONLY)
            for start in starts:
                os.pread(descriptor, PREAD_BYTES, start)
            os.close(descriptor)

        candidates = {
            'bags': Candidate(lambda _: measure(reader, rows, 'mic'), count),
            f'loop of pread({PREAD_BYTES})': Candidate(loop, count),
        }
        timings = time_interleaved(candidates, seconds=2 if quick else 20)
    floors = {f'loop of pread({PREAD_BYTES})': 0.5}
    output.compare(f'durations of {count:,} FLAC in one bag', timings, 'bags', floors)


def compare_remote(output: report.Report, count: int, quick: bool) -> None:
    """Times the durations of datasets on an object store, and counts requests and bytes."""
    os.environ.update(
        AWS_ACCESS_KEY_ID='a',
        AWS_SECRET_ACCESS_KEY='b',
        AWS_DEFAULT_REGION='us-east-1',
        AWS_ALLOW_HTTP='true',
    )
    root = data.cached(f'durations-remote-{count}', lambda path: write_bucket(path / BUCKET, count))
    log = data.scratch('durations-log')
    with nginx(root, str(log)) as url, delayed(url, LATENCY) as slow:
        for name, title in (('flac', 'in one bag'), ('links', f'linked, {count:,} objects')):
            with contextlib.closing(opened(name, slow)) as reader, counted(log) as used:
                found = measure(reader, np.arange(count), 'mic')
            assert found.fallbacks == 0
            candidates = {'bags': Candidate(run_bags(count), count, lambda name=name: opened(name, slow))}
            if name == 'flac':
                candidates |= bare_client(slow, count)
            timings = time_interleaved(
                candidates, seconds=5 if quick else 60, min_rounds=2 if quick else 3, max_rounds=5
            )
            title = f'durations of {count:,} FLAC {title}, S3 with {LATENCY * 1e3:g} ms a request'
            output.compare(title, timings, 'bags', {}, unit='ms')
            more = {
                'requests': used[0] / count,
                'bytes': used[1] / count,
                'seconds': timings['bags'].wall * count,
            }
            output.collect(title, timings, 'bags', 'ms', **more)
            print(
                f'  {more["seconds"]:.1f} s in all; {more["requests"]:.2f} requests and {more["bytes"]:.0f} '
                'bytes a record, opening included',
                flush=True,
            )


def opened(name: str, url: str) -> Any:
    """Opens a dataset of the bucket, and reads what opening its bags takes."""
    reader = bags.open(
        f's3://{BUCKET}/{name}',
        storage_options={'endpoint_url': url, **KEYS},
        trust_links=f's3://{BUCKET}/files',
    )
    measure(reader, np.arange(1), 'mic')
    return reader


def run_bags(count: int) -> Callable[[Any], object]:
    def run(reader: Any) -> None:
        measure(reader, np.arange(count), 'mic')
        reader.close()

    return run


def bare_client(url: str, count: int) -> dict[str, Candidate]:
    """Returns reads of the same ranges with obstore alone."""
    try:
        import obstore
    except ImportError:
        return {}
    store = obstore.store.S3Store(
        BUCKET, endpoint=url, access_key_id='a', secret_access_key='b', region='us-east-1',
        virtual_hosted_style_request=False, client_options={'allow_http': True},
    )  # fmt: skip
    with contextlib.closing(opened('flac', url)) as dataset:
        bag = dataset.open_field('mic').bag
        (ranges,) = bag.locate(range(count))
        key = bag.path.partition(f'{BUCKET}/')[2]
    starts, ends = ranges.starts.tolist(), (ranges.starts + PREAD_BYTES).tolist()
    return {
        'obstore get_ranges': Candidate(
            lambda _: obstore.get_ranges(store, key, starts=starts, ends=ends, coalesce=0), count
        )
    }


@contextlib.contextmanager
def counted(log: Path) -> Iterator[list[int]]:
    """Yields a list that has the number of requests and of the bytes of answers after the block."""
    before = len(log.read_text().splitlines()) if log.exists() else 0
    used: list[int] = []
    yield used
    lines = log.read_text().splitlines()[before:]
    used += [len(lines), sum(int(line.split('"')[2].split()[1]) for line in lines)]


def write(path: Path, files: list[bytes], count: int) -> None:
    with bags.DatasetWriter(path, SPEC, durability='none') as writer:
        for number in range(count):
            writer.append({'mic': files[number % len(files)]})


def write_bucket(path: Path, count: int) -> None:
    """Writes recordings as one bag, and as files with links to them."""
    files = recordings(16_000)
    (path / 'files').mkdir(parents=True)
    for number in range(count):
        (path / 'files' / f'{number:06}.flac').write_bytes(files[number % len(files)])
    for name, linked in (('flac', ()), ('links', ('mic',))):
        with bags.ShardedDatasetWriter(
            path / name, SPEC, shard_length=count, linked_fields=linked, durability='none'
        ) as writer:
            for number in range(count):
                file = path / 'files' / f'{number:06}.flac'
                writer.append({'mic': bags.Link(file) if linked else files[number % len(files)]})
        bags.consolidate(path / name)
