/** What people are called. Asked of the server when nothing said it before. */

import { signal } from "@preact/signals";
import type { Client, Profile } from "parley-chat";
import { s } from "../strings.en.js";
import { framed } from "./live.js";

export interface Named {
  readonly user_id: string;
  readonly username: string;
  readonly display_name: string;
}

const ASKED_AT_ONCE_MAX = 4;
/** One that could not be found is not asked for again before this. */
const FORGET_MS = 60_000;

export class People {
  readonly #client: Client;
  readonly #known = new Map<string, Named>();
  readonly #failedAt = new Map<string, number>();
  readonly #waiting = new Set<string>();
  #asking = 0;
  /** Rises when a name becomes known. */
  readonly #version = signal(0);
  readonly #show = framed(() => {
    this.#version.value += 1;
  });

  constructor(client: Client) {
    this.#client = client;
  }

  note(person: Named): void {
    const known = this.#known.get(person.user_id);
    if (known?.display_name === person.display_name && known.username === person.username) return;
    if (!person.username && known) return;
    this.#known.set(person.user_id, person);
    this.#show();
  }

  /** What others call the person; asked for if nothing is known. */
  name(userId: string): string {
    return this.find(userId)?.display_name || this.find(userId)?.username || s.unknownPerson;
  }

  find(userId: string): Named | undefined {
    this.#version.value;
    const known = this.#known.get(userId);
    if (!known && userId) this.#ask(userId);
    return known;
  }

  #ask(userId: string): void {
    const failedAt = this.#failedAt.get(userId) ?? Number.NEGATIVE_INFINITY;
    if (this.#waiting.has(userId) || Date.now() - failedAt < FORGET_MS) return;
    this.#waiting.add(userId);
    void this.#work();
  }

  async #work(): Promise<void> {
    if (this.#asking >= ASKED_AT_ONCE_MAX) return;
    this.#asking += 1;
    for (const userId of this.#waiting) {
      if (this.#known.has(userId) || this.#failedAt.has(userId)) continue;
      this.#failedAt.set(userId, Date.now());
      const profile: Profile | null = await this.#client.person(userId).catch(() => null);
      this.#waiting.delete(userId);
      if (profile) this.note(profile);
    }
    this.#asking -= 1;
  }
}
