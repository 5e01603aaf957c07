// The index of a field's keys, `FIELD.index`: a look-up reads one block, and then the keys that it names.
//
//     blocks of 256 keys (hashes, then datapoints) · first hashes · sums of blocks · a footer of 64 bytes

import {xxhash3} from 'hash-wasm';

import type {Dataset} from './dataset';
import {CorruptError, MissingError} from './errors';
import {RemoteFile} from './ranges';

const WORDS = new Set(['utf8', 'int', 'uint', 'i64', 'u64']);
const MAGIC = 'bags key index 1';
const FOOTER = 64;
const BLOCK = 256;
const ENTRY = 16;
/** Blocks and datapoints that one look-up reads: more only if many keys have one hash. */
const MAX_BLOCKS = 16;
const MAX_ROWS = 64;

/** Returns the first datapoint that has a key; -1 if none has, null if the field has no index. */
export async function findKey(dataset: Dataset, field: string, key: string): Promise<number | null> {
  const type = dataset.spec.get(field);
  if (!type || type.sequence || !WORDS.has(type.word)) return null;
  let file: RemoteFile;
  try {
    file = await RemoteFile.open(dataset.cache, `${dataset.firstFolder}${encodeURIComponent(field)}.index`);
  } catch (error) {
    if (error instanceof MissingError) return null;
    throw error;
  }
  const damaged = () => new CorruptError(file.url, null, 'expected the index of a field: run bags.create_index again');
  if (file.size < FOOTER) throw damaged();
  const footer = await file.read(file.size - FOOTER, file.size);
  const view = new DataView(footer.buffer, footer.byteOffset);
  const count = Number(view.getBigUint64(40, true)), length = Number(view.getBigUint64(48, true));
  const blocks = Math.ceil(count / BLOCK);
  if (new TextDecoder().decode(footer.subarray(0, 16)) !== MAGIC || file.size !== ENTRY * (count + blocks) + FOOTER) throw damaged();
  if (length !== dataset.length) throw new CorruptError(file.url, null,
    `is of ${length} datapoints, the dataset has ${dataset.length}: run bags.create_index again`);
  const firsts = numbers(await file.read(ENTRY * count, ENTRY * count + 8 * blocks));
  const hash = BigInt(`0x${await xxhash3(new TextEncoder().encode(key))}`);
  // Equal hashes may begin in the block before the first one that begins with them.
  const start = Math.max(0, place(firsts, hash) - 1), stop = place(firsts, hash + 1n);
  const rows: number[] = [];
  for (let block = start; block < Math.min(stop, start + MAX_BLOCKS); block++) {
    const table = numbers(await file.read(block * BLOCK * ENTRY, Math.min((block + 1) * BLOCK, count) * ENTRY));
    const size = table.length / 2;
    for (let i = place(table.subarray(0, size), hash); i < size && table[i] === hash; i++) rows.push(Number(table[size + i]));
  }
  for (const row of rows.sort((a, b) => a - b).slice(0, MAX_ROWS)) {
    if (row < length && String(await dataset.value(row, field)) === key) return row;
  }
  return -1;
}

function numbers(data: Uint8Array): BigUint64Array {
  return new BigUint64Array(data.slice().buffer);
}

/** Returns how many of sorted numbers are below one. */
function place(sorted: BigUint64Array, wanted: bigint): number {
  let low = 0, high = sorted.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (sorted[middle] < wanted) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** The fields that may have an index. */
export function keyFields(dataset: Dataset): string[] {
  return [...dataset.spec].filter(([, type]) => !type.sequence && WORDS.has(type.word)).map(([name]) => name);
}
