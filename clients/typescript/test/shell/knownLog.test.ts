/** How much of the logs a device keeps. */

import { beforeEach, describe, expect, test } from "vitest";
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

describe("what is known of a log", () => {
  let log: KnownLog;

  beforeEach(() => {
    log = new KnownLog(
      new MemoryStore(),
      () => 1,
      async () => 50 * MB,
    );
  });

  const entry = (sequence: number, more: Partial<Entry> = {}): Entry => ({
    chat_id: "one",
    sequence,
    epoch: 1,
    kind: "message",
    message_id: `msg_${sequence}`,
    sender_id: "user_me",
    client_message_id: null,
    content: `text ${sequence}`,
    content_type: "text/plain",
    created_at: "2026-01-30T14:30:00.000Z",
    server_timestamp: "2026-01-30T14:30:00.000Z",
    display_time: null,
    ...more,
  });
  const texts = async () => (await log.read("one", 1, 100)).entries.map(({ content }) => content);

  test("what follows each other is one range, and a gap stays a gap", async () => {
    await log.keep("one", 1, [1, 2], [entry(1), entry(2)]);
    await log.keep("one", 1, [4, 5], [entry(4), entry(5)]);
    expect(await log.ranges("one")).toEqual([
      [1, 2],
      [4, 5],
    ]);
    await log.keep("one", 1, [3, 3], []);
    expect(await log.ranges("one")).toEqual([[1, 5]]);
  });

  test("a deleted text is gone from the device, that of its edits, too", async () => {
    await log.keep("one", 1, [1, 1], [entry(1)]);
    await log.keep("one", 1, [2, 2], [entry(2, { kind: "edit", target_id: "msg_1" })]);
    await log.keep("one", 1, [3, 3], [entry(3, { kind: "delete", target_id: "msg_1", content: "" })]);
    expect(await texts()).toEqual(["", "", ""]);
    expect((await log.read("one", 1, 1)).entries[0]?.deleted).toBe(true);
  });

  test("a message that is stored has the text of its last edit", async () => {
    await log.keep("one", 1, [1, 1], [entry(1)]);
    await log.keep("one", 1, [2, 2], [entry(2, { kind: "edit", target_id: "msg_1", content: "better" })]);
    expect((await texts())[0]).toBe("better");
  });

  test("an edit and a delete in the page of their message are carried out", async () => {
    const changes = [
      entry(3, { kind: "edit", target_id: "msg_1", content: "better" }),
      entry(4, { kind: "delete", target_id: "msg_2", content: "" }),
    ];
    await log.keep("one", 1, [1, 4], [entry(1), entry(2), ...changes]);
    expect((await texts()).slice(0, 2)).toEqual(["better", ""]);
  });

  test("a log that was started over replaces the one that was known, and never the other way round", async () => {
    await log.keep("one", 1, [1, 2], [entry(1), entry(2)]);
    await log.keep("one", 2, [1, 1], [entry(1, { epoch: 2, content: "new" })]);
    await log.keep("one", 1, [3, 3], [entry(3)]);
    expect(await texts()).toEqual(["new"]);
    expect(await log.ranges("one")).toEqual([[1, 1]]);
    expect(await log.place("msg_2")).toBeUndefined();
  });
});
