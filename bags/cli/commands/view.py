"""`bags view`: shows a dataset in the browser."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
import urllib.parse
from typing import TYPE_CHECKING, Annotated

import typer

from bags.cli.arguments import Json, TrustLinks, argument, option, parse_trusted
from bags.cli.errors import UsageError
from bags.cli.output import answer, print_json, say

if TYPE_CHECKING:
    from bags.links.permission import PermittedPaths


def view(
    path: Annotated[str, argument('PATH', 'A dataset; also a URL.')],
    fragment: Annotated[
        str, argument('FRAGMENT', 'What the page shows, as its link button copies: #view=datapoint&at=7.')
    ] = '',
    port: Annotated[int, typer.Option('--port', metavar='N', min=0, max=65535, help='0: a free port.')] = 0,
    browser: Annotated[bool, typer.Option('--browser/--no-browser', help='Open the browser.')] = True,
    export: Annotated[
        str | None, option('--export', metavar='FOLDER', help='Write the page for a web server, and exit.')
    ] = None,
    with_data: Annotated[
        bool, typer.Option('--with-data', help='With --export: also copy the dataset.')
    ] = False,
    follow: Annotated[
        bool, typer.Option('--follow', help='Show episodes of a local dataset while they are recorded.')
    ] = False,
    scores: Annotated[
        str | None,
        option('--scores', metavar='FOLDER', help='Also show the scores of `bags check --save`, as fields.'),
    ] = None,
    trust_links: TrustLinks = None,
    json: Json = False,
) -> None:
    """Shows a dataset in the browser, from a server on loopback, until interrupted.

    With `--export`, writes the page. It shows this dataset, or the dataset in its address: `?data=`.

    With `--scores`, the page also lists the findings. It shows a temporary dataset, which links to the
    records of this one.

    Example: bags view episodes

    Example: bags view episodes --scores scores
    """
    if scores is not None and (follow or (export is not None and not with_data)):
        raise UsageError('--scores: not with --follow, and with --export only with --with-data')
    with contextlib.ExitStack() as stack:
        shown, permitted = path, parse_trusted(trust_links)
        if scores is not None:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix='bags-view-'))
            shown, permitted = _with_scores(path, scores, folder, permitted), True
        _view(path, shown, fragment, port, browser, export, with_data, follow, permitted, json)


def _with_scores(path: str, scores: str, folder: str, trust_links: PermittedPaths) -> str:
    """Saves a dataset with its scores below a folder, as links, and returns its path."""
    import bags
    from bags.checks.scores import CHECKED, findings_of, join_scores, open_scores

    target = os.path.join(folder, os.path.basename(path.rstrip('/')) or 'data')
    with bags.open(path, raw=True, trust_links=trust_links) as dataset:
        of_dataset = open_scores(dataset, scores, raw=True)
        joined = join_scores(dataset, of_dataset)
        joined.save(target)
        checked = {'findings': findings_of(of_dataset), 'scores': list(of_dataset.schema)}
        bags.set_metadata(target, {**joined.metadata, CHECKED: checked})
    return target


def _view(
    path: str,
    shown: str,
    fragment: str,
    port: int,
    browser: bool,
    export: str | None,
    with_data: bool,
    follow: bool,
    trust_links: PermittedPaths,
    json: bool,
) -> None:
    if with_data and export is None:
        raise UsageError('--with-data needs --export FOLDER')
    if follow and export is not None:
        raise UsageError('--follow: a page that is exported cannot follow a dataset')
    if export is not None:
        _export(shown, export, trust_links, with_data=with_data, json=json)
        return
    if fragment and not fragment.startswith('#'):
        raise UsageError(
            f'FRAGMENT: expected a text that begins with #, as #view=datapoint&at=7, got {fragment!r}'
        )
    import webbrowser

    from bags.viewer.server import ViewServer

    # The page copies code and commands with the path of the dataset, and not of the temporary one.
    source = None if shown == path else os.path.abspath(path) if os.path.exists(path) else path
    with ViewServer(shown, port, follow=follow, trust_links=trust_links, source=source) as server:
        if json:
            print_json({'url': server.url + fragment, 'port': server.port}, indent=None)
        else:
            say(f'{path} at {server.url}{fragment}')
            say('Ctrl-C ends.')
        sys.stdout.flush()  # So that a program that reads the line gets it now.
        if browser:
            webbrowser.open(server.url + fragment)
        server.wait()


def _export(path: str, folder: str, trust_links: PermittedPaths, *, with_data: bool, json: bool) -> None:
    from bags.display.counts import byte_count
    from bags.maintenance.location import a_file, locate
    from bags.viewer.page import export_page

    scheme = urllib.parse.urlsplit(path).scheme
    is_web, is_local = scheme in ('http', 'https'), not scheme or os.path.exists(path)
    location = None if is_web else locate(path)
    if location is not None and location.type == 'bags':
        raise UsageError(f'{path}: expected a dataset, which is a folder, got {a_file(location)}')
    name = os.path.basename(os.path.abspath(path) if is_local else path.rstrip('/')) or 'data'
    if with_data:
        data: str | None = urllib.parse.quote(f'data/{name}')
    elif is_local:
        data = urllib.parse.quote(os.path.relpath(path, folder).replace(os.sep, '/'))
    else:
        data = path if is_web else None
    made = _first_missing(folder)
    files = export_page(folder, data)
    if with_data:
        import bags

        try:
            with bags.open(path, raw=True, trust_links=trust_links) as dataset:
                copied = os.path.join(folder, 'data', name)
                bags.copy(dataset, copied)
            bags.consolidate(copied)  # Else, the page asks for each shard.
            files = sorted(os.path.join(root, file) for root, _, names in os.walk(folder) for file in names)
        except BaseException:  # Including Ctrl-C: a page without its dataset is useless.
            _remove_export(folder, made)
            raise
    size = byte_count(sum(map(os.path.getsize, files)))
    answer(
        json,
        {'files': files, 'data': data},
        f'{len(files):,} files, {size}, in {folder}',
        f'They show {data or "no dataset"}{"" if data is None or is_web else ", a path from the page"}.',
        'For another dataset, open index.html?data=URL.',
    )


def _first_missing(folder: str) -> str | None:
    """Returns the topmost missing folder of a path; None if the folder exists."""
    missing, folder = None, os.path.abspath(folder)
    while not os.path.exists(folder):
        missing, folder = folder, os.path.dirname(folder)
    return missing


def _remove_export(folder: str, made: str | None) -> None:
    """Removes the files of an export, and the folders that it created."""
    import shutil

    for path in [made] if made else [os.path.join(folder, name) for name in os.listdir(folder)]:
        if os.path.isdir(path):
            shutil.rmtree(path, ignore_errors=True)
        else:
            os.remove(path)
