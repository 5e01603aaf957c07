// Datasets of one folder or of shard folders, by what a web server has: no listing is needed.

import {Bag, type Location, type Records} from './bag';
import {Counted, MAX_SEARCHED_BYTES, type Need} from './comparison';
import {CorruptError, MissingError, ServerError} from './errors';
import {LinkedRecords} from './links';
import {type RangeCache, readWhole, RemoteFile} from './ranges';
import {readRows, type Ref, type Row, strideOf} from './refs';
import {type FieldType, parseJson, parseSpec, type Spec} from './spec';
import {decodeValue} from './values';

/** What metadata.json says of a field, as far as this page uses it. */
export interface FieldFacts {
  rate?: number;
  start?: number;
  times?: string;
  elements?: string;
  unit?: string;
  names?: string[];
  classes?: string[];
  [key: string]: unknown;
}

export interface Metadata {
  fields?: Record<string, FieldFacts>;
  [key: string]: unknown;
}

interface Shard {
  folder: Folder;
  first: number;
  length: number;
}

/** Most shards that are looked for without a shards.json. */
const MAX_PROBED = 4096;
const PROBES = 8;

class Folder {
  private fields = new Map<string, Promise<Records>>();
  private opened: Promise<Bag | null> | undefined;
  /** Whether Bags 0.x wrote it: known when refs are open. */
  starts = false;
  private beside = false;

  constructor(
    readonly cache: RangeCache,
    readonly url: string,
    readonly spec: Spec,
    private sizes?: Record<string, number>,
    private expected?: number,
    /** Whether it is a shard, which lies in the folder of the dataset. */
    private isShard = false,
  ) {}

  /** Opens the refs; null if Granular wrote the folder, which has none. */
  refs(): Promise<Bag | null> {
    this.opened ??= this.openRefs();
    this.opened.catch(() => { this.opened = undefined; });
    return this.opened;
  }

  private async openRefs(): Promise<Bag | null> {
    let file: RemoteFile;
    try {
      file = await this.open('refs.bag');
    } catch (error) {
      if (error instanceof MissingError) return null;
      throw error;
    }
    let bag = await Bag.openAny(this.cache, file, false, 'tail');
    if (!bag.count && !file.size) bag = await Bag.openAny(this.cache, file, false, 'beside');
    this.beside = bag.end === file.size && bag.count > 0;
    if (bag.count && bag.end !== strideOf(this.spec) * bag.count && !this.beside) {
      // No refs record is empty, so a table that begins with 0 is one of starts.
      if ((await bag.bounds(0, 1))[1] === 0) {
        this.starts = true;
        bag = await Bag.open(file, {starts: true});
      }
    }
    if (this.expected !== undefined && this.expected !== bag.count) {
      throw new CorruptError(file.url, null, `shards.json has ${this.expected} datapoints, refs.bag has ${bag.count}`);
    }
    return bag;
  }

  private open(name: string): Promise<RemoteFile> {
    const size = this.sizes && Object.hasOwn(this.sizes, name) ? this.sizes[name] : undefined;
    return RemoteFile.open(this.cache, this.url + encodeURIComponent(name), size);
  }

  field(field: string): Promise<Records> {
    let records = this.fields.get(field);
    if (!records) {
      records = this.openField(field);
      this.fields.set(field, records);
      records.catch(() => this.fields.delete(field));
    }
    return records;
  }

  private async openField(field: string): Promise<Records> {
    const refs = await this.refs();
    const names = [`${field}.bag`, `${field}.bagz`, `${field}.links`].filter(name => !this.sizes || Object.hasOwn(this.sizes, name));
    for (const name of names) {
      try {
        const file = await this.open(name);
        if (!refs) {
          const beside = await this.open(`${field}.idx`);
          return await Bag.open(file, {beside});
        }
        const bag = await this.openBag(file);
        if (!name.endsWith('.links')) return bag;
        const [files, values] = await Promise.all([this.open(`${field}.files`), this.open(`${field}.values`)]);
        return new LinkedRecords(field, bag, await this.openBag(files), values, Number(this.isShard));
      } catch (error) {
        if (!(error instanceof MissingError)) throw error;
      }
    }
    throw new CorruptError(this.url, null, `field ${field}: has no ${field}.bag, ${field}.bagz or ${field}.links`);
  }

  private openBag(file: RemoteFile): Promise<Bag> {
    return Bag.openAny(this.cache, file, this.starts, this.beside ? 'beside' : 'tail');
  }

