// Finding datapoints in Chromium: the filter and its completion, the order, values and histograms.

import {mkdirSync} from 'node:fs';

import {type Browser, type Page} from 'playwright-core';
import {afterAll, afterEach, beforeAll, beforeEach, expect, test} from 'vitest';

import type {RangeServer} from './server';
import {OUT, serveValues, startBrowser} from './setup';

const SHOTS = `${OUT}screenshots`;

let browser: Browser;
let server: RangeServer;
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
  page = await browser.newPage({viewport: {width: 1280, height: 800}, colorScheme: 'light'});
  problems = [];
  page.on('pageerror', error => problems.push(error.message));
});
afterEach(async () => {
  await page.close();
  expect(problems).toEqual([]);
});

const open = (dataset: string, hash = '') => page.goto(`${server.url}/viewer/?data=../data/${dataset}${hash ? `#${hash}` : ''}`);
const filter = async (text: string) => {
  await page.getByLabel('Filter').fill(text);
  await page.keyboard.press('Escape');
  await page.keyboard.press('Enter');
};
const indices = () => page.locator('.card').evaluateAll(cards => cards
  .map(card => [(card as HTMLElement).getBoundingClientRect(), Number((card as HTMLElement).dataset.index)] as const)
  .sort(([a], [b]) => a.top - b.top || a.left - b.left).map(([, index]) => index));
const row = (field: string) => page.locator('.facts > table > tbody > tr').filter({has: page.locator(`th:text-is("${field}")`)});
const options = () => page.locator('#completions').getByRole('option').allTextContents();

test('words search, and conditions filter', async () => {
  await open('untimed');
  expect(await page.getByLabel('Filter').getAttribute('placeholder')).toBe('Search, or as label == cat and id > 5');
  await filter('dog');
  await page.getByText(', 30 pass').waitFor();
  expect((await indices()).slice(0, 3)).toEqual([1, 3, 5]);
  await filter('"photo 7" or id in (3, 4) and label == cat');
  await page.getByText(', 2 pass').waitFor();
  expect(await indices()).toEqual([4, 7]);
  await filter('len(keywords) > 2 or label is none');
  await page.getByText('No datapoint passes the filter.').waitFor();
});

test('the message of an error is under the bar, and no datapoints are shown', async () => {
  await open('untimed');
  await page.locator('.card').first().waitFor();
  for (const [text, message] of [['lenght > 3', 'no field \'lenght\'; the fields are id'], ['label == bird', 'label is int(1): expected a number or one of cat, dog, got bird'], ['id >', 'expected a value, not the end']]) {
    await filter(text);
    await page.getByRole('alert').getByText(message).waitFor();
    expect(await page.locator('.card').count()).toBe(0);
    await page.getByText('No datapoints are shown, as the filter was not applied.').waitFor();
    const bar = (await page.locator('.bar').boundingBox())!, alert = (await page.getByRole('alert').boundingBox())!;
    expect(alert.y).toBeGreaterThanOrEqual(bar.y + bar.height - 1);
  }
  await page.screenshot({path: `${SHOTS}/filter-error.png`});
  await filter('');
  await page.locator('.card').first().waitFor();
});

test('names of fields, signs and values are completed', async () => {
  await open('untimed');
  await page.locator('.card').first().waitFor();
  const input = page.getByLabel('Filter');
  await input.click();
  await expect.poll(options).toContain('caption');
  await page.keyboard.type('la');
  await expect.poll(options).toEqual(['label']);
  await page.keyboard.press('ArrowDown');
  await page.keyboard.press('Enter');
  expect(await input.inputValue()).toBe('label ');
  await expect.poll(options).toContain('!=');
  await page.keyboard.type('== d');
  await expect.poll(options).toEqual(['dog']);
  await page.screenshot({path: `${SHOTS}/completion.png`});
  await page.locator('#completions').getByRole('option').first().click();
  expect(await input.inputValue()).toBe('label == dog ');
  await page.keyboard.type('and caption == "photo 31');
  await expect.poll(options).toEqual(['"photo 31"']);
  await page.keyboard.press('ArrowDown');
  await page.keyboard.press('Tab');
  expect(await input.inputValue()).toBe('label == dog and caption == "photo 31" ');
  await page.keyboard.press('Enter');
  await page.getByText(', 1 pass').waitFor();
  expect(await indices()).toEqual([31]);
});

test('a field orders the grid, from the smallest or the largest', async () => {
  await open('untimed', 'filter=id+%3C+20');
  await page.getByText(', 20 pass').waitFor();
  await page.getByLabel('Order by').selectOption('label');
  await expect.poll(async () => (await indices()).slice(0, 4)).toEqual([0, 2, 4, 6]);
  await page.getByLabel('From the largest').click();
  await expect.poll(async () => (await indices()).slice(0, 4)).toEqual([1, 3, 5, 7]);
  await page.locator('.card[data-index="3"] a').click();
  await page.keyboard.press(']');
  await page.getByRole('heading', {name: '5', exact: true}).waitFor();
  await page.keyboard.press('Escape');
  await page.reload();
  expect(page.url()).toContain('sort=-label');
  await page.locator('.card[data-index="19"]').waitFor();
  await open('conditions', 'sort=score&fields=score');
  await page.reload();
  await expect.poll(indices).toEqual([3, 0, 4, 2, 1]);
  await page.getByLabel('Order by').selectOption('words');
  await expect.poll(indices).toEqual([1, 2, 4, 0, 3]);
  await open('conditions', 'sort=nothing');
  await page.reload();
  await page.getByRole('alert').getByText("no field 'nothing' to order by").waitFor();
});

test('values of a field are counted, and a click filters', async () => {
  await open('untimed', 'view=fields');
  await row('label').getByText('Values').click();
  await expect.poll(() => row('label').locator('.counts tr').allTextContents()).toEqual(['cat30', 'dog30']);
  await page.screenshot({path: `${SHOTS}/values.png`});
  await row('label').getByRole('button', {name: 'dog', exact: true}).click();
  await page.getByText(', 30 pass').waitFor();
  expect(await page.getByLabel('Filter').inputValue()).toBe('label == dog');
  await open('conditions', 'view=fields');
  await page.reload();
  await row('note').getByText('Values').click();
  await expect.poll(() => row('note').locator('.counts tr').count()).toBe(5);
  await row('note').getByRole('button', {name: 'None', exact: true}).click();
  await page.getByText(', 1 pass').waitFor();
  expect(await page.getByLabel('Filter').inputValue()).toBe('note is none');
});

test('a click on a bar of a histogram filters', async () => {
  await open('untimed', 'view=fields');
  const bars = (field: string) => row(field).getByRole('group').getByRole('button');
  await expect.poll(() => bars('id').count()).toBe(24);
  const last = await bars('id').last().getAttribute('aria-label');
  expect(last).toContain('… 59: 3');
  await bars('id').last().click();
  await page.getByText(', 3 pass').waitFor();
  expect(await page.getByLabel('Filter').inputValue()).toBe('56.5417 <= id <= 59');
  await page.goBack();
  await bars('keywords').first().click();
  await page.getByText(', 60 pass').waitFor();
  expect(await page.getByLabel('Filter').inputValue()).toBe('len(keywords) == 2');
  await page.goBack();
  await row('photo').getByText(/^\d+ B/).waitFor();
  await bars('photo').last().click();
  expect(await page.getByLabel('Filter').inputValue()).toMatch(/size\(photo\) (<=|==) \d+$/);
  await page.getByText(/, [1-9]\d* pass/).waitFor();
});

test('durations, and statistics of each joint', async () => {
  await open('episode', 'view=fields');
  await row('state').getByText('14 elements').waitFor();
  const joints = row('state').locator('.joints tbody tr');
  expect(await joints.count()).toBe(14);
  expect(await joints.nth(1).locator('td').first().textContent()).toBe('-1');
  await row('state').getByLabel('Histogram of state, seconds').waitFor();
  await row('state').getByText(/^3 s/).waitFor();
  await row('top_camera').getByText(/^[\d.]+ s /).waitFor();
  expect(await row('top_camera').locator('.joints tbody th').allTextContents()).toEqual(['red', 'green', 'blue']);
  await page.screenshot({path: `${SHOTS}/joints.png`, fullPage: true});
  for (const field of ['top_camera', 'state']) {
    await row(field).getByLabel(`Histogram of ${field}, seconds`).getByRole('button').first().click();
    await page.getByText(', 2 pass').waitFor();
    expect(await page.getByLabel('Filter').inputValue()).toContain(`duration(${field})`);
    await page.goBack();
  }
  await open('sounds', 'view=fields');
  await page.reload();
  await row('wav').getByText(/^[\d.]+ s /).waitFor();
  await row('flac').getByText(/^[\d.]+ s /).waitFor();
});

test('statistics of before datapoints were added are not shown', async () => {
  await open('grown', 'view=fields');
  await page.getByText('5 datapoints').first().waitFor();
  await row('state').getByText(/items/).first().waitFor();
  expect(await row('state').locator('.joints').count()).toBe(0);
});
