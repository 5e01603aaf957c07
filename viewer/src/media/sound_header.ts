// The sample rate and the length of a sound, from the header of its format.

import {matroskaSoundRate, readMatroskaSound} from './matroska';
import {mp4SoundRate, type Read, readMp4Sound, type SoundLength} from './mp4';

const MP3_RATES = [44_100, 48_000, 32_000];
const AAC_RATES = [96_000, 88_200, 64_000, 48_000, 44_100, 32_000, 24_000, 22_050, 16_000, 12_000, 11_025, 8000, 7350];
/** Opus is always decoded to this rate. */
const OPUS_RATE = 48_000;
/** Bytes that are read first: of FLAC and WAV all that is needed. */
export const START = 64;
/** Bytes of the end of an Ogg stream, or of a FLAC without a length, of which the last page or frame is read. */
const TAILS = [1 << 12, 1 << 14, 1 << 17];
const MAX_CHUNKS = 64;
/** Most bytes of an MP3 or AAC stream whose frames are counted. */
const MAX_COUNTED_BYTES = 32 << 20;

/** Returns samples a second; null if the format is unknown or its header is cut off. */
export function soundRate(data: Uint8Array): number | null {
  const view = new DataView(data.buffer, data.byteOffset, data.length);
  try {
    return (rateIn(data, view) ?? 0) || null;
  } catch (error) {
    if (error instanceof RangeError) return null;
    throw error;
  }
}

/** Returns the length of a sound by its header; null if it does not tell. */
export async function readSoundLength(size: number, read: Read): Promise<SoundLength | null> {
  try {
    const found = await lengthIn(size, read);
    return found && Number.isSafeInteger(found.samples) && found.samples >= 0 && found.rate > 0 && found.rate < Infinity ? found : null;
  } catch (error) {
    if (error instanceof RangeError) return null;
    throw error;
  }
}

async function lengthIn(size: number, read: Read): Promise<SoundLength | null> {
  const data = await read(0, Math.min(size, START)), view = new DataView(data.buffer, data.byteOffset, data.length);
  if (has(data, 0, 'fLaC')) return flacLength(view, size, read);
  if (has(data, 0, 'RIFF') || has(data, 0, 'RF64')) {
    return wavLength(size, async (start, stop) => stop <= data.length ? data.subarray(start, stop) : read(start, stop));
  }
  if (has(data, 0, 'OggS')) return oggLength(data, view, size, read);
  if (has(data, 4, 'ftyp') || has(data, 4, 'moov')) return readMp4Sound(size, read);
  if (view.getUint32(0) === 0x1a45dfa3) return readMatroskaSound(size, read);
  return size <= MAX_COUNTED_BYTES ? mpegLength(await read(0, size)) : null;
}

async function flacLength(view: DataView, size: number, read: Read): Promise<SoundLength | null> {
  const rate = flacRate(view, 8), samples = (view.getUint8(21) & 15) * 2 ** 32 + view.getUint32(22);
  if (!rate) return null;
  if (samples) return {samples, rate};
  // Of a stream that was written to a pipe: the last frame has its place.
  const block = view.getUint16(8);
  for (const bytes of TAILS) {
    const start = Math.max(42, size - bytes), tail = await read(start, size);
    for (let at = tail.length - 6; at >= 0; at--) {
      const found = flacFrame(tail, at, block);
      if (found) return {samples: found, rate};
    }
    if (start === 42) break;
  }
  return null;
}

