// Sequences: curves of numbers, images and values at the time cursor, text as tokens.

import type {ComponentType} from 'preact';
import {useEffect, useMemo, useRef} from 'preact/hooks';

import {isRows, mayHaveTimes, openStream, type Stream, timedBy} from '../bags/streams';
import {kindOf, NdArray} from '../bags/values';
import {drawArray, isDrawn} from '../media/colors';
import {Clock, useTime} from './clock';
import {Curve} from './curve';
import type {FieldProps} from './datapoint';
import {countText, numberText, shortText, timeText} from './format';
import {DrawnImage, ImageRecord} from './image';
import {useLoaded} from './load';
import {columnsOf, labelsOf} from './overlay';
import {countRows, MAX_ROWS, NumberTable, rowsOf} from './table';
import {Failure, seriesOf} from './thumbnail';
import {Tokens, ValuePanel, ValueView} from './value';

/** Items that are read of a long sequence. */
const MAX_ITEMS = 20_000;
/** Of items that are shown one at a time, none is read before it is shown. */
const LAZY = new Set(['image', 'bytes', 'tree']);

export function SequencePanel(props: FieldProps) {
  const type = props.dataset.type(props.field), kind = kindOf(type);
  const isPicture = kind === 'array' && isDrawn(type.args.slice(1).map(Number));
  return <Elements {...props} Panel={LAZY.has(kind) || isPicture ? ItemByItem : AllItems} />;
}

/** A sequence of sounds or videos that are items: one at a time, each with a time of its own. */
export function ItemSequence({Item, ...props}: FieldProps & {Item: ComponentType<FieldProps & {item: number}>}) {
  const Panel = useMemo(() => (own: Props) => {
    const item = useClock(own);
    const clock = useMemo(() => new Clock(), [item]);
    return <><Item {...own} clock={clock} item={item} /><Place {...own} item={item} /></>;
  }, [Item]);
  return <Elements {...props} Panel={Panel} />;
}

/** An array whose rows have times: curves over them. */
export function RowsPanel(props: FieldProps) {
  const {dataset, field} = props, isCurve = dataset.type(field).args.length <= 3 && mayHaveTimes(dataset, field);
  return isCurve ? <Elements {...props} Panel={Rows} /> : <ValuePanel {...props} />;
}

/** The elements of a field with their times, or without them where they cannot be used. */
function Elements({Panel, ...props}: FieldProps & {Panel: ComponentType<Props>}) {
  const {dataset, index, field} = props;
  const loaded = useLoaded(async () => {
    const count = await dataset.count(index, field);
    if (count === null) return {count};
    try {
      const stream = (await openStream(dataset, index, field))!;
      return {count: stream.count, stream: stream.hasTimes ? stream : null};
    } catch (problem) {
      return {count, stream: null, problem: problem as Error};
    }
  }, [dataset, index, field]);
  const own = useMemo(() => new Clock('items'), [dataset, index, field]);
  useTime(props.clock);
  if (loaded.state === 'error') return <Failure error={loaded.error} />;
  if (loaded.state === 'loading') return <div class="loading" />;
  const {count, stream = null, problem} = loaded.value;
  if (count === null) return <span class="faint">None</span>;
  if (!count) return <span class="faint">0 items</span>;
  // Boxes of an image, and their labels, are not spread over the time of others.
  const isOfImage = [field, ...dataset.spec.keys()].some((name, i) => typeof dataset.facts(name).over === 'string' && (!i || dataset.facts(name).labels === field));
  return <>
    <Panel {...props} clock={stream || props.clock.runs && !isOfImage && !isRows(dataset.type(field)) ? props.clock : own} count={count} stream={stream} />
    {problem && <Failure error={problem} />}
  </>;
}

interface Props extends FieldProps {
  count: number;
  /** Null: the elements have no times. */
  stream: Stream | null;
}

function useClock({clock, field, count, stream}: Props): number {
  useEffect(() => {
    if (clock.unit === 'items') clock.extend(field, 0, count, 1);
    else if (stream) clock.extend(field, stream.time(0), stream.end, stream.pace ? 1 / stream.pace : 0);
  }, [clock, stream]);
  useTime(clock);
  return Math.max(0, stream ? stream.at(clock.time) : clock.itemAt(null, count));
}

