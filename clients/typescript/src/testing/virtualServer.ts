/**
 * A server in this process, for tests of applications: it speaks the protocol, and never fails unless it is told to.
 *
 *     const server = new VirtualServer();
 *     const me = await connect(server.url, server.addPerson("ada"), { deviceId: "laptop", platform: server.platform() });
 *
 * It has chats, messages with edits, deletes and reactions, receipts, typing and presence. It has no files, search, push
 * or operators.
 */

import type { ClientFrame, Entry, OverviewChat, ServerFrame } from "../contract.js";
import { type Platform, type Socket, thisPlatform } from "../platform.js";
import { ChatLog, type Page, Refused, type SendFrame } from "./chatLog.js";

export interface VirtualServerOptions {
  /** The time of day. */
  readonly wall?: () => number;
  /** Call back later: how long frames travel. */
  readonly after?: (ms: number, callback: () => void) => () => void;
  readonly latencyMs?: number;
}

interface Person {
  readonly userId: string;
  readonly username: string;
}

interface Session {
  readonly person: Person;
  readonly deviceId: string | null;
  isOver: boolean;
}

export class VirtualServer {
  readonly url = "http://virtual.test";
  readonly chats = new Map<string, ChatLog>();
  /** The connections that were welcomed and are open. */
  readonly connections = new Set<Connection>();
  /** Every frame that arrived, in order. */
  readonly received: ClientFrame[] = [];
  /** So many connections were welcomed in all. */
  welcomed = 0;
  readonly #people = new Map<string, Person>();
  readonly #sessions = new Map<string, Session>();
  readonly #cursors = new Map<string, number>();
  readonly #options: Required<VirtualServerOptions>;
  #ids = 0;
  #isDown = false;

  constructor({ wall, after, latencyMs = 1 }: VirtualServerOptions = {}) {
    const platform = thisPlatform();
    this.#options = { wall: wall ?? platform.wall, after: after ?? platform.after, latencyMs };
  }

  /** A person with an account. Returns a token that is good for any device. */
  addPerson(username: string): string {
    const person = { userId: `user_${username}`, username };
    this.#people.set(person.userId, person);
    return this.addToken(username);
  }

  /** Another token of a person; `token`: this one, such as a JSON Web Token. */
  addToken(
    username: string,
    deviceId: string | null = null,
    token = `prl_${username}_${this.#next()}`,
  ): string {
    const person = this.#people.get(`user_${username}`);
    if (!person) throw new Error(`there is no ${username}`);
    this.#sessions.set(token, { person, deviceId, isOver: false });
    return token;
  }

  /** The token is no longer good; what it has connected stays. */
  endToken(token: string): void {
    const session = this.#sessions.get(token);
    if (session) session.isOver = true;
  }

  /** A group of these people. Returns its id. */
  addChat(usernames: readonly string[], title: string | null = null): string {
    const chatId = `chat_${this.#next()}`;
    const people = usernames.map((username) => `user_${username}`);
    this.chats.set(chatId, new ChatLog(chatId, "group", title, people));
    return chatId;
  }

  /** Store a message in somebody's name, as from another device. */
  say(username: string, chatId: string, content: string): Entry {
    const frame: SendFrame = {
      type: "send_message",
      chat_id: chatId,
      client_message_id: this.#uuid(),
      content,
    };
    this.send(frame, `user_${username}`);
    return this.log(chatId).at(-1) as Entry;
  }

  log(chatId: string): readonly Entry[] {
    return this.#chat(chatId).entries;
  }

  /** Break every connection; with `isDown`, take no new ones until `up`. */
  cut({ isDown = false, code = 1006 } = {}): void {
    this.#isDown = isDown;
    for (const connection of [...this.connections]) connection.end(code, "");
  }

  /** As after a restore of a backup: every connection breaks, and the log has its first entries alone. */
  restore(chatId: string, kept: number): void {
    this.#chat(chatId).startOver(kept);
    this.cut();
  }

