/**
 * Cursors that the client sends to the server: of this device, and of what the person has read. Pure.
 *
 * Neither frame has an answer. It has taken effect when the server answers a heartbeat that was sent after it;
 * until then a broken connection may have lost it, and the client sends it again.
 */

import type { AckPosition, Heartbeat, ReadReceipt } from "../contract.js";
import { OutboxFull, type Refusal } from "./errors.js";
import type { Cursor } from "./storage.js";
import { backoffMs, type RateLimitPause, SECOND_MS, type Timers, type Timing, timerKey } from "./timing.js";

const ACKS_IN_FLIGHT_MAX = 1_024;
/** Half of the frames that a server accepts from one connection. */
const ACKS_PER_SECOND_MAX = 100;
const READ_MARKS_MAX = 1_000;
const FLUSH = timerKey("flush cursors");
const RETRY = timerKey("retry acks");
const ACK_SECOND = timerKey("second of acks");

const same = (one: Cursor | undefined, other: Cursor): boolean =>
  one !== undefined &&
  one.epoch === other.epoch &&
  one.sequence === other.sequence &&
  one.messageId === other.messageId &&
  String(one.logHash) === String(other.logHash);

/**
 * Each chat's processed position: saved first, then acknowledged to the server.
 *
 * An ack is cumulative: only the newest of a chat is sent. Sync requests share `pause`.
 */
export class DeviceCursors {
  readonly #timing: Timing;
  readonly #timers: Timers;
  readonly #pause: RateLimitPause;
  readonly #nextId: () => number;
  readonly #cursors = new Map<string, Cursor>();
  #unsaved = new Map<string, Cursor>();
  isFlushDue = false;
  #toAck = new Map<string, number>();
  #toRetry = new Map<string, number>();
  #ackedSinceHeartbeat = new Map<string, number>();
  #ackedBeforeHeartbeat = new Map<string, number>();
  readonly #chatOfAck = new Map<number, string>();
  #acksThisSecond = 0;
  /** Whether the token of this connection moves no position. */
  #isForbidden = false;

  constructor(timing: Timing, timers: Timers, pause: RateLimitPause, nextId: () => number) {
    this.#timing = timing;
    this.#timers = timers;
    this.#pause = pause;
    this.#nextId = nextId;
  }

  restore(saved: ReadonlyMap<string, Cursor>): void {
    for (const [chatId, cursor] of saved) this.#cursors.set(chatId, cursor);
  }

  get(chatId: string): Cursor | undefined {
    return this.#cursors.get(chatId);
  }

