// What a Matroska or WebM file says: size, codec, rate. Frames are only looked for where the header has no rate.

import type {Read, SoundLength, VideoInfo} from './mp4';

const EBML = 0x1a45dfa3, SEGMENT = 0x18538067, CLUSTER = 0x1f43b675, INFO = 0x1549a966, TRACKS = 0x1654ae6b;
const SCALE = 0x2ad7b1, DURATION = 0x4489;
const TRACK = 0xae, TRACK_TYPE = 0x83, CODEC = 0x86, FRAME_DURATION = 0x23e383, VIDEO = 0xe0, WIDTH = 0xb0, HEIGHT = 0xba;
const AUDIO = 0xe1, SAMPLE_RATE = 0xb5;
const VIDEO_TRACK = 1, AUDIO_TRACK = 2;

const TIMESTAMP = 0xe7, SIMPLE_BLOCK = 0xa3, GROUP = 0xa0, BLOCK = 0xa1, BLOCK_DURATION = 0x9b, TRACK_NUMBER = 0xd7;

/** Most bytes of a header; a shorter part is read first. */
const MAX_HEADER_BYTES = 1 << 18;
const HEADER_BYTES = 1 << 12;
/** Most bytes of a file whose frames are looked for. */
const MAX_WHOLE_BYTES = 32 << 20;
const MAX_ELEMENTS = 256;
const MAX_FRAMES = 4_000_000;

interface Element {
  id: number;
  /** Where its content is. */
  start: number;
  stop: number;
}

interface Header {
  view: DataView;
  segment: Element;
  /** The tracks, up to the first frame. */
  tracks: Element[];
  /** Nanoseconds of a tick, and of all. */
  scale: number;
  duration: number;
}

async function readHeader(size: number, read: Read): Promise<Header | null> {
  for (const bytes of [HEADER_BYTES, MAX_HEADER_BYTES]) {
    const data = await read(0, Math.min(size, bytes));
    const view = new DataView(data.buffer, data.byteOffset, data.length);
    const [ebml, segment] = children(view, 0, data.length);
    if (ebml?.id !== EBML || segment?.id !== SEGMENT) return null;
    const parts = children(view, segment.start, segment.stop);
    const information = parts.find(({id}) => id === INFO), list = parts.find(({id}) => id === TRACKS);
    const isCut = size > data.length && (!list || list.stop >= data.length);
    if (isCut && bytes < MAX_HEADER_BYTES) continue;
    if (!information || !list) return null;
    const scale = within(view, information, SCALE) ?? 1e6, duration = (within(view, information, DURATION, true) ?? 0) * scale;
    return {view, segment, scale, duration, tracks: children(view, list.start, list.stop).filter(({id}) => id === TRACK)};
  }
  return null;
}

/** Returns what the first video track says, and where its rate is not constant, its frames; null if these bytes are no Matroska. */
export async function readMatroska(size: number, read: Read): Promise<VideoInfo | null> {
  const header = await readHeader(size, read);
  if (!header) return null;
  const {view, duration} = header;
  for (const track of header.tracks) {
    if (within(view, track, TRACK_TYPE) !== VIDEO_TRACK) continue;
    const inside = children(view, track.start, track.stop);
    const video = inside.find(({id}) => id === VIDEO), codec = inside.find(({id}) => id === CODEC);
    if (!video || !codec) return null;
    const each = within(view, track, FRAME_DURATION) ?? 0, frames = each ? Math.round(duration / each) : 0;
    // Where frames differ in length, their number does not follow from the duration, which is in milliseconds.
    const isRegular = frames > 0 && frames <= MAX_FRAMES && Math.abs(frames * each - duration) <= 2e6;
    const times = isRegular ? Float64Array.from({length: frames + 1}, (_, i) => i * each / 1e9)
      : size <= MAX_WHOLE_BYTES ? timesOfBlocks(await read(0, size), header, within(view, track, TRACK_NUMBER) ?? 1) : null;
    if (!times) return null;
    return {
      codec: new TextDecoder().decode(new Uint8Array(view.buffer, view.byteOffset + codec.start, codec.stop - codec.start)).slice(0, 40),
      width: within(view, video, WIDTH) ?? 0, height: within(view, video, HEIGHT) ?? 0,
      frames: times.length - 1, isCounted: !isRegular, times,
    };
  }
  return null;
}