  up(): void {
    this.#isDown = false;
  }

  get isDown(): boolean {
    return this.#isDown;
  }

  /** What a client runs on: this machine, with this server as its network. */
  platform(base: Platform = thisPlatform()): Platform {
    const server = this;
    return {
      ...base,
      fetch: (address, init) => server.#fetch(String(address), init),
      socketClass: class implements Socket {
        binaryType = "blob";
        onopen: Socket["onopen"] = null;
        onmessage: Socket["onmessage"] = null;
        onclose: Socket["onclose"] = null;
        onerror: Socket["onerror"] = null;
        readonly #connection: Connection;

        constructor() {
          this.#connection = new Connection(server, this, server.#options);
        }

        send(data: string | Uint8Array<ArrayBuffer>): void {
          this.#connection.fromClient(String(data));
        }

        close(): void {
          this.#connection.left();
        }
      },
    };
  }

  // For connections

  /** @internal */
  sessionOf(token: string, deviceId: string): Session | undefined {
    const session = this.#sessions.get(token);
    if (!session || session.isOver) return undefined;
    return session.deviceId === null || session.deviceId === deviceId ? session : undefined;
  }

  /** @internal Store a draft, and tell every connection of the members. */
  send(frame: SendFrame, senderId: string): ServerFrame {
    const chat = this.#chat(frame.chat_id);
    const at = new Date(this.#options.wall()).toISOString();
    const { ack, entry } = chat.append(frame, senderId, at, `msg_${this.#next()}`);
    if (entry) {
      const live: ServerFrame = {
        type: "messages",
        chat_id: chat.chatId,
        epoch: chat.epoch,
        entries: [entry],
      };
      // The ack comes before the entry, on the connection that sent it.
      this.#options.after(0, () => this.tell(chat, live));
    }
    return ack;
  }

  /** @internal */
  tell(chat: ChatLog, frame: ServerFrame, except?: string): void {
    for (const connection of this.connections) {
      const { userId } = connection;
      if (userId !== except && chat.members.has(userId)) connection.toClient(frame);
    }
  }

  /** @internal */
  moveCursor(userId: string, deviceId: string, chatId: string, to: number): void {
    const chat = this.#chat(chatId);
    if (to > chat.head) throw new Refused("ahead_of_log");
    const key = `${userId} ${deviceId} ${chatId}`;
    this.#cursors.set(key, Math.max(to, this.#cursors.get(key) ?? 0));
    this.#raise(chat, userId, "delivered", to);
  }

  /** @internal */
  read(userId: string, chatId: string, upTo: number | string): void {
    const chat = this.#chat(chatId);
    const to =
      typeof upTo === "number" ? upTo : (chat.entries.find((one) => one.message_id === upTo)?.sequence ?? 0);
    if (to > chat.head) throw new Refused("ahead_of_log");
    this.#raise(chat, userId, "read", to);
  }

  /** @internal */
  overview(userId: string, deviceId: string): OverviewChat[] {
    return [...this.chats.values()]
      .filter((chat) => chat.members.has(userId))
      .map((chat) => this.#row(chat, userId, deviceId));
  }

  /** @internal */
  page(userId: string, chatId: string, query: Parameters<ChatLog["page"]>[0]): Page {
    const chat = this.#chat(chatId);
    if (!chat.members.has(userId)) throw new Refused("not_a_member");
    return chat.page(query);
  }

  /** @internal */
  isOnline(userId: string): boolean {
    return [...this.connections].some((connection) => connection.userId === userId);
  }

  /** @internal */
  presenceChanged(userId: string): void {
    const status = this.isOnline(userId) ? "online" : "offline";
    for (const connection of this.connections) {
      if (connection.watched.has(userId)) {
        connection.toClient({ type: "presence", user_id: userId, status, last_seen: null });
      }
    }
  }

  #chat(chatId: string): ChatLog {
    const chat = this.chats.get(chatId);
    if (!chat) throw new Refused("not_a_member");
    return chat;
  }

  #raise(chat: ChatLog, userId: string, kind: "delivered" | "read", to: number): void {
    const member = chat.members.get(userId);
    if (!member) throw new Refused("not_a_member");
    if (to <= member[kind]) return;
    member[kind] = to;
    if (kind === "read") member.delivered = Math.max(member.delivered, to);
    const at = new Date(this.#options.wall()).toISOString();
    this.tell(chat, { type: "receipt", chat_id: chat.chatId, user_id: userId, kind, up_to_sequence: to, at });
  }

  #row(chat: ChatLog, userId: string, deviceId: string): OverviewChat {
    const member = chat.members.get(userId);
    const unread = chat.entries.filter(
      (one) => one.kind === "message" && one.sender_id !== userId && one.sequence > (member?.read ?? 0),
    );
    return {
      chat_id: chat.chatId,
      epoch: chat.epoch,
      head: chat.head,
      last_acked_sequence: this.#cursors.get(`${userId} ${deviceId} ${chat.chatId}`) ?? 0,
      read_up_to: member?.read ?? 0,
      unread: unread.length,
      unread_more: false,
      muted: false,
      muted_until: null,
      type: chat.type,
      title: chat.title,
      peer: null,
      last_entry: chat.entries.at(-1) ?? null,
    };
  }

