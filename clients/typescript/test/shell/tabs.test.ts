import { describe, expect, test, vi } from "vitest";
import { memory } from "../../src/client.js";
import { OutboxFull } from "../../src/core/errors.js";
import { World } from "./world.js";

/** Ada's chat with Ben, and tabs of hers. */
function adasWorld(options?: ConstructorParameters<typeof World>[0]) {
  const world = new World(options);
  const token = world.server.addPerson("ada");
  world.server.addPerson("ben");
  const chatId = world.server.addChat(["ada", "ben"]);
  return { world, token, chatId };
}

const contents = (world: World, chatId: string) => world.server.log(chatId).map((entry) => entry.content);

describe.each([true, false])("tabs that share a connection, with Web Locks: %s", (hasLocks) => {
  test("five tabs have one connection", async () => {
    const { world, token } = adasWorld({ hasLocks });
    for (let tab = 0; tab < 5; tab++) await world.open({ token });
    await world.run(10_000);
    expect(world.server.connections.size).toBe(1);
    expect(world.server.welcomed).toBe(1);
    expect(world.tabs.map((tab) => tab.client.isOnline)).toEqual([true, true, true, true, true]);
    expect(world.tabs.filter((tab) => tab.client.isLeader)).toHaveLength(1);
  });

  test("what a tab writes is sent by the leader, and both hear of it", async () => {
    const { world, token, chatId } = adasWorld({ hasLocks });
    const [leader, other] = [await world.open({ token }), await world.open({ token })];
    await world.until(() => other.client.isOnline);
    const sending = other.client.chat(chatId).send("hi");
    expect(sending.status).toBe("keeping");
    expect(await world.result(sending.kept())).toBe(true);
    expect((await world.result(sending.stored)).sequence).toBe(1);
    expect(sending.status).toBe("sent");
    await world.until(() => leader.client.unsent.length === 0 && other.client.unsent.length === 0);
    expect(contents(world, chatId)).toEqual(["hi"]);
  });

  test("another tab leads when the leader crashes, and sends what it had", async () => {
    const { world, token, chatId } = adasWorld({ hasLocks });
    const [leader, other] = [await world.open({ token }), await world.open({ token })];
    await world.until(() => other.client.isOnline);
    world.server.cut({ isDown: true });
    const texts = ["one", "two", "three"];
    const kept = texts.map((text) => leader.client.chat(chatId).send(text).kept());
    await world.result(Promise.all(kept));
    leader.crash();
    world.server.up();
    await world.until(() => contents(world, chatId).length === 3);
    await world.run(60_000);
    expect(contents(world, chatId)).toEqual(texts);
    expect(other.client.isLeader).toBe(true);
  });
});

test.each([true, false])(
  "tabs that nobody looks at keep their connection and their leader, with Web Locks: %s",
  async (hasLocks) => {
    const { world, token } = adasWorld({ hasLocks, isThrottled: true });
    for (let tab = 0; tab < 3; tab++) await world.open({ token });
    await world.until(() => world.tabs.every((tab) => tab.client.isOnline));
    for (const tab of world.tabs) tab.isVisible = false;
    let changes = 0;
    for (const tab of world.tabs) {
      tab.client.on("connection", () => {
        changes += 1;
      });
    }
    await world.run(3_600_000);
    expect(changes).toBe(0);
    expect(world.server.welcomed).toBe(1);
    expect(world.tabs.map((tab) => tab.client.isLeader)).toEqual([true, false, false]);
  },
);

test("tabs that do not share a connection leave each other alone", async () => {
  const { world, token, chatId } = adasWorld();
  const alone = { token, connect: { tabs: false } };
  const [one, other] = [await world.open(alone), await world.open(alone)];
  await world.until(() => one.client.isOnline && other.client.isOnline);
  const sendings = [one, other, one, other].map((tab, at) => tab.client.chat(chatId).send(`${at}`).stored);
  await world.result(Promise.all(sendings));
  await world.run(600_000);
  expect(world.server.welcomed).toBe(2);
  expect(contents(world, chatId).sort()).toEqual(["0", "1", "2", "3"]);
  expect([one.client.unsent, other.client.unsent]).toEqual([[], []]);
});

test("a refused message that is given up in one tab is gone from all, and no other sends it again", async () => {
  const { world, token, chatId } = adasWorld();
  const [one, other] = [await world.open({ token }), await world.open({ token })];
  await world.until(() => other.client.isOnline);
  const edit = one.client.chat(chatId).edit("msg_of_nobody", "hi");
  await world.result(edit.stored.catch(() => {}));
  await world.until(() => other.client.unsent[0]?.status === "failed");
  const [shown] = other.client.unsent;
  await world.result(edit.discard());
  await world.run(10);
  expect([one.client.unsent, other.client.unsent]).toEqual([[], []]);
  await world.result(shown?.retry() ?? Promise.resolve());
  await world.run(60_000);
  expect(other.client.unsent).toEqual([]);
  expect(world.server.received.filter((frame) => frame.type === "edit_message")).toHaveLength(1);
});

