// The built page in Chromium, against a plain web server with ranges. Screenshots are left in tests/out/screenshots.

import {spawn} from 'node:child_process';
import {existsSync, mkdirSync, readFileSync} from 'node:fs';

import {type Browser, chromium, type Page} from 'playwright-core';
import {afterAll, afterEach, beforeAll, beforeEach, describe, expect, test} from 'vitest';

import {RangeServer} from './server';
import {ENVIRONMENT, OUT, PYTHON, ROOT} from './setup';

const STATIC = `${ROOT}bags/viewer/static`;
const SHOTS = `${OUT}screenshots`;
const PIXELS: number[][] = JSON.parse(readFileSync(`${OUT}values/pixels.json`, 'utf8'));
const CHROMIUM = process.env.CHROMIUM ?? '/usr/bin/chromium';

let browser: Browser;
let server: RangeServer;
let page: Page;
let problems: string[];

beforeAll(async () => {
  if (!existsSync(`${STATIC}/index.html`)) throw new Error('the page is not built: run make viewer');
  if (!existsSync(CHROMIUM)) throw new Error(`no ${CHROMIUM}: install chromium, or name it in CHROMIUM`);
  mkdirSync(SHOTS, {recursive: true});
  browser = await chromium.launch({executablePath: CHROMIUM, args: ['--no-sandbox', '--autoplay-policy=no-user-gesture-required']});
});
afterAll(() => browser?.close());

beforeEach(async () => {
  // Under a sub-path: nothing in the page may count on being at the root.
  server = await RangeServer.start({viewer: STATIC, data: `${OUT}values`}, {prefix: '/some/path'});
  page = await browser.newPage({viewport: {width: 1280, height: 860}, colorScheme: 'light'});
  problems = [];
  page.on('pageerror', error => problems.push(error.message));
  page.on('console', message => { if (message.type() === 'error' && !/ (404|416) /.test(message.text())) problems.push(message.text()); });
});
afterEach(async () => {
  await page.close();
  const asked = server.asked.filter(({path}) => path.includes('/data/'));
  expect(asked.filter(({method, range}) => method !== 'GET' || !range)).toEqual([]);
  server.stop();
});

