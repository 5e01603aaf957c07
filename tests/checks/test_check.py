"""`bags.check`: what runs and is reported, also of damage, of checks that fail, and of many datapoints."""

import dataclasses
import json
import os
import shutil
import subprocess
import sys
import tracemalloc

import numpy as np
import pytest

import bags
from bags.checks import check_log, field_run
from bags.formats.images import encode_jpeg
from bags.formats.trees import decode_tree, encode_tree
from bags.types import Check, FieldScores, Scores

SPEC = {'id': 'int(8)', 'state': 'array(float32,3)[]', 'time': 'float(8)[]', 'text': 'utf8'}
METADATA = {'fields': {'state': {'times': 'time'}}}


def rows(count=30, length=60):
    rng = np.random.default_rng(0)
    for number in range(count):
        phase = np.linspace(0, 3, length)[:, None] + rng.random(3)
        yield {
            'id': number,
            'state': (np.sin(phase) + rng.normal(0, 0.001, phase.shape)).astype(np.float32),
            'time': np.arange(length) / 30,
            'text': f'text {number}',
        }


def write(path, change=lambda number, row: row, **options):
    with bags.DatasetWriter(path, SPEC, metadata=METADATA, **options) as writer:
        for number, row in enumerate(rows()):
            writer.append(change(number, row))
    return path


def with_gap(number, row):
    if number in (4, 9):
        row['time'][20:] += number
    return row


def with_nan(number, row):
    if number == 7:
        row['state'][30, 1] = np.nan
    return with_gap(number, row)


@pytest.fixture
def dataset(tmp_path):
    return write(tmp_path / 'data', with_nan)


def names(found):
    return [(finding.severity, finding.check, finding.field, finding.datapoints) for finding in found]


def test_findings_have_their_place_and_the_commands_that_act_on_it(dataset):
    found = bags.check(dataset)
    assert names(found) == [
        ('error', 'nan_values', 'state', (7,)),
        ('warning', 'gap_seconds', 'state', (9, 4)),
    ]
    nan, gap = found
    assert (nan.value, nan.bound, nan.count, nan.seconds) == (1, 0, 1, 1.0)
    assert gap.value == pytest.approx(9)
    assert gap.seconds == pytest.approx(20 / 30 + 9)
    assert gap.show == f"bags view {dataset} '#view=datapoint&at=9&t=9.667'"
    assert gap.leave_out == f'bags edit {dataset} clean --drop 4,9'
    assert found.has('error')
    assert found.datapoints == 30
    assert found.fingerprint == bags.open(dataset).fingerprint
    table = str(found).splitlines()
    assert table[1].startswith('error     state  nan_values')
    assert table[2].strip() == nan.show
    assert 'datapoints' in repr(found)
    assert found.leave_out == f'bags edit {dataset} clean --drop 4,7,9'
    assert json.loads(json.dumps(found.as_json()))['findings'][1]['datapoints'] == [9, 4]


def test_a_dataset_without_mistakes_has_no_findings(tmp_path):
    found = bags.check(write(tmp_path / 'data'))
    assert names(found) == []
    assert str(found) == 'no findings in 30 datapoints'


def test_a_reader_and_a_view_are_checked_too(dataset):
    with bags.open(dataset) as reader:
        assert bags.check(reader)[0].show.endswith("'#view=datapoint&at=7&t=1.000'")
        found = bags.check(reader.select([0, 7, 1]))
        assert names(found) == [('error', 'nan_values', 'state', (1,))]
        assert found[0].show == found[0].leave_out == ''  # No command can read a view.


