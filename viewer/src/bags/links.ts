// The records of a linked field: ranges of the files that FIELD.links and FIELD.files name.
//
//     FIELD.links   rows of 24 bytes: u32 file, u32 digest, u64 start, u64 end; file 0 is FIELD.values;
//                   of a segment 16 more: u64 first frame, u64 end
//     FIELD.files   [path, size, sample, compression] of file 1, 2, …

import {decode} from '@msgpack/msgpack';
import {createXXHash3} from 'hash-wasm';

import {type Bag, type Location, MAX_RECORD_BYTES, type Records} from './bag';
import {CorruptError, MissingError} from './errors';
import {readWhole, RemoteFile} from './ranges';
import {decompress} from './zstd';

const ROW = 24;
const SEGMENT_ROW = 40;
const SAMPLE = 1 << 12;

interface LinkedFile {
  file: RemoteFile;
  /** Bytes that links can lead to. */
  size: number;
  compressed: boolean;
  readDictionary(): Promise<Uint8Array | null>;
}

interface Row {
  number: number;
  start: number;
  stop: number;
  segment?: [number, number];
}

export class LinkedRecords implements Records {
  private opened = new Map<number, Promise<LinkedFile>>();
  /** Whether the server has files by their number, as `bags view` does. */
  private byNumber = true;

  constructor(
    readonly field: string,
    private links: Bag,
    private files: Bag,
    private values: RemoteFile,
    /** Folders between that of the dataset and that of the links: 1 in a shard, else 0. */
    private depth: number,
  ) {}

  get count(): number {
    return this.links.count;
  }

  get url(): string {
    return this.links.url;
  }

  async size(start: number, stop: number): Promise<number> {
    return (await this.rows(start, stop)).reduce((sum, row) => sum + row.stop - row.start, 0);
  }

  async locations(start: number, stop: number): Promise<Location[]> {
    return Promise.all((await this.rows(start, stop)).map(async (row, i) => {
      const {file, compressed} = await this.file(row, start + i);
      return {file, start: row.start, stop: row.stop, compressed, segment: row.segment};
    }));
  }

  async records(start: number, stop: number): Promise<Uint8Array[]> {
    const rows = await this.rows(start, stop);
    const size = rows.reduce((sum, row) => sum + row.stop - row.start, 0);
    if (size > MAX_RECORD_BYTES) throw new Error(`${this.url}, record ${start}: ${size} bytes are too many to show`);
    return Promise.all(rows.map(async (row, i) => {
      if (row.segment) throw new Error(`field ${this.field}: part of a recording, from ${row.segment[0]} to ${row.segment[1]}, which the page does not show`);
      const {file, compressed, readDictionary} = await this.file(row, start + i);
      const stored = await file.read(row.start, row.stop);
      return compressed ? decompress(stored, this.url, start + i, readDictionary) : stored;
    }));
  }

  private async rows(start: number, stop: number): Promise<Row[]> {
    const records = await this.links.records(start, stop);
    const hash = await hasher;
    return records.map((record, i) => {
      if (record.length !== ROW && record.length !== SEGMENT_ROW) {
        throw new CorruptError(this.url, start + i, `expected a link of ${ROW} or ${SEGMENT_ROW} bytes, got ${record.length}`);
      }
      const view = new DataView(record.buffer, record.byteOffset, record.length);
      const digest = hash([record.subarray(0, 4), record.subarray(8)]);
      if (Number(digest & 0xffffffffn) !== view.getUint32(4, true)) throw new CorruptError(this.url, start + i, 'the link differs from its digest');
      const u64 = (at: number) => Number(view.getBigUint64(at, true));
      const row: Row = {number: view.getUint32(0, true), start: u64(8), stop: u64(16)};
      if (record.length === SEGMENT_ROW) {
        row.segment = [u64(24), u64(32)];
        if (!(row.segment[0] < row.segment[1])) throw new CorruptError(this.url, start + i, `the link leads to frames ${row.segment[0]} to ${row.segment[1]}`);
      }
      if (!(row.start <= row.stop && row.stop <= Number.MAX_SAFE_INTEGER)) {
        throw new CorruptError(this.url, start + i, `the link leads to bytes ${row.start} to ${row.stop}`);
      }
      return row;
    });
  }

