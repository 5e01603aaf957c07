// What the header of an MP4 says: frame times, codec, size. Only the boxes above the frames are read.

/** A video, as the header of its file says. */
export interface VideoInfo {
  /** As the container names it: `avc1`, `V_VP9`. */
  codec: string;
  width: number;
  height: number;
  frames: number;
  /** Whether the header lists the frames; else their number follows from the duration. */
  isCounted: boolean;
  /** Seconds at which frames begin, in order; the last one is the end. */
  times: Float64Array;
}

type Read = (start: number, stop: number) => Promise<Uint8Array>;

const MAX_HEADER_BYTES = 32 << 20;
const MAX_BOXES = 64;
const MAX_FRAMES = 4_000_000;

/** Returns what the first video track says; null if these bytes are no MP4 with a plain header. */
export async function readMp4(size: number, read: Read): Promise<VideoInfo | null> {
  for (let at = 0, boxes = 0; at + 8 <= size && boxes < MAX_BOXES; boxes++) {
    const head = viewOf(await read(at, Math.min(size, at + 16)));
    let length = head.getUint32(0);
    const type = text(head, 4);
    if (!/^[\w ]{4}$/.test(type)) return null;
    if (length === 1 && head.byteLength >= 16) length = head.getUint32(8) * 2 ** 32 + head.getUint32(12);
    if (length === 0) length = size - at;
    if (length < 8 || at + length > size) return null;
    if (type === 'moov') {
      if (length > MAX_HEADER_BYTES) return null;
      return videoTrack(viewOf(await read(at, at + length)));
    }
    at += length;
  }
  return null;
}

/** Returns the samples a second of the first audio track of a whole file; null if it has none with a plain header. */
export function mp4SoundRate(data: Uint8Array): number | null {
  const moov = children(viewOf(data), 0).find(box => box.type === 'moov');
  const track = moov && trackOf(moov.view, 'soun');
  if (!track) return null;
  const rate = track.entry.getUint32(48) / 65_536;
  return rate || track.scale;
}

function videoTrack(moov: DataView): VideoInfo | null {
  const track = trackOf(moov, 'vide');
  const times = track && inside(track.table, 'stts'), sizes = track && inside(track.table, 'stsz');
  if (!track || !times || !sizes) return null;
  const {scale, entry} = track, frames = sizes.getUint32(16);
  if (!scale || !frames || frames > MAX_FRAMES) return null;
  return {
    codec: text(entry, 20), width: entry.getUint16(48), height: entry.getUint16(50), frames, isCounted: true,
    times: frameTimes(times, frames, scale),
  };
}

interface Track {
  /** The box of sample tables. */
  table: DataView;
  /** The box of codecs. */
  entry: DataView;
  /** Ticks a second. */
  scale: number;
}

/** Returns the first track with a handler: `vide` or `soun`. */
function trackOf(moov: DataView, type: string): Track | null {
  for (const track of children(moov, 8).filter(box => box.type === 'trak')) {
    const media = inside(track.view, 'mdia');
    const handler = media && inside(media, 'hdlr');
    if (!media || !handler || text(handler, 16) !== type) continue;
    const header = inside(media, 'mdhd'), information = inside(media, 'minf');
    const table = information && inside(information, 'stbl'), entry = table && inside(table, 'stsd');
    if (header && table && entry) return {table, entry, scale: header.getUint32(header.getUint8(8) ? 28 : 20)};
  }
  return null;
}

/** Frames in the order of decoding: with B-frames the same set of times, shifted, where the rate is constant. */
function frameTimes(table: DataView, frames: number, scale: number): Float64Array {
  const times = new Float64Array(frames + 1);
  let frame = 0, time = 0;
  for (let i = 0; i < table.getUint32(12) && 24 + 8 * i <= table.byteLength; i++) {
    const count = table.getUint32(16 + 8 * i), delta = table.getUint32(20 + 8 * i);
    for (let k = 0; k < count && frame < frames; k++) {
      time += delta;
      frame += 1;
      times[frame] = time / scale;
    }
  }
  return times.subarray(0, frame + 1);
}

interface Box {
  type: string;
  view: DataView;
}

function children(view: DataView, start: number): Box[] {
  const found: Box[] = [];
  for (let at = start; at + 8 <= view.byteLength;) {
    const length = view.getUint32(at);
    if (length < 8 || at + length > view.byteLength) break;
    found.push({type: text(view, at + 4), view: new DataView(view.buffer, view.byteOffset + at, length)});
    at += length;
  }
  return found;
}

function inside(view: DataView, type: string): DataView | undefined {
  return children(view, 8).find(box => box.type === type)?.view;
}

function text(view: DataView, at: number): string {
  if (at + 4 > view.byteLength) return '';
  return String.fromCharCode(view.getUint8(at), view.getUint8(at + 1), view.getUint8(at + 2), view.getUint8(at + 3));
}

function viewOf(data: Uint8Array): DataView {
  return new DataView(data.buffer, data.byteOffset, data.length);
}
