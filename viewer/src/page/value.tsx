// Values that are not media: text, numbers, arrays, trees, bytes.

import {useMemo, useState} from 'preact/hooks';

import type {FieldFacts} from '../bags/dataset';
import {kindOf, NdArray} from '../bags/values';
import {drawArray, drawValues, isDrawn, rangeOf, sliceOf} from '../media/colors';
import {Cloud, isCloud} from './cloud';
import {Curve} from './curve';
import type {FieldProps} from './datapoint';
import {bytesText, countText, exactText, isBlank, shortText} from './format';
import {DrawnImage} from './image';
import {useLoaded} from './load';
import {className} from './picture';
import {Scroll} from './scroll';
import {countRows, MAX_ROWS, NumberTable, rowsOf} from './table';
import {Failure, seriesOf} from './thumbnail';

const MAX_TEXT = 100_000;
const MAX_TOKENS = 4000;
const MAX_CHILDREN = 200;
const MAX_BYTES = 4096;
const MAX_CELLS = 400;

export function ValuePanel({dataset, index, field}: FieldProps) {
  const loaded = useLoaded(() => dataset.value(index, field), [dataset, index, field]);
  if (loaded.state === 'error') return <Failure error={loaded.error} />;
  if (loaded.state === 'loading') return <div class="loading" />;
  const {value} = loaded;
  if (value === null && dataset.type(field).optional) return <span class="faint">None</span>;
  const facts = dataset.facts(field);
  if (kindOf(dataset.type(field)) === 'number') {
    const label = className(facts.classes, value);
    return <div class="big">{label !== undefined && <>{label} </>}<span class={label === undefined ? '' : 'faint'}>{exactText(value)}</span></div>;
  }
  return <ValueView value={value} facts={facts} />;
}

export function ValueView({value, facts = {}}: {value: unknown; facts?: FieldFacts}) {
  if (typeof value === 'string') return isBlank(value) ? <span class="blank faint">{JSON.stringify(value)}</span> : <Scroll as="pre" label="Text">{value.slice(0, MAX_TEXT)}{value.length > MAX_TEXT && <span class="faint"> … {value.length.toLocaleString('en')} characters</span>}</Scroll>;
  if (value instanceof NdArray) return <ArrayView array={value} facts={facts} />;
  if (value instanceof Uint8Array) return <Hex data={value} />;
  return <Scroll class="tree" label="Tree"><Tree value={value} open /></Scroll>;
}

function ArrayView({array, facts}: {array: NdArray; facts: FieldFacts}) {
  const drawn = useMemo(() => drawArray(array, facts.classes), [array]);
  const series = useMemo(() => seriesOf(array), [array]);
  const cloud = isCloud(array, facts);
  const isTokens = array.shape.length === 1 && /[iu]\d$|int/.test(array.dtype);
  const [isOther, setIsOther] = useState(false);
  const note = `${array.complex && array.data.length > MAX_CELLS ? 'magnitudes of ' : ''}${array.dtype}${array.shape.length ? ` (${array.shape.join(' × ')})` : ''}`;
  if (drawn) return <DrawnImage drawn={drawn} facts={facts} note={note} />;
  if (array.isNumeric && array.shape.length === 3 && isDrawn(array.shape)) return <Slices array={array} facts={facts} note={note} />;
  // Cloud and curve, list and curve: the first one is shown until the button is pressed.
  const other = isTokens && series ? ['Curve', 'List'] : cloud.can ? cloud.first ? ['Numbers', 'Cloud'] : ['Cloud', 'Numbers'] : null;
  const shown = other && isOther ? other[0] : other?.[1];
  const isSmall = array.shape.length <= 2 && array.data.length <= MAX_CELLS && ((array.shape[1] ?? array.shape[0] ?? 1) <= 8 || array.complex);
  const numbers = shown === 'List' || isTokens && !series ? <Tokens values={Array.from(array.data as ArrayLike<number>)} />
    : shown === 'Cloud' ? <Cloud array={array} />
      : series && !isSmall && typeof facts.over !== 'string' ? <Curve series={series} times={null} names={facts.names} clock={null} />
        : <Numbers array={array} names={facts.names} />;
  return <>
    {numbers}
    <div class="controls faint">{note}{other && <button onClick={() => setIsOther(!isOther)}>{isOther ? other[1] : other[0]}</button>}</div>
  </>;
}

