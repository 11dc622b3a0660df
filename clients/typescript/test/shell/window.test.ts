/** Windows of the log as a screen shows them: from the store at once, then as the server has it. */

import { beforeEach, expect, test } from "vitest";
import type { ChatWindow, WindowOptions } from "../../src/window.js";
import { type Tab, World } from "./world.js";

let world: World;
let token: string;
let chatId: string;

beforeEach(() => {
  world = new World();
  token = world.server.addPerson("ada");
  world.server.addPerson("ben");
  chatId = world.server.addChat(["ada", "ben"]);
});

const contents = (window: ChatWindow) => window.messages.map((message) => message.entry.content);
const say = (...texts: string[]) => texts.map((text) => world.server.say("ben", chatId, text));
const numbered = (count: number) => Array.from({ length: count }, (_, index) => `${index + 1}`);

async function online(tab: Tab): Promise<Tab> {
  await world.until(() => tab.client.isOnline);
  return tab;
}

async function shown(tab: Tab, options: WindowOptions = {}): Promise<ChatWindow> {
  return world.result(tab.client.chat(chatId).window(options));
}

/** What a tab has shown is in the store of the next one. */
async function shownBefore(): Promise<void> {
  const tab = await online(await world.open({ token }));
  await shown(tab);
  await world.run(1_000);
  tab.crash();
}

test("the end of the log is followed", async () => {
  const tab = await online(await world.open({ token }));
  say("tea");
  const window = await shown(tab);
  say("milk");
  await world.until(() => contents(window).length === 2);
  expect(contents(window)).toEqual(["tea", "milk"]);
  expect(window.isAtEnd).toBe(true);
});

test("a window that opens without a network shows what is kept, and follows once there is one", async () => {
  say("tea");
  await shownBefore();
  world.server.cut({ isDown: true });
  const tab = await world.open({ token });
  const window = await shown(tab);
  expect(contents(window)).toEqual(["tea"]);
  say("milk");
  world.server.up();
  await world.until(() => contents(window).length === 2);
  say("bread");
  await world.until(() => contents(window).length === 3);
  expect(contents(window)).toEqual(["tea", "milk", "bread"]);
  expect(window.isAtEnd).toBe(true);
});

test("what was sent without a network is in the window once it is stored", async () => {
  say("tea");
  await shownBefore();
  world.server.cut({ isDown: true });
  const writer = await world.open({ token });
  await world.result(writer.client.chat(chatId).send("milk").kept());
  writer.crash();
  const tab = await world.open({ token });
  const window = await shown(tab);
  world.server.up();
  await world.until(() => contents(window).includes("milk"));
  expect(contents(window)).toEqual(["tea", "milk"]);
});

test("a window around a position reaches both ways, and is not at the end until it is there", async () => {
  say(...numbered(200));
  const tab = await online(await world.open({ token }));
  const window = await shown(tab, { around: 100, size: 10 });
  expect([window.from, window.to, window.isAtEnd]).toEqual([95, 104, false]);
  await world.result(window.older(5));
  await world.result(window.newer(5));
  expect([window.from, window.to]).toEqual([90, 109]);
  expect(contents(window)).toEqual(numbered(200).slice(89, 109));
  await world.result(window.newer(500));
  expect([window.to, window.isAtEnd]).toEqual([200, true]);
});

test("a window around a message opens at its position", async () => {
  const [, second] = say("tea", "milk", "bread");
  const tab = await online(await world.open({ token }));
  const window = await shown(tab, { around: second?.message_id ?? "", size: 2 });
  expect(contents(window)).toEqual(["tea", "milk"]);
});

test("a window that is not at the end does not join what does not touch it", async () => {
  say(...numbered(50));
  const tab = await online(await world.open({ token }));
  const window = await shown(tab, { around: 10, size: 10 });
  say("live");
  await world.run(5_000);
  expect([window.to, window.isAtEnd]).toEqual([14, false]);
  expect(contents(window)).not.toContain("live");
});

test("a closed window hears of nothing", async () => {
  const tab = await online(await world.open({ token }));
  const window = await shown(tab);
  let changes = 0;
  window.onChange(() => {
    changes += 1;
  });
  window.close();
  say("tea");
  await world.run(5_000);
  expect(changes).toBe(0);
});

test("a window holds four megabytes at most, and what was let go can be read again", async () => {
  const long = "x".repeat(60_000);
  say(...numbered(100).map((number) => `${number} ${long}`));
  const tab = await online(await world.open({ token }));
  const window = await shown(tab, { size: 20 });
  const held = () => window.entries.reduce((bytes, entry) => bytes + 2 * (entry.content?.length ?? 0), 0);
  while (!window.isAtStart) await world.result(window.older(20));
  expect([window.from, window.isAtEnd]).toEqual([1, false]);
  expect(held()).toBeLessThan(4 * 1024 * 1024);
  while (!window.isAtEnd) await world.result(window.newer(20));
  expect(window.to).toBe(100);
  expect(held()).toBeLessThan(4 * 1024 * 1024);
});

test("an edit far behind the end of a window changes what it shows", async () => {
  const tab = await online(await world.open({ token }));
  const [, , third] = say(...numbered(60));
  const window = await shown(tab, { around: 3, size: 6 });
  expect(window.isAtEnd).toBe(false);
  const edit = {
    type: "edit_message",
    chat_id: chatId,
    client_message_id: "7f3f0f7a-0000-4000-8000-000000000001",
    message_id: third?.message_id ?? "",
    content: "better",
  } as const;
  world.server.send(edit, "user_ben");
  await world.until(() => contents(window)[2] === "better");
  expect(window.to).toBeLessThan(60);
});

test("the tab with the connection keeps what arrives live", async () => {
  const tab = await online(await world.open({ token }));
  const known = await world.result(tab.client.known());
  say("tea");
  await world.run(1_000);
  expect(await world.result(known.ranges(chatId))).toEqual([[1, 1]]);
});
