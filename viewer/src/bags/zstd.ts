// Records of .bagz: each is one zstd frame, whose checksum is compared.

import {decompress as decompressFrame} from 'fzstd';
import {xxhash64} from 'hash-wasm';

import {CorruptError} from './errors';

/** Most bytes that a frame may announce. */
const MAX_RECORD_BYTES = 256 << 20;
const MAGIC = 0xfd2fb528;

/** Decompresses a record; zero bytes are an empty record. */
export async function decompress(data: Uint8Array, where: string, record: number): Promise<Uint8Array> {
  if (!data.length) return data;
  const view = new DataView(data.buffer, data.byteOffset, data.length);
  if (data.length < 9 || view.getUint32(0, true) !== MAGIC) throw new CorruptError(where, record, 'is not a zstd frame');
  const descriptor = data[4];
  const single = (descriptor >> 5) & 1;
  if ([0, 1, 2, 4][descriptor & 3]) throw new CorruptError(where, record,
    'is compressed with a dictionary, which this page cannot read (Python can)');
  const sizeBytes = [single, 2, 4, 8][descriptor >> 6];
  if (data.length < 6 + sizeBytes) throw new CorruptError(where, record, 'is a cut off zstd frame');
  const at = single ? 5 : 6;
  const size = sizeBytes === 0 ? null : sizeBytes === 1 ? data[at] : sizeBytes === 2 ? view.getUint16(at, true) + 256
    : sizeBytes === 4 ? view.getUint32(at, true) : Number(view.getBigUint64(at, true));
  if (size === null || size > MAX_RECORD_BYTES) throw new CorruptError(where, record,
    size === null ? 'its zstd frame does not say its size' : `announces ${size} bytes, more than ${MAX_RECORD_BYTES}`);
  let found: Uint8Array;
  try {
    found = decompressFrame(data, new Uint8Array(size));
  } catch (error) {
    throw new CorruptError(where, record, `is a damaged zstd frame: ${(error as Error).message}`);
  }
  if (found.length !== size) throw new CorruptError(where, record, `expected ${size} bytes, got ${found.length}`);
  if (descriptor & 4) {
    const digest = await xxhash64(found);
    if (parseInt(digest.slice(8), 16) !== view.getUint32(data.length - 4, true)) {
      throw new CorruptError(where, record, 'differs from the checksum of its zstd frame: it is damaged');
    }
  }
  return found;
}
