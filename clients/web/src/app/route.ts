/** Where the person is: the hash of the address, so that the server sees none of it. */

import { signal } from "@preact/signals";

export interface ChatRoute {
  readonly page: "chat";
  readonly chatId: string;
  readonly at: number | null;
}

export type Route =
  | { readonly page: "chats" }
  | ChatRoute
  | { readonly page: "settings" }
  | { readonly page: "invitations" }
  | { readonly page: "contacts" }
  | { readonly page: "blocked" }
  | { readonly page: "create" };

const PLAIN = new Set(["settings", "invitations", "contacts", "blocked", "create"]);

export function parseRoute(hash: string): Route {
  const [page = "", chatId = "", at = ""] = hash.replace(/^#\/?/, "").split("/");
  if (page === "chat" && chatId) {
    return { page, chatId: decoded(chatId), at: /^[1-9]\d{0,15}$/.test(at) ? Number(at) : null };
  }
  return { page: PLAIN.has(page) ? page : "chats" } as Route;
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

export const hrefOf = {
  chats: () => "#/",
  chat: (chatId: string, at?: number) =>
    `#/chat/${encodeURIComponent(chatId)}${at === undefined ? "" : `/${at}`}`,
  page: (page: "settings" | "invitations" | "contacts" | "blocked" | "create") => `#/${page}`,
};

export const route = signal<Route>(parseRoute(location.hash));

export function go(href: string): void {
  if (location.hash === href) route.value = parseRoute(href);
  else location.hash = href;
}

addEventListener("hashchange", () => {
  route.value = parseRoute(location.hash);
});
