// A sound: its player, waveform and spectrogram.

import {useEffect, useRef, useState} from 'preact/hooks';

import {drawSpectrogram, drawWaveform} from '../media/sound';
import {soundRate} from '../media/sound_rate';
import type {FieldProps} from './datapoint';
import {bytesText, numberText} from './format';
import {mimeOf, useBlobUrl, useLoaded} from './load';
import {Failure} from './thumbnail';

const MAX_BYTES = 64 << 20;
const WIDTH = 900;

/** A sound, or an item of a sequence of sounds, which plays by itself. */
export function SoundPanel({dataset, index, field, clock, item}: FieldProps & {item?: number}) {
  const type = dataset.type(field);
  const loaded = useLoaded(async () => {
    const location = await dataset.location(index, field, item);
    if (location && location.stop - location.start > MAX_BYTES) throw new Error(`${bytesText(location.stop - location.start)} of sound are too many to show`);
    return dataset.records(index, field, item ?? 0, (item ?? 0) + 1);
  }, [dataset, index, field, item]);
  const data = loaded.state === 'ready' && loaded.value ? loaded.value[0] : null;
  const url = useBlobUrl(data, mimeOf(type.word));
  const decoded = useLoaded(async () => data && decode(data), [data]);
  const audio = useRef<HTMLAudioElement>(null);
  const wave = useRef<HTMLCanvasElement>(null), spectrum = useRef<HTMLCanvasElement>(null);
  const now = useRef<HTMLDivElement>(null), box = useRef<HTMLDivElement>(null);
  const [spectral, setSpectral] = useState(true);
  const sound = decoded.state === 'ready' ? decoded.value : null;
  const rate = data && soundRate(data);

  useEffect(() => {
    if (!sound) return undefined;
    const draw = () => drawWaveform(wave.current!, sound.getChannelData(0), getComputedStyle(wave.current!).getPropertyValue('--s0'));
    draw();
    clock.extend(field, sound.duration, 0);
    const later = () => setTimeout(draw);
    addEventListener('theme', later);
    return () => removeEventListener('theme', later);
  }, [sound]);
  useEffect(() => { if (sound && spectral) drawSpectrogram(spectrum.current!, sound.getChannelData(0)); }, [sound, spectral]);
  useEffect(() => {
    if (!sound) return undefined;
    const move = (time: number, seeking: boolean) => {
      now.current!.style.left = `${100 * Math.min(1, time / sound.duration)}%`;
      // As long as its part of the time, so that its cursor stands above those of curves.
      box.current!.style.width = `${100 * Math.min(1, sound.duration / (clock.duration || sound.duration))}%`;
      const element = audio.current;
      if (element && (seeking || Math.abs(element.currentTime - time) > 0.2) && time <= sound.duration) element.currentTime = time;
    };
    move(clock.time, true);
    const stop = clock.listen(move);
    const remove = clock.addPlayer({
      play: () => { void audio.current?.play().catch(() => {}); },
      pause: () => audio.current?.pause(),
      time: () => !audio.current || audio.current.ended || audio.current.error ? null : audio.current.currentTime,
    });
    return () => {
      stop();
      remove();
    };
  }, [sound, clock]);
  if (loaded.state === 'error') return <Failure error={loaded.error} />;
  if (loaded.state === 'loading') return <div class="loading" />;
  if (!data) return <span class="faint">None</span>;
  if (decoded.state === 'error') return <Failure error={new Error(`the browser cannot decode this sound (${bytesText(data.length)}): ${decoded.error.message}`)} />;
  const place = (event: Event) => {
    if (item !== undefined && sound) now.current!.style.left = `${100 * (event.currentTarget as HTMLAudioElement).currentTime / sound.duration}%`;
  };
  const seek = (event: MouseEvent) => {
    const bounds = (event.currentTarget as HTMLElement).getBoundingClientRect();
    if (sound) clock.seek((event.clientX - bounds.left) / bounds.width * sound.duration);
  };
  return <>
    <div class="track"><div class="sound" ref={box} onClick={seek}>
      <canvas ref={wave} width={WIDTH} height={80} style={{height: 80}} />
      {spectral && <canvas ref={spectrum} width={WIDTH} height={128} style={{height: 128}} />}
      <div class="now" ref={now} style={{left: 0}} />
    </div></div>
    <audio ref={audio} src={url} preload="auto" controls={item !== undefined} onTimeUpdate={place} />
    <div class="controls faint">
      {sound && <span>{sound.duration.toFixed(2)} s, {sound.numberOfChannels} × {rate?.toLocaleString('en') ?? '?'} Hz</span>}
      <span>{bytesText(data.length)}</span>
      {sound && spectral && <span>spectrogram from 0 to {numberText(sound.sampleRate / 2000)} kHz</span>}
      <button aria-pressed={spectral} onClick={() => setSpectral(!spectral)}>Spectrogram</button>
    </div>
  </>;
}

/** Decodes at the rate of the file if browsers can, so that the samples shown are those stored. */
async function decode(data: Uint8Array): Promise<AudioBuffer> {
  const rate = soundRate(data) ?? 0;
  const context = new OfflineAudioContext(1, 1, rate >= 3000 && rate <= 768_000 ? rate : 48_000);
  return context.decodeAudioData(data.slice().buffer);
}
