// Numbers over time or position, with the time cursor.

import {useEffect, useMemo, useRef} from 'preact/hooks';
import uPlot from 'uplot';
import 'uplot/dist/uPlot.min.css';

import type {Clock} from './clock';

const MAX_SERIES = 32;

interface Props {
  series: ArrayLike<number>[];
  /** Seconds of the positions; null: positions. */
  times: ArrayLike<number> | null;
  names?: unknown;
  /** Null where positions have nothing to do with time. */
  clock: Clock | null;
}

export function Curve({series, times, names, clock}: Props) {
  const box = useRef<HTMLDivElement>(null), now = useRef<HTMLDivElement>(null);
  useEffect(() => {
    const element = box.current!;
    const count = series[0]?.length ?? 0;
    const kept = Array.from({length: count}, (_, i) => i).filter(i => !times || Number.isFinite(times[i]));
    const x = times ? kept.map(i => times[i]) : kept;
    const drawn = series.slice(0, MAX_SERIES).map(values => kept.map(i => Number.isFinite(values[i]) ? values[i] : null));
    let plot: uPlot;
    const make = () => {
      plot?.destroy();
      const style = getComputedStyle(document.documentElement);
      const color = (name: string) => style.getPropertyValue(name).trim();
      const axis = {stroke: color('--faint'), grid: {stroke: color('--line'), width: 1}, ticks: {stroke: color('--line'), width: 1}};
      plot = new uPlot({
        width: element.clientWidth, height: 220,
        scales: {x: {time: false}},
        axes: [axis, {...axis, size: 60}],
        cursor: {drag: {x: true, y: false, dist: 8}},
        legend: {show: series.length <= MAX_SERIES},
        series: [
          {label: times ? 's' : 'item'},
          ...drawn.map((values, i) => ({
            label: Array.isArray(names) && typeof names[i] === 'string' ? names[i] as string : String(i),
            stroke: color(`--s${i % 6}`), width: 1.3, dash: i < 6 ? undefined : [2 + Math.floor(i / 6) * 2, 3], points: {show: count < 40, filter: count < 40 ? undefined : () => alone(values)},
          })),
        ],
        hooks: {draw: [place]},
      }, [x, ...drawn], element);
      plot.over.addEventListener('click', event => {
        if (!clock || plot.select.width > 0) return;
        const position = plot.posToVal(event.offsetX, 'x');
        clock.seek(times ? position : clock.duration * position / Math.max(1, count));
      });
    };
    const place = () => {
      if (!clock || !plot || !now.current) return;
      const left = plot.valToPos(times ? clock.time : clock.itemAt(null, count), 'x') + plot.over.offsetLeft;
      const inside = left >= plot.over.offsetLeft - 1 && left <= plot.over.offsetLeft + plot.over.offsetWidth + 1;
      Object.assign(now.current.style, {left: `${left}px`, display: inside ? '' : 'none', height: `${plot.over.offsetHeight + plot.over.offsetTop}px`});
    };
    make();
    place();
    const stop = clock?.listen(place);
    const later = () => setTimeout(make);
    addEventListener('theme', later);
    const observer = new ResizeObserver(() => { if (element.clientWidth !== plot.width) plot.setSize({width: element.clientWidth, height: 220}); });
    observer.observe(element);
    return () => {
      stop?.();
      observer.disconnect();
      removeEventListener('theme', later);
      plot.destroy();
    };
  }, [series, times, clock]);
  const missing = useMemo(() => series.reduce((sum, values) => sum + countNotFinite(values), 0), [series]);
  return <div class="curve">
    <div ref={box} />
    <div class="now" ref={now} style={{display: 'none'}} />
    {missing > 0 && <div class="faint">{missing.toLocaleString('en')} not finite</div>}
    {series.length > MAX_SERIES && <div class="faint">the first {MAX_SERIES} of {series.length}</div>}
  </div>;
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
