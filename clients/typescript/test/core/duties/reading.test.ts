import fc from "fast-check";
import { beforeEach, expect, test } from "vitest";
import type { SyncRequest } from "../../../src/contract.js";
import { emptyLog, shown } from "../../../src/core/logHash.js";
import { newServer } from "../../model/anyServer.js";
import { BEN, CHAT, Clock, Device, ME, pass, settle } from "../../model/device.js";
import { HEARTBEAT_SECONDS, type ModelServer } from "../../model/server.js";
import { duty, seedProperties } from "./duty.js";

seedProperties();

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

const online = (...devices: Device[]): void => {
  for (const one of devices.length ? devices : [device]) one.connect();
  settle(...(devices.length ? devices : [device]));
};

const requests = (): SyncRequest[] => device.framesOf("sync_request");

duty(6, () => {
  test("the overview comes first, then pages from the own position until complete", () => {
    for (let number = 1; number <= 25; number += 1) server.post(CHAT, BEN, `${number}`);
    server.pageEntriesMax = 10;
    device.read();
    online();
    expect(device.frames[0]?.type).toBe("sync_overview");
    expect(requests().map((request) => request.last_acked_sequence)).toEqual([0, 10, 20]);
    expect(device.shown().length).toBe(25);
  });

  test("the next overview has the token of the last", () => {
    online();
    device.cut();
    online();
    const [first, second] = device.framesOf("sync_overview");
    expect(first?.changed_since).toBeUndefined();
    expect(second?.changed_since).toMatch(/^[1-9]\d*(@\d+)?$/);
  });

  test("a chat whose last page did not arrive is requested again, though the overview is silent", () => {
    for (let number = 1; number <= 25; number += 1) server.post(CHAT, BEN, `${number}`);
    server.pageEntriesMax = 10;
    device.read();
    device.connect();
    while (requests().length < 2) {
      device.pump();
      device.deliverUp();
      device.deliverDown();
    }
    device.cut();
    online();
    expect(device.shown().length).toBe(25);
  });

  test("an overview of many chats is read page by page", () => {
    for (let number = 2; number <= 7; number += 1) server.addChat(`chat_${number}`, [ME]);
    server.overviewChatsMax = 3;
    online();
    expect(device.core.rows().size).toBe(7);
    expect(device.eventsOf("overviewComplete").length).toBe(1);
  });
});

duty(7, () => {
  test("live frames and pages overlap, and each position comes once, by its number", () => {
    for (let number = 1; number <= 5; number += 1) server.post(CHAT, BEN, `${number}`);
    device.read();
    device.connect();
    server.post(CHAT, BEN, "6"); // live, before the page is asked for
    device.pump();
    device.deliverUp();
    server.post(CHAT, BEN, "7"); // behind the page
    settle(device);
    expect(device.shown()).toEqual(["1", "2", "3", "4", "5", "6", "7"]);
  });

  test("the order is that of the numbers, whatever the times say", () => {
    server.post(CHAT, BEN, "late", { created_at: "2030-01-01T00:00:00.000Z" });
    server.post(CHAT, BEN, "early", { created_at: "2020-01-01T00:00:00.000Z" });
    device.read();
    online();
    expect(device.shown()).toEqual(["late", "early"]);
  });

  test("a message that has a second position is shown once", () => {
    const entry = server.post(CHAT, BEN, "once");
    server.post(CHAT, BEN, "once", { message_id: entry.message_id });
    device.read();
    online();
    expect(device.shown()).toEqual(["once"]);
    pass(clock, SECOND, device);
    expect(device.cursors.get(CHAT)?.sequence).toBe(2);
  });

  test("in whatever order and however often frames arrive, entries come in order, once", () => {
    fc.assert(
      fc.property(fc.array(fc.nat({ max: 9 }), { minLength: 10, maxLength: 60 }), (order) => {
        server = newServer();
        server.addChat(CHAT, [ME, BEN]);
        device = new Device(server, clock);
        device.read();
        online();
        for (let number = 0; number < 10; number += 1) server.post(CHAT, BEN, `${number}`);
        const told = device.session?.sent.splice(0) ?? [];
        for (const at of order) {
          const frame = told[at];
          if (frame) device.core.receive(frame, clock.now);
          device.take();
        }
        pass(clock, 2 * HEARTBEAT_MS, device);
        const all = Array.from({ length: 10 }, (_, number) => `${number}`);
        expect(device.shown()).toEqual(all.slice(0, device.shown().length));
        // The largest number that was heard shows that the others exist.
        expect(device.shown().length).toBeGreaterThan(Math.max(...order));
      }),
      { numRuns: 80 },
    );
  });
});