  #next(): string {
    this.#ids += 1;
    return String(this.#ids).padStart(6, "0");
  }

  #uuid(): string {
    return `00000000-0000-4000-8000-${this.#next().padStart(12, "0")}`;
  }

  // HTTP

  async #fetch(address: string, init: RequestInit = {}): Promise<Response> {
    await new Promise<void>((resolve) => void this.#options.after(this.#options.latencyMs, resolve));
    if (this.#isDown) throw new TypeError("fetch failed");
    try {
      return answer(200, this.#route(init, new URL(address)));
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      const status = error.code === "unauthenticated" ? 401 : error.code === "not_found" ? 404 : 403;
      return answer(status, { code: error.code, reason: error.code, temporary: error.isTemporary });
    }
  }

  #route(init: RequestInit, { pathname, searchParams: query }: URL): unknown {
    const token = new Headers(init.headers).get("authorization")?.replace("Bearer ", "") ?? "";
    const session = this.#sessions.get(token);
    if (!session || session.isOver) throw new Refused("unauthenticated");
    const { person } = session;
    const body = typeof init.body === "string" ? JSON.parse(init.body) : {};
    const [first, second, third, fourth] = pathname.split("/").slice(2).map(decodeURIComponent);
    const number = (name: string) => (query.has(name) ? Number(query.get(name)) : undefined);
    const route = `${init.method ?? "GET"} ${first}/${third ?? ""}`;
    switch (route) {
      case "GET me/":
        return profile(person);
      case "GET users/": {
        const found = second ? this.#people.get(second) : this.#people.get(`user_${query.get("username")}`);
        if (!found) throw new Refused("not_found");
        return profile(found);
      }
      case "GET chats/":
        if (second) return this.#info(this.#chat(second));
        return { chats: this.overview(person.userId, session.deviceId ?? ""), token: "1", complete: true };
      case "POST chats/": {
        const usernames = [person.userId, ...body.member_ids].map((id: string) => id.replace("user_", ""));
        const chat = this.#chat(this.addChat([...new Set(usernames)], body.title ?? null));
        this.#options.after(0, () => this.#announce(chat));
        return this.#info(chat);
      }
      case "GET chats/members":
        return { members: this.#members(this.#chat(second ?? "")), next_after: null };
      case "GET chats/receipts":
        return { read_receipts: "full", marks: this.#marks(this.#chat(second ?? "")), read_by_anybody: 0 };
      case "GET chats/messages": {
        if (fourth) return this.#message(this.#chat(second ?? ""), fourth);
        const [after, before, limit] = [number("after"), number("before"), number("limit")];
        return this.page(person.userId, second ?? "", {
          ...(after !== undefined && { after }),
          ...(before !== undefined && { before }),
          ...(limit !== undefined && { limit }),
        });
      }
      case `GET sends/${third}`: {
        const found = this.chats.get(second ?? "")?.stored(person.userId, third ?? "");
        if (!found) throw new Refused("not_found");
        return { status: "stored", ...found };
      }
      default:
        throw new Refused("not_found");
    }
  }

  #announce(chat: ChatLog): void {
    for (const connection of this.connections) {
      if (!chat.members.has(connection.userId)) continue;
      connection.toClient({
        type: "chat_changed",
        chat_id: chat.chatId,
        change: "joined",
        user_id: connection.userId,
        role: "member",
        head: chat.head,
        epoch: chat.epoch,
      });
    }
  }

  #info(chat: ChatLog): unknown {
    return {
      chat_id: chat.chatId,
      type: chat.type,
      title: chat.title,
      read_receipts: "full",
      head: chat.head,
    };
  }

  #members(chat: ChatLog): unknown[] {
    return [...chat.members].map(([userId, member]) => ({
      ...profile(this.#people.get(userId) ?? { userId, username: userId }),
      role: "member",
      joined_at: "2026-01-01T00:00:00.000Z",
      joined_sequence: member.joinedSequence,
      status: this.isOnline(userId) ? "online" : "offline",
      last_seen: null,
    }));
  }

  #marks(chat: ChatLog): unknown[] {
    return [...chat.members].map(([userId, member]) => ({
      user_id: userId,
      joined_sequence: member.joinedSequence,
      delivered_up_to: member.delivered,
      delivered_at: null,
      read_up_to: member.read,
      read_at: null,
    }));
  }

  #message(chat: ChatLog, messageId: string): unknown {
    const entry = chat.entries.find((one) => one.message_id === messageId);
    if (!entry) throw new Refused("not_found");
    return {
      entry,
      edited_at: entry.edited_at ?? null,
      deleted: entry.deleted ?? false,
      reactions: [],
      reply_count: 0,
    };
  }
}

