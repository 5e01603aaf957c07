// Records of .bagz: each is one zstd frame, whose checksum is compared. Some need the dictionary of their bag.

import {decompress as decompressFrame} from 'fzstd';
import {xxhash64} from 'hash-wasm';

import {CorruptError} from './errors';

/** Most bytes that a frame may announce. */
const MAX_RECORD_BYTES = 256 << 20;
const MAGIC = 0xfd2fb528;
const DICTIONARY_MAGIC = 0xec30a437;
/** Milliseconds after which a file of the page that has not loaded is an error. */
const LOAD_TIMEOUT = 30_000;

/** Decompresses a record; zero bytes are an empty record. `readDictionary` is called if the frame needs a dictionary. */
export async function decompress(
  data: Uint8Array, where: string, record: number, readDictionary: () => Promise<Uint8Array | null>,
): Promise<Uint8Array> {
  if (!data.length) return data;
  const view = viewOf(data);
  if (data.length < 9 || view.getUint32(0, true) !== MAGIC) throw new CorruptError(where, record, 'is not a zstd frame');
  const descriptor = data[4];
  const single = (descriptor >> 5) & 1;
  const idBytes = [0, 1, 2, 4][descriptor & 3], sizeBytes = [single, 2, 4, 8][descriptor >> 6];
  const idAt = single ? 5 : 6, sizeAt = idAt + idBytes;
  if (data.length < sizeAt + sizeBytes) throw new CorruptError(where, record, 'is a cut off zstd frame');
  const size = sizeBytes ? littleEndian(view, sizeAt, sizeBytes) + (sizeBytes === 2 ? 256 : 0) : null;
  if (size === null || size > MAX_RECORD_BYTES) throw new CorruptError(where, record,
    size === null ? 'its zstd frame does not say its size' : `announces ${size} bytes, more than ${MAX_RECORD_BYTES}`);
  const id = littleEndian(view, idAt, idBytes);
  const dictionary = id ? await readDictionary() : null;
  if (id && idOf(dictionary) !== id) throw new CorruptError(where, record,
    `needs the zstd dictionary ${id}, ${dictionary ? `got ${idOf(dictionary) ?? 'a file that is none'}` : 'which is not there'}`);
  let found: Uint8Array;
  const decompressWith = dictionary && await loadZstd();
  try {
    found = decompressWith ? decompressWith(data, dictionary) : decompressFrame(data, new Uint8Array(size));
  } catch {
    throw new CorruptError(where, record, 'is a damaged zstd frame');
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

function idOf(dictionary: Uint8Array | null): number | null {
  if (!dictionary || dictionary.length < 8 || viewOf(dictionary).getUint32(0, true) !== DICTIONARY_MAGIC) return null;
  return viewOf(dictionary).getUint32(4, true);
}

let zstd: Promise<(data: Uint8Array, dictionary: Uint8Array) => Uint8Array> | undefined;

/** Loads the WebAssembly of zstd: fzstd takes no dictionaries, and is a tenth of its size. */
function loadZstd() {
  zstd ??= (async () => {
    const {init, createDCtx, decompressUsingDict} = await import('@bokuweb/zstd-wasm');
    let timer;
    // `init` does not return if its file is missing.
    const late = new Promise((_, reject) => {
      timer = setTimeout(() => reject(new Error('the decoder of zstd dictionaries, a .wasm file of this page, does not load')), LOAD_TIMEOUT);
    });
    await Promise.race([init(), late]);
    clearTimeout(timer);
    const context = createDCtx();
    return (data: Uint8Array, dictionary: Uint8Array) => decompressUsingDict(context, data, dictionary);
  })();
  return zstd;
}

function littleEndian(view: DataView, at: number, bytes: number): number {
  let value = 0;
  for (let i = bytes - 1; i >= 0; i--) value = value * 256 + view.getUint8(at + i);
  return value;
}

function viewOf(data: Uint8Array): DataView {
  return new DataView(data.buffer, data.byteOffset, data.length);
}
