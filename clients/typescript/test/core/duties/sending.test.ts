import fc from "fast-check";
import { beforeEach, expect, test } from "vitest";
import type { ClientFrame, SendMessage } from "../../../src/contract.js";
import { backoffMs, decideResend, defaultTiming } from "../../../src/core/timing.js";
import { newServer } from "../../model/anyServer.js";
import { BEN, CHAT, Clock, Device, ME, pass, settle } from "../../model/device.js";
import { HEARTBEAT_SECONDS, type ModelServer, refusal } from "../../model/server.js";
import { duty, seedProperties } from "./duty.js";

seedProperties();

const SECOND = 1_000;
const DAY = 86_400 * SECOND;
const HEARTBEAT_MS = HEARTBEAT_SECONDS * SECOND;

let server: ModelServer;
let clock: Clock;
let device: Device;

beforeEach(() => {
  server = newServer();
  clock = new Clock();
  server.now = () => clock.wall;
  server.addChat(CHAT, [ME, BEN]);
  device = new Device(server, clock);
});

const isSend = (frame: ClientFrame): frame is SendMessage => frame.type === "send_message";
const sends = (): SendMessage[] => device.framesOf("send_message");
const contents = (): string[] => server.log(CHAT).map((entry) => entry?.content ?? "void");
const newSends = (): string[] =>
  device
    .newFrames()
    .filter(isSend)
    .map((frame) => frame.content);
const online = (...devices: Device[]): void => {
  for (const one of devices.length ? devices : [device]) one.connect();
  settle(...(devices.length ? devices : [device]));
};

duty(1, () => {
  test("every retry has the same id, content and display_time", () => {
    online();
    device.send("hi");
    for (let attempt = 0; attempt < 3; attempt += 1) {
      device.pump();
      device.deliverUp(isSend);
      clock.pass(defaultTiming.ackMs);
    }
    settle(device);
    const said = sends().map(({ id: _, ...frame }) => frame);
    expect(said.length).toBeGreaterThan(2);
    for (const frame of said) expect(frame).toEqual(said[0]);
    expect(contents()).toEqual(["hi"]);
  });

  test("nothing goes out before it is saved, and what was saved goes out after a crash", () => {
    online();
    const key = device.send("hi");
    device.pump(false);
    expect(newSends()).toEqual([]);
    expect(device.eventsOf("saved")).toEqual([]);
    device.pump();
    expect(device.eventsOf("saved")).toEqual([{ type: "saved", keys: [key] }]);
    const [first] = sends();
    device.crash();
    online();
    expect(sends().at(-1)?.client_message_id).toBe(first?.client_message_id);
    expect(contents()).toEqual(["hi"]);
    expect(device.outbox.size).toBe(1);
    pass(clock, SECOND, device);
    expect(device.outbox.size, "an acknowledged message leaves the store").toBe(0);
  });
});

