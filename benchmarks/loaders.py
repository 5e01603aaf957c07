"""Loaders of several libraries, which all read the same JPEGs, decode them by the same function, and stack.

Each is a class with the module it needs, `write`, which makes its files from JPEGs, and `open`, which
returns a function that gives the batches of one epoch, in random order: uint8 arrays (BATCH, SIZE, SIZE,
3), of numpy or PyTorch. As many workers as cores, threads where the library has them; processes are spawned
once, before anything is timed.
"""

import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import bags

BATCH, SIZE = 64, 256
CORES = os.cpu_count() or 1
Batches = Callable[[], Iterable[Any]]
decode = bags.decoders['jpeg']


def torch_loader(dataset: Any, **options: Any) -> Any:
    """PyTorch's loader with the options that all that are built on it share."""
    from torch.utils.data import DataLoader

    shared = {'num_workers': CORES, 'persistent_workers': True, 'multiprocessing_context': 'spawn'}
    return DataLoader(dataset, **{**shared, **options})


class Bags:
    """`bags.Loader`: threads, and one read a batch."""

    module = 'bags'

    def write(self, path: Path, pictures: Sequence[bytes]) -> None:
        with bags.DatasetWriter(path, {'image': f'jpeg({90})'}) as writer:
            for picture in pictures:
                writer.append({'image': picture})

    def open(self, path: Path) -> Batches:
        loader = bags.Loader(bags.open(path), BATCH, last_batch='drop', collate=bags.stack, workers=CORES)
        return lambda: (batch['image'] for batch in loader)


class BagsInTorch(Bags):
    """`bags.torch.IterableDataset` in PyTorch's loader: processes."""

    module = 'torch'

    def open(self, path: Path) -> Batches:
        loader = bags.Loader(bags.open(path), BATCH, last_batch='drop', collate=bags.stack)
        stream = torch_loader(bags.torch.IterableDataset(loader), batch_size=None)
        return lambda: (batch['image'] for batch in stream)


class BagsInGrain(Bags):
    """`bags.grain.batches`, read by Grain's threads."""

    module = 'grain'

    def open(self, path: Path) -> Batches:
        import grain

        batches = bags.grain.batches(bags.open(path), BATCH, last_batch='drop', collate=bags.stack)
        stream = batches.to_iter_dataset(grain.ReadOptions(num_threads=CORES, prefetch_buffer_size=2 * CORES))
        return lambda: (batch['image'] for batch in stream)


class Files:
    """A map-style dataset over a folder of files, as an item."""

    def __init__(self, paths: list[str]) -> None:
        self.paths = paths

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> np.ndarray:
        with open(self.paths[index], 'rb') as file:
            return decode(file.read())


class Folder:
    """PyTorch's `DataLoader` over a folder of files."""

    module = 'torch'

    def write(self, path: Path, pictures: Sequence[bytes]) -> None:
        path.mkdir()
        for number, picture in enumerate(pictures):
            (path / f'{number:06}.jpg').write_bytes(picture)

    def open(self, path: Path) -> Batches:
        files = Files([str(file) for file in sorted(path.iterdir())])
        stream = torch_loader(files, batch_size=BATCH, shuffle=True, drop_last=True)
        return lambda: stream


def decode_sample(sample: dict[str, Any]) -> np.ndarray:
    return decode(sample['jpg'])


class WebDataset:
    """Tar files, shuffled in a buffer of 500."""

    module = 'webdataset'

    def write(self, path: Path, pictures: Sequence[bytes]) -> None:
        import webdataset

        path.mkdir()
        with webdataset.ShardWriter(str(path / '%04d.tar'), maxcount=128, verbose=0) as writer:
            for number, picture in enumerate(pictures):
                writer.write({'__key__': f'{number:06}', 'jpg': picture})

    def open(self, path: Path) -> Batches:
        import webdataset

        shards = [str(file) for file in sorted(path.iterdir())]
        dataset = webdataset.WebDataset(shards, shardshuffle=100, empty_check=False)
        dataset = dataset.shuffle(500).map(decode_sample).batched(BATCH, collation_fn=np.stack, partial=False)
        stream = torch_loader(dataset, batch_size=None)
        return lambda: stream


