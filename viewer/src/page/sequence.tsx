// Sequences: curves of numbers, images and values at the time cursor, text as tokens.

import {useEffect, useMemo} from 'preact/hooks';

import type {Dataset} from '../bags/dataset';
import {kindOf, NdArray} from '../bags/values';
import {drawArray} from '../media/colors';
import {Clock, useTime} from './clock';
import {Curve} from './curve';
import type {FieldProps} from './datapoint';
import {countText, shortText, timeText} from './format';
import {DrawnImage, ImageRecord} from './image';
import {useLoaded} from './load';
import {columnsOf, labelsOf} from './overlay';
import {SoundPanel} from './sound';
import {countRows, MAX_ROWS, NumberTable, rowsOf} from './table';
import {Failure, seriesOf} from './thumbnail';
import {Tokens, ValueView} from './value';

/** Items that are read of a long sequence. */
const MAX_ITEMS = 20_000;
/** Of items that are shown one at a time, none is read before it is shown. */
const LAZY = new Set(['image', 'bytes', 'tree']);

export function SequencePanel(props: FieldProps) {
  const {dataset, index, field} = props;
  const loaded = useLoaded(async () => {
    const count = await dataset.count(index, field);
    return {count, times: count ? await timesOf(dataset, index, field, count) : null};
  }, [dataset, index, field]);
  const own = useMemo(() => new Clock('items'), [dataset, index, field]);
  useTime(props.clock);
  if (loaded.state === 'error') return <Failure error={loaded.error} />;
  if (loaded.state === 'loading') return <div class="loading" />;
  const {count, times} = loaded.value;
  if (count === null) return <span class="faint">None</span>;
  if (!count) return <span class="faint">0 items</span>;
  const kind = kindOf(dataset.type(field));
  const Items = kind === 'audio' ? Sounds : LAZY.has(kind) ? ItemByItem : AllItems;
  // Boxes of an image, and their labels, are not spread over the time of others.
  const isOfImage = [field, ...dataset.spec.keys()].some((name, i) => typeof dataset.facts(name).over === 'string' && (!i || dataset.facts(name).labels === field));
  return <Items {...props} clock={times || props.clock.duration && !isOfImage ? props.clock : own} count={count} times={times} />;
}

type Props = FieldProps & {count: number; times: Float64Array | null};

/** Seconds of the items, by the rate or the field of times that metadata names; null if neither is known. */
async function timesOf(dataset: Dataset, index: number, field: string, count: number): Promise<Float64Array | null> {
  const {rate, start = 0} = dataset.facts(field);
  // A field that has the times of others has its own as well.
  const isTimes = [...dataset.spec.keys()].some(name => dataset.facts(name).times === field);
  const times = isTimes ? field : dataset.facts(field).times;
  const read = Math.min(count, MAX_ITEMS);
  if (typeof times === 'string' && dataset.spec.has(times)) {
    const values = await dataset.value(index, times, 0, read);
    if (Array.isArray(values)) return Float64Array.from(values, value => Number(value instanceof NdArray ? value.data[0] : value));
  }
  if (typeof rate !== 'number' || !(rate > 0)) return null;
  return Float64Array.from({length: read}, (_, i) => Number(start) + i / rate);
}

function useClock({clock, field, count, times}: Props): number {
  useEffect(() => {
    if (clock.unit === 'items') clock.extend(field, count, 1);
    if (times) {
      const step = times.length > 1 ? (times[times.length - 1] - times[0]) / (times.length - 1) : 0;
      clock.extend(field, times[times.length - 1] + step, step);
    }
  }, [clock, times]);
  useTime(clock);
  return Math.max(0, clock.itemAt(times, count));
}

function AllItems(props: Props) {
  const {dataset, index, field, count, times, clock} = props;
  const item = useClock(props);
  const loaded = useLoaded(() => dataset.value(index, field, 0, MAX_ITEMS) as Promise<unknown[]>, [dataset, index, field]);
  const values = loaded.state === 'ready' ? loaded.value : null;
  const series = useMemo(() => values && seriesOf(values), [values]);
  const facts = dataset.facts(field);
  const labels = useLoaded(async () => typeof facts.over === 'string' ? labelsOf(dataset, index, facts) : null, [dataset, index, field]);
  if (loaded.state === 'error') return <Failure error={loaded.error} />;
  if (!values) return <div class="loading" />;
  const note = values.length < count ? <div class="faint">the first {values.length.toLocaleString('en')} of {countText(count, 'item')}</div> : null;
  // Boxes, and other short lists of rows that have no times.
  const rows = times || !(values[0] instanceof NdArray) || values[0].shape[values[0].shape.length - 1] > 8 ? null : rowsOf(values, MAX_ROWS + 1);
  if (rows && (typeof facts.over === 'string' || rows.length <= MAX_ROWS)) return <><NumberTable rows={rows} count={countRows(values)} names={facts.names ?? columnsOf(facts)} labels={labels.state === 'ready' ? labels.value : null} />{note}</>;
  if (series) return <><Curve series={series} times={times} names={dataset.facts(field).names} clock={clock} />{note}</>;
  const drawn = values[item] instanceof NdArray ? drawArray(values[item], facts.classes) : null;
  if (drawn) return <><DrawnImage drawn={drawn} facts={facts} note={values[item] instanceof NdArray ? values[item].dtype : ''} /><Place {...props} item={item} /></>;
  return <><Tokens values={values} current={clock.unit === 'items' ? undefined : item} />{note}</>;
}

/** One sound at a time, each with a time of its own. */
function Sounds(props: Props) {
  const item = useClock(props);
  const clock = useMemo(() => new Clock(), [item]);
  return <><SoundPanel {...props} clock={clock} item={item} /><Place {...props} item={item} /></>;
}

function ItemByItem(props: Props) {
  const {dataset, index, field} = props;
  const item = useClock(props);
  const type = dataset.type(field), kind = kindOf(type);
  const loaded = useLoaded(async () => kind === 'tree' ? (await dataset.value(index, field, item, item + 1) as unknown[])[0]
    : (await dataset.records(index, field, item, item + 1))![0], [dataset, index, field, item]);
  const shown = loaded.state === 'error' ? <Failure error={loaded.error} /> : loaded.state === 'loading' ? <div class={kind === 'image' ? 'zoom' : 'loading'} />
    : kind === 'image' ? <ImageRecord data={loaded.value as Uint8Array} word={type.word} facts={dataset.facts(field)} /> : kind === 'tree' ? <ValueView value={loaded.value} />
      : <span>{shortText(loaded.value)}</span>;
  return <>{shown}<Place {...props} item={item} /></>;
}

function Place({count, item, times, clock}: Props & {item: number}) {
  return (
    <div class="controls faint">
      <span>item {item.toLocaleString('en')} of {count.toLocaleString('en')}{times ? ` at ${timeText(times[item])}` : ''}</span>
      <input type="range" min={0} max={count - 1} value={item} aria-label="Item"
        onInput={event => clock.seek(times ? times[Number(event.currentTarget.value)] : clock.duration * Number(event.currentTarget.value) / count)} />
    </div>
  );
}
