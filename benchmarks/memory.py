"""Memory, descriptors and maps of an open dataset; `python -m benchmarks.memory PEER PATH` measures one."""

import json
import os
import subprocess
import sys
from pathlib import Path

from benchmarks import data
from benchmarks.peers import PEERS, VARIANTS
from benchmarks.report import Report

ROWS = 2000


def main(name: str, path: str) -> None:
    """Prints, as JSON, what opening a dataset and reading random rows from it adds to this process."""
    peer = (PEERS | VARIANTS)[name]
    __import__(peer.module)
    before = status()
    reader = peer.open(Path(path))
    opened = status()
    for index in data.order(ROWS, 20_000).tolist():
        reader.row(index)
    read = status()
    print(
        json.dumps(
            [[after - base for after, base in zip(state, before, strict=True)] for state in (opened, read)]
        )
    )


def status() -> tuple[float, float, int, int]:
    """Returns this process's own memory and that of mapped files in MB, its descriptors, and its maps."""
    lines = Path('/proc/self/status').read_text().splitlines()
    kilobytes = {
        name: int(value.split()[0])
        for name, _, value in (line.partition(':') for line in lines)
        if name.startswith('Rss')
    }
    own = kilobytes['RssAnon'] + kilobytes['RssShmem']
    maps = Path('/proc/self/maps').read_text().count('\n')
    return own / 1024, kilobytes['RssFile'] / 1024, len(os.listdir('/proc/self/fd')), maps


def memory(output: Report, title: str, paths: dict[str, Path]) -> None:
    """Measures each dataset in a process of its own, and prints the results."""
    title = f'memory, {title}: after open, and after {ROWS:,} random rows'
    print(f'\n{title:<44}{"own MB":>14}{"mapped MB":>14}{"descriptors":>14}{"maps":>14}')
    collected: dict[str, dict[str, object]] = {}
    output.tables[title] = {'unit': 'own MB, mapped MB, descriptors, maps', 'cells': collected}
    for name, path in paths.items():
        command = [sys.executable, '-m', 'benchmarks.memory', name, str(path)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=True)
        except (OSError, subprocess.CalledProcessError) as error:
            reason = (getattr(error, 'stderr', None) or str(error)).strip().splitlines()[-1]
            print(f'  {name:<42}failed: {reason[:60]}')
            collected[name] = {'error': reason[:200]}
            continue
        opened, read = json.loads(done.stdout.splitlines()[-1])
        collected[name] = {
            'opened': [round(value, 1) for value in opened],
            'read': [round(value, 1) for value in read],
        }
        cells = [
            f'{before:.{digits}f} {after:.{digits}f}'
            for before, after, digits in zip(opened, read, (1, 0, 0, 0), strict=True)
        ]
        print(f'  {name:<42}' + ''.join(f'{cell:>14}' for cell in cells))


if __name__ == '__main__':
    main(*sys.argv[1:])
