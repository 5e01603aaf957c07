r"""The index of tokens of Megatron-LM: `data.bin` has the tokens, `data.idx` the sequences and documents.

    data.idx    4d 4d 49 44 49 44 58 00 00    b'MMIDIDX\0\0'
                01 00 00 00 00 00 00 00       version 1
                08                            code of the dtype: uint16
                03 00 00 00 00 00 00 00       3 sequences
                03 00 00 00 00 00 00 00       3 document indices: 2 documents
                3 * int32                     tokens of each sequence
                3 * int64                     offset of each sequence in data.bin, in bytes
                3 * int64                     the first sequence of each document, and the number of sequences
                3 * int8                      modes of sequences, if they have modes

The format follows `megatron/core/datasets/indexed_dataset.py`.
"""

from __future__ import annotations

import struct

MAGIC = b'MMIDIDX\0\0'
VERSION = 1
HEADER = struct.Struct('<9sQBQQ')
DTYPES = {1: 'u1', 2: 'i1', 3: '<i2', 4: '<i4', 5: '<i8', 6: '<f8', 7: '<f4', 8: '<u2'}
"""The dtype of each code."""
DATA, INDEX = '.bin', '.idx'
