/** Everything the client knows about one chat. Pure. */

import type { MessageBatch, OverviewChat, ReceiptFrame } from "../contract.js";
import { UNREAD_MAX } from "../limits.js";
import type { Update, What } from "./events.js";
import type { Inbox } from "./inbox.js";
import type { LogDifference, ProofState } from "./logProof.js";
import type { Member, Roster } from "./members.js";
import type { MessageReceipts } from "./receipts.js";
import type { Slot } from "./slots.js";

/** A row of the overview, from another source than the overview. */
export const makeRow = (chatId: string, epoch = 0, head = 0): OverviewChat => ({
  chat_id: chatId,
  epoch,
  head,
  last_acked_sequence: 0,
  read_up_to: 0,
  unread: 0,
  unread_more: false,
  muted: false,
  muted_until: null,
});

/**
 * What an application sees of one chat, kept up to date as frames arrive.
 *
 * It calls `notify` with each change. A method returns false when something is missing and the client must
 * request the overview again.
 */
export class ChatModel {
  readonly chatId: string;
  readonly #notify: (update: Update) => void;
  /** Its row of the overview; undefined if the person is not known to be in this chat. */
  row: OverviewChat | undefined;
  /** Set once the overview has listed the chat. */
  unread: UnreadCounter | undefined;
  #mutedUntil = 0;
  /** Set while the application reads the chat. */
  inbox: Inbox | undefined;
  /** Set while the chat is open. */
  roster: Roster | undefined;
  /** The roster that waits for a snapshot; after a close and an open it is not `roster`. */
  loading: Roster | undefined;
  /** This device's last ack: a snapshot may not include it yet. */
  delivered: ReceiptFrame | undefined;
  /** Why this chat was last read again from its start, if a page showed that it had to be. */
  logDifference: LogDifference | undefined;
  /** Others who type, in the order in which they began. */
  readonly typing = new Set<string>();
  /** When this client last sent that this person types. */
  typingSentAt: number | undefined;

  constructor(chatId: string, notify: (update: Update) => void) {
    this.chatId = chatId;
    this.#notify = notify;
  }

  get unreadCount(): number {
    return this.unread?.count ?? 0;
  }

  get unreadMore(): boolean {
    return this.unread?.more ?? false;
  }

  get isOpen(): boolean {
    return this.roster?.isLoaded ?? false;
  }

  /** By user id, in the order in which they joined. Empty while the chat is not open. */
  get members(): ReadonlyMap<string, Member> {
    return this.roster?.isLoaded ? this.roster.members : new Map();
  }

  /** How sure this device is of what it has read; undefined while it does not read the chat. */
  get proof(): ProofState | undefined {
    return this.inbox?.proof;
  }

  isMuted(wall: number): boolean {
    return wall < this.#mutedUntil;
  }

  /** The receipts of a message; undefined while the chat is not open. */
  receipts(sequence: number, senderId: string): MessageReceipts | undefined {
    return this.roster?.isLoaded ? this.roster.receipts(sequence, senderId) : undefined;
  }

  notify(what: What): void {
    this.#notify({ type: "update", what, chatId: this.chatId });
  }

  // Input from the server

  /** Apply the overview's row of this chat. */
  place(row: OverviewChat): boolean {
    this.row = row;
    this.unread ??= new UnreadCounter();
    const isComplete = this.#counting((unread) => unread.place(row));
    this.mute(row.muted_until);
    return isComplete;
  }

  /** The log reaches at least to `head`. */
  reaches(head: number): void {
    if (this.row && head > this.row.head) this.row = { ...this.row, head };
  }

  /** Clear the state: the person is not in this chat. */
  leave(): void {
    this.row = undefined;
    this.unread = undefined;
    this.delivered = undefined;
    this.#mutedUntil = 0;
    this.notify("members");
    this.notify("unread");
  }

  mute(until: string | null | undefined): void {
    const mutedUntil = (until && Date.parse(until)) || 0;
    if (mutedUntil !== this.#mutedUntil) {
      this.#mutedUntil = mutedUntil;
      this.notify("settings");
    }
  }

  /** Count live entries as unread. A chat that no overview has listed is not counted: it may have been left. */
  receiveLive(epoch: number, slots: readonly Slot[], userId: string, isCatchingUp: boolean): boolean {
    return this.#counting((unread) => unread.receiveLive(epoch, slots, userId, isCatchingUp));
  }

  receivePage(batch: MessageBatch, slots: readonly Slot[], userId: string): void {
    this.unread?.receivePage(batch, slots, userId);
  }

  receiveReceipt(frame: ReceiptFrame): void {
    if (this.roster?.receiveReceipt(frame)) this.notify("receipts");
  }

  /** The person has read up to here; only the server knows the position of a message id. */
  read(upTo: number | string): boolean {
    return this.#counting((unread) => typeof upTo === "number" && unread.read(upTo));
  }

  #counting(count: (unread: UnreadCounter) => boolean): boolean {
    if (!this.unread) return false;
    const [before, more] = [this.unreadCount, this.unreadMore];
    const isComplete = count(this.unread);
    if (before !== this.unreadCount || more !== this.unreadMore) this.notify("unread");
    return isComplete;
  }
}

