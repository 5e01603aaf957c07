// The filter with its completion, and the order of the grid.

import {useLayoutEffect, useRef, useState} from 'preact/hooks';

import {fieldIn, textIn} from '../bags/condition';
import type {Dataset} from '../bags/dataset';
import {kindOf} from '../bags/values';
import {complete, matching, sampleValues} from './complete';
import {isOrdered} from './filter';
import {useLoaded} from './load';
import {navigate, type Route} from './route';

interface Props {
  dataset: Dataset;
  text: string;
  /** The part of the datapoints that is read; null: all. */
  busy: number | null;
  wrong: boolean;
}

export function FilterBox({dataset, text, busy, wrong}: Props) {
  const [draft, setDraft] = useState(text);
  const [cursor, setCursor] = useState(0);
  const [open, setOpen] = useState(false);
  const [chosen, setChosen] = useState(-1);
  const input = useRef<HTMLInputElement>(null);
  // Where the cursor stands after a completion: at once, as the next letter may follow.
  const taken = useRef<number | null>(null);
  useLayoutEffect(() => {
    if (taken.current === null) return;
    input.current!.focus();
    input.current!.setSelectionRange(taken.current, taken.current);
    taken.current = null;
  });
  useLayoutEffect(() => setDraft(text), [text]);
  const found = complete(dataset, draft, Math.min(cursor, draft.length));
  const sampled = useLoaded(async () => open && found.field ? sampleValues(dataset, found.field) : [], [dataset, open && found.field]);
  const options = matching([...found.options, ...sampled.state === 'ready' ? sampled.value : []], found.prefix)
    .filter(option => option !== draft.slice(found.start, found.stop));
  const shown = open && options.length > 0;
  const apply = (event: Event) => {
    event.preventDefault();
    setOpen(false);
    navigate({filter: draft.trim(), at: 0});
  };
  const take = (option: string) => {
    const end = /[(]$/.test(option) ? '' : ' ', place = found.start + option.length + end.length;
    setDraft(`${draft.slice(0, found.start)}${option}${end}${draft.slice(found.stop).trimStart()}`);
    setCursor(place);
    setChosen(-1);
    taken.current = place;
  };
  const onKey = (event: KeyboardEvent) => {
    if (event.key === 'Escape' && open) {
      setOpen(false);
      event.stopPropagation();
    }
    if (!shown) return;
    const step = event.key === 'ArrowDown' ? 1 : event.key === 'ArrowUp' ? -1 : 0;
    if (step) setChosen((chosen + 1 + step + options.length + 1) % (options.length + 1) - 1);
    else if (chosen >= 0 && ['Enter', 'Tab'].includes(event.key)) take(options[Math.min(chosen, options.length - 1)]);
    else return;
    event.preventDefault();
  };
  const onEdit = () => {
    setDraft(input.current!.value);
    setCursor(input.current!.selectionStart ?? input.current!.value.length);
    setChosen(-1);
    setOpen(true);
  };
  return (
    <form class="filter" onSubmit={apply}>
      <input ref={input} value={draft} onInput={onEdit} onClick={onEdit} onKeyDown={onKey} onBlur={() => setOpen(false)}
        aria-label="Filter" autocomplete="off" spellcheck={false} class={wrong ? 'wrong' : ''} aria-invalid={wrong}
        role="combobox" aria-expanded={shown} aria-controls="completions" aria-autocomplete="list" aria-activedescendant={shown && chosen >= 0 ? `completion-${chosen}` : undefined}
        placeholder={`Search, or as ${exampleOf(dataset)}`} />
      <ul id="completions" class="completions" role="listbox" aria-label="Completions" hidden={!shown}>
        {shown && options.map((option, i) => (
          <li key={option} id={`completion-${i}`} role="option" aria-selected={i === chosen} onMouseDown={event => { event.preventDefault(); take(option); }}>{option}</li>))}
      </ul>
      {busy !== null && <span class="faint">{Math.round(100 * busy)} %</span>}
    </form>
  );
}

/** A condition on fields of the dataset. */
function exampleOf(dataset: Dataset): string {
  const names = [...dataset.spec.keys()].filter(name => !dataset.type(name).sequence);
  const number = names.find(name => /^(u?int|float)$/.test(dataset.type(name).word) && !Array.isArray(dataset.facts(name).classes));
  const {classes} = dataset.facts(names.find(name => Array.isArray(dataset.facts(name).classes)) ?? '');
  const label = names.find(name => dataset.facts(name).classes === classes), text = names.find(name => kindOf(dataset.type(name)) === 'text');
  const first = Array.isArray(classes) && label && typeof classes[0] === 'string' ? `${fieldIn(label)} == ${textIn(classes[0], dataset.spec)}` : text && `${fieldIn(text)} ~ word`;
  const conditions = [first, number && `${fieldIn(number)} > 5`].filter(Boolean);
  return conditions.length ? conditions.join(' and ') : 'label == owl and score > 0.5';
}

/** Chooses the field that orders the grid, and the direction. */
export function Order({dataset, route}: {dataset: Dataset; route: Route}) {
  const falling = route.sort.startsWith('-') && !dataset.spec.has(route.sort), field = falling ? route.sort.slice(1) : route.sort;
  const names = [...dataset.spec.keys()].filter(name => isOrdered(dataset, name));
  if (!names.length) return null;
  return <span class="order">
    <select aria-label="Order by" value={names.includes(field) ? field : ''} onChange={event => navigate({sort: event.currentTarget.value, at: 0})}>
      <option value="">Order: as stored</option>
      {names.map(name => <option key={name} value={name}>{dataset.type(name).sequence ? `len(${name})` : name}</option>)}
    </select>
    {field && <button aria-label={falling ? 'From the smallest' : 'From the largest'} title={falling ? 'From the smallest' : 'From the largest'}
      onClick={() => navigate({sort: falling ? field : `-${field}`, at: 0})}>{falling ? '↓' : '↑'}</button>}
  </span>;
}
