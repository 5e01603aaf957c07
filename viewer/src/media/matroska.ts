// What the header of a Matroska or WebM file says: size, codec, rate. Frames are not read.

import type {VideoInfo} from './mp4';

type Read = (start: number, stop: number) => Promise<Uint8Array>;

const EBML = 0x1a45dfa3, SEGMENT = 0x18538067, CLUSTER = 0x1f43b675, INFO = 0x1549a966, TRACKS = 0x1654ae6b;
const SCALE = 0x2ad7b1, DURATION = 0x4489;
const TRACK = 0xae, TRACK_TYPE = 0x83, CODEC = 0x86, FRAME_DURATION = 0x23e383, VIDEO = 0xe0, WIDTH = 0xb0, HEIGHT = 0xba;
const AUDIO = 0xe1, SAMPLE_RATE = 0xb5;
const VIDEO_TRACK = 1, AUDIO_TRACK = 2;

const MAX_HEADER_BYTES = 1 << 18;
const MAX_ELEMENTS = 256;
const MAX_FRAMES = 4_000_000;

interface Element {
  id: number;
  /** Where its content is. */
  start: number;
  stop: number;
}

/** Returns what the first video track says, if it has a constant rate; null if these bytes are no Matroska. */
export async function readMatroska(size: number, read: Read): Promise<VideoInfo | null> {
  const data = await read(0, Math.min(size, MAX_HEADER_BYTES));
  const view = new DataView(data.buffer, data.byteOffset, data.length);
  const [ebml, segment] = children(view, 0, data.length);
  if (ebml?.id !== EBML || segment?.id !== SEGMENT) return null;
  const parts = children(view, segment.start, segment.stop);
  const information = parts.find(({id}) => id === INFO), tracks = parts.find(({id}) => id === TRACKS);
  if (!information || !tracks) return null;
  const number = (parent: Element, id: number) => {
    const found = children(view, parent.start, parent.stop).find(element => element.id === id);
    return found && numberIn(view, found, id === DURATION);
  };
  const scale = number(information, SCALE) ?? 1e6, duration = (number(information, DURATION) ?? 0) * scale;
  for (const track of children(view, tracks.start, tracks.stop)) {
    if (track.id !== TRACK || number(track, TRACK_TYPE) !== VIDEO_TRACK) continue;
    const inside = children(view, track.start, track.stop);
    const video = inside.find(({id}) => id === VIDEO), codec = inside.find(({id}) => id === CODEC);
    const each = number(track, FRAME_DURATION) ?? 0;
    const frames = each ? Math.round(duration / each) : 0;
    if (!video || !codec || !(frames > 0) || frames > MAX_FRAMES) return null;
    return {
      codec: new TextDecoder().decode(data.subarray(codec.start, codec.stop)).slice(0, 40),
      width: number(video, WIDTH) ?? 0, height: number(video, HEIGHT) ?? 0,
      frames, isCounted: false,
      times: Float64Array.from({length: frames + 1}, (_, i) => i * each / 1e9),
    };
  }
  return null;
}

/** Returns the samples a second of the first audio track of a whole file; null if it has none. */
export function matroskaSoundRate(data: Uint8Array): number | null {
  const view = new DataView(data.buffer, data.byteOffset, data.length);
  const [, segment] = children(view, 0, data.length);
  const tracks = segment && children(view, segment.start, segment.stop).find(({id}) => id === TRACKS);
  for (const track of tracks ? children(view, tracks.start, tracks.stop) : []) {
    const inside = children(view, track.start, track.stop);
    const type = inside.find(({id}) => id === TRACK_TYPE), audio = inside.find(({id}) => id === AUDIO);
    if (!type || !audio || numberIn(view, type, false) !== AUDIO_TRACK) continue;
    const rate = children(view, audio.start, audio.stop).find(({id}) => id === SAMPLE_RATE);
    return rate ? numberIn(view, rate, true) ?? null : 8000; // The default of Matroska.
  }
  return null;
}

/** Returns the elements from `start` to `stop`, up to the first cluster of frames, or to the end of what was read. */
function children(view: DataView, start: number, stop: number): Element[] {
  const found: Element[] = [];
  for (let at = start; at < Math.min(stop, view.byteLength) && found.length < MAX_ELEMENTS;) {
    const idBytes = Math.clz32(view.getUint8(at)) - 23, sizeAt = at + idBytes;
    if (idBytes > 4 || sizeAt >= view.byteLength) break;
    const sizeBytes = Math.clz32(view.getUint8(sizeAt)) - 23;
    if (sizeBytes > 8 || sizeAt + sizeBytes > view.byteLength) break;
    const id = bigEndian(view, at, idBytes), content = sizeAt + sizeBytes;
    // The first byte tells the number of bytes by its leading zeros. The rest all ones: a size that was not known.
    const head = view.getUint8(sizeAt) & 0xff >> sizeBytes;
    const size = head * 256 ** (sizeBytes - 1) + bigEndian(view, sizeAt + 1, sizeBytes - 1);
    const end = size >= 2 ** (7 * sizeBytes) - 1 ? stop : content + size;
    if (id === CLUSTER) break;
    found.push({id, start: content, stop: Math.min(end, stop)});
    at = end;
  }
  return found;
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