/** The times of other fields: they are no values of their own. */
export function TimesPanel({dataset, index, field}: FieldProps) {
  const loaded = useLoaded(async () => {
    const count = await dataset.count(index, field);
    if (!count) return {count, ends: []};
    const ends = await Promise.all([dataset.value(index, field, 0, 1), dataset.value(index, field, count - 1, count)]) as unknown[][];
    return {count, ends: ends.map(([item]) => item instanceof NdArray ? item.data[0] : item)};
  }, [dataset, index, field]);
  if (loaded.state === 'error') return <Failure error={loaded.error} />;
  if (loaded.state === 'loading') return <div class="loading" />;
  const {count, ends} = loaded.value, {unit = 's'} = dataset.facts(field);
  if (count === null) return <span class="faint">None</span>;
  return <span>{countText(count, 'time')}{count > 0 && ` from ${numberText(ends[0])} to ${numberText(ends[1])} ${unit}`} <span class="faint">of {timedBy(dataset, field).join(', ')}</span></span>;
}

function Rows(props: Props) {
  const {dataset, index, field, clock, stream} = props;
  useClock(props);
  const loaded = useLoaded(() => dataset.value(index, field) as Promise<NdArray>, [dataset, index, field]);
  const value = loaded.state === 'ready' ? loaded.value : null;
  const series = useMemo(() => value && seriesOf(value), [value]);
  const times = useMemo(() => stream?.times() ?? null, [stream]);
  if (loaded.state === 'error') return <Failure error={loaded.error} />;
  if (!value) return <div class="loading" />;
  return series && times ? <Curve series={series} times={times} names={dataset.facts(field).names} clock={clock} /> : <ValueView value={value} facts={dataset.facts(field)} />;
}

function AllItems(props: Props) {
  const {dataset, index, field, count, stream, clock} = props;
  const item = useClock(props);
  const times = useMemo(() => stream?.times(0, MAX_ITEMS) ?? null, [stream]);
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
  // Before the first word, none is said.
  const current = clock.unit === 'items' || stream && stream.at(clock.time) < 0 ? undefined : item;
  return <><Tokens values={values} current={current} seek={stream ? place => clock.seek(stream.time(place)) : undefined} />{note}</>;
}

function ItemByItem(props: Props) {
  const {dataset, index, field} = props;
  const item = useClock(props);
  const type = dataset.type(field), kind = kindOf(type);
  const loaded = useLoaded(async () => kind === 'tree' || kind === 'array' ? (await dataset.value(index, field, item, item + 1) as unknown[])[0]
    : (await dataset.records(index, field, item, item + 1))![0], [dataset, index, field, item]);
  // The one before stays while the next one is read: they follow each other as the frames of a video.
  const last = useRef<unknown>();
  if (loaded.state === 'ready') last.current = loaded.value;
  const value = last.current;
  const drawn = useMemo(() => value instanceof NdArray ? drawArray(value, dataset.facts(field).classes) : null, [value]);
  const shown = loaded.state === 'error' ? <Failure error={loaded.error} /> : value === undefined ? <div class={kind === 'image' ? 'zoom' : 'loading'} />
    : kind === 'image' ? <ImageRecord data={value as Uint8Array} word={type.word} facts={dataset.facts(field)} />
      : drawn ? <DrawnImage drawn={drawn} facts={dataset.facts(field)} note={(value as NdArray).dtype} />
        : kind === 'tree' || kind === 'array' ? <ValueView value={value} /> : <span>{shortText(value)}</span>;
  return <>{shown}<Place {...props} item={item} /></>;
}

function Place({count, item, stream, clock}: Props & {item: number}) {
  const seek = (place: number) => clock.seek(stream ? stream.time(place) : clock.start + (clock.end - clock.start) * place / count);
  return (
    <div class="controls faint">
      <span>item {item.toLocaleString('en')} of {count.toLocaleString('en')}{stream ? ` at ${timeText(stream.time(item) - clock.zero)}` : ''}</span>
      <input type="range" min={0} max={count - 1} value={item} aria-label="Item" onInput={event => seek(Number(event.currentTarget.value))} />
    </div>
  );
}
