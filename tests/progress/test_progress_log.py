"""The progress log beside shards: its name, and the name that earlier versions gave it."""

import contextlib
import json
import os

import numpy as np
import pytest

import bags

EARLIER = 'source.json'
SPEC = {'id': 'int(8)'}
OPTIONS = {'workers': 1, 'shard_length': 10}


def row(number):
    return {'id': number}


def row_below_25(number):
    if number == 25:
        raise ZeroDivisionError
    return row(number)


def begin(path, log='progress.json', **options):
    """Writes 25 of 40 datapoints; then gives the log another name, such as the one of earlier versions."""
    with pytest.raises(ZeroDivisionError):
        bags.write(range(40), path, SPEC, transform=row_below_25, **OPTIONS, **options)
    for suffix in ('', '.xxh3') if options.get('checksum') else ('',):
        os.rename(path / f'progress.json{suffix}', path / f'{log}{suffix}')
    return path


def resume(path, inputs=range(40), **options):
    return bags.write(inputs, path, SPEC, transform=row, **{**OPTIONS, 'resume': True, **options})


def logs_of(path):
    return {name for name in os.listdir(path) if name.endswith('.json')}


def test_logs_and_identities_have_different_names(tmp_path):
    bags.from_numpy({'x': np.arange(3)}, tmp_path / 'arrays')
    bags.write(range(3), tmp_path / 'written', SPEC, transform=row, workers=1)
    bags.copy(bags.open(tmp_path / 'written'), tmp_path / 'copied')
    (tmp_path / 'rows.csv').write_text('x\n1\n2\n')
    bags.convert(tmp_path / 'rows.csv', tmp_path / 'imported')
    for name in ('arrays', 'written', 'copied', 'imported'):
        assert logs_of(tmp_path / name) == {'progress.json'}, name
        identity = json.loads((tmp_path / name / '000000' / 'source.json').read_text())
        assert set(identity) >= {'id', 'datapoints', 'sizes'}, name


@pytest.mark.parametrize('checksum', [False, True])
@pytest.mark.parametrize('log', ['progress.json', EARLIER])
def test_logs_of_both_names_are_resumed(tmp_path, log, checksum):
    path = begin(tmp_path / 'd', log, checksum=checksum)
    with pytest.raises(
        ValueError, match=rf'{log}: .*made from another source|{log}: .*expected the 40 inputs'
    ):
        resume(path, range(41))
    assert resume(path).datapoints == 40
    assert [row['id'] for row in bags.open(path)] == [*range(40)]
    assert logs_of(path) == {log}
    assert list(bags.verify(path)) == []


def test_a_damaged_log_of_an_earlier_version_is_named(tmp_path):
    path = begin(tmp_path / 'd', EARLIER, checksum=True)
    (path / EARLIER).write_text((path / EARLIER).read_text().replace('40', '41'))
    with pytest.raises(bags.CorruptError, match=r'source\.json: differs .*mode="overwrite"'):
        resume(path)


@pytest.mark.parametrize('log', ['progress.json', EARLIER])
def test_datasets_with_logs_of_both_names_are_maintained(tmp_path, log):
    path = begin(tmp_path / 'd', log)
    kept = (path / log).read_bytes()
    assert [recovery.action for recovery in bags.recover(path)].count('closed') >= 1
    bags.consolidate(path)
    assert (path / log).read_bytes() == kept
    assert log not in (path / 'shards.json').read_text().replace('"source.json": ', '')
    assert list(bags.verify(path)) == []
    assert resume(path, resume=False, mode='overwrite').datapoints == 40
    assert logs_of(path) == {'progress.json'}


@pytest.mark.parametrize('log', ['progress.json', EARLIER])
def test_a_dataset_without_datapoints_leaves_no_log(tmp_path, log):
    path = tmp_path / 'd'
    with contextlib.suppress(ZeroDivisionError), bags.ShardedDatasetWriter(path, SPEC):
        (path / log).write_text('{}')
        raise ZeroDivisionError
    assert not path.exists()
