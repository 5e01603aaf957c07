// Streams: the elements of a field in each datapoint, and when they happen. As in bags/streams.
//
//     elements   frames of videos, samples of sounds (of a sequence those of its records joined), rows of an array
//                whose first dimension is ?, else the items of a sequence
//     times      the field that the metadata names, rate and start, or those of the records

import type {Location} from './bag';
import type {Dataset, FieldFacts} from './dataset';
import {ownLength, type Part, readVideo, resampledTo} from './recordings';
import type {FieldType, Spec} from './spec';
import {itemSize, kindOf, NdArray} from './values';

/** What the elements of a field are. */
export type Elements = 'frames' | 'samples' | 'rows' | 'items';

/** The fields of a dataset, and what its metadata says of them. */
interface Fields {
  spec: Spec;
  facts(field: string): FieldFacts;
}

/** Seconds of the units of times. */
export const UNITS: Record<string, number> = {s: 1, ms: 1e-3, us: 1e-6, ns: 1e-9};
/** Times that differ by less are equal: above the errors of rounding, below any interval. */
const EPSILON = 1e-6;
/** Relative difference of a rate and the records a second of a datapoint that are the same. */
const SAME_RATE = 0.01;
/** Datapoints that are looked at to tell what the elements of a field are. */
const MAX_DECIDING = 1000;
/** Datapoints whose headers are read together. */
const AT_ONCE = 512;

/** Tells whether the values of a type have elements. */
export function isStream(type: FieldType): boolean {
  return type.sequence || ['video', 'audio'].includes(kindOf(type)) || isRows(type);
}

export const isRows = ({word, args, sequence}: FieldType) => word === 'array' && !sequence && args[1] === '?';

/** Returns the field with the times of the elements of a field; null if there is none. */
export function timesOf(fields: Fields, field: string): string | null {
  const {times} = fields.facts(field);
  return typeof times === 'string' && fields.spec.get(times)?.sequence ? times : null;
}

/** The fields whose elements have their times in a field: it is a clock. */
export function timedBy(fields: Fields, field: string): string[] {
  return [...fields.spec.keys()].filter(name => name !== field && timesOf(fields, name) === field);
}

/** The rate that the metadata of a field has. */
export function rateOf(fields: Fields, field: string): number | null {
  const {rate} = fields.facts(field);
  return typeof rate === 'number' && rate > 0 && rate < Infinity ? rate : null;
}

function startOf(fields: Fields, field: string): number | null {
  const {start} = fields.facts(field);
  return typeof start === 'number' && Number.isFinite(start) ? start : null;
}

/** Tells whether the elements of a field may have times, by its type and metadata. */
export function mayHaveTimes(fields: Fields, field: string): boolean {
  const type = fields.spec.get(field)!;
  return isStream(type) && (['video', 'audio'].includes(kindOf(type)) || timesOf(fields, field) !== null || rateOf(fields, field) !== null);
}

/** The elements of a field in a datapoint, and their times: seconds on the clock of the datapoint. */
export class Stream {
  constructor(
    readonly elements: Elements,
    readonly count: number,
    /** Elements a second, where that is constant. */
    readonly rate: number | null,
    /** The time of the first element. */
    readonly start: number,
    /** The times of the elements and the end of the last one, where no rate tells them. */
    private table: Float64Array | null,
    /** The records, of videos and sounds that are joined. */
    readonly parts: Part[],
    /** What is to be said of the times. */
    readonly notes: string[] = [],
  ) {}

  get hasTimes(): boolean {
    return this.rate !== null || this.table !== null;
  }

  /** The time of an element; of the one after the last, its end. */
  time(element: number): number {
    return this.table ? this.table[element] : this.start + element / this.rate!;
  }

  /** The times of elements. */
  times(start = 0, stop = this.count): Float64Array {
    if (this.table) return this.table.subarray(start, Math.min(stop, this.count));
    return Float64Array.from({length: Math.max(0, Math.min(stop, this.count) - start)}, (_, i) => this.time(start + i));
  }

  /** The end of the last element. */
  get end(): number {
    return this.time(this.count);
  }

  /** Seconds from the first element to the end of the last one. */
  get duration(): number {
    return this.count ? this.end - this.time(0) : 0;
  }

