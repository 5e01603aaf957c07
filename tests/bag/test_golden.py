"""Files written by other libraries read back as `expected.json` says."""

from __future__ import annotations

import base64
import json
import shutil
from pathlib import Path

import pytest

from bags import bag
from tests.bag.samples import ACCESS

GOLDEN = Path(__file__).parents[1] / 'golden'
EXPECTED = json.loads((GOLDEN / 'expected.json').read_text())
BAGS = {name: expected for name, expected in EXPECTED.items() if 'records' in expected}


def options_of(expected):
    options = {}
    if 'dictionary' in expected:
        options['compression'] = bag.CompressionZstd(
            dictionary=(GOLDEN / expected['dictionary']).read_bytes()
        )
    if 'limits_placement' in expected or 'layout' in expected:
        options['limits_placement'] = expected.get('limits_placement') or expected['layout']
    return options


def records_of(expected, key='records'):
    return [base64.b64decode(record) for record in expected[key]]


def test_there_are_some_of_each():
    assert {name.partition('-')[0] for name in BAGS} == {'bags05', 'bagz', 'sackli'}
    assert len(BAGS) >= 14


@pytest.mark.parametrize('access', ACCESS)
@pytest.mark.parametrize('name', BAGS)
def test_they_read_back_as_expected(name, access):
    records = records_of(BAGS[name])
    with bag.Reader(GOLDEN / name, **options_of(BAGS[name]), **ACCESS[access]) as reader:
        assert reader.read() == records
        assert [reader[index] for index in range(len(reader))] == records
        assert list(reader) == records
        assert reader.read_indices(range(len(records) - 1, -1, -1)) == records[::-1]
        multi = bag.MultiIndex(reader)
        assert [index for record in dict.fromkeys(records) for index in multi[record]] == [
            index
            for record in dict.fromkeys(records)
            for index, other in enumerate(records)
            if other == record
        ]


@pytest.mark.parametrize('name', [name for name in BAGS if 'interleaved' in BAGS[name]])
def test_interleaved_shards(name):
    with bag.Reader(GOLDEN / name, sharding_layout='interleaved') as reader:
        assert reader.read() == records_of(BAGS[name], 'interleaved')
    starred = GOLDEN / name.replace('@3', '@*')
    with bag.Reader(starred, bag.Reader.Options(bag.ShardingLayout.INTERLEAVED)) as reader:
        assert list(reader) == records_of(BAGS[name], 'interleaved')


@pytest.mark.parametrize('name', [name for name in BAGS if '@' not in name])
def test_appending_to_them(tmp_path, name):
    for path in GOLDEN.glob(f'*{name}'):
        shutil.copy(path, tmp_path)
    options = options_of(BAGS[name])
    with bag.Writer(tmp_path / name, mode='append', **options) as writer:
        assert len(writer) == len(BAGS[name]['records'])
        writer.write(b'one more')
    with bag.Reader(tmp_path / name, **options) as reader:
        assert reader.read() == [*records_of(BAGS[name]), b'one more']


@pytest.mark.parametrize('peer', ['bagz', 'sackli'])
@pytest.mark.parametrize('name', ['plain.bag', 'first-empty.bag', 'empty.bag'])
def test_what_we_write_is_the_same_to_the_byte(tmp_path, peer, name):
    expected = BAGS[f'{peer}-{name}']
    golden = GOLDEN / f'{peer}-{name}'
    with bag.Writer(tmp_path / 'x.bag') as writer:
        for record in records_of(expected):
            writer.write(record)
    assert (tmp_path / 'x.bag').read_bytes() == golden.read_bytes()
