/**
 * Unacknowledged messages: one queue per chat, in the order in which they were sent. Pure.
 *
 * A chat's messages are in flight or waiting; those in flight are always the oldest, in order. Each one names
 * its unacknowledged predecessor, and the server stores it only after that one. After a loss or a refusal the
 * client resends from there on, with the same ids, so the order is kept.
 */

import { isText } from "../codec.js";
import type { Ack, DeleteMessage, EditMessage, Entry, React, SendFound, SendMessage } from "../contract.js";
import { FRAME_BYTES_MAX, MESSAGE_BYTES_MAX } from "../limits.js";
import { OutboxFull, permanent, type Refusal, RequestRefused } from "./errors.js";
import type { Journal } from "./journal.js";
import { keyOf, type MessageKey, type OutgoingMessage } from "./storage.js";
import {
  backoffMs,
  decideResend,
  mustCheckFirst,
  RateLimitPause,
  resendDelayMs,
  type Timers,
  type Timing,
  timerKey,
} from "./timing.js";

export const OUTBOX_MESSAGES_MAX = 10_000;
export const OUTBOX_BYTES_MAX = 64 * 1024 * 1024;
/** Messages in flight: halved by every temporary refusal, increased by one with every ack. */
const WINDOW_START = 64;
const WINDOW_MAX = 256;
const IN_FLIGHT_BYTES_MAX = 1024 * 1024;
/** More than a send_message frame needs besides its content. */
const FRAME_OVERHEAD_BYTES = 2_048;

const utf8 = new TextEncoder();
export const bytesIn = (text: string): number => utf8.encode(text).length;

export type OutgoingFrame = SendMessage | EditMessage | DeleteMessage | React;

/** An unacknowledged message and its attempts so far. */
interface PendingMessage {
  readonly message: OutgoingMessage;
  readonly key: MessageKey;
  readonly size: number;
  isSaved: boolean;
  /** Wall time at which it was certainly not stored: when it was created, or not found in the log. */
  checkedAtMs: number;
  attempts: number;
  requestId: number | undefined;
}

/** One chat's messages: `sent` is in flight, `waiting` comes after it. */
interface ChatSendQueue {
  readonly sent: PendingMessage[];
  waiting: PendingMessage[];
  isPaused: boolean;
  /** The message that the shell is looking for in the log before it is resent. */
  checking: MessageKey | undefined;
}

const isMessage = ({ kind = "message" }: OutgoingMessage): boolean => kind === "message";

export class ClientOutbox {
  readonly #timing: Timing;
  readonly #timers: Timers;
  readonly #nextId: () => number;
  readonly #chance: () => number;
  readonly #journal: Journal;
  readonly #pause: RateLimitPause;
  readonly #queues = new Map<string, ChatSendQueue>();
  readonly #pending = new Map<MessageKey, PendingMessage>();
  readonly #byRequest = new Map<number, PendingMessage>();
  /** Refused for good on this connection; the next one tries again. */
  readonly #setAside = new Map<MessageKey, PendingMessage>();
  /** The chats that may have a message to send. */
  readonly #sendable = new Set<string>();
  #resends: OutgoingFrame[] = [];
  #toCheck: OutgoingMessage[] = [];
  #window = WINDOW_START;
  #bytes = 0;
  #inFlightBytes = 0;

  constructor(timing: Timing, timers: Timers, nextId: () => number, chance: () => number, journal: Journal) {
    this.#timing = timing;
    this.#timers = timers;
    this.#nextId = nextId;
    this.#chance = chance;
    this.#journal = journal;
    this.#pause = new RateLimitPause("sends", timing, timers);
  }

  get size(): number {
    return this.#pending.size;
  }

  has(key: MessageKey): boolean {
    return this.#pending.has(key);
  }

  /** Whether it was refused for good and is tried once more with the next connection. */
  isKept(key: MessageKey): boolean {
    return this.#setAside.has(key);
  }

  /** Whether it waits, rather than being in flight with quick retries left. */
  isQueued(key: MessageKey): boolean {
    const pending = this.#pending.get(key);
    if (!pending) return false;
    return pending.requestId === undefined || pending.attempts > this.#timing.resendsMax;
  }

  /** Every message that waits for its ack, chat by chat in the order of sending. */
  *messages(): Generator<OutgoingMessage> {
    for (const { sent, waiting } of this.#queues.values()) {
      for (const { message } of [...sent, ...waiting]) yield message;
    }
  }

