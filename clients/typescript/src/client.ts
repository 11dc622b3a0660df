/// <reference lib="esnext.disposable" preserve="true" />
/** The client that an application uses: one person on one device, reconnected as often as needed. */

import { callBack } from "./callBack.js";
import { Chat } from "./chat.js";
import { type Codec, json } from "./codec.js";
import type { ConnectionOptions } from "./connection.js";
import type {
  Device,
  Entry,
  Hits,
  InvitationInfo,
  Me,
  OverviewChat,
  PresenceView,
  Profile,
  ProfileChange,
  Related,
  ServerFrame,
  Welcome,
} from "./contract.js";
import { ClientCore } from "./core/core.js";
import { type ClientError, Closed, permanent, RequestRefused, StoreUnusable } from "./core/errors.js";
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
import type { Later } from "./later.js";
import { Outgoing } from "./outgoing.js";
import { type PageEvent, type Platform, type SocketClass, thisPlatform, uuid } from "./platform.js";
import type { ClientReading } from "./reading.js";
import type { Requests } from "./requests.js";
import { type Sending, settleable } from "./sending.js";
import { FailsafeStore } from "./storage/failsafe.js";
import type { KnownLog } from "./storage/knownLog.js";
import { MemoryStore } from "./storage/memory.js";
import { SharedOutbox } from "./storage/outbox.js";
import type { Store } from "./storage/ports.js";
import { type GroupEvents, type News, TabGroup } from "./tabs/group.js";
import { LockLeadership, lateLeadership, soleLeadership } from "./tabs/leadership.js";
import { RETRY_MS, type TokenFunction, Tokens } from "./tokens.js";
import { UpdateStream } from "./updates.js";

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