duty(8, () => {
  test("an entry that is not the next is held back, and the gap is requested", () => {
    device.read();
    online();
    server.post(CHAT, BEN, "1");
    settle(device);
    server.post(CHAT, BEN, "2");
    server.post(CHAT, BEN, "3");
    device.deliverDown((frame) => frame.type === "messages" && frame.entries[0]?.sequence === 2);
    expect(device.take()).toEqual([]);
    expect(device.core.chat(CHAT).inbox?.resolved).toBe(1);
    device.newFrames();
    device.pump();
    const asked = device.newFrames().filter((frame) => frame.type === "sync_request");
    expect(asked).toMatchObject([{ last_acked_sequence: 1 }]);
    settle(device);
    expect(device.shown()).toEqual(["1", "2", "3"]);
  });

  test("the cursor stays behind the gap until it is closed", () => {
    device.read();
    online();
    server.post(CHAT, BEN, "1");
    server.post(CHAT, BEN, "2");
    device.deliverDown((frame) => frame.type === "messages" && frame.entries[0]?.sequence === 1);
    device.take();
    clock.pass(SECOND);
    device.pump();
    expect(device.cursors.get(CHAT)?.sequence ?? 0).toBe(0);
  });
});

duty(9, () => {
  test("voids and kinds that it does not know are passed over, and the cursor moves over them", () => {
    server.post(CHAT, BEN, "1");
    server.addVoid(CHAT);
    server.post(CHAT, BEN, "of the future", { kind: "hologram" });
    server.post(CHAT, BEN, "4");
    device.read();
    online();
    server.addVoid(CHAT); // live
    server.post(CHAT, BEN, "also", { kind: "hologram" });
    settle(device);
    expect(device.shown()).toEqual(["1", "4"]);
    pass(clock, SECOND, device);
    expect(device.cursors.get(CHAT)?.sequence).toBe(6);
    expect(server.acked(ME, CHAT)).toBe(6);
  });
});

duty(10, () => {
  test("of a batch nothing is to be taken before the batch is complete and ordered", () => {
    device.read();
    online();
    const before = device.eventsOf("entries").length;
    for (let number = 1; number <= 3; number += 1) server.post(CHAT, BEN, `${number}`);
    const told = device.session?.sent.splice(0) ?? [];
    const entries = told.flatMap((frame) => (frame.type === "messages" ? frame.entries : []));
    device.core.receive({ type: "messages", chat_id: CHAT, epoch: 1, entries }, clock.now);
    device.pump();
    expect(device.eventsOf("entries").length, "one event for all of it").toBe(before + 1);
    expect(device.take().map((entry) => entry.content)).toEqual(["1", "2", "3"]);
  });

  test("a batch that begins behind a gap waits as a whole", () => {
    device.read();
    online();
    server.post(CHAT, BEN, "1");
    server.post(CHAT, BEN, "2");
    server.post(CHAT, BEN, "3");
    device.deliverDown((frame) => frame.type === "messages" && frame.entries[0]?.sequence === 1);
    expect(device.take()).toEqual([]);
    settle(device);
    expect(device.shown()).toEqual(["1", "2", "3"]);
  });
});

duty(11, () => {
  test("the position is saved once the next entry is taken, and acknowledged when it is saved", () => {
    server.post(CHAT, BEN, "1");
    server.post(CHAT, BEN, "2");
    device.read();
    device.connect();
    while (!device.core.chat(CHAT).inbox?.hasReady) {
      device.pump();
      device.deliverUp();
      device.deliverDown();
    }
    const chat = device.core.chat(CHAT);
    device.reading.take(chat, clock.now);
    clock.pass(SECOND);
    device.pump();
    expect(device.cursors.get(CHAT)?.sequence ?? 0, "taken is not processed").toBe(0);
    device.reading.take(chat, clock.now);
    clock.pass(SECOND);
    device.newFrames();
    device.pump(false);
    expect(device.newFrames(), "no ack before it is saved").toEqual([]);
    device.pump();
    const entry = server.log(CHAT)[0];
    expect(device.cursors.get(CHAT)).toMatchObject({ epoch: 1, sequence: 1, messageId: entry?.message_id });
    expect(device.newFrames()).toMatchObject([{ type: "ack", last_acked_sequence: 1 }]);
  });

  test("after a crash what was not processed comes again, and nothing is skipped", () => {
    for (let number = 1; number <= 4; number += 1) server.post(CHAT, BEN, `${number}`);
    device.read();
    online();
    pass(clock, SECOND, device);
    const chat = device.core.chat(CHAT);
    server.post(CHAT, BEN, "5");
    device.deliverDown();
    device.reading.take(chat, clock.now);
    device.crash();
    device.read();
    online();
    expect(device.shown()).toEqual(["1", "2", "3", "4", "5"]);
    expect(device.cursors.get(CHAT)?.sequence).toBe(4);
  });

  test("an ack that a broken connection may have lost is sent again", () => {
    server.post(CHAT, BEN, "1");
    device.read();
    online();
    clock.pass(SECOND);
    device.pump();
    expect(device.up.map((frame) => frame.type)).toContain("ack");
    device.cut();
    expect(server.acked(ME, CHAT)).toBe(0);
    online();
    expect(server.acked(ME, CHAT)).toBe(1);
  });
});