  /** Everything up to here is processed. */
  move(chatId: string, cursor: Cursor, now: number): void {
    if (!same(this.#cursors.get(chatId), cursor)) {
      this.#cursors.set(chatId, cursor);
      this.#unsaved.set(chatId, cursor);
      this.flushSoon(now);
    }
  }

  /** Save within `cursorFlushMs`, together with every cursor that moves until then. */
  flushSoon(now: number): void {
    if (!this.#timers.pending(FLUSH)) {
      this.#timers.set(FLUSH, now + this.#timing.cursorFlushMs, () => this.flush());
    }
  }

  flush(): void {
    this.isFlushDue = true;
  }

  /** The cursors that moved; once they are `saved` they are acknowledged. */
  toSave(): ReadonlyMap<string, Cursor> {
    if (!this.isFlushDue) return new Map();
    const unsaved = this.#unsaved;
    this.#unsaved = new Map();
    this.isFlushDue = false;
    this.#timers.cancel(FLUSH);
    return unsaved;
  }

  saved(cursors: ReadonlyMap<string, Cursor>): void {
    for (const [chatId, { sequence }] of cursors) {
      if (sequence) this.#toAck.set(chatId, sequence);
    }
  }

  /** As many as may be sent now; a timer wakes the client for the others. */
  acks(now: number): AckPosition[] {
    if (this.#toAck.size === 0 || this.#pause.isOn || this.#isForbidden) return [];
    if (!this.#timers.pending(ACK_SECOND)) {
      this.#timers.set(ACK_SECOND, now + SECOND_MS);
      this.#acksThisSecond = 0;
    }
    const allowed = Math.min(this.#toAck.size, ACKS_PER_SECOND_MAX - this.#acksThisSecond);
    this.#acksThisSecond += allowed;
    return [...this.#toAck.keys()].slice(0, allowed).map((chatId) => this.#ack(chatId));
  }

  /** Whether every ack that was sent has taken effect. */
  get isConfirmed(): boolean {
    return this.#ackedSinceHeartbeat.size + this.#ackedBeforeHeartbeat.size === 0;
  }

  /** All remaining acks, before the connection is closed. */
  lastAcks(): AckPosition[] {
    return this.#isForbidden ? [] : [...this.#toAck.keys()].map((chatId) => this.#ack(chatId));
  }

  /** The person joined the chat (again): the server may have refused an earlier ack. */
  ackAgain(chatId: string): void {
    const sequence = this.#cursors.get(chatId)?.sequence;
    if (sequence && !this.#unsaved.has(chatId) && !this.#toAck.has(chatId)) this.#toAck.set(chatId, sequence);
  }

  /**
   * Retry after a temporary refusal; after a permanent one, return the chat of the ack.
   *
   * A program whose token does not move positions keeps them to itself for the rest of the connection.
   */
  refused(requestId: number, refusal: Refusal, now: number): string | undefined {
    const chatId = this.#chatOfAck.get(requestId);
    this.#chatOfAck.delete(requestId);
    if (chatId === undefined) return undefined;
    this.#isForbidden ||= refusal.code === "forbidden";
    if (!refusal.temporary) return chatId;
    this.#pause.refused(refusal, now);
    const sequence = this.#ackedSinceHeartbeat.get(chatId) ?? this.#ackedBeforeHeartbeat.get(chatId);
    if (sequence !== undefined) {
      this.#toRetry.set(chatId, sequence);
      this.#timers.set(RETRY, now + this.#timing.backoffBaseMs, () => this.#retry());
    }
    return undefined;
  }

  heartbeatSent(): void {
    for (const [chatId, sequence] of this.#ackedSinceHeartbeat) {
      this.#ackedBeforeHeartbeat.set(chatId, sequence);
    }
    this.#ackedSinceHeartbeat = new Map();
  }

  heartbeatAnswered(): void {
    this.#ackedBeforeHeartbeat = new Map();
  }

  disconnected(): void {
    this.#toAck = new Map([...this.#ackedBeforeHeartbeat, ...this.#ackedSinceHeartbeat, ...this.#toAck]);
    this.#ackedBeforeHeartbeat = new Map();
    this.#ackedSinceHeartbeat = new Map();
    this.#chatOfAck.clear();
    this.#isForbidden = false;
    this.#timers.cancel(ACK_SECOND);
    this.#retry();
  }

  #retry(): void {
    this.#toAck = new Map([...this.#toRetry, ...this.#toAck]);
    this.#toRetry = new Map();
  }

  #ack(chatId: string): AckPosition {
    const sequence = this.#toAck.get(chatId) ?? 0;
    this.#toAck.delete(chatId);
    this.#ackedSinceHeartbeat.set(chatId, sequence);
    const id = this.#nextId();
    this.#chatOfAck.set(id, chatId);
    if (this.#chatOfAck.size > ACKS_IN_FLIGHT_MAX) {
      const [oldest = 0] = this.#chatOfAck.keys();
      this.#chatOfAck.delete(oldest);
    }
    return { type: "ack", id, chat_id: chatId, last_acked_sequence: sequence };
  }
}

/** A read receipt that is not yet confirmed. Without a `receipt` it only waits for a heartbeat. */
interface ReadMark {
  readonly number: number;
  readonly receipt: ReadReceipt | undefined;
  attempts: number;
  requestId: number | undefined;
}

const retryKey = (number: number): string => timerKey("retry read mark", String(number));

/** Unconfirmed read receipts: each is resent until the server answers a heartbeat sent after it. */
export class ReadMarks {
  readonly #timing: Timing;
  readonly #timers: Timers;
  readonly #nextId: () => number;
  readonly #chance: () => number;
  readonly #marks = new Map<number, ReadMark>();
  #toSend = new Set<number>();
  readonly #byRequest = new Map<number, ReadMark>();
  readonly #byHeartbeat = new Map<number, number[]>();

  constructor(timing: Timing, timers: Timers, nextId: () => number, chance: () => number) {
    this.#timing = timing;
    this.#timers = timers;
    this.#nextId = nextId;
    this.#chance = chance;
  }

  /** Returns the number of its "readMarkDone". OutboxFull if too many wait. */
  add(receipt: ReadReceipt | undefined): number {
    if (this.#marks.size >= READ_MARKS_MAX) {
      throw new OutboxFull(`${READ_MARKS_MAX} read receipts are not confirmed yet; wait for some of them`);
    }
    const number = this.#nextId();
    this.#marks.set(number, { number, receipt, attempts: 0, requestId: undefined });
    this.#toSend.add(number);
    return number;
  }

  has(number: number): boolean {
    return this.#marks.has(number);
  }

  /** The caller stopped waiting for it. */
  drop(number: number): void {
    const requestId = this.#marks.get(number)?.requestId;
    this.#marks.delete(number);
    this.#toSend.delete(number);
    this.#timers.cancel(retryKey(number));
    if (requestId !== undefined) this.#byRequest.delete(requestId);
  }

  disconnected(): void {
    this.#byRequest.clear();
    this.#byHeartbeat.clear();
    this.#toSend = new Set(this.#marks.keys());
    for (const mark of this.#marks.values()) {
      mark.attempts = 0;
      mark.requestId = undefined;
    }
  }

  /** The receipts that wait, and one heartbeat after them. */
  framesToSend(): (ReadReceipt | Heartbeat)[] {
    if (this.#toSend.size === 0) return [];
    const frames: (ReadReceipt | Heartbeat)[] = [];
    for (const number of this.#toSend) {
      const mark = this.#marks.get(number);
      if (!mark) continue;
      mark.requestId = this.#nextId();
      mark.attempts += 1;
      if (mark.receipt) {
        this.#byRequest.set(mark.requestId, mark);
        frames.push({ ...mark.receipt, id: mark.requestId });
      }
    }
    const id = this.#nextId();
    this.#byHeartbeat.set(id, [...this.#toSend]);
    this.#toSend.clear();
    return [...frames, { type: "heartbeat", id }];
  }

  /** The marks that this answer confirms. */
  heartbeatAnswered(requestId: number): { number: number; receipt: ReadReceipt | undefined }[] {
    const confirmed = this.#ofHeartbeat(requestId).filter((mark) => mark.requestId !== undefined);
    for (const mark of confirmed) this.drop(mark.number);
    return confirmed;
  }

  /** Retry after a temporary refusal; after a permanent one, return the number of the mark. */
  refused(requestId: number, refusal: Refusal, now: number): number | undefined {
    for (const mark of this.#ofHeartbeat(requestId)) this.#retryLater(mark, refusal, now);
    const mark = this.#byRequest.get(requestId);
    if (!mark) return undefined;
    this.#byRequest.delete(requestId);
    if (!refusal.temporary) {
      this.drop(mark.number);
      return mark.number;
    }
    this.#retryLater(mark, refusal, now);
    return undefined;
  }

  #ofHeartbeat(requestId: number): ReadMark[] {
    const numbers = this.#byHeartbeat.get(requestId) ?? [];
    this.#byHeartbeat.delete(requestId);
    return numbers.map((number) => this.#marks.get(number)).filter((mark) => mark !== undefined);
  }

  #retryLater(mark: ReadMark, refusal: Refusal, now: number): void {
    mark.requestId = undefined;
    const delayMs = backoffMs(mark.attempts - 1, this.#timing, this.#chance());
    const at = now + Math.max(refusal.retryAfterMs ?? 0, delayMs);
    this.#timers.set(retryKey(mark.number), at, () => {
      if (this.#marks.has(mark.number)) this.#toSend.add(mark.number);
    });
  }
}
