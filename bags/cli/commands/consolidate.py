"""`bags consolidate`: makes a sharded dataset open with one request."""

from __future__ import annotations

from typing import Annotated

from bags.cli.arguments import Json, argument
from bags.cli.output import plural, print_json, say

__all__ = ['PANEL', 'consolidate']

PANEL = 'Copy and convert'


def consolidate(
    path: Annotated[str, argument('PATH', 'A sharded dataset; also a URL.')], json: Json = False
) -> None:
    """Writes shards.json into a sharded dataset, so that it opens with one request over a network.

    Example: bags consolidate episodes
    """
    import bags

    shards = bags.consolidate(path)
    if json:
        print_json({'path': path, 'shards': shards})
    else:
        say(f'{path}: consolidated {plural(shards, "shard")}')