/**
 * How many messages of others the person has not read, counted as they arrive.
 *
 * The overview gives a number for a stretch of the log that this client has not seen. Entries that arrive later
 * are known by their positions, so a read that ends among them is counted exactly. A read that ends inside the
 * unseen stretch cannot be counted; then the client must request the overview again.
 */
export class UnreadCounter {
  readUpTo = 0;
  #epoch = 0;
  #through = 0;
  /** Positions of unread messages outside the unseen stretch, ascending. */
  #known: number[] = [];
  #unseenAfter = 0;
  #unseenThrough = 0;
  #unseen = 0;
  #unseenMore = false;

  get count(): number {
    return Math.min(this.#known.length + this.#unseen, UNREAD_MAX);
  }

  /** Whether there may be more than was counted. */
  get more(): boolean {
    return this.#unseenMore || this.#known.length + this.#unseen > UNREAD_MAX;
  }

  /**
   * Start from the overview's number; entries that arrived live after it stay counted.
   *
   * False if the client must request it again: the person has read on since, or positions are unknown.
   */
  place(row: OverviewChat): boolean {
    if (row.epoch === this.#epoch && row.head < this.#unseenThrough) return false;
    if (row.epoch !== this.#epoch) {
      this.#known = [];
      this.#through = 0;
      this.readUpTo = 0;
    }
    const readHere = this.readUpTo;
    this.#knownAfter(row.head);
    this.#epoch = row.epoch;
    this.readUpTo = row.read_up_to;
    this.#through = Math.max(this.#through, row.head);
    this.#unseenAfter = row.read_up_to;
    this.#unseenThrough = Math.max(row.read_up_to, row.head);
    this.#unseen = row.unread;
    this.#unseenMore = row.unread_more;
    if (this.read(readHere)) return true;
    this.readUpTo = row.read_up_to;
    return false;
  }

  /**
   * Count live positions. `isCatchingUp`: the overview of what was missed is under way.
   *
   * False when something is missing and the client must request the overview.
   */
  receiveLive(epoch: number, slots: readonly Slot[], userId: string, isCatchingUp: boolean): boolean {
    const first = slots[0]?.sequence ?? 0;
    const last = slots.at(-1)?.sequence ?? 0;
    if (epoch < this.#epoch || (epoch === this.#epoch && last <= this.#through)) return true;
    const isNext = epoch === this.#epoch && first <= this.#through + 1;
    if (!isNext && !isCatchingUp) return false;
    if (epoch !== this.#epoch) {
      this.#epoch = epoch;
      this.#through = 0;
      this.readUpTo = 0;
      this.#known = [];
      this.#unseenAfter = this.#unseenThrough = this.#unseen = 0;
      this.#unseenMore = false;
    }
    const after = Math.max(this.#through, this.readUpTo);
    this.#known.push(...ofOthers(slots, userId).filter((sequence) => sequence > after));
    this.#through = last;
    this.#limitPositions();
    return true;
  }

  /** Whether the log has entries that were not counted. */
  isBehind(head: number): boolean {
    return head > this.#through;
  }

  /** A page of the log. If it covers the start of the unseen stretch, these positions become known. */
  receivePage(batch: MessageBatch, slots: readonly Slot[], userId: string): void {
    const startsThere = batch.from_sequence <= this.#unseenAfter + 1;
    if (batch.epoch !== this.#epoch || this.#unseenMore || !startsThere) return;
    const after = this.#unseenAfter;
    const end = Math.min(batch.to_sequence, this.#unseenThrough);
    const seen = ofOthers(slots, userId).filter((sequence) => after < sequence && sequence <= end);
    const at = this.#known.findIndex((sequence) => sequence > after);
    this.#known.splice(at < 0 ? this.#known.length : at, 0, ...seen);
    this.#unseen = Math.max(0, this.#unseen - seen.length);
    this.#unseenAfter = Math.max(after, end);
    this.#limitPositions();
  }

  /** The person has read up to here. False when the client must request the overview. */
  read(upTo: number): boolean {
    if (upTo <= this.readUpTo) return true;
    this.readUpTo = upTo;
    this.#knownAfter(upTo);
    if (upTo >= this.#unseenThrough) {
      this.#unseenAfter = this.#unseenThrough;
      this.#unseen = 0;
      this.#unseenMore = false;
      return true;
    }
    if (upTo <= this.#unseenAfter) return true;
    const stretch = this.#unseenThrough - this.#unseenAfter;
    const isExact = !this.#unseenMore && (this.#unseen === 0 || this.#unseen === stretch);
    this.#unseenAfter = upTo;
    this.#unseen = Math.min(this.#unseen, this.#unseenThrough - upTo);
    return isExact;
  }

  #knownAfter(sequence: number): void {
    this.#known = this.#known.filter((known) => known > sequence);
  }

  /** To save memory, treat all positions as unseen again once they exceed the number that is shown. */
  #limitPositions(): void {
    if (this.#known.length > UNREAD_MAX) {
      this.#unseen += this.#known.length;
      this.#known = [];
      this.#unseenAfter = this.readUpTo;
      this.#unseenThrough = this.#through;
    }
  }
}

/** The positions of others' messages: only these count. */
const ofOthers = (slots: readonly Slot[], userId: string): number[] =>
  slots
    .filter(({ entry }) => entry?.kind === "message" && entry.sender_id !== userId && entry.deleted !== true)
    .map(({ sequence }) => sequence);
