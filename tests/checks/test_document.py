"""docs/check.md lists all built-in checks; `python -m tests.checks.test_document` updates the tables."""

import re
from pathlib import Path

from bags.checks.built_in import BUILT_IN

PATH = Path(__file__).parents[2] / 'docs' / 'check.md'
TABLES = re.compile(r'(<!-- checks -->\n).*?(<!-- end -->)', re.DOTALL)
LEVELS = {
    'columns': 'by default',
    'headers': 'with `--headers`',
    'decoded': 'with `--decode`',
}


def tables():
    lines = []
    for level, option in LEVELS.items():
        lines += [
            f'**{level.capitalize()}**, {option}:', '',
            '| check | severity | bound | why it matters | where the bound comes from |',
            '| --- | --- | --- | --- | --- |',
        ]  # fmt: skip
        for check in BUILT_IN:
            if check.level == level:
                rare = ' ¹' if check.rare else ''
                bound = f'{check.bound:g}'
                cells = (f'`{check.name}`', check.severity + rare, bound, check.reason, check.bound_source)
                lines.append(f'| {" | ".join(cells)} |')
        lines.append('')
    return '\n'.join(lines)


def with_tables(text):
    return TABLES.sub(lambda found: found[1] + tables() + found[2], text)


def test_the_page_lists_all_checks():
    text = PATH.read_text(encoding='utf-8')
    assert TABLES.search(text)
    assert with_tables(text) == text, 'run `python -m tests.checks.test_document`'


def test_the_tables_of_other_tools_name_checks_that_exist():
    """In the tables, a name in backquotes with an underscore is a check."""
    text = TABLES.sub('', PATH.read_text(encoding='utf-8'))
    named = re.findall(r'`([a-z]+(?:_[a-z]+)+)`', text.partition('## Beside other tools')[2])
    assert named
    assert set(named) <= {check.name for check in BUILT_IN}


if __name__ == '__main__':
    PATH.write_text(with_tables(PATH.read_text(encoding='utf-8')), encoding='utf-8')
