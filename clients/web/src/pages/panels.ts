/** What is over the page or beside it, whoever asked for it. */

import { signal } from "@preact/signals";

export type Panel =
  | { readonly shown: "search"; readonly chatId: string | null; readonly query?: string }
  | { readonly shown: "switch" }
  | { readonly shown: "shortcuts" };

export const panel = signal<Panel | null>(null);
export const hasDetails = signal(false);
/** Rises when the person wants to be at the end of the chat that is shown. */
export const toLatest = signal(0);
