// The sample rate and the length of a sound, from the header of its format.

import type {Location} from '../bags/bag';
import {matroskaSoundRate} from './matroska';
import {mp4SoundRate} from './mp4';

const MP3_RATES = [44_100, 48_000, 32_000];
const AAC_RATES = [96_000, 88_200, 64_000, 48_000, 44_100, 32_000, 24_000, 22_050, 16_000, 12_000, 11_025, 8000, 7350];
/** Opus is always decoded to this rate. */
const OPUS_RATE = 48_000;

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

/** Returns the start of a record, with the header of a sound. */
export async function readStart({file, start, stop}: Location): Promise<Uint8Array> {
  return file.read(start, Math.min(stop, start + 4096));
}

/** Returns the seconds of WAV and FLAC, of which the start and the size are known; null of other formats, or without a header. */
export function soundSeconds(data: Uint8Array, size: number): number | null {
  const view = new DataView(data.buffer, data.byteOffset, data.length);
  try {
    if (has(data, 0, 'fLaC')) return ((view.getUint8(21) & 15) * 2 ** 32 + view.getUint32(22)) / flacRate(view, 8) || null;
    if (!has(data, 0, 'RIFF')) return null;
    for (let at = 12, bytesPerSecond = 0; at + 8 <= data.length;) {
      const length = view.getUint32(at + 4, true);
      if (has(data, at, 'fmt ')) bytesPerSecond = view.getUint32(at + 16, true);
      if (has(data, at, 'data')) return bytesPerSecond ? Math.min(length, size - at - 8) / bytesPerSecond : null;
      at += 8 + length + length % 2;
    }
  } catch (error) {
    if (!(error instanceof RangeError)) throw error;
  }
  return null;
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
  let at = 0;
  if (has(data, 0, 'ID3')) at = 10 + [6, 7, 8, 9].reduce((size, i) => size << 7 | data[i] & 127, 0);
  const header = view.getUint32(at);
  if (header >>> 20 === 0xfff && (header >>> 17 & 3) === 0) return AAC_RATES[header >>> 10 & 15] ?? null;
  if (header >>> 21 !== 0x7ff) return null;
  const version = header >>> 19 & 3; // 3: MPEG-1; 2: MPEG-2; 0: MPEG-2.5.
  return (MP3_RATES[header >>> 10 & 3] ?? 0) / (version === 3 ? 1 : version === 2 ? 2 : 4);
}

function has(data: Uint8Array, at: number, text: string): boolean {
  return Array.from(text).every((char, i) => data[at + i] === char.charCodeAt(0));
}
