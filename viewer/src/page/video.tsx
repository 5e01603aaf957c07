// A video, or the clips of a datapoint as one, played from the bag by ranges.

import {useEffect, useLayoutEffect, useRef, useState} from 'preact/hooks';

import type {Part} from '../bags/recordings';
import {joinedTimes, openStream, Stream} from '../bags/streams';
import type {FieldProps} from './datapoint';
import {bytesText, numberText} from './format';
import {mediaUrl, releaseUrl, useBroken, useLoaded} from './load';
import {ItemSequence} from './sequence';
import {Failure} from './thumbnail';

interface Clip extends Part {
  url: string;
}

/** Past the start of a frame, so that rounding never shows the one before. */
const INSIDE = 5e-4;
/** The part of its last frame at which a clip stands. */
const LAST = 0.7;
const MAX_CLIPS = 2000;
/** Seconds that a picture may be off before it is moved, and before its speed is changed. */
const FAR = 0.2;
const NEAR = 0.012;
/** Seconds before its start at which the next clip is told to play: browsers take that long. */
const AHEAD = 0.03;
/** Seconds before the end of a file, where browsers may have no later data. */
const NEAR_END = 0.1;
/** Speeds that browsers play. */
const SPEEDS = [0.0625, 16];

export function VideoPanel(props: FieldProps) {
  const {dataset, index, field, clock} = props;
  const loaded = useLoaded(async () => {
    const count = await dataset.count(index, field);
    if (count !== null && count > MAX_CLIPS) throw new Error(`${count} clips are too many to show`);
    const stream = await openStream(dataset, index, field);
    if (stream?.elements === 'items') return {stream, clips: []};
    const clips = await Promise.all((stream?.parts ?? []).map(async (part, item): Promise<Clip> => {
      const {url} = (await mediaUrl(dataset, index, field, item))!;
      return part.info ? {...part, url} : {...part, url, count: 1, own: Float64Array.of(0, await durationOf(url))};
    }));
    if (!stream || clips.every(({info}) => info)) return {stream, clips};
    // By what the browser reads of them.
    clips.forEach((clip, i) => { clip.first = i ? clips[i - 1].first + clips[i - 1].count : 0; });
    const table = joinedTimes(clips, stream.start), count_ = table.length - 1;
    return {stream: new Stream('frames', count_, null, stream.start, table, clips, stream.notes), clips};
  }, [dataset, index, field]);
  useEffect(() => () => { if (loaded.state === 'ready') loaded.value.clips.forEach(clip => releaseUrl(clip.url)); }, [loaded.state]);
  if (loaded.state === 'error') return <Failure error={loaded.error} />;
  if (loaded.state === 'loading') return <div class="zoom loading" />;
  const {stream, clips} = loaded.value;
  if (!stream) return <span class="faint">None</span>;
  if (stream.elements === 'items') return <ItemSequence {...props} Item={VideoItem} />;
  if (!clips.length) return <span class="faint">no clips</span>;
  return <Player stream={stream} clips={clips} field={field} clock={clock} />;
}

/** A video of a sequence whose videos are items: it plays by itself. */
function VideoItem({dataset, index, field, item}: FieldProps & {item: number}) {
  const loaded = useLoaded(async () => (await mediaUrl(dataset, index, field, item))!.url, [dataset, index, field, item]);
  const url = loaded.state === 'ready' ? loaded.value : undefined;
  useEffect(() => () => releaseUrl(url), [url]);
  const [broken, onError] = useBroken(url);
  if (loaded.state === 'error') return <Failure error={loaded.error} />;
  if (broken) return <Failure error={new Error('the browser cannot play this video')} />;
  return url ? <video src={url} preload="auto" muted playsInline controls onError={onError} /> : <div class="zoom loading" />;
}

interface PlayerProps extends Pick<FieldProps, 'field' | 'clock'> {
  stream: Stream;
  clips: Clip[];
}

