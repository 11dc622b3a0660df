/** The chat that is on the screen: its window, what waits, and what the person has seen. */

import { computed, type Signal, signal } from "@preact/signals";
import {
  type AttachedFile,
  type AttachmentInfo,
  type Chat,
  type ChatInfo,
  type ChatWindow,
  type Entry,
  RequestRefused,
  type Sending,
} from "parley-chat";
import { s } from "../strings.en.js";
import { framed } from "./live.js";
import { type Row, rowsOf } from "./rows.js";
import type { App } from "./state.js";
import { filesOf, uploadsOf } from "./uploads.js";

const WINDOW_ENTRIES = 60;
const PAGE_ENTRIES = 80;
const RETRY_MS = 2_000;
const SAID_MS = 4_000;
const NOTICE_MS = 8_000;
/** An address of a file is used for so long; it is good for longer. */
const ADDRESS_MS = 5 * 60_000;
/** The pictures that the server makes, by their longer side. */
const SIDES = [320, 960];

export type Trouble = "not_a_member" | "not_found" | "unreachable" | null;

/** What the composer does besides writing. */
export interface Writing {
  readonly replyTo: string | null;
  readonly editing: string | null;
  /** Of a message that could not be sent: put back into the field. */
  readonly text?: string;
}

/** What the log of the chat has gone through while it is shown. */
export type Notice = "rebuilt" | "differs" | null;

/** Said once the chat is shown. */
const announced = new Map<string, string>();
export const announce = (chatId: string, text: string) => void announced.set(chatId, text);