/** One connection, as the server sees it. */
export class Connection {
  readonly #server: VirtualServer;
  readonly #socket: Socket;
  readonly #options: Required<VirtualServerOptions>;
  readonly watched = new Set<string>();
  #session: Session | null = null;
  #deviceId = "";
  #isOpen = true;
  #isSilent = false;

  constructor(server: VirtualServer, socket: Socket, options: Required<VirtualServerOptions>) {
    this.#server = server;
    this.#socket = socket;
    this.#options = options;
    options.after(options.latencyMs, () => {
      if (!this.#isOpen) return;
      if (server.isDown) this.end(1006, "");
      else socket.onopen?.({});
    });
  }

  get userId(): string {
    return this.#session?.person.userId ?? "";
  }

  /** A frame travels to the client. */
  toClient(frame: ServerFrame): void {
    this.#options.after(this.#options.latencyMs, () => {
      if (this.#isOpen && !this.#isSilent) this.#socket.onmessage?.({ data: JSON.stringify(frame) });
    });
  }

  fromClient(text: string): void {
    this.#options.after(this.#options.latencyMs, () => {
      const frame = this.#isOpen && !this.#isSilent ? (JSON.parse(text) as ClientFrame) : null;
      if (frame) this.#receive(frame);
    });
  }

  /** From now on nothing travels in any direction, and nobody says so. */
  goSilent(): void {
    this.#isSilent = true;
  }

  /** The client has closed it. */
  left(): void {
    this.#close();
  }

  /** The connection ends, and the client hears of it. */
  end(code: number, reason: string): void {
    if (!this.#isOpen) return;
    this.#close();
    this.#options.after(this.#options.latencyMs, () => this.#socket.onclose?.({ code, reason }));
  }

  #close(): void {
    this.#isOpen = false;
    if (this.#server.connections.delete(this)) this.#server.presenceChanged(this.userId);
  }

  #receive(frame: ClientFrame): void {
    this.#server.received.push(frame);
    const re = typeof frame.id === "number" ? { re: frame.id } : {};
    try {
      const answered = this.#answer(frame);
      if (answered) this.toClient({ ...answered, ...re });
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      const { code, isTemporary: temporary } = error;
      this.toClient({ type: "refused", code, reason: code, temporary, ...re } as ServerFrame);
      if (code === "unauthenticated") this.end(4101, code);
    }
  }

  #answer(frame: ClientFrame): ServerFrame | undefined {
    const server = this.#server;
    const now = new Date(this.#options.wall()).toISOString();
    switch (frame.type) {
      case "hello":
        return this.#welcome(frame.token, frame.device_id, now);
      case "refresh":
        return this.#welcome(frame.token, this.#deviceId, now);
      case "send_message":
      case "edit_message":
      case "delete_message":
      case "react":
        return server.send(frame, this.userId);
      case "sync_overview": {
        const chats = server.overview(this.userId, this.#deviceId);
        return { type: "overview", chats, token: "1", complete: true };
      }
      case "sync_request": {
        const { last_acked_sequence: after, epoch, last_message_id: lastId, limit } = frame;
        const page = server.page(this.userId, frame.chat_id, {
          after,
          ...(epoch && { epoch }),
          ...(lastId && { lastId }),
          ...(limit && { limit }),
        });
        return { type: "message_batch", ...page };
      }
      case "ack":
        server.moveCursor(this.userId, this.#deviceId, frame.chat_id, frame.last_acked_sequence);
        return undefined;
      case "read_receipt":
        server.read(this.userId, frame.chat_id, frame.read_up_to);
        return undefined;
      case "typing_start":
      case "typing_stop": {
        const chat = server.chats.get(frame.chat_id);
        const expiresInMs = frame.type === "typing_start" ? 5_000 : 0;
        if (!chat?.members.has(this.userId)) throw new Refused("not_a_member");
        const { userId } = this;
        server.tell(
          chat,
          { type: "typing", chat_id: frame.chat_id, user_id: userId, expires_in_ms: expiresInMs },
          userId,
        );
        return undefined;
      }
      case "presence_subscribe":
        this.watched.clear();
        for (const userId of frame.user_ids) this.watched.add(userId);
        return this.#presences(frame.user_ids);
      case "presence_query":
        return this.#presences(frame.user_ids);
      case "heartbeat":
        return { type: "heartbeat_ack", server_time: now };
      case "attention":
        return undefined;
      default:
        throw new Refused("unknown_type");
    }
  }

  #welcome(token: string, deviceId: string, now: string): ServerFrame {
    const session = this.#server.sessionOf(token, deviceId);
    if (!session) throw new Refused("unauthenticated");
    this.#session = session;
    this.#deviceId = deviceId;
    if (!this.#server.connections.has(this)) this.#server.welcomed += 1;
    this.#server.connections.add(this);
    this.#server.presenceChanged(this.userId);
    return {
      type: "welcome",
      user_id: this.userId,
      device_id: deviceId,
      session_id: "ses_virtual",
      server_time: now,
      heartbeat_seconds: 30,
      limits: {},
    };
  }

  #presences(userIds: readonly string[]): ServerFrame {
    const status = (userId: string) => (this.#server.isOnline(userId) ? "online" : "offline");
    const presences = userIds.map((id) => ({ user_id: id, status: status(id), last_seen: null }) as const);
    return { type: "presence_state", presences };
  }
}

function profile({ userId, username }: Person): object {
  return { user_id: userId, username, display_name: username, about: "", is_bot: false };
}

function answer(status: number, body: unknown): Response {
  return new Response(JSON.stringify(body), { status, headers: { "Content-Type": "application/json" } });
}