function Player({stream, clips, field, clock}: PlayerProps) {
  /** The elements of this clip and of the next one, which is read ahead. */
  const elements = useRef(new Map<number, HTMLVideoElement>());
  const [current, setCurrent] = useState(() => clipAt(stream, clips, clock.time));
  /** The clip that is read ahead: not at once, as the one before it begins to play. */
  const [ahead, setAhead] = useState(-1);
  const [time, setTime] = useState(clock.time);
  const state = useRef({current, target: clock.time, isBroken: false});
  const clip = clips[current];
  const [broken, onError] = useBroken(clip);
  state.current.isBroken = broken;
  const isCounted = clips.every(({info}) => info);
  const step = stream.pace ? 1 / stream.pace : 1 / 30;

  useEffect(() => clock.extend(field, stream.time(0), stream.end, step), [clock, stream]);
  useLayoutEffect(() => {
    const element = () => elements.current.get(state.current.current);
    const place = (seconds: number) => {
      const next = clipAt(stream, clips, seconds);
      state.current.target = seconds;
      setTime(seconds);
      if (next !== state.current.current) {
        element()?.pause();
        state.current.current = next;
        setCurrent(next);
        return;
      }
      const video = element(), wanted = timeIn(stream, clips[next], seconds);
      if (video?.readyState && Math.abs(video.currentTime - wanted) > 1e-4) video.currentTime = wanted;
    };
    const follow = (seconds: number) => {
      const video = element(), now = clips[state.current.current];
      setTime(seconds);
      if (clipAt(stream, clips, seconds) !== state.current.current) return place(seconds);
      const next = elements.current.get(state.current.current + 1);
      if (next?.paused && stream.time(now.first + now.count) - seconds < AHEAD) void next.play().catch(() => {});
      if (!video?.readyState || video.seeking) return;
      if (seconds >= stream.end) {
        video.pause();
        return place(seconds);
      }
      const late = seconds - secondsOf(stream, now, video.currentTime);
      if (Math.abs(late) > FAR && !video.ended) return place(seconds);
      if (clock.moves && video.paused && !isOver(now, video) && seconds >= stream.time(0) && seconds < stream.end) void video.play().catch(() => {});
      setSpeed(video, speedOf(stream, now) * (Math.abs(late) < NEAR ? 1 : 1 + Math.max(-0.3, Math.min(0.3, 3 * late))));
    };
    const stop = clock.listen((seconds, seeking) => seeking || !clock.playing ? place(seconds) : clock.moves && follow(seconds));
    const remove = clock.addPlayer({
      leads: false,
      prepare: async () => {},
      play: async seconds => {
        if (seconds >= stream.time(0) && seconds < stream.end) await element()?.play().catch(() => {});
      },
      pause: () => elements.current.forEach(video => video.pause()),
      waits: () => {
        const video = element(), {own, count} = clips[state.current.current];
        if (state.current.isBroken || clock.time < stream.time(0) || clock.time >= stream.end) return false;
        if (!video || !video.readyState || video.seeking) return true;
        return video.readyState < HTMLMediaElement.HAVE_FUTURE_DATA && own[count] - video.currentTime > NEAR_END;
      },
      time: () => {
        const video = element(), {current: number, target} = state.current, now = clips[number];
        if (!video || video.error || state.current.isBroken || clock.time < stream.time(0) - step || clock.time >= stream.end) return null;
        if (!video.readyState || video.seeking) return target;
        if (!isOver(now, video)) return secondsOf(stream, now, video.currentTime - INSIDE);
        video.pause();  // After a segment, its video goes on.
        return number + 1 < clips.length ? stream.time(now.first + now.count) : null;
      },
    });
    return () => {
      stop();
      remove();
    };
  }, [stream, clips, clock]);
  const put = (number: number) => {
    const video = elements.current.get(number);
    if (!video?.readyState) return;
    const wanted = number === state.current.current ? timeIn(stream, clips[number], state.current.target) : clips[number].own[0] + INSIDE;
    // From clip to clip there is no time to seek: its speed makes up for the part of a frame.
    if (!clock.moves || Math.abs(video.currentTime - wanted) > FAR) video.currentTime = wanted;
    setSpeed(video, speedOf(stream, clips[number]));
    if (clock.moves && number === state.current.current) void video.play().catch(() => {});
  };
  useLayoutEffect(() => put(current), [current]);
  useEffect(() => {
    const timer = setTimeout(() => setAhead(current + 1), 400);
    return () => clearTimeout(timer);
  }, [current]);
  const {info} = clip;
  const frame = Math.max(0, Math.min(stream.count - 1, stream.at(time + 1e-4)));
  const size = clips.reduce((sum, {location}) => sum + location.stop - location.start, 0);
  return <>
    {broken ? <Failure error={new Error(`the browser cannot play this video: ${info
      ? `${info.isCounted ? '' : 'about '}${info.frames} frames of ${info.codec}, ${info.width} × ${info.height}` : `${bytesText(clip.location.stop - clip.location.start)} of a codec that it lacks, or damaged`}. `
      + 'mpv or VLC play it after `bags cat`, and bags.Video decodes it.')} />
      : clips.slice(current, current + (ahead === current + 1 ? 2 : 1)).map((each, i) => (
        <video key={current + i} hidden={i > 0} src={each.url} preload="auto" muted playsInline onLoadedMetadata={() => put(current + i)}
          ref={video => { if (video) elements.current.set(current + i, video); else elements.current.delete(current + i); }}
          onError={i ? undefined : onError} onClick={() => clock.toggle()} />))}
    <div class="controls faint">
      {isCounted && <span class="frame">frame {frame.toLocaleString('en')} of {stream.count.toLocaleString('en')}</span>}
      {clips.length > 1 && <span>clip {current + 1} of {clips.length}</span>}
      <span>{numberText(1 / step)} a second{info ? `, ${info.width} × ${info.height}, ${info.codec}` : ''}, {clip.location.segment ? `part of a video of ${bytesText(clip.location.stop - clip.location.start)}` : bytesText(size)}</span>
      {stream.notes.map(note => <span key={note}>{note}</span>)}
    </div>
  </>;
}

