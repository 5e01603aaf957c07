// Marked datapoints and their notes: kept by the browser for each dataset.

import {useState} from 'preact/hooks';

/** The note of each marked datapoint, which may be empty. */
export type Marks = Map<number, string>;

export interface Marking {
  marks: Marks;
  toggle(index: number): void;
  /** Marks a datapoint with a note. */
  note(index: number, text: string): void;
  /** Marks datapoints; those that are marked keep their notes. */
  add(indices: number[]): void;
  clear(): void;
}

export function useMarks(dataset: string): Marking {
  const key = `bags marks ${dataset}`;
  const [marks, setMarks] = useState<Marks>(() => {
    try {
      return readMarks(JSON.parse(localStorage.getItem(key) ?? '[]'));
    } catch {
      return new Map();
    }
  });
  const keep = (next: Marks) => {
    setMarks(next);
    try {
      localStorage.setItem(key, JSON.stringify([...next].sort(([a], [b]) => a - b)));
    } catch { /* A private window: they last as long as the page. */ }
  };
  const toggle = (index: number) => {
    const next = new Map(marks);
    if (!next.delete(index)) next.set(index, '');
    keep(next);
  };
  const add = (indices: number[]) => keep(new Map([...indices.map(index => [index, ''] as const), ...marks]));
  return {marks, toggle, add, note: (index, text) => keep(new Map(marks).set(index, text)), clear: () => keep(new Map())};
}

/** Marks are pairs of index and note; before there were notes, indices. */
function readMarks(found: unknown): Marks {
  const pairs = Array.isArray(found) ? found.map(each => Array.isArray(each) ? each : [each, '']) : [];
  return new Map(pairs.filter(([index, note]) => Number.isInteger(index) && typeof note === 'string') as [number, string][]);
}

/** Saves data as a file. */
export function saveAs(parts: BlobPart[], type: string, name: string): void {
  const url = URL.createObjectURL(new Blob(parts, {type}));
  Object.assign(document.createElement('a'), {href: url, download: name}).click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}
