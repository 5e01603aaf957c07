"""Interoperability with bagz and Säckli, and the examples of their READMEs with `bags.bag`."""

from __future__ import annotations

import importlib
import itertools
import os
import pathlib
from collections.abc import Sequence

import numpy as np
import pytest

from bags import bag
from tests.bag.samples import DICTIONARY, write

KINDS = {'empty': [], 'one': [b'abc'], 'first empty': [b'', b'a', b'bc'], 'all empty': [b''] * 4}


@pytest.fixture(params=['bagz', 'sackli'])
def peer(request):
    try:
        return importlib.import_module(request.param)
    except ImportError:
        pytest.skip(f'{request.param} has no wheel for this Python')


@pytest.fixture(params=[*KINDS, 'many kinds'])
def model(request, records):
    return KINDS.get(request.param, records)


def peer_reads(peer, spec, model, **options):
    reader = peer.Reader(os.fspath(spec), peer.Reader.Options(**options))
    assert list(reader.read()) == model
    assert [reader[index] for index in range(len(reader))] == model
    assert list(reader) == model


def peer_writes(peer, path, records, **options):
    with peer.Writer(os.fspath(path), peer.Writer.Options(**options)) as writer:
        for record in records:
            writer.write(record)


@pytest.mark.parametrize('name', ['x.bag', 'x.bagz'])
@pytest.mark.parametrize('placement', ['TAIL', 'SEPARATE'])
def test_they_read_what_we_write(tmp_path, peer, model, name, placement):
    path = write(tmp_path / name, model, limits_placement=placement)
    peer_reads(peer, path, model, limits_placement=getattr(peer.LimitsPlacement, placement))


@pytest.mark.parametrize('name', ['x.bag', 'x.bagz'])
@pytest.mark.parametrize('placement', ['TAIL', 'SEPARATE'])
def test_we_read_what_they_write(tmp_path, peer, model, name, placement):
    peer_writes(peer, tmp_path / name, model, limits_placement=getattr(peer.LimitsPlacement, placement))
    with bag.Reader(tmp_path / name, limits_placement=placement) as reader:
        assert reader.read() == list(reader) == [reader[index] for index in range(len(model))] == model
    write(tmp_path / name, [b'more'], mode='append', limits_placement=placement)
    peer_reads(
        peer, tmp_path / name, [*model, b'more'], limits_placement=getattr(peer.LimitsPlacement, placement)
    )


@pytest.mark.parametrize('layout', ['CONCATENATED', 'INTERLEAVED'])
@pytest.mark.parametrize('suffix', ['.bag', '.bagz'])
def test_shards_both_ways(tmp_path, peer, records, layout, suffix):
    parts = [records[shard::3] for shard in range(3)]
    if layout == 'CONCATENATED':
        parts = [records[:5], [], records[5:]]
    ours, theirs = tmp_path / f'ours@3{suffix}', tmp_path / f'theirs@3{suffix}'
    for shard, part in enumerate(parts):
        write(tmp_path / f'ours-0000{shard}-of-00003{suffix}', part)
        peer_writes(peer, tmp_path / f'theirs-0000{shard}-of-00003{suffix}', part)
    for spec in (ours, theirs):
        peer_reads(peer, spec, records, sharding_layout=getattr(peer.ShardingLayout, layout))
        for text in (os.fspath(spec), os.fspath(spec).replace('@3', '@*')):
            with bag.Reader(text, sharding_layout=layout) as reader:
                assert reader.read() == list(reader) == records


def test_compression_that_is_chosen(tmp_path, peer, records):
    write(tmp_path / 'ours.bagz', records, compression='none')
    peer_reads(peer, tmp_path / 'ours.bagz', records, compression=peer.CompressionNone())
    write(tmp_path / 'ours', records, compression=bag.CompressionZstd(level=7))
    peer_reads(peer, tmp_path / 'ours', records, compression=peer.CompressionZstd())
    peer_writes(peer, tmp_path / 'theirs', records, compression=peer.CompressionZstd(level=7))
    assert bag.Reader(tmp_path / 'theirs', compression='zstd').read() == records


def test_dictionaries(tmp_path, peer, records):
    text = DICTIONARY.decode()
    write(tmp_path / 'ours.bagz', records, compression=bag.CompressionZstd(3, DICTIONARY))
    peer_reads(peer, tmp_path / 'ours.bagz', records, compression=peer.CompressionZstd(3, text))
    peer_writes(peer, tmp_path / 'theirs.bagz', records, compression=peer.CompressionZstd(3, text))
    assert (
        bag.Reader(tmp_path / 'theirs.bagz', compression=bag.CompressionZstd(3, DICTIONARY)).read() == records
    )


