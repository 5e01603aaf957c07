// What conditions test of a datapoint: comparisons of fields and constants, and words in its texts. As in bags/conditions.

import type {FieldFacts} from './dataset';
import {ALL_TYPES, findPath, itemsOf, noValue, ofType, type Path, pathName, sharedKeys, STRUCTURED, typeOf} from './paths';
import type {FieldType, Spec} from './spec';
import {isStream, mayHaveTimes} from './streams';
import {NdArray} from './values';

/** UTF-8 bytes of the longest text that is searched for a word. */
export const MAX_SEARCHED_BYTES = 4096;

type Operand = number | bigint | string | boolean;
export const SIGNS: Record<string, (one: Operand, two: Operand) => boolean> = {
  // Loosely, as numbers may be bigints or bools; both sides are numbers, or texts.
  '==': (one, two) => one == two,
  '=': (one, two) => one == two,
  '!=': (one, two) => one != two,
  '<': (one, two) => below(one, two),
  '<=': (one, two) => one == two || below(one, two),
  '>': (one, two) => below(two, one),
  '>=': (one, two) => one == two || below(two, one),
};
const EQUALITIES = ['==', '=', '!='];
const NUMBERS = ['int', 'uint', 'float', 'bool', 'i64', 'u64'];
const COUNTED = ['array', 'bytes'];

/** A sequence of which only the number of items is known. */
export class Counted {
  constructor(readonly length: number) {}
}

/** What a condition needs of fields; null where a value is missing. */
export type Datapoint = Record<string, any>;
export type Test = (row: Datapoint) => boolean;
/** Of a field: `value`; `search`, the value if it is short; `count`, a Counted; or only whether it is there. */
export type Need = 'presence' | 'count' | 'search' | 'value';
/** A function of what is stored of a value. */
export type Measure = 'size' | 'duration' | 'elements';
const NEEDS: Need[] = ['presence', 'count', 'search', 'value'];
type Kind = 'number' | 'numbers' | 'text' | 'texts' | 'word' | 'none' | 'counted' | 'any' | 'other';

/** A side of a comparison; a `word` is a text or a mistake, as the other side tells. Each value of `any` has its own type. */
export interface Value {
  kind: Kind;
  get(row: Datapoint): any;
  /** The text of a constant. */
  literal?: string;
  /** The name of a field that is compared, or of a value inside a field. */
  field?: string;
}

export function constant(kind: Kind, value: Operand | null, literal: string): Value {
  return {kind, get: () => value, literal};
}

/** Makes the tests of one condition, and collects what they need of each field. */
export class Comparisons {
  needs = new Map<string, Need>();
  /** The field and the function of each other key that the condition needs. */
  measures = new Map<string, [string, Measure]>();
  /** The values inside fields that the condition needs, by their keys of a datapoint. */
  paths = new Map<string, Path>();
  /** The types that a path is compared as, and `missing` if it need not exist. */
  expected = new Map<string, Set<string>>();
  /** Within `any(…)` and `all(…)`: the sequences and arrays whose items are compared. */
  private itemsOf: Set<string> | null = null;
  /** Within `any(…)` and `all(…)`: the paths, which lead to items unless a sequence is named. */
  private pathsWithin = new Map<string, Path>();

  constructor(readonly spec: Spec, readonly facts: (field: string) => FieldFacts) {}

  field(name: string): Value {
    const path = this.spec.has(name) ? {field: name, keys: []} : findPath(name, this.spec);
    if (!path) throw noValue(name, this.spec);
    const type = this.spec.get(path.field)!;
    if (STRUCTURED.includes(type.word) && (path.keys.length || !type.sequence || this.itemsOf)) {
      if (this.itemsOf) this.pathsWithin.set(name, path);
      else this.addPath(path);
      return {kind: 'any', get: row => row[name], field: name};
    }
    let kind = kindOf(type);
    if (this.itemsOf) {
      if (kind === 'numbers' || kind === 'texts' || type.word === 'array') {
        this.itemsOf.add(name);
        kind = kind === 'texts' ? 'text' : 'number';
      } else if (kind === 'counted' || kind === 'other') {
        throw new Error(`${this.typed(name)}: any and all take sequences and arrays of numbers or texts`);
      }
    }
    return {kind, get: row => row[name], field: name};
  }

  /** Adds the value of a path, of each datapoint, to what the condition needs. */
  private addPath(path: Path): void {
    const name = pathName(path);
    if (this.spec.get(path.field)!.sequence) throw new Error(`${this.typed(path.field)}: any(${name} …) and all(${name} …) test its items`);
    if (!path.keys.length) return;
    this.need(path.field, 'value');
    this.paths.set(name, path);
  }

