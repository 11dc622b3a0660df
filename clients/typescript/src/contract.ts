// Written by `make docs` from the contract in src/parley: change it there.

export * as CLOSE_CODES from "./closeCodes.js";
export * as LIMITS from "./limits.js";

export const JSON_PROTOCOL = "parley.v1";
export const MSGPACK_PROTOCOL = "parley.v1.msgpack";

/** Why something was refused. A newer server may have more. */
export type RefusalCode =
  | "bad_request"
  | "unknown_type"
  | "unauthenticated"
  | "forbidden"
  | "password_needed"
  | "not_a_member"
  | "blocked"
  | "account_disabled"
  | "user_deleted"
  | "last_operator"
  | "message_deleted"
  | "edit_window_over"
  | "too_many_reactions"
  | "announcement_only"
  | "slow_mode"
  | "under_hold"
  | "attachment_used"
  | "not_uploaded"
  | "checksum_mismatch"
  | "quota_exceeded"
  | "wrong_range"
  | "not_found"
  | "link_used"
  | "link_expired"
  | "link_revoked"
  | "already_resolved"
  | "duplicate_id"
  | "username_taken"
  | "idempotency_conflict"
  | "preview_outdated"
  | "out_of_turn"
  | "ahead_of_log"
  | "too_large"
  | "request_timeout"
  | "unsupported_media_type"
  | "rate_limited"
  | "counter_missing"
  | "counter_inconsistent"
  | "store_unavailable"
  | "store_damaged"
  | "outcome_unknown"
  | "service_unavailable"
  | "shutting_down"
  | "keys_unavailable"
  | "search_off"
  | "search_behind"
  | "node_silent"
  | "busy"
  | "too_many_connections"
  | "internal"
  | "method_not_allowed";

/** What an account may do. See docs/accounts.md. */
export type AccountState = "active" | "disabled" | "deleted";

export type ChatType = "direct" | "group";

/** How far a message has come: stored, received by every member, or read. */
export type DeliveryStatus = "sent" | "delivered" | "read";

/** Entries of chats, then what is in no chat's log. */
export type EventName =
  | "message.created"
  | "message.edited"
  | "message.deleted"
  | "message.reacted"
  | "member.changed"
  | "chat.changed"
  | "receipt.delivered"
  | "receipt.read"
  | "account.created"
  | "account.enabled"
  | "account.disabled"
  | "account.deleted";

/** How notifications of a chat's messages are fanned out. See docs/push.md. */
export type Fanout = "write" | "hybrid" | "read";

/** `lease_lost`: another node may have it now, so the run was stopped; that is no failure. */
export type JobOutcome = "ok" | "failed" | "timed_out" | "lease_lost";

/** `node`: every node runs it. `cluster`: one node at a time, by a lease. */
export type JobScope = "node" | "cluster";

/** Which messages of a chat notify a member: all, those that mention them, or none. */
export type Notify = "all" | "mentions" | "none";

/** Whom a person means in a setting: who may see them online, who may add them to chats. */
export type Privacy = "everyone" | "contacts" | "nobody";

/** What members of a chat see of its readers: each by name, whether there is one, or nothing. */
export type ReadReceipts = "full" | "simple" | "none";

/** Whether operators have dealt with a report. */
export type ReportStatus = "open" | "resolved";

export type Role = "owner" | "admin" | "member";

/** What an API token may be used for. */
export type Scope = "send" | "read" | "admin";

/** What may happen to a message, in the order in which it is told if the times are the same. */
export type StepName =
  | "accepted"
  | "stored"
  | "published"
  | "routed"
  | "sent"
  | "acknowledged"
  | "read"
  | "pushed"
  | "push_refused"
  | "retried"
  | "dead_lettered"
  | "replayed"
  | "discarded"
  | "skipped";

/** Say who this is: the first frame of a connection. */
export interface Hello {
  readonly type: "hello";
  readonly id?: number | null;
  readonly token: string;
  readonly device_id: string;
  readonly live?: boolean;
}

/** Another token of the same person, for the rest of the connection. */
export interface Refresh {
  readonly type: "refresh";
  readonly id?: number | null;
  readonly token: string;
}

/** Add a message to the log of a chat. Its answer comes once the message is durable. */
export interface SendMessage {
  readonly type: "send_message";
  readonly id?: number | null;
  readonly chat_id: string;
  readonly client_message_id: string;
  readonly content: string;
  readonly content_type?: string;
  readonly display_time?: string | null;
  readonly after_client_message_id?: string | null;
  readonly mentions?: readonly string[];
  readonly reply_to?: string | null;
  readonly attachments?: readonly string[];
}

/** Give a message of one's own another content. */
export interface EditMessage {
  readonly type: "edit_message";
  readonly id?: number | null;
  readonly chat_id: string;
  readonly client_message_id: string;
  readonly message_id: string;
  readonly content: string;
}

/** Remove the content of a message for good. */
export interface DeleteMessage {
  readonly type: "delete_message";
  readonly id?: number | null;
  readonly chat_id: string;
  readonly client_message_id: string;
  readonly message_id: string;
}

/** Add a reaction to a message, or take one's own back. */
export interface React {
  readonly type: "react";
  readonly id?: number | null;
  readonly chat_id: string;
  readonly client_message_id: string;
  readonly message_id: string;
  readonly reaction: string;
  readonly on?: boolean;
}

/** Ask for the entries of a chat after a position. */
export interface SyncRequest {
  readonly type: "sync_request";
  readonly id?: number | null;
  readonly chat_id: string;
  readonly last_acked_sequence: number;
  readonly epoch?: number | null;
  readonly last_message_id?: string | null;
  readonly limit?: number;
}

/** Ask for the entries after a message, in its chat. */
export interface Sync {
  readonly type: "sync";
  readonly id?: number | null;
  readonly last_message_id: string;
  readonly limit?: number;
}

/** Ask which of your chats changed. `brief`: positions alone, without titles, last entries and people. */
export interface SyncOverview {
  readonly type: "sync_overview";
  readonly id?: number | null;
  readonly changed_since?: string | null;
  readonly limit?: number;
  readonly brief?: boolean;
}

/** This device has every entry up to this position. */
export interface AckPosition {
  readonly type: "ack";
  readonly id?: number | null;
  readonly chat_id: string;
  readonly last_acked_sequence: number;
}

/**
 * This device has this message. `delivered_at` is checked and not stored: others see when the server received
 * it.
 */
export interface DeliveryReceipt {
  readonly type: "delivery_receipt";
  readonly id?: number | null;
  readonly chat_id: string;
  readonly message_id: string;
  readonly delivered_at?: string | null;
}

/**
 * The person has read the chat up to this position. `read_at` is checked and not stored: others see when the
 * server received it.
 */
export interface ReadReceipt {
  readonly type: "read_receipt";
  readonly id?: number | null;
  readonly chat_id: string;
  readonly read_up_to: string | number;
  readonly read_at?: string | null;
}

/** The person types in this chat. */
export interface TypingStart {
  readonly type: "typing_start";
  readonly id?: number | null;
  readonly chat_id: string;
}

/** The person has stopped typing in this chat. */
export interface TypingStop {
  readonly type: "typing_stop";
  readonly id?: number | null;
  readonly chat_id: string;
}

/** Whether somebody looks at this client. After two minutes of not, it keeps no notification back. */
export interface Attention {
  readonly type: "attention";
  readonly id?: number | null;
  readonly looking: boolean;
}

/** The people whose presence this connection gets from now on; it replaces an earlier subscription. */
export interface PresenceSubscribe {
  readonly type: "presence_subscribe";
  readonly id?: number | null;
  readonly user_ids: readonly string[];
}

/** Ask whether these people are online, once. */
export interface PresenceQuery {
  readonly type: "presence_query";
  readonly id?: number | null;
  readonly user_ids: readonly string[];
}

/** The client is there. A connection that sends nothing for too long is closed. */
export interface Heartbeat {
  readonly type: "heartbeat";
  readonly id?: number | null;
}

/** What a client says on a WebSocket. */
export type ClientFrame =
  | Hello
  | Refresh
  | SendMessage
  | EditMessage
  | DeleteMessage
  | React
  | SyncRequest
  | Sync
  | SyncOverview
  | AckPosition
  | DeliveryReceipt
  | ReadReceipt
  | TypingStart
  | TypingStop
  | Attention
  | PresenceSubscribe
  | PresenceQuery
  | Heartbeat;

/** The connection is open: the answer to `hello` and to `refresh`. */
export interface Welcome {
  readonly type: "welcome";
  readonly re?: number;
  readonly user_id: string;
  readonly device_id: string;
  readonly session_id: string;
  readonly server_time: string;
  readonly heartbeat_seconds: number;
  readonly limits: Readonly<Record<string, number>>;
}

/** The answer to `send_message`. */
export interface Ack {
  readonly type: "ack";
  readonly re?: number;
  readonly chat_id: string;
  readonly client_message_id: string;
  readonly message_id: string;
  readonly sequence: number;
  readonly epoch: number;
  readonly created_at: string;
  readonly deduplicated: boolean;
  readonly conflict: boolean;
}

/** The answer to `sync_request` and `sync`. */
export interface MessageBatch {
  readonly type: "message_batch";
  readonly re?: number;
  readonly chat_id: string;
  readonly epoch: number;
  readonly entries: readonly Entry[];
  readonly voids: readonly number[];
  readonly from_sequence: number;
  readonly to_sequence: number;
  readonly head: number;
  readonly complete: boolean;
  readonly reset: boolean;
  readonly log_hash?: string;
}

/** Which chats changed: the answer to `sync_overview`. */
export interface Overview {
  readonly type: "overview";
  readonly re?: number;
  readonly chats: readonly OverviewChat[];
  readonly token: string;
  readonly complete: boolean;
}

/** The answer to `heartbeat`. */
export interface HeartbeatAck {
  readonly type: "heartbeat_ack";
  readonly re?: number;
  readonly server_time: string;
  readonly heads?: Readonly<Record<string, number>>;
}

/** Live: all entries of one chat that became durable together. */
export interface Messages {
  readonly type: "messages";
  readonly re?: number;
  readonly chat_id: string;
  readonly epoch: number;
  readonly entries: readonly Entry[];
  readonly voids?: readonly number[];
}

/** A chat was joined, left or renamed, or a role in it changed. */
export interface ChatChanged {
  readonly type: "chat_changed";
  readonly re?: number;
  readonly chat_id: string;
  readonly change: string;
  readonly user_id?: string;
  readonly role?: string;
  readonly title?: string;
  readonly head?: number;
  readonly epoch?: number;
  readonly read_receipts?: string;
  readonly muted_until?: string | null;
  readonly announcement_only?: boolean;
  readonly slow_mode_seconds?: number;
}

/** You were invited to a chat; accept or decline it over HTTP. */
export interface InvitationFrame {
  readonly type: "invitation";
  readonly re?: number;
  readonly chat_id: string;
  readonly title: string | null;
  readonly by: string;
  readonly role: string;
  readonly invited_at: string;
  readonly expires_at: string;
}

/** An invitation was declined or withdrawn, or made room for newer ones. A join is not told so. */
export interface InvitationEnded {
  readonly type: "invitation_ended";
  readonly re?: number;
  readonly chat_id: string;
}

/** How far a member has received or read; null: a member has read, in a chat that does not say who. */
export interface ReceiptFrame {
  readonly type: "receipt";
  readonly re?: number;
  readonly chat_id: string;
  readonly user_id: string | null;
  readonly kind: "delivered" | "read";
  readonly up_to_sequence: number;
  readonly at: string;
}

/** A member is typing. Show it for at most this long; 0 hides it. */
export interface Typing {
  readonly type: "typing";
  readonly re?: number;
  readonly chat_id: string;
  readonly user_id: string;
  readonly expires_in_ms: number;
}

/** The answer to `presence_subscribe` and `presence_query`. */
export interface PresenceState {
  readonly type: "presence_state";
  readonly re?: number;
  readonly presences: readonly PresenceView[];
}

/** A person came online or went offline. */
export interface PresenceChanged {
  readonly type: "presence";
  readonly re?: number;
  readonly user_id: string;
  readonly status: "offline" | "online";
  readonly last_seen: string | null;
}

/** The request that `re` names was not done. */
export interface RefusedFrame {
  readonly type: "refused";
  readonly re: number | null;
  readonly code: string;
  readonly reason: string;
  readonly temporary: boolean;
  readonly retry_after_ms?: number;
}

/** What the server says on a WebSocket. */
export type ServerFrame =
  | Welcome
  | Ack
  | MessageBatch
  | Overview
  | HeartbeatAck
  | Messages
  | ChatChanged
  | InvitationFrame
  | InvitationEnded
  | ReceiptFrame
  | Typing
  | PresenceState
  | PresenceChanged
  | RefusedFrame;

/** What to change in a chat. `muted_until` and `notify` are settings of yours alone. */
export interface ChatChange {
  /** 1 to 200 characters; null in a direct chat. */
  readonly title?: string | null;
  /** What the chat tells of who has read: each member, whether anyone has, or nothing. */
  readonly read_receipts?: ReadReceipts | null;
  /** Mute the chat until this time; null to unmute it. */
  readonly muted_until?: string | null;
  /** Which messages of the chat notify you. */
  readonly notify?: Notify | null;
  /** Whether only owners and admins post. */
  readonly announcement_only?: boolean | null;
  /** How long a member waits between two messages; 0: not at all. */
  readonly slow_mode_seconds?: number | null;
  /** The same; null: as long as the server allows. */
  readonly edit_window_seconds?: number | null;
}

/** All that are given must hold. */
export interface DeadLetterFilter {
  /** What became of it. */
  readonly status?: "pending" | "permanently_failed" | "replayed" | null;
  /** A stable word for why it failed. */
  readonly error?: string | null;
  /** The queue that it comes from. */
  readonly topic?: string | null;
  /** The chat. */
  readonly chat_id?: string | null;
  /** Whom it was for: a webhook. */
  readonly recipient?: string | null;
  /** Became a dead letter at this time or later. */
  readonly after?: string | null;
  /** Became a dead letter before this time. */
  readonly before?: string | null;
}

/** Why an operator deletes something, for the audit log. */
export interface DeletionReason {
  /** Why, for the audit log; 1 to 1,000 characters. */
  readonly reason: string;
}

/** Which dead letters to give up, and why. */
export interface DiscardOrder {
  /** Why, for the record; 1 to 200 characters. */
  readonly reason: string;
  /** Exactly these. */
  readonly ids?: readonly string[] | null;
  /** All that match; instead of `ids`. */
  readonly filter?: DeadLetterFilter | null;
  /** Only say how many match. */
  readonly dry_run?: boolean;
  /** Of a preview; instead of `ids` and `filter`. */
  readonly token?: string | null;
}

/** What your system says of a person; what is left out stays as it is. A username cannot be changed. */
export interface ExternalUser {
  /** 1 to 64 of `a-z 0-9 . _ -`, with a letter or a digit. */
  readonly username?: string | null;
  /** What people call the person; 1 to 200 characters. */
  readonly display_name?: string | null;
  /** A few words of the person; at most 1,000 characters. */
  readonly about?: string | null;
  /** Whether this is a program: it has no unread count, and nothing notifies it. */
  readonly is_bot?: boolean | null;
}

/** What operators change of a chat. `fanout`: how its notifications are fanned out; null: by its size. */
export interface FanoutChange {
  /** The strategy; null: by the size of the chat. */
  readonly fanout?: Fanout | null;
  /** A new title of a group. */
  readonly title?: string;
}

/** What to post to the chat of an incoming webhook. */
export interface HookMessage {
  /** What to post; at most 64 KiB in UTF-8. */
  readonly text: string;
}

/** The new role of a member. */
export interface MemberChange {
  /** An owner may do anything, an admin may add, remove members and rename. */
  readonly role: Role;
}

/** What a person should be in a chat. */
export interface MemberPut {
  /** An owner may do anything, an admin may add, remove members and rename. */
  readonly role?: Role;
}

/** Messages of one chat to look up. */
export interface MessageLookup {
  /** 1 to 100 ids of messages. */
  readonly message_ids: readonly string[];
}

