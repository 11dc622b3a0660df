/**
 * The tabs of one device, which share one socket. The leader has it; the others send through the leader, and hear what it
 * hears. Each tab sees a connection of its own, which ends and begins again when another tab leads.
 *
 * What may be lost is said again: the leader says each second that it is alive and which connection it has. Nothing that
 * must not be lost goes through the channel: messages are in the outbox of the store, and their outcomes, too.
 */

import { Connection, type ConnectionEvents, type ConnectionOptions } from "../connection.js";
import type { ClientFrame, ServerFrame, Welcome } from "../contract.js";
import type { MessageKey } from "../core/storage.js";
import type { Channel, Platform } from "../platform.js";
import type { Outcome } from "../storage/outbox.js";
import type { Leadership, LeadershipEvents } from "./leadership.js";
import { Relay } from "./relay.js";

const ALIVE_MS = 1_000;
/** A tab that is looked at waits so long for a leader that says nothing. */
const SILENT_MS_MAX = 3_000;
/** A timer that is later than this was not late: the machine slept. */
const SLEPT_MS_MIN = 5_000;

/** What tabs tell each other besides the frames. */
export type News =
  /** There are new rows in the outbox. */
  | { readonly type: "look" }
  /** What became of messages. */
  | { readonly type: "settled"; readonly outcomes: readonly Outcome[] }
  /** The person gave a refused message up. */
  | { readonly type: "discarded"; readonly key: MessageKey }
  /** The draft of a chat is another one. */
  | { readonly type: "drafts"; readonly chatId: string };

type TabMessage =
  | { type: "alive"; from: string; term: number; connection: string | null }
  | { type: "who"; from: string }
  | { type: "open"; from: string; to: string | null; term: number; connection: string; welcome: Welcome }
  | { type: "frame"; to: string | null; connection: string; frame: ServerFrame }
  | { type: "requests"; from: string; connection: string; frames: readonly ClientFrame[] }
  | { type: "bye"; from: string }
  | { type: "news"; news: News };

export interface GroupEvents extends ConnectionEvents {
  /** This tab leads from now on, or no longer: the leader's is the outbox. */
  leads(isLeader: boolean): void;
  news(news: News): void;
}

/** Sends are the leader's: it takes them from the outbox of the store, whichever tab kept them. */
const SENDS: ReadonlySet<string> = /* @__PURE__ */ new Set([
  "send_message",
  "edit_message",
  "delete_message",
  "react",
]);

export class TabGroup {
  readonly #id: string;
  readonly #platform: Platform;
  readonly #channel: Channel | null;
  readonly #events: GroupEvents;
  readonly #connection: Connection;
  readonly #leadership: Leadership;
  #relay = new Relay();
  #leads = false;
  #term = 0;
  /** The connection of this tab, its own or the leader's; null while there is none. */
  #attached: string | null = null;
  #connections = 0;
  #welcome: Welcome | null = null;
  #heardAt = 0;
  #tickAt = 0;
  #callOffTick: () => void = () => {};

