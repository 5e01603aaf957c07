"""A package that adds a type and an importer, installed with pip: what it adds, and datasets without it."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
import tomllib
import zipfile
from pathlib import Path

import pytest

import bags
from bags.dataset.format.plug_ins import find_one

EXTENSION = Path(__file__).parents[2] / 'extension'


def build_wheel(folder, name=None, code=None):
    """Makes a wheel of the package in tests/extension, or of one with another name or code."""
    project = tomllib.loads((EXTENSION / 'pyproject.toml').read_text())
    name = name or project['project']['name']
    version = project['project']['version']
    info = f'{name.replace("-", "_")}-{version}.dist-info'
    groups = project['project']['entry-points'].items()
    files = {
        'bags_cloud.py': (EXTENSION / 'bags_cloud.py').read_text() if code is None else code,
        f'{info}/METADATA': f'Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n',
        f'{info}/WHEEL': 'Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n',
        f'{info}/entry_points.txt': ''.join(
            f'[{group}]\n' + ''.join(f'{format} = {value}\n' for format, value in points.items())
            for group, points in groups
        ),
    }
    files[f'{info}/RECORD'] = ''.join(f'{each},,\n' for each in [*files, f'{info}/RECORD'])
    path = folder / f'{name.replace("-", "_")}-{version}-py3-none-any.whl'
    with zipfile.ZipFile(path, 'w') as wheel:
        for each, content in files.items():
            wheel.writestr(each, content)
    return path


def install(wheel, folder):
    pip = [sys.executable, '-m', 'pip', 'install', '--quiet', '--no-index', '--no-deps', '--no-compile']
    subprocess.run([*pip, '--disable-pip-version-check', '--target', folder, wheel], check=True)
    return folder


@pytest.fixture(scope='module')
def installed(tmp_path_factory):
    """The folder of the installed package, for PYTHONPATH."""
    folder = tmp_path_factory.mktemp('extension')
    return install(build_wheel(folder), folder / 'installed')


@pytest.fixture
def put(tmp_path, monkeypatch):
    """Makes a package with some code importable in this process."""

    def put(code=None, name=None):
        folder = tmp_path / (name or 'put')
        with zipfile.ZipFile(build_wheel(tmp_path, name, code)) as wheel:
            wheel.extractall(folder)
        monkeypatch.syspath_prepend(folder)

    sys.modules.pop('bags_cloud', None)
    yield put
    sys.modules.pop('bags_cloud', None)


WRITE = """
import sys
import numpy as np
import bags

sweeps = np.arange(4 * 2 * 3, dtype=np.float32).reshape(4, 2, 3)
spec = {'id': 'int', 'note': 'utf8?', 'scan': 'cloud(2)'}
for name, writer in (('folder', bags.DatasetWriter), ('shards', bags.ShardedDatasetWriter)):
    with writer(f'{sys.argv[1]}/{name}', spec) as opened:
        opened.append({'id': 7, 'note': 'first', 'scan': sweeps})
        opened.append({'id': 8, 'note': None, 'scan': sweeps[:1]})
with bags.DatasetWriter(f'{sys.argv[1]}/folder', spec, resume=True) as opened:
    opened.append({'id': 9, 'scan': sweeps[::-1]})
"""


@pytest.fixture(scope='module')
def written(kit, installed, tmp_path_factory):
    """A folder with two datasets that a program with the package wrote."""
    folder = tmp_path_factory.mktemp('written')
    kit.python(WRITE, folder, paths=[installed])
    return folder


READ = """
import sys
import numpy as np
import bags

sweeps = np.arange(4 * 2 * 3, dtype=np.float32).reshape(4, 2, 3)
for name in ('folder', 'shards'):
    dataset = bags.open(f'{sys.argv[1]}/{name}')
    scan = dataset[0]['scan']
    assert len(scan) == 4
    assert np.array_equal(scan[np.array([2])], sweeps[[2]])
    assert np.array_equal(dataset[0, {'scan': bags.frames(1, 3)}]['scan'], sweeps[1:3])
    assert dataset.lengths('scan')[:2].tolist() == [4, 1]
    windows = dataset.windows(every='scan', scan=bags.steps(0, 2))
    assert np.array_equal(windows[1]['scan'], sweeps[1:3])
    for batch in bags.Loader(windows, 2, shuffle=False, epochs=1, workers=0):
        assert batch['scan'].shape == (2, 2, 2, 3)
        break
    assert not bags.verify(f'{sys.argv[1]}/{name}', decode=True, notes=True)
