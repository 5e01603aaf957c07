// Facts of the fields: sizes from shards.json, values from statistics.json or a sample.

import {fieldIn} from '../bags/condition';
import {MissingError} from '../bags/errors';
import {readWhole} from '../bags/ranges';
import {parseJson} from '../bags/spec';
import type {Dataset} from '../bags/dataset';
import {kindOf, NdArray} from '../bags/values';
import {factsProblems, strangersOf} from './facts';
import {Bars, Counts, type Distribution, durations, Histogram} from './distribution';
import {bytesText, countText, numberText, shortText} from './format';
import {useLoaded} from './load';
import {Scroll} from './scroll';
import {Failure} from './thumbnail';

/** Datapoints of a sample, in runs that are spread over the dataset. */
const RUNS = 8;
const RUN = 16;
/** Larger values are not read for a sample. */
const MAX_VALUE_BYTES = 1 << 16;
/** Elements of arrays that are listed, and that are shown at once. */
const MAX_ELEMENTS = 100;
const MAX_OPEN = 16;
/** The channels of images and frames, by their number. */
const CHANNELS: Record<number, string[]> = {1: ['gray'], 3: ['red', 'green', 'blue'], 4: ['red', 'green', 'blue', 'alpha']};

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
        <thead><tr><th>field</th><th>type</th>{dataset.sizes && <th>bytes</th>}{dataset.counts && <th>records</th>}<th>values</th></tr></thead>
        <tbody>
          {[...dataset.spec].map(([name, type]) => (
            <tr key={name}>
              <th>{name}</th>
              <td><code>{type.text}</code>{factsProblems(dataset, name).map(problem => <div key={problem} class="failure">{problem}</div>)}</td>
              {dataset.sizes && <td class="number" data-label="bytes">{bytesText(dataset.sizes.get(name) ?? 0)}</td>}
              {dataset.counts && <td class="number" data-label="records">{(dataset.counts.get(name) ?? 0).toLocaleString('en')}</td>}
              <Values dataset={dataset} field={name} statistics={Object.hasOwn(statistics, name) ? statistics[name] : null} />
            </tr>
          ))}
        </tbody>
      </table>
      {!dataset.sizes && <p class="faint">Bytes and records of each field are shown of a sharded dataset with a shards.json, which bags.consolidate writes.</p>}
      {Object.keys(dataset.metadata).length > 0 && <>
        <h2>Metadata</h2>
        {strangersOf(dataset).length > 0 && <p class="failure">fields: the dataset has no {strangersOf(dataset).slice(0, 20).join(', ')}{strangersOf(dataset).length > 20 && ', …'}</p>}
        <Metadata text={JSON.stringify(dataset.metadata, null, 2)} />
      </>}
    </main>
  );
}

function Metadata({text}: {text: string}) {
  const limit = 20_000;
  return <>
    <pre class="text">{text.slice(0, limit)}</pre>
    {text.length > limit && <p class="faint">the first {limit.toLocaleString('en')} of {countText(text.length, 'character')}</p>}
  </>;
}

async function readStatistics(dataset: Dataset): Promise<Record<string, Statistics>> {
  try {
    const found = parseJson(await readWhole(dataset.cache, `${dataset.firstFolder}statistics.json`), 'statistics.json') as Record<string, any>;
    const fields: Record<string, Statistics> = {};
    if (typeof found.datapoints === 'number' && found.datapoints !== dataset.length) return {};  // Datapoints were added since.
    for (const [name, entry] of Object.entries(found.fields ?? {})) fields[name] = entry as Statistics;
    return fields;
  } catch (error) {
    if (error instanceof MissingError) return {};
    throw error;
  }
}

function Values({dataset, field, statistics}: {dataset: Dataset; field: string; statistics: Statistics | null}) {
  const loaded = useLoaded(() => sample(dataset, field), [dataset, field]);
  const type = dataset.type(field);
  const known = statistics && Array.isArray(statistics.histogram) ? <Known statistics={statistics} field={field} dataset={dataset} /> : null;
  if (loaded.state === 'error') return <td>{known}<Failure error={loaded.error} /></td>;
  if (loaded.state === 'loading') return <td class="faint">{known ?? '…'}</td>;
  const {distributions, problem, example, missing, long, read} = loaded.value;
  const text = [example && `e.g. ${example}`, missing ? `${missing} of ${read} missing` : '', long ? `${long} of ${read} longer than ${bytesText(MAX_VALUE_BYTES)}, not read` : ''].filter(Boolean).join('; ');
  const shown = known && !type.sequence && kindOf(type) === 'number' ? [] : distributions;
  return <td>
    {known}
    {shown.map(each => <Histogram key={each.what} distribution={each} field={field} note={`(sample of ${each.numbers.length.toLocaleString('en')})`} classes={dataset.facts(field).classes} />)}
    {text && <span class="faint">{text}</span>}
    {problem && <Failure error={problem} />}
    <Counts dataset={dataset} field={field} />
  </td>;
}

