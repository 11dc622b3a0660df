/**
 * A store that outlives its trouble: a dead handle is replaced once, a full disk loses the oldest entries, and when
 * neither helps the client goes on in memory and says so.
 */

import { StoreUnusable } from "../core/errors.js";
import { MemoryStore } from "./memory.js";
import type { Mode, Store, Table, Transaction } from "./ports.js";
import { dropOldest } from "./room.js";

const DROPS_MAX = 8;

/** What should have been kept strictly was not: the caller keeps it in memory, together with what is lost besides. */
export class MovedToMemory extends Error {
  override name = "MovedToMemory";
}

export class FailsafeStore implements Store {
  onTaken: Store["onTaken"] = null;
  /** Called once, when the store is left for memory. What it held is not copied: the caller has what it needs. */
  onTrouble: ((error: unknown) => void) | null = null;
  readonly #first: Store;
  #store: Store;

  constructor(store: Store) {
    this.#first = this.#store = store;
    store.onTaken = (why) => {
      this.#goOnInMemory(new StoreUnusable(`another page of this site has ${why} the store`));
      this.onTaken?.(why);
    };
  }

  get kind(): Store["kind"] {
    return this.#store.kind;
  }

  async run<Result>(
    tables: Table[],
    mode: Mode,
    work: (tx: Transaction) => Promise<Result>,
  ): Promise<Result> {
    const store = this.#store;
    let drops = 0;
    let isReopened = false;
    for (;;) {
      try {
        return await store.run(tables, mode, work);
      } catch (error) {
        if (store !== this.#store) return this.#moved(tables, mode, work);
        if (store.kind === "memory" || error instanceof StoreUnusable) throw error;
        if (isFull(error) && mode !== "read") {
          if (drops < DROPS_MAX && (await dropped(store))) drops += 1;
          else if (isCacheOnly(tables)) throw error;
          else this.#goOnInMemory(error);
        } else if (isReopened) this.#goOnInMemory(error);
        else {
          isReopened = true;
          store.reopen();
        }
        if (store !== this.#store) return this.#moved(tables, mode, work);
      }
    }
  }

  #moved<Result>(tables: Table[], mode: Mode, work: (tx: Transaction) => Promise<Result>): Promise<Result> {
    if (mode === "strict") throw new MovedToMemory("the store was left for memory");
    return this.#store.run(tables, mode, work);
  }

  reopen(): void {
    this.#store.reopen();
  }

  close(): void {
    this.#store.close();
  }

  /** What was kept before the store was left for memory is still there. */
  async wipe(): Promise<void> {
    await this.#store.wipe();
    if (this.#store !== this.#first) await this.#first.wipe();
  }

  #goOnInMemory(error: unknown): void {
    if (this.#store.kind === "memory") return;
    const left = this.#store;
    this.#store = new MemoryStore();
    left.onTaken = null;
    left.close();
    this.onTrouble?.(error);
  }
}

/** Whether nothing but copies of the server's log would be written: they can be read again. */
function isCacheOnly(tables: Table[]): boolean {
  return tables.every((table) => CACHES.has(table));
}

const CACHES: ReadonlySet<Table> = /* @__PURE__ */ new Set<Table>([
  "entries",
  "places",
  "logs",
  "chats",
  "people",
]);

export function isFull(error: unknown): boolean {
  return error instanceof Error && error.name === "QuotaExceededError";
}

async function dropped(store: Store): Promise<boolean> {
  try {
    return await dropOldest(store);
  } catch {
    return false;
  }
}