assert 'cloud' not in list(bags.decoders)
assert bags.open(f'{sys.argv[1]}/folder', {**bags.decoders, 'cloud': bags.decoders['cloud']})[1]['id'] == 8
"""


def test_a_second_program_reads_the_type(kit, installed, written):
    kit.python(READ, written, paths=[installed])


@pytest.mark.parametrize('name', ['folder', 'shards'])
def test_without_the_package(written, name):
    dataset = bags.open(written / name)
    assert dataset[0, ('id', 'note')] == {'id': 7, 'note': 'first'}
    with pytest.raises(bags.SpecError) as error:
        dataset[0]
    assert str(error.value).endswith(
        "field 'scan' of type cloud(2): no decoder for 'cloud', a type of the package 'bags-cloud'; without "
        "it, 'id', 'note' can be read; raw=True reads the records of all fields"
    )
    assert error.value.field == 'scan'
    assert error.value.got == 'cloud(2)'
    raw = bags.open(written / name, raw=True)
    assert len(bytes(raw[0]['scan'])) == 4 * 24
    (note,) = bags.verify(written / name, decode=True, notes=True)
    assert str(note.detail) == 'values of cloud(2) are not decoded: there is no decoder for them'


def test_the_package_is_in_the_metadata_only_of_such_fields(written, tmp_path):
    expected = {'fields': {'scan': {'package': 'bags-cloud'}}}
    assert json.loads((written / 'folder' / 'metadata.json').read_text()) == expected
    assert bags.open(written / 'shards').metadata == expected
    with bags.DatasetWriter(
        tmp_path / 'own', {'id': 'int', 'scan': 'cloud'}, {**bags.encoders, 'cloud': bytes}
    ):
        pass
    assert not (tmp_path / 'own' / 'metadata.json').exists()


def test_metadata_that_is_replaced_keeps_the_package(written, tmp_path):
    bags.copy(written / 'folder', tmp_path / 'same')
    assert bags.open(tmp_path / 'same').metadata == {'fields': {'scan': {'package': 'bags-cloud'}}}
    own = {'robot': 'arm', 'fields': {'scan': {'rate': 10}, 'id': {'package': 'a box'}}}
    bags.copy(written / 'folder', tmp_path / 'copy', metadata=own)
    expected = {
        'robot': 'arm',
        'fields': {'scan': {'rate': 10, 'package': 'bags-cloud'}, 'id': {'package': 'a box'}},
    }
    assert bags.open(tmp_path / 'copy').metadata == expected
    bags.set_metadata(tmp_path / 'copy', {'robot': 'leg'})
    kept = {'robot': 'leg', 'fields': {'scan': {'package': 'bags-cloud'}}}
    assert bags.open(tmp_path / 'copy').metadata == kept


@pytest.mark.parametrize('package', ['x; rm -rf /', 'a' * 200, 7, '', '-e .', '../cloud', 'https://a.b/c'])
def test_a_name_that_is_no_package_is_not_shown(tmp_path, package):
    metadata = {'fields': {'scan': {'package': package}}}
    encoders = {**bags.encoders, 'cloud': bytes}
    with bags.DatasetWriter(tmp_path / 'd', {'scan': 'cloud'}, encoders, metadata=metadata) as writer:
        writer.append({'scan': b''})
    with pytest.raises(bags.SpecError, match="no decoder for 'cloud'; raw=True reads the records"):
        bags.open(tmp_path / 'd')[0]


def test_the_spec_names_no_module(tmp_path):
    # A word is compared with the names of entry points; it is never imported.
    (tmp_path / 'evil.py').write_text('raise SystemExit("imported")')
    with bags.DatasetWriter(tmp_path / 'd', {'x': 'evil'}, {'evil': bytes}) as writer:
        writer.append({'x': b''})
    sys.path.insert(0, str(tmp_path))
    try:
        with pytest.raises(bags.SpecError, match="no decoder for 'evil'"):
            bags.open(tmp_path / 'd')[0]
    finally:
        sys.path.remove(str(tmp_path))
    assert 'evil' not in sys.modules


def test_arguments_are_checked_by_the_package(kit, installed, tmp_path):
    code = """
        import sys, bags
        for make in (bags.DatasetWriter, bags.ShardedDatasetWriter):
            try:
                make(sys.argv[1], {'scan': 'cloud(x)'})
            except bags.SpecError as error:
                print(error)
    """
    found = kit.python(textwrap.dedent(code), tmp_path / 'd', paths=[installed]).decode().splitlines()
    assert found == ["field 'scan': expected a number of points, not 'x', got 'cloud(x)'"] * 2


@pytest.mark.parametrize(
    ('code', 'expected'),
    [
        (
            'import no_such_module',
            'the package bags-cloud to load, not ModuleNotFoundError: No module',
        ),
        (
            'def encode(value): ...',
            "encode and decode of 'cloud' in the package bags-cloud, not <module",
        ),
    ],
)
def test_packages_that_cannot_be_used(put, written, code, expected):
    put(code)
    dataset = bags.open(written / 'folder')
    assert dataset[0, 'id'] == {'id': 7}
    with pytest.raises(bags.SpecError, match=expected):
        dataset[0]
    (note,) = bags.verify(written / 'folder', decode=True, notes=True)
    assert note.detail.startswith('values of cloud(2) are not decoded: expected ')


def test_two_packages_with_one_word(put, written):
    for name in ('bags-cloud', 'other-cloud'):
        put(name=name)
    with pytest.raises(ValueError, match="one package that has 'cloud', got bags-cloud and other-cloud"):
        find_one('bags.formats', 'cloud')
    with pytest.raises(bags.SpecError, match="one package that has 'cloud', not bags-cloud and other-cloud"):
        bags.open(written / 'folder')[0]


IMPORT = """
import sys
from pathlib import Path
import numpy as np
import bags

