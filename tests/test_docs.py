"""The Python blocks of the documentation run, and pass type checkers as one file of a user."""

import ast
import doctest
import inspect
import json
import os
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

import bags
import bags.samplers
import bags.types
from benchmarks.render import CHARTS, SECTIONS, charts, render
from benchmarks.render import DOCUMENTS as WITH_TABLES

ROOT = Path(__file__).parents[1]
DOCUMENTS = [ROOT / 'README.md', ROOT / 'bags/SKILL.md', *sorted((ROOT / 'docs').glob('**/*.md'))]
BLOCK = re.compile(r'^```python\n(.*?)^```', re.DOTALL | re.MULTILINE)
TYPED_BLOCK = re.compile(r'^```py(?:thon)?\n(.*?)^```', re.DOTALL | re.MULTILINE)
"""Also the blocks with PyTorch, Grain and JAX, which tests/adapters/test_docs.py runs."""
FILE = re.compile(r'^```(text|json) title="(.*?)"\n(.*?)^```', re.DOTALL | re.MULTILINE)
"""The content of a file that the Python blocks of the page write: a hex dump, or JSON. `…` is the rest."""
TABLES = ('duckdb', 'polars', 'pyarrow')
"""Not in the environment of free-threaded Python."""
SAMPLES = {
    'docs/format.md': {'bags05': 'golden/bags05-dataset', 'granular': 'golden/granular-dataset'},
    'docs/migration/granular.md': {'old': 'golden/granular-sharded'},
    'docs/migration/mds.md': {'mds': 'interop/sources/golden/mds'},
    'docs/migration/tfrecord.md': {'tfds': 'interop/sources/golden/tfds'},
}
"""Data that pages convert and cannot make: samples, written by the format's own library.

Blocks with the name of that library, ```python granular, do not run here.
"""
FRAMEWORKS = ('apache_beam', 'grain', 'jax', 'lerobot', 'ray', 'torch', 'torchcodec')


def test_the_documents_install_the_version_they_describe():
    """The package index has an older library of this name, up to 0.5.1."""
    version = [int(part) for part in bags.__version__.split('.')]
    assert version > [0, 5, 1]
    assert f'[{bags.__version__}]' in (ROOT / 'CHANGELOG.md').read_text()
    wanted = [
        each for path in DOCUMENTS for each in re.findall(r"pip install '(bags\b.*?)'", path.read_text())
    ]
    assert wanted
    assert all(each.endswith(f'>={version[0]}.{version[1]}') for each in wanted)


def blocks_of(text, pattern=BLOCK):
    """Returns the blocks as one file with the same line numbers, so that messages refer to the document."""
    lines = [''] * text.count('\n')
    for block in pattern.finditer(text):
        first = text.count('\n', 0, block.start(1))
        body = block[1].splitlines()
        lines[first : first + len(body)] = body
    return '\n'.join(lines) + '\n'


def name_of(path):
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize(
    'path', [each for each in DOCUMENTS if BLOCK.search(each.read_text('utf-8'))], ids=name_of
)
def test_blocks_run(path, tmp_path, monkeypatch):
    """Top to bottom, each document in an empty folder of its own."""
    monkeypatch.chdir(tmp_path)
    for name, sample in SAMPLES.get(path.relative_to(ROOT).as_posix(), {}).items():
        shutil.copytree(ROOT / 'tests' / sample, name)
    text = path.read_text(encoding='utf-8')
    code = compile(blocks_of(text), str(path), 'exec')
    names = {'__name__': path.stem}  # Kept below: a file may be open.
    try:
        exec(code, names)
    except ImportError as exc:
        if all(map(find_spec, TABLES)):
            raise
        pytest.skip(str(exc))
    for kind, name, shown in FILE.findall(text):
        data = Path(name).read_bytes()
        whole = hexdump(data) if kind == 'text' else data.decode()
        assert shown == whole or (shown.endswith('…\n') and whole.startswith(shown[:-2])), name


def hexdump(data):
    lines = []
    for offset in range(0, len(data), 16):
        row = data[offset : offset + 16]
        columns = '  '.join(half.hex(' ') for half in (row[:8], row[8:]))
        text = ''.join(chr(byte) if 32 <= byte < 127 else '.' for byte in row)
        lines.append(f'{offset:08x}  {columns:<48}  |{text}|\n')
    return ''.join(lines)