  async length(): Promise<number> {
    const refs = await this.refs();
    if (refs) return refs.count;
    const bags = await Promise.all([...this.spec.keys()].map(name => this.field(name)));
    return bags.length ? Math.min(...bags.map(bag => bag.count)) : 0;
  }

  async rows(start: number, stop: number): Promise<Row[]> {
    const refs = await this.refs();
    if (refs) return readRows(refs, this.spec, start, stop);
    return Array.from({length: stop - start}, (_, i) =>
      new Map([...this.spec.keys()].map(name => [name, {first: start + i, count: 1}])));
  }
}

export class Dataset {
  private constructor(
    readonly url: string,
    readonly cache: RangeCache,
    readonly spec: Spec,
    readonly length: number,
    readonly metadata: Metadata,
    private shards: Shard[],
    /** Bytes of each field's bags, where shards.json says. */
    readonly sizes: Map<string, number> | null,
    readonly counts: Map<string, number> | null,
  ) {}

  /** Opens the dataset at a URL, by shards.json, spec.json, or by asking for 000000, 000001, …. */
  static async open(url: string, cache: RangeCache): Promise<Dataset> {
    const base = url.endsWith('/') ? url : `${url}/`;
    const optional = async (name: string) => {
      try {
        return parseJson(await readWhole(cache, base + name), base + name);
      } catch (error) {
        if (error instanceof MissingError) return undefined;
        throw error;
      }
    };
    const [index, text, found] = await Promise.all(['shards.json', 'spec.json', 'metadata.json'].map(optional));
    const metadata = (found && typeof found === 'object' ? found : {}) as Metadata;
    let spec: Spec, folders: {folder: Folder; length: number}[];
    let totals: Map<string, number>[] | null = null;
    if (index !== undefined) {
      ({spec, folders, totals} = byIndex(index, base, cache));
    } else if (text !== undefined) {
      spec = parseSpec(text, `${base}spec.json`);
      const folder = new Folder(cache, base, spec);
      folders = [{folder, length: await folder.length()}];
    } else {
      ({spec, folders} = await probe(base, cache));
    }
    let length = 0;
    const shards = folders.map(({folder, length: count}) => {
      length += count;
      return {folder, first: length - count, length: count};
    });
    // The first grid needs these: they are read beside the metadata. An error is shown where they are used.
    void shards[0]?.folder.refs().catch(() => {});
    if (metadata.fields === undefined && text === undefined && shards.length) {
      // Each shard has the metadata of the dataset.
      const first = await readWhole(cache, `${shards[0].folder.url}metadata.json`).catch(() => null);
      if (first) Object.assign(metadata, parseJson(first, 'metadata.json'));
    }
    const ordered = inOrder(spec, metadata);
    return new Dataset(base, cache, ordered, length, metadata, shards, totals?.[0] ?? null, totals?.[1] ?? null);
  }

  /** The URL of the folder with what is kept of the whole dataset: of the first shard. */
  get firstFolder(): string {
    return this.shards[0]?.folder.url ?? this.url;
  }

  get shardCount(): number {
    return this.shards.length;
  }

  type(field: string): FieldType {
    return this.spec.get(field)!;
  }

  facts(field: string): FieldFacts {
    const fields = this.metadata.fields;
    const facts = fields && Object.hasOwn(fields, field) ? fields[field] : null;
    return facts && typeof facts === 'object' ? facts : {};
  }

