/** What the client needs of the machine that it runs on. Tests pass their own: virtual time, locks, channels, sockets. */

import { CannotConnect } from "./core/errors.js";
import type { Later } from "./later.js";

/** A socket that is being opened or is open; the names are those of the browser's WebSocket. */
export interface Socket {
  binaryType: string;
  onopen: ((event: unknown) => void) | null;
  onmessage: ((event: { data: unknown }) => void) | null;
  onclose: ((event: { code: number; reason: string }) => void) | null;
  onerror: ((event: unknown) => void) | null;
  send(data: string | Uint8Array<ArrayBuffer>): void;
  close(code?: number, reason?: string): void;
}

/** The constructor of the browser's WebSocket, or that of the package `ws`. */
export type SocketClass = new (url: string, protocol: string) => Socket;

/** How tabs of one origin talk to each other; the names are those of BroadcastChannel. */
export interface Channel {
  onmessage: ((event: { data: unknown }) => void) | null;
  postMessage(message: unknown): void;
  close(): void;
}

/** Web Locks, as far as they are used. */
export interface Locks {
  request(
    name: string,
    options: { steal?: boolean; signal?: AbortSignal },
    callback: () => Promise<unknown>,
  ): Promise<unknown>;
}

/** What happens to the page: it is looked at again or the network came or went, it is put away, or taken out again. */
export type PageEvent = "wake" | "freeze" | "thaw";

export interface Platform {
  /** Milliseconds that only rise. */
  now(): number;
  /** The time of day. */
  wall(): number;
  /** 0..1, without 1. */
  chance(): number;
  bytes(count: number): Uint8Array;
  /** Call back once, later; returns what calls it off. */
  after(ms: number, callback: () => void): () => void;
  readonly fetch: typeof fetch;
  readonly socketClass: SocketClass | null;
  readonly indexedDb: IDBFactory | null;
  /** Null where there are none, as on plain http: then a lease in the store decides which tab leads. */
  readonly locks: Locks | null;
  /** How many bytes the page may keep; infinite where nobody says. */
  quota(): Promise<number>;
  channel(name: string): Channel | null;
  isVisible(): boolean;
  /** What is loaded behind the rest; at once if it is there. CannotConnect if it cannot be. */
  later(): Later | Promise<Later>;
  /** Listen to the page's life; returns what ends it. */
  onPageEvent(listener: (event: PageEvent) => void): () => void;
}

/** A random UUID. Pages on plain http have no `crypto.randomUUID`. */
export function uuid(platform: Platform): string {
  const bytes = platform.bytes(16);
  bytes[6] = ((bytes[6] as number) & 0x0f) | 0x40;
  bytes[8] = ((bytes[8] as number) & 0x3f) | 0x80;
  const text = Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
  return text.replace(/(.{8})(.{4})(.{4})(.{4})/, "$1-$2-$3-$4-");
}

let later: Later | undefined;

async function loaded(): Promise<Later> {
  try {
    later = await import("./later.js");
  } catch (cause) {
    throw new CannotConnect("a part of the client could not be loaded", { cause });
  }
  return later;
}

/** The browser, or Node. `socketClass`: what to use where there is no global WebSocket, as on Node 20. */
export function thisPlatform(socketClass?: SocketClass): Platform {
  const { navigator, document } = globalThis as { navigator?: Navigator; document?: Document };
  return {
    now: () => performance.now(),
    wall: () => Date.now(),
    chance: () => Math.random(),
    bytes: (count) => crypto.getRandomValues(new Uint8Array(count)),
    after: (ms, callback) => {
      const timer = setTimeout(callback, ms);
      return () => clearTimeout(timer);
    },
    fetch: (...request) => fetch(...request),
    socketClass: socketClass ?? (globalThis.WebSocket as SocketClass | undefined) ?? null,
    indexedDb: globalThis.indexedDB ?? null,
    locks: (navigator?.locks as Locks | undefined) ?? null,
    quota: async () => (await navigator?.storage?.estimate?.())?.quota ?? Number.POSITIVE_INFINITY,
    channel: (name) =>
      document && globalThis.BroadcastChannel ? (new BroadcastChannel(name) as unknown as Channel) : null,
    later: () => later ?? loaded(),
    isVisible: () => document?.visibilityState !== "hidden",
    onPageEvent: (listener) => (document ? listen(document, listener) : () => {}),
  };
}

function listen(document: Document, listener: (event: PageEvent) => void): () => void {
  const ended = new AbortController();
  const on = (target: EventTarget, name: string, react: (event: Event) => void) =>
    target.addEventListener(name, react, { signal: ended.signal });
  on(document, "visibilitychange", () => {
    if (document.visibilityState === "visible") listener("wake");
  });
  on(window, "online", () => listener("wake"));
  on(window, "offline", () => listener("wake"));
  on(document, "resume", () => listener("thaw"));
  on(document, "freeze", () => listener("freeze"));
  on(window, "pagehide", () => listener("freeze"));
  on(window, "pageshow", (event) => {
    if ((event as PageTransitionEvent).persisted) listener("thaw");
  });
  return () => ended.abort();
}
