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
  postMessage(message: unknown): void;
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

const worker = globalThis as unknown as Worker;
const CACHE = "parley shell";
const SHELL = "/";
const HASHED = /^\/assets\/.+-[A-Za-z0-9_-]{8,}\.(js|css)$/;
/** Files of older versions are forgotten beyond this. */
const FILES_MAX = 60;

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
  const address = addressOf(ring.chat_id);
  const isLookedAt = tabs.some((tab) => tab.focused && tab.url.includes(address));
  if (isLookedAt) return;
  const options: NotificationOptions & { renotify: boolean } = {
    body: ring.content ?? "",
    tag: ring.tag,
    renotify: !ring.repeated,
    icon: "/assets/icon.svg",
    data: { address },
  };
  await worker.registration.showNotification(ring.title, options);
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

on<Extendable & MessageEvent>("message", (event) => {
  const told = event.data as { type?: string; chatId?: string };
  if (told.type === "read" && told.chatId) event.waitUntil(closeAll(addressOf(told.chatId)));
});

/** What was read elsewhere needs no notification any more. */
async function closeAll(address: string): Promise<void> {
  for (const shown of await worker.registration.getNotifications()) {
    if ((shown.data as { address?: string } | null)?.address === address) shown.close();
  }
}
