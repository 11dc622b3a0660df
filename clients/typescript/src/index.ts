/** The client of a Parley server. `connect` is the way in. */

export { type LoginOptions, login, register, resetPassword } from "./accounts.js";
export { Chat, type Draft, type DraftFile, type SendOptions } from "./chat.js";
export {
  Client,
  type ClientListener,
  type ConnectOptions,
  connect,
  memory,
  type StorageKind,
  type StoreFactory,
} from "./client.js";
export { type Codec, json } from "./codec.js";
export type * from "./contract.js";
export {
  BadToken,
  CannotConnect,
  ClientError,
  Closed,
  OutboxFull,
  ReadElsewhere,
  type Refusal,
  RequestRefused,
  StoreUnusable,
} from "./core/errors.js";
export type { Update, What } from "./core/events.js";
export type { JournalStep } from "./core/journal.js";
export type { MessageState, ReactionCount } from "./core/life.js";
export type { LogDifference, ProofState } from "./core/logProof.js";
export type { Member } from "./core/members.js";
export type { MessageReceipts } from "./core/receipts.js";
export type { Timing } from "./core/timing.js";
export type { Answer, Http, Route } from "./http.js";
export type { MessageStatus, Sending } from "./sending.js";
export { indexedDb } from "./storage/indexedDb.js";
export type { TokenFunction } from "./tokens.js";
export type { ChatWindow, WindowOptions } from "./window.js";
