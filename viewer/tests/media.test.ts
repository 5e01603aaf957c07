// What browsers lack, and the filter, without a browser.

import {readFileSync} from 'node:fs';

import {describe, expect, test} from 'vitest';

import {Dataset} from '../src/bags/dataset';
import {RangeCache} from '../src/bags/ranges';
import {readMatroska} from '../src/media/matroska';
import {readMp4} from '../src/media/mp4';
import {decodeGrayPng, isDeepPng} from '../src/media/png';
import {transform} from '../src/media/sound';
import {readSoundLength, soundRate} from '../src/media/sound_header';
import {RangeServer} from './server';
import {OUT} from './setup';

test('the header of an MP4', async () => {
  const data = readFileSync(`${OUT}values/video.mp4`);
  let read = 0;
  const info = await readMp4(data.length, async (start, stop) => {
    read += stop - start;
    return new Uint8Array(data.subarray(start, stop));
  });
  expect(info).toMatchObject({codec: 'avc1', width: 256, height: 192, frames: 600});
  expect(info!.times.length).toBe(601);
  expect(info!.times[30]).toBeCloseTo(1, 9);
  expect(read).toBeLessThan(40_000);
});

test('the header of a Matroska', async () => {
  const cache = await RangeServer.start({values: `${OUT}values`});
  const dataset = await Dataset.open(`${cache.url}/values/formats`, new RangeCache());
  for (const [field, codec] of [['mkv_video', 'V_FFV1'], ['webm_video', 'V_VP9']]) {
    const [data] = (await dataset.records(0, field))!;
    const read = async (start: number, stop: number) => data.subarray(start, stop);
    const info = await readMatroska(data.length, read);
    expect(info, field).toMatchObject({codec, width: 256, height: 64, frames: 10});
    expect(info!.times[10]).toBeCloseTo(1, 6);
    expect(await readMp4(data.length, read)).toBe(null);
    for (let at = 0; at < 600; at++) {
      const bad = Uint8Array.from(data);
      bad[at] ^= 0xff;
      const found = await readMatroska(bad.length, async (start, stop) => bad.subarray(start, stop));
      expect(found === null || found.frames < 4_000_001).toBe(true);
    }
  }
  expect(await readMatroska(3, async () => new Uint8Array(3))).toBe(null);
  cache.stop();
});

test('damaged headers of MP4s end in null', async () => {
  const data = readFileSync(`${OUT}values/clip0.mp4`);
  for (let at = 0; at < 1200; at += 7) {
    const bad = Uint8Array.from(data);
    bad[at] ^= 0xff;
    const info = await readMp4(bad.length, async (start, stop) => bad.slice(start, stop)).catch(error => {
      expect(error).toBeInstanceOf(RangeError);
      return null;
    });
    expect(info === null || info.frames < 4_000_001).toBe(true);
  }
});

describe('the times of frames', () => {
  const videos = JSON.parse(readFileSync(`${OUT}values/headers.json`, 'utf8')) as {name: string; data: string; times: number[]}[];

  test.each(videos)('$name', async ({data, times}) => {
    const bytes = Uint8Array.from(Buffer.from(data, 'base64')), read = async (start: number, stop: number) => bytes.slice(start, stop);
    const info = await readMp4(bytes.length, read) ?? await readMatroska(bytes.length, read);
    expect(info!.frames).toBe(24);
    expect(info!.times.length).toBe(25);
    times.forEach((time, i) => expect(Math.abs(info!.times[i] - time), `frame ${i}: ${info!.times[i]}, ${time}`).toBeLessThan(1e-6));
  });
});

describe('the length of a sound', () => {
  const sounds = JSON.parse(readFileSync(`${OUT}values/sounds.json`, 'utf8')) as {name: string; data: string; rate: number; samples: number}[];

  test.each(sounds.filter(({name}) => name !== 'au'))('$name, as Python decodes it', async ({data, rate, samples}) => {
    const bytes = Uint8Array.from(Buffer.from(data, 'base64'));
    const length = (part: Uint8Array) => readSoundLength(part.length, async (start, stop) => part.slice(start, stop));
    expect(await length(bytes)).toEqual({samples, rate});
    // Damage ends in a number or in null.
    for (let at = 0; at < Math.min(bytes.length, 400); at += 3) {
      const bad = Uint8Array.from(bytes);
      bad[at] ^= 0xff;
      for (const part of [bad, bytes.slice(0, at)]) {
        const found = await length(part);
        expect(found === null || found.samples >= 0 && found.rate > 0).toBe(true);
      }
    }
  });
});

describe('the rate of a sound', () => {
  const sounds = JSON.parse(readFileSync(`${OUT}values/sounds.json`, 'utf8')) as {name: string; data: string; rate: number}[];

  test.each(sounds)('$name', ({data, rate}) => {
    const bytes = Uint8Array.from(Buffer.from(data, 'base64'));
    expect(soundRate(bytes)).toBe(rate);
    for (let length = 0; length < Math.min(bytes.length, 300); length++) {
      expect([null, rate]).toContain(soundRate(bytes.slice(0, length)));
    }
  });

  test('of bytes that are no sound', () => {
    expect(soundRate(new Uint8Array(100))).toBe(null);
    expect(soundRate(new Uint8Array(0))).toBe(null);
  });
});

describe('16-bit PNG', () => {
  const images = JSON.parse(readFileSync(`${OUT}values/depth.json`, 'utf8')) as {png: string; values: number[]}[];

  test('as Python decodes it, with every filter', async () => {
    for (const {png, values} of images) {
      const data = Uint8Array.from(Buffer.from(png, 'base64'));
      expect(isDeepPng(data)).toBe(true);
      const {width, height, values: found} = await decodeGrayPng(data);
      expect([width, height]).toEqual([31, 17]);
      expect(Array.from(found)).toEqual(values);
    }
  });

  test('a cut off one is an error', async () => {
    const data = Uint8Array.from(Buffer.from(images[0].png, 'base64'));
    await expect(decodeGrayPng(data.subarray(0, data.length >> 1))).rejects.toThrow();
  });
});

test('the Fourier transform of a sine has one peak', () => {
  const real = Float32Array.from({length: 64}, (_, i) => Math.cos(2 * Math.PI * 5 * i / 64)), imaginary = new Float32Array(64);
  transform(real, imaginary);
  const sizes = Array.from(real, (value, i) => Math.hypot(value, imaginary[i]));
  expect(sizes.indexOf(Math.max(...sizes))).toBe(5);
  expect(sizes[5]).toBeCloseTo(32, 3);
  expect(sizes[6]).toBeCloseTo(0, 3);
});
