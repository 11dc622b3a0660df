/** What a person does with a row of the outbox that was refused for good. */

import { NUMBER, type OutboxRow } from "./outbox.js";
import type { Store } from "./ports.js";

/** The person gives it up. */
export async function discardRow(store: Store, row: OutboxRow): Promise<void> {
  await store.run(["outbox"], "strict", (tx) => tx.delete("outbox", row.number));
}

/** The person wants it sent once more, behind those that wait. Nothing if another tab was faster. */
export async function retryRow(store: Store, row: OutboxRow): Promise<OutboxRow | undefined> {
  return store.run(["meta", "outbox"], "strict", async (tx) => {
    if (!(await tx.get("outbox", row.number))) return undefined;
    const number = ((await tx.get<number>("meta", NUMBER)) ?? 0) + 1;
    const again: OutboxRow = { number, message: row.message };
    await Promise.all([
      tx.put("meta", NUMBER, number),
      tx.delete("outbox", row.number),
      tx.put("outbox", number, again),
    ]);
    return again;
  });
}
