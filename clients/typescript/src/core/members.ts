/**
 * The members of an open chat, and how far each has received and read it. Pure.
 *
 * HTTP returns a snapshot. Frames that arrive while it loads are applied again on top of it: positions only
 * rise and changes keep the log's order, so the result is the same.
 */

import type {
  ChatInfo,
  ChatMarks,
  Entry,
  MemberCursor,
  MemberInfo,
  PresenceView,
  ReadReceipts,
  ReceiptFrame,
  Role,
} from "../contract.js";
import { RECEIPT_MEMBERS_MAX } from "../limits.js";
import { type MemberMarks, type MessageReceipts, receiptsOf, type SeenBy, statusOf } from "./receipts.js";

/** The client subscribes to the presence of members in chats up to this size. */
export const WATCHED_MEMBERS_MAX = 100;

type Writable<T> = { -readonly [Name in keyof T]: T[Name] };

/**
 * A member of an open chat, kept up to date: the object stays the same and changes.
 *
 * `lastSeen` is "unavailable" if the person may not see it. Positions are 0 and times null where they are
 * unknown or hidden.
 */
export interface Member extends MemberMarks {
  readonly username: string;
  readonly displayName: string;
  readonly role: Role;
  readonly joinedAt: string;
  readonly status: PresenceView["status"];
  readonly lastSeen: string | null;
  /** A program: no receipt counts it. */
  readonly isBot: boolean;
}

/** A chat from HTTP. A chat with too many members has no `marks`. */
export interface ChatSnapshot {
  readonly info: Pick<ChatInfo, "title" | "read_receipts">;
  readonly members: readonly MemberInfo[];
  readonly marks: ChatMarks | null;
}

/** A change of the chat, as its entry says it. */
interface Change {
  readonly action: string;
  readonly user_id?: string;
  readonly role?: Role;
  readonly title?: string;
  readonly read_receipts?: ReadReceipts | null;
}

const MODES: ReadonlySet<unknown> = new Set<ReadReceipts>(["full", "simple", "none"]);

function newMember(userId: string, joinedSequence: number, role: Role): Writable<Member> {
  return {
    userId,
    username: "",
    displayName: "",
    role,
    joinedAt: "",
    joinedSequence,
    status: "offline",
    lastSeen: null,
    deliveredUpTo: 0,
    deliveredAt: null,
    readUpTo: 0,
    readAt: null,
    isBot: false,
  };
}

/** The members of one open chat, with its title and its read receipts mode. */
export class Roster {
  readonly #byId = new Map<string, Writable<Member>>();
  title: string | null = null;
  mode: ReadReceipts = "full";
  isLoaded = false;
  /** Whether a snapshot must be loaded. */
  needsLoad = true;
  failedLoads = 0;
  /** What arrived while a snapshot loads; undefined while none does. */
  #sinceLoadBegan: (ReceiptFrame | Entry)[] | undefined;
  #latestRead: SeenBy = { userId: null, at: "" };
  #readByAnybody = 0;

  /** In the order in which they joined. */
  get members(): ReadonlyMap<string, Member> {
    return this.#byId;
  }

  startLoad(): void {
    this.needsLoad = false;
    this.#sinceLoadBegan = [];
  }

  loadFailed(): void {
    this.needsLoad = true;
    this.failedLoads += 1;
    this.#sinceLoadBegan = undefined;
  }

