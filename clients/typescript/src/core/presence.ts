/** Presence and typing: short-lived state that may be lost in transit. Pure. */

import type {
  PresenceChanged,
  PresenceState,
  PresenceSubscribe,
  PresenceView,
  Typing,
  TypingStart,
  TypingStop,
} from "../contract.js";
import { PRESENCE_BATCH_MAX, TYPING_EVERY_SECONDS, TYPING_SHOWN_SECONDS } from "../limits.js";
import type { ChatModel } from "./chatModel.js";
import type { Refusal } from "./errors.js";
import { SECOND_MS, type Timers, type Timing, timerKey } from "./timing.js";

const SUBSCRIBE = timerKey("subscribe to presence");
const QUERIED_MS_MAX = 30_000;
const QUERIED_PEOPLE_MAX = 10_000;

/** The people whose presence this connection subscribes to: those named, and members of open chats. */
export class PresenceWatch {
  readonly #timing: Timing;
  readonly #timers: Timers;
  readonly #nextId: () => number;
  #named = new Set<string>();
  readonly #byChat = new Map<string, readonly string[]>();
  #wanted = new Set<string>();
  /** The people in the last subscription; undefined if the client must subscribe again. */
  #subscribed: ReadonlySet<string> | undefined = new Set();
  #requestId: number | undefined;
  /** Whether the server has answered the subscription on this connection. */
  #isCurrent = false;
  #known = new Map<string, PresenceView>();
  readonly #queried = new Map<string, { view: PresenceView; until: number }>();

  constructor(timing: Timing, timers: Timers, nextId: () => number) {
    this.#timing = timing;
    this.#timers = timers;
    this.#nextId = nextId;
  }

  /** The presence of a watched person. */
  get(userId: string): PresenceView | undefined {
    return this.#known.get(userId);
  }

  /** Watch these people besides the members of open chats; replaces the last call. */
  watch(userIds: Iterable<string>): void {
    this.#named = new Set(userIds);
    this.#updateWanted();
  }

  /** Watch the members of an open chat; the list is empty when it is closed. */
  watchChat(chatId: string, userIds: readonly string[]): void {
    this.#byChat.delete(chatId);
    if (userIds.length) this.#byChat.set(chatId, userIds);
    this.#updateWanted();
  }

  /** A new connection has no subscription. */
  connected(): void {
    this.#subscribed = new Set();
  }

  disconnected(): void {
    this.#requestId = undefined;
    this.#isCurrent = false;
    this.#timers.cancel(SUBSCRIBE);
  }

