// Points in space, which one turns: rows of x, y, z, and of red, green, blue if they have six numbers.

import {useEffect, useMemo, useRef, useState} from 'preact/hooks';

import type {FieldFacts} from '../bags/dataset';
import type {NdArray} from '../bags/values';
import {viridis} from '../media/colors';

const MAX_POINTS = 200_000;
/** Fewer points without names are as likely a short curve. */
const MIN_POINTS = 200;

/** Tells whether an array can be points, and whether it is shown as such at first. */
export function isCloud(array: NdArray, facts: FieldFacts): {can: boolean; first: boolean} {
  const {shape: [count, width], dtype} = array;
  const can = array.isNumeric && array.shape.length === 2 && (width === 3 || width === 6) && count > 1 && /f\d$|float|half|single|double/.test(dtype);
  const {names, rate, times} = facts;
  const isNamed = Array.isArray(names) ? names.slice(0, 3).join('').toLowerCase() === 'xyz' : null;
  return {can, first: can && (isNamed ?? (count >= MIN_POINTS && rate === undefined && times === undefined))};
}

/** Draws points as they are seen from a direction; `yaw` and `pitch` in radians. */
export function drawCloud({shape: [count, width], data}: NdArray, side: number, yaw: number, pitch: number): ImageData {
  const values = data as ArrayLike<number>;
  const step = Math.max(1, Math.ceil(count / MAX_POINTS));
  const low = [Infinity, Infinity, Infinity], high = [-Infinity, -Infinity, -Infinity];
  let brightest = 0;
  const isFinite = (at: number) => Number.isFinite(values[at] + values[at + 1] + values[at + 2]);
  for (let at = 0; at < count * width; at += step * width) {
    if (!isFinite(at)) continue;
    for (let k = 0; k < 3; k++) {
      low[k] = Math.min(low[k], values[at + k]);
      high[k] = Math.max(high[k], values[at + k]);
      if (width === 6) brightest = Math.max(brightest, values[at + 3 + k]);
    }
  }
  const image = new ImageData(side, side), depths = new Float32Array(side * side).fill(-Infinity);
  const center = low.map((value, k) => (value + high[k]) / 2);
  let radius = 0;
  for (let at = 0; at < count * width; at += step * width) {
    if (isFinite(at)) radius = Math.max(radius, Math.hypot(values[at] - center[0], values[at + 1] - center[1], values[at + 2] - center[2]));
  }
  radius ||= 1;
  const [sy, cy, sp, cp] = [Math.sin(yaw), Math.cos(yaw), Math.sin(pitch), Math.cos(pitch)];
  const dot = Math.max(1, Math.min(4, Math.round(side / Math.sqrt(count / step) / 8)));
  for (let at = 0; at < count * width; at += step * width) {
    if (!isFinite(at)) continue;
    const [x, y, z] = [0, 1, 2].map(k => (values[at + k] - center[k]) / radius);
    const across = cy * x - sy * y, ahead = sy * x + cy * y;
    const up = cp * z + sp * ahead, depth = sp * z - cp * ahead;
    const left = Math.round((across * 0.95 + 1) * side / 2), top = Math.round((1 - up * 0.95) * side / 2);
    const color = width === 6 ? [3, 4, 5].map(k => values[at + k] * (brightest <= 1 ? 255 : 1)) : viridis(high[2] > low[2] ? (values[at + 2] - low[2]) / (high[2] - low[2]) : 0.5);
    for (let k = 0; k < dot * dot; k++) {
      const px = left + k % dot, py = top + Math.floor(k / dot), place = py * side + px;
      if (px < 0 || py < 0 || px >= side || py >= side || depths[place] > depth) continue;
      depths[place] = depth;
      image.data.set([color[0], color[1], color[2], 255], 4 * place);
    }
  }
  return image;
}

const SIDE = 480;

export function Cloud({array}: {array: NdArray}) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const [{yaw, pitch}, turn] = useState({yaw: 0.6, pitch: 0.4});
  const drag = useRef<{x: number; y: number} | null>(null);
  const image = useMemo(() => drawCloud(array, SIDE, yaw, pitch), [array, yaw, pitch]);
  useEffect(() => canvas.current!.getContext('2d')!.putImageData(image, 0, 0), [image]);
  const [count] = array.shape;
  return <>
    <canvas class="cloud" ref={canvas} width={SIDE} height={SIDE} role="img" aria-label={`${count} points`} title="Drag to turn"
      onPointerDown={event => {
        drag.current = {x: event.clientX, y: event.clientY};
        event.currentTarget.setPointerCapture(event.pointerId);
      }}
      onPointerMove={event => {
        const {current} = drag;
        if (!current) return;
        const dx = event.clientX - current.x, dy = event.clientY - current.y;
        drag.current = {x: event.clientX, y: event.clientY};
        turn(view => ({yaw: view.yaw - dx / 100, pitch: Math.max(-1.57, Math.min(1.57, view.pitch + dy / 100))}));
      }}
      onPointerUp={() => { drag.current = null; }} />
    <div class="controls faint">
      <input type="range" min={-3.15} max={3.15} step={0.05} value={yaw} aria-label="Turn" onInput={event => turn({yaw: Number(event.currentTarget.value), pitch})} />
      <input type="range" min={-1.57} max={1.57} step={0.05} value={pitch} aria-label="Tilt" onInput={event => turn({yaw, pitch: Number(event.currentTarget.value)})} />
      {count > MAX_POINTS && <span>every {Math.ceil(count / MAX_POINTS)}th of {count.toLocaleString('en')} points</span>}
    </div>
  </>;
}