  /** Apply the snapshot, and again what arrived while it was loading. */
  load({ info, members, marks }: ChatSnapshot): void {
    this.isLoaded = true;
    this.failedLoads = 0;
    this.title = info.title;
    this.mode = info.read_receipts;
    const byUser = new Map(marks?.marks.map((mark) => [mark.user_id, mark]));
    const before = new Map(this.#byId);
    this.#byId.clear();
    for (const one of [...members].sort((a, b) => a.joined_sequence - b.joined_sequence)) {
      const member = before.get(one.user_id) ?? newMember(one.user_id, one.joined_sequence, one.role);
      update(member, one, byUser.get(one.user_id));
      this.#byId.set(one.user_id, member);
    }
    this.#readByAnybody = marks?.read_by_anybody ?? 0;
    const arrived = this.#sinceLoadBegan ?? [];
    this.#sinceLoadBegan = undefined;
    for (const one of arrived) "type" in one ? this.receiveReceipt(one) : this.receiveEntry(one);
  }

  /** Returns whether a position rose. */
  receiveReceipt(frame: ReceiptFrame): boolean {
    this.#sinceLoadBegan?.push(frame);
    const { user_id: userId, up_to_sequence: upTo, at } = frame;
    if (userId === null) {
      if (upTo <= this.#readByAnybody) return false;
      this.#readByAnybody = upTo;
      this.#latestRead = { userId: null, at };
      return true;
    }
    const member = this.#byId.get(userId);
    if (!member) return false;
    const isDelivered = upTo > member.deliveredUpTo;
    const isRead = frame.kind === "read" && upTo > member.readUpTo;
    if (isDelivered) Object.assign(member, { deliveredUpTo: upTo, deliveredAt: at });
    if (isRead) Object.assign(member, { readUpTo: upTo, readAt: at });
    return isDelivered || isRead;
  }

  /** An entry of the log. Returns whether it changes the chat. */
  receiveEntry(entry: Entry): boolean {
    const change = changeIn(entry);
    if (!change) return false;
    this.#sinceLoadBegan?.push(entry);
    this.#apply(entry.sequence, change);
    return true;
  }

  receivePresence(view: PresenceView): void {
    const member = this.#byId.get(view.user_id);
    if (member) Object.assign(member, { status: view.status, lastSeen: view.last_seen });
  }

  /** The receipts of a message, derived from how far every member is. */
  receipts(sequence: number, senderId: string): MessageReceipts {
    const people = [...this.#byId.values()].filter((member) => !member.isBot);
    const found = receiptsOf(sequence, senderId, people, this.mode);
    if (this.mode !== "simple" || this.#readByAnybody < sequence) return found;
    const status = statusOf(found.delivered.length, 1, found.memberCount, this.mode);
    return { ...found, status, read: [this.#latestRead] };
  }

  #apply(sequence: number, change: Change): void {
    const { user_id: userId = "", role = "member" } = change;
    const member = this.#byId.get(userId);
    switch (change.action) {
      case "joined":
        if (!member) {
          // The log has no names: the next snapshot does.
          this.#byId.set(userId, newMember(userId, sequence, role));
          this.needsLoad = true;
        }
        break;
      case "left":
      case "removed":
        if (member && member.joinedSequence < sequence) {
          this.#byId.delete(userId);
          // With one more member, the server sent no positions.
          this.needsLoad ||= this.#byId.size === RECEIPT_MEMBERS_MAX;
        }
        break;
      case "role":
        if (member) member.role = role;
        break;
      case "renamed":
        this.title = change.title ?? "";
        break;
      case "read_receipts":
        if (change.read_receipts && MODES.has(change.read_receipts)) {
          // Another mode shows other positions.
          this.mode = change.read_receipts;
          this.needsLoad = true;
        }
    }
  }
}

const ACTIONS = new Set(["joined", "left", "removed", "role", "renamed", "read_receipts", "posting"]);

/** The change in an entry; undefined if there is none, or one that this version cannot read. */
function changeIn(entry: Entry): Change | undefined {
  if (entry.kind !== "member" && entry.kind !== "chat") return undefined;
  try {
    const change: Change | null = JSON.parse(entry.content);
    return change && ACTIONS.has(change.action) ? change : undefined;
  } catch {
    return undefined;
  }
}

/** Update the member object in place from a snapshot: the application may hold it. */
function update(member: Writable<Member>, info: MemberInfo, mark: MemberCursor | undefined): void {
  Object.assign(member, {
    username: info.username,
    displayName: info.display_name,
    role: info.role,
    isBot: info.is_bot,
    joinedAt: info.joined_at,
    joinedSequence: info.joined_sequence,
    status: info.status,
    lastSeen: info.last_seen,
    deliveredUpTo: mark?.delivered_up_to ?? 0,
    deliveredAt: mark?.delivered_at ?? null,
    readUpTo: mark?.read_up_to ?? 0,
    readAt: mark?.read_at ?? null,
  } satisfies Partial<Member>);
}
