/** What the core asks of the server over HTTP. */

import type { Ack, ChatMarks, MemberInfo } from "./contract.js";
import { RequestRefused } from "./core/errors.js";
import type { ChatSnapshot } from "./core/members.js";
import { ackFor } from "./core/outbox.js";
import type { OutgoingMessage } from "./core/storage.js";
import type { Http } from "./http.js";
import { PAGE_ENTRIES_MAX } from "./limits.js";
import { allPages, given } from "./pages.js";

const CLOCK_SKEW_MS_MAX = 86_400_000;

/**
 * The ack of a message that may already be stored; undefined if it is not. If the server knows the id, its answer decides.
 * If not, the log back to when the message was written does: an id expires, an entry does not.
 */
export async function findStored(http: Http, message: OutgoingMessage): Promise<Ack | undefined> {
  const { chatId, clientMessageId } = message;
  const path = { chat_id: chatId, client_message_id: clientMessageId };
  try {
    const found = await http.call("GET /v1/sends/{chat_id}/{client_message_id}", { path });
    return ackFor(chatId, clientMessageId, found);
  } catch (error) {
    if (!(error instanceof RequestRefused) || error.code !== "not_found") throw error;
  }
  let before = Number.MAX_SAFE_INTEGER;
  for (;;) {
    const query = { limit: PAGE_ENTRIES_MAX, before };
    const page = await http.call("GET /v1/chats/{chat_id}/messages", { path: { chat_id: chatId }, query });
    const stored = page.entries.find((entry) => entry.client_message_id === clientMessageId);
    if (stored) return ackFor(chatId, clientMessageId, stored);
    const [oldest] = page.entries;
    const isBehind = oldest && Date.parse(oldest.created_at) < message.createdAtMs - CLOCK_SKEW_MS_MAX;
    if (page.from_sequence <= 1 || !oldest || isBehind) return undefined;
    before = page.from_sequence;
  }
}

/** A chat with its members and, unless there are too many, how far each is. */
export async function loadSnapshot(http: Http, chatId: string): Promise<ChatSnapshot> {
  const path = { chat_id: chatId };
  const info = await http.call("GET /v1/chats/{chat_id}", { path });
  const members = await loadMembers(http, chatId);
  let marks: ChatMarks | null = null;
  try {
    marks = await http.call("GET /v1/chats/{chat_id}/receipts", { path });
  } catch (error) {
    if (!(error instanceof RequestRefused) || error.code !== "bad_request") throw error;
  }
  return { info, members, marks };
}

export function loadMembers(http: Http, chatId: string): Promise<MemberInfo[]> {
  return allPages(
    (after) => {
      const query = given<{ after?: string; limit?: number }>({ after, limit: PAGE_ENTRIES_MAX });
      return http.call("GET /v1/chats/{chat_id}/members", { path: { chat_id: chatId }, query });
    },
    (page) => page.members,
    (page) => page.next_after,
  );
}
