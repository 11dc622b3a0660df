/** What the page and its service worker say to each other: files for later, and notifications. */

import type { Client } from "parley-chat";
import { kept } from "parley-ui/kept.js";
import type { Chats } from "./chats.js";
import { framed } from "./live.js";
import { go, route } from "./route.js";
import { worker } from "./worker.js";

export { watchAttention } from "./attention.js";
export { watchVersion } from "./version.js";

/** The page has what it needs by then. */
const KEEP_MS = 8_000;

/** The page can be opened without a network, and notifications lead to their chat. */
export async function serveShell(client: Client, chats: Chats): Promise<void> {
  const registration = await worker();
  if (!registration) return;
  const tell = (message: object) => registration.active?.postMessage(message);
  navigator.serviceWorker.addEventListener("message", ({ data, ports }) => {
    if (data?.type === "open" && typeof data.address === "string") go(data.address.slice(1));
    if (data?.type === "looking") ports[0]?.postMessage(lookedAt());
  });
  const unread = framed(() => {
    if (client.failure || !chats.isLoaded.value) return;
    const chatIds = [...chats.rows.value.keys()].filter((chatId) => client.chat(chatId).unread > 0);
    tell({ type: "unread", chatIds });
  });
  client.on("unread", unread);
  await navigator.serviceWorker.ready;
  if (client.isOnline) unread();
  setTimeout(() => tell({ type: "keep" }), KEEP_MS);
  await ringAgain(client, registration);
}

/** The chat that the person looks at in this tab. */
function lookedAt(): string | null {
  const at = route.value;
  return document.hasFocus() && at.page === "chat" ? at.chatId : null;
}

/** A browser may have changed the address at which it rings: the server is told at each start. */
async function ringAgain(client: Client, registration: ServiceWorkerRegistration): Promise<void> {
  const subscription = await registration.pushManager?.getSubscription();
  if (!subscription || Notification.permission !== "granted") return;
  const { pushOf } = await import("parley-chat/push");
  await pushOf(client).registerBrowser(registration, { preview: kept("preview") === "on" });
}

/** Nobody is signed in: this browser rings for nobody, and shows nothing of what it rang for. */
export async function endShell(): Promise<void> {
  const registration = await navigator.serviceWorker?.getRegistration("/");
  if (!registration) return;
  for (const shown of await registration.getNotifications()) shown.close();
  await stopRinging(registration);
}

export async function stopRinging(registration: ServiceWorkerRegistration | null): Promise<void> {
  await (await registration?.pushManager?.getSubscription())?.unsubscribe();
}
