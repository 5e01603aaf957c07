// Streams: the cases of tests/streams/cases.json, which Python's tests have too, and what is read for them.

import {readFileSync} from 'node:fs';

import {afterAll, beforeAll, describe, expect, test} from 'vitest';

import {Dataset} from '../src/bags/dataset';
import {RangeCache} from '../src/bags/ranges';
import {elementsOf, measure, measures, openStream, type Stream} from '../src/bags/streams';
import {filterRows} from '../src/page/filter';
import {RangeServer} from './server';
import {OUT, ROOT} from './setup';

interface Expected {
  type?: string;
  elements?: number[];
  seconds?: (number | null)[];
  times?: ([number, number] | null)[];
  at?: [number, number, number][];
  between?: [number, number, number, number, number][];
  has_times?: boolean;
  error?: string;
}

interface Case {
  name: string;
  expected: Record<string, Expected>;
  conditions?: [string, number[]][];
}

const {cases}: {cases: Case[]} = JSON.parse(readFileSync(`${ROOT}tests/streams/cases.json`, 'utf8'));
const streams = cases.flatMap(({name, expected}, number) => Object.entries(expected).map(([field, of]) => ({name, number, field, of})));
const conditions = cases.flatMap(({name, conditions: some = []}, number) => some.map(([text, rows]) => ({name, number, text, rows})));

let server: RangeServer;

beforeAll(async () => { server = await RangeServer.start({values: `${OUT}values`}); });
afterAll(() => server.stop());

const open = (name: string | number) => Dataset.open(`${server.url}/values/${name}`, new RangeCache());

async function all(dataset: Dataset, field: string) {
  const found = [];
  for await (const {values} of measures(dataset, field, () => {})) found.push(...values);
  return found;
}

const near = (found: number, wanted: number) => expect(Math.abs(found - wanted), `${found} is not ${wanted}`).toBeLessThan(1e-6);

describe('cases', () => {
  test.each(streams)('$name: $field', async ({number, field, of}) => {
    const dataset = await open(`streams/${number}`);
    if (of.error !== undefined) {
      await expect(openStream(dataset, 0, field)).rejects.toThrow(of.error);
      await expect(all(dataset, field)).rejects.toThrow(of.error);
      return;
    }
    expect(await elementsOf(dataset, field)).toBe(of.type);
    const found = await all(dataset, field);
    expect(found.map(value => value?.elements ?? 0)).toEqual(of.elements);
    expect(await Promise.all(found.map((_, index) => measure(dataset, index, field)))).toEqual(found);
    of.seconds?.forEach((seconds, index) => seconds === null ? expect(found[index]).toBe(null) : near(found[index]!.seconds!, seconds));
    const opened = await Promise.all(found.map((_, index) => openStream(dataset, index, field)));
    expect(opened.map(stream => stream?.count ?? 0)).toEqual(of.elements);
    if (of.has_times === false) {
      expect(opened.map(stream => stream!.hasTimes)).toEqual(found.map(() => false));
      expect(found.map(value => value!.seconds)).toEqual(found.map(() => null));
      return;
    }
    of.seconds?.forEach((seconds, index) => seconds === null ? expect(opened[index]).toBe(null) : near(opened[index]!.duration, seconds));
    of.times?.forEach((ends, index) => {
      const times = opened[index]?.times() ?? [];
      expect(times.length).toBe(of.elements![index]);
      if (!ends) return;
      near(times[0], ends[0]);
      near(times[times.length - 1], ends[1]);
      near(opened[index]!.time(0), ends[0]);
    });
    const stream = (index: number): Stream => opened[index]!;
    for (const [index, seconds, element] of of.at ?? []) expect(stream(index).at(seconds), `at ${seconds}`).toBe(element);
    for (const [index, start, stop, first, end] of of.between ?? []) expect(stream(index).between(start, stop), `${start} to ${stop}`).toEqual([first, end]);
  });

  test.each(conditions)('$name: $text', async ({number, text, rows}) => {
    expect([...await filterRows(await open(`streams/${number}`), text, () => true)]).toEqual(rows);
  });
});

test('conditions on streams are refused where there are none', async () => {
  const dataset = await open('streams/0'), images = await open(`streams/${cases.findIndex(({name}) => name === 'images without times')}`);
  await expect(filterRows(images, 'duration(cam) > 1', () => true)).rejects.toThrow('cam is jpeg[]: duration takes');
  await expect(filterRows(dataset, 'elements(nowhere) > 1', () => true)).rejects.toThrow("no field 'nowhere'");
  const utterances = await open(`streams/${cases.findIndex(({name}) => name === 'utterances that are items')}`);
  await expect(filterRows(utterances, 'duration(said) > 1', () => true)).rejects.toThrow('field said: its items have no times');
  expect([...await filterRows(utterances, 'elements(said) == 3', () => true)]).toEqual([0]);
});

test('types of packages are items to look at, and are not measured', async () => {
  const number = cases.findIndex(({name}) => name === 'images'), dataset = await open(`streams/${number}`);
  dataset.metadata.fields!.cam = {...dataset.facts('cam'), package: 'other-package'};
  expect((await openStream(dataset, 0, 'cam'))!.duration).toBeCloseTo(0.6, 9);
  await expect(filterRows(dataset, 'elements(cam) == 6', () => true)).rejects.toThrow('a type of the package other-package, whose elements this page does not know');
});

describe('durations read headers', () => {
  test.each([['flac', 200, 64], ['wav', 200, 64], ['ogg', 200, 8192]])('%s', async (field, count, bytes) => {
    const dataset = await open('durations');
    await filterRows(dataset, 'id >= 0', () => true);
    await dataset.locations(0, field);  // The limits of the bag.
    server.asked.length = 0;
    expect([...await filterRows(dataset, `duration(${field}) > 1.25`, () => true)]).toEqual([...Array(count).keys()].filter(i => i % 2));
    const asked = server.asked.filter(({path}) => path.includes(`${field}.bag`));
    const total = asked.reduce((sum, each) => sum + each.bytes, 0);
    console.log(`${field}: ${total} bytes in ${asked.length} requests for the durations of ${count} sounds`);
    expect(total).toBeLessThanOrEqual(count * bytes);
    // What is known is not read again.
    server.asked.length = 0;
    await filterRows(dataset, `duration(${field}) > 2`, () => true);
    expect(server.asked).toEqual([]);
  });

  test('videos', async () => {
    const dataset = await open('media'), size = (await dataset.location(0, 'video'))!;
    server.asked.length = 0;
    expect([...await filterRows(dataset, 'duration(video) == 20 and elements(clips) == 180 and duration(clips) == 6', () => true)]).toEqual([0, 1, 2, 3]);
    expect(server.bytes('video.bag') + server.bytes('clips.bag')).toBeLessThan((size.stop - size.start) / 50);
  });
});
