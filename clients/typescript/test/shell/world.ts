/**
 * A browser with several tabs in virtual time: one IndexedDB, one lock manager, one channel, one server.
 *
 * A tab can crash at any step (a step is whenever it awaits something outside of itself), freeze and thaw. Nothing here
 * waits for a real clock: `run` passes virtual time, and between two moments it waits until IndexedDB has nothing to do.
 */

import { IDBFactory, IDBKeyRange } from "fake-indexeddb";
import { type Client, type ConnectOptions, connect } from "../../src/client.js";
import * as later from "../../src/later.js";
import type { Channel, Locks, PageEvent, Platform, Socket, SocketClass } from "../../src/platform.js";
import { IndexedDbStore } from "../../src/storage/indexedDb.js";
import type { Mode, Store, Table, Transaction } from "../../src/storage/ports.js";
import { VirtualServer } from "../../src/testing/virtualServer.js";

globalThis.IDBKeyRange = IDBKeyRange;

/** Counts what waits for Node's own loop, so that `settled` knows when nothing does. */
let waitingTasks = 0;
const realSetImmediate = globalThis.setImmediate;
globalThis.setImmediate = ((task: (...args: unknown[]) => void, ...args: unknown[]) => {
  waitingTasks += 1;
  return realSetImmediate(() => {
    waitingTasks -= 1;
    task(...args);
  });
}) as typeof setImmediate;

async function settled(): Promise<void> {
  do {
    await new Promise<void>((resolve) => realSetImmediate(resolve));
  } while (waitingTasks > 0);
}

/** A random number from a seed, the same in every run. */
export function dice(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4_294_967_296;
  };
}

const MINUTE_MS = 60_000;

interface Timer {
  readonly at: number;
  readonly number: number;
  readonly callback: () => void;
}

export interface WorldOptions {
  readonly seed?: number;
  /** False: a page on plain http, which has no Web Locks. */
  readonly hasLocks?: boolean;
  /** The timers of a tab that nobody looks at come once a minute, as browsers have it after a while. */
  readonly isThrottled?: boolean;
}

export class World {
  now = 0;
  /** What the machine's clock is set to, beside the time that passes. */
  wallAt = Date.UTC(2026, 0, 30);
  readonly chance: () => number;
  readonly server: VirtualServer;
  readonly indexedDb = new IDBFactory();
  readonly locks = new VirtualLocks(this);
  readonly channels = new Set<VirtualChannel>();
  readonly tabs: Tab[] = [];
  readonly hasLocks: boolean;
  readonly isThrottled: boolean;
  readonly #timers = new Map<number, Timer>();
  #timerNumbers = 0;

  constructor({ seed = 1, hasLocks = true, isThrottled = false }: WorldOptions = {}) {
    this.chance = dice(seed);
    this.hasLocks = hasLocks;
    this.isThrottled = isThrottled;
    this.server = new VirtualServer({
      wall: () => this.wall(),
      after: (ms, callback) => this.after(ms, callback),
    });
  }

  wall(): number {
    return this.wallAt + this.now;
  }

  after(ms: number, callback: () => void): () => void {
    this.#timerNumbers += 1;
    const number = this.#timerNumbers;
    this.#timers.set(number, { at: this.now + Math.max(0, ms), number, callback });
    return () => this.#timers.delete(number);
  }

  /** Let so much time pass, one event after the other. */
  async run(ms: number): Promise<void> {
    const end = this.now + ms;
    await settled();
    for (let next = this.#next(); next && next.at <= end; next = this.#next()) {
      this.#timers.delete(next.number);
      this.now = Math.max(this.now, next.at);
      next.callback();
      await settled();
    }
    this.now = end;
    await settled();
  }

  /** Let time pass until something holds; fails after so long. */
  async until(holds: () => boolean, msMax = 600_000, what = String(holds)): Promise<void> {
    const end = this.now + msMax;
    await settled();
    while (!holds()) {
      const next = this.#next();
      if (!next || next.at > end) throw new Error(`after ${msMax} ms it still does not hold: ${what}`);
      await this.run(Math.max(0, next.at - this.now));
    }
  }