export class Conversation {
  readonly chat: Chat;
  readonly app: App;
  readonly window = signal<ChatWindow | null>(null);
  readonly info = signal<ChatInfo | null>(null);
  readonly trouble = signal<Trouble>(null);
  readonly isLoadingOlder = signal(false);
  readonly isLoadingNewer = signal(false);
  readonly writing = signal<Writing>({ replyTo: null, editing: null });
  /** Said aloud once: "Copied". */
  readonly said = signal("");
  /** A position to show, and a number that rises with each wish. */
  readonly wanted: Signal<{ sequence: number; count: number } | null> = signal(null);
  /** The unread messages begin behind this; fixed while the chat is shown. */
  readonly dividerAfter = signal<number | null>(null);
  /** The log of the server is not the one that this device had read. */
  readonly notice = signal<Notice>(null);
  readonly peerId = computed(() => this.app.chats.rows.value.get(this.chat.chatId)?.peerId ?? null);
  /** The other person of a direct chat has deleted their account. */
  readonly isPeerGone = computed(() => {
    const row = this.app.chats.rows.value.get(this.chat.chatId);
    return row?.type === "direct" && (!row.peerId || this.app.people.isGone(row.peerId));
  });
  /** When the person may send again, by the clock of this device, where the chat makes them wait. */
  readonly slowUntil = computed(() => {
    const { slow_mode_seconds: seconds = 0, role } = this.info.value ?? {};
    if (seconds === 0 || role !== "member") return 0;
    const last = this.rows.value.findLast((row) => row.type === "message" && row.isOwn);
    const isSent = last?.type === "message" && last.status !== "failed";
    return isSent ? last.at + seconds * 1000 : 0;
  });
  readonly #version = signal(0);
  readonly #changed = framed(() => {
    this.#version.value += 1;
  });
  readonly rows = computed((): readonly Row[] => {
    this.#version.value;
    this.app.live.watch("receipts", this.chat.chatId);
    this.app.live.watch("members", this.chat.chatId);
    const window = this.window.value;
    return rowsOf({
      entries: window?.entries ?? [],
      messages: window?.messages ?? [],
      unsent: this.chat.unsent,
      userId: this.app.person.userId,
      dividerAfter: this.dividerAfter.value,
      from: window?.from ?? 1,
      // What waits is shown whatever else there is.
      isAtEnd: window?.isAtEnd ?? true,
      statusOf: (entry) => this.chat.status(entry),
    });
  });
  /** Whether the window reaches to the end; drawn again when that changes. */
  readonly isAtEnd = computed(() => {
    this.#version.value;
    return this.window.value?.isAtEnd ?? true;
  });
  /** Messages that are answered: as the window has them, else asked for once. */
  readonly #quoted = new Map<string, Signal<Entry | null>>();

  quoted(messageId: string): Signal<Entry | null> {
    const known = this.#quoted.get(messageId);
    const shown = this.window.peek()?.messages.find(({ entry }) => entry.message_id === messageId);
    if (known) {
      if (shown && known.peek() !== shown.entry) known.value = shown.entry;
      return known;
    }
    const found = signal<Entry | null>(shown?.entry ?? null);
    this.#quoted.set(messageId, found);
    if (!shown) {
      this.chat.message(messageId).then(
        ({ entry }) => {
          found.value = entry;
        },
        () => {},
      );
    }
    return found;
  }

  readonly isAtStart = computed(() => {
    this.#version.value;
    return this.window.value?.isAtStart ?? false;
  });
  #isClosed = false;
  #isDivided = false;
  #readUpTo = 0;
  readonly #offs: (() => void)[] = [];

  constructor(app: App, chatId: string) {
    this.app = app;
    this.chat = app.client.chat(chatId);
    this.#knownDifference = this.chat.logDifference;
    this.#knownRestarts = this.chat.restarts;
  }

  async open(at: number | null): Promise<void> {
    this.#offs.push(
      this.app.client.on("settings", ({ chatId }) => {
        if (chatId === this.chat.chatId) void this.loadInfo();
      }),
      this.app.client.on("members", ({ chatId }) => {
        if (chatId !== this.chat.chatId) return;
        // No overview lists it any more: the person has left, or was removed.
        if (this.chat.head === undefined) void this.loadInfo();
        for (const member of this.chat.members.values()) {
          const { userId: user_id, username, displayName: display_name } = member;
          this.app.people.note({ user_id, username, display_name });
        }
      }),
    );
    this.#offs.push(
      this.app.client.on("unread", () => this.#divide()),
      this.app.client.on("any", ({ chatId }) => {
        if (chatId !== this.chat.chatId) return;
        this.#tellOfLog();
        this.#tellOfRefused();
      }),
    );
    this.#divide();
    const text = announced.get(this.chat.chatId);
    if (text && announced.delete(this.chat.chatId)) this.say(text);
    this.chat.open().catch((error) => this.#refused(error));
    void this.loadInfo();
    await this.#show(at ?? this.#firstUnread());
    if (at !== null) this.want(at);
  }

  /** Run it when another chat is chosen. */
  readonly onClose = (run: () => void): void => {
    this.#offs.push(run);
  };

  /** The log is read again because it is another one, or because what was read is not what it holds. */
  #tellOfLog(): void {
    const { restarts, logDifference } = this.chat;
    if (logDifference && logDifference !== this.#knownDifference) this.#tell("differs");
    else if (restarts > this.#knownRestarts) this.#tell("rebuilt");
    this.#knownDifference = logDifference;
    this.#knownRestarts = restarts;
  }

  #tell(notice: Notice): void {
    this.notice.value = notice;
    setTimeout(() => {
      if (this.notice.peek() === notice) this.notice.value = null;
    }, NOTICE_MS);
  }

  /** An edit, a delete or a reaction that was refused for good has no row of its own: it is told, and given up. */
  #tellOfRefused(): void {
    for (const sending of this.chat.unsent) {
      if (sending.status !== "failed" || (sending.message.kind ?? "message") === "message") continue;
      if (this.#told.has(sending)) continue;
      this.#told.add(sending);
      this.say(s.changeRefused(sending.refusal?.reason ?? ""));
      void sending.discard();
    }
  }

  #knownDifference: Chat["logDifference"];
  #knownRestarts = 0;
  readonly #told = new WeakSet<Sending>();

  /** Write a message that could not be sent once more. */
  async writeAgain(sending: Sending): Promise<void> {
    const { content, replyTo, attachments = [] } = sending.message;
    await sending.discard();
    await uploadsOf(this.chat).restore(
      attachments.map((attachmentId) => ({ attachmentId, name: attachmentId, size: 0 })),
    );
    this.writing.value = { replyTo: replyTo ?? null, editing: null, text: content };
  }

  close(): void {
    this.#isClosed = true;
    for (const off of this.#offs) off();
    this.window.value?.close();
    this.chat.close();
  }

  /** Bring a position to the screen, wherever in the log it is. */
  async jump(to: number | string): Promise<void> {
    const sequence = typeof to === "string" ? await this.#sequenceOf(to) : to;
    if (sequence === null) return;
    const window = this.window.value;
    if (!window || sequence < window.from || sequence > window.to) await this.#show(sequence);
    this.want(sequence);
  }

  async jumpToLatest(): Promise<void> {
    if (!this.window.value?.isAtEnd) await this.#show(null);
    this.want(Number.POSITIVE_INFINITY);
  }

  /** Come into a chat that is open. */
  async join(): Promise<void> {
    await this.chat.addMember(this.app.person.userId);
    this.app.chats.reloadSoon(0);
    this.chat.close();
    this.trouble.value = null;
    await this.chat.open().catch((error) => this.#refused(error));
    void this.loadInfo();
    await this.#show(null);
  }

  say(text: string): void {
    this.said.value = text;
    setTimeout(() => {
      if (this.said.peek() === text) this.said.value = "";
    }, SAID_MS);
  }

  want(sequence: number): void {
    this.wanted.value = { sequence, count: (this.wanted.peek()?.count ?? 0) + 1 };
  }

  older(): Promise<void> {
    return this.#load(this.isLoadingOlder, (window) => !window.isAtStart && window.older(PAGE_ENTRIES));
  }

  newer(): Promise<void> {
    return this.#load(this.isLoadingNewer, (window) => !window.isAtEnd && window.newer(PAGE_ENTRIES));
  }

  /** The person has seen everything up to here. */
  seen(sequence: number): void {
    if (sequence <= this.#readUpTo || !this.#isDivided) return;
    this.#readUpTo = sequence;
    if (this.chat.unread > 0 || sequence > this.chat.readUpTo) this.chat.markRead(sequence).catch(() => {});
  }

  async loadInfo(): Promise<void> {
    try {
      this.info.value = await this.chat.info();
      this.trouble.value = null;
    } catch (error) {
      this.#refused(error);
    }
  }

  /** Where reading goes on, if that is not near the end. */
  #firstUnread(): number | null {
    const { unread, head, readUpTo } = this.chat;
    return unread > 0 && head !== undefined && head - readUpTo > WINDOW_ENTRIES / 2 ? readUpTo + 1 : null;
  }

  /** Fix the divider, once the server has said how far the person has read. */
  #divide(): void {
    if (this.#isDivided || this.chat.head === undefined) return;
    this.#isDivided = true;
    if (this.chat.unread > 0) this.dividerAfter.value = this.chat.readUpTo;
  }

  async #show(around: number | null): Promise<void> {
    const options = { size: WINDOW_ENTRIES, ...(around !== null && { around }) };
    for (;;) {
      try {
        const window = await this.chat.window(options);
        if (this.#isClosed) return window.close();
        this.window.value?.close();
        window.onChange(() => {
          this.#changed();
          this.#tellOfLog();
        });
        this.window.value = window;
        return;
      } catch (error) {
        if (this.#isClosed || this.#refused(error)) return;
        await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
      }
    }
  }

  async #load(flag: Signal<boolean>, load: (window: ChatWindow) => Promise<boolean> | false): Promise<void> {
    const window = this.window.value;
    if (flag.value || !window) return;
    const loading = load(window);
    if (!loading) return;
    flag.value = true;
    try {
      await loading;
    } catch {
      // Asked for again when the person scrolls on.
    }
    flag.value = false;
  }

  async #sequenceOf(messageId: string): Promise<number | null> {
    const shown = this.window.value?.messages.find(({ entry }) => entry.message_id === messageId);
    if (shown) return shown.entry.sequence;
    const found = await this.chat.message(messageId).catch(() => null);
    return found?.entry.sequence ?? null;
  }

  /** The first position that is not older than this: halves the log until it is found. */
  async firstSince(at: number): Promise<number> {
    let [low, high] = [1, this.chat.head ?? this.info.value?.head ?? 1];
    while (low < high) {
      const middle = Math.floor((low + high) / 2);
      const { entries } = await this.chat.history({ before: middle + 1, limit: 1 });
      const entry = entries.at(-1);
      if (entry && Date.parse(entry.created_at) >= at) high = middle;
      else low = middle + 1;
    }
    return low;
  }

  /**
   * Where a picture can be read from, for a while: the address is signed. With `pixels`, of the smallest one that has as
   * many at its longer side.
   */
  async pictureAddress(attachmentId: string, pixels = Number.POSITIVE_INFINITY): Promise<string> {
    const known = this.#addresses.get(attachmentId);
    let found = known && known.until > Date.now() ? known.info : null;
    if (!found) {
      found = filesOf(this.chat).then((files) => files.info(attachmentId));
      this.#addresses.set(attachmentId, { info: found, until: Date.now() + ADDRESS_MS });
      found.catch(() => this.#addresses.delete(attachmentId));
    }
    const { url, pictures = {} } = await found;
    const side = SIDES.find((one) => one >= pixels && pictures[one]);
    const address = side ? pictures[side] : url;
    if (!address) throw new Error("it is not there");
    return address;
  }

  readonly #addresses = new Map<string, { readonly info: Promise<AttachmentInfo>; readonly until: number }>();

  /** Save a file of a message; it is never opened in the page. */
  async download(file: AttachedFile): Promise<void> {
    const bytes = await (await filesOf(this.chat)).download(file.attachment_id);
    const link = document.createElement("a");
    link.href = URL.createObjectURL(bytes);
    link.download = file.name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), ADDRESS_MS);
  }

  /** Whether asking again is of no use. */
  #refused(error: unknown): boolean {
    if (!(error instanceof RequestRefused) || error.temporary) {
      if (!this.window.value) this.trouble.value = "unreachable";
      return false;
    }
    if (error.code === "not_a_member" || error.code === "not_found") this.trouble.value = error.code;
    return true;
  }
}
