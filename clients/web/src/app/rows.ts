/** What the list of messages shows, of a window, of what waits to be sent, and of where the person was. Pure. */

import type { Entry, MessageState, MessageStatus, ReactionCount, RepliedMessage, Sending } from "parley-chat";
import { dayKey } from "parley-ui/time.js";

/** Messages of one sender so close together are one group. */
const GROUP_MS = 5 * 60_000;

interface Common {
  readonly key: string;
  readonly at: number;
  /** It begins a day: the day is named before it. */
  readonly day: number | null;
  /** The divider of unread messages is before it. */
  readonly isFirstUnread: boolean;
}

export interface MessageRow extends Common {
  readonly type: "message";
  readonly entry: Entry;
  readonly reactions: readonly ReactionCount[];
  /** What it answers, if the server said so. */
  readonly replied: RepliedMessage | null;
  readonly isOwn: boolean;
  /** It continues the group of the message before it. */
  readonly isNext: boolean;
  /** The message after it continues its group. */
  readonly hasNext: boolean;
  readonly status: MessageStatus;
  /** What waits: the message itself, or an edit of it. */
  readonly sending: Sending | null;
}

export interface EventRow extends Common {
  readonly type: "event";
  readonly entry: Entry;
}

export type Row = MessageRow | EventRow;

export interface RowsOf {
  readonly entries: readonly Entry[];
  readonly messages: readonly MessageState[];
  readonly unsent: readonly Sending[];
  readonly userId: string;
  /** The divider is before the first message of others behind this; null: nowhere. */
  readonly dividerAfter: number | null;
  /** The first position of the window: a divider before it is not shown. */
  readonly from: number;
  /** Whether the window reaches to the end: only there is what waits shown. */
  readonly isAtEnd: boolean;
  statusOf(entry: Entry): MessageStatus;
}

type Draftless = Omit<MessageRow, "day" | "isNext" | "hasNext" | "isFirstUnread">;

/** When an entry was stored, and on which day: worked out once, however often the rows are. */
const times = new WeakMap<Entry, { readonly at: number; readonly day: number }>();

function timeOf(entry: Entry): { readonly at: number; readonly day: number } {
  const known = times.get(entry);
  if (known) return known;
  const at = Date.parse(entry.created_at);
  const found = { at, day: dayKey(at) };
  times.set(entry, found);
  return found;
}

export function rowsOf(of: RowsOf): Row[] {
  const rows: (Draftless | Omit<EventRow, "day" | "isFirstUnread">)[] = [];
  const states = new Map(of.messages.map((state) => [state.entry.message_id, state]));
  const stored = new Set<string>();
  for (const entry of of.entries) {
    const { at } = timeOf(entry);
    if (entry.kind === "message") {
      const state = states.get(entry.message_id);
      if (!state) continue;
      const isOwn = entry.sender_id === of.userId;
      if (isOwn && entry.client_message_id) stored.add(entry.client_message_id);
      rows.push({
        type: "message",
        key: (isOwn && entry.client_message_id) || entry.message_id,
        at,
        entry: state.entry,
        reactions: state.reactions,
        replied: state.replied ?? null,
        isOwn,
        status: isOwn ? of.statusOf(entry) : "sent",
        sending: null,
      });
    } else if (entry.kind === "member" || entry.kind === "chat") {
      rows.push({ type: "event", key: entry.message_id, at, entry });
    }
  }
  if (of.isAtEnd) for (const sending of of.unsent) addWaiting(rows, sending, stored, of.userId);
  return placed(rows, of);
}

function addWaiting(
  rows: (Draftless | Omit<EventRow, "day" | "isFirstUnread">)[],
  sending: Sending,
  stored: ReadonlySet<string>,
  userId: string,
): void {
  const { message } = sending;
  if ((message.kind ?? "message") !== "message" || stored.has(message.clientMessageId)) return;
  rows.push({
    type: "message",
    key: message.clientMessageId,
    at: message.createdAtMs,
    entry: entryOf(sending, userId),
    reactions: [],
    replied: null,
    isOwn: true,
    status: sending.status,
    sending,
  });
}

/** A message that waits, as the entry that it will be. */
function entryOf({ message }: Sending, userId: string): Entry {
  const at = new Date(message.createdAtMs).toISOString();
  return {
    chat_id: message.chatId,
    sequence: 0,
    epoch: 0,
    kind: "message",
    message_id: "",
    sender_id: userId,
    client_message_id: message.clientMessageId,
    content: message.content,
    content_type: message.contentType ?? "text/plain",
    created_at: at,
    server_timestamp: at,
    display_time: message.displayTime ?? null,
    ...(message.mentions && { mentions: message.mentions }),
    ...(message.replyTo && { reply_to: message.replyTo }),
  };
}

function placed(rows: readonly (Draftless | Omit<EventRow, "day" | "isFirstUnread">)[], of: RowsOf): Row[] {
  let isDivided = of.dividerAfter === null || of.dividerAfter + 1 < of.from;
  return rows.map((row, index) => {
    const [before, after] = [rows[index - 1], rows[index + 1]];
    const { day: today } = timeOf(row.entry);
    const day = before && timeOf(before.entry).day === today ? null : row.at;
    let isFirstUnread = false;
    if (!isDivided && row.type === "message" && !row.isOwn && row.entry.sequence > (of.dividerAfter ?? 0)) {
      isDivided = isFirstUnread = true;
    }
    if (row.type === "event") return { ...row, day, isFirstUnread };
    const isNext = day === null && !isFirstUnread && isOneGroup(before, row);
    const hasNext = !!after && timeOf(after.entry).day === today && isOneGroup(row, after);
    return { ...row, day, isFirstUnread, isNext, hasNext };
  });
}

type Any = Draftless | Omit<EventRow, "day" | "isFirstUnread">;

function isOneGroup(one: Any | undefined, other: Any): boolean {
  return (
    one?.type === "message" &&
    other.type === "message" &&
    one.entry.sender_id === other.entry.sender_id &&
    other.at - one.at < GROUP_MS
  );
}
