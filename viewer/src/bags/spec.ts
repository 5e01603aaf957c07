// Specs: the fields of a dataset and their types.

import {CorruptError} from './errors';

/** A parsed type: `jpeg(95)[]?` has the word jpeg and the args ['95'], is a sequence, and optional. */
export interface FieldType {
  text: string;
  word: string;
  args: string[];
  sequence: boolean;
  optional: boolean;
}

/** Type by field, in the order of a refs record. */
export type Spec = Map<string, FieldType>;

/** Arguments may have brackets, as of `datetime64[us]`. */
const TYPE = /^([A-Za-z0-9_+.-]+)(?:\(((?:[^()[\]]|\[\w*\])*)\))?(\[\])?(\?)?$/;

export function parseType(text: string): FieldType | null {
  const match = TYPE.exec(text);
  const args = match?.[2] === undefined ? [] : match[2].split(',').map(arg => arg.trim());
  if (!match || args.some(arg => !arg)) return null;
  return {text, word: match[1], args, sequence: Boolean(match[3]), optional: Boolean(match[4])};
}

/** Parses the content of spec.json; a name never becomes a path outside the folder. */
export function parseSpec(found: unknown, where: string): Spec {
  if (typeof found !== 'object' || found === null || Array.isArray(found)) {
    throw new CorruptError(where, null, 'expected an object of types by field');
  }
  const spec: Spec = new Map();
  for (const name of Object.keys(found).sort(byCodePoints)) {
    const text = (found as Record<string, unknown>)[name];
    const type = typeof text === 'string' ? parseType(text) : null;
    if (!name || ['.', '..', 'refs'].includes(name) || /[/\\\0]/.test(name)) {
      throw new CorruptError(where, null, `field ${JSON.stringify(name)}: expected a single component of a path`);
    }
    if (!type) throw new CorruptError(where, null, `field ${JSON.stringify(name)}: expected a type, got ${JSON.stringify(text)}`);
    spec.set(name, type);
  }
  return spec;
}

export function parseJson(data: Uint8Array, where: string): unknown {
  try {
    return JSON.parse(new TextDecoder('utf-8', {fatal: true}).decode(data));
  } catch (error) {
    throw new CorruptError(where, null, `is not JSON: ${(error as Error).message}`);
  }
}

/** Python's order of strings, which is that of refs: JavaScript compares UTF-16. */
function byCodePoints(a: string, b: string): number {
  const left = Array.from(a, c => c.codePointAt(0)!), right = Array.from(b, c => c.codePointAt(0)!);
  for (let i = 0; i < Math.min(left.length, right.length); i++) if (left[i] !== right[i]) return left[i] - right[i];
  return left.length - right.length;
}
