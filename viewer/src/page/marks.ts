// Marked datapoints: kept by the browser for each dataset, downloaded as a list that dataset.select takes.

import {useState} from 'preact/hooks';

export function useMarks(dataset: string): {marks: Set<number>; toggle(index: number): void; clear(): void} {
  const key = `bags marks ${dataset}`;
  const [marks, setMarks] = useState<Set<number>>(() => {
    try {
      const found: unknown = JSON.parse(localStorage.getItem(key) ?? '[]');
      return new Set(Array.isArray(found) ? found.filter(Number.isInteger) : []);
    } catch {
      return new Set();
    }
  });
  const keep = (next: Set<number>) => {
    setMarks(next);
    try {
      localStorage.setItem(key, JSON.stringify(sorted(next)));
    } catch { /* A private window: they last as long as the page. */ }
  };
  const toggle = (index: number) => {
    const next = new Set(marks);
    if (!next.delete(index)) next.add(index);
    keep(next);
  };
  return {marks, toggle, clear: () => keep(new Set())};
}

function sorted(marks: Set<number>): number[] {
  return [...marks].sort((a, b) => a - b);
}

export function downloadMarks(marks: Set<number>): void {
  const url = URL.createObjectURL(new Blob([`${JSON.stringify(sorted(marks))}\n`], {type: 'application/json'}));
  const link = Object.assign(document.createElement('a'), {href: url, download: 'marks.json'});
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}
