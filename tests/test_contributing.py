"""CONTRIBUTING lists the packages and modules: `python -m tests.test_contributing` updates the list."""

import ast
import re
import textwrap
from pathlib import Path

from tests.test_layers import LAYERS, PACKAGE

PATH = Path(__file__).parents[1] / 'CONTRIBUTING.md'
PICTURE = re.compile(r'(<!-- layers -->\n```\n).*?(```\n<!-- end -->)', re.DOTALL)
INDENT = 14


def picture():
    """The packages from the lowest layer up, each with what it is for and its modules."""
    return '\n\n'.join('\n'.join(map(entry, sorted(layer))) for layer in LAYERS) + '\n'


def entry(name):
    path = PACKAGE / name
    if not path.is_dir():
        return label(name, path.with_suffix('.py'))
    modules = ' '.join(contents(path))
    space = ' ' * INDENT
    return '\n'.join(
        [
            label(f'{name}/', path / '__init__.py'),
            *textwrap.wrap(modules, 110, initial_indent=space, subsequent_indent=space),
        ]
    )


def label(name, path):
    docstring = ast.get_docstring(ast.parse(path.read_text(encoding='utf-8')))
    return f'{name:<{INDENT}}{docstring.splitlines()[0]}'


def contents(folder):
    """Returns the names of the modules in a package, those of inner packages with the package in front."""
    for path in sorted(folder.iterdir()):
        if path.is_dir() and (path / '__init__.py').exists():
            yield from (f'{path.name}/{name}' for name in contents(path))
        elif path.suffix == '.py' and path.stem != '__init__':
            yield path.stem


def with_picture(text):
    return PICTURE.sub(lambda found: found[1] + picture() + found[2], text)


def test_packages_and_modules_are_up_to_date():
    text = PATH.read_text(encoding='utf-8')
    assert PICTURE.search(text)
    assert with_picture(text) == text, 'run `make layers`'


if __name__ == '__main__':
    PATH.write_text(with_picture(PATH.read_text(encoding='utf-8')), encoding='utf-8')
