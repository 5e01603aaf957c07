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

/** Reads bytes of a file. */
export type Read = (start: number, stop: number) => Promise<Uint8Array>;

/** How long a sound is. */
export interface SoundLength {
  samples: number;
  /** Samples a second. */
  rate: number;
}

const MAX_HEADER_BYTES = 32 << 20;
const MAX_BOXES = 64;
const MAX_FRAMES = 4_000_000;

/** Returns what the first video track says; null if these bytes are no MP4 with a plain header. */
export async function readMp4(size: number, read: Read): Promise<VideoInfo | null> {
  const moov = await readMoov(size, read);
  return moov && videoTrack(moov);
}

async function readMoov(size: number, read: Read): Promise<DataView | null> {
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
      return viewOf(await read(at, at + length));
    }
    at += length;
  }
  return null;
}

/** Returns the length of the first audio track, without what an edit skips; null if there is none with a plain header. */
export async function readMp4Sound(size: number, read: Read): Promise<SoundLength | null> {
  const moov = await readMoov(size, read);
  const track = moov && trackOf(moov, 'soun');
  const times = track && inside(track.table, 'stts'), sizes = track && inside(track.table, 'stsz');
  const rate = track && mp4Rate(track);
  if (!track || !times || !rate || !track.scale || !sizes?.getUint32(16)) return null;
  let ticks = 0;
  // Decoders give the whole of the last packet of AAC, also where the tables and the edit end before.
  const whole = text(track.entry, 20) === 'mp4a' && times.byteLength >= 24 ? times.getUint32(20) : null;
  for (let i = 0; i < times.getUint32(12) && 24 + 8 * i <= times.byteLength; i++) ticks += times.getUint32(16 + 8 * i) * (whole ?? times.getUint32(20 + 8 * i));
  return {samples: Math.max(0, Math.round((ticks / track.scale - track.edit.skipped) * rate)), rate};
}

/** Returns the samples a second of the first audio track of a whole file; null if it has none with a plain header. */
export function mp4SoundRate(data: Uint8Array): number | null {
  const moov = children(viewOf(data), 0).find(box => box.type === 'moov');
  const track = moov && trackOf(moov.view, 'soun');
  return track ? mp4Rate(track) : null;
}

const mp4Rate = ({entry, scale}: Track) => entry.getUint32(48) / 65_536 || scale;

function videoTrack(moov: DataView): VideoInfo | null {
  const track = trackOf(moov, 'vide');
  const times = track && inside(track.table, 'stts'), sizes = track && inside(track.table, 'stsz');
  if (!track || !times || !sizes) return null;
  const {scale, entry, edit} = track, frames = sizes.getUint32(16);
  if (!scale || !frames || frames > MAX_FRAMES) return null;
  return {
    codec: text(entry, 20), width: entry.getUint16(48), height: entry.getUint16(50), frames, isCounted: true,
    times: frameTimes(times, inside(track.table, 'ctts'), frames, scale, edit),
  };
}

interface Edit {
  /** Seconds of the track that are skipped at its start. */
  skipped: number;
  /** Seconds before it. */
  delay: number;
}

interface Track {
  /** The box of sample tables. */
  table: DataView;
  /** The box of codecs. */
  entry: DataView;
  /** Ticks a second. */
  scale: number;
  edit: Edit;
}

/** Returns the first track with a handler: `vide` or `soun`. */
function trackOf(moov: DataView, type: string): Track | null {
  const movie = inside(moov, 'mvhd'), movieScale = movie ? scaleOf(movie) : 0;
  for (const track of children(moov, 8).filter(box => box.type === 'trak')) {
    const media = inside(track.view, 'mdia');
    const handler = media && inside(media, 'hdlr');
    if (!media || !handler || text(handler, 16) !== type) continue;
    const header = inside(media, 'mdhd'), information = inside(media, 'minf');
    const table = information && inside(information, 'stbl'), entry = table && inside(table, 'stsd');
    if (!header || !table || !entry) continue;
    const scale = scaleOf(header), edits = inside(track.view, 'edts'), list = edits && inside(edits, 'elst');
    return {table, entry, scale, edit: list && scale && movieScale ? editOf(list, scale, movieScale) : {skipped: 0, delay: 0}};
  }
  return null;
}

const scaleOf = (header: DataView) => header.getUint32(header.getUint8(8) ? 28 : 20);

/** The first edit of a track, and the empty one before it. */
function editOf(list: DataView, scale: number, movieScale: number): Edit {
  const wide = list.getUint8(8) === 1, size = wide ? 20 : 12;
  let delay = 0;
  for (let i = 0, at = 16; i < list.getUint32(12) && at + size <= list.byteLength; i++, at += size) {
    const seconds = (wide ? Number(list.getBigUint64(at)) : list.getUint32(at)) / movieScale;
    const start = wide ? Number(list.getBigInt64(at + 8)) : list.getInt32(at + 4);
    if (start >= 0) return {skipped: start / scale, delay};
    delay += seconds;
  }
  return {skipped: 0, delay};
}

/** Seconds at which frames are shown, in order, and the end of the last one. */
function frameTimes(table: DataView, delays: DataView | undefined, frames: number, scale: number, {skipped, delay}: Edit): Float64Array {
  const starts = new Float64Array(frames), lengths = new Float64Array(frames);
  let frame = 0, time = 0;
  for (let i = 0; i < table.getUint32(12) && 24 + 8 * i <= table.byteLength; i++) {
    const count = table.getUint32(16 + 8 * i), delta = table.getUint32(20 + 8 * i);
    for (let k = 0; k < count && frame < frames; k++) {
      starts[frame] = time;
      lengths[frame] = delta;
      time += delta;
      frame += 1;
    }
  }
  // From the order of decoding to that of presentation.
  for (let i = 0, k = 0; delays && i < delays.getUint32(12) && 24 + 8 * i <= delays.byteLength; i++) {
    const stop = Math.min(frame, k + delays.getUint32(16 + 8 * i)), ticks = delays.getInt32(20 + 8 * i);
    for (; k < stop; k++) starts[k] += ticks;
  }
  let last = 0;
  for (let k = 1; k < frame; k++) if (starts[k] > starts[last]) last = k;
  const end = frame ? starts[last] + lengths[last] : 0;
  const found = new Float64Array(frame + 1);
  found.set(starts.subarray(0, frame).sort());
  found[frame] = end;
  return found.map(ticks => ticks / scale - skipped + delay);
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