/** A message to send for a member of the chat. */
export interface MessageOnBehalf {
  /** Who sent the message or made the change. */
  readonly sender_id: string;
  /** At most 64 KiB in UTF-8. */
  readonly content: string;
  /** A UUIDv4 for each message; or give an `Idempotency-Key`. */
  readonly client_message_id?: string;
  /** A media type; the server does not look into the content. */
  readonly content_type?: string;
  /** When the message was written, by the client's clock; orders nothing. */
  readonly display_time?: string | null;
  /** Up to 100 user ids: whom the message mentions. */
  readonly mentions?: readonly string[];
}

/** An account to create. `invite`: the token of an invitation link, where one is needed. */
export interface NewAccount {
  /** 1 to 64 of `a-z 0-9 . _ -`, with a letter or a digit. */
  readonly username: string;
  /** At most 1,024 characters; the server may ask for more than 1. */
  readonly password: string;
  /** The token of an invitation link; empty without one. */
  readonly invite?: string;
}

/** A token for a program. It acts for `user_id`, or for you. With `chat_id` it is for that chat alone. */
export interface NewApiToken {
  /** What it is for; 1 to 64 characters. */
  readonly name: string;
  /** What it may do: `send`, `read`, `admin`. */
  readonly scopes?: readonly Scope[];
  /** Whose account it acts for; yours if it is left out. */
  readonly user_id?: string;
  /** The only chat that it is for; any without it. */
  readonly chat_id?: string;
  /** When it ends; never without it. */
  readonly expires_in_days?: number | null;
}

/** A file that is going to be uploaded. `sha256`: of its bytes, in hexadecimal digits, to be compared. */
export interface NewAttachment {
  /** What it is called. */
  readonly name: string;
  /** Its size in bytes: exactly so many must be uploaded. */
  readonly size: number;
  /** What it is. */
  readonly content_type?: string;
  /** The digest of its bytes, in hexadecimal digits. */
  readonly sha256?: string;
}

/** A chat to create. You are its owner, whether `member_ids` names you or not. */
export interface NewChat {
  /** A direct chat has two people and no title. */
  readonly type: ChatType;
  /** The other members. */
  readonly member_ids: readonly string[];
  /** 1 to 200 characters; null in a direct chat. */
  readonly title?: string | null;
  /** Whether people may join the group by themselves. */
  readonly open_to_join?: boolean;
}

/** A chat to create for others. `owner_id`: who owns it; the first of `member_ids` if it is left out. */
export interface NewChatOfOthers {
  /** A direct chat has two people and no title. */
  readonly type: ChatType;
  /** Everybody in it. */
  readonly member_ids: readonly string[];
  /** 1 to 200 characters; null in a direct chat. */
  readonly title?: string | null;
  /** Who owns the chat; the first of `member_ids` without it. */
  readonly owner_id?: string;
  /** Whether people may join the group by themselves. */
  readonly open_to_join?: boolean;
}

/** A link to make: how many people may register by it, and for how long it works (7 days). */
export interface NewInvite {
  /** How many people may use it. */
  readonly uses?: number;
  /** For how long it works; 7 days if it is null. */
  readonly expires_in_seconds?: number | null;
  /** For operators. */
  readonly note?: string;
}

/** The person to add, or several in `user_ids`. */
export interface NewMember {
  /** The person to add; yourself to join. */
  readonly user_id?: string;
  /** Several people to add, instead of `user_id`. */
  readonly user_ids?: readonly string[];
  /** An owner may do anything, an admin may add, remove members and rename. */
  readonly role?: Role;
}

/** A message to send. Sent again with the same `client_message_id`, it is stored once. */
export interface NewMessage {
  /** A UUIDv4 that the client makes for each message. */
  readonly client_message_id?: string;
  /** At most 64 KiB in UTF-8. */
  readonly content: string;
  /** A media type; the server does not look into the content. */
  readonly content_type?: string;
  /** When the message was written, by the client's clock; orders nothing. */
  readonly display_time?: string | null;
  /** Store the message only after this earlier one of yours. */
  readonly after_client_message_id?: string | null;
  /** Up to 100 user ids: whom the message mentions. */
  readonly mentions?: readonly string[];
  /** The id of the message of this chat that it answers; left out if none. */
  readonly reply_to?: string | null;
  /** Up to 10 files of yours, by their ids. */
  readonly attachments?: readonly string[];
}

/** A person signs in on a page. `read_only`: from this session of the console nothing can be changed. */
export interface NewPageSession {
  /** 1 to 64 of `a-z 0-9 . _ -`, with a letter or a digit. */
  readonly username: string;
  /** At most 1,024 characters; the server may ask for more than 1. */
  readonly password: string;
  /** A name that the client gives the device and keeps; 1 to 64 characters. */
  readonly device_id: string;
  /** What people call the device; at most 200 characters. */
  readonly device_name?: string;
  /** Whether nothing can be changed from this session of the console. */
  readonly read_only?: boolean;
}

/** A change of your password. */
export interface NewPassword {
  /** The password until now. */
  readonly old_password: string;
  /** At most 1,024 characters. */
  readonly new_password: string;
}

/** A link to make: for how long it works (a day). */
export interface NewPasswordLink {
  /** For how long it works; a day if it is null. */
  readonly expires_in_seconds?: number | null;
}

/**
 * How a device is notified: by its `token`, or in browsers by its `subscription`. The `token` of a webhook is
 * its URL. Without `preview` a notification says only that there is a message.
 */
export interface NewPushDevice {
  /** Who brings the notification to the device. */
  readonly provider: "apns" | "fcm" | "webhook" | "webpush";
  /** The device's token; of a webhook its URL. Not for webpush. */
  readonly token?: string | null;
  /** Only for webpush: what the browser gave. */
  readonly subscription?: PushSubscription | null;
  /** Whether a notification shows what the message says, and who sent it. */
  readonly preview?: boolean;
}

/** The person to add to your contacts or blocks. */
export interface NewRelation {
  /** The person to add. */
  readonly user_id: string;
}

/** What is wrong with a message, for the operators. */
export interface NewReport {
  /** 1 to 1,000 characters, for the operators. */
  readonly reason: string;
}

/** A login on one device. */
export interface NewSession {
  /** 1 to 64 of `a-z 0-9 . _ -`, with a letter or a digit. */
  readonly username: string;
  /** At most 1,024 characters; the server may ask for more than 1. */
  readonly password: string;
  /** A name that the client gives the device and keeps; 1 to 64 characters. */
  readonly device_id: string;
  /** What people call the device; at most 200 characters. */
  readonly device_name?: string;
}

/** A token for a device of a person. It ends after so many seconds, or 30 days after its last use. */
export interface NewUserToken {
  /** A name that the client gives the device and keeps; 1 to 64 characters. */
  readonly device_id: string;
  /** What people call the device; at most 200 characters. */
  readonly device_name?: string;
  /** When it ends, less than 30 days; without it 30 days after the last use. */
  readonly expires_in_seconds?: number | null;
}

/** An address for events, of every chat or of one. */
export interface NewWebhook {
  /** https; plain http only in `webhooks.allowed_networks`. */
  readonly url: string;
  /** Which events to send. */
  readonly events: readonly EventName[];
  /** Only of this chat; of every chat without it. */
  readonly chat_id?: string | null;
}

/** Your password, if you have one here. */
export interface OwnDeletion {
  /** Yours; empty if you have none here. */
  readonly password?: string;
}

/**
 * A page asks for the next token. `key`: what the sign-in to the console answered. `active`: whether a person
 * was at the page since the last time. `password`: yours, where something asks for it again.
 */
export interface PageRefresh {
  /** What the sign-in to the console answered; empty for the chat. */
  readonly key?: string;
  /** Whether a person was at the page since the last time. */
  readonly active?: boolean;
  /** Yours, where something asks for it again; empty otherwise. */
  readonly password?: string;
}

/** The token of a link, and the password to set by it. */
export interface PasswordByLink {
  /** What the link carries. */
  readonly token: string;
  /** At most 1,024 characters. */
  readonly new_password: string;
}

/** A new password that an operator sets. */
export interface PasswordReset {
  /** At most 1,024 characters; the server may ask for more than 1. */
  readonly password: string;
}

/** Which dead letters to look at: by id, or by a filter. */
export interface PreviewOrder {
  /** Exactly these. */
  readonly ids?: readonly string[] | null;
  /** All that match; instead of `ids`. */
  readonly filter?: DeadLetterFilter | null;
}

/**
 * What to change in your profile and settings; a field that is null or left out stays as it is.
 * `do_not_disturb` alone: null ends it.
 */
export interface ProfileChange {
  /** What people call the person; 1 to 200 characters. */
  readonly display_name?: string | null;
  /** A few words of the person; at most 1,000 characters. */
  readonly about?: string | null;
  /** Who may see when you were last online. */
  readonly last_seen_privacy?: Privacy | null;
  /** Whether others see what you have read; without it you see none. */
  readonly send_read_receipts?: boolean | null;
  /** Who may add you to chats; others can invite you. */
  readonly who_may_add?: Privacy | null;
  /** When nothing notifies you; null: at no time. */
  readonly do_not_disturb?: QuietHoursChange | null;
}

/** Of a browser's subscription, in base64url. */
export interface PushKeys {
  /** Its public key. */
  readonly p256dh: string;
  /** Its secret. */
  readonly auth: string;
}

/** What `PushManager.subscribe` gives in a browser, as JSON. */
export interface PushSubscription {
  /** Where the push service takes messages for this browser. */
  readonly endpoint: string;
  /** What messages for this browser are encrypted with. */
  readonly keys: PushKeys;
  /** When the browser ends it; Parley goes by what the push service answers. */
  readonly expirationTime?: number | null;
}

/** When you want no notification: from one time of day (HH:MM) to another, in a time zone by its name. */
export interface QuietHoursChange {
  /** The first minute of it, as HH:MM. */
  readonly from: string;
  /** The first minute after it, as HH:MM. */
  readonly to: string;
  /** Where you live, by the name in the database of time zones. */
  readonly timezone: string;
}

/** Restore a lost counter. `seal_holes`: numbers whose entry is lost become voids, too. */
export interface RecoveryOrder {
  /** Only say what would be written; the default. */
  readonly dry_run?: boolean;
  /** Whether numbers whose entry is lost become voids, too. */
  readonly seal_holes?: boolean;
}

/** Which dead letters to replay: by id, by a filter, or by the token of a preview. */
export interface ReplayOrder {
  /** Exactly these. */
  readonly ids?: readonly string[] | null;
  /** All that match; instead of `ids`. */
  readonly filter?: DeadLetterFilter | null;
  /** Only say how many match. */
  readonly dry_run?: boolean;
  /** Of a preview; instead of `ids` and `filter`. */
  readonly token?: string | null;
}

/** What to do about a report. Without an `outcome` it stays open. */
export interface ReportAction {
  /** Why, for the audit log. */
  readonly reason: string;
  /** What came of it; the report stays open without it. */
  readonly outcome?: string | null;
  /** For operators. */
  readonly note?: string;
  /** Whether the message is deleted. */
  readonly delete_message?: boolean;
  /** Whether its sender is taken out of the chat. */
  readonly remove_sender?: boolean;
  /** Whether its sender's account is disabled. */
  readonly disable_sender?: boolean;
}

/** What came of a report, in a word or two such as `dismissed`, and what other operators should know. */
export interface ReportResolution {
  /** What came of it, in a word or two. */
  readonly outcome: string;
  /** For operators. */
  readonly note?: string;
}

/**
 * How long the bodies of a chat are kept. `days`: null for the server's own, 0 for ever. `is_held`: under a
 * legal hold nothing of the chat is removed.
 */
export interface RetentionChange {
  /** How many days; null: as the server keeps others; 0: for ever. */
  readonly days?: number | null;
  /** Whether a legal hold keeps everything. */
  readonly is_held?: boolean;
}

/** Pause a webhook, or let it go on. */
export interface WebhookChange {
  /** Whether nothing is sent to it. */
  readonly paused: boolean;
}

/** An account that was created. */
export interface Account {
  /** The person. */
  readonly user_id: string;
  /** 1 to 64 of `a-z 0-9 . _ -`, with a letter or a digit. */
  readonly username: string;
}

/** What is known of a token; the token itself is not. */
export interface ApiTokenInfo {
  /** The token's id, which is no secret. */
  readonly token_id: string;
  /** What it is for. */
  readonly name: string;
  /** The person. */
  readonly user_id: string;
  /** What it may do: `send`, `read`, `admin`. */
  readonly scopes: readonly Scope[];
  /** When, by the server's clock. */
  readonly created_at: string;
  /** When it was last used, to a minute; null if never. */
  readonly last_used_at: string | null;
  /** When it ends; null for never. */
  readonly expires_at: string | null;
  /** The only chat that it is for; left out if there is none. */
  readonly chat_id?: string;
  /** Who made it, as `actor` of a record; null if not known. */
  readonly created_by: string | null;
}

/** Every API token, the oldest first. */
export interface ApiTokenList {
  /** The tokens of programs. */
  readonly tokens: readonly ApiTokenInfo[];
}

/** A new token, shown this once. */
export interface ApiTokenMade {
  /** The token's id, which is no secret. */
  readonly token_id: string;
  /** What it is for. */
  readonly name: string;
  /** The person. */
  readonly user_id: string;
  /** What it may do: `send`, `read`, `admin`. */
  readonly scopes: readonly Scope[];
  /** When, by the server's clock. */
  readonly created_at: string;
  /** When it was last used; null. */
  readonly last_used_at: string | null;
  /** When it ends; null for never. */
  readonly expires_at: string | null;
  /** The only chat that it is for; left out if there is none. */
  readonly chat_id?: string;
  /** Who made it: you. */
  readonly created_by: string | null;
  /** The token, shown this once. */
  readonly token: string;
}

/** Where a change of a chat is in its log. */
export interface AppendedChange {
  /** The chat. */
  readonly chat_id: string;
  /** The position in the chat's log. */
  readonly sequence: number;
  /** The entry's id. */
  readonly message_id: string;
  /** The person. */
  readonly user_id?: string;
}

/**
 * A file that a message refers to. `sha256`: of its bytes, in hexadecimal digits. Images that the server
 * could read have `width`, `height` and a small `preview` as a `data:` URL.
 */
export interface AttachedFile {
  /** The file. */
  readonly attachment_id: string;
  /** What it is called, without anything that is no part of a name. */
  readonly name: string;
  /** Its size in bytes. */
  readonly size: number;
  /** As announced; `application/octet-stream` if it is not what was announced. */
  readonly content_type: string;
  /** The digest of its bytes, in hexadecimal digits. */
  readonly sha256: string;
  /** In pixels, of an image that the server could read. */
  readonly width?: number;
  /** In pixels, of an image that the server could read. */
  readonly height?: number;
  /** A small image, as a `data:` URL. */
  readonly preview?: string;
}

/** A file. With all its bytes it has `attachment` and `url`; before that, for its owner, `upload`. */
export interface AttachmentInfo {
  /** The file. */
  readonly attachment_id: string;
  /** `attached`: a message refers to it. */
  readonly status: "attached" | "complete" | "uploading";
  /** The file, once all of it is stored. */
  readonly attachment?: AttachedFile;
  /** Where its bytes are, for whoever has the address. */
  readonly url?: string;
  /** Until when `url` is valid. */
  readonly expires_at?: string;
  /** How the upload goes on. */
  readonly upload?: AttachmentUpload;
  /** Of an image, addresses of smaller pictures by their longer side in pixels; the same for a day. */
  readonly pictures?: Readonly<Record<string, string>>;
}

/** How far an upload is, and where it goes on: send the bytes from `received` on to `upload_url`. */
export interface AttachmentUpload {
  /** The file. */
  readonly attachment_id: string;
  /** Where its bytes go, for whoever has the address. */
  readonly upload_url: string;
  /** Until when the upload may go on. */
  readonly expires_at: string;
  /** A range ends at a multiple of this, or with the file. */
  readonly part_bytes: number;
  /** So many bytes are stored; the next range starts there. */
  readonly received: number;
}

