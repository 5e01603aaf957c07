"""Imports of other formats, beside one iteration over the same data with the format's own library.

A datapoint has an integer, a text of 100 characters, a vector of 256 float32, and a JPEG of 30 KB. Peak
memory is that of a process which imports, for a source and one four times as large; sizes are those of the
source and of the dataset.

    python -m benchmarks.imports [--quick]
"""

from __future__ import annotations

import argparse
import io
import itertools
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import bags
from benchmarks.report import Report
from benchmarks.timing import Candidate, time_interleaved

SIDE = 176  # Of an image, so that its JPEG has 30 KB.
COUNTS = (2_000, 8_000)


def samples(count: int) -> Iterator[dict[str, Any]]:
    from PIL import Image

    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 255, (SIDE, SIDE, 3)).astype(np.uint8)
    for index in range(count):
        file = io.BytesIO()
        # Distinct images: Parquet stores equal values once.
        Image.fromarray(np.roll(pixels, index)).save(file, 'JPEG', quality=90)
        jpeg = file.getvalue()
        yield {'id': index, 'text': f'{index:0100}', 'vector': rng.random(256, np.float32), 'jpeg': jpeg}


def write_webdataset(path: Path, count: int) -> None:
    import webdataset

    with webdataset.TarWriter(str(path)) as writer:
        for each in samples(count):
            writer.write({
                '__key__': f'{each["id"]:06}', 'cls': each['id'], 'txt': each['text'], 'npy': each['vector'],
                'jpg': each['jpeg'],
            })  # fmt: skip


def read_webdataset(path: Path) -> int:
    import webdataset

    return sum(1 for _ in webdataset.WebDataset(str(path), shardshuffle=False).decode())


def write_mds(path: Path, count: int) -> None:
    from streaming import MDSWriter

    columns = {'id': 'int', 'text': 'str', 'vector': 'ndarray:float32:256', 'jpeg': 'jpeg'}
    with MDSWriter(out=str(path), columns=columns) as writer:
        for each in samples(count):
            writer.write(each)


def read_mds(path: Path) -> int:
    from streaming import LocalDataset

    return sum(1 for _ in LocalDataset(str(path)))


def write_litdata(path: Path, count: int) -> None:
    from litdata.streaming.cache import Cache

    cache = Cache(str(path), chunk_bytes='64MB')
    for index, each in enumerate(samples(count)):
        cache[index] = each
    cache.done()
    cache.merge()


def read_litdata(path: Path) -> int:
    import litdata

    return sum(1 for _ in litdata.StreamingDataset(str(path)))


def write_tfrecord(path: Path, count: int) -> None:
    from tfrecord import TFRecordWriter

    writer = TFRecordWriter(str(path))
    for each in samples(count):
        writer.write({
            'id': (each['id'], 'int'), 'text': (each['text'].encode(), 'byte'),
            'vector': (each['vector'].tolist(), 'float'), 'jpeg': (each['jpeg'], 'byte'),
        })  # fmt: skip
    writer.close()


def read_tfrecord(path: Path) -> int:
    from tfrecord.reader import tfrecord_loader

    return sum(1 for _ in tfrecord_loader(str(path), None))


def write_array_record(path: Path, count: int) -> None:
    import msgpack
    from array_record.python.array_record_module import ArrayRecordWriter

    writer = ArrayRecordWriter(str(path), 'group_size:1')
    for each in samples(count):
        writer.write(msgpack.packb(each | {'vector': each['vector'].tobytes()}))
    writer.close()


def read_array_record(path: Path) -> int:
    import msgpack
    from array_record.python.array_record_data_source import ArrayRecordDataSource

    with ArrayRecordDataSource([str(path)]) as source:
        return sum(1 for index in range(len(source)) if msgpack.unpackb(source[index]))


def write_bagz(path: Path, count: int) -> None:
    import bagz
    import msgpack

    with bagz.Writer(str(path)) as writer:
        for each in samples(count):
            writer.write(msgpack.packb(each | {'vector': each['vector'].tobytes()}))


def read_bagz(path: Path) -> int:
    import bagz
    import msgpack

    return sum(1 for record in bagz.Reader(str(path)) if msgpack.unpackb(record))


