// What the tests share: the datasets, which the Python library writes, the browser and servers.

import {type ChildProcess, execFileSync, spawn} from 'node:child_process';
import {existsSync, readFileSync} from 'node:fs';
import {fileURLToPath} from 'node:url';

import {type Browser, type BrowserContext, chromium, type Page} from 'playwright-core';

import {RangeServer} from './server';

export const ROOT = fileURLToPath(new URL('../../', import.meta.url));
export const OUT = fileURLToPath(new URL('out/', import.meta.url));

const LOCAL = `${ROOT}.venv/bin/python`;
export const CHROMIUM = process.env.CHROMIUM ?? '/usr/bin/chromium';
export const PYTHON = process.env.PYTHON ?? (existsSync(LOCAL) ? LOCAL : 'python3');
export const ENVIRONMENT = {...process.env, PYTHONPATH: ROOT, PYTHONUNBUFFERED: '1'};

export const startBrowser = (): Promise<Browser> => chromium.launch({
  executablePath: CHROMIUM, args: ['--no-sandbox', '--autoplay-policy=no-user-gesture-required'],
});

/** Serves the page and the datasets of `make_datasets.py`. */
export const serveValues = (): Promise<RangeServer> => RangeServer.start({viewer: `${ROOT}bags/viewer/static`, data: `${OUT}values`});

const AXE = readFileSync(`${ROOT}viewer/node_modules/axe-core/axe.min.js`, 'utf8');

/** A page with a clipboard, and the errors of its scripts. */
export async function openPage(browser: Browser): Promise<{context: BrowserContext; page: Page; problems: string[]}> {
  const context = await browser.newContext({viewport: {width: 1440, height: 900}, colorScheme: 'light', bypassCSP: true, permissions: ['clipboard-read', 'clipboard-write']});
  const page = await context.newPage(), problems: string[] = [];
  page.on('pageerror', error => problems.push(error.message));
  return {context, page, problems};
}

/** What axe finds in a page that is serious or critical: the rule and its first element. */
export async function seriousFindings(page: Page): Promise<string[]> {
  if (await page.evaluate(() => !('axe' in window))) await page.evaluate(AXE);
  return page.evaluate(async () => (await (window as any).axe.run({resultTypes: ['violations']})).violations
    .filter(({impact}: {impact: string}) => ['serious', 'critical'].includes(impact))
    .map(({id, nodes}: {id: string; nodes: {html: string}[]}) => `${id}: ${nodes[0].html.slice(0, 200)}`));
}

/** Starts `bags view` of a dataset; returns the address of its page. */
export async function startView(path: string, environment = {}, options: string[] = []): Promise<{url: string; process: ChildProcess}> {
  const process = spawn(PYTHON, ['-m', 'bags', 'view', path, '--no-browser', ...options], {env: {...ENVIRONMENT, ...environment}, stdio: 'pipe'});
  const url = await new Promise<string>((resolve, reject) => {
    let text = '';
    process.stdout.on('data', data => {
      text += data;
      const match = /http:\S+/.exec(text);
      if (match) resolve(match[0]);
    });
    process.on('exit', () => reject(new Error('bags view ended')));
  });
  return {url, process};
}

export default function setup(): void {
  execFileSync(PYTHON, [`${ROOT}viewer/tests/make_datasets.py`, `${OUT}values`], {stdio: 'inherit', env: ENVIRONMENT});
}
