// A datapoint: every field in a panel, and one time cursor over all of them.

import {Component, type ComponentChildren} from 'preact';
import {useEffect, useLayoutEffect, useMemo} from 'preact/hooks';

import type {Dataset} from '../bags/dataset';
import {type Found, foundIn, scoreFields} from '../bags/findings';
import {isRows, mayHaveTimes, timedBy} from '../bags/streams';
import {kindOf} from '../bags/values';
import {Clock, useTime} from './clock';
import {factsProblems} from './facts';
import {FoundIn, Spans} from './findings';
import {timeText} from './format';
import {placeOf} from './grid';
import {ImagePanel} from './image';
import {useKeys} from './keys';
import {useLoaded} from './load';
import type {Marking} from './marks';
import {linkTo, navigate, type Route, shownIn} from './route';
import {RowsPanel, SequencePanel, TimesPanel} from './sequence';
import {SaveRecord} from './share';
import {SoundPanel} from './sound';
import {Failure} from './thumbnail';
import {ValuePanel} from './value';
import {VideoPanel} from './video';

/** Characters of a name that fit the cell of a number. */
const MAX_NAME = 22;

export interface FieldProps {
  dataset: Dataset;
  index: number;
  field: string;
  clock: Clock;
}

interface Props {
  dataset: Dataset;
  route: Route;
  rows: Uint32Array | null;
  marking: Marking;
}

export function DatapointPage({dataset, route, rows, marking}: Props) {
  const index = route.at, marked = marking.marks.has(index);
  const other = route.with !== null && route.with < dataset.length ? route.with : null;
  const clock = useMemo(() => {
    const made = new Clock();
    made.time = route.t;
    return made;
  }, [dataset, index, other]);
  const loaded = useLoaded(() => foundIn(dataset, index), [dataset, index]), found = loaded.state === 'ready' ? loaded.value : [];
  const [before, after] = neighbours(index, rows, dataset.length);
  useEffect(() => () => clock.pause(), [clock]);
  useLayoutEffect(() => {
    let timer = 0;
    const stop = clock.listen(() => {
      clearTimeout(timer);
      timer = window.setTimeout(() => { if (!clock.playing) navigate({t: clock.time}, true); }, 250);
    });
    return () => {
      stop();
      clearTimeout(timer);
    };
  }, [clock]);
  // A link to another time of the same datapoint. Not after the page is drawn: a seek before that would be overwritten.
  useLayoutEffect(() => { if (Math.abs(route.t - clock.time) > 2e-3 && !clock.playing) clock.seek(route.t); }, [route.t]);
  const go = (at: number | null) => { if (at !== null) navigate({at, t: 0}); };
  const actions: Record<string, () => void> = {
    ' ': () => clock.toggle(),
    ArrowLeft: () => clock.runs ? step(clock, -1) : stepItem(-1),
    ArrowRight: () => clock.runs ? step(clock, 1) : stepItem(1),
    '[': () => go(before),
    ']': () => go(after),
    m: () => marking.toggle(index),
    Escape: () => navigate({view: 'grid', t: 0}),
  };
  useKeys(event => {
    if (!Object.hasOwn(actions, event.key)) return;
    event.preventDefault();
    actions[event.key]();
  });
  const groups: Record<string, string[]> = {values: [], media: [], others: []};
  for (const name of shownIn(dataset, route.panels) ?? defaultPanels(dataset)) groups[groupOf(dataset, name)].push(name);
  const stays = groups.media.some(name => kindOf(dataset.type(name)) === 'video');
  const link = (at: number | null, text: string, title: string) => at === null ? <span class="faint" aria-hidden="true">{text}</span>
    : <a href={linkTo({at, t: 0})} title={title} aria-label={title}>{text}</a>;
  return (
    <main class="datapoint">
      <div class="steps">
        <a href={linkTo({view: 'grid', t: 0})} title="All datapoints (Esc)" aria-label="All datapoints">▦</a>
        {link(before, '◀', 'Previous datapoint ([)')}
        <h1>{index.toLocaleString('en')}</h1>
        {link(after, '▶', 'Next datapoint (])')}
        <button class="mark" aria-pressed={marked} aria-label="Mark" title="Mark (m)" onClick={() => marking.toggle(index)}>★</button>
        {marked && <input class="note" value={marking.marks.get(index)} placeholder="Note" aria-label="Note" onInput={event => marking.note(index, event.currentTarget.value)} />}
        {other === null ? <CompareBox length={dataset.length} next={after ?? before} /> : <>
          <span class="with">with {other.toLocaleString('en')}</span>
          <button aria-label="End the comparison" title="End the comparison" onClick={() => navigate({with: null})}>✕</button>
        </>}
        <TimeBar clock={clock} found={found} />
      </div>
      {loaded.state === 'error' ? <Failure error={loaded.error} /> : <FoundIn found={found} clock={clock} />}
      <div class={other === null ? 'panels' : 'panels compared'} key={`${index} ${other}`}>
        {other !== null && <div class="sides">{[index, other].map((each, i) => <a key={i} href={linkTo({at: each, with: null})}>{each.toLocaleString('en')}</a>)}</div>}
        {Object.entries(groups).map(([group, names]) => names.length > 0 && (
          <div key={group} class={group === 'media' && stays ? 'media stays' : group}>
            {names.map(name => [index, ...other === null ? [] : [other]].map((each, i) => <Field key={`${name} ${i}`} dataset={dataset} index={each} field={name} clock={clock} />))}
          </div>))}
      </div>
    </main>
  );
}

