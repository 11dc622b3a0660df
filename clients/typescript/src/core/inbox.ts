/**
 * One chat's log as it arrives: frames in any order go in, entries in the log's order come out. Pure.
 *
 * `resolved` moves only over positions that follow each other and are each an entry or a declared void.
 * Positions that arrive early are held within a budget; those that do not fit are dropped and requested again.
 * `processed` moves when the application takes the next entry: after a crash the entry comes again.
 *
 * When the server says that the log was started over (`reset`), the inbox starts over too: entries come again
 * from sequence 1, entries of the old log that were not taken are dropped, and `restarts` counts it. An
 * application that sees another epoch, or a sequence that does not ascend, forgets what it has of the chat. It
 * does the same when a page shows that what it has read is not what the log holds (`LogDifference`).
 */

import type { Entry, MessageBatch, SyncRequest } from "../contract.js";
import type { Refusal } from "./errors.js";
import { type LogDifference, LogProof, type ProofState } from "./logProof.js";
import type { Slot } from "./slots.js";
import { type Cursor, cursorAt } from "./storage.js";

const CHAT_BYTES_MAX = 4 * 1024 * 1024;
const CHAT_ENTRIES_MAX = 4_000;
const RECENT_IDS_MAX = 1_024;
/** What a slot costs in memory besides its content. */
const SLOT_BYTES = 200;

const sizeOf = (slot: Slot): number => SLOT_BYTES + (slot.entry?.content.length ?? 0);

/** A limit on the memory of one or several inboxes. Held slots never take more than half of it. */
export class Budget {
  readonly #bytesMax: number;
  readonly #entriesMax: number;
  entries = 0;
  held = 0;
  readyBytes = 0;
  heldBytes = 0;

  constructor(bytesMax = CHAT_BYTES_MAX, entriesMax = CHAT_ENTRIES_MAX) {
    this.#bytesMax = bytesMax;
    this.#entriesMax = entriesMax;
  }

  get isFull(): boolean {
    return this.entries >= this.#entriesMax || this.readyBytes + this.heldBytes >= this.#bytesMax;
  }

  get isHeldFull(): boolean {
    return this.held >= this.#entriesMax >> 1 || this.heldBytes >= this.#bytesMax >> 1 || this.isFull;
  }
}

interface Head {
  readonly epoch: number;
  readonly sequence: number;
}

const isBeyond = (first: Head, second: Head): boolean =>
  first.epoch > second.epoch || (first.epoch === second.epoch && first.sequence > second.sequence);

export class Inbox {
  readonly chatId: string;
  readonly budget: Budget;
  processed: Cursor;
  epoch: number;
  resolved: number;
  restarts = 0;
  /** Set when a page shows that what was read is not what the log holds. */
  difference: LogDifference | undefined;
  /** Why reading this chat has ended. */
  failure: Refusal | undefined;
  /** Whether `resolved` may belong to another log; a page of the log shows it. */
  isUnverified = true;
  /** The sync request that is not yet answered. */
  requestId: number | undefined;
  failedRequests = 0;
  #resolvedId: string | null;
  readonly #proof: LogProof;
  /** The furthest epoch and sequence that this connection has mentioned. */
  #knownHead: Head = { epoch: 0, sequence: 0 };
  readonly #ready: Slot[] = [];
  readonly #held = new Map<number, Slot>();
  #heldEpoch = 0;
  #taken: Slot | undefined;
  readonly #recentIds = new Set<string>();

  constructor(chatId: string, cursor: Cursor, budget: Budget) {
    this.chatId = chatId;
    this.budget = budget;
    this.processed = cursor;
    this.epoch = cursor.epoch;
    this.resolved = cursor.sequence;
    this.#resolvedId = cursor.messageId;
    this.#proof = new LogProof(chatId, cursor.sequence, cursor.logHash);
  }

  get hasReady(): boolean {
    return this.#ready.length > 0;
  }

  get hasRoom(): boolean {
    return !this.budget.isFull;
  }

