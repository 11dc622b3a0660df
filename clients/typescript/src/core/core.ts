/**
 * Everything a client decides, without IO. The shell feeds it frames and the time, then drains the results:
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
 * messages that it did not send, messages that another tab has queued (`adopt`) and cursors that another tab
 * has moved (`adoptCursors`). Two that send at once are waste: the server stores each message once.
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
  PresenceView,
  RefusedFrame,
  ServerFrame,
  Welcome,
} from "../contract.js";
import { HEARTBEAT_SECONDS } from "../limits.js";
import { ChatModel } from "./chatModel.js";
import { DeviceCursors, ReadMarks } from "./cursors.js";
import type { Refusal } from "./errors.js";
import type { ClientEvent, Update } from "./events.js";
import { type Slot, slotsOf } from "./inbox.js";
import { Journal } from "./journal.js";
import { type ChatSnapshot, Roster, WATCHED_MEMBERS_MAX } from "./members.js";
import { ackFor, ClientOutbox, checkSize } from "./outbox.js";
import { PresenceWatch, TypingSignals } from "./presence.js";
import {
  type Cursor,
  keyOf,
  type MessageKey,
  messageKey,
  type OutgoingMessage,
  type SavedState,
  type StateChanges,
} from "./storage.js";
import { LogSync, OverviewRounds } from "./sync.js";
import {
  backoffMs,
  defaultTiming,
  RateLimitPause,
  SECOND_MS,
  Timers,
  type Timing,
  timerKey,
} from "./timing.js";

const HEARTBEAT = timerKey("heartbeat");
const SILENCE = timerKey("silence");
const loadKey = (chatId: string): string => timerKey("load", chatId);

const permanent = (code: string, reason: string): Refusal => ({ code, reason, temporary: false });
const CLOSED = permanent("bad_request", "the chat was closed before it was open");
const NOT_A_MEMBER = permanent("not_a_member", "you are not a member of this chat");

export interface CoreOptions {
  readonly timing?: Partial<Timing>;
  /** Draws from 0 to 1, for jitter. */
  readonly chance: () => number;
  /** Whether what is queued must be saved before it is sent. */
  readonly durable: boolean;
  /** Schedules a drain. */
  readonly wake?: () => void;
}

export class ClientCore {
  readonly #timing: Timing;
  readonly #chance: () => number;
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
  readonly #open = new Map<string, ChatModel>();
  readonly #pageAndAckPause: RateLimitPause;
  readonly journal = new Journal();
  readonly outbox: ClientOutbox;
  readonly readMarks: ReadMarks;
  readonly cursors: DeviceCursors;
  readonly overview: OverviewRounds;
  readonly sync: LogSync;
  readonly presence: PresenceWatch;
  readonly typing: TypingSignals;
  readonly #nextId: () => number;