def test_tables_are_those_of_the_results():
    """After a run of the benchmarks, `make bench-tables` writes them."""
    texts = [path.read_text(encoding='utf-8') for path in WITH_TABLES]
    assert {
        name for text in texts for name in re.findall(r'<!-- benchmarks: (\w+) -->', text)
    } == SECTIONS.keys()
    assert list(map(render, texts)) == texts
    assert {path.name: path.read_text(encoding='utf-8') for path in CHARTS.glob('*.svg')} == charts()


def test_figures_of_the_readme_are_in_its_table():
    """Its first page tells bytes with a link to the table of the same page."""
    text = (ROOT / 'README.md').read_text(encoding='utf-8')
    (table,) = re.findall(r'<!-- benchmarks: traffic -->(.*?)<!-- end -->', text, re.DOTALL)
    told = re.findall(r'\[([^\]]*)\]\(#bytes\)', text)
    figures = [figure for each in told for figure in re.findall(r'[\d.]+ (?:bytes|[KMG]B)', each)]
    assert len(figures) > 5
    assert [figure for figure in figures if figure not in table] == []


def test_the_reference_has_every_public_name():
    text = ''.join(path.read_text(encoding='utf-8') for path in (ROOT / 'docs/reference').glob('*.md'))
    listed = re.findall(r'^::: bags\.(?!\w+\.options\.)([\w.]+)$', text, re.MULTILINE)
    public = [name for name in bags.__all__ if name not in ('bag', 'samplers')]
    for module in ('bag', 'beam', 'grain', 'jax', 'lerobot', 'ray', 'samplers', 'torch', 'types'):
        source = (ROOT / f'bags/{module}.py').with_suffix('')
        file = source / '__init__.py' if source.is_dir() else source.with_suffix('.py')
        found = re.search(
            r'^__all__ = (\[.*?\])$', file.read_text(encoding='utf-8'), re.DOTALL | re.MULTILINE
        )
        public += [f'{module}.{name}' for name in ast.literal_eval(found[1])]
    assert sorted(listed) == sorted(public)


INTERFACES = ('Importer', 'LazyFrames', 'ReadOptions', 'Source', 'WriteOptions')
"""Classes that are implemented, or list keywords."""
EXAMPLES = {
    f'{prefix}{name}': value
    for prefix, module in (
        ('', bags),
        ('samplers.', bags.samplers),
        ('bag.', bags.bag),
        ('types.', bags.types),
    )
    for name in module.__all__
    if callable(value := getattr(module, name)) and name not in ('encoders', 'decoders', *INTERFACES)
}


def prepare_examples():
    """Writes what the examples of docstrings read, into the working directory."""
    spec = {
        'id': 'int(8)', 'label': 'int(1)', 'task': 'utf8', 'image': 'jpeg', 'state': 'array(float32,2)[]'
    }  # fmt: skip
    metadata = {'fields': {'state': {'rate': 10}, 'label': {'classes': ['left', 'right']}}}
    with bags.ShardedDatasetWriter('episodes', spec, shard_length=4, metadata=metadata) as writer:
        for number in range(8):
            writer.append(
                {
                    'id': number,
                    'label': number % 2,
                    'task': f'reach {number}',
                    'image': np.full((48, 64, 3), 30 * number, np.uint8),
                    'state': np.arange(2 * (number + 3), dtype=np.float32).reshape(-1, 2),
                }
            )
    picture = bags.encoders['jpeg'](np.full((48, 64, 3), 200, np.uint8))
    for label in ('cats', 'dogs'):
        Path('photos', label).mkdir(parents=True)
        for number in range(3):
            Path(f'photos/{label}/{number:03}.jpg').write_bytes(picture)
    media = ROOT / 'examples/data'
    shutil.copy(media / 'bunny.mp4', 'film.mp4')
    shutil.copy(media / 'austen-1.flac', 'speech.flac')
    with bags.DatasetWriter('videos', {'video': 'video'}) as writer:
        writer.append({'video': 'film.mp4'})


def run_examples(name, value):
    """Runs the examples of a docstring; the working directory is that of `prepare_examples`."""
    names = {'bags': bags, 'np': np, 'os': os, 'Path': Path, 'dataset': bags.open('episodes')}
    test = doctest.DocTestParser().get_doctest(inspect.getdoc(value), names, name, None, 0)
    assert test.examples, f'{name} has no example'
    said = []
    doctest.DocTestRunner(verbose=False).run(test, out=said.append)
    assert said == [], ''.join(said)


