/** What is completed while a message is written: people after an @, emoji after a colon. */

import { signal } from "@preact/signals";
import type { Chat } from "parley-chat";

export interface Suggestion {
  readonly key: string;
  /** What is put in the place of what was written. */
  readonly text: string;
  readonly name: string;
  readonly more: string;
  /** Of a person: who it is. */
  readonly userId?: string;
}

/** What is being written: where it begins, and what of it is there. */
export interface Asked {
  readonly sign: "@" | ":";
  readonly at: number;
  readonly query: string;
}

const MENTIONS_MAX = 100;
const BEFORE = /(?:^|[\s([{"'])(?:@([a-z0-9._-]{0,64})|:([a-z][a-z0-9 _+-]{1,20}))$/i;

/** What is asked for before the cursor; null if nothing is. */
export function askedAt(text: string, cursor: number): Asked | null {
  const found = BEFORE.exec(text.slice(0, cursor));
  if (!found) return null;
  const [, name, emoji] = found;
  const query = name ?? emoji ?? "";
  return { sign: name === undefined ? ":" : "@", at: cursor - query.length - 1, query: query.toLowerCase() };
}

/** The text with what was chosen in it, and where the cursor is then. */
export function completed(text: string, { at, query }: Asked, chosen: string): readonly [string, number] {
  const before = `${text.slice(0, at)}${chosen} `;
  return [before + text.slice(at + 1 + query.length).replace(/^ /, ""), before.length];
}

export class Suggestions {
  readonly asked = signal<Asked | null>(null);
  readonly all = signal<readonly Suggestion[]>([]);
  readonly chosen = signal(0);
  /** Who was chosen though the page does not know all members of the chat. */
  readonly #people = new Map<string, string>();

  look(text: string, cursor: number): void {
    const asked = askedAt(text, cursor);
    const now = this.asked.peek();
    if (asked?.at === now?.at && asked?.query === now?.query) return;
    this.asked.value = asked;
    this.chosen.value = 0;
    if (!asked) this.all.value = [];
  }

  stop(): void {
    this.asked.value = null;
    this.all.value = [];
  }

  /** The text with a suggestion in it, and where the cursor is then. */
  take(text: string, suggestion: Suggestion): readonly [string, number] {
    const asked = this.asked.peek();
    if (!asked) return [text, text.length];
    if (suggestion.userId) this.#people.set(suggestion.text.slice(1), suggestion.userId);
    this.stop();
    return completed(text, asked, suggestion.text);
  }

  /** A key of the text field while there are suggestions. Whether it was for them. */
  key(event: KeyboardEvent, choose: (suggestion: Suggestion) => void): boolean {
    const all = this.all.value;
    const now = all[this.chosen.value % Math.max(1, all.length)];
    if (!this.asked.value || !now) return false;
    const move = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (move !== undefined) this.chosen.value = (this.chosen.value + move + all.length) % all.length;
    else if (event.key === "Enter" || event.key === "Tab") choose(now);
    else if (event.key === "Escape") this.stop();
    else return false;
    event.preventDefault();
    event.stopPropagation();
    return true;
  }

  /** The ids of members whose names stand after an @ in the text. */
  mentionsIn(text: string, chat: Chat): string[] {
    const names = new Set(
      [...text.matchAll(/@([a-z0-9][a-z0-9._-]*)/gi)].map(([, name = ""]) =>
        name.replace(/[._-]+$/, "").toLowerCase(),
      ),
    );
    if (names.size === 0) return [];
    const known = new Map([...chat.members.values()].map(({ username, userId }) => [username, userId]));
    return [...names]
      .flatMap((name) => known.get(name) ?? this.#people.get(name) ?? [])
      .slice(0, MENTIONS_MAX);
  }
}
