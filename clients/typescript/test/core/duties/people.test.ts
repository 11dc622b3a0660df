import { beforeEach, expect, test } from "vitest";
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

const online = (...devices: Device[]): void => {
  for (const one of devices.length ? devices : [device]) one.connect();
  settle(...(devices.length ? devices : [device]));
};

duty(16, () => {
  test("a read receipt is sent once, and again until a heartbeat after it is answered", () => {
    server.post(CHAT, BEN, "1");
    online();
    const number = device.reading.markRead(CHAT, 1);
    device.pump();
    device.deliverUp((frame) => frame.type === "read_receipt" || frame.type === "heartbeat");
    expect(device.eventsOf("readMarkDone")).toEqual([]);
    device.cut();
    online();
    expect(device.eventsOf("readMarkDone")).toEqual([{ type: "readMarkDone", number }]);
    expect(server.read(ME, CHAT)).toBe(1);
    expect(device.framesOf("read_receipt").length).toBe(2);
    pass(clock, 2 * HEARTBEAT_MS, device);
    expect(device.framesOf("read_receipt").length).toBe(2);
  });

  test("a refusal for good reaches who marked it", () => {
    online();
    const number = device.reading.markRead(CHAT, 99);
    settle(device);
    expect(device.eventsOf("readMarkDone")).toMatchObject([{ number, refusal: { code: "ahead_of_log" } }]);
  });

  test("reading is no read receipt", () => {
    server.post(CHAT, BEN, "1");
    device.read();
    online();
    pass(clock, HEARTBEAT_MS, device);
    expect(device.framesOf("read_receipt")).toEqual([]);
    expect(device.core.chat(CHAT).unreadCount).toBe(1);
  });
});

duty(17, () => {
  const open = (): void => {
    device.reading.open(device.core.chat(CHAT));
    online();
  };
  const status = (sequence: number): string | undefined =>
    device.core.chat(CHAT).receipts(sequence, ME)?.status;

  test("a message is delivered, or read, once all members but its sender are there", () => {
    server.addChat(CHAT, [ME, BEN, "user_cas"]);
    open();
    device.send("hi");
    settle(device);
    expect(status(1)).toBe("sent");
    for (const userId of [BEN, "user_cas"]) {
      const other = new Device(server, clock, { userId });
      other.read();
      online(other);
      pass(clock, SECOND, other);
      settle(device);
      expect(status(1)).toBe(userId === BEN ? "sent" : "delivered");
    }
    server.readUpTo(CHAT, BEN, 1);
    settle(device);
    expect(status(1)).toBe("delivered");
    server.readUpTo(CHAT, "user_cas", 1);
    settle(device);
    expect(status(1)).toBe("read");
  });

  test("those who joined after it do not count", () => {
    open();
    device.send("hi");
    settle(device);
    server.join(CHAT, "user_late");
    settle(device);
    server.readUpTo(CHAT, BEN, 2);
    settle(device);
    expect(device.core.chat(CHAT).receipts(1, ME)).toMatchObject({ memberCount: 1, status: "read" });
    expect(device.core.chat(CHAT).receipts(3, ME)?.memberCount).toBe(2);
  });

  test("positions only rise, whatever order they arrive in, also over a snapshot that is older", () => {
    device.reading.open(device.core.chat(CHAT));
    device.connect();
    for (const text of ["1", "2", "3"]) server.post(CHAT, ME, text);
    device.pump();
    const [load] = device.eventsOf("loadChat");
    const snapshot = server.snapshot(CHAT, ME);
    server.readUpTo(CHAT, BEN, 3);
    device.deliverUp();
    device.deliverDown();
    if (!load || !snapshot) throw new Error("it asks for the chat");
    device.reading.chatLoaded(device.core.chat(CHAT), snapshot);
    expect(device.core.chat(CHAT).members.get(BEN)?.readUpTo).toBe(3);
    const old = {
      type: "receipt",
      chat_id: CHAT,
      user_id: BEN,
      kind: "read",
      up_to_sequence: 1,
      at: "",
    } as const;
    device.core.receive(old, clock.now);
    expect(device.core.chat(CHAT).members.get(BEN)?.readUpTo).toBe(3);
  });
});

