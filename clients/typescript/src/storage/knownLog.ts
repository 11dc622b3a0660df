/**
 * What this device has of the logs: entries by chat and sequence, and the ranges within which nothing is missing.
 *
 * A number inside a range without an entry is a void. Edits and deletes are carried out on what is stored, so that
 * a deleted text is gone from the device, too.
 */

import type { Entry } from "../contract.js";
import { edited, tombstone } from "../core/life.js";
import { numbered, type Store, type Transaction } from "./ports.js";
import {
  bytesOf,
  dropOldest,
  forgetPlaces,
  LOG_TABLES,
  type Log,
  type Place,
  placesOf,
  type Range,
} from "./room.js";

export interface Stretch {
  readonly epoch: number;
  /** Everything that is known of the log between the two, ascending. */
  readonly entries: readonly Entry[];
  readonly ranges: readonly Range[];
}

/** So much of the logs is kept on a device at most, and no more than this share of what the browser allows. */
const BYTES_MAX = 500 * 1024 * 1024;
const QUOTA_SHARE_MAX = 0.2;
/** How much is kept between two looks at how much there is. */
const LOOK_BYTES = 4 * 1024 * 1024;
const NOTHING: Stretch = { epoch: 0, entries: [], ranges: [] };

export class KnownLog {
  readonly #store: Store;
  readonly #wall: () => number;
  readonly #quota: () => Promise<number>;
  #keptSinceLook = LOOK_BYTES;

  /** `quota`: how many bytes the browser allows. */
  constructor(store: Store, wall: () => number, quota: () => Promise<number>) {
    this.#store = store;
    this.#wall = wall;
    this.#quota = quota;
  }

  /** Keep all entries of a resolved range. Those of another epoch than a later one are of a log that was lost. */
  async keep(chatId: string, epoch: number, range: Range, entries: readonly Entry[]): Promise<void> {
    let added = 0;
    await this.#store.run(LOG_TABLES, "relaxed", async (tx) => {
      const known = await tx.get<Log>("logs", chatId);
      if (known && known.epoch > epoch) return;
      const isNew = !known || known.epoch < epoch;
      if (known && isNew) await forget(tx, chatId);
      const before = known && !isNew ? known : { ranges: [], bytes: 0 };
      const unknown = entries.filter(({ sequence }) => !isWithin(before.ranges, sequence));
      added = bytesOf(unknown);
      const ranges = joined(before.ranges, range);
      const log: Log = { chatId, epoch, ranges, touchedAtMs: this.#wall(), bytes: before.bytes + added };
      const edits = entries.filter((entry) => entry.kind === "edit");
      const deleted = entries.flatMap((one) =>
        one.kind === "delete" && one.target_id ? [one.target_id] : [],
      );
      await Promise.all([
        tx.put("logs", chatId, log),
        ...entries.flatMap((entry) => [
          tx.put("entries", [chatId, entry.sequence], amended(entry, edits, deleted)),
          ...placesOf(entry).map((key) => tx.put("places", key, [chatId, entry.sequence] satisfies Place)),
        ]),
      ]);
      for (const id of new Set([...edits.map((edit) => edit.target_id ?? ""), ...deleted])) {
        await amend(tx, id, edits, deleted);
      }
    });
    this.#keptSinceLook += added;
    if (this.#keptSinceLook >= LOOK_BYTES) await this.#shrink();
  }

  /** Let go of what was untouched for longest, as far as there is too much. */
  async #shrink(): Promise<void> {
    this.#keptSinceLook = 0;
    const most = Math.min(BYTES_MAX, QUOTA_SHARE_MAX * (await this.#quota()));
    const kept = () => this.#store.run(["logs"], "read", (tx) => tx.all<Log>("logs"));
    const total = (logs: readonly Log[]) => logs.reduce((bytes, log) => bytes + log.bytes, 0);
    while (total(await kept()) > most && (await dropOldest(this.#store)));
  }

  /** What is known from one number to another. */
  async read(chatId: string, from: number, to: number): Promise<Stretch> {
    return this.#store.run(LOG_TABLES, "read", async (tx) => {
      const [log, entries] = await Promise.all([
        tx.get<Log>("logs", chatId),
        tx.all<Entry>("entries", numbered(chatId, from, to)),
      ]);
      if (!log) return NOTHING;
      return { epoch: log.epoch, entries, ranges: log.ranges };
    });
  }

  async ranges(chatId: string): Promise<readonly Range[]> {
    return (await this.#store.run(["logs"], "read", (tx) => tx.get<Log>("logs", chatId)))?.ranges ?? [];
  }

  /** Where a message is, if this device has it. */
  async place(messageId: string): Promise<Place | undefined> {
    return this.#store.run(["places"], "read", (tx) => tx.get<Place>("places", messageId));
  }

  /** The log was started over, or the person left the chat. */
  async forget(chatId: string): Promise<void> {
    await this.#store.run(LOG_TABLES, "relaxed", (tx) => forget(tx, chatId));
  }
}

const isWithin = (ranges: readonly Range[], sequence: number): boolean =>
  ranges.some(([from, to]) => from <= sequence && sequence <= to);

/** The ranges with one more; those that touch become one. */
export function joined(ranges: readonly Range[], added: Range): Range[] {
  let [from, to] = added;
  const apart: Range[] = [];
  for (const range of ranges) {
    if (range[1] < from - 1 || range[0] > to + 1) apart.push(range);
    else [from, to] = [Math.min(from, range[0]), Math.max(to, range[1])];
  }
  return [...apart, [from, to] as const].sort((a, b) => a[0] - b[0]);
}

async function forget(tx: Transaction, chatId: string): Promise<void> {
  const entries = await tx.all<Entry>("entries", numbered(chatId));
  await tx.delete("entries", numbered(chatId));
  await forgetPlaces(tx, entries);
  await tx.delete("logs", chatId);
}

/** Carry edits and deletes out on a message that is stored, and a delete on the edits of that message, too. */
async function amend(tx: Transaction, messageId: string, edits: Entry[], deleted: string[]): Promise<void> {
  const [own, ofEdits] = await Promise.all([
    tx.get<Place>("places", messageId),
    tx.all<Place>("places", numbered(messageId)),
  ]);
  for (const place of own ? [own, ...ofEdits] : ofEdits) {
    const entry = await tx.get<Entry>("entries", place);
    if (entry) await tx.put("entries", place, amended(entry, edits, deleted));
  }
}

/** An entry as it is once these edits are carried out, and the messages with these ids are deleted. */
function amended(entry: Entry, edits: readonly Entry[], deleted: readonly string[]): Entry {
  const subject = entry.kind === "edit" ? entry.target_id : entry.message_id;
  if (subject && deleted.includes(subject)) return tombstone(entry) ?? entry;
  const own = edits.filter((edit) => entry.kind === "message" && edit.target_id === entry.message_id);
  return own.reduce((message, edit) => edited(message, edit) ?? message, entry);
}
