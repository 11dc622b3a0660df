/** One chat, as an application uses it. */

import type { Client } from "./client.js";
import type {
  Batch,
  ChatHits,
  ChatInfo,
  Entry,
  Notify,
  OneMessage,
  ReadReceipts,
  Receipts,
  ReportMade,
  Role,
} from "./contract.js";
import type { ChatModel } from "./core/chatModel.js";
import type { LogDifference, ProofState } from "./core/logProof.js";
import type { Member } from "./core/members.js";
import type { MessageReceipts } from "./core/receipts.js";
import { cursorAt } from "./core/storage.js";
import type { ChatRequests } from "./requests.js";
import type { MessageStatus, Sending } from "./sending.js";
import type { UpdateStream } from "./updates.js";
import type { ChatWindow, WindowOptions } from "./window.js";

export interface SendOptions {
  /** "text/plain" if it is left out. */
  readonly contentType?: string;
  /** When it was written, in ISO 8601, for others to see; it orders nothing. Now, if it is left out. */
  readonly displayTime?: string;
  /** A UUIDv4 of your own, under which it is retried. */
  readonly clientMessageId?: string;
  /** Up to 100 user ids; their devices ring even if they want to be rung for mentions alone. */
  readonly mentions?: readonly string[];
  /** The id of the message of this chat that it answers. */
  readonly replyTo?: string;
  /** The ids of files that were uploaded: see `parley-chat/files`. */
  readonly attachments?: readonly string[];
}

/** What was written and not sent. */
export interface Draft {
  readonly text: string;
  readonly replyTo?: string;
  /** Files that were uploaded for it, or are only begun: whoever has the file goes on with `attachmentId`. */
  readonly files?: readonly DraftFile[];
}

export interface DraftFile {
  readonly attachmentId: string;
  readonly name: string;
  readonly size: number;
}

/**
 * `for await (const entry of chat)` yields its log from where this device is, then live.
 *
 * `unread`, `muted` and `typing` are always up to date; `members` and the status of messages are known from `open` until
 * `close`. `updates` yields what changed.
 */
export class Chat {
  readonly chatId: string;
  readonly #client: Client;
  readonly #model: ChatModel;

  /** @internal */
  constructor(client: Client, model: ChatModel) {
    this.chatId = model.chatId;
    this.#client = client;
    this.#model = model;
  }

  get client(): Client {
    return this.#client;
  }

  // Sending

  /**
   * Put a message into the outbox. Messages of one chat are stored in the order of these calls. OutboxFull or
   * RequestRefused if it cannot be queued.
   */
  send(content: string, options: SendOptions = {}): Sending {
    return this.#client.send({ ...options, chatId: this.chatId, content });
  }

  /** Give a message of your own another content. As `send`: queued, retried, done once. */
  edit(messageId: string, content: string): Sending {
    return this.#client.send({ chatId: this.chatId, kind: "edit", targetId: messageId, content });
  }

  /** Remove a message for good: your own, or any in a group that you are an admin or owner of. */
  delete(messageId: string): Sending {
    return this.#client.send({ chatId: this.chatId, kind: "delete", targetId: messageId, content: "" });
  }

