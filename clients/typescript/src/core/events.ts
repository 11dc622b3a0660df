/** The events of the client core, for its shell and for the application. */

import type { Ack } from "../contract.js";
import type { Refusal } from "./errors.js";
import type { MessageKey, OutgoingMessage } from "./storage.js";

/** What changed in a chat or about a person. */
export type What =
  | "unread"
  | "typing"
  | "members"
  | "receipts"
  | "settings"
  | "presence"
  | "connection"
  | "invitations"
  | "log"
  /** What was written and not sent, in another tab too. */
  | "drafts"
  /** The browser's store failed, or was left for memory. */
  | "storage";

/**
 * Something changed: read it again. Most updates are about a chat; presence is about a person.
 *
 * Of "invitations", `chatId` is the chat that the person was invited to, or no longer is. "log": what this
 * device read of the chat is not what the log holds (`ChatModel.logDifference`), so it is read again.
 */
export interface Update {
  readonly type: "update";
  readonly what: What;
  readonly chatId?: string;
  readonly userId?: string;
}

export type ClientEvent =
  | { readonly type: "stored"; readonly key: MessageKey; readonly ack: Ack }
  /** Refused for good. After `store_damaged` the message is kept, and sent with the next connection. */
  | {
      readonly type: "refused";
      readonly key: MessageKey;
      readonly refusal: Refusal;
      readonly isKept: boolean;
    }
  /** These messages are in the store and survive this page. */
  | { readonly type: "saved"; readonly keys: readonly MessageKey[] }
  /** The shell must look for an old message in the log before it is resent. */
  | { readonly type: "check"; readonly message: OutgoingMessage }
  /** A chat has entries to take, or reading it has ended. */
  | { readonly type: "entries"; readonly chatId: string }
  /** A read mark has taken effect, or was refused for good. */
  | { readonly type: "readMarkDone"; readonly number: number; readonly refusal?: Refusal }
  /** The client knows every change of the person's chats up to the request of this round. */
  | { readonly type: "overviewComplete"; readonly round: number }
  /** The shell must load a snapshot of an open chat. */
  | { readonly type: "loadChat"; readonly chatId: string }
  /** A chat is open, or cannot be opened. */
  | { readonly type: "chatOpened"; readonly chatId: string; readonly refusal?: Refusal }
  /** The server refused a request whose outcome no caller waits for. */
  | { readonly type: "requestFailed"; readonly refusal: Refusal }
  | Update;
