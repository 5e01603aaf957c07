// Colour maps of numbers, and arrays that are images.

import type {NdArray} from '../bags/values';
import type {Pixels} from './png';

const VIRIDIS = [[68, 1, 84], [71, 44, 122], [59, 81, 139], [44, 113, 142], [33, 144, 141], [39, 173, 129], [92, 200, 99], [170, 220, 50], [253, 231, 37]];

export function viridis(part: number): [number, number, number] {
  const place = Math.min(1, Math.max(0, part || 0)) * (VIRIDIS.length - 1);
  const low = VIRIDIS[Math.floor(place)], high = VIRIDIS[Math.ceil(place)], rest = place % 1;
  return [0, 1, 2].map(i => low[i] + (high[i] - low[i]) * rest) as [number, number, number];
}

const TABLE = new Uint32Array(256).map((_, i) => {
  const [red, green, blue] = viridis(i / 255).map(Math.round);
  return (255 << 24 | blue << 16 | green << 8 | red) >>> 0;
});

export interface Drawn {
  image: ImageData;
  /** The values at both ends of the colour map; null where pixels are colours or labels. */
  range: [number, number] | null;
  /** Pixels by label, where pixels are labels. */
  labels?: Map<number, number>;
  /** Whether label 0 is transparent. */
  zeroIsNone?: boolean;
  /** What was done to the values, if anything. */
  note?: string;
}

/** The colour of a label as red, green, blue; that of 0, the background, is grey. */
export function labelColor(label: number): [number, number, number] {
  if (!label) return [110, 116, 122];
  const hue = Math.abs(label) * 137.508 % 360, lightness = 0.5 + 0.1 * (Math.abs(label) % 3 - 1);
  const strength = 0.7 * Math.min(lightness, 1 - lightness);
  return [0, 8, 4].map(n => {
    const k = (n + hue / 30) % 12;
    return Math.round(255 * (lightness - strength * Math.max(-1, Math.min(k - 3, 9 - k, 1))));
  }) as [number, number, number];
}

/** Draws integers as labels, each in its colour. */
export function drawLabels({width, height, values}: Pixels, zeroIsNone = false): Drawn {
  const image = new ImageData(width, height), pixels = new Uint32Array(image.data.buffer);
  const labels = new Map<number, number>(), colors = new Map<number, number>();
  for (let i = 0; i < pixels.length; i++) {
    const label = values[i];
    labels.set(label, (labels.get(label) ?? 0) + 1);
    let color = colors.get(label);
    if (color === undefined) {
      const [red, green, blue] = labelColor(label);
      color = zeroIsNone && !label ? 0 : (255 << 24 | blue << 16 | green << 8 | red) >>> 0;
      colors.set(label, color);
    }
    pixels[i] = color;
  }
  return {image, range: null, labels, zeroIsNone};
}

/** Returns the least and the largest finite value; zeros count unless they stand for none. */
export function rangeOf(values: ArrayLike<number>, zeroIsNone = false): [number, number] {
  let low = Infinity, high = -Infinity;
  for (let i = 0; i < values.length; i++) {
    const value = values[i];
    if (!Number.isFinite(value) || (zeroIsNone && value === 0)) continue;
    if (value < low) low = value;
    if (value > high) high = value;
  }
  return high >= low ? [low, high] : [0, 0];
}

/** Draws one channel of numbers; zeros of depth and what is not finite are transparent. */
export function drawValues({width, height, values}: Pixels, zeroIsNone: boolean, range = rangeOf(values, zeroIsNone)): Drawn {
  const [low, high] = range;
  let blank = 0;
  const image = new ImageData(width, height);
  const pixels = new Uint32Array(image.data.buffer);
  for (let i = 0; i < pixels.length; i++) {
    const value = values[i];
    if (!Number.isFinite(value) || (zeroIsNone && value === 0)) {
      blank += 1;
      continue;
    }
    pixels[i] = TABLE[high > low ? Math.round(255 * (value - low) / (high - low)) : 128];
  }
  return {image, range, note: blank ? `${blank.toLocaleString('en')} ${zeroIsNone ? 'are 0, left blank' : 'not finite'}` : ''};
}

const MIN_SIDE = 8;
/** Longer arrays are rows over time. */
const MAX_ASPECT = 24;
const MAX_PIXELS = 1 << 24;

function isPicture(height: number, width: number): boolean {
  return height >= MIN_SIDE && width >= MIN_SIDE && height * width <= MAX_PIXELS && Math.max(height / width, width / height) <= MAX_ASPECT;
}

/** Tells whether an array of a shape is drawn: as (H, W), (H, W, 1, 3 or 4), or as slices of three dimensions. */
export function isDrawn(shape: number[]): boolean {
  const [height, width, channels = 1, ...more] = shape;
  if (shape.length < 2 || more.length) return false;
  return [1, 3, 4].includes(channels) && isPicture(height, width) || shape.length === 3 && isPicture(width, channels);
}

/** Draws an array of shape (H, W) or (H, W, 1, 3 or 4); null if it is none of these. */
export function drawArray(array: NdArray, classes?: unknown): Drawn | null {
  const [height, width, channels = 1] = array.shape;
  if (!array.isNumeric || !isDrawn(array.shape) || ![1, 3, 4].includes(channels)) return null;
  const values = array.data as ArrayLike<number>;
  if (channels === 1) {
    const isLabels = /b1$|^bool$|^\?$/.test(array.dtype) || Array.isArray(classes) && !/f\d$|float/.test(array.dtype);
    return isLabels ? drawLabels({width, height, values}) : drawValues({width, height, values}, false);
  }
  // Bytes are colours. Of other numbers, those in 0 … 1 or -1 … 1 (normals) are, and all else is scaled.
  const isBytes = /u1$|^uint8$/.test(array.dtype);
  let [low, high] = isBytes ? [0, 255] : rangeOf(values);
  if (!isBytes && low >= -1 && high <= 1) [low, high] = [low < 0 ? -1 : 0, 1];
  const image = new ImageData(width, height), scale = 255 / (high - low || 1);
  let blank = 0;
  for (let i = 0; i < width * height; i++) {
    let isFinite = true;
    for (let k = 0; k < channels; k++) isFinite &&= Number.isFinite(values[channels * i + k]);
    if (!isFinite) {
      blank += 1;
      continue;
    }
    for (let k = 0; k < 4; k++) image.data[4 * i + k] = k < channels ? (values[channels * i + k] - low) * scale : 255;
  }
  const notes = [isBytes ? '' : `colours from ${Number(low.toPrecision(4))} to ${Number(high.toPrecision(4))}`, blank ? `${blank.toLocaleString('en')} not finite` : ''];
  return {image, range: null, note: notes.filter(Boolean).join(', ')};
}

/** Returns a slice of an array of three dimensions, at a position of an axis. */
export function sliceOf(array: NdArray, axis: number, position: number): Pixels {
  const {shape, data} = array;
  const strides = [shape[1] * shape[2], shape[2], 1];
  const [rows, columns] = [0, 1, 2].filter(other => other !== axis);
  const values = new Float64Array(shape[rows] * shape[columns]);
  for (let y = 0, at = 0; y < shape[rows]; y++) {
    for (let x = 0; x < shape[columns]; x++) values[at++] = (data as ArrayLike<number>)[position * strides[axis] + y * strides[rows] + x * strides[columns]];
  }
  return {width: shape[columns], height: shape[rows], values};
}