const open = (dataset: string, hash = '') => page.goto(`${server.url}/viewer/?data=../data/${dataset}${hash ? `#${hash}` : ''}`);
const shot = (name: string) => page.screenshot({path: `${SHOTS}/${name}.png`});
const panel = (field: string) => page.locator(`.panel[data-field="${field}"]`);

/** The number of the frame that a film shows, from the blocks in its first rows. */
function frameShown(selector: string): Promise<number> {
  return page.evaluate(css => {
    const video = document.querySelector<HTMLVideoElement>(css)!;
    const canvas = new OffscreenCanvas(256, 24);
    const context = canvas.getContext('2d')!;
    context.drawImage(video, 0, 0);
    let number = 0;
    for (let bit = 0; bit < 16; bit++) if (context.getImageData(bit * 16 + 8, 12, 1, 1).data[0] > 128) number |= 1 << bit;
    return number;
  }, selector);
}

async function expectFrame(selector: string, frame: number): Promise<void> {
  await expect.poll(() => frameShown(selector), {timeout: 10_000}).toBe(frame);
}

describe('grid', () => {
  test('shows images, first within a second, and reads a small part', async () => {
    await page.addInitScript(() => document.addEventListener('load', event => {
      if (event.target instanceof HTMLImageElement) (window as any).firstImage ??= performance.now();
    }, true));
    await open('photos');
    await page.locator('.card img').first().waitFor();
    await expect.poll(() => page.locator('.card img').count()).toBeGreaterThan(10);
    await page.waitForTimeout(500);
    await shot('grid-light');
    console.log(`first image of the grid after ${Math.round(await page.evaluate(() => (window as any).firstImage))} ms`);
    const card = page.locator('.card[data-index="3"] img');
    const pixel = await card.evaluate(async (image: HTMLImageElement) => {
      await image.decode();
      const context = new OffscreenCanvas(image.naturalWidth, image.naturalHeight).getContext('2d')!;
      context.drawImage(image, 0, 0);
      return Array.from(context.getImageData(7, 5, 1, 1).data.slice(0, 3));
    });
    expect(pixel).toEqual(PIXELS[3]);
    await page.getByLabel('Dark theme').click();
    await page.waitForTimeout(200);
    await shot('grid-dark');
    expect(problems).toEqual([]);
  });

  test('datapoint 900,000 of a million by jump, by scroll and by link', async () => {
    await open('million');
    await page.locator('.card[data-index="0"]').waitFor();
    await page.getByLabel('Go to datapoint').fill('900,000');
    await page.keyboard.press('Enter');
    const card = page.locator('.card[data-index="900000"]');
    await card.waitFor();
    await expect.poll(() => card.textContent()).toContain('900000');
    await page.waitForTimeout(500);
    await shot('million');
    console.log(`${server.bytes('/data/')} bytes of 119,000,000 for datapoint 900,000`);
    expect(server.bytes('/data/') / 119e6).toBeLessThan(0.05);
    // By scroll: up from there, then by the bar.
    const grid = page.locator('.grid');
    await grid.hover();
    for (let i = 0; i < 5; i++) {
      await page.mouse.wheel(0, -400);
      await page.waitForTimeout(60);
    }
    await expect.poll(() => card.count()).toBe(0);
    expect(Number(await page.locator('.card').first().getAttribute('data-index'))).toBeGreaterThan(899_000);
    await grid.evaluate(element => { element.scrollTop = 0; });
    await page.locator('.card[data-index="0"]').waitFor();
    await grid.evaluate(element => { element.scrollTop = 0.9 * (element.scrollHeight - element.clientHeight); });
    await expect.poll(async () => Math.abs(Number(await page.locator('.card').first().getAttribute('data-index')) - 900_000)).toBeLessThan(2000);
    for (let i = 0; i < 60 && !await card.count(); i++) {
      const first = Number(await page.locator('.card').first().getAttribute('data-index'));
      await page.mouse.wheel(0, first > 900_000 ? -300 : 300);
      await page.waitForTimeout(30);
    }
    expect(await card.count()).toBe(1);
    await grid.evaluate(element => { element.scrollTop = element.scrollHeight; });
    await page.locator('.card[data-index="999999"]').waitFor();
    await open('million', 'at=500000');
    await page.reload();
    await page.locator('.card[data-index="500000"]').waitFor();
    expect(problems).toEqual([]);
  });

  test('a key is found by its index', async () => {
    await open('photos');
    await page.locator('.card').first().waitFor();
    await page.getByLabel('Go to datapoint').fill('text = photo 400 of an owl');
    await page.keyboard.press('Enter');
    await page.locator('.card[data-index="400"]').waitFor();
    await page.getByLabel('Go to datapoint').fill('no such photo');
    await page.keyboard.press('Enter');
    await page.getByText('no datapoint has the key').waitFor();
  });

  test('fields are chosen, datapoints filtered and marked', async () => {
    await open('photos', 'fields=label&fields=text');
    await page.locator('.card b').first().waitFor();
    expect(await page.locator('.card img').count()).toBe(0);
    await page.getByLabel('Filter').fill('label = owl and id >= 100 and text ~ OWL');
    await page.keyboard.press('Enter');
    await page.getByText(', 66 pass').waitFor();
    expect(await page.locator('.card').first().getAttribute('data-index')).toBe('106');
    await page.locator('.card .mark').nth(0).click();
    await page.locator('.card .mark').nth(1).click();
    await shot('filter');
    const download = page.waitForEvent('download');
    await page.getByText('★ 2 ↓').click();
    expect(JSON.parse(readFileSync((await (await download).path())!, 'utf8'))).toEqual([106, 110]);
    await page.getByLabel('Filter').fill('image > 3');
    await page.keyboard.press('Enter');
    await page.getByText('filters take numbers and text').waitFor();
    expect(problems).toEqual([]);
  });
});

describe('datapoint', () => {
  test('a film seeks by ranges, and everything follows its time', async () => {
    await open('media', 'view=datapoint&at=1&t=1.000');
    await expectFrame('[data-field="film"] video', 30);
    const film = server.bytes('film.bag');
    console.log(`${film} bytes of 29,000,000 for the frame at 1.0 s`);
    expect(film).toBeLessThan(1.45e6);
    await page.locator('input[aria-label="Time"]').evaluate((input: HTMLInputElement) => {
      input.value = '16.5';
      input.dispatchEvent(new Event('input', {bubbles: true}));
    });
    await expectFrame('[data-field="film"] video', 495);
    await panel('camera').getByText('item 82 of 100').waitFor();
    await page.locator('input[aria-label="Time"]').evaluate((input: HTMLInputElement) => {
      input.value = '4';
      input.dispatchEvent(new Event('input', {bubbles: true}));
    });
    await expectFrame('[data-field="film"] video', 120);
    await expectFrame('[data-field="clips"] video', 120);
    await panel('clips').getByText('clip 3 of 4').waitFor();
    const cursor = await panel('action').locator('.now').evaluate(element => parseFloat((element as HTMLElement).style.left));
    const [left, width] = await panel('action').locator('.u-over').evaluate(element => [(element as HTMLElement).offsetLeft, element.clientWidth]);
    expect((cursor - left) / width).toBeCloseTo(4 / 19.9, 2);
    await page.keyboard.press('ArrowRight');
    await expectFrame('[data-field="film"] video', 121);
    await page.keyboard.press('ArrowLeft');
    await page.keyboard.press('ArrowLeft');
    await expectFrame('[data-field="film"] video', 119);
    await page.keyboard.press('Space');
    await expect.poll(() => frameShown('[data-field="film"] video'), {timeout: 10_000}).toBeGreaterThan(140);
    await page.keyboard.press('Space');
    await page.waitForTimeout(600);
    expect(page.url()).toMatch(/t=[4-9]/);
    await page.waitForTimeout(1000);
    await shot('datapoint-light');
    await panel('sound').scrollIntoViewIfNeeded();
    await page.waitForTimeout(300);
    await shot('datapoint-middle');
    await panel('words').scrollIntoViewIfNeeded();
    await page.waitForTimeout(300);
    await shot('datapoint-end');
    await page.getByLabel('Dark theme').click();
    await page.waitForTimeout(500);
    await shot('datapoint-dark');
    await panel('old').getByText('20 frames of mp4v').waitFor();
    expect(await page.evaluate(() => 'hacked' in window)).toBe(false);
    expect(await panel('caption').textContent()).toContain('<script>window.hacked=1</script>');
    await page.keyboard.press(']');
    await expect.poll(() => page.url()).toContain('at=2');
    await expect.poll(() => panel('zipped').locator('video').count()).toBe(1);
    expect(problems.filter(text => !/decode|media/i.test(text))).toEqual([]);
  });

  test('clips of a container whose header is not read', async () => {
    await open('media', 'view=datapoint&at=3&t=1.55');
    await panel('loop').getByText('clip 2 of 2').waitFor();
    await expectFrame('[data-field="loop"] video', 15);
    expect(problems).toEqual([]);
  });

  test('every format, in one folder and in shards', async () => {
    for (const name of ['single', 'probed']) {
      await open(name, 'view=datapoint&at=6');
      await page.reload();
      await expect.poll(() => panel('text').textContent()).toContain('text 6 éééééé');
      await expect.poll(() => panel('unsigned').textContent()).toContain('18446744073709551609');
      await expect.poll(() => panel('maybe').textContent()).toContain('None');
      expect(await page.locator('.panel .failure').count()).toBe(0);
      await shot(`values-${name}`);
    }
    expect(problems).toEqual([]);
  });

  test('damage is shown in its place', async () => {
    await open('damaged', 'view=datapoint&at=4');
    await panel('text').getByText('differs from the checksum').waitFor();
    await panel('plain').getByText('expected limits at the end').waitFor();
    await expect.poll(() => panel('id').textContent()).toContain('4');
    await shot('damage');
  });

  test('script in names and values stays text', async () => {
    await open('strange');
    await page.getByText('</span><script>').first().waitFor();
    await open('strange', 'view=datapoint&at=1');
    await page.reload();
    await page.getByText('</span><script>').first().waitFor();
    expect(await page.evaluate(() => 'hacked' in window)).toBe(false);
  });
});

test('field facts', async () => {
  await open('photos', 'view=fields');
  await expect.poll(() => page.locator('.bars').count()).toBe(4);
  await shot('fields');
  expect(problems).toEqual([]);
});

test('bags view', async () => {
  const process = spawn(PYTHON, ['-m', 'bags', 'view', `${OUT}values/media`, '--no-browser'], {env: ENVIRONMENT, stdio: 'pipe'});
  try {
    const url = await new Promise<string>((resolve, reject) => {
      let text = '';
      process.stdout.on('data', data => {
        text += data;
        const match = /http:\S+/.exec(text);
        if (match) resolve(match[0]);
      });
      process.on('exit', () => reject(new Error('bags view ended')));
    });
    await page.goto(url);
    await page.locator('.card img').first().waitFor();
    await page.waitForTimeout(1500);
    await shot('grid-media');
    await page.locator('.card[data-index="2"] .open').click();
    await panel('film').getByText('frame 0 of 600').waitFor();
    await expectFrame('[data-field="film"] video', 0);
    await page.keyboard.press('ArrowRight');
    await expectFrame('[data-field="film"] video', 1);
    expect(problems).toEqual([]);
  } finally {
    process.kill('SIGINT');
  }
});

describe('servers', () => {
  test.each([
    ['no ranges', {ranges: false, headers: {'Access-Control-Allow-Origin': '*'}}, 'ignores the header Range'],
    ['no CORS', {headers: {}}, 'Access-Control-Allow-Origin'],
    ['sizes not exposed', {headers: {'Access-Control-Allow-Origin': '*'}}, 'Access-Control-Expose-Headers: Content-Range'],
  ])('%s: the page says what is missing', async (name, options, text) => {
    const other = await RangeServer.start({data: `${OUT}values`}, options);
    await page.goto(`${server.url}/viewer/?data=${encodeURIComponent(`${other.url}/data/million`)}`);
    await page.getByRole('alert').getByText(text).waitFor();
    await shot(`server ${name}`);
    other.stop();
  });

  test('another host with CORS', async () => {
    const headers = {'Access-Control-Allow-Origin': '*', 'Access-Control-Expose-Headers': 'Content-Range'};
    const other = await RangeServer.start({data: `${OUT}values`}, {headers});
    await page.goto(`${server.url}/viewer/?data=${encodeURIComponent(`${other.url}/data/media`)}#view=datapoint&t=2`);
    await expectFrame('[data-field="film"] video', 60);
    expect(other.asked.every(({method}) => method === 'GET')).toBe(true);
    other.stop();
  });

  test('not a dataset', async () => {
    await open('nothing');
    await page.getByRole('alert').getByText('is not a dataset').waitFor();
  });
});
