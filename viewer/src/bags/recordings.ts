// The records of videos and sounds: their frames and samples, and the seconds of these, by their headers.

import {readMatroska} from '../media/matroska';
import {type Read, readMp4, type VideoInfo} from '../media/mp4';
import {inPieces} from '../media/pieces';
import {readSoundLength, START} from '../media/sound_header';
import type {Location} from './bag';
import type {Dataset} from './dataset';
import {CorruptError} from './errors';
import type {RemoteFile} from './ranges';
import type {FieldType} from './spec';
import {kindOf} from './values';

/** A record of a stream. */
export interface Part {
  location: Location;
  /** Its first element among those of all records. */
  first: number;
  count: number;
  /** What the header of a video says; null if it cannot be read. */
  info: VideoInfo | null;
  /** Seconds in its file at which the frames of a video begin, and the end of the last one. */
  own: Float64Array;
}

/** Returns the frames or samples of records from `first` on, and their seconds, by their headers; and the seconds of the last frame. */
export async function ownLength(dataset: Dataset, index: number, field: string, locations: Location[], spend: (bytes: number) => void = () => {}, first = 0):
  Promise<{elements: number; seconds: number; last: number}> {
  const type = dataset.type(field), isVideo = kindOf(type) === 'video';
  const lengths = await Promise.all(locations.map(async (location, i) => {
    const item = first + i;
    const where = `datapoint ${index}, field ${field}${type.sequence ? `, item ${item}` : ''}`;
    if (isVideo) {
      const part = await readVideo(dataset, index, field, item, location, spend);
      if (!part.info) throw new CorruptError(where, null, 'the header of the video cannot be read, so that its frames are not known');
      const {own} = part, count = own.length - 1;
      return {elements: count, seconds: own[count] - own[0], last: own[count] - own[count - 1]};
    }
    const {size, read, readPiece} = await recordReader(dataset, index, field, item, location, spend);
    // The first bytes are all that FLAC and most WAVs need.
    const found = await readSoundLength(size, (from, to) => (to <= START ? read : readPiece)(from, to));
    if (!found) throw new CorruptError(where, null, 'the header of the sound does not tell how long it is');
    const samples = location.segment ? location.segment[1] - location.segment[0] : found.samples;
    return {elements: samples, seconds: samples / found.rate, last: 0};
  }));
  const elements = lengths.reduce((sum, {elements: count}) => sum + count, 0), seconds = lengths.reduce((sum, {seconds: each}) => sum + each, 0);
  const resampled = isVideo ? null : resampledTo(type);
  if (resampled && seconds) return {elements: Math.round(seconds * resampled), seconds, last: 0};
  return {elements, seconds, last: lengths.length ? lengths[lengths.length - 1].last : NaN};
}

/** The rate that a type says recordings are read with: `audio(rate=16000)`. */
export function resampledTo({word, args}: FieldType): number | null {
  const found = word === 'audio' ? args.map(arg => /^rate=(\d+)$/.exec(arg)).find(match => match) : null;
  return found ? Number(found[1]) : null;
}

/** The headers of videos that segments share, by the first byte of the video. */
const shared = new WeakMap<RemoteFile, Map<number, Promise<VideoInfo | null>>>();

/** Reads the header of a video, or of the one that a segment is a part of. */
export async function readVideo(dataset: Dataset, index: number, field: string, item: number, location: Location, spend: (bytes: number) => void = () => {}): Promise<Part> {
  const {file, start, segment} = location;
  const readInfo = async () => {
    const {size, readPiece} = await recordReader(dataset, index, field, item, location, spend);
    try {
      return await readMp4(size, readPiece) ?? await readMatroska(size, readPiece);
    } catch (error) {
      if (error instanceof RangeError) return null;  // A damaged header.
      throw error;
    }
  };
  const part = (info: VideoInfo | null, own: Float64Array): Part => ({location, first: 0, count: own.length - 1, info, own});
  if (!segment) {
    const info = await readInfo();
    return part(info, info?.times ?? new Float64Array(1));
  }
  const found = shared.get(file) ?? new Map<number, Promise<VideoInfo | null>>();
  shared.set(file, found);
  const reading = found.get(start) ?? readInfo();
  found.set(start, reading);
  reading.catch(() => found.delete(start));
  const info = await reading, [first, end] = segment;
  if (!info) throw new Error(`part of a video, frames ${first} to ${end}, whose header the page cannot read`);
  if (end > info.frames) throw new CorruptError(file.url, null, `the link leads to frames ${first} to ${end} of ${info.frames}`);
  return part(info, info.times.subarray(first, end + 1));
}

/** Returns the size of a record, and what reads parts of it: some bytes, or pieces with the bytes around them. */
async function recordReader(dataset: Dataset, index: number, field: string, item: number, {file, start, stop, compressed}: Location, spend: (bytes: number) => void): Promise<{size: number; read: Read; readPiece: Read}> {
  if (compressed) {
    spend(stop - start);
    const [record] = (await dataset.records(index, field, item, item + 1))!, read: Read = async (from, to) => record.slice(from, to);
    return {size: record.length, read, readPiece: read};
  }
  const read: Read = (from, to) => {
    spend(to - from);
    return file.readSparse(start + from, start + to);
  };
  return {size: stop - start, read, readPiece: inPieces(stop - start, read)};
}
