/**
 * The other half of a client: loops, windows, open chats, presence, and what this device keeps of the logs. It is loaded
 * behind the half that sends.
 */

import type { Client } from "./client.js";
import type {
  Batch,
  ClientFrame,
  Entry,
  Messages,
  OverviewChat,
  PresenceView,
  Profile,
  ServerFrame,
} from "./contract.js";
import type { ChatModel } from "./core/chatModel.js";
import { CannotConnect, type Refusal, RequestRefused } from "./core/errors.js";
import type { ClientEvent, Update } from "./core/events.js";
import type { JournalStep } from "./core/journal.js";
import { ReadingCore } from "./core/reading.js";
import { type MessageKey, messageKey, type OutgoingMessage } from "./core/storage.js";
import { PRESENCE_BATCH_MAX } from "./limits.js";
import { findStored, loadSnapshot } from "./lookup.js";
import type { Outgoing } from "./outgoing.js";
import { Requests } from "./requests.js";
import { settleable } from "./sending.js";
import { isFull } from "./storage/failsafe.js";
import { KnownLog } from "./storage/knownLog.js";
import { SharedOutbox } from "./storage/outbox.js";
import type { Transaction } from "./storage/ports.js";
import type { Range } from "./storage/room.js";
import { AllEntriesStream, EntryStream } from "./streams.js";
import type { Leadership, LeadershipEvents } from "./tabs/leadership.js";
import { LeaseLeadership } from "./tabs/lease.js";
import { bare, ChatWindow, type WindowOptions } from "./window.js";

type Waiting = ReturnType<typeof settleable<void>>;

/** What it asks of the half that sends. */
export interface ReadingContext {
  send(frames: readonly ClientFrame[]): void;
  /** Tell the application what has happened so far. */
  dispatch(): void;
  show(update: Update): void;
  storeFailed(error: unknown): void;
}

export class ClientReading {
  readonly core: ReadingCore;
  readonly #client: Client;
  readonly #context: ReadingContext;
  /** What this device has of the logs. */
  readonly known: KnownLog;
  readonly #requests: Requests;
  readonly #readers = new Map<string, EntryStream>();
  #allReader: AllEntriesStream | null = null;
  readonly #windows = new Map<ChatWindow, string>();
  readonly #readMarks = new Map<number, Waiting>();
  readonly #openings = new Map<string, Waiting[]>();

  constructor(client: Client, context: ReadingContext) {
    const { platform, store } = client;
    this.core = client.core.attach(ReadingCore);
    this.#client = client;
    this.#context = context;
    this.#requests = new Requests(client.http);
    this.known = new KnownLog(store, platform.wall, platform.quota);
  }

  // Loops

  /** Read a chat; ends another loop on it. */
  read(chat: ChatModel): EntryStream {
    this.stop(chat);
    this.core.read(chat);
    const reader = new EntryStream(this.#client, this.core, chat, () => {
      if (this.#readers.get(chat.chatId) !== reader) return;
      this.#readers.delete(chat.chatId);
      this.core.stop(chat);
    });
    this.#readers.set(chat.chatId, reader);
    return reader;
  }

  readAll(): AllEntriesStream {
    this.#allReader?.close();
    this.#allReader = new AllEntriesStream(this.#client, this.core);
    this.core.readAll();
    return this.#allReader;
  }

  /** End the loop that reads this chat, or take the chat out of the loop over all. */
  stop(chat: ChatModel): void {
    const reader = this.#readers.get(chat.chatId);
    this.#readers.delete(chat.chatId);
    if (reader) reader.close();
    else this.#allReader?.leave(chat.chatId);
  }

  // Chats

  async markRead(chatId: string, upTo: number | string): Promise<void> {
    const number = this.core.markRead(chatId, upTo);
    const done = settleable<void>();
    this.#readMarks.set(number, done);
    try {
      await done.promise;
    } finally {
      this.#readMarks.delete(number);
      this.core.readMarks.drop(number);
    }
  }

  async open(chat: ChatModel): Promise<void> {
    this.#context.dispatch(); // This caller must not get the outcome of an earlier call.
    this.core.open(chat);
    const opened = settleable<void>();
    this.#openings.set(chat.chatId, [...(this.#openings.get(chat.chatId) ?? []), opened]);
    await opened.promise;
  }