test("what a listener of the application throws stops nothing", async () => {
  const { world, token, chatId } = adasWorld();
  const thrown: unknown[] = [];
  const queue = globalThis.queueMicrotask;
  vi.spyOn(globalThis, "queueMicrotask").mockImplementation((task) =>
    queue(() => {
      try {
        task();
      } catch (error) {
        thrown.push(error);
      }
    }),
  );
  const tab = await world.open({ token });
  tab.client.on("any", () => {
    throw new Error("of the application");
  });
  await world.until(() => tab.client.isOnline);
  await world.result(tab.client.chat(chatId).send("hi").stored, 10_000);
  await world.run(600_000);
  expect(tab.client.isOnline).toBe(true);
  expect(thrown).toContainEqual(new Error("of the application"));
  vi.restoreAllMocks();
});

test("a tab that is looked at takes the lead from one that is frozen", async () => {
  const { world, token, chatId } = adasWorld();
  const leader = await world.open({ token });
  const other = await world.open({ token });
  await world.until(() => other.client.isOnline);
  leader.freeze({ isTold: false });
  const sending = other.client.chat(chatId).send("hi");
  await world.result(sending.stored, 10_000);
  expect(other.client.isLeader).toBe(true);
  leader.thaw();
  await world.run(5_000);
  expect(leader.client.isLeader).toBe(false);
  expect(leader.client.isOnline).toBe(true);
  expect(world.server.connections.size).toBe(1);
  expect(contents(world, chatId)).toEqual(["hi"]);
});

test("a leader that finds the term of another gives up, and sends by a term of its own", async () => {
  const { world, token, chatId } = adasWorld();
  const tab = await world.open({ token });
  await world.until(() => tab.client.isOnline);
  const { store } = tab.client;
  const term = () => world.result(store.run(["meta"], "read", (tx) => tx.get<number>("meta", "term")));
  // As another tab does that takes the lead while this one hears of nothing.
  await world.result(store.run(["meta"], "relaxed", (tx) => tx.put("meta", "term", 7)));
  await world.result(tab.client.chat(chatId).send("hi").stored);
  expect(await term()).toBe(8);
  expect(world.server.welcomed).toBe(2);
  expect(contents(world, chatId)).toEqual(["hi"]);
});

test("a leader that was robbed gives up as soon as it hears of a later term", async () => {
  const { world, token } = adasWorld({ hasLocks: false });
  const leader = await world.open({ token });
  const other = await world.open({ token });
  await world.until(() => other.client.isOnline);
  leader.freeze({ isTold: false });
  await world.until(() => other.client.isLeader && other.client.isOnline);
  await world.run(2_000);
  expect(leader.client.isLeader).toBe(true);
  leader.thaw();
  expect(leader.client.isLeader).toBe(false);
  await world.run(5_000);
  expect(world.tabs.map((tab) => tab.client.isLeader)).toEqual([false, true]);
  expect(world.server.connections.size).toBe(1);
});

test("a tab that was robbed of the lead leads again when the other one ends", async () => {
  const { world, token, chatId } = adasWorld();
  const robbed = await world.open({ token });
  const other = await world.open({ token });
  await world.until(() => other.client.isOnline);
  robbed.freeze({ isTold: false });
  await world.until(() => other.client.isLeader && other.client.isOnline);
  robbed.thaw();
  await world.run(5_000);
  other.crash();
  // Nobody looks at it, so it takes no lead from another: it has waited for its turn.
  robbed.isVisible = false;
  await world.result(robbed.client.chat(chatId).send("hi").stored, 10_000);
  expect(robbed.client.isLeader).toBe(true);
});

test("a tab that heard nothing of an outcome reads it when it leads", async () => {
  const { world, token, chatId } = adasWorld();
  const leader = await world.open({ token });
  const other = await world.open({ token });
  await world.until(() => other.client.isOnline);
  for (const channel of world.channels) if (channel.tab === other) world.channels.delete(channel);
  const sending = other.client.chat(chatId).send("hi");
  await world.until(() => contents(world, chatId).length === 1);
  await world.run(1_000);
  expect(sending.status).not.toBe("sent");
  leader.crash();
  await world.result(sending.stored, 60_000);
  expect(contents(world, chatId)).toEqual(["hi"]);
});

test("a tab in the background takes nothing from a leader that is silent", async () => {
  const { world, token } = adasWorld();
  const leader = await world.open({ token });
  const other = await world.open({ token, isVisible: false });
  await world.until(() => other.client.isOnline);
  leader.freeze({ isTold: false });
  await world.run(60_000);
  expect(other.client.isLeader).toBe(false);
  expect(other.client.isOnline).toBe(false);
});

test("a leader that is put away gives the lead back at once", async () => {
  const { world, token } = adasWorld();
  const leader = await world.open({ token });
  const other = await world.open({ token, isVisible: false });
  await world.until(() => other.client.isOnline);
  leader.freeze();
  await world.until(() => other.client.isLeader && other.client.isOnline, 2_000);
  leader.thaw();
  await world.until(() => leader.client.isOnline, 2_000);
  expect(leader.client.isLeader).toBe(false);
});

test("no more than 64 MiB wait to be sent, and there is room again for what was stored", async () => {
  const { world, token, chatId } = adasWorld();
  const tab = await world.open({ token, connect: { store: memory() } });
  world.server.cut({ isDown: true });
  const chat = tab.client.chat(chatId);
  const content = "x".repeat(64 * 1024);
  const sendings = Array.from({ length: 1024 }, () => chat.send(content));
  expect(() => chat.send("hi")).toThrow(OutboxFull);
  world.server.up();
  await world.result(sendings[0]?.stored ?? Promise.reject(new Error("nothing was sent")), 120_000);
  expect(chat.send("hi").clientMessageId).toBeDefined();
});
