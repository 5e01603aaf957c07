"""The layers of the library: which module may know of which, and what the import of it all costs."""

import ast
import functools
import importlib
import json
from pathlib import Path

import pytest

import bags

PACKAGE = Path(bags.__file__).parent
MODULES = sorted(PACKAGE.rglob('*.py'))
LAYERS = [
    ['arguments', 'crew', 'errors', 'memory', 'progress'],
    ['bag', 'formats'],
    ['batch', 'spec'],
    ['shard_index'],
    ['compressing', 'encoder', 'refs', 'selection'],
    ['spans'],
    ['dataset', 'field_writer', 'refs_reader', 'resume', 'schema'],
    ['joined_clips', 'record'],
    ['films'],
    ['columns', 'field', 'folder'],
    ['compiled', 'open_fields', 'shard_list'],
    ['reader', 'writer', 'closing', 'parts', 'views', 'windowing'],
    ['sharded_reader', 'sharded_writer'],
    ['opening', 'indexing', 'prefetching', 'sources', 'describing', 'verifying', 'recovering'],
    ['fingerprint'],
    ['authoring', 'intake', 'loading', 'samplers'],
    ['torch', 'grain', 'jax', 'beam', 'cli', '__main__'],
]
PURE = [
    'bag/limits.py', 'bag/sharding.py', 'bag/ranges.py', 'bag/options.py',
    'arguments.py', 'errors.py', 'spec.py', 'refs.py', 'shard_index.py', 'selection.py', 'batch.py',
    'spans.py',
    'loading/collate.py', 'loading/pace.py', 'loading/options.py', 'loading/state.py', 'loading/steps.py',
    'samplers/buckets.py', 'samplers/mixtures.py', 'samplers/orders.py', 'samplers/permutation.py',
    'samplers/sampler.py', 'samplers/shards.py',
]  # fmt: skip
OUTSIDE = {'io', 'mmap', 'pathlib', 'socket', 'shutil', 'subprocess', 'tempfile', 'threading', 'fsspec'}


@functools.cache
def tree_of(path):
    return ast.parse(path.read_text())


@functools.cache
def uses():
    """What modules take from each module by name."""
    found = {}
    for path in MODULES:
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.ImportFrom):
                found.setdefault(node.module, set()).update(alias.name for alias in node.names)
    return found


def name_of(path):
    parts = path.relative_to(PACKAGE.parent).with_suffix('').parts
    return '.'.join(parts[:-1] if parts[-1] == '__init__' else parts)


def imports(path, top_level=False):
    """The modules that a module imports; at its top level only, or anywhere."""
    tree = tree_of(path)
    nodes = tree.body if top_level else ast.walk(tree)
    for node in nodes:
        if isinstance(node, ast.If) and 'TYPE_CHECKING' in ast.dump(node.test):
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f'{path}: absolute imports only'
            for alias in node.names:
                full = f'{node.module}.{alias.name}'
                is_module = (PACKAGE.parent / (full.replace('.', '/') + '.py')).exists()
                is_package = (PACKAGE.parent / full.replace('.', '/') / '__init__.py').exists()
                yield full if is_module or is_package else node.module


def layer_of(module):
    part = module.split('.')[1] if '.' in module else None
    return next((level for level, names in enumerate(LAYERS) if part in names), None)


@pytest.mark.parametrize('path', MODULES, ids=name_of)
def test_imports_point_one_way(path):
    own = layer_of(name_of(path))
    if path == PACKAGE / '__init__.py':
        return
    assert own is not None, f'{path.name} has no layer yet: add it above'
    own_part = name_of(path).split('.')[1]
    for other in imports(path, top_level=True):
        if other.split('.')[0] != 'bags':
            continue
        level = layer_of(other)
        assert level is not None, f'{path.name} imports {other}'
        part = other.split('.')[1]
        # Within a level modules know of each other; the two of the second level never do.
        assert level < own or (level == own and (part == own_part or level > 1)), (
            f'{path.name} imports {other}'
        )


def test_no_module_imports_itself_in_a_circle():
    graph = {
        name_of(path): {other for other in imports(path, top_level=True) if other.startswith('bags')}
        for path in MODULES
        if path.name != '__init__.py'
    }
    done = set()

    def visit(module, above):
        assert module not in above, f'circle: {" → ".join([*above, module])}'
        if module not in done:
            for other in graph.get(module, ()):
                visit(other, [*above, module])
            done.add(module)

    for module in graph:
        visit(module, [])


