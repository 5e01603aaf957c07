// What conditions test of a datapoint: comparisons of fields and constants, and words in its texts. As in bags/conditions.

import type {FieldFacts} from './dataset';
import type {FieldType, Spec} from './spec';
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
/** Words of types whose values have a duration. */
const TIMED = ['video', 'mp4', 'webm', 'mkv', 'audio', 'wav', 'flac', 'opus'];
const COUNTED = ['array', 'bytes', 'json', 'msgpack', 'tree'];

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
export type Measure = 'size' | 'duration';
const NEEDS: Need[] = ['presence', 'count', 'search', 'value'];
type Kind = 'number' | 'numbers' | 'text' | 'texts' | 'word' | 'none' | 'counted' | 'other';

/** A side of a comparison; a `word` is a text or a mistake, as the other side tells. */
export interface Value {
  kind: Kind;
  get(row: Datapoint): any;
  /** The text of a constant. */
  literal?: string;
  /** The name of a field that is compared. */
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
  /** Within `any(…)` and `all(…)`: the sequences and arrays whose items are compared. */
  private itemsOf: Set<string> | null = null;

  constructor(readonly spec: Spec, private facts: (field: string) => FieldFacts) {}

  field(name: string): Value {
    if (!this.spec.has(name)) throw this.noField(name);
    const type = this.spec.get(name)!;
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

  /** Tests the items of the one sequence or array that a condition names, which `parse` parses. */
  ofItems(quantifier: string, parse: () => Test): Test {
    if (this.itemsOf) throw new Error(`expected a condition on items within any and all, got ${quantifier}(`);
    const names = this.itemsOf = new Set<string>();
    let test: Test;
    try {
      test = parse();
    } finally {
      this.itemsOf = null;
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
      const values = itemsOfValue(row[name], name);
      return quantifier === 'any' ? values.some(passes) : values.every(passes);
    };
  }

  /** Tests whether a number is NaN. */
  isNan(value: Value, negated: boolean): Test {
    if (this.known(value).kind !== 'number' || value.literal !== undefined) {
      throw new Error(`expected a number before is nan, got ${value.field === undefined ? value.literal : this.typed(value.field)}`);
    }
    if (value.field !== undefined) this.need(value.field, 'value');
    return row => Number.isNaN(value.get(row)) !== negated;
  }

  /** Throws for a function of a field within `any` and `all`. */
  private plain(name: string, call: string): void {
    if (this.itemsOf) throw new Error(`any and all compare items: ${call}(${name}) is expected outside of them`);
  }

  private noField(name: string): Error {
    return new Error(`no field '${name}'; the fields are ${[...this.spec.keys()].join(', ')}`);
  }

  /** Returns a value; throws for a word, where only a field makes sense. */
  known(value: Value): Value {
    if (value.kind === 'word') throw this.noField(value.literal!);
    return value;
  }

  length(name: string): Value {
    this.plain(name, 'len');
    const {kind} = this.field(name), {sequence} = this.spec.get(name)!;
    if (!sequence && kind !== 'text' && kind !== 'counted') throw new Error(`${this.typed(name)}: len takes texts, bytes, sequences, arrays and trees`);
    this.need(name, sequence ? 'count' : 'value');
    return {kind: 'number', get: row => lengthOf(row[name], name)};
  }

  /** The bytes of a field as they are stored, of a sequence those of its items. */
  size(name: string): Value {
    this.plain(name, 'size');
    this.field(name);
    return this.measured(name, 'size');
  }

  /** The seconds of a video or a sound, or of a sequence whose metadata has a rate. */
  duration(name: string): Value {
    this.plain(name, 'duration');
    this.field(name);
    const {sequence, word} = this.spec.get(name)!, {rate} = this.facts(name);
    if (sequence && typeof rate === 'number' && rate > 0) {
      this.need(name, 'count');
      return {kind: 'number', get: row => row[name] === null ? null : row[name].length / rate};
    }
    if (sequence || !TIMED.includes(word)) throw new Error(`${this.typed(name)}: duration takes videos, sounds, and sequences whose metadata has a rate`);
    return this.measured(name, 'duration');
  }

  private measured(name: string, measure: Measure): Value {
    const key = `${measure}\0${name}`;
    this.measures.set(key, [name, measure]);
    return {kind: 'number', get: row => row[key]};
  }

  negated(value: Value): Value {
    if (this.known(value).kind !== 'number') throw new Error(`expected a number after -, got ${value.literal ?? value.field}`);
    const {get, kind, field} = value;
    const negate = (found: number | bigint | boolean) => typeof found === 'bigint' ? -found : -Number(found);
    return {kind, field, get: row => get(row) === null ? null : negate(get(row))};
  }

  /** Tests a field by itself: a bool or number that is not 0, a text or a sequence that is not empty. */
  truth(value: Value): Test {
    const name = value.field;
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
    this.need(name, 'presence');
    return row => (row[name] === null) !== negated;
  }

  compare(left: Value, sign: string, right: Value): Test {
    left = this.known(left);
    if ((left.kind === 'none' || right.kind === 'none') && EQUALITIES.includes(sign)) {
      return this.isNone(right.kind === 'none' ? left : right, sign === '!=');
    }
    [left, right] = [this.asTypeOf(right, left), this.asTypeOf(left, right)];
    this.check(left, sign, right, sign === '~' ? ['text', 'texts'] : ['number', 'text']);
    const {get} = left, other = right.get;
    if (sign === '~') {
      if (right.field !== undefined && right.kind === 'texts') throw new Error(`${this.typed(right.field)}: expected a text after ~`);
      const many = left.kind === 'texts';
      return row => {
        const word: string | null = other(row);
        return word !== null && items(get(row), many).some(text => text.toLowerCase().includes(word.toLowerCase()));
      };
    }
    const operation = SIGNS[sign], equality = EQUALITIES.includes(sign);
    return row => {
      const one = get(row), two = other(row);
      if (one === null || two === null) return equality && (one === two) === (sign !== '!=');
      return operation(one, two);
    };
  }

  /** Tests whether a value is among constants, in a text, or in a sequence. */
  isIn(left: Value, within: Value | Value[]): Test {
    if (Array.isArray(within)) {
      const found = within.map(item => this.asTypeOf(left, item));
      for (const item of found) this.check(this.known(left), 'in', item, ['number', 'text']);
      return row => left.get(row) !== null && found.some(item => left.get(row) == item.get(row));
    }
    if (within.field === undefined || !['text', 'texts', 'numbers'].includes(within.kind)) {
      throw new Error(`expected a list as (1, 2), a text or a sequence after in, got ${within.field === undefined ? within.literal : this.typed(within.field)}`);
    }
    const item = this.asTypeOf(within, left), kind = within.kind === 'numbers' ? 'number' : 'text';
    this.check(item, 'in', {...within, kind}, [kind]);
    return row => {
      const value = item.get(row), values = within.get(row);
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
    const known = this.needs.get(field) ?? need;
    this.needs.set(field, NEEDS[Math.max(NEEDS.indexOf(known), NEEDS.indexOf(need))]);
  }

  private typed(field: string): string {
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
    for (const {field, kind} of [left, right]) {
      if (field === undefined) continue;
      if (!kinds.includes(kind)) throw new Error(`${this.typed(field)}: ${sign} compares ${kinds.filter(each => !each.endsWith('s')).map(each => `${each}s`).join(' and ')}`);
      this.need(field, 'value');
    }
    const one = left.kind.replace(/s$/, ''), two = right.kind.replace(/s$/, '');
    if (one === two) return;
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
function itemsOfValue(value: any, name: string): any[] {
  if (!(value instanceof NdArray)) {
    const items: any[] = Array.from(value);
    return items.some(item => item instanceof NdArray) ? items.flatMap(item => itemsOfValue(item, name)) : items;
  }
  if (!value.isNumeric || value.complex) throw new Error(`${name}: any and all take arrays of numbers, got ${value.dtype}`);
  return Array.from(value.data as ArrayLike<number>);
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
