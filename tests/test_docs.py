"""The Python blocks of the documentation run, top to bottom, each document in an empty folder of its own."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DOCUMENTS = [ROOT / 'README.md', *sorted((ROOT / 'docs').glob('**/*.md'))]
BLOCK = re.compile(r'^```python\n(.*?)^```', re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize('path', DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_blocks_run(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = path.read_text(encoding='utf-8')
    names = {'__name__': path.stem}
    for block in BLOCK.finditer(text):
        # The blank lines in front make a traceback point at the line in the document.
        before = '\n' * text.count('\n', 0, block.start(1))
        exec(compile(before + block[1], str(path), 'exec'), names)
