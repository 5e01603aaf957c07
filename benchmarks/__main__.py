"""Runs the benchmarks: `python -m benchmarks [--quick] [--only records cold datasets …]`."""

import argparse
import os

from benchmarks import cold, data, datasets, loading, records, remote, report, scale
from benchmarks.peers import PEERS, present

PARTS = ('records', 'cold', 'datasets', 'loading', 'scale', 'remote')


def main() -> None:
    """Measures, prints, and lists every ratio below its floor."""
    parser = argparse.ArgumentParser(prog='python -m benchmarks', description=__doc__)
    parser.add_argument('--quick', action='store_true', help='fewer cells and turns: about two minutes')
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
    options = parser.parse_args()
    sizes = options.sizes or (['fixed'] if options.quick else ['fixed', 'variable'])

    modules = dict.fromkeys(peer.module for peer in PEERS.values())
    report.environment([module for module in modules if not present(module)], data.directory())
    output = report.Report()
    if 'records' in options.only:
        varies = [size == 'variable' for size in sizes]
        records.main(output, quick=options.quick, sizes=varies, contents=options.content)
    if 'cold' in options.only:
        cold.main(output, quick=options.quick, whole=options.drop == 'system')
    if 'datasets' in options.only:
        datasets.main(output, quick=options.quick)
    if 'loading' in options.only:
        loading.main(output, quick=options.quick)
    if 'scale' in options.only:
        scale.main(output, quick=options.quick)
    if 'remote' in options.only:
        remote.main(output, quick=options.quick)
    output.summary()


if __name__ == '__main__':
    main()
