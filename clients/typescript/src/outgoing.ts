/**
 * What this device sends: kept in the outbox of the store by the tab that was typed in, sent by the tab that leads.
 *
 * Every tab knows every row, so that it can show what another tab wrote. Only the leader gives rows to its core, all of
 * them in the order of the outbox, and writes down what became of them.
 */

import type { Ack } from "./contract.js";
import type { ClientCore } from "./core/core.js";
import { type ClientError, Closed, OutboxFull, type Refusal, RequestRefused } from "./core/errors.js";
import { bytesIn, OUTBOX_BYTES_MAX, OUTBOX_MESSAGES_MAX } from "./core/outbox.js";
import { keyOf, type MessageKey, type OutgoingMessage } from "./core/storage.js";
import type { Platform } from "./platform.js";
import { Sending, type SendingContext } from "./sending.js";
import { MovedToMemory } from "./storage/failsafe.js";
import type { OutboxRow, Outcome, SharedOutbox } from "./storage/outbox.js";
import type { Store } from "./storage/ports.js";
import type { News } from "./tabs/group.js";

/** What it asks of the tabs. */
export interface OutgoingGroup {
  isLeader(): boolean;
  /** Say which term this leadership has. */
  claimed(term: number): void;
  /** Another tab leads since. Returns whether this one gives up. */
  superseded(): boolean;
  tell(news: News): void;
}

export class Outgoing {
  readonly #outbox: SharedOutbox;
  readonly #store: Store;
  readonly #core: ClientCore;
  readonly #group: OutgoingGroup;
  readonly #platform: Platform;
  readonly #context: SendingContext;
  /** Everything that waits for its outcome, or for the person: of any tab, in the order of the outbox. */
  readonly #sendings = new Map<MessageKey, Sending>();
  /** Of their contents. */
  #bytes = 0;
  #toKeep: Sending[] = [];
  #toSettle: { row: OutboxRow; outcome: Outcome }[] = [];
  #isKeeping = false;
  #isSettling = false;
  #looking: Promise<void> | null = null;
  #looksAgain = false;
  /** The last row that this tab has seen. */
  #seen = 0;
  /** The term of this tab's leadership; 0 until it has claimed the rows. */
  #term = 0;
  /** The last row that was given to the core in this leadership. */
  #adopted = 0;
  /** Whether the connection is that of the person whose rows these are. */
  #mayAdopt = false;
  /** Called when nothing waits any more. */
  onEmpty: (() => void) | null = null;
  onFailure: (error: unknown) => void = () => {};
  onChange: (chatId: string) => void = () => {};

  constructor(
    outbox: SharedOutbox,
    store: Store,
    core: ClientCore,
    group: OutgoingGroup,
    platform: Platform,
    context: SendingContext,
  ) {
    this.#outbox = outbox;
    this.#store = store;
    this.#core = core;
    this.#group = group;
    this.#platform = platform;
    this.#context = context;
  }

