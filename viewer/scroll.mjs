// Counts frames while the grid scrolls, beside a plain page with a line of text for each datapoint: `python -m benchmarks.viewer`
// calls it. Arguments: the address of the page, the number of datapoints, and rounds. Both pages run in turns.

import {chromium} from 'playwright-core';

const [url, count, rounds] = process.argv.slice(2);
/** Pixels of one gesture, and pixels a second. */
const DISTANCE = 6000;
const SPEED = 2000;

const browser = await chromium.launch({executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium', args: ['--no-sandbox']});
const median = values => values.toSorted((a, b) => a - b)[values.length >> 1];

/** Milliseconds from the request of the page to its first picture and to the first value of each field. */
async function firstGrid() {
  const page = await browser.newPage({viewport: {width: 1280, height: 860}});
  await page.addInitScript(() => document.addEventListener('load', event => {
    if (event.target instanceof HTMLImageElement) window.firstImage ??= performance.now();
  }, true));
  await page.goto(url);
  await page.waitForFunction(() => window.firstImage && document.querySelectorAll('.card .loading').length === 0);
  const times = await page.evaluate(() => [window.firstImage, performance.now()]);
  await page.close();
  return times;
}

async function openGrid() {
  const page = await browser.newPage({viewport: {width: 1280, height: 860}});
  await page.goto(url);
  await page.locator('.card img').first().waitFor();
  return page;
}

async function openPlain() {
  const page = await browser.newPage({viewport: {width: 1280, height: 860}});
  await page.setContent('<div id="grid" style="height: 100vh; overflow-y: auto"></div>');
  await page.evaluate(rows => {
    document.querySelector('#grid').innerHTML = Array.from({length: rows}, (_, i) => `<div>${i}: a photo of animal ${i} in the grass</div>`).join('');
    document.body.style.margin = 0;
  }, Number(count));
  return page;
}

/** Returns frames a second while a page scrolls by a gesture. */
async function frames(page) {
  await page.bringToFront();
  await page.waitForTimeout(500);
  await page.evaluate(() => {
    window.frames_ = [];
    const tick = now => {
      window.frames_.push(now);
      window.frame_ = requestAnimationFrame(tick);
    };
    window.frame_ = requestAnimationFrame(tick);
  });
  const session = await page.context().newCDPSession(page);
  await session.send('Input.synthesizeScrollGesture', {x: 640, y: 500, yDistance: -DISTANCE, speed: SPEED, gestureSourceType: 'mouse'});
  return page.evaluate(() => {
    cancelAnimationFrame(window.frame_);
    const times = window.frames_;
    return 1000 * (times.length - 1) / (times.at(-1) - times[0]);
  });
}

const firsts = [];
for (let round = 0; round < Number(rounds); round++) firsts.push(await firstGrid());
console.log(`first picture ${Math.round(median(firsts.map(([image]) => image)))} ms, first grid whole ${Math.round(median(firsts.map(([, all]) => all)))} ms`);
const pages = {grid: await openGrid(), plain: await openPlain()};
const found = {grid: [], plain: []};
for (let round = -1; round < Number(rounds); round++) {
  for (const name of round % 2 ? ['plain', 'grid'] : ['grid', 'plain']) {
    const rate = await frames(pages[name]);
    if (round >= 0) found[name].push(rate);   // The first round warms up.
  }
}
for (const [name, rates] of Object.entries(found)) console.log(`${name}: ${rates.map(rate => rate.toFixed(1)).join(' ')} frames a second`);
console.log(`scroll of ${Number(count).toLocaleString('en')} datapoints: ${(median(found.grid) / median(found.plain)).toFixed(2)} of the frames of a plain page`);
await browser.close();
