/**
 * Which of the tabs of one device leads. One that leads holds a Web Lock; where there are none, a lease in the store.
 *
 * Two leaders for a moment do no harm: the server stores a message once. None at all does, so a tab that is looked at
 * takes the lead from one that was frozen, whose lock the browser keeps.
 */

import type { Locks, Platform } from "../platform.js";
import type { Store } from "../storage/ports.js";

/** Begins and ends in turns; it may end before `began` has done its work. */
export interface LeadershipEvents {
  began(): void;
  ended(): void;
}

export interface Leadership {
  /** Want to lead from now on. */
  compete(): void;
  /** Lead now, whoever does. */
  steal(): void;
  /** Neither lead nor want to. */
  release(): void;
}

/** The lock is requested once and held: to look whether it is free and ask again would let two tabs believe they lead. */
export class LockLeadership implements Leadership {
  readonly #locks: Locks;
  readonly #name: string;
  readonly #events: LeadershipEvents;
  /** The request that counts; what comes of earlier ones is ignored. */
  #request = 0;
  #leads = false;
  #letGo: () => void = () => {};

  constructor(locks: Locks, name: string, events: LeadershipEvents) {
    this.#locks = locks;
    this.#name = name;
    this.#events = events;
  }

  compete(): void {
    const waits = new AbortController();
    this.#ask({ signal: waits.signal }, () => waits.abort());
  }

  steal(): void {
    if (!this.#leads) this.#ask({ steal: true }, () => {});
  }

  release(): void {
    this.#request += 1;
    this.#letGo();
    this.#letGo = () => {};
    this.#end();
  }

  #ask(options: { steal?: boolean; signal?: AbortSignal }, callOff: () => void): void {
    this.release();
    const request = this.#request;
    this.#letGo = callOff;
    const held = this.#locks.request(this.#name, options, () => {
      if (request !== this.#request) return Promise.resolve();
      return new Promise<void>((resolve) => {
        this.#letGo = resolve;
        this.#leads = true;
        this.#events.began();
      });
    });
    held.catch(() => {
      if (request !== this.#request) return;
      // Another tab took it: wait until that one ends.
      this.#end();
      this.compete();
    });
  }

  #end(): void {
    if (!this.#leads) return;
    this.#leads = false;
    this.#events.ended();
  }
}

interface Lease {
  readonly tab: string;
  readonly untilMs: number;
}

const LEASE = "lease";
const LEASE_MS = 5_000;
/** Of a tab that nobody looks at: its timers come once a minute. */
const LEASE_MS_HIDDEN = 130_000;
const RENEW_MS = 1_000;

/** A row that says who leads, and until when. All tabs have the machine's clock; one that jumps ends the lease. */
export class LeaseLeadership implements Leadership {
  readonly #store: Store;
  readonly #platform: Platform;
  readonly #tab: string;
  readonly #events: LeadershipEvents;
  #isWanted = false;
  #leads = false;
  #callOff: () => void = () => {};

  constructor(store: Store, platform: Platform, tab: string, events: LeadershipEvents) {
    this.#store = store;
    this.#platform = platform;
    this.#tab = tab;
    this.#events = events;
  }

  compete(): void {
    this.#isWanted = true;
    void this.#renew(false);
  }

  steal(): void {
    this.#isWanted = true;
    void this.#renew(true);
  }

  release(): void {
    this.#isWanted = false;
    this.#callOff();
    const led = this.#leads;
    this.#set(false);
    if (led) void this.#giveBack().catch(() => {});
  }

  async #renew(isTheft: boolean): Promise<void> {
    this.#callOff();
    let leads = false;
    try {
      leads = await this.#take(isTheft);
    } catch {
      // A store that cannot be written decides nothing: the client goes on alone then.
    }
    if (!this.#isWanted) {
      if (leads) void this.#giveBack().catch(() => {});
      return;
    }
    this.#callOff();
    this.#callOff = this.#platform.after(RENEW_MS, () => void this.#renew(false));
    this.#set(leads);
  }

  #take(isTheft: boolean): Promise<boolean> {
    return this.#store.run(["meta"], "relaxed", async (tx) => {
      const now = this.#platform.wall();
      const lease = await tx.get<Lease>("meta", LEASE);
      // One that ends later than a new one would was written before the clock was set back.
      const isFree = !lease || lease.untilMs <= now || lease.untilMs > now + LEASE_MS_HIDDEN;
      if (!isTheft && !isFree && lease.tab !== this.#tab) return false;
      const untilMs = now + (this.#platform.isVisible() ? LEASE_MS : LEASE_MS_HIDDEN);
      await tx.put("meta", LEASE, { tab: this.#tab, untilMs } satisfies Lease);
      return true;
    });
  }

  #giveBack(): Promise<void> {
    return this.#store.run(["meta"], "relaxed", async (tx) => {
      const lease = await tx.get<Lease>("meta", LEASE);
      if (lease?.tab === this.#tab) await tx.delete("meta", LEASE);
    });
  }

  #set(leads: boolean): void {
    if (leads === this.#leads) return;
    this.#leads = leads;
    if (leads) this.#events.began();
    else this.#events.ended();
  }
}

/** A tab without others: it always leads. */
export class SoleLeadership implements Leadership {
  readonly #events: LeadershipEvents;
  #leads = false;

  constructor(events: LeadershipEvents) {
    this.#events = events;
  }

  compete(): void {
    if (this.#leads) return;
    this.#leads = true;
    this.#events.began();
  }

  steal(): void {
    this.compete();
  }

  release(): void {
    if (!this.#leads) return;
    this.#leads = false;
    this.#events.ended();
  }
}
