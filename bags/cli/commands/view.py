"""`bags view`: a dataset in the browser."""

from __future__ import annotations

from typing import Annotated

import typer

from bags.cli.arguments import argument, option
from bags.cli.errors import UsageError
from bags.cli.output import say

__all__ = ['view']


def view(
    path: Annotated[str, argument('PATH', 'A dataset; also a URL.')],
    port: Annotated[int, typer.Option('--port', min=0, max=65535, help='0 for a free one.')] = 0,
    browser: Annotated[bool, typer.Option('--browser/--no-browser', help='Open the browser.')] = True,
    export: Annotated[
        str | None, option('--export', metavar='FOLDER', help='Write the page for a web server, and end.')
    ] = None,
) -> None:
    """Shows a dataset in the browser, from a server on loopback, until it is interrupted.

    With `--export`, writes the page, which shows the dataset that its address names: `?data=URL`.

    Example: bags view episodes
    """
    if export is not None:
        _export(path, export)
        return
    import webbrowser

    from bags.viewer.server import ViewServer

    with ViewServer(path, port) as server:
        say(f'{path} at {server.url}')
        say('Ctrl-C ends.')
        if browser:
            webbrowser.open(server.url)
        server.wait()


def _export(path: str, folder: str) -> None:
    import os
    import urllib.parse

    from bags.maintenance.location import locate
    from bags.viewer.page import export_page

    if locate(path).kind == 'bags':
        raise UsageError(f'{path}: expected a dataset, which is a folder, got a bag')
    files = export_page(folder)
    is_web = urllib.parse.urlsplit(path).scheme in ('http', 'https')
    data = urllib.parse.quote(path, safe='') if is_web else 'URL'
    say(f'{len(files)} files, {sum(map(os.path.getsize, files)) / 1000:,.0f} kB, in {folder}')
    say(f'On a web server, they show a dataset as index.html?data={data}')
    if not is_web:
        say('URL is the address of the dataset, or its path from the page.')
