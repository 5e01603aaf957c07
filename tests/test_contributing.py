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
    return '\n'.join([label(f'{name}/', path / '__init__.py'), *lines(path, INDENT)])


def lines(folder, indent):
    """The modules of a package in one paragraph, then each inner package in a paragraph of its own."""
    names = sorted(path.stem for path in folder.glob('*.py') if path.stem != '__init__')
    yield from wrapped(' '.join(names), indent, indent)
    for path in sorted(folder.iterdir()):
        if (path / '__init__.py').exists():
            inner = list(lines(path, 0))
            yield from wrapped(f'{path.name}/ {" ".join(map(str.strip, inner))}', indent, indent + 2)


def wrapped(text, first, rest):
    if text:
        yield from textwrap.wrap(text, 110, initial_indent=' ' * first, subsequent_indent=' ' * rest)


def label(name, path):
    docstring = ast.get_docstring(ast.parse(path.read_text(encoding='utf-8')))
    return f'{name:<{INDENT}}{docstring.splitlines()[0]}'


def with_picture(text):
    return PICTURE.sub(lambda found: found[1] + picture() + found[2], text)


def test_packages_and_modules_are_up_to_date():
    text = PATH.read_text(encoding='utf-8')
    assert PICTURE.search(text)
    assert with_picture(text) == text, 'run `make layers`'


def test_files_named_for_contributors_exist():
    root = PATH.parent
    for name in ('CONTRIBUTING.md', 'docs/internals.md'):
        paths = re.findall(
            r'`((?:bags|tests|tools|docs|examples)/[\w./-]+)`', (root / name).read_text(encoding='utf-8')
        )
        assert len(paths) > 5, name
        for path in paths:
            assert (root / path).exists(), f'{name}: {path}'


def test_names_on_the_page_of_a_read_and_a_write_exist():
    text = (PATH.parent / 'docs/internals.md').read_text(encoding='utf-8')
    names = {name.rpartition('.')[2] for name in re.findall(r'`([A-Za-z_]+(?:\.[a-z_]+)?)`', text)}
    source = '\n'.join(path.read_text(encoding='utf-8') for path in PACKAGE.rglob('*.py'))
    for name in names - {'append', 'close', 'unfinished'}:
        assert re.search(rf'(?:def|class) {name}\b', source), name


if __name__ == '__main__':
    PATH.write_text(with_picture(PATH.read_text(encoding='utf-8')), encoding='utf-8')