  window(chat: ChatModel, options: WindowOptions): Promise<ChatWindow> {
    const client = this.#client;
    const { chatId } = chat;
    const window = new ChatWindow({
      chatId,
      known: this.known,
      get isOnline() {
        return client.isOnline;
      },
      get head() {
        return chat.row?.head;
      },
      get epoch() {
        return chat.row?.epoch;
      },
      page: (query) => this.page(chatId, { ...query, shown: true }),
      sequenceOf: (messageId) => this.#sequenceOf(chatId, messageId),
      left: () => this.#windows.delete(window),
    });
    this.#windows.set(window, chatId);
    return window.open(options);
  }

  /** A page of a log, which this device keeps. */
  async page(
    chatId: string,
    query: { after?: number; before?: number; limit: number; shown?: true },
  ): Promise<Batch> {
    const path = { chat_id: chatId };
    const page = await this.#client.http.call("GET /v1/chats/{chat_id}/messages", { path, query });
    const { epoch, from_sequence: from, to_sequence: to, entries } = page;
    void this.#keep(chatId, epoch, [from, to], entries.map(bare));
    return page;
  }

  async #sequenceOf(chatId: string, messageId: string): Promise<number> {
    const place = await this.known.place(messageId);
    return place?.[0] === chatId
      ? place[1]
      : (await this.#client.chat(chatId).message(messageId)).entry.sequence;
  }

  /** Who of these is online; answers are cached for 30 s, those about watched people are live. */
  async presence(userIds: readonly string[]): Promise<PresenceView[]> {
    const { presence } = this.core;
    const { http, platform } = this.#client;
    const now = platform.now();
    const known = new Map(userIds.map((userId) => [userId, presence.recall(userId, now)]));
    const unknown = userIds.filter((userId) => !known.get(userId));
    for (let first = 0; first < unknown.length; first += PRESENCE_BATCH_MAX) {
      const asked = unknown.slice(first, first + PRESENCE_BATCH_MAX);
      const { presences } = await http.call("GET /v1/presence", { query: { user_ids: asked } });
      presence.noteQueried(presences, platform.now());
      for (const view of presences) known.set(view.user_id, view);
    }
    return [...known.values()].filter((view) => view !== undefined);
  }

  /** What happened to a message of this device. */
  async journal(key: MessageKey, outgoing: Outgoing): Promise<readonly JournalStep[]> {
    const outcome = await new SharedOutbox(this.#client.store).outcome(key);
    return outcome?.steps ?? outgoing.get(key)?.steps ?? this.#client.core.journal.of(key);
  }

  /** The lead among tabs that have no Web Locks. */
  lease(tabId: string, events: LeadershipEvents): Leadership {
    return new LeaseLeadership(this.#client.store, this.#client.platform, tabId, events);
  }

  /** Let go of everything that this device has of the logs. */
  async forgetLogs(): Promise<void> {
    for (const chatId of this.#client.core.rows().keys()) await this.known.forget(chatId);
  }

  // What is known offline, too

  person(userId: string): Promise<Profile> {
    return this.#cached("people", userId, this.#requests.person(userId));
  }

  chats(options: { newest?: number }): Promise<OverviewChat[]> {
    return this.#cached("chats", `list ${options.newest ?? ""}`, this.#requests.chats(options));
  }

  async people(userIds: readonly string[]): Promise<readonly Profile[]> {
    const { store } = this.#client;
    try {
      const found = await this.#requests.people(userIds);
      this.#remember("people", (tx) =>
        Promise.all(found.map((person) => tx.put("people", person.user_id, person))),
      );
      return found;
    } catch (error) {
      if (!(error instanceof CannotConnect)) throw error;
      const find = (tx: Transaction) => Promise.all(userIds.map((id) => tx.get<Profile>("people", id)));
      return (await store.run(["people"], "read", find)).filter((person) => person !== undefined);
    }
  }

  async #cached<Value>(table: "people" | "chats", key: string, asked: Promise<Value>): Promise<Value> {
    try {
      const value = await asked;
      this.#remember(table, (tx) => tx.put(table, key, value));
      return value;
    } catch (error) {
      if (!(error instanceof CannotConnect)) throw error;
      const known = await this.#client.store.run([table], "read", (tx) => tx.get<Value>(table, key));
      if (known === undefined) throw error;
      return known;
    }
  }

  #remember(table: "people" | "chats", put: (tx: Transaction) => Promise<unknown>): void {
    const { store } = this.#client;
    if (store.kind === "indexeddb") void store.run([table], "relaxed", put).catch(() => {});
  }

