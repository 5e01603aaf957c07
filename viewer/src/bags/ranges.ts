// Files of a web server, read by GET with Range and nothing else; all reads share one cache of blocks.

import {CorruptError, MissingError, ServerError} from './errors';

/** Bytes of a cached block. */
export const BLOCK = 1 << 15;
const MAX_CACHED_BYTES = 64 << 20;
const MAX_REQUEST_BYTES = 4 << 20;
/** Bytes between two sparse reads that are cheaper to read than another request. */
const MAX_GAP = 1 << 12;
/** Reads above this size are not kept. */
const MAX_KEPT_READ = 1 << 20;
/** Most bytes of what a server says about an error. */
const MAX_REASON_BYTES = 1 << 12;
/** Most bytes of a file that is read as a whole, such as shards.json. */
const MAX_WHOLE_BYTES = 64 << 20;
const MAX_CONCURRENT = 6;

export type Fetch = (url: string, init: RequestInit) => Promise<Response>;

interface Answer {
  data: Uint8Array;
  /** Bytes of the file, if the server says. */
  size: number | null;
}

/** Blocks of files by URL and number, least recently used first. */
export class RangeCache {
  requests = 0;
  bytes = 0;
  private blocks = new Map<string, Uint8Array>();
  private held = 0;
  private active = 0;
  private waiting: (() => void)[] = [];

  constructor(private ask: Fetch = (url, init) => fetch(url, init)) {}

  get(key: string): Uint8Array | undefined {
    const block = this.blocks.get(key);
    if (block) {
      this.blocks.delete(key);
      this.blocks.set(key, block);
    }
    return block;
  }

  put(key: string, block: Uint8Array): void {
    if (this.blocks.has(key)) return;
    this.blocks.set(key, block);
    this.held += block.length;
    for (const [old, {length}] of this.blocks) {
      if (this.held <= MAX_CACHED_BYTES) break;
      this.blocks.delete(old);
      this.held -= length;
    }
  }

  /** Returns the bytes from `start` to `stop`, fewer at the end of the file. */
  async request(url: string, start: number, stop: number): Promise<Answer> {
    if (this.active >= MAX_CONCURRENT) await new Promise<void>(resolve => this.waiting.push(resolve));
    this.active += 1;
    try {
      return await this.send(url, start, stop);
    } finally {
      this.active -= 1;
      this.waiting.shift()?.();
    }
  }

  private async send(url: string, start: number, stop: number): Promise<Answer> {
    const abort = new AbortController();
    let response: Response;
    this.requests += 1;
    try {
      response = await this.ask(url, {headers: {Range: `bytes=${start}-${stop - 1}`}, signal: abort.signal});
    } catch (error) {
      throw new ServerError(url, `cannot be read (${(error as Error).message}): the server does not answer, `
        + 'or, if it is another one than that of this page, it does not send the header Access-Control-Allow-Origin');
    }
    const range = /^bytes (?:(\d+)-(\d+)|\*)\/(\d+)$/.exec(response.headers.get('Content-Range') ?? '');
    const size = range ? Number(range[3]) : null;
    if (response.status === 206) {
      if (range && Number(range[1]) !== start) {
        abort.abort();
        throw new ServerError(url, `asked for bytes from ${start}, got ${range[0]}`);
      }
      const data = await readAtMost(response, stop - start, url);
      this.bytes += data.length;
      return {data, size};
    }
    const length = response.headers.get('Content-Length');
    if (response.status === 200 && start === 0 && length !== null && Number(length) <= stop) {
      const data = await readAtMost(response, stop, url);
      this.bytes += data.length;
      return {data, size: data.length};
    }
    const isText = response.status >= 400 && /^text\/plain\b/.test(response.headers.get('Content-Type') ?? '');
    const reason = isText ? await readAtMost(response, MAX_REASON_BYTES, url).then(data => new TextDecoder().decode(data).trim(), () => '') : '';
    abort.abort();
    if (response.status === 416) return {data: new Uint8Array(0), size: size ?? (start === 0 ? 0 : null)};
    if (response.status === 200) throw new ServerError(url, 'the server ignores the header Range: it answers 200 with '
      + 'the whole file, where 206 with Content-Range is needed (a plain nginx, Apache, S3 or `bags view` does that)');
    if ([403, 404, 410].includes(response.status)) throw new MissingError(url, response.status);
    throw new ServerError(url, reason || `HTTP ${response.status} ${response.statusText}`.trim());
  }
}

