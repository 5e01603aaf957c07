// Writes the datasets of the tests with the Python library.

import {execFileSync} from 'node:child_process';
import {existsSync} from 'node:fs';
import {fileURLToPath} from 'node:url';

export const ROOT = fileURLToPath(new URL('../../', import.meta.url));
export const OUT = fileURLToPath(new URL('out/', import.meta.url));

export function python(...args: string[]): void {
  const local = `${ROOT}.venv/bin/python`;
  const found = process.env.PYTHON ?? (existsSync(local) ? local : 'python3');
  execFileSync(found, args, {stdio: 'inherit', env: {...process.env, PYTHONPATH: ROOT}});
}

export default function setup(): void {
  python(`${ROOT}viewer/tests/make_datasets.py`, `${OUT}values`);
}
