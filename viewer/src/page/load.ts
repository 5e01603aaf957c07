// Values of a dataset in components: loading, there, or an error that is shown in their place.

import {useEffect, useLayoutEffect, useMemo, useState} from 'preact/hooks';

import type {Location} from '../bags/bag';
import type {Dataset} from '../bags/dataset';

export type Loaded<T> = {state: 'loading'} | {state: 'error'; error: Error} | {state: 'ready'; value: T};

/** Runs `work` when `keys` change, after `delay` milliseconds: what is scrolled past is never asked for. */
export function useLoaded<T>(work: () => Promise<T>, keys: unknown[], delay = 0): Loaded<T> {
  const [loaded, setLoaded] = useState<Loaded<T>>({state: 'loading'});
  useEffect(() => {
    let current = true;
    setLoaded({state: 'loading'});
    const timer = setTimeout(() => {
      work().then(
        value => { if (current) setLoaded({state: 'ready', value}); },
        error => { if (current) setLoaded({state: 'error', error}); });
    }, delay);
    return () => {
      current = false;
      clearTimeout(timer);
    };
  }, keys);
  return loaded;
}

/** A URL of bytes, which lasts as long as the component. */
export function useBlobUrl(data: Uint8Array | null, type: string): string | undefined {
  const url = useMemo(() => data ? URL.createObjectURL(new Blob([data as BlobPart], {type})) : undefined, [data, type]);
  useLayoutEffect(() => () => { if (url) URL.revokeObjectURL(url); }, [url]);
  return url;
}

/** Whether the browser cannot show an image or video, which is its URL or a clip; and the function that says so. */
export function useBroken(shown: string | object | undefined): [boolean, () => void] {
  const [broken, setBroken] = useState<string | object>();
  return [shown !== undefined && broken === shown, () => setBroken(shown)];
}

let worker: Promise<boolean> | undefined;

/** Starts the service worker; false where there can be none, as on plain HTTP of another host. */
export function startWorker(): Promise<boolean> {
  worker ??= (async () => {
    if (!('serviceWorker' in navigator)) return false;
    try {
      await navigator.serviceWorker.register('worker.js');
      if (navigator.serviceWorker.controller) return true;
      return await new Promise<boolean>(resolve => {
        navigator.serviceWorker.addEventListener('controllerchange', () => resolve(true), {once: true});
        setTimeout(() => resolve(Boolean(navigator.serviceWorker.controller)), 5000);
      });
    } catch {
      return false;
    }
  })();
  return worker;
}

const TYPES: Record<string, string> = {
  jpeg: 'image/jpeg', jpg: 'image/jpeg', png: 'image/png', webp: 'image/webp', avif: 'image/avif',
  mp4: 'video/mp4', webm: 'video/webm', mkv: 'video/webm', wav: 'audio/wav', flac: 'audio/flac', opus: 'audio/ogg',
};

/** The MIME type of a type's word; of `image`, `video` and `audio` browsers find out by themselves. */
export function mimeOf(word: string): string {
  return TYPES[word] ?? '';
}

/** Returns a URL that a media element plays: by ranges where that works, else of the whole record. */
export async function mediaUrl(dataset: Dataset, index: number, field: string, item: number):
  Promise<{url: string; location: Location; byRanges: boolean} | null> {
  const location = await dataset.location(index, field, item);
  if (!location) return null;
  const type = mimeOf(dataset.type(field).word);
  if (!location.compressed && await startWorker()) {
    const search = new URLSearchParams({url: location.file.url, start: String(location.start), stop: String(location.stop), type});
    return {url: new URL(`record/?${search}`, document.baseURI.replace(/[?#].*$/, '')).href, location, byRanges: true};
  }
  if (location.segment) {
    throw new Error('a part of a video plays by ranges, which needs a service worker: https://, or loopback');
  }
  const records = await dataset.records(index, field, item, item + 1);
  return {url: URL.createObjectURL(new Blob([records![0] as BlobPart], {type})), location, byRanges: false};
}

export function releaseUrl(url: string | undefined): void {
  if (url?.startsWith('blob:')) URL.revokeObjectURL(url);
}