def test_only_skip_and_bounds_choose(dataset):
    assert [each.check for each in bags.check(dataset, only=['gap_seconds'])] == ['gap_seconds']
    assert [each.check for each in bags.check(dataset, skip=['state'])] == []
    assert [each.check for each in bags.check(dataset, skip=['nan_values'])] == ['gap_seconds']
    assert bags.check(dataset, only=['state', 'gap_seconds'], bounds={'gap_seconds': 5})[0].datapoints == (9,)
    with pytest.raises(
        ValueError, match=r"only: expected a check or a field, got 'gap_second'; did you mean"
    ):
        bags.check(dataset, only=['gap_second'])
    with pytest.raises(ValueError, match='bounds: expected a check'):
        bags.check(dataset, bounds={'state': 1})
    with pytest.raises(TypeError, match='expected a dataset'):
        bags.check(3)
    with pytest.raises(ValueError, match='raw=True'):
        bags.check(bags.open(dataset, raw=True))


def test_windows_of_the_training(dataset):
    assert 'window_missing_items' not in [each.check for each in bags.check(dataset, window=60)]
    (finding,) = bags.check(dataset, window=100, only=['window_missing_items'])
    assert (finding.value, finding.count, finding.leave_out) == (40, 30, '')


def test_damage_is_one_finding_and_the_rest_is_checked(tmp_path):
    dataset = write(tmp_path / 'data', with_nan, compression=['state'])
    with open(dataset / 'state.bagz', 'r+b') as file:
        file.seek(100)
        file.write(b'\xff' * 40)
    found = bags.check(dataset)
    damage = [each for each in found if each.check == 'damaged_datapoints']
    assert len(damage) == 1
    assert damage[0].datapoints == (0,)
    assert f'bags verify {dataset} --decode' in damage[0].detail
    assert ('error', 'nan_values', 'state', (7,)) in names(found)


def test_a_field_that_cannot_be_read_at_all_is_one_finding(tmp_path):
    dataset = write(tmp_path / 'data')
    os.truncate(dataset / 'state.bag', 8)
    found = bags.check(dataset)
    assert [each.check for each in found if each.severity == 'error'] == ['damaged_datapoints']


def test_a_dataset_that_cannot_be_opened_is_a_finding(tmp_path):
    dataset = write(tmp_path / 'data')
    (dataset / 'spec.json').write_text('{')
    found = bags.check(dataset)
    assert [each.check for each in found] == ['damaged_datapoints']
    with pytest.raises(FileNotFoundError):
        bags.check(tmp_path / 'nothing')


def test_an_unfinished_dataset_is_a_finding(tmp_path):
    writer = bags.DatasetWriter(tmp_path / 'data', SPEC, metadata=METADATA)
    for number, row in enumerate(rows()):
        writer.append(with_nan(number, row), flush=True)
    found = bags.check(tmp_path / 'data')
    assert ('warning', 'unfinished_datasets', None, ()) in names(found)
    assert ('error', 'nan_values', 'state', (7,)) in names(found)
    writer.close()


def test_a_field_without_a_decoder_is_checked_for_what_is_known(tmp_path):
    encoders = {**bags.encoders, 'mine': lambda value: value}
    spec = {'id': 'int(8)', 'other': 'mine?'}
    with bags.DatasetWriter(tmp_path / 'data', spec, encoders) as writer:
        for number in range(30):
            writer.append({'id': number, 'other': None if number == 3 else b'x'})
    assert ('warning', 'missing_values', 'other', (3,)) in names(bags.check(tmp_path / 'data'))


def test_many_findings_of_one_kind_are_one(tmp_path):
    bags.from_numpy({'label': np.full(1_000_000, 7)}, tmp_path / 'data')
    bags.set_metadata(tmp_path / 'data', {'fields': {'label': {'classes': ['a', 'b']}}})
    tracemalloc.start()
    (finding,) = bags.check(tmp_path / 'data', only=['unknown_labels'])
    assert tracemalloc.get_traced_memory()[1] < 1 << 24  # 16 bytes for each datapoint.
    tracemalloc.stop()
    assert finding.count == 1_000_000
    assert len(finding.datapoints) == 100
    assert finding.rows_text == '0, 1, 2 and 999,997 others'