  /** Whether a page of the log is needed: something is missing that is not held. */
  get wantsSync(): boolean {
    if (this.failure) return false;
    return this.isUnverified || (this.#isBehind && !this.#held.has(this.resolved + 1));
  }

  get proof(): ProofState {
    const { difference, provenTo, provenAt } = this.#proof;
    const to = this.resolved;
    if (difference) return { state: "differs", to, difference };
    if (this.isUnverified || this.#isBehind) return { state: "behind", to, head: this.#knownHead.sequence };
    return to && provenTo === to
      ? { state: "proven", to, at: provenAt }
      : { state: "complete", to, provenTo };
  }

  get #isBehind(): boolean {
    return isBeyond(this.#knownHead, { epoch: this.epoch, sequence: this.resolved });
  }

  syncRequest(requestId: number, limit: number): SyncRequest {
    this.requestId = requestId;
    return {
      type: "sync_request",
      id: requestId,
      chat_id: this.chatId,
      last_acked_sequence: this.resolved,
      epoch: this.epoch || null,
      last_message_id: this.#resolvedId,
      limit,
    };
  }

  // Input from the server

  /**
   * Forget the head of the last connection, which may have been to another server.
   *
   * If it was not reached, a page must be requested: the next overview lists only changes since the last one.
   */
  connected(): void {
    this.isUnverified ||= this.#isBehind;
    this.#knownHead = { epoch: 0, sequence: 0 };
  }

  /** The overview shows that nothing is missing. When all chats are read, that saves a page. */
  verify(epoch: number): void {
    if (this.epoch === 0 || this.epoch === epoch) {
      this.epoch = epoch;
      this.isUnverified = false;
    }
  }

  /** The log reaches at least to `head`, in this epoch or in the given one. */
  noteHead(head: number, epoch = this.epoch): void {
    this.#reaches(epoch, head);
    if (this.epoch && (epoch > this.epoch || (epoch === this.epoch && head < this.resolved))) {
      this.isUnverified = true;
    }
  }

  /** A `messages` frame. A frame of an older epoch belongs to a lost log. */
  receiveLive(epoch: number, slots: readonly Slot[]): void {
    const last = slots.at(-1);
    if (!last || epoch < this.epoch) return;
    this.#reaches(epoch, last.sequence);
    if (this.epoch && epoch > this.epoch) {
      this.isUnverified = true;
      return;
    }
    this.#holdOnly(epoch);
    for (const slot of slots) this.#place(slot);
    this.#resolveHeld();
  }

  /** A `message_batch` frame, positions ascending. Returns whether it changed anything. */
  receivePage(batch: MessageBatch, slots: readonly Slot[], wall: number): boolean {
    const before = [this.epoch, this.resolved, this.isUnverified, this.restarts].join();
    this.#reaches(batch.epoch, batch.head);
    if (batch.reset) {
      this.#restart(batch.epoch, true);
    } else if (this.epoch && batch.epoch !== this.epoch) {
      // The page belongs to another log than the requested one: start again from 0.
      this.#restart(batch.epoch, true);
      this.isUnverified = true;
      return true;
    }
    this.epoch = batch.epoch;
    this.isUnverified = false;
    for (const slot of slots) {
      if (slot.sequence === this.resolved + 1) this.#resolve(slot);
    }
    if (this.#differs(batch, wall)) return true;
    this.#holdOnly(batch.epoch);
    for (const slot of [...this.#held.values()]) {
      if (slot.sequence <= this.resolved) this.#dropHeld(slot);
    }
    this.#resolveHeld();
    return before !== [this.epoch, this.resolved, this.isUnverified, this.restarts].join();
  }

  // Input from the application

  /** The next entry, or undefined for now. Taking it marks the previous one as processed. */
  take(): Entry | undefined {
    this.markProcessed();
    for (let slot = this.#ready.shift(); slot; slot = this.#ready.shift()) {
      this.budget.entries -= 1;
      this.budget.readyBytes -= sizeOf(slot);
      this.#resolveHeld();
      if (slot.entry) {
        this.#taken = slot;
        return slot.entry;
      }
      this.processed = this.#cursor(slot);
    }
    return undefined;
  }

  /** The last taken entry is processed. */
  markProcessed(): void {
    if (this.#taken) this.processed = this.#cursor(this.#taken);
    this.#taken = undefined;
  }

  /** The last taken entry was not processed: it comes again. */
  putBack(): void {
    if (this.#taken) {
      this.#ready.unshift(this.#taken);
      this.budget.entries += 1;
      this.budget.readyBytes += sizeOf(this.#taken);
    }
    this.#taken = undefined;
  }

  /** Drop everything and give the budget back. */
  clear(): void {
    for (const slot of [...this.#held.values()]) this.#dropHeld(slot);
    this.budget.entries -= this.#ready.length;
    for (const slot of this.#ready) this.budget.readyBytes -= sizeOf(slot);
    this.#ready.length = 0;
    this.#taken = undefined;
    this.#recentIds.clear();
  }

  #cursor(slot: Slot): Cursor {
    return cursorAt(this.epoch, slot.sequence, slot.messageId, slot.logHash);
  }

  #reaches(epoch: number, sequence: number): void {
    if (isBeyond({ epoch, sequence }, this.#knownHead)) this.#knownHead = { epoch, sequence };
  }

  #place(slot: Slot): void {
    const { sequence, messageId } = slot;
    if (sequence <= this.resolved) {
      const isLast = sequence === this.resolved && messageId !== null && this.#resolvedId !== null;
      if (isLast && messageId !== this.#resolvedId) this.isUnverified = true;
    } else if (sequence === this.resolved + 1 && !this.isUnverified && this.hasRoom) {
      this.#resolve(slot);
    } else if (!this.#held.has(sequence) && !this.budget.isHeldFull) {
      this.#held.set(sequence, slot);
      this.budget.entries += 1;
      this.budget.held += 1;
      this.budget.heldBytes += sizeOf(slot);
    }
  }

  /** Resolve held slots that follow. */
  #resolveHeld(): void {
    if (this.isUnverified) return;
    for (let slot = this.#held.get(this.resolved + 1); slot; slot = this.#held.get(this.resolved + 1)) {
      this.#dropHeld(slot);
      this.#resolve(slot);
    }
  }

  /** Resolve the next position. A message at a second position is not shown again. */
  #resolve(slot: Slot): void {
    const { sequence, messageId, logged } = slot;
    let { entry } = slot;
    this.resolved = sequence;
    this.#resolvedId = messageId;
    if (messageId !== null) {
      if (this.#recentIds.has(messageId)) entry = undefined;
      this.#recentIds.add(messageId);
      if (this.#recentIds.size > RECENT_IDS_MAX) {
        for (const oldest of this.#recentIds) {
          this.#recentIds.delete(oldest);
          break;
        }
      }
    }
    const logHash = this.#proof.add(sequence, logged);
    const resolved = { sequence, messageId, entry, logged: undefined, logHash };
    this.#ready.push(resolved);
    this.budget.entries += 1;
    this.budget.readyBytes += sizeOf(resolved);
  }

  /** Whether a page shows that what was read is not what the log holds. Then it is read again. */
  #differs(batch: MessageBatch, wall: number): boolean {
    if (this.resolved !== batch.to_sequence) return false;
    const difference = this.#proof.compare(batch, wall);
    const last = this.#ready.at(-1);
    if (last && !difference) this.#ready.splice(-1, 1, { ...last, logHash: this.#proof.value });
    this.difference = difference ?? this.difference;
    if (!difference || difference.isLasting) return false;
    this.#restart(batch.epoch, false);
    this.isUnverified = true;
    return true;
  }

  #holdOnly(epoch: number): void {
    if (this.#heldEpoch !== epoch) {
      for (const slot of [...this.#held.values()]) this.#dropHeld(slot);
      this.#heldEpoch = epoch;
    }
  }

  #dropHeld(slot: Slot): void {
    this.#held.delete(slot.sequence);
    this.budget.entries -= 1;
    this.budget.held -= 1;
    this.budget.heldBytes -= sizeOf(slot);
  }

  #restart(epoch: number, isNewLog: boolean): void {
    this.clear();
    this.#proof.startOver(isNewLog);
    this.epoch = epoch;
    this.resolved = 0;
    this.#resolvedId = null;
    this.processed = cursorAt(epoch);
    this.restarts += 1;
  }
}
