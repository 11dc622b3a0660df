/** What keeps the client's state on the device: tables of values by key, changed in transactions. */

/** Its order is that of IndexedDB: numbers, then texts, then lists, element by element. */
export type Key = number | string | readonly Key[];

/** All keys from `from` to `to`, both included. */
export interface Span {
  readonly from: Key;
  readonly to: Key;
}

export type Table =
  | "meta"
  | "outbox"
  | "journal"
  | "cursors"
  | "entries"
  | "places"
  | "logs"
  | "chats"
  | "people"
  | "drafts";

export const TABLES: readonly Table[] = [
  "meta",
  "outbox",
  "journal",
  "cursors",
  "entries",
  "places",
  "logs",
  "chats",
  "people",
  "drafts",
];

/** `read` changes nothing; `relaxed` survives the browser's end, `strict` also the power's. */
export type Mode = "read" | "relaxed" | "strict";

/** Await nothing but its own promises: a transaction ends when nothing is asked of it. */
export interface Transaction {
  get<Value>(table: Table, key: Key): Promise<Value | undefined>;
  /** Ascending by key; of one table's keys, or of all. */
  all<Value>(table: Table, span?: Span, count?: number): Promise<Value[]>;
  put(table: Table, key: Key, value: unknown): Promise<void>;
  delete(table: Table, keys: Key | Span): Promise<void>;
}

/** A value that was put must not be changed afterwards. */
export interface Store {
  readonly kind: "indexeddb" | "memory";
  /**
   * Run `work` as one transaction. What it has changed is kept when the promise resolves, all of it or nothing; it is
   * nothing when the promise rejects. Transactions that share a table take effect in the order of the calls.
   */
  run<Result>(tables: Table[], mode: Mode, work: (tx: Transaction) => Promise<Result>): Promise<Result>;
  /** Drop the connection, which may be dead; the next call makes another one. */
  reopen(): void;
  close(): void;
  /** Delete everything, for all tabs. Those that have it open are told; one that is frozen, when it thaws. */
  wipe(): Promise<void>;
  /** Called when another tab wiped the store, or a newer version of the page changes it. */
  onTaken: ((why: "wiped" | "outdated") => void) | null;
}

export function isSpan(keys: Key | Span): keys is Span {
  return typeof keys === "object" && !Array.isArray(keys);
}

/** All keys that begin with this text, as `[text, number]` does. */
export function numbered(text: string, from = 0, to = Number.MAX_SAFE_INTEGER): Span {
  return { from: [text, from], to: [text, to] };
}
