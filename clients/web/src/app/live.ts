/** Updates of the client as signals: a component that reads one is drawn again when it changes. */

import { batch, type Signal, signal } from "@preact/signals";
import type { Client, What } from "parley-chat";

const HIDDEN_MS = 100;

/** Run it before the next frame; in a hidden tab, which has no frames, soon. */
export function nextFrame(run: () => void): void {
  if (document.visibilityState === "visible") requestAnimationFrame(() => run());
  else setTimeout(run, HIDDEN_MS);
}

/** Calls of one frame become one. */
export function framed(run: () => void): () => void {
  let isDue = false;
  return () => {
    if (isDue) return;
    isDue = true;
    nextFrame(() => {
      isDue = false;
      run();
    });
  };
}

export class Live {
  readonly #versions = new Map<string, Signal<number>>();
  readonly #changed = new Set<string>();
  readonly #show = framed(() => {
    const keys = [...this.#changed];
    this.#changed.clear();
    batch(() => {
      for (const key of keys) this.#of(key).value += 1;
    });
  });

  constructor(client: Client) {
    client.on("any", ({ what, chatId }) => {
      this.#changed.add(what);
      if (chatId) this.#changed.add(`${what} ${chatId}`);
      this.#show();
    });
  }

  /** Depend on changes of this kind, of one chat or of any. */
  watch(what: What, chatId?: string): void {
    this.#of(chatId ? `${what} ${chatId}` : what).value;
  }

  #of(key: string): Signal<number> {
    let found = this.#versions.get(key);
    if (!found) {
      found = signal(0);
      this.#versions.set(key, found);
    }
    return found;
  }
}
