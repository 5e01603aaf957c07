"""The layers of the library: which package may import which, and the cost of importing it."""

import ast
import functools
import importlib
import json
from pathlib import Path

import pytest

import bags
from bags.dataset import above

PACKAGE = Path(bags.__file__).parent
MODULES = sorted(PACKAGE.rglob('*.py'))
LAYERS = [
    {'concurrency', 'errors', 'forks', 'other_names'},
    {'validation', 'indexing'},
    {'workers'},
    {'storage'},
    {'bag', 'formats'},
    {'links'},
    {'dataset'},
    {'conditions', 'progress'},
    {'arrow', 'display', 'keys', 'media'},
    {'streams'},
    {'views'},
    {'collate'},
    {'episodes', 'samplers', 'maintenance'},
    {'authoring', 'loader', 'viewer'},
    {'checks'},
    {'interop'},
    {'torch', 'jax', 'grain', 'beam', 'ray', 'lerobot', 'types'},
    {'cli'},
]
"""From the lowest. A module imports its own package and lower layers, also inside functions."""
ABOVE = 'bags.dataset.above'
"""The one module that names packages above its own: `dataset` uses their functions."""
USERS_OF_INTEROP = {'interop', 'cli', 'lerobot', 'types'}
"""Packages that may import `interop`, besides `bags` itself."""
PURE = [
    'bag/options.py', 'bag/sharding.py', 'collate/columns.py', 'collate/padding.py',
    'dataset/format/file_names.py', 'dataset/format/refs.py', 'dataset/format/shard_index.py',
    'dataset/format/spec.py',
    'dataset/reading/batch.py', 'dataset/reading/selection.py', 'errors.py',
    'indexing.py', 'links/files.py', 'links/rows.py', 'loader/steps.py', 'media/b_frames.py',
    'media/timeline.py', 'other_names.py', 'samplers/permutation.py', 'storage/ranges.py', 'validation.py',
]  # fmt: skip
OF_USERS = [
    'bags', 'bags.bag', 'bags.beam', 'bags.beam.bagzio', 'bags.beam.sacklio', 'bags.errors', 'bags.grain',
    'bags.jax', 'bags.lerobot', 'bags.ray', 'bags.samplers', 'bags.storage', 'bags.torch', 'bags.types',
]  # fmt: skip
"""The modules whose names users import, or that a package takes its names from: they have `__all__`."""
OF_PYTHON = {'_asdict', '_current_frames', '_exit', '_fields', '_is_gil_enabled', '_replace'}
OF_PACKAGES = {'_assert_not_closed', '_strip_protocol'}
"""Names with an underscore that Python, and that Grain and fsspec document."""
UNDOCUMENTED = {'_bootstrap', '_module_locks', '_blosc_codec', '_codec', '_expiry_time'}
"""Names of Python, zarr and botocore that are not documented, for what has no other name."""
OUTSIDE = {'io', 'mmap', 'pathlib', 'socket', 'shutil', 'subprocess', 'tempfile', 'threading', 'fsspec'}


@functools.cache
def tree_of(path):
    return ast.parse(path.read_text())


@functools.cache
def nodes_of(path):
    """Returns the nodes of a module of the types that the tests below look at."""
    types = ast.Import | ast.ImportFrom | ast.ClassDef | ast.Attribute | ast.Call
    return [node for node in ast.walk(tree_of(path)) if isinstance(node, types)]


def name_of(path):
    parts = path.relative_to(PACKAGE.parent).with_suffix('').parts
    return '.'.join(parts[:-1] if parts[-1] == '__init__' else parts)


NAMES = {name_of(path): path for path in MODULES}


@functools.cache
def imports(path):
    """Returns the modules that a module imports, inside functions and for type checking too."""
    found = set()
    for node in nodes_of(path):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f'{path}: absolute imports only'
            full = {f'{node.module}.{alias.name}' for alias in node.names}
            found |= {name if name in NAMES else node.module for name in full}
    return found


def layer_of(module):
    return next(level for level, names in enumerate(LAYERS) if module.split('.')[1] in names)


def test_imports_point_one_way():
    for path in MODULES:
        own = name_of(path)
        if own in ('bags', 'bags.__main__', ABOVE):
            continue
        for other in imports(path):
            if other.startswith('bags.') and other.split('.')[1] != own.split('.')[1]:
                assert layer_of(other) < layer_of(own), f'{own} imports {other}'


