/** Who leads where there are no Web Locks, as on plain http: the tab that has the lease in the store. */

import type { Platform } from "../platform.js";
import type { Store } from "../storage/ports.js";
import type { Leadership, LeadershipEvents } from "./leadership.js";

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
