"""Writes files of tokens as Megatron-LM and llm.c write them, for tests."""

import struct

import numpy as np

CODES = {'uint8': 1, 'int8': 2, 'int16': 3, 'int32': 4, 'int64': 5, 'float64': 6, 'float32': 7, 'uint16': 8}


def write_megatron(path, documents, dtype='uint16', modes=None, pointers=None, lengths=None, indices=None):
    """Writes `path`, a `.bin`, and its `.idx`. A document is a list of sequences.

    Args:
        modes: The mode of each sequence.
        pointers, lengths, indices: What the index has instead, changed by these functions.
    """
    sequences = [np.array(sequence, dtype) for document in documents for sequence in document]
    counts = np.array([len(sequence) for sequence in sequences], '<i4')
    size = np.dtype(dtype).itemsize
    starts = (np.cumsum(counts, dtype='<i8') - counts) * size
    bounds = np.cumsum([0, *map(len, documents)]).astype('<i8')
    for change, table in ((lengths, counts), (pointers, starts), (indices, bounds)):
        if change is not None:
            change(table)
    path.write_bytes(b''.join(sequence.tobytes() for sequence in sequences))
    path.with_suffix('.idx').write_bytes(
        struct.pack('<9sQBQQ', b'MMIDIDX\0\0', 1, CODES[np.dtype(dtype).name], len(counts), len(bounds))
        + counts.tobytes()
        + starts.tobytes()
        + bounds.tobytes()
        + (b'' if modes is None else np.array(modes, 'i1').tobytes())
    )
    return path


def write_llm_c(path, tokens, magic=20240520, version=1, count=None):
    """Writes a file with the header of llm.c: of `uint16` for GPT-2, `uint32` for Llama 3."""
    dtype = 'uint32' if magic == 20240801 else 'uint16'
    header = np.zeros(256, '<i4')
    header[:3] = magic, version, len(tokens) if count is None else count
    path.write_bytes(header.tobytes() + np.array(tokens, dtype).tobytes())
    return path