  // From the other half

  dispatch(event: ClientEvent): void {
    switch (event.type) {
      case "update":
        // What was read is not what the log holds: it is read again.
        if (event.what === "log" && event.chatId) void this.known.forget(event.chatId).catch(() => {});
        return;
      case "entries":
        if (this.#readers.has(event.chatId)) this.#readers.get(event.chatId)?.notify();
        else this.#allReader?.ready(event.chatId);
        return;
      case "readMarkDone":
        answer(this.#readMarks.get(event.number), event.refusal);
        return;
      case "overviewComplete":
        for (const window of this.#windows.keys()) void window.catchUp();
        return;
      case "chatOpened":
        for (const opened of this.#openings.get(event.chatId) ?? []) answer(opened, event.refusal);
        this.#openings.delete(event.chatId);
        return;
      case "check":
        void this.#check(event.message);
        return;
      case "loadChat":
        void this.#loadChat(this.#client.core.chat(event.chatId));
    }
  }

  received(frame: ServerFrame): void {
    if (frame.type === "messages") this.#receiveLive(frame);
    else if (frame.type === "message_batch") {
      const { chat_id: chatId, epoch, from_sequence: from, to_sequence: to, entries } = frame;
      void this.#keep(chatId, epoch, [from, to], entries);
      // The core counts it; an application that shows the chat must hear of it.
      if (frame.reset) this.#context.show({ type: "update", what: "log", chatId });
    }
  }

  /** A heartbeat after the last acks confirms that they have taken effect. */
  async acknowledge(): Promise<void> {
    const acks = this.core.cursors.lastAcks();
    if (this.core.cursors.isConfirmed) return;
    const done = settleable<void>();
    this.#readMarks.set(this.core.readMarks.add(undefined), done);
    this.#context.send([...acks, ...this.core.readMarks.framesToSend()]);
    await done.promise;
  }

  /** The client has ended. */
  fail(error: unknown): void {
    const openings = [...this.#openings.values()].flat();
    for (const waiting of [...this.#readMarks.values(), ...openings]) waiting.reject(error);
    for (const reader of this.#readers.values()) reader.notify();
    this.#allReader?.notify();
  }

  #receiveLive(frame: Messages): void {
    const { chat_id: chatId, epoch, entries, voids = [] } = frame;
    const numbers = [...entries.map((entry) => entry.sequence), ...voids];
    const range: Range = [Math.min(...numbers), Math.max(...numbers)];
    if (this.#client.isLeader) void this.#keep(chatId, epoch, range, entries);
    for (const [window, shown] of this.#windows) if (shown === chatId) window.receive(frame);
  }

  /** Keep a range of a log. */
  async #keep(chatId: string, epoch: number, range: Range, entries: readonly Entry[]): Promise<void> {
    if (this.#client.storage === "memory" || range[1] < range[0]) return;
    try {
      await this.known.keep(chatId, epoch, range, entries);
    } catch (error) {
      if (!isFull(error)) this.#context.storeFailed(error);
    }
  }

  async #check(message: OutgoingMessage): Promise<void> {
    const { core, http, platform } = this.#client;
    const key = messageKey(message.chatId, message.clientMessageId);
    try {
      const ack = await findStored(http, message);
      if (ack) core.messageStored(key, ack, platform.now());
      else core.messageNotStored(key, platform.wall());
    } catch {
      core.checkFailed(key, platform.now());
    }
  }

  async #loadChat(chat: ChatModel): Promise<void> {
    const { http, platform } = this.#client;
    try {
      this.core.chatLoaded(chat, await loadSnapshot(http, chat.chatId));
    } catch (error) {
      const refusal = error instanceof RequestRefused ? error.refusal : undefined;
      this.core.loadFailed(chat, refusal, platform.now());
    }
  }
}

function answer(waiting: Waiting | undefined, refusal?: Refusal): void {
  if (refusal) waiting?.reject(new RequestRefused(refusal));
  else waiting?.resolve();
}
