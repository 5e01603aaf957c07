"""What was sent as an object: the checksums of its parts and samples."""

import hashlib
import itertools
import random
import zlib

from hypothesis import given
from hypothesis import strategies as st

from bags.storage.upload import COMPARED_BYTES, SentObject


@given(st.lists(st.integers(0, 50), max_size=20), st.sampled_from([None, 0, 1, 7, 40, 1000]))
def test_checksums_are_those_of_the_parts(sizes, part_size):
    data, sent = random.Random(0).randbytes(sum(sizes)), SentObject(part_size)
    stops = list(itertools.accumulate(sizes))
    for start, stop in zip([0, *stops], stops, strict=False):
        sent.add(data[start:stop])
    cuts = sorted({0, *stops}) if not part_size else [*range(0, len(data), part_size), len(data)]
    parts = [data[start:stop] for start, stop in itertools.pairwise(cuts)] if part_size is not None else []
    digests = [hashlib.md5(part).digest() for part in parts]
    assert [checksum for _, _, checksum in sent.parts] == digests
    assert b''.join(data[start:stop] for start, stop, _ in sent.parts) == b''.join(parts)
    if digests:
        assert sent.etags[0] == f'{hashlib.md5(b"".join(digests)).hexdigest()}-{len(digests)}'
    else:
        assert sent.etags == []
    assert (len(digests) == 1) == (hashlib.md5(data).hexdigest() in sent.etags)
    assert sent.size == len(data)


def test_samples_are_the_first_bytes_of_parts():
    sent, first, second = SentObject(None), random.Random(0).randbytes(COMPARED_BYTES + 9), b'abc'
    sent.add(first)
    sent.add(second)
    crcs = [zlib.crc32(part[:COMPARED_BYTES]).to_bytes(4, 'little') for part in (first, second)]
    assert sent.samples == [(0, COMPARED_BYTES, crcs[0]), (COMPARED_BYTES + 9, COMPARED_BYTES + 12, crcs[1])]
    assert sent.last == second