@pytest.mark.parametrize('name', sorted(EXAMPLES))
def test_examples_of_docstrings_run(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    prepare_examples()
    run_examples(name, EXAMPLES[name])


def test_adapters_have_examples():
    """Without the frameworks; tests/adapters and tests/lerobot run some of them."""
    for package in ('beam', 'grain', 'jax', 'lerobot', 'ray', 'torch'):
        files = [*ROOT.glob(f'bags/{package}/*.py'), *ROOT.glob(f'bags/{package}.py')]
        nodes = {
            node.name: ast.get_docstring(node) or ''
            for file in files
            for node in ast.parse(file.read_text(encoding='utf-8')).body
            if isinstance(node, ast.ClassDef | ast.FunctionDef)
        }
        text = (ROOT / 'docs/reference/frameworks.md').read_text(encoding='utf-8')
        names = [
            name for name in re.findall(rf'^::: bags\.{package}\.(\w+)$', text, re.MULTILINE) if name in nodes
        ]
        assert names
        assert [name for name in names if 'Examples:\n' not in nodes[name]] == []


def test_links_of_the_repository_lead_to_files():
    """Those between the pages of the site are checked by `make docs`."""
    pages = [*ROOT.glob('*.md'), ROOT / 'benchmarks/README.md']
    link = re.compile(r'\]\((?!https?:)([^)#\s]+)(?:#([^)\s]*))?\)')
    found = {
        (page.parent / path, anchor)
        for page in pages
        for path, anchor in link.findall(page.read_text('utf-8'))
    }
    assert len(found) > 30
    assert [path for path, _ in found if not path.exists()] == []
    for path, anchor in found:
        headings = re.findall(r'^#+ (.*)$', path.read_text('utf-8'), re.MULTILINE) if anchor else []
        assert not anchor or anchor in [heading.lower().replace(' ', '-') for heading in headings], (
            path,
            anchor,
        )


@pytest.fixture
def pages(tmp_path):
    """Returns the documents' blocks as Python files: the document's name by the name of the file."""
    found = {}
    for path in DOCUMENTS:
        text = path.read_text(encoding='utf-8')
        if not TYPED_BLOCK.search(text):
            continue
        name = re.sub(r'\W', '_', name_of(path).lower().removesuffix('.md')) + '_page.py'
        text = blocks_of(text, TYPED_BLOCK)
        (tmp_path / name).write_text(text, encoding='utf-8')
        found[name] = name_of(path)
    return found


@pytest.mark.slow
@pytest.mark.skipif(not find_spec('mypy'), reason='mypy is not installed')
def test_blocks_pass_mypy(pages, tmp_path):
    config = tmp_path / 'mypy.ini'
    untyped = (*FRAMEWORKS, *TABLES, 'msgpack')
    ignored = ''.join(f'[mypy-{name}.*]\nignore_missing_imports = True\n' for name in untyped)
    config.write_text(f'[mypy]\nstrict = True\nfollow_imports = silent\n{ignored}')
    done = subprocess.run(
        [sys.executable, '-m', 'mypy', '--config-file', config, '--cache-dir', ROOT / '.mypy_cache/docs',
         '--no-error-summary', *pages],
        check=False, cwd=tmp_path, capture_output=True, text=True, encoding='utf-8',
        env={**os.environ, 'MYPYPATH': str(ROOT)},
    )  # fmt: skip
    assert done.returncode in (0, 1), done.stdout + done.stderr
    check(pages, [line for line in done.stdout.splitlines() if ': error:' in line])


@pytest.mark.slow
@pytest.mark.skipif(not find_spec('pyright'), reason='pyright is not installed')
def test_blocks_pass_pyright(pages, tmp_path):
    config = {'extraPaths': [str(ROOT)], 'reportMissingImports': 'warning'}
    (tmp_path / 'pyrightconfig.json').write_text(json.dumps(config))
    done = subprocess.run(
        [sys.executable, '-m', 'pyright', '--outputjson', '--pythonpath', sys.executable],
        check=False, cwd=tmp_path, capture_output=True, text=True, encoding='utf-8',
    )  # fmt: skip
    assert done.returncode in (0, 1), done.stdout + done.stderr
    found = json.loads(done.stdout)
    assert found['summary']['filesAnalyzed'] == len(pages)
    check(pages, [
        f'{Path(error["file"]).name}:{error["range"]["start"]["line"] + 1}: {error["message"]}'
        for error in found['generalDiagnostics']
        if error['severity'] == 'error' or 'Import "bags' in error['message']
    ])  # fmt: skip


def check(pages, messages):
    """Asserts that there are no messages about the pages."""
    for path, name in pages.items():
        messages = [message.replace(path, name) for message in messages]
    assert not messages, '\n'.join(messages)