  /** Returns the file of a link, which is opened once. */
  private async file({number, stop}: Row, index: number): Promise<LinkedFile> {
    let file = this.opened.get(number);
    if (!file) {
      file = number ? this.open(number) : Promise.resolve({file: this.values, size: this.values.size, compressed: false, readDictionary: async () => null});
      this.opened.set(number, file);
      file.catch(() => this.opened.delete(number));
    }
    const found = await file;
    if (stop > found.size) throw new CorruptError(this.url, index, `leads to byte ${stop} of ${found.file.url}, which has ${found.size} bytes`);
    return found;
  }

  private async open(number: number): Promise<LinkedFile> {
    const {cache} = this.files.file;
    const entry = decode(await this.files.record(number - 1), {useBigInt64: true});
    const [path, bytes, sample, compression] = Array.isArray(entry) ? entry : [];
    const [size, isBag] = [Number(bytes), /\.(bagz?|values)$/.test(path)];
    if (typeof path !== 'string' || !Number.isSafeInteger(size) || size < 0 || (compression !== null) !== path.endsWith('.bagz')) {
      throw new CorruptError(this.files.url, number - 1, 'expected [path, size, sample, compression]');
    }
    const {file, checked} = await this.find(number, '', path, url => RemoteFile.open(cache, url));
    if (file.size !== size && !(isBag && file.size > size)) throw new CorruptError(file.url, null, `expected ${size} bytes, as it had when it was linked, got ${file.size}`);
    if (!checked) {
      const ranges = size < 2 * SAMPLE ? [[0, size]] : [[0, SAMPLE], [size - SAMPLE, size]];
      const hash = await hasher;
      if (hash(await Promise.all(ranges.map(([start, stop]) => file.read(start, stop)))) !== BigInt(sample as bigint)) {
        throw new CorruptError(file.url, null, 'has changed since it was linked: its first or last bytes differ');
      }
    }
    let dictionary: Promise<Uint8Array | null> | undefined;
    const readDictionary = () => {
      if (!Array.isArray(compression) || !compression.length) return Promise.resolve(null);
      dictionary ??= this.find(number, '.zdict', String(compression[0]), url => readWhole(cache, url)).then(found => found.file);
      dictionary.catch(() => { dictionary = undefined; });
      return dictionary;
    };
    return {file, size, compressed: compression !== null, readDictionary};
  }

  /** Opens a linked file by its number, which `bags view` checks, or else by its path, if that is in the dataset's folder. */
  private async find<T>(number: number, suffix: string, path: string, open: (url: string) => Promise<T>): Promise<{file: T; checked: boolean}> {
    if (this.byNumber) {
      try {
        return {file: await open(`${this.files.url}/${number}${suffix}`), checked: true};
      } catch (error) {
        if (!(error instanceof MissingError)) throw error;
        this.byNumber = false;
      }
    }
    const names = path.split('/');
    const up = names.findIndex(name => name !== '..'), inside = names.slice(up);
    if (up < 0 || up > this.depth || inside.some(name => ['', '.', '..'].includes(name)) || /[\\\0]|::/.test(path)) {
      throw new Error(`field ${this.field}: outside of the folder of the dataset, in ${path}. From a web server, the page reads `
        + 'links only below that folder; `bags view` also serves the files that they lead to, and `bags.copy` makes a dataset without links');
    }
    const url = new URL('../'.repeat(up) + inside.map(encodeURIComponent).join('/'), this.url.replace(/[^/]*$/, '')).href;
    return {file: await open(url), checked: false};
  }
}

/** Returns the XXH3-64 of parts. */
const hasher = createXXHash3().then(hash => (parts: Uint8Array[]): bigint => {
  hash.init();
  for (const part of parts) hash.update(part);
  return BigInt(`0x${hash.digest('hex')}`);
});
