// Marked datapoints and their notes: kept by the browser for each dataset.

import {useState} from 'preact/hooks';

/** The note of each marked datapoint, which may be empty. */
export type Marks = Map<number, string>;

export interface Marking {
  marks: Marks;
  toggle(index: number): void;
  /** Marks a datapoint with a note. */
  note(index: number, text: string): void;
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
  // From the marks as they are: a key may be pressed again before the page is drawn.
  const change = (edit: (marks: Marks) => void) => setMarks(before => {
    const next = new Map(before);
    edit(next);
    try {
      localStorage.setItem(key, JSON.stringify([...next].sort(([a], [b]) => a - b)));
    } catch { /* A private window: they last as long as the page. */ }
    return next;
  });
  return {
    marks,
    toggle: index => change(next => { if (!next.delete(index)) next.set(index, ''); }),
    note: (index, text) => change(next => next.set(index, text)),
    clear: () => change(next => next.clear()),
  };
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