/** Samples up to the end of the FLAC frame that begins at `at`; 0 if none does. */
function flacFrame(data: Uint8Array, at: number, block: number): number {
  if (data[at] !== 0xff || (data[at + 1] & 0xfe) !== 0xf8) return 0;
  const isVarying = data[at + 1] & 1, code = data[at + 2] >> 4, rateCode = data[at + 2] & 15;
  const extra = data[at + 4] < 0x80 ? 0 : Math.clz32(~(data[at + 4] << 24)) - 1;
  let number = extra ? data[at + 4] & 0x3f >> extra : data[at + 4], place = at + 5;
  if (extra < 0 || extra > 6 || code === 0) return 0;
  for (let i = 0; i < extra; i++, place++) number = number * 64 + (data[place] & 0x3f);
  let samples = code === 1 ? 192 : code < 6 ? 576 << code - 2 : code > 7 ? 256 << code - 8 : 0;
  if (code === 6) samples = data[place++] + 1;
  if (code === 7) samples = (data[place] << 8 | data[place + 1]) + 1, place += 2;
  place += rateCode === 12 ? 1 : rateCode > 12 && rateCode < 15 ? 2 : 0;
  let check = 0;
  for (let i = at; i < place; i++) {
    check ^= data[i];
    for (let bit = 0; bit < 8; bit++) check = check & 0x80 ? (check << 1 ^ 0x07) & 0xff : check << 1 & 0xff;
  }
  return place < data.length && check === data[place] ? (isVarying ? number : number * block) + samples : 0;
}

async function wavLength(size: number, read: Read): Promise<SoundLength | null> {
  let rate = 0, align = 0, wide = 0;
  for (let at = 12, chunks = 0; at + 8 <= size && chunks < MAX_CHUNKS; chunks++) {
    const head = await read(at, Math.min(size, at + 24)), view = new DataView(head.buffer, head.byteOffset, head.length);
    const length = view.getUint32(4, true);
    if (has(head, 0, 'ds64')) wide = view.getUint32(16, true) + view.getUint32(20, true) * 2 ** 32;
    if (has(head, 0, 'fmt ')) [rate, align] = [view.getUint32(12, true), view.getUint16(20, true)];
    if (has(head, 0, 'data')) {
      const bytes = Math.min(length === 0xffffffff && wide ? wide : length, size - at - 8);
      return rate && align ? {samples: Math.floor(bytes / align), rate} : null;
    }
    at += 8 + length + length % 2;
  }
  return null;
}

async function oggLength(data: Uint8Array, view: DataView, size: number, read: Read): Promise<SoundLength | null> {
  const start = 27 + view.getUint8(26), rate = oggRate(data, view, start);
  const skipped = has(data, start, 'OpusHead') ? view.getUint16(start + 10, true) : 0;
  if (!rate) return null;
  for (const bytes of TAILS) {
    const from = Math.max(0, size - bytes), tail = await read(from, size), end = new DataView(tail.buffer, tail.byteOffset, tail.length);
    for (let at = tail.length - 27; at >= 0; at--) {
      // A page on which no packet ends has no place.
      if (!has(tail, at, 'OggS') || end.getUint32(at + 10, true) === 0xffffffff) continue;
      return {samples: Math.max(0, end.getUint32(at + 6, true) + end.getUint32(at + 10, true) * 2 ** 32 - skipped), rate};
    }
    if (!from) break;
  }
  return null;
}

/** Counts the frames of MP3 or AAC, but for those of the header of MP3 that says what encoders added. */
function mpegLength(data: Uint8Array): SoundLength | null {
  const view = new DataView(data.buffer, data.byteOffset, data.length), rate = mpegRate(data, view);
  if (!rate) return null;
  let at = tagSize(data), samples = 0;
  for (let first = true; at + 6 <= data.length; first = false) {
    const frame = mpegFrame(data, view, at);
    if (!frame) break;
    const info = first && frame.layer ? infoFrame(data, view, at, frame.samples) : null;
    if (info?.samples) return {samples: info.samples, rate};
    if (!info) samples += frame.samples;
    at += frame.size;
  }
  return samples ? {samples, rate} : null;
}

/** Samples by the Xing or Info header in the first frame of an MP3, without those that encoders add; null if there is none. */
function infoFrame(data: Uint8Array, view: DataView, at: number, samples: number): {samples: number} | null {
  const isMono = data[at + 3] >> 6 === 3, side = samples === 1152 ? isMono ? 17 : 32 : isMono ? 9 : 17, start = at + 4 + side;
  if (!has(data, start, 'Xing') && !has(data, start, 'Info')) return null;
  const flags = view.getUint32(start + 4);
  if (!(flags & 1)) return {samples: 0};
  const tag = start + 8 + 4 * ((flags & 1) + (flags >> 1 & 1)) + 100 * (flags >> 2 & 1) + 4 * (flags >> 3 & 1);
  const added = has(data, tag, 'LA') || has(data, tag, 'Lav') ? view.getUint32(tag + 20) & 0xffffff : 0;
  return {samples: Math.max(0, view.getUint32(start + 8) * samples - (added >> 12) - (added & 0xfff))};
}

