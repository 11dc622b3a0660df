/** The store in memory: it ends with this page. */

import { isSpan, type Key, type Mode, type Span, type Store, type Table, type Transaction } from "./ports.js";

export class MemoryStore implements Store {
  readonly kind = "memory";
  onTaken: Store["onTaken"] = null;
  readonly #tables = new Map<Table, SortedTable>();
  #last: Promise<unknown> = Promise.resolve();

  run<Result>(_: Table[], mode: Mode, work: (tx: Transaction) => Promise<Result>): Promise<Result> {
    const turn = this.#last.then(async () => {
      const tx = new MemoryTransaction((table) => this.#table(table), mode);
      try {
        return await work(tx);
      } catch (error) {
        tx.rollBack();
        throw error;
      }
    });
    this.#last = turn.catch(() => {});
    return turn;
  }

  reopen(): void {}

  close(): void {}

  async wipe(): Promise<void> {
    await this.#last;
    this.#tables.clear();
  }

  #table(name: Table): SortedTable {
    const known = this.#tables.get(name);
    if (known) return known;
    const table = new SortedTable();
    this.#tables.set(name, table);
    return table;
  }
}

class MemoryTransaction implements Transaction {
  readonly #table: (name: Table) => SortedTable;
  readonly #mode: Mode;
  readonly #undo: (() => void)[] = [];

  constructor(table: (name: Table) => SortedTable, mode: Mode) {
    this.#table = table;
    this.#mode = mode;
  }

  async get<Value>(table: Table, key: Key): Promise<Value | undefined> {
    return this.#table(table).get(key) as Value | undefined;
  }

  async all<Value>(table: Table, span?: Span, count?: number): Promise<Value[]> {
    return this.#table(table)
      .between(span, count)
      .map(([, value]) => value as Value);
  }

  async put(table: Table, key: Key, value: unknown): Promise<void> {
    this.#change(table, key, value);
  }

  async delete(table: Table, keys: Key | Span): Promise<void> {
    const found = isSpan(keys)
      ? this.#table(table)
          .between(keys)
          .map(([key]) => key)
      : [keys];
    for (const key of found) this.#change(table, key, undefined);
  }

  rollBack(): void {
    for (const undo of this.#undo.reverse()) undo();
  }

  #change(name: Table, key: Key, value: unknown): void {
    if (this.#mode === "read") throw new DOMException("the transaction only reads", "ReadOnlyError");
    const table = this.#table(name);
    const before = table.get(key);
    this.#undo.push(() => table.set(key, before));
    table.set(key, value);
  }
}

/** Values in the order of their keys. */
class SortedTable {
  readonly #rows: [Key, unknown][] = [];

  get(key: Key): unknown {
    const row = this.#rows[this.#place(key)];
    return row && compare(row[0], key) === 0 ? row[1] : undefined;
  }

  /** No value removes the key. */
  set(key: Key, value: unknown): void {
    const at = this.#place(key);
    const row = this.#rows[at];
    const isThere = row !== undefined && compare(row[0], key) === 0;
    if (value !== undefined) this.#rows.splice(at, isThere ? 1 : 0, [key, value]);
    else if (isThere) this.#rows.splice(at, 1);
  }

  between(span?: Span, count = Number.POSITIVE_INFINITY): [Key, unknown][] {
    const first = span ? this.#place(span.from) : 0;
    let last = span ? this.#place(span.to) : this.#rows.length;
    const row = this.#rows[last];
    if (span && row && compare(row[0], span.to) === 0) last += 1;
    return this.#rows.slice(first, Math.min(last, first + count));
  }

  /** Where the first key is that is not below this one. */
  #place(key: Key): number {
    let low = 0;
    let high = this.#rows.length;
    while (low < high) {
      const middle = (low + high) >>> 1;
      if (compare((this.#rows[middle] as [Key, unknown])[0], key) < 0) low = middle + 1;
      else high = middle;
    }
    return low;
  }
}

function compare(a: Key, b: Key): number {
  if (Array.isArray(a) && Array.isArray(b)) {
    for (let at = 0; at < a.length && at < b.length; at++) {
      const order = compare(a[at], b[at]);
      if (order !== 0) return order;
    }
    return a.length - b.length;
  }
  const kinds = kind(a) - kind(b);
  if (kinds !== 0) return kinds;
  return a < b ? -1 : a > b ? 1 : 0;
}

function kind(key: Key): number {
  return typeof key === "number" ? 0 : typeof key === "string" ? 1 : 2;
}
