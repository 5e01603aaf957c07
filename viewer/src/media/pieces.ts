// Files in pieces: parsers of headers ask for a few bytes at a time.

import type {Read} from './mp4';

const PIECE = 1 << 12;

/** Reads a file in pieces, each once; a longer part is read as it is. */
export function inPieces(size: number, read: Read): Read {
  const pieces = new Map<number, Promise<Uint8Array>>();
  const piece = (number: number) => {
    const found = pieces.get(number) ?? read(number * PIECE, Math.min(size, (number + 1) * PIECE));
    pieces.set(number, found);
    return found;
  };
  return async (start, stop) => {
    const first = Math.floor(start / PIECE), last = Math.floor(Math.max(start, stop - 1) / PIECE);
    if (first !== last || stop - start > PIECE) return read(start, stop);
    return (await piece(first)).slice(start - first * PIECE, stop - first * PIECE);
  };
}
