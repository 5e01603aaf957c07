"""Runs the benchmarks: `python -m benchmarks [--quick] [--only records cold datasets …]`."""

import argparse
import os
import shlex
import sys
from pathlib import Path

from benchmarks import cold, data, datasets, loading, records, remote, report, scale
from benchmarks.peers import PEERS, is_installed

PARTS = (
    'records', 'cold', 'datasets', 'loading', 'windows', 'planning', 'scale', 'remote', 'video', 'audio',
    'imports', 'durability', 'links', 'linking', 'recording', 'mixtures', 'durations', 'loader_memory',
    'scale_out', 'traffic', 'tokens',
)  # fmt: skip


def main() -> None:
    """Measures and prints, saves the results of each part, and lists every ratio below its floor."""
    parser = argparse.ArgumentParser(prog='python -m benchmarks', description=__doc__)
    parser.add_argument('--quick', action='store_true', help='fewer cells and rounds: about two minutes')
    parser.add_argument('--only', nargs='+', choices=PARTS, default=PARTS, help='parts to run')
    parser.add_argument('--sizes', nargs='+', choices=('fixed', 'variable'), help='record sizes')
    parser.add_argument(
        '--content', nargs='+', choices=('text', 'random'), default=['text'], help='record content'
    )
    parser.add_argument(
        '--drop',
        choices=('system', 'file'),
        default='system' if os.access('/proc/sys/vm/drop_caches', os.W_OK) else 'file',
        help='what is dropped for cold reads: the page cache, which needs root, or pages of the file',
    )
    parser.add_argument(
        '--results', type=Path, default=report.RESULTS, help='where results are saved, one JSON file a part'
    )
    options = parser.parse_args()
    sizes = options.sizes or (['fixed'] if options.quick else ['fixed', 'variable'])

    modules = dict.fromkeys(peer.module for peer in PEERS.values())
    report.environment([module for module in modules if not is_installed(module)], data.directory())
    output = report.Report(shlex.join(['python', '-m', 'benchmarks', *sys.argv[1:]]))
    for part in PARTS:
        if part not in options.only:
            continue
        if part == 'records':
            varies = [size == 'variable' for size in sizes]
            records.main(output, quick=options.quick, sizes=varies, contents=options.content)
        elif part == 'cold':
            cold.main(output, quick=options.quick, whole=options.drop == 'system')
        elif part == 'video':
            from benchmarks import video  # Imports PyAV.

            video.main(output, quick=options.quick)
        elif part == 'audio':
            from benchmarks import audio  # Imports PyAV.

            audio.main(output, quick=options.quick)
        elif part == 'imports':
            from benchmarks import imports  # Uses Pillow.

            imports.main(output, quick=options.quick)
        elif part == 'windows':
            from benchmarks import windows  # Writes videos with PyAV.

            windows.main(output, quick=options.quick)
        elif part == 'planning':
            from benchmarks import planning  # Imports bags, which is not needed for the peers.

            planning.main(output, quick=options.quick)
        elif part == 'tokens':
            from benchmarks import tokens  # Imports bags.

            tokens.main(output, quick=options.quick)
        elif part == 'durability':
            from benchmarks import durability  # Imports bags.

            durability.main(output, quick=options.quick)
        elif part == 'links':
            from benchmarks import links  # Imports bags and Pillow.

            links.main(output, quick=options.quick)
        elif part == 'mixtures':
            from benchmarks import mixtures  # Imports bags and Pillow.

            mixtures.main(output, quick=options.quick)
        elif part == 'linking':
            from benchmarks import linking  # Imports bags and Pillow.

            linking.main(output, quick=options.quick)
        elif part == 'durations':
            from benchmarks import durations  # Imports bags.

            durations.main(output, quick=options.quick)
        elif part == 'loader_memory':
            from benchmarks import loader_memory  # Needs no peer.

            loader_memory.main(output, quick=options.quick)
        elif part == 'scale_out':
            from benchmarks import scale_out  # Imports bags.

            scale_out.main(output, quick=options.quick)
        elif part == 'traffic':
            from benchmarks import traffic  # Imports bags and PyAV.

            traffic.main(output, quick=options.quick)
        elif part == 'recording':
            from benchmarks import recording  # Needs no peer.

            recording.main(output, quick=options.quick)
        else:
            module = {'datasets': datasets, 'loading': loading, 'scale': scale, 'remote': remote}[part]
            module.main(output, quick=options.quick)
        output.save(part, options.results)
    output.summary()


if __name__ == '__main__':
    main()
