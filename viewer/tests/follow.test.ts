// `bags view --follow` in Chromium: an episode is shown while another process records it.

import {type ChildProcess, spawn} from 'node:child_process';
import {once} from 'node:events';
import {rmSync} from 'node:fs';

import type {Browser, Page} from 'playwright-core';
import {afterAll, afterEach, beforeAll, expect, test} from 'vitest';

import {ENVIRONMENT, OUT, PYTHON, startBrowser, startView} from './setup';

/** Records an episode until it reads a line, then commits it. Frame n is as bright as 20 + 4 n, from n = 50 on again. */
const RECORDER = `
import sys, threading, time
import numpy as np, bags
path, make = sys.argv[1], getattr(bags, sys.argv[2])
spec = {'task': 'utf8', 'camera': 'mp4(25)[]', 'camera_time': 'float(8)[]', 'joints': 'array(float32,3)[]', 'joints_time': 'float(8)[]'}
facts = {'fields': {'camera': {'times': 'camera_time'}, 'joints': {'times': 'joints_time'}}}
with make(path, spec, metadata=facts) as writer:
    writer.append({'task': 'before', 'camera': [], 'camera_time': [], 'joints': [], 'joints_time': []}, flush=True)
    print('written', flush=True)
    sys.stdin.readline()
    done = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.readline(), done.set()), daemon=True).start()
    with writer.begin({'task': 'pick the cup'}, flush=0.1, clip_seconds=0.4) as episode:
        print('begun', flush=True)
        begin, number = time.monotonic(), 0
        while not done.is_set():
            time.sleep(max(0, begin + number / 200 - time.monotonic()))
            now = time.monotonic() - begin
            if number % 8 == 0:
                episode.append({'camera': np.full((48, 64, 3), 20 + number // 8 % 50 * 4, np.uint8), 'camera_time': now})
            episode.append({'joints': np.array([now, np.sin(now), 0], np.float32), 'joints_time': now})
            number += 1
print('closed', flush=True)
`;

let browser: Browser;
let page: Page;
let processes: ChildProcess[] = [];

beforeAll(async () => { browser = await startBrowser(); });
afterAll(() => browser?.close());
afterEach(async () => {
  await page?.close();
  for (const process of processes) process.kill();
  processes = [];
});

/** Waits until a process prints a line. */
async function said(process: ChildProcess, word: string): Promise<void> {
  let text = '';
  while (!text.includes(word)) text += String((await once(process.stdout!, 'data'))[0]);
}

/** The brightness of the middle of a canvas. */
const brightness = () => page.locator('.live [data-field="camera"] canvas').evaluate(canvas =>
  (canvas as HTMLCanvasElement).getContext('2d')!.getImageData(32, 24, 1, 1).data[1]);

/** The number of values of the curves. */
const curveLength = async () =>
  Number(/of (\d+) values/.exec(await page.locator('.live [data-field="joints"] [role="img"]').getAttribute('aria-label') ?? '')?.[1] ?? 0);

test.each(['ShardedDatasetWriter', 'DatasetWriter'])('an episode is shown while %s records it', async make => {
  const path = `${OUT}follow-${make}`;
  rmSync(path, {recursive: true, force: true});
  const recorder = spawn(PYTHON, ['-c', RECORDER, path, make], {env: ENVIRONMENT, stdio: ['pipe', 'pipe', 'inherit']});
  processes.push(recorder);
  await said(recorder, 'written');
  const view = await startView(path, {}, ['--follow']);
  processes.push(view.process);
  page = await browser.newPage({viewport: {width: 1280, height: 860}});
  const problems: string[] = [];
  page.on('pageerror', error => problems.push(error.message));
  await page.goto(view.url);
  await expect.poll(() => page.locator('.summary').textContent()).toContain('1 datapoint');
  expect(await page.locator('.live').count()).toBe(0);

  recorder.stdin!.write('begin\n');
  await said(recorder, 'begun');
  const begun = Date.now();
  await page.locator('.live canvas').first().waitFor();
  expect(await page.locator('.live h2').textContent()).toContain('Datapoint 1, not committed yet');
  await expect.poll(() => page.locator('.live [data-field="task"]').textContent()).toContain('pick the cup');
  expect(await page.locator('.live [data-field="camera_time"]').count()).toBe(0);

  // The frame and the curves go on. A frame is at most clip_seconds + flush + 0.5 s old, and a poll of the page.
  const seen = new Set<number>(), lengths: number[] = [], ages: number[] = [];
  while (seen.size < 4 && Date.now() < begun + 20_000) {
    const frame = Math.round((await brightness() - 20) / 4), now = (Date.now() - begun) / 1000;
    if (!seen.has(frame)) ages.push(now - (frame + 50 * Math.floor((now - frame / 25) / 2)) / 25);
    seen.add(frame);
    lengths.push(await curveLength());
    await page.waitForTimeout(50);
  }
  console.log(`${make}: a new frame on the page is ${ages.map(age => age.toFixed(2)).join(', ')} s old`);
  expect(seen.size).toBe(4);
  expect(lengths[lengths.length - 1]).toBeGreaterThan(Math.max(20, lengths[0]));
  await page.screenshot({path: `${OUT}follow-${make}.png`});

  recorder.stdin!.write('commit\n');
  await said(recorder, 'closed');
  await expect.poll(() => page.locator('.live').count(), {timeout: 10_000}).toBe(0);
  await expect.poll(() => page.locator('.summary').textContent(), {timeout: 10_000}).toContain('2 datapoints');
  expect(problems).toEqual([]);
}, 60_000);
