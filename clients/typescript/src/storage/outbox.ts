/**
 * The outbox that all tabs of a device share: rows in the order in which they were kept, whichever tab wrote them.
 *
 * One tab leads: it sends. Each leadership has a `term`, raised in the same transaction in which it claims the rows,
 * so that one that was robbed notices when it looks again. A row is removed once its outcome is known; two leaders at
 * once only send it twice, and the server stores it once.
 */

import type { Ack } from "../contract.js";
import type { Refusal } from "../core/errors.js";
import type { JournalStep } from "../core/journal.js";
import { keyOf, type MessageKey, type OutgoingMessage } from "../core/storage.js";
import type { Store, Transaction } from "./ports.js";

/** So many outcomes are remembered. */
const OUTCOMES_MAX = 2_000;
export const NUMBER = "number";
const TERM = "term";

export interface OutboxRow {
  readonly number: number;
  readonly message: OutgoingMessage;
  /** Why it was refused for good: it waits for the person, not for the server. */
  readonly refusal?: Refusal;
}

/** What became of a message; kept after its row is gone. */
export interface Outcome {
  readonly key: MessageKey;
  readonly ack?: Ack;
  readonly refusal?: Refusal;
  readonly steps: readonly JournalStep[];
}

export class SharedOutbox {
  readonly #store: Store;

  constructor(store: Store) {
    this.#store = store;
  }

  /**
   * Keep messages, in this order, behind all others; strictly durable when it resolves. One that is there already is
   * kept once: a transaction whose end was not seen is repeated.
   */
  async add(messages: readonly OutgoingMessage[]): Promise<OutboxRow[]> {
    let runs = 0;
    return this.#store.run(["meta", "outbox"], "strict", async (tx) => {
      runs += 1;
      const known =
        runs > 1 ? rowsByKey(await tx.all<OutboxRow>("outbox")) : new Map<MessageKey, OutboxRow>();
      let number = (await tx.get<number>("meta", NUMBER)) ?? 0;
      const rows = messages.map((message) => known.get(keyOf(message)) ?? { number: ++number, message });
      await Promise.all([
        tx.put("meta", NUMBER, number),
        ...rows.map((row) => tx.put("outbox", row.number, row)),
      ]);
      return rows;
    });
  }

  /** Begin to lead: raise the term, and take every row. */
  async claim(): Promise<{ term: number; rows: OutboxRow[] }> {
    return this.#store.run(["meta", "outbox", "journal"], "strict", async (tx) => {
      const term = ((await tx.get<number>("meta", TERM)) ?? 0) + 1;
      await tx.put("meta", TERM, term);
      await prune(tx);
      return { term, rows: await tx.all<OutboxRow>("outbox") };
    });
  }

  /** The rows behind a number, of any state, and the term: another than one's own means that another tab leads. */
  async look(after: number): Promise<{ term: number; rows: OutboxRow[] }> {
    return this.#store.run(["meta", "outbox"], "read", async (tx) => {
      const span = { from: after + 1, to: Number.MAX_SAFE_INTEGER };
      const [term, rows] = await Promise.all([
        tx.get<number>("meta", TERM),
        tx.all<OutboxRow>("outbox", span),
      ]);
      return { term: term ?? 0, rows };
    });
  }

  /** Write down what became of messages. A stored one leaves the outbox, a refused one waits for the person. */
  async settle(settled: readonly { row: OutboxRow; outcome: Outcome }[]): Promise<void> {
    await this.#store.run(["outbox", "journal"], "relaxed", async (tx) => {
      for (const { row, outcome } of settled) {
        await tx.put("journal", outcome.key, outcome);
        if (outcome.refusal) await tx.put("outbox", row.number, { ...row, refusal: outcome.refusal });
        else await tx.delete("outbox", row.number);
      }
    });
  }

  async outcome(key: MessageKey): Promise<Outcome | undefined> {
    return this.#store.run(["journal"], "read", (tx) => tx.get<Outcome>("journal", key));
  }
}

function rowsByKey(rows: readonly OutboxRow[]): Map<MessageKey, OutboxRow> {
  return new Map(rows.map((row) => [keyOf(row.message), row]));
}

async function prune(tx: Transaction): Promise<void> {
  const outcomes = await tx.all<Outcome>("journal");
  const tooMany = outcomes.length - OUTCOMES_MAX;
  if (tooMany <= 0) return;
  const oldest = outcomes.sort((a, b) => (a.steps.at(-1)?.at ?? 0) - (b.steps.at(-1)?.at ?? 0));
  for (const outcome of oldest.slice(0, tooMany)) await tx.delete("journal", outcome.key);
}
