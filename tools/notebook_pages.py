"""Makes pages of the documentation site of the notebooks in `docs/notebooks`: a hook of mkdocs.yml."""

import json
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files


def page_of(path: Path) -> str:
    """Returns a notebook as Markdown: text, code, and the outputs that it is stored with."""
    parts = []
    for cell in json.loads(path.read_text(encoding='utf-8'))['cells']:
        text = ''.join(cell['source'])
        if cell['cell_type'] == 'markdown':
            parts.append(text)
        else:
            parts += [f'```python\n{text}\n```', *map(output_of, cell['outputs'])]
    parts.insert(1, f'This page is a notebook, [{path.name}]({path.name}), which the tests run.')
    return '\n\n'.join(parts) + '\n'


def output_of(output: dict[str, Any]) -> str:
    """Returns an output as Markdown: HTML where there is any, else text."""
    data = output.get('data', {'text/plain': output.get('text', '')})
    html = ''.join(data.get('text/html', ''))
    if html:
        return '<div class="output">' + ''.join(line.strip() for line in html.splitlines()) + '</div>'
    return '```text\n' + ''.join(data['text/plain']).rstrip('\n') + '\n```'


def on_files(files: Files, config: MkDocsConfig, **_: Any) -> Files:
    """Adds `NAME.md` for each `NAME.ipynb`."""
    for file in list(files):
        if file.src_uri.endswith('.ipynb') and file.abs_src_path:
            uri = file.src_uri.removesuffix('.ipynb') + '.md'
            files.append(File.generated(config, uri, content=page_of(Path(file.abs_src_path))))
    return files
