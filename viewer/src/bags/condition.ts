// Conditions on datapoints as text, by the grammar of docs/conditions.md: as bags/conditions/grammar.py.

import {Comparisons, constant, type Datapoint, type Measure, type Need, SIGNS, type Test, type Value} from './comparison';
import type {FieldFacts} from './dataset';
import {findPath, type Path} from './paths';
import type {Spec} from './spec';

const MAX_DEPTH = 50;
/** Digits of a number; Python refuses integers of more than 4,300. */
const MAX_DIGITS = 4000;
const TOKEN = /\s*(?:("(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')|`([^`]+)`|(==|!=|<=|>=|[=<>~()[\],]|-(?![\d.]))|((?:[^\s()[\],=!<>~"'`]|!(?!=))(?:[^\s()[\],=!<>~]|!(?!=))*))/sy;
const KINDS = ['text', 'field', 'sign', 'word'] as const;
const NUMBER = /^[+-]?(?:\d[\d_]*(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?$/;
const SUBSCRIPT_ADVICE = ': meta.score is a value inside meta, and any(meta.tags == red) tests the items of a list';
const FUNCTIONS = ['len', 'size', 'duration', 'elements'] as const;
export const KEYWORDS = ['and', 'or', 'not', 'in', 'is', 'none', 'true', 'false'];

export interface Condition {
  /** What it needs of each field. */
  needs: Map<string, Need>;
  /** The field and the function of each other key that it needs. */
  measures: Map<string, [string, Measure]>;
  /** The values inside fields that it needs, by other keys. */
  paths: Map<string, Path>;
  /** The types that each path is compared as, and `missing` if it need not exist. */
  expected: Map<string, Set<string>>;
  test: Test;
}

export interface Token {
  kind: typeof KINDS[number] | 'end';
  text: string;
  /** Where it lies in the condition. */
  start: number;
  stop: number;
}

/** Parses a condition such as `length > 3 and (label == owl or len(words) == 0)`; throws what is wrong with it. */
export function parseCondition(text: string, spec: Spec, facts: (field: string) => FieldFacts): Condition {
  const fields = new Comparisons(spec, facts);
  const test = new Parser(text, fields).parse();
  const {needs, measures, paths, expected} = fields;
  // The types of the values of a field itself are checked as well.
  for (const name of expected.keys()) if (spec.has(name) && needs.get(name) === 'value') paths.set(name, {field: name, keys: []});
  return {needs, measures, paths, expected, test: (row: Datapoint) => Boolean(test(row))};
}

class Parser {
  private tokens: Token[];
  private at = 0;
  private depth = 0;

  constructor(text: string, private fields: Comparisons) {
    this.tokens = tokensOf(text);
  }

  parse(): Test {
    const test = this.any();
    if (this.at < this.tokens.length) throw wrong(`expected and, or, or the end, not ${this.peek().text}${this.sees(['[']) ? SUBSCRIPT_ADVICE : ''}`);
    return test;
  }

  private peek(ahead = 0): Token {
    return this.tokens[this.at + ahead] ?? {kind: 'end', text: 'the end', start: 0, stop: 0};
  }

  private next(): Token {
    this.at += 1;
    return this.peek(-1);
  }

  /** Tells whether one of these signs and keywords is next. */
  private sees(names: string[], ahead = 0): boolean {
    const {kind, text} = this.peek(ahead);
    return (kind === 'sign' || kind === 'word') && names.includes(text.toLowerCase());
  }

  private takes(...names: string[]): boolean {
    const found = this.sees(names);
    this.at += Number(found);
    return found;
  }

  private expect(...names: string[]): void {
    if (!this.takes(...names)) throw wrong(`expected ${names[0]}, not ${this.peek().text}`);
  }

  private any(): Test {
    this.depth += 1;
    if (this.depth > MAX_DEPTH) throw wrong(`more than ${MAX_DEPTH} levels of brackets`);
    const parts = [this.all()];
    while (this.takes('or')) parts.push(this.all());
    this.depth -= 1;
    return row => parts.some(part => part(row));
  }

  private all(): Test {
    const parts = [this.negation()];
    while (this.takes('and')) parts.push(this.negation());
    return row => parts.every(part => part(row));
  }

  private negation(): Test {
    let negated = false;
    while (this.takes('not')) negated = !negated;
    let test: Test;
    if (this.takes('(')) {
      test = this.any();
      this.expect(')');
    } else if (this.sees(['any', 'all']) && this.sees(['('], 1)) {
      const quantifier = this.next().text.toLowerCase();
      this.expect('(');
      test = this.fields.ofItems(quantifier, () => this.any());
      this.expect(')');
    } else test = this.test();
    return negated ? row => !test(row) : test;
  }

  private test(): Test {
    let count = 0;
    while (this.isTerm(count)) count += 1;
    const compared = this.sees([...Object.keys(SIGNS), '~', 'in', 'is'], count) || this.sees(['not'], count) && this.sees(['in'], count + 1);
    if (count > 1 && compared) throw wrong(`expected and, or, or quotes between ${this.peek().text} and ${this.peek(1).text}`);
    if (count > 1 || count === 1 && !compared && !this.isValue()) {
      return this.fields.search(Array.from({length: count}, () => this.next().text));
    }
    let left = this.value();
    const tests: Test[] = [];
    for (;;) {
      if (this.takes('is')) {
        const negated = this.takes('not');
        if (this.takes('nan')) {
          tests.push(this.fields.isNan(left, negated));
          continue;
        }
        this.expect('none');
        tests.push(this.fields.isNone(left, negated));
      } else if (this.sees(['in']) || this.sees(['not']) && this.sees(['in'], 1)) {
        const negated = this.takes('not');
        this.expect('in');
        tests.push(this.membership(left, negated));
      } else if (this.sees([...Object.keys(SIGNS), '~'])) {
        const sign = this.next().text;
        const right = this.value();
        tests.push(this.fields.compare(left, sign, right));
        left = right;
      } else {
        return tests.length ? row => tests.every(test => test(row)) : this.fields.truth(left);
      }
    }
  }

  /** Tells whether a text that can be searched for is next, or a field. */
  private isTerm(ahead: number): boolean {
    const {kind, text} = this.peek(ahead);
    return kind === 'text' || kind === 'word' && !KEYWORDS.includes(text.toLowerCase());
  }

  /** Tells whether a field is next, or a function. */
  private isValue(): boolean {
    const {kind, text} = this.peek();
    return kind === 'word' && (this.isField(text) || this.sees(['('], 1));
  }

  /** Tells whether a word is a field, or a path inside one that is no number. */
  private isField(text: string): boolean {
    return this.fields.spec.has(text) || !NUMBER.test(text) && findPath(text, this.fields.spec) !== undefined;
  }

  private membership(left: Value, negated: boolean): Test {
    let test: Test;
    if (this.takes('(', '[')) {
      const items = [this.value()];
      while (this.takes(',')) if (!this.sees([')', ']'])) items.push(this.value());
      this.expect(')', ']');
      test = this.fields.isIn(left, items);
    } else test = this.fields.isIn(left, this.value());
    return negated ? row => !test(row) : test;
  }

  private value(): Value {
    let signs = 0;
    for (; this.peek().kind === 'sign' && this.peek().text === '-'; signs++) this.next();
    let value = this.unsigned();
    // Two signs check the type, as more would.
    for (let left = signs ? 2 - signs % 2 : 0; left > 0; left--) value = this.fields.negated(value);
    return value;
  }

  private unsigned(): Value {
    const {kind, text} = this.next(), lower = text.toLowerCase();
    if (kind === 'text') return constant('text', text, text);
    if (kind === 'field') return this.fields.field(text);
    if (kind !== 'word' || KEYWORDS.includes(lower) && !['none', 'true', 'false'].includes(lower)) throw wrong(`expected a value, not ${text}`);
    if (this.takes('(')) {
      const known = FUNCTIONS.find(each => each === lower);
      if (!known) throw wrong(`there is no function ${text}, but len, elements, size and duration`);
      const name = this.next();
      if (name.kind !== 'word' && name.kind !== 'field') throw wrong(`expected a field after ${lower}(, not ${name.text}`);
      this.expect(')');
      return this.fields[known === 'len' ? 'length' : known](name.text);
    }
    if (lower === 'none') return constant('none', null, text);
    if (lower === 'true' || lower === 'false') return constant('number', lower === 'true', text);
    if (this.isField(text)) return this.fields.field(text);
    if (!NUMBER.test(text)) return constant('word', text, text);
    const digits = text.replaceAll('_', '');
    if (digits.length > MAX_DIGITS) throw wrong(`expected a number of at most ${MAX_DIGITS} digits, not one of ${digits.length}`);
    return constant('number', numberOf(digits), text);
  }
}

function numberOf(digits: string): number | bigint {
  const number = Number(digits);
  return /^[+-]?\d+$/.test(digits) && !Number.isSafeInteger(number) ? BigInt(digits.replace(/^\+/, '')) : number;
}

/** Returns the words, texts and signs of a condition. */
export function tokensOf(text: string): Token[] {
  const tokens: Token[] = [], end = text.trimEnd().length;
  let at = 0;
  while (at < end) {
    TOKEN.lastIndex = at;
    const match = TOKEN.exec(text);
    if (!match) {
      const rest = text.slice(at).trim();
      throw wrong(`${'"\'`'.includes(rest[0]) ? 'no end of' : 'unexpected'} ${rest}`);
    }
    const place = match.slice(1).findIndex(part => part !== undefined), found = match[place + 1];
    at += match[0].length;
    const start = at - found.length - Number(place === 1);
    tokens.push({kind: KINDS[place], text: place ? found : unquoted(found), start: place === 1 ? start - 1 : start, stop: at});
  }
  return tokens;
}

const PLAIN = /^[^\s()[\],=!<>~"'`-][^\s()[\],=!<>~]*$/;

/** Returns a text as it stands in a condition, with quotes where it needs them. */
export function textIn(text: string, spec: Spec): string {
  const plain = PLAIN.test(text) && !NUMBER.test(text) && !KEYWORDS.includes(text.toLowerCase()) && !spec.has(text);
  return plain ? text : `"${text.replace(/["\\]/g, '\\$&').replaceAll('\n', '\\n').replaceAll('\t', '\\t')}"`;
}

/** Returns the name of a field as it stands in a condition. */
export function fieldIn(name: string): string {
  return PLAIN.test(name) && !KEYWORDS.includes(name.toLowerCase()) ? name : `\`${name}\``;
}

function unquoted(text: string): string {
  return text.slice(1, -1).replace(/\\(.)/gs, (_, char: string) => char === 'n' ? '\n' : char === 't' ? '\t' : char);
}

function wrong(detail: string): Error {
  return new Error(`expected a condition as 'length > 3 and label == owl': ${detail}`);
}
