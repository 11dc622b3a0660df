/** The loops of an application: over the entries of one chat or of all chats, and over other changes. */

import type { Entry } from "./contract.js";
import type { ChatModel } from "./core/chatModel.js";
import type { ClientCore } from "./core/core.js";
import { ReadElsewhere, RequestRefused } from "./core/errors.js";
import type { Update } from "./core/events.js";

/** What a loop needs of the client. */
export interface StreamContext {
  readonly core: ClientCore;
  now(): number;
  /** Throws if the client has ended. */
  checkOpen(): void;
}

/** Wakes one waiting loop. */
class Bell {
  #ring: (() => void) | null = null;
  #isRung = false;

  ring(): void {
    this.#isRung = true;
    this.#ring?.();
  }

  reset(): void {
    this.#isRung = false;
  }

  async wait(): Promise<void> {
    if (this.#isRung) return;
    await new Promise<void>((resolve) => {
      this.#ring = resolve;
    });
    this.#ring = null;
  }
}

abstract class Stream<Value> implements AsyncIterableIterator<Value> {
  protected readonly bell = new Bell();

  abstract next(): Promise<IteratorResult<Value>>;

  /** There may be something to take, or the client has ended. */
  notify(): void {
    this.bell.ring();
  }

  [Symbol.asyncIterator](): this {
    return this;
  }
}

/**
 * The loop over one chat: in order, contiguous, no entry twice, across every reconnect.
 *
 * An entry counts as processed when the loop takes the next one; one that does not comes again in the next loop, or on
 * the next page. RequestRefused when reading must end (`not_a_member`).
 */
export class EntryStream extends Stream<Entry> {
  readonly #context: StreamContext;
  readonly #chat: ChatModel;
  readonly #onEnd: () => void;
  #isClosed = false;

  constructor(context: StreamContext, chat: ChatModel, onEnd: () => void) {
    super();
    this.#context = context;
    this.#chat = chat;
    this.#onEnd = onEnd;
  }

  async next(): Promise<IteratorResult<Entry>> {
    for (;;) {
      if (this.#isClosed) {
        throw new ReadElsewhere("another loop reads this chat now; a device has one cursor per chat");
      }
      this.bell.reset();
      this.#context.checkOpen();
      const value = this.#context.core.take(this.#chat, this.#context.now());
      if (value) return { value, done: false };
      const failure = this.#chat.inbox?.failure;
      if (failure) throw new RequestRefused(failure);
      await this.bell.wait();
    }
  }

  /** The application leaves the loop: the entry that it got last was not processed. */
  async return(): Promise<IteratorResult<Entry>> {
    if (!this.#isClosed) this.#onEnd();
    return { value: undefined, done: true };
  }

  /** End this loop. The entry that it yielded last counts as not processed. */
  close(): void {
    this.#isClosed = true;
    this.notify();
  }
}

/**
 * The loop over every chat of the person, later ones too. Each chat's entries are in order. It skips chats that have a loop
 * of their own, and chats that the person has left.
 */
export class AllEntriesStream extends Stream<Entry> {
  readonly #context: StreamContext;
  readonly #ready = new Set<string>();
  #last: ChatModel | null = null;
  #isClosed = false;

  constructor(context: StreamContext) {
    super();
    this.#context = context;
  }

  async next(): Promise<IteratorResult<Entry>> {
    const { core } = this.#context;
    if (this.#last) core.markProcessed(this.#last, this.#context.now());
    this.#last = null;
    for (;;) {
      if (this.#isClosed) {
        throw new ReadElsewhere("another loop reads all chats now; a device has one cursor per chat");
      }
      this.bell.reset();
      this.#context.checkOpen();
      const value = this.#takeNext();
      if (value) return { value, done: false };
      await this.bell.wait();
    }
  }

  /** This chat may have an entry to take. */
  ready(chatId: string): void {
    this.#ready.add(chatId);
    this.notify();
  }

  /** From now on this chat has a loop of its own. */
  leave(chatId: string): void {
    this.#ready.delete(chatId);
    if (this.#last?.chatId === chatId) this.#last = null;
  }

  close(): void {
    this.#isClosed = true;
    this.notify();
  }

  /** One entry of the chat that has waited longest. */
  #takeNext(): Entry | undefined {
    const { core } = this.#context;
    for (const chatId of this.#ready) {
      this.#ready.delete(chatId);
      const chat = core.chat(chatId);
      const entry = core.take(chat, this.#context.now());
      if (entry) {
        this.#ready.add(chatId);
        this.#last = chat;
        return entry;
      }
      if (chat.inbox?.failure) core.stop(chat);
    }
    return undefined;
  }
}

/** The loop over updates. However slow the loop is, equal updates wait as one. */
export class UpdateStream extends Stream<Update> {
  readonly #concerns: (update: Update) => boolean;
  readonly #context: StreamContext;
  readonly #onEnd: (stream: UpdateStream) => void;
  readonly #waiting = new Map<string, Update>();

  constructor(
    context: StreamContext,
    concerns: (update: Update) => boolean,
    onEnd: (stream: UpdateStream) => void,
  ) {
    super();
    this.#context = context;
    this.#concerns = concerns;
    this.#onEnd = onEnd;
  }

  async next(): Promise<IteratorResult<Update>> {
    for (;;) {
      this.bell.reset();
      for (const [key, value] of this.#waiting) {
        this.#waiting.delete(key);
        return { value, done: false };
      }
      this.#context.checkOpen();
      await this.bell.wait();
    }
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
