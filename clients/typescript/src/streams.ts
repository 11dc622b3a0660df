/** The loops of an application over the entries of one chat, or of all chats. */

import type { Client } from "./client.js";
import type { Entry } from "./contract.js";
import type { ChatModel } from "./core/chatModel.js";
import { ReadElsewhere, RequestRefused } from "./core/errors.js";
import type { ReadingCore } from "./core/reading.js";
import { Stream } from "./updates.js";

/**
 * The loop over one chat: in order, contiguous, no entry twice, across every reconnect.
 *
 * An entry counts as processed when the loop takes the next one; one that does not comes again in the next loop, or on
 * the next page. RequestRefused when reading must end (`not_a_member`).
 */
export class EntryStream extends Stream<Entry> {
  readonly #client: Client;
  readonly #core: ReadingCore;
  readonly #chat: ChatModel;
  readonly #onEnd: () => void;
  #isClosed = false;

  constructor(client: Client, core: ReadingCore, chat: ChatModel, onEnd: () => void) {
    super();
    this.#client = client;
    this.#core = core;
    this.#chat = chat;
    this.#onEnd = onEnd;
  }

  protected take(): Entry | undefined {
    if (this.#isClosed) {
      throw new ReadElsewhere("another loop reads this chat now; a device has one cursor per chat");
    }
    this.#client.checkOpen();
    const entry = this.#core.take(this.#chat, this.#client.platform.now());
    const failure = this.#chat.inbox?.failure;
    if (!entry && failure) throw new RequestRefused(failure);
    return entry;
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
  readonly #client: Client;
  readonly #core: ReadingCore;
  readonly #ready = new Set<string>();
  #last: ChatModel | null = null;
  #isClosed = false;

  constructor(client: Client, core: ReadingCore) {
    super();
    this.#client = client;
    this.#core = core;
  }

  override next(): Promise<IteratorResult<Entry>> {
    if (this.#last) this.#core.markProcessed(this.#last, this.#client.platform.now());
    this.#last = null;
    return super.next();
  }

  protected take(): Entry | undefined {
    if (this.#isClosed) {
      throw new ReadElsewhere("another loop reads all chats now; a device has one cursor per chat");
    }
    this.#client.checkOpen();
    return this.#takeNext();
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
    for (const chatId of this.#ready) {
      this.#ready.delete(chatId);
      const chat = this.#client.core.chat(chatId);
      const entry = this.#core.take(chat, this.#client.platform.now());
      if (entry) {
        this.#ready.add(chatId);
        this.#last = chat;
        return entry;
      }
      if (chat.inbox?.failure) this.#core.stop(chat);
    }
    return undefined;
  }
}
