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
  /** The values at both ends of the colour map; null where pixels are colours already. */
  range: [number, number] | null;
}

/** Draws one channel of numbers; zeros of depth and what is not finite are transparent. */
export function drawValues({width, height, values}: Pixels, zeroIsNone: boolean): Drawn {
  let low = Infinity, high = -Infinity;
  for (let i = 0; i < values.length; i++) {
    const value = values[i];
    if (!Number.isFinite(value) || (zeroIsNone && value === 0)) continue;
    if (value < low) low = value;
    if (value > high) high = value;
  }
  const image = new ImageData(width, height);
  const pixels = new Uint32Array(image.data.buffer);
  for (let i = 0; i < pixels.length; i++) {
    const value = values[i];
    if (!Number.isFinite(value) || (zeroIsNone && value === 0)) continue;
    pixels[i] = TABLE[high > low ? Math.round(255 * (value - low) / (high - low)) : 128];
  }
  return {image, range: high >= low ? [low, high] : [0, 0]};
}

const MIN_SIDE = 8;
const MAX_PIXELS = 1 << 24;

/** Draws an array of shape (H, W), (H, W, 1), or (H, W, 3 or 4) of bytes; null if it is none of these. */
export function drawArray(array: NdArray): Drawn | null {
  const [height, width, channels = 1, ...more] = array.shape;
  if (!array.isNumeric || array.shape.length < 2 || more.length || height < MIN_SIDE || width < MIN_SIDE || height * width > MAX_PIXELS) return null;
  const values = array.data as ArrayLike<number>;
  if (channels === 1) return drawValues({width, height, values}, false);
  if ((channels !== 3 && channels !== 4) || !/u1$|uint8$/.test(array.dtype)) return null;
  const image = new ImageData(width, height);
  for (let i = 0; i < width * height; i++) {
    for (let k = 0; k < 4; k++) image.data[4 * i + k] = k < channels ? values[channels * i + k] : 255;
  }
  return {image, range: null};
}