  private find(index: number): Shard {
    let low = 0, high = this.shards.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (this.shards[middle].first <= index) low = middle;
      else high = middle - 1;
    }
    return this.shards[low];
  }

  private shardOf(index: number): Shard {
    if (!(index >= 0 && index < this.length)) throw new RangeError(`no datapoint ${index}: there are ${this.length}`);
    // Empty shards share their first datapoint with the next one.
    return this.find(index);
  }

  /** Returns the number of items of a sequence; null where it is missing. */
  async count(index: number, field: string): Promise<number | null> {
    return (await this.ref(index, field))?.ref.count ?? null;
  }

  private async ref(index: number, field: string): Promise<{bag: Records; ref: NonNullable<Ref>} | null> {
    const {folder, first} = this.shardOf(index);
    if (!folder.spec.has(field)) return null;
    const [[row], bag] = await Promise.all([folder.rows(index - first, index - first + 1), folder.field(field)]);
    const ref = row.get(field) ?? null;
    if (ref && ref.count && ref.first + ref.count > bag.count) {
      throw new CorruptError(folder.url, index - first, `field ${field}: the ref ${ref.first} + ${ref.count} is outside its bag of ${bag.count} records`);
    }
    return ref && {bag, ref};
  }

  /** Returns the record of a plain field, or some items of a sequence; null if the value is missing. */
  async records(index: number, field: string, start = 0, stop = Infinity): Promise<Uint8Array[] | null> {
    const found = await this.ref(index, field);
    if (!found) return null;
    const {bag, ref} = found;
    return bag.records(ref.first + Math.min(start, ref.count), ref.first + Math.min(stop, ref.count));
  }

  /** Returns where a record lies; null if the value is missing. */
  async location(index: number, field: string, item = 0): Promise<Location | null> {
    return (await this.locations(index, field, item, item + 1))?.[0] ?? null;
  }

  /** Returns where the record of a plain field, or some items of a sequence, lie; null if the value is missing. */
  async locations(index: number, field: string, start = 0, stop = Infinity): Promise<Location[] | null> {
    const found = await this.ref(index, field);
    if (!found) return null;
    const {bag, ref} = found;
    return bag.locations(ref.first + Math.min(start, ref.count), ref.first + Math.min(stop, ref.count));
  }

  /** Returns a decoded value: of a sequence an array of items, null where it is missing. */
  async value(index: number, field: string, start = 0, stop = Infinity): Promise<unknown> {
    const records = await this.records(index, field, start, stop);
    const type = this.type(field);
    const {starts} = this.shardOf(index).folder;
    if (!records) return null;
    const values = records.map((record, i) => decodeValue(type, record, starts, `datapoint ${index}, field ${field}${type.sequence ? `, item ${start + i}` : ''}`));
    return type.sequence ? values : values[0];
  }

  /**
   * Yields what is needed of a field for consecutive datapoints, in runs that are read at once: also where its records lie.
   * `spend` is called with the bytes of a run before they are read.
   */
  async *column(field: string, need: Need | 'size' | 'location' = 'value', spend: (bytes: number) => void = () => {}, rows = 1 << 14): AsyncGenerator<{first: number; values: unknown[]}> {
    const type = this.type(field);
    for (const {folder, first, length} of this.shards) {
      const counts = need === 'presence' || need === 'count';
      const bag = length && !counts && folder.spec.has(field) ? await folder.field(field) : null;
      for (let start = 0; start < length; start += rows) {
        const refs = (await folder.rows(start, Math.min(length, start + rows))).map(row => row.get(field) ?? null);
        if (counts) {
          yield {first: first + start, values: refs.map(ref => ref && (type.sequence ? new Counted(ref.count) : true))};
          continue;
        }
        if (need === 'size') {
          const size = (ref: NonNullable<Ref>) => ref.count ? bag!.size(ref.first, ref.first + ref.count) : 0;
          yield {first: first + start, values: await Promise.all(refs.map(ref => ref && size(ref)))};
          continue;
        }
        const read = async (low: number, high: number): Promise<(Uint8Array | Location | null)[]> => {
          if (need === 'location') return bag!.locations(low, high);
          if (need === 'search' && type.word === 'utf8') return shortRecords(bag!, low, high, spend);
          spend(await bag!.size(low, high));
          return bag!.records(low, high);
        };
        let low = Infinity, high = 0, total = 0;
        for (const ref of refs) {
          if (!ref?.count) continue;
          low = Math.min(low, ref.first);
          high = Math.max(high, ref.first + ref.count);
          total += ref.count;
        }
        const dense = high - low < 2 * Math.max(total, rows);
        const records = dense && high ? await read(low, high) : [];
        const values = [];
        for (const ref of refs) {
          const found = !ref ? [] : dense ? records.slice(ref.first - low, ref.first + ref.count - low) : await read(ref.first, ref.first + ref.count);
          if (need === 'location') {
            values.push(ref && found);
            continue;
          }
          const items = (found as (Uint8Array | null)[]).map(record => record && decodeValue(type, record, folder.starts, `field ${field}`));
          values.push(!ref ? null : type.sequence ? items.filter(item => item !== null) : items[0] ?? null);
        }
        yield {first: first + start, values};
      }
    }
  }
}

/** Returns consecutive records, with null for long ones, which are not read where the others are not short. */
async function shortRecords(bag: Records, low: number, high: number, spend: (bytes: number) => void): Promise<(Uint8Array | null)[]> {
  const size = await bag.size(low, high);
  if (size <= Math.max(MAX_SEARCHED_BYTES, 256 * (high - low))) {
    spend(size);
    return bag.records(low, high);
  }
  if (high - low === 1) return [null];
  const middle = (low + high) >> 1;
  return (await Promise.all([shortRecords(bag, low, middle, spend), shortRecords(bag, middle, high, spend)])).flat();
}