@pytest.mark.parametrize('path', PURE)
def test_pure_modules_do_no_input_and_output(path):
    for other in imports(PACKAGE / path):
        assert other.split('.')[0] not in OUTSIDE, f'{path} imports {other}'
        assert not other.startswith('bags.bag.files'), f'{path} imports {other}'
    calls = {node.func.id for node in ast.walk(tree_of(PACKAGE / path))
             if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}  # fmt: skip
    assert not calls & {'open', 'print', 'input', 'exec', 'eval'}


@pytest.mark.parametrize('path', MODULES, ids=name_of)
def test_only_the_files_touch_the_system(path):
    """Above `bag/files` nothing opens, renames or lists a file."""
    if 'files' in path.parts or path.parts[-2] == 'formats':
        return
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == 'os':
            assert node.attr in {
                'PathLike',
                'fspath',
                'path',
                'sep',
                'cpu_count',
                'SEEK_END',
                'SEEK_SET',
                'getpid',
                'getppid',
                'register_at_fork',
                '_exit',
            }, node.attr


@pytest.mark.parametrize('path', MODULES, ids=name_of)
def test_all_is_complete_and_sorted(path):
    try:
        module = importlib.import_module(name_of(path))
    except bags.MissingDependencyError as exc:
        pytest.skip(str(exc))
    tree = tree_of(path)
    # Constants, classes, functions, as ruff sorts them.
    order = sorted(module.__all__, key=lambda name: (not name.isupper(), name[0].islower(), name))
    assert module.__all__ == order
    assert len(set(module.__all__)) == len(module.__all__)
    for name in module.__all__:
        assert hasattr(module, name)
    defined = {
        node.name
        for node in tree.body
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and not node.name.startswith('_')
    }
    used = uses().get(name_of(path), set())
    # What other modules take from a module is in its `__all__`, unless it is a module itself.
    missing = {name for name in used & defined if name not in module.__all__}
    assert not missing, f'not in __all__: {sorted(missing)}'


def test_every_module_says_what_it_is_for():
    for path in MODULES:
        docstring = ast.get_docstring(tree_of(path))
        assert docstring, path
        assert docstring.splitlines()[0].endswith(('.', ':')), f'{path}: {docstring.splitlines()[0]}'


def test_names_of_modules_and_packages():
    for path in MODULES:
        assert not path.stem.startswith('_') or path.stem in ('__init__', '__main__')
        assert path.stem not in ('utils', 'common', 'helpers', 'base')


def test_importing_bags_loads_nothing_heavy(kit):
    code = 'import sys, json, bags; from bags import *; print(json.dumps(sorted(sys.modules)))'
    loaded = set(json.loads(kit.python(code)))
    heavy = {
        'PIL',
        'av',
        'simplejpeg',
        'fsspec',
        's3fs',
        'gcsfs',
        'obstore',
        'torch',
        'grain',
        'jax',
        'apache_beam',
    }
    heavy |= {'multiprocessing', 'asyncio', 'pandas', 'cv2', 'bagz', 'granular', 'hypothesis', 'pytest'}
    assert not loaded & heavy
    assert {'numpy', 'msgpack', 'zstandard'} <= loaded


def test_importing_bags_waits_for_the_first_use(kit):
    code = 'import sys, json, bags; print(json.dumps(sorted(sys.modules)))'
    assert not {'numpy', 'msgpack', 'zstandard', 'bags.reader'} & set(json.loads(kit.python(code)))


def test_every_public_name_is_there():
    for name in bags.__all__:
        assert getattr(bags, name) is not None
        assert name in dir(bags)
    with pytest.raises(AttributeError, match='no_such_name'):
        _ = bags.no_such_name


def test_public_names():
    for name in (
        'open',
        'select',
        'concat',
        'join',
        'Ragged',
        'Index',
        'DatasetReader',
        'encoders',
        'decoders',
    ):
        assert name in bags.__all__
    assert bags.encoders.keys() == bags.decoders.keys()
    for name in bags.__all__:
        if callable(getattr(bags, name)):
            assert getattr(bags, name).__doc__, name
