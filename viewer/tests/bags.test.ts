// The reader over golden files of other writers, and datasets that the Python library has just written.

import {createHash} from 'node:crypto';
import {readdirSync, readFileSync} from 'node:fs';

import {afterEach, describe, expect, test} from 'vitest';

import {Bag} from '../src/bags/bag';
import {Dataset} from '../src/bags/dataset';
import {findKey} from '../src/bags/keys';
import {RangeCache, RemoteFile} from '../src/bags/ranges';
import {parseType} from '../src/bags/spec';
import {NdArray} from '../src/bags/values';
import {type Options, RangeServer} from './server';
import {OUT, ROOT, startView} from './setup';

const GOLDEN = `${ROOT}tests/golden`;
const EXPECTED = JSON.parse(readFileSync(`${GOLDEN}/expected.json`, 'utf8'));
const VALUES = JSON.parse(readFileSync(`${OUT}values/expected.json`, 'utf8'));

let server: RangeServer;
afterEach(() => server?.stop());

async function serve(options: Options = {}): Promise<RangeCache> {
  server = await RangeServer.start({golden: GOLDEN, values: `${OUT}values`, tests: `${ROOT}viewer/tests`}, options);
  return new RangeCache();
}

function plain(value: unknown): unknown {
  if (value instanceof NdArray) {
    let items: unknown[] = Array.from(value.data as ArrayLike<unknown>);
    for (const length of value.shape.slice(1).reverse()) {
      const rows = length ? items.length / length : value.shape.slice(0, -1).reduce((a, b) => a * b, 1);
      items = Array.from({length: rows}, (_, i) => items.slice(i * length, (i + 1) * length));
    }
    return items;
  }
  if (value instanceof Uint8Array) return Array.from(value);
  if (typeof value === 'bigint') return String(value);
  if (Array.isArray(value)) return value.map(plain);
  if (value && typeof value === 'object') {
    return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, plain(item)]));
  }
  return value;
}

async function rowOf(dataset: Dataset, index: number): Promise<unknown> {
  const entries = [...dataset.spec.keys()].map(async name => [name, plain(await dataset.value(index, name))]);
  return Object.fromEntries(await Promise.all(entries));
}

describe('bags of other writers', () => {
  const names = readdirSync(GOLDEN).filter(name => /^(bagz|sackli)-.*\.bagz?$/.test(name));
  test.each(names.filter(name => name in EXPECTED && !name.includes('dictionary')))('%s', async name => {
    const cache = await serve();
    const file = await RemoteFile.open(cache, `${server.url}/golden/${name}`);
    const beside = name.includes('separate') ? await RemoteFile.open(cache, `${server.url}/golden/limits.${name}`) : undefined;
    const bag = await Bag.open(file, {beside});
    const records = await bag.records(0, bag.count);
    expect(records.map(record => Buffer.from(record).toString('base64'))).toEqual(EXPECTED[name].records);
  });

  test('with a dictionary', async () => {
    const cache = await serve();
    const bag = await Bag.open(await RemoteFile.open(cache, `${server.url}/values/sackli.bagz`));
    const records = await bag.records(0, bag.count);
    expect(records.map(record => Buffer.from(record).toString('base64'))).toEqual(EXPECTED['sackli-dictionary.bagz'].records);
  });

  test('without the dictionary', async () => {
    const cache = await serve();
    const bag = await Bag.open(await RemoteFile.open(cache, `${server.url}/golden/sackli-dictionary.bagz`));
    await expect(bag.record(0)).rejects.toThrow(/record 0: needs the zstd dictionary 1588462240, which is not there/);
  });
});

describe('datasets of other writers', () => {
  test.each(['bags05-dataset', 'bags05-sharded', 'granular-dataset', 'granular-sharded'])('%s', async name => {
    const cache = await serve();
    const dataset = await Dataset.open(`${server.url}/golden/${name}`, cache);
    const rows = EXPECTED[name].rows;
    expect(dataset.length).toBe(rows.length);
    for (let index = 0; index < rows.length; index++) {
      const found = await rowOf(dataset, index) as Record<string, unknown>;
      for (const [field, value] of Object.entries(rows[index])) {
        const wanted = typeof value === 'number' && Math.abs(value) > 2 ** 53 ? BigInt(value) : value;
        const got = typeof wanted === 'bigint' ? Number(found[field]) : found[field];
        expect(got, `${index} ${field}`).toEqual(typeof wanted === 'bigint' ? Number(wanted) : wanted);
      }
    }
  });
});

