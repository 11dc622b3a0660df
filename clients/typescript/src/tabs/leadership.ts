/**
 * Which of the tabs of one device leads. One that leads holds a Web Lock; where there are none, a lease in the store.
 *
 * Two leaders for a moment do no harm: the server stores a message once. None at all does, so a tab that is looked at
 * takes the lead from one that was frozen, whose lock the browser keeps.
 */

import type { Locks } from "../platform.js";

/** It may end before `began` has done its work; what is said twice changes nothing. */
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
    this.#ask({ steal: true }, () => {});
  }

  release(): void {
    this.#request += 1;
    this.#letGo();
    this.#letGo = () => {};
    this.#events.ended();
  }

  #ask(options: { steal?: boolean; signal?: AbortSignal }, callOff: () => void): void {
    this.release();
    const request = this.#request;
    this.#letGo = callOff;
    const held = this.#locks.request(this.#name, options, () => {
      if (request !== this.#request) return Promise.resolve();
      return new Promise<void>((resolve) => {
        this.#letGo = resolve;
        this.#events.began();
      });
    });
    held.catch(() => {
      if (request !== this.#request) return;
      // Another tab took it: wait until that one ends.
      this.compete();
    });
  }
}

/** A tab without others always leads. */
export const soleLeadership = ({ began, ended }: LeadershipEvents): Leadership => ({
  compete: began,
  steal: began,
  release: ended,
});

/** One of which the code comes later. */
export const lateLeadership = (leadership: Promise<Leadership>): Leadership => {
  const soon = (ask: (leadership: Leadership) => void): void => void leadership.then(ask, () => {});
  return {
    compete: () => soon((it) => it.compete()),
    steal: () => soon((it) => it.steal()),
    release: () => soon((it) => it.release()),
  };
};