  /** Elements a second, or the average. */
  get pace(): number {
    return this.rate ?? (this.duration ? this.count / this.duration : 0);
  }

  /** The last element at or before a time; -1 before the first one. */
  at(seconds: number): number {
    if (!this.table) return Math.max(-1, Math.min(this.count - 1, Math.floor((seconds - this.start + EPSILON) * this.rate!)));
    return before(this.table, this.count, seconds + EPSILON);
  }

  /** The first element, and the end, of those whose times are in [start, stop). */
  between(start: number, stop: number): [number, number] {
    const from = (seconds: number) => {
      const found = this.table ? before(this.table, this.count, seconds - EPSILON) + 1 : Math.ceil((seconds - this.start - EPSILON) * this.rate!);
      return Math.max(0, Math.min(this.count, found));
    };
    const first = from(start);
    return [first, Math.max(first, from(stop))];
  }
}

/** The last of ascending numbers that is not above a number; -1 if there is none. */
function before(numbers: Float64Array, count: number, number: number): number {
  let low = -1, high = count - 1;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (numbers[middle] <= number) low = middle;
    else high = middle - 1;
  }
  return low;
}

// What the elements are.

const decided = new WeakMap<Dataset, Map<string, Promise<Elements>>>();

/** Returns what the elements of a field are, in all datapoints. Reads headers only where the metadata leaves it open. */
export function elementsOf(dataset: Dataset, field: string): Promise<Elements> {
  const known = decided.get(dataset) ?? new Map<string, Promise<Elements>>();
  decided.set(dataset, known);
  const found = known.get(field) ?? decide(dataset, field);
  known.set(field, found);
  found.catch(() => known.delete(field));
  return found;
}

async function decide(dataset: Dataset, field: string): Promise<Elements> {
  const type = dataset.type(field), kind = kindOf(type), facts = dataset.facts(field);
  if (!isStream(type)) throw new Error(`${field} is ${type.text}: expected a sequence, a video, a sound, or an array whose first dimension is ?`);
  if (kind !== 'video' && kind !== 'audio') return isRows(type) ? 'rows' : 'items';
  const joined = kind === 'video' ? 'frames' : 'samples', times = timesOf(dataset, field), rate = rateOf(dataset, field);
  if (type.sequence && facts.elements === 'items') return 'items';
  if (kind === 'video' ? !type.sequence || times === null : times === null ? rate === null : !type.sequence) return joined;
  for (let index = 0; index < Math.min(dataset.length, MAX_DECIDING); index++) {
    const locations = await dataset.locations(index, field);
    if (!locations?.length) continue;
    if (times !== null) {
      // The first datapoint whose records and frames differ in number tells which have the times.
      const count = await dataset.count(index, times) ?? 0;
      if (count !== locations.length) return joined;
      if (kind === 'audio' || (await ownLength(dataset, index, field, locations)).elements !== count) return 'items';
      continue;
    }
    const {elements, seconds} = await ownLength(dataset, index, field, locations);
    const samples = seconds > 0 ? elements / seconds : NaN, records = seconds > 0 ? locations.length / seconds : NaN;
    if (isNear(rate!, samples, 1e-6) || rate === resampledTo(type)) return 'samples';
    if (type.sequence && isNear(rate!, records, SAME_RATE)) return 'items';
    // Whatever the rate of the samples that were encoded, Opus has 48 kHz.
    if (type.word === 'opus') return 'samples';
    throw new Error(`field ${field}: rate ${rate} of the metadata: expected the ${shown(samples)} samples a second of the recordings`
      + `${type.sequence ? `, or the ${shown(records)} records a second of datapoint ${index}` : ''}`);
  }
  return joined;
}

const isNear = (one: number, two: number, relative: number) => Math.abs(one - two) <= relative * Math.max(one, two);
const shown = (number: number) => Number(number.toPrecision(6));

// How many, and how long.

/** What is known of a stream without its times: for conditions and distributions. */
export interface Measured {
  elements: number;
  /** From the first element to the end of the last one; null if the elements have no times. */
  seconds: number | null;
}