duty(18, () => {
  const unread = (): number => device.core.chat(CHAT).unreadCount;

  test("it starts with the overview's number and adds messages of others", () => {
    for (const text of ["1", "2"]) server.post(CHAT, BEN, text);
    online();
    expect(unread()).toBe(2);
    const overviews = device.framesOf("sync_overview").length;
    server.post(CHAT, BEN, "3");
    server.post(CHAT, ME, "my own");
    server.post(CHAT, BEN, "a member", { kind: "member" });
    settle(device);
    expect(unread()).toBe(3);
    expect(device.framesOf("sync_overview").length, "without asking").toBe(overviews);
  });

  test("what the person reads on another device is subtracted, exactly among what was seen", () => {
    online();
    for (const text of ["1", "2", "3"]) server.post(CHAT, BEN, text);
    settle(device);
    const overviews = device.framesOf("sync_overview").length;
    server.readUpTo(CHAT, ME, 2);
    settle(device);
    expect(unread()).toBe(1);
    expect(device.framesOf("sync_overview").length).toBe(overviews);
  });

  test("a receipt that ends among messages that were not seen asks again instead of guessing", () => {
    for (const sender of [BEN, ME, BEN, BEN]) server.post(CHAT, sender, "x");
    online();
    expect(unread()).toBe(3);
    const overviews = device.framesOf("sync_overview").length;
    server.readUpTo(CHAT, ME, 2);
    settle(device);
    expect(device.framesOf("sync_overview").length).toBe(overviews + 1);
    expect(unread()).toBe(2);
  });

  test("an entry that does not follow the last one asks again", () => {
    online();
    const overviews = device.framesOf("sync_overview").length;
    server.post(CHAT, BEN, "1");
    server.post(CHAT, BEN, "2");
    device.deliverDown((frame) => frame.type === "messages" && frame.entries[0]?.sequence === 1);
    settle(device);
    expect(device.framesOf("sync_overview").length).toBe(overviews + 1);
    expect(unread()).toBe(2);
  });
});

duty(19, () => {
  test("typing_start goes out at most every 3 seconds, never later, and never without a connection", () => {
    const chat = device.core.chat(CHAT);
    device.reading.startTyping(chat, clock.now);
    online();
    expect(device.framesOf("typing_start"), "it was typed offline").toEqual([]);
    const at: number[] = [];
    for (let key = 0; key < 70; key += 1) {
      device.reading.startTyping(chat, clock.now);
      settle(device);
      if (device.newFrames().some((frame) => frame.type === "typing_start")) at.push(clock.now);
      clock.pass(100);
    }
    expect(at).toEqual([0, 3_000, 6_000]);
  });

  test("others are shown for expires_in_ms, until their message arrives or the connection ends", () => {
    const ben = new Device(server, clock, { userId: BEN });
    online(device, ben);
    const typing = (): string[] => [...device.core.chat(CHAT).typing];
    const starts = (): void => {
      clock.pass(3 * SECOND);
      ben.reading.startTyping(ben.core.chat(CHAT), clock.now);
      settle(ben, device);
      expect(typing()).toEqual([BEN]);
    };
    starts();
    pass(clock, 4_999, device);
    expect(typing()).toEqual([BEN]);
    pass(clock, 1, device);
    expect(typing()).toEqual([]);
    starts();
    ben.send("done");
    settle(ben, device);
    expect(typing()).toEqual([]);
    starts();
    device.cut();
    expect(typing()).toEqual([]);
  });
});