def test_photos_are_measured_alike_without_colour(tmp_path):
    """The file is opened by the check, which decodes JPEGs in grey; the reader may have other decoders."""
    rng = np.random.default_rng(2)
    with bags.DatasetWriter(tmp_path / 'data', {'photo': 'jpeg(90)?', 'grey': 'jpeg'}) as writer:
        for number in range(12):
            photo = rng.integers(0, 256, (9, 12, 3), np.uint8).repeat(12, 0).repeat(12, 1)
            if number == 5:
                photo[:] = 3
            if number == 7:
                photo[:] = 255
            writer.append({'photo': None if number == 2 else photo, 'grey': photo[:, :, 0].copy()})
    with bags.open(tmp_path / 'data') as reader:
        found, of_reader = (
            bags.check(
                source, decode=True, only=['black_share', 'white_share', 'similar_images', 'other_modes']
            )
            for source in (tmp_path / 'data', reader)
        )
    assert names(found) == names(of_reader)
    expected = [('black_share', (5,)), ('white_share', (7,))]
    assert sorted((each.check, each.datapoints) for each in found if each.field == 'photo') == expected
    assert sorted((each.check, each.datapoints) for each in found if each.field == 'grey') == expected


def test_a_photo_whose_end_is_lost_is_damage(tmp_path):
    rng = np.random.default_rng(2)
    with bags.DatasetWriter(tmp_path / 'data', {'photo': 'jpeg'}) as writer:
        for number in range(12):
            photo = encode_jpeg(rng.integers(0, 256, (40, 40, 3), np.uint8))
            writer.append({'photo': photo[: len(photo) // 2] + b'\xff\xd9' if number == 9 else photo})
    damaged = [each for each in bags.check(tmp_path / 'data', decode=True) if each.severity == 'error']
    assert [(each.check, each.datapoints) for each in damaged] == [('damaged_datapoints', (9,))]


# Checks of one's own.


def at_most(name='largest_value', bound=1.2, **options):
    return Check(
        name=name, severity='warning', bound=bound, reason='r', bound_source='s',
        applies=lambda field: field.name == 'state',
        scores=lambda column: column.numbers.reduce(np.maximum, column.numbers.items.max(1), np.nan),
        **options,
    )  # fmt: skip


def test_own_checks_run_beside_the_others(dataset):
    check = at_most(bound=0.5, detail='reaches {value:.1f}, above {bound}')
    (finding,) = bags.check(dataset, checks=[check], only=['largest_value'])
    assert finding.detail == 'reaches 1.0, above 0.5'
    assert finding.count == 29  # NaN is no score.


def test_own_checks_of_a_file(dataset, tmp_path):
    path = tmp_path / 'mine.py'
    path.write_text(
        'from bags.types import Check, Scores\n'
        "ids = Check(name='id_number', severity='error', bound=27, reason='r', bound_source='s',\n"
        "            applies=lambda field: field.name == 'id', scores=lambda column: column.values)\n"
    )
    (finding,) = bags.check(dataset, checks=[path], only=['id_number'])
    assert finding.datapoints == (29, 28)
    with pytest.raises(FileNotFoundError):
        bags.check(dataset, checks=[tmp_path / 'missing.py'])
    with pytest.raises(ValueError, match=r'expected a \.py file or an installed check'):
        bags.check(dataset, checks=['missing'])
    path.write_text('')
    with pytest.raises(ValueError, match='expected a file that defines'):
        bags.check(dataset, checks=[path])


def test_a_check_that_raises_is_a_finding_and_the_others_continue(dataset):
    def fail(_):
        raise RuntimeError('no idea')

    broken = [
        Check(
            name=f'{what}_count', severity='info', bound=0, reason='r', bound_source='s',
            applies=fail if what == 'applies' else lambda field: field.name == 'state',
            **{'of_field' if what == 'field' else 'scores': fail},
        )
        for what in ('applies', 'scores', 'field')
    ]  # fmt: skip
    found = bags.check(dataset, checks=broken)
    details = {each.detail for each in found if each.check == 'failed_checks'}
    assert 'the check scores_count raised RuntimeError: no idea' in details
    assert len(details) == 3
    assert ('error', 'nan_values', 'state', (7,)) in names(found)
    wrong = Check(
        name='wrong_shape', severity='info', bound=0, reason='r', bound_source='s',
        applies=lambda field: field.name == 'state', scores=lambda column: np.zeros(3),
    )  # fmt: skip
    (finding,) = bags.check(dataset, checks=[wrong], only=['wrong_shape'])
    assert 'expected 30 scores, got shape (3,)' in finding.detail


def test_checks_are_validated():
    with pytest.raises(ValueError, match='ends with its unit'):
        at_most('Largest')
    with pytest.raises(ValueError, match='expected one of scores and of_field'):
        at_most(of_field=lambda field: FieldScores(np.zeros(1)))
    with pytest.raises(ValueError, match='expected a severity'):
        at_most(level='pixels')


def test_names_of_checks_are_different(dataset):
    with pytest.raises(ValueError, match="two checks 'gap_seconds'"):
        bags.check(dataset, checks=[at_most('gap_seconds')])


def test_a_reason_to_skip_is_listed(dataset):
    check = Check(
        name='sound_level', severity='info', bound=0, reason='r', bound_source='s',
        applies=lambda field: 'no sound here' if field.name == 'text' else False,
        scores=lambda column: Scores(np.zeros(len(column))),
    )  # fmt: skip
    assert bags.check(dataset, checks=[check]).skipped == [('sound_level', 'text', 'no sound here')]


# Scores.


def test_scores_are_a_dataset_of_their_own(dataset, tmp_path):
    before = {file.name: file.stat().st_mtime_ns for file in dataset.iterdir()}
    bags.check(dataset, save=tmp_path / 'scores', on='id')
    scores = bags.open(tmp_path / 'scores')
    assert scores.column('row').tolist() == scores.column('id').tolist() == list(range(30))
    assert scores.column('state.gap_seconds')[[3, 4, 9]] == pytest.approx([0, 4, 9])
    checked = scores.metadata['checked']
    assert checked['fingerprint'] == bags.open(dataset).fingerprint
    assert [each['check'] for each in checked['findings']] == ['nan_values', 'gap_seconds']
    joined = bags.join([dataset, scores], on='id')
    assert len(joined.filter('state.gap_seconds > 1 or state.nan_values > 0')) == 3
    assert {file.name: file.stat().st_mtime_ns for file in dataset.iterdir()} == before
    with pytest.raises(FileExistsError):
        bags.check(dataset, save=tmp_path / 'scores')
    with pytest.raises(TypeError, match='expected utf8, bytes, int or uint'):
        bags.check(dataset, save=tmp_path / 'other', on='state')


def test_scores_say_where_in_time_and_beside_which_datapoint(tmp_path):
    def change(number, row):
        if number == 5:
            row['state'] = next(rows())['state']
        if number == 8:
            row['state'][20:45] = row['state'][20]
        return with_gap(number, row)

    bags.check(write(tmp_path / 'data', change), save=tmp_path / 'scores')
    scores = bags.open(tmp_path / 'scores')
    gaps = scores.column('state.gap_seconds.span')
    assert gaps[4] == pytest.approx([19 / 30, 20 / 30 + 4])
    assert np.isnan(gaps[np.arange(30) != 4][:5]).all()  # Below the bound.
    assert scores.column('state.stuck_seconds.span')[8] == pytest.approx([20 / 30, 44 / 30])
    others = scores.column('state.equal_records.other')
    assert others[5] == 0
    assert (others[np.arange(30) != 5] == -1).all()
    assert 'state.nan_values.span' not in scores.schema  # No datapoint has one.


def test_scores_of_a_dataset_that_changed_are_refused(dataset, tmp_path):
    from bags.checks.scores import open_scores

    bags.check(dataset, save=tmp_path / 'scores')
    with bags.open(dataset) as reader:
        assert 'state.gap_seconds' in open_scores(reader, tmp_path / 'scores').schema
    shutil.rmtree(dataset)
    with bags.open(write(dataset)) as reader:
        with pytest.raises(ValueError, match='check again'):
            open_scores(reader, tmp_path / 'scores')
        with pytest.raises(ValueError, match='expected scores that'):
            open_scores(reader, dataset)


# Interrupted checks.


def write_photos(path):
    """Episodes with gaps, NaN and a damaged state, and photos, of which 25 looks like 3."""
    rng = np.random.default_rng(1)
    photos = rng.integers(0, 256, (30, 9, 8, 3), np.uint8).repeat(8, 1).repeat(8, 2)
    photos[25] = photos[3] ^ 1
    spec = {**SPEC, 'photo': 'png'}
    with bags.DatasetWriter(path, spec, metadata=METADATA, compression=['state']) as writer:
        for number, row in enumerate(rows()):
            writer.append({**with_nan(number, row), 'photo': photos[number]})
    with open(path / 'state.bagz', 'r+b') as file:
        file.seek(100)
        file.write(b'\xff' * 40)
    return path


class Interrupting:
    """A check that is interrupted when it has seen some blocks, and notes the datapoints."""

    def __init__(self, blocks=None, interrupt=KeyboardInterrupt):
        self.rows, self._left, self._interrupt = [], blocks, interrupt
        self.check = at_most(name='noted_rows', bound=30)
        applies = lambda field: field.name in ('state', 'photo')  # noqa: E731
        self.check = dataclasses.replace(self.check, applies=applies, scores=self._scores)

    def _scores(self, column):
        if self._left is not None:
            self._left -= 1
            if self._left < 0:
                raise self._interrupt
        self.rows += [(column.field.name, row) for row in column.rows.tolist()]
        return column.rows.astype(np.float64)


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setattr(field_run, 'MAX_BLOCK', 4)
    monkeypatch.setattr(field_run, 'FIRST_BLOCK', 4)
    monkeypatch.setattr(check_log, 'SAVE_SECONDS', 0)


def scores_of(path):
    with bags.open(path) as scores:
        return {name: np.asarray(scores.column(name)) for name in scores.schema}, scores.metadata


def test_an_interrupted_check_is_resumed_after_its_last_datapoint(tmp_path, small_blocks):
    dataset, options = write_photos(tmp_path / 'data'), {'decode': True, 'progress': False}
    whole = Interrupting()
    expected = bags.check(dataset, checks=[whole.check], save=tmp_path / 'whole', **options).as_json()
    assert {each['check'] for each in expected['findings']} >= {
        'damaged_datapoints', 'nan_values', 'gap_seconds', 'similar_images',
    }  # fmt: skip
    save, seen = tmp_path / 'scores', []
    for _ in range(20):
        interrupted = Interrupting(3)
        with pytest.raises(KeyboardInterrupt):
            bags.check(dataset, checks=[interrupted.check], save=save, resume=True, **options)
        seen += interrupted.rows
        if len(seen) >= 50:
            break
    assert not save.exists()
    with pytest.raises(FileExistsError, match='an interrupted check: resume=True continues it'):
        bags.check(dataset, save=save)
    with pytest.raises(ValueError, match='resume: expected fingerprint of the earlier run'):
        bags.check(write(tmp_path / 'other'), save=save, resume=True)
    with pytest.raises(ValueError, match='resume: expected window of the earlier run, None, got 9'):
        bags.check(dataset, checks=[whole.check], save=save, resume=True, window=9, **options)
    last = Interrupting()
    found = bags.check(dataset, checks=[last.check], save=save, resume=True, **options).as_json()
    assert found == expected
    assert sorted(seen + last.rows) == sorted(set(whole.rows))  # No datapoint twice.
    (scores, metadata), (others, metadata_of_others) = scores_of(save), scores_of(tmp_path / 'whole')
    assert metadata == metadata_of_others
    assert scores.keys() == others.keys()
    for name, column in scores.items():
        np.testing.assert_array_equal(column, others[name], name)
    assert not (tmp_path / 'scores.progress').exists()


def test_a_killed_check_is_resumed(tmp_path):
    dataset = write(tmp_path / 'data', with_nan)
    program = f"""
import os, sys, bags
from bags.checks import check_log, field_run
from tests.checks.test_check import Interrupting
check_log.SAVE_SECONDS = 0
field_run.MAX_BLOCK = field_run.FIRST_BLOCK = 4
class Killed(Interrupting):
    def _scores(self, column):
        if self._left == 0:
            os._exit(9)
        return super()._scores(column)
bags.check({str(dataset)!r}, checks=[Killed(5).check], save={str(tmp_path / 'scores')!r}, progress=False)
"""
    done = subprocess.run([sys.executable, '-c', program], check=False)
    assert done.returncode == 9
    last = Interrupting()
    found = bags.check(dataset, checks=[last.check], save=tmp_path / 'scores', resume=True)
    assert last.rows == [('state', row) for row in range(20, 30)]
    assert names(found)[:2] == names(bags.check(dataset))


def test_damaged_progress_is_named(tmp_path, small_blocks):
    dataset = write(tmp_path / 'data')
    with pytest.raises(KeyboardInterrupt):
        bags.check(dataset, checks=[Interrupting(3).check], save=tmp_path / 'scores')
    first = min((tmp_path / 'scores.progress').glob('*.scores'))
    stored = decode_tree(first.read_bytes())
    for wrong in (
        b'',
        b'\xc1',
        encode_tree({**stored, 'stop': 0}),
        encode_tree({**stored, 'scores': {'x': [1]}}),
    ):
        first.write_bytes(wrong)
        with pytest.raises(
            ValueError, match=r'00000000\.scores: expected scores of an interrupted check; remove'
        ):
            bags.check(dataset, checks=[Interrupting().check], save=tmp_path / 'scores', resume=True)
    first.unlink()
    assert (
        names(bags.check(dataset, checks=[Interrupting().check], save=tmp_path / 'scores', resume=True)) == []
    )


@pytest.mark.parametrize('wrong', [b'', b'{', b'\xff', b'[' * 100_000])
def test_damaged_options_of_an_interrupted_check_are_named(tmp_path, small_blocks, wrong):
    dataset = write(tmp_path / 'data')
    with pytest.raises(KeyboardInterrupt):
        bags.check(dataset, checks=[Interrupting(3).check], save=tmp_path / 'scores')
    (tmp_path / 'scores.progress/check.json').write_bytes(wrong)
    with pytest.raises(ValueError, match=r'check\.json: expected the options of an interrupted check'):
        bags.check(dataset, checks=[Interrupting().check], save=tmp_path / 'scores', resume=True)


def test_a_folder_of_datasets_is_a_split(tmp_path):
    rng = np.random.default_rng(0)
    images = [rng.integers(0, 255, (12, 12, 3), np.uint8) for _ in range(40)]
    for name, chosen in (('train', range(30)), ('val', [30, 4, 31, 32])):
        with bags.DatasetWriter(tmp_path / 'parts' / name, {'image': 'png'}, checksum=True) as writer:
            for number in chosen:
                writer.append({'image': images[number]})
    found = bags.check(tmp_path / 'parts')
    assert names(found) == [('error', 'shared_records', 'image', (31,))]
    assert found[0].detail == 'is equal to a datapoint of another split: val 1, and train 4'
    assert found[0].show == f"bags view {tmp_path}/parts/val '#view=datapoint&at=1'"
    assert found[0].leave_out == f'bags edit {tmp_path}/parts/val clean/val --drop 1'
    assert found.datapoints == 34


def test_the_edit_of_a_split_names_each_part(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / 'parts' / 'train', with_nan)

    def change(number, row):
        if number == 20:
            row['state'], row['time'] = [], []
        return with_gap(number, row)

    write(tmp_path / 'parts' / 'val', change)
    found = bags.check('parts', skip=['shared_records', 'equal_records'])
    lines = {each.check: each.leave_out for each in found if each.severity != 'info'}
    edits = [f'bags edit parts/{name} clean/{name}' for name in ('train', 'val')]
    assert lines['nan_values'] == f'{edits[0]} --drop 7'
    assert lines['gap_seconds'] == f'{edits[0]} --drop 4,9 && {edits[1]} --drop 4,9'
    assert lines['empty_sequences'] == ' && '.join(f"{edit} --where 'len(state) > 0'" for edit in edits)
    assert found.leave_out == f'{edits[0]} --drop 4,7,9 && {edits[1]} --drop 4,9,20'
    assert str(found).splitlines()[-1].endswith(found.leave_out)


# A reference.


def like(dataset, reference, **options):
    return {(each.check, each.field) for each in bags.check(dataset, like=reference, **options)}


def test_a_dataset_is_compared_with_a_reference(tmp_path):
    reference = write(tmp_path / 'good')
    assert like(write(tmp_path / 'same'), reference) == set()

    def change(number, row):
        row['state'][:, 1] += 4
        row['time'] = row['time'] * 2
        return row

    assert like(write(tmp_path / 'other', change), reference) == {
        ('unlike_ranges_share', 'state'),
        ('unlike_intervals_share', 'state'),
    }
    found = bags.check(tmp_path / 'other', like=reference)
    (ranges,) = [each for each in found if each.check == 'unlike_ranges_share']
    assert ranges.detail.startswith('state[1]: 100% of the sampled numbers are outside')
    with bags.open(reference) as opened:
        assert like(tmp_path / 'other', opened, skip=['state']) == set()
        bounds = {'unlike_intervals_share': 2}
        assert like(tmp_path / 'other', opened, bounds=bounds) == {('unlike_ranges_share', 'state')}
    assert like(tmp_path / 'other', reference, only=['unlike_intervals_share']) == {
        ('unlike_intervals_share', 'state')
    }


def test_fields_types_and_facts_are_compared_with_a_reference(tmp_path):
    def table(name, arrays, facts):
        bags.from_numpy(arrays, tmp_path / name)
        bags.set_metadata(tmp_path / name, {'fields': facts})
        return tmp_path / name

    numbers = np.arange(50)
    good = table('good', {'a': numbers, 'b': numbers, 'c': numbers}, {'a': {'classes': list('xy')}})
    other = table(
        'other', {'a': numbers % 2, 'b': numbers * 0.5, 'd': numbers}, {'a': {'classes': ['x', 'y', 'z']}}
    )
    assert like(other, good) == {
        ('unlike_facts', 'a'), ('unlike_types', 'b'), ('unlike_fields', 'c'), ('unlike_fields', 'd'),
    }  # fmt: skip
    assert bags.check(other, like=good).has('error')
    with pytest.raises(ValueError, match='expected a check'):
        bags.check(other, only=['unlike_facts'])


def test_depth_is_not_black(tmp_path):
    pytest.importorskip('av')
    depth = np.random.default_rng(0).integers(1500, 2500, (8, 64, 64)).astype(np.uint16)
    with bags.DatasetWriter(tmp_path / 'it', {'depth': 'video'}) as writer:
        for _ in range(3):
            writer.append({'depth': depth})
        writer.append({'depth': 0 * depth})
    with bags.open(tmp_path / 'it') as dataset:
        (finding,) = (found for found in bags.check(dataset, decode=True) if found.check == 'black_share')
    assert list(finding.datapoints) == [3]
