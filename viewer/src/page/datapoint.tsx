// A datapoint: every field in a panel, and one time cursor over all of them.

import {Component, type ComponentChildren} from 'preact';
import {useEffect, useMemo} from 'preact/hooks';

import type {Dataset} from '../bags/dataset';
import {type Kind, kindOf} from '../bags/values';
import {Clock, useTime} from './clock';
import {timeText} from './format';
import {ImagePanel} from './image';
import {linkTo, navigate, readRoute, type Route} from './route';
import {SequencePanel} from './sequence';
import {SoundPanel} from './sound';
import {Failure} from './thumbnail';
import {ValuePanel} from './value';
import {VideoPanel} from './video';

export interface FieldProps {
  dataset: Dataset;
  index: number;
  field: string;
  clock: Clock;
}

const ORDER: Kind[] = ['video', 'image', 'audio', 'array', 'number', 'text', 'tree', 'bytes'];

interface Props {
  dataset: Dataset;
  route: Route;
  rows: Uint32Array | null;
  marked: boolean;
  toggleMark(index: number): void;
}

export function DatapointPage({dataset, route, rows, marked, toggleMark}: Props) {
  const index = route.at;
  const clock = useMemo(() => {
    const made = new Clock();
    made.time = route.t;
    return made;
  }, [dataset, index]);
  const [before, after] = neighbours(index, rows, dataset.length);
  useEffect(() => () => clock.pause(), [clock]);
  useEffect(() => {
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
  // A link to another time of the same datapoint.
  useEffect(() => { if (Math.abs(route.t - clock.time) > 2e-3 && !clock.playing) clock.seek(route.t); }, [route.t]);
  useEffect(() => {
    const onKey = (event: KeyboardEvent) => {
      const target = event.target as HTMLElement;
      if (event.ctrlKey || event.metaKey || event.altKey || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName) && (target as HTMLInputElement).type !== 'range') return;
      // From the URL: a key may be pressed again before the page is drawn.
      const go = (side: 0 | 1) => {
        const at = neighbours(readRoute().at, rows, dataset.length)[side];
        if (at !== null) navigate({at, t: 0});
      };
      const actions: Record<string, () => void> = {
        ' ': () => clock.toggle(),
        ArrowLeft: () => step(clock, -1),
        ArrowRight: () => step(clock, 1),
        '[': () => go(0),
        ']': () => go(1),
        m: () => toggleMark(index),
        Escape: () => navigate({view: 'grid', t: 0}),
      };
      if (!Object.hasOwn(actions, event.key)) return;
      event.preventDefault();
      actions[event.key]();
    };
    addEventListener('keydown', onKey);
    return () => removeEventListener('keydown', onKey);
  });
  const names = [...dataset.spec.keys()].sort((a, b) =>
    ORDER.indexOf(kindOf(dataset.type(a))) - ORDER.indexOf(kindOf(dataset.type(b))));
  const link = (at: number | null, text: string, title: string) => at === null ? <span class="faint">{text}</span>
    : <a href={linkTo({at, t: 0})} title={title}>{text}</a>;
  return (
    <main class="datapoint">
      <div class="steps">
        <a href={linkTo({view: 'grid', t: 0})} title="All datapoints (Esc)">▦</a>
        {link(before, '◀', 'Previous datapoint ([)')}
        <h1>{index.toLocaleString('en')}</h1>
        {link(after, '▶', 'Next datapoint (])')}
        <button class="mark" aria-pressed={marked} title="Mark (m)" onClick={() => toggleMark(index)}>★</button>
        <TimeBar clock={clock} />
      </div>
      <div class="panels" key={index}>
        {names.map(name => <Field key={name} dataset={dataset} index={index} field={name} clock={clock} />)}
      </div>
    </main>
  );
}

function Field(props: FieldProps) {
  const {dataset, field} = props;
  const type = dataset.type(field), kind = kindOf(type);
  const {unit} = dataset.facts(field);
  const wide = kind === 'video' || kind === 'audio' || type.sequence && ['array', 'number', 'image'].includes(kind);
  const Panel = kind === 'video' ? VideoPanel : kind === 'audio' && !type.sequence ? SoundPanel
    : type.sequence ? SequencePanel : kind === 'image' ? ImagePanel : ValuePanel;
  return (
    <section class={wide ? 'panel wide' : 'panel'} data-field={field}>
      <header><b>{field}</b><code>{type.text}</code>{typeof unit === 'string' && <span class="faint">{unit}</span>}</header>
      <Boundary><Panel {...props} /></Boundary>
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

function TimeBar({clock}: {clock: Clock}) {
  const time = useTime(clock);
  if (!clock.duration) return null;
  return <>
    <button onClick={() => clock.toggle()} title="Play (space)" aria-label={clock.playing ? 'Pause' : 'Play'}>{clock.playing ? '❚❚' : '►'}</button>
    <button onClick={() => step(clock, -1)} title="Back (←)" aria-label="Back">⇤</button>
    <button onClick={() => step(clock, 1)} title="Forward (→)" aria-label="Forward">⇥</button>
    <input type="range" min={0} max={clock.duration} step="any" value={time} aria-label="Time" onInput={event => clock.seek(Number(event.currentTarget.value))} />
    <span class="time">{timeText(time)} / {timeText(clock.duration)}</span>
  </>;
}

function step(clock: Clock, count: number): void {
  clock.pause();
  clock.seek((Math.round(clock.time / clock.step) + count) * clock.step);
}

function neighbours(index: number, rows: Uint32Array | null, length: number): [number | null, number | null] {
  if (!rows) return [index > 0 ? index - 1 : null, index + 1 < length ? index + 1 : null];
  const after = rows.findIndex(row => row > index);
  const before = rows.findLastIndex(row => row < index);
  return [before < 0 ? null : rows[before], after < 0 ? null : rows[after]];
}