  /** Adds paths to the items of one list; returns their keys of a datapoint by the names of the paths. */
  private addItems(paths: Map<string, Path>, expected: Map<string, Set<string>>): [string, string][] {
    const shared = sharedKeys([...paths.values()]);
    return [...paths].map(([name, {field, keys}]) => {
      const key = `items ${shared}\0${name}`;
      this.need(field, 'value');
      this.paths.set(key, {field, keys: keys.slice(0, shared), itemKeys: keys.slice(shared)});
      this.expected.set(key, new Set([...this.expected.get(key) ?? [], ...expected.get(name) ?? []]));
      return [name, key];
    });
  }

  /** Notes the types that a value inside a field is compared as. */
  private expect({kind, field}: Value, ...types: string[]): void {
    if (kind === 'any' && field !== undefined) this.expected.set(field, new Set([...this.expected.get(field) ?? [], ...types]));
  }

  /** Returns a value whose numbers are compared: other values of `any` are missing. */
  private numbers(value: Value): Value {
    if (value.kind !== 'any') return value;
    this.expect(value, 'number');
    return {kind: 'number', field: value.field, get: row => ofType(value.get(row), 'number')};
  }

  /** Tests the items of the one sequence, array or list that a condition names, which `parse` parses. */
  ofItems(quantifier: string, parse: () => Test): Test {
    if (this.itemsOf) throw new Error(`expected a condition on items within any and all, got ${quantifier}(`);
    let names = this.itemsOf = new Set<string>();
    const paths = this.pathsWithin = new Map(), outer = this.expected, inner = this.expected = new Map<string, Set<string>>();
    let test: Test;
    try {
      test = parse();
    } finally {
      this.itemsOf = null;
      this.expected = outer;
    }
    if (names.size) {
      for (const [name, path] of paths) {
        this.addPath(path);
        outer.set(name, new Set([...outer.get(name) ?? [], ...inner.get(name) ?? []]));
      }
    } else if (paths.size) {
      if (new Set([...paths.values()].map(({field}) => field)).size === 1) {
        const keys = this.addItems(paths, inner);
        return row => {
          const columns = keys.map(([name, key]) => [name, row[key]] as const);
          const item: Datapoint = Object.create(row), [[, first]] = columns;
          if (first === null) return false;
          const passes = (_: unknown, at: number) => {
            for (const [name, values] of columns) item[name] = values[at];
            return test(item);
          };
          return quantifier === 'any' ? first.some(passes) : first.every(passes);
        };
      }
      names = new Set(paths.keys());
    }
    if (names.size !== 1) {
      throw new Error(`${quantifier} takes a condition on one sequence or array, got ${[...names].sort().join(' and ') || 'none'}`);
    }
    const [name] = names;
    return row => {
      if (row[name] === null) return false;
      const item: Datapoint = Object.create(row);
      const passes = (value: any) => {
        item[name] = value;
        return test(item);
      };
      const values = itemsOfField(row[name], name);
      return quantifier === 'any' ? values.some(passes) : values.every(passes);
    };
  }

  /** Tests whether a number is NaN. */
  isNan(value: Value, negated: boolean): Test {
    value = this.numbers(this.known(value));
    if (value.kind !== 'number' || value.literal !== undefined) {
      throw new Error(`expected a number before is nan, got ${value.field === undefined ? value.literal : this.typed(value.field)}`);
    }
    if (value.field !== undefined) this.need(value.field, 'value');
    return row => Number.isNaN(value.get(row)) !== negated;
  }

  /** Throws for a function of a field within `any` and `all`. */
  private plain(name: string, call: string): void {
    if (this.itemsOf) throw new Error(`any and all compare items: ${call}(${name}) is expected outside of them`);
  }

  /** Returns a value; throws for a word, where only a field makes sense. */
  known(value: Value): Value {
    if (value.kind === 'word') throw noValue(value.literal!, this.spec);
    return value;
  }

  length(name: string): Value {
    this.plain(name, 'len');
    const value = this.field(name), {kind} = value;
    if (kind === 'any') {
      this.need(name, 'value');
      this.expect(value, ...ALL_TYPES);
      return {kind: 'number', get: row => lengthOf(row[name], name)};
    }
    const {sequence} = this.spec.get(name)!;
    if (!sequence && kind !== 'text' && kind !== 'counted') throw new Error(`${this.typed(name)}: len takes texts, bytes, sequences, arrays and trees`);
    this.need(name, sequence ? 'count' : 'value');
    return {kind: 'number', get: row => lengthOf(row[name], name)};
  }

