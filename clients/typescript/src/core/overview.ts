/** Which chats changed: asked of the server round by round. Pure. */

import type { Overview, OverviewChat, SyncOverview } from "../contract.js";
import { OVERVIEW_CHATS_MAX } from "../limits.js";
import { makeRow } from "./chatModel.js";
import type { Refusal } from "./errors.js";
import { type Timers, type Timing, timerKey } from "./timing.js";

const OVERVIEW = timerKey("overview");

/**
 * One request at a time, page by page; each round requests what changed since the last.
 *
 * It requests only positions: titles are in the chat list over HTTP. `knownChats` returns the chats that the
 * client shows; an overview without a token does not say which of them the person left.
 */
export class OverviewRounds {
  readonly #timing: Timing;
  readonly #timers: Timers;
  readonly #nextId: () => number;
  readonly #knownChats: () => Iterable<string>;
  #token: string | null = null;
  #unlisted = new Set<string>();
  #requestId: number | undefined;
  #isDue = false;
  #isWantedAgain = false;
  #isPaging = false;
  round = 0;
  /** Until the first round of this connection is complete. */
  isCatchingUp = true;

  constructor(timing: Timing, timers: Timers, nextId: () => number, knownChats: () => Iterable<string>) {
    this.#timing = timing;
    this.#timers = timers;
    this.#nextId = nextId;
    this.#knownChats = knownChats;
  }

  /** Request the overview again. Returns the round that will have the answer, or a later one. */
  ask(): number {
    if (this.#requestId !== undefined || this.#isPaging) this.#isWantedAgain = true;
    else if (!this.#timers.pending(OVERVIEW)) this.#isDue = true;
    return this.round + 1;
  }

  connected(): void {
    this.#isDue = true;
    this.#isWantedAgain = this.#isPaging = false;
    this.isCatchingUp = true;
  }

  disconnected(): void {
    this.#requestId = undefined;
    this.#timers.cancel(OVERVIEW);
  }

  framesToSend(now: number): SyncOverview[] {
    if (!this.#isDue || this.#requestId !== undefined) return [];
    this.#isDue = false;
    if (this.#token === null) this.#unlisted = new Set(this.#knownChats());
    if (!this.#isPaging) this.round += 1;
    const id = this.#nextId();
    this.#requestId = id;
    this.#timers.set(OVERVIEW, now + this.#timing.answerMs, () => this.#askAnew());
    return [
      { type: "sync_overview", id, changed_since: this.#token, limit: OVERVIEW_CHATS_MAX, brief: true },
    ];
  }

  /** Its rows, with rows for known chats that it leaves out; undefined if it was not requested. */
  receive(frame: Overview): readonly OverviewChat[] | undefined {
    if (this.#requestId === undefined || frame.re !== this.#requestId) return undefined;
    this.#timers.cancel(OVERVIEW);
    this.#requestId = undefined;
    this.#token = frame.token;
    this.#isPaging = !frame.complete;
    this.#isDue = this.#isPaging || this.#isWantedAgain;
    for (const row of frame.chats) this.#unlisted.delete(row.chat_id);
    if (!frame.complete) return frame.chats;
    this.#isWantedAgain = this.isCatchingUp = false;
    const left = [...this.#unlisted].sort();
    this.#unlisted.clear();
    return [...frame.chats, ...left.map((chatId) => ({ ...makeRow(chatId), left: true }))];
  }

  /** Returns whether this was the overview. If the server rejects the token, request all chats. */
  refused(requestId: number, refusal: Refusal, now: number): boolean {
    if (requestId !== this.#requestId) return false;
    this.#requestId = undefined;
    let pauseMs = refusal.retryAfterMs || this.#timing.backoffBaseMs;
    if (refusal.code === "store_damaged") pauseMs = this.#timing.backoffMaxMs;
    else if (!refusal.temporary) this.#token = null;
    this.#timers.set(OVERVIEW, now + pauseMs, () => this.#askAnew());
    return true;
  }

  #askAnew(): void {
    this.#requestId = undefined;
    this.#isDue = true;
  }
}
