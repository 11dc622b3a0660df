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
