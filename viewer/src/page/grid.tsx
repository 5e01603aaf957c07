// The grid: as many datapoints as fit, of any number. Only those in sight are in the document.

import {useEffect, useLayoutEffect, useRef, useState} from 'preact/hooks';

import type {Dataset} from '../bags/dataset';
import {scoreFields} from '../bags/findings';
import {timedBy} from '../bags/streams';
import {kindOf} from '../bags/values';
import {cutName} from './format';
import {useKeys} from './keys';
import type {Marks} from './marks';
import {linkTo, navigate, type Route, shownIn} from './route';
import {pictureShape, Thumbnail} from './thumbnail';

/** Pixels that a browser scrolls exactly; a longer grid is mapped to these. */
const MAX_PIXELS = 8_000_000;
const CARD_WIDTH = 190;
const GAP = 10;
const HEIGHTS: Record<string, number> = {image: 146, video: 146, array: 62, text: 62, tree: 62, number: 38, audio: 38, bytes: 38};
const HEADER = 28;
const MAX_FIELDS = 5;
const MAX_TEXTS = 2;

/** The fields that the grid shows unless it is told. */
export function defaultFields(dataset: Dataset): string[] {
  const scores = scoreFields(dataset), names = [...dataset.spec.keys()].filter(name => !timedBy(dataset, name).length && !scores.has(name));
  const of = (...kinds: string[]) => names.filter(name => kinds.includes(kindOf(dataset.type(name))));
  const one = (name: string) => !dataset.type(name).sequence;
  // What is drawn over an image is seen in it.
  const media = of('image', 'video').filter(name => typeof dataset.facts(name).over !== 'string'), hasClasses = (name: string) => Array.isArray(dataset.facts(name).classes);
  const numbers = of('number').filter(one);
  const first = [
    ...(media.length ? media : of('audio')).slice(0, 1), ...of('text').filter(one).slice(0, MAX_TEXTS),
    ...numbers.filter(hasClasses), ...numbers.filter(name => !hasClasses(name)),
  ].slice(0, MAX_FIELDS);
  const rest = [...media, ...names].filter(name => !first.includes(name));
  return [...new Set([...first, ...rest])].slice(0, MAX_FIELDS);
}

interface Props {
  dataset: Dataset;
  route: Route;
  /** The datapoints shown, in order; null: all. */
  rows: Uint32Array | null;
  marks: Marks;
  toggleMark(index: number): void;
}

