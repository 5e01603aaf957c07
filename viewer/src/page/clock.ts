// The time cursor of a datapoint: one time for its videos, sounds and sequences.

import {useLayoutEffect, useState} from 'preact/hooks';

/** What plays by itself. */
export interface Player {
  /** Whether others follow it while it plays: sounds, whose gaps are heard. Else the first player leads. */
  leads: boolean;
  /** Plays from a time; the promise ends when it does. */
  play(time: number): Promise<void>;
  pause(): void;
  /** Seconds where it is; null if it has not begun or has ended. */
  time(): number | null;
  /** Whether it waits for bytes, or for the place that it was moved to. */
  waits(): boolean;
}

/** Seconds for which sounds go on while a picture waits, and for which they wait for pictures to move. */
const PATIENCE = 0.4;

type Listener = (time: number, seeking: boolean) => void;

export class Clock {
  /** One of items counts them, instead of seconds: each sequence without any time has its own. */
  constructor(readonly unit: 'seconds' | 'items' = 'seconds') {}

  time = 0;
  /** The first and the last second of all fields. */
  start = 0;
  end = 0;
  playing = false;
  /** Seconds that the curves show; null: all of them. */
  range: [number, number] | null = null;
  private listeners = new Set<Listener>();
  private extents = new Map<string, [number, number]>();
  private steps = new Map<string, number>();
  private players: Player[] = [];
  private last = 0;
  /** Seconds for which a player has waited, and whether the leaders wait for it. */
  private waited = 0;
  private isHeld = false;

  /** Tells when a field begins and ends, in seconds, and how long one of its elements is. */
  extend(field: string, start: number, end: number, step: number): void {
    if (!Number.isFinite(start) || !Number.isFinite(end)) return;
    // Of two datapoints side by side, both.
    const [low, high] = this.extents.get(field) ?? [start, end];
    this.extents.set(field, [Math.min(start, low), Math.max(end, high)]);
    if (step > 0) this.steps.set(field, step);
    this.start = Math.min(...[...this.extents.values()].map(([first]) => first));
    this.end = Math.max(...[...this.extents.values()].map(([, last]) => last));
    this.tell(false);
  }

  /** Whether any field has a time. */
  get runs(): boolean {
    return this.end > this.start;
  }

  /** The time that is shown as 0: where times are those of a day, their first one. */
  get zero(): number {
    return this.start >= 86_400 ? this.start : 0;
  }

  /** The item of a sequence at the time: the last one that has begun. One without times is spread evenly. */
  itemAt(times: ArrayLike<number> | null, count: number): number {
    if (!times) {
      const place = this.runs ? (this.time - this.start) / (this.end - this.start) * count : 0;
      return Math.max(0, Math.min(count - 1, Math.floor(place + 1e-6)));
    }
    let low = 0, high = times.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (times[middle] <= this.time + 1e-6) low = middle;
      else high = middle - 1;
    }
    return low;
  }

  /** Seconds of one step: the shortest item. */
  get step(): number {
    return this.steps.size ? Math.min(...this.steps.values()) : 1;
  }

  listen(listener: Listener): () => void {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  addPlayer(player: Player): () => void {
    this.players.push(player);
    return () => { this.players = this.players.filter(other => other !== player); };
  }

  seek(time: number): void {
    this.time = this.runs ? Math.min(Math.max(this.start, time), this.end) : Math.max(0, time);
    this.waited = 0;
    this.tell(true);
  }

  /** Makes all curves show a range of seconds; null: everything. */
  zoom(range: [number, number] | null): void {
    this.range = range;
    this.tell(false);
  }

  toggle(): void {
    if (this.playing) {
      this.pause();
      return;
    }
    if (!this.runs) return;
    if (this.time >= this.end - 1e-3 || this.time < this.start) this.seek(this.start);
    this.playing = true;
    this.isHeld = false;
    this.waited = 0;
    this.last = performance.now();
    // Sounds begin when the pictures move, or after a while without them.
    const moving = Promise.all(this.players.filter(({leads}) => !leads).map(player => player.play(this.time)));
    void Promise.race([moving, new Promise(resolve => setTimeout(resolve, 1000 * PATIENCE))]).then(() => this.lead());
    requestAnimationFrame(this.tick);
    this.tell(false);
  }

  private lead(): void {
    if (!this.playing || this.isHeld) return;
    const time = this.now() ?? this.time;
    for (const player of this.players) if (player.leads) void player.play(time);
  }

  /** The time of the player that leads; null if none plays. */
  private now(): number | null {
    for (const player of [...this.players.filter(({leads}) => leads), ...this.players.filter(({leads}) => !leads)]) {
      const time = player.time();
      if (time !== null) return time;
    }
    return null;
  }

  pause(): void {
    if (!this.playing) return;
    this.playing = false;
    for (const player of this.players) player.pause();
    this.tell(false);
  }

  private tick = (now: number) => {
    if (!this.playing) return;
    const elapsed = (now - this.last) / 1000;
    this.last = now;
    this.waited = this.players.some(player => player.waits()) ? this.waited + elapsed : 0;
    if (this.waited > PATIENCE && !this.isHeld) {
      this.isHeld = true;
      for (const player of this.players) if (player.leads) player.pause();
    } else if (!this.waited && this.isHeld) {
      this.isHeld = false;
      this.lead();
    }
    // The leader may end before longer fields do: then the clock runs by itself.
    if (!this.isHeld) this.time = this.now() ?? this.time + elapsed;
    if (this.time >= this.end) {
      this.time = this.end;
      this.tell(false);
      this.pause();
      return;
    }
    this.tell(false);
    requestAnimationFrame(this.tick);
  };

  private tell(seeking: boolean): void {
    for (const listener of this.listeners) listener(this.time, seeking);
  }
}

/** The time of the clock, in a component that is drawn anew when it changes. */
export function useTime(clock: Clock): number {
  const [, update] = useState(0);
  useLayoutEffect(() => clock.listen(() => update(count => count + 1)), [clock]);
  return clock.time;
}