const MP3_KILOBITS = [
  [0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320],
  [0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160],
];

/** A frame of MP3 or AAC: its bytes and samples; null if none is there. */
function mpegFrame(data: Uint8Array, view: DataView, at: number): {size: number; samples: number; layer: number} | null {
  const header = view.getUint32(at), layer = header >>> 17 & 3;
  if (header >>> 20 === 0xfff && layer === 0) {
    const size = (data[at + 3] & 3) << 11 | data[at + 4] << 3 | data[at + 5] >> 5;
    return size > 6 ? {size, samples: 1024 * ((data[at + 6] & 3) + 1), layer} : null;
  }
  if (header >>> 21 !== 0x7ff || layer !== 1) return null;
  const version = header >>> 19 & 3, first = version === 3 ? 0 : 1, samples = first ? 576 : 1152;
  const rate = (MP3_RATES[header >>> 10 & 3] ?? 0) / (version === 3 ? 1 : version === 2 ? 2 : 4), bits = MP3_KILOBITS[first][header >>> 12 & 15];
  return rate && bits ? {size: Math.floor(samples / 8 * 1000 * bits / rate) + (header >>> 9 & 1), samples, layer} : null;
}

function rateIn(data: Uint8Array, view: DataView): number | null {
  if (has(data, 0, 'RIFF') || has(data, 0, 'RF64')) return wavRate(data, view);
  if (has(data, 0, 'fLaC')) return flacRate(view, 8);
  if (has(data, 0, 'OggS')) return oggRate(data, view, 27 + view.getUint8(26));
  if (has(data, 0, '.snd')) return view.getUint32(16);
  if (has(data, 4, 'ftyp') || has(data, 4, 'moov')) return mp4SoundRate(data);
  if (view.getUint32(0) === 0x1a45dfa3) return matroskaSoundRate(data);
  return mpegRate(data, view);
}

function wavRate(data: Uint8Array, view: DataView): number | null {
  for (let at = 12; at + 8 <= data.length;) {
    if (has(data, at, 'fmt ')) return view.getUint32(at + 12, true);
    const size = view.getUint32(at + 4, true);
    at += 8 + size + size % 2;
  }
  return null;
}

/** The rate in the stream info, which begins at `start`. */
function flacRate(view: DataView, start: number): number {
  return view.getUint32(start + 10) >>> 12;
}

/** The rate in the first packet of an Ogg stream, which begins at `start`. */
function oggRate(data: Uint8Array, view: DataView, start: number): number | null {
  if (has(data, start, 'OpusHead')) return OPUS_RATE;
  if (has(data, start, '\x01vorbis')) return view.getUint32(start + 12, true);
  if (has(data, start, '\x7fFLAC')) return flacRate(view, start + 17);
  if (has(data, start, 'Speex   ')) return view.getUint32(start + 36, true);
  return null;
}

/** The rate in the header of the first frame of MP3 or AAC, after an ID3 tag. */
function mpegRate(data: Uint8Array, view: DataView): number | null {
  const at = tagSize(data);
  const header = view.getUint32(at);
  if (header >>> 20 === 0xfff && (header >>> 17 & 3) === 0) return AAC_RATES[header >>> 10 & 15] ?? null;
  if (header >>> 21 !== 0x7ff) return null;
  const version = header >>> 19 & 3; // 3: MPEG-1; 2: MPEG-2; 0: MPEG-2.5.
  return (MP3_RATES[header >>> 10 & 3] ?? 0) / (version === 3 ? 1 : version === 2 ? 2 : 4);
}

/** Bytes of the ID3 tag before the first frame. */
function tagSize(data: Uint8Array): number {
  return has(data, 0, 'ID3') ? 10 + [6, 7, 8, 9].reduce((size, i) => size << 7 | data[i] & 127, 0) : 0;
}

function has(data: Uint8Array, at: number, text: string): boolean {
  return Array.from(text).every((char, i) => data[at + i] === char.charCodeAt(0));
}
