/// <reference lib="esnext.disposable" preserve="true" />
/** The client that an application uses: one person on one device, reconnected as often as needed. */

import { callBack } from "./callBack.js";
import { Chat } from "./chat.js";
import { type Codec, json } from "./codec.js";
import type { ConnectionOptions } from "./connection.js";
import type {
  Entry,
  Me,
  Messages,
  OverviewChat,
  PresenceView,
  Profile,
  ServerFrame,
  Welcome,
} from "./contract.js";
import type { ChatModel } from "./core/chatModel.js";
import { ClientCore } from "./core/core.js";
import {
  BadToken,
  CannotConnect,
  type ClientError,
  Closed,
  type Refusal,
  RequestRefused,
  StoreUnusable,
} from "./core/errors.js";
import type { ClientEvent, Update, What } from "./core/events.js";
import type { JournalStep } from "./core/journal.js";
import { checkSize } from "./core/outbox.js";
import {
  type Cursor,
  hasChanges,
  type MessageKey,
  messageKey,
  type OutgoingMessage,
} from "./core/storage.js";
import { defaultTiming, type Timing } from "./core/timing.js";
import { baseUrl, Http } from "./http.js";
import { PRESENCE_BATCH_MAX } from "./limits.js";
import { findStored, loadSnapshot } from "./lookup.js";
import { Outgoing } from "./outgoing.js";
import { People } from "./people.js";
import { type PageEvent, type Platform, type SocketClass, thisPlatform, uuid } from "./platform.js";
import { type Sending, settleable } from "./sending.js";
import { FailsafeStore, isFull } from "./storage/failsafe.js";
import { KnownLog, type Range } from "./storage/knownLog.js";
import { MemoryStore } from "./storage/memory.js";
import { SharedOutbox } from "./storage/outbox.js";
import type { Store, Transaction } from "./storage/ports.js";
import { AllEntriesStream, EntryStream, type StreamContext, UpdateStream } from "./streams.js";
import { type GroupEvents, type News, TabGroup } from "./tabs/group.js";
import { LeaseLeadership, LockLeadership, SoleLeadership } from "./tabs/leadership.js";
import { type TokenFunction, Tokens } from "./tokens.js";
import type { ChatWindow } from "./window.js";

/** Makes the store of a client: `memory()`, or `indexedDb()`. */
export type StoreFactory = (platform: Platform, name: string) => Store;

/** What is kept lives as long as this page. */
export const memory = (): StoreFactory => () => new MemoryStore();

export interface ConnectOptions {
  /** The device that the token is for; without it the server is asked, so a client that starts offline needs it. */
  readonly deviceId?: string;
  /** Whose token it is, if you know: then every person has a store of their own in this browser. */
  readonly userId?: string;
  /** What survives the page; `memory()` if it is left out. */
  readonly store?: StoreFactory;
  /** Share one connection between all tabs of this device, if the store outlives them. */
  readonly tabs?: boolean;
  /** `json`, or `msgpack` of `parley-chat/msgpack`. */
  readonly codec?: Codec;
  /** False: ask for no live entries. New ones are then noticed at the next heartbeat. */
  readonly live?: boolean;
  /** Do not wait for the first welcome; the default where a store outlives the page. */
  readonly startOffline?: boolean;
  /** The WebSocket to use where there is none, as on Node 20: that of the package `ws`. */
  readonly WebSocket?: unknown;
  readonly timing?: Partial<Timing>;
  /** Time, chance, sockets and more: for tests. */
  readonly platform?: Platform;
}

/** `indexeddb`, or `memory` where nothing outlives the page, or the browser's store has failed. */
export type StorageKind = Store["kind"];

export type ClientListener = (update: Update) => void;

/**
 * A client of one person on one device. It resolves once the store is open and, unless `startOffline`, the server has
 * welcomed it; CannotConnect, BadToken or StoreUnusable if not.
 */