  /** Add a reaction of 1 to 16 characters to a message, or take your own back. */
  react(messageId: string, reaction: string, { on = true } = {}): Sending {
    return this.#client.send({
      chatId: this.chatId,
      kind: "reaction",
      targetId: messageId,
      content: reaction,
      isOn: on,
    });
  }

  /** What of this chat is not stored, in the order in which it was sent. */
  get unsent(): Sending[] {
    return this.#client.unsent.filter((sending) => sending.chatId === this.chatId);
  }

  /** What was written and not sent, on this device. */
  async draft(): Promise<Draft | undefined> {
    return this.#client.store.run(["drafts"], "read", (tx) => tx.get<Draft>("drafts", this.chatId));
  }

  /** Keep what was written; null once it is sent or given up. Other tabs get the update "drafts". */
  async saveDraft(draft: Draft | null): Promise<void> {
    await this.#client.store.run(["drafts"], "relaxed", (tx) =>
      draft ? tx.put("drafts", this.chatId, draft) : tx.delete("drafts", this.chatId),
    );
    this.#client.draftChanged(this.chatId);
  }

  // Reading

  /** Read on. Ends another loop on this chat; the entry that it did not process comes again. */
  [Symbol.asyncIterator](): AsyncIterableIterator<Entry> {
    return this.#client.stream((reading) => reading.read(this.#model));
  }

  /** The last yielded entry is processed, though the loop does not take the next one. */
  done(): void {
    this.#client.core.reading?.markProcessed(this.#model, this.#client.platform.now());
  }

  /** The next loop starts after this sequence, wherever this device was; 0 is the whole log. */
  seek(after: number): void {
    void this.#client.whole((reading) => {
      reading.stop(this.#model);
      reading.core.seek(this.#model, cursorAt(0, after), this.#client.platform.now());
    });
  }

  /** How often the server has reset this log since this client reads it. */
  get restarts(): number {
    return this.#model.inbox?.restarts ?? 0;
  }

  /** Why this client last read the log again, if what it had read was not what the log holds. */
  get logDifference(): LogDifference | undefined {
    return this.#model.logDifference;
  }

  /** How sure this device is that it has read all of the log; undefined while no loop reads the chat. */
  get proof(): ProofState | undefined {
    return this.#model.proof;
  }

  /** Compare the hash of what was read with that of the log now: an update "log", or `proof`, has the result. */
  prove(): void {
    void this.#client.whole(({ core }) => core.prove(this.#model));
  }

  /** The log around a sequence or a message_id, or its end: from this device at once, then as the server has it. */
  async window(options: WindowOptions = {}): Promise<ChatWindow> {
    return this.#client.whole((reading) => reading.window(this.#model, options));
  }

  /** The entries before a sequence, or the latest. Moves no cursor. */
  async history({ before = Number.MAX_SAFE_INTEGER, limit = 100 } = {}): Promise<Batch> {
    return this.#client.whole((reading) => reading.page(this.chatId, { before, limit }));
  }

  /** One message as it is now, with its reactions and the number of its replies. */
  message(messageId: string): Promise<OneMessage> {
    return this.#ask((chat) => chat.message(messageId));
  }

  /** The newest messages with these words; `word*` finds words that begin so. */
  search(text: string, page: { before?: number; limit?: number } = {}): Promise<ChatHits> {
    return this.#ask((chat) => chat.search(text, page));
  }

  /** The person has read everything up to a sequence or a message_id. Stored before it resolves. */
  async markRead(upTo: number | string): Promise<void> {
    return this.#client.whole((reading) => reading.markRead(this.chatId, upTo));
  }

  // Live state

  /** Messages of others that the person has not read on any device, up to 999. */
  get unread(): number {
    return this.#model.unreadCount;
  }

  /** Whether there may be more: above 999, or beyond what the server counts. Otherwise it is exact. */
  get unreadMore(): boolean {
    return this.#model.unreadMore;
  }

  /** How far the person has read, on any device. */
  get readUpTo(): number {
    return this.#model.unread?.readUpTo ?? this.#model.row?.read_up_to ?? 0;
  }

  get muted(): boolean {
    return this.#model.isMuted(this.#client.platform.wall());
  }

  /** The user ids of members who are typing. */
  get typing(): string[] {
    return [...this.#model.typing];
  }

  /** The end of the log, as far as this client knows it. */
  get head(): number | undefined {
    return this.#model.row?.head;
  }

  /** Keep `members` and the status of messages up to date until `close`. Resolves to the chat itself. */
  async open(): Promise<this> {
    await this.#client.whole((reading) => reading.open(this.#model));
    return this;
  }

  /** Stop updating `members` and the status of messages, which saves requests. */
  close(): void {
    void this.#client.whole(({ core }) => core.close(this.#model));
  }

  get isOpen(): boolean {
    return this.#model.isOpen;
  }

  /** By user id, in the order in which they joined. Empty while the chat is not open. */
  get members(): ReadonlyMap<string, Member> {
    return this.#model.members;
  }

  /** The status of an entry, or of this person's message at a sequence. "sent" while the chat is not open. */
  status(message: Entry | number): MessageStatus {
    return this.seen(message)?.status ?? "sent";
  }

  /** Who has received and read a message, without a request; undefined while the chat is not open. */
  seen(message: Entry | number): MessageReceipts | undefined {
    if (typeof message === "number") return this.#model.receipts(message, this.#client.userId);
    return this.#model.receipts(message.sequence, message.sender_id);
  }

  /** A loop over the changes of this chat and of the connection. */
  updates(): UpdateStream {
    return this.#client.streamUpdates(({ chatId, userId }) =>
      userId === undefined ? chatId === undefined || chatId === this.chatId : this.members.has(userId),
    );
  }

  /** The person types: call it at every key. Sends at most one frame every 3 s, none while offline. */
  type(): void {
    this.#client.checkOpen();
    this.#client.core.reading?.startTyping(this.#model, this.#client.platform.now());
  }

  /** The person stopped typing without sending. A sent message ends typing by itself. */
  stopTyping(): void {
    this.#client.checkOpen();
    this.#client.core.reading?.stopTyping(this.#model);
  }

  // Requests to the server

  info(): Promise<ChatInfo> {
    return this.#ask((chat) => chat.info());
  }

  /** True if they were added; false if they were invited, as they let only others add them. */
  addMember(userId: string, role: Role = "member"): Promise<boolean> {
    return this.#ask((chat) => chat.addMember(userId, role));
  }

  /** Remove a member; with the person's own user id, leave. */
  removeMember(userId: string): Promise<void> {
    return this.#ask((chat) => chat.removeMember(userId));
  }

  setRole(userId: string, role: Role): Promise<void> {
    return this.#ask((chat) => chat.setRole(userId, role));
  }

  rename(title: string): Promise<ChatInfo> {
    return this.#ask((chat) => chat.rename(title));
  }

  /** What members see of readers: each by name, whether there is one, or nothing. */
  setReadReceipts(mode: ReadReceipts): Promise<ChatInfo> {
    return this.#ask((chat) => chat.setReadReceipts(mode));
  }

  /** Let only owners and admins post, or everybody again. */
  announceOnly(on = true): Promise<ChatInfo> {
    return this.#ask((chat) => chat.announceOnly(on));
  }

  /** So long a member waits between two messages; 0 ends it. The outbox waits by itself. */
  setSlowMode(seconds: number): Promise<ChatInfo> {
    return this.#ask((chat) => chat.setSlowMode(seconds));
  }

  /** How long messages may be edited, 0: for ever; null: as long as the server allows. */
  setEditWindow(seconds: number | null): Promise<ChatInfo> {
    return this.#ask((chat) => chat.setEditWindow(seconds));
  }

  /** Mute the chat for this person, on every device. */
  mute(until: Date): Promise<ChatInfo> {
    return this.#ask((chat) => chat.mute(until));
  }

  unmute(): Promise<ChatInfo> {
    return this.#ask((chat) => chat.unmute());
  }

  /** Choose which messages of the chat ring for this person. */
  notify(which: Notify): Promise<ChatInfo> {
    return this.#ask((chat) => chat.notify(which));
  }

  /** Tell the operators that something is wrong with a message. The same again is the same report. */
  report(messageId: string, reason: string): Promise<ReportMade> {
    return this.#ask((chat) => chat.report(messageId, reason));
  }

  /** Who has received and read a message, from the server: for a chat of any size, open or not. */
  receipts(sequence: number): Promise<Receipts> {
    return this.#ask((chat) => chat.receipts(sequence));
  }

  #ask<Result>(wish: (chat: ChatRequests) => Promise<Result>): Promise<Result> {
    return this.#client.ask((requests) => wish(requests.chat(this.chatId)));
  }
}