/** What `bags.statistics` found: of one number, or of each joint, channel or other element. */
function Known({statistics, dataset, field}: {statistics: Statistics; dataset: Dataset; field: string}) {
  const {min, max, mean, std, histogram} = statistics, type = dataset.type(field);
  if (typeof mean === 'number') {
    return <div class="distribution">
      <Bars counts={histogram as number[]} low={Number(min)} high={Number(max)} label={`Histogram of ${field}`}
        compared={type.sequence || kindOf(type) !== 'number' ? undefined : fieldIn(field)} />
      <span>{numberText(min)} … {numberText(max)}, mean {numberText(mean)}, std {numberText(std)}</span>
    </div>;
  }
  const [lows, highs, means, stds] = [min, max, mean, std].map(each => (each as unknown[]).flat(Infinity) as number[]);
  const bins = (histogram as any[]).flat(Infinity) as number[], width = bins.length / means.length;
  const {names} = dataset.facts(field);
  const isMedia = ['image', 'video'].includes(kindOf(type));
  const named = Array.isArray(names) && names.length === means.length ? names.map(String)
    : isMedia && CHANNELS[means.length] || means.map((_, i) => String(i));
  return <details class="counts" open={means.length <= MAX_OPEN}>
    <summary>{countText(means.length, isMedia ? 'channel' : 'element')}</summary>
    <Scroll label={`Statistics of ${field}`}><table class="joints">
      <thead><tr><th>{isMedia ? 'channel' : 'element'}</th><th>min</th><th>mean</th><th>std</th><th>max</th><th>histogram</th></tr></thead>
      <tbody>{means.slice(0, MAX_ELEMENTS).map((value, i) => (
        <tr key={i}>
          <th>{named[i]}</th>
          {[lows[i], value, stds[i], highs[i]].map((number, k) => <td key={k} class="number">{numberText(Number(number.toPrecision(4)))}</td>)}
          <td><Bars counts={bins.slice(i * width, (i + 1) * width)} low={lows[i]} high={highs[i]} label={`Histogram of ${field} ${named[i]}`} /></td>
        </tr>))}
      </tbody>
    </table></Scroll>
    {means.length > MAX_ELEMENTS && <span class="faint">the first {MAX_ELEMENTS}</span>}
  </details>;
}

class Large {
  constructor(readonly size: number) {}
}

/** Reads values of small types, lengths of sequences, sizes of records of others, and durations. */
async function sample(dataset: Dataset, field: string) {
  const type = dataset.type(field), kind = kindOf(type), name = fieldIn(field);
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
    return small ? size < MAX_VALUE_BYTES ? dataset.value(index, field) : new Large(size) : size;
  }));
  const there = found.filter(value => value !== null), large = there.filter(value => value instanceof Large);
  // Of long values the sizes, where none is short.
  const isLarge = large.length > 0 && large.length === there.length;
  const present = isLarge ? large.map(({size}) => size) : there.filter(value => !(value instanceof Large));
  const numbers: number[] = [];
  for (const value of present) {
    if (value instanceof NdArray && value.isNumeric) numbers.push(...Array.from(value.data as ArrayLike<number>).slice(0, 1000));
    else if (typeof value === 'string') numbers.push([...value].length);
    else numbers.push(Number(value));
  }
  const what = type.sequence ? 'items' : isLarge || !small ? 'bytes' : kind === 'text' ? 'characters' : '';
  const compared = what === 'bytes' ? `size(${name})` : type.sequence || kind === 'text' ? `len(${name})` : kind === 'number' ? name : undefined;
  const seconds = await durations(dataset, field, [...indices]).catch((error: Error) => error), problem = seconds instanceof Error ? seconds : null;
  const distributions: Distribution[] = [{what, numbers: numbers.filter(Number.isFinite), compared}, ...seconds && !(seconds instanceof Error) ? [seconds] : []];
  const example = present.length && what === 'characters' ? shortText(present[0], 60) : '';
  return {distributions, problem, example, missing: found.length - there.length, long: isLarge ? 0 : large.length, read: found.length};
}
