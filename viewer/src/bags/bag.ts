// A bag: records back to back and a table of their ends, after them or in a file beside.
//
//     tail      abcdef123catcat | 6 9 15       starts    abcdef123catcat | 0 6 9 15
//     separate  abcdef123catcat   6 9 15 in limits.NAME or STEM.idx

import {CorruptError, MissingError} from './errors';
import {type RangeCache, readWhole, RemoteFile} from './ranges';
import {decompress} from './zstd';

/** Most bytes of one record that is read as a whole. */
export const MAX_RECORD_BYTES = 256 << 20;

/** Where a record lies: a range of bytes of a file. */
export interface Location {
  file: RemoteFile;
  start: number;
  stop: number;
  compressed: boolean;
  /** Of a segment, its first frame and its end in the video that lies here; samples of a recording. */
  segment?: [number, number];
}

/** The records of a field: of a bag, or of links. */
export interface Records {
  readonly count: number;
  readonly url: string;
  /** Returns the stored bytes of consecutive records. */
  size(start: number, stop: number): Promise<number>;
  /** Returns where consecutive records lie. */
  locations(start: number, stop: number): Promise<Location[]>;
  /** Returns consecutive records, as they are before compression. */
  records(start: number, stop: number): Promise<Uint8Array[]>;
}

export class Bag implements Records {
  private dictionary: Promise<Uint8Array | null> | undefined;

  private constructor(
    readonly file: RemoteFile,
    private limits: RemoteFile,
    /** Offset of the end of record 0 in the file of limits. */
    private offset: number,
    readonly count: number,
    /** Bytes of all records. */
    readonly end: number,
    private starts: boolean,
    readonly compressed: boolean,
  ) {}

  /** Opens a bag with its limits after the records, unless `beside` is their file. */
  static async open(file: RemoteFile, {starts = false, beside}: {starts?: boolean; beside?: RemoteFile} = {}): Promise<Bag> {
    const compressed = new URL(file.url).pathname.endsWith('.bagz');
    if (beside) {
      const count = Math.floor(beside.size / 8);
      const end = count ? await entry(beside, 8 * (count - 1)) : 0;
      if (end > file.size) throw new CorruptError(beside.url, count - 1, `limit ${end} lies beyond the records (${file.size} bytes)`);
      return new Bag(file, beside, 0, count, end, false, compressed);
    }
    if (!file.size) return new Bag(file, file, 0, 0, 0, false, compressed);
    if (file.size < 8) throw new CorruptError(file.url, null, `expected limits at the end, got ${file.size} bytes`);
    const end = await entry(file, file.size - 8);
    if (end > file.size - 8 || (file.size - end) % 8) {
      throw new CorruptError(file.url, null, `expected limits at the end of ${file.size} bytes, got ${end} as where they start`);
    }
    const entries = (file.size - end) / 8;
    if (starts && (await entry(file, end)) !== 0) throw new CorruptError(file.url, 0, 'expected a table of starts, which begins with 0');
    return new Bag(file, file, starts ? end + 8 : end, starts ? entries - 1 : entries, end, starts, compressed);
  }

  /** As `open`, with limits that are beside where there is no table at the end: the bag is being written. */
  static async openAny(cache: RangeCache, file: RemoteFile, starts: boolean, first: 'tail' | 'beside'): Promise<Bag> {
    const beside = async () => {
      const url = new URL(file.url);
      url.pathname = url.pathname.replace(/[^/]*$/, name => `limits.${name}`);
      return Bag.open(file, {beside: await RemoteFile.open(cache, url.href)});
    };
    try {
      return await (first === 'tail' ? Bag.open(file, {starts}) : beside());
    } catch (error) {
      if (first === 'tail' ? !(error instanceof CorruptError) : !(error instanceof MissingError)) throw error;
      if (first === 'beside') return Bag.open(file, {starts});
      return beside().catch(() => { throw error; });
    }
  }

  /** Returns the bounds of consecutive records: where the first starts, then the end of each. */
  async bounds(start: number, stop: number): Promise<Float64Array> {
    if (!(0 <= start && start <= stop && stop <= this.count)) {
      throw new CorruptError(this.file.url, stop - 1, `there are only ${this.count} records`);
    }
    const bounds = new Float64Array(stop - start + 1);
    const before = start > 0 || this.starts ? 1 : 0;
    const table = await this.limits.read(this.offset + 8 * (start - before), this.offset + 8 * stop);
    const view = new DataView(table.buffer, table.byteOffset, table.length);
    for (let i = 0; i < bounds.length; i++) {
      bounds[i] = before || i ? number(view, 8 * (i - 1 + before)) : 0;
      if (bounds[i] > this.end || (i && bounds[i] < bounds[i - 1])) {
        const detail = bounds[i] > this.end ? `limit ${bounds[i]} lies beyond the records (${this.end} bytes)`
          : `limits decrease, from ${bounds[i - 1]} to ${bounds[i]}`;
        throw new CorruptError(this.file.url, start + Math.max(0, i - 1), detail);
      }
    }
    return bounds;
  }

  get url(): string {
    return this.file.url;
  }

  async size(start: number, stop: number): Promise<number> {
    const bounds = await this.bounds(start, stop);
    return bounds[bounds.length - 1] - bounds[0];
  }

  async locations(start: number, stop: number): Promise<Location[]> {
    if (start === stop) return [];
    const bounds = await this.bounds(start, stop);
    return Array.from({length: stop - start}, (_, i) => ({file: this.file, start: bounds[i], stop: bounds[i + 1], compressed: this.compressed}));
  }

  /** Returns a record as it is before compression. */
  async record(index: number): Promise<Uint8Array> {
    return (await this.records(index, index + 1))[0];
  }

  async records(start: number, stop: number): Promise<Uint8Array[]> {
    const bounds = await this.bounds(start, stop);
    const first = bounds[0], size = bounds[bounds.length - 1] - first;
    if (size > MAX_RECORD_BYTES) throw new Error(`${this.file.url}, record ${start}: ${size} bytes are too many to show`);
    const data = await this.file.read(first, first + size);
    const records = [];
    for (let i = 1; i < bounds.length; i++) {
      const stored = data.subarray(bounds[i - 1] - first, bounds[i] - first);
      records.push(this.compressed ? await decompress(stored, this.file.url, start + i - 1, () => this.readDictionary()) : stored);
    }
    return records;
  }

  /** Returns the zstd dictionary of NAME.bagz, which is NAME.zdict; null if there is none. */
  private readDictionary(): Promise<Uint8Array | null> {
    this.dictionary ??= readWhole(this.file.cache, this.file.url.replace(/bagz$/, 'zdict')).catch(error => {
      this.dictionary = undefined;
      if (error instanceof MissingError) return null;
      throw error;
    });
    return this.dictionary;
  }
}

async function entry(file: RemoteFile, offset: number): Promise<number> {
  const data = await file.read(offset, offset + 8);
  return number(new DataView(data.buffer, data.byteOffset, 8), 0);
}

function number(view: DataView, offset: number): number {
  return view.getUint32(offset, true) + view.getUint32(offset + 4, true) * 2 ** 32;
}
