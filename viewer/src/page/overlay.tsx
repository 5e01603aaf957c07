// What other fields draw over an image: boxes, keypoints and masks, as `over` in their metadata says.

import {useState} from 'preact/hooks';

import type {Dataset, FieldFacts} from '../bags/dataset';
import {kindOf, NdArray} from '../bags/values';
import {type Drawn, drawArray, drawLabels, labelColor} from '../media/colors';
import {useLoaded} from './load';
import {className, drawRecord, Legend} from './picture';
import {countRows, rowsOf} from './table';

/** Boxes or points that are drawn of one field. */
const MAX_SHAPES = 2000;
const MAX_ITEMS = 20_000;
const COLUMNS: Record<string, string[]> = {
  xyxy: ['x0', 'y0', 'x1', 'y1'], xywh: ['x', 'y', 'w', 'h'], cxcywh: ['cx', 'cy', 'w', 'h'], xy: ['x', 'y'], xyv: ['x', 'y', 'visibility'],
};
const FORMATS = Object.keys(COLUMNS);

/** The names of the columns of boxes or points, if the metadata has their format. */
export const columnsOf = ({over, format}: FieldFacts): string[] | undefined =>
  typeof over === 'string' && typeof format === 'string' && Object.hasOwn(COLUMNS, format) ? COLUMNS[format] : undefined;

export interface Layer {
  field: string;
  facts: FieldFacts;
  /** Boxes as x0, y0, x1, y1, or points as x, y, visibility; fractions of the image if the metadata says `normalized`. */
  boxes: number[][];
  points: number[][];
  labels: (string | undefined)[];
  mask: {drawn: Drawn; url: string} | null;
  /** What could not be drawn. */
  notes: string[];
}

/** The fields that are drawn over a field. */
export function fieldsOver(dataset: Dataset, field: string): string[] {
  return [...dataset.spec.keys()].filter(name => name !== field && dataset.facts(name).over === field);
}

async function loadLayer(dataset: Dataset, index: number, field: string): Promise<Layer> {
  const facts = dataset.facts(field), type = dataset.type(field);
  const layer: Layer = {field, facts, boxes: [], points: [], labels: [], mask: null, notes: []};
  try {
    if (kindOf(type) === 'image' && !type.sequence) {
      const data = (await dataset.records(index, field))?.[0];
      const drawn = data && (await drawRecord(data, facts) ?? await drawBrowserMask(data));
      if (drawn) layer.mask = {drawn, url: urlOf(drawn.image)};
      return layer;
    }
    const value = await dataset.value(index, field, 0, MAX_ITEMS);
    if (value === null) return layer;
    const format = facts.format ?? guessFormat(value);
    if (value instanceof NdArray && value.shape.length === 2 && facts.format === undefined && value.shape[1] > 4) {
      const drawn = /f\d$|float/.test(value.dtype) ? drawArray(value)
        : drawLabels({width: value.shape[1], height: value.shape[0], values: value.data as ArrayLike<number>}, true);
      if (drawn) layer.mask = {drawn, url: urlOf(drawn.image)};
      return layer;
    }
    if (typeof format !== 'string' || !FORMATS.includes(format)) {
      layer.notes.push(`format: expected one of ${FORMATS.join(', ')}, got ${JSON.stringify(format)}`);
      return layer;
    }
    const isPoints = format === 'xy' || format === 'xyv', width = isPoints ? format.length : 4;
    const rows = rowsOf(value, MAX_ITEMS), count = Math.max(countRows(value), type.sequence ? await dataset.count(index, field) ?? 0 : 0);
    if (!rows || rows.some(row => row.length < width)) {
      layer.notes.push(`expected rows of ${width} numbers for ${format}`);
      return layer;
    }
    const finite = rows.map((row, i) => ({row: Array.from(row).slice(0, width), i})).filter(({row}) => row.every(Number.isFinite));
    if (finite.length < rows.length) layer.notes.push(`${rows.length - finite.length} not finite`);
    if (count > MAX_SHAPES) layer.notes.push(`the first ${MAX_SHAPES.toLocaleString('en')} of ${count.toLocaleString('en')}`);
    const drawn = finite.slice(0, MAX_SHAPES);
    layer[isPoints ? 'points' : 'boxes'] = drawn.map(({row: [a, b, c, d]}) => format === 'xywh' ? [a, b, a + c, b + d]
      : format === 'cxcywh' ? [a - c / 2, b - d / 2, a + c / 2, b + d / 2] : isPoints ? [a, b, c ?? 1] : [a, b, c, d]);
    const labels = await labelsOf(dataset, index, facts);
    if (labels && labels.length !== Math.min(count, MAX_ITEMS)) layer.notes.push(`${count.toLocaleString('en')} rows, ${labels.length.toLocaleString('en')} labels in ${facts.labels}`);
    layer.labels = drawn.map(({i}) => labels?.[i]);
  } catch (error) {
    layer.notes.push((error as Error).message);
  }
  return layer;
}

