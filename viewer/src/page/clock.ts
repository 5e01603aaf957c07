// The time cursor of a datapoint: one time for its videos, sounds and sequences.

import {useLayoutEffect, useState} from 'preact/hooks';

/** What plays by itself. */
export interface Player {
  /** Whether others follow it while it plays: sounds, whose gaps are heard. Else the first player leads. */
  leads: boolean;
  /** Prepares what takes a while before the first sound. */
  prepare(): Promise<void>;
  /** Plays from a time; the promise ends when it does. */
  play(time: number): Promise<void>;
  pause(): void;
  /** Seconds where it is; null if it has not begun or has ended. */
  time(): number | null;
  /** Whether it waits for bytes, or for the place that it was moved to. */
  waits(): boolean;
}

/** Seconds for which others go on while a player waits, and for which sounds wait for pictures to move. */
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
  /** Seconds for which a player has waited, and whether all wait for it. */
  private waited = 0;
  private isHeld = false;
  /** Starts of playing, of which the last one counts, and whether it is being prepared. */
  private starts = 0;
  private begins = false;

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
    if (this.playing) this.hold();
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
    this.last = performance.now();
    void this.begin();
    requestAnimationFrame(this.tick);
    this.tell(false);
  }

  /** Whether time passes: it plays, and no player is waited for. */
  get moves(): boolean {
    return this.playing && !this.isHeld;
  }

  /** Starts pictures, then sounds when the pictures move, or after a while without them. */
  private async begin(): Promise<void> {
    const start = ++this.starts, isLast = () => this.playing && start === this.starts;
    const [sounds, pictures] = [true, false].map(leads => this.players.filter(player => player.leads === leads));
    this.isHeld = this.begins = true;
    this.waited = 0;
    await within(PATIENCE, sounds.map(player => player.prepare()));
    if (!isLast()) return;
    this.isHeld = this.begins = false;
    await within(PATIENCE, pictures.map(player => player.play(this.time)));
    if (!isLast() || this.isHeld) return;
    const time = this.now() ?? this.time;
    for (const player of sounds) void player.play(time);
  }

  /** Stops all until none waits for bytes, or for the place that it was moved to. */
  private hold(): void {
    this.starts += 1;
    this.isHeld = true;
    this.begins = false;
    for (const player of this.players) player.pause();
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
    if (this.isHeld && !this.begins && !this.waited) void this.begin();
    else if (!this.isHeld && this.waited > PATIENCE) this.hold();
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

/** Waits for all of some work, at most for some seconds. */
const within = (seconds: number, work: Promise<void>[]) => Promise.race([Promise.all(work), new Promise(resolve => setTimeout(resolve, 1000 * seconds))]);

/** The time of the clock, in a component that is drawn anew when it changes. */
export function useTime(clock: Clock): number {
  const [, update] = useState(0);
  useLayoutEffect(() => clock.listen(() => update(count => count + 1)), [clock]);
  return clock.time;
}
