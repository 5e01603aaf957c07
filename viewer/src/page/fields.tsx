// Facts of the fields: sizes from shards.json, values from statistics.json or a sample.

import {MissingError} from '../bags/errors';
import {readWhole} from '../bags/ranges';
import {parseJson} from '../bags/spec';
import type {Dataset} from '../bags/dataset';
import {kindOf, NdArray} from '../bags/values';
import {bytesText, numberText, shortText} from './format';
import {useLoaded} from './load';
import {Bars} from './sparkline';
import {Failure} from './thumbnail';

/** Datapoints of a sample, in runs that are spread over the dataset. */
const RUNS = 8;
const RUN = 16;
const BINS = 24;

interface Statistics {
  min: unknown;
  max: unknown;
  mean: unknown;
  std: unknown;
  histogram: unknown;
}

export function FieldsPage({dataset}: {dataset: Dataset}) {
  const kept = useLoaded(() => readStatistics(dataset), [dataset]);
  const statistics = kept.state === 'ready' ? kept.value : {};
  return (
    <main class="facts" tabIndex={0}>
      <table>
        <thead><tr><th>field</th><th>type</th><th>bytes</th><th>records</th><th>values</th><th>histogram</th></tr></thead>
        <tbody>
          {[...dataset.spec].map(([name, type]) => (
            <tr key={name}>
              <th>{name}</th>
              <td><code>{type.text}</code></td>
              <td class="number">{dataset.sizes ? bytesText(dataset.sizes.get(name) ?? 0) : ''}</td>
              <td class="number">{dataset.counts ? (dataset.counts.get(name) ?? 0).toLocaleString('en') : ''}</td>
              <Values dataset={dataset} field={name} statistics={Object.hasOwn(statistics, name) ? statistics[name] : null} />
            </tr>
          ))}
        </tbody>
      </table>
      {!dataset.sizes && <p class="faint">Bytes and records are those of shards.json, which this dataset has not.</p>}
      {Object.keys(dataset.metadata).length > 0 && <>
        <h2>Metadata</h2>
        <pre class="text">{JSON.stringify(dataset.metadata, null, 2).slice(0, 20_000)}</pre>
      </>}
    </main>
  );
}

async function readStatistics(dataset: Dataset): Promise<Record<string, Statistics>> {
  try {
    const found = parseJson(await readWhole(dataset.cache, `${dataset.firstFolder}statistics.json`), 'statistics.json') as Record<string, any>;
    const fields: Record<string, Statistics> = {};
    for (const [name, entry] of Object.entries(found.fields ?? {})) fields[name] = entry as Statistics;
    return fields;
  } catch (error) {
    if (error instanceof MissingError) return {};
    throw error;
  }
}

function Values({dataset, field, statistics}: {dataset: Dataset; field: string; statistics: Statistics | null}) {
  const loaded = useLoaded(() => sample(dataset, field), [dataset, field]);
  if (statistics && typeof statistics.mean === 'number' && Array.isArray(statistics.histogram)) {
    const {min, max, mean, std, histogram} = statistics;
    return <>
      <td>{numberText(min)} … {numberText(max)}, mean {numberText(mean)}, std {numberText(std)}</td>
      <td><Bars counts={histogram as number[]} label={`Histogram of ${field}`} /></td>
    </>;
  }
  if (loaded.state === 'error') return <td colSpan={2}><Failure error={loaded.error} /></td>;
  if (loaded.state === 'loading') return <td colSpan={2} class="faint">…</td>;
  const {numbers, what, example, missing, read} = loaded.value;
  const text = [example && `e.g. ${example}`, missing ? `${missing} of ${read} missing` : ''].filter(Boolean).join('; ');
  if (!numbers.length) return <td colSpan={2} class="faint">{text}</td>;
  const low = Math.min(...numbers), high = Math.max(...numbers);
  const counts = new Array<number>(BINS).fill(0);
  for (const value of numbers) counts[Math.min(BINS - 1, Math.floor(BINS * (high > low ? (value - low) / (high - low) : 0)))] += 1;
  return <>
    <td>{what} {numberText(low)} … {numberText(high)} <span class="faint">(sample of {read}){text && `; ${text}`}</span></td>
    <td><Bars counts={counts} label={`Histogram of ${field}`} /></td>
  </>;
}

/** Reads values of small types, lengths of sequences, and sizes of records of others. */
async function sample(dataset: Dataset, field: string) {
  const type = dataset.type(field), kind = kindOf(type);
  const indices = new Set<number>();
  for (let run = 0; run < RUNS; run++) {
    const first = Math.floor(Math.max(0, dataset.length - RUN) * run / (RUNS - 1));
    for (let i = first; i < Math.min(dataset.length, first + RUN); i++) indices.add(i);
  }
  const small = !type.sequence && ['number', 'text', 'array'].includes(kind);
  const found = await Promise.all([...indices].map(async index => {
    if (type.sequence) return dataset.count(index, field);
    const location = await dataset.location(index, field);
    if (!location) return null;
    const size = location.stop - location.start;
    return small && size < 1 << 16 ? dataset.value(index, field) : size;
  }));
  const present = found.filter(value => value !== null);
  const numbers: number[] = [];
  for (const value of present) {
    if (value instanceof NdArray && value.isNumeric) numbers.push(...Array.from(value.data as ArrayLike<number>).slice(0, 1000));
    else if (typeof value === 'string') numbers.push(value.length);
    else numbers.push(Number(value));
  }
  const what = type.sequence ? 'items' : kind === 'text' ? 'characters' : small ? '' : 'bytes';
  const example = present.length && kind === 'text' && !type.sequence ? shortText(present[0], 60) : '';
  return {numbers: numbers.filter(Number.isFinite), what, example, missing: found.length - present.length, read: found.length};
}