async function readAtMost(response: Response, limit: number, url: string): Promise<Uint8Array> {
  const parts: Uint8Array[] = [];
  let length = 0;
  const reader = response.body?.getReader();
  for (;;) {
    const next = await reader?.read();
    if (!next || next.done) break;
    parts.push(next.value);
    length += next.value.length;
    if (length > limit) {
      await reader!.cancel();
      throw new ServerError(url, `asked for ${limit} bytes, got more`);
    }
  }
  const data = new Uint8Array(length);
  let at = 0;
  for (const part of parts) {
    data.set(part, at);
    at += part.length;
  }
  return data;
}

interface Read {
  start: number;
  stop: number;
  resolve(data: Uint8Array): void;
  reject(error: unknown): void;
}

/** A file of known size. Reads of the same moment are merged into few requests. */
export class RemoteFile {
  private pending: Read[] = [];
  private sparse: Read[] = [];
  private loading = new Map<number, Promise<unknown>>();

  constructor(readonly cache: RangeCache, readonly url: string, readonly size: number) {}

  /** Asks for the first block, which comes with the size, unless that is known. */
  static async open(cache: RangeCache, url: string, size?: number): Promise<RemoteFile> {
    if (size !== undefined) return new RemoteFile(cache, url, size);
    const answer = await cache.request(url, 0, BLOCK);
    if (answer.size === null) throw new ServerError(url, 'the size of the file is not known: the server does not send '
      + 'Content-Range, or, if it is another one than that of this page, not Access-Control-Expose-Headers: Content-Range');
    if (answer.data.length !== Math.min(BLOCK, answer.size)) throw new ServerError(url, 'the answer is cut off');
    const file = new RemoteFile(cache, url, answer.size);
    if (answer.data.length) cache.put(`0 ${url}`, answer.data);
    return file;
  }

  read(start: number, stop: number): Promise<Uint8Array> {
    return this.enqueue(this.pending, start, stop, () => this.flush());
  }

  /** As `read`, without the rest of the blocks, which are not kept: for headers that lie far apart. */
  readSparse(start: number, stop: number): Promise<Uint8Array> {
    return this.enqueue(this.sparse, start, stop, () => this.flushSparse());
  }

  private enqueue(reads: Read[], start: number, stop: number, flush: () => void): Promise<Uint8Array> {
    if (!(0 <= start && start <= stop && stop <= this.size)) return Promise.reject(
      new CorruptError(this.url, null, `bytes ${start} to ${stop} are outside the file (${this.size} bytes)`));
    if (start === stop) return Promise.resolve(new Uint8Array(0));
    return new Promise((resolve, reject) => {
      reads.push({start, stop, resolve, reject});
      if (reads.length === 1) setTimeout(flush);
    });
  }

  private flushSparse(): void {
    const reads = this.sparse.splice(0).sort((a, b) => a.start - b.start);
    for (let from = 0; from < reads.length;) {
      const first = reads[from].start;
      let to = from + 1, {stop} = reads[from];
      while (to < reads.length && reads[to].start - stop <= MAX_GAP && Math.max(stop, reads[to].stop) - first <= MAX_REQUEST_BYTES) {
        stop = Math.max(stop, reads[to].stop);
        to += 1;
      }
      const near = reads.slice(from, to);
      this.fetchRange(first, stop).then(
        data => near.forEach(({start, stop: end, resolve}) => resolve(data.slice(start - first, end - first))),
        error => near.forEach(({reject}) => reject(error)));
      from = to;
    }
  }

