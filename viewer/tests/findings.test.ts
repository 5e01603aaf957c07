// The page of `bags view --scores`, in Chromium: findings, spans on the time bar, equal photos, marks that become an edit.

import {type ChildProcess, execFileSync} from 'node:child_process';
import {mkdirSync, rmSync} from 'node:fs';

import {type Browser, type BrowserContext, type Page} from 'playwright-core';
import {afterAll, afterEach, beforeAll, beforeEach, expect, test} from 'vitest';

import {RangeServer} from './server';
import {ENVIRONMENT, OUT, PYTHON, openPage, seriousFindings, startBrowser, startView} from './setup';

const SHOTS = `${OUT}screenshots`, DATA = `${OUT}values/checked`, SCORES = `${OUT}values/checked_scores`;

let browser: Browser;
let view: {url: string; process: ChildProcess};
let context: BrowserContext;
let page: Page;
let problems: string[];

beforeAll(async () => {
  mkdirSync(SHOTS, {recursive: true});
  browser = await startBrowser();
  view = await startView(DATA, {}, ['--scores', SCORES]);
});
afterAll(async () => {
  await browser?.close();
  view?.process.kill();
});
beforeEach(async () => {
  ({context, page, problems} = await openPage(browser));
});
afterEach(async () => {
  await context.close();
  expect(problems).toEqual([]);
});

const bags = (...args: string[]) => execFileSync(PYTHON, ['-m', 'bags', ...args], {env: ENVIRONMENT, cwd: OUT}).toString().trim();
const open = (hash: string) => page.goto(`${view.url}#${hash}`);
/** The first and the last second of a span, from where it lies on the time bar. */
const spanOf = (check: string) => page.locator(`.track .span[data-check="${check}"]`).evaluate(span => {
  const bar = span.parentElement!.querySelector('input')!, {left, width} = bar.getBoundingClientRect(), box = span.getBoundingClientRect();
  const time = (x: number) => Number(bar.min) + (x - left - 8) / (width - 16) * (Number(bar.max) - Number(bar.min));
  return [time(box.left + 1), time(box.right + 1)];
});

test('findings are listed, worst first, and lead to their datapoints', async () => {
  await open('view=grid');
  await page.getByRole('link', {name: 'Findings 4'}).click();
  await expect.poll(() => page.locator('.findings tbody tr').evaluateAll(rows => rows.map(row => (row as HTMLElement).dataset.check)))
    .toEqual(['equal_records', 'frozen_seconds', 'gap_seconds', 'similar_images']);
  for (const colorScheme of ['light', 'dark'] as const) {
    await page.emulateMedia({colorScheme});
    expect(await seriousFindings(page)).toEqual([]);
    await page.screenshot({path: `${SHOTS}/findings-${colorScheme}.png`});
  }
  const row = page.locator('tr[data-check="gap_seconds"]');
  await row.getByRole('link', {name: 'Show in the grid'}).click();
  await expect.poll(() => page.locator('.card').evaluateAll(cards => cards.map(card => Number((card as HTMLElement).dataset.index)))).toEqual([6]);
  await page.locator('.card[data-index="6"] .cell', {hasText: 'state.gap_seconds'}).waitFor();
  await page.goBack();
  await page.locator('tr[data-check="frozen_seconds"]').getByRole('link', {name: '3', exact: true}).click();
  await expect.poll(() => page.url()).toContain('#view=datapoint&at=3&t=1.500');
});

test('frozen frames and a gap are drawn on the time bar', async () => {
  await open('view=datapoint&at=3');
  await page.locator('.found', {hasText: 'frozen_seconds'}).waitFor();
  await expect.poll(async () => (await spanOf('frozen_seconds')).map(time => Math.abs(time - (time < 2.5 ? 1.5 : 3.47)) < 0.05)).toEqual([true, true]);
  expect(await page.locator('.panel[data-field$=".span"], .panel[data-field="front.frozen_seconds"]').count()).toBe(0);
  await page.getByRole('button', {name: '1.50–3.47 s'}).click();
  await expect.poll(() => page.locator('video').evaluate((video: HTMLVideoElement) => video.currentTime.toFixed(1))).toBe('1.5');
  expect(await seriousFindings(page)).toEqual([]);
  await page.screenshot({path: `${SHOTS}/frozen.png`});
  await page.keyboard.press(']');
  await expect.poll(() => page.url()).toContain('at=4');
  await expect.poll(() => page.locator('.found, .track .span').count()).toBe(0);
  await open('view=datapoint&at=6');
  await expect.poll(async () => (await spanOf('gap_seconds')).map(time => time.toFixed(1))).toEqual(['2.6', '4.2']);
});

test('an equal and a similar photo are shown beside the other one', async () => {
  for (const [index, other, check] of [[7, 2, 'equal_records'], [8, 4, 'similar_images']] as const) {
    await open(`view=datapoint&at=${index}`);
    const found = page.locator('.found li', {hasText: check});
    await found.getByRole('link', {name: `beside ${other}`}).click();
    await expect.poll(() => page.locator('.panel[data-field="photo"]').evaluateAll(panels => panels.map(panel => Number((panel as HTMLElement).dataset.index)))).toEqual([index, other]);
    await page.screenshot({path: `${SHOTS}/${check}.png`});
  }
});

test('marks become an edit that leaves them out', async () => {
  await open('view=findings');
  for (const check of ['frozen_seconds', 'equal_records']) await page.locator(`tr[data-check="${check}"]`).getByRole('button', {name: 'Mark 1'}).click();
  await page.getByText('★ 2 ↓').waitFor();
  await page.getByText('Share', {exact: true}).click();
  await page.getByRole('button', {name: 'Copy edit'}).click();
  await page.getByRole('status').getByText('Edit copied').waitFor();
  await page.screenshot({path: `${SHOTS}/edit.png`});
  const edit = await page.evaluate(() => navigator.clipboard.readText());
  expect(edit).toBe(`bags edit ${DATA} clean --drop 3,7`);
  rmSync(`${OUT}clean`, {recursive: true, force: true});
  bags(...edit.split(' ').slice(1));
  expect(JSON.parse(bags('info', 'clean', '--json')).datapoints).toBe(8);
});

test('an exported page shows the findings, and nothing of a phone runs off', async () => {
  rmSync(`${OUT}site`, {recursive: true, force: true});
  bags('view', DATA, '--scores', SCORES, '--export', 'site', '--with-data');
  const server = await RangeServer.start({site: `${OUT}site`});
  try {
    await page.setViewportSize({width: 390, height: 844});
    for (const [name, hash] of [['list', 'view=findings'], ['datapoint', 'view=datapoint&at=3']]) {
      await page.goto(`${server.url}/site/#${hash}`);
      await page.locator('.findings tbody tr, .found li').first().waitFor();
      expect(await page.evaluate(() => document.documentElement.scrollWidth)).toBeLessThanOrEqual(390);
      expect(await seriousFindings(page)).toEqual([]);
      await page.screenshot({path: `${SHOTS}/findings-phone-${name}.png`});
    }
    expect(server.asked.filter(({path}) => path.endsWith('metadata.json')).length).toBeGreaterThan(0);
  } finally {
    server.stop();
  }
});