/** A page of what operators did, newest first; `next` is the `before` of the next page. */
export interface AuditList {
  /** Newest first. */
  readonly records: readonly AuditRecord[];
  /** The `before` of the next page; null on the last one. */
  readonly next: string | null;
}

/**
 * One action of an operator. It is written before the action begins, and again with the outcome. `actor`: the
 * operator's user id, or `cli:` and the name of the user of the operating system. `outcome`: `begun`, `done`,
 * or the code of the refusal. `begun` stays where the server died or lost the store. `token_id`: the API
 * token that it was done with, or the session; `token_name`: its name, or the device's.
 */
export interface AuditRecord {
  /** The record. */
  readonly audit_id: string;
  /** When the action began. */
  readonly at: string;
  /** The operator's user id, or `cli:` and a user of the operating system. */
  readonly actor: string;
  /** What was done. */
  readonly action: string;
  /** To whom. */
  readonly target_id: string;
  /** The request; empty for a command. */
  readonly request_id: string;
  /** What else there is to know, such as a session. */
  readonly detail: string;
  /** `begun`, `done`, or the code of the refusal. */
  readonly outcome: string;
  /** The API token, or the session; empty for a command. */
  readonly token_id: string;
  /** The API token's name, or the session's device. */
  readonly token_name: string;
}

/** A backup of this server, as its manifest says. `based_on`: the one whose parts it shares. */
export interface BackupInfo {
  /** The backup; it sorts by time. */
  readonly backup_id: string;
  /** When it was made. */
  readonly made_at: string;
  /** The version of Parley that made it. */
  readonly version: string;
  /** How many chats are in it. */
  readonly chats: number;
  /** How many accounts are in it. */
  readonly people: number;
  /** How many entries are in it. */
  readonly entries: number;
  /** How many files are in it. */
  readonly files: number;
  /** Files that the store knows, and whose bytes the backup has not. */
  readonly files_lacking: number;
  /** What it takes, parts that it shares with others included. */
  readonly size_bytes: number;
  /** The backup whose parts it shares; null without one. */
  readonly based_on: string | null;
}

/** The backups at `backup.target`, the newest first. `target` is null where none is set. */
export interface BackupList {
  /** `backup.target`; null where none is set. */
  readonly target: string | null;
  /** The newest first. */
  readonly backups: readonly BackupInfo[];
  /** What is wrong with those that cannot be read. */
  readonly damaged: readonly string[];
}

/**
 * A page of a chat's log: every number in from_sequence..to_sequence is an entry or in `voids`. The server
 * embeds entries as they are stored (`Raw`); the SDK reads them over HTTP as `Entry`. `log_hash` is the hash
 * of the log up to `to_sequence`; left out while the server does not have it.
 */
export interface Batch {
  /** The chat. */
  readonly chat_id: string;
  /** Rises when the log is another one, as after a restored backup. */
  readonly epoch: number;
  /** Ascending by position. */
  readonly entries: readonly ShownEntry[];
  /** Positions that have no entry and never will. */
  readonly voids: readonly number[];
  /** The first position of the page. */
  readonly from_sequence: number;
  /** The last position of the page. */
  readonly to_sequence: number;
  /** The position of the last entry; 0 in an empty log. */
  readonly head: number;
  /** Whether nothing follows now. */
  readonly complete: boolean;
  /** Whether the log is another one than the client knew: it starts anew. */
  readonly reset: boolean;
  /** The hash of the log up to `to_sequence`; left out while it is not known. */
  readonly log_hash?: string;
}

/** A page of the people you have blocked; `next_after` as for contacts. */
export interface BlockList {
  /** The people you have blocked. */
  readonly blocks: readonly Related[];
  /** The `after` of the next page; null on the last one. */
  readonly next_after: string | null;
}

/** What a check of a chat has read and found; `invariants` counts the breaches of each. */
export interface ChatCheck {
  /** The chat. */
  readonly chat_id: string;
  /** Whether every invariant holds. */
  readonly ok: boolean;
  /** How many entries were read. */
  readonly entries: number;
  /** How many positions have no entry and never will. */
  readonly voids: number;
  /** Numbers that were taken and are not resolved yet. */
  readonly open_allocations: number;
  /** How often each invariant is broken, by its name. */
  readonly invariants: Readonly<Record<string, number>>;
  /** The first 200 of what is wrong. */
  readonly breaches: readonly InvariantBreach[];
  /** How many more there are. */
  readonly breaches_not_listed: number;
}

/** A chat that a job deletes. */
export interface ChatDeletion {
  /** The chat. */
  readonly chat_id: string;
  /** The job that does it. */
  readonly job_id: string;
}

/** What was found in a chat, the newest first. `next`: the `before` of the next page; null at the end. */
export interface ChatHits {
  /** What was found, the newest first. */
  readonly hits: readonly SearchHit[];
  /** The `before` of the next page; null on the last one. */
  readonly next: number | null;
}

/** A chat as you see it: `role`, `muted`, `muted_until` and `notify` are yours. */
export interface ChatInfo {
  /** The chat. */
  readonly chat_id: string;
  /** A direct chat has two people and no title. */
  readonly type: ChatType;
  /** 1 to 200 characters; null in a direct chat. */
  readonly title: string | null;
  /** Who created the chat. */
  readonly created_by: string;
  /** When, by the server's clock. */
  readonly created_at: string;
  /** When the chat last changed. */
  readonly updated_at: string;
  /** Rises when the log is another one, as after a restored backup. */
  readonly epoch: number;
  /** The position of the last entry; 0 in an empty log. */
  readonly head: number;
  /** Your role. */
  readonly role: Role;
  /** How many members the chat has. */
  readonly member_count: number;
  /** Whether people may join the group by themselves. */
  readonly open_to_join: boolean;
  /** What the chat tells of who has read: each member, whether anyone has, or nothing. */
  readonly read_receipts: ReadReceipts;
  /** Whether you have muted the chat, now. */
  readonly muted: boolean;
  /** Until when you have muted the chat; null if you have not. */
  readonly muted_until: string | null;
  /** Which messages of the chat notify you. */
  readonly notify: Notify;
  /** Whether only owners and admins post. */
  readonly announcement_only: boolean;
  /** How long a member waits between two messages; 0: not at all. */
  readonly slow_mode_seconds: number;
  /** How long messages may be edited; 0: for ever. */
  readonly edit_window_seconds: number;
  /** Who was added. */
  readonly added?: readonly string[];
  /** Who may not be added and was invited. */
  readonly invited?: readonly string[];
}

/** A page of your chats; `token` is the next `changed_since`. */
export interface ChatList {
  /** The chats that changed, last changed first. */
  readonly chats: readonly OverviewChat[];
  /** The next `changed_since`. */
  readonly token: string;
  /** Whether nothing follows now. */
  readonly complete: boolean;
}

/**
 * How far each member has received and read; 0 where you may not see it. `read_by_anybody` is how far others
 * have read, in a chat that does not say who.
 */
export interface ChatMarks {
  /** The chat's `read_receipts`. */
  readonly mode: ReadReceipts;
  /** One for each member. */
  readonly marks: readonly MemberCursor[];
  /** How far others have read, in a chat that does not say who. */
  readonly read_by_anybody: number;
}

/** A chat that was created for others; `invited` are those who may not simply be added. */
export interface ChatOfOthers {
  /** The chat. */
  readonly chat_id: string;
  /** A direct chat has two people and no title. */
  readonly type: ChatType;
  /** 1 to 200 characters; null in a direct chat. */
  readonly title: string | null;
  /** Who created the chat. */
  readonly created_by: string;
  /** When, by the server's clock. */
  readonly created_at: string;
  /** Whether it is new. */
  readonly created: boolean;
  /** Who may not be added and was invited. */
  readonly invited: readonly string[];
}

/** A chat with its counters and its rules, as operators see it. */
export interface ChatOverview {
  /** The chat. */
  readonly chat_id: string;
  /** A direct chat has two people and no title. */
  readonly type: ChatType;
  /** 1 to 200 characters; null in a direct chat. */
  readonly title: string | null;
  /** How many members the chat has. */
  readonly member_count: number;
  /** How notifications of the chat are fanned out. */
  readonly fanout: Fanout;
  /** What an operator chose; null if the size decides. */
  readonly chosen: Fanout | null;
  /** The two people of a direct chat; empty in a group. */
  readonly people: readonly PersonOfChat[];
  /** Who created the chat. */
  readonly created_by: string;
  /** When, by the server's clock. */
  readonly created_at: string;
  /** When the last entry was stored; null in an empty log. */
  readonly last_at: string | null;
  /** Rises when the log is another one, as after a restored backup. */
  readonly epoch: number;
  /** The position of the last entry; 0 in an empty log. */
  readonly head: number;
  /** The last number that was taken; null while it is lost. */
  readonly counter: number | null;
  /** Numbers above the head that are taken, and not readable yet. */
  readonly open_allocations: number;
  /** How many of the first `counted_through` positions are void. */
  readonly voids: number;
  /** How far voids are counted: `head`, unless the log is long. */
  readonly counted_through: number;
  /** The share of voids in what was counted. */
  readonly gap_rate: number;
  /** Up to which position the hash of the log is stored. */
  readonly hash_upto: number;
  /** How many days bodies are kept; null: as the server keeps others; 0: for ever. */
  readonly retention: number | null;
  /** Whether a legal hold keeps everything. */
  readonly is_held: boolean;
  /** Whether people may join the group by themselves. */
  readonly open_to_join: boolean;
  /** What the chat tells of who has read: each member, whether anyone has, or nothing. */
  readonly read_receipts: ReadReceipts;
  /** Whether only owners and admins post. */
  readonly announcement_only: boolean;
  /** How long a member waits between two messages; 0: not at all. */
  readonly slow_mode_seconds: number;
  /** How long messages may be edited; 0: for ever. */
  readonly edit_window_seconds: number;
}

/** An open WebSocket of a node. `address`: the client's, as known proxies name it. */
export interface ConnectionInfo {
  /** The connection. */
  readonly connection_id: string;
  /** The person. */
  readonly user_id: string;
  /** A name that the client gives the device and keeps; 1 to 64 characters. */
  readonly device_id: string;
  /** The session. */
  readonly session_id: string;
  /** `json` or `msgpack`. */
  readonly codec: string;
  /** Whether it is sent new entries. */
  readonly live: boolean;
  /** In how many chats it hears. */
  readonly chats: number;
  /** When a frame of it came last. */
  readonly heard_from_at: string;
  /** What waits to be sent to it. */
  readonly waiting_bytes: number;
  /** When it was opened. */
  readonly since: string;
  /** The client's, as known proxies name it. */
  readonly address: string;
}

/** The connections of one node; `next` is the `after` of the next page, null on the last one. */
export interface ConnectionList {
  /** The node. */
  readonly node_id: string;
  /** Those of this page, by their ids. */
  readonly connections: readonly ConnectionInfo[];
  /** The `after` of the next page; null on the last one. */
  readonly next: string | null;
}

/** A page of your contacts; `next_after` is the `after` of the next page, null on the last one. */
export interface ContactList {
  /** Your contacts. */
  readonly contacts: readonly Related[];
  /** The `after` of the next page; null on the last one. */
  readonly next_after: string | null;
}

/** Something that happened to it. */
export interface DeadLetterEvent {
  /** When. */
  readonly at: string;
  /** `failed`, `dead_lettered`, `replay`, `replayed` or `discard`. */
  readonly action: string;
  /** The error of a failure; else empty. */
  readonly error: string;
  /** The same for people, or the reason of an operator. */
  readonly detail: string;
  /** The operator; empty for the server itself. */
  readonly actor: string;
}

/** How many have the same error. */
export interface DeadLetterGroup {
  /** A stable word for why it failed. */
  readonly error: string;
  /** How many. */
  readonly count: number;
}

/** How many became dead letters in an hour, and when that began. */
export interface DeadLetterHour {
  /** When the hour began. */
  readonly at: string;
  /** How many became dead letters in it. */
  readonly count: number;
}

/** A message that could not be delivered to one recipient. */
export interface DeadLetterInfo {
  /** The dead letter. */
  readonly dlq_id: string;
  /** What became of it. */
  readonly status: "pending" | "permanently_failed" | "replayed";
  /** The message. */
  readonly original_message: OriginalMessage;
  /** A stable word for why it failed. */
  readonly error: string;
  /** The same for people. */
  readonly error_detail: string;
  /** How many retries failed, since the last replay. */
  readonly retry_count: number;
  /** When it was first tried. */
  readonly first_attempt: string;
  /** When it was last tried. */
  readonly last_attempt: string;
  /** When it became a dead letter. */
  readonly dlq_timestamp: string;
  /** The queue that it comes from. */
  readonly source_topic: string;
  /** Always 0: a chat is its own queue. */
  readonly source_partition: number;
  /** The position in the chat's log. */
  readonly source_offset: number;
  /** The chat. */
  readonly chat_id: string;
  /** The position in the chat's log. */
  readonly sequence: number;
  /** Whether it waits for its replay. */
  readonly queued: boolean;
  /** The last job that chose it; empty for none. */
  readonly job_id: string;
}

/** What was begun; without a job in a dry run. */
export interface DeadLetterJob {
  /** How many match, and can still be replayed or discarded. */
  readonly matched: number;
  /** The job; null in a dry run. */
  readonly job_id: string | null;
}

/** A replay or a discard, and what has become of its dead letters. */
export interface DeadLetterJobInfo {
  /** The last job that chose it; empty for none. */
  readonly job_id: string;
  /** `replay` or `discard`. */
  readonly action: string;
  /** Who began it. */
  readonly actor: string;
  /** When it began. */
  readonly begun_at: string | null;
  /** How many wait for their replay. */
  readonly waiting: number;
  /** How many have been delivered. */
  readonly replayed: number;
  /** How many failed again or were discarded. */
  readonly failed: number;
  /** How many were given up. */
  readonly discarded: number;
}

/** Replays and discards of which dead letters are left, the newest first. */
export interface DeadLetterJobList {
  /** The newest first. */
  readonly jobs: readonly DeadLetterJobInfo[];
}

/** A page of dead letters, newest message first, and how many match in all. */
export interface DeadLetterPage {
  /** How many match. */
  readonly total: number;
  /** How many match, by error, the most first. */
  readonly groups: readonly DeadLetterGroup[];
  /** Newest first. */
  readonly records: readonly DeadLetterInfo[];
  /** The `before` of the next page; null on the last one. */
  readonly next: string | null;
}

/** What a replay or a discard with this token concerns, and nothing newer. */
export interface DeadLetterPreview {
  /** How many match, and can still be replayed or discarded. */
  readonly matched: number;
  /** For `replay` and `discard`; no secret. */
  readonly token: string;
  /** When it was looked. */
  readonly as_of: string;
  /** Of how many chats they are. */
  readonly chats: number;
  /** When the oldest became a dead letter; null if none matches. */
  readonly oldest: string | null;
}

/** How far a job is. */
export interface DeadLetterProgress {
  /** The job. */
  readonly job_id: string;
  /** How many wait for their replay. */
  readonly waiting: number;
  /** How many have been delivered. */
  readonly replayed: number;
  /** How many failed again or were discarded. */
  readonly failed: number;
}

/** How many are for the same recipient. */
export interface DeadLetterRecipient {
  /** Whom it was for: a webhook. */
  readonly recipient: string;
  /** How many are for it. */
  readonly count: number;
}

/** A dead letter with all that happened to it. */
export interface DeadLetterStory {
  /** The dead letter. */
  readonly dlq_id: string;
  /** What became of it. */
  readonly status: "pending" | "permanently_failed" | "replayed";
  /** The message. */
  readonly original_message: OriginalMessage;
  /** A stable word for why it failed. */
  readonly error: string;
  /** The same for people. */
  readonly error_detail: string;
  /** How many retries failed, since the last replay. */
  readonly retry_count: number;
  /** When it was first tried. */
  readonly first_attempt: string;
  /** When it was last tried. */
  readonly last_attempt: string;
  /** When it became a dead letter. */
  readonly dlq_timestamp: string;
  /** The queue that it comes from. */
  readonly source_topic: string;
  /** Always 0: a chat is its own queue. */
  readonly source_partition: number;
  /** The position in the chat's log. */
  readonly source_offset: number;
  /** The chat. */
  readonly chat_id: string;
  /** The position in the chat's log. */
  readonly sequence: number;
  /** Whether it waits for its replay. */
  readonly queued: boolean;
  /** The last job that chose it; empty for none. */
  readonly job_id: string;
  /** Oldest first. */
  readonly history: readonly DeadLetterEvent[];
}

