"""`bags view`: a dataset in the browser."""

from __future__ import annotations

import os
import sys
import urllib.parse
from typing import Annotated

import typer

from bags.cli.arguments import Json, Links, argument, option, parse_links
from bags.cli.errors import UsageError
from bags.cli.output import answer, print_json, say


def view(
    path: Annotated[str, argument('PATH', 'A dataset; also a URL.')],
    port: Annotated[int, typer.Option('--port', min=0, max=65535, help='0 for a free one.')] = 0,
    browser: Annotated[bool, typer.Option('--browser/--no-browser', help='Open the browser.')] = True,
    export: Annotated[
        str | None, option('--export', metavar='FOLDER', help='Write the page for a web server, and end.')
    ] = None,
    links: Links = None,
    json: Json = False,
) -> None:
    """Shows a dataset in the browser, from a server on loopback, until it is interrupted.

    With `--export`, writes the page, which shows the dataset that its address names: `?data=URL`.

    Example: bags view episodes
    """
    if export is not None:
        _export(path, export, json=json)
        return
    import webbrowser

    from bags.viewer.server import ViewServer

    with ViewServer(path, port, links=parse_links(links)) as server:
        if json:
            print_json({'url': server.url, 'port': server.port}, indent=None)
        else:
            say(f'{path} at {server.url}')
            say('Ctrl-C ends.')
        sys.stdout.flush()  # A program that reads it waits for no more.
        if browser:
            webbrowser.open(server.url)
        server.wait()


def _export(path: str, folder: str, *, json: bool) -> None:
    from bags.maintenance.location import locate
    from bags.viewer.page import export_page

    is_web = urllib.parse.urlsplit(path).scheme in ('http', 'https')
    if not is_web and locate(path).type == 'bags':
        raise UsageError(f'{path}: expected a dataset, which is a folder, got a bag')
    files = export_page(folder)
    data = urllib.parse.quote(path, safe='') if is_web else 'URL'
    answer(
        json,
        {'files': files},
        f'{len(files)} files, {sum(map(os.path.getsize, files)) / 1000:,.0f} kB, in {folder}',
        f'On a web server, they show a dataset as index.html?data={data}',
        *([] if is_web else ['URL is the address of the dataset, or its path from the page.']),
    )