/** The fields that are shown of a datapoint where none are chosen. */
export function defaultPanels(dataset: Dataset): string[] {
  const scores = scoreFields(dataset);
  return [...dataset.spec.keys()].filter(name => !scores.has(name));
}

/** Where a field stands: texts and single numbers above, then cameras and images in a row, then curves and the rest. */
function groupOf(dataset: Dataset, field: string): 'values' | 'media' | 'others' {
  const type = dataset.type(field), kind = kindOf(type);
  const isScalar = type.word === 'array' && type.args.length === 1 && !type.sequence;
  if (timedBy(dataset, field).length) return 'values';
  if (kind === 'text' || kind === 'number' && !type.sequence || isScalar) return 'values';
  return kind === 'video' || kind === 'image' ? 'media' : 'others';
}

function Field(props: FieldProps) {
  const {dataset, index, field} = props;
  const type = dataset.type(field), kind = kindOf(type);
  const {unit} = dataset.facts(field);
  const wider = kind === 'bytes' && !type.sequence ? 'panel words' : 'panel';
  const isClock = timedBy(dataset, field).length > 0;
  const wide = !isClock && (kind === 'audio' || type.sequence && ['array', 'number'].includes(kind) || isRows(type) && mayHaveTimes(dataset, field));
  const Panel = isClock ? TimesPanel : kind === 'video' ? VideoPanel : kind === 'audio' ? SoundPanel
    : type.sequence ? SequencePanel : isRows(type) ? RowsPanel : kind === 'image' ? ImagePanel : ValuePanel;
  return (
    <section class={wide ? 'panel wide' : kind === 'text' || field.length > MAX_NAME ? 'panel words' : wider} data-field={field} data-index={index} tabIndex={-1}>
      <header><b>{field}</b><code title={type.text}>{type.text}</code>{typeof unit === 'string' && <span class="faint">{unit}</span>}<SaveRecord dataset={dataset} index={index} field={field} /></header>
      <Boundary><Panel {...props} /></Boundary>
      {factsProblems(dataset, field).map(problem => <div key={problem} class="failure">{problem}</div>)}
    </section>
  );
}

/** Shows the error of a panel in its place. */
class Boundary extends Component<{children: ComponentChildren}, {error: Error | null}> {
  override state = {error: null};

  static getDerivedStateFromError(error: Error) {
    return {error};
  }

  override render() {
    return this.state.error ? <Failure error={this.state.error} /> : this.props.children;
  }
}

/** Chooses the datapoint that is shown beside this one. */
function CompareBox({length, next}: {length: number; next: number | null}) {
  const go = (event: Event) => {
    event.preventDefault();
    const text = ((event.currentTarget as HTMLFormElement).elements.namedItem('other') as HTMLInputElement).value.replace(/[,_ ]/g, '');
    const found = text ? Number(text) : next;
    if (found !== null && Number.isInteger(found)) navigate({with: Math.min(length - 1, Math.max(0, found < 0 ? length + found : found))});
  };
  return <form class="compare" onSubmit={go}><input name="other" autocomplete="off" placeholder="Compare with …" aria-label="Compare with datapoint" title="An index; the next datapoint if it is empty" /></form>;
}

function TimeBar({clock, found}: {clock: Clock; found: Found[]}) {
  const time = useTime(clock);
  if (!clock.runs) return null;
  return <>
    <button onClick={() => clock.toggle()} title="Play (space)" aria-label={clock.playing ? 'Pause' : 'Play'}>{clock.playing ? '❚❚' : '►'}</button>
    <button onClick={() => step(clock, -1)} title="Back (←)" aria-label="Back">⇤</button>
    <button onClick={() => step(clock, 1)} title="Forward (→)" aria-label="Forward">⇥</button>
    <span class="track">
      <Spans found={found} clock={clock} />
      <input type="range" min={clock.start} max={clock.end} step="any" value={time} aria-label="Time" onInput={event => clock.seek(Number(event.currentTarget.value))} />
    </span>
    <span class="time">{timeText(Math.max(clock.start, time) - clock.zero)} / {timeText(clock.end - clock.zero)}</span>
  </>;
}

/** Steps the items of the panel in focus, or else of the first one. */
function stepItem(count: number): void {
  const panel = document.activeElement?.closest('.panel') ?? document;
  const slider = panel.querySelector<HTMLInputElement>('input[aria-label="Item"]');
  if (!slider) return;
  slider.valueAsNumber += count;
  slider.dispatchEvent(new Event('input', {bubbles: true}));
}

function step(clock: Clock, count: number): void {
  clock.pause();
  clock.seek(clock.start + (Math.round((clock.time - clock.start) / clock.step) + count) * clock.step);
}

function neighbours(index: number, rows: Uint32Array | null, length: number): [number | null, number | null] {
  if (!rows) return [index > 0 ? index - 1 : null, index + 1 < length ? index + 1 : null];
  const place = placeOf(rows, index), after = rows[place] === index ? place + 1 : place;
  return [rows[place - 1] ?? null, rows[after] ?? null];
}