def test_names_above_datasets_are_above():
    imported = {}
    for node in nodes_of(NAMES[ABOVE]):
        if isinstance(node, ast.ImportFrom) and node.module.startswith('bags.'):
            imported.setdefault(node.module, set()).update(alias.name for alias in node.names)
    assert imported == {module: set(names) for module, names in above.MODULES.items()}
    for module, names in imported.items():
        assert layer_of(module) > layer_of('bags.dataset')
        for name in names:
            assert getattr(above, name) is getattr(importlib.import_module(module), name)
    with pytest.raises(AttributeError, match='no_such_name'):
        _ = above.no_such_name


def test_reading_does_not_import_writing():
    for name, path in NAMES.items():
        if name.startswith(('bags.dataset.reading', 'bags.dataset.format')):
            found = {other for other in imports(path) if other.startswith('bags.dataset.writing')}
            assert not found, f'{name} imports {found}'


def test_nothing_below_imports_interop_or_lerobot():
    for name, path in NAMES.items():
        package = name.split('.')[1] if '.' in name else ''
        for other in imports(path):
            if other.startswith('bags.interop'):
                assert package in USERS_OF_INTEROP or name == 'bags', f'{name} imports {other}'
            if other.startswith('bags.lerobot'):
                assert package in ('lerobot', 'types', 'cli') or name == 'bags', f'{name} imports {other}'


def test_folders_within_a_package_import_one_way():
    """Within each folder, its modules and folders import each other in one direction."""
    folders = {name.rpartition('.')[0] for name in NAMES} - {'', 'bags'}
    for folder in sorted(folders):
        arrows = {}
        for name, path in NAMES.items():
            if name.startswith(f'{folder}.'):
                room = name.removeprefix(f'{folder}.').split('.')[0]
                for other in imports(path):
                    if other.startswith(f'{folder}.'):
                        arrows.setdefault(room, set()).add(other.removeprefix(f'{folder}.').split('.')[0])
        done = set()

        def visit(room, above, arrows=arrows, done=done, folder=folder):
            assert room not in above, f'{folder}: circle: {" → ".join([*above, room])}'
            if room not in done:
                for other in sorted(arrows.get(room, set()) - {room}):
                    visit(other, [*above, room])
                done.add(room)

        for room in sorted(arrows):
            visit(room, [])


def test_no_circles():
    done = set()

    def visit(module, before):
        assert module not in before, f'circle: {" → ".join([*before, module])}'
        if module not in done:
            for other in sorted(imports(NAMES[module]) & NAMES.keys()):
                visit(other, [*before, module])
            done.add(module)

    done.add(ABOVE)  # It names packages above for type checkers.
    for module in NAMES.keys() - {'bags'}:
        visit(module, [])


@pytest.mark.parametrize('path', PURE)
def test_pure_modules_do_no_input_and_output(path):
    for other in imports(PACKAGE / path):
        assert other.split('.')[0] not in OUTSIDE, f'{path} imports {other}'
    calls = {node.func.id for node in nodes_of(PACKAGE / path)
             if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}  # fmt: skip
    assert not calls & {'open', 'print', 'input', 'exec', 'eval'}


def test_modules_of_users_alone_list_their_names():
    assert sorted(name for name, path in NAMES.items() if declared_names(path) is not None) == OF_USERS


@pytest.mark.parametrize('module', OF_USERS)
def test_modules_of_users_list_their_names_sorted(module):
    names = declared_names(NAMES[module])
    # Constants, classes, functions, as ruff sorts them.
    order = sorted(names, key=lambda name: (not name.isupper(), name[0].islower(), name))
    assert names == order
    assert len(set(names)) == len(names)
    try:
        imported = importlib.import_module(module)
    except bags.MissingDependencyError as exc:
        pytest.skip(str(exc))
    for name in names:
        assert hasattr(imported, name)


def declared_names(path):
    """Returns the value of `__all__` of a module; None if it has none."""
    for node in tree_of(path).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == '__all__':
            return ast.literal_eval(node.value)
    return None


OBJECT = ('self', 'cls')


def is_underscored(name):
    return name.startswith('_') and not name.startswith('__')


@functools.cache
def names_of_class(node):
    """Returns the names of a class: methods, class variables, and attributes of its methods' `self`."""
    found = {each.name for each in node.body if isinstance(each, ast.FunctionDef)}
    for each in node.body:
        if isinstance(each, ast.Assign | ast.AnnAssign):
            targets = each.targets if isinstance(each, ast.Assign) else [each.target]
            found |= set(map(ast.unparse, targets))
    for each in ast.walk(node):
        if isinstance(each, ast.Attribute) and isinstance(each.value, ast.Name) and each.value.id in OBJECT:
            found.add(each.attr)
    return found


