// Errors that the page shows as they are: each says where, what was expected and what was found.

/** Bytes that are not what the format says. */
export class CorruptError extends Error {
  constructor(where: string, record: number | null, detail: string) {
    super(`${where}${record === null ? '' : `, record ${record}`}: ${detail}`);
    this.name = 'CorruptError';
  }
}

/** A file that the server does not have. */
export class MissingError extends Error {
  constructor(url: string, status: number) {
    super(`${url}: not found (HTTP ${status})`);
    this.name = 'MissingError';
  }
}

/** A server that cannot serve datasets, and what it lacks. */
export class ServerError extends Error {
  constructor(url: string, detail: string) {
    super(`${url}: ${detail}`);
    this.name = 'ServerError';
  }
}