def test_readers_agree(tmp_path, peer, records):
    path = write(tmp_path / 'x.bagz', records)
    theirs, ours = peer.Reader(path), bag.Reader(path)
    assert len(theirs) == len(ours)
    assert theirs.approximate_bytes_per_record() == ours.approximate_bytes_per_record()
    assert theirs.index(records[7]) == ours.index(records[7])
    assert theirs.count(b'') == ours.count(b'')
    assert list(theirs.read_range(3, 9)) == ours.read_range(3, 9)
    assert list(theirs[40:3:-3]) == list(ours[40:3:-3])
    assert list(theirs.read_indices([3, 3, 5])) == ours.read_indices([3, 3, 5])
    for kind in ('Index', 'MultiIndex'):
        assert getattr(peer, kind)(theirs)[records[8]] == getattr(bag, kind)(ours)[records[8]]


# The examples of their READMEs, up to their sections on Beam.


@pytest.fixture(params=['bags.bag', 'bagz', 'sackli'])
def library(request):
    """Our library, and theirs, to check that the tests below pass with them."""
    if request.param == 'bags.bag':
        return bag
    try:
        return importlib.import_module(request.param)
    except ImportError:
        pytest.skip(f'{request.param} has no wheel for this Python')


def test_the_readme_on_writing_and_reading(tmp_path, library):
    path, records = os.fspath(tmp_path / 'data.bagz'), [b'record %d' % number for number in range(50)]
    with library.Writer(path) as writer:
        for record in records:
            writer.write(record)
    data = library.Reader(path)
    assert isinstance(data, Sequence)
    assert len(data) > 10
    fifth = data[5]
    assert isinstance(fifth, bytes)
    rest = data[5:]
    assert isinstance(rest, library.Reader)
    assert rest[0] == fifth == records[5]
    fourth, second, tenth = data.read_indices([4, 2, 10])
    assert (fourth, second, tenth) == (data[4], data[2], data[10])
    assert list(data) == records
    assert list(data.read()) == records
    assert list(data[4:9]) == list(data[4:9].read()) == records[4:9]


def test_the_readme_on_an_infinite_source(tmp_path, library):
    path, records = os.fspath(tmp_path / 'data.bagz'), [b'record %d' % number for number in range(50)]
    with library.Writer(path) as writer:
        for record in records:
            writer.write(record)
    data = library.Reader(path)

    def source(size):
        rng = np.random.default_rng(42)
        while True:
            yield rng.integers(size).item()

    found = data.read_indices_iter(source(len(data)))
    expected = [records[index] for index in itertools.islice(source(50), 10)]
    assert [next(found) for _ in range(10)] == expected


def test_the_readme_on_separate_limits_and_levels(tmp_path, library):
    path = os.fspath(tmp_path / 'data.bagz')
    options = library.Writer.Options(
        compression=library.CompressionZstd(level=3), limits_placement=library.LimitsPlacement.SEPARATE
    )
    with library.Writer(path, options) as writer:
        writer.write(b'record')
    separate = library.Reader(path, library.Reader.Options(limits_placement=library.LimitsPlacement.SEPARATE))
    assert list(separate) == [b'record']
    assert (tmp_path / 'limits.data.bagz').exists()


def test_the_readme_on_indexes(tmp_path, library):
    path = os.fspath(tmp_path / 'keys.bag')
    with library.Writer(path) as writer:
        for key in (b'other', b'example_key', b'example_key'):
            writer.write(key)
    keys = library.Reader(path)
    assert library.Index(keys)[b'example_key'] == 1
    assert library.MultiIndex(keys)[b'example_key'] == [1, 2]


@pytest.mark.parametrize('placement', ['TAIL', 'SEPARATE'])
def test_the_readme_on_options(tmp_path, library, placement):
    path = os.fspath(tmp_path / 'data.bag')
    placement = getattr(library.LimitsPlacement, placement)
    for compression in (
        library.CompressionAutoDetect(),
        library.CompressionNone(),
        library.CompressionZstd(),
    ):
        pathlib.Path(path).unlink(missing_ok=True)
        options = library.Writer.Options(compression=compression, limits_placement=placement)
        with library.Writer(path, options) as writer:
            writer.write(b'record')
        for storage in (library.LimitsStorage.ON_DISK, library.LimitsStorage.IN_MEMORY):
            for layout in (library.ShardingLayout.CONCATENATED, library.ShardingLayout.INTERLEAVED):
                options = library.Reader.Options(
                    compression=compression,
                    limits_placement=placement,
                    limits_storage=storage,
                    max_parallelism=4,
                    sharding_layout=layout,
                )
                assert list(library.Reader(path, options)) == [b'record']
        (tmp_path / 'limits.data.bag').unlink(missing_ok=True)


@pytest.mark.parametrize('pattern', ['SYSTEM', 'RANDOM', 'SEQUENTIAL'])
@pytest.mark.parametrize('policy', ['SYSTEM', 'DROP_AFTER_READ', 'DIRECT_IO'])
def test_the_readme_of_sackli_on_hints(disk_path, library, records, pattern, policy):
    if not hasattr(library, 'AccessPattern'):
        pytest.skip('bagz has no hints')
    path = write(disk_path / 'data.bagz', records)
    options = library.Reader.Options(
        access_pattern=getattr(library.AccessPattern, pattern),
        cache_policy=getattr(library.CachePolicy, policy),
    )
    reader = library.Reader(path, options)
    assert list(reader.read()) == records
    assert [reader[index] for index in range(len(records))] == records