describe('datasets of bags', () => {
  test.each(['single', 'indexed', 'probed'])('%s reads as in Python', async name => {
    const cache = await serve();
    const dataset = await Dataset.open(`${server.url}/values/${name}`, cache);
    expect(dataset.length).toBe(VALUES.length);
    expect(dataset.shardCount).toBe(name === 'single' ? 1 : 5);
    for (let index = 0; index < VALUES.length; index++) expect(await rowOf(dataset, index)).toEqual(VALUES[index]);
    expect(dataset.facts('state')).toEqual({rate: 10, unit: 'rad', names: ['a', 'b', 'c']});
    expect(server.asked.every(({method, range}) => method === 'GET' && range !== undefined)).toBe(true);
  });

  test('a range of a sequence reads those items', async () => {
    const cache = await serve();
    const dataset = await Dataset.open(`${server.url}/values/single`, cache);
    expect(await dataset.value(2, 'words', 1, 2)).toEqual(['w1']);
    expect(await dataset.count(2, 'words')).toBe(2);
    expect(await dataset.count(3, 'words')).toBe(null);
  });

  test('columns', async () => {
    const cache = await serve();
    const dataset = await Dataset.open(`${server.url}/values/probed`, cache);
    const found = [];
    for await (const {values} of dataset.column('maybe')) found.push(...values);
    expect(found).toEqual(VALUES.map((row: {maybe: string}) => row.maybe));
  });

  test('fields in the order of the author', async () => {
    const cache = await serve();
    const dataset = await Dataset.open(`${server.url}/values/ordered`, cache);
    expect([...dataset.spec.keys()]).toEqual(['words', 'id', 'label']);
    expect(await rowOf(dataset, 0)).toEqual({id: 7, label: 'seven', words: ['a', 'b']});
    expect(dataset.metadata.fields?.id).toEqual({unit: 'm'});
  });

  test('shards of which some have more optional fields', async () => {
    const cache = await serve();
    const dataset = await Dataset.open(`${server.url}/values/wider`, cache);
    expect([...dataset.spec.keys()]).toEqual(['id', 'more']);
    expect(await rowOf(dataset, 1)).toEqual({id: 1, more: null});
    expect(await rowOf(dataset, 4)).toEqual({id: 4, more: 'more 1'});
    const found = [];
    for await (const {values} of dataset.column('more')) found.push(...values);
    expect(found).toEqual([null, null, null, null, 'more 1', 'more 2']);
  });

  test('keys', async () => {
    const cache = await serve();
    const dataset = await Dataset.open(`${server.url}/values/photos`, cache);
    expect(await findKey(dataset, 'id', '321')).toBe(321);
    expect(await findKey(dataset, 'text', 'photo 17 of a foxan owlan owl')).toBe(17);
    expect(await findKey(dataset, 'text', 'photo 17')).toBe(-1);
    expect(await findKey(dataset, 'label', '1')).toBe(null);
  });

  test('one that is being written shows what was flushed', async () => {
    const cache = await serve();
    const dataset = await Dataset.open(`${server.url}/values/unclosed`, cache);
    expect(dataset.length).toBe(10);
    expect(await rowOf(dataset, 8)).toEqual({id: 8, words: ['w8', 'w8']});
  });

  test('an empty one', async () => {
    const cache = await serve();
    const dataset = await Dataset.open(`${server.url}/values/empty`, cache);
    expect(dataset.length).toBe(0);
  });

  test('damage is an error of its record or field; the rest stays readable', async () => {
    const cache = await serve();
    const dataset = await Dataset.open(`${server.url}/values/damaged`, cache);
    await expect(dataset.value(4, 'text')).rejects.toThrow(/text\.bagz, record 4: differs from the checksum/);
    await expect(dataset.value(4, 'plain')).rejects.toThrow(/plain\.bag: expected limits at the end/);
    expect(await dataset.value(5, 'text')).toContain('a longer text 5');
    expect(await dataset.value(4, 'id')).toBe(4);
  });

  test('fields with a dictionary', async () => {
    const cache = await serve();
    const dataset = await Dataset.open(`${server.url}/values/trained`, cache);
    for (let index = 0; index < dataset.length; index++) {
      expect(await dataset.value(index, 'text')).toBe(`a short text about the number ${index * 7919 % 1000}, ${index}`);
    }
    expect(server.asked.filter(({path}) => path.endsWith('text.zdict'))).toHaveLength(1);
    const other = await Dataset.open(`${server.url}/values/untrained`, cache);
    await expect(other.value(0, 'text')).rejects.toThrow(/text\.bagz, record 0: needs the zstd dictionary \d+, got a file that is none/);
    expect(await other.value(0, 'id')).toBe(0);
  });

  test('views that are saved as links read as in Python from bags view', async () => {
    for (const [name, field] of [['probed', ''], ['trained', 'text']]) {
      const {url, process} = await startView(`${OUT}values/${name}_view`);
      try {
        const dataset = await Dataset.open(new URL(new URL(url).searchParams.get('data')!, url).href, new RangeCache());
        for (let index = 0; index < (field ? dataset.length : VALUES.length); index++) {
          if (!field) expect(await rowOf(dataset, index)).toEqual(VALUES[index]);
          else expect(await dataset.value(index, field)).toBe(`a short text about the number ${index * 7919 % 1000}, ${index}`);
        }
        if (field) continue;
        const found = [];
        for await (const {values} of dataset.column('maybe')) found.push(...values);
        expect(found).toEqual(VALUES.map((row: {maybe: string}) => row.maybe));
        expect(dataset.counts?.get('id')).toBe(VALUES.length);
      } finally {
        process.kill('SIGINT');
      }
    }
  });

  test('links from a web server', async () => {
    const cache = await serve();
    const dataset = await Dataset.open(`${server.url}/values/linked`, cache);
    const image = async (index: number) => createHash('sha256').update((await dataset.records(index, 'image'))![0]).digest('hex');
    const photos = await Dataset.open(`${server.url}/values/photos`, cache);
    for (const index of [0, 1]) {
      const [record] = (await photos.records(index + 3, 'image'))!;
      expect(await image(index)).toBe(createHash('sha256').update(record).digest('hex'));
    }
    await expect(dataset.value(0, 'outside')).rejects.toThrow('outside of the folder of the dataset, in ../../video.mp4');
    await expect(dataset.value(2, 'image')).rejects.toThrow('changed.png: has changed since it was linked');
    expect(server.asked.filter(({path}) => path.endsWith('video.mp4'))).toEqual([]);
    const view = await Dataset.open(`${server.url}/values/probed_view`, cache);
    await expect(view.value(0, 'text')).rejects.toThrow('outside of the folder of the dataset');
    const damaged = await Dataset.open(`${server.url}/values/linked_damaged`, cache);
    await expect(damaged.value(0, 'image')).rejects.toThrow(/image\.links, record 0: the link differs from its digest/);
  });

  test('a place without a dataset', async () => {
    const cache = await serve();
    await expect(Dataset.open(`${server.url}/values`, cache)).rejects.toThrow('is not a dataset: there is no spec.json');
  });
});

