"""Writes `llms.txt` and `llms-full.txt` beside the documentation site: a hook of mkdocs.yml."""

import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.nav import Navigation
from mkdocs.structure.pages import Page

_PAGES: list[Page] = []
_HIDDEN = re.compile(r'<!--.*?-->\n?', re.DOTALL)


def on_nav(nav: Navigation, **_: object) -> None:
    """Remembers the pages, in the order of the navigation."""
    _PAGES[:] = nav.pages


def on_post_build(config: MkDocsConfig) -> None:
    """Writes an index of the pages, and all guides as one text."""
    lines, texts = [f'# {config.site_name}', '', f'> {config.site_description}', ''], []
    for page in _PAGES:
        text = _HIDDEN.sub('', page.markdown or '').strip()
        if page.file.src_uri.startswith(('reference/', 'changelog')):
            continue
        paragraphs = [part for part in text.split('\n\n') if part and part[0] not in '#<`|-!']
        about = ' '.join(paragraphs[0].split()) if paragraphs else ''
        lines.append(f'- [{page.title}]({page.file.url}): {about}')
        texts.append(text)
    site = Path(config.site_dir)
    site.joinpath('llms.txt').write_text('\n'.join(lines) + '\n', encoding='utf-8')
    site.joinpath('llms-full.txt').write_text('\n\n'.join(texts) + '\n', encoding='utf-8')
