// Values that are not media: text, numbers, arrays, trees, bytes.

import {useMemo, useState} from 'preact/hooks';

import {kindOf, NdArray} from '../bags/values';
import {drawArray} from '../media/colors';
import {Curve} from './curve';
import type {FieldProps} from './datapoint';
import {bytesText, numberText, shortText} from './format';
import {DrawnImage} from './image';
import {useLoaded} from './load';
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
  const {classes, names} = dataset.facts(field);
  if (kindOf(dataset.type(field)) === 'number') {
    const label = typeof value === 'number' && Array.isArray(classes) ? classes[value] : undefined;
    return <div class="big">{typeof label === 'string' && <>{label} </>}<span class={label ? 'faint' : ''}>{numberText(value)}</span></div>;
  }
  return <ValueView value={value} names={names} />;
}

export function ValueView({value, names}: {value: unknown; names?: unknown}) {
  if (typeof value === 'string') return <pre>{value.slice(0, MAX_TEXT)}{value.length > MAX_TEXT && <span class="faint"> … {value.length.toLocaleString('en')} characters</span>}</pre>;
  if (value instanceof NdArray) return <ArrayView array={value} names={names} />;
  if (value instanceof Uint8Array) return <Hex data={value} />;
  return <div class="tree"><Tree value={value} open /></div>;
}

function ArrayView({array, names}: {array: NdArray; names?: unknown}) {
  const drawn = useMemo(() => drawArray(array), [array]);
  const series = useMemo(() => seriesOf(array), [array]);
  const [asCurve, setAsCurve] = useState(false);
  const isTokens = array.shape.length === 1 && /[iu]\d$|int/.test(array.dtype);
  const note = `${array.dtype} (${array.shape.join(' × ')})`;
  if (drawn) return <DrawnImage drawn={drawn} note={note} />;
  const isSmall = array.shape.length <= 2 && array.data.length <= MAX_CELLS && (array.shape[1] ?? array.shape[0] ?? 1) <= 8;
  const numbers = isTokens && !asCurve ? <Tokens values={Array.from(array.data as ArrayLike<number>)} />
    : series && !isSmall ? <Curve series={series} times={null} names={names} clock={null} />
      : array.data.length <= MAX_CELLS ? <Matrix array={array} names={names} />
        : <pre>{shortText(Array.from(array.data as ArrayLike<number>).slice(0, MAX_CELLS), MAX_TEXT)} …</pre>;
  return <>
    {numbers}
    <div class="controls faint">{note}{isTokens && series && <button onClick={() => setAsCurve(!asCurve)}>{asCurve ? 'List' : 'Curve'}</button>}</div>
  </>;
}

function Matrix({array: {shape, data}, names}: {array: NdArray; names?: unknown}) {
  const width = shape.length > 1 ? shape[shape.length - 1] : shape[0] ?? 1;
  const rows = width ? Array.from({length: data.length / width}, (_, y) => y) : [];
  const isNamed = Array.isArray(names) && names.length === width;
  return (
    <table class="matrix">
      {isNamed && <thead><tr>{(names as unknown[]).map((name, x) => <th key={x}>{String(name)}</th>)}</tr></thead>}
      <tbody>{rows.map(y => <tr key={y}>{Array.from({length: width}, (_, x) => <td key={x}>{numberText(data[y * width + x])}</td>)}</tr>)}</tbody>
    </table>
  );
}

/** Short values one after the other: words, tokens. */
export function Tokens({values, current}: {values: unknown[]; current?: number}) {
  return (
    <div class="tokens">
      {values.slice(0, MAX_TOKENS).map((value, i) => (
        <span key={i} class={i === current ? 'current' : ''} title={String(i)}>{typeof value === 'string' ? value.slice(0, 1000) : shortText(value, 1000)}</span>
      ))}
      {values.length > MAX_TOKENS && <i class="faint">and {(values.length - MAX_TOKENS).toLocaleString('en')} more</i>}
    </div>
  );
}

function Tree({name, value, open = false}: {name?: string; value: unknown; open?: boolean}) {
  const [limit, setLimit] = useState(MAX_CHILDREN);
  const [shown, setShown] = useState(open);
  const key = name !== undefined && <span class="key">{name}: </span>;
  const isPlain = value === null || typeof value !== 'object' || value instanceof NdArray || value instanceof Uint8Array || value instanceof Date;
  if (isPlain) return <div>{key}{value instanceof NdArray && value.data.length <= 16 ? `${shortText(value)} ${Array.from(value.data as ArrayLike<number>, numberText).join(' ')}`
    : typeof value === 'string' ? JSON.stringify(value) : shortText(value)}</div>;
  const entries = Array.isArray(value) ? value.map((item, i) => [String(i), item] as const) : Object.entries(value as object);
  return (
    <details open={open} onToggle={event => setShown(event.currentTarget.open)}>
      <summary>{key}<span class="faint">{Array.isArray(value) ? `${entries.length} items` : `${entries.length} keys`}</span></summary>
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
    <pre style={{fontFamily: 'monospace', fontSize: 11}}>{lines.join('\n')}</pre>
    <div class="controls faint">{bytesText(data.length)}{data.length > MAX_BYTES && `, of which the first ${MAX_BYTES}`}</div>
  </>;
}
