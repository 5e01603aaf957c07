// Each state of the page, at three sizes and in both themes: nothing runs off it, and axe finds nothing serious. Screenshots
// are left in tests/out/screenshots.

import {mkdirSync} from 'node:fs';

import {type Browser, type Page} from 'playwright-core';
import {afterAll, beforeAll, expect, test} from 'vitest';

import type {RangeServer} from './server';
import {OUT, seriousFindings, serveValues, startBrowser} from './setup';

const SHOTS = `${OUT}screenshots`;
const SIZES = {desk: {width: 1440, height: 900}, laptop: {width: 1280, height: 720}, phone: {width: 390, height: 844}};

/** By its name: the dataset, what follows # in the address, and what makes the state or waits for it. */
const STATES: Record<string, [string, string, (page: Page) => Promise<unknown>]> = {
  photos: ['photos', '', page => page.locator('.card img').first().waitFor()],
  far: ['million', 'at=150000', page => page.getByText('150,000', {exact: true}).waitFor()],
  marked: ['untimed', '', async page => {
    for (const nth of [0, 1]) await page.locator('.card .mark').nth(nth).click();
    await page.getByRole('link', {name: 'Compare', exact: true}).waitFor();
    await page.getByLabel('Remove all marks').waitFor();
  }],
  chooser: ['drawn', '', page => page.getByText('Shown').click()],
  'share-open': ['untimed', 'filter=cat', page => page.getByText('Share').click()],
  completions: ['untimed', '', async page => {
    await page.getByLabel('Filter').click();
    await page.getByRole('option').first().waitFor();
  }],
  'filter-wrong': ['untimed', 'filter=lenght+%3E+3', page => page.getByRole('alert').waitFor()],
  keys: ['untimed', '', async page => {
    await page.getByLabel('Keys').first().click();
    await page.getByRole('dialog').waitFor();
  }],
  media: ['media', 'view=datapoint&at=1&t=2', page => page.locator('[data-field="action"] .u-over').waitFor()],
  arrays: ['drawn', 'view=datapoint', page => page.locator('[data-layer="boxes"]').waitFor()],
  values: ['formats', 'view=datapoint', page => page.locator('[data-field="array_complex"] td').first().waitFor()],
  texts: ['strange', 'view=datapoint', page => page.locator('[data-field="d"] .tree').waitFor()],
  unfit: ['unfit', 'view=datapoint&panels=title&panels=label&panels=mask&panels=curve&panels=joints&panels=words', page => page.getByText('names: 2 for 3 columns').waitFor()],
  facts: ['episode', 'view=fields', page => page.locator('.joints').first().waitFor()],
  'not-opened': ['nothing', '', page => page.getByText('Not opened').waitFor()],
  ask: ['', '', page => page.getByText('Look at a dataset').waitFor()],
};

let browser: Browser;
let server: RangeServer;

beforeAll(async () => {
  mkdirSync(SHOTS, {recursive: true});
  browser = await startBrowser();
  server = await serveValues();
});
afterAll(async () => {
  await browser?.close();
  server?.stop();
});

test.each(Object.keys(STATES))('%s', async name => {
  const [dataset, hash, make] = STATES[name];
  for (const [size, viewport] of Object.entries(SIZES)) {
    const page = await browser.newPage({viewport, colorScheme: 'light', bypassCSP: true});
    const problems: string[] = [];
    page.on('pageerror', error => problems.push(error.message));
    await page.goto(`${server.url}/viewer/${dataset && `?data=../data/${dataset}`}${hash && `#${hash}`}`);
    await make(page);
    await page.waitForTimeout(300);
    for (const theme of ['light', 'dark']) {
      const where = `${name} ${size} ${theme}`;
      // As the button of the theme does, which would close what is open.
      if (theme === 'dark') await page.evaluate(() => {
        document.documentElement.dataset.theme = 'dark';
        dispatchEvent(new Event('theme'));
        return new Promise(resolve => requestAnimationFrame(() => requestAnimationFrame(resolve)));
      });
      await page.screenshot({path: `${SHOTS}/state-${name}-${size}-${theme}.png`});
      expect(await page.evaluate(() => document.documentElement.dataset.theme), where).toBe(theme);
      // Whatever scrolls sideways in the page does so in a box of its own.
      const wide = await page.evaluate(() => ['html', '.panels', '.facts', '.grid', '.bar', '.steps'].filter(css => {
        const element = document.querySelector(css);
        return element && element.scrollWidth > Math.min(element.clientWidth, innerWidth) + 1;
      }));
      expect(wide, where).toEqual([]);
      expect(await seriousFindings(page), where).toEqual([]);
      expect(problems, where).toEqual([]);
    }
    await page.close();
  }
}, 180_000);
