from __future__ import annotations

import pathlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bags.bag.sharding import Concatenated, Interleaved, expand, shard_name
from tests.bag.samples import few


@few
@given(st.lists(st.integers(0, 12), min_size=1, max_size=12))
def test_concatenated_is_one_shard_after_the_other(lengths):
    layout = Concatenated(lengths)
    expected = [(shard, within) for shard, length in enumerate(lengths) for within in range(length)]
    check(layout, expected)


@few
@given(st.integers(1, 8), st.integers(0, 12), st.data())
def test_interleaved_is_the_first_of_each_then_the_second_of_each(count, length, data):
    longer = data.draw(st.integers(1, count))
    lengths = [length + 1] * longer + [length] * (count - longer)
    layout = Interleaved(lengths)
    expected = [
        (shard, turn) for turn in range(length + 1) for shard in range(count) if turn < lengths[shard]
    ]
    check(layout, expected)


def check(layout, expected):
    assert layout.total == len(expected)
    assert [layout.one(index) for index in range(layout.total)] == expected
    indices = np.arange(layout.total)[::-1]
    shards, within = layout.many(indices)
    assert list(zip(shards.tolist(), within.tolist(), strict=True)) == expected[::-1]


def test_the_tables_of_the_readme():
    four = Concatenated([8, 4, 0, 5])
    assert [four.one(index) for index in (0, 2, 8, 11, 12, 15, 16)] == [
        (0, 0), (0, 2), (1, 0), (1, 3), (3, 0), (3, 3), (3, 4),
    ]  # fmt: skip
    three = Interleaved([6, 6, 5])
    assert [three.one(index) for index in (0, 1, 2, 6, 8, 15, 16)] == [
        (0, 0), (1, 0), (2, 0), (0, 2), (2, 2), (0, 5), (1, 5),
    ]  # fmt: skip


@pytest.mark.parametrize('lengths', [[5, 6], [6, 4], [6, 5, 6], [2, 1, 0], [0, 1]])
def test_invalid_interleaved_lengths(lengths):
    with pytest.raises(ValueError, match='interleaved shards'):
        Interleaved(lengths)


def names_of(*names, folder=''):
    """The functions that `expand` takes, for a folder with these names."""

    def listing(path):
        assert path == folder
        return names

    return lambda path: path in {folder + name for name in names}, listing


@pytest.mark.parametrize(
    ('spec', 'expected'),
    [
        ('a.bag', ['a.bag']),
        ('a@2.bagz', ['a-00000-of-00002.bagz', 'a-00001-of-00002.bagz']),
        ('a@1', ['a-00000-of-00001']),
        ('x@y@1.bag', ['x@y-00000-of-00001.bag']),
        ('d@2/a.bag', ['d@2/a.bag']),
        ('d[1]*/a.bag', ['d[1]*/a.bag']),
        ('a.bag,b.bag', ['a.bag', 'b.bag']),
        ('b@1.bag,a.bag', ['b-00000-of-00001.bag', 'a.bag']),
        ('mail@home.bag', ['mail@home.bag']),
    ],
)
def test_specs_that_need_no_folder(spec, expected):
    assert expand([spec], *names_of()) == (expected, spec)


def test_paths_and_lists():
    assert expand([pathlib.Path('a.bag'), 'b.bag'], *names_of()) == (['a.bag', 'b.bag'], 'a.bag,b.bag')
    with pytest.raises(ValueError, match='at least one path'):
        expand([], *names_of())


@pytest.mark.parametrize('name', ['a@3.bag', 'a*.bag', 'a[0].bag', 'a,b.bag', 'a?.bag', 'x@*.bag'])
def test_paths_that_exist_are_literal(name):
    assert expand([name], *names_of(name, 'a0.bag')) == ([name], name)


def test_a_star_finds_the_count():
    names = [shard_name('a', shard, 3, '.bagz') for shard in range(3)]
    others = ['a-00000-of-00003.bag', 'aa-00000-of-00001.bagz', 'limits.a-00000-of-00003.bagz']
    assert expand(['a@*.bagz'], *names_of(*others, *names[::-1]))[0] == names


def test_a_star_in_a_folder():
    found = expand(['/d/a@*.bag'], *names_of('a-00000-of-00001.bag', folder='/d/'))[0]
    assert found == ['/d/a-00000-of-00001.bag']


def test_globs_are_sorted_and_leave_limits_and_hidden_files_out():
    names = ['b1.bag', 'a2.bag', 'a1.bag', 'limits.a1.bag', '.a1.bag.12ab.new', '.hidden.bag']
    exists, listing = names_of(*names)
    assert expand(['*.bag'], exists, listing)[0] == ['a1.bag', 'a2.bag', 'b1.bag']
    assert expand(['a?.bag*'], exists, listing)[0] == ['a1.bag', 'a2.bag']
    assert expand(['[ab]1.bag'], exists, listing)[0] == ['a1.bag', 'b1.bag']
    assert expand(['*'], exists, listing)[0] == ['a1.bag', 'a2.bag', 'b1.bag']


@pytest.mark.parametrize('spec', ['*.bag', 'a@*.bag', 'z?.bag'])
def test_no_match(spec):
    with pytest.raises(FileNotFoundError, match='no'):
        expand([spec], *names_of('b.txt'))


def test_a_missing_shard_is_named():
    with pytest.raises(FileNotFoundError, match='missing shard a-00001-of-00003'):
        expand(['a@*.bag'], *names_of('a-00000-of-00003.bag', 'a-00002-of-00003.bag'))


def test_shards_of_different_counts():
    with pytest.raises(ValueError, match=r'counts \[1, 2\]'):
        expand(['a@*.bag'], *names_of('a-00000-of-00001.bag', 'a-00000-of-00002.bag'))


def test_zero_shards():
    with pytest.raises(ValueError, match='at least one shard'):
        expand(['a@0.bag'], *names_of())
