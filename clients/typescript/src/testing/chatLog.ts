/** The logs of a server that exists only in this process. */

import type { Ack, ClientFrame, Entry, MessageBatch } from "../contract.js";
import { edited, tombstone } from "../core/life.js";
import { afterEntry, emptyLog, shown } from "../core/logHash.js";
import { PAGE_ENTRIES_MAX } from "../limits.js";

export type SendFrame = Extract<
  ClientFrame,
  { type: "send_message" | "edit_message" | "delete_message" | "react" }
>;

export type Page = Omit<MessageBatch, "type" | "re">;

/** Why a draft was refused: the code of the refusal. */
export class Refused extends Error {
  readonly code: string;
  readonly isTemporary: boolean;

  constructor(code: string, isTemporary = false) {
    super(code);
    this.code = code;
    this.isTemporary = isTemporary;
  }
}

interface Membership {
  readonly joinedSequence: number;
  read: number;
  delivered: number;
}

/** One chat: entries by position, what each sender has stored, and its members. */
export class ChatLog {
  readonly chatId: string;
  readonly type: "group" | "direct";
  title: string | null;
  readonly members = new Map<string, Membership>();
  readonly entries: Entry[] = [];
  readonly #hashes: Uint8Array[];
  readonly #acks = new Map<string, { ack: Ack; content: string }>();
  #epoch = 1;

  constructor(chatId: string, type: "group" | "direct", title: string | null, userIds: readonly string[]) {
    this.chatId = chatId;
    this.type = type;
    this.title = title;
    this.#hashes = [emptyLog(chatId)];
    for (const userId of userIds) this.members.set(userId, { joinedSequence: 0, read: 0, delivered: 0 });
  }

  get head(): number {
    return this.entries.length;
  }

  get epoch(): number {
    return this.#epoch;
  }

  /** Store a draft once, however often it comes. */
  append(frame: SendFrame, senderId: string, at: string, messageId: string): { ack: Ack; entry?: Entry } {
    const key = `${senderId} ${frame.client_message_id.toLowerCase()}`;
    const content = "content" in frame ? frame.content : "";
    const known = this.#acks.get(key);
    if (known) {
      return { ack: { ...known.ack, deduplicated: true, conflict: known.content !== content } };
    }
    if (!this.members.has(senderId)) throw new Refused("not_a_member");
    if (frame.type === "send_message" && frame.after_client_message_id) {
      const before = `${senderId} ${frame.after_client_message_id.toLowerCase()}`;
      if (!this.#acks.has(before)) throw new Refused("out_of_turn", true);
    }
    const entry = this.#entry(frame, senderId, at, messageId);
    this.#amend(frame, entry);
    this.entries.push(entry);
    this.#hashes.push(afterEntry(this.#hashes.at(-1) as Uint8Array, entry));
    const ack: Ack = {
      type: "ack",
      chat_id: this.chatId,
      client_message_id: frame.client_message_id,
      message_id: messageId,
      sequence: entry.sequence,
      epoch: this.#epoch,
      created_at: at,
      deduplicated: false,
      conflict: false,
    };
    this.#acks.set(key, { ack, content });
    return { ack, entry };
  }

  /** The log is lost and rebuilt under a higher epoch, with its first entries alone. */
  startOver(kept: number): void {
    this.#epoch += 1;
    this.#hashes.length = 1;
    for (const lost of this.entries.splice(0).slice(0, kept)) {
      const entry = { ...lost, epoch: this.#epoch };
      this.entries.push(entry);
      this.#hashes.push(afterEntry(this.#hashes.at(-1) as Uint8Array, entry));
    }
    for (const [key, { ack }] of this.#acks) if (ack.sequence > kept) this.#acks.delete(key);
  }

  /** What became of a message of this sender. */
  stored(senderId: string, clientMessageId: string): Ack | undefined {
    return this.#acks.get(`${senderId} ${clientMessageId.toLowerCase()}`)?.ack;
  }

  /** The entries after a position, or before one. */
  page(query: { after?: number; before?: number; limit?: number; epoch?: number; lastId?: string }): Page {
    const limit = Math.min(query.limit ?? 100, PAGE_ENTRIES_MAX);
    const isOther =
      (query.epoch !== undefined && query.epoch !== this.#epoch) ||
      (query.after ?? 0) > this.head ||
      (query.lastId !== undefined && this.entries[(query.after ?? 0) - 1]?.message_id !== query.lastId);
    const start = isOther ? 0 : (query.after ?? 0);
    const end = Math.min((query.before ?? this.head + 1) - 1, this.head);
    const [from, to] =
      query.before === undefined
        ? [start + 1, Math.min(start + limit, this.head)]
        : [Math.max(1, end - limit + 1), end];
    return {
      chat_id: this.chatId,
      epoch: this.#epoch,
      entries: this.entries.slice(from - 1, to),
      voids: [],
      from_sequence: from,
      to_sequence: Math.max(to, from - 1),
      head: this.head,
      complete: to >= this.head,
      reset: isOther,
      log_hash: shown(this.#hashes[Math.max(to, from - 1)] as Uint8Array),
    };
  }

  #entry(frame: SendFrame, senderId: string, at: string, messageId: string): Entry {
    const kind = {
      send_message: "message",
      edit_message: "edit",
      delete_message: "delete",
      react: "reaction",
    };
    return {
      chat_id: this.chatId,
      sequence: this.head + 1,
      epoch: this.#epoch,
      kind: kind[frame.type],
      message_id: messageId,
      sender_id: senderId,
      client_message_id: frame.client_message_id,
      content: "content" in frame ? frame.content : "",
      content_type: ("content_type" in frame && frame.content_type) || "text/plain",
      created_at: at,
      server_timestamp: at,
      display_time: ("display_time" in frame && frame.display_time) || null,
      ...("mentions" in frame && frame.mentions?.length && { mentions: frame.mentions }),
      ...("reply_to" in frame && frame.reply_to && { reply_to: frame.reply_to }),
      ...("message_id" in frame && { target_id: frame.message_id }),
      ...("reaction" in frame && { reaction: frame.reaction, on: frame.on ?? true }),
    };
  }

  /** Carry an edit or a delete out on the entry that it is about. */
  #amend(frame: SendFrame, entry: Entry): void {
    if (!("message_id" in frame)) return;
    const at = this.entries.findIndex((one) => one.message_id === frame.message_id);
    const target = this.entries[at];
    if (!target) throw new Refused("not_found");
    if (frame.type !== "react" && target.sender_id !== entry.sender_id) throw new Refused("forbidden");
    if (target.deleted) throw new Refused("message_deleted");
    const changed = frame.type === "edit_message" ? edited(target, entry) : tombstone(target);
    if (frame.type !== "react" && changed) this.entries[at] = changed;
  }
}
