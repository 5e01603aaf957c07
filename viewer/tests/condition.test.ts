// Conditions: the cases of tests/conditions/conditions.json, which Python's tests have too, over a dataset and without.

import {readFileSync} from 'node:fs';

import {afterAll, beforeAll, describe, expect, test} from 'vitest';

import {Dataset} from '../src/bags/dataset';
import {RangeCache} from '../src/bags/ranges';
import {filterRows} from '../src/page/filter';
import {RangeServer} from './server';
import {OUT, ROOT} from './setup';

const {cases, errors} = JSON.parse(readFileSync(`${ROOT}tests/conditions/conditions.json`, 'utf8'));

let server: RangeServer;
let dataset: Dataset;

beforeAll(async () => {
  server = await RangeServer.start({values: `${OUT}values`});
  dataset = await Dataset.open(`${server.url}/values/conditions`, new RangeCache());
});
afterAll(() => server.stop());

const rowsOf = async (text: string, of = dataset) => [...await filterRows(of, text, () => true)];

describe('conditions', () => {
  test.each(cases as [string, number[]][])('%s', async (text, expected) => {
    expect(await rowsOf(text)).toEqual(expected);
  });

  test.each(errors as [string, string][])('%s is refused', async (text, message) => {
    await expect(rowsOf(text)).rejects.toThrow(message);
  });

  test('items that are counted and long texts are not read', async () => {
    server.asked.length = 0;
    const opened = await Dataset.open(`${server.url}/values/conditions`, new RangeCache());
    await rowsOf('len(frames) == 0 or photo is none', opened);
    expect(server.bytes('frames.bag')).toBe(0);
    const long = await Dataset.open(`${server.url}/values/long`, new RangeCache());
    expect(await rowsOf('nowhere', long)).toEqual([]);
    expect(server.bytes('long/text.bag')).toBeLessThan(200_000);
  });
});
