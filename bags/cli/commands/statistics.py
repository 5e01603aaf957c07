"""`bags statistics`: moments, quantiles and histograms of numeric fields."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from bags.cli.arguments import Json, Path
from bags.cli.output import print_json, print_rich, say, table

__all__ = ['statistics']

BARS = ' ▁▂▃▄▅▆▇█'
MAX_ELEMENTS = 16


def statistics(
    path: Path,
    fields: Annotated[
        list[str] | None, typer.Option('--field', '-f', show_default=False, help='A field; all numeric ones.')
    ] = None,
    samples: Annotated[int, typer.Option(min=1, help='Datapoints of which pictures are decoded.')] = 512,
    json: Json = False,
) -> None:
    """Prints mean, deviation, quantiles and a histogram of each numeric field, and keeps them for later.

    Example: bags statistics episodes

    Example: bags statistics episodes --field id --field actions
    """
    import numpy as np

    import bags

    found = bags.statistics(path, fields or None, samples=samples)
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
            rows.append([label, f'{int(each.count[place]):,}', *texts, _bars(each.histogram[place])])
        if len(elements) > MAX_ELEMENTS:
            rows.append([f'… {len(elements) - MAX_ELEMENTS} more of {name}', *[''] * 7])
    say(path, 'bold')
    names = ('field', 'values', 'min', 'median', 'max', 'mean', 'std', 'histogram')
    headings: list[Any] = [(name, 'left' if name in ('field', 'histogram') else 'right') for name in names]
    print_rich(table(headings, rows))
    for name, each in found.items():
        if each.sampled is not None:
            say(f'{name}: of the pictures of {each.sampled:,} datapoints')


def _bars(counts: Any) -> str:
    most = max(int(counts.max()), 1)
    return ''.join(BARS[-(-int(count) * (len(BARS) - 1) // most)] for count in counts)