  /** Queue a message; it is sent once it is saved. OutboxFull if there is no room. */
  add(message: OutgoingMessage, isSaved: boolean): void {
    const size = bytesIn(message.content);
    const count = this.#pending.size + this.#setAside.size;
    if (count >= OUTBOX_MESSAGES_MAX || this.#bytes + size > OUTBOX_BYTES_MAX) {
      throw new OutboxFull(`${count} messages are waiting to be sent; wait for some of them`);
    }
    this.#add(message, size, isSaved);
  }

  /**
   * These are saved: rows of the store's outbox, in its order, whichever tab wrote them.
   *
   * What is not known yet is queued. Those that wait and are named get the order that they have here; what is
   * in flight stays, and what is not saved yet comes last.
   */
  adopt(messages: readonly OutgoingMessage[]): void {
    const named = new Map<MessageKey, number>();
    for (const message of messages) {
      const key = keyOf(message);
      named.set(key, named.size + 1);
      if (!this.has(key) && !this.isKept(key)) this.#add(message, bytesIn(message.content), true);
    }
    this.saved(named.keys());
    const rank = ({ key, isSaved }: PendingMessage): number =>
      isSaved ? (named.get(key) ?? 0) : named.size + 1;
    for (const queue of this.#queues.values()) queue.waiting.sort((one, other) => rank(one) - rank(other));
  }

  #add(message: OutgoingMessage, size: number, isSaved: boolean): void {
    const key = keyOf(message);
    this.#journal.written(key, message.createdAtMs);
    const checkedAtMs = message.createdAtMs;
    this.#queue({ message, key, size, isSaved, checkedAtMs, attempts: 0, requestId: undefined });
  }

