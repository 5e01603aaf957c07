// How the values of a field are distributed: histograms, and counts of single values. A click filters.

import {useState} from 'preact/hooks';

import {fieldIn, textIn} from '../bags/condition';
import type {Dataset} from '../bags/dataset';
import {mayHaveTimes, measure} from '../bags/streams';
import {kindOf} from '../bags/values';
import {MAX_FILTER_BYTES} from './filter';
import {bytesText, exactText, numberText} from './format';
import {useLoaded} from './load';
import {className} from './picture';
import {navigate} from './route';
import {Failure} from './thumbnail';

const BINS = 24;
/** Values that are listed, and different values that are counted. */
const LISTED = 20;
const MAX_COUNTED = 100_000;
const SAMPLED_MEDIA = 24;

export interface Distribution {
  what: '' | 'items' | 'characters' | 'bytes' | 'seconds';
  numbers: number[];
  /** What a condition compares with the numbers; without it a click does nothing. */
  compared?: string;
}

export const filterBy = (filter: string) => navigate({view: 'grid', filter, at: 0});

/** A histogram with its range. */
export function Histogram({distribution, field, note, classes}: {distribution: Distribution; field: string; note: string; classes?: unknown}) {
  const {what, numbers} = distribution;
  if (!numbers.length) return null;
  let low = Infinity, high = -Infinity, whole = true;
  for (const number of numbers) {
    low = Math.min(low, number);
    high = Math.max(high, number);
    whole &&= Number.isInteger(number);
  }
  const text = (value: number) => what === 'bytes' ? bytesText(value) : what === 'seconds' ? `${numberText(Number(value.toPrecision(4)))} s` : className(what ? null : classes, value) ?? numberText(value);
  const single = whole && high - low < BINS, bins = single ? high - low + 1 : BINS;
  const counts = new Array<number>(bins).fill(0);
  for (const value of numbers) counts[single ? value - low : Math.min(bins - 1, Math.floor(bins * (high > low ? (value - low) / (high - low) : 0)))] += 1;
  return <div class="distribution">
    <Bars counts={counts} low={low} high={high} single={single} label={`Histogram of ${field}${what && `, ${what}`}`} text={text}
      compared={distribution.compared} />
    <span>{['items', 'characters'].includes(what) && `${what} `}{low === high ? text(low) : `${text(low)} … ${text(high)}`} <span class="faint">{note}</span></span>
  </div>;
}

interface BarsProps {
  counts: number[];
  low: number;
  high: number;
  label: string;
  /** Whether each bar is one number, instead of a range. */
  single?: boolean;
  text?(value: number): string;
  compared?: string;
}

/** Bars from `low` to `high`, each of which filters if it can; the arrows move among them. */
export function Bars({counts, low, high, label, single = false, text = numberText, compared}: BarsProps) {
  const most = Math.max(1, ...counts);
  const edge = (i: number) => single ? low + i : i === counts.length ? high : i ? Number((low + (high - low) * i / counts.length).toPrecision(6)) : low;
  const condition = (i: number) => {
    const start = edge(i), stop = edge(i + 1);
    return single || low === high ? `${compared} == ${start}` : `${start} <= ${compared} ${i === counts.length - 1 ? '<=' : '<'} ${stop}`;
  };
  const onKey = (event: KeyboardEvent) => {
    const bar = event.target as HTMLElement;
    const next = event.key === 'ArrowRight' ? bar.nextElementSibling : event.key === 'ArrowLeft' ? bar.previousElementSibling : null;
    (next as HTMLElement | null)?.focus();
  };
  return (
    <div class="bars" role="group" aria-label={label} onKeyDown={onKey}>
      {counts.map((count, i) => {
        const title = `${text(edge(i))}${single ? '' : ` … ${text(edge(i + 1))}`}: ${count.toLocaleString('en')}`;
        const bar = <i style={{height: `${count ? Math.max(4, 100 * count / most) : 0}%`}} />;
        return compared ? <button key={i} tabIndex={i ? -1 : 0} title={title} aria-label={title} onClick={() => filterBy(condition(i))}>{bar}</button>
          : <span key={i} title={title}>{bar}</span>;
      })}
    </div>
  );
}

