// Records as values: what each type's decoder makes of the bytes. Media stay bytes.

import {decode as decodeMsgpack} from '@msgpack/msgpack';

import {CorruptError} from './errors';
import type {FieldType} from './spec';

/** Numbers with a shape, in C order. */
export class NdArray {
  /** Of complex numbers: each as text; `data` has their magnitudes. */
  complex?: string[];

  constructor(readonly dtype: string, readonly shape: number[], readonly data: ArrayLike<number> | string[]) {}

  get isNumeric(): boolean {
    return !this.data.length || typeof this.data[0] === 'number';
  }

  /** The elements; those of integers beyond 2^53 as bigints. */
  get items(): unknown[] {
    const isInteger = 'iu'.includes(codeOf(this.dtype).code) && !/datetime|timedelta/.test(this.dtype);
    return !this.isNumeric && isInteger ? Array.from(this.data, BigInt) : Array.from(this.data as ArrayLike<unknown>);
  }
}

const IMAGES = new Set(['jpeg', 'jpg', 'png', 'webp', 'avif', 'image']);
const VIDEOS = new Set(['mp4', 'webm', 'mkv', 'video']);
const SOUNDS = new Set(['wav', 'flac', 'opus', 'audio']);
const NUMBERS = new Set(['int', 'uint', 'float', 'bool', 'i64', 'u64']);

/** How a type's values are shown. */
export type Kind = 'image' | 'video' | 'audio' | 'text' | 'number' | 'array' | 'tree' | 'bytes';

export function kindOf({word}: FieldType): Kind {
  if (IMAGES.has(word)) return 'image';
  if (VIDEOS.has(word)) return 'video';
  if (SOUNDS.has(word)) return 'audio';
  if (NUMBERS.has(word)) return 'number';
  if (word === 'utf8') return 'text';
  if (word === 'array') return 'array';
  return ['json', 'msgpack', 'tree'].includes(word) ? 'tree' : 'bytes';
}

/** Decodes a record. Integers beyond 2^53 are bigints; media and unknown types stay bytes. */
export function decodeValue(type: FieldType, data: Uint8Array, starts: boolean, where: string): unknown {
  try {
    return decode(type, data, starts);
  } catch (error) {
    throw new CorruptError(where, null, `expected ${type.text}: ${(error as Error).message}`);
  }
}

function decode({word, args}: FieldType, data: Uint8Array, starts: boolean): unknown {
  const size = Number(args[0] ?? 8);
  switch (word) {
    case 'utf8': return new TextDecoder('utf-8', {fatal: true}).decode(data);
    case 'bool': expect(data.length === 1 && data[0] < 2, 'one byte, 0 or 1'); return data[0] === 1;
    case 'int': return integer(data, !starts && (args.length > 0 || data.length === 8), args.length && !starts ? size : data.length);
    case 'i64': return integer(data, true, 8);
    case 'uint': return integer(data, false, size);
    case 'u64': return integer(data, false, 8);
    case 'float': expect(data.length === size, `${size} bytes, got ${data.length}`); return elements(`f${size}`, data)[0];
    case 'json': return parseJson(new TextDecoder('utf-8', {fatal: true}).decode(data));
    case 'msgpack': return unpack(data);
    case 'tree': return withArrays(unpack(data), 0);
    case 'array': {
      if (args.length) return fixedArray(args, data);
      const parts = unpack(data);
      expect(Array.isArray(parts) && parts.length === 3, 'an array as dtype, shape and bytes');
      return arrayOf(...parts as [unknown, unknown, unknown]);
    }
    default: return data;
  }
}

/** Marks the digits of an integer in a JSON text; no other text begins with it. */
const BIG = '\0integer ';

/** Integers beyond 2^53 are bigints. */
function parseJson(text: string): unknown {
  if (!/\d{16}/.test(text) || text.includes('\\u0000integer ')) return JSON.parse(text);
  const marked = text.replace(/"(?:\\.|[^"\\])*"|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/g, token =>
    /^-?\d+$/.test(token) && !Number.isSafeInteger(Number(token)) ? JSON.stringify(BIG + token) : token);
  return JSON.parse(marked, (_, value) => typeof value === 'string' && value.startsWith(BIG) ? BigInt(value.slice(BIG.length)) : value);
}

function expect(holds: boolean, what: string): asserts holds {
  if (!holds) throw new Error(`expected ${what}`);
}

