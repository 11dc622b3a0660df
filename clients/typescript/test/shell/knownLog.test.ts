/** How much of the logs a device keeps. */

import { expect, test } from "vitest";
import type { Entry } from "../../src/contract.js";
import { KnownLog } from "../../src/storage/knownLog.js";
import { MemoryStore } from "../../src/storage/memory.js";

const KB = 1024;
const MB = KB * KB;

function entriesOf(chatId: string, from: number, count: number): Entry[] {
  return Array.from({ length: count }, (_, at) => {
    const content = "x".repeat(64 * KB);
    return { chat_id: chatId, sequence: from + at, message_id: `${chatId} ${from + at}`, content } as Entry;
  });
}

async function keep(log: KnownLog, chatId: string, from: number, count: number): Promise<void> {
  await log.keep(chatId, 1, [from, from + count - 1], entriesOf(chatId, from, count));
}

test("a fifth of what the browser allows is kept, of the chats that were read last", async () => {
  let now = 0;
  const store = new MemoryStore();
  await store.run(["outbox"], "strict", (tx) => tx.put("outbox", 1, "unsent"));
  const log = new KnownLog(
    store,
    () => ++now,
    async () => 100 * MB,
  );
  for (const chatId of ["one", "two", "three", "four"]) await keep(log, chatId, 1, 100);
  expect(await log.ranges("one")).toEqual([]);
  expect(await log.ranges("three")).toEqual([[1, 100]]);
  expect(await log.ranges("four")).toEqual([[1, 100]]);
  expect((await log.read("one", 1, 100)).entries).toEqual([]);
  expect(await log.place("one 1")).toBeUndefined();
  expect(await store.run(["outbox"], "read", (tx) => tx.all("outbox"))).toEqual(["unsent"]);
});

test("what is kept again counts once", async () => {
  const log = new KnownLog(
    new MemoryStore(),
    () => 1,
    async () => 50 * MB,
  );
  await keep(log, "one", 1, 100);
  for (let again = 0; again < 5; again++) await keep(log, "one", 1, 100);
  await keep(log, "one", 101, 1);
  expect(await log.ranges("one")).toEqual([[1, 101]]);
});
