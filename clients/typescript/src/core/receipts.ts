/** The receipts of a message, derived from how far each member is. Nothing is stored per message. Pure. */

import type { DeliveryStatus, ReadReceipts } from "../contract.js";

/** How far a member has received and read, and since when. */
export interface MemberMarks {
  readonly userId: string;
  readonly joinedSequence: number;
  readonly deliveredUpTo: number;
  readonly deliveredAt: string | null;
  readonly readUpTo: number;
  readonly readAt: string | null;
}

/** A member has received or read a message, at this time or before. Chats in mode "simple" leave out who. */
export interface SeenBy {
  readonly userId: string | null;
  readonly at: string;
}

/**
 * `memberCount`: the people it was for, so the members without its sender, without those who joined after the
 * message, and without bots.
 */
export interface MessageReceipts {
  readonly memberCount: number;
  readonly status: DeliveryStatus;
  readonly delivered: readonly SeenBy[];
  readonly read: readonly SeenBy[];
}

/**
 * The receipts of the message at `sequence`.
 *
 * The message is delivered, or read, once every counted member has received or read it. In "simple" one reader
 * is enough, and is not named.
 */
export function receiptsOf(
  sequence: number,
  senderId: string,
  members: Iterable<MemberMarks>,
  mode: ReadReceipts,
): MessageReceipts {
  const counted = [...members].filter((mark) => mark.userId !== senderId && mark.joinedSequence < sequence);
  const delivered = counted
    .filter((mark) => mark.deliveredUpTo >= sequence)
    .map((mark) => ({ userId: mark.userId, at: mark.deliveredAt ?? "" }));
  const read = counted
    .filter((mark) => mark.readUpTo >= sequence)
    .map((mark) => ({ userId: mark.userId, at: mark.readAt ?? "" }));
  const memberCount = counted.length;
  const status = statusOf(delivered.length, read.length, memberCount, mode);
  return { memberCount, status, delivered, read: shownReaders(read, mode) };
}

/** The status of a message, from the numbers of members who received it, who read it, and of all. */
export function statusOf(
  delivered: number,
  read: number,
  members: number,
  mode: ReadReceipts,
): DeliveryStatus {
  const wanted = { full: members, simple: 1, none: members + 1 }[mode];
  if (members && read >= wanted) return "read";
  return members && delivered >= members ? "delivered" : "sent";
}

/** What a chat in this mode shows of its readers. */
function shownReaders(read: SeenBy[], mode: ReadReceipts): SeenBy[] {
  if (mode === "full") return read;
  const [first] = read.map((seen) => seen.at).sort();
  return mode === "simple" && first !== undefined ? [{ userId: null, at: first }] : [];
}