export async function connect(
  url: string,
  token: string | TokenFunction,
  options: ConnectOptions = {},
): Promise<Client> {
  const platform = options.platform ?? thisPlatform(options.WebSocket as SocketClass | undefined);
  const client = new Client(baseUrl(url), token, options, platform);
  await client.start();
  return client;
}

export class Client extends People {
  readonly core: ClientCore;
  readonly http: Http;
  /** The last trouble with the browser's store. */
  storageError: unknown = null;
  readonly #options: ConnectOptions;
  readonly #platform: Platform;
  readonly #timing: Timing;
  readonly #tokens: Tokens;
  readonly #tabId: string;
  readonly #store: FailsafeStore;
  readonly #outgoing: Outgoing;
  readonly #known: KnownLog;
  readonly #name: string;
  readonly #streams: StreamContext;
  readonly #chats = new Map<string, Chat>();
  readonly #listeners = new Map<string, Set<ClientListener>>();
  readonly #updateStreams = new Set<UpdateStream>();
  readonly #readers = new Map<string, EntryStream>();
  readonly #windows = new Set<{ chatId: string; window: ChatWindow }>();
  readonly #readMarks = new Map<number, ReturnType<typeof settleable<void>>>();
  #overviews: { round: number; done: ReturnType<typeof settleable<void>> }[] = [];
  readonly #openings = new Map<string, ReturnType<typeof settleable<void>>[]>();
  #allReader: AllEntriesStream | null = null;
  /** The chats of the last overview; null before the first. */
  #listed: ReadonlySet<string> | null = null;
  #deviceId: string | undefined;
  /** Whose the store is. */
  #owner: string | null = null;
  #group!: TabGroup;
  #failure: ClientError | null = null;
  #isSaving = false;
  #isPumpDue = false;
  #isPutAway = false;
  #callOffTimer: () => void = () => {};
  #callOffPage: () => void = () => {};
  readonly #welcomed = settleable<void>();