  /** The result of a promise, while time passes. */
  async result<Value>(promise: Promise<Value>, msMax = 600_000): Promise<Value> {
    let isDone = false;
    const done = () => {
      isDone = true;
    };
    promise.then(done, done);
    await this.until(() => isDone, msMax, "a promise is settled");
    return promise;
  }

  async open(options: TabOptions): Promise<Tab> {
    const tab = new Tab(this, options);
    this.tabs.push(tab);
    const { crashAt } = options;
    tab.crashAt = crashAt ?? Number.POSITIVE_INFINITY;
    const opened = tab.start();
    if (crashAt === undefined) await this.result(opened);
    else {
      opened.catch(() => {});
      await this.run(0);
    }
    return tab;
  }

  #next(): Timer | undefined {
    let first: Timer | undefined;
    for (const timer of this.#timers.values()) {
      if (!first || timer.at < first.at || (timer.at === first.at && timer.number < first.number))
        first = timer;
    }
    return first;
  }
}

export interface TabOptions {
  readonly token: string | (() => Promise<string>);
  readonly deviceId?: string;
  readonly isVisible?: boolean;
  readonly connect?: Partial<ConnectOptions>;
  /** Crash when the tab takes its step of this number. */
  readonly crashAt?: number;
  /** How the other half of the client arrives; else it is there at once. */
  readonly later?: Platform["later"];
  /** What is wrong with the store of this tab. */
  readonly trouble?: Trouble;
}

/** Called before each write; what it throws is what the browser's store fails with. */
export type Trouble = (tables: readonly Table[], mode: Mode, write: number) => void;

class Crashed extends Error {}

export class Tab {
  readonly world: World;
  readonly #options: TabOptions;
  client!: Client;
  isVisible: boolean;
  crashAt = Number.POSITIVE_INFINITY;
  /** How often it has awaited something outside of itself. */
  steps = 0;
  isDead = false;
  #isFrozen = false;
  #missed: (() => void)[] = [];
  readonly #pageListeners = new Set<(event: PageEvent) => void>();
  writes = 0;

  constructor(world: World, options: TabOptions) {
    this.world = world;
    this.#options = options;
    this.isVisible = options.isVisible ?? true;
  }

  async start(): Promise<Client> {
    const { token, deviceId = "browser", connect: more } = this.#options;
    const platform = this.#platform();
    this.client = await connect(this.world.server.url, token, {
      deviceId,
      platform,
      store: (_, name) => new SteppedStore(new IndexedDbStore(name, this.world.indexedDb), this),
      ...more,
    });
    return this.client;
  }

  /** Whether this tab may go on: it takes one step, and that may be its last. */
  step(): boolean {
    if (this.isDead) return false;
    this.steps += 1;
    if (this.steps === this.crashAt) this.crash();
    return !this.isDead;
  }