duty(2, () => {
  test("without an ack within 5 seconds it is resent, three times, then queued with growing pauses", () => {
    online();
    const key = device.send("hi");
    const at: number[] = [];
    for (let time = 0; time <= 60 * SECOND; time += SECOND / 2) {
      device.pump();
      for (const frame of device.up.splice(0)) {
        if (isSend(frame)) at.push(clock.now);
        else device.session?.receive(frame);
      }
      device.deliverDown();
      if (clock.now === 14 * SECOND) expect(device.core.outbox.isQueued(key)).toBe(false);
      if (clock.now === 21 * SECOND) expect(device.core.outbox.isQueued(key)).toBe(true);
      clock.pass(SECOND / 2);
    }
    const pauses = at.slice(1).map((time, number) => (time - (at[number] ?? 0)) / SECOND);
    expect(pauses).toEqual([5, 5, 5, 6, 7, 9, 13]);
  });

  test("the pauses are min(1 s · 2^attempt, 60 s) and up to a tenth more", () => {
    fc.assert(
      fc.property(
        fc.integer({ min: 0, max: 100 }),
        fc.double({ min: 0, max: 1, noNaN: true }),
        (attempt, chance) => {
          const plain = Math.min(1_000 * 2 ** Math.min(attempt, 32), 60_000);
          const wait = backoffMs(attempt, defaultTiming, chance);
          expect(wait).toBeGreaterThanOrEqual(plain);
          expect(wait).toBeLessThanOrEqual(plain * 1.1);
        },
      ),
    );
  });

  test("after a temporary refusal it waits at least retry_after_ms", () => {
    online();
    server.refuseSends.push(refusal("slow_mode", { temporary: true, retryAfterMs: 7_000 }));
    device.send("hi");
    settle(device);
    pass(clock, 6_999, device);
    expect(sends().length).toBe(1);
    pass(clock, 1, device);
    expect(sends().length).toBe(2);
    expect(contents()).toEqual(["hi"]);
  });

  test("after a permanent refusal it gives up and says so", () => {
    online();
    server.refuseSends.push(refusal("blocked"));
    const key = device.send("hi");
    const next = device.send("later");
    settle(device);
    expect(device.eventsOf("refused")).toMatchObject([{ key, refusal: { code: "blocked" }, isKept: false }]);
    pass(clock, DAY / 24, device);
    expect(sends().filter((frame) => frame.content === "hi").length).toBe(1);
    expect(device.eventsOf("stored").map((event) => event.key)).toEqual([next]);
    expect(device.outbox.size).toBe(0);
  });

  test("after store_damaged it is kept, and sent once more on each later connection", () => {
    online();
    server.refuseSends.push(refusal("store_damaged"), refusal("store_damaged"));
    const key = device.send("hi");
    settle(device);
    expect(device.eventsOf("refused")).toMatchObject([{ key, isKept: true }]);
    expect(device.outbox.has(key)).toBe(true);
    pass(clock, HEARTBEAT_MS, device);
    expect(sends().length, "not again on this connection").toBe(1);
    for (const expected of [2, 3]) {
      device.cut();
      online();
      pass(clock, HEARTBEAT_MS, device);
      expect(sends().length).toBe(expected);
    }
    expect(contents()).toEqual(["hi"]);
  });

  test("outcome_unknown and a broken connection are no failures", () => {
    online();
    server.refuseSends.push(refusal("outcome_unknown", { temporary: true }));
    device.send("one");
    settle(device);
    device.send("two");
    device.pump();
    device.deliverUp();
    device.cut(); // the ack is lost
    clock.pass(SECOND);
    online();
    pass(clock, 10 * SECOND, device);
    expect(contents()).toEqual(["one", "two"]);
    expect(device.eventsOf("refused")).toEqual([]);
    expect(device.eventsOf("stored").length).toBe(2);
  });

  test("a refusal decides alone whether a retry helps", () => {
    const codes = ["rate_limited", "out_of_turn", "not_a_member", "store_damaged", "never heard of"];
    fc.assert(
      fc.property(
        fc.constantFrom(...codes),
        fc.boolean(),
        fc.integer({ min: 1, max: 50 }),
        (code, temporary, attempts) => {
          const decision = decideResend(attempts, refusal(code, { temporary }), defaultTiming, 0.5);
          expect("delayMs" in decision).toBe(temporary);
        },
      ),
    );
  });
});

duty(3, () => {
  test("each unacknowledged message names the one before it", () => {
    online();
    for (const text of ["a", "b", "c"]) device.send(text);
    device.pump();
    const [a, b, c] = sends();
    expect(a?.after_client_message_id).toBeUndefined();
    expect(b?.after_client_message_id).toBe(a?.client_message_id);
    expect(c?.after_client_message_id).toBe(b?.client_message_id);
  });

  test("on out_of_turn it resends from the first unacknowledged message on, in order", () => {
    online();
    for (const text of ["a", "b", "c"]) device.send(text);
    device.pump();
    device.deliverUp((frame) => isSend(frame) && frame.content === "a");
    pass(clock, 30 * SECOND, device);
    expect(contents()).toEqual(["a", "b", "c"]);
  });

  test("whatever is lost and refused, the order stays and nothing is stored twice", () => {
    const fates = fc.array(fc.constantFrom("arrives", "is lost", "answer is lost", "refused", "cut"), {
      minLength: 5,
      maxLength: 40,
    });
    fc.assert(
      fc.property(fates, fc.integer({ min: 1, max: 6 }), (told, count) => {
        server = newServer();
        server.addChat(CHAT, [ME, BEN]);
        device = new Device(server, clock);
        online();
        const texts = Array.from({ length: count }, (_, number) => `${number}`);
        for (const text of texts) device.send(text);
        for (const fate of told) {
          device.pump();
          if (fate === "refused") server.refuseSends.push(refusal("store_unavailable", { temporary: true }));
          device.deliverUp((frame) => fate === "is lost" && isSend(frame));
          device.deliverDown(
            ({ type }) => fate === "answer is lost" && (type === "ack" || type === "refused"),
          );
          if (fate === "cut") {
            device.cut();
            device.connect();
          }
          clock.pass(2 * SECOND);
        }
        server.refuseSends.length = 0;
        pass(clock, 200 * SECOND, device);
        expect(contents()).toEqual(texts);
      }),
      { numRuns: 60 },
    );
  });

  test("an edit waits until what was sent before it is stored", () => {
    online();
    device.send("hi");
    settle(device);
    const [entry] = server.log(CHAT);
    device.send("more");
    device.send("hello", { kind: "edit", targetId: entry?.message_id ?? "" });
    device.pump();
    expect(device.up.map((frame) => frame.type)).toEqual(["send_message"]);
    settle(device);
    expect(contents()).toEqual(["hello", "more", "hello"]);
  });

  test("what a broken connection took back goes before what waited", () => {
    online();
    device.send("hi");
    settle(device);
    const [entry] = server.log(CHAT);
    device.send("more");
    device.send("hello", { kind: "edit", targetId: entry?.message_id ?? "" });
    device.pump();
    device.cut();
    online();
    settle(device);
    expect(contents()).toEqual(["hello", "more", "hello"]);
  });
});