function integer(data: Uint8Array, signed: boolean, size: number): number | bigint {
  expect(data.length === size && size > 0 && size <= 8, `${size} bytes, got ${data.length}`);
  let value = 0n;
  for (let i = size - 1; i >= 0; i--) value = (value << 8n) | BigInt(data[i]);
  if (signed) value = BigInt.asIntN(8 * size, value);
  return BigInt(Number(value)) === value && Math.abs(Number(value)) <= Number.MAX_SAFE_INTEGER ? Number(value) : value;
}

function unpack(data: Uint8Array): unknown {
  return decodeMsgpack(data, {useBigInt64: true, mapKeyConverter: key => String(key) as string});
}

function withArrays(value: unknown, depth: number): unknown {
  expect(depth < 500, 'fewer levels of nesting');
  if (Array.isArray(value)) {
    return value.length === 4 && value[0] === '_' ? arrayOf(value[1], value[2], value[3])
      : value.map(item => withArrays(item, depth + 1));
  }
  if (value && Object.getPrototypeOf(value) === Object.prototype) {
    return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, withArrays(item, depth + 1)]));
  }
  return value;
}

function arrayOf(dtype: unknown, shape: unknown, data: unknown): NdArray {
  expect(typeof dtype === 'string' && Array.isArray(shape) && data instanceof Uint8Array, 'an array as dtype, shape and bytes');
  return checked(dtype, shape.map(Number), data);
}

function fixedArray([dtype, ...lengths]: string[], data: Uint8Array): NdArray {
  const fixed = lengths.filter(length => length !== '?').reduce((product, length) => product * Number(length), 1);
  const varying = data.length / (fixed * itemSize(dtype));
  return checked(dtype, lengths.map(length => length === '?' ? varying : Number(length)), data);
}

function checked(dtype: string, shape: number[], data: Uint8Array): NdArray {
  const count = shape.reduce((product, length) => product * length, 1);
  const bytes = count * itemSize(dtype);
  expect(shape.every(length => Number.isInteger(length) && length >= 0) && bytes === data.length,
    `${bytes} bytes for ${dtype} of shape (${shape}), got ${data.length}`);
  const array = new NdArray(dtype, shape, elements(dtype, data));
  const {code, size, big} = codeOf(dtype);
  if (code === 'c') {
    const parts = elements(`${big ? '>' : '<'}f${size / 2}`, data) as ArrayLike<number>;
    const text = (value: number) => String(size === 8 ? Number(value.toPrecision(7)) : value);
    array.complex = Array.from({length: count}, (_, i) => `${text(parts[2 * i])}${parts[2 * i + 1] < 0 ? '-' : '+'}${text(Math.abs(parts[2 * i + 1]))}j`);
  }
  return array;
}

const NAMES: Record<string, string> = {
  bool: 'b1', int8: 'i1', int16: 'i2', int32: 'i4', int64: 'i8', uint8: 'u1', uint16: 'u2', uint32: 'u4', uint64: 'u8',
  float16: 'f2', float32: 'f4', float64: 'f8', int: 'i8', uint: 'u8', float: 'f8', double: 'f8', half: 'f2', single: 'f4',
  '?': 'b1', b: 'i1', B: 'u1', h: 'i2', H: 'u2', i: 'i4', I: 'u4', l: 'i8', L: 'u8', q: 'i8', Q: 'u8', e: 'f2', f: 'f4', d: 'f8',
  complex64: 'c8', complex128: 'c16', bfloat16: 'bf2', float8_e4m3fn: 'x1', float8_e5m2: 'y1',
};

function codeOf(dtype: string): {code: string; size: number; big: boolean} {
  const big = dtype[0] === '>';
  const plain = dtype.replace(/^[<>=|]/, '');
  const name = Object.hasOwn(NAMES, plain) ? NAMES[plain] : plain;
  const match = /^(bf|[biufcmMSUxy])(\d+)(\[.*\])?$/.exec(name);
  if (/^(datetime64|timedelta64)/.test(plain)) return {code: 'i', size: 8, big};
  expect(match !== null && Number(match[2]) > 0, `a NumPy dtype, got ${dtype}`);
  const size = Number(match[2]);
  return {code: match[1], size: match[1] === 'U' ? 4 * size : size, big};
}

export function itemSize(dtype: string): number {
  return codeOf(dtype).size;
}

const TYPED: Record<string, new (buffer: ArrayBuffer) => ArrayLike<number>> = {
  b1: Uint8Array, i1: Int8Array, u1: Uint8Array, i2: Int16Array, u2: Uint16Array, i4: Int32Array, u4: Uint32Array,
  f4: Float32Array, f8: Float64Array,
};

/** Seconds of the units of datetimes, and the characters of their text; those of months and years stay numbers. */
const UNITS: Record<string, [number, number]> = {W: [604_800, 10], D: [86_400, 10], h: [3600, 13], m: [60, 16], s: [1, 19]};
/** Digits after the seconds. */
const DIGITS: Record<string, number> = {ms: 3, us: 6, ns: 9};

