// A plain web server with ranges, and nothing else: it notes what it was asked for.

import {createReadStream, existsSync, statSync} from 'node:fs';
import {createServer, type Server} from 'node:http';
import {extname, join, normalize} from 'node:path';

const TYPES: Record<string, string> = {'.html': 'text/html', '.js': 'text/javascript', '.css': 'text/css', '.json': 'application/json', '.svg': 'image/svg+xml'};

export interface Options {
  /** Prefix of every path. */
  prefix?: string;
  ranges?: boolean;
  /** Headers of answers, by default those of CORS. */
  headers?: Record<string, string>;
  /** The address of the server that has the files: all answers are redirects to it. */
  redirect?: string;
}

export interface Asked {
  method: string;
  path: string;
  range: string | undefined;
  bytes: number;
}

export class RangeServer {
  asked: Asked[] = [];
  private constructor(private server: Server, readonly url: string) {}

  static async start(folders: Record<string, string>, options: Options = {}): Promise<RangeServer> {
    const {prefix = '', ranges = true, headers = {}, redirect} = options;
    const server = createServer((request, response) => {
      const path = decodeURIComponent(new URL(request.url!, 'http://x').pathname);
      const range = request.headers.range;
      const note = (bytes: number) => started.asked.push({method: request.method!, path, range, bytes});
      const name = Object.keys(folders).find(name => path.startsWith(`${prefix}/${name}/`));
      const inside = name === undefined ? '' : normalize(`./${path.slice(prefix.length + name.length + 2)}${path.endsWith('/') ? 'index.html' : ''}`);
      const file = name === undefined || inside.startsWith('..') ? '' : join(folders[name], inside);
      if (!file || !existsSync(file) || !statSync(file).isFile()) {
        note(0);
        response.writeHead(404, headers).end();
        return;
      }
      if (redirect !== undefined) {
        note(0);
        response.writeHead(302, {Location: `${redirect}${path.slice(prefix.length)}`, ...headers}).end();
        return;
      }
      const {size} = statSync(file);
      const type = {'Content-Type': TYPES[extname(file)] ?? 'application/octet-stream', 'Cache-Control': 'no-store', ...headers};
      const match = ranges ? /^bytes=(\d+)-(\d*)$/.exec(range ?? '') : null;
      if (!match) {
        note(size);
        response.writeHead(200, {...type, 'Content-Length': size});
        createReadStream(file).pipe(response);
        return;
      }
      const start = Number(match[1]), end = Math.min(match[2] ? Number(match[2]) : Infinity, size - 1);
      if (start > end) {
        note(0);
        response.writeHead(416, {...type, 'Content-Range': `bytes */${size}`}).end();
        return;
      }
      note(end - start + 1);
      response.writeHead(206, {...type, 'Content-Range': `bytes ${start}-${end}/${size}`, 'Content-Length': end - start + 1});
      createReadStream(file, {start, end}).pipe(response).on('error', () => {});
    });
    await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve));
    const {port} = server.address() as {port: number};
    const started = new RangeServer(server, `http://127.0.0.1:${port}${prefix}`);
    return started;
  }

  bytes(part = ''): number {
    return this.asked.filter(({path}) => path.includes(part)).reduce((sum, {bytes}) => sum + bytes, 0);
  }

  stop(): void {
    this.server.closeAllConnections();
    this.server.close();
  }
}