/** How many dead letters match, by what an operator looks for: the most first, hours in their order. */
export interface DeadLetterSummary {
  /** How many match. */
  readonly total: number;
  /** By error, the most first. */
  readonly errors: readonly DeadLetterGroup[];
  /** By recipient, the most first. */
  readonly recipients: readonly DeadLetterRecipient[];
  /** By the hour in which they became dead letters. */
  readonly hours: readonly DeadLetterHour[];
}

/** A person whose account is deleted. `job_id`: the job that removes what they wrote; null without one. */
export interface DeletedUser {
  /** The person. */
  readonly user_id: string;
  /** 1 to 64 of `a-z 0-9 . _ -`, with a letter or a digit. */
  readonly username: string;
  /** What people call the person; 1 to 200 characters. */
  readonly display_name: string;
  /** What the account may do. */
  readonly state: AccountState;
  /** Whether the person may use these routes. */
  readonly is_operator: boolean;
  /** When, by the server's clock. */
  readonly created_at: string;
  /** When the person was last online; null if never, "unavailable" if you may not see it. */
  readonly last_seen: string | null;
  /** Whether this is a program: it has no unread count, and nothing notifies it. */
  readonly is_bot: boolean;
  /** Who the person is in your own system; null for nobody. */
  readonly external_id: string | null;
  /** The last job that chose it; empty for none. */
  readonly job_id: string | null;
}

/** A device that may act for you, with the number of its sessions. */
export interface Device {
  /** A name that the client gives the device and keeps; 1 to 64 characters. */
  readonly device_id: string;
  /** What people call the device; at most 200 characters. */
  readonly device_name: string;
  /** When it was last used. */
  readonly last_used_at: string;
  /** How many sessions the device has. */
  readonly sessions: number;
  /** Whether this request came from it. */
  readonly current: boolean;
}

/** Your devices, last used first. */
export interface DeviceList {
  /** Your devices, last used first. */
  readonly devices: readonly Device[];
}

/** How far a device is in a chat. */
export interface DevicePosition {
  /** A name that the client gives the device and keeps; 1 to 64 characters. */
  readonly device_id: string;
  /** How far the device has acknowledged. */
  readonly last_acked_sequence: number;
  /** How many positions it has not acknowledged. */
  readonly lag: number;
  /** When it was last used, right to a day. */
  readonly last_used_at: string;
}

/**
 * One position of a chat's log. A client skips a `kind` that it does not know. `mentions`: the people whom a
 * message mentions; left out if it mentions nobody. `body_digest`: the digest of the body that was sent, if
 * the entry no longer has that body; the hash of the log needs it. `deleted`: its content was removed for
 * good; left out otherwise. `reply_to`: the message that a message answers. `target_id`: the message that an
 * `edit`, a `delete` or a `reaction` is about. A message that was edited has its newest content, `edited_at`,
 * and the position of that edit in `edit_sequence`: whoever follows the log passes over older edits of it.
 * `attachments`: the files that a message refers to; left out if there are none.
 */
export interface Entry {
  /** The chat. */
  readonly chat_id: string;
  /** The position in the chat's log. */
  readonly sequence: number;
  /** Rises when the log is another one, as after a restored backup. */
  readonly epoch: number;
  /** `message`, `member`, `chat`, `edit`, `delete` or `reaction`; clients pass over others. */
  readonly kind: string;
  /** The entry's id. */
  readonly message_id: string;
  /** Who sent the message or made the change. */
  readonly sender_id: string;
  /** A UUIDv4 that the client makes for each message. */
  readonly client_message_id: string | null;
  /** At most 64 KiB in UTF-8. */
  readonly content: string;
  /** A media type; the server does not look into the content. */
  readonly content_type: string;
  /** When, by the server's clock. */
  readonly created_at: string;
  /** The same as `created_at`. */
  readonly server_timestamp: string;
  /** When the message was written, by the client's clock; orders nothing. */
  readonly display_time: string | null;
  /** Whom the message mentions; left out if nobody. */
  readonly mentions?: readonly string[];
  /** The digest of the body as it was sent; only if the entry has another one now. */
  readonly body_digest?: string;
  /** Its content was removed for good; left out otherwise. */
  readonly deleted?: boolean;
  /** The id of the message of this chat that it answers; left out if none. */
  readonly reply_to?: string;
  /** Of an edit, delete or reaction: the message that it is about. */
  readonly target_id?: string;
  /** 1 to 16 characters. */
  readonly reaction?: string;
  /** Of a reaction: whether it was added or taken back. */
  readonly on?: boolean;
  /** When the message was last edited; left out, or null, if never. */
  readonly edited_at?: string;
  /** The position of the edit whose content the message has. */
  readonly edit_sequence?: number;
  /** The files that the message refers to; left out if there are none. */
  readonly attachments?: readonly AttachedFile[];
}

/** What was removed from one chat. `is_held`: nothing, because it is under a legal hold. */
export interface ErasedChat {
  /** The chat. */
  readonly chat_id: string;
  /** How many bodies were removed from the engine. */
  readonly hot: number;
  /** How many bodies were removed from the cold tier. */
  readonly cold: number;
  /** Whether a legal hold keeps everything. */
  readonly is_held: boolean;
}

/**
 * What the erasure of a person has removed, so far or at last. `finished_at`: null until it is done. `hot`
 * and `cold`: bodies in the engine and in the cold tier, `chats` the same by chat.
 */
export interface ErasureInfo {
  /** The person. */
  readonly user_id: string;
  /** When it was asked for. */
  readonly begun_at: string;
  /** When it was done; null until then. */
  readonly finished_at: string | null;
  /** How many bodies were removed from the engine. */
  readonly hot: number;
  /** How many bodies were removed from the cold tier. */
  readonly cold: number;
  /** By chat; those under a legal hold kept everything. */
  readonly chats: readonly ErasedChat[];
  /** How many more chats there were. */
  readonly chats_left_out: number;
  /** How many positions of devices were removed. */
  readonly cursors: number;
  /** How many devices get no notifications any more. */
  readonly devices: number;
  /** How many reports lost what the person wrote in them. */
  readonly reports: number;
}

/** What erasures have removed; `next` is the `before` of the next page, null on the last one. */
export interface ErasureList {
  /** Of people and of chats. */
  readonly erasures: readonly ErasureInfo[];
  /** The `before` of the next page; null on the last one. */
  readonly next: string | null;
}

/** The account of a person of your system, and whether it is new. */
export interface ExternalUserPut {
  /** The person. */
  readonly user_id: string;
  /** Whether it is new. */
  readonly created: boolean;
  /** 1 to 64 of `a-z 0-9 . _ -`, with a letter or a digit. */
  readonly username: string;
}

/** A chat as operators see it. `fanout`: the strategy in use; `chosen`: null if the size decides. */
export interface FanoutInfo {
  /** The chat. */
  readonly chat_id: string;
  /** A direct chat has two people and no title. */
  readonly type: ChatType;
  /** 1 to 200 characters; null in a direct chat. */
  readonly title: string | null;
  /** How many members the chat has. */
  readonly member_count: number;
  /** How notifications of the chat are fanned out. */
  readonly fanout: Fanout;
  /** What an operator chose; null if the size decides. */
  readonly chosen: Fanout | null;
}

/** How far a group of consumers is behind. */
export interface GroupLag {
  /** The group. */
  readonly group: string;
  /** How many events are not handled yet. */
  readonly lag: number;
}

/**
 * What was found in all of your chats, the newest first. `next`: the `before` of the next page; null at the
 * end.
 */
export interface Hits {
  /** What was found, the newest first. */
  readonly hits: readonly SearchHit[];
  /** The `before` of the next page; null on the last one. */
  readonly next: string | null;
}

/** An invariant that a chat breaks: what is wrong, where, and what to do about it. */
export interface InvariantBreach {
  /** Its name, which runbooks refer to. */
  readonly invariant: string;
  /** What is wrong. */
  readonly says: string;
  /** What to do about it. */
  readonly remedy: string;
  /** Where, if it is about one position. */
  readonly sequence: number | null;
}

/** An invitation to a chat. A name is null if the account is gone. */
export interface InvitationInfo {
  /** The chat. */
  readonly chat_id: string;
  /** 1 to 200 characters; null in a direct chat. */
  readonly title: string | null;
  /** The role that is offered. */
  readonly role: Role;
  /** Who is invited. */
  readonly user_id: string;
  /** 1 to 64 of `a-z 0-9 . _ -`, with a letter or a digit. */
  readonly username: string | null;
  /** Who invites. */
  readonly by: string;
  /** The inviter's username. */
  readonly by_username: string | null;
  /** What people call the inviter. */
  readonly by_display_name: string | null;
  /** When. */
  readonly invited_at: string;
  /** When the invitation ends by itself. */
  readonly expires_at: string;
}

/** A page of invitations; `next_after` is the `after` of the next page, null on the last one. */
export interface InvitationList {
  /** In the order of the ids. */
  readonly invitations: readonly InvitationInfo[];
  /** The `after` of the next page; null on the last one. */
  readonly next_after: string | null;
}

/**
 * A background job: on one node, or, of the cluster, on the node that runs it. `runs` and `failures` count
 * since that node started.
 */
export interface JobInfo {
  /** The job. */
  readonly name: string;
  /** `node`: every node runs it. `cluster`: one node at a time does. */
  readonly scope: JobScope;
  /** The node that runs it. */
  readonly node: string;
  /** From the end of a run to the next; null: it runs when it is needed. */
  readonly interval_seconds: number | null;
  /** When the last run began; null before the first. */
  readonly last_started_at: string | null;
  /** When a run last ended; null before the first end. */
  readonly last_finished_at: string | null;
  /** How it ended. `lease_lost`: stopped, because another node may run it. */
  readonly last_outcome: JobOutcome | null;
  /** Why it failed; null if it did not. */
  readonly last_error: string | null;
  /** When it is due; null while it runs, or if it runs when it is needed. */
  readonly next_run_at: string | null;
  /** How many runs have ended on that node since its start. */
  readonly runs: number;
  /** How many of them failed. */
  readonly failures: number;
  /** Whether it has not succeeded for several intervals. */
  readonly is_overdue: boolean;
  /** The last 20 that ended, the newest first; empty where its node does not answer. */
  readonly last_runs: readonly JobRun[];
}

/** Every job of every node. */
export interface JobList {
  /** By name, then by node. */
  readonly jobs: readonly JobInfo[];
}

/** One run of a job that has ended. */
export interface JobRun {
  /** When it began. */
  readonly started_at: string | null;
  /** When it ended. */
  readonly finished_at: string;
  /** How it ended. */
  readonly outcome: JobOutcome;
  /** Why it failed; null if it did not. */
  readonly error: string | null;
}

/** A job that runs now. */
export interface JobWanted {
  /** The job. */
  readonly name: string;
  /** The node that runs it. */
  readonly node: string;
}

/** A link as operators see it, without its token. `state`: open, used, expired or revoked. */
export interface LinkInfo {
  /** The link. */
  readonly link_id: string;
  /** `open`, `used`, `expired` or `revoked`. */
  readonly state: string;
  /** Who created the chat. */
  readonly created_by: string;
  /** When, by the server's clock. */
  readonly created_at: string;
  /** Until when it works. */
  readonly expires_at: string;
  /** How many people may use it. */
  readonly uses: number;
  /** Who has used it. */
  readonly used_by: readonly string[];
  /** For operators. */
  readonly note: string;
  /** The person. */
  readonly user_id?: string;
}

/** Links, the newest first. `next` is the `before` of the next page, null on the last one. */
export interface LinkList {
  /** The links of this page, the newest first. */
  readonly invites: readonly LinkInfo[];
  /** The `before` of the next page; null on the last one. */
  readonly next: string | null;
}

/** A new link, shown this once. `path` is the same without the address of the server. */
export interface LinkMade {
  /** The link. */
  readonly link_id: string;
  /** `open`, `used`, `expired` or `revoked`. */
  readonly state: string;
  /** Who created the chat. */
  readonly created_by: string;
  /** When, by the server's clock. */
  readonly created_at: string;
  /** Until when it works. */
  readonly expires_at: string;
  /** How many people may use it. */
  readonly uses: number;
  /** Who has used it. */
  readonly used_by: readonly string[];
  /** For operators. */
  readonly note: string;
  /** The person. */
  readonly user_id?: string;
  /** What the link carries, shown this once. */
  readonly token: string;
  /** The link, at the address of this request. */
  readonly url: string;
  /** The same without the address of the server. */
  readonly path: string;
}

/** A line of the list of chats. `people`: those of a direct chat; empty in a group. */
export interface ListedChatInfo {
  /** The chat. */
  readonly chat_id: string;
  /** A direct chat has two people and no title. */
  readonly type: ChatType;
  /** 1 to 200 characters; null in a direct chat. */
  readonly title: string | null;
  /** The two people of a direct chat; empty in a group. */
  readonly people: readonly PersonOfChat[];
  /** How many members the chat has. */
  readonly member_count: number;
  /** The position of the last entry; 0 in an empty log. */
  readonly head: number;
  /** When, by the server's clock. */
  readonly created_at: string;
}

/** A page of chats, the newest first; `next` is the `after` of the next page, null on the last one. */
export interface ListedChatPage {
  /** The chats of this page. */
  readonly chats: readonly ListedChatInfo[];
  /** The `after` of the next page; null on the last one. */
  readonly next: string | null;
}

/** An entry without what it says. `content`: only in an answer to `reveal`. */
export interface LogLine {
  /** The position in the chat's log. */
  readonly sequence: number;
  /** `message`, `member`, `chat`, `edit`, `delete` or `reaction`; clients pass over others. */
  readonly kind: string;
  /** The entry's id. */
  readonly message_id: string;
  /** Who sent the message or made the change. */
  readonly sender_id: string;
  /** A UUIDv4 that the client makes for each message. */
  readonly client_message_id: string | null;
  /** When, by the server's clock. */
  readonly created_at: string;
  /** A media type; the server does not look into the content. */
  readonly content_type: string;
  /** How many bytes its content has. */
  readonly size: number;
  /** How many files it refers to. */
  readonly attachments: number;
  /** The message that it answers; null if none. */
  readonly reply_to: string | null;
  /** The message that it is about; null if none. */
  readonly target_id: string | null;
  /** When it was last edited; null if never. */
  readonly edited_at: string | null;
  /** Whether its content was removed for good. */
  readonly deleted: boolean;
  /** What it says now; only in an answer to `reveal`. */
  readonly content?: string;
}

/** A part of a log: each position from `from_sequence` to `to_sequence` is an entry or a void. */
export interface LogLines {
  /** The chat. */
  readonly chat_id: string;
  /** Rises when the log is another one, as after a restored backup. */
  readonly epoch: number;
  /** The position of the last entry; 0 in an empty log. */
  readonly head: number;
  /** The first position of the page. */
  readonly from_sequence: number;
  /** The last position of the page. */
  readonly to_sequence: number;
  /** Ascending by position. */
  readonly entries: readonly LogLine[];
  /** Positions of this part that have no entry and never will. */
  readonly voids: readonly number[];
}

