// What one takes away: the link, the Python, the values of datapoints, and single records.

import {useState} from 'preact/hooks';

import type {Dataset} from '../bags/dataset';
import {kindOf} from '../bags/values';
import {defaultFields} from './grid';
import {mimeOf} from './load';
import {type Marks, saveAs} from './marks';
import {editOf, pythonOf} from './python';
import {type Route, shownIn} from './route';

/** Datapoints of one download. */
const MAX_ROWS = 20_000;
const ROWS_AT_ONCE = 256;

interface Props {
  dataset: Dataset;
  route: Route;
  rows: Uint32Array | null;
  marks: Marks;
}

export function Share({dataset, route, rows, marks}: Props) {
  const [said, setSaid] = useState('');
  const marked = [...marks.keys()].sort((a, b) => a - b);
  const python = pythonOf(dataset, route, marked), edit = marked.length ? editOf(dataset, marked) : '';
  const copy = (text: string, what: string) => void copyText(text).then(() => setSaid(`${what} copied`), error => setSaid((error as Error).message));
  const count = Math.min(MAX_ROWS, rows ? rows.length : dataset.length);
  const download = () => {
    setSaid('Reading …');
    const indices = rows ? [...rows.subarray(0, count)] : Array.from({length: count}, (_, i) => i);
    downloadRows(dataset, route, indices, marks, 'datapoints.jsonl').then(() => setSaid(`${count.toLocaleString('en')} datapoints saved`), error => setSaid((error as Error).message));
  };
  return (
    <details class="choice share" onToggle={() => setSaid('')}>
      <summary>Share</summary>
      <div>
        <div class="controls">
          <button onClick={() => copy(location.href, 'Link')}>Copy link</button>
          <button onClick={() => copy(python, 'Python')}>Copy Python</button>
          {edit && <button onClick={() => copy(edit, 'Edit')} title="The command that saves the dataset without the marked datapoints">Copy edit</button>}
          {route.view === 'grid' && count > 0 && <button onClick={download} title="Numbers and texts of the fields shown, a line of JSON for each datapoint">Download {count.toLocaleString('en')}</button>}
        </div>
        <pre class="text" aria-label="Python">{python}</pre>
        {edit && <pre class="text" aria-label="Edit">{edit}</pre>}
        <span class="faint" role="status">{said}</span>
      </div>
    </details>
  );
}

/** Copies a text; also where a page has no clipboard, as on plain HTTP. */
async function copyText(text: string): Promise<void> {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  const area = Object.assign(document.createElement('textarea'), {value: text});
  document.body.append(area);
  area.select();
  const done = document.execCommand('copy');
  area.remove();
  if (!done) throw new Error('the browser did not copy: select the text, or the address, instead');
  return undefined;
}

/** Saves datapoints as JSON Lines: the index, the note of a mark, and the numbers and texts of the fields that the grid shows. */
export async function downloadRows(dataset: Dataset, route: Route, indices: number[], marks: Marks, name: string): Promise<void> {
  const fields = (shownIn(dataset, route.fields) ?? defaultFields(dataset)).filter(field => ['number', 'text'].includes(kindOf(dataset.type(field))));
  const lines: string[] = [];
  for (let start = 0; start < indices.length; start += ROWS_AT_ONCE) {
    lines.push(...await Promise.all(indices.slice(start, start + ROWS_AT_ONCE).map(async index => {
      const values = await Promise.all(fields.map(field => dataset.value(index, field)));
      const note = marks.get(index);
      return JSON.stringify({index, ...note && {note}, fields: Object.fromEntries(fields.map((field, i) => [field, values[i]]))}, asJson);
    })));
  }
  saveAs([`${lines.join('\n')}\n`], 'application/jsonl', name);
}

/** Integers beyond 2^53 stay numbers where browsers can write them. */
function asJson(_: string, value: unknown): unknown {
  if (typeof value !== 'bigint') return value;
  return (JSON as {rawJSON?(text: string): unknown}).rawJSON?.(String(value)) ?? String(value);
}

/** A button that saves the record of a field, as it is stored. */
export function SaveRecord({dataset, index, field}: {dataset: Dataset; index: number; field: string}) {
  const [problem, setProblem] = useState('');
  const type = dataset.type(field);
  if (type.sequence || !['image', 'video', 'audio', 'bytes'].includes(kindOf(type))) return null;
  const save = async () => {
    try {
      const records = await dataset.records(index, field);
      if (!records) throw new Error('there is no value');
      saveAs([records[0] as BlobPart], mimeOf(type.word) || 'application/octet-stream', `${field}-${index}${mimeOf(type.word) ? `.${type.word}` : ''}`);
    } catch (error) {
      setProblem((error as Error).message);
    }
  };
  return <>
    <button class="mark end" aria-label={`Save ${field}`} title="Save the record" onClick={() => void save()}>↓</button>
    {problem && <span class="failure" role="alert">{problem}</span>}
  </>;
}
