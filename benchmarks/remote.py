"""Object stores: random records and epochs, with latency and without, beside peers and bare clients."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import bags
from benchmarks import data, report
from benchmarks.server import BUCKET, delayed, nginx, nginx_path
from benchmarks.timing import Candidate, time_interleaved

LATENCY = 0.02
GATHER = 1024
RECORDS, SIZE = 20_000, 30_000
ROWS = 4_000
SHARDS = 8
KEYS = {'key': 'a', 'secret': 'b'}
RAW = {'bags': 'obstore get_ranges', 'bags with s3fs': 's3fs cat_ranges'}
"""The client that each reader of records has underneath."""
SPEC = {'id': 'int(8)', 'text': 'utf8', 'vector': 'array(float32,256)', 'blob': 'bytes'}


def main(output: report.Report, *, quick: bool) -> None:
    """Prints a table for records and one for epochs, with latency and without."""
    report.heading('remote: S3 requests to nginx on loopback')
    if nginx_path() is None:
        print('skipped: nginx is not installed')
        return
    os.environ.update(
        AWS_ACCESS_KEY_ID='a',
        AWS_SECRET_ACCESS_KEY='b',
        AWS_DEFAULT_REGION='us-east-1',
        AWS_ALLOW_HTTP='true',
    )
    root = data.directory() / 'remote'
    prepare(root / BUCKET)
    with nginx(root) as url, delayed(url, LATENCY) as slow:
        for address, name, floor in (
            (slow, f'{LATENCY * 1e3:g} ms a request', 1.0),
            (url, 'no latency', 0.8),
        ):
            timings = measure(records(root, address), quick)
            for ours, raw in RAW.items():
                pair = {label: timings[label] for label in (ours, raw) if label in timings}
                title = f'{GATHER} random records of 30 KB with {raw.split()[0]}, {name}'
                output.compare(title, pair, ours, {raw: floor}, unit='ms')
            title, floors = f'epoch of {ROWS} rows of 4 fields, {name}', dict.fromkeys(PEERS, 1.0)
            output.compare(title, measure(epochs(address), quick), 'bags', floors, unit='ms')


def measure(candidates: dict[str, Candidate], quick: bool) -> dict[str, Any]:
    return time_interleaved(
        candidates, seconds=2 if quick else 20, min_rounds=2 if quick else 5, max_rounds=11
    )


def row(number: int) -> dict[str, Any]:
    """Returns a datapoint of 4 fields, 30 KB in all."""
    chance = np.random.default_rng(number)
    return {
        'id': number,
        'text': f'a text of number {number} ' * (1 + number % 8),
        'vector': chance.random(256, np.float32),
        'blob': chance.bytes(29_000),
    }


# Writing the datasets.


def prepare(folder: Path) -> None:
    """Writes the datasets that do not exist yet."""
    folder.mkdir(parents=True, exist_ok=True)
    writers: dict[str, tuple[str, Callable[[Path], None]]] = {
        'records.bag': ('bags', write_records),
        'bags': ('bags', write_bags),
        'mds': ('streaming', write_mds),
        'litdata': ('litdata', write_litdata),
        'webdataset': ('webdataset', write_webdataset),
    }
    for name, (module, write) in writers.items():
        if importlib.util.find_spec(module) and not (folder / name).exists():
            target = folder / f'{name}.new'
            shutil.rmtree(target, ignore_errors=True)
            write(target)
            target.rename(folder / name)


def write_records(path: Path) -> None:
    path.unlink(missing_ok=True)
    with bags.bag.Writer(path, compression='none') as writer:
        for number in range(RECORDS):
            writer.write(np.random.default_rng(number).bytes(SIZE))


def write_bags(path: Path) -> None:
    with bags.ShardedDatasetWriter(path, SPEC, shard_length=-(-ROWS // SHARDS)) as writer:
        for number in range(ROWS):
            writer.append(row(number))
    bags.consolidate(path)


def write_mds(path: Path) -> None:
    from streaming import MDSWriter

    columns = {'id': 'int', 'text': 'str', 'vector': 'ndarray:float32:256', 'blob': 'bytes'}
    with MDSWriter(out=str(path), columns=columns, size_limit=1 << 24) as writer:
        for number in range(ROWS):
            writer.write(row(number))


def write_litdata(path: Path) -> None:
    from litdata.streaming import Cache

    path.mkdir()
    cache = Cache(str(path), chunk_bytes=1 << 24)
    for number in range(ROWS):
        cache[number] = {**row(number), 'vector': row(number)['vector']}
    cache.done()
    cache.merge()


def write_webdataset(path: Path) -> None:
    import webdataset

    path.mkdir()
    with webdataset.ShardWriter(str(path / '%06d.tar'), maxcount=-(-ROWS // SHARDS), verbose=0) as sink:
        for number in range(ROWS):
            one = row(number)
            fields = {'id': one['id'], 'txt': one['text'], 'npy': one['vector'], 'bin': one['blob']}
            sink.write({'__key__': f'{number:06}', **fields})


# Random records.


def records(root: Path, url: str) -> dict[str, Candidate]:
    """Reads records of one open bag; the bare clients are given the byte ranges."""
    path, key = f's3://{BUCKET}/records.bag', 'records.bag'
    limits = bags.bag.Reader(root / BUCKET / key)
    size = len(limits[0])

    def places() -> tuple[list[int], list[int], list[int]]:
        chosen = np.random.default_rng().integers(0, RECORDS, GATHER)
        return chosen.tolist(), (chosen * size).tolist(), ((chosen + 1) * size).tolist()

    found: dict[str, Candidate] = {}
    for client in ('obstore', 'fsspec'):
        options = {'endpoint_url': url, 'client': client, **KEYS}
        reader = bags.bag.Reader(path, storage_options=options, limits_storage='in_memory')
        check = reader.read_indices([5])[0]
        assert check == limits[5]
        name = 'bags' if client == 'obstore' else 'bags with s3fs'
        found[name] = Candidate(lambda chosen, reader=reader: reader.read_indices(chosen[0]), GATHER, places)
    with contextlib.suppress(ImportError):
        import obstore

        store = obstore.store.S3Store(
            BUCKET, endpoint=url, access_key_id='a', secret_access_key='b', region='us-east-1',
            virtual_hosted_style_request=False, client_options={'allow_http': True},
        )  # fmt: skip

        def get_ranges(chosen: Any) -> object:
            return obstore.get_ranges(store, key, starts=chosen[1], ends=chosen[2], coalesce=0)

        found['obstore get_ranges'] = Candidate(get_ranges, GATHER, places)
    with contextlib.suppress(ImportError):
        import s3fs

        system = s3fs.S3FileSystem(endpoint_url=url, **KEYS, skip_instance_cache=True)
        full = f'{BUCKET}/{key}'
        found['s3fs cat_ranges'] = Candidate(
            lambda chosen: system.cat_ranges([full] * GATHER, chosen[1], chosen[2]), GATHER, places
        )
    return found


# Epochs.


def epochs(url: str) -> dict[str, Candidate]:
    """Reads all rows once, opening included, with an empty cache."""
    installed = {name: importlib.util.find_spec(module) is not None for name, module in PEERS.items()}
    return {
        name: Candidate(lambda folder, run=run: run(url, folder), ROWS, tempfile.mkdtemp, shutil.rmtree)
        for name, run in EPOCHS.items()
        if installed.get(name, True)
    }


def run_bags(url: str, _folder: str) -> None:
    options = {'endpoint_url': url, **KEYS}
    with contextlib.closing(bags.open(f's3://{BUCKET}/bags', storage_options=options)) as reader:
        count = sum(len(batch['id']) for batch in bags.Loader(reader, 64, shuffle=False, epochs=1))
    assert count >= ROWS  # The last batch is padded.


def run_streaming(url: str, folder: str) -> None:
    from streaming import StreamingDataset
    from streaming.base.util import clean_stale_shared_memory

    os.environ['S3_ENDPOINT_URL'] = url
    clean_stale_shared_memory()
    remote = f's3://{BUCKET}/mds'
    dataset = StreamingDataset(remote=remote, local=f'{folder}/mds', shuffle=False, batch_size=64)
    assert sum(1 for _ in dataset) == ROWS


def run_litdata(url: str, folder: str) -> None:
    from litdata import StreamingDataset
    from litdata.streaming import downloader

    # By default the client only speaks TLS.
    vars(downloader)['_OBSTORE_CLIENT_OPTIONS']['allow_http'] = True
    dataset = StreamingDataset(
        f's3://{BUCKET}/litdata',
        cache_dir=folder,
        storage_options={
            'endpoint_url': url,
            'aws_access_key_id': 'a',
            'aws_secret_access_key': 'b',
        },
    )
    assert sum(1 for _ in dataset) == ROWS


def run_webdataset(url: str, _folder: str) -> None:
    import webdataset

    names = f'pipe:curl -s {url}/{BUCKET}/webdataset/{{000000..{SHARDS - 1:06}}}.tar'
    assert sum(1 for _ in webdataset.WebDataset(names, shardshuffle=False).decode()) == ROWS


PEERS = {'MosaicML Streaming': 'streaming', 'LitData': 'litdata', 'WebDataset': 'webdataset'}
EPOCHS = {
    'bags': run_bags,
    'MosaicML Streaming': run_streaming,
    'LitData': run_litdata,
    'WebDataset': run_webdataset,
}