  /** The bytes of a field as they are stored, of a sequence those of its items. */
  size(name: string): Value {
    this.stored(name, 'size');
    return this.measured(name, 'size');
  }

  /** The seconds of a stream: of a video or a sound, or of a field whose metadata has a rate or times. */
  duration(name: string): Value {
    this.stored(name, 'duration');
    if (!mayHaveTimes(this, name)) throw new Error(`${this.typed(name)}: duration takes videos, sounds, and sequences whose metadata has a rate or times`);
    return this.measured(name, 'duration');
  }

  /** The number of elements of a stream: frames, samples, rows or items. */
  elements(name: string): Value {
    this.stored(name, 'elements');
    if (!isStream(this.spec.get(name)!)) throw new Error(`${this.typed(name)}: elements takes sequences, videos, sounds, and arrays whose first dimension is ?`);
    return this.measured(name, 'elements');
  }

  /** Throws for a name that is not that of a field whose records can be measured. */
  private stored(name: string, measure: Measure): void {
    this.plain(name, measure);
    if (!this.spec.has(name)) throw new Error(`${this.typed(this.field(name).field!)}: ${measure} takes a field`);
  }

  private measured(name: string, measure: Measure): Value {
    const key = `${measure}\0${name}`;
    this.measures.set(key, [name, measure]);
    return {kind: 'number', get: row => row[key]};
  }

  negated(value: Value): Value {
    value = this.numbers(this.known(value));
    if (value.kind !== 'number') throw new Error(`expected a number after -, got ${value.literal ?? value.field}`);
    const {get, kind, field} = value;
    const negate = (found: number | bigint | boolean) => typeof found === 'bigint' ? -found : -Number(found);
    return {kind, field, get: row => get(row) === null ? null : negate(get(row))};
  }

  /** Tests a field by itself: a bool or number that is not 0, a text or a sequence that is not empty. */
  truth(value: Value): Test {
    const name = value.field;
    if (name !== undefined && value.kind === 'any') {
      this.need(name, 'value');
      this.expect(value, ...ALL_TYPES);
      return row => hasContent(value.get(row));
    }
    if (name === undefined || ['counted', 'other'].includes(value.kind) && !this.spec.get(name)!.sequence) {
      throw new Error(`expected a comparison with ${value.literal ?? name ?? 'a value'}`);
    }
    const sequence = value.kind !== 'number' && value.kind !== 'text';
    this.need(name, sequence ? 'count' : 'value');
    return sequence ? row => row[name] !== null && row[name].length > 0 : row => Boolean(value.get(row)) || Number.isNaN(value.get(row));
  }

  isNone(value: Value, negated: boolean): Test {
    const name = this.known(value).field;
    if (name === undefined) throw new Error(`expected a field that is none, got ${value.literal ?? 'a value'}`);
    if (this.itemsOf?.has(name)) throw new Error(`${this.typed(name)}: items are never none, within any and all`);
    this.expect(value, ...ALL_TYPES, 'missing');
    // A json value may be stored as null, even in a field that is not optional.
    this.need(name, value.kind === 'any' && !this.spec.get(name)?.optional ? 'value' : 'presence');
    return row => (row[name] === null) !== negated;
  }

  compare(left: Value, sign: string, right: Value): Test {
    left = this.known(left);
    if ((left.kind === 'none' || right.kind === 'none') && EQUALITIES.includes(sign)) {
      return this.isNone(right.kind === 'none' ? left : right, sign === '!=');
    }
    [left, right] = [this.asTypeOf(right, left), this.asTypeOf(left, right)];
    if (sign === '~' && left.kind === 'any' && right.kind === 'number' && right.literal !== undefined) right = constant('text', right.literal, right.literal);
    this.check(left, sign, right, sign === '~' ? ['text', 'texts'] : ['number', 'text']);
    const {get} = left, other = right.get;
    if (sign === '~') {
      this.expect(left, 'list');
      if (left.kind === 'any') {
        return row => {
          const whole = get(row), word = ofType(other(row), 'text') as string | null, texts: unknown[] = typeof whole === 'string' ? [whole] : itemsOf(whole) ?? [];
          return word !== null && texts.some(text => typeof text === 'string' && text.toLowerCase().includes(word.toLowerCase()));
        };
      }
      if (right.field !== undefined && right.kind === 'texts') throw new Error(`${this.typed(right.field)}: expected a text after ~`);
      const many = left.kind === 'texts';
      return row => {
        const word = ofType(other(row), 'text') as string | null;
        return word !== null && items(get(row), many).some(text => text.toLowerCase().includes(word.toLowerCase()));
      };
    }
    const operation = SIGNS[sign], equality = EQUALITIES.includes(sign), mixed = left.kind === 'any' || right.kind === 'any';
    return row => {
      const one = get(row), two = other(row);
      if (mixed && one !== null && two !== null && !sameType(one, two)) return sign === '!=';
      if (one === null || two === null) return equality && (one === two) === (sign !== '!=');
      return operation(one, two);
    };
  }

