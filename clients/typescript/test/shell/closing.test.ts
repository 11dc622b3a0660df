/** How a client ends, and what it refuses. */

import { beforeEach, expect, test } from "vitest";
import type { Client } from "../../src/client.js";
import { type Tab, World } from "./world.js";

let world: World;
let tab: Tab;
let client: Client;
let chatId: string;

beforeEach(async () => {
  world = new World();
  const token = world.server.addPerson("ada");
  world.server.addPerson("ben");
  chatId = world.server.addChat(["ada", "ben"]);
  tab = await world.open({ token });
  client = tab.client;
  await world.until(() => client.isOnline);
});

test("closing waits for the acks of messages in flight", async () => {
  const sending = client.chat(chatId).send("hi");
  await world.result(client.close());
  expect((await sending.stored).sequence).toBe(1);
});

test("closing tells the server how far was read", async () => {
  world.server.say("ben", chatId, "tea?");
  const loop = client.chat(chatId)[Symbol.asyncIterator]();
  await world.result(loop.next());
  client.chat(chatId).done();
  await world.result(client.close());
  const acks = world.server.received.filter((frame) => frame.type === "ack");
  expect(acks.map((ack) => ack.last_acked_sequence)).toEqual([1]);
});

test("an id of one's own that is no UUIDv4 is refused at once", () => {
  const send = () => client.chat(chatId).send("hi", { clientMessageId: "1" });
  expect(send).toThrow("UUIDv4");
});
