// What the word under the cursor of a filter may become: names of fields, signs that follow one, values.

import {SIGNS} from '../bags/comparison';
import {fieldIn, textIn, type Token, tokensOf} from '../bags/condition';
import type {Dataset} from '../bags/dataset';
import {isRows, mayHaveTimes} from '../bags/streams';
import {kindOf} from '../bags/values';

const MAX_OPTIONS = 12;
const MEDIA = ['image', 'video', 'audio', 'bytes'];
/** Bytes of the first datapoints from which values are suggested. */
const MAX_SAMPLE_BYTES = 1 << 20;

export interface Completion {
  /** The part of the text that an option replaces. */
  start: number;
  stop: number;
  options: string[];
  /** The field whose values are completed, of which `options` has those that are known without reading. */
  field?: string;
  prefix: string;
}

export function complete(dataset: Dataset, text: string, cursor: number): Completion {
  const before = text.slice(0, cursor);
  const [word] = /(?:"(?:\\.|[^"\\])*|`[^`]*|[^\s()[\],=!<>~"'`]*)$/.exec(before)!;
  const start = cursor - word.length, prefix = word.replace(/^["`]/, '').toLowerCase();
  const result = (options: string[], field?: string): Completion => ({start, stop: cursor, options: matching(options, prefix), field, prefix});
  let tokens: Token[];
  try {
    tokens = tokensOf(before.slice(0, start));
  } catch {
    return result([]);
  }
  const last = tokens.at(-1), field = comparedField(dataset, tokens);
  if (field) return result(valuesOf(dataset, field), field);
  if (last && (last.kind === 'word' || last.kind === 'field') && dataset.spec.has(last.text)) return result(prefix ? [] : signsOf(dataset, last.text));
  if (last && last.kind === 'sign' && last.text !== '(') return result([]);
  const names = [...dataset.spec.keys()];
  return result([...names.map(fieldIn), ...names.filter(name => dataset.type(name).sequence).map(name => `len(${fieldIn(name)})`),
    ...names.filter(name => MEDIA.includes(kindOf(dataset.type(name)))).map(name => `size(${fieldIn(name)})`),
    ...names.filter(name => mayHaveTimes(dataset, name)).map(name => `duration(${fieldIn(name)})`),
    ...names.filter(name => ['video', 'audio'].includes(kindOf(dataset.type(name))) || isRows(dataset.type(name))).map(name => `elements(${fieldIn(name)})`)]);
}

/** Returns the field that a value is compared with at the end of a condition. */
function comparedField(dataset: Dataset, tokens: Token[]): string | undefined {
  let at = tokens.length - 1;
  if (['(', ',', '['].includes(tokens[at]?.text)) {
    while (at >= 0 && tokens[at].text.toLowerCase() !== 'in') at -= 1;
  } else if (!(tokens[at]?.kind === 'sign' && (Object.hasOwn(SIGNS, tokens[at].text) || tokens[at].text === '~'))) return undefined;
  if (tokens[at - 1]?.text.toLowerCase() === 'not') at -= 1;
  const name = tokens[at - 1];
  return name && (name.kind === 'word' || name.kind === 'field') && dataset.spec.has(name.text) ? name.text : undefined;
}

function signsOf(dataset: Dataset, field: string): string[] {
  const type = dataset.type(field), kind = kindOf(type);
  if (type.sequence || !['number', 'text'].includes(kind)) return ['is none', 'is not none'];
  return [...kind === 'text' ? ['~', '==', '!='] : ['==', '!=', '<', '<=', '>', '>='], 'in (', ...type.optional ? ['is none', 'is not none'] : []];
}

/** The values of a field that are known without reading. */
function valuesOf(dataset: Dataset, field: string): string[] {
  const {classes} = dataset.facts(field);
  if (Array.isArray(classes)) return classes.map(name => textIn(String(name), dataset.spec));
  return dataset.type(field).word === 'bool' ? ['true', 'false'] : [];
}

/** Returns the most frequent values of the first datapoints, as they stand in a condition. */
export async function sampleValues(dataset: Dataset, field: string): Promise<string[]> {
  const type = dataset.type(field), kind = kindOf(type);
  if (Array.isArray(dataset.facts(field).classes) || type.sequence || !['number', 'text'].includes(kind)) return [];
  let left = MAX_SAMPLE_BYTES;
  const spend = (bytes: number) => {
    left -= bytes;
    if (left < 0) throw new Error('too large');
  };
  try {
    const {value} = await dataset.column(field, 'value', spend, 512).next();
    const counts = new Map<unknown, number>();
    for (const each of value?.values ?? []) if (each !== null && String(each).length < 60) counts.set(each, (counts.get(each) ?? 0) + 1);
    return [...counts].sort((a, b) => b[1] - a[1]).map(([each]) => typeof each === 'string' ? textIn(each, dataset.spec) : String(each));
  } catch {
    return [];
  }
}

/** Returns the options that begin with a prefix, then those that contain it. */
export function matching(options: string[], prefix: string): string[] {
  const plain = (option: string) => option.replace(/^["`]|["`]$/g, '').toLowerCase();
  const first = options.filter(option => plain(option).startsWith(prefix));
  const rest = prefix ? options.filter(option => !plain(option).startsWith(prefix) && plain(option).includes(prefix)) : [];
  return [...first, ...rest].slice(0, MAX_OPTIONS);
}
