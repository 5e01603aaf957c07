"""Writers that are neither closed nor used in a `with` block."""

import gc
import os

import numpy as np
import pytest

import bags
from tests.dataset.writing.killed import leave_open

SPEC = {'id': 'int(8)'}

WRITE = """
import sys, os, bags
writer = bags.{kind}(sys.argv[1], {{'id': 'int(8)'}}, {options})
for index in range(10):
    writer.append({{'id': index}}, flush=False)
{end}
"""


def ids(path):
    with bags.open(path) as dataset:
        assert dataset.unfinished
        return [row['id'] for row in dataset]


@pytest.mark.slow(all_but='-*')
@pytest.mark.parametrize(
    ('kind', 'options'), [('DatasetWriter', ''), ('ShardedDatasetWriter', 'shard_length=4')]
)
@pytest.mark.parametrize(
    'end',
    [
        '',
        'writer.cycle = writer',
        'bags.writer = writer',
        'try: 1 / 0\nexcept ZeroDivisionError: sys.exit(0)',
    ],
)
def test_a_script_that_ends_keeps_its_datapoints(tmp_path, kit, kind, options, end):
    kit.python(WRITE.format(kind=kind, options=options, end=end), tmp_path / 'a')
    assert ids(tmp_path / 'a') == list(range(10))


@pytest.mark.parametrize(
    ('kind', 'options'), [(bags.DatasetWriter, {}), (bags.ShardedDatasetWriter, {'shard_length': 4})]
)
def test_a_writer_that_is_dropped_keeps_its_datapoints(tmp_path, kind, options):
    writer = kind(tmp_path / 'a', SPEC, **options)
    for index in range(10):
        writer.append({'id': index}, flush=False)
    del writer
    assert ids(tmp_path / 'a') == list(range(10))
    with kind(tmp_path / 'a', SPEC, resume=True, **options) as writer:
        assert len(writer) == 10
    assert not bags.open(tmp_path / 'a').unfinished


def test_a_replacement_that_is_dropped_leaves_the_old_dataset(tmp_path, kit):
    path = kit.fill(tmp_path / 'a', [{'id': 7}], SPEC)
    for kind in (bags.DatasetWriter, bags.ShardedDatasetWriter):
        writer = kind(path, SPEC, mode='overwrite')
        writer.append({'id': 8})
        del writer
        with bags.open(path) as dataset:
            assert [row['id'] for row in dataset] == [7]
    assert [file.name for file in tmp_path.iterdir()] == ['a']


def test_a_forked_process_that_ends_writes_nothing(tmp_path, kit):
    end = """
child = os.fork()
if not child:
    sys.exit()
assert os.waitpid(child, 0)[1] == 0
writer.append({'id': 10})
"""
    for kind in ('DatasetWriter', 'ShardedDatasetWriter'):
        kit.python(WRITE.format(kind=kind, options='', end=end), tmp_path / kind)
        assert ids(tmp_path / kind) == list(range(11))


def collect(objects):
    objects.clear()
    gc.collect()


@pytest.mark.slow(all_but='ShardedDatasetWriter')
@pytest.mark.parametrize('kind', [bags.DatasetWriter, bags.ShardedDatasetWriter])
def test_a_writer_to_an_object_store_warns(kind):
    writer = [kind(f'memory://unclosed/{kind.__name__}', SPEC)]
    writer[0].append({'id': 0})
    message = '1 datapoint, open; id. was not closed: its datapoints are lost'
    with pytest.warns(RuntimeWarning, match=message) as seen:
        collect(writer)
    assert len(seen) == 1


def test_an_error_of_one_writer_does_not_keep_others_open(tmp_path, kit):
    code = """
import atexit, sys
atexit.register(lambda: print(len(bags.open(sys.argv[1]))))  # Runs last.
import bags, warnings
warnings.simplefilter('error')  # The first writer raises.
writers = [bags.DatasetWriter(path, {'id': 'int(8)'}) for path in ('memory://unclosed/error', sys.argv[1])]
for writer in writers:
    writer.append({'id': 0}, flush=False)
"""
    assert kit.python(code, tmp_path / 'a') == b'1\n'


def test_limits_are_lost_that_an_earlier_datapoint_needs(tmp_path):
    """After a power cut, the last datapoint may have all its records, and one before it may not."""
    rows = [
        {'id': index, 'nums': np.arange(count) + 10 * index} for index, count in enumerate((0, 1, 2, 3, 0))
    ]
    writer = bags.DatasetWriter(tmp_path / 'a', {'id': 'int(4)', 'nums': 'int(8)[]'})
    for row in rows:
        writer.append(row, flush=True)
    leave_open(writer)
    del writer
    os.truncate(tmp_path / 'a' / 'limits.nums.bag', 4 * 8)
    with bags.DatasetWriter(tmp_path / 'a', {'id': 'int(4)', 'nums': 'int(8)[]'}, resume=True) as writer:
        assert len(writer) == 3
        for row in rows[3:]:
            writer.append(row)
    with bags.open(tmp_path / 'a') as reader:
        assert [row['nums'].tolist() for row in reader] == [row['nums'].tolist() for row in rows]


def test_the_checksum_of_the_spec_is_renewed_after_a_power_cut(tmp_path):
    """A power cut may leave a part of a write that was not synced."""
    writer = bags.DatasetWriter(tmp_path / 'x', {'id': 'int(8)'}, checksum=True)
    writer.append({'id': 7}, flush=True)
    leave_open(writer)
    del writer
    gc.collect()
    with (tmp_path / 'x/refs.bag.xxh3').open('r+b') as file:
        file.write(b'abc')
    bags.recover(tmp_path / 'x')
    assert bags.verify(tmp_path / 'x') == []
    assert bags.open(tmp_path / 'x', checksum=True)[0]['id'] == 7