  framesToSend(): PresenceSubscribe[] {
    const isSubscribed =
      this.#subscribed?.size === this.#wanted.size && isWithin(this.#wanted, this.#subscribed);
    if (isSubscribed || this.#timers.pending(SUBSCRIBE)) return [];
    this.#subscribed = new Set(this.#wanted);
    this.#requestId = this.#nextId();
    return [{ type: "presence_subscribe", id: this.#requestId, user_ids: [...this.#wanted] }];
  }

  /** The answer to the subscription. Returns what changed. */
  receiveState(frame: PresenceState): readonly PresenceView[] {
    if (this.#requestId === undefined || frame.re !== this.#requestId) return [];
    this.#isCurrent = true;
    return frame.presences.filter((view) => this.#note(view));
  }

  /** Returns the presence if it changed. */
  receiveChange({ user_id, status, last_seen }: PresenceChanged): readonly PresenceView[] {
    return [{ user_id, status, last_seen }].filter((view) => this.#note(view));
  }

  /** If this was the subscription and the refusal is temporary, retry later. */
  refused(requestId: number, refusal: Refusal, now: number): void {
    if (requestId === this.#requestId && refusal.temporary) {
      this.#requestId = this.#subscribed = undefined;
      this.#timers.set(SUBSCRIBE, now + Math.max(refusal.retryAfterMs ?? 0, this.#timing.backoffBaseMs));
    }
  }

  /** Cache for 30 seconds what the server answered over HTTP. */
  noteQueried(views: Iterable<PresenceView>, now: number): void {
    for (const view of views) {
      this.#queried.delete(view.user_id);
      this.#queried.set(view.user_id, { view, until: now + QUERIED_MS_MAX });
    }
    for (const oldest of this.#queried.keys()) {
      if (this.#queried.size <= QUERIED_PEOPLE_MAX) break;
      this.#queried.delete(oldest);
    }
  }

  /** What is known without a request. */
  recall(userId: string, now: number): PresenceView | undefined {
    const known = this.#isCurrent ? this.#known.get(userId) : undefined;
    const queried = this.#queried.get(userId);
    return known ?? (queried && now < queried.until ? queried.view : undefined);
  }

  #note(view: PresenceView): boolean {
    const known = this.#known.get(view.user_id);
    const isSame = known?.status === view.status && known.last_seen === view.last_seen;
    if (!this.#wanted.has(view.user_id) || isSame) return false;
    this.#known.set(view.user_id, view);
    return true;
  }

  /** As many as the server allows: first those named, then members, of the last opened chat first. */
  #updateWanted(): void {
    const wanted = [...this.#named, ...[...this.#byChat.values()].reverse().flat()];
    const before = this.#wanted;
    this.#wanted = new Set([...new Set(wanted)].slice(0, PRESENCE_BATCH_MAX));
    // The presence of new people is unknown.
    if (!isWithin(this.#wanted, before)) this.#subscribed = undefined;
    this.#known = new Map([...this.#known].filter(([userId]) => this.#wanted.has(userId)));
  }
}

const isWithin = (some: ReadonlySet<string>, all: ReadonlySet<string>): boolean =>
  [...some].every((one) => all.has(one));

/**
 * Who types, in both directions.
 *
 * Others are shown until their lease expires, they stop, their message arrives or the connection ends.
 */
export class TypingSignals {
  readonly #timers: Timers;
  /** The chats in which others type. */
  readonly #shown = new Map<string, ChatModel>();
  /** The chats for which a start was sent, and no stop yet. */
  readonly #started = new Set<string>();
  #toSend: (TypingStart | TypingStop)[] = [];

  constructor(timers: Timers) {
    this.#timers = timers;
  }

  /** Another member types, or stopped. */
  receive(chat: ChatModel, { user_id: userId, expires_in_ms: expiresInMs }: Typing, now: number): void {
    if (expiresInMs <= 0) {
      this.end(chat, userId);
      return;
    }
    const until = now + Math.min(expiresInMs, TYPING_SHOWN_SECONDS * SECOND_MS);
    this.#timers.set(typingKey(chat, userId), until, () => this.end(chat, userId));
    if (!chat.typing.has(userId)) {
      chat.typing.add(userId);
      this.#shown.set(chat.chatId, chat);
      chat.notify("typing");
    }
  }

  /** A member stopped typing. */
  end(chat: ChatModel, userId: string): void {
    if (chat.typing.delete(userId)) {
      this.#timers.cancel(typingKey(chat, userId));
      if (chat.typing.size === 0) this.#shown.delete(chat.chatId);
      chat.notify("typing");
    }
  }

  endAll(chat: ChatModel): void {
    for (const userId of [...chat.typing]) this.end(chat, userId);
  }

  /** No stop will arrive on this connection, and unsent frames are outdated. */
  disconnected(): void {
    for (const chat of [...this.#shown.values()]) this.endAll(chat);
    this.#started.clear();
    this.#toSend = [];
  }

  /** Send that this person types, unless it was sent a moment ago. */
  start(chat: ChatModel, now: number): void {
    const { chatId, typingSentAt } = chat;
    if (typingSentAt === undefined || now - typingSentAt >= TYPING_EVERY_SECONDS * SECOND_MS) {
      chat.typingSentAt = now;
      this.#started.add(chatId);
      this.#toSend.push({ type: "typing_start", chat_id: chatId });
    }
  }

  /** Send that this person stopped, if a start was sent. */
  stop({ chatId }: ChatModel): void {
    if (this.#started.delete(chatId)) this.#toSend.push({ type: "typing_stop", chat_id: chatId });
  }

  /** The message itself ends typing. */
  messageSent(chatId: string): void {
    this.#started.delete(chatId);
  }

  framesToSend(): (TypingStart | TypingStop)[] {
    const frames = this.#toSend;
    this.#toSend = [];
    return frames;
  }
}

const typingKey = ({ chatId }: ChatModel, userId: string): string =>
  timerKey("typing", `${chatId} ${userId}`);
