// The order and layout of the page, and its keys, in Chromium. Screenshots are left in tests/out/screenshots.

import {execFileSync} from 'node:child_process';
import {mkdirSync, rmSync} from 'node:fs';

import {type Browser, type Page} from 'playwright-core';
import {afterAll, afterEach, beforeAll, beforeEach, expect, test} from 'vitest';

import {RangeServer} from './server';
import {ENVIRONMENT, OUT, PYTHON, seriousFindings, serveValues, startBrowser} from './setup';

const SHOTS = `${OUT}screenshots`;
const SIZES = {desk: {width: 1440, height: 900}, tablet: {width: 820, height: 1180}, phone: {width: 390, height: 844}};

let browser: Browser;
let server: RangeServer;
let page: Page;

beforeAll(async () => {
  mkdirSync(SHOTS, {recursive: true});
  browser = await startBrowser();
  server = await serveValues();
});
afterAll(async () => {
  await browser?.close();
  server?.stop();
});
beforeEach(async () => { page = await browser.newPage({viewport: SIZES.desk, colorScheme: 'light', bypassCSP: true}); });
afterEach(() => page.close());

const open = (dataset: string, hash = '') => page.goto(`${server.url}/viewer/?data=../data/${dataset}${hash ? `#${hash}` : ''}`);
const panel = (field: string) => page.locator(`.panel[data-field="${field}"]`);
const box = async (field: string) => (await panel(field).boundingBox())!;
const legend = (field: string) => panel(field).locator('.u-legend tr').nth(1).locator('td').last().textContent();
/** The text of the first value in the legend of a curve, when it is there. */
const drawn = () => expect.poll(() => legend('force')).toMatch(/\d/);

test('there is a time bar only where there is time; arrows step the items of the panel in focus', async () => {
  await open('untimed', 'view=datapoint&at=1');
  await panel('views').getByText('item 0 of 3').waitFor();
  expect(await page.getByLabel('Time', {exact: true}).count()).toBe(0);
  expect(await panel('keywords').locator('.current').count()).toBe(0);
  await panel('views').locator('header').click();
  await page.keyboard.press('ArrowRight');
  await page.keyboard.press('ArrowRight');
  await panel('views').getByText('item 2 of 3').waitFor();
  await page.keyboard.press('ArrowLeft');
  await panel('views').getByText('item 1 of 3').waitFor();
});

test('the legend has the values under the time cursor, also while it plays', async () => {
  await open('episode', 'view=datapoint&t=1');
  await expect.poll(() => legend('force')).toBe('1');
  await page.keyboard.press('ArrowRight');
  await expect.poll(() => legend('force')).toBe('1.020');
  await page.keyboard.press('Space');
  await expect.poll(async () => Number(await legend('force'))).toBeGreaterThan(1.5);
  expect(await page.getByLabel('Pause').count()).toBe(1);
});

test('labels of boxes do not follow the time; times stand among the values', async () => {
  await open('labelled', 'view=datapoint&t=0.5');
  await drawn();
  await panel('words').locator('.current').waitFor();
  await panel('boxes').getByText('hand').waitFor();
  expect(await panel('boxes').locator('tr').allTextContents()).toEqual(['xywh', 'cup10102030', 'hand5052030']);
  expect(await panel('box_labels').locator('.current').count()).toBe(0);
  expect(await page.locator('.values [data-field="taken"]').textContent()).toBe('takenarray(datetime64[s])2026-01-02T03:04:05datetime64[s]');
  await open('labelled', 'fields=taken');
  await page.reload();
  await page.locator('.card').getByText('2026-01-02T03:04:05').waitFor();
});

test('an episode fits a screen: values, cameras in a row that stay, then curves', async () => {
  await open('episode', 'view=datapoint&t=1');
  await drawn();
  const [task, top, wrist, depth, state, action, force] = await Promise.all(['task', 'top_camera', 'wrist_camera', 'depth', 'state', 'action', 'force'].map(box));
  expect(task.y + task.height).toBeLessThan(top.y);
  expect([wrist.y, depth.y]).toEqual([top.y, top.y]);
  expect(top.x < wrist.x && wrist.x < depth.x).toBe(true);
  expect(top.y < state.y && state.y < action.y && action.y < force.y).toBe(true);
  expect(state.width).toBeGreaterThan(1380);
  expect(force.y + force.height).toBeLessThanOrEqual(900);
  await page.setViewportSize({width: 1440, height: 700});
  await page.locator('.panels').evaluate(element => { element.scrollTop = 1000; });
  expect((await box('state')).y).toBeLessThan(state.y);
  expect((await box('top_camera')).y).toBeGreaterThan(50);
});

test('nothing runs off the page, and axe finds nothing serious', async () => {
  for (const [view, dataset, hash] of [['episode', 'episode', 'view=datapoint&t=1'], ['grid', 'untimed', ''], ['photo', 'untimed', 'view=datapoint&at=3'], ['facts', 'untimed', 'view=fields']]) {
    for (const [size, viewport] of Object.entries(SIZES)) {
      for (const colorScheme of ['light', 'dark'] as const) {
        await page.setViewportSize(viewport);
        await page.emulateMedia({colorScheme});
        await open(dataset, hash);
        await page.reload();
        if (view === 'episode') await drawn();
        else await page.waitForTimeout(400);
        await page.screenshot({path: `${SHOTS}/${view}-${size}-${colorScheme}.png`});
        const name = `${view} ${size} ${colorScheme}`;
        expect(await page.evaluate(() => document.documentElement.scrollWidth), name).toBeLessThanOrEqual(viewport.width);
        if (size === 'tablet') continue;
        expect(await seriousFindings(page), name).toEqual([]);
      }
    }
  }
}, 240_000);

test('the grid shows the first image, the caption, labels and numbers', async () => {
  await open('untimed');
  await page.locator('.card img').first().waitFor();
  expect(await page.locator('.card[data-index="0"] .name').allTextContents()).toEqual(['views', 'caption', 'label', 'id', 'photo']);
});

test('fields are searched, chosen and ordered on both pages', async () => {
  for (const [hash, shown] of [['', '.card[data-index="0"] .name'], ['view=datapoint', '.others .panel header b, .values .panel header b']]) {
    await open('untimed', hash);
    await page.reload();
    await page.locator(shown).first().waitFor();
    await page.getByText('Shown').click();
    await page.getByText('None', {exact: true}).click();
    await expect.poll(() => page.locator(shown).count()).toBe(0);
    await page.getByLabel('Search fields').fill('cap');
    await page.getByText('All', {exact: true}).click();
    await page.getByLabel('Search fields').fill('');
    await page.locator('.choosable', {hasText: 'id int'}).getByRole('checkbox').click();
    await expect.poll(() => page.locator(shown).allTextContents()).toEqual(['caption', 'id']);
    await page.getByLabel('id up').click();
    await expect.poll(() => page.locator(shown).allTextContents()).toEqual(['id', 'caption']);
    await page.reload();
    await expect.poll(() => page.locator(shown).allTextContents()).toEqual(['id', 'caption']);
  }
});

test('keys move among the cards, each of which is one tab stop', async () => {
  await open('untimed');
  await page.locator('.card').first().waitFor();
  const current = () => page.evaluate(() => document.activeElement?.closest<HTMLElement>('.card')?.dataset.index);
  await page.locator('.card[data-index="0"] a').focus();
  await page.keyboard.press('Tab');
  expect(await current()).toBe('1');
  for (const [key, index] of [['j', '2'], ['k', '1'], ['ArrowRight', '2'], ['ArrowDown', '9'], ['ArrowUp', '2']]) {
    await page.keyboard.press(key);
    await expect.poll(current).toBe(index);
  }
  await page.keyboard.press('m');
  await page.locator('.card.marked[data-index="2"]').waitFor();
  for (let i = 0; i < 7; i++) await page.keyboard.press('ArrowDown');
  await expect.poll(current).toBe('51');
  const {y, height} = (await page.locator('.card[data-index="51"]').boundingBox())!;
  expect(y > 40 && y + height <= 900).toBe(true);
  await page.keyboard.press('Enter');
  await page.getByRole('heading', {name: '51', exact: true}).waitFor();
});

test('space presses the button in focus, ? shows the keys, the wheel scrolls', async () => {
  await open('episode', 'view=datapoint');
  await drawn();
  await page.getByLabel('Mark', {exact: true}).focus();
  await page.keyboard.press('Space');
  await page.getByText('★ 1 ↓').waitFor();
  expect(await page.getByLabel('Play').count()).toBe(1);
  await page.keyboard.press('?');
  await page.getByRole('dialog').getByText('play, pause').waitFor();
  await page.keyboard.press('Escape');
  await expect.poll(() => page.getByRole('dialog').count()).toBe(0);
  expect(page.url()).toContain('view=datapoint');
  await page.setViewportSize({width: 1440, height: 700});
  await panel('depth').locator('.zoom').hover();
  await page.mouse.wheel(0, 200);
  await expect.poll(() => page.locator('.panels').evaluate(element => element.scrollTop)).toBeGreaterThan(0);
});

test('a finger scrolls over a whole image, two of them zoom it, and then one moves it', async () => {
  const phone = await browser.newPage({viewport: SIZES.phone, hasTouch: true, isMobile: true});
  await phone.goto(`${server.url}/viewer/?data=../data/drawn#view=datapoint`);
  const zoom = phone.locator('.panel[data-field="photo"] .zoom'), inner = zoom.locator('> div');
  await zoom.locator('img').waitFor();
  await phone.locator('[data-layer="boxes"]').waitFor();
  const session = await phone.context().newCDPSession(phone);
  const touch = (type: 'touchStart' | 'touchMove' | 'touchEnd', ...touchPoints: {x: number; y: number}[]) =>
    session.send('Input.dispatchTouchEvent', {type, touchPoints: touchPoints.map((point, id) => ({...point, id}))});
  const view = () => inner.evaluate(element => {
    const {a, e, f} = new DOMMatrix(getComputedStyle(element).transform);
    return {scale: a, x: e, y: f};
  });
  const center = async () => {
    const {x, y, width, height} = (await zoom.boundingBox())!;
    return {x: x + width / 2, y: Math.min(y + height / 2, 700)};
  };
  const scrolled = () => phone.locator('.panels').evaluate(element => element.scrollTop);
  const whole = await view();
  let {x, y} = await center();
  await touch('touchStart', {x, y});
  for (let step = 1; step <= 8; step++) await touch('touchMove', {x, y: y - 20 * step});
  await touch('touchEnd');
  await expect.poll(scrolled).toBeGreaterThan(60);
  expect(await view()).toEqual(whole);
  await phone.waitForTimeout(500);
  ({x, y} = await center());
  const before = await scrolled();
  await touch('touchStart', {x: x - 30, y}, {x: x + 30, y});
  for (let step = 1; step <= 6; step++) await touch('touchMove', {x: x - 30 - 10 * step, y}, {x: x + 30 + 10 * step, y});
  await touch('touchEnd');
  await expect.poll(async () => (await view()).scale / whole.scale).toBeGreaterThan(2);
  const zoomed = await view();
  await touch('touchStart', {x, y});
  for (let step = 1; step <= 4; step++) await touch('touchMove', {x: x + 10 * step, y: y + 10 * step});
  await touch('touchEnd');
  await expect.poll(async () => (await view()).x - zoomed.x).toBeGreaterThan(20);
  expect((await view()).y - zoomed.y).toBeGreaterThan(20);
  expect(await scrolled()).toBe(before);
  await phone.close();
});

test('Ctrl and the wheel zoom an image, a double click shows all of it', async () => {
  await open('untimed', 'view=datapoint&at=1');
  const zoom = panel('photo').locator('.zoom'), transform = () => zoom.locator('> div').getAttribute('style');
  await panel('photo').locator('img').waitFor();
  await expect.poll(transform).not.toContain('scale(1)');
  const whole = await transform();
  await zoom.hover();
  await page.keyboard.down('Control');
  await page.mouse.wheel(0, -200);
  await page.keyboard.up('Control');
  await expect.poll(transform).not.toBe(whole);
  await zoom.dblclick();
  await expect.poll(transform).toBe(whole);
});

test('the cursors of curves of different lengths stand below each other', async () => {
  await page.goto(`${server.url}/viewer/?data=../data/media#view=datapoint&at=1&t=9`);
  const left = (field: string) => panel(field).locator('.now').first().evaluate(element => Math.round(element.getBoundingClientRect().left));
  await panel('video').getByText('frame 270 of 600').waitFor();
  await expect.poll(async () => await left('action') - await left('gyro')).toBe(0);
  // A sound of two seconds is as long as its part of the time.
  await page.goto(`${server.url}/viewer/?data=../data/media#view=datapoint&at=1&t=1`);
  await panel('sound').getByText(/ s, 1 × /).waitFor();
  await expect.poll(async () => Math.abs(await left('action') - await left('sound'))).toBeLessThan(2);
});

test('curves zoom together, and a button shows them whole', async () => {
  await open('episode', 'view=datapoint');
  await drawn();
  const over = (await panel('state').locator('.u-over').boundingBox())!;
  await page.mouse.move(over.x + 100, over.y + 30);
  await page.mouse.down();
  await page.mouse.move(over.x + 300, over.y + 30, {steps: 5});
  await page.mouse.up();
  await panel('action').getByText('Whole curve').waitFor();
  await panel('force').getByText('Whole curve').waitFor();
  expect(page.url()).not.toContain('t=');
  await panel('action').getByText('Whole curve').click();
  await expect.poll(() => page.getByText('Whole curve').count()).toBe(0);
});

test('an exported page shows the dataset that it was exported with', async () => {
  const site = `${OUT}site`;
  rmSync(site, {recursive: true, force: true});
  execFileSync(PYTHON, ['-m', 'bags', 'view', `${OUT}values/untimed`, '--export', site, '--with-data'], {env: ENVIRONMENT, stdio: 'pipe'});
  const other = await RangeServer.start({site});
  await page.goto(`${other.url}/site/`);
  await page.getByText('60 datapoints').waitFor();
  await page.locator('.card img').first().waitFor();
  other.stop();
});