function guessFormat(value: unknown): string | undefined {
  const width = rowsOf(value, 1)?.[0]?.length;
  return width === undefined || width >= 4 ? 'xyxy' : width === 3 ? 'xyv' : 'xy';
}

/** The labels of boxes: of the field that `labels` names, with the names of its classes. */
export async function labelsOf(dataset: Dataset, index: number, facts: FieldFacts): Promise<string[] | null> {
  const {labels: name} = facts;
  if (name === undefined) return null;
  if (typeof name !== 'string' || !dataset.spec.has(name)) return null;  // As the panel of the field says.
  const value = await dataset.value(index, name, 0, MAX_ITEMS);
  const {classes = facts.classes} = dataset.facts(name);
  const values = Array.isArray(value) ? value.flatMap(item => item instanceof NdArray ? Array.from(item.data as ArrayLike<number>) : [item])
    : value instanceof NdArray ? Array.from(value.data as ArrayLike<number>) : value === null ? [] : [value];
  return values.map(each => className(classes, each) ?? String(each));
}

/** A mask in the colours of the image: the first channel has its labels. */
async function drawBrowserMask(data: Uint8Array): Promise<Drawn> {
  const bitmap = await createImageBitmap(new Blob([data as BlobPart]), {colorSpaceConversion: 'none', premultiplyAlpha: 'none'});
  const context = new OffscreenCanvas(bitmap.width, bitmap.height).getContext('2d')!;
  context.drawImage(bitmap, 0, 0);
  const {width, height, data: pixels} = context.getImageData(0, 0, bitmap.width, bitmap.height);
  return drawLabels({width, height, values: pixels.filter((_, i) => i % 4 === 0)}, true);
}

function urlOf(image: ImageData): string {
  const canvas = Object.assign(document.createElement('canvas'), {width: image.width, height: image.height});
  canvas.getContext('2d')!.putImageData(image, 0, 0);
  return canvas.toDataURL();
}

export function useLayers(dataset: Dataset, index: number, field: string, delay = 0): Layer[] {
  const loaded = useLoaded(() => Promise.all(fieldsOver(dataset, field).map(name => loadLayer(dataset, index, name))), [dataset, index, field], delay);
  return loaded.state === 'ready' ? loaded.value : [];
}

/** Which layers are shown: kept while one steps through datapoints. */
const choice = {hidden: new Set<string>(), opacity: 0.6};

interface DrawingProps {
  layers: Layer[];
  size: [number, number];
  opacity?: number;
}