function Numbers({array, names}: {array: NdArray; names?: unknown}) {
  const rows = rowsOf(array, MAX_ROWS);
  return rows ? <NumberTable rows={rows} count={countRows(array)} names={names} /> : <Tokens values={Array.from(array.data as ArrayLike<unknown>, value => typeof value === 'number' ? exactText(value) : value)} />;
}

/** An array of three dimensions, a slice at a time, all in the same colours. */
function Slices({array, facts, note}: {array: NdArray; facts: FieldFacts; note: string}) {
  const {shape} = array;
  const axes = [0, 1, 2].filter(axis => shape.every((length, other) => other === axis || length >= 8));
  const [axis, setAxis] = useState(axes[0]);
  const [position, setPosition] = useState(shape[axis] >> 1);
  const range = useMemo(() => rangeOf(array.data as ArrayLike<number>), [array]);
  const drawn = useMemo(() => drawValues(sliceOf(array, axis, position), false, range), [array, axis, position]);
  return <>
    <DrawnImage drawn={drawn} facts={facts} note={note} />
    <div class="controls faint">
      <select aria-label="Axis" value={axis} onChange={event => {
        const next = Number(event.currentTarget.value);
        setAxis(next);
        setPosition(shape[next] >> 1);
      }}>{axes.map(each => <option key={each} value={each}>axis {each}</option>)}</select>
      <input type="range" min={0} max={shape[axis] - 1} value={position} aria-label="Slice" onInput={event => setPosition(Number(event.currentTarget.value))} />
      <span>{position} of {shape[axis]}</span>
    </div>
  </>;
}

/** Short values one after the other: words, tokens. */
export function Tokens({values, current, seek}: {values: unknown[]; current?: number; seek?(place: number): void}) {
  return (
    <Scroll class="tokens" label="Items">
      {values.slice(0, MAX_TOKENS).map((value, i) => (
        <span key={i} class={i === current ? 'current' : ''} title={String(i)} dir="auto" onClick={seek && (() => seek(i))}>{typeof value === 'string' ? isBlank(value) ? JSON.stringify(value) : value.slice(0, 1000) : shortText(value, 1000)}</span>
      ))}
      {values.length > MAX_TOKENS && <i class="faint">and {(values.length - MAX_TOKENS).toLocaleString('en')} more</i>}
    </Scroll>
  );
}

function Tree({name, value, open = false}: {name?: string; value: unknown; open?: boolean}) {
  const [limit, setLimit] = useState(MAX_CHILDREN);
  const [shown, setShown] = useState(open);
  const key = name !== undefined && <span class="key">{name}: </span>;
  const isPlain = value === null || typeof value !== 'object' || value instanceof NdArray || value instanceof Uint8Array || value instanceof Date;
  if (isPlain) return <div>{key}{value instanceof NdArray && value.data.length <= 16 ? `${shortText(value)} ${Array.from(value.data as ArrayLike<number>, exactText).join(' ')}`
    : typeof value === 'string' ? JSON.stringify(value) : shortText(value)}</div>;
  const entries = Array.isArray(value) ? value.map((item, i) => [String(i), item] as const) : Object.entries(value as object);
  return (
    <details open={open} onToggle={event => setShown(event.currentTarget.open)}>
      <summary>{key}<span class="faint">{Array.isArray(value) ? countText(entries.length, 'item') : countText(entries.length, 'key')}</span></summary>
      {shown && <ul>
        {entries.slice(0, limit).map(([part, item]) => <li key={part}><Tree name={part} value={item} open={entries.length <= 8 && open} /></li>)}
        {entries.length > limit && <li><button onClick={() => setLimit(limit * 10)}>{entries.length - limit} more</button></li>}
      </ul>}
    </details>
  );
}

function Hex({data}: {data: Uint8Array}) {
  const lines = [];
  for (let at = 0; at < Math.min(data.length, MAX_BYTES); at += 16) {
    const part = Array.from(data.subarray(at, at + 16));
    const text = part.map(byte => byte >= 32 && byte < 127 ? String.fromCharCode(byte) : '·').join('');
    lines.push(`${at.toString(16).padStart(6, '0')}  ${part.map(byte => byte.toString(16).padStart(2, '0')).join(' ').padEnd(48)} ${text}`);
  }
  return <>
    <Scroll as="pre" class="hex" label="Bytes">{lines.join('\n')}</Scroll>
    <div class="controls faint">{bytesText(data.length)}{data.length > MAX_BYTES && `, of which the first ${MAX_BYTES}`}</div>
  </>;
}