/** Returns the fields in the author's order, and takes their positions out of the metadata. */
function inOrder(spec: Spec, metadata: Metadata): Spec {
  const positions = new Map<string, number>();
  for (const [name, facts] of Object.entries(metadata.fields ?? {})) {
    const position = facts && typeof facts === 'object' ? facts.spec_position : null;
    if (typeof position !== 'number' || !Number.isSafeInteger(position) || position < 0) continue;
    positions.set(name, position);
    delete facts.spec_position;
  }
  const at = (name: string) => positions.get(name) ?? Number.MAX_SAFE_INTEGER;
  return new Map([...spec].sort(([a], [b]) => at(a) - at(b)));  // Others stay in alphabetical order, at the end.
}

function byIndex(index: unknown, base: string, cache: RangeCache) {
  const where = `${base}shards.json`;
  const {format, spec: types, shards} = (index ?? {}) as Record<string, unknown>;
  if (format !== 'bags shards 1' || !Array.isArray(shards)) throw new CorruptError(where, null, 'expected "format": "bags shards 1"');
  const spec = parseSpec(types, where);
  const sizes = new Map<string, number>(), counts = new Map<string, number>();
  const isCount = (value: unknown) => Number.isSafeInteger(value) && (value as number) >= 0;
  const add = (totals: Map<string, number>, files: Record<string, number>, suffix: RegExp) => {
    for (const [name, value] of Object.entries(files ?? {})) {
      if (!isCount(value)) throw new CorruptError(where, null, `expected a number for ${name}`);
      const field = name.replace(suffix, '');
      if (field !== name) totals.set(field, (totals.get(field) ?? 0) + value);
    }
  };
  const folders = shards.map(shard => {
    if (typeof shard?.name !== 'string' || !/^\d+$/.test(shard.name) || !isCount(shard.length)) {
      throw new CorruptError(where, null, 'expected the name of a shard folder and its length');
    }
    if (typeof shard.sizes !== 'object' || shard.sizes === null) throw new CorruptError(where, null, 'expected the sizes of each shard');
    add(sizes, shard.sizes, /\.(bagz?|links|files|values)$/);
    add(counts, shard.counts, /\.(bagz?|links)$/);
    // A shard may lack optional fields, and then lacks their bags.
    const own = new Map([...spec].filter(([field]) => ['bag', 'bagz', 'links'].some(suffix => Object.hasOwn(shard.sizes, `${field}.${suffix}`))));
    return {name: shard.name, length: shard.length, folder: new Folder(cache, `${base}${shard.name}/`, own, shard.sizes, shard.length, true)};
  });
  folders.sort((a, b) => Number(a.name) - Number(b.name));
  return {spec, folders, totals: [sizes, counts]};
}

/** The fields of all shards: some may have more, which are optional. */
function union(spec: Spec, others: Spec[]): Spec {
  const texts: Record<string, string> = {};
  for (const types of [...others, spec]) for (const [name, type] of types) Object.defineProperty(texts, name, {value: type.text, enumerable: true, configurable: true});
  return parseSpec(texts, '');
}

async function probe(base: string, cache: RangeCache) {
  const folders: {folder: Folder; length: number}[] = [];
  const spec = await readWhole(cache, `${base}000000/spec.json`).then(
    data => parseSpec(parseJson(data, `${base}000000/spec.json`), base),
    error => {
      if (!(error instanceof MissingError)) throw error;
      throw new ServerError(base, 'is not a dataset: there is no spec.json, no shards.json and no 000000/spec.json');
    });
  for (let first = 0; first < MAX_PROBED; first += PROBES) {
    const found = await Promise.all(Array.from({length: PROBES}, async (_, i) => {
      const url = `${base}${String(first + i).padStart(6, '0')}/`;
      try {
        const types = parseSpec(parseJson(await readWhole(cache, `${url}spec.json`), url), url);
        const folder = new Folder(cache, url, types, undefined, undefined, true);
        return {folder, length: await folder.length()};
      } catch (error) {
        if (error instanceof MissingError) return null;
        throw error;
      }
    }));
    const end = found.indexOf(null);
    folders.push(...found.slice(0, end < 0 ? PROBES : end).map(entry => entry!));
    if (end >= 0) return {spec: union(spec, folders.map(({folder}) => folder.spec)), folders};
  }
  throw new ServerError(base, `has more than ${MAX_PROBED} shards and no shards.json: run bags.consolidate, which writes one`);
}
