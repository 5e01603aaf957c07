// An image: zoomed with the wheel or two fingers, moved with the pointer; 16-bit images and arrays through a colour map.

import type {ComponentChildren} from 'preact';
import {useLayoutEffect, useRef, useState} from 'preact/hooks';

import type {FieldFacts} from '../bags/dataset';
import type {Drawn} from '../media/colors';
import {bitsOfGrayPng} from '../media/png';
import type {FieldProps} from './datapoint';
import {bytesText} from './format';
import {mimeOf, useBlobUrl, useBroken, useLoaded} from './load';
import {type Layer, useLayers, useOverlay} from './overlay';
import {Canvas, drawRecord, Legend} from './picture';
import {Failure} from './thumbnail';

const NO_LAYERS: Layer[] = [];

export function ImagePanel({dataset, index, field}: FieldProps) {
  const loaded = useLoaded(() => dataset.records(index, field), [dataset, index, field]);
  const layers = useLayers(dataset, index, field);
  if (loaded.state === 'error') return <Failure error={loaded.error} />;
  if (loaded.state === 'loading') return <div class="zoom loading" />;
  if (!loaded.value) return <span class="faint">None</span>;
  return <ImageRecord data={loaded.value[0]} word={dataset.type(field).word} facts={dataset.facts(field)} layers={layers} />;
}

interface RecordProps {
  data: Uint8Array;
  word: string;
  facts: FieldFacts;
  layers?: Layer[];
}

/** An image as it is stored. */
export function ImageRecord(props: RecordProps) {
  return bitsOfGrayPng(props.data) ? <NumbersImage {...props} /> : <BrowserImage {...props} />;
}

function BrowserImage({data, word, layers = NO_LAYERS}: RecordProps) {
  const url = useBlobUrl(data, mimeOf(word));
  const [size, setSize] = useState<[number, number] | null>(null);
  const [broken, onError] = useBroken(url);
  const {drawing, controls} = useOverlay(layers, size);
  if (broken) return <Failure error={new Error(`the browser cannot decode this image (${bytesText(data.length)}): it is damaged, or of a format that the browser lacks`)} />;
  return <>
    <Zoom size={size}>
      {url && <img src={url} alt="" draggable={false} onError={onError}
        onLoad={({currentTarget: {naturalWidth, naturalHeight}}) => setSize([naturalWidth, naturalHeight])} />}
      {drawing}
    </Zoom>
    {controls}
    <div class="controls faint">{size && `${size[0]} × ${size[1]}, `}{bytesText(data.length)}</div>
  </>;
}

/** A PNG of one channel: depth, or labels, or else what the browser shows. */
function NumbersImage(props: RecordProps) {
  const {data, facts, layers} = props;
  const loaded = useLoaded(() => drawRecord(data, facts), [data]);
  if (loaded.state === 'error') return <Failure error={loaded.error} />;
  if (loaded.state === 'loading') return <div class="zoom loading" />;
  if (!loaded.value) return <BrowserImage {...props} />;
  return <DrawnImage drawn={loaded.value} facts={facts} layers={layers} note={`${bitsOfGrayPng(data)} bits, ${bytesText(data.length)}`} />;
}

interface DrawnProps {
  drawn: Drawn;
  facts: FieldFacts;
  note: string;
  layers?: Layer[];
}

export function DrawnImage({drawn, facts, note, layers = NO_LAYERS}: DrawnProps) {
  const {width, height} = drawn.image;
  const {drawing, controls} = useOverlay(layers, [width, height]);
  return <>
    <Zoom size={[width, height]}><Canvas image={drawn.image} />{drawing}</Zoom>
    {controls}
    <div class="controls faint"><span>{width} × {height}, {note}</span><Legend drawn={drawn} facts={facts} /></div>
  </>;
}

interface View {
  x: number;
  y: number;
  scale: number;
}

/** Zooms about a point of the box. */
function zoomed({x, y, scale}: View, [px, py]: number[], factor: number): View {
  const next = Math.min(64, Math.max(0.02, scale * factor));
  return {x: px - (px - x) * next / scale, y: py - (py - y) * next / scale, scale: next};
}

function Zoom({size, children}: {size: [number, number] | null; children: ComponentChildren}) {
  const box = useRef<HTMLDivElement>(null);
  const [view, setView] = useState<View>({x: 0, y: 0, scale: 1});
  const [isFit, setFit] = useState(true);
  /** Where each finger, or the mouse, was last. */
  const pointers = useRef(new Map<number, number[]>());
  const fit = () => {
    const {clientWidth, clientHeight} = box.current!;
    if (!size || !size[0] || !size[1]) return;
    const scale = Math.min(clientWidth / size[0], clientHeight / size[1], 16);
    setView({x: (clientWidth - size[0] * scale) / 2, y: (clientHeight - size[1] * scale) / 2, scale});
    setFit(true);
  };
  const pointOf = (event: MouseEvent) => {
    const bounds = box.current!.getBoundingClientRect();
    return [event.clientX - bounds.left, event.clientY - bounds.top];
  };
  useLayoutEffect(fit, [size?.[0], size?.[1]]);
  useLayoutEffect(() => {
    const element = box.current!;
    const onWheel = (event: WheelEvent) => {
      if (!event.ctrlKey) return;
      event.preventDefault();
      const point = pointOf(event);
      setView(view => zoomed(view, point, Math.exp(-event.deltaY / 300)));
      setFit(false);
    };
    // A finger scrolls the page while the whole image is shown; two of them zoom it.
    const onTouch = (event: TouchEvent) => { if (event.touches.length > 1) event.preventDefault(); };
    element.addEventListener('wheel', onWheel, {passive: false});
    element.addEventListener('touchstart', onTouch, {passive: false});
    return () => {
      element.removeEventListener('wheel', onWheel);
      element.removeEventListener('touchstart', onTouch);
    };
  }, []);
  const move = (event: PointerEvent) => {
    const {current} = pointers, before = current.get(event.pointerId), now = pointOf(event);
    if (!before || event.pointerType === 'touch' && isFit && current.size < 2) return;
    current.set(event.pointerId, now);
    const other = [...current].find(([id]) => id !== event.pointerId)?.[1];
    const apart = (point: number[]) => Math.hypot(point[0] - other![0], point[1] - other![1]);
    if (other) setFit(false);
    setView(view => other ? zoomed(view, other, apart(now) / Math.max(1, apart(before))) : {...view, x: view.x + now[0] - before[0], y: view.y + now[1] - before[1]});
  };
  const end = (event: PointerEvent) => { pointers.current.delete(event.pointerId); };
  return (
    <div class={view.scale >= 2 ? 'zoom near' : 'zoom'} ref={box} style={{touchAction: isFit ? 'pan-x pan-y' : 'none'}} onDblClick={event => {
      // Twice with a finger, where no wheel is.
      if (isFit && matchMedia('(pointer: coarse)').matches) {
        const point = pointOf(event);
        setView(view => zoomed(view, point, 3));
        setFit(false);
      } else fit();
    }} role="img" aria-label={size ? `Image of ${size[0]} × ${size[1]} pixels` : 'Image'} title="Ctrl and wheel, or two fingers: zoom, drag: move, double click: fit"
      onPointerDown={event => {
        pointers.current.set(event.pointerId, pointOf(event));
        event.currentTarget.setPointerCapture(event.pointerId);
      }}
      onPointerMove={move} onPointerUp={end} onPointerCancel={end}>
      <div style={{transform: `translate(${view.x}px, ${view.y}px) scale(${view.scale})`}}>{children}</div>
    </div>
  );
}
