/** Durations, retries and timers. Time and chance are arguments: nothing here reads a clock. */

import { IDEMPOTENCY_DAYS } from "../limits.js";
import type { Refusal } from "./errors.js";

export const SECOND_MS = 1_000;
const DAY_MS = 86_400_000;
const CHECK_MARGIN_MS = 3_600_000;
/** How long the server certainly recognises a resend; the margin is for clocks that differ. */
const SAFE_RESEND_MS_MAX = IDEMPOTENCY_DAYS * DAY_MS - CHECK_MARGIN_MS;
const DOUBLINGS_MAX = 32;

/** Every duration of the SDK. The defaults are those of the protocol; tests shorten them. */
export interface Timing {
  /** How long a send waits for its ack before it is resent. */
  readonly ackMs: number;
  /** How many quick resends there are before the message counts as queued and is retried with backoff. */
  readonly resendsMax: number;
  readonly backoffBaseMs: number;
  readonly backoffMaxMs: number;
  readonly jitter: number;
  /** How often a cursor is saved and acknowledged at most. */
  readonly cursorFlushMs: number;
  /** How long the server may take for a heartbeat, a page, a handshake or to accept bytes. */
  readonly answerMs: number;
  /** How long closing waits for the acks of messages in flight. */
  readonly drainMs: number;
}

export const defaultTiming: Timing = {
  ackMs: 5_000,
  resendsMax: 3,
  backoffBaseMs: 1_000,
  backoffMaxMs: 60_000,
  jitter: 0.1,
  cursorFlushMs: 100,
  answerMs: 10_000,
  drainMs: 5_000,
};

/** What to do about a send that failed: retry after a delay, or fail. */
export type ResendDecision =
  | { readonly delayMs: number }
  /** A retry cannot help now. `isKept`: it may on a later connection, when an operator has done something. */
  | { readonly refusal: Refusal; readonly isKept: boolean };

/** min(1 s · 2^attempt, 60 s), and up to a tenth more; `attempt` counts from 0, chance is 0..1. */
export function backoffMs(attempt: number, timing: Timing, chance: number): number {
  const doublings = Math.min(Math.max(attempt, 0), DOUBLINGS_MAX);
  const wait = Math.min(timing.backoffBaseMs * 2 ** doublings, timing.backoffMaxMs);
  return Math.trunc(wait + wait * (timing.jitter * chance));
}

/** How long to wait after attempt number `attempts` of a send was not answered in time. */
export function resendDelayMs(attempts: number, timing: Timing, chance: number): number {
  const late = attempts - timing.resendsMax - 1;
  return late >= 0 ? backoffMs(late, timing, chance) : 0;
}

/** What to do after attempt number `attempts` of a send was refused. */
export function decideResend(
  attempts: number,
  refusal: Refusal,
  timing: Timing,
  chance: number,
): ResendDecision {
  if (!refusal.temporary) return { refusal, isKept: refusal.code === "store_damaged" };
  return { delayMs: Math.max(refusal.retryAfterMs ?? 0, backoffMs(attempts - 1, timing, chance)) };
}

/** Whether this message's id may have expired on the server, so that a resend might store it twice. */
export const mustCheckFirst = (checkedAtMs: number, wall: number): boolean =>
  wall - checkedAtMs >= SAFE_RESEND_MS_MAX;

/** What is due, and for which chat; "" where there is only one. */
export const timerKey = (what: string, of = ""): string => `${what}\n${of}`;

type TimerCallback = (now: number) => void;

/** Deadlines without a clock. Each key has at most one; setting it again replaces it. */
export class Timers {
  readonly #pending = new Map<string, { at: number; callback: TimerCallback | undefined }>();

  /** Call back at this time. Without a callback the key is only `pending` until then. */
  set(key: string, at: number, callback?: TimerCallback): void {
    this.#pending.set(key, { at, callback });
  }

  cancel(key: string): void {
    this.#pending.delete(key);
  }

  pending(key: string): boolean {
    return this.#pending.has(key);
  }

  /** Run what is due, earliest first, each once. */
  runDue(now: number): void {
    const due = [...this.#pending].filter(([, timer]) => timer.at <= now);
    due.sort(([a, first], [b, second]) => first.at - second.at || (a < b ? -1 : 1));
    for (const [key] of due) this.#pending.delete(key);
    for (const [, timer] of due) timer.callback?.(now);
  }

  /** The earliest deadline. */
  next(): number | undefined {
    let earliest: number | undefined;
    for (const { at } of this.#pending.values()) {
      if (earliest === undefined || at < earliest) earliest = at;
    }
    return earliest;
  }
}

/** After a `rate_limited` refusal, pauses every request of this kind, not only the refused one. */
export class RateLimitPause {
  readonly #key: string;
  readonly #timing: Timing;
  readonly #timers: Timers;

  constructor(kind: string, timing: Timing, timers: Timers) {
    this.#key = timerKey("rate limit pause", kind);
    this.#timing = timing;
    this.#timers = timers;
  }

  get isOn(): boolean {
    return this.#timers.pending(this.#key);
  }

  refused(refusal: Refusal, now: number): void {
    if (refusal.code === "rate_limited") {
      this.#timers.set(this.#key, now + Math.max(refusal.retryAfterMs ?? 0, this.#timing.backoffBaseMs));
    }
  }

  /** A new connection may send at once. */
  end(): void {
    this.#timers.cancel(this.#key);
  }
}