/** A datetime as NumPy writes it. */
function datetimeText(value: bigint, unit: string): string {
  if (value === -(2n ** 63n)) return 'NaT';
  const digits = DIGITS[unit] ?? 0, scale = 10n ** BigInt(digits), part = (value % scale + scale) % scale;
  const [seconds, length] = UNITS[unit] ?? UNITS.s;
  const time = new Date(Number((value - part) / scale) * seconds * 1000);
  if (Number.isNaN(time.getTime())) return `${value} ${unit}`;
  const text = time.toISOString();
  return text.slice(0, text.length - 24 + length) + (digits ? `.${String(part).padStart(digits, '0')}` : '');
}

/** Returns the elements as numbers; complex numbers as magnitudes; strings, datetimes and integers beyond 2^53 as text. */
function elements(dtype: string, data: Uint8Array): ArrayLike<number> | string[] {
  const {code, size, big} = codeOf(dtype);
  const kind = code === 'm' || code === 'M' ? 'i' : code;
  const typed = TYPED[kind + size];
  if (typed && (!big || size === 1)) return new typed(data.slice().buffer);
  const view = new DataView(data.buffer, data.byteOffset, data.length);
  const count = data.length / size;
  const read: Record<string, (at: number) => number | bigint> = {
    i2: at => view.getInt16(at, !big), u2: at => view.getUint16(at, !big), i4: at => view.getInt32(at, !big),
    u4: at => view.getUint32(at, !big), f4: at => view.getFloat32(at, !big), f8: at => view.getFloat64(at, !big),
    i8: at => view.getBigInt64(at, !big), u8: at => view.getBigUint64(at, !big),
    f2: at => half(view.getUint16(at, !big)), bf2: at => brain(view.getUint16(at, !big)),
    c8: at => Math.hypot(view.getFloat32(at, !big), view.getFloat32(at + 4, !big)),
    c16: at => Math.hypot(view.getFloat64(at, !big), view.getFloat64(at + 8, !big)),
    x1: at => (data[at] & 127) === 127 ? NaN : small(data[at], 4, 3),
    y1: at => (data[at] & 124) === 124 ? (data[at] & 3 ? NaN : data[at] & 128 ? -Infinity : Infinity) : small(data[at], 5, 2),
  };
  const text = {
    S: (at: number) => Array.from(data.subarray(at, at + size), byte => byte ? String.fromCharCode(byte) : '').join(''),
    U: (at: number) => Array.from({length: size / 4}, (_, i) => view.getUint32(at + 4 * i, !big))
      .map(point => point && point <= 0x10ffff ? String.fromCodePoint(point) : '').join(''),
  };
  if (code === 'S' || code === 'U') return Array.from({length: count}, (_, i) => text[code](i * size));
  const read1 = read[kind + size];
  expect(read1 !== undefined, `a dtype that this page knows, got ${dtype}`);
  const unit = /^(?:datetime64|M8)\[(\w+)\]$/.exec(dtype.replace(/^[<>=|]/, ''))?.[1] ?? '';
  if (!Object.hasOwn(UNITS, unit) && !Object.hasOwn(DIGITS, unit)) {
    const numbers = Array.from({length: count}, (_, i) => read1(i * size));
    const isExact = numbers.every(number => typeof number === 'number' || BigInt.asIntN(54, number) === number);
    return isExact ? Float64Array.from(numbers, Number) : numbers.map(String);
  }
  return Array.from({length: count}, (_, i) => datetimeText(view.getBigInt64(i * size, !big), unit));
}

/** A float of 8 bits that is finite. */
function small(bits: number, exponentBits: number, fractionBits: number): number {
  const bias = 2 ** (exponentBits - 1) - 1, fraction = (bits & (1 << fractionBits) - 1) / 2 ** fractionBits;
  const exponent = (bits & 127) >> fractionBits;
  return (bits & 128 ? -1 : 1) * (exponent ? 2 ** (exponent - bias) * (1 + fraction) : 2 ** (1 - bias) * fraction);
}

function half(bits: number): number {
  const sign = bits & 0x8000 ? -1 : 1, exponent = (bits >> 10) & 31, fraction = bits & 1023;
  if (exponent === 31) return fraction ? NaN : sign * Infinity;
  return sign * (exponent ? 2 ** (exponent - 15) * (1 + fraction / 1024) : 2 ** -14 * (fraction / 1024));
}

function brain(bits: number): number {
  return new Float32Array(new Uint32Array([bits << 16]).buffer)[0];
}
