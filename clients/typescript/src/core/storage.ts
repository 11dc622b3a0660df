/**
 * What must survive the page: unacknowledged messages, and this device's cursors. Types alone; a store saves
 * them. Every value is plain, so that IndexedDB takes it as it is.
 */

/** Chat and client_message_id, as one text: `messageKey` makes it. */
export type MessageKey = string;

/**
 * A message that is not yet acknowledged, or an edit, a delete or a reaction (`kind`) of the message `targetId`.
 *
 * Nothing of it changes after it was queued: every retry sends the same.
 */
export interface OutgoingMessage {
  readonly chatId: string;
  readonly clientMessageId: string;
  readonly content: string;
  /** "text/plain" if it is left out. */
  readonly contentType?: string;
  /** When the person sent it, in ISO 8601. */
  readonly displayTime?: string;
  /** When it was queued, by the device's clock. */
  readonly createdAtMs: number;
  readonly mentions?: readonly string[];
  readonly replyTo?: string;
  readonly attachments?: readonly string[];
  /** "message" if it is left out. */
  readonly kind?: "message" | "edit" | "delete" | "reaction";
  readonly targetId?: string;
  /** Of a reaction: false takes it back. */
  readonly isOn?: boolean;
}

/**
 * A position in a log. Epoch 0 is unknown. A void, or a position from the server, has no `messageId`.
 *
 * `logHash`: the hash of what was read up to here, if everything was.
 */
export interface Cursor {
  readonly epoch: number;
  readonly sequence: number;
  readonly messageId: string | null;
  readonly logHash: Uint8Array | null;
}

/** What one commit makes durable: all of it or nothing. */
export interface StateChanges {
  /** In the order in which they were queued, behind everything that is in the outbox. */
  readonly added: readonly OutgoingMessage[];
  readonly removed: readonly MessageKey[];
  /** By chat. */
  readonly cursors: ReadonlyMap<string, Cursor>;
}

/** The state of an earlier run; messages in the order in which they were added. */
export interface SavedState {
  readonly outgoing: readonly OutgoingMessage[];
  readonly cursors: ReadonlyMap<string, Cursor>;
}

export const messageKey = (chatId: string, clientMessageId: string): MessageKey =>
  `${chatId} ${clientMessageId}`;

export const keyOf = (message: OutgoingMessage): MessageKey =>
  messageKey(message.chatId, message.clientMessageId);

export const cursorAt = (
  epoch = 0,
  sequence = 0,
  messageId: string | null = null,
  logHash: Uint8Array | null = null,
): Cursor => ({ epoch, sequence, messageId, logHash });

export const hasChanges = (changes: StateChanges): boolean =>
  changes.added.length + changes.removed.length + changes.cursors.size > 0;
