/**
 * A small server without sockets or time that a test can hurt: the protocol as a client sees it.
 *
 * Frames go in (`Session.receive`) and come out (`Session.sent`). A test chooses what is refused, what nobody is
 * told, and when a log is lost; it delivers frames in the order that it likes, or not at all.
 */

import type {
  Ack,
  ClientFrame,
  DeleteMessage,
  EditMessage,
  Entry,
  MemberCursor,
  MemberInfo,
  Overview,
  OverviewChat,
  React,
  SendFound,
  SendMessage,
  ServerFrame,
  SyncOverview,
  SyncRequest,
} from "../../src/contract.js";
import type { Refusal } from "../../src/core/errors.js";
import { edited, tombstone } from "../../src/core/life.js";
import { afterEntry, afterVoid, emptyLog, shown } from "../../src/core/logHash.js";
import type { ChatSnapshot } from "../../src/core/members.js";

export const HEARTBEAT_SECONDS = 30;
const PAGE_ENTRIES_MAX = 100;
const OVERVIEW_CHATS_MAX = 1_000;
const TYPING_SHOWN_MS = 5_000;

type Appending = SendMessage | EditMessage | DeleteMessage | React;

interface MemberState {
  readonly joinedSequence: number;
  delivered: number;
  read: number;
}

interface ChatState {
  readonly chatId: string;
  epoch: number;
  /** By position, from 1; null is a void. */
  log: (Entry | null)[];
  readonly members: Map<string, MemberState>;
  readonly mutedUntil: Map<string, string>;
  /** When it last changed, in changes of the server. */
  changedAt: number;
  /** By person: when they left. */
  readonly leftAt: Map<string, number>;
  /** How far live frames have told the log. */
  toldUpTo: number;
}

/** Refusals by their codes, for `refuseNext`. */
export const refusal = (code: string, more: Partial<Refusal> = {}): Refusal => ({
  code,
  reason: `the test says ${code}`,
  temporary: false,
  ...more,
});

/** One connection of a device. */
export class Session {
  readonly userId: string;
  readonly deviceId: string;
  /** What the server has sent and nobody has taken yet, oldest first. */
  readonly sent: ServerFrame[] = [];
  readonly watched = new Set<string>();
  isOpen = true;
  readonly #server: ModelServer;

  constructor(server: ModelServer, userId: string, deviceId: string) {
    this.#server = server;
    this.userId = userId;
    this.deviceId = deviceId;
  }

  /** A frame of the client arrives. */
  receive(frame: ClientFrame): void {
    if (this.isOpen) this.#server.answer(this, frame);
  }

  close(): void {
    this.isOpen = false;
    this.sent.length = 0;
  }
}

export class ModelServer {
  readonly #chats = new Map<string, ChatState>();
  readonly #sessions = new Set<Session>();
  /** By device and chat: how far it has acknowledged. */
  readonly #acked = new Map<string, number>();
  /** By chat and client_message_id. */
  readonly #stored = new Map<string, { entry: Entry; said: string }>();
  readonly online = new Set<string>();
  #changes = 0;
  #ids = 0;
  /** The wall clock of the server. */
  now: () => number = () => Date.UTC(2026, 0, 30, 14, 30);
  /** Refusals of the next sends, first come first. */
  readonly refuseSends: Refusal[] = [];
  /** Refusals of the next other requests. */
  readonly refuseOthers: Refusal[] = [];
  /** Whether live entries are told; what is not told is in `heads` of the next heartbeat. */
  tellsLive = true;
  pageEntriesMax = PAGE_ENTRIES_MAX;
  overviewChatsMax = OVERVIEW_CHATS_MAX;
  /** Every request that arrived, for claims about what a client sends. */
  readonly requests: ClientFrame[] = [];

  // What a test does at the server

  addChat(chatId: string, userIds: readonly string[]): void {
    const members = new Map(userIds.map((userId) => [userId, newMember(0)]));
    const chat: ChatState = {
      chatId,
      epoch: 1,
      log: [],
      members,
      mutedUntil: new Map(),
      changedAt: ++this.#changes,
      leftAt: new Map(),
      toldUpTo: 0,
    };
    this.#chats.set(chatId, chat);
  }

  connect(userId: string, deviceId = "device"): Session {
    const session = new Session(this, userId, deviceId);
    this.#sessions.add(session);
    session.sent.push({
      type: "welcome",
      user_id: userId,
      device_id: deviceId,
      session_id: `ses_${++this.#ids}`,
      server_time: this.#time(),
      heartbeat_seconds: HEARTBEAT_SECONDS,
      limits: {},
    });
    return session;
  }

