/**
 * Whether what this device has read of a chat is what the server's log holds. Pure.
 *
 * The client computes the hash of the log along the positions that it resolves, from the first one or from the
 * hash that was saved with its cursor, and compares it with that of each page. Without either it takes the hash
 * of the next page for granted, and compares from there on.
 */

import type { Entry, MessageBatch } from "../contract.js";
import { afterEntry, afterVoid, emptyLog, isReadable, readShown, shown } from "./logHash.js";

/**
 * What this device read up to `sequence` is not what the log holds there: the two have another hash.
 *
 * The client reads the chat again from the start. `isLasting`: it has done so, and the hash of what it read
 * still is another: the server changed entries and did not notice. The client goes on without proof.
 */
export interface LogDifference {
  readonly chatId: string;
  readonly epoch: number;
  readonly sequence: number;
  readonly ownHash: string;
  readonly logHash: string;
  readonly isLasting: boolean;
}

/**
 * How sure this device is of what it has read of a chat.
 *
 * `behind`: the log reaches to `head`, and positions after `to` are missing. `complete`: every position that
 * the server has mentioned is here. `proven`: and the hash of what was read was that of the server's log, `at`
 * this time of day. `differs`: it was not; the chat is read again, or cannot be proven.
 */
export type ProofState =
  | { readonly state: "behind"; readonly to: number; readonly head: number }
  | { readonly state: "complete"; readonly to: number; readonly provenTo: number }
  | { readonly state: "proven"; readonly to: number; readonly at: number }
  | { readonly state: "differs"; readonly to: number; readonly difference: LogDifference };

/** The hash of what was read of one chat; null while it is not known. */
export class LogProof {
  readonly #chatId: string;
  value: Uint8Array | null;
  /** The furthest position at which the hash was that of the server, and when that was seen. */
  provenTo = 0;
  provenAt = 0;
  /** A difference that is not settled: everything is read again. */
  difference: LogDifference | undefined;
  #isGivenUp = false;

  constructor(chatId: string, sequence: number, saved: Uint8Array | null) {
    this.#chatId = chatId;
    this.value = sequence === 0 ? emptyLog(chatId) : saved;
  }

  /** The next position was read; without an entry it is a void. Returns the hash with it. */
  add(sequence: number, entry: Entry | undefined): Uint8Array | null {
    if (this.value) this.value = entry ? afterEntry(this.value, entry) : afterVoid(this.value, sequence);
    return this.value;
  }

  /** Nothing was read. `isNewLog`: the server says that the log is another one than before. */
  startOver(isNewLog: boolean): void {
    if (isNewLog) {
      this.difference = undefined;
      this.#isGivenUp = false;
    }
    this.provenTo = 0;
    this.value = emptyLog(this.#chatId);
  }

  /**
   * Compare with the hash of a page that was read to its end; undefined if there is no difference to tell.
   *
   * Who reads everything again and finds a second difference on the way compares nothing any more.
   */
  compare(page: MessageBatch, wall: number): LogDifference | undefined {
    const theirs = page.log_hash;
    if (theirs === undefined || !isReadable(theirs) || this.#isGivenUp) return undefined;
    this.value ??= readShown(theirs);
    const own = shown(this.value);
    if (own === theirs) {
      this.provenTo = page.to_sequence;
      this.provenAt = wall;
      if (this.difference && page.to_sequence >= this.difference.sequence) this.difference = undefined;
      return undefined;
    }
    if (this.difference) {
      this.#isGivenUp = true;
      this.value = null;
    }
    this.difference = {
      chatId: this.#chatId,
      epoch: page.epoch,
      sequence: page.to_sequence,
      ownHash: own,
      logHash: theirs,
      isLasting: this.#isGivenUp,
    };
    return this.difference;
  }
}