export function Grid({dataset, route, rows, marks, toggleMark}: Props) {
  const fields = shownIn(dataset, route.fields) ?? defaultFields(dataset);
  const count = rows ? rows.length : dataset.length;
  const box = useRef<HTMLDivElement>(null);
  const [size, setSize] = useState({width: 800, height: 600});
  const [top, setTop] = useState(0);
  const [, redraw] = useState(0);
  const columns = Math.max(1, Math.floor((size.width - GAP) / (CARD_WIDTH + GAP)));
  const cardWidth = Math.floor((size.width - GAP) / columns) - GAP;
  const heightOf = (name: string) => dataset.type(name).sequence && kindOf(dataset.type(name)) === 'number' ? 62 : pictureShape(dataset.type(name)) ? HEIGHTS.image : HEIGHTS[kindOf(dataset.type(name))];
  const cardHeight = HEADER + fields.reduce((sum, name) => sum + heightOf(name), 0) + 8;
  const rowHeight = cardHeight + GAP;
  const length = Math.ceil(count / columns) * rowHeight + GAP;
  const pixels = Math.min(length, MAX_PIXELS);
  const most = Math.max(0, length - size.height);
  const scale = pixels > size.height ? most / (pixels - size.height) : 1;
  const state = useRef({last: 0, top: 0, at: -1, layout: '', rows: null as Uint32Array | null});

  useLayoutEffect(() => {
    const element = box.current!;
    const observer = new ResizeObserver(() => setSize({width: element.clientWidth, height: element.clientHeight}));
    observer.observe(element);
    setSize({width: element.clientWidth, height: element.clientHeight});
    return () => observer.disconnect();
  }, []);

  const goTo = (position: number) => {
    const {current} = state;
    current.top = Math.min(most, Math.max(0, position));
    current.last = Math.round(current.top / scale);
    box.current!.scrollTop = current.last;
    setTop(current.top);
  };

  // A jump: the URL names another datapoint than the first one in sight.
  useLayoutEffect(() => {
    const layout = `${columns} ${rowHeight} ${count} ${size.height}`;
    if (route.at === state.current.at && layout === state.current.layout && rows === state.current.rows) return;
    Object.assign(state.current, {layout, rows});
    const place = !rows ? route.at : route.sort && !route.at ? 0 : placeOf(rows, route.at);
    goTo(Math.floor(Math.min(place, Math.max(0, count - 1)) / columns) * rowHeight);
    state.current.at = route.at;
  }, [route.at, rows, columns, rowHeight, count, size.height]);

  const settle = useRef(0);
  const onScroll = () => {
    const {current} = state;
    const found = box.current!.scrollTop;
    const moved = found - current.last;
    if (Math.abs(moved) < 1) return;
    current.last = found;
    // Small steps move by pixels, large ones (a dragged bar) to that part of the grid.
    current.top = Math.abs(moved) < 2 * size.height ? current.top + moved : found * scale;
    current.top = Math.min(most, Math.max(0, current.top));
    setTop(current.top);
    clearTimeout(settle.current);
    settle.current = window.setTimeout(() => {
      const first = Math.min(Math.max(0, count - 1), Math.round(current.top / rowHeight) * columns);
      current.at = rows ? rows[first] ?? 0 : first;
      navigate({at: current.at}, true);
      // Not while a later scroll waits for its event.
      if (scale !== 1 && Math.abs(box.current!.scrollTop - found) < 1 && Math.abs(found - current.top / scale) >= 1) {
        current.last = Math.round(current.top / scale);
        box.current!.scrollTop = current.last;
      }
    }, 150);
  };
  useEffect(() => () => clearTimeout(settle.current), []);

  // Keys move among the cards: each is one tab stop, its link.
  const wanted = useRef<number | null>(null);
  useLayoutEffect(() => {
    const link = wanted.current === null ? null : box.current!.querySelector<HTMLElement>(`.card[data-index="${wanted.current}"] a`);
    if (!link) return;
    wanted.current = null;
    link.focus({preventScroll: true});
  });
  const steps: Record<string, number> = {j: 1, k: -1, ArrowRight: 1, ArrowLeft: -1, ArrowDown: columns, ArrowUp: -columns};
  useKeys(event => {
    if ((event.target as HTMLElement).closest('.bar')) return;
    const card = document.activeElement?.closest<HTMLElement>('.card');
    const index = card ? Number(card.dataset.index) : null;
    if (event.key === 'm' && index !== null) toggleMark(index);
    if (!Object.hasOwn(steps, event.key) || !count) return;
    event.preventDefault();
    const place = index === null ? -1 : rows ? placeOf(rows, index) : index;
    const next = index === null ? Math.ceil(state.current.top / rowHeight) * columns : place + steps[event.key];
    if (next < 0 || next >= count) return;
    wanted.current = rows ? rows[next] : next;
    const start = Math.floor(next / columns) * rowHeight, {top: from} = state.current;
    goTo(start < from ? start : start + rowHeight + GAP > from + size.height ? start + rowHeight + GAP - size.height : from);
    redraw(number => number + 1);
  });

  const firstRow = Math.max(0, Math.floor(top / rowHeight) - 1);
  const lastRow = Math.min(Math.ceil(count / columns), Math.ceil((top + size.height) / rowHeight) + 1);
  const cards = [];
  for (let place = firstRow * columns; place < Math.min(count, lastRow * columns); place++) {
    const index = rows ? rows[place] : place;
    const left = GAP + (place % columns) * (cardWidth + GAP);
    const above = GAP + Math.floor(place / columns) * rowHeight - top;
    const style = {width: cardWidth, height: cardHeight, transform: `translate(${left}px, ${above}px)`};
    cards.push(
      <article class={marks.has(index) ? 'card marked' : 'card'} key={index} style={style} data-index={index}>
        <header>
          <a href={linkTo({view: 'datapoint', at: index, t: 0})} aria-label={`datapoint ${index.toLocaleString('en')}`}>{index.toLocaleString('en')}</a>
          {marks.get(index) && <span class="note faint" title={marks.get(index)}>{marks.get(index)}</span>}
          <button class="mark" tabIndex={-1} aria-pressed={marks.has(index)} aria-label={`Mark datapoint ${index}`} title="Mark (m)" onClick={() => toggleMark(index)}>★</button>
        </header>
        <div class="open" onClick={() => navigate({view: 'datapoint', at: index, t: 0})}>
          {fields.map(name => (
            <div class="cell" key={name} style={{height: heightOf(name)}}>
              <span class="name" title={name}>{cutName(name, Math.floor((cardWidth - 18) / 6.8))}</span>
              <Thumbnail dataset={dataset} index={index} field={name} />
            </div>
          ))}
        </div>
      </article>);
  }
  return (
    <div class="grid" ref={box} onScroll={onScroll} tabIndex={0} role="region" aria-label="Datapoints">
      <div style={{height: pixels}}>
        <div class="window" style={{height: Math.min(size.height, pixels)}}>{cards}</div>
      </div>
      {!count && <p class="notice">{rows ? 'No datapoint passes the filter.' : 'The dataset has no datapoints.'}</p>}
    </div>
  );
}

/** Returns where a datapoint is among rows; of rows as stored that lack it, where the next one is. */
export function placeOf(rows: Uint32Array, index: number): number {
  const found = rows.indexOf(index);
  if (found >= 0) return found;
  const next = rows.findIndex(row => row > index);
  return next < 0 ? rows.length : next;
}
