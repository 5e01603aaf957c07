// What the metadata of a field says that does not fit the dataset.

import type {Dataset} from '../bags/dataset';
import type {FieldType} from '../bags/spec';
import {kindOf} from '../bags/values';

/** Fields that the metadata of a field may name. */
const NAMED = ['over', 'times', 'labels'] as const;

/** Returns a line for each thing in the metadata of a field that is not used, as it does not fit. */
export function factsProblems(dataset: Dataset, field: string): string[] {
  const facts = dataset.facts(field), problems: string[] = [];
  for (const key of NAMED) {
    const name = facts[key];
    if (name === undefined) continue;
    if (typeof name !== 'string' || !dataset.spec.has(name)) problems.push(`${key}: there is no field ${shown(name)}`);
    else if (key === 'times' && !isOfNumbers(dataset.type(name))) problems.push(`times: expected a field of numbers[], got ${name}, which is ${dataset.type(name).text}`);
    else if (key === 'over' && (dataset.type(name).sequence || kindOf(dataset.type(name)) !== 'image')) problems.push(`over: ${name} is ${dataset.type(name).text}, and only images are drawn over`);
  }
  const {rate, start, elements, names, classes} = facts as Record<string, unknown>;
  if (rate !== undefined && !(typeof rate === 'number' && rate > 0)) problems.push(`rate: expected items a second, got ${shown(rate)}`);
  if (start !== undefined && !(typeof start === 'number' && Number.isFinite(start))) problems.push(`start: expected seconds, got ${shown(start)}`);
  if (elements !== undefined && elements !== 'items') problems.push(`elements: expected "items", got ${shown(elements)}`);
  for (const [key, value] of [['names', names], ['classes', classes]] as const) {
    if (value !== undefined && !Array.isArray(value)) problems.push(`${key}: expected a list of names, got ${shown(value)}`);
  }
  const {word, args} = dataset.type(field), columns = word === 'array' && args.length > 1 ? Number(args[args.length - 1]) : NaN;
  if (Array.isArray(names) && columns > 0 && names.length !== columns) problems.push(`names: ${names.length} for ${columns} columns`);
  return problems;
}

/** Tells whether a type is one of sequences of single numbers. */
const isOfNumbers = (type: FieldType) => type.sequence && (kindOf(type) === 'number' || type.word === 'array' && type.args.length === 1);

/** The fields that the metadata describes and the dataset lacks. */
export function strangersOf(dataset: Dataset): string[] {
  return Object.keys(dataset.metadata.fields ?? {}).filter(name => !dataset.spec.has(name));
}

const shown = (value: unknown) => JSON.stringify(value)?.slice(0, 60);
