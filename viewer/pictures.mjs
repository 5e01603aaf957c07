// Takes the pictures of the viewer for the documentation: `make pictures` calls it. Arguments: the interpreter, and a folder
// with the datasets `demo` and `episodes`, which gets the pictures.

import {spawn} from 'node:child_process';
import {fileURLToPath} from 'node:url';

import {chromium} from 'playwright-core';

const ROOT = fileURLToPath(new URL('../', import.meta.url));
const [python, folder] = process.argv.slice(2);
/** By the name of the picture: the dataset, what follows `#` in the address, and the height in pixels. */
const PICTURES = {grid: ['demo', '', 760], datapoint: ['episodes', 'view=datapoint&at=1&t=1.6', 1080]};

/** Starts `bags view`; returns its process and the address of the page. */
async function serve(path) {
  const server = spawn(python, ['-m', 'bags', 'view', path, '--no-browser'], {env: {...process.env, PYTHONPATH: ROOT, PYTHONUNBUFFERED: '1'}});
  const url = await new Promise((resolve, reject) => {
    let text = '';
    server.stdout.on('data', data => {
      const found = /http:\S+/.exec(text += data);
      if (found) resolve(found[0]);
    });
    server.on('exit', () => reject(new Error(`bags view ${path} ended: ${text}`)));
  });
  return {server, url};
}

const browser = await chromium.launch({executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium', args: ['--no-sandbox']});
for (const [name, [dataset, state, height]] of Object.entries(PICTURES)) {
  const {server, url} = await serve(`${folder}/${dataset}`);
  for (const colorScheme of ['light', 'dark']) {
    const page = await browser.newPage({viewport: {width: 1200, height}, colorScheme});
    await page.goto(`${url.split('#')[0]}#${state}`);
    await page.waitForLoadState('networkidle');
    await page.waitForTimeout(1500);   // Videos seek and curves draw after the last request.
    await page.screenshot({path: `${folder}/view-${name}-${colorScheme}.png`});
    await page.close();
  }
  server.kill();
}
await browser.close();