  /** Somebody writes, on a device that no test looks at. */
  post(chatId: string, senderId: string, content: string, more: Partial<Entry> = {}): Entry {
    const entry = this.#append(this.#chat(chatId), { ...more, sender_id: senderId, content });
    this.#tell(chatId);
    return entry;
  }

  /** A number that no entry will have. */
  addVoid(chatId: string): void {
    const chat = this.#chat(chatId);
    chat.log.push(null);
    chat.changedAt = ++this.#changes;
    this.#tell(chatId);
  }

  join(chatId: string, userId: string): void {
    const chat = this.#chat(chatId);
    const { sequence } = this.#change(chat, userId, "joined");
    chat.members.set(userId, newMember(sequence));
    chat.leftAt.delete(userId);
    this.#tell(chatId);
    const head = chat.log.length;
    this.#tellPerson(userId, {
      type: "chat_changed",
      chat_id: chatId,
      change: "joined",
      user_id: userId,
      head,
    });
  }

  leave(chatId: string, userId: string): void {
    const chat = this.#chat(chatId);
    this.#change(chat, userId, "left");
    this.#tell(chatId);
    chat.members.delete(userId);
    chat.leftAt.set(userId, chat.changedAt);
    this.#tellPerson(userId, { type: "chat_changed", chat_id: chatId, change: "left", user_id: userId });
  }

  mute(chatId: string, userId: string, until: string | null): void {
    const chat = this.#chat(chatId);
    if (until === null) chat.mutedUntil.delete(userId);
    else chat.mutedUntil.set(userId, until);
    chat.changedAt = ++this.#changes;
    this.#tellPerson(userId, { type: "chat_changed", chat_id: chatId, change: "muted", muted_until: until });
  }

  /** The log is lost and rebuilt under a higher epoch, with its first entries only. */
  startOver(chatId: string, kept: number): void {
    const chat = this.#chat(chatId);
    const entries = chat.log.filter((entry) => entry !== null).slice(0, kept);
    chat.epoch += 1;
    chat.log = entries.map((entry, at) => ({ ...entry, sequence: at + 1, epoch: chat.epoch }));
    chat.toldUpTo = chat.log.length;
    chat.changedAt = ++this.#changes;
  }

  /** An entry is changed where it is stored, and nobody notices. */
  tamper(chatId: string, sequence: number, content: string): void {
    const { log } = this.#chat(chatId);
    const entry = log[sequence - 1];
    if (entry) log[sequence - 1] = { ...entry, content };
  }

  /** The server no longer knows the ids of sends; their entries stay. */
  forgetIds(): void {
    this.#stored.clear();
  }

  comeOnline(userId: string, isOnline: boolean): void {
    if (isOnline) this.online.add(userId);
    else this.online.delete(userId);
    const status = isOnline ? "online" : "offline";
    for (const session of this.#open()) {
      if (session.watched.has(userId)) {
        session.sent.push({ type: "presence", user_id: userId, status, last_seen: null });
      }
    }
  }

  readUpTo(chatId: string, userId: string, sequence: number): void {
    const member = this.#chat(chatId).members.get(userId);
    if (!member || sequence <= member.read) return;
    member.read = sequence;
    member.delivered = Math.max(member.delivered, sequence);
    this.#chat(chatId).changedAt = ++this.#changes;
    this.#receipt(chatId, userId, "read", sequence);
  }

  // What a test asks

  log(chatId: string): readonly (Entry | null)[] {
    return this.#chat(chatId).log;
  }

  /** How far a device has acknowledged. */
  acked(userId: string, chatId: string, deviceId = "device"): number {
    return this.#acked.get(`${userId}/${deviceId} ${chatId}`) ?? 0;
  }

  read(userId: string, chatId: string): number {
    return this.#chat(chatId).members.get(userId)?.read ?? 0;
  }

  /** What `GET /v1/sends/{chat_id}/{client_message_id}` finds. */
  findSend(chatId: string, clientMessageId: string): SendFound | undefined {
    const entry = this.#stored.get(`${chatId} ${clientMessageId}`)?.entry;
    if (!entry) return undefined;
    const { message_id, sequence, epoch, created_at } = entry;
    return {
      status: "stored",
      chat_id: chatId,
      client_message_id: clientMessageId,
      message_id,
      sequence,
      epoch,
      created_at,
    };
  }

  /** A chat as HTTP tells it now; undefined to a person who is not in it. */
  snapshot(chatId: string, viewerId: string): ChatSnapshot | undefined {
    const chat = this.#chat(chatId);
    if (!chat.members.has(viewerId)) return undefined;
    const members = [...chat.members].map(
      ([userId, { joinedSequence }]): MemberInfo => ({
        user_id: userId,
        role: "member",
        joined_at: this.#time(),
        joined_sequence: joinedSequence,
        username: userId,
        display_name: userId,
        status: this.online.has(userId) ? "online" : "offline",
        last_seen: null,
        is_bot: false,
      }),
    );
    const marks = [...chat.members].map(
      ([userId, member]): MemberCursor => ({
        user_id: userId,
        joined_sequence: member.joinedSequence,
        delivered_up_to: member.delivered,
        delivered_at: this.#time(),
        read_up_to: member.read,
        read_at: this.#time(),
      }),
    );
    return {
      info: { title: null, read_receipts: "full" },
      members,
      marks: { mode: "full", marks, read_by_anybody: 0 },
    };
  }

  // Requests

  /** A request arrives. */
  answer(session: Session, frame: ClientFrame): void {
    this.requests.push(frame);
    const isSend = frame.type in APPENDING;
    const refused = (isSend ? this.refuseSends : this.refuseOthers).shift();
    if (refused) {
      refuseIn(session, frame, refused);
      return;
    }
    if (frame.type === "presence_subscribe") {
      session.watched.clear();
      for (const one of frame.user_ids) session.watched.add(one);
    }
    this.done(session, frame);
  }

  /** Do what is asked, and answer. */
  protected done(session: Session, frame: ClientFrame): void {
    const { userId, deviceId } = session;
    const re = frame.id ?? undefined;
    const reply = <Frame extends ServerFrame>(answer: Frame): void => {
      session.sent.push(re === undefined ? answer : { ...answer, re });
    };
    const refuse = (why: Refusal): void => refuseIn(session, frame, why);
    if ("chat_id" in frame && !this.#chats.get(frame.chat_id)?.members.has(userId)) {
      refuse(refusal("not_a_member", { reason: "you are not a member of this chat" }));
      return;
    }
    switch (frame.type) {
      case "send_message":
      case "edit_message":
      case "delete_message":
      case "react": {
        const outcome = this.#send(frame, userId);
        if ("reason" in outcome) refuse(outcome);
        else reply(outcome);
        break;
      }
      case "sync_request":
        reply(this.#page(frame));
        break;
      case "sync_overview":
        reply(this.#overview(frame, userId, deviceId));
        break;
      case "ack": {
        const at = `${userId}/${deviceId} ${frame.chat_id}`;
        this.#acked.set(at, Math.max(this.#acked.get(at) ?? 0, frame.last_acked_sequence));
        const member = this.#chat(frame.chat_id).members.get(userId);
        if (member && frame.last_acked_sequence > member.delivered) {
          member.delivered = frame.last_acked_sequence;
          this.#receipt(frame.chat_id, userId, "delivered", member.delivered);
        }
        break;
      }
      case "read_receipt": {
        const { log } = this.#chat(frame.chat_id);
        const at =
          typeof frame.read_up_to === "number"
            ? frame.read_up_to
            : log.findIndex((entry) => entry?.message_id === frame.read_up_to) + 1 || log.length + 1;
        if (at > log.length) refuse(refusal("ahead_of_log"));
        else this.readUpTo(frame.chat_id, userId, at);
        break;
      }
      case "typing_start":
      case "typing_stop": {
        const expires_in_ms = frame.type === "typing_start" ? TYPING_SHOWN_MS : 0;
        for (const other of this.#listeners(frame.chat_id)) {
          if (other.userId === userId) continue;
          other.sent.push({ type: "typing", chat_id: frame.chat_id, user_id: userId, expires_in_ms });
        }
        break;
      }
      case "presence_subscribe":
      case "presence_query":
        reply({
          type: "presence_state",
          presences: frame.user_ids.map((user_id) => ({
            user_id,
            status: this.online.has(user_id) ? "online" : "offline",
            last_seen: null,
          })),
        });
        break;
      case "heartbeat": {
        const mine = [...this.#chats.values()].filter((chat) => chat.members.has(userId));
        const untold = mine.filter((chat) => chat.log.length > chat.toldUpTo);
        const heads = Object.fromEntries(untold.map((chat) => [chat.chatId, chat.log.length]));
        reply({ type: "heartbeat_ack", server_time: this.#time(), ...(untold.length && { heads }) });
        break;
      }
      default:
        refuse(refusal("unknown_type"));
    }
  }

  #send(frame: Appending, senderId: string): Ack | Refusal {
    const chat = this.#chat(frame.chat_id);
    const key = `${frame.chat_id} ${frame.client_message_id}`;
    const { id: _, ...what } = { ...frame, after_client_message_id: undefined };
    const said = JSON.stringify(what);
    const known = this.#stored.get(key);
    if (known) return ackOf(frame, known.entry, true, known.said !== said);
    if (frame.type === "send_message") {
      const after = frame.after_client_message_id;
      if (after && !this.#stored.has(`${frame.chat_id} ${after}`)) {
        return refusal("out_of_turn", { temporary: true });
      }
      const { content, content_type, mentions, reply_to } = frame;
      const entry = this.#append(chat, {
        sender_id: senderId,
        client_message_id: frame.client_message_id,
        content,
        content_type: content_type ?? "text/plain",
        display_time: frame.display_time ?? null,
        ...(mentions?.length && { mentions }),
        ...(reply_to && { reply_to }),
      });
      this.#stored.set(key, { entry, said });
      this.#tell(frame.chat_id);
      return ackOf(frame, entry);
    }
    const target = chat.log.find((entry) => entry?.message_id === frame.message_id);
    if (!target) return refusal("not_found");
    if (target.deleted) return refusal("message_deleted");
    const entry = this.#append(chat, {
      sender_id: senderId,
      client_message_id: frame.client_message_id,
      target_id: frame.message_id,
      ...(frame.type === "edit_message" && { kind: "edit", content: frame.content }),
      ...(frame.type === "delete_message" && { kind: "delete", content: "" }),
      ...(frame.type === "react" && {
        kind: "reaction",
        content: frame.reaction,
        reaction: frame.reaction,
        on: frame.on ?? true,
      }),
    });
    const changed = entry.kind === "edit" ? edited(target, entry) : tombstone(target);
    if (entry.kind !== "reaction" && changed) chat.log[target.sequence - 1] = changed;
    this.#stored.set(key, { entry, said });
    this.#tell(frame.chat_id);
    return ackOf(frame, entry);
  }

  #page(frame: SyncRequest): ServerFrame {
    const chat = this.#chat(frame.chat_id);
    const head = chat.log.length;
    const known = chat.log[frame.last_acked_sequence - 1]?.message_id;
    const isOther = known !== undefined && frame.last_message_id && known !== frame.last_message_id;
    const reset =
      (frame.epoch ?? chat.epoch) !== chat.epoch || frame.last_acked_sequence > head || Boolean(isOther);
    const after = reset ? 0 : frame.last_acked_sequence;
    const to = Math.min(head, after + Math.min(frame.limit ?? PAGE_ENTRIES_MAX, this.pageEntriesMax));
    const positions = chat.log.slice(after, to);
    return {
      type: "message_batch",
      chat_id: chat.chatId,
      epoch: chat.epoch,
      entries: positions.filter((entry) => entry !== null),
      voids: positions.flatMap((entry, at) => (entry ? [] : [after + at + 1])),
      from_sequence: after + 1,
      to_sequence: to,
      head,
      complete: to === head,
      reset,
      log_hash: this.#hashAt(chat, to),
    };
  }

  #hashAt({ chatId, log }: ChatState, to: number): string {
    let value = emptyLog(chatId);
    for (const [at, entry] of log.slice(0, to).entries()) {
      value = entry ? afterEntry(value, entry) : afterVoid(value, at + 1);
    }
    return shown(value);
  }

  #overview(frame: SyncOverview, userId: string, deviceId: string): Overview {
    const since = Number(frame.changed_since ?? 0);
    const rows: [changedAt: number, row: OverviewChat][] = [];
    for (const chat of this.#chats.values()) {
      const leftAt = chat.leftAt.get(userId);
      const member = chat.members.get(userId);
      const row = rowOf(chat, userId, member, this.acked(userId, chat.chatId, deviceId));
      if (member && chat.changedAt > since) rows.push([chat.changedAt, row]);
      else if (leftAt && leftAt > since && since > 0) rows.push([leftAt, { ...row, left: true }]);
    }
    rows.sort(([one], [other]) => one - other);
    const page = rows.slice(0, Math.min(frame.limit ?? OVERVIEW_CHATS_MAX, this.overviewChatsMax));
    const isComplete = page.length === rows.length;
    const token = isComplete ? this.#changes : (page.at(-1)?.[0] ?? since);
    return {
      type: "overview",
      chats: page.map(([, row]) => row),
      token: String(token),
      complete: isComplete,
    };
  }

  // The log

  #append(chat: ChatState, about: Partial<Entry>): Entry {
    const at = this.#time();
    const entry: Entry = {
      chat_id: chat.chatId,
      sequence: chat.log.length + 1,
      epoch: chat.epoch,
      kind: "message",
      message_id: `msg_${++this.#ids}`,
      sender_id: "",
      client_message_id: null,
      content: "",
      content_type: "text/plain",
      created_at: at,
      server_timestamp: at,
      display_time: null,
      ...about,
    };
    chat.log.push(entry);
    chat.changedAt = ++this.#changes;
    return entry;
  }

  #change(chat: ChatState, userId: string, action: string): Entry {
    const content = JSON.stringify({ action, user_id: userId, role: "member" });
    return this.#append(chat, {
      kind: "member",
      sender_id: userId,
      content,
      content_type: "application/json",
    });
  }

  /** What of a chat was not told yet, one frame for each position. */
  #tell(chatId: string): void {
    const chat = this.#chat(chatId);
    if (!this.tellsLive) return;
    for (const [at, entry] of chat.log.entries()) {
      if (at < chat.toldUpTo) continue;
      const said = entry ? { entries: [entry] } : { entries: [], voids: [at + 1] };
      for (const session of this.#listeners(chatId)) {
        session.sent.push({ type: "messages", chat_id: chatId, epoch: chat.epoch, ...said });
      }
    }
    chat.toldUpTo = chat.log.length;
  }

  #receipt(chatId: string, userId: string, kind: "delivered" | "read", upTo: number): void {
    for (const session of this.#listeners(chatId)) {
      if (kind === "delivered" && session.userId === userId) continue;
      session.sent.push({
        type: "receipt",
        chat_id: chatId,
        user_id: userId,
        kind,
        up_to_sequence: upTo,
        at: this.#time(),
      });
    }
  }

  #tellPerson(userId: string, frame: ServerFrame): void {
    for (const session of this.#open()) {
      if (session.userId === userId) session.sent.push(frame);
    }
  }

  #listeners(chatId: string): Session[] {
    const { members } = this.#chat(chatId);
    return this.#open().filter((session) => members.has(session.userId));
  }

  #open(): Session[] {
    for (const session of this.#sessions) {
      if (!session.isOpen) this.#sessions.delete(session);
    }
    return [...this.#sessions];
  }

  #chat(chatId: string): ChatState {
    const chat = this.#chats.get(chatId);
    if (!chat) throw new Error(`there is no chat ${chatId}`);
    return chat;
  }

  #time(): string {
    return new Date(this.now()).toISOString();
  }
}

