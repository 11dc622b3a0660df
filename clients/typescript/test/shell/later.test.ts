import { beforeEach, describe, expect, test } from "vitest";
import { Closed } from "../../src/core/errors.js";
import * as loaded from "../../src/later.js";
import { World } from "./world.js";

/** The other half of a client, which arrives when the test says so. */
class Arrival {
  attempts = 0;
  failures = 0;
  #arrive: (later: typeof loaded) => void = () => {};

  later = (): Promise<typeof loaded> => {
    this.attempts += 1;
    if (this.failures > 0) {
      this.failures -= 1;
      return Promise.reject(new TypeError("no such file"));
    }
    return new Promise((resolve) => {
      this.#arrive = resolve;
    });
  };

  now(): void {
    this.#arrive(loaded);
  }
}

let world: World;
let token: string;
let chatId: string;
let arrival: Arrival;

beforeEach(() => {
  world = new World();
  token = world.server.addPerson("ada");
  world.server.addPerson("ben");
  chatId = world.server.addChat(["ada", "ben"]);
  arrival = new Arrival();
});

/** A promise whose rejection is looked at later. */
function awaited<Value>(promise: Promise<Value>): Promise<Value> {
  promise.catch(() => {});
  return promise;
}

const texts = () => world.server.log(chatId).map((entry) => entry.content);

describe("before the other half of the client is there", () => {
  test("what is written is kept, sent and stored", async () => {
    const tab = await world.open({ token, later: arrival.later });
    const sending = tab.client.chat(chatId).send("hi");
    expect(await world.result(sending.kept())).toBe(true);
    await world.result(sending.stored);
    world.server.cut();
    await world.result(tab.client.chat(chatId).send("again").stored);
    expect(texts()).toEqual(["hi", "again"]);
  });

  test("messages of others count as unread", async () => {
    const tab = await world.open({ token, later: arrival.later });
    await world.until(() => tab.client.isOnline);
    world.server.say("ben", chatId, "tea?");
    await world.until(() => tab.client.chat(chatId).unread === 1);
  });

  test("what the application wants is done when it comes, in order", async () => {
    world.server.say("ben", chatId, "one");
    world.server.say("ben", chatId, "two");
    const tab = await world.open({ token, later: arrival.later });
    const chat = tab.client.chat(chatId);
    const opened = chat.open();
    const shown = chat.window();
    chat.seek(0);
    const loop = chat[Symbol.asyncIterator]();
    const [first, second] = [awaited(loop.next()), awaited(loop.next())];
    chat.seek(1);
    const other = chat[Symbol.asyncIterator]();
    await world.run(60_000);
    arrival.now();
    expect((await world.result(opened)).isOpen).toBe(true);
    expect((await world.result(shown)).entries.map((entry) => entry.content)).toEqual(["one", "two"]);
    await expect(world.result(first)).rejects.toThrow("another loop");
    await expect(world.result(second)).rejects.toThrow("another loop");
    expect((await world.result(other.next())).value?.content).toBe("two");
  });

  test("a loop over all chats begins when it comes", async () => {
    const tab = await world.open({ token, later: arrival.later });
    const loop = tab.client[Symbol.asyncIterator]();
    const first = loop.next();
    world.server.say("ben", chatId, "hi");
    await world.run(1_000);
    arrival.now();
    expect((await world.result(first)).value?.content).toBe("hi");
  });

  test("a client that is closed ends its loops and calls", async () => {
    const tab = await world.open({ token, later: arrival.later });
    const first = awaited(tab.client.chat(chatId)[Symbol.asyncIterator]().next());
    const marked = awaited(tab.client.chat(chatId).markRead(1));
    await world.result(tab.client.close());
    await expect(world.result(first)).rejects.toThrow(Closed);
    await expect(world.result(marked)).rejects.toThrow(Closed);
    arrival.now();
    await world.run(10_000);
  });

  test("tabs without Web Locks send once it is there", async () => {
    world = new World({ hasLocks: false });
    token = world.server.addPerson("ada");
    chatId = world.server.addChat(["ada"]);
    const tab = await world.open({ token, later: arrival.later });
    const sending = tab.client.chat(chatId).send("hi");
    expect(await world.result(sending.kept())).toBe(true);
    await world.run(10_000);
    expect(texts()).toEqual([]);
    arrival.now();
    await world.result(sending.stored);
    expect(texts()).toEqual(["hi"]);
  });
});

describe("another half that cannot be loaded", () => {
  test("is tried again until it is there", async () => {
    arrival.failures = 3;
    const tab = await world.open({ token, later: arrival.later });
    const opened = tab.client.chat(chatId).open();
    await world.run(60_000);
    expect(arrival.attempts).toBe(4);
    arrival.now();
    expect((await world.result(opened)).isOpen).toBe(true);
  });

  test("keeps nothing from being sent", async () => {
    arrival.failures = Number.POSITIVE_INFINITY;
    const tab = await world.open({ token, later: arrival.later });
    await world.result(tab.client.chat(chatId).send("hi").stored);
    expect(texts()).toEqual(["hi"]);
    await world.result(tab.client.close());
    const { attempts } = arrival;
    await world.run(60_000);
    expect(arrival.attempts).toBe(attempts);
  });
});
