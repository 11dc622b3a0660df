/** What a core takes from other tabs of its device. */

import fc from "fast-check";
import { beforeEach, describe, expect, test } from "vitest";
import { keyOf, type OutgoingMessage } from "../../src/core/storage.js";
import { newServer } from "../model/anyServer.js";
import { BEN, CHAT, Clock, Device, ME, pass, settle } from "../model/device.js";
import { type ModelServer, refusal } from "../model/server.js";
import { seedProperties } from "./duties/duty.js";

seedProperties();

let server: ModelServer;
let clock: Clock;
let leader: Device;
let follower: Device;

beforeEach(() => {
  server = newServer();
  clock = new Clock();
  server.addChat(CHAT, [ME, BEN]);
  leader = new Device(server, clock, { deviceId: "one" });
  follower = new Device(server, clock, { deviceId: "two" });
});

const contents = (): string[] => server.log(CHAT).map((entry) => entry?.content ?? "void");
const row = (number: number, chatId = CHAT): OutgoingMessage => ({
  chatId,
  clientMessageId: `00000000-0000-4000-8000-${String(number).padStart(12, "0")}`,
  content: `row ${number}`,
  createdAtMs: clock.wall,
});

describe("messages that another tab queued", () => {
  test("they are sent in the order of the store, behind what was sent before", () => {
    leader.connect();
    settle(leader);
    leader.send("own");
    settle(leader);
    leader.core.adopt([row(1), row(2)]);
    settle(leader);
    expect(contents()).toEqual(["own", "row 1", "row 2"]);
    expect(leader.eventsOf("stored").map((event) => event.key)).toContain(keyOf(row(2)));
  });

  test("a tab that takes over gets the order of the store, and what it has not saved yet comes last", () => {
    const own = follower.send("own, saved second");
    follower.pump();
    follower.send("not saved yet");
    const saved = follower.outbox.get(own);
    if (!saved) throw new Error("it was saved");
    follower.core.adopt([row(1), saved, row(3)]);
    follower.connect();
    settle(follower);
    expect(contents()).toEqual(["row 1", "own, saved second", "row 3", "not saved yet"]);
  });

  test("what is adopted again, or is in flight, is sent once", () => {
    leader.connect();
    settle(leader);
    leader.core.adopt([row(1), row(2)]);
    leader.pump();
    leader.core.adopt([row(1), row(2), row(3)]);
    settle(leader);
    leader.core.adopt([row(3)]);
    settle(leader);
    expect(contents()).toEqual(["row 1", "row 2", "row 3"]);
    expect(leader.framesOf("send_message").length, "and one of them twice, which the server knows").toBe(4);
  });

  test("two leaders at once are waste, never a second message", () => {
    for (const device of [leader, follower]) {
      device.connect();
      settle(device);
      device.core.adopt([row(1), row(2), row(3)]);
      device.pump();
    }
    leader.deliverUp();
    follower.deliverUp();
    settle(leader, follower);
    expect(contents()).toEqual(["row 1", "row 2", "row 3"]);
    for (const device of [leader, follower]) {
      expect(device.core.outbox.size).toBe(0);
      expect(device.eventsOf("stored").length).toBe(3);
    }
  });

  test("however adoptions and connections change, each row is stored once, in order", () => {
    const step = fc.record({
      who: fc.boolean(),
      what: fc.constantFrom("adopt", "cut", "connect", "turn", "half a turn"),
    });
    fc.assert(
      fc.property(fc.array(step, { maxLength: 30 }), (steps) => {
        server = newServer();
        server.addChat(CHAT, [ME, BEN]);
        leader = new Device(server, clock, { deviceId: "one" });
        follower = new Device(server, clock, { deviceId: "two" });
        const rows = [1, 2, 3, 4].map((number) => row(number));
        for (const { who, what } of steps) {
          const device = who ? leader : follower;
          if (what === "adopt") device.core.adopt(rows);
          else if (what === "cut") device.cut();
          else if (what === "connect" && !device.core.online) device.connect();
          else if (what === "turn") device.turn();
          else {
            device.pump();
            device.deliverUp();
          }
        }
        for (const device of [leader, follower]) {
          device.cut();
          device.core.adopt(
            rows.filter((one) => !device.eventsOf("stored").some(({ key }) => key === keyOf(one))),
          );
          device.connect();
        }
        pass(clock, 120_000, leader, follower);
        expect(contents()).toEqual(rows.map((one) => one.content));
      }),
      { numRuns: 100 },
    );
  });
});

describe("what became of them", () => {
  test("an ack of a message that this tab did not send settles the one that it has", () => {
    const key = follower.send("typed here");
    follower.pump();
    leader.core.adopt([...follower.outbox.values()]);
    leader.connect();
    settle(leader);
    const [stored] = leader.eventsOf("stored");
    if (!stored) throw new Error("it is stored");
    follower.core.messageStored(key, stored.ack, clock.now);
    pass(clock, 1_000, follower);
    expect(follower.eventsOf("stored")).toEqual([stored]);
    expect(follower.outbox.size).toBe(0);
  });

  test("acks and entries of messages that it never had change nothing", () => {
    leader.connect();
    settle(leader);
    const entry = server.post(CHAT, ME, "another tab's", { client_message_id: row(7).clientMessageId });
    leader.send("own");
    const ack = {
      type: "ack",
      chat_id: CHAT,
      client_message_id: row(8).clientMessageId,
      message_id: entry.message_id,
      sequence: 1,
      epoch: 1,
      created_at: entry.created_at,
      deduplicated: false,
      conflict: false,
    } as const;
    leader.core.receive(ack, clock.now);
    settle(leader);
    expect(contents()).toEqual(["another tab's", "own"]);
    expect(leader.eventsOf("stored").length).toBe(1);
  });

  test("a refusal that another tab got is told here, and one that is kept comes again when this tab leads", () => {
    const lost = follower.send("refused");
    const kept = follower.send("damaged");
    follower.pump();
    follower.core.messageRefused(lost, refusal("blocked"), clock.now);
    follower.core.messageRefused(kept, refusal("store_damaged"), clock.now);
    follower.pump();
    expect(follower.eventsOf("refused")).toMatchObject([
      { key: lost, isKept: false },
      { key: kept, isKept: true },
    ]);
    expect(follower.core.outbox.isKept(kept)).toBe(true);
    follower.connect();
    settle(follower);
    follower.cut();
    follower.connect();
    settle(follower);
    expect(contents()).toEqual(["damaged"]);
  });
});