duty(20, () => {
  const watched = (): string[] => [...(device.session?.watched ?? [])];

  test("the people of open chats are watched, and no longer once they are closed", () => {
    server.addChat("chat_2", [ME, "user_cas"]);
    online();
    expect(watched()).toEqual([]);
    device.reading.open(device.core.chat(CHAT));
    settle(device);
    expect(watched()).toEqual([BEN]);
    device.reading.open(device.core.chat("chat_2"));
    settle(device);
    expect(watched().sort()).toEqual([BEN, "user_cas"]);
    device.reading.close(device.core.chat(CHAT));
    settle(device);
    expect(watched()).toEqual(["user_cas"]);
  });

  test("at most 500 people, those named first", () => {
    online();
    device.reading.open(device.core.chat(CHAT));
    device.reading.watchPresence(Array.from({ length: 600 }, (_, number) => `user_${number}`));
    settle(device);
    expect(watched().length).toBe(500);
    expect(watched()[0]).toBe("user_0");
  });

  test("it ends with the connection and is made again", () => {
    device.reading.watchPresence([BEN]);
    online();
    server.comeOnline(BEN, true);
    settle(device);
    expect(device.reading.presence.get(BEN)?.status).toBe("online");
    device.cut();
    online();
    expect(watched()).toEqual([BEN]);
  });

  test("an answer to a query is good for 30 seconds", () => {
    const view = { user_id: BEN, status: "offline", last_seen: "unavailable" } as const;
    device.reading.presence.noteQueried([view], clock.now);
    expect(device.reading.presence.recall(BEN, clock.now + 29_999)).toEqual(view);
    expect(device.reading.presence.recall(BEN, clock.now + 30_000)).toBeUndefined();
  });
});

duty(21, () => {
  test("after a reconnect it asks the overview briefly, loads open chats, watches again, and nobody types", () => {
    const ben = new Device(server, clock, { userId: BEN });
    device.reading.open(device.core.chat(CHAT));
    online(device, ben);
    ben.reading.startTyping(ben.core.chat(CHAT), clock.now);
    settle(ben, device);
    const loads = device.eventsOf("loadChat").length;
    device.newFrames();
    device.cut();
    for (const text of ["1", "2"]) server.post(CHAT, BEN, text);
    server.readUpTo(CHAT, BEN, 2);
    online();
    expect([...device.core.chat(CHAT).typing]).toEqual([]);
    const types = device.newFrames().map((frame) => frame.type);
    expect(types).toContain("sync_overview");
    expect(types).toContain("presence_subscribe");
    expect(device.framesOf("sync_overview").every((frame) => frame.brief)).toBe(true);
    expect(device.eventsOf("loadChat").length).toBe(loads + 1);
    expect(device.core.chat(CHAT).members.get(BEN)?.readUpTo).toBe(2);
    expect(device.core.chat(CHAT).unreadCount).toBe(2);
  });
});

duty(22, () => {
  const overviews = (): number => device.framesOf("sync_overview").length;

  test.each(["joined", "left", "muted"])(
    "after chat_changed %s the overview is asked once more",
    (change) => {
      server.addChat("chat_2", change === "joined" ? [BEN] : [ME, BEN]);
      online();
      device.core.askOverview();
      device.pump();
      device.deliverUp(); // the answer is made, and older than the change
      const answer = device.session?.sent.splice(0) ?? [];
      if (change === "joined") server.join("chat_2", ME);
      else if (change === "left") server.leave("chat_2", ME);
      else server.mute("chat_2", ME, "2099-01-01T00:00:00.000Z");
      device.deliverDown((frame) => frame.type === "messages"); // which would make it ask, too
      for (const frame of answer) device.core.receive(frame, clock.now);
      const before = overviews();
      settle(device);
      expect(overviews()).toBe(before + 1);
      const chat = device.core.chat("chat_2");
      expect(chat.row !== undefined).toBe(change !== "left");
      expect(chat.isMuted(clock.wall)).toBe(change === "muted");
    },
  );

  test("an overview without a token that does not list a chat says that the person has left it", () => {
    server.addChat("chat_2", [ME, BEN]);
    online();
    expect(device.core.rows().size).toBe(2);
    device.cut();
    server.leave("chat_2", ME);
    device.connect();
    server.refuseOthers.push(refusal("bad_request")); // the token is not good any more
    pass(clock, 5 * SECOND, device);
    expect(device.framesOf("sync_overview").at(-1)?.changed_since).toBeUndefined();
    expect([...device.core.rows().keys()]).toEqual([CHAT]);
  });

  test("joined before the entries: the chat is read from its start", () => {
    server.addChat("chat_2", [BEN]);
    server.post("chat_2", BEN, "before");
    device.reading.readAll();
    online();
    server.join("chat_2", ME);
    const told = device.session?.sent.splice(0) ?? [];
    for (const frame of told.reverse()) device.core.receive(frame, clock.now);
    settle(device);
    device.take("chat_2");
    settle(device);
    expect(device.seen.get("chat_2")?.map((entry) => entry.sequence)).toEqual([1, 2]);
  });
});