const measured = new WeakMap<Dataset, Map<string, Map<number, Measured | null>>>();

/** Throws for a type of a package, whose records may have frames that this page does not know. */
function expectKnown(dataset: Dataset, field: string): void {
  const {package: name, elements} = dataset.facts(field);
  if (typeof name === 'string' && elements !== 'items') throw new Error(`${field} is ${dataset.type(field).text}, a type of the package ${name}, whose elements this page does not know: use dataset.filter in Python`);
}

/** Returns the elements and the seconds of a field in a datapoint; null if it is missing. Reads headers only. */
export async function measure(dataset: Dataset, index: number, field: string): Promise<Measured | null> {
  expectKnown(dataset, field);
  const elements = await elementsOf(dataset, field), locations = await dataset.locations(index, field);
  return locations && measureOne(dataset, index, field, elements, locations, () => {});
}

/** Yields what `measure` returns for consecutive datapoints; calls `spend` with bytes before they are read. */
export async function* measures(dataset: Dataset, field: string, spend: (bytes: number) => void): AsyncGenerator<{first: number; values: (Measured | null)[]}> {
  expectKnown(dataset, field);
  const elements = await elementsOf(dataset, field), rate = rateOf(dataset, field);
  if (elements === 'items' && timesOf(dataset, field) === null) {
    for await (const {first, values} of dataset.column(field, 'count')) {
      yield {first, values: (values as ({length: number} | null)[]).map(value => value && {elements: value.length, seconds: rate && value.length / rate})};
    }
    return;
  }
  for await (const {first, values} of dataset.column(field, 'location')) {
    const found: (Measured | null)[] = [];
    for (let start = 0; start < values.length; start += AT_ONCE) {
      found.push(...await Promise.all(values.slice(start, start + AT_ONCE).map((locations, i) =>
        locations ? measureOne(dataset, first + start + i, field, elements, locations as Location[], spend) : null)));
    }
    yield {first, values: found};
  }
}

async function measureOne(dataset: Dataset, index: number, field: string, elements: Elements, locations: Location[], spend: (bytes: number) => void): Promise<Measured> {
  const known = measured.get(dataset) ?? new Map<string, Map<number, Measured | null>>(), ofField = known.get(field) ?? new Map<number, Measured | null>();
  measured.set(dataset, known.set(field, ofField));
  const before = ofField.get(index);
  if (before) return before;
  const times = timesOf(dataset, field), rate = rateOf(dataset, field);
  let count: number, own: number | null = null, last = NaN;
  if (elements === 'frames' || elements === 'samples') ({elements: count, seconds: own, last} = await ownLength(dataset, index, field, locations, spend));
  else count = elements === 'rows' ? await countRows(dataset, index, field, locations, spend) : locations.length;
  let seconds = own;
  if (elements !== 'samples' && times !== null) {
    const table = await readTimes(dataset, index, field, times, elements, count, rate, last);
    seconds = count ? table[count] - table[0] : 0;
  } else if (elements !== 'samples' && rate !== null) seconds = count / rate;
  const found = {elements: count, seconds};
  ofField.set(index, found);
  return found;
}

async function countRows(dataset: Dataset, index: number, field: string, [location]: Location[], spend: (bytes: number) => void): Promise<number> {
  const [dtype, , ...others] = dataset.type(field).args;
  const size = others.reduce((product, length) => product * Number(length), itemSize(dtype));
  if (!location.compressed) return size ? Math.floor((location.stop - location.start) / size) : 0;
  spend(location.stop - location.start);
  return (await dataset.value(index, field) as NdArray).shape[0];
}

// When they happen.

