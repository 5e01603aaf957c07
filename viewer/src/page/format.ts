// Numbers, bytes and values as short text.

import {NdArray} from '../bags/values';

export function bytesText(count: number): string {
  const units = ['B', 'kB', 'MB', 'GB', 'TB'];
  let unit = 0;
  while (count >= 1000 && unit < units.length - 1) {
    count /= 1000;
    unit += 1;
  }
  return `${count >= 100 || !unit ? Math.round(count) : count.toPrecision(2)} ${units[unit]}`;
}

export function countText(count: number, noun: string): string {
  return `${count.toLocaleString('en')} ${noun}${count === 1 ? '' : 's'}`;
}

export function numberText(value: unknown): string {
  if (typeof value === 'number' && !Number.isInteger(value)) return String(Number(value.toPrecision(6)));
  return String(value);
}

/** A number with the digits that tell it from its neighbours: of float32 if it is one, else of float64. */
export function exactText(value: unknown): string {
  if (typeof value !== 'number' || !Number.isFinite(value) || Number.isInteger(value) || Math.fround(value) !== value) return String(value);
  for (let digits = 1; digits < 9; digits++) {
    const short = Number(value.toPrecision(digits));
    if (Math.fround(short) === value) return String(short);
  }
  return String(Number(value.toPrecision(9)));
}

export function timeText(seconds: number): string {
  const minutes = Math.floor(seconds / 60);
  return `${minutes}:${(seconds - 60 * minutes).toFixed(3).padStart(6, '0')}`;
}

/** A name whose end, which often tells it from others, is kept where it has to be cut. */
export const cutName = (name: string, limit: number) => name.length <= limit ? name : `${name.slice(0, limit / 3)}…${name.slice(1 + Math.floor(limit / 3) - limit)}`;

/** Tells whether a text shows nothing. */
export const isBlank = (text: string) => text.length < 100 && !text.trim();

/** A value on one line. */
export function shortText(value: unknown, limit = 300): string {
  if (value instanceof NdArray) return value.shape.length || !value.data.length ? `${value.dtype} (${value.shape.join(' × ')})` : exactText(value.data[0]);
  if (value instanceof Uint8Array) {
    const head = Array.from(value.subarray(0, 16), byte => byte.toString(16).padStart(2, '0')).join(' ');
    return `${bytesText(value.length)}${value.length ? `: ${head}` : ''}${value.length > 16 ? ' …' : ''}`;
  }
  if (typeof value === 'string') return value.slice(0, limit);
  if (typeof value === 'object' && value !== null) {
    const text = JSON.stringify(value, (_, item) => {
      if (typeof item === 'bigint') return String(item);
      return item instanceof NdArray || item instanceof Uint8Array ? shortText(item) : item;
    });
    return text.slice(0, limit);
  }
  return numberText(value);
}
