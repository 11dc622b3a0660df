/** A device with a core, its store, and the line to a model server, in virtual time: everything in a test's hands. */

import { json } from "../../src/codec.js";
import type { ClientFrame, Entry, ServerFrame } from "../../src/contract.js";
import { ClientCore } from "../../src/core/core.js";
import type { ClientEvent } from "../../src/core/events.js";
import { ReadingCore } from "../../src/core/reading.js";
import {
  type Cursor,
  keyOf,
  type MessageKey,
  messageKey,
  type OutgoingMessage,
  type StateChanges,
} from "../../src/core/storage.js";
import type { Timing } from "../../src/core/timing.js";
import type { ModelServer, Session } from "./server.js";

export const CHAT = "chat_1";
export const ME = "user_me";
export const BEN = "user_ben";
const STEPS_MAX = 10_000;

/** The time of all devices of a test. `wall` may jump; `now` only rises. */
export class Clock {
  now = 0;
  wall = Date.UTC(2026, 0, 30, 14, 30);

  pass(ms: number): void {
    this.now += ms;
    this.wall += ms;
  }
}

const hexOf = (text: string): string => Buffer.from(text).toString("hex").padStart(8, "0").slice(-8);

export interface DeviceOptions {
  readonly userId?: string;
  readonly deviceId?: string;
  readonly durable?: boolean;
  readonly chance?: () => number;
  readonly timing?: Partial<Timing>;
}

type EventOf<Type extends ClientEvent["type"]> = Extract<ClientEvent, { type: Type }>;
type FrameOf<Type extends ClientFrame["type"]> = Extract<ClientFrame, { type: Type }>;

export class Device {
  readonly server: ModelServer;
  readonly clock: Clock;
  readonly #options: Required<DeviceOptions>;
  core: ClientCore;
  reading!: ReadingCore;
  session: Session | undefined;
  /** What survives a crash: unacknowledged messages and cursors. */
  readonly outbox = new Map<MessageKey, OutgoingMessage>();
  readonly cursors = new Map<string, Cursor>();
  /** A commit that is under way. */
  saving: StateChanges | undefined;
  /** Frames on their way to the server. */
  readonly up: ClientFrame[] = [];
  /** Everything that was put on the line, in order. */
  readonly frames: ClientFrame[] = [];
  readonly events: ClientEvent[] = [];
  /** What the application shows of each chat. */
  readonly seen = new Map<string, Entry[]>();
  #sent = 0;

  constructor(server: ModelServer, clock: Clock, options: DeviceOptions = {}) {
    this.server = server;
    this.clock = clock;
    const defaults = { userId: ME, deviceId: "device", durable: true, chance: () => 0, timing: {} };
    this.#options = { ...defaults, ...options };
    this.core = this.#newCore();
  }

