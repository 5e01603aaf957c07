"""`bags check`, and the commands that use its findings and scores."""

import json
import shlex

import numpy as np
import pytest

import bags

SPEC = {'id': 'int(8)', 'state': 'array(float32,3)[]', 'time': 'float(8)[]', 'text': 'utf8'}
COUNT = 20


@pytest.fixture
def episodes(tmp_path, monkeypatch):
    """Episodes in the working directory: a gap in 4, NaN in 7."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    metadata = {'fields': {'state': {'times': 'time'}}}
    with bags.DatasetWriter('episodes', SPEC, metadata=metadata) as writer:
        for number in range(COUNT):
            state = np.sin(np.linspace(0, 3, 60)[:, None] + rng.random(3)) + rng.normal(0, 0.001, (60, 3))
            time = np.arange(60) / 30
            if number == 4:
                time[20:] += 3
            if number == 7:
                state[30, 1] = np.nan
            writer.append(
                {'id': number, 'state': state.astype(np.float32), 'time': time, 'text': f'text {number}'}
            )
    return tmp_path


def test_findings_are_a_table_with_commands(run, episodes):
    lines = run('check', 'episodes', code=1).stdout.splitlines()
    assert lines[0].split() == ['severity', 'field', 'check', 'found', 'bound', 'datapoints']
    assert lines[1].split()[:5] == ['error', 'state', 'nan_values', '1', '0']
    assert lines[2].strip() == "bags view episodes '#view=datapoint&at=7&t=1.000'"
    assert lines[3].strip() == 'bags edit episodes clean --drop 7'
    assert lines[4].split()[:5] == ['warning', 'state', 'gap_seconds', '3', '0.2']
    assert lines[-2] == 'without all of these: bags edit episodes clean --drop 4,7'
    assert lines[-1] == 'episodes: 1 error, 1 warning, 20 datapoints'
    assert (
        run('check', 'episodes', '--only', 'text').stdout == 'episodes: 0 errors, 0 warnings, 20 datapoints\n'
    )


def test_the_commands_of_findings_work(run, episodes):
    found = bags.check('episodes')
    for number, finding in enumerate(found):
        command = shlex.split(finding.leave_out)[1:]
        command[2] = f'clean{number}'
        run(*command)
        assert len(bags.open(f'clean{number}')) == COUNT - 1
        assert not [each for each in bags.check(f'clean{number}') if each.check == finding.check]


def test_exit_codes(run, episodes):
    run('check', 'episodes', '--skip', 'nan_values', code=0)
    run('check', 'episodes', '--skip', 'nan_values', '--fail-on', 'warning', code=1)
    run('check', 'episodes', '--skip', 'nan_values', '--fail-on', 'warning', '--bound', 'gap_seconds=5')
    for arguments, message in [
        (['--only', 'gap_secondz'], "only: expected a check or a field, got 'gap_secondz'; did you mean"),
        (['--bound', 'gap_seconds'], '--bound: expected OLD=NEW'),
        (['--bound', 'gap_seconds=much'], "--bound: gap_seconds: expected a number, got 'much'"),
        (['--bound', 'gap=1'], '--bound: expected a check'),
        (['--fail-on', 'info'], 'expected one of'),
        (['--on', 'id'], '--on needs --save'),
    ]:
        assert message in run('check', 'episodes', *arguments, code=2).stderr
    assert 'no such' in run('check', 'nothing', code=1).stderr
    assert 'expected a dataset' in run('check', 'episodes/text.bag', code=2).stderr


def test_json(run, episodes):
    answer = json.loads(run('check', 'episodes', '--json', '--window', 100, code=1).stdout)
    assert list(answer) == [
        'path', 'datapoints', 'fingerprint', 'findings', 'skipped', 'installed', 'leave_out',
    ]  # fmt: skip
    assert {each['check'] for each in answer['findings']} == {
        'nan_values', 'gap_seconds', 'window_missing_items',
    }  # fmt: skip
    (gap,) = [each for each in answer['findings'] if each['check'] == 'gap_seconds']
    assert (gap['datapoints'], gap['count'], gap['field']) == ([4], 1, 'state')


def test_scores_select_datapoints(run, episodes):
    run('check', 'episodes', '--save', 'scores', '--on', 'id', code=1)
    where = 'not state.gap_seconds > 1 and not state.nan_values > 0'
    run('edit', 'episodes', 'clean', '--scores', 'scores', '--where', where)
    assert bags.open('clean').column('id').tolist() == [n for n in range(COUNT) if n not in (4, 7)]
    assert bags.open('clean').spec == bags.open('episodes').spec
    assert '--scores needs --where' in run('edit', 'episodes', 'x', '--scores', 'scores', code=2).stderr
    refused = run('edit', 'clean', 'x', '--scores', 'scores', '--where', where, code=1).stderr
    assert 'check again' in refused
    assert (
        'no field' in run('edit', 'episodes', 'x', '--scores', 'scores', '--where', 'x.y > 1', code=2).stderr
    )


def test_scores_are_fields_of_the_page(run, episodes, monkeypatch):
    from bags.viewer import page

    (episodes / 'page').mkdir()
    (episodes / 'page' / 'index.html').write_text('page')
    monkeypatch.setattr(page, 'PAGE', str(episodes / 'page'))
    run('check', 'episodes', '--save', 'scores', code=1)
    run('view', 'episodes', '--scores', 'scores', '--export', 'site', '--with-data')
    shown = bags.open('site/data/episodes')
    assert shown.column('state.gap_seconds')[4] == pytest.approx(3)
    assert shown[7, 'id'] == {'id': 7}
    checked = shown.metadata['checked']
    assert {each['check']: each['datapoints'] for each in checked['findings']}['gap_seconds'] == [4]
    assert 'state.gap_seconds.span' in checked['scores']
    assert 'show' not in checked['findings'][0]  # A published page names no path of this machine.
    assert '--scores' in run('view', 'episodes', '--scores', 'scores', '--export', 'x', code=2).stderr
    assert 'begins with #' in run('view', 'episodes', 'view=fields', '--no-browser', code=2).stderr


def test_a_folder_of_files_is_checked_in_place(run, episodes):
    (episodes / 'photos').mkdir()
    rng = np.random.default_rng(0)
    for number in range(8):
        image = bags.encoders['jpeg'](rng.integers(0, 255, (24, 32, 3), np.uint8))
        (episodes / 'photos' / f'{number}.jpg').write_bytes(bytes(image))
        (episodes / 'photos' / f'{number}.txt').write_text('' if number == 5 else f'photo {number}')
    (episodes / 'photos' / '7.jpg').write_bytes((episodes / 'photos' / '2.jpg').read_bytes())
    answer = json.loads(run('check', 'photos', '--json', '--fail-on', 'warning', code=1).stdout)
    found = {(each['check'], each['field']): each['datapoints'] for each in answer['findings']}
    assert found['equal_records', 'jpg'] == [7]
    assert found['blank_texts', 'txt'] == [5]
    assert len(list((episodes / 'photos').iterdir())) == 16


def test_a_table_is_checked_too(run, episodes):
    lines = [f'{number},{"" if number == 7 else f"name {number}"}' for number in range(30)]
    (episodes / 'table.csv').write_text('\n'.join(['id,name', *lines]))
    answer = json.loads(run('check', 'table.csv', '--json').stdout)
    assert answer['datapoints'] == 30
    assert 'name' in {each['field'] for each in answer['findings']}