function refuseIn(session: Session, { id }: ClientFrame, { retryAfterMs, ...told }: Refusal): void {
  const retry = retryAfterMs === undefined ? {} : { retry_after_ms: retryAfterMs };
  session.sent.push({ type: "refused", re: id ?? null, ...told, ...retry });
}

const APPENDING = { send_message: 1, edit_message: 1, delete_message: 1, react: 1 };

const newMember = (joinedSequence: number): MemberState => ({ joinedSequence, delivered: 0, read: 0 });

function rowOf(
  { chatId, epoch, log, mutedUntil }: ChatState,
  userId: string,
  member: MemberState | undefined,
  acked: number,
): OverviewChat {
  const read = Math.max(member?.read ?? 0, member?.joinedSequence ?? 0);
  const unread = log
    .slice(read)
    .filter((entry) => entry?.kind === "message" && entry.sender_id !== userId && !entry.deleted);
  return {
    chat_id: chatId,
    epoch,
    head: log.length,
    last_acked_sequence: acked,
    read_up_to: member?.read ?? 0,
    unread: unread.length,
    unread_more: false,
    muted: mutedUntil.has(userId),
    muted_until: mutedUntil.get(userId) ?? null,
  };
}

const ackOf = (frame: Appending, entry: Entry, deduplicated = false, conflict = false): Ack => ({
  type: "ack",
  chat_id: frame.chat_id,
  client_message_id: frame.client_message_id,
  message_id: entry.message_id,
  sequence: entry.sequence,
  epoch: entry.epoch,
  created_at: entry.created_at,
  deduplicated,
  conflict,
});
