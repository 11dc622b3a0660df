/** A message that is being sent: the object that an application holds. */

import type { Ack } from "./contract.js";
import type { ClientError, Refusal } from "./core/errors.js";
import { RequestRefused } from "./core/errors.js";
import type { JournalStep } from "./core/journal.js";
import { keyOf, type MessageKey, type OutgoingMessage } from "./core/storage.js";
import type { OutboxRow, Outcome } from "./storage/outbox.js";

/**
 * `keeping` until the store has it, `queued` while it waits (offline, or after the quick retries), `sending` until its
 * ack; then `sent`. `delivered` and `read` are known while its chat is open.
 */
export type MessageStatus = "keeping" | "queued" | "sending" | "sent" | "delivered" | "read" | "failed";

/** What a Sending needs to know of the client. */
export interface SendingContext {
  statusOfWaiting(key: MessageKey): "queued" | "sending";
  statusOfStored(message: OutgoingMessage, sequence: number): MessageStatus;
  stepsOf(key: MessageKey): readonly JournalStep[];
  retry(sending: Sending): Promise<void>;
  discard(sending: Sending): Promise<void>;
}

/** Not awaiting it changes nothing: the message stays in the outbox until the server stores it or refuses it for good. */
export class Sending {
  readonly message: OutgoingMessage;
  /** It is durable at `sequence`. RequestRefused after a refusal, Closed if this client ended first. */
  stored: Promise<Ack>;
  readonly #context: SendingContext;
  readonly #kept = settleable<boolean>();
  #stored = settleable<Ack>();
  #isKept = false;
  #ack: Ack | null = null;
  #failure: ClientError | null = null;
  #steps: readonly JournalStep[] | null = null;
  /** @internal Its row in the outbox. */
  row: OutboxRow | null = null;

  /** @internal */
  constructor(message: OutgoingMessage, context: SendingContext) {
    this.message = message;
    this.#context = context;
    this.stored = this.#stored.promise;
  }

  get key(): MessageKey {
    return keyOf(this.message);
  }

  get chatId(): string {
    return this.message.chatId;
  }

  get clientMessageId(): string {
    return this.message.clientMessageId;
  }

  get isDone(): boolean {
    return this.#ack !== null || this.#failure !== null;
  }

  get status(): MessageStatus {
    if (this.#failure) return "failed";
    if (this.#ack) return this.#context.statusOfStored(this.message, this.#ack.sequence);
    return this.#isKept ? this.#context.statusOfWaiting(this.key) : "keeping";
  }

  /** Whether it waits in the outbox, rather than for its ack. */
  get isQueued(): boolean {
    return this.status === "queued";
  }

  /** Why it was refused for good. */
  get refusal(): Refusal | null {
    return this.#failure instanceof RequestRefused ? this.#failure.refusal : null;
  }

  /** What happened to it, in order. */
  get steps(): readonly JournalStep[] {
    return this.#steps ?? this.#context.stepsOf(this.key);
  }

  /** Wait until it survives this page. True if it does; false where the store is in memory. */
  kept(): Promise<boolean> {
    return this.#kept.promise;
  }

  /** Send a refused message once more, behind those that wait, under the same id. */
  retry(): Promise<void> {
    return this.#context.retry(this);
  }

  /** Give a refused message up: it leaves the outbox. */
  discard(): Promise<void> {
    return this.#context.discard(this);
  }

  /** @internal */
  noteKept(row: OutboxRow, isDurable: boolean): void {
    this.row = row;
    this.#isKept = true;
    this.#kept.resolve(isDurable);
  }

  /** @internal */
  settle(outcome: Outcome): void {
    if (this.isDone) return;
    this.#steps = outcome.steps;
    if (outcome.ack) {
      this.#ack = outcome.ack;
      this.#kept.resolve(true);
      this.#stored.resolve(outcome.ack);
    } else if (outcome.refusal) this.fail(new RequestRefused(outcome.refusal));
  }

  /** @internal */
  fail(error: ClientError): void {
    if (this.isDone) return;
    this.#failure = error;
    this.#kept.reject(error);
    this.#stored.reject(error);
  }

  /** @internal It waits again, in another row. */
  again(row: OutboxRow): void {
    this.row = row;
    this.#failure = null;
    this.#steps = null;
    this.#stored = settleable<Ack>();
    this.stored = this.#stored.promise;
  }
}

interface Settleable<Value> {
  readonly promise: Promise<Value>;
  resolve(value: Value): void;
  reject(error: unknown): void;
}

/** A promise that nobody needs to await. */
export function settleable<Value>(): Settleable<Value> {
  let resolve!: (value: Value) => void;
  let reject!: (error: unknown) => void;
  const promise = new Promise<Value>((onResolve, onReject) => {
    resolve = onResolve;
    reject = onReject;
  });
  promise.catch(() => {});
  return { promise, resolve, reject };
}
