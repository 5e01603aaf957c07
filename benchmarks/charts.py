"""Charts of the tables of README and docs/performance.md, as SVG files."""

import math
from html import escape

WIDTH, LABEL, ROW, HEAD = 720, 190, 22, 34
STYLE = """
    .page { fill: #fff }
    .bar { fill: #90a4ae }
    .ours { fill: #d84315 }
    .grid { stroke: #cfd8dc }
    text { fill: #263238; font: 12px ui-sans-serif, system-ui, sans-serif }
    .head { font-weight: 600 }
    .note { fill: #546e7a }
    @media (prefers-color-scheme: dark) {
      .page { fill: #1f2129 }
      .bar { fill: #78909c }
      .ours { fill: #ff8a65 }
      .grid { stroke: #3b404d }
      text { fill: #eceff1 }
      .note { fill: #b0bec5 }
    }
  """

Panel = tuple[str, dict[str, str]]
"""A title with the unit, and the cells of a row of a table by the label of the column."""


def chart(panels: list[Panel]) -> str:
    """Returns bars of each panel, one below the other; the first column, of bags, is in another colour.

    A panel whose values differ by more than 30 times has dots on a logarithmic axis instead.
    """
    parts, top = [], 0
    for title, cells in panels:
        values = {label: float(cell.replace(',', '')) for label, cell in cells.items() if cell}
        parts += panel(title, values, top)
        top += HEAD + ROW * len(values) + 14
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {top}" role="img">\n'
        f'  <style>{STYLE}</style>\n  <rect class="page" width="{WIDTH}" height="{top}" rx="8"/>\n'
        + ''.join(f'  {part}\n' for part in parts)
        + '</svg>\n'
    )


def panel(title: str, values: dict[str, float], top: int) -> list[str]:
    """Returns the elements of a panel, whose upper edge is at `top`."""
    largest, smallest = max(values.values()), min(values.values())
    logarithmic = largest > 30 * smallest
    low = math.floor(math.log10(smallest)) if logarithmic else 0
    room, left = WIDTH - LABEL - 70, LABEL

    def width(value: float) -> float:
        if not logarithmic:
            return room * value / largest
        return room * (math.log10(value) - low) / (math.log10(largest) - low)

    head = f'<text class="head" x="16" y="{top + 24}">{escape(title)}'
    if logarithmic:
        head += '<tspan class="note" font-weight="400"> · logarithmic</tspan>'
    parts = [head + '</text>']
    if logarithmic:
        for power in range(low, math.floor(math.log10(largest)) + 1):
            x = left + width(10.0**power)
            bottom = top + HEAD + ROW * len(values)
            parts.append(f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{top + HEAD}" y2="{bottom}"/>')
    for position, (label, value) in enumerate(values.items()):
        y = top + HEAD + ROW * position
        ours = ' ours' if label.startswith('bags') else ''
        shown = f'{value:,.0f}' if value >= 99.5 else f'{value:g}'
        parts += [
            f'<text x="{left - 8}" y="{y + 15}" text-anchor="end">{escape(label.replace("`", ""))}</text>',
            f'<circle class="bar{ours}" cx="{left + width(value):.1f}" cy="{y + 11}" r="5"/>'
            if logarithmic
            else f'<rect class="bar{ours}" x="{left}" y="{y + 3}" width="{width(value):.1f}" height="16"/>',
            f'<text class="note" x="{left + width(value) + 9:.1f}" y="{y + 15}">{shown}</text>',
        ]
    return parts
