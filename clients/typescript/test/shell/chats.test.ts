/** What a list of chats hears. */

import { expect, test } from "vitest";
import { World } from "./world.js";

test("a new chat is told of before there is any message in it", async () => {
  const world = new World();
  const tab = await world.open({ token: world.server.addPerson("ada") });
  await world.until(() => tab.client.isOnline);
  await world.result(tab.client.overview());
  const told: (string | undefined)[] = [];
  tab.client.on("members", ({ chatId }) => told.push(chatId));
  const chat = await world.result(tab.client.createChat([], "notes"));
  await world.until(() => told.length > 0);
  expect(told).toEqual([chat.chatId]);
});

test("a log that the server has restored is told of, and read again from its start", async () => {
  const world = new World();
  const token = world.server.addPerson("ada");
  const chatId = world.server.addChat(["ada"]);
  const tab = await world.open({ token });
  const chat = tab.client.chat(chatId);
  await world.result(chat.send("kept").stored);
  await world.result(chat.send("lost").stored);
  const read: string[] = [];
  void (async () => {
    for await (const { epoch, content } of chat) read.push(`${epoch} ${content}`);
  })().catch(() => {});
  await world.until(() => read.length === 2);
  const told: (string | undefined)[] = [];
  tab.client.on("log", (update) => told.push(update.chatId));
  world.server.restore(chatId, 1);
  await world.until(() => read.length === 3);
  expect(read).toEqual(["1 kept", "1 lost", "2 kept"]);
  expect(told).toEqual([chatId]);
  expect(chat.restarts).toBe(1);
});
