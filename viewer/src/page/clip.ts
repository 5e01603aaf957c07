// A video that a record holds, or a segment of one: where it begins, how long it is, and its frames.

import type {Location} from '../bags/bag';
import type {Dataset} from '../bags/dataset';
import {CorruptError} from '../bags/errors';
import type {RemoteFile} from '../bags/ranges';
import {readMatroska} from '../media/matroska';
import {readMp4, type VideoInfo} from '../media/mp4';
import {readStart, soundSeconds} from '../media/sound_rate';
import {kindOf} from '../bags/values';

export interface Media {
  url: string;
  location: Location;
}

export interface Clip {
  size: number;
  /** Seconds in the video at which it begins: more than 0 only of a segment. */
  offset: number;
  /** Seconds; null if the header does not tell. */
  duration: number | null;
  frames: number | null;
  info: VideoInfo | null;
}

/** The headers of videos that segments share, by the first byte of the video. */
const shared = new WeakMap<RemoteFile, Map<number, Promise<VideoInfo | null>>>();

/** Returns what the header of a video says, of its segment if it is one. */
export async function readClip(media: Media): Promise<Clip> {
  const {file, start, stop, segment} = media.location;
  const size = stop - start;
  if (!segment) {
    const info = await readInfo(media);
    return {size, offset: 0, duration: info && info.times[info.times.length - 1], frames: info && info.frames, info};
  }
  const found = shared.get(file) ?? new Map<number, Promise<VideoInfo | null>>();
  shared.set(file, found);
  const reading = found.get(start) ?? readInfo(media);
  found.set(start, reading);
  reading.catch(() => found.delete(start));
  const info = await reading;
  const [first, end] = segment;
  if (!info) throw new Error(`part of a video, frames ${first} to ${end}, whose header the page cannot read`);
  if (end > info.frames) throw new CorruptError(file.url, null, `the link leads to frames ${first} to ${end} of ${info.frames}`);
  return {size, offset: info.times[first], duration: info.times[end] - info.times[first], frames: end - first, info};
}

/** Returns the seconds of a video or a sound by its header; null if it is missing, or the header does not tell. */
export async function secondsOf(dataset: Dataset, index: number, field: string): Promise<number | null> {
  const location = await dataset.location(index, field);
  if (!location) return null;
  if (location.compressed) throw new Error(`field ${field} is compressed: its durations are not known without reading all of it`);
  if (kindOf(dataset.type(field)) === 'video') return (await readClip({url: '', location})).duration;
  return location.segment ? null : soundSeconds(await readStart(location), location.stop - location.start);
}

/** Returns what the header says of a video in its file, or in the record if that is compressed; null if it cannot be read. */
async function readInfo({url, location}: Media): Promise<VideoInfo | null> {
  const {file, start, stop, compressed} = location;
  let size = stop - start, read = (from: number, to: number) => file.read(start + from, start + to);
  if (compressed) {
    const record = await (await fetch(url)).blob();
    size = record.size;
    read = async (from, to) => new Uint8Array(await record.slice(from, to).arrayBuffer());
  }
  return await readMp4(size, read) ?? await readMatroska(size, read);
}