/** Counts the values of a field, when it is asked to. */
export function Counts({dataset, field}: {dataset: Dataset; field: string}) {
  const [open, setOpen] = useState(false);
  const type = dataset.type(field);
  if (type.sequence || !['number', 'text'].includes(kindOf(type))) return null;
  return <details class="counts" onToggle={event => setOpen(event.currentTarget.open)}>
    <summary>Values</summary>
    {open && <Counted20 dataset={dataset} field={field} />}
  </details>;
}

function Counted20({dataset, field}: {dataset: Dataset; field: string}) {
  const [done, setDone] = useState(0);
  const loaded = useLoaded(() => countValues(dataset, field, setDone), [dataset, field]);
  if (loaded.state === 'error') return <Failure error={loaded.error} />;
  if (loaded.state === 'loading') return <span class="faint">{Math.round(100 * done)} %</span>;
  const {counts, missing} = loaded.value;
  const listed = [...counts].sort((a, b) => b[1] - a[1]).slice(0, LISTED), most = listed[0]?.[1] ?? 1;
  const {classes} = dataset.facts(field), name = fieldIn(field);
  const row = (key: string, label: string, count: number, condition: string) => (
    <tr key={key}>
      <td><button class="link" onClick={() => filterBy(condition)}>{label.slice(0, 80) || '""'}</button></td>
      <td class="number">{count.toLocaleString('en')}</td>
      <td><i class="fraction" style={{width: `${100 * count / most}px`}} /></td>
    </tr>);
  return <>
    <table><tbody>
      {listed.map(([value, count]) => {
        const label = className(classes, value);
        const text = typeof value === 'string' ? textIn(value, dataset.spec) : label !== undefined ? textIn(label, dataset.spec) : String(value);
        return row(String(value), label ?? (typeof value === 'number' ? exactText(value) : String(value)), count, Number.isNaN(value) ? `${name} != ${name}` : `${name} == ${text}`);
      })}
      {missing > 0 && row('none', 'None', missing, `${name} is none`)}
    </tbody></table>
    <span class="faint">{counts.size.toLocaleString('en')} different values{counts.size > LISTED && `, the ${LISTED} most frequent`}</span>
  </>;
}

async function countValues(dataset: Dataset, field: string, report: (done: number) => void) {
  const counts = new Map<unknown, number>();
  let missing = 0, left = MAX_FILTER_BYTES;
  const spend = (bytes: number) => {
    left -= bytes;
    if (left < 0) throw new Error(`${field} takes more than the ${MAX_FILTER_BYTES >> 20} MiB that are counted here`);
  };
  for await (const {first, values} of dataset.column(field, 'value', spend)) {
    for (const value of values) {
      if (value === null) missing += 1;
      else counts.set(value, (counts.get(value) ?? 0) + 1);
    }
    if (counts.size > MAX_COUNTED) throw new Error(`more than ${MAX_COUNTED.toLocaleString('en')} different values`);
    report((first + values.length) / dataset.length);
  }
  return {counts, missing};
}

/** Returns the seconds of the streams of some datapoints; null where they are not known. */
export async function durations(dataset: Dataset, field: string, indices: number[]): Promise<Distribution | null> {
  if (!mayHaveTimes(dataset, field)) return null;
  // Those of sequences with a rate cost no reading.
  const isRead = dataset.facts(field).times !== undefined || ['video', 'audio'].includes(kindOf(dataset.type(field)));
  const some = isRead ? indices.filter((_, i) => i % Math.ceil(indices.length / SAMPLED_MEDIA) === 0) : indices;
  if (isRead && (await Promise.all(some.map(index => dataset.location(index, field)))).some(location => location?.compressed)) return null;
  const found = await Promise.all(some.map(index => measure(dataset, index, field)));
  const numbers = found.flatMap(each => each?.seconds ?? []);
  return numbers.length ? {what: 'seconds', numbers, compared: `duration(${fieldIn(field)})`} : null;
}
