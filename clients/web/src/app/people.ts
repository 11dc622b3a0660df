/** What people are called. Asked of the server when nothing said it before. */

import { signal } from "@preact/signals";
import type { Client } from "parley-chat";
import { s } from "../strings.en.js";
import { framed } from "./live.js";

export interface Named {
  readonly user_id: string;
  readonly username: string;
  readonly display_name: string;
}

const DELETED = "deleted:";
const ASKED_AT_ONCE_MAX = 100;
/** One that could not be found is not asked for again before this. */
const FORGET_MS = 60_000;

export class People {
  readonly #client: Client;
  readonly #known = new Map<string, Named>();
  readonly #failedAt = new Map<string, number>();
  readonly #waiting = new Set<string>();
  #watched: readonly string[] = [];
  readonly #lookSoon = framed(() => void this.#lookWho());
  #isAsking = false;
  readonly #work = framed(() => void this.#load());
  /** Whom the person has blocked, once it is known. */
  readonly blocked = signal<ReadonlySet<string>>(new Set());
  /** Who of those that are watched is online. */
  readonly online = signal<ReadonlySet<string>>(new Set());
  /** Rises when a name becomes known. */
  readonly #version = signal(0);
  readonly #show = framed(() => {
    this.#version.value += 1;
  });

  constructor(client: Client) {
    this.#client = client;
    client.on("presence", this.#lookSoon);
    client.on("connection", this.#lookSoon);
  }

  /** Watch these people. What the server says of them now is asked for once, what changes is told. */
  async watch(userIds: readonly string[]): Promise<void> {
    this.#watched = userIds;
    this.#client.watchPresence(userIds);
    await this.#lookWho();
  }

  async #lookWho(): Promise<void> {
    if (!this.#client.isOnline || this.#watched.length === 0) return;
    const views = await this.#client.presence(this.#watched).catch(() => []);
    this.online.value = new Set(views.flatMap((one) => (one.status === "online" ? one.user_id : [])));
  }

  async loadBlocked(): Promise<void> {
    const all = await this.#client.blocks.all().catch(() => null);
    if (all) this.blocked.value = new Set(all.map(({ user_id }) => user_id));
  }

  /** Keep somebody away, or not any more. */
  async block(userId: string, isOn: boolean): Promise<void> {
    await (isOn ? this.#client.blocks.add(userId) : this.#client.blocks.remove(userId));
    await this.loadBlocked();
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
    if (this.isGone(userId)) return s.deletedAccount;
    return this.find(userId)?.display_name || this.find(userId)?.username || s.unknownPerson;
  }

  /** Whether the account was deleted: it has a username then that nobody can have. */
  isGone(userId: string): boolean {
    return this.find(userId)?.username.startsWith(DELETED) ?? false;
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
    this.#work();
  }

  /** Those that are wanted by one frame are asked for together. */
  async #load(): Promise<void> {
    const wanted = [...this.#waiting].slice(0, ASKED_AT_ONCE_MAX);
    if (wanted.length === 0 || this.#isAsking) return;
    this.#isAsking = true;
    for (const userId of wanted) this.#failedAt.set(userId, Date.now());
    const found = await this.#client.people(wanted).catch(() => []);
    for (const profile of found) this.note(profile);
    for (const userId of wanted) this.#waiting.delete(userId);
    this.#isAsking = false;
    this.#work();
  }
}
