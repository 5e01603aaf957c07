// Numbers in rows and columns, of which the first are shown.

import {NdArray} from '../bags/values';
import {exactText} from './format';
import {Scroll} from './scroll';

export const MAX_ROWS = 100;
const MAX_COLUMNS = 64;

/** The rows of a value, or the first ones: of an array its last dimension, of a sequence those of its items; null if there are none. Complex numbers are text. */
export function rowsOf(value: unknown, limit = Infinity): ArrayLike<number>[] | null {
  if (value instanceof NdArray) {
    const {shape, complex} = value, data = (complex ?? value.data) as number[];
    if (!value.isNumeric || !shape.length) return null;
    const width = shape[shape.length - 1], rows = [];
    for (let at = 0; width && at < data.length && rows.length < limit; at += width) rows.push(data.slice(at, at + width));
    return rows;
  }
  if (!Array.isArray(value)) return null;
  const parts = value.slice(0, limit).map(item => rowsOf(item, limit));
  return parts.every(part => part !== null) ? parts.flat() : null;
}

/** The number of rows of a value of which `rowsOf` returns some. */
export function countRows(value: unknown): number {
  if (value instanceof NdArray) return value.shape.slice(0, -1).reduce((product, length) => product * length, 1);
  return Array.isArray(value) ? value.reduce<number>((sum, item) => sum + countRows(item), 0) : 0;
}

interface Props {
  /** The first rows, at least those that are shown. */
  rows: ArrayLike<number | string>[];
  /** All of them. */
  count: number;
  names?: unknown;
  /** A text before each row, as the label of a box. */
  labels?: string[] | null;
}

export function NumberTable({rows, count, names, labels = null}: Props) {
  const all = rows[0]?.length ?? 0, width = Math.min(MAX_COLUMNS, all);
  const isNamed = Array.isArray(names) && names.length === all;
  const more = [count > MAX_ROWS && `${(count - MAX_ROWS).toLocaleString('en')} more rows`, all > width && `${all - width} more columns`].filter(Boolean);
  return <Scroll class="numbers" label="Numbers">
    <table class="matrix">
      {isNamed && <thead><tr>{labels && <th />}{names.slice(0, width).map((name, x) => <th key={x}>{String(name)}</th>)}</tr></thead>}
      <tbody>{rows.slice(0, MAX_ROWS).map((row, y) => (
        <tr key={y}>{labels && <th>{labels[y] ?? ''}</th>}{Array.from({length: Math.min(width, row.length)}, (_, x) => <td key={x}>{exactText(row[x])}</td>)}</tr>
      ))}</tbody>
    </table>
    {more.length > 0 && <div class="faint">and {more.join(', ')}</div>}
  </Scroll>;
}
