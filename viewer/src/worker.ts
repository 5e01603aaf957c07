// A service worker: a request for `record/?url=…&start=…&stop=…` is answered with that range of the URL, as if it
// were a file, so that media elements seek in a record of a bag.

export {};

interface WorkerScope {
  registration: {scope: string};
  clients: {claim(): Promise<void>};
  skipWaiting(): Promise<void>;
  addEventListener(type: string, listener: (event: any) => void): void;
}

const scope = self as unknown as WorkerScope;

/** The types of answers. With others, such as HTML, an address could make a page of this origin from the bytes of a record. */
const MEDIA = /^(audio|image|video)\/[a-z0-9]+$/;
/** Most bytes of one answer: the element asks for more when it needs more. */
const PIECE = 1 << 18;

scope.addEventListener('install', () => scope.skipWaiting());
scope.addEventListener('activate', event => event.waitUntil(scope.clients.claim()));
scope.addEventListener('fetch', event => {
  const url = new URL(event.request.url);
  if (url.href.startsWith(`${scope.registration.scope}record/`)) event.respondWith(answer(event.request, url.searchParams));
});

async function answer(request: Request, search: URLSearchParams): Promise<Response> {
  const start = Number(search.get('start')), stop = Number(search.get('stop')), type = search.get('type') ?? '';
  const size = stop - start;
  const match = /^bytes=(\d+)-(\d*)$/.exec(request.headers.get('Range') ?? 'bytes=0-');
  const first = Number(match?.[1] ?? 0);
  const last = Math.min(match?.[2] ? Number(match[2]) : Infinity, first + PIECE - 1, size - 1);
  if (!match || first > last) return new Response(null, {status: 416, headers: {'Content-Range': `bytes */${size}`}});
  const found = await fetch(search.get('url')!, {
    headers: {Range: `bytes=${start + first}-${start + last}`},
    signal: request.signal,
    credentials: 'same-origin',
  });
  if (found.status !== 206) {
    await found.body?.cancel();
    return new Response(null, {status: 502});
  }
  return new Response(found.body, {
    status: 206,
    headers: {
      'Content-Type': MEDIA.test(type) ? type : 'application/octet-stream',
      'Content-Range': `bytes ${first}-${last}/${size}`,
      'Content-Length': String(last - first + 1),
      'Accept-Ranges': 'bytes',
    },
  });
}
