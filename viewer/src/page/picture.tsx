// Numbers as a picture: the canvas, and the legend with its colour bar or its labels.

import {useLayoutEffect, useRef} from 'preact/hooks';

import type {FieldFacts} from '../bags/dataset';
import {type Drawn, drawLabels, drawValues, labelColor, viridis} from '../media/colors';
import {bitsOfGrayPng, decodeGrayPng} from '../media/png';
import {numberText} from './format';

/** Labels that a legend lists. */
const MAX_LABELS = 24;
/** A grey PNG with smaller values only, which look black, has labels. */
const MAX_LABEL = 32;
const MAX_LABEL_BYTES = 8 << 20;

/** Draws a PNG of numbers; null if it is for the browser to draw. */
export async function drawRecord(data: Uint8Array, facts: FieldFacts): Promise<Drawn | null> {
  const bits = bitsOfGrayPng(data);
  if (!bits || bits === 8 && data.length > MAX_LABEL_BYTES) return null;
  const pixels = await decodeGrayPng(data).catch(error => {
    if (bits === 16) throw error;
    return null;  // The browser may show a part of it.
  });
  if (!pixels) return null;
  if (Array.isArray(facts.classes) || typeof facts.over === 'string') return drawLabels(pixels, typeof facts.over === 'string');
  if (bits === 16) return drawValues(pixels, true);
  return pixels.values.length && (pixels.values as Uint16Array).every(value => value < MAX_LABEL) ? drawLabels(pixels) : null;
}

export function Canvas({image, label}: {image: ImageData; label?: string}) {
  const canvas = useRef<HTMLCanvasElement>(null);
  useLayoutEffect(() => canvas.current!.getContext('2d')!.putImageData(image, 0, 0), [image]);
  return <canvas ref={canvas} width={image.width} height={image.height} role={label ? 'img' : undefined} aria-label={label} />;
}

/** Returns the name of a label, if the metadata has one. */
export function className(classes: unknown, label: unknown): string | undefined {
  const name = Array.isArray(classes) && (typeof label === 'number' || typeof label === 'bigint') ? classes[Number(label)] : undefined;
  return typeof name === 'string' ? name : undefined;
}

const RAMP = `linear-gradient(90deg, ${Array.from({length: 9}, (_, i) => `rgb(${viridis(i / 8).map(Math.round)})`)})`;

/** What the colours of a picture mean. */
export function Legend({drawn: {range, labels, zeroIsNone, note}, facts}: {drawn: Drawn; facts: FieldFacts}) {
  const unit = typeof facts.unit === 'string' ? ` ${facts.unit}` : '';
  const found = labels ? [...labels.keys()].sort((a, b) => a - b) : [];
  return <>
    {range && <span class="ramp"><span>{numberText(range[0])}</span><i style={{background: RAMP}} /><span>{numberText(range[1])}{unit}</span></span>}
    {found.slice(0, MAX_LABELS).map(label => (
      <span class="swatch" key={label}><i class={zeroIsNone && !label ? 'none' : ''} style={zeroIsNone && !label ? {} : {background: `rgb(${labelColor(label)})`}} />{className(facts.classes, label) ?? label}</span>
    ))}
    {found.length > MAX_LABELS && <span>and {(found.length - MAX_LABELS).toLocaleString('en')} more labels</span>}
    {note && <span>{note}</span>}
  </>;
}