describe('servers', () => {
  test('neighbouring reads are merged, and nothing is read twice', async () => {
    const cache = await serve();
    const file = await RemoteFile.open(cache, `${server.url}/golden/expected.json`);
    server.asked.length = 0;
    const parts = await Promise.all([file.read(40000, 40010), file.read(90000, 100000), file.read(40005, 70000)]);
    expect(parts.map(part => part.length)).toEqual([10, 10000, 29995]);
    expect(Buffer.from(parts[1])).toEqual(readFileSync(`${GOLDEN}/expected.json`).subarray(90000, 100000));
    await file.read(40000, 100000);
    expect(server.asked).toHaveLength(1);
  });

  test('one that ignores ranges is named, not downloaded', async () => {
    const cache = await serve({ranges: false});
    await expect(RemoteFile.open(cache, `${server.url}/golden/expected.json`)).rejects.toThrow('ignores the header Range');
  });

  test('no read is outside the file', async () => {
    const cache = await serve();
    const file = await RemoteFile.open(cache, `${server.url}/golden/bagz-plain.bag`);
    await expect(file.read(600, 1000)).rejects.toThrow('outside the file (631 bytes)');
  });
});

test('types', () => {
  expect(parseType('jpeg(95)[]?')).toMatchObject({word: 'jpeg', args: ['95'], sequence: true, optional: true});
  expect(parseType('array(f4, 2,?)')?.args).toEqual(['f4', '2', '?']);
  expect(parseType('array(datetime64[us],2)[]')).toMatchObject({args: ['datetime64[us]', '2'], sequence: true});
  for (const text of ['', 'a b', 'x(', 'x(,)', 'x[]?[]']) expect(parseType(text)).toBe(null);
});