  private flush(): void {
    const reads = this.pending;
    this.pending = [];
    const wanted = new Set<number>();
    for (const {start, stop} of reads) {
      if (stop - start > MAX_KEPT_READ) continue;
      for (let block = Math.floor(start / BLOCK); block * BLOCK < stop; block++) {
        if (!this.loading.has(block) && !this.cache.get(`${block} ${this.url}`)) wanted.add(block);
      }
    }
    const blocks = [...wanted].sort((a, b) => a - b);
    for (let from = 0; from < blocks.length;) {
      let to = from + 1;
      // A gap of one block is cheaper than another request.
      while (to < blocks.length && blocks[to] - blocks[to - 1] <= 2
        && (blocks[to] - blocks[from] + 1) * BLOCK <= MAX_REQUEST_BYTES) to += 1;
      const first = blocks[from], last = blocks[to - 1];
      const work = this.fetchBlocks(first, last + 1);
      for (let block = first; block <= last; block++) this.loading.set(block, work);
      const done = () => {
        for (let block = first; block <= last; block++) if (this.loading.get(block) === work) this.loading.delete(block);
      };
      work.then(done, done);
      from = to;
    }
    for (const read of reads) this.finish(read).then(read.resolve, read.reject);
  }

  private async fetchBlocks(first: number, stop: number): Promise<Map<number, Uint8Array>> {
    const data = await this.fetchRange(first * BLOCK, Math.min(stop * BLOCK, this.size));
    const blocks = new Map<number, Uint8Array>();
    for (let block = first; block < stop; block++) {
      const part = data.slice((block - first) * BLOCK, (block - first + 1) * BLOCK);
      blocks.set(block, part);
      this.cache.put(`${block} ${this.url}`, part);
    }
    return blocks;
  }

  private async fetchRange(start: number, stop: number): Promise<Uint8Array> {
    const {data, size} = await this.cache.request(this.url, start, stop);
    if (data.length !== stop - start) throw new CorruptError(this.url, null,
      `expected ${this.size} bytes, got an answer that ends at ${start + data.length}${size === null ? '' : ` of ${size}`}`);
    return data;
  }

  private async finish({start, stop}: Read): Promise<Uint8Array> {
    if (stop - start > MAX_KEPT_READ) {
      const pieces = [];
      for (let at = start; at < stop; at += MAX_REQUEST_BYTES) {
        pieces.push(this.fetchRange(at, Math.min(at + MAX_REQUEST_BYTES, stop)));
      }
      return join(await Promise.all(pieces), stop - start);
    }
    const first = Math.floor(start / BLOCK);
    const parts: Uint8Array[] = [];
    // The promises are taken before the first wait: blocks may leave the cache meanwhile.
    const works = [];
    for (let block = first; block * BLOCK < stop; block++) {
      works.push([block, this.cache.get(`${block} ${this.url}`) ?? this.loading.get(block)!] as const);
    }
    for (const [block, work] of works) {
      const found = await work as Uint8Array | Map<number, Uint8Array>;
      const data = found instanceof Uint8Array ? found : found.get(block)!;
      parts.push(data.subarray(Math.max(0, start - block * BLOCK), Math.min(BLOCK, stop - block * BLOCK)));
    }
    return parts.length === 1 ? parts[0].slice() : join(parts, stop - start);
  }
}

function join(parts: Uint8Array[], length: number): Uint8Array {
  const data = new Uint8Array(length);
  let at = 0;
  for (const part of parts) {
    data.set(part, at);
    at += part.length;
  }
  return data;
}

/** Returns all bytes of a small file. */
export async function readWhole(cache: RangeCache, url: string): Promise<Uint8Array> {
  const file = await RemoteFile.open(cache, url);
  if (file.size > MAX_WHOLE_BYTES) throw new CorruptError(url, null, `expected at most ${MAX_WHOLE_BYTES} bytes`);
  return file.read(0, file.size);
}
