/** Requests about the person, others, and a chat. RequestRefused, BadToken or CannotConnect when one fails. */

import type {
  ChatChange,
  ChatHits,
  ChatInfo,
  Device,
  Hits,
  InvitationInfo,
  Me,
  Notify,
  OneMessage,
  OverviewChat,
  Profile,
  ProfileChange,
  ProfileList,
  ReadReceipts,
  Receipts,
  Related,
  ReportMade,
  Role,
} from "./contract.js";
import { BadToken, RequestRefused } from "./core/errors.js";
import type { Http } from "./http.js";
import { OVERVIEW_CHATS_MAX, PAGE_ENTRIES_MAX } from "./limits.js";
import { allPages, given } from "./pages.js";

type Paging = { after?: string; limit?: number };

export class Requests {
  readonly http: Http;

  constructor(http: Http) {
    this.http = http;
  }

  /** Those about a chat. */
  chat(chatId: string): ChatRequests {
    return new ChatRequests(this.http, chatId);
  }

  /** The person's own profile and settings. */
  me(): Promise<Me> {
    return this.http.call("GET /v1/me");
  }

  update(change: ProfileChange): Promise<Me> {
    return this.http.call("PATCH /v1/me", { body: change });
  }

  person(userId: string): Promise<Profile> {
    return this.http.call("GET /v1/users/{user_id}", { path: { user_id: userId } });
  }

  /** The profiles of up to 100 people, those who are found. */
  async people(userIds: readonly string[]): Promise<readonly Profile[]> {
    return ((await this.http.call("GET /v1/users", { query: { ids: userIds } })) as ProfileList).users;
  }

  /** The person with exactly this username; null if there is none. */
  async find(username: string): Promise<Profile | null> {
    try {
      return (await this.http.call("GET /v1/users", { query: { username } })) as Profile;
    } catch (error) {
      if (error instanceof RequestRefused && error.code === "not_found") return null;
      throw error;
    }
  }

  /** Every chat with its title, its last entry and the other person of a direct one. `newest`: only so many. */
  async chats({ newest }: { newest?: number } = {}): Promise<OverviewChat[]> {
    const chats = new Map<string, OverviewChat>();
    let changedSince: string | undefined;
    for (;;) {
      const query = given<{ changed_since?: string; order?: "newest"; limit?: number }>({
        changed_since: changedSince,
        order: newest === undefined ? undefined : "newest",
        limit: Math.min(newest ?? OVERVIEW_CHATS_MAX, OVERVIEW_CHATS_MAX),
      });
      const page = await this.http.call("GET /v1/chats", { query });
      for (const chat of page.chats) chats.set(chat.chat_id, chat);
      const found = [...chats.values()].filter((chat) => !chat.left);
      if (page.complete || (newest !== undefined && found.length >= newest)) return found.slice(0, newest);
      changedSince = page.token;
    }
  }

  /** The newest messages of all chats with these words; `word*` finds words that begin so. */
  search(text: string, page: { before?: string; limit?: number } = {}): Promise<Hits> {
    return this.http.call("GET /v1/search", { query: { q: text, ...page } });
  }

  /** A new group, or the one direct chat with a person. */
  create(type: "group" | "direct", memberIds: readonly string[], title?: string): Promise<ChatInfo> {
    const body = { type, member_ids: memberIds, ...(title !== undefined && { title }) };
    return this.http.call("POST /v1/chats", { body });
  }

  readonly contacts = new UserList(this, "contacts");

  /** People who cannot write to this person directly, nor add them, nor see what they do. */
  readonly blocks = new UserList(this, "blocks");

  /** Chats that others may not add the person to without asking. */
  readonly invitations = new Invitations(this);

  /** Every device with a session of the person, and when it was last used. */
  async devices(): Promise<readonly Device[]> {
    return (await this.http.call("GET /v1/devices")).devices;
  }

  /** The device that the token is for. BadToken if the server does not say it. */
  async ownDevice(): Promise<string> {
    const { sessions } = await this.http.call("GET /v1/sessions");
    const own = sessions.find((session) => session.current);
    if (!own) throw new BadToken("the server does not say which device this token is for; pass deviceId");
    return own.device_id;
  }

  /** End a device's sessions: it is logged out at once. */
  async removeDevice(deviceId: string): Promise<void> {
    await this.http.call("DELETE /v1/devices/{device_id}", { path: { device_id: deviceId } });
  }

  /** Delete the person's own account for good; `erase` also what they wrote. A wrong password is BadToken. */
  async deleteAccount(password = "", { erase = false } = {}): Promise<void> {
    await this.http.call("DELETE /v1/me", { body: { password }, query: erase ? { erase: "bodies" } : {} });
  }
}

/** The person's contacts, or the people they blocked. The server does not tell them. */
export class UserList {
  readonly #people: Requests;
  readonly #name: "contacts" | "blocks";

