/** What a page says of a message counts from where the page was read. */

import { expect, test } from "vitest";
import type { Entry } from "../../src/contract.js";
import { MessageStates } from "../../src/core/life.js";

const message = {
  kind: "message",
  message_id: "msg_1",
  sender_id: "ada",
  sequence: 1,
  content: "tea?",
} as Entry;

const reaction = (sequence: number, sender_id: string, on: boolean) =>
  ({
    kind: "reaction",
    message_id: `msg_${sequence}`,
    target_id: "msg_1",
    sender_id,
    sequence,
    reaction: "👍",
    on,
  }) as Entry;

function reactions(entries: readonly Entry[]): readonly string[] {
  const states = new MessageStates();
  states.apply(message, { upTo: 10, reactions: [{ reaction: "👍", count: 1, user_ids: ["ben"] }] });
  for (const entry of entries) states.apply(entry);
  return states.messages.get("msg_1")?.reactions.flatMap(({ userIds }) => userIds) ?? [];
}

test("reactions that a page counted are there without their entries", () => {
  expect(reactions([])).toEqual(["ben"]);
});

test("an entry that the page counted changes nothing", () => {
  expect(reactions([reaction(3, "cleo", true)])).toEqual(["ben"]);
});

test("a later entry does", () => {
  expect(reactions([reaction(11, "cleo", true), reaction(12, "ben", false)])).toEqual(["cleo"]);
});
