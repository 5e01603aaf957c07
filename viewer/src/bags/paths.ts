// Values inside json, msgpack and tree, as `meta.score`: paths, their values and errors. As bags/conditions/paths.py.

import type {Spec} from './spec';
import {NdArray} from './values';

export const STRUCTURED = ['json', 'msgpack', 'tree'];
const MAX_KEYS = 50;
/** Keys that an error lists. */
const MAX_NAMES = 20;
/** Values from which an error takes the keys that exist. */
export const MAX_EXPLAINED = 100;
export const ALL_TYPES = ['none', 'number', 'text', 'bytes', 'list', 'object', 'other'];
const PHRASES: Record<string, string> = {number: 'a number', text: 'a text', list: 'a list', object: 'an object', other: 'of another type'};
export const MISSING = Symbol('missing');

/** A value inside the values of a field. */
export interface Path {
  field: string;
  /** The keys of the objects on the way to the value, or to the list if there are `itemKeys`. */
  keys: string[];
  /** The keys from an item of the list to the value. */
  itemKeys?: string[];
}

export function pathName({field, keys, itemKeys = []}: Path): string {
  return [field, ...keys, ...itemKeys].join('.');
}

/** Returns the path that a dotted name is, by the longest field with values inside. */
export function findPath(name: string, spec: Spec): Path | undefined {
  for (let dot = name.lastIndexOf('.'); dot >= 0; dot = dot ? name.lastIndexOf('.', dot - 1) : -1) {
    const field = name.slice(0, dot), type = spec.get(field);
    if (!type || !STRUCTURED.includes(type.word)) continue;
    const keys = name.slice(dot + 1).split('.');
    if (keys.length > MAX_KEYS) throw new Error(`expected a path of at most ${MAX_KEYS} keys, got ${keys.length}: ${name.slice(0, 80)}`);
    return {field, keys};
  }
  return undefined;
}

/** Returns the error for a name that is no field, and no path. */
export function noValue(name: string, spec: Spec): Error {
  for (let dot = name.lastIndexOf('.'); dot > 0; dot = name.lastIndexOf('.', dot - 1)) {
    const field = name.slice(0, dot), type = spec.get(field);
    if (type) return new Error(`no field '${name}': ${field} is ${type.text}, and only json, msgpack and tree have values inside`);
  }
  return new Error(`no field '${name}'; the fields are ${[...spec.keys()].join(', ')}`);
}

/** Returns the number of keys up to the list whose items several paths of a field share. */
export function sharedKeys(paths: Path[]): number {
  let shared = Math.min(...paths.map(({keys}) => keys.length));
  while (shared && new Set(paths.map(({keys}) => JSON.stringify(keys.slice(0, shared)))).size > 1) shared -= 1;
  return shared;
}

/** Returns the value of the next key of an object, and the position behind it. The longest key wins. */
function step(node: any, keys: string[], at: number): [any, number] {
  if (typeOf(node) === 'object') {
    for (let stop = keys.length; stop > at; stop--) {
      const key = keys.slice(at, stop).join('.');
      if (Object.hasOwn(node, key)) return [node[key], stop];
    }
  }
  return [MISSING, at];
}

/** Returns the value at the end of a path, or MISSING. */
export function valueAt(value: any, keys: string[]): any {
  for (let at = 0; at < keys.length && value !== MISSING;) [value, at] = step(value, keys, at);
  return value;
}

/** Returns the items of a list or an array of any depth; null for other values. */
export function itemsOf(value: any): any[] | null {
  return value instanceof NdArray ? value.items : Array.isArray(value) ? value : null;
}

/** Returns the items of the lists on the way and at the end of a path, and whether there is a list; null if the path does not exist. */
function itemsAt(value: any, keys: string[]): {items: any[] | null; isList: boolean} {
  const items: any[] = [], stack: [any, number][] = [[value, 0]];
  let isList = false;
  for (let next = stack.pop(); next; next = stack.pop()) {
    const [node, at] = next, list = itemsOf(node);
    if (list) {
      for (let i = list.length - 1; i >= 0; i--) stack.push([list[i], at]);
      isList = true;
    } else if (at < keys.length) {
      const [inner, stop] = step(node, keys, at);
      if (inner !== MISSING) stack.push([inner, stop]);
      else if (isList) items.push(MISSING);
      else return {items: null, isList};
    } else items.push(node);
  }
  return {items, isList};
}

