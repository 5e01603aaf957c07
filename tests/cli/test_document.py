"""The documentation shows what the commands print. Numbers, which depend on codecs, are not compared."""

import re

import pytest

BLOCK = re.compile(r'^```(python|console)\n(.*?)^```', re.DOTALL | re.MULTILINE)


def shape(text):
    """Returns the words of a text without numbers and bars, which differ between versions of codecs."""
    text = re.sub(r'[▁▂▃▄▅▆▇█][▁▂▃▄▅▆▇█ ]*', '▁ ', text)
    return re.sub(r'[\d.,]*\d\b( [kMG]?B\b)?', '#', text).split()


@pytest.mark.parametrize('page', ['cli.md', 'quickstart.md'])
def test_commands_print_what_the_document_shows(kit, tmp_path, monkeypatch, run_line, page):
    monkeypatch.chdir(tmp_path)
    document = (kit.ROOT / 'docs' / page).read_text(encoding='utf-8')
    names = {}
    for kind, content in BLOCK.findall(document):
        if kind == 'python':
            exec(content, names)
            continue
        for shown in re.split(r'^\$ ', content, flags=re.MULTILINE)[1:]:
            line, _, expected = shown.partition('\n')
            printed = run_line(line).stdout
            assert shape(printed) == shape(expected), f'{line}\n{printed}'