/** Your profile and settings. Within `do_not_disturb` nothing notifies. */
export interface Me {
  /** The person. */
  readonly user_id: string;
  /** 1 to 64 of `a-z 0-9 . _ -`, with a letter or a digit. */
  readonly username: string;
  /** What people call the person; 1 to 200 characters. */
  readonly display_name: string;
  /** A few words of the person; at most 1,000 characters. */
  readonly about: string;
  /** Who may see when you were last online. */
  readonly last_seen_privacy: Privacy;
  /** Whether others see what you have read; without it you see none. */
  readonly send_read_receipts: boolean;
  /** Who may add you to chats; others can invite you. */
  readonly who_may_add: Privacy;
  /** When nothing notifies you; null: at no time. */
  readonly do_not_disturb: QuietHours | null;
  /** Whether this is a program: it has no unread count, and nothing notifies it. */
  readonly is_bot: boolean;
  /** Whether the person may use these routes. */
  readonly is_operator: boolean;
}

/** How far one member is in a chat. Times say when the position last rose: None at position 0. */
export interface MemberCursor {
  /** The person. */
  readonly user_id: string;
  /** The position at which the member joined; 0 for the first members. */
  readonly joined_sequence: number;
  /** How far the member has received. */
  readonly delivered_up_to: number;
  /** When that position last rose; null at 0. */
  readonly delivered_at: string | null;
  /** How far the member has read. */
  readonly read_up_to: number;
  /** When that position last rose; null at 0. */
  readonly read_at: string | null;
}

/** A member of a chat. */
export interface MemberInfo {
  /** The person. */
  readonly user_id: string;
  /** An owner may do anything, an admin may add, remove members and rename. */
  readonly role: Role;
  /** When the member joined. */
  readonly joined_at: string;
  /** The position at which the member joined; 0 for the first members. */
  readonly joined_sequence: number;
  /** 1 to 64 of `a-z 0-9 . _ -`, with a letter or a digit. */
  readonly username: string;
  /** What people call the person; 1 to 200 characters. */
  readonly display_name: string;
  /** Whether the person is online, as far as you may see it. */
  readonly status: "offline" | "online";
  /** When the person was last online; null if never, "unavailable" if you may not see it. */
  readonly last_seen: string | null;
  /** Whether this is a program: it has no unread count, and nothing notifies it. */
  readonly is_bot: boolean;
}

/** A page of a chat's members; `next_after` is the `after` of the next page, null on the last one. */
export interface MemberList {
  /** Ordered by `user_id`. */
  readonly members: readonly MemberInfo[];
  /** The `after` of the next page; null on the last one. */
  readonly next_after: string | null;
}

/** A member, and how far they and each of their devices are. */
export interface MemberPosition {
  /** The person. */
  readonly user_id: string;
  /** 1 to 64 of `a-z 0-9 . _ -`, with a letter or a digit. */
  readonly username: string;
  /** What people call the person. */
  readonly display_name: string;
  /** What the account may do. */
  readonly state: AccountState;
  /** Whether this is a program: it has no unread count, and nothing notifies it. */
  readonly is_bot: boolean;
  /** An owner may do anything, an admin may add, remove members and rename. */
  readonly role: Role;
  /** When the member joined. */
  readonly joined_at: string;
  /** The position at which the member joined; 0 for the first members. */
  readonly joined_sequence: number;
  /** How far the member has received. */
  readonly delivered_up_to: number;
  /** How far the member has read. */
  readonly read_up_to: number;
  /** Those that the server knows, the last used first. */
  readonly devices: readonly DevicePosition[];
}

/** A page of members by `user_id`; `next` is the `after` of the next page, null on the last one. */
export interface MemberPositionPage {
  /** Ordered by `user_id`. */
  readonly members: readonly MemberPosition[];
  /** The position of the last entry; 0 in an empty log. */
  readonly head: number;
  /** The `after` of the next page; null on the last one. */
  readonly next: string | null;
}

/**
 * What a person is in a chat now. `sequence`: where that was written; null if it was so before, or if the
 * person was invited instead.
 */
export interface MemberState {
  /** The chat. */
  readonly chat_id: string;
  /** The person. */
  readonly user_id: string;
  /** An owner may do anything, an admin may add, remove members and rename. */
  readonly role: Role;
  /** Where it was written; null if nothing was. */
  readonly sequence: number | null;
  /** Whether the person was invited instead. */
  readonly invited: boolean;
}

/**
 * Who was added, who was invited instead, and where the last addition is in the log. `sequence` and
 * `message_id` are null if no person was added.
 */
export interface MembersAdded {
  /** The chat. */
  readonly chat_id: string;
  /** The position of the last addition; null if there is none. */
  readonly sequence: number | null;
  /** The id of that entry. */
  readonly message_id: string | null;
  /** Whom that entry added, or who was invited last. */
  readonly user_id: string;
  /** Who was added. */
  readonly added: readonly string[];
  /** Who may not be added and was invited. */
  readonly invited: readonly string[];
}

/** A message, and what became of it. */
export interface MessageTimeline {
  /** The entry's id. */
  readonly message_id: string;
  /** The chat. */
  readonly chat_id: string;
  /** The position in the chat's log. */
  readonly sequence: number;
  /** Who sent the message or made the change. */
  readonly sender_id: string;
  /** In the order of the times. */
  readonly steps: readonly TimelineStep[];
}

/** Those of the messages that there are, in the order in which they were asked for. */
export interface MessagesFound {
  /** Those that there are, in the order in which they were asked for. */
  readonly messages: readonly ShownEntry[];
}

/** A node that ends as soon as it has finished what it took. */
export interface NodeDrained {
  /** The node. */
  readonly node_id: string;
}

/**
 * A node that is alive, and how it is. `silent`: why it does not say; then all after it is null.
 * `clock_offset_ms`: its clock against that of the node that answers, half the time of the call taken off.
 */
export interface NodeInfo {
  /** The node. */
  readonly node_id: string;
  /** Where other nodes reach it; null on one machine. */
  readonly url: string | null;
  /** What it does. */
  readonly roles: readonly string[];
  /** When it started, by its own clock; null if it does not say. */
  readonly since: string | null;
  /** Whether it is the node that answers. */
  readonly is_self: boolean;
  /** Its version of Parley. */
  readonly version: string | null;
  /** Why it does not say how it is; null if it does. */
  readonly silent: string | null;
  /** Open connections of clients. */
  readonly connections: number | null;
  /** What its process has of the machine's memory. */
  readonly memory_bytes: number | null;
  /** How long its event loop let others wait, measured each 5 seconds. */
  readonly loop_delay_ms: number | null;
  /** Whether it ends as soon as it has finished what it took. */
  readonly draining: boolean | null;
  /** Whether it can use the store. */
  readonly store_available: boolean | null;
  /** How many events its readers have not handled yet. */
  readonly lag: number | null;
  /** Its clock against that of the node that answers. */
  readonly clock_offset_ms: number | null;
}

/** The nodes of the cluster; one on one machine. */
export interface NodeList {
  /** By id. */
  readonly nodes: readonly NodeInfo[];
}

/** A message as it is now. `reply_count`: messages that answer it and were not deleted. */
export interface OneMessage {
  /** The message with its newest content. */
  readonly entry: Entry;
  /** When the message was last edited; left out, or null, if never. */
  readonly edited_at: string | null;
  /** Whether its content was removed for good. */
  readonly deleted: boolean;
  /** The most frequent first. */
  readonly reactions: readonly Reaction[];
  /** How many messages answer it and were not deleted. */
  readonly reply_count: number;
}

/** The message that could not be delivered. `content` is null if it is not in the log any more. */
export interface OriginalMessage {
  /** The message's id. */
  readonly msg_id: string;
  /** Who sent it. */
  readonly sender: string;
  /** Whom it was for: a webhook. */
  readonly recipient: string;
  /** The content, from the log. */
  readonly content: string | null;
  /** When it was stored. */
  readonly timestamp: string;
}

/** One row of the chat list. What follows `muted_until` is left out of a brief overview. */
export interface OverviewChat {
  /** The chat. */
  readonly chat_id: string;
  /** Rises when the log is another one, as after a restored backup. */
  readonly epoch: number;
  /** The position of the last entry; 0 in an empty log. */
  readonly head: number;
  /** How far this device has acknowledged. */
  readonly last_acked_sequence: number;
  /** How far you have read. */
  readonly read_up_to: number;
  /** How many messages of others you have not read. */
  readonly unread: number;
  /** Whether there may be more than `unread`. */
  readonly unread_more: boolean;
  /** True in a chat that you have left; absent else. */
  readonly left?: boolean;
  /** Whether you have muted the chat, now. */
  readonly muted: boolean;
  /** Until when you have muted the chat; null if you have not. */
  readonly muted_until: string | null;
  /** A direct chat has two people and no title. */
  readonly type?: "direct" | "group";
  /** 1 to 200 characters; null in a direct chat. */
  readonly title?: string | null;
  /** The other person of a direct chat; null in a group. */
  readonly peer?: Peer | null;
  /** The last entry of the log; null in an empty one. */
  readonly last_entry?: Entry | null;
  /** How many of the unread messages mention you, of the newest 200; left out of a brief overview. */
  readonly unread_mentions?: number;
}

/** Your account is deleted. `job_id`: the job that removes what you wrote; null without one. */
export interface OwnDeleted {
  /** The person. */
  readonly user_id: string;
  /** The job that removes what you wrote; null without one. */
  readonly job_id: string | null;
}

/** A token for the memory of a page; the cookie is in a header. `key`: for the console's tab alone. */
export interface PageSessionGranted {
  /** For `Authorization`, and for `hello`. */
  readonly access_token: string;
  /** For how many seconds the token is good. */
  readonly expires_in: number;
  /** The person. */
  readonly user_id: string;
  /** The session. */
  readonly session_id: string;
  /** A name that the client gives the device and keeps; 1 to 64 characters. */
  readonly device_id: string;
  /** When the session is over if the page is not used. */
  readonly expires_at: string;
  /** Whether nothing can be changed from this session of the console. */
  readonly read_only: boolean;
  /** Of the console, once: a `refresh` needs it. Keep it in the tab alone. */
  readonly key?: string;
}

/** The other person of a direct chat. */
export interface Peer {
  /** The person. */
  readonly user_id: string;
  /** 1 to 64 of `a-z 0-9 . _ -`, with a letter or a digit. */
  readonly username: string;
  /** What people call the person; 1 to 200 characters. */
  readonly display_name: string;
  /** Whether the person is online, as far as you may see it. */
  readonly status: "offline" | "online";
  /** When the person was last online; null if never, "unavailable" if you may not see it. */
  readonly last_seen: string | null;
  /** Whether this is a program: it has no unread count, and nothing notifies it. */
  readonly is_bot?: boolean;
}

/** A chat of a person, and how far they are in it. */
export interface PersonChat {
  /** The chat. */
  readonly chat_id: string;
  /** A direct chat has two people and no title. */
  readonly type: ChatType;
  /** 1 to 200 characters; null in a direct chat. */
  readonly title: string | null;
  /** The person's role. */
  readonly role: Role | null;
  /** The position of the last entry; 0 in an empty log. */
  readonly head: number;
  /** How far the member has received. */
  readonly delivered_up_to: number;
  /** How far the member has read. */
  readonly read_up_to: number;
}

/** A device of a person that the server knows. */
export interface PersonDevice {
  /** A name that the client gives the device and keeps; 1 to 64 characters. */
  readonly device_id: string;
  /** When it was last used, right to a day. */
  readonly last_used_at: string;
}

/** A person with their chats, devices and sessions. `chats`: the newest of `chat_count`. */
export interface PersonInfo {
  /** The person. */
  readonly user_id: string;
  /** 1 to 64 of `a-z 0-9 . _ -`, with a letter or a digit. */
  readonly username: string;
  /** What people call the person; 1 to 200 characters. */
  readonly display_name: string;
  /** What the account may do. */
  readonly state: AccountState;
  /** Whether the person may use these routes. */
  readonly is_operator: boolean;
  /** When, by the server's clock. */
  readonly created_at: string;
  /** When the person was last online; null if never, "unavailable" if you may not see it. */
  readonly last_seen: string | null;
  /** Whether this is a program: it has no unread count, and nothing notifies it. */
  readonly is_bot: boolean;
  /** Who the person is in your own system; null for nobody. */
  readonly external_id: string | null;
  /** A few words of the person; at most 1,000 characters. */
  readonly about: string;
  /** The newest 100 chats that the person is in. */
  readonly chats: readonly PersonChat[];
  /** In how many chats the person is. */
  readonly chat_count: number;
  /** Those that the server knows, the last used first. */
  readonly devices: readonly PersonDevice[];
  /** Those that get notifications, without their tokens. */
  readonly push_devices: readonly PushDeviceInfo[];
  /** The last used first. */
  readonly sessions: readonly UserSession[];
}

/** One of the two people of a direct chat. */
export interface PersonOfChat {
  /** The person. */
  readonly user_id: string;
  /** 1 to 64 of `a-z 0-9 . _ -`, with a letter or a digit. */
  readonly username: string;
  /** What people call the person; 1 to 200 characters. */
  readonly display_name: string;
}

/** Who is online, of the people you asked about. */
export interface PresenceList {
  /** One for each person, in the order asked. */
  readonly presences: readonly PresenceView[];
}

/** Whether a person is online. `last_seen`: null if never, "unavailable" if you may not see it. */
export interface PresenceView {
  /** The person. */
  readonly user_id: string;
  /** Whether the person is online, as far as you may see it. */
  readonly status: "offline" | "online";
  /** When the person was last online; null if never, "unavailable" if you may not see it. */
  readonly last_seen: string | null;
}

/** Every refusal: a stable code, a reason for people, and whether a retry helps. */
export interface Problem {
  /** Stable, for programs. */
  readonly code: string;
  /** For people; it may change. */
  readonly reason: string;
  /** Whether the same request may work later. */
  readonly temporary: boolean;
  /** How long to wait before a retry, in milliseconds. */
  readonly retry_after_ms?: number;
}

/** A person, as far as you may see them. `last_seen` is "unavailable" if you may not. */
export interface Profile {
  /** The person. */
  readonly user_id: string;
  /** 1 to 64 of `a-z 0-9 . _ -`, with a letter or a digit. */
  readonly username: string;
  /** What people call the person; 1 to 200 characters. */
  readonly display_name: string;
  /** A few words of the person; at most 1,000 characters. */
  readonly about: string;
  /** Whether the person is online, as far as you may see it. */
  readonly status: "offline" | "online";
  /** When the person was last online; null if never, "unavailable" if you may not see it. */
  readonly last_seen: string | null;
  /** Whether this is a program: it has no unread count, and nothing notifies it. */
  readonly is_bot: boolean;
}

/** Those of the people who exist. */
export interface ProfileList {
  /** The people of this page. */
  readonly users: readonly Profile[];
}

/** A device that is notified. `secret`: what requests to a new webhook are signed with, shown once. */
export interface PushDeviceInfo {
  /** A name that the client gives the device and keeps; 1 to 64 characters. */
  readonly device_id: string;
  /** Who brings the notification to the device. */
  readonly provider: string;
  /** Whether a notification shows what the message says, and who sent it. */
  readonly preview: boolean;
  /** When the device was registered with its token. */
  readonly created_at: string;
  /** The key of `Parley-Signature`, for a webhook with a new URL. Shown only now. */
  readonly secret?: string;
}

/** Your devices that are notified. */
export interface PushDeviceList {
  /** Your devices that get notifications. */
  readonly devices: readonly PushDeviceInfo[];
}

/** Who brings notifications to devices, and what became of them since each node started. */
export interface PushProviderInfo {
  /** Who brings the notification to the device. */
  readonly provider: string;
  /** Whether this server is set up for it. */
  readonly ready: boolean;
  /** How many notifications ended how. */
  readonly outcomes: Readonly<Record<string, number>>;
}

/** The providers of notifications. `silent`: nodes that did not say. */
export interface PushState {
  /** All that Parley knows. */
  readonly providers: readonly PushProviderInfo[];
  /** Nodes that did not say. */
  readonly silent: readonly string[];
}

/** When a person wants no notification: between two times of day (HH:MM), in a time zone by its name. */
export interface QuietHours {
  /** The first minute of it, as HH:MM. */
  readonly from: string;
  /** The first minute after it, as HH:MM. */
  readonly to: string;
  /** Where you live, by the name in the database of time zones. */
  readonly timezone: string;
}

