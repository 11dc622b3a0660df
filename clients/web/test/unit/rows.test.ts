import type { Entry, MessageState, Sending } from "parley-chat";
import { expect, test } from "vitest";
import { type MessageRow, type Row, type RowsOf, rowsOf } from "../../src/app/rows.js";

const NOON = Date.parse("2026-03-01T12:00:00Z");
const MINUTE_MS = 60_000;
const DAY_MS = 24 * 60 * MINUTE_MS;

function entry(sequence: number, sender: string, more: Partial<Entry> = {}): Entry {
  const at = new Date(NOON + sequence * MINUTE_MS).toISOString();
  return {
    chat_id: "chat_1",
    sequence,
    epoch: 1,
    kind: "message",
    message_id: `msg_${sequence}`,
    sender_id: sender,
    client_message_id: `client_${sequence}`,
    content: `text ${sequence}`,
    content_type: "text/plain",
    created_at: at,
    server_timestamp: at,
    display_time: null,
    ...more,
  };
}

const waiting = (clientMessageId: string, kind?: "edit") =>
  ({
    message: {
      chatId: "chat_1",
      clientMessageId,
      content: "waits",
      createdAtMs: NOON + DAY_MS / 8,
      ...(kind && { kind }),
    },
    status: "queued",
  }) as unknown as Sending;

function rows(entries: readonly Entry[], more: Partial<RowsOf> = {}): Row[] {
  const messages: MessageState[] = entries
    .filter(({ kind }) => kind === "message")
    .map((one) => ({ entry: one, replies: new Set(), reactions: [] }));
  const of = { entries, messages, unsent: [], userId: "ada", dividerAfter: null, from: 1, isAtEnd: true };
  return rowsOf({ ...of, statusOf: () => "read", ...more });
}

const messages = (all: readonly Row[]) => all.filter((row): row is MessageRow => row.type === "message");

test("messages of one sender within minutes are one group", () => {
  const shown = messages(rows([entry(1, "ben"), entry(2, "ben"), entry(3, "ada"), entry(9, "ada")]));
  expect(shown.map(({ isNext }) => isNext)).toEqual([false, true, false, false]);
  expect(shown.map(({ hasNext }) => hasNext)).toEqual([true, false, false, false]);
});

test("edits, deletes, reactions and kinds of the future have no row", () => {
  const others = ["edit", "delete", "reaction", "poll"].map((kind, at) => entry(at + 2, "ben", { kind }));
  expect(
    rows([entry(1, "ben"), ...others, entry(9, "ben", { kind: "member" })]).map(({ type }) => type),
  ).toEqual(["message", "event"]);
});

test("the first row of each day names it", () => {
  const next = new Date(NOON + DAY_MS).toISOString();
  const shown = rows([entry(1, "ben"), entry(2, "ben"), entry(3, "ben", { created_at: next })]);
  expect(shown.map(({ day }) => day !== null)).toEqual([true, false, true]);
});

test("the divider is before the first unread message of somebody else", () => {
  const shown = rows([entry(1, "ben"), entry(2, "ada"), entry(3, "ben"), entry(4, "ben")], {
    dividerAfter: 1,
  });
  expect(shown.map(({ isFirstUnread }) => isFirstUnread)).toEqual([false, false, true, false]);
});

test("a divider that is before the window is not shown in it", () => {
  const shown = rows([entry(5, "ben"), entry(6, "ben")], { dividerAfter: 2, from: 5 });
  expect(shown.some(({ isFirstUnread }) => isFirstUnread)).toBe(false);
});

test("a message that waits is at the end, and is one with its entry once that is there", () => {
  const before = rows([entry(1, "ben")], { unsent: [waiting("client_2")] });
  expect(messages(before).map(({ key, status }) => [key, status])).toEqual([
    ["msg_1", "sent"],
    ["client_2", "queued"],
  ]);
  const after = rows([entry(1, "ben"), entry(2, "ada")], { unsent: [waiting("client_2")] });
  expect(messages(after).map(({ key, status }) => [key, status])).toEqual([
    ["msg_1", "sent"],
    ["client_2", "read"],
  ]);
});

test("what waits is not shown behind a gap, and an edit that waits is no message", () => {
  expect(rows([entry(1, "ben")], { unsent: [waiting("client_2")], isAtEnd: false })).toHaveLength(1);
  expect(rows([entry(1, "ben")], { unsent: [waiting("client_2", "edit")] })).toHaveLength(1);
});
