"""Importers of other packages: they are asked as the built-in formats are, by markers, names and layouts."""

from __future__ import annotations

import json
import shutil
import sys
import textwrap
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet
from typer.testing import CliRunner

import bags
from bags.cli.app import build_app
from bags.interop.open_source import open_source

GOLDEN = Path(__file__).parent / 'sources' / 'golden'

CODE = """
from bags.types import Source

class Drives(Source):
    def __init__(self, paths, storage_options, **keywords):
        super().__init__('drive', {'path': 'utf8', 'keywords': 'json'}, len(paths))
        self.records, self.keywords = paths, keywords
        self.notes.append('the times of drives are in UTC')

    def load(self, path):
        return {'path': path, 'keywords': {**self.keywords}}

open_source = Drives
"""


@pytest.fixture
def install(tmp_path_factory, monkeypatch):
    """Installs a package with an importer, whose module declares what is given."""
    modules = []

    def install(name, package=None, code=CODE, **declared):
        package = package or f'bags-{name}'
        module = f'{package.replace("-", "_")}_{len(modules)}'
        folder = tmp_path_factory.mktemp(module)
        (folder / f'{module}.py').write_text(
            code + ''.join(f'{key} = {value!r}\n' for key, value in declared.items())
        )
        info = folder / f'{module}-1.0.dist-info'
        info.mkdir()
        (info / 'METADATA').write_text(f'Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n')
        (info / 'entry_points.txt').write_text(f'[bags.sources]\n{name} = {module}\n')
        monkeypatch.syspath_prepend(folder)
        modules.append(module)

    yield install
    for module in modules:
        sys.modules.pop(module, None)


@pytest.fixture
def put(tmp_path):
    """Writes files of one byte, or of a text, into the folder `source`."""

    def put(*names, **texts):
        for name in names:
            path = tmp_path / 'source' / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(texts.get(name, 'x'))
        return tmp_path / 'source'

    return put


def imported(source, target, **options):
    """Returns the paths below the source that the importer got, and the result."""
    done = bags.convert(source, target, **options)
    rows = [*bags.open(target)]
    assert all(row['path'].startswith(str(source)) for row in rows)
    return [row['path'].removeprefix(f'{source}/') for row in rows], done


def test_a_marker_identifies_a_folder(install, put, tmp_path):
    install('drive', files=('*.txt',), marker='drive/info.yaml', beside=('maps/*',))
    source = put('a.txt', 'b.txt')
    assert bags.convert(source, tmp_path / 'without').spec == {'__key__': 'utf8', 'txt': 'utf8'}
    put('drive/info.yaml', 'maps/a.osm', 'c.pdf', 'README.md')
    paths, done = imported(source, tmp_path / 'with')
    assert paths == [str(source)]
    assert done.notes == ['the times of drives are in UTC', "left out: 'README.md', 'c.pdf'"]


def test_a_marker_alone_and_files_elsewhere(install, put, tmp_path):
    install('drive', files=('*.txt',), marker='info.yaml')
    source = put('a/info.yaml', 'b/x.txt')
    spec = bags.convert(source, tmp_path / 'out').spec
    assert {'txt', 'yaml'} <= spec.keys()


def test_folders_with_the_marker(install, put, tmp_path):
    install('drive', files=('*.txt',), marker='info.yaml')
    source = put('a/info.yaml', 'a/x.txt', 'b/c/info.yaml', 'b/c/deep/x.txt')
    with pytest.raises(bags.SourceError, match=r"one dataset of drive, got 'a', 'b/c': give the folder"):
        bags.convert(source, tmp_path / 'out')
    assert imported(source / 'b', tmp_path / 'one')[0] == ['c']
    install('trip', files=('*.txt',), marker='trip.yaml', is_joined=True)
    source = put('trips/a/trip.yaml', 'trips/a/x.txt', 'trips/b/trip.yaml', 'trips/b/x.txt') / 'trips'
    assert imported(source, tmp_path / 'both')[0] == ['a', 'b']
    put('trips/train/trip.yaml', 'trips/train/x.txt', 'trips/test/trip.yaml', 'trips/test/x.txt')
    with pytest.raises(bags.SourceError, match=r'one dataset of trip, got '):
        bags.convert(source, tmp_path / 'splits')


