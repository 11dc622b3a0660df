/**
 * One socket for the cores of several tabs. Each tab numbers its requests as if the connection were its own; the relay
 * gives them numbers of the connection, and each answer back to the tab that asked. What nobody asked for is for all.
 */

import type { ClientFrame, PresenceSubscribe, ServerFrame } from "../contract.js";
import { PRESENCE_BATCH_MAX } from "../limits.js";

/** Requests whose answer may still come. Some have none unless they are refused. */
const ASKED_MAX = 4_096;

interface Asked {
  readonly tab: string;
  readonly id: number;
}

export class Relay {
  #next = 0;
  readonly #asked = new Map<number, Asked>();
  /** Whose presence each tab wants: the connection has one subscription. */
  readonly #watched = new Map<string, readonly string[]>();

  /** A tab's request as it goes out. */
  outgoing(tab: string, frame: ClientFrame): ClientFrame {
    const sent = frame.type === "presence_subscribe" ? this.#subscription(tab, frame) : frame;
    if (typeof frame.id !== "number") return sent;
    this.#next += 1;
    this.#asked.set(this.#next, { tab, id: frame.id });
    if (this.#asked.size > ASKED_MAX) this.#asked.delete(this.#asked.keys().next().value as number);
    return { ...sent, id: this.#next };
  }

  /** For whom a frame of the server is, and how it looks there; `tab: null` is for all. Undefined: for nobody. */
  incoming(frame: ServerFrame): { tab: string | null; frame: ServerFrame } | undefined {
    if (typeof frame.re !== "number") return { tab: null, frame };
    const asked = this.#asked.get(frame.re);
    this.#asked.delete(frame.re);
    return asked && { tab: asked.tab, frame: { ...frame, re: asked.id } };
  }

  /** A tab has ended. */
  leave(tab: string): void {
    this.#watched.delete(tab);
  }

  #subscription(tab: string, frame: PresenceSubscribe): PresenceSubscribe {
    this.#watched.delete(tab);
    this.#watched.set(tab, frame.user_ids);
    // As many as the server allows, first those of the tab that asked last.
    const people = new Set([...this.#watched.values()].reverse().flat());
    return { ...frame, user_ids: [...people].slice(0, PRESENCE_BATCH_MAX) };
  }
}