folder = Path(sys.argv[1])
(folder / 'scans').mkdir()
(folder / 'scans' / 'README.md').write_text('Two scans.')
for name in 'ab':
    np.savetxt(folder / 'scans' / f'{name}.xyz', np.full((2, 3), ord(name)))
done = bags.convert(folder / 'scans', folder / 'dataset')
assert done.spec == {'name': 'utf8', 'scan': 'cloud(2)'}
assert done.notes == ["left out: 'README.md'"], done.notes
dataset = bags.open(folder / 'dataset')
assert dataset.metadata == {'fields': {'scan': {'package': 'bags-cloud'}}}
assert [row['name'] for row in dataset] == ['a.xyz', 'b.xyz']
assert dataset[1, {'scan': bags.frames([0])}]['scan'].tolist() == [[[98.0] * 3] * 2]
one, both = folder / 'scans' / 'a.xyz', f'{folder}/scans/*.xyz'
for number, (source, length) in enumerate([(one, 1), ([one], 1), (both, 2)]):
    bags.convert(source, folder / f'of-{number}')
    assert len(bags.open(folder / f'of-{number}')) == length
(folder / 'scans' / 'c.xyz').write_text('1 2 3')
(folder / 'scans' / 'd.txt').write_text('1 2 3')
as_files = bags.convert(folder / 'scans', folder / 'files').spec
assert as_files == {'__key__': 'utf8', 'txt': 'utf8?', 'xyz': 'bytes?'}
bags.convert(folder / 'scans', folder / 'given', format='xyz', on_error='skip')
assert len(bags.open(folder / 'given')) == 2
try:
    bags.convert(folder / 'scans', folder / 'damaged', format='xyz')
except bags.SourceError as error:
    assert 'c.xyz' in str(error), error
"""


def test_the_importer_of_a_package(kit, installed, tmp_path):
    kit.python(IMPORT, tmp_path, paths=[installed])


def test_files_without_the_importer(tmp_path):
    (tmp_path / 'a.xyz').write_text('1 2 3')
    with pytest.raises(ValueError, match=r"format: expected .*, got 'xyz'"):
        bags.convert(tmp_path / 'a.xyz', tmp_path / 'out', format='xyz')
    with pytest.raises(bags.SourceError, match=r'expected a folder, .*, or one of '):
        bags.convert(tmp_path / 'a.xyz', tmp_path / 'out')


def test_importers_that_cannot_be_used(put, tmp_path):
    put('files = 1 // 0')
    (tmp_path / 'scans').mkdir()
    (tmp_path / 'scans' / 'a.xyz').write_text('1 2 3')
    with pytest.raises(
        ValueError, match="expected 'xyz' of the package bags-cloud to load, got ZeroDivisionError"
    ):
        bags.convert(tmp_path / 'scans', tmp_path / 'out', format='xyz')
    with pytest.warns(
        RuntimeWarning, match="entry point of bags.sources: expected 'xyz' of the package bags-cloud"
    ):
        done = bags.convert(tmp_path / 'scans', tmp_path / 'out')
    assert done.spec == {'__key__': 'utf8', 'xyz': 'bytes'}


def test_a_known_file_or_a_given_format_asks_no_package(put, tmp_path):
    put('raise SystemExit("imported")')
    (tmp_path / 'texts').mkdir()
    (tmp_path / 'texts' / 'a.jsonl').write_text('{"x": "1 2 3"}')
    for number, (path, options) in enumerate(
        [('texts/a.jsonl', {}), ('texts', {'format': 'jsonl'}), ('texts', {'layout': 'files'})]
    ):
        bags.convert(tmp_path / path, tmp_path / f'{number}', **options)
    assert bags.open(tmp_path / '0')[0] == bags.open(tmp_path / '1')[0] == {'x': '1 2 3'}
    assert bags.open(tmp_path / '2')[0]['jsonl'] == b'{"x": "1 2 3"}'
