"""Writes the tables and charts of README and docs from the results: `python -m benchmarks.render`."""

import json
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from benchmarks.charts import chart

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / 'benchmarks/results'
CHARTS = ROOT / 'docs/assets/charts'
DOCUMENTS = tuple(
    ROOT / path
    for path in (
        'README.md',
        'docs/index.md',
        'docs/performance.md',
        'docs/linking.md',
        'docs/migration/lerobot.md',
    )
)
SECTION = re.compile(r'(<!-- benchmarks: (\w+) -->\n).*?(<!-- end -->)', re.DOTALL)
Result = dict[str, Any]

DATASET_COLUMNS = {
    'bags': 'bags',
    'bagz¹': 'bagz, one record',
    'Säckli¹': 'sackli, one record',
    'ArrayRecord¹': 'array_record, one record',
    'Granular': 'granular',
    'Streaming (MDS)': 'mosaicml streaming',
    'Lance': 'lance',
    'HF datasets²': 'hf datasets',
}
DATASET_ROWS = {
    'random row': 'random row',
    'random row, raw': 'random row, raw',
    'random batch of id and text': 'random batch of 256: id and text',
    'random batch of id and vector': 'random batch of 256: id and vector',
    'scan of the integers': 'scan of an int field',
    'write': 'write',
    'write and sync': 'write, synced',
    'open, ms': 'open',
}
SUMMARY_ROWS = (
    'random row',
    'random batch of id and text',
    'scan of the integers',
    'write',
    'write and sync',
)
RECORD_COLUMNS = {
    'one at random': 'single',
    '1,024 at random': 'gather (list)',
    'iteration': 'for x in reader',
    '`read()`': 'read()',
    'write': 'write',
}
COLD_COLUMNS = {
    'bags': 'bags',
    'Säckli, direct I/O': 'sackli DIRECT_IO',
    'Säckli, random access': 'sackli RANDOM',
    'Säckli': 'sackli',
    'bagz': 'bagz',
}
PICTURE_COLUMNS = {
    'decoding alone': 'only decoding, 2 threads',
    'bags': 'bags',
    'Grain + ArrayRecord': 'grain + array_record',
    'LitData': 'litdata',
    'WebDataset': 'webdataset',
    'Granular': 'granular',
    'PyTorch over files': 'PyTorch over files',
    'Streaming (MDS)': 'mosaicml streaming',
}
ROW_COLUMNS = {'`np.take` of a memory map': 'np.take', 'bags': 'bags', 'loaderx': 'loaderx'}
CLIENT_COLUMNS = {
    'bags': ('bags', 'bags with s3fs'),
    'the client alone': ('obstore get_ranges', 's3fs cat_ranges'),
}
EPOCH_COLUMNS = {
    'bags': 'bags',
    'LitData': 'LitData',
    'Streaming (MDS)': 'MosaicML Streaming',
    'WebDataset': 'WebDataset',
}
VIDEO_COLUMNS = {
    'bags': 'bags',
    'PyAV, a loop of seeks': 'av, seek and decode',
    'torchcodec': 'torchcodec',
    'torchcodec, approximate': 'torchcodec, approximate',
}
AUDIO_COLUMNS = {
    'bags': 'bags',
    'PyAV, the same packets': 'av, the same packets',
    'PyAV, a seek': 'av, seek and decode',
    'torchcodec': 'torchcodec',
}
IMPORT_COLUMNS = {'import': 'bags.convert', 'one pass with its own library': 'iteration'}
DURABILITY_COLUMNS = {
    "bags, `'close'`": 'bags, close',
    "bags, `'flush'`": 'bags, flush',
    "bags, `'none'`": 'bags, none',
    '`cp` and `sync`': 'cp and sync',
    '`cp`': 'cp',
}
LINK_COLUMNS = {'the view': 'the view', 'saved as links': 'saved', 'one folder': 'one folder'}
LINKING_COLUMNS = ('linked', 'beside it')
LINKING_PEERS = {
    'PIL opens it': 'PIL, open and size',
    'DataLoader of files': 'PyTorch, files',
    'webdataset': 'webdataset',
    'copied': 'a copy',
}
"""The names of the candidates beside the linked dataset."""
MIXTURE_COLUMNS = {
    'one dataset': 'one dataset',
    'four of one spec': 'four datasets',
    'four specs, padded': 'four specs, padded',
}
LEROBOT_COLUMNS = {
    '`LeRobotDataset`': 'LeRobot, PyAV',
    '`bags.lerobot.dataset`, copied': 'bags, copied',
    '`bags.lerobot.dataset`, linked': 'bags, linked',
}
WINDOW_COLUMNS = {'bags': 'bags', 'a read of each window by hand': 'by hand'}
RECORDING_COLUMNS = (
    'p50', 'p99', 'over 2 ms', 'a copy: p50', 'p99', 'over 2 ms', 'late', 'MB',
)  # fmt: skip
WINDOW_ROWS = ('array(uint8,256,256,3)[]', 'jpeg[]', 'video(30)')
VIDEO_ROWS = (
    'opening, and 16 frames',
    '16 frames in a row',
    'one frame',
    '32 frames, sorted',
    '32 frames, unsorted',
)


