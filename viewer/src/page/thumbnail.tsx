// A field of a datapoint, as small as it stands in the grid.

import {useEffect, useState} from 'preact/hooks';

import type {Dataset, FieldFacts} from '../bags/dataset';
import type {FieldType} from '../bags/spec';
import {readVideo} from '../bags/recordings';
import {measure, timedBy} from '../bags/streams';
import {kindOf, NdArray} from '../bags/values';
import {drawArray, drawValues, isDrawn, sliceOf} from '../media/colors';
import {drawCloud, isCloud} from './cloud';
import {bytesText, countText, exactText, isBlank, numberText, shortText} from './format';
import {mediaUrl, mimeOf, releaseUrl, useBlobUrl, useBroken, useLoaded} from './load';
import {dataUrl} from './route';
import {Drawing, fieldsOver, useLayers} from './overlay';
import {Canvas, className, drawRecord} from './picture';
import {Sparkline} from './sparkline';

/** Larger images are only shown on the page of their datapoint. */
const MAX_THUMBNAIL_BYTES = 8 << 20;
/** Items of a sequence that are read for the grid. */
const MAX_ITEMS = 256;
const DELAY = 60;

interface Props {
  dataset: Dataset;
  index: number;
  field: string;
}

export function Thumbnail(props: Props) {
  const kind = kindOf(props.dataset.type(props.field));
  if (kind === 'image') return <ImageThumbnail {...props} />;
  if (kind === 'video') return <VideoThumbnail {...props} />;
  if (kind === 'audio' || kind === 'bytes') return <SizeThumbnail {...props} />;
  if (timedBy(props.dataset, props.field).length) return <TimesThumbnail {...props} />;
  return <ValueThumbnail {...props} />;
}

export function Failure({error}: {error: Error}) {
  // Paths are those in the dataset.
  const message = error.message.replaceAll(dataUrl()?.replace(/\/?$/, '/') ?? '', '');
  return <span class="failure" title={error.message}>⚠ {message}</span>;
}

function Absent() {
  return <span class="faint">None</span>;
}

function ImageThumbnail({dataset, index, field}: Props) {
  const type = dataset.type(field);
  const loaded = useLoaded(async () => {
    const location = await dataset.location(index, field);
    const count = type.sequence ? await dataset.count(index, field) : 1;
    const size = location ? location.stop - location.start : 0;
    const data = location && size <= MAX_THUMBNAIL_BYTES ? (await dataset.records(index, field, 0, 1))![0] : null;
    // Of more than 8 bits, and of labels, browsers show little.
    const drawn = data ? (await drawRecord(data, dataset.facts(field)))?.image : null;
    return {data, size, count, drawn};
  }, [dataset, index, field], DELAY);
  const url = useBlobUrl(loaded.state === 'ready' && !loaded.value.drawn ? loaded.value.data : null, mimeOf(type.word));
  const [broken, onError] = useBroken(url);
  const [pixels, setPixels] = useState<[number, number] | null>(null);
  if (loaded.state === 'error') return <Failure error={loaded.error} />;
  if (loaded.state === 'loading') return <span class="thumb loading" />;
  const {data, size, count, drawn} = loaded.value;
  if (count === null || (!size && !data)) return <Absent />;
  if (!data) return <span class="thumb faint">{bytesText(size)}</span>;
  if (broken) return <Failure error={new Error('the browser cannot decode this image')} />;
  return (
    <span class="thumb">
      {drawn && <Canvas image={drawn} />}
      {url && <img src={url} alt="" decoding="async" onError={onError} onLoad={({currentTarget: {naturalWidth, naturalHeight}}) => setPixels([naturalWidth, naturalHeight])} />}
      {!type.sequence && (drawn || pixels) && fieldsOver(dataset, field).length > 0
        && <Layers dataset={dataset} index={index} field={field} size={drawn ? [drawn.width, drawn.height] : pixels!} />}
      {type.sequence && <span class="badge">{count}</span>}
    </span>
  );
}

function Layers({dataset, index, field, size}: Props & {size: [number, number]}) {
  const layers = useLayers(dataset, index, field);
  return layers.length > 0 ? <Drawing layers={layers} size={size} /> : null;
}

function VideoThumbnail({dataset, index, field}: Props) {
  const loaded = useLoaded(async () => {
    const media = await mediaUrl(dataset, index, field, 0);
    const offset = media?.location.segment ? (await readVideo(dataset, index, field, 0, media.location)).own[0] : 0;
    return {media, offset, count: await dataset.count(index, field)};
  }, [dataset, index, field], 200);
  const url = loaded.state === 'ready' ? loaded.value.media?.url : undefined;
  useEffect(() => () => releaseUrl(url), [url]);
  const [broken, onError] = useBroken(url);
  if (loaded.state === 'error') return <Failure error={loaded.error} />;
  if (loaded.state === 'loading') return <span class="thumb loading" />;
  if (!loaded.value.media) return <Absent />;
  if (broken) return <Failure error={new Error('the browser cannot play this video')} />;
  return (
    <span class="thumb">
      <video src={`${url}#t=${loaded.value.offset + 0.001}`} preload="metadata" muted playsInline tabIndex={-1} onError={onError} />
      <span class="badge">{dataset.type(field).sequence ? `▸ ${loaded.value.count}` : '▸'}</span>
    </span>
  );
}