  constructor({ timing: given, chance, durable, wake = () => {} }: CoreOptions) {
    const timing: Timing = { ...defaultTiming, ...given };
    const timers = this.#timers;
    let lastId = 0;
    const nextId = (): number => ++lastId;
    const pause = new RateLimitPause("pages and acks", timing, timers);
    this.#timing = timing;
    this.#chance = chance;
    this.#isDurable = durable;
    this.#wake = wake;
    this.#nextId = nextId;
    this.#pageAndAckPause = pause;
    this.outbox = new ClientOutbox(timing, timers, nextId, chance, this.journal);
    this.readMarks = new ReadMarks(timing, timers, nextId, chance);
    this.cursors = new DeviceCursors(timing, timers, pause, nextId);
    this.overview = new OverviewRounds(timing, timers, nextId, () => this.#knownChats());
    this.sync = new LogSync(this.#chats, this.cursors, this.overview, timing, timers, pause, nextId, chance);
    this.presence = new PresenceWatch(timing, timers, nextId);
    this.typing = new TypingSignals(timers);
  }

  /** Start from what an earlier run left behind. */
  restore(saved: SavedState): void {
    this.cursors.restore(saved.cursors);
    for (const message of saved.outgoing) this.outbox.add(message, true);
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
    this.typing.messageSent(message.chatId);
    if (this.#isDurable) this.#added.push(message);
  }

  /** Returns the number of its "readMarkDone". */
  markRead(chatId: string, upTo: number | string): number {
    this.#wake();
    return this.readMarks.add({ type: "read_receipt", chat_id: chatId, read_up_to: upTo });
  }

  /** Request the overview. Returns its round: wait for this "overviewComplete" or a later one. */
  askOverview(): number {
    this.#wake();
    return this.overview.ask();
  }

  /** The application reads this chat from now on. An entry that it did not process comes again. */
  read(chat: ChatModel): void {
    this.#wake();
    this.sync.read(chat);
  }

  /** The application reads every chat from now on, including later ones. */
  readAll(): void {
    this.#wake();
    this.sync.stopAll();
    this.sync.readAll();
  }

  /** The next entry of this chat. Taking it marks the previous one as processed. */
  take(chat: ChatModel, now: number): Entry | undefined {
    this.#wake();
    return this.sync.take(chat, now);
  }

  /** The last taken entry of this chat is processed. */
  markProcessed(chat: ChatModel, now: number): void {
    this.#wake();
    this.sync.markProcessed(chat, now);
  }

  /** The application stops reading this chat. */
  stop(chat: ChatModel): void {
    this.#wake();
    this.sync.stop(chat);
  }

  /** Stop reading this chat. The next read starts at this cursor. */
  seek(chat: ChatModel, cursor: Cursor, now: number): void {
    this.#wake();
    this.sync.stop(chat);
    this.cursors.move(chat.chatId, cursor, now);
  }

  /** Ask the server for the hash of what was read of this chat, to the end. `ChatModel.proof` then has it. */
  prove(chat: ChatModel): void {
    this.#wake();
    this.sync.recheck(chat);
  }

  /** Load the chat's members and receipts, then keep them up to date. "chatOpened" follows the load. */
  open(chat: ChatModel): void {
    this.#wake();
    if (!chat.roster) {
      chat.roster = new Roster();
      this.#open.set(chat.chatId, chat);
    }
    if (chat.isOpen) this.#events.push({ type: "chatOpened", chatId: chat.chatId });
  }

  /** Stop updating them. If the chat was still opening, its "chatOpened" carries this refusal. */
  close(chat: ChatModel, refusal: Refusal = CLOSED): void {
    this.#wake();
    const { chatId } = chat;
    if (chat.roster && !chat.isOpen) this.#events.push({ type: "chatOpened", chatId, refusal });
    chat.roster = undefined;
    this.#open.delete(chatId);
    this.#timers.cancel(loadKey(chatId));
    this.presence.watchChat(chatId, []);
  }

  /** What is shown of open chats may be out of date. */
  reloadOpenChats(): void {
    this.#wake();
    for (const { roster } of this.#open.values()) {
      if (roster) roster.needsLoad = true;
    }
  }

  /** Send that this person types; without a connection it is lost. */
  startTyping(chat: ChatModel, now: number): void {
    this.#wake();
    if (this.online) this.typing.start(chat, now);
  }

  stopTyping(chat: ChatModel): void {
    this.#wake();
    this.typing.stop(chat);
  }

  /** Send whether somebody looks at this client; a connection begins as if somebody did. */
  look(isLooking: boolean): void {
    if (isLooking === this.#isLookedAt) return;
    this.#wake();
    this.#isLookedAt = isLooking;
    this.#isAttentionDue = true;
  }

  watchPresence(userIds: Iterable<string>): void {
    this.#wake();
    this.presence.watch(userIds);
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

  /** The result of "loadChat"; ignored if the chat was closed or reopened since. */
  chatLoaded(chat: ChatModel, snapshot: ChatSnapshot): void {
    this.#wake();
    const roster = chat.loading;
    chat.loading = undefined;
    if (roster && roster === chat.roster) {
      roster.load(snapshot);
      chat.loaded(roster);
      this.#watchMembers(chat, roster);
      this.#events.push({ type: "chatOpened", chatId: chat.chatId });
    }
  }

  /** "loadChat" failed. A permanent refusal closes the chat; other failures are retried. */
  loadFailed(chat: ChatModel, refusal: Refusal | undefined, now: number): void {
    this.#hear(now);
    const roster = chat.loading;
    chat.loading = undefined;
    if (!roster || roster !== chat.roster) return;
    if (refusal && !refusal.temporary) {
      this.close(chat, refusal);
      chat.notify("members");
      return;
    }
    const pauseMs = backoffMs(roster.failedLoads, this.#timing, this.#chance());
    roster.loadFailed();
    this.#timers.set(loadKey(chat.chatId), now + pauseMs);
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

  /** Another tab moved and saved these cursors: chats are read on from there. */
  adoptCursors(cursors: ReadonlyMap<string, Cursor>): void {
    this.#wake();
    for (const [chatId, cursor] of cursors) {
      if (this.cursors.adopt(chatId, cursor)) this.sync.cursorMoved(this.chat(chatId));
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
    this.sync.connected();
    this.presence.connected();
    this.reloadOpenChats();
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
    this.#pageAndAckPause.end();
    this.cursors.disconnected();
    this.sync.disconnected();
    this.readMarks.disconnected();
    this.typing.disconnected();
    this.presence.disconnected();
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
      case "message_batch": {
        this.#settleOwn(frame.entries, now);
        const slots = slotsOf(frame.entries, frame.voids);
        const chat = this.chat(frame.chat_id);
        this.sync.receivePage(chat, frame, slots, now, this.journal.wall);
        chat.receivePage(frame, slots, this.userId);
        break;
      }
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
          this.#personHasRead(frame.chat_id, frame.up_to_sequence);
        }
        this.chat(frame.chat_id).receiveReceipt(frame);
        break;
      case "typing":
        if (frame.user_id !== this.userId) this.typing.receive(this.chat(frame.chat_id), frame, now);
        break;
      case "presence_state":
        this.#showPresence(this.presence.receiveState(frame));
        break;
      case "presence":
        this.#showPresence(this.presence.receiveChange(frame));
        break;
      case "refused":
        this.#receiveRefusal(frame, now);
        break;
      // The handshake handles a welcome; a second one changes nothing.
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
      ...this.sync.framesToSend(now),
      ...this.#attention(),
      ...this.presence.framesToSend(),
      ...this.typing.framesToSend(),
      ...this.outbox.framesToSend(now, wall),
    ];
    for (const ack of this.cursors.acks(now)) {
      frames.push(ack);
      this.chat(ack.chat_id).delivered(ack.last_acked_sequence, this.userId, new Date(wall).toISOString());
    }
    frames.push(...this.readMarks.framesToSend());
    if (this.#isHeartbeatDue && this.#heartbeatId === undefined) frames.push(this.#heartbeat(now));
    for (const message of this.outbox.toCheck()) this.#events.push({ type: "check", message });
    for (const chat of this.#open.values()) {
      const { chatId, roster } = chat;
      if (roster?.needsLoad && !chat.loading && !this.#timers.pending(loadKey(chatId))) {
        chat.loading = roster;
        roster.startLoad();
        this.#events.push({ type: "loadChat", chatId });
      }
    }
    return frames;
  }

  #attention(): Attention[] {
    if (!this.#isAttentionDue) return [];
    this.#isAttentionDue = false;
    return [{ type: "attention", looking: this.#isLookedAt }];
  }

  /** The events since the last call, without equal updates. */
  events(): ClientEvent[] {
    const ready = this.sync.ready().map((chatId): ClientEvent => ({ type: "entries", chatId }));
    const events = [...this.#events, ...ready, ...this.#updates.values()];
    this.#events = [];
    this.#updates = new Map();
    return events;
  }

  /** What to make durable; pass it to `saved` afterwards. */
  toSave(): StateChanges {
    const added = this.#added;
    let removed: MessageKey[] = [];
    this.#added = [];
    if (added.length || this.cursors.isFlushDue) {
      // Resending a stored message is harmless: its removal from the store can wait for other changes.
      removed = this.#removed;
      this.#removed = [];
    }
    return { added, removed, cursors: this.cursors.toSave() };
  }

  saved({ added, cursors }: StateChanges): void {
    this.#wake();
    if (added.length) {
      const keys = added.map(keyOf);
      this.outbox.saved(keys);
      for (const key of keys) this.journal.note(key, { step: "kept" });
      this.#events.push({ type: "saved", keys });
    }
    this.cursors.saved(cursors);
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
    this.sync.receiveLive(chat, epoch, slots);
    if (!chat.receiveLive(epoch, slots, this.userId, this.overview.isCatchingUp)) this.#missedSomething(chat);
    const entries = slots.map((slot) => slot.entry).filter((entry) => entry !== undefined);
    // What was deleted may have been one of the unread.
    if (chat.unreadCount && entries.some((entry) => entry.kind === "delete")) this.overview.ask();
    for (const entry of entries) this.typing.end(chat, entry.sender_id);
    const changes = entries.filter((entry) => entry.kind === "member" || entry.kind === "chat");
    if (!chat.roster || !changes.length) return;
    for (const entry of changes) chat.receiveChange(entry);
    if (chat.isOpen) this.#watchMembers(chat, chat.roster);
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
      this.sync.receiveRow(chat, row);
    }
    if (frame.complete) {
      this.sync.overviewComplete();
      this.#events.push({ type: "overviewComplete", round: this.overview.round });
    }
  }

  #receiveHeartbeat({ re, heads }: HeartbeatAck): void {
    if (re !== undefined) {
      if (re === this.#heartbeatId) {
        this.#heartbeatEnded();
        this.cursors.heartbeatAnswered();
      }
      for (const { number, receipt } of this.readMarks.heartbeatAnswered(re)) {
        this.#events.push({ type: "readMarkDone", number });
        if (receipt) this.#personHasRead(receipt.chat_id, receipt.read_up_to);
      }
    }
    for (const [chatId, head] of Object.entries(heads ?? {})) {
      const chat = this.chat(chatId);
      this.sync.noteHead(chat, head);
      if (!chat.unread || chat.unread.isBehind(head)) this.#missedSomething(chat);
    }
  }

  /** An overview that is under way may be older than this change: request another one. */
  #receiveChatChanged(chat: ChatModel, frame: ChatChanged): void {
    if (frame.change === "left" && frame.user_id === this.userId) {
      this.#leave(chat);
    } else if (frame.change === "joined") {
      this.sync.joined(chat, frame.head ?? 0, frame.epoch ?? 0);
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
    const { code, reason, temporary, retry_after_ms: retryAfterMs } = frame;
    const refusal: Refusal = { code, reason, temporary, ...(retryAfterMs !== undefined && { retryAfterMs }) };
    const requestId = frame.re ?? 0;
    const key = this.outbox.refused(requestId, refusal, now);
    if (key !== undefined) {
      const isKept = this.outbox.isKept(key);
      if (!isKept) this.#forget(key, now);
      this.#events.push({ type: "refused", key, refusal, isKept });
      return;
    }
    const number = this.readMarks.refused(requestId, refusal, now);
    if (number !== undefined) {
      this.#events.push({ type: "readMarkDone", number, refusal });
      return;
    }
    const chatId = this.cursors.refused(requestId, refusal, now);
    if (chatId !== undefined) {
      // "forbidden" is about the token, not the position.
      if (code !== "forbidden") this.sync.recheck(this.chat(chatId));
    } else if (requestId === this.#heartbeatId) {
      this.#heartbeatEnded();
    } else if (
      !this.overview.refused(requestId, refusal, now) &&
      !this.sync.refused(requestId, refusal, now)
    ) {
      this.presence.refused(requestId, refusal, now);
      if (!temporary) this.#events.push({ type: "requestFailed", refusal });
    }
  }

  #heartbeat(now: number): Heartbeat {
    this.#isHeartbeatDue = false;
    this.#heartbeatId = this.#nextId();
    this.cursors.heartbeatSent();
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
    this.typing.endAll(chat);
    this.close(chat, NOT_A_MEMBER);
    this.sync.recheck(chat);
  }

  #missedSomething(chat: ChatModel): void {
    this.overview.ask();
    if (chat.roster) chat.roster.needsLoad = true;
  }

  /** The person has read up to here, on any device. */
  #personHasRead(chatId: string, upTo: number | string): void {
    if (!this.chat(chatId).read(upTo)) this.overview.ask();
  }

  #watchMembers(chat: ChatModel, roster: Roster): void {
    const others = [...roster.members.keys()].filter((userId) => userId !== this.userId);
    this.presence.watchChat(chat.chatId, others.length <= WATCHED_MEMBERS_MAX ? others : []);
    for (const userId of others) {
      const view = this.presence.get(userId);
      if (view) roster.receivePresence(view);
    }
  }

  #showPresence(views: readonly PresenceView[]): void {
    for (const view of views) {
      for (const { roster } of this.#open.values()) roster?.receivePresence(view);
      this.#notify({ type: "update", what: "presence", userId: view.user_id });
    }
  }

  #forget(key: MessageKey, now: number): void {
    if (this.#isDurable) {
      this.#removed.push(key);
      this.cursors.flushSoon(now);
    }
  }

  #notify(update: Update): void {
    this.#updates.set(`${update.what} ${update.chatId} ${update.userId}`, update);
  }
}
