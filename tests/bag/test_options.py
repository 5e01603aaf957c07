"""Options of readers and writers: as objects, and as keyword arguments."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import pickle

import pytest

from bags import bag
from bags.bag import options as module
from bags.bag.options import ReaderKeywords, ReaderOptions, WriterKeywords, WriterOptions
from bags.errors import CorruptError
from tests.bag.samples import records_of_many_kinds, write

RECORDS = records_of_many_kinds()


@pytest.mark.parametrize(
    ('keywords', 'options'), [(ReaderKeywords, ReaderOptions), (WriterKeywords, WriterOptions)]
)
def test_every_option_is_a_documented_keyword(keywords, options):
    assert keywords.__annotations__.keys() == {field.name for field in dataclasses.fields(options)}
    for node in ast.parse(inspect.getsource(module)).body:
        if isinstance(node, ast.ClassDef) and node.name.endswith('Keywords'):
            kinds = [type(item) for item in node.body[1:]]  # Skips the docstring of the class.
            assert kinds == [ast.AnnAssign, ast.Expr] * (len(kinds) // 2)


def test_options_are_mutable_and_copied(tmp_path):
    path = write(tmp_path / 'x.bag', RECORDS)
    options = bag.Reader.Options()
    options.max_parallelism = 3
    options.limits_storage = 'In_Memory'
    assert options.limits_storage is bag.LimitsStorage.IN_MEMORY
    reader = bag.Reader(path, options)
    options.max_parallelism = 5
    assert reader.options.max_parallelism == 3
    reader.options.max_parallelism = 7
    assert reader.options.max_parallelism == 3
    assert bag.Reader(path, options, max_parallelism=9).options.max_parallelism == 9
    assert options.max_parallelism == 5
    assert reader[1:].options == reader.options


@pytest.mark.parametrize(
    ('name', 'kind'),
    [
        ('sharding_layout', bag.ShardingLayout),
        ('limits_placement', bag.LimitsPlacement),
        ('limits_storage', bag.LimitsStorage),
        ('access_pattern', bag.AccessPattern),
        ('cache_policy', bag.CachePolicy),
    ],
)
def test_enums_by_member_name_and_number(name, kind):
    for member in kind:
        for value in (member, int(member), member.name, member.name.lower(), member.name.title()):
            assert getattr(bag.Reader.Options(**{name: value}), name) is member
    for value in ('nonsense', 99, -1, None, 1.5, ''):
        with pytest.raises(ValueError, match=r"expected '.*', got"):
            bag.Reader.Options(**{name: value})
        options = bag.Reader.Options()
        with pytest.raises(ValueError):
            setattr(options, name, value)


def test_members_are_shown_by_name():
    placement = bag.LimitsPlacement.TAIL
    assert (str(placement), f'{placement}', f'{placement:>6}') == ('TAIL', 'TAIL', '  TAIL')
    assert repr(placement) == 'LimitsPlacement.TAIL'
    assert bag.LimitsPlacement(str(placement)) is placement == 0


def test_options_in_the_order_of_bagz():
    options = bag.Reader.Options(
        bag.ShardingLayout.INTERLEAVED,
        bag.LimitsPlacement.SEPARATE,
        bag.CompressionNone(),
        bag.LimitsStorage.IN_MEMORY,
        7,
    )
    assert options.sharding_layout is bag.ShardingLayout.INTERLEAVED
    assert options.limits_placement is bag.LimitsPlacement.SEPARATE
    assert options.compression == bag.CompressionNone()
    assert options.limits_storage is bag.LimitsStorage.IN_MEMORY
    assert options.max_parallelism == 7
    written = bag.Writer.Options(bag.LimitsPlacement.SEPARATE, bag.CompressionZstd(level=3))
    assert written.limits_placement is bag.LimitsPlacement.SEPARATE
    assert written.compression == bag.CompressionZstd(3)


def test_invalid_options(tmp_path):
    path = write(tmp_path / 'x.bag', RECORDS)
    with pytest.raises(TypeError, match=r"'mapped_': did you mean 'mapped'\? .*max_parallelism"):
        bag.Reader(path, mapped_=True)
    with pytest.raises(TypeError, match='ReaderOptions'):
        bag.Reader(path, bag.Writer.Options())
    with pytest.raises(AttributeError):
        bag.Reader.Options().mapped_ = True
    for name in ('max_parallelism', 'read_ahead_bytes', 'max_record_size'):
        for value in (0, -1, 'x', None):
            with pytest.raises((ValueError, TypeError)):
                bag.Reader(path, **{name: value})
    for value in ('lz4', 5, b'zstd'):
        with pytest.raises(ValueError, match='compression: expected'):
            bag.Reader(path, compression=value)


def test_compressions_by_name(tmp_path):
    path = write(tmp_path / 'x.bin', RECORDS, compression='ZSTD')
    assert bag.Reader(path, compression='zstd').read() == RECORDS
    assert bag.Reader(path).read() != RECORDS
    path = write(tmp_path / 'x.bagz', RECORDS, compression=None)
    assert bag.Reader(path, compression='None').read() == RECORDS
    with pytest.raises(CorruptError):
        bag.Reader(path, compression='auto').read()


def test_the_options_are_pickled(tmp_path):
    options = bag.Reader.Options(cache_policy='direct_io', compression=bag.CompressionZstd(3, b'abc'))
    assert pickle.loads(pickle.dumps(options)) == options