def datasets(result: Result) -> list[str]:
    tables = result['tables']
    # A reader in raw mode is a candidate of its own, which stands in the column of bags.
    rows = {
        label: [table(tables, title, 'bags, raw' if (label, name) == ('random row, raw', 'bags') else name)
                for name in DATASET_COLUMNS.values()]
        for label, title in DATASET_ROWS.items()
    }  # fmt: skip
    return markdown(DATASET_COLUMNS, {label: cells for label, cells in rows.items() if any(cells)})


def summary(result: Result) -> list[str]:
    lines = datasets(result)
    return [
        *lines[:2],
        *(each for each in lines if each.startswith(tuple(f'| {row} |' for row in SUMMARY_ROWS))),
    ]


def headline(result: Result) -> list[str]:
    row, batch = (
        table(result['tables'], DATASET_ROWS[label], 'bags')
        for label in ('random row', 'random batch of id and text')
    )
    return [
        f'On one core and from the page cache, a random datapoint of 30 KB is read in **{row} µs**,',
        f'and its id and text in a batch in **{batch} µs**: [beside others](#speed).',
    ]


def records(result: Result) -> list[str]:
    rows: dict[str, list[str]] = {}
    for kind in ('plain', 'zstd'):
        for size in ('100 B', '4 KB', '1 MB'):
            titles = [f'fixed text, {size} {kind} {operation}' for operation in RECORD_COLUMNS.values()]
            ratios = [result['tables'].get(title, {}).get('faster_peer') for title in titles]
            rows[size + (', zstd' if kind == 'zstd' else '')] = [
                '' if ratio is None else f'{ratio:.1f}' for ratio in ratios
            ]
    return markdown(RECORD_COLUMNS, rows)


def cold(result: Result) -> list[str]:
    return one_row(result, 'cold 4 KB plain', COLD_COLUMNS)


def loading(result: Result) -> list[str]:
    return one_row(result, 'pictures, decoded and stacked', PICTURE_COLUMNS)


def rows(result: Result) -> list[str]:
    return one_row(result, 'random rows of 4 KB', ROW_COLUMNS)


def remote(result: Result) -> list[str]:
    found = {}
    for position, client in enumerate(('obstore', 's3fs')):
        title = f'1024 random records of 30 KB with {client}, 20 ms a request'
        found[client] = [table(result['tables'], title, names[position]) for names in CLIENT_COLUMNS.values()]
    return markdown(CLIENT_COLUMNS, found)


def epochs(result: Result) -> list[str]:
    return one_row(result, 'epoch of 4000 rows of 4 fields, 20 ms a request', EPOCH_COLUMNS)


def video(result: Result) -> list[str]:
    columns = VIDEO_COLUMNS.values()
    return markdown(
        VIDEO_COLUMNS,
        {title: [table(result['tables'], title, name) for name in columns] for title in VIDEO_ROWS},
    )


def audio(result: Result) -> list[str]:
    tables, columns = result['tables'], AUDIO_COLUMNS.values()
    return markdown(
        AUDIO_COLUMNS, {title: [table(tables, title, name, 'cpu') for name in columns] for title in tables}
    )


def imports(result: Result) -> list[str]:
    tables, ending = result['tables'], ': import of 2,000 datapoints of 30 KB'
    columns = IMPORT_COLUMNS.values()
    sources = [title.removesuffix(ending) for title in tables if title.endswith(ending)]
    return markdown(
        IMPORT_COLUMNS, {each: [table(tables, each + ending, name) for name in columns] for each in sources}
    )


def durability(result: Result) -> list[str]:
    tables, columns = result['tables'], DURABILITY_COLUMNS.values()
    return markdown(
        DURABILITY_COLUMNS,
        {title.removeprefix('write '): [table(tables, title, name) for name in columns] for title in tables},
    )