  get all(): Sending[] {
    return [...this.#sendings.values()];
  }

  get isEmpty(): boolean {
    return this.all.every((sending) => sending.isDone);
  }

  get(key: MessageKey): Sending | undefined {
    return this.#sendings.get(key);
  }

  /** Queue a message; its Sending is there at once. */
  send(message: OutgoingMessage): Sending {
    const count = this.#sendings.size;
    if (count >= OUTBOX_MESSAGES_MAX || this.#bytes + bytesIn(message.content) > OUTBOX_BYTES_MAX) {
      throw new OutboxFull(`${count} messages are waiting to be sent; wait for some of them`);
    }
    const sending = this.#add(message);
    this.#toKeep.push(sending);
    void this.#keep();
    return sending;
  }

  /** There may be new rows: show them, and send them if this tab leads. */
  look(): Promise<void> {
    this.#looksAgain = true;
    this.#looking ??= this.#lookUntilDone()
      .catch((error) => this.onFailure(error))
      .finally(() => {
        this.#looking = null;
      });
    return this.#looking;
  }

  /** This tab leads from now on: take over every row. */
  async lead(): Promise<void> {
    const { term, rows } = await this.#outbox.claim();
    if (!this.#group.isLeader()) return;
    this.#term = term;
    this.#adopted = 0;
    this.#group.claimed(term);
    this.#show(rows);
    this.#adopt(rows);
    await this.#reconcile(rows);
    await this.look();
  }

  /** The connection is of the person whose rows these are: the leader may send them. */
  async verified(): Promise<void> {
    this.#mayAdopt = true;
    await this.look();
  }

  follow(): void {
    this.#term = 0;
  }

  /** Other tabs may have settled messages of which this one did not hear. */
  async reconcile(): Promise<void> {
    const { rows } = await this.#outbox.look(0);
    this.#show(rows);
    await this.#reconcile(rows);
  }

  /** The core knows what became of a message. */
  settled(key: MessageKey, result: { ack: Ack } | { refusal: Refusal }): void {
    const sending = this.#sendings.get(key);
    const outcome: Outcome = { key, ...result, steps: this.#core.journal.of(key) };
    if (sending) this.#settle(sending, outcome);
    if (sending?.row) {
      this.#toSettle.push({ row: sending.row, outcome });
      void this.#writeOutcomes();
    }
  }

  /** After `store_damaged` a message is kept, and sent once more with the next connection. */
  refusedForNow(key: MessageKey, refusal: Refusal): void {
    this.#sendings.get(key)?.fail(new RequestRefused(refusal));
  }

  /** Another tab knows what became of messages. */
  hear(outcomes: readonly Outcome[]): void {
    for (const outcome of outcomes) {
      const sending = this.#sendings.get(outcome.key);
      if (sending) this.#settle(sending, outcome);
      const now = this.#platform.now();
      if (outcome.ack) this.#core.messageStored(outcome.key, outcome.ack, now);
      else if (outcome.refusal) this.#core.messageRefused(outcome.key, outcome.refusal, now);
    }
  }

  async retry(sending: Sending): Promise<void> {
    if (!sending.row || !sending.refusal) return;
    const { retryRow } = await this.#platform.later();
    const row = await retryRow(this.#store, sending.row);
    if (!row) return this.reconcile();
    sending.again(row);
    this.onChange(sending.chatId);
    this.#group.tell({ type: "look" });
    await this.look();
  }

  async discard(sending: Sending): Promise<void> {
    if (!sending.row || !sending.refusal) return;
    const { discardRow } = await this.#platform.later();
    await discardRow(this.#store, sending.row);
    this.#drop(sending);
    this.#group.tell({ type: "discarded", key: sending.key });
  }

  /** The person gave a message up in another tab. */
  discarded(key: MessageKey): void {
    const sending = this.#sendings.get(key);
    if (sending) this.#drop(sending);
  }

  /** The store was left for memory: keep there what waits, and send it from this tab alone. */
  keepAgain(): void {
    this.#seen = 0;
    this.#toKeep = this.all.filter((sending) => !sending.isDone);
    void this.#keep();
  }

  /** This client has ended. What is kept is sent by the next one. */
  fail(error: ClientError): void {
    for (const sending of this.#sendings.values()) sending.fail(error);
    this.onEmpty?.();
  }

  /** One transaction at a time, of all that wait: so rows have the order of the calls. */
  async #keep(): Promise<void> {
    if (this.#isKeeping) return;
    this.#isKeeping = true;
    while (this.#toKeep.length > 0) {
      const sendings = this.#toKeep;
      this.#toKeep = [];
      try {
        const rows = await this.#outbox.add(sendings.map((sending) => sending.message));
        const isDurable = this.#store.kind === "indexeddb";
        for (const [at, row] of rows.entries()) sendings[at]?.noteKept(row, isDurable);
        this.#group.tell({ type: "look" });
        void this.look();
      } catch (error) {
        if (error instanceof MovedToMemory) {
          this.keepAgain();
          continue;
        }
        this.onFailure(error);
        for (const sending of sendings) {
          this.#drop(sending);
          sending.fail(new Closed(`the message could not be kept: ${String(error)}`));
        }
      }
      for (const sending of sendings) this.onChange(sending.chatId);
    }
    this.#isKeeping = false;
  }

  async #lookUntilDone(): Promise<void> {
    while (this.#looksAgain) {
      this.#looksAgain = false;
      const { term, rows } = await this.#outbox.look(this.#term > 0 ? this.#adopted : this.#seen);
      this.#show(rows);
      if (this.#term === 0) continue;
      if (term === this.#term || !this.#group.superseded()) this.#adopt(rows);
    }
  }

  /** Rows of any tab become Sendings of this one. */
  #show(rows: readonly OutboxRow[]): void {
    for (const row of rows) {
      this.#seen = Math.max(this.#seen, row.number);
      const key = keyOf(row.message);
      let sending = this.#sendings.get(key);
      if (!sending) {
        sending = this.#add(row.message);
        this.onChange(sending.chatId);
      } else if (sending.refusal && !row.refusal) sending.again(row);
      sending.noteKept(row, this.#store.kind === "indexeddb");
      if (row.refusal) sending.settle({ key, refusal: row.refusal, steps: [] });
    }
  }

  #adopt(rows: readonly OutboxRow[]): void {
    if (!this.#mayAdopt) return;
    const waiting = rows.filter((row) => !row.refusal && !this.#sendings.get(keyOf(row.message))?.isDone);
    this.#adopted = Math.max(this.#adopted, ...rows.map((row) => row.number));
    if (waiting.length === 0) return;
    this.#core.adopt(waiting.map((row) => row.message));
    for (const row of waiting) this.#core.journal.note(keyOf(row.message), { step: "kept" });
  }

  /** A row that is gone was settled, or given up. */
  async #reconcile(rows: readonly OutboxRow[]): Promise<void> {
    const there = new Set(rows.map((row) => keyOf(row.message)));
    for (const sending of this.all) {
      if (!sending.row || sending.row.number > this.#seen || there.has(sending.key)) continue;
      const outcome = await this.#outbox.outcome(sending.key);
      if (outcome?.ack) this.hear([outcome]);
      else {
        this.#drop(sending);
        sending.fail(new Closed("the message was given up in another tab"));
      }
    }
  }

  #settle(sending: Sending, outcome: Outcome): void {
    sending.settle(outcome);
    if (outcome.ack) this.#drop(sending);
    else this.onChange(sending.chatId);
    if (this.onEmpty && this.isEmpty) this.onEmpty();
  }

  #add(message: OutgoingMessage): Sending {
    const sending = new Sending(message, this.#context);
    this.#sendings.set(sending.key, sending);
    this.#bytes += bytesIn(message.content);
    return sending;
  }

  #drop(sending: Sending): void {
    if (this.#sendings.delete(sending.key)) this.#bytes -= bytesIn(sending.message.content);
    this.onChange(sending.chatId);
  }

  async #writeOutcomes(): Promise<void> {
    if (this.#isSettling) return;
    this.#isSettling = true;
    while (this.#toSettle.length > 0) {
      const settled = this.#toSettle;
      this.#toSettle = [];
      try {
        await this.#outbox.settle(settled);
      } catch (error) {
        // A row that stays is sent once more, and the server stores it once.
        this.onFailure(error);
      }
      this.#group.tell({ type: "settled", outcomes: settled.map(({ outcome }) => outcome) });
    }
    this.#isSettling = false;
  }
}