def test_a_marker_is_asked_before_tables(install, put, tmp_path):
    source = put('info.yaml')
    parquet.write_table(pa.table({'x': [1, 2]}), source / 'a.parquet')
    assert bags.convert(source, tmp_path / 'table').spec == {'x': 'int(8)'}
    install('drive', files=('*.parquet',), marker='info.yaml')
    assert imported(source, tmp_path / 'drive')[0] == [str(source)]
    assert bags.convert(source, tmp_path / 'given', format='parquet').spec == {'x': 'int(8)'}


def test_the_marker_of_a_built_in_format_is_first(install, tmp_path):
    install('drive', files=('*.mds',), marker='index.json')
    source = shutil.copytree(GOLDEN / 'mds', tmp_path / 'source')
    assert open_source(source).format == 'mds'
    assert open_source(source, format='drive').format == 'drive'


def test_files_are_asked_after_tables_and_before_a_layout(install, put, tmp_path):
    install('drive', files=('*.jsonl', '*.txt'), reads=('*.toml',), beside=('*.log',))
    source = put('a.txt', 'b.txt', 'about.toml', 'x.log', 'README.md')
    paths, done = imported(source, tmp_path / 'out')
    assert paths == ['a.txt', 'b.txt', 'about.toml']
    assert done.notes[1:] == ["left out: 'README.md'"]
    (tmp_path / 'rows.jsonl').write_text('{"x": 1}\n')
    assert bags.convert(tmp_path / 'rows.jsonl', tmp_path / 'table').spec == {'x': 'int(8)'}
    assert imported(tmp_path / 'rows.jsonl', tmp_path / 'given', format='drive')[0] == [
        str(tmp_path / 'rows.jsonl')
    ]
    put('c.yaml')
    assert bags.convert(source, tmp_path / 'mixed').spec.keys() >= {'txt', 'yaml', 'toml'}


def test_files_of_a_format_with_and_without_its_marker(install, put, tmp_path):
    install('drive', files=('*.drv',), marker='info.yaml', needs_marker=False)
    source = put('a.drv', 'b.drv')
    assert imported(source, tmp_path / 'files')[0] == ['a.drv', 'b.drv']
    put('info.yaml')
    assert imported(source, tmp_path / 'folder')[0] == [str(source)]


def test_two_importers_of_one_file_or_marker(install, put, tmp_path):
    install('drive', files=('*.drv',))
    install('other', files=('*.drv', '*.txt'))
    source = put('a.drv', 'b.drv')
    both = r"a\.drv: expected one package with an importer for it, got 'drive' of bags-drive and 'other' of "
    both += "bags-other; format='drive' or format='other' chooses one"
    for path in (source, source / 'a.drv', [source / 'a.drv', source / 'b.drv']):
        with pytest.raises(bags.SourceError, match=both):
            bags.convert(path, tmp_path / 'out')
    assert not (tmp_path / 'out').exists()
    assert imported(source, tmp_path / 'drive', format='drive')[0] == ['a.drv', 'b.drv']
    install('third', files=('*.txt',), marker='info.yaml')
    install('fourth', files=('*.txt',), marker='info.yaml')
    source = put('run/info.yaml', 'run/a.txt') / 'run'
    with pytest.raises(bags.SourceError, match=r"run: .* 'fourth' of bags-fourth and 'third' of bags-third"):
        bags.convert(source, tmp_path / 'out')
    assert imported(source, tmp_path / 'third', format='third')[0] == [str(source)]


def test_two_packages_with_one_format(install, put, tmp_path):
    install('drive', 'bags-a', files=('*.drv',))
    install('drive', 'bags-b', files=('*.drv',))
    source = put('a.drv')
    match = "'drive' of bags-a and 'drive' of bags-b; uninstall one of the packages"
    with pytest.raises(bags.SourceError, match=match):
        bags.convert(source, tmp_path / 'out')
    with pytest.raises(ValueError, match="expected one package that has 'drive', got bags-a and bags-b"):
        bags.convert(source, tmp_path / 'out', format='drive')


