"""Libraries that do not know links refuse linked datasets, each in a process of its own."""

import io
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import bags

ROOT = Path(__file__).parent.parent.parent
BEFORE_LINKS = '4a8a471'
"""The last version of this library that knows no links, by its commit."""
SPEC = {'id': 'int(8)', 'x': 'bytes'}
READ = """
import importlib, sys

library = importlib.import_module(sys.argv[1])
print(library.__file__)
for path, reader in zip(sys.argv[2::2], sys.argv[3::2]):
    try:
        options = () if reader == 'open' else (library.decoders,)
        dataset = getattr(library, reader)(path, *options)
        print([dict(dataset[index]) for index in range(len(dataset))])
    except Exception as exc:
        print(f'{type(exc).__name__}: {exc}')
"""
NO_FILE = 'FileNotFoundError: [Errno 2] No such file or directory: '
NO_NUMBER = 'ValueError: invalid literal for int() with base 10: '


@pytest.fixture(scope='module')
def before_links(tmp_path_factory):
    """The folder of the package as of a commit before links."""
    git = ['git', '-C', str(ROOT)]
    try:
        done = subprocess.run(
            [*git, 'archive', '--format=zip', BEFORE_LINKS, 'bags'], capture_output=True, check=False
        )
    except FileNotFoundError:
        pytest.skip('git is needed for this')
    if done.returncode:
        pytest.skip(f'a clone with the commit {BEFORE_LINKS} is needed for this')
    folder = tmp_path_factory.mktemp('before_links')
    with zipfile.ZipFile(io.BytesIO(done.stdout)) as archive:
        archive.extractall(folder)
    return folder


@pytest.fixture(scope='module')
def bags_0_5_1():
    """The folder of the package of Bags 0.5.1, which `make` installs into the environment."""
    folder = Path(sys.prefix) / 'bags-0.5.1'
    if not folder.exists():
        pytest.skip(f'Bags 0.5.1 is needed for this: pip install --no-deps --target {folder} bags==0.5.1')
    return folder


@pytest.fixture
def made(tmp_path):
    """A folder and a folder of shards with links, the latter copied as links, and a folder without."""
    (tmp_path / 'raw').write_bytes(b'linked')
    for name, links in [('folder', ['x']), ('shards', ['x']), ('whole', [])]:
        writer = bags.ShardedDatasetWriter if name == 'shards' else bags.DatasetWriter
        with writer(tmp_path / name, SPEC, linked_fields=links) as opened:
            for index in range(3):
                opened.append({'id': index, 'x': bags.Link(tmp_path / 'raw') if links else b'own'})
    bags.open(tmp_path / 'shards').save(tmp_path / 'view', link=['x'])
    return tmp_path


def read(library, folder, made, reader, reader_of_shards):
    """Reads the datasets with a library in a folder, or an installed one: values or errors by name."""
    readers = {'folder': reader, 'shards': reader_of_shards, 'view': reader_of_shards, 'whole': reader}
    arguments = [argument for name, each in readers.items() for argument in (str(made / name), each)]
    done = subprocess.run(
        [sys.executable, '-c', READ, library, *arguments],
        cwd=made, env={**os.environ, 'PYTHONPATH': str(folder or '')}, capture_output=True, check=True,
        text=True,
    )  # fmt: skip
    home, *found = done.stdout.splitlines()
    assert folder is None or Path(home).is_relative_to(folder)
    return dict(zip(readers, found, strict=True))


def test_the_version_before_links(made, before_links):
    found = read('bags', before_links, made, 'open', 'open')
    detail = "field 'x': has neither x.bag nor x.bagz"
    assert found['folder'] == f'CorruptError: {made}/folder: {detail}'
    assert found['shards'] == f'CorruptError: {made}/shards/000000: {detail}'
    assert found['view'] == f'CorruptError: {made}/view/000000: {detail}'
    assert found['whole'] == str([{'id': index, 'x': b'own'} for index in range(3)])


def test_bags_0_5_1(made, bags_0_5_1):
    found = read('bags', bags_0_5_1, made, 'DatasetReader', 'ShardedDatasetReader')
    assert found['folder'] == f"{NO_FILE}'{made}/folder/x.bag'"
    assert found['shards'] == f"{NO_FILE}'{made}/shards/000000/x.bag'"
    # It takes every name in a folder of shards for a number: also of copies without links.
    assert found['view'] == f"{NO_NUMBER}'progress.json'"


def test_granular(made):
    pytest.importorskip('granular')
    found = read('granular', None, made, 'DatasetReader', 'ShardedDatasetReader')
    # It has `.idx` files, and reads no dataset without, with links or not.
    assert found['folder'] == f"{NO_FILE}'{made}/folder/id.idx'"
    assert found['shards'] == f"{NO_FILE}'{made}/shards/000000/id.idx'"
    assert found['view'] == f"{NO_NUMBER}'progress.json'"
