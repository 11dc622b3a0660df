/** The browser's store fails: it is full, its handle is dead, another tab deletes it. Nothing that was sent is lost. */

import { IDBDatabase, IDBFactory } from "fake-indexeddb";
import { expect, test, vi } from "vitest";
import { FailsafeStore } from "../../src/storage/failsafe.js";
import { HandleLost, IndexedDbStore } from "../../src/storage/indexedDb.js";
import { SharedOutbox } from "../../src/storage/outbox.js";
import { History } from "./history.js";
import { type Trouble, World } from "./world.js";

function adasWorld() {
  const world = new World();
  const token = world.server.addPerson("ada");
  const chatId = world.server.addChat(["ada"]);
  return { world, token, chatId, history: new History(world, chatId) };
}

const full = () => new DOMException("the disk is full", "QuotaExceededError");

/** Write six messages in two tabs, the first of which has trouble with its store; returns its writes. */
async function playWith(trouble: Trouble): Promise<{ writes: number; storage: string }> {
  const { world, token, history } = adasWorld();
  const first = await world.open({ token, trouble });
  const second = await world.open({ token });
  for (const number of [1, 2, 3]) {
    history.write(first, `first ${number}`);
    history.write(second, `second ${number}`);
    await world.run(5);
  }
  const sendings = [...first.client.unsent, ...second.client.unsent].map((sending) => sending.stored);
  await world.result(Promise.all(sendings), 120_000);
  await world.run(20_000);
  history.check("trouble");
  expect(history.kept).toBe(6);
  expect(first.client.unsent).toEqual([]);
  return { writes: first.writes, storage: first.client.storage };
}

test("a disk that is full at any one write costs nothing", async () => {
  const { writes } = await playWith(() => {});
  expect(writes).toBeGreaterThan(6);
  for (let failing = 1; failing <= writes; failing++) {
    await playWith((_, __, write) => {
      if (write === failing) throw full();
    });
  }
});

test("a disk that is full from any write on costs nothing but the store", async () => {
  const { writes } = await playWith(() => {});
  const storages = new Set<string>();
  for (let failing = 1; failing <= writes; failing++) {
    const { storage } = await playWith((_, __, write) => {
      if (write >= failing) throw full();
    });
    storages.add(storage);
  }
  expect(storages).toContain("memory");
});

test("a full disk lets go of the oldest messages that were read, and keeps what is written", async () => {
  const { world, token, chatId } = adasWorld();
  let isFull = false;
  const trouble: Trouble = (tables) => {
    if (tables.includes("logs")) isFull = false;
    else if (isFull && tables.includes("outbox")) throw full();
  };
  const tab = await world.open({ token, trouble });
  const chat = tab.client.chat(chatId);
  await world.result(chat.send("read").stored);
  await world.result(chat.window());
  await world.run(1_000);
  const known = await world.result(tab.client.known());
  expect(await world.result(known.ranges(chatId))).toEqual([[1, 1]]);
  isFull = true;
  world.server.cut({ isDown: true });
  expect(await world.result(chat.send("written").kept())).toBe(true);
  expect(tab.client.storage).toBe("indexeddb");
  expect(await world.result(known.ranges(chatId))).toEqual([]);
});

test("what is written is kept so that it outlives the power, and nothing else needs to", async () => {
  const { world, token, chatId } = adasWorld();
  const tab = await world.open({ token });
  await world.until(() => tab.client.isOnline);
  const begun = vi.spyOn(IDBDatabase.prototype, "transaction");
  await world.result(tab.client.chat(chatId).send("hi").stored);
  await world.run(1_000);
  const strict = begun.mock.calls.filter(([, , options]) => options?.durability === "strict");
  expect(strict.map(([tables, mode]) => [tables, mode])).toEqual([[["meta", "outbox"], "readwrite"]]);
  expect(begun.mock.calls.length).toBeGreaterThan(2);
  vi.restoreAllMocks();
});

test("a handle that dies once is replaced, and the store stays", async () => {
  const { writes } = await playWith(() => {});
  for (let failing = 1; failing <= writes; failing++) {
    const { storage } = await playWith((_, __, write) => {
      if (write === failing)
        throw new DOMException("Connection to Indexed Database server lost", "UnknownError");
    });
    expect(storage).toBe("indexeddb");
  }
});