/** A reaction to a message, and who has it. */
export interface Reaction {
  /** 1 to 16 characters. */
  readonly reaction: string;
  /** How many people have it. */
  readonly count: number;
  /** Who has it. */
  readonly user_ids: readonly string[];
}

/** Where a message is in the log: the answer to a send. HTTP uses it without a `type`. */
export interface Receipt {
  /** The chat. */
  readonly chat_id: string;
  /** A UUIDv4 that the client makes for each message. */
  readonly client_message_id: string;
  /** The entry's id. */
  readonly message_id: string;
  /** The position in the chat's log. */
  readonly sequence: number;
  /** Rises when the log is another one, as after a restored backup. */
  readonly epoch: number;
  /** When, by the server's clock. */
  readonly created_at: string;
  /** Whether the message had been stored already. */
  readonly deduplicated: boolean;
  /** Whether the stored message has other content than this one. */
  readonly conflict: boolean;
}

/** Who has received and read one message; `member_count` is the number of members it was for. */
export interface Receipts {
  /** The position in the chat's log. */
  readonly sequence: number;
  /** The members it was for: without the sender and later members. */
  readonly member_count: number;
  /** The chat's `read_receipts`. */
  readonly mode: ReadReceipts;
  /** What became of the message among the members it was for. */
  readonly status: DeliveryStatus;
  /** The members who have received it. */
  readonly delivered: readonly SeenBy[];
  /** The members who have read it. */
  readonly read: readonly SeenBy[];
}

/** What a recovery found, and what it wrote or would write. */
export interface RecoveryReport {
  /** The chat. */
  readonly chat_id: string;
  /** `fine`, `missing`, `recovered`, `inconsistent` or `failed`. */
  readonly status: string;
  /** Whether it was written. */
  readonly applied: boolean;
  /** The highest number in each table; null where there is none. */
  readonly found: Readonly<Record<string, number | null>>;
  /** What the counter is, or would be; null if nothing can be done. */
  readonly counter: number | null;
  /** Numbers that become void. */
  readonly voids: readonly VoidRange[];
  /** What is wrong, and what to do about it. */
  readonly problems: readonly string[];
}

/** A contact of yours, or a person you have blocked. */
export interface Related {
  /** The person. */
  readonly user_id: string;
  /** 1 to 64 of `a-z 0-9 . _ -`, with a letter or a digit. */
  readonly username: string;
  /** What people call the person; 1 to 200 characters. */
  readonly display_name: string;
  /** When you added the person. */
  readonly since: string;
}

/** The message that another one answers, as it is now. `excerpt`: how its text begins, on one line. */
export interface RepliedMessage {
  /** The entry's id. */
  readonly message_id: string;
  /** The position in the chat's log. */
  readonly sequence: number;
  /** Who sent the message or made the change. */
  readonly sender_id: string;
  /** How its text begins, on one line; empty for other content. */
  readonly excerpt: string;
  /** Whether its content was removed for good. */
  readonly deleted: boolean;
}

/** What was done about a report. */
export interface ReportActed {
  /** The report, resolved. */
  readonly report: ReportInfo;
  /** What was done, in this order. */
  readonly done: readonly string[];
}

/** A report as operators see it. `message`: as it is now; null if it is gone. */
export interface ReportInfo {
  /** The report. */
  readonly report_id: string;
  /** `open` or `resolved`. */
  readonly status: ReportStatus;
  /** The chat. */
  readonly chat_id: string;
  /** The entry's id. */
  readonly message_id: string;
  /** The position in the chat's log. */
  readonly sequence: number;
  /** Who sent the message or made the change. */
  readonly sender_id: string;
  /** Who reported it. */
  readonly reporter_id: string;
  /** What the member wrote; empty if they were erased. */
  readonly reason: string;
  /** When, by the server's clock. */
  readonly created_at: string;
  /** The message as it is now; null if it is gone. */
  readonly message: Entry | null;
  /** What came of it; null while it is open. */
  readonly outcome: string | null;
  /** For operators. */
  readonly note: string | null;
  /** Which operator resolved it; null while it is open. */
  readonly resolved_by: string | null;
  /** When; null while it is open. */
  readonly resolved_at: string | null;
}

/** Reports about the newest messages first. `next` is the `before` of the next page, null on the last. */
export interface ReportList {
  /** The reports of this page. */
  readonly reports: readonly ReportInfo[];
  /** The `before` of the next page; null on the last one. */
  readonly next: string | null;
}

/** A report of yours. */
export interface ReportMade {
  /** The report. */
  readonly report_id: string;
  /** The chat. */
  readonly chat_id: string;
  /** The entry's id. */
  readonly message_id: string;
  /** What you wrote first. */
  readonly reason: string;
  /** When, by the server's clock. */
  readonly created_at: string;
}

/**
 * A message that was found, as it is now. `snippet`: the part of its content with the words, plain text on
 * one line; each hit stands between U+2068 and U+2069, which are not shown.
 */
export interface SearchHit {
  /** The message as it is now. */
  readonly entry: Entry;
  /** The part of its content with the words, on one line; each hit is between U+2068 and U+2069. */
  readonly snippet: string;
}

/** A member has received or read a message, at this time or before. `simple` chats leave out who. */
export interface SeenBy {
  /** The member; null in a chat that does not say who. */
  readonly user_id: string | null;
  /** When, at the latest. */
  readonly at: string;
}

/** Where a message of yours is stored. */
export interface SendFound {
  /** Always `stored`. */
  readonly status: "stored";
  /** The chat. */
  readonly chat_id: string;
  /** A UUIDv4 that the client makes for each message. */
  readonly client_message_id: string;
  /** The entry's id. */
  readonly message_id: string;
  /** The position in the chat's log. */
  readonly sequence: number;
  /** Rises when the log is another one, as after a restored backup. */
  readonly epoch: number;
  /** When, by the server's clock. */
  readonly created_at: string;
}

/** Numbers of one node, each with the same times: the last one is `until`, the others before it. */
export interface Series {
  /** The node. */
  readonly node_id: string;
  /** The time of the last numbers. */
  readonly until: string;
  /** From one number to the next. */
  readonly step_seconds: number;
  /** By name, the oldest first. */
  readonly series: Readonly<Record<string, readonly number[]>>;
}

/** What a server does beside chats and messages, and offers to whoever asks. */
export interface ServerFeatures {
  /** Whether messages can be searched. */
  readonly search: boolean;
  /** Whether devices get notifications. */
  readonly push: boolean;
  /** Whether browsers get notifications. */
  readonly web_push: boolean;
  /** Whether messages may refer to files. */
  readonly attachments: boolean;
  /** Whether images have previews. */
  readonly previews: boolean;
  /** Whether tokens of another login are believed. */
  readonly jwt: boolean;
  /** Whether the console is served at this address. */
  readonly console: boolean;
}

/**
 * A server, as anybody may know it before they log in. `registration`: whether the one who asks may create an
 * account: freely, by a link alone, or not.
 */
export interface ServerInfo {
  /** What people see the server called. */
  readonly name: string;
  /** Which Parley it runs. */
  readonly version: string;
  /** `open`, `invite` (with a link of an operator) or `closed`. */
  readonly registration: "closed" | "invite" | "open";
  /** How many characters a new password has at least. */
  readonly password_length_min: number;
  /** What this server can do. */
  readonly features: ServerFeatures;
  /** The limits of the server, as in the frame `welcome`. */
  readonly limits: Readonly<Record<string, number>>;
  /** The key for Web Push; left out where browsers do not notify. */
  readonly vapid_key?: string;
}

/** What a console shows first. */
export interface ServerOverview {
  /** The node. */
  readonly node_id: string;
  /** Its version of Parley. */
  readonly version: string;
  /** How many accounts there are, deleted ones included. */
  readonly people: number;
  /** How many chats there are. */
  readonly chats: number;
  /** Open WebSockets on this node. */
  readonly connections: number;
  /** How many nodes are alive. */
  readonly nodes: number;
  /** What this node stored, over the last minute. */
  readonly messages_per_second: number;
  /** Events that the readers on this node have not handled yet. */
  readonly lag: number;
  /** Jobs whose last run failed. */
  readonly jobs_failing: number;
  /** Jobs that have not succeeded for several intervals. */
  readonly jobs_overdue: number;
  /** Whether this node can use the store. */
  readonly store_available: boolean;
  /** Whether it can use Redis, where there is one. */
  readonly ephemeral_available: boolean;
  /** Whether Kafka, where there is one, takes what this node publishes. */
  readonly bus_available: boolean;
  /** Reports that nobody has resolved; null while the store does not answer. */
  readonly open_reports: number | null;
  /** Dead letters that are pending; null while the store does not answer. */
  readonly dead_letters: number | null;
}

/** A new session of a device. The token is shown this once. */
export interface SessionGranted {
  /** For `Authorization: Bearer …` and the frame `hello`. */
  readonly token: string;
  /** The person. */
  readonly user_id: string;
  /** The session. */
  readonly session_id: string;
  /** A name that the client gives the device and keeps; 1 to 64 characters. */
  readonly device_id: string;
  /** When the session ends if it is not used until then. */
  readonly expires_at: string;
}

/** A session of yours; `current` marks the one that this token belongs to. */
export interface SessionInfo {
  /** The session. */
  readonly session_id: string;
  /** A name that the client gives the device and keeps; 1 to 64 characters. */
  readonly device_id: string;
  /** What people call the device; at most 200 characters. */
  readonly device_name: string;
  /** When it was last used. */
  readonly last_used_at: string;
  /** When the session ends if it is not used until then. */
  readonly expires_at: string;
  /** Whether this request came from it. */
  readonly current: boolean;
}

/** Your sessions. */
export interface SessionList {
  /** Your sessions. */
  readonly sessions: readonly SessionInfo[];
}

/** An entry of the log. With `shown=true` a message has what a reader sees beside it. */
export interface ShownEntry {
  /** The chat. */
  readonly chat_id: string;
  /** The position in the chat's log. */
  readonly sequence: number;
  /** Rises when the log is another one, as after a restored backup. */
  readonly epoch: number;
  /** `message`, `member`, `chat`, `edit`, `delete` or `reaction`; clients pass over others. */
  readonly kind: string;
  /** The entry's id. */
  readonly message_id: string;
  /** Who sent the message or made the change. */
  readonly sender_id: string;
  /** A UUIDv4 that the client makes for each message. */
  readonly client_message_id: string | null;
  /** At most 64 KiB in UTF-8. */
  readonly content: string;
  /** A media type; the server does not look into the content. */
  readonly content_type: string;
  /** When, by the server's clock. */
  readonly created_at: string;
  /** The same as `created_at`. */
  readonly server_timestamp: string;
  /** When the message was written, by the client's clock; orders nothing. */
  readonly display_time: string | null;
  /** Whom the message mentions; left out if nobody. */
  readonly mentions?: readonly string[];
  /** The digest of the body as it was sent; only if the entry has another one now. */
  readonly body_digest?: string;
  /** Its content was removed for good; left out otherwise. */
  readonly deleted?: boolean;
  /** The id of the message of this chat that it answers; left out if none. */
  readonly reply_to?: string;
  /** Of an edit, delete or reaction: the message that it is about. */
  readonly target_id?: string;
  /** 1 to 16 characters. */
  readonly reaction?: string;
  /** Of a reaction: whether it was added or taken back. */
  readonly on?: boolean;
  /** When the message was last edited; left out, or null, if never. */
  readonly edited_at?: string;
  /** The position of the edit whose content the message has. */
  readonly edit_sequence?: number;
  /** The files that the message refers to; left out if there are none. */
  readonly attachments?: readonly AttachedFile[];
  /** The most frequent first. */
  readonly reactions?: readonly Reaction[];
  /** How many messages answer it and were not deleted. */
  readonly reply_count?: number;
  /** The message that it answers, as it is now; left out if it answers none. */
  readonly replied?: RepliedMessage;
}

/** One thing that happened to a message, or did not: then `step` is `skipped`, and `detail` says why. */
export interface TimelineStep {
  /** When; where only the latest possible time is known, `detail` says so. */
  readonly at: string;
  /** What happened. */
  readonly step: StepName;
  /** Where; absent if that is not known. */
  readonly node?: string;
  /** To whom; absent if it concerns no member. */
  readonly user_id?: string;
  /** On which device; absent if that is not known. */
  readonly device_id?: string;
  /** More, for people; for `skipped` why. */
  readonly detail?: string;
}

/** A topic, and the groups that consume it. */
export interface TopicInfo {
  /** The topic, with `kafka.prefix`. */
  readonly name: string;
  /** How many it has; 1 on one machine. */
  readonly partitions: number;
  /** The groups of consumers that have stored an offset, by name. */
  readonly groups: readonly GroupLag[];
}

/** The topics in use. */
export interface TopicList {
  /** By name. */
  readonly topics: readonly TopicInfo[];
}

/** A person, as operators see them. */
export interface UserInfo {
  /** The person. */
  readonly user_id: string;
  /** 1 to 64 of `a-z 0-9 . _ -`, with a letter or a digit. */
  readonly username: string;
  /** What people call the person; 1 to 200 characters. */
  readonly display_name: string;
  /** What the account may do. */
  readonly state: AccountState;
  /** Whether the person may use these routes. */
  readonly is_operator: boolean;
  /** When, by the server's clock. */
  readonly created_at: string;
  /** When the person was last online; null if never, "unavailable" if you may not see it. */
  readonly last_seen: string | null;
  /** Whether this is a program: it has no unread count, and nothing notifies it. */
  readonly is_bot: boolean;
  /** Who the person is in your own system; null for nobody. */
  readonly external_id: string | null;
}

/** A page of people; `next_after` is the `after` of the next page, null on the last one; so is `next`. */
export interface UserInfoPage {
  /** The people of this page. */
  readonly users: readonly UserInfo[];
  /** The `after` of the next page; null on the last one. */
  readonly next_after: string | null;
  /** The `before` of the next page; null on the last one. */
  readonly next: string | null;
}

/** A session of a person. */
export interface UserSession {
  /** The session. */
  readonly session_id: string;
  /** A name that the client gives the device and keeps; 1 to 64 characters. */
  readonly device_id: string;
  /** What people call the device; at most 200 characters. */
  readonly device_name: string;
  /** When the person logged in. */
  readonly created_at: string;
  /** When it was last used. */
  readonly last_used_at: string;
  /** When the session ends if it is not used until then. */
  readonly expires_at: string;
}

/** The sessions of a person, last used first. */
export interface UserSessionList {
  /** The person's sessions. */
  readonly sessions: readonly UserSession[];
}

/** The `applicationServerKey` for `PushManager.subscribe`, in base64url. */
export interface VapidPublicKey {
  /** For `PushManager.subscribe`. */
  readonly public_key: string;
}

/** Numbers that become void: from the first to the last. */
export interface VoidRange {
  /** The first of them. */
  readonly first: number;
  /** The last of them. */
  readonly last: number;
}

/** The secret is shown only now. */
export interface WebhookAdded {
  /** The webhook. */
  readonly webhook_id: string;
  /** The key of `Parley-Signature`. Shown only now. */
  readonly secret: string;
}

/** A webhook, without its secret, and how it is: the last four are about one that does not answer. */
export interface WebhookInfo {
  /** The webhook. */
  readonly webhook_id: string;
  /** https; plain http only in `webhooks.allowed_networks`. */
  readonly url: string;
  /** Which events to send. */
  readonly events: readonly string[];
  /** Only of this chat; null: of every chat. */
  readonly chat_id: string | null;
  /** When, by the server's clock. */
  readonly created_at: string;
  /** `paused`: it failed again and again, and is asked seldom. */
  readonly state: "failing" | "paused" | "working";
  /** When it began to fail; null if it answers. */
  readonly failing_since: string | null;
  /** When it is asked again; null if it is not paused. */
  readonly paused_until: string | null;
  /** What it failed of; null if it answers. */
  readonly last_error: string | null;
  /** The same for people. */
  readonly last_error_detail: string | null;
  /** Whether an operator has paused it: what it is owed waits. */
  readonly paused: boolean;
  /** Positions that it has not been told of yet, of 1,000 chats at most. */
  readonly waiting: number;
  /** In how many chats there are any. */
  readonly waiting_chats: number;
  /** When it last took an event, as the nodes remember; null if none does. */
  readonly last_success_at: string | null;
}

