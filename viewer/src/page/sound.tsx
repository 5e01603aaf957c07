// A sound, or the blocks of a datapoint as one track: its waveform, its spectrogram, and what plays it.

import type {ComponentChildren, Ref} from 'preact';
import {useEffect, useRef, useState} from 'preact/hooks';

import {openStream, type Stream} from '../bags/streams';
import {drawSpectrogram, drawWaveform} from '../media/sound';
import {soundRate} from '../media/sound_header';
import type {FieldProps} from './datapoint';
import {bytesText, numberText} from './format';
import {mimeOf, useBlobUrl, useLoaded} from './load';
import {ItemSequence} from './sequence';
import {Failure} from './thumbnail';

const MAX_BYTES = 64 << 20;
/** Samples of all channels that are decoded: 512 MB. */
const MAX_SAMPLES = 1 << 27;
const WIDTH = 900;
/** Seconds that a sound may be off before it is moved. */
const FAR = 0.05;

interface Track {
  stream: Stream;
  sound: AudioBuffer;
  bytes: number;
}

export function SoundPanel(props: FieldProps) {
  const {dataset, index, field, clock} = props;
  const loaded = useLoaded(async () => {
    const stream = await openStream(dataset, index, field);
    return stream && (stream.elements === 'items' ? 'items' : readTrack(props, stream));
  }, [dataset, index, field]);
  if (loaded.state === 'error') return <Failure error={loaded.error} />;
  if (loaded.state === 'loading') return <div class="loading" />;
  const {value} = loaded;
  if (value === null) return <span class="faint">None</span>;
  if (value === 'items') return <ItemSequence {...props} Item={SoundItem} />;
  return value.stream.count ? <Player {...value} field={field} clock={clock} /> : <span class="faint">no samples</span>;
}

/** Decodes the records of a sound, one after the other. */
async function readTrack({dataset, index, field}: FieldProps, stream: Stream): Promise<Track> {
  const bytes = stream.parts.reduce((sum, {location}) => sum + location.stop - location.start, 0);
  if (bytes > MAX_BYTES) throw new Error(`${bytesText(bytes)} of sound are too many to show`);
  const records = (await dataset.records(index, field))!;
  const rates = new Set(records.map(soundRate));
  if (rates.size > 1) throw new Error(`expected recordings of one rate, got ${[...rates].map(rate => `${rate ?? '?'} Hz`).join(' and ')}`);
  if (records.length === 1) return {stream, sound: await decode(records[0]), bytes};
  const blocks = await Promise.all(records.map(decode)), channels = Math.max(1, ...blocks.map(({numberOfChannels}) => numberOfChannels));
  const length = blocks.reduce((sum, block) => sum + block.length, 0);
  if (length * channels > MAX_SAMPLES) throw new Error(`${length.toLocaleString('en')} samples are too many to show`);
  const sound = new AudioBuffer({length: Math.max(1, length), numberOfChannels: channels, sampleRate: blocks[0]?.sampleRate ?? 48_000});
  let at = 0;
  for (const block of blocks) {
    for (let channel = 0; channel < channels; channel++) sound.copyToChannel(block.getChannelData(Math.min(channel, block.numberOfChannels - 1)), channel, at);
    at += block.length;
  }
  return {stream, sound, bytes};
}

function Player({stream, sound, bytes, field, clock}: Track & Pick<FieldProps, 'field' | 'clock'>) {
  const now = useRef<HTMLDivElement>(null), box = useRef<HTMLDivElement>(null);
  const {start} = stream;

  useEffect(() => clock.extend(field, start, start + sound.duration, 0), [stream, clock]);
  useEffect(() => {
    /** What plays, and the time of the context at which its first sample was, or would have been. */
    let playing: {node: AudioBufferSourceNode; zero: number} | null = null;
    const pause = () => {
      playing?.node.stop();
      playing = null;
    };
    const heard = () => {
      if (!playing) return null;
      const context = sharedContext();
      // Those that hear it are behind by the latency of the output.
      const inside = context.currentTime - playing.zero - (context.outputLatency || 0);
      return inside < 0 || inside >= sound.duration ? null : start + inside;
    };
    const play = (time: number) => {
      pause();
      if (time >= start + sound.duration) return;
      const context = sharedContext(), node = context.createBufferSource();
      node.buffer = sound;
      node.connect(context.destination);
      const when = context.currentTime + Math.max(0, start - time);
      node.start(when, Math.max(0, time - start));
      playing = {node, zero: context.currentTime + start - time};
    };
    const move = (time: number) => {
      const span = clock.runs ? clock.end - clock.start : sound.duration;
      now.current!.style.left = `${100 * Math.max(0, Math.min(1, (time - start) / sound.duration))}%`;
      // As long as its part of the time, so that its cursor stands above those of curves.
      Object.assign(box.current!.style, {width: `${100 * Math.min(1, sound.duration / span)}%`, marginLeft: `${100 * Math.max(0, (start - clock.start) / span)}%`});
      const own = heard();
      if (clock.moves && own !== null && Math.abs(own - time) > FAR) play(time);
    };
    move(clock.time);
    const stop = clock.listen(move);
    const remove = clock.addPlayer({leads: true, prepare: () => sharedContext().resume(), play: async time => play(time), pause, time: heard, waits: () => false});
    return () => {
      pause();
      stop();
      remove();
    };
  }, [stream, sound, clock]);
  const seek = (event: MouseEvent) => {
    const bounds = (event.currentTarget as HTMLElement).getBoundingClientRect();
    clock.seek(start + (event.clientX - bounds.left) / bounds.width * sound.duration);
  };
  const blocks = stream.parts.length;
  const notes = [`${bytesText(bytes)}${blocks === 1 ? '' : ` in ${blocks.toLocaleString('en')} blocks`}`, ...stream.notes];
  return <Drawn sound={sound} rate={stream.rate} notes={notes} box={box} now={now} onClick={seek} />;
}

