"""`bags statistics`: moments, quantiles and histograms of numeric fields."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from bags.cli.arguments import Fields, Json, Path, parse_fields
from bags.cli.output import histogram, print_json, print_rich, say, table

__all__ = ['statistics']

MAX_ELEMENTS = 16


def statistics(
    path: Path,
    fields: Fields = None,
    samples: Annotated[int, typer.Option(min=1, help='Datapoints of which pictures are decoded.')] = 512,
    json: Json = False,
) -> None:
    """Prints mean, deviation, quantiles and a histogram of each numeric field, and keeps them for later.

    Example: bags statistics episodes

    Example: bags statistics episodes --fields id,actions
    """
    import numpy as np

    import bags

    with bags.open(path, raw=True) as dataset:
        names = parse_fields(fields, dataset.spec)
    found = bags.statistics(path, names, samples=samples)
    if json:
        from bags.maintenance.statistics import as_json

        print_json({name: as_json(each) for name, each in found.items()})
        return
    rows: list[list[str]] = []
    for name, each in found.items():
        elements = list(np.ndindex(np.shape(each.mean)))
        for place in elements[:MAX_ELEMENTS]:
            label = f'{name}[{",".join(map(str, place))}]' if place else name
            middle = each.quantiles[0.5][place] if each.quantiles else float('nan')
            numbers = (each.min[place], middle, each.max[place], each.mean[place], each.std[place])
            texts = [f'{number:.4g}' for number in numbers]
            rows.append(
                [label, f'{int(each.count[place]):,}', *texts, histogram(each.histogram[place].tolist())]
            )
        if len(elements) > MAX_ELEMENTS:
            rows.append([f'… {len(elements) - MAX_ELEMENTS} more of {name}', *[''] * 7])
    say(path, 'bold')
    columns = ('field', 'values', 'min', 'median', 'max', 'mean', 'std', 'histogram')
    headings: list[Any] = [(name, 'left' if name in ('field', 'histogram') else 'right') for name in columns]
    print_rich(table(headings, rows))
    for name, each in found.items():
        if each.sampled is not None:
            say(f'{name}: of the pictures of {each.sampled:,} datapoints')
