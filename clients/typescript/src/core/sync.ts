/**
 * How a client reads logs and stays up to date, page by page. Pure.
 *
 * `LogSync` reads the logs of the chats that the application reads: it passes frames to their inboxes and requests
 * missing pages, few at a time. Which chats changed is known from the overview.
 */

import type { Entry, MessageBatch, OverviewChat, SyncRequest } from "../contract.js";
import { HASHES_STORED_EVERY } from "../limits.js";
import { type ChatModel, makeRow } from "./chatModel.js";
import type { DeviceCursors } from "./cursors.js";
import type { Refusal } from "./errors.js";
import { Budget, Inbox } from "./inbox.js";
import type { OverviewRounds } from "./overview.js";
import type { Slot } from "./slots.js";
import { cursorAt } from "./storage.js";
import { backoffMs, type RateLimitPause, type Timers, type Timing, timerKey } from "./timing.js";

const ALL_BYTES_MAX = 16 * 1024 * 1024;
const ALL_ENTRIES_MAX = 20_000;
const SYNCS_IN_FLIGHT_MAX = 8;
/** A multiple of HASHES_STORED_EVERY: pages that end there cost the server least. */
const PAGE_ENTRIES = 500;

/**
 * A chat is read when the application iterates it, or all of them.
 *
 * Such a chat has an inbox. It wants a page, is blocked for lack of room, waits for an answer, or pauses until
 * its timer fires. Of other chats only the head is known.
 */
export class LogSync {
  readonly #chats: ReadonlyMap<string, ChatModel>;
  readonly #cursors: DeviceCursors;
  readonly #overview: OverviewRounds;
  readonly #timing: Timing;
  readonly #timers: Timers;
  readonly #pause: RateLimitPause;
  readonly #nextId: () => number;
  readonly #chance: () => number;
  #readsAll = false;
  readonly #sharedBudget = new Budget(ALL_BYTES_MAX, ALL_ENTRIES_MAX);
  /** The chats with an inbox. */
  readonly #reading = new Map<string, ChatModel>();
  /** Chats to read once the overview gives this device's cursor. */
  readonly #unplaced = new Map<string, ChatModel>();
  /** Epoch and sequence that chats without an inbox reached live: an overview may be older. */
  readonly #liveHeads = new Map<string, readonly [epoch: number, head: number]>();
  readonly #wanting = new Map<string, ChatModel>();
  readonly #blocked = new Map<Budget, Map<string, ChatModel>>();
  readonly #inFlight = new Map<number, ChatModel>();
  readonly #ready = new Set<string>();

  constructor(
    chats: ReadonlyMap<string, ChatModel>,
    cursors: DeviceCursors,
    overview: OverviewRounds,
    timing: Timing,
    timers: Timers,
    pause: RateLimitPause,
    nextId: () => number,
    chance: () => number,
  ) {
    this.#chats = chats;
    this.#cursors = cursors;
    this.#overview = overview;
    this.#timing = timing;
    this.#timers = timers;
    this.#pause = pause;
    this.#nextId = nextId;
    this.#chance = chance;
  }

  // Input from the application

  /** The application reads this chat from now on. An entry that it did not process comes again. */
  read(chat: ChatModel): void {
    const { inbox } = chat;
    if (inbox && !inbox.failure && inbox.budget !== this.#sharedBudget) {
      inbox.putBack();
      return;
    }
    this.stop(chat);
    this.#unplaced.set(chat.chatId, chat);
    this.#start(chat, new Budget());
  }

  /** The application reads every chat from now on, including later ones. */
  readAll(): void {
    this.#readsAll = true;
    for (const chat of this.#chats.values()) {
      if (chat.row) this.#follow(chat);
    }
  }

  /** The application stops reading this chat. */
  stop(chat: ChatModel): void {
    const { chatId, inbox } = chat;
    chat.inbox = undefined;
    this.#unplaced.delete(chatId);
    this.#reading.delete(chatId);
    this.#wanting.delete(chatId);
    this.#ready.delete(chatId);
    this.#timers.cancel(timerKey("sync", chatId));
    if (inbox) {
      this.#blocked.get(inbox.budget)?.delete(chatId);
      this.#inFlight.delete(inbox.requestId ?? 0);
      inbox.clear();
    }
  }

