"""Writes `llms.txt`, `llms-full.txt` and SKILL.md beside the documentation site: a hook of mkdocs.yml."""

import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.nav import Navigation
from mkdocs.structure.pages import Page

_PAGES: list[Page] = []
_HIDDEN = re.compile(r'<!--.*?-->\n?', re.DOTALL)
_CODE = re.compile(r'^```.*?^```$', re.DOTALL | re.MULTILINE)
_LINK = re.compile(r'\[([^][]*)\]\([^()]*\)')
_ABOUT = re.compile(r'^description: (.*)$', re.MULTILINE)
_SKILL = Path(__file__).parents[1] / 'bags/SKILL.md'


def on_nav(nav: Navigation, **_: object) -> None:
    """Remembers the pages, in the order of the navigation."""
    _PAGES[:] = nav.pages


def on_post_build(config: MkDocsConfig) -> None:
    """Writes an index of the pages with their first paragraphs, all guides as one text, and SKILL.md."""
    skill = _SKILL.read_text('utf-8')
    lines = [f'# {config.site_name}', '', f'> {config.site_description}', '']
    lines += [f'- [SKILL.md](SKILL.md): {_ABOUT.findall(skill)[0]}']
    lines += [
        '- [llms-full.txt](llms-full.txt): SKILL.md and the pages below as one text, without the reference.'
    ]
    texts, section = [skill], ''
    for page in _PAGES:
        text = _HIDDEN.sub('', page.markdown or '').strip()
        if page.file.src_uri.startswith('changelog'):
            continue
        if page.parent is not None and page.parent.title != section:
            section = page.parent.title
            lines += ['', f'## {section}', '']
        parts = map(str.strip, _CODE.sub('', text).split('\n\n'))
        paragraphs = [part for part in parts if part and part[0] not in '#<`|-!:']
        about = _LINK.sub(r'\1', ': ' + ' '.join(paragraphs[0].split())) if paragraphs else ''
        about = f'{about[:-1]}.' if about.endswith(':') else about
        lines.append(f'- [{page.title}]({page.file.url}){about}')
        if not page.file.src_uri.startswith('reference/'):
            texts.append(text)
    site = Path(config.site_dir)
    site.joinpath('llms.txt').write_text('\n'.join(lines) + '\n', encoding='utf-8')
    site.joinpath('llms-full.txt').write_text('\n\n'.join(texts) + '\n', encoding='utf-8')
    site.joinpath('SKILL.md').write_text(skill, encoding='utf-8')