def test_the_layouts_of_an_importer(install, put, tmp_path):
    install('drive', files=('*.drv',), layouts=('by-day', 'by-car'))
    source = put('a.drv', 'b.txt')
    assert bags.convert(source, tmp_path / 'folder').spec.keys() == {'__key__', 'drv', 'txt'}
    _, done = imported(source, tmp_path / 'by-car', layout='by-car')
    assert bags.open(tmp_path / 'by-car')[0]['keywords'] == {'layout': 'by-car'}
    assert done.notes[-1] == "left out: 'b.txt'"
    imported(source, tmp_path / 'none', format='drive')
    assert bags.open(tmp_path / 'none')[0]['keywords'] == {'layout': None}
    assert bags.convert(source, tmp_path / 'files', layout='files').spec.keys() == {'__key__', 'drv', 'txt'}
    for format in (None, 'drive'):
        with pytest.raises(
            ValueError, match=r"layout: expected .*'episodes' or 'by-day' or 'by-car', got 'x'"
        ):
            bags.convert(source, tmp_path / 'out', layout='x', format=format)
    install('other', files=('*.o',), layouts=('by-day',))
    with pytest.raises(ValueError, match=r"got 'by-day'; format='drive' or format='other' chooses one"):
        bags.convert(source, tmp_path / 'out', layout='by-day')
    imported(source, tmp_path / 'by-day', layout='by-day', format='drive')
    command = ['import', str(source), str(tmp_path / 'cli'), '--layout', 'by-car', '--json']
    done = CliRunner().invoke(build_app(), command)
    assert json.loads(done.stdout)['spec'] == {'path': 'utf8', 'keywords': 'json'}


def test_the_root_and_the_fields_left_out(install, put, tmp_path):
    install('drive', files=('*.drv',), options=('root', 'left_out'))
    source = put('day/a.drv')
    imported(source, tmp_path / 'out', spec={'path': 'utf8'})
    assert bags.open(tmp_path / 'out')[0]['keywords'] == {'root': str(source), 'left_out': []}
    assert open_source(source, spec={'path': None}).keywords['left_out'] == ['path']


def test_files_beside_media_name_their_format(install, put, tmp_path):
    install('drive', files=('*.drv',))
    done = bags.convert(put('a.txt', 'a.drv'), tmp_path / 'out')
    note = "files *.drv are stored as bytes; format='drive' imports what they contain"
    assert note in done.notes


def test_metadata_beside_the_files(install, put, tmp_path):
    install('drive', files=('*.drv',))
    source = put('a.drv')
    (source / 'metadata.json').write_text('{"license": "CC0"}')
    bags.convert(source, tmp_path / 'out')
    assert bags.open(tmp_path / 'out').metadata['license'] == 'CC0'


@pytest.mark.parametrize(
    ('declared', 'expected'),
    [
        ({'files': '*.drv'}, "files of 'drive' in the package bags-drive to be a tuple of str, got '"),
        ({'files': ('*.drv', 1)}, 'files of .* to be a tuple of str'),
        ({'files': ('*.drv',), 'marker': 7}, 'marker of .* to be the path of a file, got 7'),
        ({'files': ('*.drv',), 'beside': (b'x',)}, 'beside of .* to be a tuple of str'),
        ({'files': ('*.drv',), 'options': ('rate',)}, r"options of .* among .*'root'\], got \['rate'\]"),
        ({}, "files and open_source of 'drive' in the package bags-drive, got <module"),
    ],
)  # fmt: skip
def test_declarations_of_other_types(install, put, tmp_path, declared, expected):
    install('drive', **declared)
    source = put('a.drv')
    with pytest.raises(ValueError, match=expected):
        bags.convert(source, tmp_path / 'given', format='drive')
    with pytest.warns(RuntimeWarning, match=f'entry point of bags.sources: expected {expected}'):
        assert bags.convert(source, tmp_path / 'out').spec == {'__key__': 'utf8', 'drv': 'bytes'}


def test_an_importer_that_is_an_object_and_reads_arrays(install, put, tmp_path):
    code = textwrap.dedent("""
        import sys
        import numpy as np
        from bags.types import Importer, Source

        class Sweeps(Source[str]):
            def load(self, path):
                return {'sweep': np.load(path, allow_pickle=False)}

        class SweepImporter:
            files = ['*.sweep.npy']
            def open_source(self, paths, storage_options, /):
                source = Sweeps('sweeps', {'sweep': 'array(float32,?)'}, len(paths))
                source.records = paths
                return source

        sys.modules[__name__] = SweepImporter()
    """)
    install('sweeps', code=code)
    source = put()
    source.mkdir()
    np.save(source / 'a.sweep.npy', np.arange(3, dtype=np.float32))
    bags.convert(source, tmp_path / 'out')
    assert bags.open(tmp_path / 'out')[0]['sweep'].tolist() == [0, 1, 2]
