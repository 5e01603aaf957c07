// An image: zoomed with the wheel, moved with the pointer; 16-bit images and arrays through a colour map.

import type {ComponentChildren} from 'preact';
import {useEffect, useLayoutEffect, useRef, useState} from 'preact/hooks';

import {type Drawn, drawValues} from '../media/colors';
import {decodeDeepPng, isDeepPng} from '../media/png';
import type {FieldProps} from './datapoint';
import {bytesText, numberText} from './format';
import {mimeOf, useBlobUrl, useLoaded} from './load';
import {Failure} from './thumbnail';

export function ImagePanel({dataset, index, field}: FieldProps) {
  const loaded = useLoaded(() => dataset.records(index, field), [dataset, index, field]);
  if (loaded.state === 'error') return <Failure error={loaded.error} />;
  if (loaded.state === 'loading') return <div class="zoom loading" />;
  return loaded.value ? <ImageRecord data={loaded.value[0]} word={dataset.type(field).word} /> : <span class="faint">None</span>;
}

/** An image as it is stored. */
export function ImageRecord({data, word}: {data: Uint8Array; word: string}) {
  return isDeepPng(data) ? <DeepImage data={data} /> : <BrowserImage data={data} word={word} />;
}

function BrowserImage({data, word}: {data: Uint8Array; word: string}) {
  const url = useBlobUrl(data, mimeOf(word));
  const [size, setSize] = useState<[number, number] | null>(null);
  const [broken, setBroken] = useState(false);
  useEffect(() => setBroken(false), [data]);
  if (broken) return <Failure error={new Error(`the browser cannot decode this image (${bytesText(data.length)}): it is damaged, or of a format that the browser lacks`)} />;
  return <>
    <Zoom size={size}>
      {url && <img src={url} alt="" draggable={false} onError={() => setBroken(true)}
        onLoad={({currentTarget: {naturalWidth, naturalHeight}}) => setSize([naturalWidth, naturalHeight])} />}
    </Zoom>
    <div class="controls faint">{size && `${size[0]} × ${size[1]}, `}{bytesText(data.length)}</div>
  </>;
}

function DeepImage({data}: {data: Uint8Array}) {
  const loaded = useLoaded(async () => drawValues(await decodeDeepPng(data), true), [data]);
  if (loaded.state === 'error') return <Failure error={loaded.error} />;
  return loaded.state === 'loading' ? <div class="zoom loading" /> : <DrawnImage drawn={loaded.value} note={`16 bits, ${bytesText(data.length)}`} />;
}

export function DrawnImage({drawn: {image, range}, note}: {drawn: Drawn; note: string}) {
  const canvas = useRef<HTMLCanvasElement>(null);
  useLayoutEffect(() => canvas.current!.getContext('2d')!.putImageData(image, 0, 0), [image]);
  return <>
    <Zoom size={[image.width, image.height]}><canvas ref={canvas} width={image.width} height={image.height} /></Zoom>
    <div class="controls faint">{image.width} × {image.height}, {range ? `${numberText(range[0])} (dark) … ${numberText(range[1])} (bright), ` : ''}{note}</div>
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
