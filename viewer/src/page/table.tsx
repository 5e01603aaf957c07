// Numbers in rows and columns, of which the first are shown.

import {NdArray} from '../bags/values';
import {exactText} from './format';

export const MAX_ROWS = 100;
const MAX_COLUMNS = 64;

/** The rows of a value: of an array its last dimension, of a sequence those of its items; null if there are none. Complex numbers are text. */
export function rowsOf(value: unknown): ArrayLike<number>[] | null {
  if (value instanceof NdArray) {
    const {shape, complex} = value, data = (complex ?? value.data) as number[];
    if (!value.isNumeric || !shape.length) return null;
    const width = shape[shape.length - 1], rows = [];
    for (let at = 0; width && at < data.length; at += width) rows.push(data.slice(at, at + width));
    return rows;
  }
  if (!Array.isArray(value)) return null;
  const parts = value.map(rowsOf);
  return parts.every(part => part !== null) ? parts.flat() : null;
}

interface Props {
  rows: ArrayLike<number | string>[];
  names?: unknown;
  /** A text before each row, as the label of a box. */
  labels?: string[] | null;
}

export function NumberTable({rows, names, labels = null}: Props) {
  const all = rows[0]?.length ?? 0, width = Math.min(MAX_COLUMNS, all);
  const isNamed = Array.isArray(names) && names.length === all;
  const more = [rows.length > MAX_ROWS && `${(rows.length - MAX_ROWS).toLocaleString('en')} more rows`, all > width && `${all - width} more columns`].filter(Boolean);
  return <div class="numbers">
    <table class="matrix">
      {isNamed && <thead><tr>{labels && <th />}{names.slice(0, width).map((name, x) => <th key={x}>{String(name)}</th>)}</tr></thead>}
      <tbody>{rows.slice(0, MAX_ROWS).map((row, y) => (
        <tr key={y}>{labels && <th>{labels[y] ?? ''}</th>}{Array.from({length: Math.min(width, row.length)}, (_, x) => <td key={x}>{exactText(row[x])}</td>)}</tr>
      ))}</tbody>
    </table>
    {more.length > 0 && <div class="faint">and {more.join(', ')}</div>}
  </div>;
}
