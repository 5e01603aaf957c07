"""`bags trace`: prints which datapoints a training run had at a step."""

from __future__ import annotations

import json as json_format
from pathlib import Path as LocalPath
from typing import Annotated

import typer

from bags.cli.arguments import Json, argument
from bags.cli.output import answer


def trace(
    state: Annotated[str, argument('STATE', 'A JSON file of `Loader.state_dict()`.')],
    step: Annotated[int, typer.Option(min=0, help='From 0, counted from the beginning of the epoch.')],
    epoch: Annotated[
        int | None, typer.Option(min=0, show_default=False, help='From 0; by default the epoch of the state.')
    ] = None,
    json: Json = False,
) -> None:
    """Prints the datapoints of every rank of a run at a step, from the state of its loader.

    Example: bags trace state.json --step 2
    """
    from bags.loader.trace import trace as trace_step

    try:
        found = trace_step(json_format.loads(LocalPath(state).read_bytes()), step, epoch)
    except ValueError as exc:
        raise ValueError(f'{state}: {exc}') from exc
    ranks = [indices.tolist() for indices in found]
    answer(json, ranks, *(f'rank {rank}: {" ".join(map(str, each))}' for rank, each in enumerate(ranks)))
