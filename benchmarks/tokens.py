"""Packed tokens of linked files, beside Megatron-Core's `GPTDataset`: `python -m benchmarks --only tokens`.

Documents of log-normal lengths, 666 tokens of uint16 in the mean, are in the page cache. An epoch is read
without workers. Figures are tokens a second of process time. bags reads bins of 8,192 tokens with positions
and segments, also with a loss mask from a second dataset. `GPTDataset` joins documents and
cuts them into samples of 8,192 tokens: with positions and masks of each document, which it finds by the
end-of-document tokens, or with masks that are computed once, as if each sample were one document.
"""

from __future__ import annotations

import importlib.util
import tempfile
from pathlib import Path

import numpy as np

import bags
from bags import samplers
from bags.interop.targets.megatron_index import HEADER, MAGIC, VERSION
from benchmarks import data, report
from benchmarks.timing import Candidate, time_interleaved

BUDGET, END, UINT16 = 8192, 0, 8
"""Tokens of a bin; the end-of-document token; the code of uint16 in an index."""


def main(_output: report.Report, *, quick: bool) -> None:
    """Prints the tokens a second of each candidate, and the ratio to bags."""
    report.heading('Tokens')
    with tempfile.TemporaryDirectory(dir=data.directory()) as folder:
        path, count = Path(folder), 10_000 if quick else 40_000
        lengths = np.random.default_rng(0).lognormal(6, 1, count).astype(np.int32) + 1
        write(path, lengths)
        bags.convert(path / 'data.bin', path / 'linked', link=True)
        tokens = bags.open(path / 'linked', trust_links=True)
        masked = bags.join([tokens, bags.open(path / 'masks')])
        candidates = {}
        for name, dataset in (('bags', tokens), ('bags, and a loss mask of a dataset', masked)):
            for batch_size in (1, 4, 16):
                title = f'{name}, {batch_size} bin{"s" * (batch_size > 1)} a batch'
                candidates[title] = packed(dataset, batch_size)
        if importlib.util.find_spec('megatron') is not None:
            for name, per_document in (('masks of documents', True), ('one mask for all', False)):
                candidates[f'GPTDataset, {name}'] = megatron(path / 'data', per_document)
        timings = time_interleaved(candidates, seconds=5)
        ours = next(iter(timings.values()))
        for name, timing in timings.items():
            rate = f'{1e-6 / timing.cpu:6.1f} M tokens a second, time {timing.cpu / ours.cpu:5.2f}x'
            print(f'  {name:<50} {timing.error or rate}')


def write(path: Path, lengths: np.ndarray) -> None:
    """Writes documents as `.bin` and `.idx`, and a dataset of their loss masks."""
    tokens = np.random.default_rng(1).integers(1, 50_000, int(lengths.sum()), np.uint16)
    stops = np.cumsum(lengths, dtype=np.int64)
    tokens[stops - 1] = END
    tokens.tofile(path / 'data.bin')
    header = HEADER.pack(MAGIC, VERSION, UINT16, len(lengths), len(lengths) + 1)
    pointers, documents = (stops - lengths) * 2, np.arange(len(lengths) + 1)
    (path / 'data.idx').write_bytes(
        header + lengths.tobytes() + pointers.tobytes() + documents.astype(np.int64).tobytes()
    )
    with bags.DatasetWriter(path / 'masks', {'loss_mask': 'array(bool,?)'}) as writer:
        for length in lengths.tolist():
            writer.append({'loss_mask': np.ones(length, bool)})


def packed(dataset: bags.Dataset, batch_size: int) -> Candidate:
    """An epoch of bins in rows."""
    lengths = dataset.lengths('tokens', of='elements')
    sampler = samplers.Packed(BUDGET, lengths, longer='cut')
    loader = bags.Loader(
        dataset, batch_size, sampler=sampler, collate=bags.bins(BUDGET), workers=0, last_batch='drop'
    )

    def run(_: object) -> None:
        for _batch in loader:
            pass

    return Candidate(run, len(loader) * batch_size * BUDGET)


def megatron(prefix: Path, per_document: bool) -> Candidate:
    """An epoch of samples of Megatron-Core, with an index that is built before."""
    import torch
    from megatron.core.datasets.gpt_dataset import GPTDataset, GPTDatasetConfig
    from megatron.core.datasets.indexed_dataset import IndexedDataset
    from megatron.core.datasets.utils import Split

    class Tokenizer:
        """What `GPTDataset` asks of a tokenizer."""

        eod, pad, vocab_size = END, 50_001, 50_002
        unique_identifiers: dict[str, str] = {}

    torch.set_num_threads(1)
    config = GPTDatasetConfig(
        random_seed=0, sequence_length=BUDGET, blend=([str(prefix)], None), split='1,0,0',
        tokenizer=Tokenizer(), path_to_cache=str(prefix.parent / f'cache-{per_document}'),
        reset_position_ids=per_document, reset_attention_mask=False, eod_mask_loss=per_document,
        create_attention_mask=False,
    )  # fmt: skip
    source = IndexedDataset(str(prefix))
    documents = np.arange(len(source.document_indices) - 1, dtype=np.int32)
    dataset = GPTDataset(source, str(prefix), documents, None, Split.train, config)

    def run(_: object) -> None:
        for index in range(len(dataset)):
            dataset[index]

    return Candidate(run, len(dataset) * BUDGET)
