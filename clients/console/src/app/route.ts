/** Where the operator is: the hash of the address, so that no log of a proxy has ids in it. */

import { signal } from "@preact/signals";

/** `#/chat/{id}?around=47`: the name of a page, the id that it is about, and what is filtered. */
export interface Place {
  readonly name: string;
  readonly id: string;
  readonly query: URLSearchParams;
}

export function parsePlace(hash: string): Place {
  const [path = "", query = ""] = hash.replace(/^#\/?/, "").split("?", 2);
  const [name = "", ...rest] = path.split("/");
  return { name, id: decoded(rest.join("/")), query: new URLSearchParams(query) };
}

/** `hrefOf("chat", chatId, { around: 47 })` */
export function hrefOf(name: string, id = "", query: Readonly<Record<string, string | number>> = {}): string {
  const asked = Object.entries(query).filter(([, value]) => value !== "");
  const search = new URLSearchParams(asked.map(([key, value]) => [key, String(value)])).toString();
  return `#/${name}${id && `/${encodeURIComponent(id)}`}${search && `?${search}`}`;
}

export const place = signal<Place>(parsePlace(location.hash));

export function go(href: string): void {
  location.hash = href;
}

/** Another filter of the same page: no step back in the browser's history. */
export function refine(href: string): void {
  history.replaceState(null, "", href);
  place.value = parsePlace(location.hash);
}

addEventListener("hashchange", () => {
  place.value = parsePlace(location.hash);
});

function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
