/** What a page shows is asked for again every five seconds, until somebody presses Pause. */

import { computed, effect, type ReadonlySignal, type Signal, signal } from "@preact/signals";
import { CannotConnect, RequestRefused } from "parley-chat";
import { useEffect, useMemo } from "preact/hooks";
import { isOver } from "./session.js";

const EVERY_MS = 5_000;
const TICK_MS = 1_000;
/** Without an answer for so long, what is shown is called old. */
export const STALE_MS = 15_000;

export const isPaused = signal(false);
/** The time of day, each second. */
export const now = signal(Date.now());

const feeds = signal<readonly Feed<unknown>[]>([]);

/** When the oldest part of what is shown was true; null before there is any. */
export const shownSince = computed(() => {
  const times = feeds.value.map((feed) => feed.at.value).filter((at) => at !== null);
  return times.length ? Math.min(...times) : null;
});
export const isStale = computed(() => shownSince.value !== null && now.value - shownSince.value > STALE_MS);

export class Feed<Value> {
  readonly value: Signal<Value | null> = signal(null);
  /** Why the last request failed; null if it did not. */
  readonly error: Signal<unknown> = signal(null);
  /** When the answer that is shown came. */
  readonly at: Signal<number | null> = signal(null);
  readonly #load: () => Promise<Value>;
  /** Whether it is asked for once, and then only when somebody wants it: it has no age. */
  readonly #isOnce: boolean;
  #turn = 0;
  #isAsking = false;
  #isOver = false;
  #timer: ReturnType<typeof setTimeout> | undefined;

  constructor(load: () => Promise<Value>, isOnce = false) {
    this.#load = load;
    this.#isOnce = isOnce;
  }

  /** Ask now. An answer to an earlier request is thrown away. */
  async reload(): Promise<void> {
    this.#turn += 1;
    const turn = this.#turn;
    this.#isAsking = true;
    clearTimeout(this.#timer);
    try {
      const value = await this.#load();
      if (turn !== this.#turn || this.#isOver) return;
      this.value.value = value;
      this.error.value = null;
      this.at.value = Date.now();
    } catch (error) {
      if (turn !== this.#turn || this.#isOver) return;
      this.error.value = error;
    }
    this.#isAsking = false;
    if (!this.#isOnce || mayPass(this.error.value)) {
      this.#timer = setTimeout(() => void this.#again(), EVERY_MS);
    }
  }

  start(): () => void {
    void this.reload();
    if (this.#isOnce) return () => this.#stop();
    feeds.value = [...feeds.value, this as Feed<unknown>];
    const resume = () => {
      if (!this.#isAsking && !this.#rests()) void this.reload();
    };
    const ended = new AbortController();
    document.addEventListener("visibilitychange", resume, { signal: ended.signal });
    const stopWatching = effect(() => {
      if (!isPaused.value && !isOver.value) resume();
    });
    return () => {
      this.#stop();
      ended.abort();
      stopWatching();
      feeds.value = feeds.value.filter((feed) => feed !== this);
    };
  }

  #stop(): void {
    this.#isOver = true;
    clearTimeout(this.#timer);
  }

  #rests(): boolean {
    return this.#isOver || isPaused.peek() || document.hidden || isOver.peek();
  }

  async #again(): Promise<void> {
    if (this.#rests()) return;
    await this.reload();
  }
}

/** Whether a failure may be over the next time. */
const mayPass = (error: unknown) =>
  error instanceof CannotConnect || (error instanceof RequestRefused && error.temporary);

/** Something was changed: ask for everything that is shown. */
export function reloadShown(): void {
  for (const feed of feeds.peek()) void feed.reload();
}

/** The feed of a page; a new one when `dependencies` change. */
export function useFeed<Value>(load: () => Promise<Value>, dependencies: readonly unknown[]): Feed<Value> {
  const feed = useMemo(() => new Feed(load), dependencies);
  useEffect(() => feed.start(), [feed]);
  return feed;
}

/** What is asked for once: because it is recorded who saw it, or because it takes long. */
export function useOnce<Value>(load: () => Promise<Value>, dependencies: readonly unknown[]): Feed<Value> {
  const feed = useMemo(() => new Feed(load, true), dependencies);
  useEffect(() => feed.start(), [feed]);
  return feed;
}

/** Seconds since then, for as long as somebody looks. */
export const secondsSince = (at: ReadonlySignal<number | null>) =>
  at.value === null ? 0 : Math.max(0, Math.round((now.value - at.value) / 1_000));

setInterval(() => {
  now.value = Date.now();
}, TICK_MS);