  /** Tests whether a value is among constants, in a text, or in a sequence. */
  isIn(left: Value, within: Value | Value[]): Test {
    if (Array.isArray(within)) {
      const found = within.map(item => this.asTypeOf(left, item));
      for (const item of found) this.check(this.known(left), 'in', item, ['number', 'text']);
      const isSame = (one: any, two: any) => one == two && (left.kind !== 'any' && found.every(({kind}) => kind !== 'any') || sameType(one, two));
      return row => left.get(row) !== null && found.some(item => isSame(left.get(row), item.get(row)));
    }
    if (within.kind === 'any' && within.field !== undefined) {
      this.check(left, 'in', {...within, field: undefined}, ['number', 'text']);
      this.expect(left, 'number', 'text');
      this.need(within.field, 'value');
      this.expect(within, 'list', 'text');
      return row => {
        const value = left.get(row), whole = within.get(row);
        // A number is also searched in texts.
        if (typeof whole === 'string') return value !== null && typeof (left.literal ?? value) === 'string' && whole.includes(left.literal ?? value);
        return value !== null && (itemsOf(whole) ?? []).some(item => sameType(item, value) && item == value);
      };
    }
    if (within.field === undefined || !['text', 'texts', 'numbers'].includes(within.kind)) {
      throw new Error(`expected a list as (1, 2), a text or a sequence after in, got ${within.field === undefined ? within.literal : this.typed(within.field)}`);
    }
    const item = this.asTypeOf(within, left), kind = within.kind === 'numbers' ? 'number' : 'text';
    this.check(item, 'in', {...within, kind}, [kind]);
    return row => {
      const value = ofType(item.get(row), kind), values = within.get(row);
      if (value === null || values === null) return false;
      return typeof values === 'string' ? values.includes(value) : values.some((each: Operand) => each == value);
    };
  }

  /** Tests whether each term is in a short text, or in the name of a class, in any case. */
  search(terms: string[]): Test {
    if (this.itemsOf) throw new Error(`any and all compare items: expected a comparison, got ${terms[0]}`);
    const wanted = terms.map(term => term.toLowerCase());
    const texts: [string, boolean][] = [], classes: [string, boolean, string[]][] = [];
    for (const [name, {word, sequence}] of this.spec) {
      const names = this.classNames(name);
      if (word === 'utf8') texts.push([name, sequence]);
      else if (names.length && NUMBERS.includes(word)) classes.push([name, sequence, names.map(each => each.toLowerCase())]);
      else continue;
      this.need(name, 'search');
    }
    if (!texts.length && !classes.length) throw new Error(`no field has texts to search for ${terms[0]}`);
    return row => {
      const found: string[] = [];
      for (const [name, many] of texts) for (const text of items(row[name], many)) if (isShort(text)) found.push(text.toLowerCase());
      for (const [name, many, names] of classes) for (const number of items(row[name], many)) if (names[Number(number)] !== undefined) found.push(names[Number(number)]);
      return wanted.every(term => found.some(text => text.includes(term)));
    };
  }

  classNames(field: string | undefined): string[] {
    const names = field === undefined ? null : this.facts(field).classes;
    return Array.isArray(names) ? names.map(String) : [];
  }

  private need(field: string, need: Need): void {
    if (!this.spec.has(field)) return;  // A path, whose field is read where the path is added.
    const known = this.needs.get(field) ?? need;
    this.needs.set(field, NEEDS[Math.max(NEEDS.indexOf(known), NEEDS.indexOf(need))]);
  }

  private typed(field: string): string {
    const path = this.spec.has(field) ? undefined : findPath(field, this.spec);
    if (path) return `${field} is a value inside ${path.field}`;
    return `${field} is ${this.spec.get(field)!.text}`;
  }