@functools.cache
def inherited_names(path, class_name):
    """Returns the names that a class has from classes of other modules, as far as these are of bags."""
    nodes, found = nodes_of(path), set()
    sources = {
        alias.asname or alias.name: (NAMES[node.module], alias.name)
        for node in nodes
        if isinstance(node, ast.ImportFrom) and node.module in NAMES
        for alias in node.names
    }
    classes = {node.name: node for node in nodes if isinstance(node, ast.ClassDef)}
    for base in classes[class_name].bases if class_name in classes else ():
        name = ast.unparse(base).partition('[')[0]
        if name in sources:
            other, original = sources[name]
            for node in nodes_of(other):
                if isinstance(node, ast.ClassDef) and node.name == original:
                    found |= names_of_class(node) | inherited_names(other, original)
        elif name in classes:
            found |= inherited_names(path, name)
    return found


def used_underscore_names(path):
    """Returns the underscore names that a module uses of objects and imports, also by `getattr`."""
    found = set()
    for node in nodes_of(path):
        if isinstance(node, ast.Attribute):
            found.add(node.attr)
        elif isinstance(node, ast.ImportFrom):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id.endswith('attr'):
            found |= {str(each.value) for each in node.args[1:2] if isinstance(each, ast.Constant)}
    return set(filter(is_underscored, found))


def test_modules_use_no_underscore_names_of_other_modules():
    for path in MODULES:
        own = {node.name for node in tree_of(path).body if isinstance(node, ast.ClassDef | ast.FunctionDef)}
        for node in nodes_of(path):
            if isinstance(node, ast.ClassDef):
                own |= names_of_class(node)
        assert not used_underscore_names(path) - own - OF_PYTHON - OF_PACKAGES - UNDOCUMENTED, path


def test_classes_use_and_define_no_underscore_names_of_bases_in_other_modules():
    for path in MODULES:
        for node in nodes_of(path):
            if isinstance(node, ast.ClassDef):
                names = set(filter(is_underscored, names_of_class(node)))
                assert not names & inherited_names(path, node.name), f'{path}: {node.name}'


def test_every_module_says_what_it_is_for():
    for path in MODULES:
        docstring = ast.get_docstring(tree_of(path))
        assert docstring, path
        assert docstring.splitlines()[0].endswith(('.', ':')), f'{path}: {docstring.splitlines()[0]}'


def test_names_of_modules_and_packages():
    for path in MODULES:
        assert not path.stem.startswith('_') or path.stem in ('__init__', '__main__')


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
        'ray',
        'pyarrow',
    }
    heavy |= {'multiprocessing', 'asyncio', 'pandas', 'cv2', 'bagz', 'granular', 'hypothesis', 'pytest'}
    assert not loaded & heavy
    assert {'numpy', 'msgpack', 'zstandard'} <= loaded


def test_importing_bags_waits_for_the_first_use(kit):
    code = 'import sys, json, bags; print(json.dumps(sorted(sys.modules)))'
    assert not {'numpy', 'msgpack', 'zstandard', 'bags.dataset.reader'} & set(json.loads(kit.python(code)))


NUMBERS_AND_TEXTS = """
import json, sys, bags
spec = {'id': 'int', 'text': 'utf8', 'vector': 'array(float32,2)', 'words': 'utf8[]'}
with bags.DatasetWriter(sys.argv[1], spec) as writer:
    writer.append({'id': 1, 'text': 'a', 'vector': [1, 2], 'words': ['b', 'c']})
reader = bags.open(sys.argv[1])
assert reader[0]['text'] == 'a'
assert reader.batch([0])['id'].tolist() == [1]
assert reader[0, {'words': range(1)}] == {'words': ['b']}
print(json.dumps([name for name in sys.modules if name.startswith('bags.media')]))
"""


def test_numbers_and_texts_load_no_module_of_media(kit, tmp_path):
    assert json.loads(kit.python(NUMBERS_AND_TEXTS, tmp_path / 'd')) == []


def test_every_public_name_is_there():
    for name in bags.__all__:
        assert getattr(bags, name) is not None
        assert name in dir(bags)
    assert len(set(dir(bags))) == len(dir(bags))
    with pytest.raises(AttributeError, match='no_such_name'):
        _ = bags.no_such_name


def test_public_names():
    for name in (
        'open',
        'concat',
        'join',
        'Ragged',
        'DatasetReader',
        'encoders',
        'decoders',
    ):
        assert name in bags.__all__
    assert bags.encoders.keys() == bags.decoders.keys()
    for name in bags.__all__:
        if callable(getattr(bags, name)):
            assert getattr(bags, name).__doc__, name