def write_parquet(path: Path, count: int) -> None:
    import pyarrow as pa
    from pyarrow.parquet import ParquetWriter

    schema = pa.schema({
        'id': pa.int64(), 'text': pa.string(), 'vector': pa.list_(pa.float32(), 256), 'jpeg': pa.binary()
    })  # fmt: skip
    with ParquetWriter(str(path), schema) as writer:
        rows = samples(count)
        while group := list(itertools.islice(rows, 100)):
            writer.write_table(pa.Table.from_pylist(group, schema))


def read_parquet(path: Path) -> int:
    from pyarrow.parquet import ParquetFile

    return sum(len(batch.to_pylist()) for batch in ParquetFile(str(path)).iter_batches(100))


FORMATS: dict[str, tuple[str, Callable[[Path, int], None], Callable[[Path], int], dict[str, str]]] = {
    'WebDataset': ('a.tar', write_webdataset, read_webdataset, {}),
    'MDS': ('mds', write_mds, read_mds, {}),
    'LitData': ('litdata', write_litdata, read_litdata, {}),
    'TFRecord': ('a.tfrecord', write_tfrecord, read_tfrecord, {}),
    'ArrayRecord': ('a.array_record', write_array_record, read_array_record, {'record': 'msgpack'}),
    'bagz': ('a.bagz', write_bagz, read_bagz, {'record': 'msgpack'}),
    'Parquet': ('a.parquet', write_parquet, read_parquet, {'jpeg': 'jpeg'}),
}


def import_once(source: str, target: str, spec: str) -> None:
    """Imports, and prints the peak memory of this process in MB."""
    bags.convert(source, target, spec=json.loads(spec), progress=False)
    status = Path('/proc/self/status').read_text()  # Unlike ru_maxrss, without the process that started this.
    print(int(status.partition('VmHWM:')[2].split()[0]) // 1024)


def peak_memory(source: Path, target: Path, spec: dict[str, str]) -> tuple[int, float]:
    """Returns the peak memory of an import and the size of the dataset that it wrote, in MB."""
    command = [
        sys.executable,
        '-m',
        'benchmarks.imports',
        '--import',
        str(source),
        str(target),
        json.dumps(spec),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    size = megabytes(target)
    shutil.rmtree(target)
    return int(done.stdout.split()[-1]), size


def megabytes(path: Path) -> float:
    """Returns the size of a file, or of all files in a folder, in MB of 10⁶ bytes."""
    files = [path] if path.is_file() else [each for each in path.rglob('*') if each.is_file()]
    return round(sum(each.stat().st_size for each in files) / 1e6, 2)


def measure(output: Report, name: str, folder: Path, *, quick: bool) -> None:
    file, write, read, spec = FORMATS[name]
    target, paths = folder / 'out', [folder / f'{count}-{file}' for count in COUNTS]
    for path, count in zip(paths, COUNTS, strict=True):
        write(path, count)
    candidates = {
        'bags.convert': Candidate(
            lambda _: bags.convert(paths[0], target, spec=spec, progress=False, durability='none'),
            COUNTS[0],
            after=lambda _: shutil.rmtree(target),
        ),
        'iteration': Candidate(lambda _: read(paths[0]), COUNTS[0]),
    }
    timings = time_interleaved(candidates, seconds=2, min_rounds=3 if quick else 5)
    peaks, written = zip(*(peak_memory(path, target, spec) for path in paths), strict=True)
    sizes = {'source': megabytes(paths[0]), 'bags': written[0]}
    title = f'{name}: import of {COUNTS[0]:,} datapoints of 30 KB'
    output.compare(title, timings, 'bags.convert', {})
    print(f'  peak memory {peaks[0]} MB, of a source four times as large {peaks[1]} MB')
    print(f'  size of the source {sizes["source"]} MB, of the dataset {sizes["bags"]} MB')
    output.tables[title]['peak MB'] = dict(zip(map(str, COUNTS), peaks, strict=True))
    output.tables[title]['size MB'] = sizes


def main(output: Report, *, quick: bool) -> None:
    for name in FORMATS:
        with tempfile.TemporaryDirectory() as folder:
            try:
                measure(output, name, Path(folder), quick=quick)
            except ImportError as error:
                print(f'{name}: left out, {error}')


if __name__ == '__main__':
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--quick', action='store_true')
    parser.add_argument('--import', nargs=3, dest='one')
    options = parser.parse_args()
    if options.one:
        import_once(*options.one)
    else:
        report = Report('python -m benchmarks.imports' + ' --quick' * options.quick)
        main(report, quick=options.quick)
        report.save('imports')