  /** Returns a constant as the type of the other side: a text, a number, or the number of a class. */
  private asTypeOf(other: Value, value: Value): Value {
    const {literal, kind} = value;
    if (literal === undefined || kind === 'none') return value;
    if (['number', 'numbers'].includes(other.kind) && kind !== 'number' && other.field !== undefined) {
      const names = this.classNames(other.field), number = names.indexOf(literal);
      if (number >= 0) return constant('number', number, literal);
      const known = names.length ? ` or one of ${names.slice(0, 20).join(', ')}` : '';
      throw new Error(`${this.typed(other.field)}: expected a number${known}, got ${literal}`);
    }
    return ['text', 'texts'].includes(other.kind) || kind === 'word' ? constant('text', literal, literal) : value;
  }

  /** Throws if the sides of a comparison have types that it does not take. */
  private check(left: Value, sign: string, right: Value, kinds: Kind[]): void {
    if (left.literal !== undefined && right.literal !== undefined) throw new Error(`${left.literal} ${sign} ${right.literal} names no field`);
    for (const value of [left, right]) {
      const {field, kind} = value, other = value === left ? right : left;
      if (field === undefined) continue;
      if (kind === 'any') {
        if (other.kind === 'none') throw new Error(`${this.typed(field)}: ${sign} compares numbers and texts`);
        if (other.kind === 'any') this.expect(value, ...kinds.map(each => each.replace(/s$/, '')));
        else this.expect(value, other.kind === 'word' ? 'text' : other.kind.replace(/s$/, ''));
      } else if (!kinds.includes(kind)) throw new Error(`${this.typed(field)}: ${sign} compares ${kinds.filter(each => !each.endsWith('s')).map(each => `${each}s`).join(' and ')}`);
      this.need(field, 'value');
    }
    const one = left.kind.replace(/s$/, ''), two = right.kind.replace(/s$/, '');
    if (one === two || one === 'any' || two === 'any') return;
    const found = right.field === undefined ? right.literal : this.typed(right.field);
    throw new Error(`${left.field === undefined ? `a ${one}` : this.typed(left.field)}: ${sign} compares it with a ${one}, got ${found}`);
  }
}

function kindOf({word, sequence}: FieldType): Kind {
  if (NUMBERS.includes(word)) return sequence ? 'numbers' : 'number';
  if (word === 'utf8') return sequence ? 'texts' : 'text';
  return COUNTED.includes(word) && !sequence ? 'counted' : 'other';
}

/** Returns the items of a sequence, or the numbers of an array. */
function itemsOfField(value: any, name: string): any[] {
  if (!(value instanceof NdArray)) {
    const items: any[] = Array.from(value);
    return items.some(item => item instanceof NdArray) ? items.flatMap(item => itemsOfField(item, name)) : items;
  }
  const found = value.items;
  if (value.complex || typeof found[0] === 'string') throw new Error(`${name}: any and all take arrays of numbers, got ${value.dtype}`);
  return found;
}

/** Tells whether two values are numbers, or texts. */
function sameType(one: unknown, two: unknown): boolean {
  const type = typeOf(one);
  return type === typeOf(two) && (type === 'number' || type === 'text');
}

/** Tells whether a value inside a field is not 0, or a text, list or object that is not empty. */
function hasContent(value: any): boolean {
  const list = itemsOf(value);
  if (list) return list.length > 0;
  if (value instanceof Uint8Array) return value.length > 0;
  return typeOf(value) === 'object' ? Object.keys(value).length > 0 : Boolean(value) || Number.isNaN(value);
}

function items(value: any, sequence: boolean): any[] {
  return value === null ? [] : sequence ? value : [value];
}

function isShort(text: string): boolean {
  return 3 * text.length <= MAX_SEARCHED_BYTES || new TextEncoder().encode(text).length <= MAX_SEARCHED_BYTES;
}

/** Of texts by code points, as in Python: JavaScript compares UTF-16. */
function below(one: Operand, two: Operand): boolean {
  if (typeof one !== 'string' || typeof two !== 'string') return one < two;
  const length = Math.min(one.length, two.length);
  let at = 0;
  while (at < length && one[at] === two[at]) at += 1;
  if (at === length) return one.length < two.length;
  const surrogate = (code: number) => code >= 0xd800 && code < 0xe000;
  const [left, right] = [one.charCodeAt(at), two.charCodeAt(at)];
  return surrogate(left) === surrogate(right) ? left < right : surrogate(right);
}

function lengthOf(value: unknown, field: string): number {
  if (value === null) return 0;
  if (typeof value === 'string') return [...value].length;
  if (value instanceof NdArray && value.shape.length) return value.shape[0];
  if (value instanceof Uint8Array || Array.isArray(value)) return value.length;
  if (value instanceof Counted) return value.length;
  if (typeof value === 'object' && !(value instanceof NdArray)) return Object.keys(value as object).length;
  throw new Error(`${field}: len takes values with items, got ${String(value)}`);
}