  #queue(pending: PendingMessage): void {
    const { chatId } = pending.message;
    this.#pending.set(pending.key, pending);
    this.#bytes += pending.size;
    let queue = this.#queues.get(chatId);
    if (!queue) {
      queue = { sent: [], waiting: [], isPaused: false, checking: undefined };
      this.#queues.set(chatId, queue);
    }
    queue.waiting.push(pending);
    this.#sendable.add(chatId);
  }

  /** These are durable now and may be sent. */
  saved(keys: Iterable<MessageKey>): void {
    for (const key of keys) {
      const pending = this.#pending.get(key);
      if (pending) {
        pending.isSaved = true;
        this.#sendable.add(pending.message.chatId);
      }
    }
  }

  /** Nothing in flight will be answered: every message waits again, with all its quick retries. */
  disconnected(): void {
    this.#byRequest.clear();
    this.#resends = [];
    this.#pause.end();
    this.#window = WINDOW_START;
    const setAside = [...this.#setAside.values()];
    this.#setAside.clear();
    for (const pending of setAside) this.#queue(pending);
    for (const [chatId, queue] of this.#queues) {
      const [head] = queue.sent;
      if (head) this.#takeBack(queue, head);
      for (const pending of queue.waiting) {
        pending.attempts = 0;
        this.#journal.note(pending.key, { step: "queued" });
      }
      this.#timers.cancel(timerKey("ack", chatId));
      this.#resume(chatId);
    }
  }

  /** The messages to send now: in order within a chat, chats in turn. */
  framesToSend(now: number, wall: number): OutgoingFrame[] {
    if (this.#pause.isOn) return [];
    const frames = this.#resends;
    this.#resends = [];
    while (this.#byRequest.size < this.#window && this.#inFlightBytes < IN_FLIGHT_BYTES_MAX) {
      const [chatId] = this.#sendable;
      if (chatId === undefined) break;
      this.#sendable.delete(chatId);
      const frame = this.#nextFrame(chatId, now, wall);
      if (frame) {
        frames.push(frame);
        this.#sendable.add(chatId);
      }
    }
    return frames;
  }

  /** It is stored: remove it. Returns whether it was in the outbox. */
  acknowledged(key: MessageKey, now: number): boolean {
    const pending = this.#pending.get(key);
    if (pending) {
      this.#window = Math.min(this.#window + 1, WINDOW_MAX);
      this.#remove(pending, now);
    }
    return pending !== undefined || this.#setAside.delete(key);
  }

  /**
   * Resend from this message on if that can help; otherwise remove it and return its key.
   *
   * A refusal of a transmission that a newer one has replaced is ignored. A message that `isKept` comes back
   * with the next connection, behind those that wait then.
   */
  refused(requestId: number, refusal: Refusal, now: number): MessageKey | undefined {
    const pending = this.#byRequest.get(requestId);
    if (!pending) return undefined;
    this.#journal.note(pending.key, { step: "refused", refusal });
    const { chatId } = pending.message;
    const decision = decideResend(pending.attempts, refusal, this.#timing, this.#chance());
    this.#takeBack(this.#queueOf(pending), pending);
    if ("refusal" in decision) {
      this.#remove(pending, now);
      if (decision.isKept) this.#setAside.set(pending.key, pending);
      return pending.key;
    }
    this.#window = Math.max(1, this.#window >> 1);
    this.#pause.refused(refusal, now);
    this.#pauseChat(chatId, now + decision.delayMs);
    return undefined;
  }

  /** Another tab sent it, and it was refused for good. Returns whether it was in the outbox. */
  refusedElsewhere(key: MessageKey, isKept: boolean, now: number): boolean {
    const pending = this.#pending.get(key);
    if (pending) {
      this.#remove(pending, now);
      if (isKept) this.#setAside.set(key, pending);
    }
    return pending !== undefined;
  }

  // Messages so old that their ids may have expired

  /** Messages to look for in the log before they are sent. */
  toCheck(): OutgoingMessage[] {
    const messages = this.#toCheck;
    this.#toCheck = [];
    return messages;
  }

  /** It is not in the log, so it may be sent. */
  notStored(key: MessageKey, wall: number): void {
    const pending = this.#pending.get(key);
    if (pending) {
      pending.checkedAtMs = wall;
      this.#endCheck(pending);
    }
  }

  /** The check failed; check again later. */
  checkFailed(key: MessageKey, now: number): void {
    const pending = this.#pending.get(key);
    if (pending) {
      pending.attempts += 1;
      const delayMs = backoffMs(pending.attempts - 1, this.#timing, this.#chance());
      this.#pauseChat(pending.message.chatId, now + delayMs);
      this.#endCheck(pending);
    }
  }

  #endCheck(pending: PendingMessage): void {
    const queue = this.#queueOf(pending);
    if (queue.checking === pending.key) {
      queue.checking = undefined;
      this.#sendable.add(pending.message.chatId);
    }
  }

  // One chat's queue

  #queueOf(pending: PendingMessage): ChatSendQueue {
    const queue = this.#queues.get(pending.message.chatId);
    if (!queue) throw new Error("a pending message has a queue");
    return queue;
  }

  #nextFrame(chatId: string, now: number, wall: number): OutgoingFrame | undefined {
    const queue = this.#queues.get(chatId);
    const pending = queue?.waiting[0];
    if (!queue || !pending?.isSaved || queue.isPaused || queue.checking !== undefined) return undefined;
    if (mustCheckFirst(pending.checkedAtMs, wall)) {
      queue.checking = pending.key;
      this.#toCheck.push(pending.message);
      return undefined;
    }
    const before = queue.sent.at(-1);
    // What is no message names no predecessor, so what was sent before it must be stored first.
    if (before && !isMessage(pending.message)) return undefined;
    queue.waiting.shift();
    queue.sent.push(pending);
    this.#inFlightBytes += pending.size;
    if (!before) this.#watchHead(chatId, now);
    return this.#frame(pending, before);
  }

  #frame(pending: PendingMessage, before: PendingMessage | undefined): OutgoingFrame {
    if (pending.requestId !== undefined) this.#byRequest.delete(pending.requestId);
    pending.requestId = this.#nextId();
    pending.attempts += 1;
    this.#byRequest.set(pending.requestId, pending);
    this.#journal.note(pending.key, { step: "sent", attempt: pending.attempts });
    return frameOf(pending.message, pending.requestId, before?.message.clientMessageId ?? null);
  }

  /** Start the ack timeout of the chat's oldest message in flight, if there is one. */
  #watchHead(chatId: string, now: number): void {
    const isLate = (at: number): void => this.#ackTimedOut(chatId, at);
    this.#timers.set(timerKey("ack", chatId), now + this.#timing.ackMs, isLate);
  }

  #ackTimedOut(chatId: string, now: number): void {
    const queue = this.#queues.get(chatId);
    const head = queue?.sent[0];
    if (!queue || !head) return;
    const delayMs = resendDelayMs(head.attempts, this.#timing, this.#chance());
    if (delayMs === 0) {
      this.#resends.push(this.#frame(head, undefined));
      this.#watchHead(chatId, now);
    } else {
      this.#journal.note(head.key, { step: "queued" });
      this.#takeBack(queue, head);
      this.#pauseChat(chatId, now + delayMs);
    }
  }

  /** Move `first` and all messages sent after it back to the front of `waiting`. */
  #takeBack(queue: ChatSendQueue, first: PendingMessage): void {
    const back = queue.sent.splice(queue.sent.indexOf(first));
    queue.waiting.unshift(...back);
    for (const pending of back) {
      this.#inFlightBytes -= pending.size;
      if (pending.requestId !== undefined) this.#byRequest.delete(pending.requestId);
      pending.requestId = undefined;
    }
    if (queue.sent.length === 0) this.#timers.cancel(timerKey("ack", first.message.chatId));
  }

  #remove(pending: PendingMessage, now: number): void {
    const { chatId } = pending.message;
    const queue = this.#queueOf(pending);
    const at = queue.sent.indexOf(pending);
    if (at >= 0) {
      queue.sent.splice(at, 1);
      this.#inFlightBytes -= pending.size;
      if (pending.requestId !== undefined) this.#byRequest.delete(pending.requestId);
    } else {
      queue.waiting.splice(queue.waiting.indexOf(pending), 1);
    }
    this.#pending.delete(pending.key);
    this.#bytes -= pending.size;
    if (queue.checking === pending.key) queue.checking = undefined;
    if (queue.sent.length + queue.waiting.length > 0) {
      this.#sendable.add(chatId);
      if (at === 0) this.#watchHead(chatId, now);
      return;
    }
    this.#queues.delete(chatId);
    this.#sendable.delete(chatId);
    this.#timers.cancel(timerKey("ack", chatId));
    this.#timers.cancel(timerKey("resume sends", chatId));
  }

  #pauseChat(chatId: string, until: number): void {
    const queue = this.#queues.get(chatId);
    if (queue) queue.isPaused = true;
    this.#timers.set(timerKey("resume sends", chatId), until, () => this.#resume(chatId));
  }

  #resume(chatId: string): void {
    const queue = this.#queues.get(chatId);
    if (queue) {
      queue.isPaused = false;
      this.#timers.cancel(timerKey("resume sends", chatId));
      this.#sendable.add(chatId);
    }
  }
}