  /** Whatever comes from outside reaches a tab that lives, and a frozen one when it thaws. */
  reach(callback: () => void): void {
    if (this.isDead) return;
    if (this.#isFrozen) this.#missed.push(callback);
    else if (this.step()) callback();
  }

  /** The tab is gone at once: nothing of it runs any more, and the browser frees what it held. */
  crash(): void {
    if (this.isDead) return;
    this.isDead = true;
    this.world.locks.release(this);
    for (const channel of [...this.world.channels])
      if (channel.tab === this) this.world.channels.delete(channel);
    for (const socket of this.sockets) socket.close();
  }

  /** Nothing of it runs until it thaws. `isTold`: the browser says so before, as it does not when the machine stalls. */
  freeze({ isTold = true } = {}): void {
    if (isTold) this.page("freeze");
    this.#isFrozen = true;
  }

  thaw(): void {
    this.#isFrozen = false;
    const missed = this.#missed;
    this.#missed = [];
    for (const callback of missed) this.reach(callback);
    this.page("thaw");
  }

  page(event: PageEvent): void {
    for (const listener of [...this.#pageListeners]) listener(event);
  }

  /** How long a timer takes that comes once a minute; each tab has another second for it. */
  untilMinute(ms: number): number {
    const second = this.world.tabs.indexOf(this) * 20_000;
    const late = (this.world.now + ms - second) % MINUTE_MS;
    return ms + (late === 0 ? 0 : MINUTE_MS - late);
  }

  get trouble(): Trouble | undefined {
    return this.#options.trouble;
  }

  readonly sockets = new Set<Socket>();

  #platform(): Platform {
    const [world, tab] = [this.world, this];
    const base: Platform = {
      now: () => world.now,
      wall: () => world.wall(),
      chance: world.chance,
      bytes: (count) => Uint8Array.from({ length: count }, () => Math.floor(world.chance() * 256)),
      after: (ms, callback) => {
        let isOff = false;
        const isSlow = world.isThrottled && !tab.isVisible;
        // A timer that came due in a frozen tab can still be called off.
        const callOff = world.after(isSlow ? tab.untilMinute(ms) : ms, () =>
          tab.reach(() => isOff || callback()),
        );
        return () => {
          isOff = true;
          callOff();
        };
      },
      fetch: () => Promise.reject(new TypeError("no network")),
      socketClass: null,
      indexedDb: null,
      locks: world.hasLocks ? world.locks.of(tab) : null,
      quota: async () => Number.POSITIVE_INFINITY,
      channel: (name) => new VirtualChannel(world, tab, name),
      later: tab.#options.later ?? (() => later),
      isVisible: () => tab.isVisible,
      onPageEvent: (listener) => {
        tab.#pageListeners.add(listener);
        return () => tab.#pageListeners.delete(listener);
      },
    };
    const wired = world.server.platform(base);
    const Wire = wired.socketClass as SocketClass;
    return {
      ...wired,
      fetch: (address, init) =>
        new Promise((resolve, reject) => {
          wired.fetch(address, init).then(
            (answer) => tab.reach(() => resolve(answer)),
            (error) => tab.reach(() => reject(error)),
          );
        }),
      socketClass: class implements Socket {
        binaryType = "";
        onopen: Socket["onopen"] = null;
        onmessage: Socket["onmessage"] = null;
        onclose: Socket["onclose"] = null;
        onerror: Socket["onerror"] = null;
        readonly #socket: Socket;

        constructor(url: string, protocol: string) {
          this.#socket = new Wire(url, protocol);
          this.#socket.onopen = (event) => tab.reach(() => this.onopen?.(event));
          this.#socket.onmessage = (event) => tab.reach(() => this.onmessage?.(event));
          this.#socket.onclose = (event) => tab.reach(() => this.onclose?.(event));
          tab.sockets.add(this.#socket);
        }

        send(data: string | Uint8Array<ArrayBuffer>): void {
          if (tab.step()) this.#socket.send(data);
        }

        close(): void {
          tab.sockets.delete(this.#socket);
          this.#socket.close();
        }
      },
    };
  }
}

/** The store of a tab that may end within a transaction, or before it hears of its end. */
class SteppedStore implements Store {
  readonly kind = "indexeddb";
  readonly #store: Store;
  readonly #tab: Tab;

  constructor(store: Store, tab: Tab) {
    this.#store = store;
    this.#tab = tab;
  }

  get onTaken(): Store["onTaken"] {
    return this.#store.onTaken;
  }

  set onTaken(listener: Store["onTaken"]) {
    this.#store.onTaken = listener;
  }

  async run<Result>(
    tables: Table[],
    mode: Mode,
    work: (tx: Transaction) => Promise<Result>,
  ): Promise<Result> {
    const tab = this.#tab;
    if (!tab.step()) return never();
    if (mode !== "read") {
      tab.writes += 1;
      tab.trouble?.(tables, mode, tab.writes);
    }
    const alive = <Value>(value: Value): Value => {
      if (!tab.step()) throw new Crashed();
      return value;
    };
    let outcome: { value: Result } | { error: unknown };
    try {
      const value = await this.#store.run(tables, mode, (tx) =>
        work({
          get: async (table, key) => alive(await tx.get(table, key)) as never,
          all: async (table, span, count) => alive(await tx.all(table, span, count)) as never,
          put: async (table, key, put) => alive(await tx.put(table, key, put)),
          delete: async (table, keys) => alive(await tx.delete(table, keys)),
        }),
      );
      outcome = { value };
    } catch (error) {
      outcome = { error };
    }
    return new Promise((resolve, reject) => {
      tab.reach(() => ("value" in outcome ? resolve(outcome.value) : reject(outcome.error)));
    });
  }

  reopen(): void {
    this.#store.reopen();
  }

  close(): void {
    this.#store.close();
  }

  wipe(): Promise<void> {
    return this.#store.wipe();
  }
}

function never<Value>(): Promise<Value> {
  return new Promise<Value>(() => {});
}

/** Web Locks: one holder for each name, others in the order of their requests. */
class VirtualLocks {
  readonly #world: World;
  readonly #held = new Map<string, Request>();
  readonly #waiting: Request[] = [];

  constructor(world: World) {
    this.#world = world;
  }

  of(tab: Tab): Locks {
    return {
      request: (name, { steal, signal }, callback) =>
        new Promise<unknown>((resolve, reject) => {
          const request: Request = { tab, name, callback, resolve, reject };
          signal?.addEventListener("abort", () => {
            const at = this.#waiting.indexOf(request);
            if (at >= 0) this.#waiting.splice(at, 1);
            reject(new DOMException("aborted", "AbortError"));
          });
          if (steal) {
            const robbed = this.#held.get(name);
            this.#held.delete(name);
            robbed?.tab.reach(() => robbed.reject(new DOMException("stolen", "AbortError")));
            this.#waiting.unshift(request);
          } else this.#waiting.push(request);
          this.#grant(name, 0);
        }),
    };
  }

  /** A tab has ended: what it held is free a moment later. */
  release(tab: Tab): void {
    for (let at = this.#waiting.length - 1; at >= 0; at--) {
      if (this.#waiting[at]?.tab === tab) this.#waiting.splice(at, 1);
    }
    for (const [name, request] of this.#held) {
      if (request.tab !== tab) continue;
      this.#held.delete(name);
      this.#grant(name, 38);
    }
  }

  /** Somebody who no longer exists takes each lock, and gives it back a second later. */
  rob(): void {
    for (const [name, request] of [...this.#held]) {
      request.tab.reach(() => request.reject(new DOMException("stolen", "AbortError")));
      const thief = { ...request, tab: new Tab(this.#world, { token: "" }) };
      this.#held.set(name, thief);
      this.#world.after(1_000, () => {
        if (this.#held.get(name) !== thief) return;
        this.#held.delete(name);
        this.#grant(name, 0);
      });
    }
  }

  #grant(name: string, ms: number): void {
    this.#world.after(ms, () => {
      if (this.#held.has(name)) return;
      const at = this.#waiting.findIndex((request) => request.name === name);
      const request = this.#waiting[at];
      if (!request) return;
      this.#waiting.splice(at, 1);
      this.#held.set(name, request);
      request.tab.reach(() => {
        const ended = request.callback().finally(() => {
          if (this.#held.get(name) !== request) return;
          this.#held.delete(name);
          this.#grant(name, 0);
        });
        ended.then(request.resolve, request.reject);
      });
    });
  }
}

interface Request {
  readonly tab: Tab;
  readonly name: string;
  readonly callback: () => Promise<unknown>;
  resolve(value: unknown): void;
  reject(error: unknown): void;
}

/** What is posted arrives at the others a moment later, in order. */
class VirtualChannel implements Channel {
  readonly #world: World;
  readonly tab: Tab;
  readonly name: string;
  onmessage: Channel["onmessage"] = null;

  constructor(world: World, tab: Tab, name: string) {
    this.#world = world;
    this.tab = tab;
    this.name = name;
    world.channels.add(this);
  }

  postMessage(message: unknown): void {
    if (!this.tab.step()) return;
    const data = structuredClone(message);
    for (const other of [...this.#world.channels]) {
      if (other === this || other.name !== this.name) continue;
      this.#world.after(1, () => other.tab.reach(() => other.onmessage?.({ data })));
    }
  }

  close(): void {
    this.#world.channels.delete(this);
  }
}
