// Numbers over time or position, with the time cursor.

import {useEffect, useMemo, useRef, useState} from 'preact/hooks';
import uPlot from 'uplot';
import 'uplot/dist/uPlot.min.css';

import {Clock} from './clock';
import {numberText} from './format';

const MAX_SERIES = 32;
const MAX_POINTS = 200_000;
/** Pixels beside the values, where the last number of the axis ends: those of sounds, too. */
const END = 24;

interface Props {
  series: ArrayLike<number>[];
  /** Seconds of the positions; null: positions. */
  times: ArrayLike<number> | null;
  names?: unknown;
  /** Null where positions have nothing to do with time. */
  clock: Clock | null;
}

export function Curve({series, times, names, clock}: Props) {
  const box = useRef<HTMLDivElement>(null), now = useRef<HTMLDivElement>(null), legend = useRef<HTMLDivElement>(null);
  const own = useMemo(() => new Clock('items'), []);
  const [isZoomed, setZoomed] = useState(false);
  const shared = clock ?? own;
  useEffect(() => {
    const element = box.current!;
    const count = Math.min(MAX_POINTS, series[0]?.length ?? 0), height = clock ? 108 : 180;
    const kept = Array.from({length: count}, (_, i) => i).filter(i => !times || Number.isFinite(times[i]));
    const x = times ? kept.map(i => times[i]) : kept;
    const drawn = series.slice(0, MAX_SERIES).map(values => kept.map(i => Number.isFinite(values[i]) ? values[i] : null));
    /** Seconds of a step on the horizontal axis. */
    const unit = () => times || !shared.runs ? 1 : (shared.end - shared.start) / Math.max(1, count);
    /** What is shown unless the curves are zoomed: of a datapoint with a time bar all of its time, so that cursors stand below each other. */
    const whole = (): [number, number] => shared.unit === 'items' || !shared.runs ? [x[0], x[x.length - 1]]
      : times ? [Math.min(shared.start, x[0]), Math.max(shared.end, x[x.length - 1])] : [0, count];
    let plot: uPlot, shown: [number, number] | null = null, wasDragged = false;
    const make = () => {
      plot?.destroy();
      shown = null;
      const style = getComputedStyle(document.documentElement);
      const color = (name: string) => style.getPropertyValue(name).trim();
      const axis = {stroke: color('--faint'), grid: {stroke: color('--line'), width: 1}, ticks: {stroke: color('--line'), width: 1}};
      plot = new uPlot({
        width: element.clientWidth, height, padding: [null, END, null, null],
        scales: {x: {time: false}, y: {range: (_, low, high) => low < high ? [low - 0.06 * (high - low), high + 0.06 * (high - low)] : uPlot.rangeNum(low, high, 0.1, true)}},
        axes: [{...axis, size: 30}, {...axis, size: 60, space: 14}],
        cursor: {drag: {x: true, y: false, dist: 8, setScale: false}, bind: {dblclick: () => () => { shared.zoom(null); return null; }}},
        legend: {show: series.length <= MAX_SERIES, mount: (_, table) => legend.current!.replaceChildren(table)},
        series: [
          {label: times ? 's' : 'item', value: (_, value) => value === null ? '' : numberText(value)},
          ...drawn.map((values, i) => ({
            label: Array.isArray(names) && typeof names[i] === 'string' ? names[i] as string : series.length > 1 ? String(i) : 'value',
            value: (_: uPlot, __: number, ___: number, place: number | null) => place === null ? '' : shortNumber(series[i][kept[place]]),
            stroke: color(`--s${i % 6}`), width: 1.3, dash: i < 6 ? undefined : [2 + Math.floor(i / 6) * 2, 3], points: {show: count < 40, filter: count < 40 ? undefined : () => alone(values)},
          })),
        ],
        hooks: {draw: [place, () => setTimeout(showValues)], setSelect: [select]},
      }, [x, ...drawn], element);
      plot.over.addEventListener('mousedown', () => { wasDragged = false; });
      plot.over.addEventListener('mouseleave', () => setTimeout(showValues));
      plot.over.addEventListener('click', event => {
        if (clock && !wasDragged) clock.seek(plot.posToVal(event.offsetX, 'x') * unit());
      });
      follow();
    };
    const select = () => {
      const {left, width} = plot.select;
      if (!width) return;
      wasDragged = true;
      plot.setSelect({left: 0, top: 0, width: 0, height: 0}, false);
      shared.zoom([plot.posToVal(left, 'x') * unit(), plot.posToVal(left + width, 'x') * unit()]);
    };
    const place = () => {
      if (!clock || !plot || !now.current) return;
      const left = plot.valToPos(times ? clock.time : clock.itemAt(null, count), 'x') + plot.over.offsetLeft;
      const inside = left >= plot.over.offsetLeft - 1 && left <= plot.over.offsetLeft + plot.over.offsetWidth + 1;
      Object.assign(now.current.style, {left: `${left}px`, display: inside ? '' : 'none', height: `${plot.over.offsetHeight + plot.over.offsetTop}px`});
    };
    /** Shows the values under the time cursor, unless the mouse shows others. */
    const showValues = () => {
      if (clock && x.length && !((plot.cursor.left ?? -1) >= 0)) plot.setLegend({idx: clock.itemAt(times && x, x.length)}, false);
    };
    /** Shows the range of all curves, the cursor, and the values under it. */
    const follow = () => {
      const [min, max] = shared.range ? shared.range.map(seconds => seconds / unit()) : whole();
      if (min < max && (shown?.[0] !== min || shown[1] !== max)) {
        shown = [min, max];
        plot.setScale('x', {min, max});
      }
      setZoomed(shared.range !== null);
      place();
      showValues();
    };
    make();
    const stop = shared.listen(follow);
    const later = () => setTimeout(make);
    addEventListener('theme', later);
    const observer = new ResizeObserver(() => { if (element.clientWidth !== plot.width) plot.setSize({width: element.clientWidth, height}); });
    observer.observe(element);
    return () => {
      stop();
      observer.disconnect();
      removeEventListener('theme', later);
      plot.destroy();
    };
  }, [series, times, clock]);
  const missing = useMemo(() => series.reduce((sum, values) => sum + countNotFinite(values), 0), [series]);
  const label = `${series.length === 1 ? 'A curve' : `${series.length} curves`} of ${series[0]?.length ?? 0} values`;
  return <div class={series.length <= MAX_SERIES && clock ? 'curve beside' : 'curve'}>
    <div class="drawn" role="img" aria-label={label}>
      <div ref={box} />
      <div class="now" ref={now} style={{display: 'none'}} />
    </div>
    <div class="legend" ref={legend} tabIndex={0} role="group" aria-label="Values at the cursor" />
    <div class="notes faint">
      {isZoomed && <button onClick={() => shared.zoom(null)} title="Show all of the curves (double click)">Whole curve</button>}
      {missing > 0 && <span>{missing.toLocaleString('en')} not finite</span>}
      {series.length > MAX_SERIES && <span>the first {MAX_SERIES} of {series.length}</span>}
      {series[0]?.length > MAX_POINTS && <span>the first {MAX_POINTS.toLocaleString('en')} of {series[0].length.toLocaleString('en')}</span>}
    </div>
  </div>;
}

/** A number in a column that is as wide whatever the time. */
function shortNumber(value: number): string {
  if (!Number.isFinite(value) || Number.isInteger(value)) return String(value);
  return Math.abs(value) >= 1e6 || Math.abs(value) < 1e-4 ? value.toExponential(3) : value.toPrecision(4);
}

function countNotFinite(values: ArrayLike<number>): number {
  let count = 0;
  for (let i = 0; i < values.length; i++) if (!Number.isFinite(values[i])) count += 1;
  return count;
}

/** The positions of values between gaps, to which no line leads; null if there are none. */
function alone(values: (number | null)[]): number[] | null {
  const found: number[] = [];
  values.forEach((value, i) => { if (value !== null && values[i - 1] == null && values[i + 1] == null) found.push(i); });
  return found.length ? found : null;
}