def links(result: Result) -> list[str]:
    tables, columns = result['tables'], LINK_COLUMNS.values()
    return markdown(LINK_COLUMNS, {
        title + (', ms' if found['unit'] == 'ms' else ''): [table(tables, title, name) for name in columns]
        for title, found in tables.items()
    })  # fmt: skip


def linking(result: Result) -> list[str]:
    rows = {}
    for title, found in result['tables'].items():
        name = next((each for each in LINKING_PEERS if each in found['cells']), '')
        theirs = table(result['tables'], title, name)
        label = title + (', ms' if found['unit'] == 'ms' else '')
        rows[label] = [
            table(result['tables'], title, 'linked'),
            theirs and f'{theirs} ({LINKING_PEERS[name]})',
        ]
    return markdown(LINKING_COLUMNS, rows)


def recording(result: Result) -> list[str]:
    rows = {}
    for title, found in result['tables'].items():
        append, copied = found['cells']['append'], found['cells']['copy']
        shares = [f'{each["over 2 ms"]:.1f}%' for each in (append, copied)]
        rows[title] = [
            *(f'{append[key]:.2f}' for key in ('median', 'p99')), shares[0],
            *(f'{copied[key]:.2f}' for key in ('median', 'p99')), shares[1],
            f'{append["late"]:,}', f'{append["MB"]:,}',
        ]  # fmt: skip
    return markdown(RECORDING_COLUMNS, rows)


def mixtures(result: Result) -> list[str]:
    tables, columns = result['tables'], MIXTURE_COLUMNS.values()
    return markdown(
        MIXTURE_COLUMNS, {title: [table(tables, title, name) for name in columns] for title in tables}
    )


def lerobot(result: Result) -> list[str]:
    tables, columns = result['tables'], LEROBOT_COLUMNS.values()
    return markdown(
        LEROBOT_COLUMNS, {title: [table(tables, title, name) for name in columns] for title in tables}
    )


def windows(result: Result) -> list[str]:
    columns = WINDOW_COLUMNS.values()
    return markdown(WINDOW_COLUMNS, {
        f'`{kind}`': [table(result['tables'], f'64 windows, frames of {kind}', name) for name in columns]
        for kind in WINDOW_ROWS
    })  # fmt: skip


def durations(result: Result) -> list[str]:
    """Returns the time of each call, and the requests and bytes for each record that is remote."""
    rows = {}
    for title, found in result['tables'].items():
        median = found['cells']['bags']['median']
        seconds = found.get('seconds', median)  # A million records: microseconds for each.
        remote = [f'{found[name]:.3g}' if name in found else '' for name in ('requests', 'bytes')]
        rows[title] = [f'{seconds:.2g} s', *remote]
    return markdown(['time', 'requests a record', 'bytes a record'], rows)


def loader_memory(result: Result) -> list[str]:
    """Returns the own memory after the first batches and at most in an epoch, and the shared memory."""
    tables = result['tables']
    columns = [f'{title.split(",")[0].partition(": ")[2]} sources' for title in tables]
    columns = [
        column.replace('1 sources', '1 source') if column == '1 sources' else column for column in columns
    ]
    labels = dict.fromkeys(label for found in tables.values() for label in found['cells'])
    rows = {}
    for label in labels:
        cells = [found['cells'].get(label, {}) for found in tables.values()]
        rows[label] = [_memory_text(cell) for cell in cells]
    return markdown(columns, rows)


def _memory_text(cell: dict[str, Any]) -> str:
    if 'own' not in cell:
        return ''
    shared = f', {cell["shared"]:,.0f} shared' if cell['shared'] >= 1 else ''
    return f'{cell["first"]:,.0f} → {cell["own"]:,.0f}{shared}'


def scale_out(result: Result) -> list[str]:
    """Returns one table, with what was measured and what was computed from it apart."""
    columns = ['measured, one rank', 'simulated, 4,096 ranks']
    rows = {}
    for number, found in enumerate(result['tables'].values()):
        for name, cell in found['cells'].items():
            rows[name] = ['' if position != number else cell['figure'] for position in range(len(columns))]
    return markdown(columns, rows)


def traffic(result: Result) -> list[str]:
    """Returns a table with a row for each count."""
    rows = {
        name: [cell['figure']] for found in result['tables'].values() for name, cell in found['cells'].items()
    }
    return markdown(['read, sent or stored'], rows)


