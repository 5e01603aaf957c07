// The rows of the grid: the datapoints that pass a condition, in the order of a field. Columns are read by range, up to a limit.

import {parseCondition} from '../bags/condition';
import {Counted, SIGNS} from '../bags/comparison';
import type {Dataset} from '../bags/dataset';
import {canBeMeant, MAX_EXPLAINED, valueOfPath, wrongPath} from '../bags/paths';
import {measures} from '../bags/streams';
import {kindOf} from '../bags/values';

/** Bytes of columns that one filter may read. */
export const MAX_FILTER_BYTES = 64 << 20;

/** Returns the datapoints that pass, in order; reports the part that is done, until it is told to stop. */
export async function filterRows(dataset: Dataset, text: string, progress: (done: number) => boolean): Promise<Uint32Array> {
  const {needs, measures, paths, expected, test} = parseCondition(text, dataset.spec, field => dataset.facts(field));
  let left = MAX_FILTER_BYTES;
  const columns = [...needs].map(([field, need]) => {
    const spend = (bytes: number) => {
      left -= bytes;
      if (left < 0) throw tooLarge(field);
    };
    if (need === 'value' && (dataset.sizes?.get(field) ?? 0) > MAX_FILTER_BYTES) throw tooLarge(field);
    return {key: field, runs: dataset.column(field, need, spend)};
  });
  for (const [key, [field, measure]] of measures) {
    const spend = (bytes: number) => {
      left -= bytes;
      if (left < 0) throw tooLarge(field);
    };
    columns.push({key, runs: measure === 'size' ? dataset.column(field, 'size') : measured(dataset, field, measure, spend)});
  }
  const types = new Map([...paths.keys()].map(key => [key, new Set<string>()]));
  const values = new Map([...paths.values()].map(({field}) => [field, [] as unknown[]]));
  const checkPaths = () => {
    for (const [key, path] of paths) {
      if (!canBeMeant(types.get(key)!, expected.get(key)!)) throw wrongPath(path, types.get(key)!, expected.get(key)!, values.get(path.field)!);
    }
  };
  const kept: number[] = [];
  for (;;) {
    // Fields are read in step: they have the same runs.
    const runs = await Promise.all(columns.map(({runs}) => runs.next()));
    if (!runs.length || runs[0].done) {
      checkPaths();
      return Uint32Array.from(kept);
    }
    const found = runs.map(run => run.value!.values), {first} = runs[0].value!;
    for (let i = 0; i < found[0].length; i++) {
      const row = Object.fromEntries(columns.map(({key}, k) => [key, found[k][i]]));
      for (const [field, some] of values) if (row[field] !== null && some.length < MAX_EXPLAINED) some.push(row[field]);
      for (const [key, path] of paths) row[key] = valueOfPath(path, row[path.field], types.get(key)!);
      if (test(row)) kept.push(first + i);
    }
    if (!progress((first + found[0].length) / dataset.length)) throw new Error('stopped');
  }
}

/** Yields the seconds or the elements of a stream of each datapoint, in the runs of `Dataset.column`. */
async function* measured(dataset: Dataset, field: string, measure: 'duration' | 'elements', spend: (bytes: number) => void): AsyncGenerator<{first: number; values: unknown[]}> {
  for await (const {first, values} of measures(dataset, field, spend)) {
    yield {first, values: values.map(value => {
      if (measure === 'elements') return value && value.elements;
      if (value && value.seconds === null) throw new Error(`field ${field}: its items have no times: expected a rate or times in its metadata`);
      return value && value.seconds;
    })};
  }
}

/** Tells whether datapoints have an order by a field: by numbers, texts, or the items of a sequence. */
export function isOrdered(dataset: Dataset, field: string): boolean {
  return dataset.spec.has(field) && (dataset.type(field).sequence || ['number', 'text'].includes(kindOf(dataset.type(field))));
}

/** Returns datapoints in the order of a field, after a - from the largest; those without a value come last. */
export async function sortRows(dataset: Dataset, rows: Uint32Array | null, sort: string, progress: (done: number) => boolean): Promise<Uint32Array> {
  const falling = sort.startsWith('-') && !dataset.spec.has(sort), field = falling ? sort.slice(1) : sort;
  if (!isOrdered(dataset, field)) throw new Error(dataset.spec.has(field) ? `${field} is ${dataset.type(field).text}: its values have no order` : `no field '${field}' to order by`);
  const values: (number | bigint | string | boolean | null)[] = new Array(dataset.length).fill(null);
  let left = MAX_FILTER_BYTES;
  const spend = (bytes: number) => {
    left -= bytes;
    if (left < 0) throw new Error(`an order here reads at most ${MAX_FILTER_BYTES >> 20} MiB, of which ${field} needs more`);
  };
  const counted = dataset.type(field).sequence;
  for await (const run of dataset.column(field, counted ? 'count' : 'value', spend)) {
    run.values.forEach((value, i) => {
      const found = value instanceof Counted ? value.length : value === null && counted ? 0 : value as number | string | null;
      values[run.first + i] = Number.isNaN(found) ? null : found;
    });
    if (!progress((run.first + run.values.length) / dataset.length)) throw new Error('stopped');
  }
  const all = rows ?? Uint32Array.from({length: dataset.length}, (_, i) => i);
  return Uint32Array.from(all).sort((a, b) => {
    const one = values[a], two = values[b];
    if (one === null || two === null) return Number(one === null) - Number(two === null) || a - b;
    return one === two ? a - b : SIGNS['<'](one, two) !== falling ? -1 : 1;
  });
}

function tooLarge(field: string): Error {
  return new Error(`a filter here reads at most ${MAX_FILTER_BYTES >> 20} MiB, of which ${field} needs more: use dataset.filter in Python`);
}
