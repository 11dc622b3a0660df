/** What happened to each message that this page sends: when it was written, kept, sent, refused, stored. Pure. */

import type { Ack } from "../contract.js";
import type { Refusal } from "./errors.js";
import type { MessageKey } from "./storage.js";

const MESSAGES_MAX = 1_000;
const STEPS_MAX = 50;

/** One thing that happened to a message, `at` a time of day of this device. */
export type JournalStep = { readonly at: number } & (
  | { readonly step: "written" }
  /** It is in the store, and survives this page. */
  | { readonly step: "kept" }
  | { readonly step: "sent"; readonly attempt: number }
  /** It waits: there is no connection, or the quick retries are used up. */
  | { readonly step: "queued" }
  | { readonly step: "refused"; readonly refusal: Refusal }
  | { readonly step: "stored"; readonly ack: Ack }
);

type Step = JournalStep extends infer One ? (One extends unknown ? Omit<One, "at"> : never) : never;

/** In memory, of the newest messages; a later page knows when a message was written, and what it did itself. */
export class Journal {
  readonly #steps = new Map<MessageKey, JournalStep[]>();
  /** The time of day, as the core last heard it. */
  wall = 0;

  /** The steps of a message, in order. */
  of(key: MessageKey): readonly JournalStep[] {
    return this.#steps.get(key) ?? [];
  }

  /** A message begins. */
  written(key: MessageKey, wall: number): void {
    this.wall = Math.max(this.wall, wall);
    this.#steps.delete(key);
    this.#steps.set(key, [{ step: "written", at: wall }]);
    for (const oldest of this.#steps.keys()) {
      if (this.#steps.size <= MESSAGES_MAX) break;
      this.#steps.delete(oldest);
    }
  }

  note(key: MessageKey, step: Step): void {
    const steps = this.#steps.get(key);
    if (!steps) return;
    if (step.step === "queued" && steps.at(-1)?.step === "queued") return;
    steps.push({ ...step, at: this.wall });
    // The first and the newest tell most.
    if (steps.length > STEPS_MAX) steps.splice(2, 1);
  }
}
