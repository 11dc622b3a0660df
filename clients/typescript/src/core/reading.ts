/**
 * The other half of the core: what a client does besides sending. It reads logs, moves cursors, and follows open chats,
 * presence and typing. Pure.
 *
 * `ClientCore` sends without it: a page loads this half behind the first one, and attaches it (`attach`).
 */

import type {
  AckPosition,
  ChatChanged,
  ClientFrame,
  Entry,
  OverviewChat,
  PresenceView,
  ServerFrame,
} from "../contract.js";
import type { ChatModel } from "./chatModel.js";
import type { ClientCore, CoreInside } from "./core.js";
import { DeviceCursors, ReadMarks } from "./cursors.js";
import { permanent, type Refusal } from "./errors.js";
import { type ChatSnapshot, Roster, WATCHED_MEMBERS_MAX } from "./members.js";
import { PresenceWatch, TypingSignals } from "./presence.js";
import { type Slot, slotsOf } from "./slots.js";
import type { Cursor } from "./storage.js";
import { LogSync } from "./sync.js";
import { backoffMs, RateLimitPause, timerKey } from "./timing.js";

const CLOSED = permanent("bad_request", "the chat was closed before it was open");
const NOT_A_MEMBER = permanent("not_a_member", "you are not a member of this chat");
const loadKey = (chatId: string): string => timerKey("load", chatId);

export class ReadingCore {
  readonly #core: ClientCore;
  readonly #inside: CoreInside;
  readonly #open = new Map<string, ChatModel>();
  readonly #pause: RateLimitPause;
  readonly readMarks: ReadMarks;
  readonly cursors: DeviceCursors;
  readonly sync: LogSync;
  readonly presence: PresenceWatch;
  readonly typing: TypingSignals;