  /** @internal */
  constructor(url: string, token: string | TokenFunction, options: ConnectOptions, platform: Platform) {
    super();
    this.#options = options;
    this.#platform = platform;
    this.#timing = { ...defaultTiming, ...options.timing };
    this.#tabId = uuid(platform);
    this.#deviceId = options.deviceId;
    this.#name = `parley ${url} ${options.userId ?? ""} ${options.deviceId ?? ""}`;
    this.#tokens = new Tokens(token, platform, this.#name);
    this.http = new Http(url, platform, this.#tokens);
    this.#store = new FailsafeStore((options.store ?? memory())(platform, this.#name));
    this.core = new ClientCore({
      timing: this.#timing,
      chance: platform.chance,
      durable: false,
      wake: () => this.#pumpSoon(),
    });
    this.#known = new KnownLog(this.#store, platform.wall, platform.quota);
    this.#outgoing = new Outgoing(
      new SharedOutbox(this.#store),
      this.#store,
      this.core,
      {
        isLeader: () => this.isLeader,
        claimed: (term) => this.#group.claimed(term),
        superseded: () => this.#group.superseded(),
        tell: (news) => this.#group.tell(news),
      },
      platform,
      {
        statusOfWaiting: (key) => this.#statusOfWaiting(key),
        statusOfStored: (message, sequence) =>
          this.core.chat(message.chatId).receipts(sequence, this.userId)?.status ?? "sent",
        stepsOf: (key) => this.core.journal.of(key),
        retry: (sending) => this.#outgoing.retry(sending),
        discard: (sending) => this.#outgoing.discard(sending),
      },
    );
    this.#outgoing.onChange = (chatId) => this.#show({ type: "update", what: "receipts", chatId });
    this.#outgoing.onFailure = (error) => this.#storeFailed(error);
    this.#streams = { core: this.core, now: platform.now, checkOpen: () => this.checkOpen() };
  }

  /** @internal Open the store, and connect. */
  async start(): Promise<void> {
    this.#group = this.#makeGroup(this.#options.tabs ?? true);
    this.#store.onTrouble = (error) => this.#goAlone(error);
    this.#store.onTaken = (why) => {
      if (why === "wiped") this.#fail(new Closed("what this device kept was deleted in another tab"));
    };
    const cursors = await this.#store.run(["cursors"], "read", (tx) => tx.all<SavedCursor>("cursors"));
    this.core.restore({
      outgoing: [],
      cursors: new Map(cursors.map(({ chatId, cursor }) => [chatId, cursor])),
    });
    await this.#outgoing.reconcile();
    this.#callOffPage = this.#platform.onPageEvent((event) => this.#onPage(event));
    this.#group.start();
    if (this.#options.startOffline ?? this.#store.kind === "indexeddb") return;
    await this.#welcomed.promise;
  }

  /** The person's id; empty until the first welcome. */
  get userId(): string {
    return this.core.userId || (this.#options.userId ?? "");
  }

  get deviceId(): string {
    return this.#deviceId ?? "";
  }

  get isOnline(): boolean {
    return this.core.online;
  }

  /** Whether this tab has the connection; one of the tabs of a device has. */
  get isLeader(): boolean {
    return this.#group.isLeader;
  }

  get storage(): StorageKind {
    return this.#store.kind;
  }

  /** Why this client has ended, if it has: BadToken asks for another login. */
  get failure(): ClientError | null {
    return this.#failure;
  }

  /** Every message that is not stored: of any tab, of earlier pages too; those that were refused as well. */
  get unsent(): Sending[] {
    return this.#outgoing.all;
  }

  /** A chat by its id; the same object for as long as this client lives. */
  chat(chatId: string): Chat {
    const chat = this.#chats.get(chatId) ?? new Chat(this, this.core.chat(chatId));
    this.#chats.set(chatId, chat);
    return chat;
  }

  /** A group with these people, owned by this person. Who does not let them add them is invited. */
  async createChat(memberIds: readonly string[], title?: string): Promise<Chat> {
    return this.chat((await this.create("group", memberIds, title)).chat_id);
  }

  /** The direct chat with a person; there is only one. */
  async directChat(userId: string): Promise<Chat> {
    return this.chat((await this.create("direct", [userId])).chat_id);
  }

  /** Every chat as the overview lists it: head, cursor of this device, unread. Always a new request. */
  async overview(): Promise<OverviewChat[]> {
    this.checkOpen();
    const done = settleable<void>();
    this.#overviews.push({ round: this.core.askOverview(), done });
    await done.promise;
    return [...this.core.rows().values()];
  }

  /** What happened to a message of this device: written, kept, each attempt, its outcome. */
  async journal(chatId: string, clientMessageId: string): Promise<readonly JournalStep[]> {
    const key = messageKey(chatId, clientMessageId);
    const outcome = await new SharedOutbox(this.#store).outcome(key);
    return outcome?.steps ?? this.#outgoing.get(key)?.steps ?? this.core.journal.of(key);
  }

  /** Call back at each change of this kind, or of any; returns what ends it. */
  on(what: What | "any", listener: ClientListener): () => void {
    const listeners = this.#listeners.get(what) ?? new Set();
    this.#listeners.set(what, listeners.add(listener));
    return () => listeners.delete(listener);
  }

  /** A loop over all changes besides the entries of the logs: read again what it names. */
  updates(): UpdateStream {
    return this.streamUpdates(() => true);
  }

  /** Read every chat, later ones too, each in order. */
  [Symbol.asyncIterator](): AllEntriesStream {
    this.checkOpen();
    this.#allReader?.close();
    this.#allReader = new AllEntriesStream(this.#streams);
    this.core.readAll();
    return this.#allReader;
  }

  /**
   * Tell the server whether somebody looks at this device. After two minutes of not, it does not keep the person's other
   * devices from ringing.
   */
  look(isLooking: boolean): void {
    this.checkOpen();
    this.core.look(isLooking);
  }

  /** Watch these people besides the members of open chats; replaces the last call. 500 people in all. */
  watchPresence(userIds: Iterable<string>): void {
    this.checkOpen();
    this.core.watchPresence(userIds);
  }

  /** Who of these is online; answers are cached for 30 s, those about watched people are live. */
  async presence(userIds: readonly string[]): Promise<PresenceView[]> {
    this.checkOpen();
    const now = this.#platform.now();
    const known = new Map(userIds.map((userId) => [userId, this.core.presence.recall(userId, now)]));
    const unknown = userIds.filter((userId) => !known.get(userId));
    for (let first = 0; first < unknown.length; first += PRESENCE_BATCH_MAX) {
      const asked = unknown.slice(first, first + PRESENCE_BATCH_MAX);
      const { presences } = await this.http.call("GET /v1/presence", { query: { user_ids: asked } });
      this.core.presence.noteQueried(presences, this.#platform.now());
      for (const view of presences) known.set(view.user_id, view);
    }
    return [...known.values()].filter((view) => view !== undefined);
  }

  /** Change the person's own profile and settings. */
  override async update(change: Parameters<People["update"]>[0]): Promise<Me> {
    const me = await super.update(change);
    if (change.send_read_receipts !== undefined) this.core.reloadOpenChats();
    return me;
  }

  /** A person's profile; offline the last one that this device has seen. */
  override async person(userId: string): Promise<Profile> {
    return this.#cached("people", userId, () => super.person(userId));
  }

  /** The profiles of up to 100 people, those who are found; offline those that this device has seen. */
  override async people(userIds: readonly string[]): Promise<readonly Profile[]> {
    try {
      const found = await super.people(userIds);
      if (this.#store.kind === "indexeddb") {
        const keep = (tx: Transaction) =>
          Promise.all(found.map((person) => tx.put("people", person.user_id, person)));
        void this.#store.run(["people"], "relaxed", keep).catch(() => {});
      }
      return found;
    } catch (error) {
      if (!(error instanceof CannotConnect)) throw error;
      const find = (tx: Transaction) => Promise.all(userIds.map((id) => tx.get<Profile>("people", id)));
      return (await this.#store.run(["people"], "read", find)).filter((person) => person !== undefined);
    }
  }

  /** Every chat with its title, its last entry and the other person of a direct one; offline as it was last seen. */
  override async chats(options: { newest?: number } = {}): Promise<OverviewChat[]> {
    return this.#cached("chats", `list ${options.newest ?? ""}`, () => super.chats(options));
  }

  /** Save what is processed, tell the server, and end. What is not stored yet is sent by the next client of this store. */
  async close(): Promise<void> {
    if (this.#failure) return;
    if (this.#group.isLeader && this.isOnline) await this.#drain();
    this.core.cursors.flush();
    await this.#save();
    if (this.isOnline) await this.#sendLastAcks();
    this.#fail(new Closed("this client is closed; the next one with the same store sends what is queued"));
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  /** Delete everything that this device keeps of this person, as one must when they sign out. Ends the client. */
  async wipe(): Promise<void> {
    this.#fail(new Closed("what this device kept was deleted"));
    await this.#store.wipe();
  }

  // For the objects of chats

  /** @internal */
  send(
    message: Omit<OutgoingMessage, "clientMessageId" | "createdAtMs"> & { clientMessageId?: string },
  ): Sending {
    this.checkOpen();
    const wall = this.#platform.wall();
    const clientMessageId = message.clientMessageId ?? uuid(this.#platform);
    if (!UUID_V4.test(clientMessageId)) throw refused("a client_message_id is a UUIDv4");
    if (this.#outgoing.get(messageKey(message.chatId, clientMessageId))) {
      throw refused("a message with this client_message_id is already queued");
    }
    const displayTime = message.displayTime ?? new Date(wall).toISOString();
    const whole: OutgoingMessage = { ...message, clientMessageId, displayTime, createdAtMs: wall };
    checkSize(whole);
    this.core.typing.messageSent(whole.chatId);
    return this.#outgoing.send(whole);
  }

  /** @internal */
  read(chat: ChatModel): EntryStream {
    this.checkOpen();
    this.stopReading(chat);
    this.core.read(chat);
    const reader = new EntryStream(this.#streams, chat, () => {
      if (this.#readers.get(chat.chatId) !== reader) return;
      this.#readers.delete(chat.chatId);
      this.core.stop(chat);
    });
    this.#readers.set(chat.chatId, reader);
    return reader;
  }

  /** @internal End the loop that reads this chat, or take the chat out of the loop over all. */
  stopReading(chat: ChatModel): void {
    const reader = this.#readers.get(chat.chatId);
    this.#readers.delete(chat.chatId);
    if (reader) reader.close();
    else this.#allReader?.leave(chat.chatId);
  }

  /** @internal */
  async markRead(chatId: string, upTo: number | string): Promise<void> {
    this.checkOpen();
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

  /** @internal */
  async openChat(chat: ChatModel): Promise<void> {
    this.checkOpen();
    this.#dispatch(); // This caller must not get the outcome of an earlier call.
    this.core.open(chat);
    const opened = settleable<void>();
    this.#openings.set(chat.chatId, [...(this.#openings.get(chat.chatId) ?? []), opened]);
    await opened.promise;
  }

  /** @internal */
  streamUpdates(concerns: (update: Update) => boolean): UpdateStream {
    this.checkOpen();
    const stream = new UpdateStream(this.#streams, concerns, (left) => this.#updateStreams.delete(left));
    this.#updateStreams.add(stream);
    return stream;
  }

  /** @internal */
  get known(): KnownLog {
    return this.#known;
  }

  /** @internal */
  get platform(): Platform {
    return this.#platform;
  }

  /** @internal */
  get store(): Store {
    return this.#store;
  }

  /** @internal */
  addWindow(chatId: string, window: ChatWindow): () => void {
    const shown = { chatId, window };
    this.#windows.add(shown);
    return () => this.#windows.delete(shown);
  }

  /** @internal */
  draftChanged(chatId: string): void {
    this.#show({ type: "update", what: "drafts", chatId });
    this.#group.tell({ type: "drafts", chatId });
  }

  /** @internal Keep a range of a log. */
  async keep(chatId: string, epoch: number, range: Range, entries: readonly Entry[]): Promise<void> {
    if (this.#store.kind === "memory" || range[1] < range[0]) return;
    try {
      await this.#known.keep(chatId, epoch, range, entries);
    } catch (error) {
      if (!isFull(error)) this.#storeFailed(error);
    }
  }

  /** Let go of everything that this device has of the logs. What waits to be sent, drafts and positions stay. */
  async forgetLogs(): Promise<void> {
    for (const chatId of this.core.rows().keys()) await this.#known.forget(chatId);
  }

  /** @internal Throw why this client has ended, if it has. */
  checkOpen(): void {
    if (this.#failure) throw this.#failure;
  }

  // The loop around the core

  #pumpSoon(): void {
    if (this.#isPumpDue) return;
    this.#isPumpDue = true;
    queueMicrotask(() => {
      this.#isPumpDue = false;
      if (!this.#failure) this.#pump();
    });
  }

  #pump(): void {
    const { core } = this;
    const now = this.#platform.now();
    core.tick(now);
    void this.#save();
    const frames = core.framesToSend(now, this.#platform.wall());
    this.#dispatch();
    if (core.online && core.silent) this.#group.replace();
    else if (frames.length > 0) this.#group.send(frames);
    this.#callOffTimer();
    const wake = core.nextWake();
    if (wake === undefined) return;
    this.#callOffTimer = this.#platform.after(Math.max(0, wake - this.#platform.now()), () =>
      this.#pumpSoon(),
    );
  }

  async #save(): Promise<void> {
    if (this.#isSaving) return;
    const changes = this.core.toSave();
    if (!hasChanges(changes)) return;
    this.#isSaving = true;
    try {
      await this.#store.run(["cursors"], "relaxed", async (tx) => {
        for (const [chatId, cursor] of changes.cursors) {
          await tx.put("cursors", chatId, { chatId, cursor } satisfies SavedCursor);
        }
      });
      this.core.saved(changes);
    } catch (error) {
      this.#storeFailed(error);
    }
    this.#isSaving = false;
  }

  #dispatch(): void {
    for (const event of this.core.events()) this.#dispatchOne(event);
  }

  #dispatchOne(event: ClientEvent): void {
    switch (event.type) {
      case "update":
        // What was read is not what the log holds: it is read again.
        if (event.what === "log" && event.chatId) void this.#known.forget(event.chatId).catch(() => {});
        this.#show(event);
        return;
      case "entries":
        if (this.#readers.has(event.chatId)) this.#readers.get(event.chatId)?.notify();
        else this.#allReader?.ready(event.chatId);
        return;
      case "stored":
        this.#outgoing.settled(event.key, { ack: event.ack });
        return;
      case "refused":
        if (event.isKept) this.#outgoing.refusedForNow(event.key, event.refusal);
        else this.#outgoing.settled(event.key, { refusal: event.refusal });
        return;
      case "readMarkDone":
        answer(this.#readMarks.get(event.number), event.refusal);
        return;
      case "overviewComplete":
        for (const { round, done } of this.#overviews) if (round <= event.round) done.resolve();
        this.#overviews = this.#overviews.filter(({ round }) => round > event.round);
        for (const { window } of this.#windows) void window.catchUp();
        this.#showListed();
        return;
      case "chatOpened":
        for (const opened of this.#openings.get(event.chatId) ?? []) answer(opened, event.refusal);
        this.#openings.delete(event.chatId);
        return;
      case "check":
        void this.#check(event.message);
        return;
      case "loadChat":
        void this.#loadChat(this.core.chat(event.chatId));
        return;
    }
  }

  /** Tell of chats that the overview lists for the first time: somebody made them, or added the person. */
  #showListed(): void {
    const before = this.#listed;
    this.#listed = new Set(this.core.rows().keys());
    for (const chatId of before ? this.#listed : []) {
      if (!before?.has(chatId)) this.#show({ type: "update", what: "members", chatId });
    }
  }

  #show(update: Update): void {
    for (const what of [update.what, "any"]) callBack(this.#listeners.get(what) ?? [], update);
    for (const stream of this.#updateStreams) stream.put(update);
  }

  // Requests for the core

  async #check(message: OutgoingMessage): Promise<void> {
    const key = messageKey(message.chatId, message.clientMessageId);
    try {
      const ack = await findStored(this.http, message);
      if (ack) this.core.messageStored(key, ack, this.#platform.now());
      else this.core.messageNotStored(key, this.#platform.wall());
    } catch {
      this.core.checkFailed(key, this.#platform.now());
    }
  }

  async #loadChat(chat: ChatModel): Promise<void> {
    try {
      this.core.chatLoaded(chat, await loadSnapshot(this.http, chat.chatId));
    } catch (error) {
      const refusal = error instanceof RequestRefused ? error.refusal : undefined;
      this.core.loadFailed(chat, refusal, this.#platform.now());
    }
  }

  async #cached<Value>(table: "people" | "chats", key: string, load: () => Promise<Value>): Promise<Value> {
    try {
      const value = await load();
      if (this.#store.kind === "indexeddb") {
        void this.#store.run([table], "relaxed", (tx) => tx.put(table, key, value)).catch(() => {});
      }
      return value;
    } catch (error) {
      if (!(error instanceof CannotConnect)) throw error;
      const known = await this.#store.run([table], "read", (tx) => tx.get<Value>(table, key));
      if (known === undefined) throw error;
      return known;
    }
  }

  // Tabs and the connection

  #makeGroup(isShared: boolean): TabGroup {
    const platform = this.#platform;
    const options: ConnectionOptions = {
      url: this.http.url,
      codec: this.#options.codec ?? json,
      live: this.#options.live ?? true,
      timing: this.#timing,
      tokens: this.#tokens,
      deviceId: () => this.#findDevice(),
      platform,
    };
    const events: GroupEvents = {
      connected: (welcome) => this.#connected(welcome),
      received: (frame) => this.#received(frame),
      disconnected: () => this.core.disconnected(),
      unreachable: (error) => this.#welcomed.reject(error),
      failed: (error) => this.#fail(error),
      leads: (isLeader) => this.#leads(isLeader),
      news: (news) => this.#hear(news),
    };
    const mayShare = isShared && this.#store.kind === "indexeddb" && this.#deviceId !== undefined;
    const channel = mayShare ? platform.channel(this.#name) : null;
    return new TabGroup(
      this.#tabId,
      options,
      channel,
      (leads) => {
        if (!channel) return new SoleLeadership(leads);
        if (platform.locks) return new LockLeadership(platform.locks, this.#name, leads);
        return new LeaseLeadership(this.#store, platform, this.#tabId, leads);
      },
      events,
    );
  }

  async #findDevice(): Promise<string> {
    if (this.#deviceId === undefined) {
      const { sessions } = await this.http.call("GET /v1/sessions");
      this.#deviceId = sessions.find((session) => session.current)?.device_id;
    }
    if (this.#deviceId === undefined) {
      throw new BadToken("the server does not say which device this token is for; pass deviceId");
    }
    return this.#deviceId;
  }

  #leads(isLeader: boolean): void {
    if (isLeader) void this.#outgoing.lead().catch((error) => this.#storeFailed(error));
    else this.#outgoing.follow();
  }

  #connected(welcome: Welcome): void {
    if (this.#owner !== null && this.#owner !== welcome.user_id) {
      this.#fail(belongsTo(this.#owner));
      return;
    }
    this.core.connected(welcome, this.#platform.now());
    this.#welcomed.resolve();
    void this.#claimStore(welcome.user_id).catch((error) => {
      if (error instanceof StoreUnusable) this.#fail(error);
      else this.#storeFailed(error);
    });
  }

  /** Bind the store to one person: what another one has queued must not be sent in their name. */
  async #claimStore(userId: string): Promise<void> {
    await this.#store.run(["meta"], "relaxed", async (tx) => {
      const owner = await tx.get<string>("meta", "owner");
      if (owner !== undefined && owner !== userId) throw belongsTo(owner);
      await tx.put("meta", "owner", userId);
    });
    this.#owner = userId;
    await this.#outgoing.verified();
    if (!this.isLeader) await this.#outgoing.reconcile();
  }

  #statusOfWaiting(key: MessageKey): "queued" | "sending" {
    const { outbox } = this.core;
    const isUnderWay = this.isLeader ? outbox.has(key) && !outbox.isQueued(key) : this.isOnline;
    return isUnderWay ? "sending" : "queued";
  }

  #received(frame: ServerFrame): void {
    this.core.receive(frame, this.#platform.now());
    if (frame.type === "messages") this.#keepLive(frame);
    else if (frame.type === "message_batch") {
      const { chat_id: chatId, epoch, from_sequence: from, to_sequence: to, entries } = frame;
      void this.keep(chatId, epoch, [from, to], entries);
    }
  }

  #keepLive(frame: Messages): void {
    const numbers = [...frame.entries.map((entry) => entry.sequence), ...(frame.voids ?? [])];
    const range: Range = [Math.min(...numbers), Math.max(...numbers)];
    if (this.isLeader) void this.keep(frame.chat_id, frame.epoch, range, frame.entries);
    for (const { chatId, window } of this.#windows) if (chatId === frame.chat_id) window.receive(frame);
  }

  #hear(news: News): void {
    if (news.type === "look") void this.#outgoing.look();
    else if (news.type === "settled") this.#outgoing.hear(news.outcomes);
    else if (news.type === "discarded") this.#outgoing.discarded(news.key);
    else if (news.type === "drafts") this.#show({ type: "update", what: "drafts", chatId: news.chatId });
  }

  #onPage(event: PageEvent): void {
    if (this.#failure) return;
    if (event === "freeze") {
      this.#isPutAway = true;
      this.#group.stop();
      this.#store.close();
    } else if (event === "thaw" && this.#isPutAway) {
      this.#isPutAway = false;
      this.#group.start();
    } else if (this.#group.wake()) this.core.probe(this.#platform.now());
  }

  /** The store was left for memory: this tab has what waits, and sends it by a connection of its own. */
  #goAlone(error: unknown): void {
    this.#group.close();
    this.#group = this.#makeGroup(false);
    this.#outgoing.keepAgain();
    if (!this.#failure) this.#group.start();
    this.#storeFailed(error);
  }

  #storeFailed(error: unknown): void {
    this.storageError = error;
    this.#show({ type: "update", what: "storage" });
  }

  // The end

  #fail(failure: ClientError): void {
    if (this.#failure) return;
    this.#failure = failure;
    this.#callOffTimer();
    this.#callOffPage();
    this.#group.close();
    this.#store.close();
    this.#outgoing.fail(failure);
    this.#welcomed.reject(failure);
    const openings = [...this.#openings.values()].flat();
    for (const waiting of [
      ...this.#readMarks.values(),
      ...this.#overviews.map(({ done }) => done),
      ...openings,
    ]) {
      waiting.reject(failure);
    }
    for (const reader of [...this.#readers.values(), ...this.#updateStreams]) reader.notify();
    this.#allReader?.notify();
    this.#show({ type: "update", what: "connection" });
  }

  /** Wait a moment for the acks of messages in flight. */
  async #drain(): Promise<void> {
    if (this.#outgoing.isEmpty) return;
    await this.#orLater((resolve) => {
      this.#outgoing.onEmpty = resolve;
    });
  }

  /** A heartbeat after the last acks confirms that they have taken effect. */
  async #sendLastAcks(): Promise<void> {
    const acks = this.core.cursors.lastAcks();
    if (acks.length === 0) return;
    const last = this.core.readMarks.add(undefined);
    const done = settleable<void>();
    this.#readMarks.set(last, done);
    this.#group.send([...acks, ...this.core.readMarks.framesToSend()]);
    await this.#orLater((resolve) => void done.promise.then(resolve, resolve));
  }

  #orLater(wait: (resolve: () => void) => void): Promise<void> {
    return new Promise((resolve) => {
      const callOff = this.#platform.after(this.#timing.drainMs, resolve);
      wait(() => {
        callOff();
        resolve();
      });
    });
  }
}

interface SavedCursor {
  readonly chatId: string;
  readonly cursor: Cursor;
}

const UUID_V4 = /^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/i;

function belongsTo(owner: string): StoreUnusable {
  return new StoreUnusable(
    `what this device keeps belongs to ${owner}: pass userId, or wipe it when they sign out`,
  );
}

function refused(reason: string): RequestRefused {
  return new RequestRefused({ code: "bad_request", reason, temporary: false });
}

function answer(
  waiting: { resolve(): void; reject(error: unknown): void } | undefined,
  refusal?: Refusal,
): void {
  if (refusal) waiting?.reject(new RequestRefused(refusal));
  else waiting?.resolve();
}
