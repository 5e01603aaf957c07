// The time cursor of a datapoint: one time for its videos, sounds and sequences.

import {useLayoutEffect, useState} from 'preact/hooks';

/** What plays by itself. The first such player leads while the clock runs. */
export interface Player {
  play(): void;
  pause(): void;
  /** Seconds where it is; null if it has ended. */
  time(): number | null;
}

type Listener = (time: number, seeking: boolean) => void;

export class Clock {
  /** One of items counts them, instead of seconds: each sequence without any time has its own. */
  constructor(readonly unit: 'seconds' | 'items' = 'seconds') {}

  time = 0;
  duration = 0;
  playing = false;
  /** Seconds that the curves show; null: all of them. */
  range: [number, number] | null = null;
  private listeners = new Set<Listener>();
  private durations = new Map<string, number>();
  private steps = new Map<string, number>();
  private players: Player[] = [];
  private last = 0;

  /** Tells how long a field is in seconds, and how long one of its items. */
  extend(field: string, duration: number, step: number): void {
    if (!Number.isFinite(duration)) return;
    // Of two datapoints side by side, the longer one.
    this.durations.set(field, Math.max(duration, this.durations.get(field) ?? 0));
    if (step > 0) this.steps.set(field, step);
    this.duration = Math.max(0, ...this.durations.values());
    this.tell(false);
  }


  /** The item of a sequence at the time: the last one that has begun. One without times is spread evenly. */
  itemAt(times: ArrayLike<number> | null, count: number): number {
    if (!times) {
      const place = this.duration ? this.time / this.duration * count : 0;
      return Math.min(count - 1, Math.floor(place + 1e-6));
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
    this.time = Math.min(Math.max(0, time), this.duration || time);
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
    if (!this.duration) return;
    if (this.time >= this.duration - 1e-3) this.seek(0);
    this.playing = true;
    this.last = performance.now();
    for (const player of this.players) player.play();
    requestAnimationFrame(this.tick);
    this.tell(false);
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
    // The leader may end before longer fields do: then the clock runs by itself.
    this.time = this.players[0]?.time() ?? this.time + elapsed;
    if (this.time >= this.duration) {
      this.time = this.duration;
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