export class Client {
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
  /** What is not needed to send; undefined until it is loaded. */
  #reading: ClientReading | undefined;
  readonly #whole = settleable<ClientReading>();
  readonly #name: string;
  readonly #chats = new Map<string, Chat>();
  readonly #listeners = new Map<string, Set<ClientListener>>();
  readonly #updateStreams = new Set<UpdateStream>();
  #overviews: { round: number; done: ReturnType<typeof settleable<void>> }[] = [];
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
    this.#load();
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
    return this.chat((await this.ask((to) => to.create("group", memberIds, title))).chat_id);
  }

  /** The direct chat with a person; there is only one. */
  async directChat(userId: string): Promise<Chat> {
    return this.chat((await this.ask((to) => to.create("direct", [userId]))).chat_id);
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
    return this.whole((reading) => reading.journal(messageKey(chatId, clientMessageId), this.#outgoing));
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
  [Symbol.asyncIterator](): AsyncIterableIterator<Entry> {
    return this.stream((reading) => reading.readAll());
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
    const wanted = [...userIds];
    void this.whole(({ core }) => core.watchPresence(wanted));
  }

  /** Who of these is online; answers are cached for 30 s, those about watched people are live. */
  async presence(userIds: readonly string[]): Promise<PresenceView[]> {
    return this.whole((reading) => reading.presence(userIds));
  }

  // Requests to the server

  /** The person's own profile and settings. */
  me(): Promise<Me> {
    return this.ask((to) => to.me());
  }

  /** Change the person's own profile and settings. */
  async update(change: ProfileChange): Promise<Me> {
    const me = await this.ask((to) => to.update(change));
    if (change.send_read_receipts !== undefined) this.core.reading?.reloadOpenChats();
    return me;
  }

  /** A person's profile; offline the last one that this device has seen. */
  async person(userId: string): Promise<Profile> {
    return this.whole((reading) => reading.person(userId));
  }

  /** The profiles of up to 100 people, those who are found; offline those that this device has seen. */
  async people(userIds: readonly string[]): Promise<readonly Profile[]> {
    return this.whole((reading) => reading.people(userIds));
  }

  /** The person with exactly this username; null if there is none. */
  find(username: string): Promise<Profile | null> {
    return this.ask((to) => to.find(username));
  }

  /**
   * Every chat with its title, its last entry and the other person of a direct one; offline as it was last seen. `newest`:
   * only so many.
   */
  async chats(options: { newest?: number } = {}): Promise<OverviewChat[]> {
    return this.whole((reading) => reading.chats(options));
  }

  /** The newest messages of all chats with these words; `word*` finds words that begin so. */
  search(text: string, page: { before?: string; limit?: number } = {}): Promise<Hits> {
    return this.ask((to) => to.search(text, page));
  }

  /** The person's contacts. The server does not tell them. */
  readonly contacts = this.#list("contacts");

  /** People who cannot write to this person directly, nor add them, nor see what they do. */
  readonly blocks = this.#list("blocks");

  /** Chats that others may not add the person to without asking. The inviter is not told of a `decline`. */
  readonly invitations = {
    all: (): Promise<InvitationInfo[]> => this.ask((to) => to.invitations.all()),
    accept: (chatId: string): Promise<void> => this.ask((to) => to.invitations.accept(chatId)),
    decline: (chatId: string): Promise<void> => this.ask((to) => to.invitations.decline(chatId)),
  };

  /** Every device with a session of the person, and when it was last used. */
  devices(): Promise<readonly Device[]> {
    return this.ask((to) => to.devices());
  }

  /** End a device's sessions: it is logged out at once. */
  removeDevice(deviceId: string): Promise<void> {
    return this.ask((to) => to.removeDevice(deviceId));
  }

  /** Delete the person's own account for good; `erase` also what they wrote. A wrong password is BadToken. */
  deleteAccount(password = "", { erase = false } = {}): Promise<void> {
    return this.ask((to) => to.deleteAccount(password, { erase }));
  }

  #list(which: "contacts" | "blocks") {
    return {
      all: (): Promise<Related[]> => this.ask((to) => to[which].all()),
      /** Adding twice changes nothing. */
      add: (userId: string): Promise<Related> => this.ask((to) => to[which].add(userId)),
      remove: (userId: string): Promise<void> => this.ask((to) => to[which].remove(userId)),
    };
  }

  /** @internal */
  async ask<Result>(wish: (to: Requests) => Promise<Result>): Promise<Result> {
    const { Requests } = await this.#platform.later();
    return wish(new Requests(this.http));
  }

  /** Save what is processed, tell the server, and end. What is not stored yet is sent by the next client of this store. */
  async close(): Promise<void> {
    if (this.#failure) return;
    if (this.#group.isLeader && this.isOnline && !this.#outgoing.isEmpty) {
      await this.#orLater(
        new Promise<void>((resolve) => {
          this.#outgoing.onEmpty = resolve;
        }),
      );
    }
    this.core.reading?.cursors.flush();
    await this.#save();
    if (this.isOnline) await this.#orLater(this.#reading?.acknowledge());
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
    this.core.reading?.typing.messageSent(whole.chatId);
    return this.#outgoing.send(whole);
  }

  /** @internal Do this with the other half: at once, or when it is loaded, in the order of these calls. */
  whole<Result>(wish: (reading: ClientReading) => Result): Result | Promise<Awaited<Result>> {
    this.checkOpen();
    if (this.#reading) return wish(this.#reading);
    const granted = this.#whole.promise.then(wish);
    granted.catch(() => {});
    return granted as Promise<Awaited<Result>>;
  }

  /** @internal */
  stream<Value>(
    make: (reading: ClientReading) => AsyncIterableIterator<Value>,
  ): AsyncIterableIterator<Value> {
    const stream = this.whole(make);
    return stream instanceof Promise ? lateStream(stream) : stream;
  }

  /** @internal */
  streamUpdates(concerns: (update: Update) => boolean): UpdateStream {
    this.checkOpen();
    const stream = new UpdateStream(this, concerns, (left) => this.#updateStreams.delete(left));
    this.#updateStreams.add(stream);
    return stream;
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
  draftChanged(chatId: string): void {
    this.#show({ type: "update", what: "drafts", chatId });
    this.#group.tell({ type: "drafts", chatId });
  }

  /** @internal What this device has of the logs. */
  async known(): Promise<KnownLog> {
    return this.whole((reading) => reading.known);
  }

  /** Let go of everything that this device has of the logs. What waits to be sent, drafts and positions stay. */
  async forgetLogs(): Promise<void> {
    await this.whole((reading) => reading.forgetLogs());
  }

  /** @internal Throw why this client has ended, if it has. */
  checkOpen(): void {
    if (this.#failure) throw this.#failure;
  }

  /** What could not be loaded is tried again: the page may be offline. */
  #load(): void {
    const loaded = (later: Later): void => {
      if (this.#failure) return;
      this.#reading = new later.ClientReading(this, {
        send: (frames) => this.#group.send(frames),
        dispatch: () => this.#dispatch(),
        show: (update) => this.#show(update),
        storeFailed: (error) => this.#storeFailed(error),
      });
      this.#whole.resolve(this.#reading);
    };
    const later = this.#platform.later();
    if (!(later instanceof Promise)) loaded(later);
    else later.then(loaded, () => this.#platform.after(RETRY_MS, () => this.#failure || this.#load()));
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
        void this.#reading?.dispatch(event);
        this.#show(event);
        return;
      case "stored":
        this.#outgoing.settled(event.key, { ack: event.ack });
        return;
      case "refused":
        if (event.isKept) this.#outgoing.refusedForNow(event.key, event.refusal);
        else this.#outgoing.settled(event.key, { refusal: event.refusal });
        return;
      case "overviewComplete":
        for (const { round, done } of this.#overviews) if (round <= event.round) done.resolve();
        this.#overviews = this.#overviews.filter(({ round }) => round > event.round);
        this.#reading?.dispatch(event);
        this.#showListed();
        return;
      default:
        void this.whole((reading) => reading.dispatch(event));
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
        if (!channel) return soleLeadership(leads);
        if (platform.locks) return new LockLeadership(platform.locks, this.#name, leads);
        const lease = this.whole((reading) => reading.lease(this.#tabId, leads));
        return lease instanceof Promise ? lateLeadership(lease) : lease;
      },
      events,
    );
  }

  async #findDevice(): Promise<string> {
    this.#deviceId ??= await this.ask((to) => to.ownDevice());
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
    this.#reading?.received(frame);
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
    this.#whole.reject(failure);
    this.#reading?.fail(failure);
    for (const { done } of this.#overviews) done.reject(failure);
    for (const stream of this.#updateStreams) stream.notify();
    this.#show({ type: "update", what: "connection" });
  }

  /** Wait for this, but not for ever. */
  #orLater(done: Promise<unknown> | undefined): Promise<void> {
    return new Promise((resolve) => {
      const callOff = this.#platform.after(this.#timing.drainMs, resolve);
      const end = (): void => {
        callOff();
        resolve();
      };
      Promise.resolve(done).then(end, end);
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
  return new RequestRefused(permanent("bad_request", reason));
}

/** A loop that begins when there is what it reads with. */
function lateStream<Value>(stream: Promise<AsyncIterableIterator<Value>>): AsyncIterableIterator<Value> {
  return {
    next: async () => (await stream).next(),
    return: async () => (await stream).return?.() ?? { value: undefined, done: true },
    [Symbol.asyncIterator]() {
      return this;
    },
  };
}
