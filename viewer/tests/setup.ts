// Writes the datasets of the tests with the Python library.

import {execFileSync} from 'node:child_process';
import {existsSync} from 'node:fs';
import {fileURLToPath} from 'node:url';

export const ROOT = fileURLToPath(new URL('../../', import.meta.url));
export const OUT = fileURLToPath(new URL('out/', import.meta.url));

const LOCAL = `${ROOT}.venv/bin/python`;
export const PYTHON = process.env.PYTHON ?? (existsSync(LOCAL) ? LOCAL : 'python3');
export const ENVIRONMENT = {...process.env, PYTHONPATH: ROOT, PYTHONUNBUFFERED: '1'};

export default function setup(): void {
  execFileSync(PYTHON, [`${ROOT}viewer/tests/make_datasets.py`, `${OUT}values`], {stdio: 'inherit', env: ENVIRONMENT});
}
