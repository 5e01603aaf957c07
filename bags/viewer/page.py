"""The page of the viewer: static files, built by `make viewer`, or with the wheel if Node.js is installed."""

from __future__ import annotations

import errno
import os
import shutil
from html import escape

PAGE = os.path.join(os.path.dirname(__file__), 'static')


def find_page() -> str:
    """Returns the folder of the built page.

    Raises:
        FileNotFoundError: The page is not built, e.g. in an editable install, or without Node.js.
    """
    if not os.path.exists(os.path.join(PAGE, 'index.html')):
        detail = (
            'the page is not built: install Node.js 20.19 or newer, then run `make viewer` in the clone of '
            'an editable install, else `pip install --force-reinstall --no-deps CLONE`'
        )
        raise FileNotFoundError(errno.ENOENT, detail, PAGE)
    return PAGE


def export_page(folder: str | os.PathLike[str], data: str | None = None) -> list[str]:
    """Copies the page into a folder, for any web server; creates the folder if needed.

    Args:
        folder: The folder.
        data: The default dataset of the page, if the address of the page does not name a dataset: a URL, or a
            path relative to the page.

    Returns:
        The paths of the files.

    Raises:
        FileExistsError: The folder is not empty.
        FileNotFoundError: The page is not built.
    """
    source = find_page()
    if os.path.exists(folder) and (not os.path.isdir(folder) or os.listdir(folder)):
        raise FileExistsError(errno.EEXIST, 'expected a new or an empty folder', os.fspath(folder))
    shutil.copytree(source, folder, dirs_exist_ok=True)
    if data is not None:
        index = os.path.join(folder, 'index.html')
        with open(index, encoding='utf-8') as file:
            text = file.read()
        with open(index, 'w', encoding='utf-8') as file:
            meta = f'<meta name="bags-data" content="{escape(data)}">'
            file.write(text.replace('</head>', f'{meta}\n</head>', 1))
    return sorted(os.path.join(root, name) for root, _, names in os.walk(folder) for name in names)
