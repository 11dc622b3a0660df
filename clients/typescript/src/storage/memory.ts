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
    return this.#table(table).get(placeOf(key)) as Value | undefined;
  }

  async all<Value>(table: Table, span?: Span, count?: number): Promise<Value[]> {
    const rows = this.#table(table).between(span).slice(0, count);
    return rows.map(([, value]) => value as Value);
  }

  async put(table: Table, key: Key, value: unknown): Promise<void> {
    this.#change(table, placeOf(key), value);
  }

  async delete(table: Table, keys: Key | Span): Promise<void> {
    const found = isSpan(keys)
      ? this.#table(table)
          .between(keys)
          .map(([place]) => place)
      : [placeOf(keys)];
    for (const place of found) this.#change(table, place, undefined);
  }

  rollBack(): void {
    for (const undo of this.#undo.reverse()) undo();
  }

  #change(name: Table, place: string, value: unknown): void {
    if (this.#mode === "read") throw new DOMException("the transaction only reads", "ReadOnlyError");
    const table = this.#table(name);
    const before = table.get(place);
    this.#undo.push(() => table.set(place, before));
    table.set(place, value);
  }
}

/** Values in the order of their keys, each of which is a text here. */
class SortedTable {
  readonly #rows: [string, unknown][] = [];

  get(place: string): unknown {
    const row = this.#rows[this.#find(place)];
    return row?.[0] === place ? row[1] : undefined;
  }

  /** No value removes the key. */
  set(place: string, value: unknown): void {
    const at = this.#find(place);
    const isThere = this.#rows[at]?.[0] === place;
    this.#rows.splice(
      at,
      Number(isThere),
      ...(value === undefined ? [] : [[place, value] as [string, unknown]]),
    );
  }

  between(span?: Span): [string, unknown][] {
    if (!span) return [...this.#rows];
    return this.#rows.slice(this.#find(placeOf(span.from)), this.#find(`${placeOf(span.to)}\0`));
  }

  /** Where the first key is that is not below this one. */
  #find(place: string): number {
    let low = 0;
    let high = this.#rows.length;
    while (low < high) {
      const middle = (low + high) >>> 1;
      if ((this.#rows[middle] as [string, unknown])[0] < place) low = middle + 1;
      else high = middle;
    }
    return low;
  }
}

/** A text for each key, in the order of the keys: numbers are whole, and not below 0. */
function placeOf(key: Key): string {
  if (typeof key === "number") return `0${String(key).padStart(16, "0")}`;
  return typeof key === "string" ? `1${key}\0` : `2${key.map(placeOf).join("")}`;
}