/** Returns the type of a value inside another, as conditions see it. */
export function typeOf(value: unknown): string {
  if (value === null || value === undefined) return 'none';
  if (['number', 'bigint', 'boolean'].includes(typeof value)) return 'number';
  if (typeof value === 'string') return 'text';
  if (value instanceof Uint8Array) return 'bytes';
  if (Array.isArray(value) || value instanceof NdArray) return 'list';
  return Object.getPrototypeOf(value) === Object.prototype ? 'object' : 'other';
}

/** Returns a value of a type; null for others. */
export function ofType(value: unknown, type: string): any {
  return typeOf(value) === type ? value : null;
}

/** Returns the value, or the items, of a path in the value of a field, and adds their types. */
export function valueOfPath({keys, itemKeys}: Path, value: any, types: Set<string>): any {
  const known = (found: any) => found === MISSING || found === undefined ? null : found;
  if (value === null) return null;
  if (!itemKeys) {
    const found = valueAt(value, keys);
    types.add(found === MISSING ? 'missing' : typeOf(found));
    return known(found);
  }
  const {items, isList} = itemsAt(value, keys);
  if (!items) {
    types.add('missing');
    return null;
  }
  const inner = items.map(item => item === MISSING ? MISSING : valueAt(item, itemKeys));
  if (isList) for (const item of inner) types.add(item === MISSING ? 'lacking' : typeOf(item));
  else types.add(known(inner[0]) === null ? 'none' : 'single');
  if (!items.length) types.add('empty');
  return inner.map(known);
}

/** Tells whether a condition can be meant: a value has an expected type, or all are missing or null. */
export function canBeMeant(types: Set<string>, expected: Set<string>): boolean {
  const found = [...types].filter(type => !['missing', 'lacking', 'empty'].includes(type));
  if (!found.length) return !types.size || types.has('empty') && !types.has('lacking') || expected.has('missing');
  const kinds = found.filter(type => type !== 'none');
  return !kinds.length || kinds.some(type => expected.has(type));
}

/** Returns the error for a path of which no datapoint has a value of an expected type. */
export function wrongPath(path: Path, types: Set<string>, expected: Set<string>, values: unknown[]): Error {
  const name = pathName(path), phrase = (type: string) => PHRASES[type] ?? type;
  const found = [...types].filter(type => !['missing', 'lacking', 'none', 'empty'].includes(type)).sort();
  if (found.length) {
    if (!path.itemKeys && found.length === 1 && found[0] === 'list') return new Error(`${name} is a list: write any(${name} …), all(${name} …) or … in ${name}`);
    if (found.includes('single')) return new Error(`${name} is no list: any and all take lists`);
    const wanted = Object.keys(PHRASES).filter(type => type !== 'other' && expected.has(type)).map(phrase).join(' or ');
    return new Error(`${name} is ${found.map(phrase).join(' or ')} in all datapoints that have it: expected ${wanted}`);
  }
  const keys = [...path.keys, ...path.itemKeys ?? []];
  let deepest = 0, nodes: any[] = [];
  for (const value of values) {
    const stack: [any, number][] = [[value, 0]];
    for (let next = stack.pop(); next; next = stack.pop()) {
      const [node, at] = next, list = path.itemKeys ? itemsOf(node) : null;
      if (list) {
        for (const item of list.slice(0, MAX_EXPLAINED)) stack.push([item, at]);
        continue;
      }
      const [inner, stop] = at < keys.length ? step(node, keys, at) : [MISSING, at];
      if (inner !== MISSING) stack.push([inner, stop]);
      else if (at >= deepest) {
        nodes = at === deepest ? [...nodes, node] : [node];
        deepest = at;
      }
    }
  }
  const where = [path.field, ...keys.slice(0, deepest)].join('.'), optional = `${name} is none is true for all`;
  const objects = nodes.filter(node => typeOf(node) === 'object');
  if (objects.length) {
    const names = [...new Set(objects.flatMap(node => Object.keys(node)))];
    const listed = names.slice(0, MAX_NAMES).map(key => key.slice(0, 40)).join(', ') || 'no keys';
    return new Error(`no datapoint has ${name}: ${where} has ${listed}${names.length > MAX_NAMES ? ', …' : ''} (${optional})`);
  }
  if (nodes.some(node => itemsOf(node))) return new Error(`no datapoint has ${name}: ${where} is a list: any(${name} …) and all(${name} …) test its items`);
  const kinds = [...new Set(nodes.map(node => phrase(typeOf(node))))].sort().join(' or ');
  return new Error(`no datapoint has ${name}: ${where} is ${kinds}, without values inside (${optional})`);
}