/** Every webhook. */
export interface WebhookList {
  /** The oldest first. */
  readonly webhooks: readonly WebhookInfo[];
}

/** Whether a test has arrived; else why not. */
export interface WebhookTest {
  /** Whether it answered with a status of 2xx. */
  readonly arrived: boolean;
  /** A stable word for why it failed; null if it arrived. */
  readonly error: string | null;
  /** The same for people; null if it arrived. */
  readonly error_detail: string | null;
}

/** The fields of all requests, in the order in which they are written, with the value that is left out. */
export const REQUEST_FIELDS: Readonly<Record<string, unknown>> = { id: null, token: undefined, chat_id: "", changed_since: null, looking: undefined, user_ids: undefined, device_id: undefined, conversation_id: "", live: true, conv_id: "", client_message_id: undefined, last_acked_sequence: undefined, read_up_to: undefined, message_id: undefined, epoch: null, read_at: null, content: undefined, reaction: undefined, delivered_at: null, last_message_id: null, content_type: "text/plain", on: true, limit: 100, display_time: null, brief: false, after_client_message_id: null, mentions: [], reply_to: null, attachments: [] };
/** What is left out instead, of these fields of these requests. */
export const OTHER_DEFAULTS: Readonly<Record<string, unknown>> = { "sync.last_message_id": undefined, "sync.limit": 1000 };

export type NoParameters = Record<never, never>;

