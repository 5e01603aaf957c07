// The refs of a folder: which records of its fields' bags each datapoint has.
//
//     spec {"id": "int(8)", "words": "utf8[]"}, the datapoint with record 7 and records 20 to 22:
//     92  CE 00 00 00 07  92 CE 00 00 00 14 CE 00 00 00 03

import {decode} from '@msgpack/msgpack';

import type {Bag} from './bag';
import {CorruptError} from './errors';
import type {Spec} from './spec';

/** The records of a field: of a plain one `count` is 1. Null: the value is missing. */
export type Ref = {first: number; count: number} | null;
export type Row = Map<string, Ref>;

const MISSING = 0xffffffff;
const UINT32 = 0xce;

/** Bytes of a row as current writers write it. */
export function strideOf(spec: Spec): number {
  const header = spec.size < 16 ? 1 : spec.size < 1 << 16 ? 3 : 5;
  return [...spec.values()].reduce((sum, type) => sum + (type.sequence ? 11 : 5), header);
}

/** Reads rows of refs, each at its place if all have the same length. */
export async function readRows(refs: Bag, spec: Spec, start: number, stop: number): Promise<Row[]> {
  const stride = strideOf(spec);
  if (refs.end === stride * refs.count && start < stop) {
    const table = await refs.file.read(start * stride, stop * stride);
    const rows = [];
    for (let i = 0; i < stop - start; i++) {
      const row = unpackFixed(table.subarray(i * stride, (i + 1) * stride), spec);
      if (!row) break;
      rows.push(row);
    }
    if (rows.length === stop - start) return rows;
  }
  const records = await refs.records(start, stop);
  return records.map((record, i) => unpack(record, spec, refs.file.url, start + i));
}

function unpackFixed(record: Uint8Array, spec: Spec): Row | null {
  const view = new DataView(record.buffer, record.byteOffset, record.length);
  const row: Row = new Map();
  let at = spec.size < 16 ? 1 : spec.size < 1 << 16 ? 3 : 5;
  if (at === 1 && record[0] !== (0x90 | spec.size)) return null;
  for (const [name, type] of spec) {
    if (type.sequence && record[at++] !== 0x92) return null;
    if (record[at] !== UINT32) return null;
    const first = view.getUint32(at + 1);
    at += 5;
    if (!type.sequence) {
      row.set(name, first === MISSING ? null : {first, count: 1});
      continue;
    }
    if (record[at] !== UINT32) return null;
    const count = view.getUint32(at + 1);
    at += 5;
    row.set(name, first === MISSING ? null : {first, count});
  }
  return row;
}

function unpack(record: Uint8Array, spec: Spec, where: string, index: number): Row {
  let entries: unknown;
  try {
    entries = decode(record);
  } catch (error) {
    throw new CorruptError(where, index, `is not msgpack: ${(error as Error).message}`);
  }
  if (!Array.isArray(entries) || entries.length !== spec.size) {
    throw new CorruptError(where, index, `expected an array of ${spec.size} refs`);
  }
  const row: Row = new Map();
  let i = 0;
  for (const [name, type] of spec) {
    const entry = entries[i++];
    const numbers = type.sequence ? (Array.isArray(entry) && !entry.length ? [0, 0] : entry) : [entry, 1];
    const [first, count] = Array.isArray(numbers) && numbers.length === 2 ? numbers : [null, null];
    if (![first, count].every(value => Number.isInteger(value) && value >= 0 && value <= MISSING)) {
      throw new CorruptError(where, index, `field ${name}: expected ${type.sequence ? '[first, count]' : 'an index'}`);
    }
    row.set(name, first === MISSING ? null : {first, count});
  }
  return row;
}