test("a transaction whose end was not seen is repeated, and keeps each message once", async () => {
  const store = new IndexedDbStore("outbox", new IDBFactory());
  const run = store.run.bind(store);
  let isLost = true;
  store.run = async (tables, mode, work) => {
    const result = await run(tables, mode, work);
    if (!isLost) return result;
    isLost = false;
    throw new HandleLost("the handle of the database was lost");
  };
  const outbox = new SharedOutbox(new FailsafeStore(store));
  const messages = ["1", "2"].map((content) => ({
    chatId: "c",
    clientMessageId: content,
    content,
    createdAtMs: 0,
  }));
  expect((await outbox.add(messages)).map((row) => row.number)).toEqual([1, 2]);
  expect((await outbox.look(0)).rows.map((row) => row.message.content)).toEqual(["1", "2"]);
});

test("a store that stays dead is left for memory, and what waits is sent from there in order", async () => {
  const { world, token, chatId, history } = adasWorld();
  let isDead = false;
  const tab = await world.open({
    token,
    trouble: () => {
      if (isDead) throw new DOMException("Connection to Indexed Database server lost", "UnknownError");
    },
  });
  let shown = 0;
  tab.client.on("storage", () => {
    shown += 1;
  });
  world.server.cut({ isDown: true });
  history.write(tab, "one");
  history.write(tab, "two");
  await world.run(1_000);
  isDead = true;
  history.write(tab, "three");
  history.write(tab, "four");
  await world.run(1_000);
  world.server.up();
  await world.until(() => world.server.log(chatId).length === 4, 120_000);
  await world.run(70_000);
  history.check("memory");
  expect(world.server.log(chatId).map((entry) => entry.content)).toEqual(["one", "two", "three", "four"]);
  expect(tab.client.storage).toBe("memory");
  expect(shown).toBeGreaterThan(0);
});

test("what was kept before the store died is sent once more by the next tab, and stored once", async () => {
  const { world, token, chatId, history } = adasWorld();
  let isDead = false;
  const tab = await world.open({
    token,
    trouble: () => {
      if (isDead) throw new DOMException("gone", "UnknownError");
    },
  });
  world.server.cut({ isDown: true });
  history.write(tab, "one");
  await world.run(1_000);
  isDead = true;
  history.write(tab, "two");
  world.server.up();
  await world.until(() => world.server.log(chatId).length === 2, 120_000);
  const next = await world.open({ token });
  await world.until(() => next.client.isOnline && next.client.unsent.length === 0, 120_000);
  await world.run(20_000);
  expect(world.server.log(chatId).map((entry) => entry.content)).toEqual(["one", "two"]);
});

test("signing out in one tab ends the others, and leaves nothing on the device", async () => {
  const { world, token } = adasWorld();
  const [one, other] = [await world.open({ token }), await world.open({ token })];
  await world.until(() => other.client.isOnline);
  await world.result(one.client.wipe());
  await world.run(100);
  expect(other.client.failure).toMatchObject({ name: "Closed" });
  const next = await world.open({ token });
  expect(next.client.unsent).toEqual([]);
});

test("signing out leaves nothing on the device though its store was left for memory", async () => {
  const { world, token, history } = adasWorld();
  let isDead = false;
  const trouble = () => {
    if (isDead) throw new DOMException("gone", "UnknownError");
  };
  const tab = await world.open({ token, trouble });
  world.server.cut({ isDown: true });
  history.write(tab, "secret");
  await world.until(() => history.kept === 1);
  isDead = true;
  history.write(tab, "more");
  await world.until(() => tab.client.storage === "memory");
  await world.result(tab.client.wipe());
  world.server.up();
  const next = await world.open({ token });
  await world.run(10_000);
  expect(next.client.unsent).toEqual([]);
  expect(world.server.received.filter((frame) => frame.type === "send_message")).toEqual([]);
});

test("what one person has queued is not sent with the token of another", async () => {
  const { world, token, chatId, history } = adasWorld();
  const other = world.server.addPerson("eve");
  const tab = await world.open({ token });
  await world.until(() => tab.client.isOnline);
  world.server.cut({ isDown: true });
  history.write(tab, "secret");
  await world.run(1_000);
  tab.crash();
  world.server.up();
  const wrong = await world.open({ token: other });
  await world.run(20_000);
  expect(wrong.client.failure).toMatchObject({ name: "StoreUnusable" });
  expect(world.server.received.filter((frame) => frame.type === "send_message")).toEqual([]);
  await world.open({ token });
  await world.until(() => world.server.log(chatId).length === 1);
});