duty(4, () => {
  const old = (): string => {
    online();
    const key = device.send("hi");
    device.pump();
    device.deliverUp();
    device.cut(); // stored, and the ack is lost
    clock.pass(7 * DAY);
    server.forgetIds();
    device.connect();
    for (let turn = 0; turn < 5; turn += 1) {
      device.pump();
      device.deliverUp();
      device.deliverDown((frame) => frame.type === "messages");
    }
    return key;
  };

  test("an old message is looked for before it is resent", () => {
    const key = old();
    expect(device.eventsOf("check").map((event) => event.message.content)).toEqual(["hi"]);
    expect(sends().length).toBe(1);
    const [stored] = server.log(CHAT);
    if (!stored) throw new Error("it was stored");
    const ack = {
      ...stored,
      type: "ack",
      client_message_id: key,
      deduplicated: true,
      conflict: false,
    } as const;
    device.core.messageStored(key, ack, clock.now);
    pass(clock, 60 * SECOND, device);
    expect(sends().length).toBe(1);
    expect(contents()).toEqual(["hi"]);
  });

  test("what is not in the log is sent; a search that fails is repeated", () => {
    const key = old();
    device.core.checkFailed(key, clock.now);
    pass(clock, 10 * SECOND, device);
    expect(device.eventsOf("check").length).toBe(2);
    expect(sends().length).toBe(1);
    device.core.messageNotStored(key, clock.wall);
    settle(device);
    expect(sends().length).toBe(2);
  });

  test("a younger message is resent at once", () => {
    online();
    device.send("hi");
    device.pump();
    device.cut();
    clock.pass(6 * DAY);
    online();
    expect(device.eventsOf("check")).toEqual([]);
    expect(contents()).toEqual(["hi"]);
  });
});

duty(5, () => {
  const unanswered = (): number => device.newFrames().filter(isSend).length;

  test("so many sends are unanswered at most, and fewer after a temporary refusal", () => {
    online();
    device.newFrames();
    for (let number = 0; number < 200; number += 1) device.send(`${number}`);
    device.pump();
    expect(unanswered()).toBe(64);
    device.cut();
    online();
    pass(clock, SECOND, device);
    expect(contents().length).toBe(200);
    device.newFrames();
    server.refuseSends.push(refusal("busy", { temporary: true, retryAfterMs: 100 }));
    device.send("refused");
    settle(device);
    device.newFrames();
    for (let number = 0; number < 300; number += 1) device.send(`${number}`);
    clock.pass(2 * SECOND);
    device.pump();
    expect(unanswered(), "half of what 200 acks had allowed").toBe(128);
  });

  test("after rate_limited the sends of all chats pause", () => {
    server.addChat("chat_2", [ME]);
    online();
    server.refuseSends.push(refusal("rate_limited", { temporary: true, retryAfterMs: 3_000 }));
    device.send("one");
    settle(device);
    device.send("two", { chatId: "chat_2" });
    settle(device);
    expect(sends().length).toBe(1);
    pass(clock, 3 * SECOND, device);
    expect(sends().length).toBe(3);
  });

  test("pages and acks pause, too, and no second has more than a hundred acks", () => {
    const chats = Array.from({ length: 150 }, (_, number) => `chat_of_many_${number}`);
    for (const chatId of chats) {
      server.addChat(chatId, [ME, BEN]);
      server.post(chatId, BEN, "hi");
    }
    device.reading.readAll();
    device.connect();
    settle(device);
    for (const chatId of chats) device.take(chatId);
    clock.pass(defaultTiming.cursorFlushMs);
    device.newFrames();
    for (let turn = 0; turn < 5; turn += 1) device.pump();
    expect(device.newFrames().filter((frame) => frame.type === "ack").length).toBe(100);
    server.refuseOthers.push(refusal("rate_limited", { temporary: true, retryAfterMs: 5_000 }));
    device.deliverUp();
    device.deliverDown();
    device.newFrames();
    clock.pass(4 * SECOND);
    device.pump();
    expect(device.newFrames().filter((frame) => frame.type === "ack")).toEqual([]);
    pass(clock, 10 * SECOND, device);
    for (const chatId of chats) expect(server.acked(ME, chatId)).toBe(1);
  });
});
