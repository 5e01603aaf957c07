// Comparing datapoints and taking them away, in Chromium: two side by side, links, Python, downloads, notes.

import {execFileSync} from 'node:child_process';
import {createHash} from 'node:crypto';
import {mkdirSync, readFileSync} from 'node:fs';

import {type Browser, type BrowserContext, type Page} from 'playwright-core';
import {afterAll, afterEach, beforeAll, beforeEach, expect, test} from 'vitest';

import type {RangeServer} from './server';
import {ENVIRONMENT, OUT, PYTHON, openPage, seriousFindings, serveValues, startBrowser, startView} from './setup';

const SHOTS = `${OUT}screenshots`;

let browser: Browser;
let server: RangeServer;
let context: BrowserContext;
let page: Page;
let problems: string[];

beforeAll(async () => {
  mkdirSync(SHOTS, {recursive: true});
  browser = await startBrowser();
  server = await serveValues();
});
afterAll(async () => {
  await browser?.close();
  server?.stop();
});
beforeEach(async () => {
  ({context, page, problems} = await openPage(browser));
});
afterEach(async () => {
  await context.close();
  expect(problems).toEqual([]);
});

const open = (dataset: string, hash = '') => page.goto(`${server.url}/viewer/?data=../data/${dataset}${hash ? `#${hash}` : ''}`);
const clipboard = () => page.evaluate(() => navigator.clipboard.readText());
const share = async (button: string) => {
  if (!await page.getByRole('button', {name: button}).isVisible()) await page.getByText('Share', {exact: true}).click();
  await page.getByRole('button', {name: button}).click();
};
/** Runs a program while the server answers. */
const python = (code: string, folder: string) => execFileSync(PYTHON, ['-c', code.replaceAll(`${server.url}/data`, `${OUT}${folder}`)], {env: ENVIRONMENT}).toString().trim();

test('two datapoints side by side have one cursor', async () => {
  await open('media', 'view=datapoint&at=1&t=1.000');
  await page.getByLabel('Compare with datapoint').fill('2');
  await page.keyboard.press('Enter');
  await expect.poll(() => page.locator('.panel[data-field="video"] video').count()).toBe(2);
  const sides = page.locator('.panel[data-field="video"]');
  const [left, right] = await sides.evaluateAll(panels => panels.map(panel => panel.getBoundingClientRect().toJSON() as DOMRect));
  expect(left.top).toBe(right.top);
  expect(left.right).toBeLessThanOrEqual(right.left);
  const times = () => page.locator('.panel[data-field="video"] video').evaluateAll(videos => videos.map(video => (video as HTMLVideoElement).currentTime.toFixed(1)));
  await expect.poll(times).toEqual(['1.0', '1.0']);
  await page.locator('input[aria-label="Time"]').evaluate((input: HTMLInputElement) => {
    input.value = '4';
    input.dispatchEvent(new Event('input', {bubbles: true}));
  });
  await expect.poll(times).toEqual(['4.0', '4.0']);
  await page.screenshot({path: `${SHOTS}/compare.png`});
  await page.reload();
  await expect.poll(() => page.locator('.panel[data-field="video"] video').count()).toBe(2);
  await page.keyboard.press(']');
  await expect.poll(() => page.url()).toContain('at=2&with=2');
  await page.getByLabel('End the comparison').click();
  await expect.poll(() => page.locator('.panel[data-field="video"]').count()).toBe(1);
});

test('two marks are compared; nothing runs off a phone, and axe finds nothing serious', async () => {
  await open('episode');
  await page.locator('.card .mark').nth(0).click();
  await page.locator('.card .mark').nth(1).click();
  await page.getByRole('link', {name: 'Compare', exact: true}).click();
  await expect.poll(() => page.locator('.panel[data-field="state"]').count()).toBe(2);
  for (const [size, width, height] of [['desk', 1440, 900], ['phone', 390, 844]] as const) {
    for (const colorScheme of ['light', 'dark'] as const) {
      await page.setViewportSize({width, height});
      await page.emulateMedia({colorScheme});
      await page.reload();
      await expect.poll(() => page.locator('.panel[data-field="state"] .u-over').count()).toBe(2);
      await page.waitForTimeout(600);
      await page.screenshot({path: `${SHOTS}/compare-${size}-${colorScheme}.png`});
      expect(await page.evaluate(() => document.documentElement.scrollWidth)).toBeLessThanOrEqual(width);
      expect(await seriousFindings(page)).toEqual([]);
    }
  }
}, 180_000);

test('the link and the Python of a view are copied, and the Python runs', async () => {
  await open('conditions', 'filter=score+is+not+none&sort=-caption&fields=id&fields=caption');
  await page.getByText(', 4 pass').waitFor();
  const shown = await page.locator('.card').evaluateAll(cards => cards.map(card => Number((card as HTMLElement).dataset.index)));
  await share('Copy link');
  expect(await clipboard()).toBe(page.url());
  await page.getByRole('status').getByText('Link copied').waitFor();
  await share('Copy Python');
  await page.screenshot({path: `${SHOTS}/share.png`});
  const code = await clipboard();
  expect(code).toContain('dataset.filter("score is not none")');
  const programs = [`${code}\nprint([row['id'] for row in view], list(view.spec))`];
  const orders: [string, number[]][] = [['score', [3, 0, 4, 2, 1]], ['-score', [2, 4, 0, 3, 1]], ['words', [1, 2, 4, 0, 3]], ['-words', [0, 3, 4, 1, 2]]];
  for (const [sort, order] of orders) {
    await open('conditions', `sort=${sort}&fields=id`);
    await page.reload();
    await expect.poll(() => page.locator('.card').evaluateAll(cards => cards.map(card => Number((card as HTMLElement).dataset.index)))).toEqual(order);
    await share('Copy Python');
    programs.push(`${await clipboard()}\nprint([row['id'] for row in view])`);
  }
  await open('conditions', 'view=datapoint&at=2&with=3&panels=caption');
  await page.reload();
  await page.locator('.panel').nth(1).waitFor();
  await share('Copy Python');
  programs.push(`${await clipboard()}\nprint(list(datapoint), other['caption'])`);
  expect(python(programs.join('\n'), 'values').split('\n')).toEqual([
    `[${shown.join(', ')}] ['id', 'caption']`, ...orders.map(([, order]) => `[${order.join(', ')}]`), '[\'caption\'] RED owl "quoted"']);
}, 180_000);

test('the Python opens the path that bags view was given, and an address', async () => {
  const {url, process} = await startView(`${OUT}values/untimed`);
  try {
    await page.goto(`${url}#filter=dog`);
    await page.getByText(', 30 pass').waitFor();
    await share('Copy Python');
    const code = await clipboard();
    expect(code).toContain(`bags.open("${OUT}values/untimed")`);
    const remote = code.replace(`${OUT}values/untimed`, `${new URL(url).origin}/data/untimed`);
    expect(python(`${code}\nprint(len(view))\n${remote}\nprint(len(view))`, '').split('\n')).toEqual(['30', '30']);
  } finally {
    process.kill();
  }
});

test('marks have notes, and are saved with the values shown', async () => {
  await open('untimed');
  await page.locator('.card[data-index="3"] .mark').click();
  await page.locator('.card[data-index="3"] a').click();
  await page.getByLabel('Note').fill('too dark');
  await page.getByLabel('All datapoints').click();
  await page.locator('.card[data-index="3"]').getByText('too dark').waitFor();
  await page.locator('.card[data-index="5"] .mark').click();
  await page.reload();
  await page.locator('.card[data-index="3"]').getByText('too dark').waitFor();
  await page.screenshot({path: `${SHOTS}/notes.png`});
  const download = page.waitForEvent('download');
  await page.getByText('★ 2 ↓').click();
  const saved = await (await download).path();
  const fields = (index: number) => ({caption: `photo ${index}`, label: 1, id: index});
  expect(readFileSync(saved, 'utf8').trim().split('\n').map(line => JSON.parse(line))).toEqual([
    {index: 3, note: 'too dark', fields: fields(3)}, {index: 5, fields: fields(5)}]);
  await share('Copy Python');
  expect(python(`${await clipboard()}\nprint([row['id'] for row in marked])`, 'values')).toBe('[3, 5]');
  page.once('dialog', dialog => void dialog.accept());
  await page.getByLabel('Remove all marks').click();
  await expect.poll(() => page.locator('.card.marked').count()).toBe(0);
});

test('what passes the filter is saved, and a record as it is stored', async () => {
  await open('conditions', 'filter=id+%3E+2&fields=id&fields=big&fields=words&fields=photo');
  await page.getByText(', 2 pass').waitFor();
  const download = page.waitForEvent('download');
  await share('Download 2');
  expect(readFileSync(await (await download).path(), 'utf8')).toBe(
    '{"index":3,"fields":{"id":3,"big":9007199254740992,"words":["a b","Cat"]}}\n{"index":4,"fields":{"id":4,"big":1,"words":["not"]}}\n');
  await open('untimed', 'view=datapoint&at=4');
  await page.reload();
  const record = page.waitForEvent('download');
  await page.getByLabel('Save photo').click();
  expect((await record).suggestedFilename()).toBe('photo-4.png');
  const digest = createHash('sha256').update(readFileSync(await (await record).path())).digest('hex');
  expect(python(`import bags, hashlib\nprint(hashlib.sha256(bags.open('${server.url}/data/untimed').records('photo')[4]).hexdigest())`, 'values')).toBe(digest);
});
