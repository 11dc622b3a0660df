/**
 * The service worker: the shell of the chat without a network, and notifications.
 *
 * It answers for the page `/` and for files with a hash in their names, and for nothing else: not for the API, not for the
 * console. It keeps no token, and no message.
 */

export {};

interface Extendable extends Event {
  waitUntil(done: Promise<unknown>): void;
}
interface Fetching extends Extendable {
  readonly request: Request;
  respondWith(answer: Promise<Response>): void;
}
interface Pushed extends Extendable {
  readonly data: { json(): unknown } | null;
}
interface Clicked extends Extendable {
  readonly notification: Notification;
}
interface Tab {
  readonly url: string;
  readonly visibilityState: DocumentVisibilityState;
  readonly focused: boolean;
  focus(): Promise<Tab>;
  postMessage(message: unknown, transfer?: readonly MessagePort[]): void;
}
interface Worker extends EventTarget {
  readonly registration: ServiceWorkerRegistration;
  readonly clients: {
    matchAll(options: { type: "window"; includeUncontrolled: boolean }): Promise<readonly Tab[]>;
    openWindow(address: string): Promise<unknown>;
    claim(): Promise<void>;
  };
  skipWaiting(): Promise<void>;
}
interface Ring {
  readonly title: string;
  readonly content?: string;
  readonly tag: string;
  readonly badge?: number;
  readonly chat_id: string;
  readonly repeated?: boolean;
}

/** What a build consists of: put here by it. */
declare const __FILES__: readonly string[];

const worker = globalThis as unknown as Worker;
const CACHE = "parley shell";
const SHELL = "/";
const HASHED = /^\/assets\/.+-[A-Za-z0-9_-]{8,}\.(js|css)$/;
/** Files of older versions are forgotten beyond this. */
const FILES_MAX = 120;
/** A tab that is asked what it shows answers at once, or is frozen. */
const ANSWER_MS = 500;

function on<Kind extends Extendable>(name: string, react: (event: Kind) => void): void {
  worker.addEventListener(name, react as unknown as EventListener);
}

on("install", (event) => event.waitUntil(worker.skipWaiting()));
on("activate", (event) => event.waitUntil(worker.clients.claim()));

on<Fetching>("fetch", (event) => {
  const { request } = event;
  const { origin, pathname } = new URL(request.url);
  if (request.method !== "GET" || origin !== location.origin) return;
  if (HASHED.test(pathname)) event.respondWith(keptFile(request));
  else if (request.mode === "navigate" && pathname === SHELL) event.respondWith(newestPage(request));
});

async function keptFile(request: Request): Promise<Response> {
  const cache = await caches.open(CACHE);
  const kept = await cache.match(request);
  if (kept) return kept;
  const answer = await fetch(request);
  if (answer.ok) {
    await cache.put(request, answer.clone());
    await forgetOldest(cache);
  }
  return answer;
}

/** The page as the server has it now; the last one without a network. */
async function newestPage(request: Request): Promise<Response> {
  const cache = await caches.open(CACHE);
  try {
    const answer = await fetch(request);
    if (answer.ok) await cache.put(SHELL, answer.clone());
    return answer;
  } catch (error) {
    const kept = await cache.match(SHELL);
    if (kept) return kept;
    throw error;
  }
}

/** The page, which came before there was a worker, and parts of it that nobody has opened yet. */
async function keepAll(): Promise<void> {
  const cache = await caches.open(CACHE);
  for (const file of [SHELL, ...__FILES__]) {
    if (!(await cache.match(file))) await cache.add(file);
  }
  await forgetOldest(cache);
}

async function forgetOldest(cache: Cache): Promise<void> {
  const all = await cache.keys();
  const files = all.filter(({ url }) => new URL(url).pathname !== SHELL);
  for (const old of files.slice(0, Math.max(0, files.length - FILES_MAX))) await cache.delete(old);
}

on<Pushed>("push", (event) => {
  const ring = event.data?.json() as Ring | undefined;
  if (ring) event.waitUntil(show(ring));
});

/** None for the chat that the person looks at. */
async function show(ring: Ring): Promise<void> {
  const tabs = await worker.clients.matchAll({ type: "window", includeUncontrolled: true });
  const shown = await Promise.all(tabs.filter((tab) => tab.focused).map(chatOf));
  if (shown.includes(ring.chat_id)) return;
  const options: NotificationOptions & { renotify: boolean } = {
    body: ring.content ?? "",
    tag: ring.tag,
    renotify: !ring.repeated,
    icon: "/assets/icon.svg",
    data: { address: addressOf(ring.chat_id), chatId: ring.chat_id },
  };
  await worker.registration.showNotification(ring.title, options);
}

/** The chat that a tab shows. Its address says where it began, and not where it is. */
function chatOf(tab: Tab): Promise<string | null> {
  return new Promise((resolve) => {
    const { port1, port2 } = new MessageChannel();
    port1.onmessage = ({ data }) => resolve(data);
    setTimeout(() => resolve(null), ANSWER_MS);
    tab.postMessage({ type: "looking" }, [port2]);
  });
}

const addressOf = (chatId: string) => `/#/chat/${encodeURIComponent(chatId)}`;

on<Clicked>("notificationclick", (event) => {
  event.notification.close();
  const { address } = event.notification.data as { address: string };
  event.waitUntil(open(address));
});

async function open(address: string): Promise<void> {
  const [tab] = await worker.clients.matchAll({ type: "window", includeUncontrolled: true });
  if (!tab) {
    await worker.clients.openWindow(address);
    return;
  }
  tab.postMessage({ type: "open", address });
  await tab.focus();
}

interface Told {
  readonly type?: "keep" | "unread";
  /** The chats in which something is unread. */
  readonly chatIds?: readonly string[];
}

on<Extendable & MessageEvent>("message", (event) => {
  const { type, chatIds = [] } = event.data as Told;
  if (type === "keep") event.waitUntil(keepAll().catch(() => {}));
  if (type === "unread") event.waitUntil(closeOthers(new Set(chatIds)));
});

/** What was read, here or elsewhere, needs no notification any more. */
async function closeOthers(chatIds: ReadonlySet<string>): Promise<void> {
  for (const shown of await worker.registration.getNotifications()) {
    const { chatId = "" } = (shown.data as { chatId?: string } | null) ?? {};
    if (!chatIds.has(chatId)) shown.close();
  }
}