duty(12, () => {
  const readThree = (): void => {
    for (let number = 1; number <= 3; number += 1) server.post(CHAT, BEN, `${number}`);
    device.read();
    online();
    pass(clock, SECOND, device);
  };

  test("a request says which log the position is of", () => {
    readThree();
    device.crash();
    device.read();
    online();
    const third = server.log(CHAT)[2];
    expect(requests().at(-1)).toMatchObject({
      last_acked_sequence: 3,
      epoch: 1,
      last_message_id: third?.message_id,
    });
  });

  test("on reset it forgets the chat and starts over with that page", () => {
    readThree();
    device.cut();
    server.startOver(CHAT, 2);
    server.post(CHAT, BEN, "new 3");
    const asked = requests().length;
    online();
    expect(requests().length - asked, "that page is the start").toBe(1);
    expect(device.core.chat(CHAT).logDifference, "the server said so").toBeUndefined();
    expect(device.shown()).toEqual(["1", "2", "new 3"]);
    expect(device.core.chat(CHAT).inbox?.restarts).toBe(1);
    pass(clock, SECOND, device);
    expect(device.cursors.get(CHAT)).toMatchObject({ epoch: 2, sequence: 3 });
  });

  test("the hash is computed along the positions, saved with the cursor, and compared with each page", () => {
    readThree();
    const { core } = device;
    expect(core.chat(CHAT).proof).toMatchObject({ state: "proven", to: 3 });
    const saved = device.cursors.get(CHAT)?.logHash;
    expect(saved && shown(saved)).not.toBe(shown(emptyLog(CHAT)));
    device.crash();
    server.tamper(CHAT, 2, "changed");
    device.read();
    online();
    expect(device.core.chat(CHAT).logDifference).toMatchObject({
      chatId: CHAT,
      sequence: 3,
      isLasting: false,
    });
    expect(device.eventsOf("update")).toContainEqual({ type: "update", what: "log", chatId: CHAT });
    expect(device.shown()).toEqual(["1", "changed", "3"]);
  });

  test("whoever reads everything again and still differs goes on without proof, once", () => {
    readThree();
    server.tamper(CHAT, 1, "changed");
    device.reading.prove(device.core.chat(CHAT));
    device.pump();
    device.deliverUp();
    device.deliverDown();
    expect(device.core.chat(CHAT).proof?.state).toBe("differs");
    server.tamper(CHAT, 2, "changes while it is read");
    const lie = shown(emptyLog("another log"));
    const asked = requests().length;
    for (let turn = 0; turn < 20; turn += 1) {
      device.pump();
      device.deliverUp();
      for (const frame of device.session?.sent.splice(0) ?? []) {
        device.core.receive(frame.type === "message_batch" ? { ...frame, log_hash: lie } : frame, clock.now);
      }
      device.take();
      clock.pass(SECOND);
    }
    expect(device.core.chat(CHAT).logDifference?.isLasting).toBe(true);
    expect(requests().length - asked, "it does not read in circles").toBeLessThan(4);
  });

  test("live entries leave the log complete, and asking proves it", () => {
    readThree();
    server.post(CHAT, BEN, "4");
    settle(device);
    const chat = device.core.chat(CHAT);
    expect(chat.proof).toEqual({ state: "complete", to: 4, provenTo: 3 });
    device.reading.prove(chat);
    settle(device);
    expect(chat.proof).toEqual({ state: "proven", to: 4, at: clock.wall });
    server.post(CHAT, BEN, "5");
    server.post(CHAT, BEN, "6");
    device.deliverDown((frame) => frame.type === "messages" && frame.entries[0]?.sequence === 5);
    expect(chat.proof).toEqual({ state: "behind", to: 4, head: 6 });
  });
});
