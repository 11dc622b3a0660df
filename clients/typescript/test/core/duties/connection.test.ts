import { beforeEach, expect, test } from "vitest";
import { json } from "../../../src/codec.js";
import { failureOf } from "../../../src/connection.js";
import type { SendMessage } from "../../../src/contract.js";
import { CLOSE_CODES } from "../../../src/contract.js";
import { BadToken, Closed } from "../../../src/core/errors.js";
import { defaultTiming } from "../../../src/core/timing.js";
import { newServer } from "../../model/anyServer.js";
import { BEN, CHAT, Clock, Device, ME, pass, settle } from "../../model/device.js";
import { HEARTBEAT_SECONDS, type ModelServer, refusal } from "../../model/server.js";
import { duty } from "./duty.js";

const SECOND = 1_000;
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

const sends = (): SendMessage[] => device.framesOf("send_message");
const contents = (): string[] => server.log(CHAT).map((entry) => entry?.content ?? "void");
const online = (...devices: Device[]): void => {
  for (const one of devices.length ? devices : [device]) one.connect();
  settle(...(devices.length ? devices : [device]));
};

duty(13, () => {
  test("a heartbeat goes out every heartbeat_seconds", () => {
    online();
    pass(clock, 3 * HEARTBEAT_MS, device);
    expect(device.framesOf("heartbeat").length).toBe(3);
  });

  test("heads in the answer name chats to sync", () => {
    device.read();
    online();
    server.tellsLive = false;
    server.post(CHAT, BEN, "not told");
    clock.pass(HEARTBEAT_MS);
    device.pump();
    device.deliverUp();
    device.deliverDown();
    device.newFrames();
    device.pump();
    expect(device.newFrames().map((frame) => frame.type)).toContain("sync_request");
    settle(device);
    expect(device.shown()).toEqual(["not told"]);
    expect(device.core.chat(CHAT).unreadCount).toBe(1);
  });

  test("a connection that does not answer is replaced", () => {
    online();
    clock.pass(HEARTBEAT_MS);
    device.pump();
    clock.pass(defaultTiming.answerMs - 1);
    device.core.tick(clock.now);
    expect(device.core.silent).toBe(false);
    clock.pass(1);
    device.core.tick(clock.now);
    expect(device.core.silent).toBe(true);
  });

  test("a page that wakes up asks at once, and waits for five seconds", () => {
    online();
    device.newFrames();
    device.core.probe(clock.now);
    device.pump();
    expect(device.newFrames()).toMatchObject([{ type: "heartbeat" }]);
    device.up.length = 0;
    clock.pass(defaultTiming.ackMs);
    device.core.tick(clock.now);
    expect(device.core.silent).toBe(true);
  });
});

duty(14, () => {
  test("the close code says whether to reconnect, or to log in first", () => {
    const range = (from: number, to: number): number[] =>
      Array.from({ length: to - from + 1 }, (_, number) => from + number);
    for (const code of [1000, 1001, 1006, ...range(4000, 4099)])
      expect(failureOf(code, ""), `${code}`).toBeNull();
    const mustLogIn: number[] = [CLOSE_CODES.UNAUTHENTICATED, CLOSE_CODES.REVOKED, CLOSE_CODES.TOKEN_EXPIRED];
    for (const code of range(4100, 4199)) {
      const failure = failureOf(code, "");
      if (code === CLOSE_CODES.HELLO_TIMEOUT)
        expect(failure, "a hello in time is another request").toBeNull();
      else expect(failure, `${code}`).toBeInstanceOf(mustLogIn.includes(code) ? BadToken : Closed);
    }
    for (const code of range(4200, 4299)) expect(failureOf(code, ""), `${code}`).toBeInstanceOf(Closed);
  });

  test("after each connection duties 3 and 6 are done again", () => {
    device.read();
    online();
    device.send("a");
    device.send("b");
    device.pump();
    device.cut();
    server.post(CHAT, BEN, "meanwhile");
    online();
    expect(device.framesOf("sync_overview").length).toBe(2);
    const [first, second] = sends().slice(-2);
    expect([first?.content, second?.content]).toEqual(["a", "b"]);
    expect(second?.after_client_message_id).toBe(first?.client_message_id);
    expect(device.shown()).toEqual(["meanwhile", "a", "b"]);
  });

  test("a pause for a rate limit ends with its connection", () => {
    online();
    server.refuseSends.push(refusal("rate_limited", { temporary: true, retryAfterMs: 60_000 }));
    device.send("a");
    settle(device);
    device.cut();
    online();
    expect(contents()).toEqual(["a"]);
  });
});

duty(15, () => {
  test("unknown fields, frames and kinds change nothing", () => {
    device.read();
    online();
    const unknown = json.decode('{"type":"hologram","chat_id":"chat_1"}');
    device.core.receive(unknown, clock.now);
    const entry = server.post(CHAT, BEN, "hi");
    device.session?.sent.splice(0);
    const frame = {
      type: "messages",
      chat_id: CHAT,
      epoch: 1,
      entries: [{ ...entry, mood: "blue" }],
      mood: "blue",
    };
    device.core.receive(frame as never, clock.now);
    settle(device);
    expect(device.shown()).toEqual(["hi"]);
    expect(device.eventsOf("requestFailed")).toEqual([]);
  });

  test("a change of a chat that it cannot read changes nothing", () => {
    online();
    device.reading.open(device.core.chat(CHAT));
    settle(device);
    const updates = (): unknown[] => device.eventsOf("update").filter(({ what }) => what === "settings");
    const before = updates().length;
    for (const content of ["not JSON", "null", '{"action":"enchanted","user_id":"user_ben"}']) {
      server.post(CHAT, BEN, content, { kind: "chat" });
    }
    settle(device);
    expect(new Set(device.core.chat(CHAT).members.keys())).toEqual(new Set([ME, BEN]));
    expect(updates().length).toBe(before);
  });
});
