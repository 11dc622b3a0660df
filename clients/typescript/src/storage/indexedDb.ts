/** The store in IndexedDB: what is kept there survives the tab, and the browser. */

import type { Platform } from "../platform.js";
import { MemoryStore } from "./memory.js";
import {
  isSpan,
  type Key,
  type Mode,
  type Span,
  type Store,
  TABLES,
  type Table,
  type Transaction,
} from "./ports.js";

const VERSION = 1;

/**
 * What is kept survives the page, and the browser. `name`: the database, which else is that of the server, the person
 * and the device. Where there is no IndexedDB, as on Node, the client keeps it in memory.
 */
export function indexedDb(name?: string) {
  return (platform: Platform, usual: string): Store =>
    platform.indexedDb ? new IndexedDbStore(name ?? usual, platform.indexedDb) : new MemoryStore();
}

/** The handle was closed under a transaction: whether it took effect is not known. */
export class HandleLost extends Error {
  override name = "HandleLost";
}

export class IndexedDbStore implements Store {
  readonly kind = "indexeddb";
  onTaken: Store["onTaken"] = null;
  readonly #name: string;
  readonly #factory: IDBFactory;
  #opening: Promise<IDBDatabase> | null = null;
  readonly #running = new Set<(lost: Error) => void>();

  constructor(name: string, factory: IDBFactory) {
    this.#name = name;
    this.#factory = factory;
  }

  async run<Result>(
    tables: Table[],
    mode: Mode,
    work: (tx: Transaction) => Promise<Result>,
  ): Promise<Result> {
    this.#opening ??= this.#open();
    const database = await this.#opening;
    return new Promise<Result>((resolve, reject) => {
      const durability = mode === "strict" ? "strict" : "relaxed";
      const tx = database.transaction(tables, mode === "read" ? "readonly" : "readwrite", { durability });
      this.#running.add(reject);
      let result: Result;
      let failure: unknown;
      tx.oncomplete = () => {
        this.#running.delete(reject);
        resolve(result);
      };
      tx.onabort = () => {
        this.#running.delete(reject);
        reject(failure ?? tx.error ?? new HandleLost("the transaction was aborted"));
      };
      work(new IndexedDbTransaction(tx)).then(
        (value) => {
          result = value;
        },
        (error) => {
          failure = error;
          if (isActive(tx)) tx.abort();
        },
      );
    });
  }

  reopen(): void {
    this.close();
  }

  close(): void {
    this.#opening?.then(
      (database) => database.close(),
      () => {},
    );
    this.#opening = null;
    this.#lose("the store was closed");
  }

  async wipe(): Promise<void> {
    // A tab that is frozen keeps the database from being deleted, but not from being emptied.
    await this.#empty().catch(() => {});
    this.close();
    const request = this.#factory.deleteDatabase(this.#name);
    const blocked = new Promise((resolve) => {
      request.onblocked = resolve;
    });
    await Promise.race([answer(request), blocked]);
  }

  async #empty(): Promise<void> {
    const database = await this.#open();
    const tx = database.transaction(TABLES, "readwrite", { durability: "strict" });
    for (const table of TABLES) tx.objectStore(table).clear();
    await new Promise<void>((resolve, reject) => {
      tx.oncomplete = () => resolve();
      tx.onabort = () => reject(tx.error);
    });
    database.close();
  }

  async #open(): Promise<IDBDatabase> {
    const request = this.#factory.open(this.#name, VERSION);
    request.onupgradeneeded = () => {
      for (const table of TABLES) request.result.createObjectStore(table);
    };
    const database = await answer(request);
    database.onclose = () => this.#lost(database);
    database.onversionchange = (event) => {
      database.close();
      this.#lost(database);
      this.onTaken?.(event.newVersion === null ? "wiped" : "outdated");
    };
    return database;
  }

  /** The next call opens another handle. WebKit loses them when its server of databases ends. */
  #lost(database: IDBDatabase): void {
    this.#opening?.then((current) => {
      if (current === database) this.#opening = null;
    });
    this.#lose("the handle of the database was lost");
  }

  #lose(why: string): void {
    for (const reject of this.#running) reject(new HandleLost(why));
    this.#running.clear();
  }
}

class IndexedDbTransaction implements Transaction {
  readonly #tx: IDBTransaction;

  constructor(tx: IDBTransaction) {
    this.#tx = tx;
  }

  get<Value>(table: Table, key: Key): Promise<Value | undefined> {
    return answer(this.#tx.objectStore(table).get(key as IDBValidKey));
  }

  all<Value>(table: Table, span?: Span, count?: number): Promise<Value[]> {
    return answer(this.#tx.objectStore(table).getAll(span && range(span), count));
  }

  async put(table: Table, key: Key, value: unknown): Promise<void> {
    await answer(this.#tx.objectStore(table).put(value, key as IDBValidKey));
  }

  async delete(table: Table, keys: Key | Span): Promise<void> {
    await answer(this.#tx.objectStore(table).delete(isSpan(keys) ? range(keys) : (keys as IDBValidKey)));
  }
}

function range(span: Span): IDBKeyRange {
  return IDBKeyRange.bound(span.from, span.to);
}

function answer<Value>(request: IDBRequest<Value>): Promise<Value> {
  return new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
}

/** Whether it can still be aborted: after an error it aborts by itself. */
function isActive(tx: IDBTransaction): boolean {
  try {
    return tx.error === null && tx.objectStoreNames.length > 0;
  } catch {
    return false;
  }
}
