/**
 * Everything a client decides, without IO: here what it needs to send, in `ReadingCore` the rest. The shell feeds it
 * frames and the time, then drains the results:
 *
 *     core.receive(frame, now)              a frame from the server
 *     core.tick(now)                        run what is due
 *     core.framesToSend(now, wall)          frames for the server
 *     core.toSave() … core.saved(…)         what must be durable before it continues
 *     core.events()                         events for the application and the shell
 *
 * Every input calls `wake`, so that the shell drains it soon: `wake` must only schedule that. `now` only rises;
 * `wall` is the time of day; both are milliseconds. A `ChatModel` holds the state of one chat.
 *
 * Several tabs of a device have a core each, and one of them the connection. A core therefore takes acks of
 * messages that it did not send, and messages that another tab has queued (`adopt`). Two that send at once are
 * waste: the server stores each message once.
 */

import type {
  Ack,
  Attention,
  ChatChanged,
  ClientFrame,
  Entry,
  Heartbeat,
  HeartbeatAck,
  Overview,
  OverviewChat,
  RefusedFrame,
  ServerFrame,
  Welcome,
} from "../contract.js";
import { HEARTBEAT_SECONDS } from "../limits.js";
import { ChatModel, makeRow } from "./chatModel.js";
import { type Refusal, refusalOf } from "./errors.js";
import type { ClientEvent, Update } from "./events.js";
import { Journal } from "./journal.js";
import { ackFor, ClientOutbox, checkSize } from "./outbox.js";
import { OverviewRounds } from "./overview.js";
import type { ReadingCore } from "./reading.js";
import { type Slot, slotsOf } from "./slots.js";
import {
  type Cursor,
  keyOf,
  type MessageKey,
  messageKey,
  type OutgoingMessage,
  type SavedState,
  type StateChanges,
} from "./storage.js";
import { defaultTiming, SECOND_MS, Timers, type Timing, timerKey } from "./timing.js";

const HEARTBEAT = timerKey("heartbeat");
const SILENCE = timerKey("silence");
export interface CoreOptions {
  readonly timing?: Partial<Timing>;
  /** Draws from 0 to 1, for jitter. */
  readonly chance: () => number;
  /** Whether what is queued must be saved before it is sent. */
  readonly durable: boolean;
  /** Schedules a drain. */
  readonly wake?: () => void;
}

/** What the two halves of a core share. */
export interface CoreInside {
  readonly timing: Timing;
  readonly timers: Timers;
  readonly chats: ReadonlyMap<string, ChatModel>;
  readonly chance: () => number;
  readonly nextId: () => number;
  /** Something arrived: what follows from it is drained soon. */
  wake(now?: number): void;
  emit(event: ClientEvent): void;
  notify(update: Update): void;
}

export class ClientCore {
  readonly #timing: Timing;
  readonly #isDurable: boolean;
  readonly #wake: () => void;
  readonly #timers = new Timers();
  userId = "";
  online = false;
  /** Whether a heartbeat was not answered in time: the connection must be replaced. */
  silent = false;
  #heartbeatMs = HEARTBEAT_SECONDS * SECOND_MS;
  #heartbeatId: number | undefined;
  #isHeartbeatDue = false;
  #isLookedAt = true;
  #isAttentionDue = false;
  #isProbing = false;
  /** What to add to `now` for the time of day; unknown until the first drain. */
  #wallOffset: number | undefined;
  #events: ClientEvent[] = [];
  #updates = new Map<string, Update>();
  #added: OutgoingMessage[] = [];
  #removed: MessageKey[] = [];
  readonly #chats = new Map<string, ChatModel>();
  readonly journal = new Journal();
  readonly outbox: ClientOutbox;
  readonly overview: OverviewRounds;
  readonly #inside: CoreInside;
  #cursors: ReadonlyMap<string, Cursor> = new Map();
  /** The other half; undefined until it is attached. */
  reading: ReadingCore | undefined;
  readonly #nextId: () => number;

