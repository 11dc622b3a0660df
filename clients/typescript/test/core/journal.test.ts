import { beforeEach, describe, expect, test } from "vitest";
import { OutboxFull, RequestRefused } from "../../src/core/errors.js";
import { OUTBOX_MESSAGES_MAX } from "../../src/core/outbox.js";
import { newServer } from "../model/anyServer.js";
import { BEN, CHAT, Clock, Device, ME, pass, settle } from "../model/device.js";
import { type ModelServer, refusal } from "../model/server.js";

let server: ModelServer;
let clock: Clock;
let device: Device;

beforeEach(() => {
  server = newServer();
  clock = new Clock();
  server.addChat(CHAT, [ME, BEN]);
  device = new Device(server, clock);
});

describe("the journal of a message", () => {
  const told = (key: string): unknown[] =>
    device.core.journal.of(key).map(({ step, at }) => `${step} ${(at - start) / 1_000}`);
  let start: number;

  beforeEach(() => {
    start = clock.wall;
  });

  test("it says when it was written, kept, sent, and stored where", () => {
    device.connect();
    settle(device);
    const key = device.send("hi");
    settle(device);
    expect(told(key)).toEqual(["written 0", "kept 0", "sent 0", "stored 0"]);
    expect(device.core.journal.of(key).at(-1)).toMatchObject({ step: "stored", ack: { sequence: 1 } });
  });

  test("it counts attempts, names refusals, and says when it waited", () => {
    const key = device.send("hi");
    device.pump();
    clock.pass(10_000);
    device.connect();
    server.refuseSends.push(refusal("busy", { temporary: true, retryAfterMs: 2_000 }));
    settle(device);
    pass(clock, 1_000, device);
    device.cut();
    clock.pass(1_000);
    device.connect();
    settle(device);
    expect(told(key)).toEqual([
      "written 0",
      "kept 0",
      "sent 10",
      "refused 10",
      "queued 11",
      "sent 12",
      "stored 12",
    ]);
    const attempts = device.core.journal.of(key).flatMap((one) => (one.step === "sent" ? [one.attempt] : []));
    expect(attempts).toEqual([1, 1]);
  });

  test("it follows the clock of the device, also when that jumps", () => {
    device.connect();
    settle(device);
    clock.wall += 3_600_000;
    const key = device.send("hi");
    settle(device);
    expect(told(key)[0]).toBe("written 3600");
    expect(told(key).at(-1)).toBe("stored 3600");
  });
});

describe("what the outbox takes", () => {
  test("it refuses more than it may hold, and takes more once there is room", () => {
    for (let number = 0; number < OUTBOX_MESSAGES_MAX; number += 1) device.send(`${number}`);
    expect(() => device.send("one more")).toThrow(OutboxFull);
    device.connect();
    for (let turn = 0; turn < 3; turn += 1) device.turn();
    expect(() => device.send("now")).not.toThrow();
  });

  test("it refuses what every server would", () => {
    const refusalOf = (content: string): string => {
      try {
        device.send(content);
      } catch (error) {
        if (error instanceof RequestRefused) return error.code;
      }
      return "";
    };
    expect(refusalOf("x".repeat(64 * 1024))).toBe("");
    expect(refusalOf("é".repeat(32 * 1024 + 1)), "bytes, not letters").toBe("too_large");
    expect(refusalOf("\u0000".repeat(30 * 1024)), "JSON makes six of each").toBe("too_large");
    expect(refusalOf("half a pair: \ud83d")).toBe("bad_request");
    expect(refusalOf("a whole one: 👋")).toBe("");
  });
});