/** A sound of a sequence whose sounds are items: it plays by itself. */
function SoundItem({dataset, index, field, item}: FieldProps & {item: number}) {
  const loaded = useLoaded(async () => {
    const location = await dataset.location(index, field, item);
    if (location && location.stop - location.start > MAX_BYTES) throw new Error(`${bytesText(location.stop - location.start)} of sound are too many to show`);
    const [data] = (await dataset.records(index, field, item, item + 1))!;
    return {data, sound: await decode(data)};
  }, [dataset, index, field, item]);
  const value = loaded.state === 'ready' ? loaded.value : null;
  const url = useBlobUrl(value && value.data, mimeOf(dataset.type(field).word));
  const now = useRef<HTMLDivElement>(null);
  if (loaded.state === 'error') return <Failure error={loaded.error} />;
  if (!value) return <div class="loading" />;
  const {data, sound} = value;
  const place = (event: Event) => {
    if (now.current) now.current.style.left = `${100 * (event.currentTarget as HTMLAudioElement).currentTime / sound.duration}%`;
  };
  return <Drawn sound={sound} rate={soundRate(data)} notes={[bytesText(data.length)]} now={now}>
    <audio src={url} preload="auto" controls onTimeUpdate={place} />
  </Drawn>;
}

interface DrawnProps {
  sound: AudioBuffer;
  /** Samples a second of the file. */
  rate: number | null;
  notes: string[];
  box?: Ref<HTMLDivElement>;
  /** The cursor. */
  now: Ref<HTMLDivElement>;
  onClick?(event: MouseEvent): void;
  children?: ComponentChildren;
}

function Drawn({sound, rate, notes, box, now, onClick, children}: DrawnProps) {
  const wave = useRef<HTMLCanvasElement>(null), spectrum = useRef<HTMLCanvasElement>(null);
  const [spectral, setSpectral] = useState(true);
  useEffect(() => {
    const draw = () => drawWaveform(wave.current!, sound.getChannelData(0), getComputedStyle(wave.current!).getPropertyValue('--s0'));
    draw();
    const later = () => setTimeout(draw);
    addEventListener('theme', later);
    return () => removeEventListener('theme', later);
  }, [sound]);
  useEffect(() => { if (spectral) drawSpectrogram(spectrum.current!, sound.getChannelData(0)); }, [sound, spectral]);
  return <>
    <div class="track"><div class="sound" ref={box} onClick={onClick}>
      <canvas ref={wave} width={WIDTH} height={80} style={{height: 80}} />
      {spectral && <canvas ref={spectrum} width={WIDTH} height={128} style={{height: 128}} />}
      <div class="now" ref={now} style={{left: 0}} />
    </div></div>
    {children}
    <div class="controls faint">
      <span>{sound.duration.toFixed(2)} s, {sound.numberOfChannels} × {rate === null ? '?' : Math.round(rate).toLocaleString('en')} Hz</span>
      {notes.map(note => <span key={note}>{note}</span>)}
      {spectral && <span>spectrogram from 0 to {numberText(sound.sampleRate / 2000)} kHz</span>}
      <button aria-pressed={spectral} onClick={() => setSpectral(!spectral)}>Spectrogram</button>
    </div>
  </>;
}

let context: AudioContext | undefined;

/** The output of all sounds, with one clock. */
function sharedContext(): AudioContext {
  context ??= new AudioContext();
  return context;
}

/** Decodes at the rate of the file if browsers can, so that the samples shown are those stored. */
async function decode(data: Uint8Array): Promise<AudioBuffer> {
  const rate = soundRate(data) ?? 0;
  try {
    return await new OfflineAudioContext(1, 1, rate >= 3000 && rate <= 768_000 ? rate : 48_000).decodeAudioData(data.slice().buffer);
  } catch (error) {
    throw new Error(`the browser cannot decode this sound (${bytesText(data.length)}): ${(error as Error).message}`);
  }
}