  constructor({ timing: given, chance, durable, wake = () => {} }: CoreOptions) {
    const timing: Timing = { ...defaultTiming, ...given };
    const timers = this.#timers;
    let lastId = 0;
    const nextId = (): number => ++lastId;
    this.#timing = timing;
    this.#isDurable = durable;
    this.#wake = wake;
    this.#nextId = nextId;
    this.outbox = new ClientOutbox(timing, timers, nextId, chance, this.journal);
    this.overview = new OverviewRounds(timing, timers, nextId, () => this.#knownChats());
    this.#inside = {
      timing,
      timers,
      chance,
      nextId,
      chats: this.#chats,
      wake: (now) => (now === undefined ? wake() : this.#hear(now)),
      emit: (event) => this.#events.push(event),
      notify: (update) => this.#notify(update),
    };
  }

  /** Start from what an earlier run left behind. */
  restore(saved: SavedState): void {
    this.#cursors = saved.cursors;
    this.reading?.cursors.restore(saved.cursors);
    for (const message of saved.outgoing) this.outbox.add(message, true);
  }

  /** Go on as a whole: the other half begins with the cursors of `restore`. */
  attach(Reading: typeof ReadingCore): ReadingCore {
    this.#wake();
    this.reading = new Reading(this, this.#inside);
    this.reading.cursors.restore(this.#cursors);
    return this.reading;
  }

  // What the application sees

  /** The model of a chat; the same object for as long as this client lives. */
  chat(chatId: string): ChatModel {
    let chat = this.#chats.get(chatId);
    if (!chat) {
      chat = new ChatModel(chatId, (update) => this.#notify(update));
      this.#chats.set(chatId, chat);
    }
    return chat;
  }

  /** Every chat of the person, as in the overview. */
  rows(): Map<string, OverviewChat> {
    const rows = new Map<string, OverviewChat>();
    for (const [chatId, { row }] of this.#chats) {
      if (row) rows.set(chatId, row);
    }
    return rows;
  }

  // Input from the application

  /** Queue a message. OutboxFull if there is no room, RequestRefused if every server would refuse it. */
  send(message: OutgoingMessage): void {
    this.#wake();
    checkSize(message);
    this.outbox.add(message, !this.#isDurable);
    this.reading?.typing.messageSent(message.chatId);
    if (this.#isDurable) this.#added.push(message);
  }

  /** Request the overview. Returns its round: wait for this "overviewComplete" or a later one. */
  askOverview(): number {
    this.#wake();
    return this.overview.ask();
  }

  /** Send whether somebody looks at this client; a connection begins as if somebody did. */
  look(isLooking: boolean): void {
    if (isLooking === this.#isLookedAt) return;
    this.#wake();
    this.#isLookedAt = isLooking;
    this.#isAttentionDue = true;
  }

  /** The page woke up: find out soon whether the connection still carries anything. */
  probe(now: number): void {
    this.#wake();
    this.#isProbing = this.#isHeartbeatDue = true;
    if (this.#heartbeatId !== undefined) this.#watchSilence(now);
  }

  // Results of HTTP requests

  /** A message is acknowledged, or was found in the log; also one that another tab sent. */
  messageStored(key: MessageKey, ack: Ack, now: number): void {
    this.#hear(now);
    if (this.outbox.acknowledged(key, now)) {
      this.journal.note(key, { step: "stored", ack });
      this.#forget(key, now);
      this.#events.push({ type: "stored", key, ack });
      this.#notify({ type: "update", what: "receipts", chatId: ack.chat_id });
    }
  }

  /** The result of "check": the message may be sent. */
  messageNotStored(key: MessageKey, wall: number): void {
    this.#wake();
    this.outbox.notStored(key, wall);
  }

  /** "check" failed. */
  checkFailed(key: MessageKey, now: number): void {
    this.#hear(now);
    this.outbox.checkFailed(key, now);
  }

  // Other tabs of this device

  /** Rows of the store's outbox, in its order, whichever tab wrote them; all of them, or those that are new. */
  adopt(messages: readonly OutgoingMessage[]): void {
    this.#wake();
    this.outbox.adopt(messages);
  }

  /** The tab with the connection was refused a message for good. */
  messageRefused(key: MessageKey, refusal: Refusal, now: number): void {
    this.#hear(now);
    const isKept = refusal.code === "store_damaged";
    if (this.outbox.refusedElsewhere(key, isKept, now)) {
      this.#events.push({ type: "refused", key, refusal, isKept });
    }
  }

  // The connection

  connected(welcome: Welcome, now: number): void {
    this.#hear(now);
    this.online = true;
    this.silent = this.#isProbing = false;
    this.userId = welcome.user_id;
    this.#heartbeatMs = Math.max(1, welcome.heartbeat_seconds) * SECOND_MS;
    this.#planHeartbeat(now);
    this.#notify({ type: "update", what: "connection" });
    this.overview.connected();
    this.reading?.connected();
  }

  disconnected(): void {
    this.#wake();
    this.online = this.#isHeartbeatDue = false;
    this.#isAttentionDue = !this.#isLookedAt;
    this.#heartbeatId = undefined;
    this.#timers.cancel(HEARTBEAT);
    this.#timers.cancel(SILENCE);
    this.#notify({ type: "update", what: "connection" });
    this.overview.disconnected();
    this.outbox.disconnected();
    this.reading?.disconnected();
  }

  /** A frame of the server. One of an unknown type is ignored. */
  receive(frame: ServerFrame, now: number): void {
    this.#hear(now);
    switch (frame.type) {
      case "ack":
        this.messageStored(messageKey(frame.chat_id, frame.client_message_id), frame, now);
        break;
      case "messages": {
        this.#settleOwn(frame.entries, now);
        const slots = slotsOf(frame.entries, frame.voids);
        if (slots.length) this.#receiveLive(this.chat(frame.chat_id), frame.epoch, slots);
        break;
      }
      case "message_batch":
        this.#settleOwn(frame.entries, now);
        this.reading?.receive(frame, now, this.journal.wall);
        break;
      case "overview":
        this.#receiveOverview(frame);
        break;
      case "heartbeat_ack":
        this.#receiveHeartbeat(frame);
        break;
      case "chat_changed":
        this.#receiveChatChanged(this.chat(frame.chat_id), frame);
        break;
      case "invitation":
      case "invitation_ended":
        this.#notify({ type: "update", what: "invitations", chatId: frame.chat_id });
        break;
      case "receipt":
        if (frame.user_id === this.userId && frame.kind === "read") {
          this.personHasRead(frame.chat_id, frame.up_to_sequence);
        }
        this.chat(frame.chat_id).receiveReceipt(frame);
        break;
      case "refused":
        this.#receiveRefusal(frame, now);
        break;
      default:
        // The handshake handles a welcome; a second one changes nothing.
        this.reading?.receive(frame, now, this.journal.wall);
    }
  }

  /** Do everything that is due. */
  tick(now: number): void {
    this.#noteTime(now);
    this.#timers.runDue(now);
  }

  /** When `tick` has something to do. */
  nextWake(): number | undefined {
    return this.#timers.next();
  }

  // Output

  /** The frames to send now, each once. The heartbeat is last: its answer confirms the others. */
  framesToSend(now: number, wall: number): ClientFrame[] {
    this.#wallOffset = wall - now;
    this.journal.wall = wall;
    if (!this.online) return [];
    const frames: ClientFrame[] = [
      ...this.overview.framesToSend(now),
      ...this.#attention(),
      ...(this.reading?.firstFrames(now) ?? []),
      ...this.outbox.framesToSend(now, wall),
    ];
    for (const message of this.outbox.toCheck()) this.#events.push({ type: "check", message });
    frames.push(...(this.reading?.lastFrames(now, wall) ?? []));
    if (this.#isHeartbeatDue && this.#heartbeatId === undefined) frames.push(this.#heartbeat(now));
    return frames;
  }

  #attention(): Attention[] {
    if (!this.#isAttentionDue) return [];
    this.#isAttentionDue = false;
    return [{ type: "attention", looking: this.#isLookedAt }];
  }

  /** The events since the last call, without equal updates. */
  events(): ClientEvent[] {
    for (const chatId of this.reading?.sync.ready() ?? []) this.#events.push({ type: "entries", chatId });
    const events = [...this.#events, ...this.#updates.values()];
    this.#events = [];
    this.#updates = new Map();
    return events;
  }

  /** What to make durable; pass it to `saved` afterwards. */
  toSave(): StateChanges {
    const added = this.#added;
    let removed: MessageKey[] = [];
    this.#added = [];
    const cursors = this.reading?.cursors;
    if (added.length || cursors?.isFlushDue) {
      // Resending a stored message is harmless: its removal from the store can wait for other changes.
      removed = this.#removed;
      this.#removed = [];
    }
    return { added, removed, cursors: cursors?.toSave() ?? new Map() };
  }

  saved({ added, cursors }: StateChanges): void {
    this.#wake();
    if (added.length) {
      const keys = added.map(keyOf);
      this.outbox.saved(keys);
      for (const key of keys) this.journal.note(key, { step: "kept" });
      this.#events.push({ type: "saved", keys });
    }
    this.reading?.cursors.saved(cursors);
  }

  // Frames

  #hear(now: number): void {
    this.#wake();
    this.#noteTime(now);
  }

  #noteTime(now: number): void {
    if (this.#wallOffset !== undefined) this.journal.wall = now + this.#wallOffset;
  }

  /** This person's own unacknowledged message counts as its ack. Other kinds are done only when answered. */
  #settleOwn(entries: readonly Entry[], now: number): void {
    if (this.outbox.size === 0) return;
    for (const entry of entries) {
      const { chat_id: chatId, client_message_id: clientMessageId } = entry;
      if (clientMessageId !== null && entry.kind === "message" && entry.sender_id === this.userId) {
        const ack = ackFor(chatId, clientMessageId, entry);
        this.messageStored(messageKey(chatId, clientMessageId), ack, now);
      }
    }
  }

  #receiveLive(chat: ChatModel, epoch: number, slots: readonly Slot[]): void {
    chat.reaches(slots.at(-1)?.sequence ?? 0);
    this.reading?.sync.receiveLive(chat, epoch, slots);
    if (!chat.receiveLive(epoch, slots, this.userId, this.overview.isCatchingUp)) this.#missedSomething(chat);
    // What was deleted may have been one of the unread.
    if (chat.unreadCount && slots.some(({ entry }) => entry?.kind === "delete")) this.overview.ask();
    this.reading?.afterLive(chat, slots);
  }

  #receiveOverview(frame: Overview): void {
    const rows = this.overview.receive(frame);
    if (!rows) return;
    for (const row of rows) {
      const chat = this.chat(row.chat_id);
      if (row.left) {
        this.#leave(chat);
        continue;
      }
      if (!chat.place(row)) this.overview.ask();
      this.reading?.receiveRow(chat, row);
    }
    if (frame.complete) {
      this.reading?.sync.overviewComplete();
      this.#events.push({ type: "overviewComplete", round: this.overview.round });
    }
  }

  #receiveHeartbeat({ re, heads }: HeartbeatAck): void {
    if (re !== undefined) {
      const isPlanned = re === this.#heartbeatId;
      if (isPlanned) this.#heartbeatEnded();
      this.reading?.heartbeatAnswered(re, isPlanned);
    }
    for (const [chatId, head] of Object.entries(heads ?? {})) {
      const chat = this.chat(chatId);
      chat.reaches(head);
      this.reading?.sync.noteHead(chat, head);
      if (!chat.unread || chat.unread.isBehind(head)) this.#missedSomething(chat);
    }
  }

  /** An overview that is under way may be older than this change: request another one. */
  #receiveChatChanged(chat: ChatModel, frame: ChatChanged): void {
    if (frame.change === "left" && frame.user_id === this.userId) {
      this.#leave(chat);
    } else if (frame.change === "joined") {
      chat.row ??= makeRow(chat.chatId, frame.epoch, frame.head);
      chat.reaches(frame.head ?? 0);
      this.reading?.joined(chat, frame);
    } else if (!chat.unread) {
      // The overview has yet to list it.
    } else if (frame.muted_until !== undefined) {
      chat.mute(frame.muted_until);
    } else {
      return;
    }
    this.overview.ask();
  }

  #receiveRefusal(frame: RefusedFrame, now: number): void {
    const refusal = refusalOf(frame);
    const requestId = frame.re ?? 0;
    const key = this.outbox.refused(requestId, refusal, now);
    if (key !== undefined) {
      const isKept = this.outbox.isKept(key);
      if (!isKept) this.#forget(key, now);
      this.#events.push({ type: "refused", key, refusal, isKept });
      return;
    }
    if (requestId === this.#heartbeatId) this.#heartbeatEnded();
    else if (
      !this.overview.refused(requestId, refusal, now) &&
      !this.reading?.refused(requestId, refusal, now) &&
      !refusal.temporary
    ) {
      this.#events.push({ type: "requestFailed", refusal });
    }
  }

  #heartbeat(now: number): Heartbeat {
    this.#isHeartbeatDue = false;
    this.#heartbeatId = this.#nextId();
    this.reading?.cursors.heartbeatSent();
    this.#watchSilence(now);
    this.#planHeartbeat(now);
    return { type: "heartbeat", id: this.#heartbeatId };
  }

  #planHeartbeat(now: number): void {
    const isDue = (): void => {
      this.#isHeartbeatDue = true;
    };
    this.#timers.set(HEARTBEAT, now + this.#heartbeatMs, isDue);
  }

  #watchSilence(now: number): void {
    const isSilent = (): void => {
      this.silent = true;
    };
    const { ackMs, answerMs } = this.#timing;
    this.#timers.set(SILENCE, now + (this.#isProbing ? ackMs : answerMs), isSilent);
  }

  #heartbeatEnded(): void {
    this.#heartbeatId = undefined;
    this.#isProbing = false;
    this.#timers.cancel(SILENCE);
  }

  // Chats

  *#knownChats(): Generator<string> {
    for (const [chatId, { row, unread }] of this.#chats) {
      if (row || unread) yield chatId;
    }
  }

  /** The person left this chat or was removed. */
  #leave(chat: ChatModel): void {
    chat.leave();
    this.reading?.left(chat);
  }

  #missedSomething(chat: ChatModel): void {
    this.overview.ask();
    if (chat.roster) chat.roster.needsLoad = true;
  }

  /** The person has read up to here, on any device. */
  personHasRead(chatId: string, upTo: number | string): void {
    if (!this.chat(chatId).read(upTo)) this.overview.ask();
  }

  #forget(key: MessageKey, now: number): void {
    if (this.#isDurable) {
      this.#removed.push(key);
      this.reading?.cursors.flushSoon(now);
    }
  }

  #notify(update: Update): void {
    this.#updates.set(`${update.what} ${update.chatId} ${update.userId}`, update);
  }
}
