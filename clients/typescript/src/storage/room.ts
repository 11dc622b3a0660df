/** What is kept of the logs, as rows, and how the oldest of it gives way: what was written needs the room more. */

import type { Entry } from "../contract.js";
import { type Key, numbered, type Store, type Table, type Transaction } from "./ports.js";

/** From and to, both included. */
export type Range = readonly [number, number];

export interface Log {
  readonly chatId: string;
  readonly epoch: number;
  /** Ascending; two ranges never touch. */
  readonly ranges: readonly Range[];
  /** When something was last read or kept, by the wall clock. */
  readonly touchedAtMs: number;
  /** About how much its entries take. */
  readonly bytes: number;
}

/** The chat and the sequence of an entry. */
export type Place = readonly [string, number];

export const LOG_TABLES: Table[] = ["entries", "places", "logs"];

/** Drop the oldest range of the chat that was untouched for longest. Returns whether there was one. */
export async function dropOldest(store: Store): Promise<boolean> {
  return store.run(LOG_TABLES, "relaxed", async (tx) => {
    const logs = await tx.all<Log>("logs");
    const oldest = logs
      .filter((log) => log.ranges.length > 0)
      .sort((a, b) => a.touchedAtMs - b.touchedAtMs)[0];
    const range = oldest?.ranges[0];
    if (!oldest || !range) return false;
    const dropped = await tx.all<Entry>("entries", numbered(oldest.chatId, ...range));
    await tx.delete("entries", numbered(oldest.chatId, ...range));
    await forgetPlaces(tx, dropped);
    const ranges = oldest.ranges.slice(1);
    const bytes = ranges.length > 0 ? Math.max(0, oldest.bytes - bytesOf(dropped)) : 0;
    await tx.put("logs", oldest.chatId, { ...oldest, ranges, bytes } satisfies Log);
    return true;
  });
}

export const bytesOf = (entries: readonly Entry[]): number =>
  entries.reduce((bytes, entry) => bytes + JSON.stringify(entry).length, 0);

export async function forgetPlaces(tx: Transaction, entries: readonly Entry[]): Promise<void> {
  await Promise.all(entries.flatMap(placesOf).map((key) => tx.delete("places", key)));
}

/** Under which keys an entry is found: its own id, and that of the message that it edits. */
export function placesOf(entry: Entry): Key[] {
  const edits = entry.kind === "edit" && entry.target_id ? [[entry.target_id, entry.sequence]] : [];
  return [entry.message_id, ...edits];
}
