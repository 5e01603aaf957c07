// An image: zoomed with the wheel, moved with the pointer; 16-bit images and arrays through a colour map.

import type {ComponentChildren} from 'preact';
import {useEffect, useLayoutEffect, useRef, useState} from 'preact/hooks';

import type {FieldFacts} from '../bags/dataset';
import type {Drawn} from '../media/colors';
import {bitsOfGrayPng} from '../media/png';
import type {FieldProps} from './datapoint';
import {bytesText} from './format';
import {mimeOf, useBlobUrl, useLoaded} from './load';
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
  const [broken, setBroken] = useState(false);
  useEffect(() => setBroken(false), [data]);
  const {drawing, controls} = useOverlay(layers, size);
  if (broken) return <Failure error={new Error(`the browser cannot decode this image (${bytesText(data.length)}): it is damaged, or of a format that the browser lacks`)} />;
  return <>
    <Zoom size={size}>
      {url && <img src={url} alt="" draggable={false} onError={() => setBroken(true)}
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

function Zoom({size, children}: {size: [number, number] | null; children: ComponentChildren}) {
  const box = useRef<HTMLDivElement>(null);
  const [view, setView] = useState({x: 0, y: 0, scale: 1});
  const drag = useRef<{x: number; y: number} | null>(null);
  const fit = () => {
    const {clientWidth, clientHeight} = box.current!;
    if (!size || !size[0] || !size[1]) return;
    const scale = Math.min(clientWidth / size[0], clientHeight / size[1], 16);
    setView({x: (clientWidth - size[0] * scale) / 2, y: (clientHeight - size[1] * scale) / 2, scale});
  };
  useLayoutEffect(fit, [size?.[0], size?.[1]]);
  useEffect(() => {
    const element = box.current!;
    const onWheel = (event: WheelEvent) => {
      if (!event.ctrlKey) return;
      event.preventDefault();
      const bounds = element.getBoundingClientRect();
      const px = event.clientX - bounds.left, py = event.clientY - bounds.top;
      setView(({x, y, scale}) => {
        const next = Math.min(64, Math.max(0.02, scale * Math.exp(-event.deltaY / 300)));
        return {x: px - (px - x) * next / scale, y: py - (py - y) * next / scale, scale: next};
      });
    };
    element.addEventListener('wheel', onWheel, {passive: false});
    return () => element.removeEventListener('wheel', onWheel);
  }, []);
  return (
    <div class={view.scale >= 2 ? 'zoom near' : 'zoom'} ref={box} onDblClick={fit} role="img" aria-label={size ? `Image of ${size[0]} × ${size[1]} pixels` : 'Image'} title="Ctrl and wheel: zoom, drag: move, double click: fit"
      onPointerDown={event => {
        drag.current = {x: event.clientX - view.x, y: event.clientY - view.y};
        event.currentTarget.setPointerCapture(event.pointerId);
      }}
      onPointerMove={event => {
        const start = drag.current;
        if (start) setView(({scale}) => ({x: event.clientX - start.x, y: event.clientY - start.y, scale}));
      }}
      onPointerUp={() => { drag.current = null; }}>
      <div style={{transform: `translate(${view.x}px, ${view.y}px) scale(${view.scale})`}}>{children}</div>
    </div>
  );
}
