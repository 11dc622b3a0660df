/** What tabs have written, and whether the server has it as it must: nothing lost, nothing doubled, order kept. */

import { expect } from "vitest";
import type { Sending } from "../../src/sending.js";
import type { Tab, World } from "./world.js";

export class History {
  readonly #world: World;
  readonly #chatId: string;
  readonly #written = new Map<Tab, string[]>();
  readonly #kept = new Set<string>();
  readonly #stored = new Set<string>();

  constructor(world: World, chatId: string) {
    this.#world = world;
    this.#chatId = chatId;
  }

  /** A tab writes, if it still runs. */
  write(tab: Tab, text: string): Sending | undefined {
    if (tab.isDead || !tab.client) return undefined;
    const sending = tab.client.chat(this.#chatId).send(text);
    this.#written.set(tab, [...(this.#written.get(tab) ?? []), text]);
    // A tab that is dead learns nothing more: what a promise of its says then was never shown to anybody.
    sending.kept().then(
      () => tab.isDead || this.#kept.add(text),
      () => {},
    );
    sending.stored.then(
      () => tab.isDead || this.#stored.add(text),
      () => {},
    );
    return sending;
  }

  /** How many were shown as kept. */
  get kept(): number {
    return this.#kept.size;
  }

  /** Whether everything that was kept is stored. */
  get isComplete(): boolean {
    const texts = new Set(this.#texts());
    return [...this.#kept].every((text) => texts.has(text));
  }

  check(what: string): void {
    const texts = this.#texts();
    expect(texts.length, `${what}: doubled in ${texts}`).toBe(new Set(texts).size);
    const lost = [...this.#kept, ...this.#stored].filter((text) => !texts.includes(text));
    expect(lost, `${what}: lost`).toEqual([]);
    for (const written of this.#written.values()) {
      const order = texts.filter((text) => written.includes(text));
      const wanted = written.filter((text) => texts.includes(text));
      expect(order, `${what}: order`).toEqual(wanted);
    }
  }

  #texts(): string[] {
    return this.#world.server.log(this.#chatId).map((entry) => entry.content);
  }
}
