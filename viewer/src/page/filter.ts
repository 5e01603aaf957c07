// The filter: `field operator value`, joined by `and`; columns are read by range, up to a limit.

import type {Dataset} from '../bags/dataset';
import {kindOf} from '../bags/values';

/** Bytes of columns that one filter may read. */
export const MAX_FILTER_BYTES = 64 << 20;

interface Condition {
  field: string;
  operator: string;
  value: string;
}

const CONDITION = /^\s*(.+?)\s*(<=|>=|!=|==|=|<|>|~)\s*(.+?)\s*$/;

/** Parses `label = 3 and text ~ word`; `~` is "contains", in any case. */
export function parseFilter(text: string, dataset: Dataset): Condition[] {
  return text.split(/\s+and\s+/).map(part => {
    const match = CONDITION.exec(part);
    if (!match) throw new Error(`expected a filter as "id >= 10 and text ~ word", got "${part}"`);
    const [, field, operator, quoted] = match;
    if (!dataset.spec.has(field)) throw new Error(`no field ${field}; there are ${[...dataset.spec.keys()].join(', ')}`);
    const type = dataset.type(field), kind = kindOf(type);
    if (type.sequence || (kind !== 'number' && kind !== 'text')) throw new Error(`filters take numbers and text, ${field} is ${type.text}`);
    const value = quoted.replace(/^(["'])(.*)\1$/, '$2');
    if (kind === 'number' && operator !== '~' && !['none', 'true', 'false'].includes(value.toLowerCase()) && Number.isNaN(Number(value))) {
      const place = dataset.facts(field).classes?.indexOf(value) ?? -1;
      if (place < 0) throw new Error(`${field} is ${type.text}: expected a number, got ${value}`);
      return {field, operator, value: String(place)};
    }
    return {field, operator: operator === '==' ? '=' : operator, value};
  });
}

export function passes(value: unknown, operator: string, wanted: string): boolean {
  if (wanted.toLowerCase() === 'none') return (value === null) === (operator === '=');
  if (value === null) return operator === '!=';
  if (operator === '~') return String(value).toLowerCase().includes(wanted.toLowerCase());
  const other = typeof value === 'string' ? wanted : typeof value === 'boolean' ? wanted.toLowerCase() === 'true' || wanted === '1' : Number(wanted);
  const found = typeof value === 'bigint' ? Number(value) : value as number | string | boolean;
  switch (operator) {
    case '=': return found === other;
    case '!=': return found !== other;
    case '<': return found < other;
    case '<=': return found <= other;
    case '>': return found > other;
    default: return found >= other;
  }
}

/** Returns the datapoints that pass, in order; reports the part that is done. */
export async function filterRows(dataset: Dataset, text: string, progress: (done: number) => boolean): Promise<Uint32Array> {
  let kept: number[] | null = null as number[] | null;
  let left = MAX_FILTER_BYTES;
  for (const {field, operator, value} of parseFilter(text, dataset)) {
    const size = dataset.sizes?.get(field);
    if (size !== undefined && size > MAX_FILTER_BYTES) throw tooLarge(field);
    const found: number[] = [];
    const spend = (bytes: number) => {
      left -= bytes;
      if (left < 0) throw tooLarge(field);
    };
    for await (const run of dataset.column(field, spend)) {
      run.values.forEach((item, i) => { if (passes(item, operator, value)) found.push(run.first + i); });
      if (!progress((run.first + run.values.length) / dataset.length)) throw new Error('stopped');
    }
    if (kept) {
      const passed: Set<number> = new Set(kept);
      kept = found.filter(index => passed.has(index));
    } else kept = found;
  }
  return Uint32Array.from(kept ?? []);
}

function tooLarge(field: string): Error {
  return new Error(`a filter here reads at most ${MAX_FILTER_BYTES >> 20} MiB, of which ${field} needs more: use dataset.filter in Python`);
}