/** The layers as an SVG with the pixels of the image as its units. */
export function Drawing({layers, size: [width, height], opacity = choice.opacity}: DrawingProps) {
  const edge = Math.max(width, height) / 200;
  const colors = new Map<string, number>();
  const colorOf = (label: string | undefined, i: number) => {
    const key = label ?? `\0${i}`;
    if (!colors.has(key)) colors.set(key, colors.size + 1);
    return `rgb(${labelColor(colors.get(key)!)})`;
  };
  return (
    <svg class="overlay" viewBox={`0 0 ${width} ${height}`} width={width} height={height}>
      {layers.map(({field, facts, boxes, points, labels, mask}) => {
        const [sx, sy] = facts.normalized === true ? [width, height] : [1, 1];
        const edges = Array.isArray(facts.edges) ? facts.edges.filter(pair => Array.isArray(pair) && points[pair[0]] && points[pair[1]]) : [];
        return <g key={field} data-layer={field}>
          {mask && <image href={mask.url} width={width} height={height} preserveAspectRatio="none" opacity={opacity} style={{imageRendering: 'pixelated'}} />}
          {boxes.map(([x0, y0, x1, y1], i) => <g key={i}>
            <rect x={Math.min(x0, x1) * sx} y={Math.min(y0, y1) * sy} width={Math.abs(x1 - x0) * sx} height={Math.abs(y1 - y0) * sy}
              fill={colorOf(labels[i], i)} fill-opacity={opacity / 4} stroke={colorOf(labels[i], i)} stroke-width={edge} />
            {labels[i] && <text x={Math.min(x0, x1) * sx + edge} y={Math.min(y0, y1) * sy + 9 * edge} font-size={9 * edge} stroke-width={edge / 2}>{labels[i]}</text>}
          </g>)}
          {edges.map(([a, b], i) => points[a][2] > 0 && points[b][2] > 0
            && <line key={i} x1={points[a][0] * sx} y1={points[a][1] * sy} x2={points[b][0] * sx} y2={points[b][1] * sy} stroke={colorOf(undefined, 0)} stroke-width={edge} />)}
          {points.map(([x, y, seen], i) => seen > 0 && <circle key={i} cx={x * sx} cy={y * sy} r={1.5 * edge} fill={colorOf(labels[i], i)} />)}
        </g>;
      })}
    </svg>
  );
}

/** The toggles of the layers, and what is to be said of them. */
export function useOverlay(layers: Layer[], size: [number, number] | null) {
  const [, update] = useState(0);
  const redraw = () => update(count => count + 1);
  const toggle = (field: string) => {
    if (!choice.hidden.delete(field)) choice.hidden.add(field);
    redraw();
  };
  const shown = layers.filter(({field}) => !choice.hidden.has(field));
  const drawing = size && shown.length > 0 && <Drawing layers={shown} size={size} />;
  const controls = layers.length > 0 && <div class="controls faint layers">
    {layers.map(({field}) => <label key={field}><input type="checkbox" checked={!choice.hidden.has(field)} onChange={() => toggle(field)} /> {field}</label>)}
    <input type="range" min={0} max={1} step={0.05} value={choice.opacity} aria-label="Opacity" onInput={event => {
      choice.opacity = Number(event.currentTarget.value);
      redraw();
    }} />
    {shown.map(({field, facts, mask}) => mask && <Legend key={field} drawn={mask.drawn} facts={facts} />)}
    {size && layers.map(layer => problemsOf(layer, size).map(text => <span key={layer.field + text} class="failure">{layer.field}: {text}</span>))}
  </div>;
  return {drawing, controls};
}

function problemsOf({facts, boxes, points, mask, notes}: Layer, [width, height]: [number, number]): string[] {
  const [right, bottom] = facts.normalized === true ? [1, 1] : [width, height];
  const outside = boxes.filter(([x0, y0, x1, y1]) => Math.min(x0, y0, x1, y1) < 0 || Math.max(x0, x1) > right || Math.max(y0, y1) > bottom).length
    + points.filter(([x, y, seen]) => seen > 0 && (x < 0 || y < 0 || x > right || y > bottom)).length;
  const {width: own, height: high} = mask?.drawn.image ?? {width, height};
  return [...notes, ...outside ? [`${outside} of ${boxes.length + points.length} reach outside of the image`] : [],
    ...own !== width || high !== height ? [`${own} × ${high} pixels, stretched over ${width} × ${height}`] : []];
}
