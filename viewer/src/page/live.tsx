// Episodes that are being recorded, or that a killed writer left, as `bags view --follow` serves them: the newest
// frame of each camera, and the last seconds of the other streams.

import {useEffect, useLayoutEffect, useRef, useState} from 'preact/hooks';

import {Dataset} from '../bags/dataset';
import {RangeCache} from '../bags/ranges';
import {kindOf, NdArray} from '../bags/values';
import {drawArray} from '../media/colors';
import {Curve} from './curve';
import {countText, shortText, timeText} from './format';
import {mimeOf} from './load';
import {drawRecord} from './picture';
import {dataUrl} from './route';
import {Failure, seriesOf} from './thumbnail';

const POLL_MILLISECONDS = 500;
const SHOWN_SECONDS = 10;
/** Most items of a stream that are read: 20 s at 200 Hz. */
const MAX_ITEMS = 4000;
const DECODE_MILLISECONDS = 5000;

type Picture = ImageBitmap | ImageData;
type Newest = {field: string; type: string; count: number}
  & ({picture: Picture} | {series: ArrayLike<number>[]; times: number[] | null; names: unknown} | {text: string} | {error: Error});

/** An episode that is being recorded, as of its last flush. */
interface Take {
  index: number;
  /** The last time of all streams; null if none has times. */
  seconds: number | null;
  fields: Newest[];
}

/** A snapshot of the dataset. */
export interface Shown {
  version: number;
  /** The number of committed datapoints. */
  committed: number;
  takes: Take[];
}

/** Returns the newest snapshot of a dataset; null unless `bags view --follow` serves it. */
export function useLive(url: string): Shown | null {
  const [shown, setShown] = useState<Shown | null>(null);
  useEffect(() => {
    if (!isFollowed()) return;
    const base = url.endsWith('/') ? url : `${url}/`;
    const pictures = new Map<string, Picture>();
    let current = true, version = -1, timer = 0;
    const look = async () => {
      try {
        const found = await (await fetch(`${base}live.json`, {cache: 'no-store'})).json();
        if (found.version !== version) {
          const takes = found.partial.length ? await readTakes(`${base}live/${found.version}/`, found.partial, pictures) : [];
          version = found.version;
          if (current) setShown({version, committed: found.length - found.partial.length, takes});
        }
      } catch {
        // The server has ended, or the snapshot is too old after a pause: the next look tells.
      }
      if (current) timer = window.setTimeout(() => void look(), POLL_MILLISECONDS);
    };
    void look();
    return () => {
      current = false;
      clearTimeout(timer);
    };
  }, [url]);
  return shown;
}

