// The built page in Chromium, against a plain web server with ranges. Screenshots are left in tests/out/screenshots.

import {execFileSync} from 'node:child_process';
import {existsSync, mkdirSync, readdirSync, readFileSync, statSync} from 'node:fs';
import {join} from 'node:path';
import {pathToFileURL} from 'node:url';
import {gzipSync} from 'node:zlib';

import {type Browser, type Page} from 'playwright-core';
import {afterAll, afterEach, beforeAll, beforeEach, describe, expect, test} from 'vitest';

import {RangeServer} from './server';
import {CHROMIUM, ENVIRONMENT, OUT, PYTHON, ROOT, startBrowser, startView} from './setup';

const STATIC = `${ROOT}bags/viewer/static`;
const SHOTS = `${OUT}screenshots`;
/** SHA-256 of the RGB pixels of each photo, as Python decodes it. */
const PIXELS: string[] = JSON.parse(readFileSync(`${OUT}values/pixels.json`, 'utf8'));

let browser: Browser;
let server: RangeServer;
let page: Page;
let problems: string[];

beforeAll(async () => {
  if (!existsSync(`${STATIC}/index.html`)) throw new Error('the page is not built: run make viewer');
  if (!existsSync(CHROMIUM)) throw new Error(`no ${CHROMIUM}: install chromium, or name it in CHROMIUM`);
  mkdirSync(SHOTS, {recursive: true});
  browser = await startBrowser();
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

/** The number of the frame that a video shows, from the blocks in its first rows. */
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

/** SHA-256 of the RGB pixels of an image in the page. */
function pixelsOf(selector: string): Promise<string> {
  return page.locator(selector).evaluate(async image => {
    await (image as HTMLImageElement).decode();
    const {naturalWidth: width, naturalHeight: height} = image as HTMLImageElement;
    const context = new OffscreenCanvas(width, height).getContext('2d')!;
    context.drawImage(image as HTMLImageElement, 0, 0);
    const {data} = context.getImageData(0, 0, width, height);
    const digest = await crypto.subtle.digest('SHA-256', data.filter((_, i) => i % 4 < 3));
    return Array.from(new Uint8Array(digest), byte => byte.toString(16).padStart(2, '0')).join('');
  });
}

async function expectFrame(selector: string, frame: number): Promise<void> {
  await expect.poll(() => frameShown(selector), {timeout: 10_000}).toBe(frame);
}

/** Opens the third datapoint of the dataset of media, and steps to the second frame of its video. */
async function stepThroughVideo(): Promise<void> {
  await page.locator('.card[data-index="2"] .open').click();
  await panel('video').getByText('frame 0 of 600').waitFor();
  await expectFrame('[data-field="video"] video', 0);
  await page.keyboard.press('ArrowRight');
  await expectFrame('[data-field="video"] video', 1);
  expect(problems).toEqual([]);
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
    expect(await pixelsOf('.card[data-index="3"] img')).toEqual(PIXELS[3]);
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
    await expect.poll(async () => {
      const first = Number(await page.locator('.card').first().getAttribute('data-index')), found = await card.count();
      if (!found) await page.mouse.wheel(0, first > 900_000 ? -300 : 300);
      return found;
    }).toBe(1);
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
    const marks = await (await download).path();
    expect(readFileSync(marks, 'utf8').trim().split('\n').map(line => JSON.parse(line).index)).toEqual([106, 110]);
    const code = 'import bags, json, sys; '
      + 'marks = [json.loads(line)["index"] for line in open(sys.argv[2])]; print([row["id"] for row in bags.open(sys.argv[1]).select(marks)])';
    expect(execFileSync(PYTHON, ['-c', code, `${OUT}values/photos`, marks], {env: ENVIRONMENT}).toString().trim()).toBe('[106, 110]');
    await page.getByLabel('Filter').fill('image > 3');
    await page.keyboard.press('Enter');
    await page.getByText(/^image is .*: > compares numbers and texts/).waitFor();
    expect(await page.locator('.card').count()).toBe(0);
    expect(problems).toEqual([]);
  });

  test('a link restores the filter, the fields and the place', async () => {
    await open('photos', 'fields=text&filter=label+%3D+owl&at=300');
    await page.getByText(', 125 pass').waitFor();
    expect(Number(await page.locator('.card').first().getAttribute('data-index'))).toBeGreaterThan(200);
    await page.locator('.card[data-index="302"]').waitFor();
    expect(await page.locator('.card img').count()).toBe(0);
    await expect.poll(() => page.getByLabel('Filter').inputValue()).toBe('label = owl');
    await page.locator('.card[data-index="302"] a').click();
    await page.keyboard.press(']');
    await expect.poll(() => page.url()).toContain('at=306');
    await page.goBack();
    await expect.poll(() => page.url()).toContain('at=302');
    expect(problems).toEqual([]);
  });

  test('a filter of more than 64 MiB says its limit and reads nothing', async () => {
    await open('long', 'fields=id&filter=text+~+1');
    await page.getByText('reads at most 64 MiB, of which text needs more: use dataset.filter').waitFor();
    expect(server.bytes('text.bag')).toBeLessThan(100_000);
    await page.getByLabel('Filter').fill('id > 5');
    await page.keyboard.press('Enter');
    await page.getByText(', 3 pass').waitFor();
  });

  test('a damaged shard shows its errors, the others their datapoints', async () => {
    await open('shards_damaged', 'fields=id&fields=text');
    for (const [index, text] of [[4, 'text 4'], [5, 'expected limits at the end'], [10, 'text 10'], [17, '000003/refs.bag'], [22, 'text 22']]) {
      await expect.poll(() => page.locator(`.card[data-index="${index}"]`).textContent()).toContain(text);
    }
    await shot('damaged-shard');
  });
});

