/** The list of chats: as the server lists it, kept up to date by what arrives. */

import { computed, signal } from "@preact/signals";
import type { Client, Entry, OverviewChat } from "parley-chat";
import { s } from "../strings.en.js";
import { framed } from "./live.js";
import type { People } from "./people.js";

export interface ChatRow {
  readonly chatId: string;
  readonly type: "direct" | "group";
  readonly title: string | null;
  /** The other person of a direct chat. */
  readonly peerId: string | null;
  readonly last: Entry | null;
  /** What orders the list. */
  readonly at: number;
  readonly unreadMentions: number;
}

const RELOAD_MS = 300;
/** Drafts are looked for in so many chats when the page begins. */
const DRAFTS_MAX = 200;
/** Of so many people it is said whether they are online. */
const WATCHED_MAX = 100;
const RETRY_MS = 5_000;
/** Chats that a new device reads back, and how far; of others only a little. */
const READ_BACK_CHATS = 20;
const READ_BACK = 1_000;
const READ_BACK_OTHERS = 25;

export class Chats {
  readonly #client: Client;
  readonly #people: People;
  readonly rows = signal<ReadonlyMap<string, ChatRow>>(new Map());
  readonly isLoaded = signal(false);
  /** What was written and not sent, by chat. */
  readonly drafts = signal<ReadonlyMap<string, string>>(new Map());
  /** Newest first. */
  readonly sorted = computed(() => [...this.rows.value.values()].sort((one, other) => other.at - one.at));
  /** How far this device has read what it has to, while there is much. */
  readonly catchingUp = signal<{ done: number; of: number } | null>(null);
  #next: Map<string, ChatRow> | null = null;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #isReading = false;
  readonly #show = framed(() => {
    if (this.#next) this.rows.value = this.#next;
    this.#next = null;
  });

  constructor(client: Client, people: People) {
    this.#client = client;
    this.#people = people;
    client.on("settings", ({ chatId }) => chatId && this.reloadSoon());
    client.on("members", ({ chatId }) => chatId && !this.rows.value.has(chatId) && this.reloadSoon());
    client.on("unread", ({ chatId }) => chatId && this.#counted(chatId));
    client.on("connection", () => client.isOnline && this.reloadSoon());
    client.on("drafts", ({ chatId }) => chatId && void this.#loadDraft(chatId));
  }

  /** What is read mentions nobody any more; a chat that is not in the list is new. */
  #counted(chatId: string): void {
    const rows = this.#next ?? this.rows.value;
    const row = rows.get(chatId);
    if (!row) this.reloadSoon();
    if (!row || row.unreadMentions === 0 || this.#client.chat(chatId).unread > 0) return;
    this.#next ??= new Map(this.rows.value);
    this.#next.set(chatId, { ...row, unreadMentions: 0 });
    this.#show();
  }

  /** Ask for the list; offline it is as this device last saw it. */
  async load(): Promise<void> {
    try {
      const listed = await this.#client.chats();
      const next = new Map<string, ChatRow>();
      for (const chat of listed) {
        if (chat.left) continue;
        if (chat.peer) this.#people.note(chat.peer);
        next.set(chat.chat_id, this.#rowOf(chat));
      }
      this.#next = next;
      this.#show();
      if (!this.isLoaded.value)
        for (const chatId of [...next.keys()].slice(0, DRAFTS_MAX)) void this.#loadDraft(chatId);
      this.isLoaded.value = true;
      this.#watchPeers(next);
      if (this.#client.isOnline && !this.#isReading) void this.#read(listed);
    } catch {
      if (!this.#client.failure) this.reloadSoon(RETRY_MS);
    }
  }

  /** The people of the newest direct chats: whether they are there is shown in the list. */
  #watchPeers(rows: ReadonlyMap<string, ChatRow>): void {
    const newest = [...rows.values()].sort((one, other) => other.at - one.at);
    const peers = newest.flatMap(({ peerId }) => peerId ?? []).slice(0, WATCHED_MAX);
    if (`${peers}` === this.#watched) return;
    this.#watched = `${peers}`;
    void this.#people.watch(peers);
  }

  #watched = "";

  async #loadDraft(chatId: string): Promise<void> {
    const draft = await this.#client
      .chat(chatId)
      .draft()
      .catch(() => undefined);
    if ((draft?.text ?? "") === (this.drafts.value.get(chatId) ?? "")) return;
    const drafts = new Map(this.drafts.value);
    if (draft?.text) drafts.set(chatId, draft.text);
    else drafts.delete(chatId);
    this.drafts.value = drafts;
  }

  reloadSoon(ms = RELOAD_MS): void {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => void this.load(), ms);
  }

  stop(): void {
    clearTimeout(this.#timer);
  }

  titleOf(chatId: string): string {
    const row = this.rows.value.get(chatId);
    if (row?.peerId) return this.#people.name(row.peerId);
    return row?.title || (row?.type === "direct" ? s.deletedAccount : s.unnamed);
  }

  #rowOf(chat: OverviewChat): ChatRow {
    const known = (this.#next ?? this.rows.value).get(chat.chat_id);
    const listed = chat.last_entry ?? null;
    const last = known?.last && (!listed || known.last.sequence > listed.sequence) ? known.last : listed;
    return {
      chatId: chat.chat_id,
      type: chat.type ?? "group",
      title: chat.title ?? null,
      peerId: chat.peer?.user_id ?? null,
      last,
      at: last ? Date.parse(last.created_at) : (known?.at ?? Date.now()),
      unreadMentions: (chat as { unread_mentions?: number }).unread_mentions ?? 0,
    };
  }

  /** Read every chat, so that senders see what this device has, and it can be proven. */
  async #read(listed: readonly OverviewChat[]): Promise<void> {
    this.#isReading = true;
    this.#startNear(listed);
    try {
      for await (const entry of this.#client) {
        this.#note(entry);
        this.#countCatchingUp(entry);
      }
    } catch {
      // The client has ended.
    }
  }

  /** A new device begins near the end of long logs: what is before it is a page away. */
  #startNear(listed: readonly OverviewChat[]): void {
    const newest = [...listed].sort((one, other) => lastAt(other) - lastAt(one));
    newest.forEach((row, rank) => {
      const back = rank < READ_BACK_CHATS ? READ_BACK : READ_BACK_OTHERS;
      if (this.#positionOf(row) === 0 && row.head > back) {
        this.#client.chat(row.chat_id).seek(row.head - back);
      }
    });
    for (const row of listed) {
      const from = this.#positionOf(row);
      if (from > 0) this.#toRead.set(row.chat_id, { from, to: row.head, at: from });
    }
    this.#showCatchingUp();
  }

  /** How far this device has read: as it knows itself, or as it has told the server. */
  #positionOf(row: OverviewChat): number {
    return Math.max(
      row.last_acked_sequence,
      this.#client.core.reading?.cursors.get(row.chat_id)?.sequence ?? 0,
    );
  }

  /** What this device had not read when it connected. */
  readonly #toRead = new Map<string, { readonly from: number; readonly to: number; at: number }>();
  readonly #showCatchingUp = framed(() => {
    const all = [...this.#toRead.values()];
    const of = all.reduce((sum, { from, to }) => sum + to - from, 0);
    const done = all.reduce((sum, { from, at }) => sum + at - from, 0);
    this.catchingUp.value = of >= CATCHING_UP_MIN && done < of ? { done, of } : null;
  });

  #countCatchingUp(entry: Entry): void {
    const stretch = this.#toRead.get(entry.chat_id);
    if (!stretch || stretch.at >= stretch.to) return;
    stretch.at = Math.min(entry.sequence, stretch.to);
    this.#showCatchingUp();
  }

  #note(entry: Entry): void {
    const rows = this.#next ?? this.rows.value;
    const row = rows.get(entry.chat_id);
    if (!row) {
      this.reloadSoon();
      return;
    }
    if (row.last && row.last.sequence >= entry.sequence && row.last.epoch >= entry.epoch) return;
    if (entry.kind === "chat" || entry.kind === "member") this.reloadSoon();
    const isAboutMe =
      entry.mentions?.includes(this.#client.userId) && entry.sender_id !== this.#client.userId;
    const isUnread = entry.sequence > this.#client.chat(entry.chat_id).readUpTo;
    const unreadMentions = row.unreadMentions + (isAboutMe && isUnread ? 1 : 0);
    this.#next ??= new Map(this.rows.value);
    this.#next.set(entry.chat_id, { ...row, last: entry, at: Date.parse(entry.created_at), unreadMentions });
    this.#show();
  }
}

/** So much is missing before it is worth a number. */
const CATCHING_UP_MIN = 500;

const lastAt = (row: OverviewChat) => (row.last_entry ? Date.parse(row.last_entry.created_at) : 0);