/** The ack of a stored message. */
export const ackFor = (chatId: string, clientMessageId: string, stored: Entry | SendFound): Ack => ({
  type: "ack",
  chat_id: chatId,
  client_message_id: clientMessageId,
  message_id: stored.message_id,
  sequence: stored.sequence,
  epoch: stored.epoch,
  created_at: stored.created_at,
  deduplicated: true,
  conflict: false,
});

function frameOf(message: OutgoingMessage, id: number, after: string | null): OutgoingFrame {
  const { kind = "message", content, targetId = "" } = message;
  const about = { id, chat_id: message.chatId, client_message_id: message.clientMessageId };
  switch (kind) {
    case "message":
      return {
        type: "send_message",
        ...about,
        content,
        content_type: message.contentType ?? "text/plain",
        display_time: message.displayTime ?? null,
        after_client_message_id: after,
        mentions: message.mentions ?? [],
        reply_to: message.replyTo ?? null,
        attachments: message.attachments ?? [],
      };
    case "edit":
      return { type: "edit_message", ...about, message_id: targetId, content };
    case "delete":
      return { type: "delete_message", ...about, message_id: targetId };
    case "reaction":
      return { type: "react", ...about, message_id: targetId, reaction: content, on: message.isOn ?? true };
  }
}

/** Refuse a message whose JSON frame is above the limit: it would end every connection that sends it. */
export function checkSize({ content }: OutgoingMessage): void {
  const refuse = (code: string, reason: string): never => {
    throw new RequestRefused(permanent(code, reason));
  };
  // JSON has no way to say half of a pair that every server reads.
  if (!isText(content)) refuse("bad_request", "the text was cut inside a character");
  if (bytesIn(content) > MESSAGE_BYTES_MAX) {
    refuse("too_large", `a message can have at most ${MESSAGE_BYTES_MAX} bytes`);
  }
  if (bytesIn(JSON.stringify(content)) > FRAME_BYTES_MAX - FRAME_OVERHEAD_BYTES) {
    refuse("too_large", "too many characters of the message need escaping in JSON");
  }
}
