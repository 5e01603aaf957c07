// A video, or the clips of a datapoint as one, played from the bag by ranges.

import {useEffect, useLayoutEffect, useRef, useState} from 'preact/hooks';

import {type Clip as Read, readClip} from './clip';
import type {FieldProps} from './datapoint';
import {bytesText, numberText} from './format';
import {mediaUrl, releaseUrl, useBroken, useLoaded} from './load';
import {Failure} from './thumbnail';

interface Clip extends Read {
  url: string;
  start: number;
  duration: number;
  isSegment: boolean;
}

/** Past the start of a frame, so that rounding never shows the one before. */
const INSIDE = 5e-4;
const MAX_CLIPS = 2000;

export function VideoPanel({dataset, index, field, clock}: FieldProps) {
  const loaded = useLoaded(async () => {
    const count = await dataset.count(index, field);
    if (count === null) return null;
    if (count > MAX_CLIPS) throw new Error(`${count} clips are too many to show`);
    const clips: Clip[] = [];
    for (let item = 0; item < count; item++) {
      const media = (await mediaUrl(dataset, index, field, item))!;
      const clip = await readClip(media);
      const duration = clip.duration ?? await durationOf(media.url);
      const start = clips.length ? clips[clips.length - 1].start + clips[clips.length - 1].duration : 0;
      clips.push({...clip, url: media.url, start, duration, isSegment: Boolean(media.location.segment)});
    }
    return clips;
  }, [dataset, index, field]);
  useEffect(() => () => { if (loaded.state === 'ready') loaded.value?.forEach(clip => releaseUrl(clip.url)); }, [loaded.state]);
  if (loaded.state === 'error') return <Failure error={loaded.error} />;
  if (loaded.state === 'loading') return <div class="zoom loading" />;
  if (!loaded.value) return <span class="faint">None</span>;
  if (!loaded.value.length) return <span class="faint">no clips</span>;
  return <Player clips={loaded.value} field={field} clock={clock} rate={dataset.facts(field).rate} />;
}

interface PlayerProps extends Pick<FieldProps, 'field' | 'clock'> {
  clips: Clip[];
  rate?: number;
}

function Player({clips, field, clock, rate}: PlayerProps) {
  const element = useRef<HTMLVideoElement>(null);
  const [current, setCurrent] = useState(() => clipAt(clips, clock.time));
  const [time, setTime] = useState(clock.time);
  const state = useRef({current, target: clock.time});
  const clip = clips[current];
  const [broken, onError] = useBroken(clip);
  const last = clips[clips.length - 1];
  const duration = last.start + last.duration;
  const frames = clips.every(({frames}) => frames !== null) ? clips.reduce((sum, {frames}) => sum + frames!, 0) : null;
  const step = frames ? duration / frames : rate ? 1 / rate : 1 / 30;

  useEffect(() => clock.extend(field, duration, step), [clock, duration]);
  useLayoutEffect(() => {
    const place = (seconds: number) => {
      const next = clipAt(clips, seconds);
      state.current.target = seconds;
      setTime(seconds);
      if (next !== state.current.current) {
        state.current.current = next;
        setCurrent(next);
        return;
      }
      const video = element.current;
      const wanted = timeIn(clips[next], seconds);
      if (video && video.readyState && Math.abs(video.currentTime - wanted) > 1e-4) video.currentTime = wanted;
    };
    const stop = clock.listen((seconds, seeking) => {
      const video = element.current;
      if (seeking || !clock.playing) place(seconds);
      else {
        setTime(seconds);
        // Followers of the leader: those that play by themselves are only put right when they are far off.
        const found = video ? clips[state.current.current].start + video.currentTime - clips[state.current.current].offset : seconds;
        if (clipAt(clips, seconds) !== state.current.current || Math.abs(found - seconds) > 0.2) place(seconds);
      }
    });
    const remove = clock.addPlayer({
      play: () => { void element.current?.play().catch(() => {}); },
      pause: () => element.current?.pause(),
      time: () => {
        const video = element.current;
        if (!video || video.error) return null;
        const {start, offset, duration, isSegment} = clips[state.current.current];
        if (!video.readyState || video.seeking) return state.current.target;
        const seconds = Math.max(0, video.currentTime - offset - INSIDE);
        const isOver = video.ended || (isSegment && seconds >= duration - 3 * INSIDE);
        if (!isOver) return start + seconds;
        video.pause();  // After a segment, its video goes on.
        return state.current.current + 1 < clips.length ? start + clips[state.current.current].duration : null;
      },
    });
    return () => {
      stop();
      remove();
    };
  }, [clips, clock]);
  const onLoaded = () => {
    const video = element.current;
    if (!video) return;  // Of a datapoint that the page has left.
    video.currentTime = timeIn(clips[state.current.current], state.current.target);
    if (clock.playing) void video.play().catch(() => {});
  };
  const {info} = clip;
  return <>
    {broken ? <Failure error={new Error(`the browser cannot play this video: ${info
      ? `${info.isCounted ? '' : 'about '}${info.frames} frames of ${info.codec}, ${info.width} × ${info.height}` : `${bytesText(clip.size)} of a codec that it lacks, or damaged`}. `
      + 'mpv or VLC play it after `bags cat`, and bags.Video decodes it.')} />
      : <video ref={element} key={current} src={clip.url} preload="auto" muted playsInline onLoadedMetadata={onLoaded}
        onError={onError} onClick={() => clock.toggle()} />}
    <div class="controls faint">
      {frames !== null && <span class="frame">frame {Math.min(frames - 1, Math.floor((time + 1e-4) / step)).toLocaleString('en')} of {frames.toLocaleString('en')}</span>}
      {clips.length > 1 && <span>clip {current + 1} of {clips.length}</span>}
      <span>{numberText(1 / step)} a second{info ? `, ${info.width} × ${info.height}, ${info.codec}` : ''}, {clip.isSegment ? `part of a video of ${bytesText(clip.size)}` : bytesText(clips.reduce((sum, {size}) => sum + size, 0))}</span>
    </div>
  </>;
}

/** Returns the time in its video at which a clip shows a time of the clock: of a segment at most its last frame. */
function timeIn({start, offset, duration, isSegment}: Clip, seconds: number): number {
  const inside = Math.max(0, seconds - start);
  return offset + (isSegment ? Math.min(inside, duration - 2 * INSIDE) : inside) + INSIDE;
}

function clipAt(clips: Clip[], time: number): number {
  let found = 0;
  while (found + 1 < clips.length && clips[found + 1].start <= time + 1e-6) found += 1;
  return found;
}

/** Returns the seconds of a video by what the browser reads of it. */
function durationOf(url: string): Promise<number> {
  return new Promise(resolve => {
    const video = document.createElement('video');
    video.preload = 'metadata';
    const done = (duration: number) => {
      video.removeAttribute('src');
      video.load();
      resolve(Number.isFinite(duration) ? duration : 0);
    };
    video.onloadedmetadata = () => done(video.duration);
    video.onerror = () => done(0);
    video.src = url;
  });
}