  constructor(core: ClientCore, inside: CoreInside) {
    const { timing, timers, nextId, chance, chats } = inside;
    this.#core = core;
    this.#inside = inside;
    this.#pause = new RateLimitPause("pages and acks", timing, timers);
    this.readMarks = new ReadMarks(timing, timers, nextId, chance);
    this.cursors = new DeviceCursors(timing, timers, this.#pause, nextId);
    this.sync = new LogSync(chats, this.cursors, core.overview, timing, timers, this.#pause, nextId, chance);
    this.presence = new PresenceWatch(timing, timers, nextId);
    this.typing = new TypingSignals(timers);
  }

  // Input from the application

  /** Returns the number of its "readMarkDone". */
  markRead(chatId: string, upTo: number | string): number {
    this.#inside.wake();
    return this.readMarks.add({ type: "read_receipt", chat_id: chatId, read_up_to: upTo });
  }

  /** The application reads this chat from now on. An entry that it did not process comes again. */
  read(chat: ChatModel): void {
    this.#inside.wake();
    this.sync.read(chat);
  }

  /** The application reads every chat from now on, including later ones. */
  readAll(): void {
    this.#inside.wake();
    this.sync.stopAll();
    this.sync.readAll();
  }

  /** The next entry of this chat. Taking it marks the previous one as processed. */
  take(chat: ChatModel, now: number): Entry | undefined {
    this.#inside.wake();
    return this.sync.take(chat, now);
  }

  /** The last taken entry of this chat is processed. */
  markProcessed(chat: ChatModel, now: number): void {
    this.#inside.wake();
    this.sync.markProcessed(chat, now);
  }

  /** The application stops reading this chat. */
  stop(chat: ChatModel): void {
    this.#inside.wake();
    this.sync.stop(chat);
  }

  /** Stop reading this chat. The next read starts at this cursor. */
  seek(chat: ChatModel, cursor: Cursor, now: number): void {
    this.#inside.wake();
    this.sync.stop(chat);
    this.cursors.move(chat.chatId, cursor, now);
  }

  /** Ask the server for the hash of what was read of this chat, to the end. `ChatModel.proof` then has it. */
  prove(chat: ChatModel): void {
    this.#inside.wake();
    this.sync.recheck(chat);
  }

  /** Load the chat's members and receipts, then keep them up to date. "chatOpened" follows the load. */
  open(chat: ChatModel): void {
    this.#inside.wake();
    if (!chat.roster) {
      chat.roster = new Roster();
      this.#open.set(chat.chatId, chat);
    }
    if (chat.isOpen) this.#inside.emit({ type: "chatOpened", chatId: chat.chatId });
  }

  /** Stop updating them. If the chat was still opening, its "chatOpened" carries this refusal. */
  close(chat: ChatModel, refusal: Refusal = CLOSED): void {
    this.#inside.wake();
    const { chatId } = chat;
    if (chat.roster && !chat.isOpen) this.#inside.emit({ type: "chatOpened", chatId, refusal });
    chat.roster = undefined;
    this.#open.delete(chatId);
    this.#inside.timers.cancel(loadKey(chatId));
    this.presence.watchChat(chatId, []);
  }

  /** What is shown of open chats may be out of date. */
  reloadOpenChats(): void {
    this.#inside.wake();
    for (const { roster } of this.#open.values()) {
      if (roster) roster.needsLoad = true;
    }
  }

  /** Send that this person types; without a connection it is lost. */
  startTyping(chat: ChatModel, now: number): void {
    this.#inside.wake();
    if (this.#core.online) this.typing.start(chat, now);
  }

  stopTyping(chat: ChatModel): void {
    this.#inside.wake();
    this.typing.stop(chat);
  }

  watchPresence(userIds: Iterable<string>): void {
    this.#inside.wake();
    this.presence.watch(userIds);
  }

  // Results of HTTP requests

  /** The result of "loadChat"; ignored if the chat was closed or reopened since. */
  chatLoaded(chat: ChatModel, snapshot: ChatSnapshot): void {
    this.#inside.wake();
    const roster = chat.loading;
    chat.loading = undefined;
    if (roster && roster === chat.roster) {
      roster.load(snapshot);
      if (chat.delivered) roster.receiveReceipt(chat.delivered);
      chat.notify("members");
      chat.notify("receipts");
      chat.notify("settings");
      this.#watchMembers(chat, roster);
      this.#inside.emit({ type: "chatOpened", chatId: chat.chatId });
    }
  }

  /** "loadChat" failed. A permanent refusal closes the chat; other failures are retried. */
  loadFailed(chat: ChatModel, refusal: Refusal | undefined, now: number): void {
    this.#inside.wake(now);
    const roster = chat.loading;
    chat.loading = undefined;
    if (!roster || roster !== chat.roster) return;
    if (refusal && !refusal.temporary) {
      this.close(chat, refusal);
      chat.notify("members");
      return;
    }
    const { timing, timers, chance } = this.#inside;
    const pauseMs = backoffMs(roster.failedLoads, timing, chance());
    roster.loadFailed();
    timers.set(loadKey(chat.chatId), now + pauseMs);
  }

  // From the first half, in its order

  connected(): void {
    this.sync.connected();
    this.presence.connected();
    this.reloadOpenChats();
  }

  disconnected(): void {
    this.#pause.end();
    this.cursors.disconnected();
    this.sync.disconnected();
    this.readMarks.disconnected();
    this.typing.disconnected();
    this.presence.disconnected();
  }

  /** A frame that the first half has seen. */
  receive(frame: ServerFrame, now: number, wall: number): void {
    const { userId } = this.#core;
    switch (frame.type) {
      case "message_batch": {
        const slots = slotsOf(frame.entries, frame.voids);
        const chat = this.#core.chat(frame.chat_id);
        this.sync.receivePage(chat, frame, slots, now, wall);
        chat.receivePage(frame, slots, userId);
        break;
      }
      case "typing":
        if (frame.user_id !== userId) this.typing.receive(this.#core.chat(frame.chat_id), frame, now);
        break;
      case "presence_state":
        this.#showPresence(this.presence.receiveState(frame));
        break;
      case "presence":
        this.#showPresence(this.presence.receiveChange(frame));
    }
  }

  /** What live entries change besides the log: who types, and open chats. */
  afterLive(chat: ChatModel, slots: readonly Slot[]): void {
    const entries = slots.map((slot) => slot.entry).filter((entry) => entry !== undefined);
    for (const entry of entries) this.typing.end(chat, entry.sender_id);
    const changes = entries.filter((entry) => entry.kind === "member" || entry.kind === "chat");
    if (!chat.roster || !changes.length) return;
    for (const entry of changes) {
      if (chat.roster.receiveEntry(entry)) chat.notify(entry.kind === "member" ? "members" : "settings");
    }
    if (chat.isOpen) this.#watchMembers(chat, chat.roster);
  }

  /** A row of the overview, which the chat's model has applied. */
  receiveRow(chat: ChatModel, row: OverviewChat): void {
    this.sync.receiveRow(chat, row);
  }

  joined(chat: ChatModel, { head = 0, epoch = 0 }: ChatChanged): void {
    this.sync.joined(chat, head, epoch);
  }

  /** The person left this chat or was removed. */
  left(chat: ChatModel): void {
    this.typing.endAll(chat);
    this.close(chat, NOT_A_MEMBER);
    this.sync.recheck(chat);
  }

  /** Returns whether this request was one of this half, and its refusal is dealt with. */
  refused(requestId: number, refusal: Refusal, now: number): boolean {
    const number = this.readMarks.refused(requestId, refusal, now);
    if (number !== undefined) {
      this.#inside.emit({ type: "readMarkDone", number, refusal });
      return true;
    }
    const chatId = this.cursors.refused(requestId, refusal, now);
    if (chatId !== undefined) {
      // "forbidden" is about the token, not the position.
      if (refusal.code !== "forbidden") this.sync.recheck(this.#core.chat(chatId));
      return true;
    }
    if (this.sync.refused(requestId, refusal, now)) return true;
    this.presence.refused(requestId, refusal, now);
    return false;
  }

  /** The receipts that the answer to a heartbeat confirms have taken effect. `isPlanned`: not one that follows receipts. */
  heartbeatAnswered(requestId: number, isPlanned: boolean): void {
    if (isPlanned) this.cursors.heartbeatAnswered();
    for (const { number, receipt } of this.readMarks.heartbeatAnswered(requestId)) {
      this.#inside.emit({ type: "readMarkDone", number });
      if (receipt) this.#core.personHasRead(receipt.chat_id, receipt.read_up_to);
    }
  }

  /** Before the messages. */
  firstFrames(now: number): ClientFrame[] {
    return [...this.sync.framesToSend(now), ...this.presence.framesToSend(), ...this.typing.framesToSend()];
  }

  /** Behind the messages; what open chats need is asked for over HTTP. */
  lastFrames(now: number, wall: number): ClientFrame[] {
    const acks: AckPosition[] = this.cursors.acks(now);
    for (const { chat_id: chatId, last_acked_sequence: upTo } of acks) {
      const chat = this.#core.chat(chatId);
      const at = new Date(wall).toISOString();
      // The server sends that only to others.
      chat.delivered = {
        type: "receipt",
        chat_id: chatId,
        user_id: this.#core.userId,
        kind: "delivered",
        up_to_sequence: upTo,
        at,
      };
      chat.receiveReceipt(chat.delivered);
    }
    for (const chat of this.#open.values()) {
      const { chatId, roster } = chat;
      if (roster?.needsLoad && !chat.loading && !this.#inside.timers.pending(loadKey(chatId))) {
        chat.loading = roster;
        roster.startLoad();
        this.#inside.emit({ type: "loadChat", chatId });
      }
    }
    return [...acks, ...this.readMarks.framesToSend()];
  }

  #watchMembers(chat: ChatModel, roster: Roster): void {
    const others = [...roster.members.keys()].filter((userId) => userId !== this.#core.userId);
    this.presence.watchChat(chat.chatId, others.length <= WATCHED_MEMBERS_MAX ? others : []);
    for (const userId of others) {
      const view = this.presence.get(userId);
      if (view) roster.receivePresence(view);
    }
  }

  #showPresence(views: readonly PresenceView[]): void {
    for (const view of views) {
      for (const { roster } of this.#open.values()) roster?.receivePresence(view);
      this.#inside.notify({ type: "update", what: "presence", userId: view.user_id });
    }
  }
}