  stopAll(): void {
    this.#readsAll = false;
    for (const chat of [...this.#reading.values()]) {
      if (chat.inbox?.budget === this.#sharedBudget) this.stop(chat);
    }
  }

  /** The next entry of this chat. Taking it marks the previous one as processed. */
  take(chat: ChatModel, now: number): Entry | undefined {
    if (!chat.inbox) return undefined;
    const entry = chat.inbox.take();
    this.#consider(chat);
    this.#cursors.move(chat.chatId, chat.inbox.processed, now);
    return entry;
  }

  /** The last taken entry of this chat is processed. */
  markProcessed(chat: ChatModel, now: number): void {
    if (chat.inbox) {
      chat.inbox.markProcessed();
      this.#cursors.move(chat.chatId, chat.inbox.processed, now);
    }
  }

  /** The chats that have new entries to take, or whose reading has ended. */
  ready(): string[] {
    const chatIds = [...this.#ready];
    this.#ready.clear();
    return chatIds;
  }

  // Input from the server

  connected(): void {
    this.#liveHeads.clear();
    for (const chat of this.#reading.values()) {
      chat.inbox?.connected();
      this.#consider(chat);
    }
  }

  /** No page will arrive; the next connection may send requests at once. */
  disconnected(): void {
    this.#inFlight.clear();
    for (const [chatId, { inbox }] of this.#reading) {
      if (inbox) {
        inbox.requestId = undefined;
        inbox.failedRequests = 0;
      }
      this.#timers.cancel(timerKey("sync", chatId));
    }
  }

  /** A row of the overview, which the chat's model has applied. */
  receiveRow(chat: ChatModel, row: OverviewChat): void {
    if (this.#readsAll) this.#follow(chat);
    this.noteHead(chat, row.head, row.epoch);
  }

  /** Read chats that are not in the overview from their start. */
  overviewComplete(): void {
    for (const chat of [...this.#unplaced.values()]) this.#start(chat, new Budget());
  }

  joined(chat: ChatModel, head: number, epoch: number): void {
    this.#cursors.ackAgain(chat.chatId);
    chat.row ??= makeRow(chat.chatId, epoch, head);
    if (head) this.noteHead(chat, head, epoch || undefined);
    if (this.#readsAll) this.#follow(chat);
  }

  /** The log reaches at least to `head`. */
  noteHead(chat: ChatModel, head: number, epoch?: number): void {
    chat.reaches(head);
    if (chat.inbox) {
      chat.inbox.noteHead(head, epoch);
      this.#consider(chat);
    }
  }

  /** Something contradicts this chat's position: request a page of the log. */
  recheck(chat: ChatModel): void {
    if (chat.inbox) {
      chat.inbox.isUnverified = true;
      this.#consider(chat);
    }
  }

  receiveLive(chat: ChatModel, epoch: number, slots: readonly Slot[]): void {
    const head = slots.at(-1)?.sequence ?? 0;
    chat.reaches(head);
    if (chat.inbox) {
      chat.inbox.receiveLive(epoch, slots);
      this.#afterArrival(chat, chat.inbox);
    } else {
      this.#liveHeads.set(chat.chatId, [epoch, head]);
    }
  }

  receivePage(chat: ChatModel, batch: MessageBatch, slots: readonly Slot[], now: number, wall: number): void {
    const { inbox } = chat;
    if (inbox?.requestId === undefined || inbox.requestId !== batch.re) return;
    this.#answered(inbox);
    const isNews = inbox.receivePage(batch, slots, wall);
    if (inbox.difference) {
      chat.logDifference = inbox.difference;
      chat.notify("log");
      inbox.difference = undefined;
    }
    if (inbox.restarts) this.#cursors.move(chat.chatId, inbox.processed, now);
    if (isNews || !inbox.wantsSync) {
      inbox.failedRequests = 0;
      this.#afterArrival(chat, inbox);
    } else {
      this.#retryLater(chat, inbox, 0, now);
    }
  }

  /** Returns whether this request was for a page. A permanent refusal ends the reading of its chat. */
  refused(requestId: number, refusal: Refusal, now: number): boolean {
    const chat = this.#inFlight.get(requestId);
    if (!chat?.inbox) return false;
    this.#answered(chat.inbox);
    if (refusal.temporary) {
      this.#pause.refused(refusal, now);
      this.#retryLater(chat, chat.inbox, refusal.retryAfterMs ?? 0, now);
    } else {
      chat.inbox.failure = refusal;
      this.#ready.add(chat.chatId);
    }
    return true;
  }

  // Pages

  /** The pages to request now. */
  framesToSend(now: number): SyncRequest[] {
    if (this.#pause.isOn) return [];
    for (const [budget, chats] of this.#blocked) {
      if (budget.isFull) continue;
      this.#blocked.delete(budget);
      for (const chat of chats.values()) this.#consider(chat);
    }
    const requests: SyncRequest[] = [];
    while (this.#inFlight.size < SYNCS_IN_FLIGHT_MAX) {
      const [chat] = this.#wanting.values();
      if (!chat) break;
      const { chatId, inbox } = chat;
      this.#wanting.delete(chatId);
      if (!inbox?.wantsSync) continue;
      if (!inbox.hasRoom) {
        const blocked = this.#blocked.get(inbox.budget) ?? new Map<string, ChatModel>();
        this.#blocked.set(inbox.budget, blocked.set(chatId, chat));
        continue;
      }
      const id = this.#nextId();
      requests.push(inbox.syncRequest(id, PAGE_ENTRIES - (inbox.resolved % HASHES_STORED_EVERY)));
      this.#inFlight.set(id, chat);
      this.#setTimer(chat, now + this.#timing.answerMs);
    }
    return requests;
  }

  /** Check whether this chat wants a page. */
  #consider(chat: ChatModel): void {
    const { chatId, inbox } = chat;
    if (!inbox || inbox.requestId !== undefined || !inbox.wantsSync) return;
    if (!this.#timers.pending(timerKey("sync", chatId))) this.#wanting.set(chatId, chat);
  }

  #afterArrival(chat: ChatModel, inbox: Inbox): void {
    if (inbox.hasReady) this.#ready.add(chat.chatId);
    this.#consider(chat);
  }

  #answered(inbox: Inbox): void {
    this.#inFlight.delete(inbox.requestId ?? 0);
    inbox.requestId = undefined;
    this.#timers.cancel(timerKey("sync", inbox.chatId));
  }

  /** The last answer brought no progress: pause, longer each time. */
  #retryLater(chat: ChatModel, inbox: Inbox, atLeastMs: number, now: number): void {
    const delayMs = backoffMs(inbox.failedRequests, this.#timing, this.#chance());
    inbox.failedRequests += 1;
    this.#setTimer(chat, now + Math.max(atLeastMs, delayMs));
  }

  /** The answer did not arrive in time, or the pause is over. */
  #setTimer(chat: ChatModel, at: number): void {
    this.#timers.set(timerKey("sync", chat.chatId), at, () => {
      if (chat.inbox) {
        this.#answered(chat.inbox);
        this.#consider(chat);
      }
    });
  }

  // Inboxes

  /** Read this chat as one of all chats. */
  #follow(chat: ChatModel): void {
    const { inbox } = chat;
    if (!inbox) {
      if (!this.#unplaced.has(chat.chatId)) this.#start(chat, this.#sharedBudget);
    } else if (inbox.failure && inbox.budget === this.#sharedBudget) {
      // The person left the chat and joined again before the application noticed.
      inbox.failure = undefined;
      this.recheck(chat);
    }
  }

  /** Start at this device's cursor: the saved one, or else the server's, once the overview has it. */
  #start(chat: ChatModel, budget: Budget): void {
    const { chatId, row } = chat;
    let cursor = this.#cursors.get(chatId);
    if (!cursor && row) cursor = cursorAt(row.epoch, row.last_acked_sequence);
    if (!cursor && this.#overview.isCatchingUp) return;
    this.#unplaced.delete(chatId);
    this.#reading.set(chatId, chat);
    const inbox = new Inbox(chatId, cursor ?? cursorAt(), budget);
    chat.inbox = inbox;
    if (budget === this.#sharedBudget && row && inbox.processed.sequence === row.head)
      inbox.verify(row.epoch);
    const live = this.#liveHeads.get(chatId);
    if (live) {
      this.#liveHeads.delete(chatId);
      inbox.noteHead(live[1], live[0]);
    }
    this.#consider(chat);
  }
}
