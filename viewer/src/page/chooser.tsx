// Chooses the fields of a page, and their order.

import {useState} from 'preact/hooks';

import type {Dataset} from '../bags/dataset';

interface Props {
  dataset: Dataset;
  /** The fields shown, in order. */
  chosen: string[];
  /** Called with the fields to show; null for those that the page chooses. */
  choose(fields: string[] | null): void;
}

export function Chooser({dataset, chosen, choose}: Props) {
  const [text, setText] = useState('');
  const others = [...dataset.spec.keys()].filter(name => !chosen.includes(name));
  const found = (name: string) => name.toLowerCase().includes(text.trim().toLowerCase());
  const move = (name: string, by: number) => {
    const next = chosen.filter(other => other !== name);
    next.splice(Math.max(0, chosen.indexOf(name) + by), 0, name);
    choose(next);
  };
  const line = (name: string) => {
    const at = chosen.indexOf(name);
    return (
      <div class="choosable" key={name}>
        <label>
          <input type="checkbox" checked={at >= 0} onChange={() => choose(at >= 0 ? chosen.filter(other => other !== name) : [...chosen, name])} />
          {' '}{name} <code>{dataset.type(name).text}</code>
        </label>
        {at >= 0 && <span>
          <button disabled={at === 0} onClick={() => move(name, -1)} aria-label={`${name} up`}>↑</button>
          <button disabled={at === chosen.length - 1} onClick={() => move(name, 1)} aria-label={`${name} down`}>↓</button>
        </span>}
      </div>
    );
  };
  return (
    <details class="choice">
      <summary>Shown</summary>
      <div>
        <div class="controls">
          <input type="search" value={text} onInput={event => setText(event.currentTarget.value)} placeholder="Search fields" aria-label="Search fields" />
          <button onClick={() => choose([...chosen, ...others.filter(found)])}>All</button>
          <button onClick={() => choose(text ? chosen.filter(name => !found(name)) : [])}>None</button>
          <button onClick={() => choose(null)} title="The fields that the page chooses">Reset</button>
        </div>
        {[...chosen, ...others].filter(found).map(line)}
      </div>
    </details>
  );
}
