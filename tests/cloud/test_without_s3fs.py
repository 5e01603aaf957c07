"""Buckets with obstore alone, as `pip install 'bags[s3]'` leaves it: what a user does, in a new process."""

import json
import os
import re
import shutil
import subprocess
import sys
import textwrap
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / 'tests' / 'interop' / 'sources' / 'golden'
START = """
import json, multiprocessing, os, sys, warnings
for name in ('s3fs', 'gcsfs', 'adlfs', 'aiobotocore', 'botocore', 'boto3', 'aiohttp'):
    sys.modules[name] = None
import numpy as np
import bags
from bags.storage import store_for

root, options = sys.argv[1], json.loads(sys.argv[2])

def upload(folder, url):
    for parent, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(parent, name)
            store, target = store_for(f'{url}/{os.path.relpath(path, folder)}', None, options)
            with open(path, 'rb') as file:
                store.replace(target, file.read())

def rows(path, **more):
    return sorted(bags.open(path, raw=True, **more), key=lambda row: bytes(row.get('__key__', b'')))
"""


@pytest.fixture
def alone(s3, tmp_path, request):
    """Runs code in a process in which s3fs, and what it depends on, cannot be imported."""
    root = f's3://bucket/alone/{request.node.name}'

    def run(code, options=None, **environment):
        options = {'key': 'a', 'secret': 'b', 'endpoint_url': s3} if options is None else options
        script = tmp_path / 'script.py'
        script.write_text(START + textwrap.dedent(code))
        done = subprocess.run(
            [sys.executable, '-W', 'error', script, root, json.dumps(options)],
            env={**os.environ, 'PYTHONPATH': str(ROOT), **environment}, capture_output=True, check=False,
            cwd=tmp_path, timeout=120, text=True,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


def test_a_dataset_is_written_and_read(alone):
    printed = alone("""
        with bags.ShardedDatasetWriter(
            f'{root}/a', {'id': 'int', 'text': 'utf8'}, shard_length=3, storage_options=options
        ) as writer:
            for number in range(8):
                writer.append({'id': number, 'text': f'text {number}'})
        with bags.open(f'{root}/a', storage_options=options) as dataset:
            print(len(dataset), dataset[7], sum(len(batch['id']) for batch in bags.Loader(dataset, 4)))
        print(bags.verify(f'{root}/a', storage_options=options))
    """)
    assert printed == "8 {'id': 7, 'text': 'text 7'} 8\n[]\n"


PROCESSES = """
def child(queue, dataset, index):
    try:
        queue.put(dataset[index]['id'])
    except Exception as exc:
        queue.put(f'{type(exc).__name__}: {exc}')

if __name__ == '__main__':
    warnings.simplefilter('ignore', DeprecationWarning)  # Of forks beside threads.
    bags.from_numpy({'id': np.arange(9)}, f'{root}/a', storage_options=options)
    dataset = bags.open(f'{root}/a', storage_options=options)
    context = multiprocessing.get_context(os.environ['METHOD'])
    queue = context.Queue()
    process = context.Process(target=child, args=(queue, dataset, 5))
    process.start()
    print(queue.get(timeout=60))
    process.join()
    print(dataset[6]['id'])
"""


@pytest.mark.parametrize('method', ['spawn', 'forkserver'])
def test_processes_that_are_started_anew(alone, method):
    assert alone(PROCESSES, METHOD=method) == '5\n6\n'


def test_a_forked_process_says_what_helps(alone):
    child, parent = alone(PROCESSES, METHOD='fork').splitlines()
    assert child == (
        "MissingDependencyError: s3fs is needed for this: pip install 'bags[s3fs]'; this process was forked "
        "from one that had loaded obstore, which does not work in it; processes that are started by 'spawn' "
        "or 'forkserver' can use obstore"
    )
    assert parent == '6'


LINKED = """
    upload(os.environ['DATA'], f'{root}/data')
    both = {'storage_options': options, 'source_options': options}
    done = bags.convert(f'{root}/data', f'{root}/index', link=True, **both)
    linked = {'trust_links': done.parents, 'storage_options': options}
"""


@pytest.fixture
def data(tmp_path):
    (tmp_path / 'data').mkdir()
    for name in ('cat.jpg', 'cat.txt', 'rocket.jpg', 'rocket.txt'):
        shutil.copy(ROOT / 'examples' / 'data' / name, tmp_path / 'data')
    return str(tmp_path / 'data')


def test_an_import_and_links(alone, data):
    code = """
    bags.convert(f'{root}/data', 'copy', source_options=options)
    print(rows(f'{root}/index', **linked) == rows('copy'), len(rows('copy')))
    upload(os.environ['DATA'], f'{root}/data/more')
    done = bags.convert(f'{root}/data', f'{root}/index', link=True, update=True, **both)
    with bags.open(f'{root}/index', **linked) as dataset:
        loader = bags.Loader(dataset[:, '__key__'], 4)
        print(done.datapoints, sum(len(batch['__key__']) for batch in loader))
    """
    assert alone(LINKED + code, DATA=data) == 'True 2\n4 4\n'


def test_exports(alone, data):
    code = """
    expected = rows(f'{root}/index', **linked)
    with bags.open(f'{root}/index', **linked) as dataset:
        for format in ('webdataset', 'files', 'parquet'):
            bags.export(dataset, f'{root}/{format}', format=format, storage_options=options)
            bags.convert(f'{root}/{format}', format, source_options=options)
            print(format, rows(format) == expected)
    bags.convert([f'{root}/webdataset/*.tar'], 'globbed', source_options=options)
    bags.convert(f'{root}/parquet/' + '{000000..000000}.parquet', 'braces', source_options=options)
    print(rows('globbed') == rows('braces') == expected)
    """
    printed = 'webdataset True\nfiles True\nparquet True\nTrue\n'
    assert alone(LINKED + code, DATA=data) == printed


KEYS = """
    [default]
    aws_access_key_id = none
    aws_secret_access_key = none
    [lab]
    aws_access_key_id = a
    aws_secret_access_key = b
"""
CONFIG = """
    [profile lab]
    region = us-east-1
    [profile work]
    sso_session = work
    region = eu-west-1
"""
PROFILE = """
    try:
        bags.from_numpy({'id': np.arange(3)}, f'{root}/a', storage_options=options)
        print(len(bags.open(f'{root}/a', storage_options=options)))
    except Exception as exc:
        print(type(exc).__name__, exc)
    from bags.storage.obstore_options import obstore_settings
    print(obstore_settings('s3', options).config.get('access_key_id'))
"""


@pytest.mark.parametrize(
    ('profile', 'printed'),
    [
        ('lab', '3\na\n'),
        (
            'work',
            "MissingDependencyError .* pip install botocore; profile 'work' of AWS has sso_session, and no",
        ),
        ('none', "ValueError profile 'none' of AWS: expected it in .*config or .*credentials, got none"),
    ],
)
@pytest.mark.parametrize('is_option', [True, pytest.param(False, marks=pytest.mark.slow)])
def test_profiles_are_read(alone, s3, tmp_path, profile, printed, is_option):
    for name, text in {'config': CONFIG, 'credentials': KEYS}.items():
        (tmp_path / name).write_text(textwrap.dedent(text))
    options = {'endpoint_url': s3, **({'profile': profile} if is_option else {})}
    environment = {
        'AWS_SHARED_CREDENTIALS_FILE': str(tmp_path / 'credentials'),
        'AWS_CONFIG_FILE': str(tmp_path / 'config'),
        'AWS_EC2_METADATA_DISABLED': 'true',
        **({} if is_option else {'AWS_PROFILE': profile}),
    }
    code = PROFILE if profile == 'lab' else PROFILE.partition('    from bags')[0]
    assert re.match(printed, alone(code, options, **environment))


@pytest.mark.slow
def test_each_format_is_imported(alone, tmp_path):
    for name in ('replay_v2', 'replay_v3'):
        zipfile.ZipFile(GOLDEN / f'{name}.zarr.zip').extractall(tmp_path / 'golden' / f'{name}.zarr')
    printed = alone(f"""
        import shutil
        golden = {str(GOLDEN)!r}
        shutil.copytree(golden, 'golden', dirs_exist_ok=True)
        upload('golden', f'{{root}}/golden')
        sources = [
            'aloha', 'hf/hub', 'hf/saved', 'lerobot_v2', 'lerobot_v3', 'litdata', 'litdata-batch',
            'litdata-chunk', 'litdata-rows', 'mds', 'mds-gz', 'mds-zstd', 'npz', 'replay_v2.zarr',
            'replay_v3.zarr', 'robomimic.hdf5', 'tfds', 'tfrecord.tfrecord', 'tfrecord-gz.tfrecord.gz',
        ]
        for number, source in enumerate(sources):
            try:
                bags.convert(f'golden/{{source}}', f'local-{{number}}')
                bags.convert(f'{{root}}/golden/{{source}}', f'remote-{{number}}', source_options=options)
                print(source, rows(f'local-{{number}}') == rows(f'remote-{{number}}'))
            except Exception as exc:
                print(source, type(exc).__name__, exc)
    """)
    assert [line.split(' ', 1)[1] for line in printed.splitlines()] == ['True'] * 19, printed