  constructor(people: Requests, name: "contacts" | "blocks") {
    this.#people = people;
    this.#name = name;
  }

  all(): Promise<Related[]> {
    const { http } = this.#people;
    return allPages(
      async (after) => {
        const query = given<Paging>({ after, limit: PAGE_ENTRIES_MAX });
        if (this.#name === "blocks") return http.call("GET /v1/blocks", { query });
        const { contacts, next_after } = await http.call("GET /v1/contacts", { query });
        return { blocks: contacts, next_after };
      },
      (page) => page.blocks,
      (page) => page.next_after,
    );
  }

  /** Adding twice changes nothing. */
  add(userId: string): Promise<Related> {
    return this.#people.http.call(`PUT /v1/${this.#name}/{user_id}`, { path: { user_id: userId } });
  }

  async remove(userId: string): Promise<void> {
    await this.#people.http.call(`DELETE /v1/${this.#name}/{user_id}`, { path: { user_id: userId } });
  }
}

export class Invitations {
  readonly #people: Requests;

  constructor(people: Requests) {
    this.#people = people;
  }

  all(): Promise<InvitationInfo[]> {
    return allPages(
      (after) => {
        const query = given<Paging>({ after, limit: PAGE_ENTRIES_MAX });
        return this.#people.http.call("GET /v1/invitations", { query });
      },
      (page) => page.invitations,
      (page) => page.next_after,
    );
  }

  async accept(chatId: string): Promise<void> {
    await this.#people.http.call("POST /v1/invitations/{chat_id}", { path: { chat_id: chatId } });
  }

  /** The inviter is not told. */
  async decline(chatId: string): Promise<void> {
    await this.#people.http.call("DELETE /v1/invitations/{chat_id}", { path: { chat_id: chatId } });
  }
}

export class ChatRequests {
  readonly #http: Http;
  readonly #chatId: string;

  constructor(http: Http, chatId: string) {
    this.#http = http;
    this.#chatId = chatId;
  }

  message(messageId: string): Promise<OneMessage> {
    const path = { chat_id: this.#chatId, message_id: messageId };
    return this.#http.call("GET /v1/chats/{chat_id}/messages/{message_id}", { path });
  }

  search(text: string, page: { before?: number; limit?: number } = {}): Promise<ChatHits> {
    const query = { q: text, ...page };
    return this.#http.call("GET /v1/chats/{chat_id}/search", { path: this.#path, query });
  }

  info(): Promise<ChatInfo> {
    return this.#http.call("GET /v1/chats/{chat_id}", { path: this.#path });
  }

  async addMember(userId: string, role: Role = "member"): Promise<boolean> {
    const body = { user_id: userId, role };
    const done = await this.#http.call("POST /v1/chats/{chat_id}/members", { path: this.#path, body });
    return done.added.length > 0;
  }

  async removeMember(userId: string): Promise<void> {
    const path = { ...this.#path, user_id: userId };
    await this.#http.call("DELETE /v1/chats/{chat_id}/members/{user_id}", { path });
  }

  async setRole(userId: string, role: Role): Promise<void> {
    const path = { ...this.#path, user_id: userId };
    await this.#http.call("PATCH /v1/chats/{chat_id}/members/{user_id}", { path, body: { role } });
  }

  rename(title: string): Promise<ChatInfo> {
    return this.#change({ title });
  }

  setReadReceipts(mode: ReadReceipts): Promise<ChatInfo> {
    return this.#change({ read_receipts: mode });
  }

  announceOnly(on = true): Promise<ChatInfo> {
    return this.#change({ announcement_only: on });
  }

  setSlowMode(seconds: number): Promise<ChatInfo> {
    return this.#change({ slow_mode_seconds: seconds });
  }

  setEditWindow(seconds: number | null): Promise<ChatInfo> {
    return this.#change({ edit_window_seconds: seconds });
  }

  mute(until: Date): Promise<ChatInfo> {
    return this.#change({ muted_until: until.toISOString() });
  }

  unmute(): Promise<ChatInfo> {
    return this.#change({ muted_until: null });
  }

  notify(which: Notify): Promise<ChatInfo> {
    return this.#change({ notify: which });
  }

  report(messageId: string, reason: string): Promise<ReportMade> {
    const path = { ...this.#path, message_id: messageId };
    const body = { reason };
    return this.#http.call("POST /v1/chats/{chat_id}/messages/{message_id}/report", { path, body });
  }

  receipts(sequence: number): Promise<Receipts> {
    const path = { ...this.#path, sequence };
    return this.#http.call("GET /v1/chats/{chat_id}/messages/{sequence}/receipts", { path });
  }

  get #path(): { chat_id: string } {
    return { chat_id: this.#chatId };
  }

  #change(change: ChatChange): Promise<ChatInfo> {
    return this.#http.call("PATCH /v1/chats/{chat_id}", { path: this.#path, body: change });
  }
}