function SizeThumbnail({dataset, index, field}: Props) {
  const type = dataset.type(field);
  const loaded = useLoaded(async () => {
    const location = await dataset.location(index, field);
    const head = location && kindOf(type) === 'bytes' && location.stop - location.start < 4096
      ? (await dataset.records(index, field, 0, 1))![0] : null;
    const seconds = kindOf(type) === 'audio' && location && !location.compressed ? (await measure(dataset, index, field).catch(() => null))?.seconds ?? null : null;
    return {location, head, seconds, count: await dataset.count(index, field)};
  }, [dataset, index, field], DELAY);
  if (loaded.state === 'error') return <Failure error={loaded.error} />;
  if (loaded.state === 'loading') return <span class="line loading" />;
  const {location, head, seconds, count} = loaded.value;
  if (count === null) return <Absent />;
  const size = location ? location.stop - location.start : 0;
  const items = type.sequence ? `${count} × ` : '';
  return <span class="line">{head ? shortText(head) : `${kindOf(type) === 'audio' ? '♪ ' : ''}${seconds === null ? '' : `${numberText(Number(seconds.toPrecision(3)))} s, `}${items}${bytesText(size)}`}</span>;
}

/** The times of other fields: no curve, but how long they are. */
function TimesThumbnail({dataset, index, field}: Props) {
  const loaded = useLoaded(() => dataset.count(index, field), [dataset, index, field], DELAY);
  if (loaded.state === 'error') return <Failure error={loaded.error} />;
  if (loaded.state === 'loading') return <span class="line loading" />;
  return loaded.value === null ? <Absent /> : <span class="line faint">{countText(loaded.value, 'time')}</span>;
}

function ValueThumbnail({dataset, index, field}: Props) {
  const type = dataset.type(field);
  const loaded = useLoaded(async () => {
    const location = ['array', 'tree', 'text'].includes(kindOf(type)) && !type.sequence ? await dataset.location(index, field) : null;
    const size = location ? location.stop - location.start : 0;
    return {
      size,
      value: size > MAX_THUMBNAIL_BYTES ? undefined : await dataset.value(index, field, 0, MAX_ITEMS),
      count: type.sequence ? await dataset.count(index, field) : 1,
    };
  }, [dataset, index, field], DELAY);
  if (loaded.state === 'error') return <Failure error={loaded.error} />;
  if (loaded.state === 'loading') return <span class="line loading" />;
  const {value, count, size} = loaded.value;
  if (value === undefined) return <span class="line faint">{bytesText(size)}</span>;
  if (value === null && count === null || value === null && type.optional) return <Absent />;
  const facts = dataset.facts(field), label = type.sequence ? undefined : className(facts.classes, value);
  if (label !== undefined) return <span class="line"><b>{label}</b> <span class="faint">{String(value)}</span></span>;
  const image = value instanceof NdArray ? pictureOf(value, facts) : null;
  if (image) return <span class={pictureShape(type) ? 'thumb' : 'thumb low'} title={shortText(value)}><Canvas image={image} /></span>;
  if (typeof value === 'string') return isBlank(value) ? <span class="line blank faint">{JSON.stringify(value)}</span> : <span class="text" dir="auto">{value.slice(0, 400)}</span>;
  const series = seriesOf(value);
  if (series) {
    const what = value instanceof NdArray ? shortText(value) : `${count} items`;
    return <span class="plot" title={what}><Sparkline series={series} /></span>;
  }
  if (type.sequence && Array.isArray(value)) {
    const text = value.map(item => typeof item === 'string' ? isBlank(item) ? JSON.stringify(item) : item : shortText(item, 60)).join(' · ');
    if (!count) return <span class="line faint">{countText(0, 'item')}</span>;
    return <span class="text"><span class="faint">{count}:</span> <bdi>{text.slice(0, 400)}</bdi></span>;
  }
  return <span class={typeof value === 'number' || typeof value === 'bigint' ? 'line number' : 'text'}>
    {typeof value === 'number' ? exactText(value) : shortText(value)}</span>;
}

/** Tells whether a type's shape says that its arrays are pictures. */
export function pictureShape({word, args, sequence}: FieldType): boolean {
  return word === 'array' && !sequence && isDrawn(args.slice(1).map(Number));
}

/** Draws what is a picture on the page of its datapoint: an array, the middle slice of one, or a cloud. */
function pictureOf(array: NdArray, facts: FieldFacts): ImageData | null {
  const drawn = drawArray(array, facts.classes);
  if (drawn) return drawn.image;
  if (array.isNumeric && array.shape.length === 3 && isDrawn(array.shape)) {
    const axis = [0, 1, 2].find(each => array.shape.every((length, other) => other === each || length >= 8))!;
    return drawValues(sliceOf(array, axis, array.shape[axis] >> 1), false).image;
  }
  return isCloud(array, facts).first ? drawCloud(array, 160, 0.6, 0.4) : null;
}

/** Returns the numbers of a value, one series for each column, if it has at least two positions. */
export function seriesOf(value: unknown): ArrayLike<number>[] | null {
  if (value instanceof NdArray) {
    if (!value.isNumeric || value.shape.length > 2 || !value.shape.length || value.shape[0] < 2) return null;
    return columnsOf(value.data as ArrayLike<number>, value.shape[1] ?? 1);
  }
  if (!Array.isArray(value) || value.length < 2) return null;
  if (value.every(item => typeof item === 'number')) return [value as number[]];
  const first = value[0];
  if (!(first instanceof NdArray) || first.shape.length > 1 || !first.isNumeric) return null;
  if (!value.every(item => item instanceof NdArray && item.data.length === first.data.length)) return null;
  return Array.from({length: first.data.length}, (_, k) =>
    Float64Array.from(value as NdArray[], item => (item.data as ArrayLike<number>)[k]));
}

function columnsOf(data: ArrayLike<number>, width: number): ArrayLike<number>[] {
  if (width === 1) return [data];
  return Array.from({length: width}, (_, k) => Float64Array.from({length: data.length / width}, (_, i) => data[i * width + k]));
}
