/** The loop of an application over changes; and what all loops have. */

import type { Update } from "./core/events.js";

/** A loop that waits for something to take. */
export abstract class Stream<Value> implements AsyncIterableIterator<Value> {
  #wake: (() => void) | null = null;
  #isNotified = false;

  /** There may be something to take, or the client has ended. */
  notify(): void {
    this.#isNotified = true;
    this.#wake?.();
  }

  /** What there is to take now; throws if the loop has ended. */
  protected abstract take(): Value | undefined;

  async next(): Promise<IteratorResult<Value>> {
    for (;;) {
      this.#isNotified = false;
      const value = this.take();
      if (value) return { value, done: false };
      if (this.#isNotified) continue;
      await new Promise<void>((resolve) => {
        this.#wake = resolve;
      });
    }
  }

  [Symbol.asyncIterator](): this {
    return this;
  }
}

/** The loop over updates. However slow the loop is, equal updates wait as one. */
export class UpdateStream extends Stream<Update> {
  readonly #concerns: (update: Update) => boolean;
  readonly #client: { checkOpen(): void };
  readonly #onEnd: (stream: UpdateStream) => void;
  readonly #waiting = new Map<string, Update>();

  constructor(
    client: { checkOpen(): void },
    concerns: (update: Update) => boolean,
    onEnd: (stream: UpdateStream) => void,
  ) {
    super();
    this.#client = client;
    this.#concerns = concerns;
    this.#onEnd = onEnd;
  }

  protected take(): Update | undefined {
    for (const [key, value] of this.#waiting) {
      this.#waiting.delete(key);
      return value;
    }
    this.#client.checkOpen();
    return undefined;
  }

  async return(): Promise<IteratorResult<Update>> {
    this.#onEnd(this);
    return { value: undefined, done: true };
  }

  put(update: Update): void {
    if (!this.#concerns(update)) return;
    this.#waiting.set(`${update.what} ${update.chatId} ${update.userId}`, update);
    this.notify();
  }
}