class Mosaic:
    """MosaicML Streaming, from local shards."""

    module = 'streaming'

    def write(self, path: Path, pictures: Sequence[bytes]) -> None:
        from streaming import MDSWriter

        with MDSWriter(out=str(path), columns={'image': 'bytes'}) as writer:
            for picture in pictures:
                writer.write({'image': picture})

    def open(self, path: Path) -> Batches:
        import streaming
        from streaming.base.util import clean_stale_shared_memory

        from benchmarks.torch_datasets import MosaicPictures

        clean_stale_shared_memory()
        del streaming
        dataset = MosaicPictures(local=str(path), shuffle=True, batch_size=BATCH)
        stream = torch_loader(dataset, batch_size=BATCH, drop_last=True)
        return lambda: stream


class LitData:
    """LitData, from local chunks."""

    module = 'litdata'

    def write(self, path: Path, pictures: Sequence[bytes]) -> None:
        from litdata.streaming.cache import Cache

        path.mkdir()
        cache = Cache(str(path), chunk_bytes=1 << 24)
        for number, picture in enumerate(pictures):
            # What `litdata.optimize` calls, in processes of its own.
            cache._add_item(number, {'image': picture})
        cache.done()
        cache.merge()

    def open(self, path: Path) -> Batches:
        from litdata import StreamingDataLoader

        from benchmarks.torch_datasets import LitPictures

        dataset = LitPictures(str(path), shuffle=True, drop_last=True)
        stream = StreamingDataLoader(
            dataset, batch_size=BATCH, num_workers=CORES, persistent_workers=True, drop_last=True
        )
        return lambda: stream


class ArrayRecord:
    """array_record files in Grain, read by its threads."""

    module = 'array_record'

    def write(self, path: Path, pictures: Sequence[bytes]) -> None:
        from array_record.python.array_record_module import ArrayRecordWriter

        path.mkdir()
        writer = ArrayRecordWriter(str(path / 'pictures.array_record'), 'group_size:1,uncompressed')
        for picture in pictures:
            writer.write(picture)
        writer.close()

    def open(self, path: Path) -> Batches:
        import grain

        source = grain.sources.ArrayRecordDataSource([str(path / 'pictures.array_record')])
        shuffled = grain.MapDataset.source(source).shuffle(seed=1).map(decode)
        options = grain.ReadOptions(num_threads=CORES, prefetch_buffer_size=2 * CORES)
        stream = shuffled.batch(BATCH, drop_remainder=True).to_iter_dataset(options)
        return lambda: stream


class Granular:
    """Granular's loader, which is endless: an epoch is a number of batches."""

    module = 'granular'

    def write(self, path: Path, pictures: Sequence[bytes]) -> None:
        import granular

        with granular.DatasetWriter(path, {'image': 'bytes'}, granular.encoders) as writer:
            for picture in pictures:
                writer.append({'image': picture})

    def open(self, path: Path) -> Batches:
        import granular

        reader = granular.DatasetReader(path, {**granular.decoders, 'bytes': decode})
        source = granular.sources.Epochs(reader, shuffle=True, seed=0)
        stream = iter(granular.Loader(source, batch=BATCH, workers=CORES, prefetch=2 * CORES))
        count = len(reader) // BATCH
        return lambda: (np.asarray(next(stream)['image']) for _ in range(count))


LOADERS: dict[str, Any] = {
    'bags': Bags(),
    'bags in PyTorch': BagsInTorch(),
    'bags in Grain': BagsInGrain(),
    'PyTorch over files': Folder(),
    'webdataset': WebDataset(),
    'mosaicml streaming': Mosaic(),
    'litdata': LitData(),
    'grain + array_record': ArrayRecord(),
    'granular': Granular(),
}