SECTIONS: dict[str, tuple[str, Callable[[Result], list[str]]]] = {
    'headline': ('datasets', headline),
    'summary': ('datasets', summary),
    'datasets': ('datasets', datasets),
    'records': ('records', records),
    'cold': ('cold', cold),
    'loading': ('loading', loading),
    'rows': ('loading', rows),
    'remote': ('remote', remote),
    'epochs': ('remote', epochs),
    'video': ('video', video),
    'audio': ('audio', audio),
    'imports': ('imports', imports),
    'windows': ('windows', windows),
    'durations': ('durations', durations),
    'durability': ('durability', durability),
    'links': ('links', links),
    'linking': ('linking', linking),
    'recording': ('recording', recording),
    'mixtures': ('mixtures', mixtures),
    'lerobot': ('lerobot', lerobot),
    'loader_memory': ('loader_memory', loader_memory),
    'scale_out': ('scale_out', scale_out),
    'traffic': ('traffic', traffic),
}
"""By the name of a section of the documents: the file of results, and what makes its lines."""

CHARTED = {
    'summary': 'µs a datapoint',
    'remote': 'ms a record',
    'imports': 'µs a datapoint',
    'cold': 'cold reads, µs a record',
    'loading': 'images, decoded and stacked, µs an image',
    'epochs': 'an epoch from S3, ms a datapoint',
    'video': 'ms',
    'durability': 'write, µs a datapoint',
    'windows': 'µs a window',
}
"""The sections that also have a chart, with the unit, or with the title where the table has one row."""


def render(text: str, results: Path = RESULTS) -> str:
    """Returns a document with the lines between its markers made from the files of results."""

    def section(found: re.Match[str]) -> str:
        part, make = SECTIONS[found[2]]
        result = json.loads((results / f'{part}.json').read_text(encoding='utf-8'))
        lines = [*make(result), *(['', caption(result)] if found[2] in (part, 'summary') else [])]
        return found[1] + ''.join(f'{line}\n' for line in lines) + found[3]

    return SECTION.sub(section, text)


def charts(results: Path = RESULTS) -> dict[str, str]:
    """Returns the charts by the names of their files."""
    drawn = {}
    for name, title in CHARTED.items():
        part, make = SECTIONS[name]
        result = json.loads((results / f'{part}.json').read_text(encoding='utf-8'))
        head, _, *rows = [
            [cell.strip(' |¹²') for cell in re.split(r'(?<!^)\|(?!$)', each)] for each in make(result)
        ]
        if head[0]:
            panels = [(title, dict(zip(head, rows[0], strict=True)))]
        else:
            panels = [
                (f'{row[0]}, {title}'.replace('`', ''), dict(zip(head[1:], row[1:], strict=True)))
                for row in rows
            ]
        drawn[f'{name}.svg'] = chart(panels)
    return drawn


def caption(result: Result) -> str:
    """Returns how and where a part was measured."""
    return (
        f'`{result["command"]}`, {result["machine"]}, {result["system"].split(", ")[-1]}, {result["date"]}.'
    )


def table(tables: dict[str, Any], title: str, name: str, figure: str = 'median') -> str:
    """Returns the median of a candidate, or its CPU time, with two digits; empty if it was not measured."""
    median = tables.get(title, {}).get('cells', {}).get(name, {}).get(figure)
    if median is None:
        return ''
    return f'{median:,.0f}' if median >= 99.5 else f'{float(f"{median:.2g}"):g}'


def one_row(result: Result, title: str, columns: dict[str, str]) -> list[str]:
    """Returns the table of one comparison, without the candidates that were not measured."""
    cells = {label: table(result['tables'], title, name) for label, name in columns.items()}
    measured = {label: cell for label, cell in cells.items() if cell}
    return [line(measured), line('---' for _ in measured), line(measured.values())]


def markdown(columns: Iterable[str], rows: dict[str, list[str]]) -> list[str]:
    """Returns a table with a label before each row, without columns in which nothing was measured."""
    measured = [position for position, cells in enumerate(zip(*rows.values(), strict=True)) if any(cells)]
    columns = [column for position, column in enumerate(columns) if position in measured]
    rows = {label: [cells[position] for position in measured] for label, cells in rows.items()}
    lines = [line(['', *columns]), line('---' for _ in ['', *columns])]
    return [*lines, *(line([label, *cells]) for label, cells in rows.items())]


def line(cells: Iterable[str]) -> str:
    return ('| ' + ' | '.join(cells) + ' |').replace('|  |', '| |')


def main() -> None:
    """Writes the documents and the charts."""
    CHARTS.mkdir(exist_ok=True)
    for name, text in charts().items():
        (CHARTS / name).write_text(text, encoding='utf-8')
    for path in DOCUMENTS:
        path.write_text(render(path.read_text(encoding='utf-8')), encoding='utf-8')


if __name__ == '__main__':
    main()