  #newCore(): ClientCore {
    const { chance, durable, timing } = this.#options;
    const core = new ClientCore({ chance, durable, timing });
    this.reading = core.attach(ReadingCore);
    core.restore({ outgoing: [...this.outbox.values()], cursors: new Map(this.cursors) });
    return core;
  }

  // What the person does

  /** Queue a message; returns its key. */
  send(content: string, more: Partial<OutgoingMessage> = {}): MessageKey {
    this.#sent += 1;
    const number = String(this.#sent).padStart(4, "0");
    const message: OutgoingMessage = {
      chatId: CHAT,
      clientMessageId: `00000000-0000-4000-8000-${hexOf(this.#options.deviceId)}${number}`,
      content,
      createdAtMs: this.clock.wall,
      displayTime: new Date(this.clock.wall).toISOString(),
      ...more,
    };
    this.core.send(message);
    return keyOf(message);
  }

  read(chatId = CHAT): void {
    this.reading.read(this.core.chat(chatId));
  }

  /** The application takes what is there; an application forgets what a restart of the log made void. */
  take(chatId = CHAT): Entry[] {
    const taken: Entry[] = [];
    const chat = this.core.chat(chatId);
    for (;;) {
      const entry = this.reading.take(chat, this.clock.now);
      if (!entry) return taken;
      const seen = this.seen.get(chatId) ?? [];
      const last = seen.at(-1);
      const goesOn = !last || (entry.epoch === last.epoch && entry.sequence > last.sequence);
      this.seen.set(chatId, goesOn ? [...seen, entry] : [entry]);
      taken.push(entry);
    }
  }

  /** What the application shows, as texts. */
  shown(chatId = CHAT): string[] {
    return (this.seen.get(chatId) ?? []).map((entry) => entry.content);
  }

  // The line

  connect(): void {
    const { userId, deviceId } = this.#options;
    this.session = this.server.connect(userId, deviceId);
    const welcome = this.session.sent.shift();
    if (welcome?.type !== "welcome") throw new Error("a session begins with a welcome");
    this.core.connected(welcome, this.clock.now);
  }

  cut(): void {
    this.session?.close();
    this.session = undefined;
    this.up.length = 0;
    if (this.core.online) this.core.disconnected();
  }

  /** The process ends, with everything that was not saved, and starts again. */
  crash(): void {
    this.cut();
    this.saving = undefined;
    this.events.length = 0;
    this.core = this.#newCore();
  }

  /** One turn of the shell; a commit that is under way may not finish yet. */
  pump(isDiskReady = true): void {
    const { now, wall } = this.clock;
    this.core.tick(now);
    if (!this.saving) {
      const changes = this.core.toSave();
      if (changes.added.length + changes.removed.length + changes.cursors.size > 0) this.saving = changes;
    }
    if (isDiskReady) this.#save();
    const frames = this.core.framesToSend(now, wall);
    // As it travels, so that nobody shares a value with the other side.
    const travelled = frames.map((frame): ClientFrame => JSON.parse(String(json.encode(frame))));
    this.up.push(...travelled);
    this.frames.push(...travelled);
    this.events.push(...this.core.events());
    if (this.core.silent) this.cut();
  }

  #save(): void {
    if (!this.saving) return;
    for (const message of this.saving.added) this.outbox.set(keyOf(message), message);
    for (const key of this.saving.removed) this.outbox.delete(key);
    for (const [chatId, cursor] of this.saving.cursors) this.cursors.set(chatId, cursor);
    this.core.saved(this.saving);
    this.saving = undefined;
  }

  /** Frames reach the server; `lose` says which do not. */
  deliverUp(lose: (frame: ClientFrame) => boolean = () => false): void {
    for (const frame of this.up.splice(0)) {
      if (!lose(frame)) this.session?.receive(frame);
    }
  }

  /** Frames reach the device; `lose` says which do not. */
  deliverDown(lose: (frame: ServerFrame) => boolean = () => false): void {
    for (const frame of this.session?.sent.splice(0) ?? []) {
      if (!lose(frame)) this.core.receive(JSON.parse(JSON.stringify(frame)), this.clock.now);
    }
  }

  /** Answer what the core asks over HTTP. */
  answerHttp(): void {
    for (const event of this.events.splice(0)) {
      if (event.type === "loadChat") {
        const chat = this.core.chat(event.chatId);
        const snapshot = this.server.snapshot(event.chatId, this.#options.userId);
        if (snapshot) this.reading.chatLoaded(chat, snapshot);
        else this.reading.loadFailed(chat, NOT_A_MEMBER, this.clock.now);
      }
      this.#past.push(event);
    }
  }

  readonly #past: ClientEvent[] = [];

  /** Everything that can happen now happens; returns whether anything did. */
  turn(): boolean {
    const before = [this.frames.length, this.#past.length + this.events.length].join();
    this.pump();
    const isBusy = this.up.length > 0 || (this.session?.sent.length ?? 0) > 0 || this.saving !== undefined;
    this.deliverUp();
    this.deliverDown();
    this.answerHttp();
    const taken = [...this.seen.keys(), CHAT].map((chatId) => this.take(chatId).length);
    this.pump();
    return (
      isBusy || taken.some((count) => count > 0) || before !== [this.frames.length, this.#past.length].join()
    );
  }

  // What a test claims about

  eventsOf<Type extends ClientEvent["type"]>(type: Type): EventOf<Type>[] {
    return [...this.#past, ...this.events].filter((event): event is EventOf<Type> => event.type === type);
  }

  framesOf<Type extends ClientFrame["type"]>(type: Type): FrameOf<Type>[] {
    return this.frames.filter((frame): frame is FrameOf<Type> => frame.type === type);
  }

  /** What was put on the line since the last call. */
  newFrames(): ClientFrame[] {
    const frames = this.frames.slice(this.#told);
    this.#told = this.frames.length;
    return frames;
  }

  #told = 0;
}

export const NOT_A_MEMBER = {
  code: "not_a_member",
  reason: "you are not a member of this chat",
  temporary: false,
};

/** Let everything happen that happens by itself, without time. */
export function settle(...devices: Device[]): void {
  for (let step = 0; step < STEPS_MAX; step += 1) {
    if (!devices.map((device) => device.turn()).some(Boolean)) return;
  }
  throw new Error("it never comes to rest");
}

/** Let time pass, wake by wake, and everything happen that is due until then. */
export function pass(clock: Clock, ms: number, ...devices: Device[]): void {
  const until = clock.now + ms;
  settle(...devices);
  for (let step = 0; step < STEPS_MAX; step += 1) {
    const wakes = devices.map((device) => device.core.nextWake()).filter((wake) => wake !== undefined);
    const next = Math.max(clock.now, Math.min(until, ...wakes));
    clock.pass(next - clock.now);
    settle(...devices);
    if (next >= until) return;
  }
  throw new Error("it wakes for ever");
}

export const keyIn = (chatId: string, clientMessageId: string): MessageKey =>
  messageKey(chatId, clientMessageId);
