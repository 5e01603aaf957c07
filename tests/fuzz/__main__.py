"""Coverage-guided fuzzing of the parsers with atheris: `make fuzz ARGS='--executions 100000 refs'`.

Each target runs in a process of its own, which libFuzzer ends. Inputs that raise another error than those
documented are printed, and stay in `out/fuzz/NAME`.
"""

import argparse
import os
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

OUT = Path('out/fuzz')
LIMITS = ['-max_len=4096', '-timeout=20', '-rss_limit_mb=2048', '-print_final_stats=1']


def fuzz(name, executions):
    """Runs libFuzzer on one target, in this process."""
    import atheris

    with atheris.instrument_imports(include=['bags']):
        from tests.fuzz.targets import TARGETS, run
    folder = OUT / name
    (folder / 'corpus').mkdir(parents=True, exist_ok=True)
    for number, example in enumerate(TARGETS[name][2]):
        (folder / 'corpus' / f'example-{number}').write_bytes(example)
    options = [f'-runs={executions}', f'-artifact_prefix={folder}/', *LIMITS]
    atheris.Setup([sys.argv[0], *options, str(folder / 'corpus')], lambda data: run(name, data))
    atheris.Fuzz()


def campaign(names, executions, processes):
    """Fuzzes targets in processes; prints a line for each, and returns whether none found a defect."""
    share = max(1, executions // len(names))

    def one(name):
        begun = time.monotonic()
        command = [sys.executable, '-m', 'tests.fuzz', '--target', name, '--executions', str(share)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ)
        count = re.search(r'number_of_executed_units: (\d+)', done.stderr)
        covered = re.findall(r'cov: (\d+)', done.stderr)
        said = f'{int(count[1]) if count else 0:>12,} executions, {covered[-1] if covered else 0:>5} edges'
        seconds = time.monotonic() - begun
        print(f'{name:12} {said}, {seconds:6.0f} s{", FAILED" * bool(done.returncode)}', flush=True)
        if done.returncode:
            print(done.stderr[-3000:], flush=True)
        return int(count[1]) if count else 0, done.returncode

    with ThreadPoolExecutor(processes) as pool:
        results = list(pool.map(one, names))
    failed = sum(bool(code) for _, code in results)
    print(f'{sum(count for count, _ in results):,} executions of {len(names)} targets, {failed} failed')
    return not failed


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('names', nargs='*', help='targets; all unless given')
    parser.add_argument('--executions', type=int, default=10_000_000, help='of all targets together')
    parser.add_argument('--processes', type=int, default=os.cpu_count())
    parser.add_argument('--target', help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.target:
        fuzz(asked.target, asked.executions)
        return
    from tests.fuzz.targets import TARGETS

    sys.exit(not campaign(asked.names or list(TARGETS), asked.executions, asked.processes))


if __name__ == '__main__':
    main()
