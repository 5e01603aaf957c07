// PNGs of one channel as numbers: depth of 16 bits, of which browsers show 8, and masks.

export interface Pixels {
  width: number;
  height: number;
  /** Of one channel. */
  values: ArrayLike<number>;
}

const MAX_PIXELS = 1 << 26;

/** Returns the bits of a PNG of one channel, 8 or 16; null of any other record. */
export function bitsOfGrayPng(data: Uint8Array): number | null {
  const isGray = data.length > 33 && data[0] === 0x89 && data[1] === 0x50 && data[25] === 0 && data[28] === 0;
  return isGray && (data[24] === 8 || data[24] === 16) ? data[24] : null;
}

/** Tells whether a record is a PNG of one channel of 16 bits. */
export function isDeepPng(data: Uint8Array): boolean {
  return bitsOfGrayPng(data) === 16;
}

/** Decodes a PNG of one channel of 8 or 16 bits. */
export async function decodeGrayPng(data: Uint8Array): Promise<Pixels> {
  const view = new DataView(data.buffer, data.byteOffset, data.length);
  const width = view.getUint32(16), height = view.getUint32(20);
  if (!width || !height || width * height > MAX_PIXELS) throw new Error(`an image of ${width} × ${height} pixels is too large`);
  const parts: Uint8Array[] = [];
  for (let at = 8; at + 12 <= data.length;) {
    const length = view.getUint32(at);
    if (at + 12 + length > data.length) throw new Error('the PNG is cut off');
    if (view.getUint32(at + 4) === 0x49444154) parts.push(data.subarray(at + 8, at + 8 + length));
    at += 12 + length;
  }
  const size = data[24] / 8, stride = size * width + 1;
  const rows = await inflate(new Blob(parts as BlobPart[]), stride * height);
  const values = new Uint16Array(width * height);
  let above = new Uint8Array(size * width);
  for (let y = 0; y < height; y++) {
    const row = rows.subarray(y * stride + 1, (y + 1) * stride);
    restore(rows[y * stride], row, above, size);
    for (let x = 0; x < width; x++) values[y * width + x] = size === 1 ? row[x] : (row[2 * x] << 8) | row[2 * x + 1];
    above = row as Uint8Array<ArrayBuffer>;
  }
  return {width, height, values};
}

async function inflate(blob: Blob, size: number): Promise<Uint8Array> {
  const data = new Uint8Array(size);
  const reader = blob.stream().pipeThrough(new DecompressionStream('deflate')).getReader();
  let at = 0;
  for (;;) {
    const {done, value} = await reader.read();
    if (done) break;
    if (at + value.length > size) {
      await reader.cancel();
      throw new Error('the PNG has more rows than its header says');
    }
    data.set(value, at);
    at += value.length;
  }
  if (at < size) throw new Error('the PNG is cut off');
  return data;
}

function restore(filter: number, row: Uint8Array, above: Uint8Array, size: number): void {
  if (filter > 4) throw new Error(`filter ${filter} is none of PNG`);
  for (let i = 0; i < row.length; i++) {
    const left = i >= size ? row[i - size] : 0, up = above[i], corner = i >= size ? above[i - size] : 0;
    if (filter === 1) row[i] += left;
    else if (filter === 2) row[i] += up;
    else if (filter === 3) row[i] += (left + up) >> 1;
    else if (filter === 4) {
      const p = left + up - corner, a = Math.abs(p - left), b = Math.abs(p - up), c = Math.abs(p - corner);
      row[i] += a <= b && a <= c ? left : b <= c ? up : corner;
    }
  }
}
