"""Sources of chunks with an index in JSON: what MDS and LitData share."""

import json
import shutil

import pytest

import bags
from tests.interop.sources.streams import GOLDEN


@pytest.mark.parametrize(
    ('name', 'chunks', 'count', 'file'),
    [
        *((name, 'shards', 'samples', 'shard.00000') for name in ('mds', 'mds-zstd')),
        *(
            (name, 'chunks', 'chunk_size', 'chunk-0-0')
            for name in ('litdata', 'litdata-chunk', 'litdata-batch', 'litdata-rows')
        ),
    ],
)
def test_claims_of_many_samples_are_refused(name, chunks, count, file, tmp_path):
    source = shutil.copytree(GOLDEN / name, tmp_path / 'in')
    index = json.loads((source / 'index.json').read_text())
    rest = sum(each[count] for each in index[chunks][1:])
    index[chunks][0][count] = 1 << 40
    (source / 'index.json').write_text(json.dumps(index))
    expected = rf'{file}.*: expected up to \d+ bytes of values in \d+ bytes, got \d+ in 1099\d+ samples'
    with pytest.raises(bags.SourceError, match=expected):
        bags.convert(source, tmp_path / 'out')
    assert bags.convert(source, tmp_path / 'out', on_error='skip').datapoints == rest