/** Every request over HTTP by its method and path: what it takes, and the body of each good status. */
export interface Routes {
  /** What this server is. */
  "GET /v1/server": {
    path: NoParameters;
    query: NoParameters;
    body: undefined;
    answers: { 200: ServerInfo };
    keyed: false;
  };
  /** Register. */
  "POST /v1/accounts": {
    path: NoParameters;
    query: NoParameters;
    body: NewAccount;
    answers: { 201: Account };
    keyed: true;
  };
  /** Log in. */
  "POST /v1/sessions": {
    path: NoParameters;
    query: NoParameters;
    body: NewSession;
    answers: { 201: SessionGranted };
    keyed: false;
  };
  /** Your sessions. */
  "GET /v1/sessions": {
    path: NoParameters;
    query: NoParameters;
    body: undefined;
    answers: { 200: SessionList };
    keyed: false;
  };
  /** Sign out. */
  "DELETE /v1/sessions/current": {
    path: NoParameters;
    query: NoParameters;
    body: undefined;
    answers: { 204: undefined };
    keyed: false;
  };
  /** Revoke a session. */
  "DELETE /v1/sessions/{session_id}": {
    path: { session_id: string };
    query: NoParameters;
    body: undefined;
    answers: { 204: undefined };
    keyed: false;
  };
  /** Your devices, last used first. */
  "GET /v1/devices": {
    path: NoParameters;
    query: NoParameters;
    body: undefined;
    answers: { 200: DeviceList };
    keyed: false;
  };
  /** Remove a device: its sessions end, its positions are forgotten. */
  "DELETE /v1/devices/{device_id}": {
    path: { device_id: string };
    query: NoParameters;
    body: undefined;
    answers: { 204: undefined };
    keyed: false;
  };
  /** Change your password; your other sessions end. */
  "POST /v1/me/password": {
    path: NoParameters;
    query: NoParameters;
    body: NewPassword;
    answers: { 204: undefined };
    keyed: false;
  };
  /** Sign in on a page. */
  "POST /v1/web/session": {
    path: NoParameters;
    query: { page?: "chat" | "console" };
    body: NewPageSession;
    answers: { 201: PageSessionGranted };
    keyed: false;
  };
  /** The next token of a page. */
  "POST /v1/web/session/refresh": {
    path: NoParameters;
    query: { page?: "chat" | "console" };
    body: PageRefresh;
    answers: { 200: PageSessionGranted };
    keyed: false;
  };
  /** Sign out on a page. */
  "DELETE /v1/web/session": {
    path: NoParameters;
    query: { page?: "chat" | "console" };
    body: undefined;
    answers: { 204: undefined };
    keyed: false;
  };
  /** Your profile and settings. */
  "GET /v1/me": {
    path: NoParameters;
    query: NoParameters;
    body: undefined;
    answers: { 200: Me };
    keyed: false;
  };
  /** Change profile or settings. */
  "PATCH /v1/me": {
    path: NoParameters;
    query: NoParameters;
    body: ProfileChange;
    answers: { 200: Me };
    keyed: false;
  };
  /** Find a person by exact username, or people by their ids. */
  "GET /v1/users": {
    path: NoParameters;
    query: { username?: string; ids?: readonly string[] };
    body: undefined;
    answers: { 200: Profile | ProfileList };
    keyed: false;
  };
  /** A person's profile. */
  "GET /v1/users/{user_id}": {
    path: { user_id: string };
    query: NoParameters;
    body: undefined;
    answers: { 200: Profile };
    keyed: false;
  };
  /** Who is online, of up to 500 people you know. */
  "GET /v1/presence": {
    path: NoParameters;
    query: { user_ids?: readonly string[] };
    body: undefined;
    answers: { 200: PresenceList };
    keyed: false;
  };
  /** Your contacts. */
  "GET /v1/contacts": {
    path: NoParameters;
    query: { after?: string; limit?: number };
    body: undefined;
    answers: { 200: ContactList };
    keyed: false;
  };
  /** Add a contact. */
  "POST /v1/contacts": {
    path: NoParameters;
    query: NoParameters;
    body: NewRelation;
    answers: { 201: Related };
    keyed: true;
  };
  /** Add a contact. */
  "PUT /v1/contacts/{user_id}": {
    path: { user_id: string };
    query: NoParameters;
    body: undefined;
    answers: { 200: Related };
    keyed: false;
  };
  /** Remove a contact. */
  "DELETE /v1/contacts/{user_id}": {
    path: { user_id: string };
    query: NoParameters;
    body: undefined;
    answers: { 204: undefined };
    keyed: false;
  };
  /** The people you have blocked. */
  "GET /v1/blocks": {
    path: NoParameters;
    query: { after?: string; limit?: number };
    body: undefined;
    answers: { 200: BlockList };
    keyed: false;
  };
  /** Block a person. */
  "POST /v1/blocks": {
    path: NoParameters;
    query: NoParameters;
    body: NewRelation;
    answers: { 201: Related };
    keyed: true;
  };
  /** Block a person. */
  "PUT /v1/blocks/{user_id}": {
    path: { user_id: string };
    query: NoParameters;
    body: undefined;
    answers: { 200: Related };
    keyed: false;
  };
  /** Unblock a person. */
  "DELETE /v1/blocks/{user_id}": {
    path: { user_id: string };
    query: NoParameters;
    body: undefined;
    answers: { 204: undefined };
    keyed: false;
  };
  /** Create a chat. */
  "POST /v1/chats": {
    path: NoParameters;
    query: NoParameters;
    body: NewChat;
    answers: { 201: ChatInfo; 200: ChatInfo };
    keyed: true;
  };
  /** Your chats. */
  "GET /v1/chats": {
    path: NoParameters;
    query: { changed_since?: string; order?: "newest"; limit?: number };
    body: undefined;
    answers: { 200: ChatList };
    keyed: false;
  };
  /** One chat. */
  "GET /v1/chats/{chat_id}": {
    path: { chat_id: string };
    query: NoParameters;
    body: undefined;
    answers: { 200: ChatInfo };
    keyed: false;
  };
  /** Change a chat, or mute it for yourself. */
  "PATCH /v1/chats/{chat_id}": {
    path: { chat_id: string };
    query: NoParameters;
    body: ChatChange;
    answers: { 200: ChatInfo };
    keyed: false;
  };
  /** Its members. */
  "GET /v1/chats/{chat_id}/members": {
    path: { chat_id: string };
    query: { after?: string; limit?: number; q?: string };
    body: undefined;
    answers: { 200: MemberList };
    keyed: false;
  };
  /** Add people, or join. */
  "POST /v1/chats/{chat_id}/members": {
    path: { chat_id: string };
    query: NoParameters;
    body: NewMember;
    answers: { 201: MembersAdded; 202: MembersAdded };
    keyed: true;
  };
  /** Change a role. */
  "PATCH /v1/chats/{chat_id}/members/{user_id}": {
    path: { chat_id: string; user_id: string };
    query: NoParameters;
    body: MemberChange;
    answers: { 200: AppendedChange };
    keyed: false;
  };
  /** Remove a member, or leave. */
  "DELETE /v1/chats/{chat_id}/members/{user_id}": {
    path: { chat_id: string; user_id: string };
    query: NoParameters;
    body: undefined;
    answers: { 200: AppendedChange };
    keyed: false;
  };
  /** Your invitations. */
  "GET /v1/invitations": {
    path: NoParameters;
    query: { after?: string; limit?: number };
    body: undefined;
    answers: { 200: InvitationList };
    keyed: false;
  };
  /** Accept an invitation. */
  "POST /v1/invitations/{chat_id}": {
    path: { chat_id: string };
    query: NoParameters;
    body: undefined;
    answers: { 201: AppendedChange };
    keyed: true;
  };
  /** Decline an invitation. */
  "DELETE /v1/invitations/{chat_id}": {
    path: { chat_id: string };
    query: NoParameters;
    body: undefined;
    answers: { 204: undefined };
    keyed: false;
  };
  /** A chat's pending invitations. */
  "GET /v1/chats/{chat_id}/invitations": {
    path: { chat_id: string };
    query: { after?: string; limit?: number };
    body: undefined;
    answers: { 200: InvitationList };
    keyed: false;
  };
  /** Withdraw an invitation. */
  "DELETE /v1/chats/{chat_id}/invitations/{user_id}": {
    path: { chat_id: string; user_id: string };
    query: NoParameters;
    body: undefined;
    answers: { 204: undefined };
    keyed: false;
  };
  /** Send a message. */
  "POST /v1/chats/{chat_id}/messages": {
    path: { chat_id: string };
    query: NoParameters;
    body: NewMessage;
    answers: { 201: Receipt; 200: Receipt };
    keyed: true;
  };
  /** A page of the log: ?after= catches up, ?before= goes back. */
  "GET /v1/chats/{chat_id}/messages": {
    path: { chat_id: string };
    query: { after?: number; before?: number; limit?: number; epoch?: number; last_message_id?: string; around?: string; at?: string; shown?: boolean };
    body: undefined;
    answers: { 200: Batch };
    keyed: false;
  };
  /** Messages by their ids, as a reader sees them. */
  "POST /v1/chats/{chat_id}/messages/lookup": {
    path: { chat_id: string };
    query: NoParameters;
    body: MessageLookup;
    answers: { 200: MessagesFound };
    keyed: false;
  };
  /** One message as it is now. */
  "GET /v1/chats/{chat_id}/messages/{message_id}": {
    path: { chat_id: string; message_id: string };
    query: NoParameters;
    body: undefined;
    answers: { 200: OneMessage };
    keyed: false;
  };
  /** Who has received and read a message. */
  "GET /v1/chats/{chat_id}/messages/{sequence}/receipts": {
    path: { chat_id: string; sequence: number };
    query: NoParameters;
    body: undefined;
    answers: { 200: Receipts };
    keyed: false;
  };
  /** How far every member has received and read; in chats of up to 100 members. */
  "GET /v1/chats/{chat_id}/receipts": {
    path: { chat_id: string };
    query: NoParameters;
    body: undefined;
    answers: { 200: ChatMarks };
    keyed: false;
  };
  /** What became of a message of yours. */
  "GET /v1/sends/{chat_id}/{client_message_id}": {
    path: { chat_id: string; client_message_id: string };
    query: NoParameters;
    body: undefined;
    answers: { 200: SendFound };
    keyed: false;
  };
  /** Search a chat. */
  "GET /v1/chats/{chat_id}/search": {
    path: { chat_id: string };
    query: { q: string; before?: number; limit?: number };
    body: undefined;
    answers: { 200: ChatHits };
    keyed: false;
  };
  /** Search all of your chats. */
  "GET /v1/search": {
    path: NoParameters;
    query: { q: string; before?: string; limit?: number };
    body: undefined;
    answers: { 200: Hits };
    keyed: false;
  };
  /** Announce a file. */
  "POST /v1/chats/{chat_id}/attachments": {
    path: { chat_id: string };
    query: NoParameters;
    body: NewAttachment;
    answers: { 201: AttachmentUpload };
    keyed: true;
  };
  /** A file, and an address to read it from. */
  "GET /v1/chats/{chat_id}/attachments/{attachment_id}": {
    path: { chat_id: string; attachment_id: string };
    query: NoParameters;
    body: undefined;
    answers: { 200: AttachmentInfo };
    keyed: false;
  };
  /** Discard a file of yours that no message refers to. */
  "DELETE /v1/chats/{chat_id}/attachments/{attachment_id}": {
    path: { chat_id: string; attachment_id: string };
    query: NoParameters;
    body: undefined;
    answers: { 204: undefined };
    keyed: false;
  };
  /** Find people. */
  "GET /v1/admin/users": {
    path: NoParameters;
    query: { q?: string; after?: string; limit?: number; state?: string; operator?: string; bot?: string };
    body: undefined;
    answers: { 200: UserInfoPage };
    keyed: false;
  };
  /** Disable an account. */
  "POST /v1/admin/users/{user_id}/disable": {
    path: { user_id: string };
    query: NoParameters;
    body: undefined;
    answers: { 200: UserInfo };
    keyed: false;
  };
  /** Enable an account again. */
  "POST /v1/admin/users/{user_id}/enable": {
    path: { user_id: string };
    query: NoParameters;
    body: undefined;
    answers: { 200: UserInfo };
    keyed: false;
  };
  /** Set a person's password; their sessions end. */
  "POST /v1/admin/users/{user_id}/password": {
    path: { user_id: string };
    query: NoParameters;
    body: PasswordReset;
    answers: { 204: undefined };
    keyed: false;
  };
  /** Delete an account. */
  "DELETE /v1/admin/users/{user_id}": {
    path: { user_id: string };
    query: { erase?: string };
    body: undefined;
    answers: { 202: DeletedUser };
    keyed: false;
  };
  /** A person's sessions. */
  "GET /v1/admin/users/{user_id}/sessions": {
    path: { user_id: string };
    query: NoParameters;
    body: undefined;
    answers: { 200: UserSessionList };
    keyed: false;
  };
  /** Revoke all sessions of a person. */
  "DELETE /v1/admin/users/{user_id}/sessions": {
    path: { user_id: string };
    query: NoParameters;
    body: undefined;
    answers: { 204: undefined };
    keyed: false;
  };
  /** Revoke a session of a person. */
  "DELETE /v1/admin/users/{user_id}/sessions/{session_id}": {
    path: { user_id: string; session_id: string };
    query: NoParameters;
    body: undefined;
    answers: { 204: undefined };
    keyed: false;
  };
  /** How long the bodies of a chat are kept. */
  "GET /v1/admin/chats/{chat_id}/retention": {
    path: { chat_id: string };
    query: NoParameters;
    body: undefined;
    answers: { 200: Required<RetentionChange> };
    keyed: false;
  };
  /** Decide how long the bodies of a chat are kept, or hold them. */
  "PUT /v1/admin/chats/{chat_id}/retention": {
    path: { chat_id: string };
    query: NoParameters;
    body: RetentionChange;
    answers: { 200: Required<RetentionChange> };
    keyed: false;
  };
  /** What operators did, newest first. */
  "GET /v1/admin/audit": {
    path: NoParameters;
    query: { actor?: string; action?: string; target?: string; since?: string; until?: string; before?: string; limit?: number };
    body: undefined;
    answers: { 200: AuditList };
    keyed: false;
  };
  /** Check the invariants of a chat. */
  "GET /v1/admin/chats/{chat_id}/check": {
    path: { chat_id: string };
    query: NoParameters;
    body: undefined;
    answers: { 200: ChatCheck };
    keyed: false;
  };
  /** What a console shows first. */
  "GET /v1/admin/overview": {
    path: NoParameters;
    query: NoParameters;
    body: undefined;
    answers: { 200: ServerOverview };
    keyed: false;
  };
  /** Background jobs: last run, outcome, next run. */
  "GET /v1/admin/jobs": {
    path: NoParameters;
    query: NoParameters;
    body: undefined;
    answers: { 200: JobList };
    keyed: false;
  };
  /** Run a background job now. */
  "POST /v1/admin/jobs/{job}/run": {
    path: { job: string };
    query: { node?: string };
    body: undefined;
    answers: { 202: JobWanted };
    keyed: true;
  };
  /** The nodes that are alive, and how each is. */
  "GET /v1/admin/nodes": {
    path: NoParameters;
    query: NoParameters;
    body: undefined;
    answers: { 200: NodeList };
    keyed: false;
  };
  /** Drain a node. */
  "POST /v1/admin/nodes/{node_id}/drain": {
    path: { node_id: string };
    query: NoParameters;
    body: undefined;
    answers: { 202: NodeDrained };
    keyed: true;
  };
  /** Topics, and how far their consumers are. */
  "GET /v1/admin/topics": {
    path: NoParameters;
    query: NoParameters;
    body: undefined;
    answers: { 200: TopicList };
    keyed: false;
  };
  /** The last hour of a few numbers. */
  "GET /v1/admin/series": {
    path: NoParameters;
    query: { names?: readonly string[]; seconds?: number; node?: string };
    body: undefined;
    answers: { 200: Series };
    keyed: false;
  };
  /** The connections of a node. */
  "GET /v1/admin/connections": {
    path: NoParameters;
    query: { user_id?: string; after?: string; limit?: number; node?: string };
    body: undefined;
    answers: { 200: ConnectionList };
    keyed: false;
  };
  /** Close a connection. */
  "DELETE /v1/admin/connections/{connection_id}": {
    path: { connection_id: string };
    query: { node?: string };
    body: undefined;
    answers: { 204: undefined };
    keyed: false;
  };
  /** The backups of this server. */
  "GET /v1/admin/backups": {
    path: NoParameters;
    query: NoParameters;
    body: undefined;
    answers: { 200: BackupList };
    keyed: false;
  };
  /** Dead letters, and how many by error. */
  "GET /v1/admin/dlq": {
    path: NoParameters;
    query: { status?: string; error?: string; topic?: string; chat_id?: string; recipient?: string; after?: string; before?: string; page?: string; brief?: boolean; limit?: number };
    body: undefined;
    answers: { 200: DeadLetterPage };
    keyed: false;
  };
  /** How many dead letters, by error, hour and recipient. */
  "GET /v1/admin/dlq/summary": {
    path: NoParameters;
    query: { status?: string; error?: string; topic?: string; chat_id?: string; recipient?: string; after?: string; before?: string };
    body: undefined;
    answers: { 200: DeadLetterSummary };
    keyed: false;
  };
  /** Replays and discards of dead letters. */
  "GET /v1/admin/dlq/jobs": {
    path: NoParameters;
    query: NoParameters;
    body: undefined;
    answers: { 200: DeadLetterJobList };
    keyed: false;
  };
  /** A dead letter with its story. */
  "GET /v1/admin/dlq/{dlq_id}": {
    path: { dlq_id: string };
    query: NoParameters;
    body: undefined;
    answers: { 200: DeadLetterStory };
    keyed: false;
  };
  /** What a replay or a discard would concern. */
  "POST /v1/admin/dlq/preview": {
    path: NoParameters;
    query: NoParameters;
    body: PreviewOrder;
    answers: { 200: DeadLetterPreview };
    keyed: false;
  };
  /** Replay dead letters. */
  "POST /v1/admin/dlq/replay": {
    path: NoParameters;
    query: NoParameters;
    body: ReplayOrder;
    answers: { 200: DeadLetterJob; 202: DeadLetterJob };
    keyed: true;
  };
  /** Give dead letters up. */
  "POST /v1/admin/dlq/discard": {
    path: NoParameters;
    query: NoParameters;
    body: DiscardOrder;
    answers: { 200: DeadLetterJob };
    keyed: false;
  };
  /** How far a replay is. */
  "GET /v1/admin/dlq/jobs/{job_id}": {
    path: { job_id: string };
    query: NoParameters;
    body: undefined;
    answers: { 200: DeadLetterProgress };
    keyed: false;
  };
  /** Webhooks. */
  "GET /v1/admin/webhooks": {
    path: NoParameters;
    query: NoParameters;
    body: undefined;
    answers: { 200: WebhookList };
    keyed: false;
  };
  /** Add a webhook. */
  "POST /v1/admin/webhooks": {
    path: NoParameters;
    query: NoParameters;
    body: NewWebhook;
    answers: { 201: WebhookAdded };
    keyed: false;
  };
  /** Pause a webhook, or let it go on. */
  "PATCH /v1/admin/webhooks/{webhook_id}": {
    path: { webhook_id: string };
    query: NoParameters;
    body: WebhookChange;
    answers: { 200: WebhookInfo };
    keyed: false;
  };
  /** Send a webhook a test. */
  "POST /v1/admin/webhooks/{webhook_id}/test": {
    path: { webhook_id: string };
    query: NoParameters;
    body: undefined;
    answers: { 200: WebhookTest };
    keyed: false;
  };
  /** Give a webhook a new secret. */
  "POST /v1/admin/webhooks/{webhook_id}/secret": {
    path: { webhook_id: string };
    query: NoParameters;
    body: undefined;
    answers: { 200: WebhookAdded };
    keyed: false;
  };
  /** Remove a webhook. */
  "DELETE /v1/admin/webhooks/{webhook_id}": {
    path: { webhook_id: string };
    query: NoParameters;
    body: undefined;
    answers: { 204: undefined };
    keyed: false;
  };
  /** Your devices that get notifications. */
  "GET /v1/me/push": {
    path: NoParameters;
    query: NoParameters;
    body: undefined;
    answers: { 200: PushDeviceList };
    keyed: false;
  };
  /** Let a device get notifications. */
  "PUT /v1/me/push/{device_id}": {
    path: { device_id: string };
    query: NoParameters;
    body: NewPushDevice;
    answers: { 200: PushDeviceInfo };
    keyed: false;
  };
  /** How a device is notified. */
  "GET /v1/me/push/{device_id}": {
    path: { device_id: string };
    query: NoParameters;
    body: undefined;
    answers: { 200: PushDeviceInfo };
    keyed: false;
  };
  /** Let a device get no more notifications. */
  "DELETE /v1/me/push/{device_id}": {
    path: { device_id: string };
    query: NoParameters;
    body: undefined;
    answers: { 204: undefined };
    keyed: false;
  };
  /** The key for Web Push. */
  "GET /v1/push/vapid": {
    path: NoParameters;
    query: NoParameters;
    body: undefined;
    answers: { 200: VapidPublicKey };
    keyed: false;
  };
  /** The providers of notifications, and what became of them. */
  "GET /v1/admin/push": {
    path: NoParameters;
    query: NoParameters;
    body: undefined;
    answers: { 200: PushState };
    keyed: false;
  };
  /** Let a device of a person get no more notifications. */
  "DELETE /v1/admin/users/{user_id}/push/{device_id}": {
    path: { user_id: string; device_id: string };
    query: NoParameters;
    body: undefined;
    answers: { 204: undefined };
    keyed: false;
  };
  /** Find chats. */
  "GET /v1/admin/chats": {
    path: NoParameters;
    query: { q?: string; type?: string; after?: string; limit?: number };
    body: undefined;
    answers: { 200: ListedChatPage };
    keyed: false;
  };
  /** A chat with its counters and rules. */
  "GET /v1/admin/chats/{chat_id}": {
    path: { chat_id: string };
    query: NoParameters;
    body: undefined;
    answers: { 200: ChatOverview };
    keyed: false;
  };
  /** Rename a chat, or choose how its notifications are fanned out. */
  "PATCH /v1/admin/chats/{chat_id}": {
    path: { chat_id: string };
    query: NoParameters;
    body: FanoutChange;
    answers: { 200: FanoutInfo };
    keyed: false;
  };
  /** The members of a chat, and how far their devices are. */
  "GET /v1/admin/chats/{chat_id}/members": {
    path: { chat_id: string };
    query: { after?: string; limit?: number };
    body: undefined;
    answers: { 200: MemberPositionPage };
    keyed: false;
  };
  /** The log of a chat around a position. */
  "GET /v1/admin/chats/{chat_id}/log": {
    path: { chat_id: string };
    query: { around?: string; limit?: number; reveal?: string };
    body: undefined;
    answers: { 200: LogLines };
    keyed: false;
  };
  /** Delete a message of a chat. */
  "DELETE /v1/admin/chats/{chat_id}/messages/{message_id}": {
    path: { chat_id: string; message_id: string };
    query: NoParameters;
    body: DeletionReason;
    answers: { 204: undefined };
    keyed: false;
  };
  /** Delete a chat. */
  "DELETE /v1/admin/chats/{chat_id}": {
    path: { chat_id: string };
    query: NoParameters;
    body: DeletionReason;
    answers: { 202: ChatDeletion };
    keyed: false;
  };
  /** Restore the lost counter of a chat. */
  "POST /v1/admin/chats/{chat_id}/recover": {
    path: { chat_id: string };
    query: NoParameters;
    body: RecoveryOrder;
    answers: { 200: RecoveryReport };
    keyed: false;
  };
  /** A person with their chats, devices and sessions. */
  "GET /v1/admin/users/{user_id}": {
    path: { user_id: string };
    query: NoParameters;
    body: undefined;
    answers: { 200: PersonInfo };
    keyed: false;
  };
  /** Make a person an operator. */
  "PUT /v1/admin/users/{user_id}/operator": {
    path: { user_id: string };
    query: NoParameters;
    body: undefined;
    answers: { 200: UserInfo };
    keyed: false;
  };
  /** Let a person be no operator any more. */
  "DELETE /v1/admin/users/{user_id}/operator": {
    path: { user_id: string };
    query: NoParameters;
    body: undefined;
    answers: { 200: UserInfo };
    keyed: false;
  };
  /** What became of a message. */
  "GET /v1/admin/messages/{message_id}/timeline": {
    path: { message_id: string };
    query: { user_id?: string; chat_id?: string };
    body: undefined;
    answers: { 200: MessageTimeline };
    keyed: false;
  };
  /** The tokens of programs. */
  "GET /v1/admin/tokens": {
    path: NoParameters;
    query: NoParameters;
    body: undefined;
    answers: { 200: ApiTokenList };
    keyed: false;
  };
  /** Make a token for a program. */
  "POST /v1/admin/tokens": {
    path: NoParameters;
    query: NoParameters;
    body: NewApiToken;
    answers: { 201: ApiTokenMade };
    keyed: false;
  };
  /** Revoke a token of a program. */
  "DELETE /v1/admin/tokens/{token_id}": {
    path: { token_id: string };
    query: NoParameters;
    body: undefined;
    answers: { 204: undefined };
    keyed: false;
  };
  /** Post by an incoming webhook. */
  "POST /v1/hooks/{token}": {
    path: { token: string };
    query: NoParameters;
    body: HookMessage;
    answers: { 201: Receipt; 200: Receipt };
    keyed: true;
  };
  /** Make or change the account of a person of your system. */
  "PUT /v1/admin/users/{user_id}": {
    path: { user_id: string };
    query: NoParameters;
    body: ExternalUser;
    answers: { 201: ExternalUserPut; 200: ExternalUserPut };
    keyed: false;
  };
  /** Make a token for a device of a person. */
  "POST /v1/admin/users/{user_id}/tokens": {
    path: { user_id: string };
    query: NoParameters;
    body: NewUserToken;
    answers: { 201: SessionGranted };
    keyed: false;
  };
  /** Create a chat for others. */
  "POST /v1/admin/chats": {
    path: NoParameters;
    query: NoParameters;
    body: NewChatOfOthers;
    answers: { 201: ChatOfOthers; 200: ChatOfOthers };
    keyed: true;
  };
  /** Put a person into a chat, or change their role. */
  "PUT /v1/admin/chats/{chat_id}/members/{user_id}": {
    path: { chat_id: string; user_id: string };
    query: NoParameters;
    body: MemberPut;
    answers: { 200: MemberState };
    keyed: false;
  };
  /** Take a person out of a chat. */
  "DELETE /v1/admin/chats/{chat_id}/members/{user_id}": {
    path: { chat_id: string; user_id: string };
    query: NoParameters;
    body: undefined;
    answers: { 204: undefined };
    keyed: false;
  };
  /** Send a message for a member. */
  "POST /v1/admin/chats/{chat_id}/messages": {
    path: { chat_id: string };
    query: NoParameters;
    body: MessageOnBehalf;
    answers: { 201: Receipt; 200: Receipt };
    keyed: true;
  };
  /** Set a new password by a link. */
  "POST /v1/password-reset": {
    path: NoParameters;
    query: NoParameters;
    body: PasswordByLink;
    answers: { 204: undefined };
    keyed: false;
  };
  /** Make a link by which people register. */
  "POST /v1/admin/invites": {
    path: NoParameters;
    query: NoParameters;
    body: NewInvite;
    answers: { 201: LinkMade };
    keyed: false;
  };
  /** The links by which people register. */
  "GET /v1/admin/invites": {
    path: NoParameters;
    query: { before?: string; limit?: number };
    body: undefined;
    answers: { 200: LinkList };
    keyed: false;
  };
  /** Revoke a link by which people register. */
  "DELETE /v1/admin/invites/{link_id}": {
    path: { link_id: string };
    query: NoParameters;
    body: undefined;
    answers: { 204: undefined };
    keyed: false;
  };
  /** Make a link by which a person sets a new password. */
  "POST /v1/admin/users/{user_id}/password-reset": {
    path: { user_id: string };
    query: NoParameters;
    body: NewPasswordLink;
    answers: { 201: LinkMade };
    keyed: false;
  };
  /** Revoke the link by which a person sets a new password. */
  "DELETE /v1/admin/users/{user_id}/password-reset": {
    path: { user_id: string };
    query: NoParameters;
    body: undefined;
    answers: { 204: undefined };
    keyed: false;
  };
  /** Delete your account. */
  "DELETE /v1/me": {
    path: NoParameters;
    query: { erase?: string };
    body: OwnDeletion;
    answers: { 202: OwnDeleted };
    keyed: false;
  };
  /** Erasures of people, and deletions of chats. */
  "GET /v1/admin/erasures": {
    path: NoParameters;
    query: { before?: string; limit?: number };
    body: undefined;
    answers: { 200: ErasureList };
    keyed: false;
  };
  /** What the erasure of a person has removed. */
  "GET /v1/admin/erasures/{user_id}": {
    path: { user_id: string };
    query: NoParameters;
    body: undefined;
    answers: { 200: ErasureInfo };
    keyed: false;
  };
  /** Report a message to the operators. */
  "POST /v1/chats/{chat_id}/messages/{message_id}/report": {
    path: { chat_id: string; message_id: string };
    query: NoParameters;
    body: NewReport;
    answers: { 201: ReportMade; 200: ReportMade };
    keyed: true;
  };
  /** Reports of messages. */
  "GET /v1/admin/reports": {
    path: NoParameters;
    query: { status?: string; before?: string; brief?: boolean; limit?: number };
    body: undefined;
    answers: { 200: ReportList };
    keyed: false;
  };
  /** One report. */
  "GET /v1/admin/reports/{report_id}": {
    path: { report_id: string };
    query: NoParameters;
    body: undefined;
    answers: { 200: ReportInfo };
    keyed: false;
  };
  /** Resolve a report. */
  "POST /v1/admin/reports/{report_id}/resolve": {
    path: { report_id: string };
    query: NoParameters;
    body: ReportResolution;
    answers: { 200: ReportInfo };
    keyed: false;
  };
  /** Act on a report. */
  "POST /v1/admin/reports/{report_id}/act": {
    path: { report_id: string };
    query: NoParameters;
    body: ReportAction;
    answers: { 200: ReportActed };
    keyed: false;
  };
}