function setSpeed(video: HTMLVideoElement, speed: number): void {
  const allowed = Math.max(SPEEDS[0], Math.min(SPEEDS[1], speed));
  if (Math.abs(video.playbackRate - allowed) > 0.01) video.playbackRate = allowed;
}

/** Seconds of the file of a clip that pass in a second: 1 unless the metadata has other times. */
function speedOf(stream: Stream, {own, first, count}: Clip): number {
  const shown = stream.time(first + count) - stream.time(first);
  return shown > 0 ? (own[count] - own[0]) / shown : 1;
}

function isOver({own, count, location}: Clip, video: HTMLVideoElement): boolean {
  return video.ended || location.segment !== undefined && video.currentTime >= own[count] - 2 * INSIDE;
}

/** The frame of a clip that a time falls in, and the part of the frame that has passed. */
function frameAt(times: (frame: number) => number, count: number, seconds: number): [number, number] {
  let low = 0, high = count - 1;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (times(middle) <= seconds + 1e-6) low = middle;
    else high = middle - 1;
  }
  const length = times(low + 1) - times(low);
  return [low, length > 0 ? Math.max(0, Math.min(1, (seconds - times(low)) / length)) : 0];
}

/** Returns the time in its file at which a clip shows a time of the clock, always within a frame. */
function timeIn(stream: Stream, {own, first, count}: Clip, seconds: number): number {
  const [frame, part] = frameAt(i => stream.time(first + i), count, seconds);
  // Not at the end of the last frame: a video that goes on after its segment may show the next one there.
  const passed = frame < count - 1 ? part : Math.min(part, LAST);
  return Math.min(own[frame] + passed * (own[frame + 1] - own[frame]) + INSIDE, Math.max(own[frame], own[frame + 1] - INSIDE));
}

/** Returns the time of the clock that a clip shows at a time in its file. */
function secondsOf(stream: Stream, {own, first, count}: Clip, time: number): number {
  const [frame, part] = frameAt(i => own[i], count, time);
  const start = stream.time(first + frame);
  return start + part * (stream.time(first + frame + 1) - start);
}

function clipAt(stream: Stream, clips: Clip[], seconds: number): number {
  const frame = stream.at(seconds);
  let low = 0, high = clips.length - 1;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (clips[middle].first <= frame) low = middle;
    else high = middle - 1;
  }
  return low;
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