function isFollowed(): boolean {
  const followed = document.querySelector<HTMLMetaElement>('meta[name="bags-follow"]')?.content;
  return followed !== undefined && new URL(followed, location.href.replace(/[?#].*$/, '')).href === dataUrl();
}

export function Live({shown}: {shown: Shown | null}) {
  return <>{shown?.takes.map(take => (
    <section key={take.index} class="live" aria-label={`Datapoint ${take.index}, not committed yet`}>
      <h2><span aria-hidden="true">●</span> Datapoint {take.index.toLocaleString('en')}, not committed yet
        {take.seconds !== null && <span class="faint"> {timeText(take.seconds)}</span>}</h2>
      <div>{take.fields.map(newest => (
        <section key={newest.field} class={'series' in newest ? 'panel wide' : 'panel'} data-field={newest.field}>
          <header><b>{newest.field}</b><code title={newest.type}>{newest.type}</code><span class="faint">{countText(newest.count, 'item')}</span></header>
          {'picture' in newest ? <Frame picture={newest.picture} label={`The newest frame of ${newest.field}`} />
            : 'series' in newest ? <Curve series={newest.series} times={newest.times} names={newest.names} clock={null} />
              : 'text' in newest ? <span>{newest.text}</span> : <Failure error={newest.error} />}
        </section>))}
      </div>
    </section>))}</>;
}

function Frame({picture, label}: {picture: Picture; label: string}) {
  const canvas = useRef<HTMLCanvasElement>(null);
  useLayoutEffect(() => {
    const context = canvas.current!.getContext('2d')!;
    if (picture instanceof ImageData) context.putImageData(picture, 0, 0);
    else context.drawImage(picture, 0, 0);
  }, [picture]);
  return <canvas ref={canvas} width={picture.width} height={picture.height} role="img" aria-label={label} />;
}

/** Reads the newest items of datapoints. `pictures` keeps what was decoded before, by field and number of items. */
async function readTakes(url: string, indices: number[], pictures: Map<string, Picture>): Promise<Take[]> {
  const dataset = await Dataset.open(url, new RangeCache());
  const earlier = new Map(pictures);
  pictures.clear();
  return Promise.all(indices.map(async index => {
    const ends: number[] = [];
    const names = [...dataset.spec.keys()].filter(name => ![...dataset.spec.keys()].some(other => dataset.facts(other).times === name));
    const fields = await Promise.all(names.map(async field => {
      const count = await dataset.count(index, field) ?? 0;
      const key = `${index} ${field} ${count}`;
      const known = {field, type: dataset.type(field).text, count};
      try {
        const times = await lastTimes(dataset, index, field, count);
        if (times?.length) ends.push(times[times.length - 1]);
        const picture = earlier.get(key) ?? await newestPicture(dataset, index, field, count);
        if (picture) {
          pictures.set(key, picture);
          return {...known, picture};
        }
        return {...known, ...await lastItems(dataset, index, field, count, times)};
      } catch (error) {
        return {...known, error: error as Error};
      }
    }));
    return {index, seconds: ends.length ? Math.max(...ends) : null, fields};
  }));
}

/** Returns the last frame or image of a field; null for other fields, and where there is none yet. */
async function newestPicture(dataset: Dataset, index: number, field: string, count: number): Promise<Picture | null> {
  const type = dataset.type(field), kind = kindOf(type), facts = dataset.facts(field);
  if (!count) return null;
  if (kind === 'array') {
    const value = await dataset.value(index, field, count - 1, count);
    const last = type.sequence ? (value as unknown[])[0] : value;
    return last instanceof NdArray && last.shape.length > 1 ? drawArray(last, facts.classes)?.image ?? null : null;
  }
  if (kind !== 'video' && kind !== 'image') return null;
  const [data] = (await dataset.records(index, field, count - 1, count))!;
  const blob = new Blob([data as BlobPart], {type: mimeOf(type.word)});
  if (kind === 'image') return (await drawRecord(data, facts))?.image ?? createImageBitmap(blob);
  return lastFrame(blob);
}

/** Decodes the last frame of a video. */
async function lastFrame(blob: Blob): Promise<ImageBitmap> {
  const video = document.createElement('video');
  const url = URL.createObjectURL(blob);
  try {
    video.muted = true;
    video.preload = 'auto';
    await new Promise<void>((resolve, reject) => {
      const fail = () => reject(new Error('the browser cannot decode the last clip'));
      setTimeout(fail, DECODE_MILLISECONDS);
      video.onerror = fail;
      video.onloadeddata = () => {
        video.onseeked = () => resolve();
        video.currentTime = Number.isFinite(video.duration) ? Math.max(0, video.duration - 1e-3) : 1e9;
      };
      video.src = url;
    });
    return await createImageBitmap(video);
  } finally {
    video.removeAttribute('src');
    URL.revokeObjectURL(url);
  }
}

/** Returns the times of the last items of a field, in seconds; null without times. */
async function lastTimes(dataset: Dataset, index: number, field: string, count: number): Promise<number[] | null> {
  const {times, rate, start = 0} = dataset.facts(field);
  if (!dataset.type(field).sequence) return null;
  if (typeof times === 'string' && dataset.spec.has(times)) {
    const total = await dataset.count(index, times) ?? 0;
    const values = await dataset.value(index, times, Math.max(0, total - MAX_ITEMS), total) as unknown[];
    return values.map(value => Number(value instanceof NdArray ? value.data[0] : value));
  }
  const kind = kindOf(dataset.type(field));
  if (typeof rate !== 'number' || !(rate > 0) || kind === 'video' || kind === 'audio') return null;
  const first = Math.max(0, count - MAX_ITEMS);
  return Array.from({length: count - first}, (_, i) => start + (first + i) / rate);
}

/** Returns the last seconds of a sequence of numbers as curves, else the last value as text. */
async function lastItems(dataset: Dataset, index: number, field: string, count: number, times: number[] | null) {
  const type = dataset.type(field), kind = kindOf(type);
  if (!type.sequence) return {text: count ? shortText(await dataset.value(index, field)) : 'not set'};
  if (kind === 'audio' || kind === 'video' || !count) return {text: countText(count, kind === 'audio' || kind === 'video' ? 'clip' : 'item')};
  const isNumeric = kind === 'number' || kind === 'array';
  const since = times?.length ? times.findIndex(time => time >= times[times.length - 1] - SHOWN_SECONDS) : 0;
  const shown = !isNumeric ? 1 : times ? Math.min(count, times.length - since) : Math.min(count, MAX_ITEMS / 4);
  const values = await dataset.value(index, field, count - shown, count) as unknown[];
  const series = isNumeric ? seriesOf(values) : null;
  if (!series) return {text: shortText(values[values.length - 1])};
  return {series, times: times && times.slice(times.length - shown), names: dataset.facts(field).names};
}