  constructor(
    id: string,
    options: ConnectionOptions,
    channel: Channel | null,
    leadership: (events: LeadershipEvents) => Leadership,
    events: GroupEvents,
  ) {
    this.#id = id;
    this.#platform = options.platform;
    this.#channel = channel;
    this.#events = events;
    this.#connection = new Connection(options, {
      connected: (welcome) => this.#opened(welcome),
      received: (frame) => this.#receive(frame),
      disconnected: () => this.#ended(),
      unreachable: (error) => events.unreachable(error),
      failed: (error) => events.failed(error),
    });
    this.#leadership = leadership({ began: () => this.#lead(true), ended: () => this.#lead(false) });
    if (channel) channel.onmessage = ({ data }) => this.#hear(data as TabMessage);
  }

  get isLeader(): boolean {
    return this.#leads;
  }

  start(): void {
    this.#heardAt = this.#platform.now();
    this.#post({ type: "who", from: this.#id });
    this.#leadership.compete();
    if (this.#channel) this.#tickLater();
  }

  /** Leave the lead to others, as a page must that is put away; `start` begins again. */
  stop(): void {
    this.#callOffTick();
    this.#leadership.release();
    this.#detach();
    this.#post({ type: "bye", from: this.#id });
  }

  close(): void {
    this.stop();
    this.#channel?.close();
  }

  /** This leadership has claimed the outbox: its term is what tells it from others. */
  claimed(term: number): void {
    this.#term = term;
    this.#alive();
  }

  /** Another tab leads since: give up, and want to lead again. False for a tab by itself, which leads whatever others do. */
  superseded(): boolean {
    if (!this.#channel) return false;
    this.#leadership.release();
    this.#leadership.compete();
    return true;
  }

  send(frames: readonly ClientFrame[]): void {
    if (this.#leads) {
      this.#connection.send(frames.map((frame) => this.#relay.outgoing(this.#id, frame)));
      return;
    }
    const others = frames.filter((frame) => !SENDS.has(frame.type));
    const connection = this.#attached;
    if (connection && others.length > 0)
      this.#post({ type: "requests", from: this.#id, connection, frames: others });
  }

  tell(news: News): void {
    this.#post({ type: "news", news });
  }

  /** The connection does not answer: use another. */
  replace(): void {
    if (this.#leads) this.#connection.replace();
    else this.#detach();
  }

  /** The page is looked at again, or the network is back. Returns whether there is a connection to be tried. */
  wake(): boolean {
    this.#heardAt = this.#platform.now();
    this.#post({ type: "who", from: this.#id });
    if (this.#leads) this.#connection.wake();
    return this.#attached !== null;
  }

  // Leading

  #lead(leads: boolean): void {
    if (leads === this.#leads) return;
    this.#detach();
    this.#leads = leads;
    this.#relay = new Relay();
    if (leads) {
      this.#connection.start();
      this.#alive();
    } else {
      this.#connection.stop();
      this.#heardAt = this.#platform.now();
    }
    this.#events.leads(leads);
  }

  #opened(welcome: Welcome): void {
    this.#relay = new Relay();
    this.#connections += 1;
    const connection = `${this.#id} ${this.#connections}`;
    this.#post({ type: "open", from: this.#id, to: null, term: this.#term, connection, welcome });
    this.#attach(connection, welcome);
  }

  #ended(): void {
    this.#detach();
    this.#alive();
  }

  #receive(frame: ServerFrame): void {
    const routed = this.#relay.incoming(frame);
    if (!routed || !this.#attached) return;
    const { tab, frame: shown } = routed;
    if (tab !== this.#id) this.#post({ type: "frame", to: tab, connection: this.#attached, frame: shown });
    if (tab === this.#id || tab === null) this.#events.received(shown);
  }

  #alive(): void {
    if (!this.#leads) return;
    this.#post({ type: "alive", from: this.#id, term: this.#term, connection: this.#attached });
  }

  // Following

  #hear(message: TabMessage): void {
    if ("to" in message && message.to !== null && message.to !== this.#id) return;
    switch (message.type) {
      case "alive":
        this.#hearAlive(message.term, message.connection);
        return;
      case "open":
        if (this.#follows(message.term)) this.#attach(message.connection, message.welcome);
        return;
      case "who":
        this.#introduce(message.from);
        return;
      case "frame":
        if (!this.#leads && message.connection === this.#attached) {
          this.#events.received(message.frame);
        }
        return;
      case "requests":
        if (this.#leads && message.connection === this.#attached) {
          this.#connection.send(message.frames.map((frame) => this.#relay.outgoing(message.from, frame)));
        }
        return;
      case "bye":
        this.#relay.leave(message.from);
        return;
      case "news":
        this.#events.news(message.news);
        return;
    }
  }

  #hearAlive(term: number, connection: string | null): void {
    if (!this.#follows(term)) return;
    this.#heardAt = this.#platform.now();
    if (connection === this.#attached) return;
    this.#detach();
    if (connection) this.#post({ type: "who", from: this.#id });
  }

  #introduce(to: string): void {
    const [connection, welcome, term] = [this.#attached, this.#welcome, this.#term];
    if (!this.#leads || !connection || !welcome) this.#alive();
    else this.#post({ type: "open", from: this.#id, to, term, connection, welcome });
  }

  /** Whether the leader of this term is the one to follow. One of a later term has taken the lead of this tab. */
  #follows(term: number): boolean {
    if (term < this.#term) return false;
    if (this.#leads) {
      if (term > this.#term) this.superseded();
      return false;
    }
    this.#term = term;
    return true;
  }

  #attach(connection: string, welcome: Welcome): void {
    if (connection === this.#attached) return;
    this.#detach();
    this.#heardAt = this.#platform.now();
    this.#attached = connection;
    this.#welcome = welcome;
    this.#events.connected(welcome);
  }

  #detach(): void {
    if (!this.#attached) return;
    this.#attached = null;
    this.#welcome = null;
    this.#events.disconnected();
  }

  // Time

  #tickLater(): void {
    this.#callOffTick();
    this.#tickAt = this.#platform.now() + ALIVE_MS;
    this.#callOffTick = this.#platform.after(ALIVE_MS, () => this.#tick());
  }

  #tick(): void {
    const now = this.#platform.now();
    if (now > this.#tickAt + SLEPT_MS_MIN) this.#heardAt = now;
    this.#tickLater();
    if (this.#leads) this.#alive();
    else if (now > this.#heardAt + SILENT_MS_MAX) {
      this.#detach();
      if (this.#platform.isVisible()) this.#leadership.steal();
      this.#heardAt = now;
    }
  }

  #post(message: TabMessage): void {
    this.#channel?.postMessage(message);
  }
}