/** Seconds of the frames of a track, in order, and the end of the last one. */
function timesOfBlocks(data: Uint8Array, {segment, scale, duration}: Header, number: number): Float64Array | null {
  const view = new DataView(data.buffer, data.byteOffset, data.length), times: number[] = [];
  let last = 0;
  for (const cluster of elements(view, segment.start, view.byteLength)) {
    if (cluster.id !== CLUSTER) continue;
    const parts = [...elements(view, cluster.start, cluster.stop)];
    const base = parts.find(({id}) => id === TIMESTAMP), start = base && numberIn(view, base, false);
    for (const part of parts) {
      const block = part.id === SIMPLE_BLOCK ? part : part.id === GROUP ? [...elements(view, part.start, part.stop)].find(({id}) => id === BLOCK) : undefined;
      if (!block || start === undefined || block.stop - block.start < 4 || view.getUint8(block.start) !== (number | 0x80)) continue;
      if (times.length >= MAX_FRAMES) return null;
      times.push((start + view.getInt16(block.start + 1)) * scale / 1e9);
      if (part.id === GROUP && times[times.length - 1] >= Math.max(...times.slice(-32))) last = (within(view, part, BLOCK_DURATION) ?? 0) * scale / 1e9;
    }
  }
  if (!times.length) return null;
  times.sort((a, b) => a - b);
  const before = times.length > 1 ? times[times.length - 1] - times[times.length - 2] : 0;
  return Float64Array.from([...times, Math.max(duration / 1e9, times[times.length - 1] + (last || (duration ? 0 : before)))]);
}

/** Returns the length of the first audio track by the duration in the header; null if it has none. */
export async function readMatroskaSound(size: number, read: Read): Promise<SoundLength | null> {
  const header = await readHeader(size, read);
  for (const track of header?.tracks ?? []) {
    const rate = within(header!.view, track, TRACK_TYPE) === AUDIO_TRACK ? soundRateOf(header!.view, track) : null;
    if (rate) return header!.duration ? {samples: Math.floor(header!.duration / 1e9 * rate), rate} : null;
  }
  return null;
}

/** Returns the samples a second of the first audio track of a whole file; null if it has none. */
export function matroskaSoundRate(data: Uint8Array): number | null {
  const view = new DataView(data.buffer, data.byteOffset, data.length);
  const [, segment] = children(view, 0, data.length);
  const tracks = segment && children(view, segment.start, segment.stop).find(({id}) => id === TRACKS);
  for (const track of tracks ? children(view, tracks.start, tracks.stop) : []) {
    const type = within(view, track, TRACK_TYPE);
    if (type === AUDIO_TRACK) return soundRateOf(view, track);
  }
  return null;
}

function soundRateOf(view: DataView, track: Element): number | null {
  const audio = children(view, track.start, track.stop).find(({id}) => id === AUDIO);
  if (!audio) return null;
  const rate = children(view, audio.start, audio.stop).find(({id}) => id === SAMPLE_RATE);
  return rate ? numberIn(view, rate, true) ?? null : 8000; // The default of Matroska.
}

/** Returns the first elements from `start` to `stop`, up to the first cluster of frames, or to the end of what was read. */
function children(view: DataView, start: number, stop: number): Element[] {
  const found: Element[] = [];
  for (const element of elements(view, start, stop)) {
    if (element.id === CLUSTER || found.length >= MAX_ELEMENTS) break;
    found.push(element);
  }
  return found;
}

function* elements(view: DataView, start: number, stop: number): Generator<Element> {
  for (let at = start; at < Math.min(stop, view.byteLength);) {
    const idBytes = Math.clz32(view.getUint8(at)) - 23, sizeAt = at + idBytes;
    if (idBytes > 4 || sizeAt >= view.byteLength) break;
    const sizeBytes = Math.clz32(view.getUint8(sizeAt)) - 23;
    if (sizeBytes > 8 || sizeAt + sizeBytes > view.byteLength) break;
    const id = bigEndian(view, at, idBytes), content = sizeAt + sizeBytes;
    // The first byte tells the number of bytes by its leading zeros. The rest all ones: a size that was not known.
    const head = view.getUint8(sizeAt) & 0xff >> sizeBytes;
    const size = head * 256 ** (sizeBytes - 1) + bigEndian(view, sizeAt + 1, sizeBytes - 1);
    const end = size >= 2 ** (7 * sizeBytes) - 1 ? stop : content + size;
    yield {id, start: content, stop: Math.min(end, stop)};
    at = end;
  }
}

/** Returns a number inside an element. */
function within(view: DataView, parent: Element, id: number, isFloat = false): number | undefined {
  const found = children(view, parent.start, parent.stop).find(element => element.id === id);
  return found && numberIn(view, found, isFloat);
}

function numberIn(view: DataView, {start, stop}: Element, isFloat: boolean): number | undefined {
  if (stop > view.byteLength || stop - start > 8 || stop === start) return undefined;
  if (!isFloat) return bigEndian(view, start, stop - start);
  return stop - start === 8 ? view.getFloat64(start) : stop - start === 4 ? view.getFloat32(start) : undefined;
}

function bigEndian(view: DataView, at: number, bytes: number): number {
  let value = 0;
  for (let i = 0; i < bytes; i++) value = value * 256 + view.getUint8(at + i);
  return value;
}