describe('datapoint', () => {
  test('pixels, keys and marks', async () => {
    await open('photos', 'view=datapoint&at=3');
    await panel('image').locator('img').waitFor();
    expect(await pixelsOf('.panel[data-field="image"] img')).toEqual(PIXELS[3]);
    const box = (await panel('image').locator('.zoom').boundingBox())!;
    const width = async () => (await panel('image').locator('img').boundingBox())!.width;
    const before = await width();
    await page.mouse.move(box.x + box.width / 2, box.y + box.height / 2);
    await page.mouse.wheel(0, -300);
    expect(await width()).toBe(before);
    await page.keyboard.down('Control');
    await page.mouse.wheel(0, -300);
    await page.keyboard.up('Control');
    await expect.poll(width).toBeGreaterThan(2 * before);
    await page.keyboard.press(']');
    await page.getByRole('heading', {name: '4', exact: true}).waitFor();
    await page.keyboard.press('[');
    await page.keyboard.press('[');
    await page.getByRole('heading', {name: '2', exact: true}).waitFor();
    await page.keyboard.press('m');
    await page.getByText('★ 1 ↓').waitFor();
    await page.keyboard.press('Escape');
    await page.locator('.card.marked[data-index="2"]').waitFor();
    expect(problems).toEqual([]);
  });

  test('keys pressed before the page is drawn act on the datapoint in the URL', async () => {
    await open('photos', 'view=datapoint&at=3');
    await panel('image').locator('img').waitFor();
    await page.evaluate(async () => {
      for (const key of ['m', ']', 'm', ']', ']', 'm', '[']) {
        document.body.dispatchEvent(new KeyboardEvent('keydown', {key, bubbles: true}));
        await (window as any).scheduler.postTask(() => {});
      }
    });
    await page.getByRole('heading', {name: '5', exact: true}).waitFor();
    await page.keyboard.press('Escape');
    for (const index of [3, 4, 6]) await page.locator(`.card.marked[data-index="${index}"]`).waitFor();
    expect(await page.locator('.card.marked').count()).toBe(3);
    expect(problems).toEqual([]);
  });

  test('a video seeks by ranges, and everything follows its time', async () => {
    await open('media', 'view=datapoint&at=1&t=1.000');
    await expectFrame('[data-field="video"] video', 30);
    const read = server.bytes('video.bag');
    console.log(`${read} bytes of 29,000,000 for the frame at 1.0 s`);
    expect(read).toBeLessThan(1.45e6);
    await page.locator('input[aria-label="Time"]').evaluate((input: HTMLInputElement) => {
      input.value = '16.5';
      input.dispatchEvent(new Event('input', {bubbles: true}));
    });
    await expectFrame('[data-field="video"] video', 495);
    await panel('camera').getByText('item 82 of 100').waitFor();
    await page.locator('input[aria-label="Time"]').evaluate((input: HTMLInputElement) => {
      input.value = '4';
      input.dispatchEvent(new Event('input', {bubbles: true}));
    });
    await expectFrame('[data-field="video"] video', 120);
    await expectFrame('[data-field="clips"] video', 120);
    await panel('clips').getByText('clip 3 of 4').waitFor();
    await expect.poll(async () => {
      const cursor = await panel('action').locator('.now').evaluate(element => parseFloat((element as HTMLElement).style.left));
      const [left, width] = await panel('action').locator('.u-over').evaluate(element => [(element as HTMLElement).offsetLeft, element.clientWidth]);
      return (cursor - left) / width;
    }).toBeCloseTo(4 / 19.9, 2);
    await page.keyboard.press('ArrowRight');
    await expectFrame('[data-field="video"] video', 121);
    await page.keyboard.press('ArrowLeft');
    await page.keyboard.press('ArrowLeft');
    await expectFrame('[data-field="video"] video', 119);
    await page.keyboard.press('Space');
    await expect.poll(() => frameShown('[data-field="video"] video'), {timeout: 10_000}).toBeGreaterThan(140);
    await page.keyboard.press('Space');
    await expect.poll(() => page.url()).toMatch(/t=[4-9]/);
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

  test('a seek while the URL gets the time of the one before is kept', async () => {
    await open('media', 'view=datapoint&at=1');
    await expectFrame('[data-field="video"] video', 0);
    await page.evaluate(async () => {
      const input = document.querySelector<HTMLInputElement>('input[aria-label="Time"]')!;
      const seek = (time: number) => {
        input.value = String(time);
        input.dispatchEvent(new Event('input', {bubbles: true}));
      };
      seek(16.5);
      await new Promise(resolve => addEventListener('route', resolve, {once: true}));
      await (window as any).scheduler.postTask(() => {});
      seek(4);
    });
    await expectFrame('[data-field="video"] video', 120);
    await expect.poll(() => page.url()).toContain('t=4.000');
    await expectFrame('[data-field="video"] video', 120);
    expect(problems).toEqual([]);
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

  test('sounds with the rate of their header', async () => {
    await open('sounds', 'view=datapoint');
    const rates = {
      aac: '16,000', flac: '22,050', m4a: '32,000', mp3: '16,000', mp3_old: '8,000', ogg_flac: '16,000', ogg_opus: '48,000', wav: '16,000',
      wav_junk: '16,000',
    };
    for (const [name, rate] of Object.entries(rates)) await expect.poll(() => panel(name).textContent(), {message: name}).toContain(`1 × ${rate} Hz`);
    await shot('sounds');
    await open('sounds', 'fields=flac');
    await page.reload();
    await expect.poll(() => page.locator('.card').first().textContent()).toMatch(/♪ 0\.5 s, \d/);
  });

  test('values that are not finite are gaps', async () => {
    await open('gaps', 'view=datapoint');
    /** The share of columns of pixels in the middle third of the plot that the curve covers. */
    const covered = (field: string) => panel(field).locator('canvas').first().evaluate(canvas => {
      const {width, height} = canvas as HTMLCanvasElement;
      const {data} = (canvas as HTMLCanvasElement).getContext('2d')!.getImageData(0, 0, width, height);
      const left = Math.round(width * 0.42), right = Math.round(width * 0.62);
      let columns = 0;
      for (let x = left; x < right; x++) {
        for (let y = 0; y < height; y++) {
          const [red, green, blue, alpha] = data.subarray(4 * (y * width + x), 4 * (y * width + x) + 4);
          if (alpha > 100 && Math.max(red, green, blue) - Math.min(red, green, blue) > 60) { columns += 1; break; }
        }
      }
      return columns / (right - left);
    });
    await panel('missing').getByText('99 not finite').waitFor();
    await panel('inf').getByText('2 not finite').waitFor();
    await expect.poll(() => covered('inf')).toBeGreaterThan(0.9);
    expect(await covered('missing')).toBeLessThan(0.1);
    expect(await covered('missing')).toBeGreaterThan(0); // The value between the gaps is a point.
    await shot('gaps');
    await open('gaps');
    await expect.poll(() => page.locator('.card .sparkline path').count()).toBe(2);
    const paths = await page.locator('.card .sparkline path').evaluateAll(found => found.map(path => path.getAttribute('d')!));
    for (const path of paths) expect(path).not.toMatch(/NaN|Infinity/);
    expect(paths[1].match(/M/g)!.length).toBeGreaterThan(1);
    await shot('grid-gaps');
  });

  test('every type', async () => {
    await open('formats', 'view=datapoint');
    await panel('mkv_video').getByText('cannot play this video: about 10 frames of V_FFV1, 256 × 64. mpv or VLC').waitFor();
    for (const name of ['mp4', 'webm', 'any']) await expect.poll(() => panel(`${name}_video`).textContent()).toContain('frame 0 of 10');
    for (const name of ['flac', 'opus', 'wav', 'any']) {
      await expect.poll(() => panel(`${name}_sound`).textContent()).toMatch(/0\.5\d s, 1 × 48,000 Hz/);
    }
    await expect.poll(() => panel('sounds').textContent()).toContain('0.75 s, 1 × 48,000 Hz');
    await panel('sounds').getByText('in 2 blocks').waitFor();
    // Of sequences whose metadata says that they are items, one is shown.
    await expect.poll(() => panel('said').textContent()).toContain('0.25 s, 1 × 48,000 Hz');
    await panel('said').getByLabel('Item').fill('1');
    await expect.poll(() => panel('said').textContent()).toContain('0.50 s, 1 × 48,000 Hz');
    await panel('said').locator('audio').evaluate(audio => (audio as HTMLAudioElement).play());
    await expect.poll(() => panel('said').locator('.now').evaluate(now => parseFloat((now as HTMLElement).style.left))).toBeGreaterThan(10);
    const shot_ = () => panel('shots').locator('video').evaluate(video => (video as HTMLVideoElement).duration);
    await panel('shots').getByLabel('Item').fill('0');
    await expect.poll(shot_).toBe(1);
    await panel('shots').getByLabel('Item').fill('1');
    await expect.poll(shot_).toBe(0.5);
    await panel('rates').getByText('expected recordings of one rate, got 48000 Hz and 16000 Hz').waitFor();
    const images = ['avif', 'image', 'jpeg', 'jpg', 'png', 'webp', 'gif', 'gray', 'deep'];
    for (const name of images) await expect.poll(() => panel(`${name}_image`).textContent()).toContain('32 × 24, ');
    const texts = {
      bool: 'true', int: '-3', uint: '65000', float: '0.125', i64: '-1099511627776', u64: '1099511627776', utf8: 'a text', bytes: '00 01',
      json: 'a: 2 items', msgpack: 'b: 2', tree: 'c: <i8 (3)', array_free: '1111', array_bool: '101', array_complex: '3+4j', array_text: 'éabc',
      times: '2026-01-02T03:04:05.678901NaT', nanos: '1969-12-31T23:59:59.999999999NaT', days: '1969-12-312026-01-02', spaces: '"  "', spans: '90', small_4: '1-1.5NaN0.001953125', small_5: '1-3Infinity0.000015258789', brain: '1-3',
      missing: 'None', none: 'None', empty: '0 items',
    };
    for (const [name, text] of Object.entries(texts)) await expect.poll(() => panel(name).textContent(), {message: name}).toContain(text);
    expect(await page.locator('.panel .failure').count()).toBe(2);
    expect((await panel('observation.images.number_with_a_long_name').locator('b').boundingBox())!.height).toBeLessThan(24);
    await shot('formats');
    await panel('tree').scrollIntoViewIfNeeded();
    await shot('formats-end');
    await open('formats', [...images.map(name => `${name}_image`), 'mp4_video', 'webm_video'].map(name => `fields=${name}`).join('&'));
    await page.reload();
    await expect.poll(() => page.locator('.card img, .card canvas').count()).toBe(9);
    await shot('grid-formats');
  });

  test('boxes, keypoints and masks over their image, with toggles and opacity', async () => {
    await open('drawn', 'view=datapoint');
    const photo = panel('photo');
    await photo.locator('[data-layer="mask"] image').waitFor();
    const boxes = photo.locator('[data-layer="boxes"] rect');
    expect(await boxes.evaluateAll(found => found.map(box => ['x', 'y', 'width', 'height'].map(name => Number(box.getAttribute(name))))))
      .toEqual([[10, 10, 20, 30], [70, 50, 20, 30]]);
    expect(await photo.locator('[data-layer="boxes"] text').allTextContents()).toEqual(['cat', 'dog']);
    // Of normalized points the one with visibility 0 is not drawn, nor an edge to a point that is not there.
    expect(await photo.locator('[data-layer="points"] circle').evaluateAll(found => found.map(point => Number(point.getAttribute('cx'))))).toEqual([20, 40]);
    expect(await photo.locator('[data-layer="points"] line').count()).toBe(1);
    await photo.getByText('dog').last().waitFor();  // The legend of the mask.
    const problems_ = ['boxes: 1 of 2 reach outside of the image', 'small_mask: 20 × 30 pixels, stretched over 80 × 60', 'odd: format: expected one of xyxy',
      'few_labels: 2 rows, 1 labels in title', 'many: the first 2,000 of 250,000'];
    for (const text of problems_) await photo.getByText(text).first().waitFor();
    await panel('no_labels').getByText('labels: there is no field "gone"').waitFor();
    await panel('lost').getByText('over: there is no field "no_such_field"').waitFor();
    await panel('over_text').getByText('over: title is utf8, and only images are drawn over').waitFor();
    await shot('drawn');
    const image = (await photo.locator('img').boundingBox())!, overlay = (await photo.locator('svg.overlay').boundingBox())!;
    expect([overlay.x - image.x, overlay.width - image.width, overlay.height - image.height].every(difference => Math.abs(difference) < 1)).toBe(true);
    await photo.getByLabel('Opacity').fill('0.2');
    expect(await photo.locator('[data-layer="mask"] image').getAttribute('opacity')).toBe('0.2');
    await photo.getByLabel('boxes', {exact: true}).click();
    expect(await photo.locator('[data-layer="boxes"]').count()).toBe(0);
    await open('drawn', 'fields=photo&fields=semantic&fields=normal&fields=colored');
    await page.reload();
    await expect.poll(() => page.locator('.card [data-layer="boxes"] rect').count()).toBe(2);
    await expect.poll(() => page.locator('.card canvas').count()).toBe(3);
    await shot('grid-drawn');
    expect(problems).toEqual([]);
  });

  test('arrays as pictures, slices, clouds and tables, with names and units', async () => {
    await open('drawn', 'view=datapoint');
    await panel('semantic').getByText('road').waitFor();
    const colors = (field: string) => panel(field).locator('canvas').evaluate(canvas => {
      const {width, height} = canvas as HTMLCanvasElement;
      const {data} = (canvas as HTMLCanvasElement).getContext('2d')!.getImageData(0, 0, width, height);
      return new Set(new Uint32Array(data.buffer)).size;
    });
    expect(await colors('semantic')).toBe(2);
    expect(await panel('gray').locator('img').count()).toBe(1);  // A photograph stays one.
    await panel('labels').getByText('and 4,776 more labels').waitFor();
    await panel('labels').getByText('class 14', {exact: true}).waitFor();
    await panel('depth').getByText('7.9 m').waitFor();
    await panel('depth').getByText('160 not finite').waitFor();
    await panel('normal').getByText('colours from -1 to 1, 5 not finite').waitFor();
    expect(await colors('colors')).toBe(1);
    await panel('voxels').getByText('4 of 9').waitFor();
    const slice = await colors('voxels');
    await panel('voxels').getByLabel('Slice').fill('0');
    expect([slice, await colors('voxels')]).toEqual([2, 1]);
    await panel('voxels').getByLabel('Axis').selectOption('2');
    await panel('voxels').getByText('5 of 11').waitFor();
    for (const field of ['scan', 'colored']) {
      const canvas = panel(field).locator('canvas');
      const before = await canvas.evaluate(element => (element as HTMLCanvasElement).toDataURL());
      const {x, y} = (await canvas.boundingBox())!;
      await page.mouse.move(x + 50, y + 50);
      await page.mouse.down();
      await page.mouse.move(x + 120, y + 70);
      await page.mouse.up();
      await expect.poll(() => canvas.evaluate(element => (element as HTMLCanvasElement).toDataURL())).not.toBe(before);
    }
    await panel('colored').getByText('Numbers').click();
    await panel('colored').locator('.u-over').waitFor();
    expect(await panel('boxes').locator('tr').allTextContents()).toEqual(['xywh', 'cat10102030', 'dog70502030']);
    expect(await panel('few_labels').locator('tr').first().textContent()).toBe('a cat10102030');
    await panel('many').getByText('and 19,900 more rows').waitFor();
    await panel('many').getByText('the first 20,000 of 250,000 items').waitFor();
    expect(await panel('waves').locator('td').allTextContents()).toEqual(['1-2j', '0.1+3j']);
    expect(await panel('third').textContent()).toContain('0.3333333333333333');
    expect(await panel('short').locator('.big').textContent()).toBe('0.1');
    expect(await panel('label').locator('.big').textContent()).toBe('class 69999 69999');
    expect(await page.locator('.panel > .failure').count()).toBe(3);
    await page.setViewportSize({width: 390, height: 844});
    await expect.poll(() => page.evaluate(() => document.querySelector('.panels')!.scrollWidth - innerWidth)).toBeLessThanOrEqual(0);
    await shot('drawn-phone');
    expect(problems).toEqual([]);
  });

  test('long values and metadata that does not fit are said in a line', async () => {
    await open('unfit');
    await page.locator('[data-layer="mask"] image').waitFor();
    // The first image is not one that is drawn over another; short gaps stay gaps.
    expect(await page.locator('.card .name').first().textContent()).toBe('photo');
    await open('unfit', 'fields=curve&fields=table&fields=title');
    await page.reload();
    await page.locator('.card').getByText('12 MB').waitFor();
    expect((await page.locator('.card .sparkline path').getAttribute('d'))!.match(/M/g)!.length).toBe(2);
    await open('unfit', 'view=datapoint');
    await page.reload();
    const said = {
      photo: ['boxes: the first 2,000 of 1,000,000', 'reach outside of the image', 'and 4,776 more labels'],
      title: ['200,000 characters', 'over: there is no field 7', 'classes: expected a list of names, got "cat"'],
      boxes: ['and 999,900 more rows', 'labels: there is no field "gone"'],
      table: ['every 5th of 1,000,000 points'],
      wide: ['the first 200,000 of 300,000'],
      items: ['the first 20,000 of 1,000,000 items'],
      words: ['the first 20,000 of 100,000 items'],
      curve: ['3 not finite', 'times: there is no field "no_times"'],
      joints: ['rate: expected items a second, got "fast"', 'names: 2 for 3 columns'],
    };
    for (const [field, texts] of Object.entries(said)) for (const text of texts) await panel(field).getByText(text).first().waitFor();
    expect(await panel('label').locator('.big').textContent()).toBe('class 69999 69999');
    await shot('unfit');
    await open('unfit', 'view=fields');
    await page.reload();
    await page.getByText('fields: the dataset has no ghost').waitFor();
    await page.getByText(/the first 20,000 of [\d,]+ characters/).waitFor();
    const row = page.locator('.facts tr').filter({has: page.locator('th:text-is("table")')});
    await row.getByText('12 MB').waitFor();
    await page.getByLabel('Filter').fill('label == "class 6');
    await expect.poll(() => page.getByRole('option').first().textContent()).toBe('"class 6"');
    expect(problems).toEqual([]);
  });

  test('fields with a zstd dictionary', async () => {
    await open('trained', 'view=datapoint&at=7');
    await expect.poll(() => panel('text').textContent()).toContain('a short text about the number 433, 7');
    await open('untrained', 'view=datapoint&at=7');
    await panel('text').getByText('needs the zstd dictionary').waitFor();
    await expect.poll(() => panel('id').textContent()).toContain('7');
    expect(problems).toEqual([]);
  });

  test('an address makes no page of the bytes of a record', async () => {
    await open('media', 'view=datapoint&at=1');
    await expect.poll(() => panel('video').locator('video').count()).toBe(1);
    const url = `${server.url}/data/media/caption.bag`;
    const {size} = statSync(`${OUT}values/media/caption.bag`);
    const record = (type: string) => `record/?${new URLSearchParams({url, start: '0', stop: String(size), type})}`;
    for (const type of ['text/html', 'image/svg+xml', 'application/xhtml+xml']) {
      expect(await page.evaluate(async address => (await fetch(address)).headers.get('Content-Type'), record(type))).toBe('application/octet-stream');
      await page.goto(new URL(record(type), page.url()).href).catch(() => {});  // A download.
      expect(await page.evaluate(() => 'hacked' in window)).toBe(false);
    }
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
    await panel('c').getByText('onerror').first().waitFor();
    await shot('strange');
    await open('strange', 'view=fields');
    await page.reload();
    await page.locator('pre').getByText('<script>').first().waitFor();
    expect(await page.locator('#app script, #app img').count()).toBe(0);
    expect(await page.evaluate(() => 'hacked' in window)).toBe(false);
    expect(problems).toEqual([]);
  });
});

test('field facts', async () => {
  await open('photos', 'view=fields');
  await expect.poll(() => page.locator('.bars').count()).toBe(4);
  const row = (field: string) => page.locator('.facts tr').filter({has: page.locator(`th:text-is("${field}")`)});
  await expect.poll(() => row('id').textContent()).toContain('8.0 kB500');
  await expect.poll(() => row('id').textContent()).toContain('0 … 499');
  await expect.poll(() => row('text').textContent()).toMatch(/characters \d+ … \d+.*e\.g\. photo 0 of/);
  await page.getByText('"classes"').waitFor();
  await shot('fields');
  expect(problems).toEqual([]);
});

test('notebooks', async () => {
  await page.goto(pathToFileURL(`${OUT}values/notebook.html`).href);
  expect(await page.locator('img').count()).toBeGreaterThan(10);
  const text = await page.locator('body').textContent();
  expect(text).toContain('<script>window.hacked=1</script>');
  expect(text).toContain('CorruptError');
  expect(await page.evaluate(() => 'hacked' in window)).toBe(false);
  await shot('notebook');
});

test('the page is under 450 KB compressed', () => {
  const files = readdirSync(STATIC, {recursive: true, withFileTypes: true}).filter(file => file.isFile());
  const sizes = files.map(({parentPath, name}) => gzipSync(readFileSync(join(parentPath, name))).length);
  const size = sizes.reduce((sum, count) => sum + count, 0);
  console.log(`the page: ${size} bytes compressed`);
  expect(size).toBeLessThan(450_000);
});

describe('links', () => {
  test('a web server gives what is in the folder of the dataset', async () => {
    await open('linked', 'view=datapoint&at=0&t=1');
    await expect.poll(() => panel('image').locator('img').count()).toBe(1);
    expect(await pixelsOf('[data-field="image"] img')).toEqual(PIXELS[3]);
    await panel('video').getByText('frame 30 of 600').waitFor();
    await expectFrame('[data-field="video"] video', 30);
    await panel('outside').getByText('outside of the folder of the dataset').waitFor();
    await shot('links');
    await page.keyboard.press(']');
    await expect.poll(() => pixelsOf('[data-field="image"] img')).toEqual(PIXELS[4]);
    await page.keyboard.press(']');
    await panel('image').getByText('has changed since it was linked').waitFor();
    expect(problems).toEqual([]);
  });

  test('segments of a video', async () => {
    await open('segments', 'view=datapoint&at=0');
    await panel('video').getByText('frame 0 of 30').waitFor();
    await expectFrame('[data-field="video"] video', 100);
    await expectFrame('[data-field="clips"] video', 300);
    await panel('clips').getByText('clip 1 of 2').waitFor();
    await panel('sound').getByText('part of a recording, from 100 to 200').waitFor();
    const seek = (seconds: number) => page.locator('input[aria-label="Time"]').evaluate((input: HTMLInputElement, value) => {
      input.value = value;
      input.dispatchEvent(new Event('input', {bubbles: true}));
    }, String(seconds));
    await seek(1.5);
    await panel('clips').getByText('clip 2 of 2').waitFor();
    await expectFrame('[data-field="clips"] video', 45);
    await expectFrame('[data-field="video"] video', 129);
    await seek(0.9);
    await expectFrame('[data-field="clips"] video', 327);
    await expectFrame('[data-field="video"] video', 127);
    await shot('segments');
    await page.keyboard.press('Space');
    await expect.poll(() => page.locator('input[aria-label="Time"]').inputValue(), {timeout: 10_000}).toBe('2');
    await expectFrame('[data-field="video"] video', 129);
    await expectFrame('[data-field="clips"] video', 59);
    await page.keyboard.press('Space');
    await expect.poll(() => frameShown('[data-field="clips"] video'), {timeout: 10_000}).toBeGreaterThan(305);
    await page.keyboard.press('Space');
    await page.keyboard.press(']');
    await panel('video').getByText('of 60').waitFor();
    await expect.poll(() => frameShown('[data-field="video"] video')).toBeGreaterThanOrEqual(200);
    await page.keyboard.press(']');
    await panel('video').getByText('of 600').waitFor();
    await page.keyboard.press(']');
    await panel('video').getByText('frames 590 to 601 of 600').waitFor();
    await open('segments');
    await page.reload();
    await expect.poll(() => frameShown('.card[data-index="0"] video')).toBe(100);
    await expect.poll(() => frameShown('.card[data-index="1"] video')).toBe(200);
    expect(problems).toEqual([]);
  });

  test('bags view gives what is permitted', async () => {
    for (const permitted of ['', `${OUT}values/video.mp4`]) {
      const {url, process} = await startView(`${OUT}values/linked`, {BAGS_TRUST_LINKS: permitted});
      try {
        await page.goto(`${url}#view=datapoint&at=0&t=1`);
        await expect.poll(() => panel('image').locator('img').count()).toBe(1);
        expect(await pixelsOf('[data-field="image"] img')).toEqual(PIXELS[3]);
        await expectFrame('[data-field="video"] video', 30);
        if (permitted) await expectFrame('[data-field="outside"] video', 30);
        else await panel('outside').getByText(`links to ${OUT}values/video.mp4 are not permitted`).waitFor();
        await page.goto(`${url}#view=datapoint&at=2`);
        await panel('image').getByText('it has changed since it was linked').waitFor();
      } finally {
        process.kill('SIGINT');
      }
    }
  });

  test('bags view gives the bags of a dataset beside it', async () => {
    const {url, process} = await startView(`${OUT}values/media_view`);
    try {
      await page.goto(url);
      await page.locator('.card img').first().waitFor();
      await stepThroughVideo();
    } finally {
      process.kill('SIGINT');
    }
  });
});

test('bags view', async () => {
  const {url, process} = await startView(`${OUT}values/media`);
  try {
    await page.goto(url);
    await page.locator('.card img').first().waitFor();
    await page.waitForTimeout(1500);
    await shot('grid-media');
    await stepThroughVideo();
    await page.goto(new URL(url).origin);
    await page.locator('.card img').first().waitFor();
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
    await expectFrame('[data-field="video"] video', 60);
    expect(other.asked.every(({method}) => method === 'GET')).toBe(true);
    other.stop();
  });

  test('a resolve address of a hub, which redirects to another host', async () => {
    const headers = {'Access-Control-Allow-Origin': '*', 'Access-Control-Expose-Headers': 'Content-Range'};
    const files = await RangeServer.start({data: `${OUT}values`}, {headers});
    const hub = await RangeServer.start({data: `${OUT}values`}, {headers, prefix: '/datasets/u/d/resolve/main', redirect: files.url});
    await page.goto(`${server.url}/viewer/?data=${encodeURIComponent(`${hub.url}/data/media`)}#view=datapoint&t=2`);
    await expectFrame('[data-field="video"] video', 60);
    expect(hub.asked.every(({method, path}) => method === 'GET' && path.startsWith('/datasets/u/d/resolve/main/data/media/'))).toBe(true);
    expect(files.bytes('media')).toBeGreaterThan(0);
    hub.stop();
    files.stop();
  });

  test('not a dataset', async () => {
    await open('nothing');
    await page.getByRole('alert').getByText('is not a dataset').waitFor();
  });
});