/** Returns the stream of a field in a datapoint; null if it is missing. Reads headers and times. */
export async function openStream(dataset: Dataset, index: number, field: string): Promise<Stream | null> {
  const elements = await elementsOf(dataset, field), locations = await dataset.locations(index, field);
  if (!locations) return null;
  const times = timesOf(dataset, field), rate = rateOf(dataset, field), start = startOf(dataset, field);
  let parts: Part[] = [], count: number;
  if (elements === 'samples') {
    const lengths = await Promise.all(locations.map((location, item) => ownLength(dataset, index, field, [location], () => {}, item).then(({elements: samples, seconds}) => ({location, samples, seconds}))));
    let first = 0;
    for (const {location, samples} of lengths) {
      parts.push({location, first, count: samples, info: null, own: new Float64Array(0)});
      first += samples;
    }
    const seconds = lengths.reduce((sum, {seconds: each}) => sum + each, 0);
    const notes = times === null ? [] : [`times: the samples follow each other at the rate of the recordings, not by ${times}`];
    return new Stream(elements, first, seconds ? first / seconds : null, start ?? 0, seconds ? null : new Float64Array(1), parts, notes);
  }
  if (elements === 'frames') {
    parts = await Promise.all(locations.map((location, item) => readVideo(dataset, index, field, item, location)));
    let first = 0;
    for (const part of parts) {
      part.first = first;
      first += part.count;
    }
    count = first;
  } else count = elements === 'rows' ? await countRows(dataset, index, field, locations, () => {}) : locations.length;
  if (parts.some(({info}) => !info)) return new Stream(elements, count, null, start ?? 0, null, parts, ['the header cannot be read: it plays by its own time']);
  const {own} = parts[parts.length - 1] ?? {own: new Float64Array(1)};
  if (times !== null) {
    const last = elements === 'frames' && own.length > 1 ? own[own.length - 1] - own[own.length - 2] : NaN;
    const table = await readTimes(dataset, index, field, times, elements, count, rate, last);
    return new Stream(elements, count, null, table[0], table, parts);
  }
  if (rate !== null) return new Stream(elements, count, rate, start ?? 0, null, parts);
  if (elements !== 'frames') return new Stream(elements, count, null, start ?? 0, null, parts);
  const table = joinedTimes(parts, start);
  return new Stream(elements, count, null, table[0], table, parts);
}

/** The times of frames of records, each of which begins where the one before ends. */
export function joinedTimes(parts: Part[], start: number | null): Float64Array {
  const table = new Float64Array(parts.reduce((sum, {own}) => sum + own.length - 1, 1));
  let at = 0, end = start ?? (parts.length === 1 && !parts[0].location.segment ? parts[0].own[0] : 0);
  for (const {own} of parts) {
    for (let i = 0; i < own.length - 1; i++) table[at++] = end + own[i] - own[0];
    end += own[own.length - 1] - own[0];
  }
  table[at] = end;
  return table;
}

/** Reads the times of elements, with the end of the last one after them. */
async function readTimes(dataset: Dataset, index: number, field: string, times: string, elements: Elements, count: number, rate: number | null, last: number): Promise<Float64Array> {
  const {unit = 's'} = dataset.facts(times);
  if (typeof unit !== 'string' || !Object.hasOwn(UNITS, unit)) throw new Error(`field ${times}: unit of times: expected ${Object.keys(UNITS).join(', ')}, got ${JSON.stringify(unit)}`);
  const found = (await dataset.value(index, times) as unknown[] | null) ?? [];
  if (found.length !== count) throw new Error(`datapoint ${index}: expected a time in ${times} for each of the ${count} ${elements} of ${field}, got ${found.length}`);
  const table = new Float64Array(count + 1);
  for (let i = 0; i < count; i++) {
    const item = found[i];
    table[i] = Number(item instanceof NdArray ? item.data[0] : item) * UNITS[unit];
    if (!Number.isFinite(table[i]) || i && !(table[i] > table[i - 1])) {
      throw new Error(`datapoint ${index}: expected increasing times in ${times}, got ${table[i]} s as item ${i}${i ? ` after ${table[i - 1]} s` : ''}`);
    }
  }
  if (rate !== null) last = 1 / rate;
  if (!Number.isFinite(last)) last = median(table.subarray(0, count));
  table[count] = count ? table[count - 1] + last : 0;
  return table;
}

/** The median interval of times; 0 of a single one. */
function median(times: Float64Array): number {
  if (times.length < 2) return 0;
  const intervals = Float64Array.from({length: times.length - 1}, (_, i) => times[i + 1] - times[i]).sort(), middle = intervals.length >> 1;
  return intervals.length % 2 ? intervals[middle] : (intervals[middle - 1] + intervals[middle]) / 2;
}
